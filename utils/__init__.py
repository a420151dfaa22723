"""Helpers for the lessons of PyTorch Device Lab: what lessons share and do not teach.

Importing it touches no device, starts no thread and reads no network; plots and widgets load when first used.
"""

from utils import exercises, plots, recordings
from utils.cells import enable_conditional_cells, expect_error
from utils.claims import claim
from utils.devices import doctor, pick_device
from utils.exercises import check, hint, progress, solution
from utils.recordings import where

__all__ = [
    "check",
    "claim",
    "doctor",
    "exercises",
    "expect_error",
    "hint",
    "pick_device",
    "plots",
    "progress",
    "recordings",
    "solution",
    "where",
]

enable_conditional_cells()
