"""The rows of lesson 16: how an old snippet, its replacement and what is announced of
them are written, and which rows the lesson has.

A cell is one row:

    %%today amp/autocast: warns "torch.cuda.amp.autocast"
    #: before 2.4: fine
    #: because the same class serves all devices now
    with torch.cuda.amp.autocast():
        ...
    # ---- today
    with torch.autocast("cpu"):
        ...

A third part below a line `# ---- set-up` plays what a small example lacks, such as the
variables that torchrun sets: it runs before each of the two, and is shown as neither.

The verdict (fine, warns, raises, wrong, slower 5) is measured, and must be the
announced one; the regular expression must match what the old part printed in its
warning, its error or, if wrong, on the screen. Lines `#: CONDITION: VERDICT` announce
another verdict for some versions or machines, the first that holds counts; there "any"
says that nobody has checked, "newer" that this PyTorch does not have the form of today
yet, which is then not run. A name of PATTERNS stands for a regular expression that
many rows announce. Lines `#: write CODE` give what somebody who looks the row up
should write, where the part of today only plays it.

The cell above a row has its heading, the message or the name that leads to it, and one
sentence, which is the answer to "why" of whoever looks it up.
"""

import functools
import importlib.util
import json
import re
import sys
from dataclasses import dataclass, replace

import torch

from course import cells, grammar
from course.paths import COURSE
from device_lab import LabError

LESSON = COURSE / "notebooks" / "16_old_code_today.ipynb"
# amp/autocast: warns "torch.cuda.amp.autocast"
HEADER = re.compile(r"(?P<slug>[a-z]+/[\w.-]+): (?P<announced>.+)")
# raises "a message", or: raises NO_DRIVER, or: slower 5
ANNOUNCED = re.compile(
    r"(?P<verdict>fine|warns|raises|wrong|any|newer|slower (?P<factor>\d+))(?:"
    r' "(?P<pattern>.+)"| (?P<named>[A-Z_]+))?'
)
PATTERNS = {  # what a CUDA build says without a GPU, or with a driver that does not fit
    "NO_DRIVER": (
        r"Found no NVIDIA driver on your system|No CUDA GPUs|CUDA-capable"
        r"|CUDA driver version|requires CUDA support|system is too old|No HIP GPUs"
    ),
}
SIGNS = {"fine": "✓", "warns": "!", "raises": "✗", "wrong": "≠", "slower": "…"}
# where the rows of a group are explained
LESSONS = {
    "detection": "01",
    "movement": "02",
    "streams": "05",
    "memory": "07",
    "amp": "08",
    "data": "06",
    "distributed": "11",
    "graphs": "10",
    "tpu": "13",
}
MACHINES = {  # conditions that are no version
    "with cuda": torch.cuda.is_available,
    "with cuda-build": lambda: (
        torch.backends.cuda.is_built() and not torch.cuda.is_available()
    ),
    "with torch_xla": lambda: importlib.util.find_spec("torch_xla") is not None,
    "with tpu": lambda: cells.missing("tpu") is None,
    "with mps": torch.backends.mps.is_available,
    "with accelerator": torch.accelerator.is_available,
    "on Linux": lambda: sys.platform == "linux",
    "on Windows": lambda: sys.platform == "win32",
    "on macOS": lambda: sys.platform == "darwin",
}


class TodayError(LabError):
    """A row that does not do what it announces, or that cannot be read."""


@dataclass(frozen=True)
class Verdict:
    """One announcement. word: the verdict. pattern: regular expression, or None.
    factor: of "slower".
    """

    word: str
    pattern: str = None
    factor: int = None


@dataclass(frozen=True)
class Row:
    """A snippet and its replacement. expected: condition → Verdict, in order, the last
    for "" (everything else).
    """

    slug: str
    expected: dict
    because: str
    old: str
    new: str
    setup: str = ""  # runs before each of the two
    write: str = ""  # lines of today that are shown in place of `new`
    needs: str = ""  # what its cell requires: "cuda"
    heading: str = ""  # what stands above it, in Markdown
    sentence: str = ""  # the one below the heading, without the marks of Markdown
    section: str = ""  # number of the lesson's section
    lesson: str = ""  # number of the lesson that explains it

    @property
    def group(self):
        """The part of the slug before the stroke: "memory"."""
        return self.slug.split("/")[0]

    @property
    def why(self):
        """What somebody who looks it up should know: its sentence in the lesson."""
        return self.sentence or self.because

    @property
    def today(self):
        """What somebody who looks it up should write."""
        return self.write or self.new

    def patterns(self):
        """The regular expressions of all its announcements, also of those that do not
        hold here.
        """
        return [
            verdict.pattern for verdict in self.expected.values() if verdict.pattern
        ]

    @property
    def is_fine(self):
        """Whether the old part is as good as that of today, on most machines."""
        return self.expected[""].word == "fine"

    def here(self):
        """The Verdict that is announced for this PyTorch on this machine."""
        return next(
            verdict for condition, verdict in self.expected.items() if holds(condition)
        )


