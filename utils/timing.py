"""measure: time a function on any device. All samples, median, spread, and which clock.
Lesson 04 builds it.
"""

import contextlib
import gc
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy
import torch

from utils import hardware, xla
from utils.messages import LabError, untimed

WARM_CALLS, WARM_SECONDS = 3, 0.025  # warm up for at least both
SAMPLE_SECONDS = 0.001  # shorter functions are called several times a sample
# samples; from six on, the extremes enclose the median with 95% confidence
MIN_SAMPLES = 7
if untimed():
    WARM_CALLS, WARM_SECONDS, SAMPLE_SECONDS = 2, 0, 0
# bytes; more than the last-level cache that one core can reach on most CPUs
CPU_FLUSH = 2**27


@dataclass(frozen=True)
class Measurement:
    """Samples of one function's time, in seconds a call.

    clock: "host" (perf_counter, the device idle before and after) or "device" (events
    on the current stream). calls: how many calls one sample holds. first: seconds of
    the very first call (host clock), compilation and caches included. cold: caches were
    overwritten before each sample. settings: what changes speed. remarks: what makes
    the figures doubtful, such as a GPU whose clock was held down at the end of the
    sampling.
    """

    samples: tuple[float, ...]
    clock: str
    calls: int
    first: float
    cold: bool
    settings: dict
    remarks: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        return len(self.samples)

    @property
    def median(self) -> float:
        """Median of the samples, in seconds."""
        return float(numpy.median(self.samples))

    @property
    def fastest(self) -> float:
        """Smallest sample, in seconds: what the hardware can do when nothing disturbs
        it.
        """
        return min(self.samples)

    @property
    def iqr(self) -> float:
        """Distance between the first and the third quartile, in seconds."""
        low, high = numpy.percentile(self.samples, [25, 75])
        return float(high - low)

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of the median, in seconds: `median_interval` of the
        samples.
        """
        return median_interval(self.samples)

    def __str__(self):
        low, high = self.interval
        text = (
            f"{time_text(self.median)} (IQR {time_text(self.iqr)}, 95%:"
            f" {time_text(low)} to {time_text(high)}"
        )
        text += f", n {self.n}, {self.clock} clock" + (
            f", {self.calls} calls a sample" if self.calls > 1 else ""
        )
        return "; ".join([text + (", cold)" if self.cold else ")"), *self.remarks])


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95% confidence interval (low, high) of the median of `samples`, without assuming
    a distribution.

    Ranks floor((n - z√n)/2) and ceil(1 + (n + z√n)/2), z = 1.96: Hoefler and Belli,
    "Scientific Benchmarking of Parallel Computing Systems", SC'15, after Le Boudec.
    Wider than it could be below 7 samples or so.
    """
    n, half = len(samples), 1.96 * math.sqrt(len(samples))
    low, high = (
        max(1, math.floor((n - half) / 2)),
        min(n, math.ceil(1 + (n + half) / 2)),
    )
    ordered = sorted(samples)
    return ordered[low - 1], ordered[high - 1]


class Speedup(NamedTuple):
    """How many times faster `after` is: ratio of medians, its 95% bootstrap interval,
    and both medians (s).
    """

    times: float
    low: float
    high: float
    before: float
    after: float

    def __str__(self):
        spread = f"95%: {self.low:.3g} to {self.high:.3g}"
        return (
            f"{self.times:.3g} times ({spread}): {time_text(self.before)} →"
            f" {time_text(self.after)}"
        )


def measure(
    fn: Callable[[], object], device: torch.device | str, **options
) -> Measurement:
    """Time `fn()` on `device`. Options and errors as in `measure_together`."""
    return measure_together({"fn": fn}, device, **options)["fn"]


def measure_together(
    functions: dict[str, Callable[[], object]],
    device: torch.device | str,
    *,
    clock: str | None = None,
    seconds: float = 0.5,
    n: int | None = None,
    cold: bool = False,
) -> dict[str, Measurement]:
    """Time several functions interleaved, in a new random order each round, so that
    drift meets all of them.

    device: where the functions work. clock: "device" (CUDA events; the default on CUDA)
    or "host" (what the caller waits; the default elsewhere). seconds: about how long to
    sample all of them together; n: that many samples each instead. cold: overwrite the
    caches before each sample (one call a sample then). Give the functions inputs with
    random values: a GPU multiplies zeros faster. Raises LabError for a clock that the
    device does not have. The rules follow Hoefler and Belli (SC'15) and
    triton.testing.do_bench.
    """
    device = torch.device(device)
    clock = clock or ("device" if device.type == "cuda" else "host")
    if clock not in ("host", "device") or (clock == "device" and device.type != "cuda"):
        raise LabError(
            f"no {clock!r} clock on {device.type}: use clock='host'"
            + " or 'device'" * (device.type == "cuda")
        )
    if device.type == "cuda":
        torch.cuda.init()  # before that, waiting for the device does not wait
    flush, overhead = (_flusher(device) if cold else None), 0.0
    if flush:
        # the first time takes the memory from the system, too
        _host_seconds(flush, device, 1)
        overhead = _host_seconds(flush, device, 1)
    first, cost, calls, remarks = {}, {}, {}, {}
    for name, fn in functions.items():
        first[name] = _host_seconds(fn, device, 1)
        cost[name], remarks[name] = _warm_up(fn, device)
        calls[name] = 1 if cold else max(1, math.ceil(SAMPLE_SECONDS / cost[name]))
        if cold and clock == "device" and cost[name] < 1e-5:
            remarks[name].append(
                "shorter than 10 µs: one event pair a call measures the launch as well"
            )
    each_round = sum(cost[name] * calls[name] + overhead for name in functions)
    rounds = n or min(
        1000, max(MIN_SAMPLES, 0 if untimed() else int(seconds / each_round))
    )
    sample = _device_samples if clock == "device" else _host_samples
    with _no_garbage_collection():
        samples, reasons = sample(functions, device, calls, rounds, flush)
    slowed = [f"the GPU was slowed down by its {reason}" for reason in reasons]
    found = {}
    for name in functions:
        m = Measurement(
            tuple(samples[name]), clock, calls[name], first[name], cold, settings()
        )
        spread = [f"wide spread: the IQR is {m.iqr / m.median:.0%} of the median"] * (
            m.iqr > 0.1 * m.median
        )
        found[name] = replace(m, remarks=(*remarks[name], *slowed, *spread))
    return found


