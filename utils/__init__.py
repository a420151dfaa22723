"""What lessons share about devices: detection, hardware, jobs of processes, XLA.

It knows nothing of notebooks. Importing it touches no device, starts no thread and
reads no network.
"""

from device_lab import measure, measure_together, speedup

from .checkup import doctor
from .devices import pick_device
from .no_gpu import why_no_gpu

__all__ = [
    "doctor",
    "measure",
    "measure_together",
    "pick_device",
    "speedup",
    "why_no_gpu",
]
