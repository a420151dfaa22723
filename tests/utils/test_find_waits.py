"""Which lines of a step wait. The table is tried on the CPU here, and against CUDA's
own sync-debug mode on the emulated device (tests/emulator/kit_waits.py).
"""

import copy

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
        self.total, self.lengths = self.x.sum(), (torch.tensor([4, 4]),) * 2
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
    "torch.equal(x, x + 0)": 1,
    "torch.allclose(x, x)": 1,
    "torch.linalg.cholesky(square)": 1,
    "torch.linalg.inv(square)": 1,
    "x[mask]": 1,
    "x[:three]": 1,
    "x[three]": 1,
    "x[labels, three]": 1,
    "assign(x, three, 0.0)": 1,
    "assign(x, three, total)": 1,
    "x[[0, 2]]": 1,
    "x[(labels[:2], [0, 2])]": 1,
    "x[numpy.array([0, 2])]": 1,
    "assign(x.clone(), mask, x[mask])": 2,
    "assign(x.clone(), mask, total)": 1,
    "assign(x.clone(), (mask[0], mask[0]), 0.0)": 1,
    "x.index_put((mask,), total)": 1,
    "assign(x.clone(), labels, 0.0)": 1,
    "assign(x.clone(), (labels, labels), 0.0)": 1,
    "assign(x.clone(), (0, 0), 0.0)": 1,
    "x.masked_fill(mask, total)": 1,
    "x.index_fill(0, labels, total)": 1,
    "torch.where(mask, x, torch.tensor(0.0))": 1,
    "torch.linspace(0, total, 5, device=device)": 1,
    "torch.where(mask)": 1,
    "mask.nonzero()": 1,
    "torch.masked_select(x, mask)": 1,
    "torch.unique(labels)": 1,
    "torch.bincount(labels)": 1,
    "torch.repeat_interleave(labels, labels)": 1,
    "F.one_hot(labels)": 1,
    "torch.ones(3).to(device)": 1,
    "torch.zeros(3).to(x)": 1,
    "torch.zeros(3).type_as(x)": 1,
    "torch.from_numpy(numpy.ones(3)).to(device)": 1,
    "torch.from_numpy(numpy.ones(3)).to(device, non_blocking=True)": 0,
    "torch.Tensor([1, 2]).to(device)": 1,
    "torch.LongTensor([1, 2]).to(device)": 1,
    "torch.asarray(numpy.ones(3)).to(device)": 1,
    "torch.asarray([1, 2], device=device)": 1,
    "torch.as_tensor(numpy.ones(3), device=device)": 1,
    "x.new_tensor([1, 2])": 1,
    "x.copy_(torch.ones(8, 8))": 1,
    "torch.tensor(1.0, device=device)": 1,
    "torch.tensor([x[0, 0], x[1, 1]])": 2,
    "torch.ones(3).to(device, non_blocking=True)": 0,
    "x.to(device)": 0,
    "x[labels]": 0,
    "x.index_select(0, labels)": 0,
    "x.gather(0, labels[None])": 0,
    "assign(x.clone(), mask, 0.0)": 0,
    "assign(x.clone(), (slice(None), mask[0]), 0.0)": 0,
    "assign(x.clone(), labels, total)": 0,
    "assign(x.clone(), 0, total)": 0,
    "assign(x.clone(), (0, 0), total)": 0,
    "assign(x.clone(), 0, 0.0)": 0,
    "assign(x.clone(), slice(2), 0.0)": 0,
    "x.masked_fill(mask, torch.tensor(0.0))": 0,
    "x.fill_(total)": 0,
    "torch.full((3,), 1.0, device=device)": 0,
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
    "unpack(pack(x.view(4, 2, 8), lengths[0]))": 0,
    "F.dropout(x)": 0,
    "F.cross_entropy(x, labels)": 0,
    "torch.multinomial(x.softmax(1), 1)": 0,
    "nn.utils.clip_grad_norm_([x], 1.0)": 0,
    "nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True)": 0,  # no gradient
}


def program(text, device):
    names = {"F": F, "nn": nn, "torch": torch, "numpy": numpy, "assign": assign}
    names |= {"pack": nn.utils.rnn.pack_padded_sequence}
    names |= {"unpack": nn.utils.rnn.pad_packed_sequence} | vars(Given(device))
    return eval(f"lambda: ({text})", names)


@pytest.mark.parametrize("text", TABLE)
def test_what_waits(text):
    found = find_waits(program(text, torch.device("cpu")))
    assert sum(wait.times for wait in found.waits) == TABLE[text], found


# The emulated device computes these without CUDA's code for the host. They wait by
# PyTorch's documentation ("synchronizes") or its source; the others do not.
SOURCES = {
    "torch.linalg.eigh(square)": 1,
    "torch.linalg.eigvals(square)": 1,
    "torch.linalg.svdvals(square)": 1,
    "torch.linalg.pinv(square)": 1,
    "torch.linalg.matrix_exp(square)": 1,
    "torch.linalg.qr(square)": 0,
    "torch.linalg.det(square)": 0,
    "torch.histc(x)": 1,
    "torch.histc(x, 4, -1.0, 1.0)": 0,
    "torch.normal(x, x.abs() + 1)": 1,
    "torch.normal(x, 1.0)": 0,
    "F.ctc_loss(x[:, None].log_softmax(2), labels[None, 1:3], (8,), (2,))": 1,
    "F.ctc_loss(x.view(4, 2, 8).log_softmax(2), labels % 7 + 1, *lengths)": 1,
}


