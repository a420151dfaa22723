"""Exercises of lesson 13."""

import math
from itertools import combinations
from numbers import Integral, Real

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call


def _pair(got, shown, meaning):
    if isinstance(got, (tuple, list)) and any(value is DOTS for value in got):
        raise NotAnswered
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"for {shown} you returned {got!r}, expected a pair: {meaning}")
    return got


STATES = [  # torch, torch_xla, runtime, expected, why
    ("2.13.0", None, None, "not installed", "there is no torch_xla"),
    ("2.9.0+cpu", "2.9.0", "CPU", "no TPU", "the pair matches and runs on XLA's CPU device"),
    ("2.9.0+cpu", "2.9.0", "TPU", "TPU", "what stands behind the + says how torch was built, not which release it is"),
    ("2.9.1", "2.9.0", "TPU", "TPU", "2.9.1 and 2.9.0 are the same release; the third number is a repair of it"),
    ("2.11.0+cu128", "2.9.0", None, "mismatch", "2.11 is not 2.9, so the import would fail"),
    ("2.1.0", "2.10.0", None, "mismatch", "2.1 is not 2.10: compare numbers, not the first letters"),
    ("2.9.0", "2.9.0", None, "no runtime", "the pair matches, but the runtime gave no answer"),
    ("3.9.0", "2.9.0", None, "mismatch", "both numbers count, also the first"),
    (
        "2.13.0",
        "2.9.0",
        "TPU",
        "mismatch",
        "the versions come first: what such a pair says of its runtime is worth nothing",
    ),
]


def check_state(answer):
    for torch_version, xla_version, runtime, expected, why in STATES:
        got = call(answer, torch_version, xla_version, runtime)
        if got != expected:
            shown = f"torch {torch_version!r}, torch_xla {xla_version!r}, runtime {runtime!r}"
            raise Wrong(f"for {shown} you returned {got!r}, expected {expected!r}: {why}")


CONSTANTS = [
    ([2.0, 3.0, 0.5], 1, "ordinary numbers are inputs of one and the same program"),
    ([2.0, 1.0, 3.0, 1.0], 2, "1 is baked in, and its program is kept for the second 1"),
    ([0.0, 1.0, -1.0], 3, "0, 1 and -1 have a program each"),
    ([0, 0.0, 1, 1.0], 2, "0 and 0.0 are equal"),
    ([], 0, "a loop that does nothing compiles nothing"),
    ([0.1 * k for k in range(2, 9)], 1, "a schedule without 0, 1 and -1 needs one program"),
    ([-2.0, -3.0, -1.0], 2, "-1 is baked in, as 1 is; other negative numbers are inputs"),
]


def check_compilations(answer):
    for values, expected, why in CONSTANTS:
        got = call(answer, list(values))
        if isinstance(got, bool) or not isinstance(got, Integral) or got != expected:
            raise Wrong(f"for {[round(v, 1) for v in values]} you returned {got!r}, expected {expected}: {why}")


def check_programs(answer):
    meaning = "programs run, numbers copied"
    for steps, every, place in (
        (20, 1, "before backward"),
        (20, 1, "after sync"),
        (20, 10, "after sync"),
        (20, 10, "before backward"),
        (7, 3, "before backward"),
        (5, 10, "after sync"),
    ):
        shown = f"steps={steps}, every={every}, {place!r}"
        got = tuple(_pair(call(answer, steps, every, place, shown=shown), shown, meaning))
        reads = steps // every
        expected = (steps + reads * (place == "before backward"), reads)
        if got == expected:
            continue
        why = f"for {shown} you returned {got}, expected {expected}"
        if got[1] != reads:
            why += f": a number is read {reads} times, and each time one number is copied"
        elif place == "after sync":
            why += ": after the sync the loss is computed already, reading it runs nothing"
        else:
            why += ": before backward the forward pass runs once for the number, and again as a part of the step"
        raise Wrong(why)


def _report(compile_lines, extra=""):
    head = "Metric: DeviceLockWait\n  TotalSamples: 40\n  Accumulator: 05s017ms000.000us\n"
    tail = "Metric: ExecuteTime\n  TotalSamples: 16\n  Accumulator: 009ms125.250us\n  ValueRate: 12s / second\n"
    return head + compile_lines + tail + extra + "Counter: CachedCompile\n  Value: 14\n"


def _block(samples, accumulator, name="CompileTime"):
    percentiles = "  ValueRate: 512ms024.100us / second\n  Rate: 1.2 / second\n"
    percentiles += "  Percentiles: 1%=098ms449.199us; 50%=01s905ms000.000us; 99%=01s905ms000.000us\n"
    return f"Metric: {name}\n  TotalSamples: {samples}\n  Accumulator: {accumulator}\n{percentiles}"


