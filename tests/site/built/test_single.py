"""Each lesson as one file, in an empty folder: it runs to its end where there is
nothing but what it may need.

That is the environment .venv-colab (make env-test-colab), less Accelerate, tqdm and the
course; no git on the PATH, no network, a home folder that is empty. Exercises judge
their solutions, explorers redraw, recordings are shown as in the stored lessons. One
lesson takes half a minute to three minutes: make test-single runs all, two at a time.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess

import nbformat
import pytest

from course.exercises import lesson_exercises
from course.messages import NOT_LIVE, state_of
from tests.conftest import ROOT, errors_of, sampled, text_of
from tests.site.built import alone
from tools import setup_env
from tools.lessons import notebooks
from tools.site import single
from utils.jobs import NOISE

# Colab's versions, or (make test-site, a sample) those of the environment that runs the
# tests.
COLAB = pathlib.Path(
    setup_env.python_of(ROOT / os.environ.get("LAB_SINGLE_IN", ".venv-colab"))
)
LESSONS = {path.stem: path for path in notebooks.lessons()}
# What Colab has, and a bare runtime may not have; and the course itself, as a link to
# this folder.
WITHOUT = re.compile(r"accelerate|tqdm|__editable__|pytorch_device_lab|utils|.*\.pth$")
# Cells of lesson 15 that cannot do without Accelerate: the first says so, the others
# say which cell they wait for.
UNAVAILABLE = {"theirs", "processes"}
WAITING = {"accelerate-equal", "one-state", "their-script", "accumulate"}
WAITING |= {"accelerate-xla-claim", "accelerate-accelerator-claim", "processes-shown"}

# Python runs it when it starts: no connection but to this machine, also where alone.py
# cannot cut off the network.
SITECUSTOMIZE = """
import socket

INTERNET = socket.AF_INET, socket.AF_INET6
HERE = "127.", "::1", "localhost"


def guarded(connect):
    def connect_here(self, address):
        if self.family in INTERNET and not address[0].startswith(HERE):
            raise OSError(f"refused by a test: a connection to {address[0]}")
        return connect(self, address)

    return connect_here


socket.socket.connect = guarded(socket.socket.connect)
socket.socket.connect_ex = guarded(socket.socket.connect_ex)
"""

# Cells that are added at the end of a lesson. They leave its names alone: its explorer
# reads them when it is redrawn.
FACTS = """
def say_facts():
    import _socket, importlib.util, json, shutil, socket, utils
    network = []
    # the second knows nothing of SITECUSTOMIZE
    for kind in (socket.socket, _socket.socket):
        outward = kind()
        outward.settimeout(5)
        try:
            outward.connect(("1.1.1.1", 443))
            network.append("there")
        except OSError as error:
            network.append(str(error))
    facts = {"utils": utils.__file__, "git": shutil.which("git"), "network": network}
    names = "accelerate", "tqdm", "tools"
    facts["modules"] = [name for name in names if importlib.util.find_spec(name)]
    print(json.dumps(facts))

say_facts()
"""
ANSWERS = """
def give_answers():
    import torch
    from course.exercises import lesson_exercises
    for number, exercise in lesson_exercises("NN").items():
        names = {"torch": torch}
        exec(exercise.solution, names)
        check(number, names[exercise.name])

give_answers()
"""
MOVES = """
def move_controls():
    import ipywidgets
    # ipywidgets 8, 7
    known = getattr(ipywidgets.widgets.widget, "_instances", None)
    boxes = [
        box for box in (known or ipywidgets.Widget.widgets).values()
        if isinstance(box, ipywidgets.VBox)
        and "<!-- drawing" in getattr(box.children[-1], "value", "")
    ]
    (explorer,) = boxes
    *controls, picture = explorer.children
    for control in controls:
        before = picture.value
        for value in others(control):
            if picture.value == before:
                control.value = value
        moved = picture.value != before
        print("redrawn" if moved else f"not redrawn: {control}")

def others(control):
    value = control.value
    if hasattr(control, "options"):
        options = control.options  # values, or pairs of a text and a value
        return [each[1] if isinstance(each, tuple) else each for each in options]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return ["numpy"]
    return [type(value)(other) for other in (value / 2, 2 * value, value + 1)]

