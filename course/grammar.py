"""What the lines say that a cell begins with:

    %%requires WORD [--result NAME | --name NAME] [--timeless]
    %%torchrun N [--result NAME] [--fails PATTERN]
    %%today SLUG: VERDICT

All who read them read them here: the kernel (course/cells.py), the checks of lessons
(tools/lessons), the website (tools/site, docs/conf.py) and the tests. Nothing in this
module needs PyTorch or IPython; utils/needs.py looks at the machine.
"""

import hashlib
import re
from typing import NamedTuple

from utils.errors import LabError

WORDS = {  # what a word after %%requires stands for
    "cuda": "a CUDA GPU",
    "mps": "an Apple GPU",
    "accelerator": "an accelerator",
    "xla": "torch_xla",
    "tpu": "a TPU",
    "compiler": "a C++ compiler",
    "triton": "a CUDA GPU with Triton",
}
NAME = r"[A-Za-z_]\w*"
# words with a part behind a colon: the name of a result, or how many GPUs
COMPOUND = re.compile(rf"result:{NAME}|cuda:[1-9]\d*")
# a whole line: the word, perhaps `--result NAME` or `--name NAME` and then `--timeless`
REQUIRES = re.compile(
    r"%%requires(?:\s+(?P<word>\S+))?"
    rf"(?:\s+--(?P<kind>result|name)\s+(?P<name>{NAME})(?P<timeless>\s+--timeless)?)?"
    r"\s*$"
)
# what stands behind %%torchrun; the pattern goes on to the end of the line
TORCHRUN = re.compile(
    rf"(?P<processes>[1-9]\d*)(\s+--result\s+(?P<result>{NAME}))?"
    r"(\s+--fails\s+(?P<fails>.+))?"
)
# all lines with %% at the top of a cell: a %%requires may stand above one of the others
HEAD = re.compile(r"\A(?:%%(?:requires|today|torchrun)\b.*(?:\n|\Z))+")
RESULT = re.compile(rf"^%%\w.*\s--result\s+({NAME})", re.M)


class RequiresError(LabError):
    """A %%requires line that says nothing the course knows."""


class Header(NamedTuple):
    """What a %%requires line says. kind: "result", "name" or None."""

    word: str
    kind: str | None = None
    name: str | None = None
    timeless: bool = False

    @property
    def result(self):
        """Name of the result that the cell makes (--result NAME) or reads
        (result:NAME), or None.
        """
        if self.word.startswith("result:"):
            return self.word.removeprefix("result:")
        return self.name if self.kind == "result" else None

    @property
    def recordable(self):
        """Whether what the cell gives on a machine that has the hardware can be
        recorded.
        """
        return bool(self.name) and not self.word.startswith("result:")

    @property
    def hardware(self):
        """What the word stands for, unless it is the name of a result."""
        base, _, count = self.word.partition(":")
        return f"{count} CUDA GPUs" if count else WORDS[base]


def header(source: str) -> Header | None:
    """The Header of a cell, None if it has none. RequiresError where it is wrong."""
    line = source.lstrip().split("\n", 1)[0]
    if not line.startswith("%%requires"):
        return None
    found = REQUIRES.match(line)
    if not found or not found["word"]:
        usage = (
            "write %%requires WORD, perhaps with --result NAME or --name NAME, and"
            " after a name --timeless"
        )
        raise RequiresError(f"cannot read {line.strip()!r}: {usage}")
    word = found["word"]
    if word not in WORDS and not COMPOUND.fullmatch(word):
        known = ", ".join([*WORDS, "cuda:2", "result:NAME"])
        raise RequiresError(
            f"unknown word {word!r} after %%requires; known are {known}"
        )
    return Header(word, found["kind"], found["name"], bool(found["timeless"]))


def body(source: str) -> str:
    """A cell's code without its %%requires line."""
    first, _, rest = source.lstrip().partition("\n")
    return rest if first.startswith("%%requires") else source


def split(source: str) -> tuple[str, str]:
    """A cell as its head (all lines at its top that begin with %%) and its code."""
    head = HEAD.match(source)
    return (head[0], source[head.end() :]) if head else ("", source)


def results(source: str) -> list[str]:
    """The names of the results that the head of a cell promises (--result NAME)."""
    return RESULT.findall(split(source.lstrip())[0])


def source_hash(source: str) -> str:
    """Short SHA-256 of a cell's code: header, title (`# @title …`), blank ends and
    trailing spaces do not count.
    """
    lines = [line.rstrip() for line in body(source).strip().splitlines()]
    if lines and lines[0].startswith("# @title "):
        lines = "\n".join(lines[1:]).strip().split("\n")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
