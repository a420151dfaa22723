"""The kit's clocks and traces under the names that lessons use, and what only lessons
ask of them: cold caches, a delay of a stream.
"""

from collections.abc import Callable

import torch

from device_lab._kit import timing
from device_lab._kit._clocks import device_clock, wait_for
from device_lab._kit.timing import Measurement, median_interval, time_text
from device_lab._kit.trace import trace_events

__all__ = [
    "device_clock",
    "measure",
    "measure_together",
    "median_interval",
    "sleep_cycles",
    "time_text",
    "trace_events",
    "wait_for",
]


def measure(
    fn: Callable[[], object], device: torch.device | str, **options
) -> Measurement:
    """Time `fn()` on `device`. Options as in `measure_together`."""
    return measure_together({"fn": fn}, device, **options)["fn"]


def measure_together(
    functions: dict[str, Callable[[], object]],
    device: torch.device | str,
    *,
    cold: bool = False,
    **options,
) -> dict[str, Measurement]:
    """The kit's `measure_together`. cold: overwrite the caches before each sample:
    twice the L2 of a GPU; 128 MiB on the CPU, more than one core can reach on most.
    """
    if cold:
        size = 2**27
        if torch.device(device).type == "cuda":
            size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
        options["before"] = torch.empty(size, dtype=torch.uint8, device=device).zero_
    return timing.measure_together(functions, device, **options)


def sleep_cycles(milliseconds: float, probe: int = 10**8) -> int:
    """How many cycles `torch.cuda._sleep` needs for about so many milliseconds, at this
    GPU's clock of now, measured by a sleep of `probe` cycles. A private call: PyTorch
    offers no public delay of a stream.
    """
    torch.cuda._sleep(1000)  # the first launch of a kernel also loads it
    with device_clock() as clock:
        torch.cuda._sleep(probe)
    return int(probe * milliseconds / (1e3 * clock.seconds()))
