"""What the lines say that a cell begins with. Comments, as Quarto and nbdev have them:

    #| requires: WORD
    #| result: NAME         or: name: NAME
    #| timeless: true
    #| takes: 25 s to compile eight models

so that such a cell is plain Python for every tool; and two magics:

    %%torchrun N [--result NAME] [--fails PATTERN]
    %%today SLUG: VERDICT

whose cell has an old part, a line `# ---- today`, a part of today and, if needed, a
line `# ---- set-up` and what runs before each of the two.

All who read them read them here: the kernel (course/cells.py), the checks of lessons
(tools/lessons), the website (tools/site, docs/conf.py) and the tests. Nothing in this
module needs PyTorch or IPython; course/needs.py looks at the machine.
"""

import re
from typing import NamedTuple

from device_lab import LabError

WORDS = {  # what a word behind `requires` stands for
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
OPTION = re.compile(r"^#\| *(\w+): *(\S.*?) *$", re.M)
# what may stand in an option, by its key
OPTIONS = {
    "requires": re.compile(r"\S+"),
    "result": re.compile(NAME),
    "name": re.compile(NAME),
    "timeless": re.compile("true"),
    "takes": re.compile(r"(?P<seconds>[1-9]\d*) s (?P<what>to \S.*)"),
}
# what stands behind %%torchrun; the pattern goes on to the end of the line
TORCHRUN = re.compile(
    rf"(?P<processes>[1-9]\d*)(\s+--result\s+(?P<result>{NAME}))?"
    r"(\s+--fails\s+(?P<fails>.+))?"
)
# the lines between the parts of a row of lesson 16
ROW_TODAY = re.compile(r"^# -+ today\s*$", re.M)
ROW_SETUP = re.compile(r"^# -+ set-up\s*$", re.M)
# folded code has a title, above all else, where front ends show it
TITLE = re.compile(r"# ?@title (.*)(?:\n|\Z)")
# all lines of the course at the top of a cell: options may stand above a magic
HEAD = re.compile(r"(?:(?:#\||%%(?:today|torchrun)\b).*(?:\n|\Z))+")
RESULT = re.compile(rf"^(?:%%\w.*\s--result\s+|#\| *result: *)({NAME})", re.M)


class RequiresError(LabError):
    """Options at the top of a cell that say nothing the course knows."""


class Header(NamedTuple):
    """What the options of a cell say. kind: "result", "name" or None."""

    word: str
    kind: str | None = None
    name: str | None = None
    timeless: bool = False

    @property
    def result(self):
        """Name of the result that the cell makes (`result: NAME`) or reads (`requires:
        result:NAME`), or None.
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


class Takes(NamedTuple):
    """How long a cell takes on two cores, and what for: "to compile eight models"."""

    seconds: int
    what: str


def takes(source: str) -> Takes | None:
    """What the head of a cell says of its time; None if nothing, or nothing that can be
    read (then `header` says so).
    """
    options = dict(OPTION.findall(split(source)[0]))
    found = OPTIONS["takes"].fullmatch(options.get("takes", ""))
    return found and Takes(int(found["seconds"]), found["what"])


def header(source: str) -> Header | None:
    """The Header of a cell, None if it requires nothing. RequiresError where an option
    is wrong.
    """
    head, _ = split(source)
    found = {}
    for line in head.splitlines():
        if not line.startswith("#|"):
            continue
        option = OPTION.match(line)
        key, value = option.groups() if option else ("", "")
        if key in found or key not in OPTIONS or not OPTIONS[key].fullmatch(value):
            raise RequiresError(
                f"cannot read {line.strip()!r}: write each once, #| requires: WORD,"
                " perhaps #| result: NAME or #| name: NAME, and with a name #|"
                " timeless: true; alone or with them #| takes: 25 s to DO SOMETHING"
            )
        found[key] = value
    found.pop("takes", None)
    if not found:
        return None
    word, kinds = found.get("requires"), found.keys() & {"result", "name"}
    if word is None or len(kinds) > 1 or ("timeless" in found and not kinds):
        raise RequiresError(
            f"{', '.join(found)}: a cell has `requires`, perhaps `result` or `name`,"
            " and with one of them `timeless`"
        )
    if word not in WORDS and not COMPOUND.fullmatch(word):
        known = ", ".join([*WORDS, "cuda:2", "result:NAME"])
        raise RequiresError(
            f"unknown word {word!r} behind #| requires; known are {known}"
        )
    kind = kinds.pop() if kinds else None
    return Header(word, kind, found.get(kind), "timeless" in found)


def split(source: str) -> tuple[str, str]:
    """A cell as its head (the course's lines at its top, below a title) and its code,
    the title among it.
    """
    source = source.lstrip()
    title = TITLE.match(source)
    above = title[0] if title else ""
    head = HEAD.match(source, len(above))
    if not head:
        return "", source
    return head[0], above + source[head.end() :]


def body(source: str) -> str:
    """A cell without its options: its title, a magic, its code."""
    head, code = split(source)
    magics = [line for line in head.splitlines(True) if not line.startswith("#|")]
    return "".join(magics) + code


def results(source: str) -> list[str]:
    """The names of the results that the head of a cell promises."""
    return RESULT.findall(split(source)[0])


def pieces(source: str) -> tuple[str, list[str]]:
    """A cell as its head (the course's lines at its top) and its pieces of code: of a
    %%today cell the old and the new and, where there is one, its set-up.
    """
    head, code = split(source)
    if "%%today" not in head:
        return head, [code]
    code, *setup = ROW_SETUP.split(code)
    return head, [*ROW_TODAY.split(code), *setup]


def untitled(code: str) -> str:
    """Code without its title."""
    return TITLE.sub("", code, count=1) if TITLE.match(code) else code
