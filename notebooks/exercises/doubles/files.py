"""What a crash would find of a file while a program replaces it."""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple
from unittest import mock

SYNCS = ("fsync", "fdatasync")
CALLS = (*SYNCS, "unlink", "remove", "rename", "replace")


class Moment(NamedTuple):
    """What a crash would find. call: the function of `os` that has just run. held: the
    bytes at the path, None if nothing is there. synced: of "fsync" and "fdatasync", how
    many bytes of their file the system had got from the program; None if that file is
    not in the folder of the path.
    """

    call: str
    held: bytes | None
    synced: int | None = None


def held(path: pathlib.Path) -> bytes | None:
    """The bytes at a path, None if nothing is there."""
    return path.read_bytes() if path.exists() else None


@contextlib.contextmanager
def watched(path: pathlib.Path, function: Callable) -> Iterator[list[Moment]]:
    """Within it, os.fsync, rename, replace, remove and unlink note what they leave at
    `path`. Yields the list of Moments, which grows.

    function: whose own globals are watched, too, for `from os import fsync`. What
    pathlib and shutil took from `os` at their import is not seen.
    """
    moments = []

    def watch(name, real):
        def call(*args, **kwargs):
            synced = _beside(path, args[0]) if name in SYNCS else None
            result = real(*args, **kwargs)
            moments.append(Moment(name, held(path), synced))
            return result

        return call

    real = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}
    watches = {name: watch(name, call) for name, call in real.items()}
    own = getattr(function, "__globals__", {})
    imported = {
        mine: watches[name]
        for mine, value in own.items()
        for name, call in real.items()
        if value is call
    }
    with mock.patch.multiple(os, **watches), mock.patch.dict(own, imported):
        yield moments


def _beside(path, file):
    """How many bytes an open file has on the disk, None if it is not beside `path`."""
    status = os.fstat(file if isinstance(file, int) else file.fileno())
    beside = any(p.stat().st_ino == status.st_ino for p in path.parent.iterdir())
    return status.st_size if beside else None
