"""The judge of the capstone on an emulated T4, where it judges copies and precision.
`make test-cuda` runs this.
"""

import os
import subprocess
import sys

import pytest

from emulated_cuda.run import environment
from tests.conftest import ROOT
from tests.tools.test_capstone import changed

# what only a GPU shows: batches that are not pinned, and float32
BACK = [
    (", pin_memory=pin", ""),
    ("torch.bfloat16, enabled=pin", "torch.bfloat16, enabled=False"),
]


@pytest.mark.parametrize(
    ("changes", "left", "total"),
    [
        (BACK, ["copy", "precision"], "total: 60 of 80 points"),
        pytest.param([], [], "total: 80 of 80 points", marks=pytest.mark.weekly),
    ],
    ids=["two faults", "the answer"],
)
def test_what_a_gpu_shows(changes, left, total, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tools.capstone", changed(tmp_path, *changes)],
        cwd=ROOT,
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines if " left: " in line] == left, lines
    assert "emulated Tesla T4" in lines[0] and total in lines[-1], lines