REPORTS = {
    "two compilations": (_report(_block(2, "01s003ms004.500us")), (2, 1.0030045)),
    "milliseconds alone": (_report(_block(1, "108ms449.199us")), (1, 0.108449199)),
    "microseconds alone": (_report(_block(1, "088.015us")), (1, 88.015e-6)),
    "minutes": (_report(_block(37, "02m45s120ms000.250us")), (37, 165.12000025)),
    "days": (_report(_block(9000, "01d02h03m04s005ms006.000us")), (9000, 93784.005006)),
    "hours": (_report(_block(400, "01h02m03s004ms005.000us")), (400, 3723.004005)),
    "a report without CompileTime": (_report(""), (0, 0.0)),
    "CompileTime at the end": (_report("", _block(3, "500ms000.000us")), (3, 0.5)),
}


def check_read_report(answer):
    for shown, (report, expected) in REPORTS.items():
        got = tuple(_pair(call(answer, report, shown=shown), shown, "compilations, seconds"))
        if not all(isinstance(value, Real) for value in got):
            raise Wrong(f"for {shown} you returned {got}, expected two numbers")
        if got[0] == expected[0] and math.isclose(got[1], expected[1], rel_tol=1e-9, abs_tol=1e-12):
            continue
        why = f"for {shown} you returned {got}, expected {expected}"
        if got[0] != expected[0]:
            why += ": TotalSamples below the line `Metric: CompileTime`, not that of another metric"
        elif "m" in report.split("Accumulator: ")[2].split("\n")[0].replace("ms", ""):
            why += ": m is minutes, ms is milliseconds"
        else:
            why += ": add up all parts of its Accumulator, each with its unit"
        raise Wrong(f"{why}. The block is:\n{report[report.find('Metric: CompileTime') :].strip()}")


BUCKETS = [
    ([100, 120, 125], 1.25),
    ([100, 126], 1.25),
    ([10, 20, 40, 80], 2),
    ([7], 1.5),
    ([5, 9, 9, 5], 1),
    ([64, 30, 31, 33, 60, 17, 16, 15], 2),
    ([10, 11, 15, 16, 22], 1.5),
    ([1, 3, 4, 6, 9, 13, 20, 28, 41], 1.4),
]


def _covers(found, lengths, most):
    return all(any(n <= bucket <= most * n + 1e-9 for bucket in found) for n in lengths)


def _fewest(lengths, most):
    distinct = sorted(set(lengths))
    return next(
        k for k in range(1, len(distinct) + 1) if any(_covers(c, distinct, most) for c in combinations(distinct, k))
    )


def check_buckets(answer):
    for lengths, most in BUCKETS:
        shown = f"lengths {lengths}, most {most}"
        got = call(answer, list(lengths), most, shown=shown)
        if not isinstance(got, (list, tuple)) or not all(isinstance(n, Real) for n in got):
            raise Wrong(f"for {shown} you returned {got!r}, expected a list of numbers")
        got = list(got)
        if got != sorted(set(got)):
            raise Wrong(f"for {shown} you returned {got}: sort the buckets, and name each once")
        for n in lengths:
            bucket = next((b for b in got if b >= n), None)
            if bucket is None:
                raise Wrong(f"for {shown} you returned {got}: no bucket holds the length {n}")
            if bucket > most * n + 1e-9:
                raise Wrong(f"for {shown} you returned {got}: {n} grows to {bucket}, more than {most} times")
        if len(got) > _fewest(lengths, most):
            fewest = _fewest(lengths, most)
            raise Wrong(
                f"for {shown} you returned {got}, {len(got)} buckets; {fewest} are enough. Begin with the longest"
            )


