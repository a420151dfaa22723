"""Conditional cells and announced errors, in a real kernel."""

import re

import pytest

from tests.conftest import text_of
from utils import cells, needs
from utils.messages import LabError


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def error_lines(cell):
    return [
        line
        for line in plain("\n".join(o for out in cell.outputs for o in out.get("traceback", []))).splitlines()
        if line
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%%requires cuda", ("cuda", None, None, False)),
        ("%%requires cuda:2 --result both\n", ("cuda:2", "result", "both", False)),
        ("%%requires xla --name hello", ("xla", "name", "hello", False)),
        ("%%requires cuda --name hello --timeless", ("cuda", "name", "hello", True)),
        ("%%requires result:bandwidth", ("result:bandwidth", None, None, False)),
    ],
)
def test_header_is_read(line, expected):
    assert cells.header(line) == expected


@pytest.mark.parametrize(
    "line",
    ["%%requires", "%%requires gpu", "%%requires cuda:0", "%%requires cuda --result 2x", "%%requires cuda mps"]
    + ["%%requires cuda --timeless"],
)
def test_wrong_header_is_one_line_that_says_what_to_write(line):
    with pytest.raises(LabError) as caught:
        cells.header(line)
    assert "\n" not in str(caught.value)
    assert "known are" in str(caught.value) or "write %%requires" in str(caught.value)


@pytest.mark.parametrize(("timed", "untimed", "goes_on"), [(True, "1", True), (False, "1", False), (True, "0", False)])
def test_a_cell_about_time_may_end_in_a_strict_run_that_judges_no_time(run, timed, untimed, goes_on):
    ends = f"from utils.cells import CellEnds\nraise CellEnds('no clock here', timed={timed})"
    (cell,) = run(ends, env={"LAB_STRICT": "1", "LAB_UNTIMED": untimed})
    states = [output.get("metadata", {}).get("device_lab", {}).get("state") for output in cell.outputs]
    assert (states == ["unjudged"]) is goes_on and (len(error_lines(cell)) == 1) is not goes_on


def test_every_need_answers_without_a_device():
    for word in needs.NEEDS:
        answer = cells.missing(word)
        assert answer is None or answer == answer.strip()


def test_unknown_word_shows_one_line_and_runs_nothing(run):
    (cell, after) = run("%%requires gpu\nran = True", "print('ran' in globals())")
    assert len(error_lines(cell)) == 1
    assert error_lines(cell)[0].startswith("RequiresError: unknown word 'gpu'")
    assert "cuda" in error_lines(cell)[0] and text_of(after).strip() == "False"


def test_met_cell_runs_like_a_plain_one(run):
    met, plain_cell, awaited, magic = run(
        "%%requires cuda --result x\nx = 6 * 7\nx",
        "6 * 7",
        "%%requires cuda\nimport asyncio\nawait asyncio.sleep(0, 'waited')",
        "%%requires cuda\n%env LAB_PRETEND",
        env={"LAB_PRETEND": "cuda"},
    )
    assert text_of(met) == text_of(plain_cell) == "42"
    assert text_of(awaited) == "'waited'" and text_of(magic) == "'cuda'"


def test_error_in_a_met_cell_shows_one_traceback_with_the_right_line(run):
    (cell,) = run("%%requires cuda\na = 1\nb = a / 0\nc = 2", env={"LAB_PRETEND": "cuda"})
    lines = error_lines(cell)
    assert sum("Traceback (most recent call last)" in line for line in lines) == 1
    assert any(re.search(r"-+> 3 b = a / 0", line) for line in lines), lines
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_unmet_cell_without_recording_says_so_and_defines_nothing(run):
    cell, needs, after = run(
        "%%requires cuda:64 --result never_recorded\nnever_recorded = 1",
        "%%requires result:never_recorded\nprint(never_recorded)",
        "print('never_recorded' in globals())",
    )
    assert "Nobody has recorded it yet" in text_of(cell) and "64 CUDA GPUs" in text_of(cell) or "CUDA" in text_of(cell)
    assert cell.outputs[0].metadata["device_lab"]["state"] == "unavailable"
    assert "needs the result `never_recorded`" in text_of(needs)
    assert text_of(after).strip() == "False"


def test_a_value_of_an_earlier_run_does_not_survive_an_unmet_cell(run):
    _, _, after = run("stale = 1", "%%requires cuda:64 --result stale\nstale = 2", "print('stale' in globals())")
    assert text_of(after).strip() == "False"


def test_live_result_names_this_machine(run):
    (_, _, here) = run(
        "from utils import needs\nneeds.NEEDS['compiler'] = lambda: None",  # whatever this machine has
        "%%requires compiler --result answer\nanswer = 42",
        "%%requires result:answer\nprint(where('answer'))",
    )
    assert "this machine" in text_of(here)


def test_importing_twice_keeps_one_transformer(run):
    (cell,) = run(
        "import importlib, utils\nimportlib.reload(utils)\n"
        "print(sum(getattr(t, '__name__', '') == 'requires_cell' for t in get_ipython().input_transformers_cleanup))"
    )
    assert text_of(cell).strip() == "1"


# ---------------------------------------------------------------------------------------------------------------
# expect_error


def test_expected_error_prints_the_real_message(capsys):
    with cells.expect_error(ZeroDivisionError, "division"):
        1 / 0  # noqa: B018
    assert capsys.readouterr().out == "ZeroDivisionError: division by zero\n"


def test_long_message_is_cut(capsys):
    with cells.expect_error((ValueError, TypeError), "^a", lines=2):
        raise ValueError("a\nb\nc\nd")
    assert capsys.readouterr().out.splitlines()[-1] == "… (2 more lines)"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("pass", "runs without an error"),
        ("raise KeyError('same device')", "it says: KeyError"),
        ("raise RuntimeError('something else')", "it says: RuntimeError: something else"),
    ],
)
def test_what_was_not_announced_fails(code, message, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(cells.ExpectedError, match=message):
        with cells.expect_error(RuntimeError, "same device"):
            exec(code)


def test_interrupt_passes_through():
    with pytest.raises(KeyboardInterrupt):
        with cells.expect_error(Exception, ""):
            raise KeyboardInterrupt


def test_missing_error_fails_the_cell_with_one_line(run):
    (cell,) = run("with expect_error(RuntimeError, 'same device'):\n    pass", strict=True)
    (line,) = error_lines(cell)
    assert re.fullmatch(
        r"ExpectedError: announced: RuntimeError with 'same device'; on PyTorch [\d.]+ the block runs without an error",
        line,
    )
