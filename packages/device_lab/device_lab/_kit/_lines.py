"""Where a call stands: the line of the reader's code, and the library's below it."""

import linecache
import os
import sys
import sysconfig
from types import FrameType
from typing import NamedTuple

import torch

from .errors import file_name

LIBRARIES = "site-packages", "dist-packages"
STANDARD = sysconfig.get_path("stdlib")
TORCH = os.path.join(os.path.dirname(torch.__file__), "")
KIT = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
OWN = TORCH, KIT, os.path.join(os.path.dirname(TORCH) + "_xla", ""), "<frozen"
# What in PyTorch only hands a call on
PASSING = ("_compile", "_dynamo/", "_jit_internal", "_ops", "_tensor", "autograd/")
PASSING += ("functional", "nn/modules/module", "overrides", "utils/_")
BACKWARD = "_engine_run_backward"


class Place(NamedTuple):
    """where: file:line of the innermost code that is no library's; code: that line;
    inside: both of the innermost library below it, or ""; calls: of all libraries below
    it, "file function: line". reader, library: the path and the line of `where` and of
    `inside`.
    """

    where: str
    code: str
    inside: str
    calls: tuple[str, ...]
    reader: tuple[str, int] = ("", 0)
    library: tuple[str, int] = ("", 0)


def place() -> Place:
    """Of the call that is being made."""
    frame, below = _frames()
    works = next((x for x in below if not _passing(x)), None)
    inside = f"{_short(works)}:{works.f_lineno}  {_code(works)}" if works else ""
    calls = tuple(f"{_short(x)} {x.f_code.co_name}: {_code(x)}" for x in below)
    library = _position(works) if works else ("", 0)
    if frame is None:
        where = inside or "a thread of a library"
        return Place(where, "", "", calls, library=library)
    where = f"{file_name(frame.f_code.co_filename)}:{frame.f_lineno}"
    return Place(where, _code(frame), inside, calls, _position(frame), library)


def keep_line(x: torch.Tensor) -> None:
    """For `forward_line`, in the node that made x."""
    if x.requires_grad and x.grad_fn:
        x.grad_fn.metadata["line"] = place().where


def forward_line(at: Place) -> str:
    """Of what is computed in backward now, if PyTorch computes it; else ""."""
    if not any(f" {BACKWARD}: " in call for call in at.calls):
        return ""
    node = torch._C._current_autograd_node()
    return (node and node.metadata.get("line")) or "a line further up"


def is_reader(path: str) -> bool:
    """Whether a file is neither PyTorch's, the kit's, a library's nor Python's."""
    library = any(part in path for part in LIBRARIES)
    return not (library or path.startswith((*OWN, STANDARD)))


def _frames() -> tuple[FrameType | None, list[FrameType]]:
    """The reader's frame, and those of libraries below it, the innermost first."""
    frame, below = _walk(sys._getframe(1))
    if frame is None:  # in autograd's thread: whoever called backward() waits for it
        for other in sys._current_frames().values():
            if other.f_code.co_name == BACKWARD:
                frame, calling = _walk(other)
                below += calling
    return frame, below


def _walk(frame):
    below = []
    while frame and not is_reader(path := frame.f_code.co_filename):
        library = any(part in path for part in LIBRARIES)
        if path.startswith(TORCH) or (library and not path.startswith(OWN)):
            below.append(frame)
        if frame.f_code.co_name == "handle_torch_function":
            frame = frame.f_back  # who called it is called again
        frame = frame.f_back
    return frame, below


def _passing(frame):
    library, _, name = _short(frame).partition("/")
    return library == "torch" and name.startswith(PASSING)


def _short(frame):
    """The path of a library's file, from the library on."""
    path = frame.f_code.co_filename
    for folder in (os.path.dirname(TORCH[:-1]), *LIBRARIES):
        path = path.rpartition(folder + os.sep)[2]
    return path.replace(os.sep, "/")


def _position(frame):
    return frame.f_code.co_filename, frame.f_lineno


def _code(frame):
    path, line = frame.f_code.co_filename, frame.f_lineno
    return linecache.getline(path, line, frame.f_globals).strip()
