"""Does a run on the emulated device find a mistake in a CUDA cell? `make test-cuda`
runs this.

Each cell passes as it is, and fails with one deliberate mistake in it.
"""

import os
import pathlib
import subprocess
import sys

import nbformat
import pytest

from tools.lessons import emulated

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIRST = "import torch\nfrom course import claim, expect_error, where"
FIGURES = """#| requires: cuda
def in_use():
    return torch.cuda.memory_stats()["active_bytes.all.current"]


torch.cuda.init()
side, before = torch.cuda.Stream(), in_use()
x = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    torch.cuda._sleep(2_000_000_000)
x.record_stream(side)
del x  # stays in use until the side stream has done what it was asked for
torch.cuda.synchronize()
# at the next request the allocator looks whether that is so
torch.empty(1, device="cuda")
claim("left", in_use() - before, at_most=0, unit="bytes")
"""
THERE_AND_BACK = """#| requires: cuda
x = torch.arange(6.0)
back = (there := x.to("cuda")).cpu()
claim("the same numbers", torch.equal(x, back))
"""
BUGS = {  # what: (lesson and cell, or a source; right; wrong; the error)
    "a wrong name": (
        ("01", "current"),
        "current_device()",
        "curent_device()",
        "AttributeError",
    ),
    "a tensor on the wrong device": (
        THERE_AND_BACK,
        "equal(x, back)",
        "equal(x, there)",
        "same device",
    ),
    "memory figures before the work has ended": (
        FIGURES,
        "torch.cuda.synchronize()\n",
        "",
        "ClaimError: ✗ left",
    ),
    # Here since PyTorch 2.15; for a pin that has it, take another one.
    "an API that this PyTorch lacks": (
        ("01", "current"),
        "current_device()",
        "graph_annotations",
        "AttributeError",
    ),
}


def source_of(number, cell_id):
    """The source of one cell of a lesson."""
    cells = nbformat.read(emulated.lesson(number), as_version=4).cells
    return next(cell.source for cell in cells if cell.id == cell_id)


def run(path, source):
    """Run a lesson of one cell, strictly: (exit status, what was printed). With two
    GPUs, because a cell that asks for two would otherwise show its recording.
    """
    cells = [nbformat.v4.new_code_cell(text) for text in (FIRST, source)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path / "00_one.ipynb")
    env = emulated.variables("00", "T4", 2, path / "log.txt")
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
    command = [sys.executable, *emulated.COMMAND, str(path / "00_one.ipynb")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=ROOT)
    return done.returncode, done.stdout


@pytest.mark.parametrize("what", BUGS)
def test_a_mistake_in_a_cuda_cell_fails(what, tmp_path):
    cell, right, wrong, error = BUGS[what]
    source = cell if isinstance(cell, str) else source_of(*cell)
    assert source.count(right) >= 1
    status, printed = run(tmp_path, source)
    assert status == 0 and "2 of 2 code cells ran  (2 live" in printed, printed
    status, printed = run(tmp_path, source.replace(right, wrong))
    assert status == 1 and "1 of 2 code cells ran" in printed and error in printed, (
        printed
    )
