"""Helpers for the lessons of PyTorch Device Lab: what lessons share and do not teach.

Importing it touches no device, starts no thread and reads no network; plots and widgets
load when first used.
"""

import logging

from utils import exercises, plots, recordings
from utils.cells import enable_conditional_cells, expect_error
from utils.checkup import doctor, ready
from utils.claims import claim
from utils.devices import pick_device
from utils.exercises import check, hint, progress, solution
from utils.predictions import predict, reveal
from utils.provenance import where
from utils.timing import measure, measure_together, speedup

__all__ = [
    "check",
    "claim",
    "doctor",
    "exercises",
    "expect_error",
    "hint",
    "measure",
    "measure_together",
    "pick_device",
    "plots",
    "predict",
    "progress",
    "ready",
    "recordings",
    "reveal",
    "solution",
    "speedup",
    "where",
]

# Noise that tells a reader nothing: PyTorch on extensions that no lesson compiles
# (CUDA's compiler on the PATH, but no GPU), matplotlib on its font cache (first use, or
# a home folder that cannot be written).
for _name in ("torch.utils.cpp_extension", "matplotlib"):
    logging.getLogger(_name).setLevel(logging.ERROR)

enable_conditional_cells()
