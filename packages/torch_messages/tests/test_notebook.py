"""explain() and %load_ext torch_messages."""

import os
import subprocess
import sys

import pytest

from torch_messages import explain, notebook
from torch_messages.messages import entries

GRAD = "Can't call numpy() on Tensor that requires grad."
NUMPY = "NumPy knows no graph: detach() gives the same numbers without one."


@pytest.fixture
def no_last(monkeypatch):
    for name in ("last_value", "last_exc"):
        monkeypatch.delattr(sys, name, raising=False)


# --------------------------------------------------------------------------------------
# explain()


def test_without_an_error_it_says_so(no_last, capsys):
    explain()
    said = capsys.readouterr().out
    assert said == "There has been no error here since Python started.\n"


@pytest.mark.parametrize("name", ["last_value", "last_exc"])
def test_the_last_error_is_the_one_that_was_shown(no_last, monkeypatch, capsys, name):
    monkeypatch.setattr(sys, name, RuntimeError(GRAD), raising=False)
    explain()
    assert NUMPY in capsys.readouterr().out


def test_an_error_that_is_given_or_being_handled(no_last, capsys):
    explain(RuntimeError(GRAD))
    try:
        raise RuntimeError(GRAD)
    except RuntimeError:
        explain()
    assert capsys.readouterr().out.count(NUMPY) == 2
    with pytest.raises(TypeError, match="for a text there is look_up"):
        explain(GRAD)


def chained():
    try:
        try:
            raise RuntimeError(GRAD)
        except RuntimeError as error:
            raise KeyError("mine") from error
    except KeyError as error:
        return error


def test_the_cause_of_an_error_is_read(capsys):
    explain(chained())
    assert NUMPY in capsys.readouterr().out


def test_of_its_frames_the_last_file_stands_there():
    def deep(n):
        if n:
            deep(n - 1)
        raise ValueError("deep")

    with pytest.raises(ValueError) as caught:
        deep(50)
    first, *_, last = notebook.text_of(caught.value).splitlines()
    assert first.startswith(f'  File "{__file__}", line ') and last.endswith(": deep")
    assert notebook.text_of(chained()).count('File "') == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="of Python 3.11")
def test_notes_and_groups_are_read():
    noted = ValueError("mine")
    noted.add_note(f"RuntimeError: {GRAD}")
    assert notebook.meaning(noted) == NUMPY
    group = ExceptionGroup("two", [ValueError("mine"), RuntimeError(GRAD)])  # noqa: F821
    assert notebook.meaning(group) == NUMPY


def test_a_message_of_any_length_is_bounded():
    text = notebook.text_of(RuntimeError("x" * 10_000_000))
    assert len(text) < 2 * notebook.MOST + 10
    assert text.startswith("RuntimeError: x")


class Broken(Exception):
    def __str__(self):
        raise RuntimeError("no")

    def __bool__(self):
        return False


def test_an_error_that_cannot_be_printed(capsys):
    explain(Broken())
    assert "<exception str()" in capsys.readouterr().out


# --------------------------------------------------------------------------------------
# The line below a traceback


def test_each_line_fits():
    for entry in entries().values():
        for name in ("explain", "torch_messages.explain"):
            line = notebook.line(entry.means, name)
            assert len(line) <= notebook.WIDTH and "\n" not in line, entry.id
            shown = line.removeprefix("torch_messages: ").partition(" · ")[0]
            assert entry.means.startswith(shown.removesuffix(" …")), entry.id


def test_a_meaning_is_cut_where_a_sentence_ends_or_else_a_part():
    assert notebook.line("Harmless.").endswith("Harmless. · explain() says what helps")
    two = "The first sentence. " + "The second one is too long for the line. " * 3
    assert "The first sentence. · explain() says" in notebook.line(two)
    parts = "A part of a sentence that is long: " + "and another one " * 9
    assert "that is long … · explain()" in notebook.line(parts)
    words = "word " * 40
    assert notebook.line(words).endswith("word … · explain()")


def test_what_is_not_known_word_for_word_has_none():
    assert notebook.meaning(RuntimeError(GRAD)) == NUMPY
    for error in (
        NameError("name 'x' is not defined"),
        ValueError("how do I free the memory of my GPU"),
        ValueError(""),
    ):
        assert notebook.meaning(error) == ""


def cells(*sources):
    """What IPython prints for each cell, in a process of its own."""
    pytest.importorskip("IPython")
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='NoColor')\n"
        f"for cell in {sources!r}:\n"
        "    print('\\0', end='')\n"
        "    shell.run_cell(cell)\n"
    )
    environment = {
        **os.environ,
        "PYTHONUTF8": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        env=environment,
    )
    assert not done.stderr
    return done.stdout.split("\0")[1:]


LOAD, FAIL = "%load_ext torch_messages", f'raise RuntimeError("{GRAD}")'
LINE = notebook.line(NUMPY) + "\n"


@pytest.mark.slow
def test_a_line_below_each_traceback_that_is_known():
    load, fine, known, again, unknown, syntax, explained = cells(
        LOAD, "x = 1", FAIL, FAIL, "1 / 0", "def f(:", "explain()"
    )
    assert (load, fine) == ("", "")
    assert known.endswith(f"RuntimeError: {GRAD}\n{LINE}") and known == again
    assert "ZeroDivisionError" in unknown and "SyntaxError" in syntax
    assert "torch_messages" not in unknown + syntax
    assert explained and NUMPY not in explained  # the last was a SyntaxError


@pytest.mark.slow
def test_explain_says_what_helps():
    *_, explained = cells(LOAD, FAIL, "explain()")
    assert f"means   {NUMPY}" in explained


@pytest.mark.slow
def test_a_name_of_the_reader_is_kept():
    _, _, known, kept, _, still = cells(
        LOAD, "explain = 3", FAIL, "explain", "%unload_ext torch_messages", "explain"
    )
    assert known.endswith(" · torch_messages.explain()\n")
    assert kept == still and kept.endswith(": 3\n")


@pytest.mark.slow
def test_after_unload_ext_there_is_none_and_reload_ext_gives_one_line():
    out = cells(
        LOAD,
        "%reload_ext torch_messages",
        FAIL,
        "%unload_ext torch_messages",
        FAIL,
        "explain",
    )
    assert out[2].count("torch_messages: ") == 1
    assert "torch_messages: " not in out[4]
    assert "NameError" in out[5]


@pytest.mark.slow
def test_an_error_of_its_own_is_not_shown():
    break_it = "import torch_messages.notebook as n; n.look = None"
    *_, known = cells(LOAD, break_it, FAIL)
    assert known.endswith(f"RuntimeError: {GRAD}\n")


@pytest.mark.slow
def test_what_is_interrupted_is_not_looked_up():
    *_, known = cells(LOAD, f'raise KeyboardInterrupt("{GRAD}")')
    assert "torch_messages" not in known


@pytest.mark.slow
def test_the_table_is_read_at_the_first_error():
    read = "from torch_messages.messages import entries; entries.cache_info().currsize"
    out = cells(LOAD, read, FAIL, read)
    assert out[1].endswith(": 0\n") and out[3].endswith(": 1\n")
