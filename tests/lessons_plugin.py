"""A pytest plugin on top of nbval: python -m tests.lessons_plugin notebooks/*.ipynb

nbval runs the cells. This plugin makes sure that it ran all of them: it counts the code cells of each file,
fails the run when one did not finish, when a lesson has no code or none was found, when a cell wrote to stderr
(except with the tag `lab-stderr`) and when a kernel and its processes needed too much memory. It prints one line for
each lesson. A lesson in which nothing is wrong but missed claims runs once more: what is measured while the machine
does something else can miss any bound.

With --twice the cells of a lesson run twice in one kernel, as a reader's may who runs all of them again.

With --findings, for a PyTorch newer than those that the lessons know, what is otherwise than announced (a message, a
verdict, a warning more, an output that was the same everywhere) is listed at the end and fails nothing.
"""

import copy
import json
import platform
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty

import psutil
import pytest
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

from utils.claims import LINE
from utils.devices import emulated, package_version
from utils.messages import NOT_LIVE

OUTPUT_TIMEOUT = 60  # seconds to wait for a cell's outputs; nbval's own 5 s are too few on a busy machine
MEMORY_LIMIT = 1.5 * 2**30  # bytes, of a kernel
MEMORY_LIMIT_EMULATED = 8 * 2**30  # with the memory of its emulated GPUs
FAMILY_LIMIT = 4 * 2**30  # bytes, of a kernel and all processes that it started


@dataclass
class Lesson:
    """What happened to one notebook."""

    name: str
    code_cells: int
    done: set = field(default_factory=set)  # numbers of the code cells that ran to the end
    not_live: set = field(default_factory=set)  # those of them that showed a recording, or that there is none
    missed: set = field(default_factory=set)  # numbers of the code cells that ended in a missed claim
    findings: list = field(default_factory=list)  # (cell id, what is otherwise than announced)
    held: int = 0  # claims
    unjudged: int = 0  # claims about time, where times prove nothing
    seconds: float = 0.0
    peak_bytes: int = 0
    family_bytes: int = 0

    def problems(self):
        missing = sorted(set(range(self.code_cells)) - self.done)
        if not self.code_cells:
            yield "it has no code cells"
        if missing:
            yield f"code cells that did not run to the end: {', '.join(map(str, missing))} (the first is 0)"
        most = MEMORY_LIMIT_EMULATED if emulated() else MEMORY_LIMIT
        if self.peak_bytes > most:
            peak, limit = self.peak_bytes / 2**20, most / 2**20
            yield f"its kernel needed {peak:.0f} MiB of memory, more than {limit:.0f} MiB"
        if self.family_bytes > FAMILY_LIMIT and not emulated():
            peak, limit = self.family_bytes / 2**20, FAMILY_LIMIT / 2**20
            yield f"its processes needed {peak:.0f} MiB of memory, more than {limit:.0f} MiB"

    def only_missed_claims(self):
        """Whether nothing is wrong with it but claims that were missed: time measured next to other work."""
        failed = set(range(self.code_cells)) - self.done
        return bool(failed) and failed == self.missed and len(list(self.problems())) == 1


def cell_counts(lessons):
    """'14 of 14 code cells ran  (12 live, 2 shown from recordings or not available)' of some lessons."""
    done, not_live = sum(len(lesson.done) for lesson in lessons), sum(len(lesson.not_live) for lesson in lessons)
    total = sum(lesson.code_cells for lesson in lessons)
    live = f"({done - not_live} live, {not_live} shown from recordings or not available)"
    return f"{done} of {total} code cells ran  {live}"


def kernel_peak_memory(kernel_manager):
    """The most memory that a kernel has used so far, in bytes (outside Linux: what it uses now)."""
    pid = kernel_manager.provisioner.pid
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    process = psutil.Process(pid)  # on Windows a launcher, whose child is the kernel
    return sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])


