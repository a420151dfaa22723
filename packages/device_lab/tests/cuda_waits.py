"""find_waits against CUDA's sync-debug mode, on the emulated device. `make
test-emulated` runs this.
"""

import contextlib
import warnings

import pytest
import torch
from waiting_steps import OPTIMIZERS, TABLE, program, training, warned

from device_lab._kit import _wait_rules
from device_lab._kit.waits import _Watch, find_waits

# The emulated device waits where CUDA does not: it computes these with values from the
# host (canDispatchToMaskedFill and Repeat.h have the source).
UNLIKE = {}
if torch.__version__ < (2, 15):  # since then these call masked_fill_ themselves
    UNLIKE["assign(x.clone(), mask, 0.0)"] = 1
    UNLIKE["assign(x.clone(), (slice(None), mask[0]), 0.0)"] = 1
UNLIKE["torch.repeat_interleave(labels, labels, output_size=28)"] = 1
UNLIKE["torch.isin(x, x)"] = 0  # not CUDA's own code
UNLIKE["x[from_numpy(arange(8) > 5)]"] = 1  # masks are its own
UNLIKE["x[mask[0], mask[0]]"] = UNLIKE["assign(x.clone(), (mask[0], mask[0]), 0.0)"] = 1
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
    assert count(find_waits(step)) == warned(step) > 0


@pytest.mark.parametrize("name", ["ASGD", "Adam", "NAdam", "RMSprop"])
def test_capturable_cures_an_optimizer(name):
    """With a learning rate on the device; ASGD always waits."""
    options = {"lr": torch.tensor(0.01, device="cuda")}
    waits = find_waits(training("cuda", name, options)).waits
    assert {wait.cure for wait in waits} == {"capturable=True"}
    assert (
        find_waits(training("cuda", name, options | {"capturable": True})).waits == []
    )


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
    assert "fused=True" in wait.cure and wait.inside.startswith("torch/amp/")


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
    assert (wait.operation, wait.kind) == ("ctc_loss", "to the device")
    assert wait.times == warned(step) > 0


def test_what_only_a_clock_asks_for():
    """Not reported by the mode."""
    event = torch.cuda.Event()

    def step():
        event.record()
        event.synchronize()
        torch.accelerator.synchronize()

    assert [wait.kind for wait in find_waits(step).waits] == ["asked for"] * 2
    assert warned(step) == 0


def test_the_backward_in_autograd_s_thread():
    """Its waits are reported at the end of backward(); those of Python code at once."""

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, gradient):
            gradient.sum().item()
            return gradient

    x = torch.ones(3, device="cuda", requires_grad=True)
    mask = x.detach() > 0

    def step():
        x.masked_scatter(mask, 2 * x).sum().backward()
        Reads.apply(x).sum().backward()

    below, ours = find_waits(step).waits
    assert below.code.endswith("2 * x).sum().backward()") and below.kind == "size"
    assert ours.code == "gradient.sum().item()" and ours.kind == "value"


def test_what_no_rule_expects_is_reported_all_the_same():
    stream = torch.accelerator.current_stream()  # a type that cannot be patched
    x = torch.ones(3, device="cuda")
    (wait,) = find_waits(lambda: (x + 1, stream.synchronize())).waits
    assert wait.kind == "else" and "stream.synchronize()" in wait.code


def test_what_a_rule_expects_and_cuda_does_not_report_is_none(monkeypatch):
    monkeypatch.setitem(_wait_rules.Operators.RULES, "mul", lambda self, call: "value")
    x = torch.ones(3, device="cuda")
    assert find_waits(lambda: x.mul(2)).waits == []
    (wait,) = find_waits(lambda: x.mul(2).sum().item()).waits
    assert wait.operation == "item"


def test_the_settings_are_put_back_and_other_warnings_pass():
    x = torch.ones(3, device="cuda")

    def step():
        x.sum().item()
        warnings.warn("of the step", stacklevel=1)

    assert torch.cuda.get_sync_debug_mode() == 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(find_waits(step, steps=2).waits) == 1
    assert [str(each.message) for each in caught] == ["of the step"] * 3
    assert torch.cuda.get_sync_debug_mode() == 0


def test_a_step_that_ignores_warnings():
    x = torch.ones(3, device="cuda")

    def step():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x.sum().item()

    (wait,) = find_waits(step).waits
    assert (wait.operation, wait.times) == ("item", 1)


def test_the_loader_s_own_waits():
    """A dataset on the device that reads, in the loop's own process."""

    class Reads(torch.utils.data.Dataset):
        data = torch.ones(4, device="cuda")

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return self.data[index].item()

    loader = torch.utils.data.DataLoader(Reads(), batch_size=2)
    (wait,) = find_waits(lambda: list(loader)).waits
    assert wait.code == "return self.data[index].item()" and wait.times == 4
