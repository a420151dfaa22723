"""What keeps the code easy to hold in the head: short modules and functions, imports
that run one way.
"""

import ast
import graphlib

import pytest

from tests.conftest import ROOT

# Each may import those before it, and itself: the kit none of the others.
ORDER = ["utils", "simulate", "course", "lookup", "tools"]
FILES = [path for name in ORDER for path in sorted((ROOT / name).rglob("*.py"))]
MODULE_MOST, FUNCTION_MOST = 350, 45  # lines


def name_of(path):
    """The module that a file holds: "simulate.toy"."""
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


def imported(nodes, package=""):
    """The modules that these statements import; package: where they stand."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from .errors import x`, `from . import clocks`
            inside = [package] * node.level
            module = ".".join([*inside, *filter(None, [node.module])])
            submodules = [f"{module}.{alias.name}" for alias in node.names]
            found = [name for name in submodules if name in MODULES]
            # `from course import cells` needs the module cells, not what the package
            # gives by name: its __init__ imports all of them.
            yield from found or [module]


TREES = {name: ast.parse(path.read_text("utf-8")) for name, path in MODULES.items()}


def test_no_circle_of_imports():
    graph = {
        name: set(imported(tree.body, name.split(".")[0])) & MODULES.keys()
        for name, tree in TREES.items()
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # a circle is a CycleError


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_one_way(name):
    """Also those within functions."""
    allowed = ORDER[: ORDER.index(name.split(".")[0]) + 1]
    for module in imported(ast.walk(TREES[name]), name.split(".")[0]):
        package = module.split(".")[0]
        assert package not in ORDER or package in allowed, module


def test_the_kit_can_have_another_name():
    """Installed it is called device_lab: nothing in it says `utils`."""
    for name, tree in TREES.items():
        if name.startswith("utils"):
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and not node.level:
                    assert node.module.split(".")[0] not in ORDER, (name, node.module)


def test_the_kit_needs_no_notebook():
    """Neither IPython nor widgets, nor what plots; a kernel's settings of IPython are
    looked at through sys.modules only.
    """
    for name, tree in TREES.items():
        if name.startswith("utils"):
            found = set(imported(ast.walk(tree), "utils"))
            packages = {module.split(".")[0] for module in found}
            assert not packages & {"IPython", "ipywidgets", "matplotlib", "pandas"}