def parse(header, body):
    """The Row of a cell's first line (without %%today) and its other lines. TodayError
    where they are no row.
    """
    found = HEADER.fullmatch(header.strip())
    if not found:
        raise TodayError(
            f"cannot read {header.strip()!r}: write %%today GROUP/NAME: VERDICT"
            ' "pattern"'
        )
    expected, because, write, lines = {}, "", "", body.splitlines()
    while lines and lines[0].startswith("#:"):
        text = lines.pop(0)[2:].strip()
        if text.startswith("because "):
            because = text.removeprefix("because ")
        elif text.startswith("write "):
            write = f"{write}\n{text.removeprefix('write ')}".strip()
        else:
            condition, _, announced = text.partition(": ")
            holds(condition)  # TodayError for one that is unknown
            expected[condition] = _verdict(announced)
    expected[""] = _verdict(found["announced"])
    shown, *setup = grammar.ROW_SETUP.split("\n".join(lines))
    old, *new = grammar.ROW_TODAY.split(shown)
    if len(new) != 1 or len(setup) > 1 or not old.strip() or not new[0].strip():
        raise TodayError(
            f"{found['slug']}: a row has an old part, a line `# ---- today`, a new part"
            " and, if needed, a line `# ---- set-up` and what runs before both"
        )
    return Row(
        found["slug"],
        expected,
        because,
        old.strip("\n"),
        new[0].strip("\n"),
        "".join(setup).strip("\n"),
        write,
        lesson=LESSONS.get(found["slug"].split("/")[0], ""),
    )


def _verdict(text):
    found = ANNOUNCED.fullmatch(text.strip())
    if not found:
        raise TodayError(
            f"cannot read the announcement {text.strip()!r}: known are fine, warns,"
            " raises, wrong, slower 5"
        )
    factor = int(found["factor"]) if found["factor"] else None
    pattern = found["pattern"]
    if found["named"]:
        if found["named"] not in PATTERNS:
            raise TodayError(f"no pattern is called {found['named']}")
        pattern = PATTERNS[found["named"]]
    return Verdict(found["verdict"].split()[0], pattern, factor)


def holds(condition):
    """Whether a condition holds here: "before 2.11", "from 2.12", "with cuda, on Linux"
    (all of them); "" always.
    """
    return all(_holds(part.strip()) for part in condition.split(",") if part.strip())


def _holds(condition):
    word, _, number = condition.partition(" ")
    if word in ("before", "in", "from") and re.fullmatch(r"\d+\.\d+", number):
        version, named = _major_minor(torch.__version__), _major_minor(number)
        if word == "in":
            return version == named
        return version < named if word == "before" else version >= named
    if condition not in MACHINES:
        known = ["before 2.11", "in 2.11", "from 2.12", *MACHINES]
        raise TodayError(
            f"unknown condition {condition!r}; known are {', '.join(known)}"
        )
    return MACHINES[condition]()


def _major_minor(version):
    return [int(number) for number in version.split(".")[:2]]


@functools.cache
def rows():
    """All rows of lesson 16, as a dict slug → Row, also those that have not run."""
    if not LESSON.exists():
        return {}
    found, section, above = {}, "", ""
    for cell in json.loads(LESSON.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            if numbered := re.match(r"## (\d+) · ", source):
                section = numbered[1]
            above = source
            continue
        lines = grammar.body(source).splitlines()
        # a row, not the cell that readers paste into: %%today alone
        if lines and re.match(r"%%today \S", lines[0]):
            row = parse(lines[0].removeprefix("%%today "), "\n".join(lines[1:]))
            heading = re.match(r"#{3,4} (.+)", above)
            linked = re.findall(r"\]\((\d\d)_\w+\.ipynb", above)
            needs = grammar.header(source)
            found[row.slug] = replace(
                row,
                heading=heading[1] if heading else row.slug,
                sentence=_plain(above.split("\n\n")[-1]) if heading else "",
                needs=needs.word.split(":")[0] if needs else "",
                section=section,
                lesson=(linked or [row.lesson])[0],
            )
    return found


def _plain(text):
    """A sentence of Markdown as plain text, without the lesson that it links to."""
    text = re.sub(r" \(\[lesson \d\d\]\([^)]*\)\)", "", text)
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text)
    return " ".join(text.replace("`", "").split())
