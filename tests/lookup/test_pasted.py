"""The paste cell of lesson 16: the right row for old listings, none for harmless ones,
whatever this machine has.
"""

import re
import textwrap

import nbformat
import pytest

from course.paths import COURSE
from lookup import cell as today
from lookup import lookup, pasted
from lookup.row import rows
from tests.lookup.listings import LISTINGS

ROWS = rows()
MARKS = pasted.marks(ROWS)
# whole messages as people paste them; the first line of each says where it must lead
MESSAGES = (COURSE / "tests" / "lookup" / "messages.txt").read_text(encoding="utf-8")
NO_MARK = "(?!)"  # a regular expression that fits nothing: the row has only its message
# where the old part of a row is written otherwise than listings, or its part of today
# has the mark, too
WRITTEN = {
    "detection/compare-devices": "x.device == torch.device('cuda')",
    "detection/name": "torch.cuda.get_device_name(0)",
    "detection/ordinal": "x.to('cuda:1')",
    "movement/list-of-layers": "self.layers = [nn.Linear(8, 2)]",
    "streams/cold-run": (
        "start = time.time()\nc = torch.matmul(a, b)\nprint(time.time() - start)"
    ),
    "memory/total-loss": "total_loss += loss",
    "data/many-workers": "DataLoader(data, num_workers=16)",
    "distributed/nothing-starts": "mp.spawn(train, nprocs=torch.cuda.device_count())",
    "distributed/nccl": 'dist.init_process_group("nccl")',
    "distributed/master-addr": "mp.spawn(train, nprocs=2)",
}


@pytest.fixture(scope="module")
def messages():
    """name → what each listing says when it is run here."""
    names, told = list(LISTINGS), {}
    for n in range(0, len(names), 8):
        group = names[n : n + 8]
        outcomes = today._execute([LISTINGS[name].source for name in group])
        told |= {
            name: today.said(outcome)
            for name, outcome in zip(group, outcomes, strict=True)
        }
    return told


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_gets_the_right_row(name, messages):
    right, also, source = LISTINGS[name]
    shown = {row.slug for row in pasted.like(ROWS, messages[name], source)}
    lessons = {
        line.split()[1].rstrip(":")
        for line in pasted.elsewhere(f"{source}\n{messages[name]}")
    }
    assert not right or right & (shown | lessons), (shown, messages[name])
    assert shown <= right | also, messages[name]


@pytest.mark.parametrize("slug", sorted(MARKS))
def test_a_mark_fits_the_old_part_of_its_row_and_not_that_of_today(slug):
    row, mark = ROWS[slug], MARKS[slug]
    old, new = (WRITTEN[slug], "") if slug in WRITTEN else (row.old, row.new)
    assert bool(re.search(mark, pasted.spelled_out(old))) == (mark != NO_MARK)
    assert not re.search(mark, pasted.spelled_out(new))


@pytest.mark.parametrize("told", MESSAGES.split("\n----\n"))
def test_a_whole_message_leads_to_its_row(told, capsys):
    right, message = told.split("\n", 1)
    lookup.look_up(message)
    shown = capsys.readouterr().out
    with_code = [row.slug for row in lookup.search(message)[:3]]
    lesson_or_words = f"Lesson {right}: " if right.isdecimal() else right
    assert right in with_code or lesson_or_words in shown


def test_lessons_and_rows_that_are_named_exist():
    for _, place, _ in pasted.ELSEWHERE:
        if place:
            lesson, cell = place.split()
            (path,) = (COURSE / "notebooks").glob(f"{lesson}_*.ipynb")
            cells = nbformat.read(path, as_version=4).cells
            assert cell in {each.id for each in cells}, place
    assert {slug for _, slug, _ in pasted.WORDINGS} <= set(ROWS)


def test_a_general_row_comes_after_what_a_listing_is_like():
    found = pasted.like(ROWS, "", "scaler = torch.cuda.amp.GradScaler()\nnet.cuda()")
    assert [row.slug for row in found] == ["amp/scaler", "movement/not-compiled"]


def flat(source):
    return re.sub(r"(?m)^[ \t]+", "", source)


# of what is like this one, an operation in a block cannot be known without its block
BY_INDENTATION = {"S4 CUDA graph": {"graphs/inputs-in-capture"}}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_without_its_indentation_is_like_the_same_rows(name):
    source = LISTINGS[name].source
    shown = {row.slug for row in pasted.like(ROWS, "", source)}
    left = {row.slug for row in pasted.like(ROWS, "", flat(source))}
    assert left == shown - BY_INDENTATION.get(name, set())


@pytest.mark.parametrize(
    "source",
    [
        flat(LISTINGS["S0 product on the GPU"].source),
        # some of it is there: what the rest was, nobody knows
        "for x in y:\n    a = 1\nb = 2\nif x:\nc = 3",
        "for x in y:\n        a = 1\n    b = 2",
        "import torch\n    x = torch.ones(2)",
    ],
)
def test_a_listing_that_has_lost_its_indentation_is_not_run(
    source, capsys, monkeypatch
):
    monkeypatch.setattr(today, "_execute", None)
    today.run_cell("", source)
    line, *rest = capsys.readouterr().out.splitlines()
    assert line.startswith("this listing has lost its indentation: ")
    assert line.endswith("; indent it and run the cell again") and rest
    if "cuda" in source:
        assert any("Like streams/synchronize" in other for other in rest)


def test_other_listings_are_run(capsys):
    # all of it indented; no Python, which says so itself
    for source in ("    x = 1\n    if x:\n        print(x)\n", "pip install torch"):
        assert not today.lost_indentation(textwrap.dedent(source))
        today.run_cell("", source)
    shown = capsys.readouterr().out
    assert "yours  prints 1\n" in shown and "SyntaxError" in shown
