"""Run lessons through nbval, and count: python -m tools.lessons.plugin
notebooks/*.ipynb

nbval runs the cells. This plugin of pytest makes sure that it ran all of them: it
counts the code cells of each file, fails the run when one did not finish, when a lesson
has no code, when a cell wrote to stderr (except with the tag `lab-stderr`), when a
result that a cell measured could not be recorded, and when a kernel and its processes
needed too much memory. It prints one line for each lesson. A lesson in which nothing is
wrong but missed claims about time runs once more: what is measured while the machine
does something else can miss any bound.

With --timed=yes only those lessons run that judge times on every machine, with
--timed=no only the others; --jobs does the same with lessons that start jobs of several
processes.

With --twice the cells of a lesson run twice in one kernel, as a reader's may who runs
all of them again.

With --findings, for a PyTorch newer than those that the lessons know, what is otherwise
than announced (a message, a verdict, a warning more, an output that was the same
everywhere) is listed at the end and fails nothing.

What happened to a lesson of the course is kept for the site's status page
(tools/site/evidence.py), one file a lesson and environment:
build/status/<environment>/<lesson>.json.

All other options are pytest's.
"""

import argparse
import contextlib
import copy
import datetime
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from queue import Empty

import psutil
import pytest
from nbval.plugin import IPyNbCell, NbCellError

from course import grammar
from course.messages import NOT_LIVE, state_of
from tools.lab import content_hash
from tools.lessons import temporary
from tools.lessons.recording import claims_in
from utils.devices import name_of

# seconds to wait for a cell's outputs; nbval's own 5 s are too few on a busy machine
OUTPUT_TIMEOUT = 60
ROOT = Path(__file__).resolve().parents[2]
STATUS = ROOT / "build" / "status"


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


def family_mib(pid):
    """The memory that a process and all that it started have now, in MiB.

    Pages that several processes share count in each: what it finds is rather too much
    than too little.
    """
    process = psutil.Process(pid)
    return (
        sum(p.memory_info().rss for p in [process, *process.children(recursive=True)])
        / 2**20
    )


def peak_mib(pid):
    """The most memory that a kernel has had so far, in MiB (outside Linux: what it has
    now).

    Without the pages of libraries' files: after an installation they are all there,
    later only those that were used (torch_xla: 200 MiB more), and the system takes them
    back when it needs them.
    """
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        peak, files = (
            int(kib)
            for kib in re.findall(r"(?:VmHWM|RssFile):\s+(\d+)", status.read_text())
        )
        return (peak - files) / 2**10
    # on Windows the process is a launcher, whose child is the kernel
    return family_mib(pid)


def watch(lesson, kernel):
    """While nbval waits for a message: note the memory in use, and end the wait when
    the kernel has died.
    """
    get_message = type(kernel).get_message

    def get_message_and_look(stream, timeout):
        end = time.monotonic() + timeout
        while True:
            try:
                return get_message(kernel, stream, timeout=min(0.5, timeout))
            except Empty:
                # one of its processes has just ended
                with contextlib.suppress(psutil.Error):
                    lesson.family_mib = max(
                        lesson.family_mib, family_mib(kernel.km.provisioner.pid)
                    )
                if not kernel.is_alive():
                    raise RuntimeError(
                        "the kernel died: out of memory, or a crash in compiled code"
                    ) from None
                if time.monotonic() >= end:
                    raise

    kernel.get_message = get_message_and_look


