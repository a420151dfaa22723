"""The toys of torch_xla end programs where it does, and say who holds what."""

import pytest
import torch

from device_lab import LabError
from exercises.doubles.toy_xla import ToySpmd, ToyXLA


@pytest.fixture
def toy():
    return ToyXLA()


def test_sync_ends_a_program_if_something_is_recorded(toy):
    assert not toy.started and toy.device() == torch.device("meta") and toy.started
    toy.sync()
    toy.recorded += "a"
    toy.sync(wait=True)
    toy.recorded += "b"
    assert (toy.programs, toy.recorded) == (["a"], "b")


def test_a_step_ends_what_was_recorded_before_it_and_itself(toy):
    toy.recorded += "a"
    with toy.step():
        toy.recorded += "b"
    assert (toy.programs, toy.recorded) == (["a", "b"], "")


@pytest.mark.parametrize("with_arguments", [True, False])
def test_a_compiled_function_is_a_program_each_time(toy, with_arguments):
    def work():
        toy.recorded += "a"
        return 5

    decorated = toy.compile(full_graph=True)(work) if with_arguments else None
    decorated = decorated or toy.compile(work)
    assert decorated() == decorated() == 5 and toy.programs == ["a", "a"]


def test_a_mark_says_who_holds_what():
    xs, x = ToySpmd(4), torch.zeros(6, 8)
    mesh = xs.Mesh(range(4), (2, 2), ("data", "model"))
    assert xs.mark_sharding(x, mesh, (None, 0)) is x
    (mark,) = xs.marked
    assert mark.tensor is x and mark.spec == (None, "data")
    assert mark.mesh.shape() == {"data": 2, "model": 2}
    assert mark.blocks == [[[0, 6], [0, 4]]] * 2 + [[[0, 6], [4, 8]]] * 2
    xs.mark_sharding(x, mesh, (None, "data"))  # the same again is fine
    with pytest.raises(RuntimeError, match="must be cleared first"):
        xs.mark_sharding(x, mesh, ("data", None))
    with pytest.raises(LabError, match="no axis"):
        xs.mark_sharding(torch.zeros(2, 2), mesh, ("rows", None))
    with pytest.raises(TypeError, match="must be a Mesh, not a tuple"):
        xs.mark_sharding(x, (2, 2), (None, "data"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((range(3), (2, 2)), r"device IDs \(3\) must match the global"),
        ((range(4), (2, 4)), r"must match mesh size \(8\)"),
        ((range(4), (2, 2), ("data",)), r"axis names \(1\) must match"),
    ],
)
def test_a_mesh_that_does_not_fit(given, said):
    with pytest.raises(AssertionError, match=said):
        ToySpmd(4).Mesh(*given)
