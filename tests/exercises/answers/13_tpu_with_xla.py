"""Answers to the exercises of lesson 13."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

RUN_EPOCH = SOLUTION["13.0"]
ANSWERS["13.0"] = Answers(
    right=[
        """
def run_epoch(torch_xla, take_step, loader):
    losses = []
    for x, y in loader:
        x, y = x.to(torch_xla.device()), y.to(torch_xla.device())
        with torch_xla.step():
            loss = take_step(x, y)
        losses.append(loss.detach())
    return losses
""",
        """
def run_epoch(torch_xla, take_step, loader):
    device, compiled = torch_xla.device(), torch_xla.compile(take_step)
    return [compiled(*(part.to(device) for part in pair)) for pair in loader]
""",
        """
def run_epoch(torch_xla, take_step, loader):
    device = torch_xla.device()

    def steps():
        for x, y in loader:
            yield take_step(x.to(device=device), y.to(device=device))
            torch_xla.sync(wait=True)

    return tuple(steps())
""",
        """
def run_epoch(torch_xla, take_step, loader):
    @torch_xla.compile(full_graph=True)
    def step(x, y):
        return take_step(x.to(device), y.to(device))

    device = torch_xla.device()
    return [step(x, y) for x, y in loader]
""",
    ],
    wrong={
        edit(
            RUN_EPOCH,
            ("device, losses = torch_xla.device(),", "losses ="),
            ("(device), y.to(device)", '("xla"), y.to("xla")'),
        ): "device() of the torch_xla that your function is given was never called",
        edit(
            RUN_EPOCH,
            ("x, y in loader", "number, (x, y) in enumerate(loader)"),
            ("torch_xla.sync", "if number % 2:\n            torch_xla.sync"),
        ): "one program held 2 steps",
        edit(RUN_EPOCH, ("        torch_xla.sync()\n", "")): "none has run",
        edit(
            RUN_EPOCH, ("        torch_xla", "    torch_xla")
        ): "one program held 3 steps",
        """
def run_epoch(torch_xla, take_step, loader):
    device, losses = torch_xla.device(), []
    for x, y in loader:
        torch_xla.sync()
        losses.append(take_step(x.to(device), y.to(device)))
    return losses
""": "the sync() belongs behind take_step",
        edit(
            RUN_EPOCH,
            (
                "losses.append(take_step(x.to(device), y.to(device)))",
                "x.to(device), y.to(device)\n        losses.append(take_step(x, y))",
            ),
        ): "x was on cpu",
        edit(RUN_EPOCH, ("y.to(device)", "y")): "y was on cpu",
        edit(
            RUN_EPOCH,
            ("device, losses = torch_xla.device(),", "losses ="),
            ("(device), y.to(device)", '("meta"), y.to("meta")'),
        ): "was never called",
        edit(RUN_EPOCH, ("(device))", "(device)).item()")): "item()",
        """
def run_epoch(torch_xla, take_step, loader):
    device = torch_xla.device()
    for x, y in loader:
        loss = take_step(x.to(device), y.to(device))
        torch_xla.sync()
    return loss
""": "expected a list of 3 losses",
    },
)

ANSWERS["13.1"] = Answers(
    right=[
        r"""
import re


def state(torch_version, xla_version, runtime):
    if not xla_version:
        return "not installed"
    torch_release, xla_release = (
        re.match(r"\d+\.\d+", v)[0] for v in (torch_version, xla_version)
    )
    if torch_release != xla_release:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    first, second = (
        [int(n) for n in v.split("+")[0].split(".")]
        for v in (torch_version, xla_version)
    )
    if first[0] != second[0] or first[1] != second[1]:
        return "mismatch"
    if runtime is None:
        return "no runtime"
    if runtime == "TPU":
        return "TPU"
    return "no TPU"
""",
        """
from packaging.version import Version


def state(torch_version, xla_version, runtime):
    match (xla_version, runtime):
        case None, _:
            return "not installed"
        case v, _ if Version(v).release[:2] != Version(torch_version).release[:2]:
            return "mismatch"
        case _, None:
            return "no runtime"
        case _, "TPU":
            return "TPU"
    return "no TPU"
""",
    ],
    wrong={
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version != xla_version:
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "how torch was built",
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
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if not torch_version.startswith(".".join(xla_version.split(".")[:2])):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "2.10 is not 2.1:",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if float(torch_version[:4].rstrip(".")) != float(xla_version[:4].rstrip(".")):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "2.1 is not 2.10:",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    return {"CPU": "no TPU", None: "no runtime"}.get(runtime, "TPU")
""": "no TPU is behind it",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if "".join(torch_version.split(".")[:2]) != "".join(xla_version.split(".")[:2]):
        return "mismatch"
    return {"TPU": "TPU", None: "no runtime"}.get(runtime, "no TPU")
