"""How the course talks to the reader from a cell: one clear line, never a wall of traceback."""

import html
import os
import sys


def strict():
    """Whether missed claims raise (LAB_STRICT=1: tests and recording) or are information (a reader's machine)."""
    return os.environ.get("LAB_STRICT") == "1"


class LabError(Exception):
    """An error whose message says what is wrong and what to do. In a notebook it shows as one line."""

    def _render_traceback_(self):  # IPython calls this instead of printing a traceback
        return [f"{type(self).__name__}: {self}"]


def note(text, state=None):
    """Show `text` as a quiet line between outputs.

    state: what happened to a conditional cell, "replayed" or "unavailable"; stored in the output's metadata so
    that the test run can count live cells.
    """
    if "IPython" not in sys.modules:
        print(text)
        return
    from IPython.display import display

    body = html.escape(text).replace("\n", "<br>")
    data = {
        "text/plain": text,
        "text/html": f'<div style="border-left: 3px solid #999; padding-left: 0.7em; opacity: 0.85">{body}</div>',
    }
    display(data, raw=True, metadata={"device_lab": {"state": state}} if state else {})