@pytest.mark.parametrize("text", SOURCES)
def test_what_waits_by_the_sources(text):
    found = find_waits(program(text, torch.device("cpu")))
    assert sum(wait.times for wait in found.waits) == SOURCES[text], found


def test_what_the_backward_reads():
    x, mask = torch.ones(3, requires_grad=True), torch.ones(3) > 0

    def step():
        x.masked_scatter(mask, 2 * x).sum().backward()

    (wait,) = find_waits(step).waits
    assert wait.kind == "size" and wait.code.endswith(".backward()")


FORMS = [{}, {"foreach": True}, {"foreach": False}]
FORMS += [{"foreach": False, "lr": torch.tensor(0.01)}]  # on the host
NAMES = "Adam AdamW SGD NAdam RAdam Adamax Adagrad Adadelta RMSprop Rprop".split()
OPTIMIZERS = [(name, options) for name in NAMES for options in FORMS]
OPTIMIZERS += [(name, {"fused": True}) for name in ["Adam", "AdamW", "SGD", "Adagrad"]]
OPTIMIZERS += [("AdamW", {"fused": True, "lr": torch.tensor(0.01)}), ("Muon", {})]
OPTIMIZERS += [("SGD", {"momentum": 0.9}), ("RMSprop", {"centered": True})]


def training(device, name="AdamW", options=None, read=lambda loss: None):
    """A step, with an optimizer that has taken one already."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 8))
    model.to(device)
    weights = [x for x in model.parameters() if x.dim() == 2 or name != "Muon"]
    optimizer = getattr(torch.optim, name)(weights, **copy.deepcopy(options or {}))
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
    """Their counters lie on the host."""
    assert find_waits(training("cpu", name, options)).waits == []


def test_no_false_alarm_with_sparse_gradients():
    table = nn.Embedding(8, 4, sparse=True)
    optimizer, rows = torch.optim.SparseAdam(table.parameters()), torch.arange(3)

    def step():
        table(rows).sum().backward()
        optimizer.step()

    step()
    assert find_waits(step).waits == []


@pytest.mark.parametrize("name", ["ASGD", "Adafactor"])
def test_optimizers_that_wait(name):
    assert find_waits(training("cpu", name)).waits


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


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("compiled_before", [False, True])
def test_compiled_code_counts_and_stays_compiled(fullgraph, compiled_before):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    double = torch.compile(lambda x: 2 * x, backend=backend, fullgraph=fullgraph)
    x = torch.ones(3, requires_grad=True)
    if compiled_before:
        double(x)
    (wait,) = find_waits(lambda: double(x).sum().item()).waits
    assert wait.operation == "item" and len(graphs) == compiled_before
    assert double(x).sum() == 6 and len(graphs) == 1


def test_what_waits_within_compiled_code():
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
    with pytest.raises(LabError, match="a function without arguments"):
        find_waits(nn.Linear(1, 1))
    with pytest.raises(LabError, match="at least one step"):
        find_waits(print, steps=0)
    for batches in (0, 2):
        given = iter([torch.ones(1)] * batches)
        with pytest.raises(LabError, match="ended too early: find_waits takes"):
            find_waits(lambda: next(given), steps=3)  # noqa: B023
    torch.ones(1).item()
    assert torch.cpu.synchronize.__module__ == "torch.cpu"  # all is put back


@pytest.mark.skipif(missing_xla() is None, reason="torch_xla is the lazy backend")
def test_pytorch_s_own_lazy_device_is_refused_in_one_line():
    ts_backend = pytest.importorskip("torch._lazy.ts_backend")
    ts_backend.init()
    layer = nn.Linear(2, 2).to("lazy")
    with pytest.raises(LabError, match="not on PyTorch's lazy device"):
        find_waits(lambda: layer(torch.ones(2).to("lazy")).sum().backward())


@pytest.mark.xla
@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_what_waits_on_xla():
    import torch_xla

    device = torch_xla.device()
    x = torch.ones(3).to(device)
    assert find_waits(lambda: assign(x, x > 0, 0.0)) == ([], "xla")
    step = training(device, options={"capturable": True})
    assert find_waits(step) == ([], "xla")
    step = training(device, options={"capturable": True}, read=lambda x: x.item())
    assert [wait.operation for wait in find_waits(step).waits] == ["item"]


def test_what_inference_mode_hides_is_found():
    net, x = torch.nn.Linear(4, 2), torch.randn(3, 4)

    def step():
        with torch.inference_mode():
            y = net(x)
            y.sum().item()
            y[y > 0]
            return (y.argmax(1) == 0).float().mean() > 0.5 and None

    waits = find_waits(step).waits
    assert [wait.kind for wait in waits] == ["value", "size", "value"]
