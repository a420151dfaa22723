"""Run a notebook in a kernel of this Python: the one place that storing outputs, recording and tests do it through."""

import os

from nbclient import NotebookClient


def execute(nb, folder, env=None, **options):
    """Run all code cells of the notebook `nb`; their outputs are in it afterwards.

    folder: where the kernel starts. env: variables that the kernel has besides those of this process. options: as for
    `client`. Raises what nbclient raises: CellExecutionError for a cell that fails, CellTimeoutError, DeadKernelError.
    """
    client(nb, folder, **options).execute(env={**os.environ, **(env or {})})


def client(nb, folder, timeout=600, **options):
    """nbclient's client of `nb`, for who wants to do something between two cells: setup_kernel(), execute_cell(…).

    timeout: seconds that a cell may take. options: traits of nbclient's, such as allow_errors (run on after a failure).
    """
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this Python, not one in the home folder
    return NotebookClient(nb, timeout=timeout, resources={"metadata": {"path": str(folder)}}, **options)
