"""Which lines of a step wait. The table is tried on the CPU here, and against CUDA's
own sync-debug mode on the emulated device (tests/emulator/kit_waits.py).
"""

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from utils.errors import LabError
from utils.find_waits import find_waits
from utils.needs import missing_xla


@pytest.fixture(scope="module", autouse=True)
def xla_first():
    """It must be there before the first backward() on any device."""
    if missing_xla() is None:
        import torch_xla

        torch_xla.device()


class Given:
    """Tensors on a device, for the programs of the table."""

    def __init__(self, device):
        self.device = device
        self.x = torch.randn(8, 8).to(device)
        self.mask = self.x > 0
        self.three = torch.tensor(3).to(device)
        self.labels = torch.arange(8).to(device)
        self.square = self.x @ self.x.T + 8 * torch.eye(8).to(device)


def assign(target, index, value):
    target[index] = value


# program → how often it waits on CUDA, by sync-debug mode and by PyTorch's source
TABLE = {
    "x.sum().item()": 1,
    "float(x.sum())": 1,
    "bool(mask.any())": 1,
    "f'{x.sum():.3f}'": 1,
    "repr(x.sum())": 1,
    "0.5 in x": 1,
    "range(three)": 1,
    "x.tolist()": 1,
    "x.cpu().numpy()": 1,
    "torch.equal(x, x)": 1,
    "torch.allclose(x, x)": 1,
    "torch.linalg.cholesky(square)": 1,
    "torch.linalg.inv(square)": 1,
    "x[mask]": 1,
    "x[:three]": 1,
    "x[[0, 2]]": 1,
    "x[numpy.array([0, 2])]": 1,
    "assign(x.clone(), mask, x[mask])": 2,
    "torch.where(mask)": 1,
    "mask.nonzero()": 1,
    "torch.masked_select(x, mask)": 1,
    "torch.unique(labels)": 1,
    "torch.bincount(labels)": 1,
    "torch.repeat_interleave(labels, labels)": 1,
    "F.one_hot(labels)": 1,
    "torch.ones(3).to(device)": 1,
    "torch.tensor(1.0, device=device)": 1,
    "torch.tensor([x[0, 0], x[1, 1]])": 2,
    "torch.ones(3).to(device, non_blocking=True)": 0,
    "x.to(device)": 0,
    "x[labels]": 0,
    "x.index_select(0, labels)": 0,
    "x.gather(0, labels[None])": 0,
    "assign(x.clone(), mask, 0.0)": 0,
    "assign(x.clone(), labels, 0.0)": 0,
    "torch.where(mask, x, 0.0)": 0,
    "x.masked_fill(mask, 0)": 0,
    "F.one_hot(labels, 8)": 0,
    "torch.repeat_interleave(labels, labels, output_size=28)": 0,
    "torch.zeros(3, device=device)": 0,
    "torch.tensor(1.0)": 0,
    "x * torch.tensor(2.0)": 0,
    "x @ x": 0,
    "x.sort()": 0,
    "x.topk(2)": 0,
    "x.argmax()": 0,
    "x.isnan().any()": 0,
    "len(x), x.numel(), x.shape[0]": 0,
    "F.dropout(x)": 0,
    "F.cross_entropy(x, labels)": 0,
    "torch.multinomial(x.softmax(1), 1)": 0,
    "nn.utils.clip_grad_norm_([x], 1.0)": 0,
    "nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True)": 0,  # no gradient
}


def program(text, device):
    names = {"F": F, "nn": nn, "torch": torch, "numpy": numpy, "assign": assign}
    names |= vars(Given(device))
    return eval(f"lambda: ({text})", names)


@pytest.mark.parametrize("text", TABLE)
def test_what_waits(text):
    found = find_waits(program(text, torch.device("cpu")))
    assert sum(wait.times for wait in found.waits) == TABLE[text], found


OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9}),
    ("Adam", {}),
    ("AdamW", {"foreach": True}),
    ("AdamW", {"foreach": False}),
    ("AdamW", {"fused": True}),
    ("RMSprop", {}),
]


def training(device, name="AdamW", options=None, read=lambda loss: None):
    """A step, with an optimizer that has taken one already."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 8))
    model.to(device)
    optimizer = getattr(torch.optim, name)(model.parameters(), **(options or {}))
    x, labels = torch.randn(8, 8).to(device), torch.arange(8).to(device)

    def step():
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        read(loss)

    step()
    return step


@pytest.mark.parametrize("name, options", OPTIMIZERS)
def test_no_false_alarm_with_an_optimizer(name, options):
    """Adam's counters lie on the host."""
    assert find_waits(training("cpu", name, options)).waits == []


def test_the_line_what_it_is_and_how_often():
    def read(loss):
        return loss.item()

    found = find_waits(training("cpu", read=read), steps=3)
    (wait,) = found.waits
    assert wait.where.startswith("test_find_waits.py:")
    assert wait.code == "return loss.item()"
    assert (wait.operation, wait.kind, wait.times) == ("item", "value", 1)
    text = str(found)
    assert (
        text.startswith("1 waits in a step, on 1 line (on a CPU") and wait.code in text
    )
    assert max(map(len, text.splitlines())) <= 88


def test_what_a_library_reads_is_ours():
    """error_if_nonfinite asks, within PyTorch: the line is that of the call."""
    weight = torch.ones(3, requires_grad=True)

    def step():
        weight.grad = torch.ones_like(weight)
        nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)

    (wait,) = find_waits(step).waits
    assert "error_if_nonfinite=True" in wait.code and wait.kind == "value"


def test_batches_of_a_loader_are_on_the_host_until_they_are_moved():
    device = torch.device("cpu")
    data = torch.utils.data.TensorDataset(torch.ones(8, 3))
    loader = torch.utils.data.DataLoader(data, batch_size=4)

    def step():
        for (x,) in loader:
            x.mean().item()  # on the host: nobody waits
            x.to(device).mean()

    (wait,) = find_waits(step).waits
    assert (wait.operation, wait.kind, wait.times) == ("to", "to the device", 2)


def test_compiled_code_counts():
    compiled = torch.compile(lambda x: x.sum().item(), backend="eager")
    x = torch.ones(3)
    assert [wait.operation for wait in find_waits(lambda: compiled(x)).waits] == [
        "item"
    ]


def test_synchronize_is_asked_for():
    (wait,) = find_waits(lambda: torch.cpu.synchronize()).waits
    assert wait.kind == "asked for"


def test_errors():
    with pytest.raises(LabError, match="a function without arguments"):
        find_waits(torch.ones(1))
    with pytest.raises(ZeroDivisionError):
        find_waits(lambda: 1 / 0)
    torch.ones(1).item()
    assert torch.cpu.synchronize.__module__ == "torch.cpu"  # all is put back


@pytest.mark.xla
@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_what_waits_on_xla():
    import torch_xla

    device = torch_xla.device()
    step = training(device, options={"capturable": True})
    assert find_waits(step) == ([], "xla")
    step = training(device, options={"capturable": True}, read=lambda x: x.item())
    assert [wait.operation for wait in find_waits(step).waits] == ["item"]
