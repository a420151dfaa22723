"""The kit of PyTorch Device Lab: small, plain functions for a reader's own loop.

It knows nothing of notebooks or of the course. Importing it touches no device, starts
no thread and reads no network.
"""

from .checkup import doctor
from .devices import pick_device
from .no_gpu import why_no_gpu
from .timing import measure, measure_together, speedup

__all__ = [
    "doctor",
    "measure",
    "measure_together",
    "pick_device",
    "speedup",
    "why_no_gpu",
]
