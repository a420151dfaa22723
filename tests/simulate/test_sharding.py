"""Who holds which block, and what a product moves."""

import math

import pytest
import torch

from simulate import sharding

MESH = {"data": 2, "model": 4}
# What XLA's partitioner put in for X (48 × 32) times W (32 × 40) in FP32 on that mesh:
# torch_xla 2.9.0, XLA's CPU device. Bytes of each collective's result on a device, from
# the optimized HLO.
SEEN = {
    (("data", None), (None, None)): [],
    (("data", None), (None, "model")): [],
    ((None, None), ("model", None)): [("all-gather", 5120)],
    ((None, None), ("data", "model")): [("all-gather", 1280)],
    (("data", None), ("model", None)): [("all-reduce", 3840)],
    (("data", None), ("data", "model")): [("all-gather", 1280)],
    (("data", None), ("model", "data")): [("all-gather", 1280), ("all-reduce", 3840)],
    (("model", None), ("data", None)): [("all-reduce", 1920)],
    (("model", None), ("model", None)): [("all-gather", 5120)],
    (("model", None), ("data", "model")): [("all-gather", 2560), ("all-reduce", 1920)],
    ((None, "model"), (None, None)): [("all-gather", 6144)],
    ((None, "model"), ("model", None)): [("all-reduce", 7680)],
    ((None, "model"), (None, "data")): [("all-reduce", 3840)],
    ((None, "data"), ("model", None)): [("all-gather", 5120), ("all-gather", 6144)],
    (("data", "model"), ("model", None)): [("all-reduce", 3840)],
    (("data", "model"), (None, "model")): [("all-gather", 3072)],
    (("data", "model"), ("data", "model")): [
        ("all-gather", 1280),
        ("all-gather", 3072),
    ],
    (("model", "data"), (None, "model")): [("all-gather", 1536), ("all-gather", 5120)],
}


@pytest.mark.parametrize(("x", "w"), SEEN)
def test_a_product_moves_what_the_compiler_moved(x, w):
    _, moved = sharding.product(48, 32, 40, MESH, x, w)
    assert sorted((c.kind, c.size) for c in moved) == SEEN[x, w]


@pytest.mark.parametrize(
    "spec", [("data", None), ("model", "data"), (("data", "model"), None), (None, None)]
)
@pytest.mark.parametrize("shape", [(8, 8), (10, 3), (1, 5)])
def test_blocks_cover_a_tensor(shape, spec):
    held = sharding.blocks(shape, MESH, spec)
    axes = [
        axis for cut in spec if cut for axis in ([cut] if isinstance(cut, str) else cut)
    ]
    count = torch.zeros(shape)
    for (a, b), (c, d) in held:
        assert 0 <= a <= b <= shape[0] and 0 <= c <= d <= shape[1]
        count[a:b, c:d] += 1
    assert len(held) == 8
    assert (count == 8 / math.prod(MESH[axis] for axis in axes)).all()


def test_blocks_of_ten_rows_on_eight_devices():
    held = sharding.blocks((10,), {"data": 8}, ("data",))
    assert [end - first for ((first, end),) in held] == [2, 2, 2, 2, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("axes", "starts"),
    [
        ("data", [0, 0, 0, 0, 4, 4, 4, 4]),
        ("model", [0, 2, 4, 6, 0, 2, 4, 6]),
        (("data", "model"), [0, 1, 2, 3, 4, 5, 6, 7]),
        (("model", "data"), [0, 2, 4, 6, 1, 3, 5, 7]),
    ],
)
def test_devices_stand_row_by_row_and_of_two_axes_the_first_counts_slowest(
    axes, starts
):
    assert [first for ((first, _),) in sharding.blocks((8,), MESH, (axes,))] == starts


def test_bytes_that_each_device_sends():
    assert sharding.Collective("all-gather", "data", 800, 4).sent() == 600
    assert sharding.Collective("all-reduce", "data", 800, 4).sent() == 1200


def test_of_two_matrices_cut_by_one_axis_the_smaller_is_gathered():
    """As XLA's partitioner does, on a mesh of 8 (torch_xla 2.9.0, XLA's CPU device)."""
    for rows, columns, gathered in ((8, 400, 8 * 32 * 4), (400, 8, 32 * 8 * 4)):
        specs = (("data", None), (None, "data"))
        out, moved = sharding.product(rows, 32, columns, {"data": 8}, *specs)
        assert [(c.kind, c.size) for c in moved] == [("all-gather", gathered)]
        assert out == specs[rows < columns]


def test_parts_that_do_not_divide_are_rounded_up():
    """Blocks of 3 of 10 rows and 4 columns are summed."""
    mesh = {"data": 4, "model": 4}
    _, moved = sharding.product(10, 6, 4, mesh, ("data", None), ("model", None))
    assert [(c.kind, c.size) for c in moved] == [("all-reduce", 3 * 4 * 4)]
