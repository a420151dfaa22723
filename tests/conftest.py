"""What several tests share: a notebook built from sources, and a kernel that runs it."""

import os
import pathlib

import hypothesis
import nbformat
import pytest

from tools import run as runner

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREAMBLE = "import sys\nsys.path.insert(0, {root!r})\nimport torch\nfrom utils import *"

# What makes the kernel as good as new: PyTorch stays, the course goes, with all that it did to IPython.
RESET = """
def renew():
    import os, sys
    shell = get_ipython()
    changed = shell.input_transformers_cleanup, shell.input_transformers_post, *shell.events.callbacks.values()
    if not hasattr(shell, "as_new"):
        shell.as_new = [list(kept) for kept in changed], list(sys.path)
    for kept, now in zip(shell.as_new[0], changed):
        now[:] = kept
    shell.set_custom_exc((), None)
    shell._lab_conditional_cells = False
    for name in [name for name in sys.modules if name.split(".")[0] == "utils"]:
        del sys.modules[name]
    sys.path[:] = shell.as_new[1]
    os.environ.clear()
    os.environ.update({env!r})
    os.chdir({folder!r})
    shell.reset()
renew()
"""

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


@pytest.fixture(scope="session")
def kernel():
    """kernel(nb, folder, env, **options): as tools.run.client, in one kernel for all tests, each time as good as new."""
    nb = notebook("", preamble=False)
    owner = runner.client(nb, ROOT)
    real = runner.client

    def client(nb, folder, env=None, **options):
        environment = {**os.environ, **(env or {})}
        reset = nbformat.v4.new_code_cell(RESET.format(env=environment, folder=str(folder)))
        owner.execute_cell(reset, 0, store_history=False)
        shared = real(nb, folder, km=owner.km, **options)
        shared.kc = owner.kc
        return shared

    with owner.setup_kernel():
        yield client


@pytest.fixture(scope="session")
def run(kernel, tmp_path_factory):
    """run(*sources, …): execute cells in a real kernel, in an empty folder; returns the cells after the preamble.

    strict: with LAB_STRICT=1. env: further variables. alone: in a kernel of its own, which ends with the cells.
    """

    def run(*sources, strict=False, env=None, alone=False):
        nb, folder = notebook(*sources), tmp_path_factory.mktemp("run")
        env = {"LAB_STRICT": "1" if strict else "", **(env or {})}
        if alone:
            runner.execute(nb, folder, env, allow_errors=True)
        else:
            kernel(nb, folder, env, allow_errors=True).execute()
        assert not text_of(nb.cells[0]), text_of(nb.cells[0])
        return nb.cells[1:]

    return run