""": "compare number by number",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if runtime is None:
        return "no runtime"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    return "TPU" if runtime == "TPU" else "no TPU"
""": "2.11 is not 2.9",
        """
def state(torch_version, xla_version, runtime):
    if xla_version is None:
        return "not installed"
    if torch_version.split(".")[:2] != xla_version.split(".")[:2]:
        return "mismatch"
    return runtime or "no runtime"
""": "you returned 'CPU', expected one of",
    },
)

COMPILATIONS = SOLUTION["13.2"]
ANSWERS["13.2"] = Answers(
    right=[
        """
def compilations(values):
    baked = {v for v in values if v in {-1, 0, 1}}
    return len(baked) + any(v not in baked for v in values)
""",
        """
def compilations(values):
    cache = []
    for v in values:
        program = float(v) if v == 0 or abs(v) == 1 else "x * input"
        if program not in cache:
            cache.append(program)
    return len(cache)
""",
    ],
    wrong={
        """
def compilations(values):
    return len(set(values))
""": "ordinary numbers are inputs",
        """
def compilations(values):
    return min(len(values), 1)
""": "1 is baked in",
        edit(COMPILATIONS, ("1, -", ""), ("None", '"input"')): "-1 is baked in",
        """
def compilations(values):
    return 1 + len({v for v in values if v in (0, 1, -1)})
""": "have a program each",
        edit(COMPILATIONS, ("v if", "abs(v) if")): "0, 1 and -1 have a program each",
        """
def compilations(values):
    return sum(v in (0, 1, -1) for v in values) + 1
""": "is kept for the second 1",
        edit(COMPILATIONS, ("None", "v > 0")): "ordinary numbers are inputs",
        edit(
            COMPILATIONS, ("v if v", "int(v) if int(v)")
        ): "ordinary numbers are inputs",
        """
def compilations(values):
    return len({round(v, 2) if round(v, 2) in (0, 1, -1) else None for v in values})
""": "not what is near them",
        edit(COMPILATIONS, ("None", "type(v)")): "an int and a float are inputs",
    },
)

PROGRAMS_AND_COPIES = SOLUTION["13.3"]
ANSWERS["13.3"] = Answers(
    right=[
        """
def programs_and_copies(steps, every, place):
    programs = copies = 0
    for step in range(1, steps + 1):
        programs += 1
        if step % every == 0:
            copies += 1
            programs += place == "before backward"
    return [programs, copies]
""",
        """
import numpy as np


def programs_and_copies(steps, every, place):
    reads = np.count_nonzero(np.arange(1, steps + 1) % every == 0)
    return np.int64(steps + {"before backward": reads, "after sync": 0}[place]), reads
""",
        """
import numpy as np


def programs_and_copies(steps, every, place):
    reads = steps // every
    return np.array([steps, 0]) + reads * np.array([place.startswith("before"), 1])
""",
    ],
    wrong={
        """
def programs_and_copies(steps, every, place):
    return steps + steps // every, steps // every
""": "reading it runs nothing",
        """
def programs_and_copies(steps, every, place):
    return steps, steps // every
""": "again as a part of the step",
        edit(
            PROGRAMS_AND_COPIES, ("steps // every", "-(-steps // every)")
        ): "is read 2 times",
        edit(
            PROGRAMS_AND_COPIES, ("steps // every", "round(steps / every)")
        ): "is read 2 times",
        """
def programs_and_copies(steps, every, place):
    reads = steps // every
    return (2 * steps if place == "before backward" else steps), reads
""": "the forward pass runs once for the number",
        edit(
            PROGRAMS_AND_COPIES, ("steps +", "reads, steps +"), (", reads", "")
        ): "the programs come first",
        """
def programs_and_copies(steps, every, place):
    reads = steps // every
    return (2 * reads if place == "before backward" else steps), reads
""": "of the step: 20 + 2 programs",
        """
def programs_and_copies(steps, every, place):
    return steps + (steps // every if place == "before backward" else 0), steps
""": "is read 2 times",
    },
)

