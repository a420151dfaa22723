"""train_xla.py: what it says without torch_xla, and that it trains where torch_xla is
installed.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from course.needs import missing_xla
from tests.conftest import ROOT

pytestmark = pytest.mark.xla
SCRIPT = ROOT / "notebooks" / "scripts" / "train_xla.py"
FAKE = """
import importlib.metadata, runpy, sys
real = importlib.metadata.version
fake = {"torch": "2.9.0+cpu", "torch_xla": sys.argv[1]}
importlib.metadata.version = lambda name: fake.get(name) or real(name)
sys.argv = ["train_xla.py"]
runpy.run_path(PATH, run_name="__main__")
"""


def run(*words, folder=None, **env):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.parametrize("theirs", ["2.8.0", "2.7.1"])
def test_another_release_of_torch_xla_gives_one_line(theirs):
    done = run("-c", FAKE.replace("PATH", repr(str(SCRIPT))), theirs)
    versions = f"here are torch 2.9.0+cpu and torch_xla {theirs}"
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"train_xla: torch and torch_xla must be of the same release; {versions}\n"
    )


@pytest.mark.skipif(missing_xla() is None, reason="torch_xla is installed")
def test_without_torch_xla_one_line():
    done = run(SCRIPT)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.endswith("and torch_xla none\n")


@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_trains_and_saves_what_loads_anywhere(tmp_path):
    """With what Kaggle sets, and with the eight CPU devices of lesson 14 in the
    environment.
    """
    kaggle = {
        "TPU_PROCESS_ADDRESSES": "local",
        "CLOUD_TPU_TASK_ID": "0",
        "CPU_NUM_DEVICES": "8",
    }
    done = run(SCRIPT, "--epochs", 3, "--save", "digits.pt", folder=tmp_path, **kaggle)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["world_size"] == 1 and found["accuracy"] > 0.7
    assert found["seen"] == 3 * 22 * 64  # an epoch: 22 batches of 64
    compiled = found["compilations"]
    assert sum(compiled["by hand"]) <= 3, compiled
    assert [counts[-1] for counts in compiled.values()] == [0, 0], compiled
    for losses in found["losses"].values():
        assert len(losses) == 3 and losses[2] < 0.8 * losses[0]
    assert found["losses"]["DDP"] == pytest.approx(found["losses"]["by hand"], abs=1e-5)
    state = torch.load(tmp_path / "digits.pt", weights_only=True)
    assert {tensor.device.type for tensor in state.values()} == {"cpu"}
    assert state["0.weight"].shape == (64, 64)


@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_the_script_of_many_processes_runs_on_chips(tmp_path):
    script = SCRIPT.with_name("many_chips.py")
    done = run(script, folder=tmp_path, CPU_NUM_DEVICES="1")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rpartition(" ")[2]) < 0.3  # the loss of the last batch
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert {tensor.device.type for tensor in state.values()} == {"cpu"}
