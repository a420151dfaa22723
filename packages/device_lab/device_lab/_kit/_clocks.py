"""Seconds of work on a device: by the host's clock, or by events on a CUDA stream."""

import gc
import random
import time
from collections.abc import Callable
from contextlib import contextmanager, nullcontext

import torch

WARM_CALLS, WARM_SECONDS = 3, 0.025  # warm up for at least both
# Functions of a device, asked right after the sampling, while it may still work: what
# makes its times doubtful
DOUBTS: list[Callable[[torch.device], list[str]]] = []


def launch_graph() -> None:
    """Launch what XLA, which is lazy, has recorded, as far as somebody still holds a
    result. Does not wait.
    """
    import torch_xla

    torch_xla.sync()


def wait_for(device: torch.device | str) -> None:
    """Return when `device` has done all that was asked of it."""
    device = torch.device(device)
    if device.type == "xla":
        import torch_xla.core.xla_model

        launch_graph()  # alone it does not wait (seen on torch_xla 2.9.0)
        torch_xla.core.xla_model.wait_device_ops()
    elif device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


class device_clock:
    """`with device_clock() as clock: …`: what the current CUDA stream does for the
    block, by two events around it, `start` and `end`.
    """

    def __enter__(self) -> "device_clock":
        self.start, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.start.record()
        return self

    def __exit__(self, *error: object) -> None:
        self.end.record()

    def seconds(self) -> float:
        """Seconds between the two events. Waits until the second has come."""
        self.end.synchronize()
        return self.start.elapsed_time(self.end) / 1e3


def seconds(fn, device, calls=1):
    """Seconds until so many calls have returned, and until the device is done, which
    is idle before.
    """
    wait_for(device)
    start = time.perf_counter()
    _call(fn, device, calls)
    returned = time.perf_counter() - start
    wait_for(device)
    return returned, time.perf_counter() - start


def _call(fn, device, calls):
    for _ in range(calls):
        result = fn()
        if device.type == "xla":  # computes only what somebody holds
            launch_graph()
        del result


def samples(functions, device, clock, calls, rounds, before):
    """Functions in turns, in another random order each round: name → seconds a call in
    each round; and the doubts. Events are read when all is done.
    """
    taken = {name: [] for name in functions}
    shuffle = random.Random(0)
    current = torch.cuda.device(device) if clock == "device" else nullcontext()
    with current, _no_garbage_collection():
        for _ in range(rounds):
            for name in shuffle.sample(list(functions), len(functions)):
                if before:
                    before()
                if clock == "device":
                    with device_clock() as sample:
                        _call(functions[name], device, calls[name])
                else:
                    sample = seconds(functions[name], device, calls[name])[1]
                taken[name].append(sample)
        doubts = [remark for doubt in DOUBTS for remark in doubt(device)]
    if clock == "device":
        taken = {name: [c.seconds() for c in clocks] for name, clocks in taken.items()}
    return {name: [s / calls[name] for s in taken[name]] for name in taken}, doubts


def warm_up(fn, device):
    """Call `fn` until caches are warm. Returns (seconds a call on the host clock,
    whether the host sets the pace of a GPU).
    """
    calls, start = 1, time.perf_counter()
    while calls < WARM_CALLS or time.perf_counter() - start < WARM_SECONDS:
        returned, done = seconds(fn, device, calls)
        if calls < 100:  # of more, launches may wait for a place in the queue
            host_bound = device.type == "cuda" and returned > 0.9 * done
        cost, calls = done / calls, 2 * calls
    return cost, host_bound


@contextmanager
def _no_garbage_collection():
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
