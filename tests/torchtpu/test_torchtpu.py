"""What lesson 13 shows of TorchTPU, recorded on XLA's CPU device, comes again, and
cells of lessons 03 and 08 that name its device run: in the environment of
requirements-torchtpu.txt: `make test-torchtpu`, each week.
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).parent
PYTHON = pathlib.Path(
    os.environ.get("LAB_TORCHTPU", ROOT / ".venv-torchtpu/bin/python")
)
PLUGIN = "lammps-jax-pjrt-cpu==0.11.2"  # XLA for the CPU as a plugin; 60 MB
FIRST = """
import pathlib
import sys
sys.path.insert(0, {root!r})
import torch
from course import claim
from utils import pick_device
"""

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.skipif(
        platform.system() != "Linux" or not PYTHON.exists() or not shutil.which("cc"),
        reason="needs .venv-torchtpu and a C compiler: make test-torchtpu",
    ),
]


def run(*command, **variables):
    """What a command prints; a test fails where the command does."""
    env = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"} | variables
    done = subprocess.run(
        list(map(str, command)), env=env, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The variables with which TorchTPU takes XLA's CPU device for its own."""
    folder = tmp_path_factory.mktemp("plugin")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target"]
    run(*pip, folder, PLUGIN)
    shim = folder / "shim.so"
    run("cc", "-shared", "-fPIC", "-O1", "-o", shim, HERE / "shim.c", "-ldl")
    (real,) = folder.rglob("pjrt_c_api_cpu_plugin.so")
    return {"REAL_PJRT": str(real), "TPU_LIBRARY_PATH": str(shim)}


def code(lesson):
    """The source of each cell of a lesson, by its id."""
    (path,) = ROOT.glob(f"notebooks/{lesson}_*.ipynb")
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


def on_torchtpu(sources, plugin, folder):
    """What cells print, one after the other; a claim that fails raises."""
    sources = [FIRST.format(root=str(ROOT)), *sources]
    (folder / "cells.py").write_text("\n\n".join(sources), encoding="utf-8")
    strict = plugin | {"LAB_STRICT": "1", "OMP_NUM_THREADS": "1"}
    return run(PYTHON, HERE / "boot.py", folder / "cells.py", **strict)


def test_lesson_13_shows_what_torchtpu_counts(plugin, tmp_path):
    """Its recipe, which takes TorchTPU's device, and its counts of programs."""
    cells = code("13")
    names = ("data", "recipe", "torchtpu-count", "compile-tpu-run")
    said = on_torchtpu([cells[name] for name in names], plugin, tmp_path)
    assert "on tpu, mean loss: 1.979\n" in said
    for answer, line in (
        ("torchtpu-after", r"^(?:strict:|fused:| +\d+ in a step).*\n"),
        ("compile-tpu-after", r"^.* programs in a step: .*\n"),
    ):
        recorded = re.search(r"```text\nRECORDED.*\n([^`]+)```", cells[answer])
        assert "".join(re.findall(line, said, re.M)) == recorded[1], said


def test_lessons_03_and_08_run_on_torchtpus_device(plugin, tmp_path):
    """A run that goes on from its checkpoint, and the recipe with autocast."""
    resumed = (
        "digits recipe train-digits checkpoint load-checkpoint resume resume-claim"
    )
    cells = code("03")
    sources = [cells[name] for name in resumed.split()]
    cells = code("08")
    sources += [cells[id] for id in ("digits", "recipe-type", "recipe")]
    said = on_torchtpu(sources, plugin, tmp_path)
    assert "left out: the random states; losses apart by up to 0." in said
    assert "on tpu, torch.bfloat16: the last loss is " in said
