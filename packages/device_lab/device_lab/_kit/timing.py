"""measure: all samples of a function's time, on any device. speedup: how many times
faster, and whether that can be told.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from . import _clocks
from ._results import Result
from .errors import LabError, batches_for, without_arguments

SAMPLE_SECONDS = 0.001  # shorter functions are called several times a sample
MIN_SAMPLES, MOST_SAMPLES = 7, 1000
EVEN = 1.05  # a ratio that surely is smaller is called no difference
TICK = 1e-9  # seconds; nothing is taken to be shorter
STUDENT = {2: 12.71, 3: 4.303, 4: 3.182, 5: 2.776}  # t for 95%, by number of samples
HOST_BOUND = "launching or waiting sets the pace: the host was busy all the while"


@dataclass(frozen=True, repr=False)
class Measurement(Result):
    """Samples of one function's time, in seconds a call.

    clock: "host" (the device idle before and after) or "device" (events on the current
    stream). calls: how many one sample holds. first: seconds of the very first call, by
    the host's clock. settings: what changes speed. remarks: what makes the figures
    doubtful.
    """

    samples: tuple[float, ...]
    clock: str
    calls: int
    first: float
    settings: dict[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        return len(self.samples)

    @property
    def median(self) -> float:
        return float(numpy.median(self.samples))

    @property
    def fastest(self) -> float:
        """What the hardware can do when nothing disturbs it."""
        return min(self.samples)

    @property
    def iqr(self) -> float:
        """Distance between the first and the third quartile."""
        low, high = numpy.percentile(self.samples, [25, 75])
        return float(high - low)

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of the median."""
        return median_interval(self.samples)

    def __str__(self) -> str:
        low, high = self.interval
        text = (
            f"{time_text(self.median)} (IQR {time_text(self.iqr)}, 95%:"
            f" {time_text(low)} to {time_text(high)}, n {self.n}, {self.clock} clock"
        )
        if self.calls > 1:
            text += f", {self.calls} calls a sample"
        return "; ".join([text + ")", *self.remarks])


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95% confidence interval (low, high) of the median of `samples`.

    Ranks floor((n - z√n)/2) and ceil(1 + (n + z√n)/2), z = 1.96, without assuming a
    distribution: Hoefler and Belli, "Scientific Benchmarking of Parallel Computing
    Systems", SC'15. The extremes of fewer than six enclose too little: then by
    Student's t, of their logarithms. One sample tells nothing: 0 to infinity.
    """
    n, half = len(samples), 1.96 * math.sqrt(len(samples))
    if n < 2:
        return 0.0, math.inf
    if n in STUDENT:
        logs = numpy.log(numpy.maximum(samples, TICK))
        center, half = logs.mean(), STUDENT[n] * logs.std(ddof=1) / math.sqrt(n)
        median = float(numpy.median(samples))
        low, high = math.exp(center - half), math.exp(center + half)
        return min(low, median), max(high, median)
    low = max(1, math.floor((n - half) / 2))
    high = min(n, math.ceil(1 + (n + half) / 2))
    ordered = sorted(samples)
    return ordered[low - 1], ordered[high - 1]


def ratio_interval(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float, float]:
    """(one / other, low, high) of two (median, low, high), with 95% intervals: the
    distances to the medians add up in squares, as logarithms (Zou and Donner,
    Statistics in Medicine 27 (2008), 1693).
    """
    (a, a_low, a_high), (b, b_low, b_high) = (
        [math.log(max(seconds, TICK)) for seconds in each] for each in (one, other)
    )
    low = a - b - math.hypot(a - a_low, b_high - b)
    high = a - b + math.hypot(a_high - a, b - b_low)
    return math.exp(a - b), math.exp(low), math.exp(high)


@dataclass(frozen=True, repr=False)
class Speedup(Result):
    """How many times faster `after` is: ratio of medians, its 95% interval, and both
    medians (s).

    answer: "faster" or "slower" where the interval does not hold 1; "even" where it
    does, and ends within 5% of 1; else "undecided". rounds: about how many would
    decide, if the ratio is what it seems to be; 0 where it is decided.
    """

    times: float
    low: float
    high: float
    before: float
    after: float
    answer: str
    rounds: int = 0

    @property
    def doubt(self) -> str:
        """Why it is neither faster nor slower, in words."""
        if self.answer == "even":
            most = max(self.high, 1 / self.low) - 1
            return f"no difference larger than {100 * most:.2g}%"
        if self.answer == "undecided":
            return f"undecided, about n={self.rounds:,} would tell"
        return ""

    def __str__(self) -> str:
        spread = f"95%: {self.low:.3g} to {self.high:.3g}"
        text = (
            f"{self.times:.3g} times ({spread}): {time_text(self.before)} →"
            f" {time_text(self.after)}"
        )
        return "; ".join(filter(None, [text, self.doubt]))


def measure(
    fn: Callable[[], object], device: torch.device | str, **options: Any
) -> Measurement:
    """Time `fn()` on `device`. Options as in `measure_together`."""
    return measure_together({"fn": fn}, device, **options)["fn"]


def measure_together(
    functions: dict[str, Callable[[], object]],
    device: torch.device | str,
    *,
    clock: str | None = None,
    seconds: float = 0.5,
    n: int | None = None,
    before: Callable[[], object] | None = None,
) -> dict[str, Measurement]:
    """Time several functions interleaved, in a new random order each round, so that
    drift meets all of them.

    functions: name → function without arguments; give them inputs with random values,
        a GPU multiplies zeros faster
    device: where the functions work
    clock: "device" (CUDA events; the default on CUDA) or "host" (what the caller waits)
    seconds: about how long to sample all of them; seven rounds are taken in any case
    n: so many rounds instead
    before: called before each sample, outside of its time; a sample is one call then
    """
    device = torch.device(device)
    clock = _clock(clock, device)
    if not isinstance(functions, dict) or not all(map(callable, functions.values())):
        raise LabError("measure needs functions, by name if many: lambda: model(x)")
    for fn in functions.values():
        without_arguments(fn)
    if device.type == "cuda":
        torch.cuda.init()  # before that, waiting for the device does not wait
    with batches_for("measure calls a function many times"):
        warm = {
            name: (_clocks.seconds(fn, device)[1], *_clocks.warm_up(fn, device))
            for name, fn in functions.items()
        }
        calls = {
            name: 1 if before else max(1, math.ceil(SAMPLE_SECONDS / cost))
            for name, (_, cost, _) in warm.items()
        }
        once = sum(cost * calls[name] for name, (_, cost, _) in warm.items())
        rounds = n or min(MOST_SAMPLES, max(MIN_SAMPLES, int(seconds / once)))
        options = device, clock, calls, rounds, before
        samples, doubts = _clocks.samples(functions, *options)
    found = {}
    for name, (first, _, host_bound) in warm.items():
        each, remarks = tuple(samples[name]), [HOST_BOUND] if host_bound else []
        remarks = *remarks, *doubts, *_spread(each)
        found[name] = Measurement(each, clock, calls[name], first, _settings(), remarks)
    return found


def _clock(clock, device):
    clocks = ["host", "device"] if device.type == "cuda" else ["host"]
    if clock is None:
        return clocks[-1]
    if clock not in clocks:
        use = " or ".join(map(repr, clocks))
        raise LabError(f"no {clock!r} clock on {device.type}: use clock={use}")
    return clock


def _spread(samples):
    low, median, high = numpy.percentile(samples, [25, 50, 75])
    if high - low > 0.1 * median:
        share = (high - low) / median
        yield f"wide spread: the IQR is {share:.0%} of the median"


def speedup(before: Measurement, after: Measurement) -> Speedup:
    """How many times faster `after` is than `before`, and whether that can be told.

    >>> times = measure_together({"old": old, "new": new}, "cpu")
    >>> speedup(times["old"], times["new"])
    1.1 times (95%: 0.97 to 1.2): 2.6 ms → 2.4 ms; undecided, about n=85 would tell
    """
    if before.clock != after.clock:
        clocks = f"{before.clock} and {after.clock}"
        raise LabError(f"two clocks, {clocks}: measure both with the same one")
    one, other = ((each.median, *each.interval) for each in (before, after))
    times, low, high = ratio_interval(one, other)
    answer, rounds = "undecided", 0
    if low > 1 or high < 1:
        answer = "faster" if low > 1 else "slower"
    elif 1 / EVEN < low and high < EVEN:
        answer = "even"
    else:
        rounds = _rounds(min(before.n, after.n), times, low, high)
    return Speedup(times, low, high, before.median, after.median, answer, rounds)


def _rounds(n, times, low, high):
    """About how many rounds would tell, where n do not.

    As logarithms, the ratio lies d from 1, and its interval reaches h to that side. h
    shrinks with 1/√n. As the ratio itself scatters by h / 1.96, the interval ends
    before 1 four times in five (a power of 80%, Cohen 1988) when h is d · 1.96 / (1.96
    + 0.84): n · 2 · (h / d)². To show it to be even, it is the distance to `EVEN`.
    """
    if n < MIN_SAMPLES:
        return MIN_SAMPLES
    d, h = abs(math.log(times)), math.log(times / low if times > 1 else high / times)
    return max(n + 1, math.ceil(2 * n * (h / max(d, math.log(EVEN) - d)) ** 2))


def _settings():
    return {
        "threads": torch.get_num_threads(),
        # None before 2.9
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
            text = f"{number:.3g}" if number < 999.5 else f"{number:,.0f}"
            return f"{text} {unit}"
    return f"{seconds * 1e9:.3g} ns"