EXERCISES = [
    Exercise(
        number="13.1",
        title="What is wrong?",
        name="state",
        stars=2,
        check=check_state,
        hints=[
            "Ask in the order in which things can fail: package, versions, runtime, device.",
            "A release is the first two numbers: version.split('.')[:2].",
            "`'2.10.0'.startswith('2.1')` is True, and 2.10 is not 2.1: compare the lists.",
        ],
        solution="""
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    if runtime is None:
        return "no runtime"
    return "TPU" if runtime == "TPU" else "no TPU"
""",
        praise="Such a function belongs at the top of a program for TPUs: one clear line in place of a mangled symbol.",
        wrong={
            """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version != xla_version:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "XLA's CPU device",
            """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if not xla_version.startswith(torch_version[:3]):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "compare numbers",
            """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split("+")[0] != xla_version:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "repair",
            """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "the import would fail",
        },
    ),
    Exercise(
        number="13.2",
        title="Numbers in the graph",
        name="compilations",
        stars=2,
        check=check_compilations,
        hints=[
            "Which numbers are inputs of a program, and which are baked in?",
            "0, 1 and -1 have a program each. All others share one.",
            "Give each value a name, the same for all ordinary ones, and count the different names.",
        ],
        solution="""
def compilations(values):
    return len({v if v in (0, 1, -1) else "input" for v in values})
""",
        praise="A warm-up that begins at 0 and ends at 1 compiles three programs, and the last one in the middle of a "
        "run. As a tensor on the device, the factor costs none.",
        wrong={
            """
def compilations(values):
    return len(set(values))
""": "ordinary numbers are inputs",
            """
def compilations(values):
    return min(len(values), 1)
""": "1 is baked in",
            """
def compilations(values):
    return len({v if v in (0, 1) else "input" for v in values})
""": "-1 is baked in",
            """
def compilations(values):
    return 1 + len({v for v in values if v in (0, 1, -1)})
""": "have a program each",
        },
    ),
    Exercise(
        number="13.3",
        title="What a number costs",
        name="programs_and_copies",
        stars=2,
        check=check_programs,
        hints=[
            "Without any reading, each step is one program. How many steps read?",
            "steps // every of them, and each copies one number.",
            "Before backward, each reading adds a program for the forward pass. After the sync it adds none.",
        ],
        solution="""
def programs_and_copies(steps, every, place):
    reads = steps // every
    return steps + (reads if place == "before backward" else 0), reads
""",
        praise="The counts do not show the third cost: at each copy the host waits until the device is done. A list of "
        "losses that stays on the device has none of the three.",
        wrong={
            """
def programs_and_copies(steps, every, place):
    return steps + steps // every, steps // every
""": "reading it runs nothing",
            """
def programs_and_copies(steps, every, place):
    return steps, steps // every
""": "again as a part of the step",
            """
def programs_and_copies(steps, every, place):
    reads = -(-steps // every)
    return steps + (reads if place == "before backward" else 0), reads
""": "is read 2 times",
        },
    ),
    Exercise(
        number="13.4",
        title="Read a report",
        name="read_report",
        stars=2,
        check=check_read_report,
        hints=[
            "Find the line `Metric: CompileTime` first; the two lines you need are the next two.",
            r"re.findall(r'([\d.]+)([a-z]+)', text) splits the accumulated time into numbers and units.",
            "Seconds of a unit: {'d': 86400, 'h': 3600, 'm': 60, 's': 1, 'ms': 1e-3, 'us': 1e-6}.",
        ],
        solution="""
import re

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6}


def read_report(report):
    found = re.search(r"Metric: CompileTime\\n +TotalSamples: (\\d+)\\n +Accumulator: (\\S+)", report)
    if found is None:
        return 0, 0.0
    parts = re.findall(r"([\\d.]+)([a-z]+)", found[2])
    return int(found[1]), sum(float(number) * SECONDS[unit] for number, unit in parts)
""",
        praise="In a program of your own, met.metric_data('CompileTime') gives the same two figures (in nanoseconds). "
        "The report is what you get from somebody who asks why the TPU is slow.",
        wrong={
            """
import re


def read_report(report):
    found = re.search(r"TotalSamples: (\\d+)\\n +Accumulator: (\\S+)", report)
    parts = re.findall(r"([\\d.]+)([a-z]+)", found[2])
    unit = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6}
    return int(found[1]), sum(float(n) * unit[u] for n, u in parts)
""": "not that of another metric",
            """
import re


def read_report(report):
    found = re.search(r"Metric: CompileTime\\n +TotalSamples: (\\d+)\\n +Accumulator: (\\S+)", report)
    if found is None:
        return 0, 0.0
    unit = {"h": 3600, "m": 1e-3, "s": 1, "ms": 1e-3, "us": 1e-6}
    return int(found[1]), sum(float(n) * unit[u] for n, u in re.findall(r"([\\d.]+)([a-z]+)", found[2]))
""": "m is minutes",
            """
import re


def read_report(report):
    found = re.search(r"Metric: CompileTime\\n +TotalSamples: (\\d+)\\n +Accumulator: (\\d+)s", report)
    return (int(found[1]), float(found[2])) if found else (0, 0.0)
""": "add up all parts",
        },
    ),
    Exercise(
        number="13.5",
        title="The fewest buckets",
        name="buckets",
        stars=2,
        check=check_buckets,
        hints=[
            "The longest length needs a bucket of at least its size. Does a larger one ever help?",
            "A bucket of size n serves all lengths from n / most to n. Which length is the first too short for it?",
            "Go from the longest to the shortest; open a new bucket where length * most < last bucket.",
        ],
        solution="""
def buckets(lengths, most):
    chosen = []
    for n in sorted(set(lengths), reverse=True):
        if not chosen or n * most < chosen[-1]:
            chosen.append(n)
    return chosen[::-1]
""",
        praise="Beginning with the longest is optimal: its bucket is forced, and so is each next one. For lengths from "
        "1 to n about log(n) / log(most) buckets are enough, which is why powers of two do so well.",
        wrong={
            """
def buckets(lengths, most):
    return sorted(set(lengths))
""": "are enough",
            """
def buckets(lengths, most):
    return [max(lengths)]
""": "grows to",
            """
def buckets(lengths, most):
    chosen = []
    for n in sorted(set(lengths), reverse=True):
        if not chosen or n * most < chosen[-1]:
            chosen.append(n)
    return chosen
""": "sort the buckets",
            """
def buckets(lengths, most):
    chosen, size = [], min(lengths)
    while size <= max(lengths):
        chosen.append(size)
        size *= max(most, 1.01)
    return chosen
""": "are enough",
            """
def buckets(lengths, most):
    return [min(lengths)]
""": "holds the length",
        },
    ),
]
