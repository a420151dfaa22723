"""What several tests share: a notebook built from sources, and a kernel that runs it."""

import functools
import os
import pathlib
from unittest import mock

import hypothesis
import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREAMBLE = "import sys\nsys.path.insert(0, {root!r})\nimport torch\nfrom utils import *"

os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")

# No deadline: a test that fails because a machine is busy says nothing. In CI the same examples each time.
hypothesis.settings.register_profile("course", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("course")


def notebook(*sources, preamble=True):
    """A notebook whose code cells hold `sources`, after a cell that imports the course."""
    first = [PREAMBLE.format(root=str(ROOT))] if preamble else []
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{n}") for n, source in enumerate([*first, *sources])]
    return nbformat.v4.new_notebook(cells=cells)


def text_of(cell):
    """All text that a cell shows, errors included."""
    parts = []
    for output in cell.outputs:
        parts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
        parts += output.get("traceback", [])
    return "\n".join(parts)


def run_cells(folder, *sources, strict=False, env=None):
    """Execute cells in a real kernel whose working folder is `folder`; returns the cells after the preamble."""
    with mock.patch.dict(os.environ, {"LAB_STRICT": "1" if strict else "", **(env or {})}):
        nb = notebook(*sources)
        NotebookClient(nb, timeout=120, allow_errors=True, resources={"metadata": {"path": str(folder)}}).execute()
    assert not text_of(nb.cells[0]), text_of(nb.cells[0])
    return nb.cells[1:]


@pytest.fixture
def run(tmp_path):
    """run(*sources, strict=…, env=…): execute cells in a real kernel; returns the cells after the preamble."""
    return functools.partial(run_cells, tmp_path)