IN_ONE = r"""
import re


def read_report(report):
    found = re.search(
        r"Metric: CompileTime\n +TotalSamples: (\d+)\n +Accumulator: (\S+)", report
    )
    if found is None:
        return 0, 0.0
    unit = {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6}
    return int(found[1]), sum(
        float(n) * unit[u] for n, u in re.findall(r"([\d.]+)([a-z]+)", found[2])
    )
"""
ANSWERS["13.4"] = Answers(
    right=[
        """
UNITS = [("us", 1e-6), ("ms", 1e-3), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400)]


def read_report(report):
    lines = report.splitlines()
    if "Metric: CompileTime" not in lines:
        return 0, 0.0
    at = lines.index("Metric: CompileTime")
    samples, rest = lines[at + 1].split()[-1], lines[at + 2].split()[-1]
    seconds = 0.0
    for unit, factor in UNITS:
        if rest.endswith(unit):
            rest = rest[: -len(unit)]
            digits = rest[
                max((k + 1 for k, c in enumerate(rest) if c.isalpha()), default=0) :
            ]
            rest = rest[: len(rest) - len(digits)]
            seconds += float(digits) * factor
    return int(samples), seconds
""",
        r"""
import re


def read_report(report):
    unit = r"(?:([\d.]+){})?"
    time = "".join(map(unit.format, ("d", "h", r"m(?!s)", "s", "ms", "us")))
    found = re.search(
        r"^Metric: CompileTime$\s*TotalSamples: (\d+)\s*Accumulator: " + time,
        report,
        re.MULTILINE,
    )
    if not found:
        return [0, 0]
    parts = [float(part or 0) for part in found.groups()[1:]]
    seconds = sum(
        part * factor for part, factor in zip(parts, (86400, 3600, 60, 1, 1e-3, 1e-6))
    )
    return [int(found[1]), seconds]
""",
    ],
    wrong={
        r"""
import re


def read_report(report):
    found = re.search(r"TotalSamples: (\d+)\n +Accumulator: (\S+)", report)
    parts = re.findall(r"([\d.]+)([a-z]+)", found[2])
    unit = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6}
    return int(found[1]), sum(float(n) * unit[u] for n, u in parts)
""": "not that of DeviceLockWait",
        edit(IN_ONE, (": 60", ": 1e-3")): "m is minutes",
        r"""
import re


def read_report(report):
    found = re.search(
        r"Metric: CompileTime\n +TotalSamples: (\d+)\n +Accumulator: (\d+)s", report
    )
    return (int(found[1]), float(found[2])) if found else (0, 0.0)
""": "what it has in ms, us is not counted",
        edit(
            IN_ONE, ('"d": 86400, "h"', '"h"'), ("[a-z]+", "h|ms|m|us|s")
        ): "what it has in d is not counted",
        edit(IN_ONE, ("Metric: ", "")): "not that of LazyCompileTime",
        edit(IN_ONE, ("CompileTime", "CompileTime.*")): "not that of CompileTimeLazy",
        edit(IN_ONE, (r"(\d+)", r"(\d).*")): "the compilations are its TotalSamples",
        edit(
            IN_ONE, ("    if found is None:\n        return 0, 0.0\n", "")
        ): "for a report without CompileTime your function raised TypeError",
        edit(IN_ONE, ("int(found[1])", "found[1]")): "expected a pair of numbers",
    },
)

BUCKETS = SOLUTION["13.5"]
ANSWERS["13.5"] = Answers(
    right=[
        """
def buckets(lengths, most):
    found = []
    while lengths:
        longest = max(lengths)
        found.insert(0, longest)
        lengths = [n for n in lengths if n * most < longest]
    return found
""",
        """
def buckets(lengths, most):
    found = []
    for n in sorted(lengths):
        if not found or n > found[-1]:
            found.append(int(n * most))  # the largest bucket that the shortest may have
    return found
""",
        """
from itertools import combinations


def buckets(lengths, most):
    sizes = sorted(set(lengths))
    for count in range(1, len(sizes) + 1):
        for chosen in combinations(sizes, count):
            if all(any(n <= size <= most * n for size in chosen) for n in sizes):
                return chosen
""",
    ],
    wrong={
        """
def buckets(lengths, most):
    return sorted(set(lengths))
""": "enough. Begin with the longest",
        """
def buckets(lengths, most):
    return [max(lengths)]
""": "grows to",
        edit(
            BUCKETS, ("lengths, reverse", "set(lengths), reverse"), ("[::-1]", "")
        ): "sort the buckets",
        """
def buckets(lengths, most):
    found = []
    for n in sorted(lengths):
        if not found or n > found[-1]:
            found.append(n * most)
    return found
""": "a whole number of rows",
        """
def buckets(lengths, most):
    chosen, size = [min(lengths)], min(lengths)
    while size < max(lengths):
        size = max(size + 1, int(size * most))
        chosen.append(size)
    return chosen
""": "enough. Begin with the longest",
        """
def buckets(lengths, most):
    return [min(lengths)]
""": "holds the length",
        edit(
            BUCKETS,
            ("lengths, reverse", "set(lengths), reverse"),
            ("most <", "most <="),
        ): "125 is 1.25 times 100, no more",
        """
def buckets(lengths, most):
    chosen, first = [], None
    for n in sorted(set(lengths)):
        if first is None or n > first * most:
            first = n
            chosen.append(n)
        chosen[-1] = n if len(chosen) == 1 else chosen[-1]
    return chosen
""": "holds the length",
        """
def buckets(lengths, most):
    chosen = []
    for n in sorted(set(lengths)):
        if not chosen or n > chosen[0] * most ** len(chosen):
            chosen.append(n)
    return chosen
""": "holds the length",
    },
)