def speedup(before: Measurement, after: Measurement) -> Speedup:
    """How many times faster `after` is than `before`. Raises LabError if they were
    timed with two different clocks.

    Ratio of medians; its interval from 1,000 bootstrap resamples of both (Efron 1979,
    percentile method).
    """
    if before.clock != after.clock:
        raise LabError(
            f"two clocks, {before.clock} and {after.clock}: measure both with the"
            " same one"
        )
    draw = numpy.random.default_rng(0)
    medians = [
        numpy.median(draw.choice(m.samples, (1000, m.n)), axis=1)
        for m in (before, after)
    ]
    low, high = numpy.percentile(medians[0] / medians[1], [2.5, 97.5])
    return Speedup(
        before.median / after.median,
        float(low),
        float(high),
        before.median,
        after.median,
    )


def wait_for(device: torch.device | str) -> None:
    """Return when `device` has done all that was asked of it. On the CPU there is
    nothing to wait for.
    """
    device = torch.device(device)
    if device.type == "xla":
        xla.synchronize()
    elif device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)


def settings() -> dict:
    """What changes the speed of the same code: threads, float32 precision, cuDNN's
    choices, autograd.

    "fp32 matmul" is None where this PyTorch has no such setting (before 2.9).
    """
    return {
        "threads": torch.get_num_threads(),
        "fp32 matmul": getattr(torch.backends.cuda.matmul, "fp32_precision", None),
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
    }


def time_text(seconds: float) -> str:
    """Seconds as text with three digits: 0.00123 → "1.23 ms"."""
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if abs(seconds) * factor >= 1:
            return (
                f"{seconds * factor:.3g} {unit}"
                if seconds * factor < 1000
                else f"{seconds * factor:,.0f} {unit}"
            )
    return f"{seconds * 1e9:.3g} ns"


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


# --------------------------------------------------------------------------------------
# The two clocks


def _host_seconds(fn, device, calls):
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
        kept = fn()  # XLA is lazy: a result that nobody holds is never computed
        xla.launch_graph()
        del kept


def _host_samples(functions, device, calls, rounds, flush):
    samples = {name: [] for name in functions}
    for name in _shuffled(functions, rounds):
        if flush:
            flush()
        samples[name].append(
            _host_seconds(functions[name], device, calls[name]) / calls[name]
        )
    return samples, hardware.throttle_reasons(device) if device.type == "cuda" else []


def _device_samples(functions, device, calls, rounds, flush):
    """Events on the current stream around each sample, and a single synchronization at
    the end.
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
        reasons = hardware.throttle_reasons(device)
        torch.cuda.synchronize()
    return {
        name: [clock.seconds() / calls[name] for clock in done]
        for name, done in clocks.items()
    }, reasons


def _shuffled(names, rounds):
    shuffle = random.Random(0)
    for _ in range(rounds):
        yield from shuffle.sample(list(names), len(names))


def _warm_up(fn, device):
    """Call `fn` until caches are warm. Returns (seconds a call on the host clock,
    remarks).
    """
    calls, start = 1, time.perf_counter()
    while calls < WARM_CALLS or time.perf_counter() - start < WARM_SECONDS:
        seconds = _host_seconds(fn, device, calls) / calls
        calls *= 2
    wait_for(device)
    start = time.perf_counter()
    calls = max(1, min(100, math.ceil(SAMPLE_SECONDS / seconds)))
    _call(fn, device, calls)
    launched = time.perf_counter() - start
    wait_for(device)
    seconds = (time.perf_counter() - start) / calls
    paced = device.type == "cuda" and launched > 0.9 * seconds * calls
    return (
        seconds,
        [
            "the host was busy all the while: launching or waiting, not computing, sets"
            " the pace"
        ]
        * paced,
    )


def _flusher(device):
    """A function that overwrites the caches of `device`: twice the L2 of a GPU, 128 MiB
    on the CPU.
    """
    size = (
        2 * torch.cuda.get_device_properties(device).L2_cache_size
        if device.type == "cuda"
        else CPU_FLUSH
    )
    return torch.empty(size, dtype=torch.uint8, device=device).zero_


@contextlib.contextmanager
def _no_garbage_collection():
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
