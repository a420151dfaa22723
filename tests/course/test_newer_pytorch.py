"""A PyTorch of the future, pretended: whatever it says or lacks, a reader's lesson goes
on and says so.

With LAB_STRICT=1 (tests, recording) each of these is an error.
"""

import re

import pytest

from tests.conftest import text_of

# what a cell wants that this pretended PyTorch lacks: source, the name that the reader
# is told, the error
PRIVATE = {
    "a private name": (
        "caught = torch._C._went_away()",
        "torch._C._went_away",
        "AttributeError",
    ),
    "a private import": (
        "from torch._subclasses import gone as caught",
        "torch._subclasses.gone",
        "ImportError",
    ),
}
EXPECT = "with expect_error(RuntimeError, 'same device') as caught:\n    "
ANNOUNCED = r"announced: RuntimeError with 'same device'; on PyTorch \S+ "
JOB = (
    "from utils import launch\nlaunch.judge(launch.Run(1, {}, {0: 'RuntimeError: no"
    " peer'}, ''), "
)
# what a cell announces and what happens: source, what the reader is told, the error of
# a strict run
FUTURES = {
    "another message": (
        EXPECT + "raise RuntimeError('one place only')",
        ANNOUNCED + "it says: RuntimeError: one place only",
        "ExpectedError",
    ),
    "another class": (
        EXPECT + "raise ValueError('same device')",
        ANNOUNCED + "it says: ValueError: same device",
        "ExpectedError",
    ),
    "no error": (
        EXPECT + "pass",
        ANNOUNCED + ".*runs without an error",
        "ExpectedError",
    ),
    "a claim": (
        "claim('it is faster', 0.5, at_least=2, unit='times')\ncaught = 1",
        "✗ it is faster: 0.5 times.*Not on this device",
        "ClaimError",
    ),
    "a job that dies": (JOB + "None)", "RuntimeError: no peer", "LaunchError"),
    "a job with another failure": (
        JOB + "'port')",
        (
            r"announced: a failure with 'port'; on PyTorch \S+ it says: RuntimeError:"
            r" no peer"
        ),
        "LaunchError",
    ),
    "a job that does not fail": (
        (
            "from utils import launch\nlaunch.judge(launch.Run(0, {0: ''}, {}, ''),"
            " 'port')"
        ),
        "announced: a failure with 'port'; on PyTorch .* the job ends well",
        "LaunchError",
    ),
    **{
        name: (
            source,
            f"has no `{re.escape(lacks)}`, a private name.* This cell ends here",
            error,
        )
        for name, (source, lacks, error) in PRIVATE.items()
    },
}


@pytest.fixture(scope="module")
def both(run):
    """For a reader and strictly: the cells of all FUTURES, each time from a new
    beginning.
    """
    sources = [future[0] for future in FUTURES.values()]
    return {
        s: dict(zip(FUTURES, run(*sources, strict=s), strict=True))
        for s in (False, True)
    }


@pytest.mark.parametrize("name", FUTURES)
def test_a_reader_goes_on_and_is_told(both, name):
    cell = both[False][name]
    assert re.search(FUTURES[name][1], text_of(cell)), text_of(cell)
    assert not [output for output in cell.outputs if output.output_type == "error"]
    (state,) = [
        output.metadata["device_lab"]["state"]
        for output in cell.outputs
        if "metadata" in output
    ]
    assert state == ("missed" if name == "a claim" else "finding")
    assert len(text_of(cell).strip().splitlines()) == 1


@pytest.mark.parametrize("name", FUTURES)
def test_strictly_it_is_an_error(both, name):
    (error,) = [
        output for output in both[True][name].outputs if output.output_type == "error"
    ]
    assert error.ename == FUTURES[name][-1]


def test_what_a_lesson_says_of_the_message_goes_on(run):
    _, after = run(FUTURES["no error"][0], "'cuda' in caught.message")
    assert text_of(after) == "False"


def test_cells_that_need_what_was_not_made_say_that_they_wait(run):
    cells = run(
        "private = torch._C._went_away()",
        "double = 2 * private\nlater = [double]",
        "def use():\n    return later\nprint('defined')",
        "use()",
        "other = 1\nother",
        "private = 3",
        "2 * private",
    )
    texts = [text_of(cell) for cell in cells]
    assert (
        texts[1]
        == "NOT RUN HERE · this cell waits for `private`. Run the cell above again"
        " first."
    )
    assert texts[2].startswith("NOT RUN HERE · this cell waits for `later`.")
    assert texts[3].startswith("NOT RUN HERE · this cell waits for `use`.")
    assert [texts[4], texts[6]] == ["1", "6"]
    assert all(
        output.output_type != "error" for cell in cells for output in cell.outputs
    )
    assert cells[1].outputs[0].metadata["device_lab"]["state"] == "waiting"


@pytest.mark.slow
def test_a_job_that_dies_leaves_cells_that_wait(run):
    cells = run(
        "from utils import launch",
        "%%torchrun 1 --result sums\nraise RuntimeError('the link is down')",
        "total = sum(sums)",
        "#| requires: result:sums\nsums",
    )
    assert "the link is down" in text_of(cells[1])
    assert "waits for `sums`" in text_of(
        cells[2]
    ) and "needs `sums` from a cell above" in text_of(cells[3])
    assert all(
        output.output_type != "error" for cell in cells for output in cell.outputs
    )


@pytest.mark.parametrize("strict", [False, True])
def test_half_a_result_is_none(run, strict):
    cells = run(
        "#| requires: cuda\n#| result: half\nhalf = {}\nfor n in [1, 0]:\n    half[n] ="
        " 1 / n",
        "#| requires: result:half\nhalf[0]",
        "'half' in globals()",
        strict=strict,
        env={"LAB_PRETEND": "cuda"},
    )
    assert cells[0].outputs[-1].ename == "ZeroDivisionError"
    assert "needs `half` from a cell above" in text_of(cells[1])
    assert text_of(cells[2]) == "False"


@pytest.mark.parametrize("strict", [False, True])
def test_a_mistake_of_the_reader_is_an_error(run, strict):
    """Nothing but what PyTorch may change is taken for a finding."""
    sources = [
        "torch.went_away",
        "[].went_away",
        "import went_away",
        "undefined",
        "1 / 0",
        "torch.cuda.went_away()",
    ]
    cells = run(*sources, "undefined", strict=strict)
    names = [cell.outputs[-1].ename for cell in cells]
    kinds = [
        "AttributeError",
        "AttributeError",
        "ModuleNotFoundError",
        "NameError",
        "ZeroDivisionError",
    ]
    assert names == [*kinds, "AttributeError", "NameError"]
    shown = re.sub(r"\x1b\[[\d;]*m", "", text_of(cells[1]))
    assert "Traceback (most recent call last)" in shown and "> 1 [].went_away" in shown
