"""Run lessons through nbval, and count: python -m tools.lessons.plugin
notebooks/*.ipynb

nbval runs the cells, as tools/lessons/cells.py collects them. This plugin of pytest
makes sure that all of them ran: it counts the code cells of each file, and fails the
run when one did not finish, when a lesson has no code, and when a kernel and its
processes needed too much memory. It prints one line for each lesson. A lesson in which
nothing is wrong but missed claims about time runs once more: what is measured while the
machine does something else can miss any bound.

With --timed only those lessons run that judge times on every machine.

With --twice the cells of a lesson run twice in one kernel, as a reader's may who runs
all of them again.

With --findings, for a PyTorch newer than those that the lessons know, what is otherwise
than announced (a message, a verdict, a warning more, an output that was the same
everywhere) is listed at the end and fails nothing.

What happened to a lesson of the course is kept (tools/lessons/status.py).

All other options are pytest's; `-n 2 --dist loadfile` runs two lessons at a time.
"""

import argparse
import json
import platform
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from course import grammar
from tools.lessons import status, temporary


@dataclass
class Lesson:
    """What happened to one notebook."""

    path: Path
    left: set  # numbers of the code cells that did not run to the end
    # of cells, claims and seconds: what `summary` says
    counts: Counter = field(default_factory=Counter)
    # those of them that ended in a missed claim about time
    missed: set = field(default_factory=set)
    # (cell id, what is otherwise than announced)
    findings: list = field(default_factory=list)
    # cell id → claims that were judged on this machine's devices, as data
    claims: dict = field(default_factory=dict)
    kernel_mib: float = 0.0  # the most memory that its kernel had
    family_mib: float = 0.0  # the most that the kernel and its processes had together

    def add(self, cell):
        """Count what a cell said of itself (LessonCell.said)."""
        self.kernel_mib = max(self.kernel_mib, cell["kernel_mib"])
        self.family_mib = max(self.family_mib, cell["family_mib"])
        self.findings += [(cell["id"], text) for text in cell["findings"]]
        if cell["done"]:
            self.left.remove(cell["number"])
            self.counts.update(done=1, held=cell["held"], unjudged=cell["unjudged"])
            self.counts["not live"] += not cell["live"]
            if cell["claims"]:
                self.claims[cell["id"]] = cell["claims"]
        elif cell.get("missed"):
            self.missed.add(cell["number"])

    def problems(self, options):
        if not self.counts["cells"]:
            yield "it has no code cells"
        if self.left:
            yield (
                "code cells that did not run to the end:"
                f" {', '.join(map(str, sorted(self.left)))} (the first is 0)"
            )
        if self.kernel_mib > options.kernel_mib:
            yield (
                f"its kernel needed {self.kernel_mib:.0f} MiB of memory, more than"
                f" {options.kernel_mib:.0f}"
            )
        if self.family_mib > options.family_mib:
            yield (
                f"its processes needed {self.family_mib:.0f} MiB of memory, more than"
                f" {options.family_mib:.0f}"
            )

    def only_missed_claims(self, options):
        """Whether nothing is wrong with it but claims about time that were missed."""
        return (
            bool(self.left)
            and self.left == self.missed
            and len(list(self.problems(options))) == 1
        )


def summary(n):
    """'14 of 14 code cells ran  (12 live, 2 shown from recordings or not available) …'
    from the counts of lessons.
    """
    cells = f"{n['done']} of {n['cells']} code cells ran"
    elsewhere = f"{n['not live']} shown from recordings or not available"
    live = f"({n['done'] - n['not live']} live, {elsewhere})"
    claims = f"{n['held']} claims held, {n['unjudged']} not judged"
    return f"{cells}  {live}  {claims}  {n['seconds']:.1f} s"


