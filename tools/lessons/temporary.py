"""Temporary files of lessons and scripts, in a folder that goes with the tests: what is
killed leaves its own.
"""

import contextlib
import os
import tempfile
from unittest import mock


@contextlib.contextmanager
def own_folder():
    """Temporary files of processes that this one starts go to a new folder, which is
    removed at the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as path,
        mock.patch.dict(os.environ, TMPDIR=path),
    ):
        yield
