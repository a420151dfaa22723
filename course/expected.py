"""Announced errors: a block that must fail, and what it says."""

import re
import traceback

from course.messages import finding, say
from device_lab import LabError
from utils.devices import pytorch


class ExpectedError(LabError):
    """An announced error that did not come, or came otherwise than announced."""


class expect_error:
    """Run a block that must fail, show the real message, and go on; `as caught` keeps
    it as caught.message.

    kind: exception class, or a tuple of classes. pattern: regular expression that the
    message must contain (versions differ: "same device|different devices"). lines: how
    many lines of the message to show; these are data, too, in the metadata of the
    output (`device_lab`, error: kind, text). Nothing raised, or something else, is a
    finding: one line for a reader, an ExpectedError with LAB_STRICT=1.
    """

    def __init__(self, kind: type | tuple[type, ...], pattern: str, lines: int = 4):
        self.kind, self.pattern, self.lines, self.message = kind, pattern, lines, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None and not issubclass(kind, Exception):
            return False  # KeyboardInterrupt and SystemExit pass
        # An error in a cycle with its own frames would keep what they hold (tensors, a
        # DataLoader's workers) until the garbage collector comes, which may be in a
        # forked worker.
        traceback.clear_frames(trace)
        kinds = self.kind if isinstance(self.kind, tuple) else (self.kind,)
        names = " or ".join(each.__name__ for each in kinds)
        announced = f"announced: {names} with {self.pattern!r}; on {pytorch()} "
        self.message = "" if error is None else str(error)
        if error is None:
            finding(announced + "the block runs without an error", ExpectedError)
            return True
        text = f"{kind.__name__}: {error}"
        if not issubclass(kind, self.kind) or not re.search(self.pattern, str(error)):
            finding(announced + f"it says: {text}", ExpectedError)
            return True
        lines = text.strip().splitlines()
        head = "\n".join(lines[: self.lines])
        more = len(lines) - self.lines
        cut = f"\n… ({more} more lines)" if more > 0 else ""
        say(head + cut, "error", error={"kind": kind.__name__, "text": head})
        return True
