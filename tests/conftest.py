"""What tests share: a notebook built from sources, and a kernel that runs it."""

import asyncio
import contextlib
import os
import pathlib

import hypothesis
import nbformat
import pytest
from nbclient import NotebookClient

from tools.lessons import run as runner
from tools.lessons import temporary

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREAMBLE = (
    "import sys\nsys.path.insert(0, {root!r})\nimport torch\nfrom utils import *\n"
    "from course import *"
)

# The packages of the course that lessons import.
PACKAGES = ("device_lab", "utils", "simulate", "course", "torch_messages")
# The folders at the top that hold them.
FOLDERS = ("packages", "utils", "simulate", "course")

# What makes a kernel as good as new: PyTorch stays, the course goes, with all that it
# did to IPython.
RESET = """
def renew():
    import os, sys
    shell = get_ipython()
    callbacks = shell.events.callbacks.values()
    changed = [shell.input_transformers_cleanup, shell.input_transformers_post]
    changed += [*callbacks, sys.path]
    if not hasattr(shell, "as_new"):
        shell.as_new = [list(kept) for kept in changed]
    for kept, now in zip(shell.as_new, changed):
        now[:] = kept
    shell.set_custom_exc((), None)
    shell._lab_conditional_cells = False
    for name in [name for name in sys.modules if name.split(".")[0] in {packages!r}]:
        del sys.modules[name]
    os.environ.clear()
    os.environ.update({env!r})
    os.chdir({folder!r})
    shell.reset()
renew()
"""

# No deadline: a test that fails because a machine is busy says nothing. In CI the same
# examples each time.
hypothesis.settings.register_profile(
    "course", deadline=None, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("course")


@pytest.fixture(scope="session", autouse=True)
def temporary_files():
    with temporary.own_folder():
        yield


def sampled(lessons, numbers):
    """Parameters for a test: of lessons other than these it runs each week only."""
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[] if path.stem[:2] in numbers else pytest.mark.weekly,
        )
        for path in lessons
    ]


def notebook(*sources, preamble=True):
    """A notebook whose cells hold `sources`, after one that imports the course."""
    first = [PREAMBLE.format(root=str(ROOT))] if preamble else []
    cells = [
        nbformat.v4.new_code_cell(source, id=f"cell-{n}")
        for n, source in enumerate([*first, *sources])
    ]
    return nbformat.v4.new_notebook(cells=cells)


def text_of(cell):
    """All text that a cell shows, errors included."""
    parts, stream = [], None
    for output in cell.outputs:
        text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
        if stream and output.get("name") == stream:
            parts[-1] += text  # on a busy machine one line may come in two pieces
        else:
            parts.append(text)
        stream = output.get("name")
        parts += output.get("traceback", [])
    return "\n".join(parts)


def errors_of(cell):
    """Name and message of each error that a cell shows."""
    return [
        f"{output.ename}: {output.evalue}"
        for output in cell.outputs
        if output.output_type == "error"
    ]


@pytest.fixture(scope="session")
def kernel():
    """As tools.lessons.run.kernel, but one process for all tests, each time as good as
    new. It must not end with a test.
    """
    with runner.kernel(notebook("", preamble=False), ROOT) as owner:

        @contextlib.contextmanager
        def kernel(nb, folder, env=None, **options):
            # beside an open Playwright each cell would take a second
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            environment = {**os.environ, **(env or {})}
            packages = (*PACKAGES, "exercises")
            reset = RESET.format(env=environment, folder=str(folder), packages=packages)
            cell = nbformat.v4.new_code_cell(reset)
            owner.execute_cell(cell, 0, store_history=False)
            options = {**runner.PATIENT, "timeout": 600, **options}
            client = NotebookClient(nb, km=owner.km, **options)
            client.kc = owner.kc
            yield client

        yield kernel


@pytest.fixture(scope="session")
def run(kernel, tmp_path_factory):
    """run(*sources, …): execute cells in a real kernel, in an empty folder; returns the
    cells after the preamble.

    strict: with LAB_STRICT=1. env: further variables. alone: in a kernel of its own,
    which ends with the cells.
    """

    def run(*sources, strict=False, env=None, alone=False):
        nb, env = (
            notebook(*sources),
            {"LAB_STRICT": "1" if strict else "", **(env or {})},
        )
        with pytest.MonkeyPatch.context() as patch:
            if not alone:
                patch.setattr(runner, "kernel", kernel)
            runner.execute(nb, tmp_path_factory.mktemp("run"), env, allow_errors=True)
        assert not text_of(nb.cells[0]), text_of(nb.cells[0])
        return nb.cells[1:]

    return run