move_controls()
"""


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """Variables of an environment that has what a single lesson may need, and nothing
    more.
    """
    folder = tmp_path_factory.mktemp("bare")
    assert COLAB.exists(), "There is no .venv-colab: run `make env-test-colab` first."
    venv, tools, home = folder / "venv", folder / "tools", folder / "home"
    subprocess.run([COLAB, "-m", "venv", "--without-pip", venv], check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    here, there = (
        pathlib.Path(subprocess.check_output([python, "-c", code], text=True).strip())
        for python in (COLAB, setup_env.python_of(venv))
    )
    for entry in here.iterdir():
        if not WITHOUT.match(entry.name):
            (there / entry.name).symlink_to(entry)
    (there / "sitecustomize.py").write_text(SITECUSTOMIZE)
    # what says to Jupyter how to start a kernel
    (venv / "share").symlink_to(COLAB.parent.parent / "share")
    tools.mkdir()
    home.mkdir()
    for each in os.environ["PATH"].split(os.pathsep):
        for program in pathlib.Path(each).glob("*"):
            link = tools / program.name
            left_out = program.name.startswith(("git", "python", "pip"))
            if not left_out and not link.exists():
                link.symlink_to(program)
    path = os.pathsep.join([str(venv / "bin"), str(tools)])
    variables = {"PATH": path, "HOME": str(home), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    return {**variables, "LAB_STRICT": "1", "LAB_UNTIMED": "1"}


@pytest.mark.parametrize("path", sampled(LESSONS.values(), ("00", "05", "13")))
def test_lesson_runs_alone(path, bare, tmp_path):
    stem = path.stem
    folder = tmp_path / "an empty folder"
    folder.mkdir()
    own, added = run_alone(stem, bare, folder)
    assert [text for cell in own for text in stderr(cell)] == []
    facts, answers, moves = map(text_of, added)
    check_facts(json.loads(facts), folder)
    verdicts = re.findall(r"^([✓✗○]) (\d\d\.\d) ·", answers, re.M)
    assert verdicts == [("✓", number) for number in lesson_exercises(stem[:2])], answers
    assert set(moves.splitlines()) == {"redrawn"}, moves
    stored = nbformat.read(LESSONS[stem], as_version=4).cells
    before = {cell.id: cell for cell in stored}
    for cell in own:
        if stem.startswith("15") and cell.id in UNAVAILABLE:
            assert states(cell) == {"unavailable"}, cell.id
            assert "needs the package `accelerate`" in text_of(cell), cell.id
        elif stem.startswith("15") and cell.id in WAITING:
            assert states(cell) == {"waiting"}, cell.id
        else:
            told = states(before[cell.id]) & NOT_LIVE
            assert states(cell) & NOT_LIVE == told, cell.id
        drawn = "plots.explorer(" in cell.source or "plots.diagram(" in cell.source
        if drawn and cell.id != "field":  # lesson 16's shows text
            assert pictures(cell) == pictures(before[cell.id]) != set(), cell.id


def run_alone(stem, bare, folder):
    """The code cells of a lesson, and those that are added, after a run in `folder`.

    bare: variables of the environment.
    """
    text = single.single(LESSONS[stem], "pytorch-device-lab-test")
    nb = nbformat.reads(text, as_version=4)
    for source in (FACTS, ANSWERS.replace("NN", stem[:2]), MOVES):
        nb.cells.append(nbformat.v4.new_code_cell(source))
    path = folder / f"{stem}.ipynb"
    nbformat.write(nb, path)
    command = [shutil.which("python", path=bare["PATH"]), alone.__file__, path, "240"]
    done = subprocess.run(command, env=bare, cwd=folder, capture_output=True, text=True)
    nb = nbformat.read(path, as_version=4)
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    errors = [errors_of(cell) for cell in code if errors_of(cell)]
    assert done.returncode == 0, [done.stderr, *errors]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    return code[:-3], code[-3:]


def check_facts(facts, folder):
    """The lesson used what it brought with it, and nothing else was there."""
    utils = folder / "pytorch-device-lab-test" / "utils" / "__init__.py"
    assert pathlib.Path(facts["utils"]) == utils
    assert facts["modules"] == [] and facts["git"] is None
    refused, unreachable = facts["network"]
    assert "refused by a test" in refused
    assert "Network is unreachable" in unreachable or not alone.permitted()


def states(cell):
    return {state_of(output) for output in cell.outputs} - {None}


def pictures(cell):
    found = {form for output in cell.outputs for form in output.get("data", {})}
    return found & {"image/png", "image/svg+xml"}


def stderr(cell):
    """What a cell writes to stderr, but for what PyTorch says of the network that is
    not there.
    """
    if "lab-stderr" in cell.metadata.get("tags", []):
        return []
    texts = [
        NOISE.sub("", output.text)
        for output in cell.outputs
        if output.get("name") == "stderr"
    ]
    return [f"{cell.id}: {text}" for text in texts if text.strip()]
