"""The frame of the lessons: what makes a cell conditional, recorded and judged; claims,
predictions, exercises, plots.

Importing it teaches the running notebook the lines that cells begin with. It touches no
device, starts no thread and reads no network; plots and widgets load when first used.
"""

import logging
import os

from course import exercises, plots, recordings
from course.cells import enable_conditional_cells
from course.claims import claim
from course.exercises import check, hint, progress, solution
from course.expected import expect_error
from course.machine import doctor, ready, slowed_down
from course.messages import untimed
from course.predictions import predict, reveal
from course.provenance import where
from device_lab._kit import _clocks, timing

__all__ = [
    "check",
    "claim",
    "doctor",
    "exercises",
    "expect_error",
    "hint",
    "plots",
    "predict",
    "progress",
    "ready",
    "recordings",
    "reveal",
    "solution",
    "where",
]

# Noise that tells a reader nothing: PyTorch on extensions that no lesson compiles
# (CUDA's compiler on the PATH, but no GPU), matplotlib on its font cache (first use, or
# a home folder that cannot be written).
for _name in ("torch.utils.cpp_extension", "matplotlib"):
    logging.getLogger(_name).setLevel(logging.ERROR)
# Kineto, the library of the profiler, on what it finds here
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

_clocks.DOUBTS.append(slowed_down)
if untimed():  # few samples, and little to warm up
    _clocks.WARM_CALLS, _clocks.WARM_SECONDS, timing.SAMPLE_SECONDS = 2, 0, 0
    timing.MOST_SAMPLES = timing.MIN_SAMPLES

enable_conditional_cells()
