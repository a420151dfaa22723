"""A clock that somebody sets, and devices that take their time from it: what a program
would measure is then known exactly, on a machine of any speed.

Left out: the time of the host's own Python, other than to launch an operation, and
everything that makes real clocks coarse or uneven.
"""

import contextlib
import threading
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LAUNCH = 5e-6  # seconds that the host needs to launch an operation


class Clock:
    """Called, it shows `now`, in seconds, which changes only when somebody sets it.

    readings: how often it was read; just_read: whether since a device last ran
    """

    def __init__(self, now: float = 100.0):
        self.now, self.readings, self.just_read = now, 0, False

    def __call__(self):
        self.readings += 1
        self.just_read = True
        return self.now

    @contextlib.contextmanager
    def in_place_of_time(self, function: Callable) -> Iterator[None]:
        """Within it, this thread reads this clock where it asks perf_counter, monotonic
        or time of the module `time`, or lets timeit do so; also by names that
        `function` finds among its globals. Other threads read the real clocks.
        """
        fakes = {}  # id of what is replaced → what stands in its place
        for name in ("perf_counter", "monotonic", "time"):
            for suffix, unit in (("", 1), ("_ns", 1e9)):
                real = getattr(time, name + suffix)
                fakes[id(real)] = self._instead_of(real, unit)
        clock = fakes[id(time.perf_counter)]
        for real in (timeit.Timer, timeit.timeit, timeit.repeat):
            fakes[id(real)] = _with_timer(real, clock)
        with contextlib.ExitStack() as put_back:
            spaces = vars(time), vars(timeit), getattr(function, "__globals__", {})
            for names in spaces:
                for name, value in list(names.items()):
                    if id(value) in fakes:
                        names[name] = fakes[id(value)]
                        put_back.callback(names.__setitem__, name, value)
            yield

    def _instead_of(self, real, unit):
        here = threading.get_ident()

        def clock():
            if threading.get_ident() != here:
                return real()
            return self() if unit == 1 else int(self() * unit)

        return clock


def _with_timer(real, clock):
    """A function of timeit whose default timer is `clock`."""

    def timed(stmt="pass", setup="pass", timer=clock, *args, **options):
        return real(stmt, setup, timer, *args, **options)

    return timed


class QueueDevice:
    """A device with a queue: `run` launches an operation and returns at once, `wait`
    makes the host wait until the queue is empty.

    seconds: how long each operation takes, one after the other
    busy: seconds of somebody else's work that are in the queue at first

    samples: seconds of each operation by itself, from an empty queue on, its launch
    included; timed: whether the clock was read right before each launch; queued: the
    numbers of those that found the device busy
    """

    def __init__(self, clock: Clock, seconds: Iterable[float], busy: float = 0.0):
        self.clock, self.seconds = clock, iter(seconds)
        self.busy_until = clock.now + busy
        self.samples, self.timed, self.queued = [], [], []

    def run(self) -> None:
        seconds = next(self.seconds)
        if self.busy_until > self.clock.now:
            self.queued.append(len(self.samples))
        self.samples.append(LAUNCH + seconds)
        self.timed.append(self.clock.just_read)
        self.clock.just_read = False
        self.clock.now += LAUNCH
        self.busy_until = max(self.clock.now, self.busy_until) + seconds

    def wait(self) -> None:
        self.clock.now = max(self.clock.now, self.busy_until)


class Matmul(NamedTuple):
    """One matmul. shapes: of the two matrices; places: their types of device;
    threads: how many the CPU had for it.
    """

    shapes: tuple[tuple, tuple]
    places: set[str]
    threads: int


FACTORIES = {"rand", "randn", "randint", "ones", "zeros", "full", "empty", "arange"}


class Matmuls(TorchDispatchMode):
    """Notes the matmuls of a block, and where its matrices come from.

    at_matmul, at_creation: called with the type of device of each matmul ("meta" where
        one matrix is there), and of each new tensor

    done: a Matmul for each; created: types of device, one for each new tensor; moves:
    how many copies went to another device
    """

    def __init__(self, at_matmul: Callable = str, at_creation: Callable = str):
        super().__init__()
        self.at_matmul, self.at_creation = at_matmul, at_creation
        self.done, self.created, self.moves = [], [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            a, b = args[-2:]
            shapes = tuple(a.shape[-2:]), tuple(b.shape[-2:])
            places = {a.device.type, b.device.type}
            self.done.append(Matmul(shapes, places, torch.get_num_threads()))
            self.at_matmul("meta" if "meta" in places else "cpu")
        elif name in ("_to_copy", "copy_"):
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            self.moves += any(x.device != result.device for x in tensors)
        elif name in FACTORIES:
            self.created.append(result.device.type)
            self.at_creation(result.device.type)
        return result
