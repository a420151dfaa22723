"""measure: time a function on any device. All samples, median, spread, and which clock.
Lesson 04 explains it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import torch

from . import _clocks
from .errors import LabError, batches_for

# samples; from six on, the extremes enclose the median with 95% confidence
MIN_SAMPLES = 7
MOST_SAMPLES = 1000


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
            f" {time_text(low)} to {time_text(high)}, n {self.n}, {self.clock} clock"
        )
        if self.calls > 1:
            text += f", {self.calls} calls a sample"
        if self.cold:
            text += ", cold"
        return "; ".join([text + ")", *self.remarks])


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95% confidence interval (low, high) of the median of `samples`, without assuming
    a distribution.

    Ranks floor((n - z√n)/2) and ceil(1 + (n + z√n)/2), z = 1.96: Hoefler and Belli,
    "Scientific Benchmarking of Parallel Computing Systems", SC'15, after Le Boudec.
    Wider than it could be below 7 samples or so.
    """
    n, half = len(samples), 1.96 * math.sqrt(len(samples))
    low = max(1, math.floor((n - half) / 2))
    high = min(n, math.ceil(1 + (n + half) / 2))
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


@batches_for("measure calls a function many times")
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

    functions: name → function without arguments; give them inputs with random values,
        a GPU multiplies zeros faster
    device: where the functions work
    clock: "device" (CUDA events; the default on CUDA) or "host" (what the caller waits;
        the default elsewhere)
    seconds: about how long to sample all of them together
    n: that many samples each instead
    cold: overwrite the caches before each sample (one call a sample then)

    LabError for a clock that the device does not have, and for batches that end. The
    rules follow Hoefler and Belli (SC'15) and triton.testing.do_bench.
    """
    device = torch.device(device)
    clock = _clock(clock, device)
    if device.type == "cuda":
        torch.cuda.init()  # before that, waiting for the device does not wait
    flush = _clocks.flusher(device) if cold else None
    overhead = _second_call(flush, device) if cold else 0.0
    warm = {name: _warm(fn, device, clock, cold) for name, fn in functions.items()}
    calls = {name: each.calls for name, each in warm.items()}
    once = sum(each.cost * each.calls + overhead for each in warm.values())
    rounds = n or _rounds(seconds / once)
    sample = _clocks.device_samples if clock == "device" else _clocks.host_samples
    with _clocks.no_garbage_collection():
        samples, reasons = sample(functions, device, calls, rounds, flush)
    shared = {"clock": clock, "cold": cold, "settings": settings()}
    measurements = {}
    for name, (first, _, calls, remarks) in warm.items():
        remarks += [f"the GPU was slowed down by its {reason}" for reason in reasons]
        remarks += _spread(samples[name])
        own = {"calls": calls, "first": first, "remarks": tuple(remarks)}
        measurements[name] = Measurement(tuple(samples[name]), **shared, **own)
    return measurements


def _second_call(fn, device):
    """Seconds of a second call; the first one takes memory from the system, too."""
    _clocks.host_seconds(fn, device, 1)
    return _clocks.host_seconds(fn, device, 1)


def _rounds(most):
    return min(MOST_SAMPLES, max(MIN_SAMPLES, int(most)))


def _clock(clock, device):
    """The clock that is asked for, or the best one of the device where it is None."""
    clocks = ["host", "device"] if device.type == "cuda" else ["host"]
    if clock is None:
        return clocks[-1]
    if clock not in clocks:
        use = " or ".join(map(repr, clocks))
        raise LabError(f"no {clock!r} clock on {device.type}: use clock={use}")
    return clock


class _Warm(NamedTuple):
    """A function that was warmed up. first, cost: seconds of its first and of a warm
    call. calls: in one sample.
    """

    first: float
    cost: float
    calls: int
    remarks: list


def _warm(fn, device, clock, cold):
    if not callable(fn):
        raise LabError(f"measure needs a function, not a {type(fn).__name__}")
    first = _clocks.host_seconds(fn, device, 1)
    cost, host_bound = _clocks.warm_up(fn, device)
    calls = 1 if cold else max(1, math.ceil(_clocks.SAMPLE_SECONDS / cost))
    remarks = []
    if host_bound:
        remarks.append(
            "the host was busy all the while: launching or waiting, not computing, sets"
            " the pace"
        )
    if cold and clock == "device" and cost < 1e-5:
        remarks.append(
            "shorter than 10 µs: one event pair a call measures the launch as well"
        )
    return _Warm(first, cost, calls, remarks)


def _spread(samples):
    """The remark on samples that differ much, if they do."""
    low, median, high = numpy.percentile(samples, [25, 50, 75])
    if high - low > 0.1 * median:
        share = (high - low) / median
        yield f"wide spread: the IQR is {share:.0%} of the median"


def speedup(before: Measurement, after: Measurement) -> Speedup:
    """How many times faster `after` is than `before`. Raises LabError if they were
    timed with two different _clocks.

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
            number = seconds * factor
            return f"{number:.3g} {unit}" if number < 1000 else f"{number:,.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"
