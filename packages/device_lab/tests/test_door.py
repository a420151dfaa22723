"""What a project sees of the kit: the public names, from the top, and nothing else."""

import ast
import importlib
import json
import os
import pathlib
import pickle
import pkgutil
import subprocess
import sys
import typing

import pytest

import device_lab
from device_lab._kit import _results

PUBLIC = {
    "LabError",
    "busy",
    "does_it_pay",
    "find_waits",
    "left_behind",
    "measure",
    "measure_together",
    "peak",
    "rehearse",
    "speedup",
    "who_waits",
}
RESULTS = set(
    "Busy Left LeftBehind Measurement Pace Part Pays Peak Rehearsed Speedup Wait"
    " Waits".split()
)
TABS = {  # what stands before the cursor -> what is offered
    "device_lab.": PUBLIC,
    "device_lab.find_w": {"find_waits"},
    "from device_lab import ": PUBLIC,
    "from device_lab import who": {"who_waits"},
}
TREE = ast.parse(pathlib.Path(device_lab.__file__).read_text(encoding="utf-8"))


def served():
    """Each name that the top gives, with its module."""
    modules = device_lab._MODULES.items()
    return [(name, module) for module, names in modules for name in names.split()]


def test_the_names_are_listed_for_people_for_type_checkers_and_for_python_alike():
    typed = [node for node in ast.walk(TREE) if isinstance(node, ast.ImportFrom)]
    checkers = {
        alias.asname: node.module
        for node in typed
        for alias in node.names
        if node.level == 1 and alias.asname
    }
    runtime = {name: f"_kit.{module}" for name, module in served()}
    assert checkers == runtime and set(runtime) == PUBLIC | RESULTS
    assert sorted(PUBLIC) == device_lab.__all__
    assert set(dir(device_lab)) == {*PUBLIC, "__version__"}


def test_each_name_is_what_its_module_holds_and_no_module_has_its_name():
    modules = {each.name for each in pkgutil.iter_modules(device_lab.__path__)}
    assert modules == {"__main__", "_command", "_kit"}
    for name, module in served():
        held = importlib.import_module(f"device_lab._kit.{module}")
        assert getattr(device_lab, name) is getattr(held, name)
    assert callable(device_lab.find_waits)
    with pytest.raises(AttributeError, match="'device_lab' has no attribute 'waitz'"):
        device_lab.waitz  # noqa: B018


def in_a_new_python(code, warnings="error", environment=None):
    """The lines that it prints."""
    command = [sys.executable, "-W", warnings, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_importing_loads_nothing_and_sets_nothing():
    code = """if True:
        import os, sys, threading, torch
        before = dict(os.environ), set(sys.modules), threading.active_count()
        import device_lab
        assert (dict(os.environ), threading.active_count()) == before[::2]
        print(*sorted(set(sys.modules) - before[1]))
        for name in " ".join(device_lab._MODULES.values()).split():
            getattr(device_lab, name)
        assert (dict(os.environ), threading.active_count()) == before[::2]
        assert not torch.cuda.is_initialized()
    """
    assert in_a_new_python(code) == ["device_lab"]


@pytest.mark.slow
def test_a_function_is_a_function_after_modules_were_imported():
    code = """if True:
        import device_lab._kit.waits, device_lab._kit.memory, device_lab._kit.timing
        from device_lab import find_waits, peak, measure
        print(find_waits.__name__, peak.__name__, measure.__name__)
        print(*dir(device_lab))
    """
    functions, names = in_a_new_python(code)
    assert functions == "find_waits peak measure"
    assert set(names.split()) == {*PUBLIC, "__version__"}


def test_errors_and_results_are_named_by_where_they_are_imported_from():
    classes = {device_lab.LabError, *_results.Result.__subclasses__()}
    ours = {each for each in classes if each.__module__ != __name__}
    assert {each.__name__ for each in ours} == {"LabError", *RESULTS}
    assert {each.__module__ for each in ours} == {"device_lab"}

    class Theirs(device_lab.Peak):
        pass

    assert Theirs.__module__ == __name__
    part = device_lab.Part(1.0, 0.5, 2.0)
    assert pickle.loads(pickle.dumps(part)) == part
    assert typing.get_type_hints(device_lab.Pace)["parts"] == dict[str, device_lab.Part]


@pytest.mark.slow
def test_pressing_tab_shows_the_public_names(tmp_path):
    """Also after modules were imported. What begins with _ is nobody's."""
    pytest.importorskip("IPython")
    code = f"""if True:
        import importlib, json
        from IPython.core.completer import provisionalcompleter
        from IPython.core.interactiveshell import InteractiveShell

        import device_lab
        shell = InteractiveShell(user_ns={{"device_lab": device_lab}})
        for module in {[*device_lab._MODULES]}:
            importlib.import_module("device_lab._kit." + module)
        for shell.Completer.use_jedi in (True, False):
            for text in {[*TABS]}:
                with provisionalcompleter():
                    shown = list(shell.Completer.completions(text, len(text)))
                print(json.dumps([each.text for each in shown]))
    """
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)}
    lines = in_a_new_python(code, "ignore", environment)
    public = [
        {text.strip(".") for text in json.loads(line) if text.strip(".")[0] != "_"}
        for line in lines
    ]
    assert public == 2 * [*TABS.values()]
