"""The prefetcher of lesson 05, as readers take it home."""

import collections

import nbformat
import pytest
import torch

from course.paths import COURSE
from device_lab import who_waits
from tools.lessons import parts

PARTS = ("to-device", "prefetch-parts", "prefetcher")
Pair = collections.namedtuple("Pair", "x y")


def sources(stem):
    nb = nbformat.read(COURSE / "notebooks" / f"{stem}.ipynb", as_version=4)
    return {cell.id: cell.source for cell in parts.code_cells(nb)}


@pytest.fixture(scope="module")
def names():
    found, cells = {"torch": torch}, sources("05_streams")
    for part in PARTS:
        exec(cells[part], found)
    return found


def test_batches_of_any_nesting_come_in_order(names):
    batches = [
        {"x": [torch.tensor(n), None], "pair": Pair(torch.tensor([n]), f"batch {n}")}
        for n in range(4)
    ]
    ahead = names["Prefetcher"](batches, "cpu")
    assert len(ahead) == 4
    for _ in range(2):  # epochs
        assert list(ahead) == batches
    assert all(type(batch["pair"]) is Pair for batch in ahead)


def test_a_tensor_stays_one_and_no_batch_is_none(names):
    assert [x.tolist() for x in names["Prefetcher"]([torch.ones(2)], "cpu")] == [[1, 1]]
    assert list(names["Prefetcher"]([], "cpu")) == []


def test_what_has_no_length_says_so(names):
    ahead = names["Prefetcher"](iter([torch.ones(2)]), "cpu")
    with pytest.raises(TypeError, match="has no len"):
        len(ahead)


def test_the_device_may_have_no_streams(names):
    (batch,) = names["Prefetcher"]([[torch.ones(2), "name"]], "meta")
    assert batch[0].is_meta and batch[1] == "name"


def test_it_can_be_asked_who_waits(names):
    ahead = names["Prefetcher"]([torch.ones(2)] * 3, "cpu")
    assert who_waits(ahead, lambda x: x + 1, "cpu", seconds=0.2).who


def test_lesson_06_measures_one_with_the_same_recursion():
    recursion = sources("05_streams")["to-device"]
    recursion = recursion[recursion.index("    if isinstance(batch, torch.Tensor)") :]
    recursion = recursion[: recursion.index("\n\n\n")]
    assert recursion in sources("06_pinned_memory_and_data_loading")["prefetcher"]
