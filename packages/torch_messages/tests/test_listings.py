"""The paste cell of lesson 16: the right entries for old listings, none for harmless
ones, whatever this machine has.
"""

import re
import textwrap

import pytest
from listings import LISTINGS
from torch_messages import code, match
from torch_messages import messages as table

from course.old_code import cell as today
from course.old_code.row import rows

ROWS = rows()
ENTRIES = table.entries()
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


def lessons_of(entries):
    return {entry.lesson[:2] or (entry.row and entry.row.lesson) for entry in entries}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_gets_the_right_entry(name, messages):
    right, also, source = LISTINGS[name]
    found = match.of_listing(source, messages[name])
    shown = {entry.id for entry in found}
    assert not right or right & (shown | lessons_of(found)), (shown, messages[name])
    rows_shown = shown & set(ROWS)
    assert rows_shown <= right | also, messages[name]


MARKED = [id for id, e in ENTRIES.items() if e.row and (e.code or code.own(e))]


@pytest.mark.parametrize("id", MARKED)
def test_a_mark_fits_the_old_part_of_its_row_and_not_that_of_today(id):
    row, entry = ROWS[id], ENTRIES[id]
    old, new = (WRITTEN[id], "") if id in WRITTEN else (row.old, row.new)
    assert code.fits(entry, code.normal(old))
    assert not code.fits(entry, code.normal(new))


def test_a_general_row_comes_after_what_a_listing_is_like():
    found = match.of_listing("scaler = torch.cuda.amp.GradScaler()\nnet.cuda()", "")
    assert [entry.id for entry in found] == ["amp/scaler", "movement/not-compiled"]


def flat(source):
    return re.sub(r"(?m)^[ \t]+", "", source)


# of what is like this one, an operation in a block cannot be known without its block
BY_INDENTATION = {"S4 CUDA graph": {"graphs/inputs-in-capture"}}


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_without_its_indentation_is_like_the_same_rows(name):
    source = LISTINGS[name].source
    shown = {entry.id for entry in match.of_listing(source, "")}
    left = {entry.id for entry in match.of_listing(flat(source), "")}
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
        assert any("Like detection/cuda-or-cpu" in other for other in rest)


def test_other_listings_are_run(capsys):
    # all of it indented; no Python, which says so itself
    for source in ("    x = 1\n    if x:\n        print(x)\n", "pip install torch"):
        assert not today.lost_indentation(textwrap.dedent(source))
        today.run_cell("", source)
    shown = capsys.readouterr().out
    assert "yours  prints 1\n" in shown and "SyntaxError" in shown
