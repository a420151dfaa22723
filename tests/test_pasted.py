"""The paste cell of lesson 16: the right row for old listings, none for harmless ones, whatever this machine has."""

import re

import pytest

from tests.listings import ALSO, LISTINGS
from utils import pasted, snippets, today
from utils.indentation import is_python, restored
from utils.paths import COURSE


@pytest.fixture(scope="module")
def messages():
    """name → what each listing says when it is run here."""
    names, told = list(LISTINGS), {}
    for n in range(0, len(names), 8):
        group = names[n : n + 8]
        outcomes = today._execute([LISTINGS[name][1] for name in group])
        told |= {name: today.said(outcome) for name, outcome in zip(group, outcomes, strict=True)}
    yield told
    snippets._stop_all()


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_gets_the_right_row(name, messages):
    right, source = LISTINGS[name]
    shown = [row.slug for row in pasted.like(today.rows(), messages[name], source)]
    lessons = [line.split()[1].rstrip(":") for line in pasted.elsewhere(f"{source}\n{messages[name]}")]
    if right:
        assert set(right.split()) & {*shown, *lessons}, (shown, messages[name])
    assert set(shown) <= {*right.split(), *ALSO.get(name, "").split()}, messages[name]


def test_most_listings_come_back_when_their_indentation_is_lost():
    sources = [source.strip("\n") for _, source in LISTINGS.values()]
    pairs = [(source, re.sub(r"(?m)^[ \t]+", "", source)) for source in sources if is_python(source)]
    lost = [(source, flat) for source, flat in pairs if not is_python(flat)]
    back = [source for source, flat in lost if restored(flat) == source]
    assert len(lost) > 30 and len(back) >= 0.9 * len(lost)
    assert all(restored(flat) is None or is_python(restored(flat)) for _, flat in lost)


@pytest.mark.parametrize("slug", pasted.MARKS)
def test_a_mark_is_of_a_row_and_fits_what_people_write(slug):
    assert slug in today.rows()
    re.compile(pasted.MARKS[slug])


def test_the_mark_of_a_row_that_needs_none_is_a_name_of_its_own():
    found = pasted.marks(today.rows())
    assert re.search(found["memory/cached"], "torch.cuda.memory_cached()")
    assert not re.search(found["memory/cached"], "torch.cuda.memory_cached_bytes()")
    assert not any(slug in found for slug in ("memory/target", "movement/no-data"))  # the message says it all


def test_imports_are_spelled_out():
    assert "torch.cuda.amp.autocast()" in pasted.spelled_out(
        "from torch.cuda.amp import GradScaler, autocast\nautocast()"
    )
    assert "torch.nn.DataParallel(net)" in pasted.spelled_out("import torch.nn as nn\nnn.DataParallel(net)")
    assert "torch.autograd.Variable(x)" in pasted.spelled_out("from torch.autograd import Variable as V\nV(x)  # V(y)")


@pytest.mark.parametrize("lesson", {lesson for _, lesson, _ in pasted.ELSEWHERE})
def test_a_lesson_that_is_named_exists(lesson):
    assert list((COURSE / "notebooks").glob(f"{lesson}_*.ipynb"))


@pytest.mark.parametrize(
    ("words", "shown"),
    {
        "set_device": "detection/ordinal",
        "invalid device ordinal": "detection/ordinal",
        "device_ids": "distributed/device-ids",
        "MASTER_ADDR": "distributed/master-addr",
        "max_memory_cached": "memory/max-cached",
        "legacy constructor": "movement/legacy-constructor",
        "kernel image": "detection/kernels",
        "cuda_time_total": "graphs/cuda-time",
        "capturable": "graphs/capturable",
        "optimizer_step": "tpu/optimizer-step",
        "real_devices": "tpu/is-there",
        "ensure_same_device": "Lesson 02",
        "reduce-overhead": "Lesson 10",
    }.items(),
)
def test_find_has_an_answer(words, shown, capsys):
    today.find(words)
    assert shown in capsys.readouterr().out


def test_a_flat_listing_is_run_with_its_indentation(capsys):
    today.run("", "for n in range(2):\ntotal = n\nprint(total)")
    shown = capsys.readouterr().out
    assert (
        "Its indentation was lost" in shown
        and "    for n in range(2):\n        total = n\n        print(total)" in shown
    )
    assert "fine" in shown and "prints 0\n" in shown
    today.run("", "for n in range(2):\n    a = 1\nif a:\nb = 2")
    shown = capsys.readouterr().out
    assert "was lost, and cannot be put back" in shown and "raises" in shown
