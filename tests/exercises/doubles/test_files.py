"""A file is watched while it is replaced."""

import os
from os import replace

from exercises.doubles.files import Moment, held, watched


def careless(path):
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(b"new")
        os.fsync(file)


def careful(path):
    beside = path.with_name("beside")
    with open(beside, "wb") as file:
        file.write(b"new")
        file.flush()
        os.fsync(file.fileno())
    replace(beside, path)


def elsewhere(path):
    with open(path.parent.parent / "other", "wb", buffering=0) as file:
        file.write(b"new")
        os.fsync(file)


def notes(save, tmp_path):
    path = tmp_path / "folder" / "x"
    path.parent.mkdir()
    path.write_bytes(b"old")
    with watched(path, save) as moments:
        save(path)
    return moments


def test_each_call_notes_what_a_crash_would_find(tmp_path):
    assert notes(careful, tmp_path) == [
        Moment("fsync", b"old", 3),
        Moment("replace", b"new"),
    ]
    assert os.replace is replace  # all is as it was
    assert held(tmp_path / "nothing") is None


def test_a_moment_without_a_file_and_a_buffer_that_is_not_flushed(tmp_path):
    assert notes(careless, tmp_path) == [
        Moment("unlink", None),
        Moment("fsync", b"", 0),
    ]


def test_a_file_in_another_folder_is_none(tmp_path):
    assert notes(elsewhere, tmp_path) == [Moment("fsync", b"old", None)]
