"""Lesson 16: rows that compare an old snippet with its replacement, and a cell to paste
into.
"""

from utils.today.cell import PRELUDE, SIGNS, run_cell
from utils.today.lookup import index, look_up, search, table
from utils.today.row import rows

__all__ = [
    "PRELUDE",
    "SIGNS",
    "index",
    "look_up",
    "rows",
    "run_cell",
    "search",
    "table",
]
