"""What lesson 13 shows of TorchTPU, recorded on XLA's CPU device, comes again: in the
environment of requirements-torchtpu.txt: `make test-torchtpu`, each week.
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


def test_lesson_13_shows_what_torchtpu_counts(plugin, tmp_path):
    """Its recipe, which takes TorchTPU's device, and its count of programs."""
    nb = nbformat.read(ROOT / "notebooks" / "13_tpu_with_xla.ipynb", as_version=4)
    cells = {cell.id: cell.source for cell in nb.cells}
    recorded = re.search(r"```text\nRECORDED.*\n([^`]+)```", cells["torchtpu-after"])
    sources = [FIRST.format(root=str(ROOT))]
    sources += [cells[name] for name in ("data", "twin", "torchtpu-count")]
    (tmp_path / "cells.py").write_text("\n\n".join(sources), encoding="utf-8")
    said = run(PYTHON, HERE / "boot.py", tmp_path / "cells.py", **plugin)
    assert "on tpu, mean loss: 1.979\n" in said
    lines = re.findall(r"^(?:strict:|fused:| +\d+ in a step).*\n", said, re.M)
    assert "".join(lines) == recorded[1], said
