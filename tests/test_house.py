"""What keeps utils and tools easy to hold in the head: short modules and functions,
imports that run one way.
"""

import ast
import graphlib

import pytest

from tests.conftest import ROOT

FILES = [
    path for name in ("utils", "tools") for path in sorted((ROOT / name).rglob("*.py"))
]
MODULE_MOST, FUNCTION_MOST = 350, 45  # lines


def name_of(path):
    """The module that a file holds: "utils.simulate.toy"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
        ".__init__"
    )


MODULES = {name_of(path): path for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_modules_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MODULE_MOST
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno - node.lineno < FUNCTION_MOST, node.name


def imported(path):
    """The modules of the course that a module needs when it is imported."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            found = [name for name in submodules if name in MODULES]
            # `from utils import cells` needs the module cells, not what the package
            # gives by name: its __init__ imports all of them.
            yield from found or [node.module]


def test_imports_run_one_way():
    graph = {
        name: set(imported(path)) & MODULES.keys() for name, path in MODULES.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # a circle is a CycleError
    used = {name for name in graph if name.startswith("utils") for name in graph[name]}
    assert not {name for name in used if name.startswith("tools")}
