"""Conditional cells and announced errors, in a real kernel."""

import gc
import re
import weakref

import pytest
import torch

from course import grammar
from course.expected import expect_error
from course.uses import source_key
from tests.conftest import errors_of, text_of

PRETEND = {"LAB_PRETEND": "cuda"}


def traceback_of(cell):
    text = "\n".join(
        line for output in cell.outputs for line in output.get("traceback", [])
    )
    return [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#| requires: cuda\n", ("cuda", None, None, False)),
        (
            "\n #| requires: cuda:2\n#| result: both\nboth = 1",
            ("cuda:2", "result", "both", False),
        ),
        ("#| requires: xla\n#| name: hello\n", ("xla", "name", "hello", False)),
        (
            "#| requires: cuda\n#| name: hello\n#| timeless: true\n",
            ("cuda", "name", "hello", True),
        ),
        ("#| requires: result:bandwidth\n", ("result:bandwidth", None, None, False)),
        (
            "#| takes: 9 s to wait\n#| requires: cuda\n",
            ("cuda", None, None, False),
        ),
        ("#| takes: 9 s to wait\nx = 1", None),
        ("x = 1\n#| requires: cuda\n", None),
    ],
)
def test_header_is_read(source, expected):
    assert grammar.header(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "#| takes: 25 s to compile: twice\nx = 1",
        "# @title Wait\n#| requires: cuda\n#| takes: 25 s to compile: twice  \nx = 1",
        "#| takes: 25 s to compile: twice\n%%torchrun 2\nx = 1",
        "#| takes: 25 s to compile: twice\n%%today amp/x: fine\n1\n# ---- today\n1",
    ],
)
def test_what_a_cell_takes_is_read_and_is_no_line_of_it(source):
    assert grammar.takes(source) == (25, "to compile: twice")
    without = "".join(
        line for line in source.splitlines(True) if not line.startswith("#| takes")
    )
    assert source_key(source) == source_key(without)
    assert grammar.split(source)[1] == grammar.split(without)[1]
    assert grammar.takes(without) is grammar.takes(f"x = 1\n{source}") is None


