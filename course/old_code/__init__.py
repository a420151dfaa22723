"""Lesson 16: rows that compare an old snippet with its replacement, and a cell to paste
into.
"""

from course.old_code.cell import PRELUDE, SIGNS, run_cell
from course.old_code.lookup import index, look_up, table
from course.old_code.row import rows

__all__ = [
    "PRELUDE",
    "SIGNS",
    "index",
    "look_up",
    "rows",
    "run_cell",
    "table",
]