class Lessons:
    """The hooks of pytest, and the lessons that they saw."""

    def __init__(self, paths, options):
        self.options = options
        self.lessons = {}
        for path in paths:
            cells = range(len(code_of(path)) * (2 if options.twice else 1))
            self.lessons[path.stem] = Lesson(
                path, set(cells), Counter(cells=len(cells))
            )

    def pytest_collection_modifyitems(self, items):
        if self.options.twice:
            for item in list(items):
                cells = len(self.lessons[item.path.stem].left) // 2
                items.append(again(item, cells + item.cell_num))
            # stable: all cells of a lesson, then the same again
            items.sort(key=lambda item: item.path)

    def pytest_runtest_makereport(self, item, call):
        # with the start and the end of the kernel
        self.lessons[item.path.stem].counts["seconds"] += call.duration

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        lesson, kernel = self.lessons[item.path.stem], item.parent.kernel
        item.output_timeout = OUTPUT_TIMEOUT
        # no comment and no tag spares a cell
        item.options.update(skip=False, check_exception=False)
        strict = not self.options.findings
        item.compare_outputs = lambda *outputs: type(item).compare_outputs(
            item, *(own(each, strict) for each in outputs)
        )
        watch(lesson, kernel)
        try:
            result = yield
        except NbCellError as error:
            errors = [out.get("ename") for out in item.test_outputs]
            if "ClaimError" in errors and "timed=True" in item.cell.source:
                lesson.missed.add(item.cell_num)
            if not self.options.findings or str(error) != "Cell outputs differ":
                raise
            differs = "shows something else than its stored output"
            # exercises show a reader buttons, and what is stored is a line
            if "exercise" not in item.cell.metadata.get("tags", []):
                lesson.findings.append((item.cell.id, differs))
            result = None
        finally:
            if kernel.is_alive():
                peak = peak_mib(kernel.km.provisioner.pid)
                lesson.kernel_mib = max(lesson.kernel_mib, peak)
        self.judge(item, lesson)
        lesson.left.remove(item.cell_num)
        return result

    def judge(self, item, lesson):
        """Count what a cell that ran shows; an error for what must not be there."""
        for state, text in findings(item):
            if not self.options.findings and state != "missed":
                why = f"A finding ({state}): {text}"
                raise NbCellError(item.cell_num, why, item.cell.source)
            lesson.findings.append((item.cell.id, text))
        states = [state_of(output) for output in item.test_outputs]
        live = NOT_LIVE.isdisjoint(states)
        if live and (why := unrecordable(item.parent.kernel, item.cell.source)):
            raise NbCellError(item.cell_num, why, item.cell.source)
        held, unjudged = states.count("claim"), states.count("unjudged")
        lesson.counts.update(done=1, held=held, unjudged=unjudged)
        lesson.counts["not live"] += not live
        claims = claims_in(item.test_outputs)
        if claims and live:
            lesson.claims[item.cell.id] = claims

    def report(self):
        """Print what happened to each lesson."""
        versions = [f"{name} {version}" for name, version in installed().items()]
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
        for name, lesson in self.lessons.items():
            for problem in lesson.problems(self.options):
                print(f"FAILED {name}: {problem}", flush=True)

    def keep(self, attempt):
        """Store what happened to the lessons of the course. A file each: runs at the
        same time do not meet.
        """
        facts = None
        for name, lesson in self.lessons.items():
            if lesson.path.resolve().parent != ROOT / "notebooks":
                continue
            facts = facts or machine(self.options)
            kept = {
                **facts,
                "lesson": name,
                "content_hash": content_hash(lesson_in(lesson.path)),
                "attempt": attempt,
                "twice": self.options.twice,
                "problems": list(lesson.problems(self.options)),
                "counts": dict(lesson.counts),
                "findings": len(lesson.findings),
                "claims": lesson.claims,
                "kernel_mib": round(lesson.kernel_mib),
                "family_mib": round(lesson.family_mib),
            }
            folder = STATUS / facts["environment"].lower().replace(" ", "-")
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.json"
            part = path.with_suffix(f".{os.getpid()}")
            content = json.dumps(kept, indent=1, ensure_ascii=False)
            part.write_text(content, encoding="utf-8")
            part.replace(path)


def installed():
    """Versions of what decides how a lesson runs, by name."""
    return {
        name: metadata.version(name)
        for name in ("torch", "torch_xla", "IPython")
        if find_spec(name)
    }


def machine(options):
    """Where lessons run, and how: whether a missed claim stops one (strict), whether
    times are judged (timed).
    """
    versions = installed()
    if gpu := os.environ.get("EMULATOR_GPU"):  # "Tesla T4,7.5"
        environment = f"emulated {gpu.partition(',')[0]}"
    elif options.findings:
        environment = "newest"
    elif "torch_xla" in versions:
        environment = "XLA"
    else:
        environment = "Colab-like" if versions["IPython"].startswith("7.") else "main"
    return {
        "environment": environment,
        "date": datetime.date.today().isoformat(),
        "versions": {"Python": platform.python_version(), **versions},
        "system": platform.system(),
        "cpu": name_of("cpu"),
        "strict": os.environ.get("LAB_STRICT") == "1",
        "timed": os.environ.get("LAB_UNTIMED") != "1",
    }


def again(cell, number):
    """The same cell once more, later in the same kernel."""
    source = copy.deepcopy(cell.cell)  # nbval joins its stored outputs in place
    return IPyNbCell.from_parent(
        cell.parent,
        name=f"{cell.name} again",
        cell_num=number,
        cell=source,
        options=cell.options,
    )


