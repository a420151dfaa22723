"""The kit's clocks under the names that lessons use."""

from device_lab._clocks import device_clock, sleep_cycles, wait_for
from device_lab.timing import (
    Measurement,
    Speedup,
    measure,
    measure_together,
    median_interval,
    settings,
    speedup,
    time_text,
)

__all__ = [
    "Measurement",
    "Speedup",
    "device_clock",
    "measure",
    "measure_together",
    "median_interval",
    "settings",
    "sleep_cycles",
    "speedup",
    "time_text",
    "wait_for",
]