def watch_family(lesson, pid, ended):
    """Until `ended` is set: note the most memory that a kernel and its processes have together.

    Pages that several processes share count in each: what it finds is rather too much than too little.
    """
    while not ended.wait(0.5):
        try:
            process = psutil.Process(pid)
            used = sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])
        except psutil.Error:
            continue  # one of them has just ended
        lesson.family_bytes = max(lesson.family_bytes, used)


def notice_death(kernel):
    """Make nbval's wait for a message end when the kernel has died, not only at the time limit."""
    get_message = type(kernel).get_message

    def get_message_while_alive(stream, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                return get_message(kernel, stream, timeout=min(1, timeout))
            except Empty:
                if not kernel.is_alive():
                    raise RuntimeError("the kernel died: out of memory, or a crash in compiled code") from None
                if time.monotonic() >= end:
                    raise

    kernel.get_message = get_message_while_alive


runs = []  # a Lessons for each time that pytest was started in this process


class Lessons:
    """The hooks, and the lessons that they saw."""

    def __init__(self):
        self.lessons = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        if isinstance(collector, IPyNbFile):
            try:
                cells = json.loads(collector.path.read_text(encoding="utf-8"))["cells"]
            except (ValueError, KeyError):
                cells = []  # nbval reports that it cannot read the file
            count = sum(cell["cell_type"] == "code" for cell in cells)
            self.lessons[collector.path] = Lesson(collector.path.stem, count)
        report = yield
        if isinstance(collector, IPyNbFile) and collector.config.option.twice and report.passed:
            self.lessons[collector.path].code_cells *= 2
            report.result += [again(cell, count + cell.cell_num) for cell in report.result]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        start = time.perf_counter()
        result = yield  # the first cell of a lesson starts its kernel, the last one stops it
        if isinstance(item, IPyNbCell):
            self.lessons[item.path].seconds += time.perf_counter() - start
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        if not isinstance(item, IPyNbCell):
            return (yield)
        lesson, item.output_timeout = self.lessons[item.path], OUTPUT_TIMEOUT
        notice_death(item.parent.kernel)
        ended = threading.Event()
        pid = item.parent.kernel.km.provisioner.pid
        threading.Thread(target=watch_family, args=(lesson, pid, ended), daemon=True).start()
        try:
            result = yield
        except NbCellError as error:
            if re.search(r"^(\x1b\[[\d;]*m)*ClaimError\b", str(error.inner_traceback), re.M):
                lesson.missed.add(item.cell_num)
            if not item.config.option.findings or str(error) != "Cell outputs differ":
                raise
            lesson.findings.append((item.cell.id, "shows something else than its stored output"))
            result = None
        finally:
            ended.set()
            if item.parent.kernel.is_alive():
                peak = kernel_peak_memory(item.parent.kernel.km)
                lesson.peak_bytes = max(lesson.peak_bytes, peak)
        for state, text in findings(item):
            if not item.config.option.findings and state != "missed":
                raise NbCellError(item.cell_num, f"A finding ({state}): {text}", item.cell.source)
            lesson.findings.append((item.cell.id, text))
        lesson.done.add(item.cell_num)
        lesson.held += sum(len(LINE.findall(out.get("text", ""))) for out in item.test_outputs)
        lesson.unjudged += sum(state_of(out) == "unjudged" for out in item.test_outputs)
        if any(state_of(out) in NOT_LIVE for out in item.test_outputs):
            lesson.not_live.add(item.cell_num)
        return result

    def pytest_sessionfinish(self, session):
        if list(self.problems()) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        packages = {name: package_version(name) for name in ("torch", "torch_xla", "ipython")}
        versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
        terminalreporter.section(f"lessons with Python {platform.python_version()}, {versions}")
        lessons = list(self.lessons.values())
        width = max([len(lesson.name) for lesson in lessons] + [len("total")])
        for lesson in lessons:
            claims = f"{lesson.held} claims held" + f", {lesson.unjudged} not judged" * bool(lesson.unjudged)
            measured = f"{lesson.seconds:.1f} s  {lesson.peak_bytes / 2**20:.0f} MiB"
            if lesson.family_bytes > 1.2 * lesson.peak_bytes:
                measured += f", {lesson.family_bytes / 2**20:.0f} with its processes"
            terminalreporter.line(f"{lesson.name:{width}}  {cell_counts([lesson])}  {claims}  {measured}")
        seconds, held, unjudged = (sum(getattr(x, n) for x in lessons) for n in ("seconds", "held", "unjudged"))
        terminalreporter.line(
            f"{'total':{width}}  {cell_counts(lessons)}  {held} claims held, {unjudged} not judged  {seconds:.1f} s"
        )
        found = [(lesson.name, *finding) for lesson in lessons for finding in lesson.findings]
        if terminalreporter.config.option.findings:
            terminalreporter.section(f"{len(found)} findings with torch {packages['torch']}")
            for name, cell, text in found:
                terminalreporter.line(f"{name}, cell {cell}: {text}")
        for problem in self.problems():
            terminalreporter.line(f"FAILED {problem}", red=True)

    def problems(self):
        if not self.lessons:
            yield "no notebook was found: name them on the command line, for example notebooks/*.ipynb"
        for lesson in self.lessons.values():
            for problem in lesson.problems():
                yield f"{lesson.name}: {problem}"


def again(cell, number):
    """The same cell once more, later in the same kernel."""
    source = copy.deepcopy(cell.cell)  # nbval joins its stored outputs in place
    return IPyNbCell.from_parent(
        cell.parent, name=f"{cell.name} again", cell_num=number, cell=source, options=cell.options
    )


def state_of(output):
    """What the course says about an output (utils.messages.note), or None."""
    return output.get("metadata", {}).get("device_lab", {}).get("state")


def findings(item):
    """(state, text) of what a cell that ran shows and was not announced. An error that a tag allows fails the cell."""
    for out in item.test_outputs:
        if out.output_type == "error":
            message = "The cell ended in an error. An expected one belongs into `with expect_error(...)`."
            raise NbCellError(item.cell_num, message, item.cell.source)
        if state_of(out) in ("finding", "missed", "waiting"):
            yield state_of(out), out.data["text/plain"]
        if (
            out.output_type == "stream"
            and out.name == "stderr"
            and "lab-stderr" not in item.cell.metadata.get("tags", [])
        ):
            yield "stderr", f"the cell wrote to stderr (if it must, tag it `lab-stderr`): {out.text.strip()}"


def pytest_addoption(parser):
    parser.addoption("--twice", action="store_true", help="run each lesson's cells twice, in one kernel")
    parser.addoption("--findings", action="store_true", help="list what is not as announced, and fail nothing for it")


def pytest_configure(config):
    if not (config.option.nbval or config.option.nbval_lax):
        raise pytest.UsageError("tests.lessons_plugin runs lessons through nbval: add --nbval-lax")
    # Colab's old jupyter_client on a new Python; nothing that a lesson could change.
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:jupyter_client")
    runs.append(Lessons())
    config.pluginmanager.register(runs[-1])


def main(arguments):
    """Run lessons; those whose only fault is a missed claim, once more. Returns the exit status."""
    options = ["-p", "tests.lessons_plugin", "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=240"]
    status = pytest.main([*options, *arguments])
    failed = {path: lesson for path, lesson in runs[-1].lessons.items() if list(lesson.problems())}
    if status != pytest.ExitCode.TESTS_FAILED or not all(lesson.only_missed_claims() for lesson in failed.values()):
        return status
    print(f"Only claims were missed. Once more: {', '.join(lesson.name for lesson in failed.values())}", flush=True)
    return pytest.main([*options, *map(str, failed)])


if __name__ == "__main__":
    from tests import lessons_plugin  # the module that pytest loads, not this one, which is called __main__

    sys.exit(lessons_plugin.main(sys.argv[1:]))