def own(outputs, strict=True):
    """Outputs that a cell makes itself, without what the course says of where they come
    from. A reader who has not guessed is told no answer, so without `strict` answers
    are left out, too.
    """
    others = {"live", *NOT_LIVE} | (set() if strict else {"revealed"})
    return [output for output in outputs if state_of(output) not in others]


def unrecordable(kernel, source):
    """Why the result that a cell has just measured could not be recorded, or None."""
    header = grammar.header(source)
    if header is None or header.kind != "result" or not header.recordable:
        return None
    question = (
        f"__import__('course.provenance').provenance.as_json({header.name!r},"
        f" {header.name})"
    )
    asked, why = kernel.kc.execute(question, silent=True, allow_stdin=False), None
    while True:
        message = kernel.get_message("iopub", timeout=OUTPUT_TIMEOUT)
        if message["parent_header"].get("msg_id") == asked:
            why = message["content"].get("evalue", why)
            if message["content"].get("execution_state") == "idle":
                return why


def findings(item):
    """(state, text) of what a cell that ran shows and was not announced."""
    for out in item.test_outputs:
        if state_of(out) in ("finding", "missed", "waiting"):
            yield state_of(out), out.data["text/plain"]
        tagged = "lab-stderr" in item.cell.metadata.get("tags", [])
        if out.get("name") == "stderr" and not tagged:
            said = "the cell wrote to stderr (if it must, tag it `lab-stderr`): "
            yield "stderr", said + out.text.strip()


def lesson_in(path):
    """A notebook as it is stored."""
    return json.loads(path.read_text(encoding="utf-8"))


def code_of(path):
    """The sources of a lesson's code cells."""
    cells = lesson_in(path)["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def judges_times(source):
    """Whether a cell judges times on every machine: a claim without a condition does,
    and a row of lesson 16.
    """
    head, code = grammar.split(source)
    return ("timed=True" in code and not head) or (
        head.startswith("%%today") and ": slower" in head
    )


def starts_jobs(source):
    """Whether a cell starts jobs of several processes."""
    return "%%torchrun" in grammar.split(source)[0]


def run_lessons(paths, arguments, options, attempt=1):
    """Run lessons; returns pytest's exit status, and the lessons with problems."""
    plugin = Lessons(paths, options)
    usual = [
        "--nbval-lax",
        "--nbval-current-env",
        "--nbval-cell-timeout=240",
        "--disable-warnings",
    ]
    with temporary.own_folder():
        status = pytest.main([*usual, *arguments, *map(str, paths)], plugins=[plugin])
    plugin.report()
    plugin.keep(attempt)
    return status, [
        lesson for lesson in plugin.lessons.values() if list(lesson.problems(options))
    ]


def main(arguments):
    """Run lessons; those whose only fault is a missed claim about time, once more.
    Returns the exit status.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.lessons.plugin", usage="%(prog)s [options] NOTEBOOK…"
    )
    parser.add_argument(
        "--timed",
        choices=["yes", "no"],
        help="only lessons that judge times, or only the others",
    )
    parser.add_argument(
        "--jobs",
        choices=["yes", "no"],
        help="only lessons that start jobs of processes, or only the others",
    )
    parser.add_argument(
        "--twice",
        action="store_true",
        help="run each lesson's cells twice, in one kernel",
    )
    parser.add_argument(
        "--findings",
        action="store_true",
        help="list what is not as announced, fail nothing for it",
    )
    parser.add_argument(
        "--kernel-mib", type=float, default=1280, help="the most memory of a kernel"
    )
    parser.add_argument(
        "--family-mib",
        type=float,
        default=4096,
        help="the same, with all processes it started",
    )
    options, others = parser.parse_known_args(arguments)
    paths = [Path(text) for text in others if text.endswith(".ipynb")]
    if not paths:
        parser.error("name notebooks, for example notebooks/*.ipynb")
    for wanted, has in ((options.timed, judges_times), (options.jobs, starts_jobs)):
        if wanted:
            paths = [
                path
                for path in paths
                if any(map(has, code_of(path))) == (wanted == "yes")
            ]
    if not paths:
        return 0
    for_pytest = [text for text in others if not text.endswith(".ipynb")]
    status, failed = run_lessons(paths, for_pytest, options)
    if failed and all(lesson.only_missed_claims(options) for lesson in failed):
        print(
            "Only claims were missed. Once more:"
            f" {', '.join(x.path.stem for x in failed)}",
            flush=True,
        )
        status, failed = run_lessons(
            [lesson.path for lesson in failed], for_pytest, options, attempt=2
        )
    return status or bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
