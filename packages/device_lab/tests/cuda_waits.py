"""find_waits against CUDA's sync-debug mode, on the emulated device. `make
test-emulated` runs this.
"""

import contextlib

import pytest
import torch
from waiting_steps import OPTIMIZERS, TABLE, program, training, warned

from device_lab.waits import _Watch, find_waits

# The emulated device waits where CUDA does not: it computes these with values from the
# host (canDispatchToMaskedFill and Repeat.h have the source).
UNLIKE = {}
if torch.__version__ < (2, 15):  # since then these call masked_fill_ themselves
    UNLIKE["assign(x.clone(), mask, 0.0)"] = 1
    UNLIKE["assign(x.clone(), (slice(None), mask[0]), 0.0)"] = 1
UNLIKE["torch.repeat_interleave(labels, labels, output_size=28)"] = 1
UNLIKE["repr(x.sum())"] = 8  # a print reads several values


@pytest.fixture
def rules(monkeypatch):
    """find_waits as on a device that does not report waits itself."""
    monkeypatch.setattr(_Watch, "witness", contextlib.nullcontext)
    return find_waits


def count(report):
    return sum(wait.times for wait in report.waits)


@pytest.mark.parametrize("text", TABLE)
def test_as_cuda_says(text):
    step = program(text, torch.device("cuda"))
    report = find_waits(step)
    assert count(report) == warned(step) == UNLIKE.get(text, TABLE[text])
    if text not in UNLIKE:
        assert "else" not in {wait.kind for wait in report.waits}, report


@pytest.mark.parametrize("text", TABLE)
def test_the_rules_alone(rules, text):
    report = rules(program(text, torch.device("cuda")))
    assert count(report) == TABLE[text], report


@pytest.mark.parametrize("name, options", [*OPTIMIZERS, ("Adam", {"capturable": True})])
def test_no_false_alarm_with_an_optimizer(name, options, rules):
    step = training("cuda", name, options)
    report = rules(step)
    assert (report.waits, report.device) == ([], "cuda")
    assert warned(step) == 0 or name == "Rprop"  # it fills by masks: UNLIKE


@pytest.mark.parametrize("name", ["ASGD", "Adafactor"])
def test_optimizers_that_wait(name):
    step = training("cuda", name)
    assert sum(wait.times for wait in find_waits(step).waits) == warned(step) > 0


def test_the_scaler_reads_once():
    model = torch.nn.Linear(8, 8, device="cuda")
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler()
    x = torch.randn(4, 8, device="cuda")

    def step():
        with torch.autocast("cuda", torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    (wait,) = find_waits(step).waits
    assert "scaler.step" in wait.code and wait.times == warned(step) == 1


def test_lengths_on_the_host():
    """Under a mode PyTorch sends them where it refuses them."""
    x = torch.randn(8, 2, 4, device="cuda", requires_grad=True)
    labels, long = (
        torch.ones(2, 3, dtype=torch.long, device="cuda"),
        torch.tensor([8, 8]),
    )

    def step():
        torch.nn.functional.ctc_loss(
            x.log_softmax(2), labels, long, long // 4
        ).backward()

    (wait,) = find_waits(step).waits
    assert (wait.operation, wait.kind) == ("ctc_loss", "to the device") and warned(step)


def test_what_only_a_clock_asks_for():
    """Not reported by the mode."""
    event = torch.cuda.Event()

    def step():
        event.record()
        event.synchronize()
        torch.accelerator.synchronize()

    assert [wait.kind for wait in find_waits(step).waits] == ["asked for"] * 2
    assert warned(step) == 0
