"""Run a notebook in a kernel of this Python: so are outputs stored, lessons recorded,
cells tested.
"""

import contextlib
import os

import nbformat
from nbclient import NotebookClient

# By itself nbclient waits 4 s for what a cell has shown, and then goes on without it:
# too short on a busy machine.
PATIENT = {"iopub_timeout": 60, "raise_on_iopub_timeout": True}


def execute(nb, folder, env=None, **options):
    """Run all code cells of the notebook `nb`; their outputs are in it afterwards.
    Arguments as for `kernel`.

    Raises what nbclient raises: CellExecutionError for a cell that fails,
    CellTimeoutError, DeadKernelError.
    """
    with kernel(nb, folder, env, **options) as client:
        for n, cell in enumerate(nb.cells):
            client.execute_cell(cell, n)


def ask(client, n, code):
    """Run a line of code in a kernel, beside the lesson. Returns what it shows.

    n: number of a cell, which stays as it is
    """
    cell, question = client.nb.cells[n], nbformat.v4.new_code_cell(code)
    client.execute_cell(question, n, store_history=False)
    client.nb.cells[n] = cell  # where nbclient has put the question
    return question.outputs


@contextlib.contextmanager
def kernel(nb, folder, env=None, timeout=600, **options):
    """A kernel for the notebook `nb`, as nbclient's client: `client.execute_cell(cell,
    number)` runs one of its cells.

    folder: where the kernel starts. env: variables that it has besides those of this
    process. timeout: seconds that a cell may take. options: traits of NotebookClient,
    such as allow_errors=True: go on after a cell that fails.
    """
    # the kernel of this Python, not one in the home folder
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
    options = {**PATIENT, **options}
    client = NotebookClient(
        nb, timeout=timeout, resources={"metadata": {"path": str(folder)}}, **options
    )
    with client.setup_kernel(env={**os.environ, **(env or {})}):
        yield client
