"""Lesson 16: rows that compare an old snippet with its replacement, and a cell to paste
into.
"""

from utils.today.cell import PRELUDE, SIGNS, run_cell
from utils.today.lookup import find, search, table
from utils.today.row import rows

__all__ = ["PRELUDE", "SIGNS", "find", "rows", "run_cell", "search", "table"]
