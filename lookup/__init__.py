"""Lesson 16: rows that compare an old snippet with its replacement, and a cell to paste
into.
"""

from lookup.cell import PRELUDE, SIGNS, run_cell
from lookup.lookup import index, look_up, table
from lookup.row import rows

__all__ = [
    "PRELUDE",
    "SIGNS",
    "index",
    "look_up",
    "rows",
    "run_cell",
    "table",
]