@pytest.mark.parametrize(
    "options",
    [
        ["requires:"],
        ["requires: gpu"],
        ["requires: cuda:0"],
        ["requires: cuda", "result: 2x"],
        ["requires: cuda mps"],
        ["requires: cuda", "timeless: true"],
        ["requires: cuda", "result: x", "name: x"],
        ["requires: cuda", "requires: mps"],
        ["requires: cuda", "name: x", "timeless: yes"],
        ["result: x"],
        ["require: cuda"],
        ["takes: 25"],
        ["takes: 25 s"],
        ["takes: 2 s compiling"],
        ["takes: 0 s to end"],
        ["takes: 2 s to end", "takes: 3 s to end"],
        ["takes: 2 s to end", "result: x"],
    ],
)
def test_wrong_header_is_one_line_that_says_what_to_write(options):
    lines = [f"#| {option}" for option in options]
    with pytest.raises(
        grammar.RequiresError, match="known are|write each once|a cell has `requires`"
    ) as caught:
        grammar.header("\n".join([*lines, "x = 1"]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("timed", "untimed", "goes_on"),
    [(True, "1", True), (False, "1", False), (True, "0", False)],
)
def test_a_cell_about_time_may_end_in_a_strict_run_that_judges_no_time(
    run, timed, untimed, goes_on
):
    ends = (
        "from course.cells import CellEnds\nraise CellEnds('no clock here',"
        f" timed={timed})"
    )
    (cell,) = run(ends, env={"LAB_STRICT": "1", "LAB_UNTIMED": untimed})
    states = [
        output.get("metadata", {}).get("device_lab", {}).get("state")
        for output in cell.outputs
    ]
    assert (states == ["unjudged"]) is goes_on and (
        len(errors_of(cell)) == 1
    ) is not goes_on


def test_unknown_word_shows_one_line_and_runs_nothing(run):
    (cell, after) = run("#| requires: gpu\nran = True", "print('ran' in globals())")
    (line,) = traceback_of(cell)
    assert line.startswith("RequiresError: unknown word 'gpu'") and "cuda" in line
    assert text_of(after).strip() == "False"


def test_met_cell_runs_like_a_plain_one(run):
    met, plain_cell, awaited, magic, fails = run(
        "#| requires: cuda\n#| result: x\nx = 6 * 7\nx",
        "6 * 7",
        "#| requires: cuda\nimport asyncio\nawait asyncio.sleep(0, 'waited')",
        "#| requires: cuda\n%env LAB_PRETEND",
        "#| requires: cuda\na = 1\nb = a / 0\nc = 2",
        env=PRETEND,
    )
    assert text_of(plain_cell) == "42"
    for cell, shown in ((met, "42"), (awaited, "'waited'"), (magic, "'cuda'")):
        assert re.fullmatch(
            rf"LIVE · pretended cuda on .*, this run\n{shown}", text_of(cell)
        )
        assert (
            cell.outputs[0].metadata["device_lab"]["state"] == "live"
            and len(cell.outputs) == 2
        )
    lines = traceback_of(fails)
    assert sum("Traceback (most recent call last)" in line for line in lines) == 1
    assert any(re.search(r"-+> 3 b = a / 0", line) for line in lines), lines
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_unmet_cell_is_one_quiet_line_and_leaves_no_value_of_an_earlier_run(run):
    _, cell, reads, after, again = run(
        "never_recorded = 0",
        "#| requires: cuda:64\n#| result: never_recorded\nnever_recorded = 1",
        "#| requires: result:never_recorded\nprint(never_recorded)",
        "print('never_recorded' in globals())",
        "#| requires: cuda:64\n1",
    )
    assert re.fullmatch(
        "NOT RUN HERE · needs .* CUDA GPUs?, and PyTorch sees .* here; not"
        " recorded yet",
        text_of(cell),
    )
    # why, it was said
    assert re.fullmatch(
        "NOT RUN HERE · needs [^,]* CUDA GPUs?; not recorded yet", text_of(again)
    )
    assert text_of(reads) == "NOT RUN HERE · needs `never_recorded` from a cell above"
    for quiet in (cell, reads, again):
        assert quiet.outputs[0].metadata["device_lab"]["state"] == "unavailable"
        assert (
            "<br>" not in quiet.outputs[0].data["text/html"]
            and "font-size: 85%" in quiet.outputs[0].data["text/html"]
        )
    assert text_of(after).strip() == "False"


NESTED = (
    "run = get_ipython().run_cell\nabout()\nrun('about()')\nrun('"
    " ')\nrun('#| requires:')\nrun('1 / 0')\nabout()"
)
ABOUT = {  # cell → where its numbers come from, in each line that it prints
    "#| requires: cuda\n#| result: x\nx = 1\nabout()": ["x"],
    "about()": ["cpu"],
    "#| requires: result:x\nabout()": ["x"],
    "#| requires: cuda\n#| name: y\nabout()": ["cpu"],
    "#| requires: result:x\nnames = [*provenance.running]": [],
    "with provenance.running_again(names):\n    about()\nabout()": ["x", "cpu"],
    "#| requires: result:x\n1 / 0": [],
    "about() # after an error": ["cpu"],
    f"#| requires: result:x\n{NESTED}": ["x", "cpu", "x"],
    "about() # after nested cells": ["cpu"],
    "#| requires: result:x\nawait asyncio.sleep(0)\nabout()": ["x"],
}


def test_what_a_cell_says_about_its_numbers_is_what_its_header_names(run):
    begin = (
        "import asyncio\nfrom course import provenance\ndef about(): print('from',"
        " provenance.origin())"
    )
    _, *shown = run(begin, *ABOUT, env=PRETEND)
    for cell, expected in zip(shown, ABOUT.values(), strict=True):
        said = re.findall("^from (pretended cuda on )?.*this run", text_of(cell), re.M)
        assert ["x" if pretended else "cpu" for pretended in said] == expected, (
            cell.source
        )


# --------------------------------------------------------------------------------------
# Signs of life

# what a cell shows first, while it runs, and in the end
SEES = """
def sees(data, *arguments, **options):
    seen.append((data.get("text/plain"), options.get("update", False)))
    return publish(data, *arguments, **options)
seen, publish = [], get_ipython().display_pub.publish
get_ipython().display_pub.publish = sees
"""
LINE = "Working to wait: about 9 s on two cores"


def test_a_long_cell_says_so_until_its_end(run):
    """Also where it fails, awaits, runs another, or is a program of its own."""
    takes = "#| takes: 9 s to wait\n"
    _, good, bad, awaited, nested, job, reads, seen = run(
        SEES,
        f"{takes}x = 6\nx * 7",
        f"{takes}1 / 0",
        f"{takes}import asyncio\nawait asyncio.sleep(0, 42)",
        f"{takes}get_ipython().run_cell({takes + '42'!r})\nprint('end')",
        f"{takes}%%torchrun 1 --result made\nprint(4)\nprint(2)",
        f"#| requires: result:made\n{takes}made[0]",
        "get_ipython().display_pub.publish = publish\nseen",
    )
    for cell in (good, awaited, nested, job, reads):
        shown = "rank 0 │ 4" if cell is job else "2" if cell is reads else "42"
        assert errors_of(cell) == [] and shown in text_of(cell)
    assert errors_of(bad) == ["ZeroDivisionError: division by zero"]
    for cell in (good, bad, awaited, nested, job, reads):
        assert cell.outputs[0].data == {} and "Working" not in f"{cell.outputs}"
    one = [(LINE, False), (None, True)]
    assert eval(text_of(seen)) == [*one * 3, one[0], *one, one[1], *one * 2]


def test_no_sign_where_a_cell_does_not_run_or_is_stored(run):
    takes = "#| takes: 9 s to wait\n"
    asks = f"#| requires: cuda:64\n#| name: never\n{takes}1"
    sources = [asks, f"#| requires: result:never\n{takes}1"]
    for cell in [*run(*sources), *run(f"{takes}1", strict=True)]:
        (output,) = cell.outputs
        assert "Working" not in f"{output}" and output.get("data") != {}
    (cell,) = run(f"#| requires: cuda\n{takes}1", env=PRETEND)
    assert [len(output.data) for output in cell.outputs] == [2, 0, 1]


# --------------------------------------------------------------------------------------
# expect_error; tests/course/test_newer_pytorch.py has what was not announced


def test_expected_error_prints_the_real_message(capsys):
    with expect_error(ZeroDivisionError, "division"):
        1 / 0  # noqa: B018
    assert capsys.readouterr().out == "ZeroDivisionError: division by zero\n"


def test_an_expected_error_keeps_nothing_alive():
    """Without the garbage collector: a DataLoader left to it ends in a forked worker,
    which is not its parent.
    """

    def reraise(held):
        error = ValueError("a")
        # the frame holds the error, which holds the frame: torch's
        # ExceptionWrapper.reraise does the same
        raise error

    held = torch.zeros(1)
    left = weakref.ref(held)
    gc.disable()
    try:
        with expect_error(ValueError, "^a"):
            reraise(held)
        del held
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("strict", [False, True])
def test_a_package_that_a_lesson_can_do_without_is_a_need_and_no_error(run, strict):
    """Where it is installed, the same words are an error; what a job of the cell says
    counts, too.
    """
    words = "No module named 'accelerate'"
    there, gone, job, waits, _ = run(
        f'raise ModuleNotFoundError("{words}")',
        'import sys\nsys.modules["accelerate"] = None\nraise'
        f' ModuleNotFoundError("{words}")\ntheirs = 1',
        'from utils.launch import LaunchError\nraise LaunchError("its last words:'
        f' {words}")',
        "print(theirs)",
        'del sys.modules["accelerate"]',
        strict=strict,
    )
    assert errors_of(there) == [f"ModuleNotFoundError: {words}"]
    for cell in (gone, job):
        assert errors_of(cell) == []
        assert (
            text_of(cell)
            == "NOT RUN HERE · needs the package `accelerate`, and it is not installed"
            " here"
        )
    assert text_of(waits).startswith("NOT RUN HERE · this cell waits for `theirs`.")


def test_interrupt_passes_through():
    with pytest.raises(KeyboardInterrupt):
        with expect_error(Exception, ""):
            raise KeyboardInterrupt
