"""The record of an AMP step says what the step did."""

import pytest
import torch
import torch.nn.functional as F

from exercises.doubles.amp import AmpStep, autocast_type


def whole_step(step):
    """As lesson 08 has it, over all batches."""
    step.optimizer.zero_grad()
    for x, y in step.batches:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(step.model(x), y) / len(step.batches)
        step.scaler.scale(loss).backward()
    step.scaler.step(step.optimizer)
    step.scaler.update()


@pytest.mark.parametrize("count", [1, 4])
def test_a_right_step_is_noted(count):
    step = AmpStep(count)
    assert [len(x) for x, _ in step.batches] == [32 // count] * count
    whole_step(step)
    assert step.forward == [torch.float16] * count and step.backward == [None] * count
    assert step.adds == [False] + [True] * (count - 1)
    assert step.scaler.calls == ["scale"] * count + ["step", "update"]
    assert step.scaler.scaled == [torch.float32] * count
    (seen,) = step.seen
    # float16 has 11 bits
    assert torch.allclose(seen, step.gradient, rtol=2**-6, atol=2**-9)
    assert torch.allclose(step.moved, 0.1 * seen, atol=1e-6)


def test_a_step_with_faults_is_noted():
    step = AmpStep(2)
    (x, y), _ = step.batches
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = step.model(x)
        step.scaler.update()
        step.scaler.scale(F.cross_entropy(logits, y)).backward()
    step.model(x)
    assert step.forward == [torch.bfloat16, None] and step.backward == [torch.bfloat16]
    assert step.adds == [True]  # what the step before has left
    assert step.scaler.calls == ["update", "scale"]
    step.optimizer.step()
    assert step.seen[0].norm() > 5000


def test_an_infinite_gradient_skips_the_step():
    step = AmpStep(2, scale=2.0**40)
    whole_step(step)
    assert not step.seen and not step.moved.any()
    assert step.scaler.get_scale() == 2.0**39


def test_loss_is_that_of_all_samples():
    step = AmpStep(4)
    losses = [F.cross_entropy(step.model(x), y).item() for x, y in step.batches]
    assert sum(losses) / 4 == pytest.approx(step.loss)


def test_autocast_type():
    assert autocast_type() is None
    with torch.autocast("cpu", dtype=torch.float16):
        assert autocast_type() == torch.float16
        assert autocast_type("cuda") is None
