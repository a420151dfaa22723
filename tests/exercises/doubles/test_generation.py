"""A model that says what is planned, a tiny decoder, and two slots with queues."""

import pytest
import torch

from device_lab import LabError
from exercises.doubles.generation import OnGpu, Planned, Slots, TinyDecoder


def test_tensors_of_two_devices_do_not_compute_together():
    x = torch.ones(3)
    with OnGpu() as waits:
        assert (x + torch.ones(3, device=x.device)).sum() > 0
        y = torch.zeros(3)
        z = y.to(x.device) + x
        z[torch.arange(2)]
        for mixes in (lambda: x + y, lambda: torch.cat([x, y]), lambda: y.add_(z)):
            with pytest.raises(RuntimeError, match="on the same device"):
                mixes()
        assert (x.cpu() + y).tolist() == [1, 1, 1]
    assert waits.names == ["__bool__", "cpu"]


def test_a_planned_model_says_its_plan_and_notes_what_it_gets():
    step = Planned([[1, 2], [3, 4]])
    assert step(None).tolist() == [[1], [3]]
    token = torch.tensor([[5], [6]])
    step(token).zero_()
    token.zero_()
    assert step.given[1].tolist() == [[5], [6]]
    assert Planned([[1, 2]]).columns[1].tolist() == [[2]]
    with pytest.raises(LabError, match="called 3 times, at most 2"):
        step(None)


def logits(model, pieces, mask_of, room=9):
    tokens = torch.arange(6)[None].expand(2, -1)
    seats, caches = torch.arange(room), model.caches(2, room)
    for at in torch.arange(6).split(pieces):
        said = model(tokens[:, at], at, caches, mask_of(seats, at))
    return said[:, -1]


def test_the_tiny_decoder_says_the_same_with_and_without_pieces():
    model = TinyDecoder()
    whole = logits(model, 6, lambda seats, at: seats <= at[:, None])
    for pieces in (1, 4):
        parts = logits(model, pieces, lambda seats, at: seats <= at[:, None])
        assert torch.allclose(whole, parts, atol=1e-12)
    sizes = [len(one.at) for one in model.calls]
    assert sizes == [6, 1, 1, 1, 1, 1, 1, 4, 2]
    # a text that is whole needs no mask, as in the lesson
    no_mask = logits(model, 6, lambda seats, at: None, room=6)
    assert torch.allclose(whole, no_mask, atol=1e-12)


@pytest.mark.parametrize(
    "mask_of",
    [
        lambda seats, at: None,
        lambda seats, at: seats < at[:, None] + 2,
        lambda seats, at: (seats <= at[:, None]) & (seats >= at[0]),
    ],
)
def test_it_says_something_else_with_another_mask(mask_of):
    right = logits(TinyDecoder(), 4, lambda seats, at: seats <= at[:, None])
    assert (logits(TinyDecoder(), 4, mask_of) - right).abs().max() > 1e-3


def test_what_a_call_sees():
    model, at = TinyDecoder(), torch.tensor([2])
    seen = [[True, True, True, False]]
    less = torch.tensor([[0, 0, 0, -torch.inf]], dtype=torch.float64)
    for mask in (torch.tensor(seen), less):
        model(at[None], at, model.caches(1, 4), mask)
        assert model.calls[-1].seen(4).tolist() == seen
    model(at[None], at, model.caches(1, 4))
    assert model.calls[-1].seen(4).tolist() == [[True, False, False, False]]
    with pytest.raises(LabError, match=r"shape \(1, 3\) for 1 tokens .* 4 seats"):
        model(at[None], at, model.caches(1, 4), torch.ones(1, 3).bool())


def test_two_queues_work_beside_each_other():
    slots = Slots(3, copy=2, work=5)
    slots.wait("worker", slots.fetch(0, 0))
    slots.compute(0)
    slots.wait("worker", slots.fetch(1, 1))
    slots.compute(1)
    assert slots.races() == [] and slots.computed == [0, 1]
    spans = slots.spans()
    assert spans["fetch 1"].start == 2 and spans["compute 1"].start == 7
    assert slots.end() == 12 and slots.unused == []


def test_what_no_event_orders_races():
    slots = Slots(3, copy=1, work=1)
    slots.fetch(0, 0)
    read = slots.compute(0)
    assert slots.races() == [("fetch 0", "compute 0")]
    slots.fetch(1, 0)
    assert ("compute 0", "fetch 1") in slots.races()
    assert slots.unused == [(1, 1, 0)]
    slots.wait("copier", read)
    slots.fetch(2, 0)
    assert ("compute 0", "fetch 2") not in slots.races()


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (lambda s: s.fetch(3, 0), "fetch got layer 3; there are 0 to 2"),
        (lambda s: s.fetch(0, 2), "fetch got slot 2; there are 0 to 1"),
        (lambda s: s.compute(True), "compute got slot True"),
        (lambda s: s.compute(1), "before any fetch into slot 1"),
        (lambda s: s.wait("worker", None), "what fetch or compute has returned"),
        (lambda s: s.wait(s.fetch(0, 0), "worker"), 'takes "copier" or "worker" first'),
    ],
)
def test_mistakes_are_said(mistake, said):
    with pytest.raises(LabError, match=said):
        mistake(Slots(3, 1, 1))