class Lessons:
    """The hooks of pytest, and the lessons whose reports they saw."""

    def __init__(self, paths, options):
        self.options = options
        self.lessons = {}
        for path in paths:
            cells = range(len(code_of(path)) * (2 if options.twice else 1))
            self.lessons[path.stem] = Lesson(
                path, set(cells), Counter(cells=len(cells))
            )

    def pytest_runtest_logreport(self, report):
        # where tests run in several processes, reports come to this one alone
        lesson = self.lessons[Path(report.nodeid.partition("::")[0]).stem]
        # with the start and the end of the kernel
        lesson.counts["seconds"] += report.duration
        if report.when == "call":
            lesson.add(json.loads(dict(report.user_properties)["cell"]))

    def failed(self):
        """The lessons with problems."""
        lessons = self.lessons.values()
        return [lesson for lesson in lessons if list(lesson.problems(self.options))]

    def report(self):
        """Print what happened to each lesson."""
        versions = [f"{name} {text}" for name, text in status.installed().items()]
        print(f"Lessons with Python {platform.python_version()}, {', '.join(versions)}")
        width = max(map(len, ["total", *self.lessons]))
        for name, lesson in self.lessons.items():
            memory = f"{lesson.kernel_mib:.0f} MiB, {lesson.family_mib:.0f}"
            said = f"{summary(lesson.counts)}  {memory} with its processes"
            print(f"{name:{width}}  {said}")
        total = sum((lesson.counts for lesson in self.lessons.values()), Counter())
        print(f"{'total':{width}}  {summary(total)}")
        if self.options.findings:
            found = [
                (name, *finding)
                for name, lesson in self.lessons.items()
                for finding in lesson.findings
            ]
            print(f"{len(found)} findings with {versions[0]}")
            for name, cell, text in found:
                print(f"{name}, cell {cell}: {text}")
        for lesson in self.failed():
            for problem in lesson.problems(self.options):
                print(f"FAILED {lesson.path.stem}: {problem}", flush=True)


def code_of(path):
    """The sources of a lesson's code cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def judges_times(source):
    """Whether a cell judges times on every machine: a claim without a condition does,
    and a row of lesson 16.
    """
    head, code = grammar.split(source)
    if grammar.header(source):
        return False
    if "%%" in head:
        return "%%today" in head and ": slower" in head
    return "timed=True" in code


def run_lessons(paths, arguments, options, attempt=1):
    """Run lessons; returns pytest's exit status, and the lessons with problems."""
    plugin = Lessons(paths, options)
    usual = [
        *("-p", "tools.lessons.cells"),
        "--nbval-cell-timeout=240",
        "--disable-warnings",
        *(["--twice"] if options.twice else []),
        *(["--findings"] if options.findings else []),
    ]
    with temporary.own_folder():
        said = pytest.main([*usual, *arguments, *map(str, paths)], plugins=[plugin])
    plugin.report()
    status.keep(plugin.lessons.values(), options, attempt)
    return said, plugin.failed()


def parser():
    """Options of the command; the others are pytest's."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.lessons.plugin", usage="%(prog)s [options] NOTEBOOK…"
    )
    option = parser.add_argument
    option("--timed", action="store_true", help="only lessons that judge times")
    option("--twice", action="store_true", help="run cells twice, in one kernel")
    option(
        "--findings",
        action="store_true",
        help="list what is not as announced, fail nothing for it",
    )
    option("--kernel-mib", type=float, default=1280, help="the most memory of a kernel")
    option(
        "--family-mib",
        type=float,
        default=4096,
        help="the same, with all processes it started",
    )
    return parser


def main(arguments):
    """Run lessons; those whose only fault is a missed claim about time, once more.
    Returns the exit status.
    """
    options, others = parser().parse_known_args(arguments)
    paths = [Path(text) for text in others if text.endswith(".ipynb")]
    if not paths:
        parser().error("name notebooks, for example notebooks/*.ipynb")
    if options.timed:
        paths = [path for path in paths if any(map(judges_times, code_of(path)))]
    if not paths:
        return 0
    for_pytest = [text for text in others if not text.endswith(".ipynb")]
    said, failed = run_lessons(paths, for_pytest, options)
    if failed and all(lesson.only_missed_claims(options) for lesson in failed):
        names = ", ".join(lesson.path.stem for lesson in failed)
        print(f"Only claims were missed. Once more: {names}", flush=True)
        again = [lesson.path for lesson in failed]
        said, failed = run_lessons(again, for_pytest, options, attempt=2)
    return said or bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
