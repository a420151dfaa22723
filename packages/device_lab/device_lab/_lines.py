"""The line of code at which a call stands: the reader's own, and the library's below."""

import linecache
import os
import sys
import sysconfig
from typing import Any, NamedTuple

import torch

from .errors import file_name

LIBRARIES = "site-packages", "dist-packages"
STANDARD = sysconfig.get_path("stdlib")
TORCH = os.path.join(os.path.dirname(torch.__file__), "")
# PyTorch, with torch_xla beside it, and the kit
OWN = TORCH.rstrip(os.sep), os.path.join(os.path.dirname(__file__), ""), "<frozen"
# What in PyTorch only hands a call on
PASSING = ("_compile", "_dynamo/", "_jit_internal", "_ops", "_tensor", "autograd/")
PASSING += ("functional", "nn/modules/module", "overrides", "utils/_")
NOWHERE = "backward()"  # in autograd's thread for a GPU


class Place(NamedTuple):
    """where: file:line of the innermost code that is no library's; code: that line.
    inside, inner: the same of the innermost library below it, or "". calls: of all
    libraries below it, "file function: line".
    """

    where: str
    code: str
    inside: str
    inner: str
    calls: tuple[str, ...]


def place() -> Place:
    """Of the call that is being made."""
    frame, below = _frames()
    calls = [f"{_short(x)} {x.f_code.co_name}: {_code(x)}" for x in below]
    inside, inner = next(
        ((f"{_short(x)}:{x.f_lineno}", _code(x)) for x in below if _works(x)), ("", "")
    )
    if frame is None:
        return Place(inside or NOWHERE, "", "", "", tuple(calls))
    where = f"{file_name(frame.f_code.co_filename)}:{frame.f_lineno}"
    return Place(where, _code(frame), inside, inner, tuple(calls))


def reader_frame() -> Any:
    """The innermost frame of code that is no library's; None in a thread that has none,
    such as autograd's for a GPU.
    """
    return _frames()[0]


def is_reader(path: str) -> bool:
    """Whether a file is neither PyTorch's, the kit's, a library's nor Python's."""
    library = any(part in path for part in LIBRARIES)
    return not (library or path.startswith((*OWN, STANDARD)))


def _frames():
    """The reader's frame, and those of libraries below it, the innermost first."""
    frame, below = sys._getframe(1), []
    while frame:
        path = frame.f_code.co_filename
        own, library = path.startswith(OWN), any(part in path for part in LIBRARIES)
        if is_reader(path):
            break
        if path.startswith(TORCH) or (library and not own):
            below.append(frame)
        if frame.f_code.co_name == "handle_torch_function" and frame.f_back:
            frame = frame.f_back  # it asks the modes first, and is called again
        frame = frame.f_back
    return frame, below


def _works(frame):
    name = _short(frame)
    return not (name.startswith("torch/") and name[6:].startswith(PASSING))


def _short(frame):
    """The path of a library's file, from the library on."""
    path = frame.f_code.co_filename
    if path.startswith(TORCH):
        path = "torch/" + path[len(TORCH) :]
    for part in LIBRARIES:
        path = path.rpartition(part + os.sep)[2]
    return path.replace(os.sep, "/")


def _code(frame):
    path, line = frame.f_code.co_filename, frame.f_lineno
    return linecache.getline(path, line, frame.f_globals).strip()
