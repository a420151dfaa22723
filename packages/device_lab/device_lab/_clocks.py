"""Seconds of work on a device: by the host's clock, or by events on a CUDA stream.
timing.py makes statistics of them.
"""

import contextlib
import gc
import math
import random
import time

import torch

from . import devices

WARM_CALLS, WARM_SECONDS = 3, 0.025  # warm up for at least both
SAMPLE_SECONDS = 0.001  # shorter functions are called several times a sample
# bytes; more than the last-level cache that one core can reach on most CPUs
CPU_FLUSH = 2**27


def wait_for(device: torch.device | str) -> None:
    """Return when `device` has done all that was asked of it. On the CPU there is
    nothing to wait for.
    """
    device = torch.device(device)
    if device.type == "xla":
        devices.synchronize()
    elif device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


class device_clock:
    """`with device_clock() as clock: …`: what the current CUDA stream does for the
    block, on the device's clock.

    start, end: the two events around it, for other streams to wait for.
    """

    def __enter__(self):
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.start.record()
        return self

    def __exit__(self, *error):
        self.end.record()

    def seconds(self) -> float:
        """Seconds between the two events. Waits until the second has come."""
        self.end.synchronize()
        return self.start.elapsed_time(self.end) / 1e3


def sleep_cycles(milliseconds: float, probe: int = 10**8) -> int:
    """How many cycles `torch.cuda._sleep` needs for about so many milliseconds, at this
    GPU's clock of now.

    Measured by a sleep of `probe` cycles. A private call: PyTorch offers no public
    delay of a stream.
    """
    torch.cuda._sleep(1000)  # the first launch of a kernel also loads it
    with device_clock() as clock:
        torch.cuda._sleep(probe)
    return int(probe * milliseconds / (1e3 * clock.seconds()))


def host_seconds(fn, device, calls):
    """Seconds of so many calls, the device idle before and after."""
    wait_for(device)
    start = time.perf_counter()
    _call(fn, device, calls)
    wait_for(device)
    return time.perf_counter() - start


def _call(fn, device, calls):
    if device.type != "xla":
        for _ in range(calls):
            fn()
        return
    for _ in range(calls):
        result = fn()  # XLA is lazy: what nobody holds is never computed
        devices.launch_graph()
        del result


def host_samples(functions, device, calls, rounds, flush):
    """Samples of functions that take turns: name → seconds a call in each round, and
    what slowed the GPU down.

    functions: name → function
    device: where they work
    calls: name → calls in one sample
    rounds: how many samples each
    flush: what overwrites the caches before each sample, or None
    """
    samples = {name: [] for name in functions}
    for name in _shuffled(functions, rounds):
        if flush:
            flush()
        seconds = host_seconds(functions[name], device, calls[name])
        samples[name].append(seconds / calls[name])
    return samples, devices.throttle_reasons(device) if device.type == "cuda" else []


def device_samples(functions, device, calls, rounds, flush):
    """The same by events on the current stream around each sample, with a single
    synchronization at the end.
    """
    clocks = {name: [] for name in functions}
    with torch.cuda.device(device):
        for name in _shuffled(functions, rounds):
            if flush:
                flush()
            with device_clock() as clock:
                _call(functions[name], device, calls[name])
            clocks[name].append(clock)
        # now, while the device may still work
        reasons = devices.throttle_reasons(device)
        torch.cuda.synchronize()
    samples = {
        name: [clock.seconds() / calls[name] for clock in done]
        for name, done in clocks.items()
    }
    return samples, reasons


def _shuffled(names, rounds):
    shuffle = random.Random(0)
    for _ in range(rounds):
        yield from shuffle.sample(list(names), len(names))


def warm_up(fn, device):
    """Call `fn` until caches are warm. Returns (seconds a call on the host clock,
    whether the host sets the pace of a GPU).
    """
    calls, start = 1, time.perf_counter()
    while calls < WARM_CALLS or time.perf_counter() - start < WARM_SECONDS:
        seconds = host_seconds(fn, device, calls) / calls
        calls *= 2
    wait_for(device)
    start = time.perf_counter()
    calls = max(1, min(100, math.ceil(SAMPLE_SECONDS / seconds)))
    _call(fn, device, calls)
    launched = time.perf_counter() - start
    wait_for(device)
    whole = time.perf_counter() - start
    return whole / calls, device.type == "cuda" and launched > 0.9 * whole


def flusher(device):
    """A function that overwrites the caches of `device`: twice the L2 of a GPU, 128 MiB
    on the CPU.
    """
    size = CPU_FLUSH
    if device.type == "cuda":
        size = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    return torch.empty(size, dtype=torch.uint8, device=device).zero_


@contextlib.contextmanager
def no_garbage_collection():
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
