"""Conditional cells (%%requires) and announced errors (expect_error).

A cell whose first line is

    %%requires WORD [--result NAME | --name NAME]

runs exactly as if that line were a comment when this machine has what WORD names. Otherwise the result recorded
elsewhere is shown, and the variable NAME of `--result` gets the recorded value. It is an input transformer, not a
nested run: errors show one traceback with the right line, and `await` and line magics work.
"""

import functools
import re
import sys

from utils import devices, recordings
from utils.messages import LabError, note

NEEDS = {  # word → what is missing here, or None
    "cuda": devices.missing_cuda,
    "mps": devices.missing_mps,
    "accelerator": devices.missing_accelerator,
    "xla": devices.missing_xla,
    "tpu": devices.missing_tpu,
    "compiler": devices.missing_compiler,
    "triton": devices.missing_triton,
}
HEADER = re.compile(r"%%requires(?:\s+(?P<word>\S+))?(?:\s+--(?P<kind>result|name)\s+(?P<name>[A-Za-z_]\w*))?\s*$")


class RequiresError(LabError):
    """A %%requires line that says nothing the course knows."""


def parse(line):
    """(word, kind, name) of a %%requires line; kind is "result", "name" or None. RequiresError where it is wrong."""
    found = HEADER.match(line)
    usage = "write %%requires WORD, %%requires WORD --result NAME or %%requires WORD --name NAME"
    if not found or not found["word"]:
        raise RequiresError(f"cannot read {line.strip()!r}: {usage}")
    word = found["word"]
    if not re.fullmatch(r"result:[A-Za-z_]\w*|cuda:[1-9]\d*", word) and word not in NEEDS:
        known = ", ".join([*NEEDS, "cuda:2", "result:NAME"])
        raise RequiresError(f"unknown word {word!r} after %%requires; known are {known}")
    return word, found["kind"], found["name"]


def missing(word, variables=()):
    """What this machine lacks for `%%requires word`, as half a sentence, or None when the cell can run."""
    if word.startswith("result:"):
        name = word.removeprefix("result:")
        return None if name in variables else f"the result `{name}`, and no cell above could make or replay it"
    return _missing_hardware(word)


@functools.cache
def _missing_hardware(word):
    base, _, count = word.partition(":")
    if base in recordings.pretending():
        return None
    return devices.missing_cuda(int(count)) if count else NEEDS[base]()


# ---------------------------------------------------------------------------------------------------------------
# The transformer


def requires_cell(lines):
    """Input transformer of IPython: the lines of a cell, or a call that replays what was recorded."""
    if not lines or not lines[0].startswith("%%requires"):
        return lines
    call = "__import__('utils.cells').cells"
    try:
        word, _, name = parse(lines[0])
    except RequiresError as error:
        return [f"{call}.fail({str(error)!r})\n"]
    if missing(word, _variables()) is None:
        return ["# " + lines[0], *lines[1:]]
    return [f"{call}.replay({word!r}, {name!r}, {recordings.source_hash(''.join(lines))!r})\n"]


def fail(message):
    """Raise the RequiresError that reading a cell's first line gave."""
    raise RequiresError(message)


def replay(word, name, source):
    """What a conditional cell becomes on a machine that lacks `word`."""
    lack = missing(word, _variables())
    if word.startswith("result:"):
        note(f"Not run here: this cell needs {lack}.", "unavailable")
    else:
        recordings.replay(name, lack, source, _variables())


def _before_cell(info):
    first = (info.raw_cell or "").lstrip().split("\n", 1)[0]
    if not first.startswith("%%requires"):
        return
    try:
        word, kind, name = parse(first)
    except RequiresError:
        return  # the cell itself is about to say so
    if kind == "result" and missing(word, _variables()) is None:
        recordings.remember_live(name, word)


def _variables():
    return sys.modules["IPython"].get_ipython().user_ns


def enable_conditional_cells():
    """Teach the running notebook the line %%requires. Does nothing outside IPython, and nothing a second time."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or getattr(shell, "_lab_conditional_cells", False):
        return
    shell.input_transformers_cleanup.append(requires_cell)
    shell.events.register("pre_run_cell", _before_cell)
    shell._lab_conditional_cells = True


# ---------------------------------------------------------------------------------------------------------------
# Announced errors


class ExpectedError(LabError):
    """An announced error that did not come, or came otherwise than announced."""


class expect_error:
    """Run a block that must fail, print the real message, and go on; `as caught` keeps it as caught.message.

    kind: exception class, or a tuple of classes. pattern: regular expression that the message must contain
    (versions differ: "same device|different devices"). lines: how many lines of the message to print.
    Raises ExpectedError when nothing is raised, or something else.
    """

    def __init__(self, kind, pattern, lines=4):
        self.kind, self.pattern, self.lines, self.message = kind, pattern, lines, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is not None and not issubclass(kind, Exception):
            return False  # KeyboardInterrupt and SystemExit pass
        names = " or ".join(k.__name__ for k in (self.kind if isinstance(self.kind, tuple) else (self.kind,)))
        if error is None:
            raise ExpectedError(f"expected {names} ({self.pattern!r}), but the block ran without an error")
        text = f"{kind.__name__}: {error}"
        if not issubclass(kind, self.kind):
            raise ExpectedError(f"expected {names} ({self.pattern!r}), got {text}") from error
        if not re.search(self.pattern, str(error)):
            raise ExpectedError(f"the message does not contain {self.pattern!r}: {text}") from error
        self.message = str(error)
        shown = text.strip().splitlines()
        print("\n".join(shown[: self.lines]))
        if len(shown) > self.lines:
            print(f"… ({len(shown) - self.lines} more lines)")
        return True
