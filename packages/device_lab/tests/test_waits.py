"""Which lines of a step wait. The table is tried on the CPU here, and against CUDA's
own sync-debug mode on the emulated device (cuda_waits.py).
"""

import collections
import dataclasses
import functools
import json
import os
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from waiting_steps import OPTIMIZERS, TABLE, assign, program, training

from device_lab import LabError, does_it_pay, find_waits, measure, peak
from device_lab._kit import _lines
from device_lab._kit._cures import NEVER


@pytest.fixture(scope="module", autouse=True)
def xla_first():
    """It must be there before the first backward() on any device."""
    if find_spec("torch_xla"):
        import torch_xla

        torch_xla.device()


@pytest.mark.parametrize("text", TABLE)
def test_what_waits(text):
    report = find_waits(program(text, torch.device("cpu")))
    assert sum(wait.times for wait in report.waits) == TABLE[text], report


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
    "torch.normal(x, x.abs() + 1)": int(torch.__version__ < (2, 15)),
    "torch.normal(x, 1.0)": 0,
    "F.ctc_loss(x[:, None].log_softmax(2), labels[None, 1:3], (8,), (2,))": 1,
    "F.ctc_loss(x.view(4, 2, 8).log_softmax(2), labels % 7 + 1, *lengths)": 1,
}


@pytest.mark.parametrize("text", SOURCES)
def test_what_waits_by_the_sources(text):
    report = find_waits(program(text, torch.device("cpu")))
    assert sum(wait.times for wait in report.waits) == SOURCES[text], report


def test_what_the_backward_reads():
    x, mask = torch.ones(3, requires_grad=True), torch.ones(3) > 0

    def step():
        x.masked_scatter(mask, 2 * x).sum().backward()

    (wait,) = find_waits(step).waits
    assert wait.kind == "size" and wait.code.endswith(".backward()")


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

    report = find_waits(training("cpu", read=read), steps=3)
    (wait,) = report.waits
    assert wait.where.startswith("test_waits.py:")
    assert wait.code == "return loss.item()"
    assert (wait.operation, wait.kind, wait.times) == ("item", "value", 1)
    text = str(report)
    assert (
        text.startswith("1 wait in a step, on 1 line (on a CPU") and wait.code in text
    )
    assert max(map(len, text.splitlines())) <= 88


def test_what_a_library_reads_is_ours():
    """error_if_nonfinite asks, within PyTorch: the line is that of the call, and
    PyTorch's own stands below it.
    """
    weight = torch.ones(3, requires_grad=True)

    def step():
        weight.grad = torch.ones_like(weight)
        nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)

    (wait,) = find_waits(step).waits
    assert "error_if_nonfinite=True" in wait.code and wait.kind == "value"
    assert wait.inside.startswith("torch/nn/utils/clip_grad.py:")
    assert "  if error_if_nonfinite and" in wait.inside


def test_a_wait_in_pytorch_without_a_cure_that_is_known():
    x = torch.ones(3)
    (wait,) = find_waits(lambda: nn.functional.gaussian_nll_loss(x, x, x)).waits
    assert wait.inside.startswith("torch/nn/functional.py:")
    assert wait.cure == NEVER
    # what only hands the call on is no library's line
    lossy = "F.ctc_loss(x.view(4, 2, 8).log_softmax(2), labels % 7 + 1, *lengths)"
    given = "f'{x.sum():.3f}'", "torch.unique(labels)", "x[mask]", "range(three)", lossy
    for text in given:
        (wait,) = find_waits(program(text, torch.device("cpu"))).waits
        assert wait.inside == ""
    loss = nn.CTCLoss()
    names = program(lossy, torch.device("cpu")).__globals__
    step = eval("lambda: loss(" + lossy.split("(", 1)[1], names | {"loss": loss})
    (wait,) = find_waits(step).waits
    assert wait.inside.startswith("torch/nn/modules/loss.py:") and wait.cure == NEVER


@pytest.mark.skipif("site-packages" not in torch.__file__, reason="it is elsewhere")
def test_the_library_beside_pytorch_is_another(monkeypatch):
    """Its folder's name may begin with PyTorch's, and lie in that of Python's own."""
    own = os.path.dirname(os.path.dirname(os.path.dirname(torch.__file__)))
    monkeypatch.setattr(_lines, "STANDARD", own)
    path = os.path.join(os.path.dirname(torch.__file__) + "other", "a.py")
    names, x = {}, torch.ones(1)
    exec(compile("def read(x):\n    return x.item()\n", path, "exec"), names)
    (wait,) = find_waits(lambda: names["read"](x)).waits
    assert wait.inside.startswith("torchother/a.py:2")


def test_what_the_result_shows():
    report = find_waits(program("x[mask].sum().item()", torch.device("cpu")))
    assert repr(report) == str(report)
    size, value = report.to_dict()["waits"]
    assert (size["kind"], value["kind"]) == ("size", "value")
    assert size["cure"] in str(report.waits[0])
    assert json.dumps(report.to_dict())


# Without elements nothing is copied, and some operators need not look (their sources:
# copy_impl, Equal.cpp, SummaryOps.cu, Repeat.h); nonzero looks all the same.
EMPTY = {
    "torch.from_numpy(numpy.ones(0)).to(device)": 0,
    "torch.zeros(0).to(x)": 0,
    "torch.zeros(0).type_as(x)": 0,
    "torch.tensor([], device=device)": 0,
    "torch.as_tensor(numpy.ones(0), device=device)": 0,
    "x.new_tensor([])": 0,
    "x[:0].cpu()": 0,
    "x[:0].tolist()": 0,
    "x[:0].copy_(torch.ones(0, 8))": 0,
    "x[[]]": 0,
    "x[torch.from_numpy(numpy.arange(0))]": 0,
    "torch.equal(x[:0], x[:0])": 0,
    "torch.equal(x, x[:2])": 0,
    "torch.bincount(labels[:0])": 0,
    "torch.repeat_interleave(labels[:0], labels[:0])": 0,
    "torch.allclose(x[:0], x[:0])": 1,
    "mask[:0].nonzero()": 1,
    "x[:0].sum().item()": 1,
}


@pytest.mark.parametrize("text", EMPTY)
def test_what_waits_without_elements(text):
    report = find_waits(program(text, torch.device("cpu")))
    assert sum(wait.times for wait in report.waits) == EMPTY[text], report


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


class Plain:
    def __init__(self, x):
        self.x, self.loader, self.again = [x], nn.Linear(1, 1), self
        self.of_another = type(self)


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = {"x": Plain(x)}


PARTS = {  # where a batch that is an object keeps its tensor
    dataclasses.make_dataclass("Batch", ["x"]): lambda batch: batch.x,
    Plain: lambda batch: batch.x[0],
    Slots: lambda batch: batch.x["x"].x[0],
    collections.UserDict: lambda batch: batch["x"],  # transformers' BatchEncoding
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_batch_is_an_object(kind):
    kept = torch.ones(4)

    def collate(items):
        x = torch.stack(items)
        return kind({"x": x} if kind is collections.UserDict else x)

    kind.kept = kept  # of the class: no part of a batch
    loader = torch.utils.data.DataLoader(torch.ones(8, 4), 4, collate_fn=collate)

    def step():
        for batch in loader:
            x = PARTS[kind](batch)
            x.sum().item()
            (x.to("cpu:0") @ kept).sum()

    (wait,) = find_waits(step).waits
    assert (wait.operation, wait.kind, wait.times) == ("to", "to the device", 2)
    assert not hasattr(kept, "_lies")


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


@pytest.mark.parametrize("module", [torch.cuda, torch.xpu, torch.accelerator])
def test_a_device_that_is_not_there_is_not_waited_for(module):
    if module.is_available():
        pytest.skip("it is there")
    (wait,) = find_waits(lambda: module.synchronize()).waits
    assert (wait.operation, wait.kind, wait.times) == ("synchronize", "asked for", 1)
    with pytest.raises((AssertionError, RuntimeError)):
        find_waits(lambda: torch.cuda.current_stream().synchronize())  # as elsewhere
    with pytest.raises((AssertionError, RuntimeError)):
        module.synchronize()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there scalers are not disabled")
@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled")
def test_a_scaler_that_is_disabled_without_cuda_is_named():
    model, scaler = nn.Linear(2, 2), torch.amp.GradScaler()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1, fused=x) for x in (0, 1)]

    def step(optimizer, scaler):
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    report = find_waits(lambda: step(optimizers[0], scaler), steps=2)
    (wait,) = report.scaler
    assert report.waits == [] and wait.times == 1
    assert wait.code == "scaler.step(optimizer)" and "fused=True" in wait.cure
    assert "enabled, it waits besides" in str(report) and wait.code in str(report)
    assert find_waits(lambda: step(optimizers[1], scaler)).scaler == []
    on_cpu = torch.amp.GradScaler("cpu")  # is enabled, and seen as it is
    report = find_waits(lambda: step(optimizers[0], on_cpu))
    assert report.scaler == [] and report.waits[0].code == wait.code


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


@pytest.mark.skipif(find_spec("torch_xla"), reason="torch_xla is the lazy backend")
def test_pytorch_s_own_lazy_device_is_refused_in_one_line():
    ts_backend = pytest.importorskip("torch._lazy.ts_backend")
    ts_backend.init()
    layer = nn.Linear(2, 2).to("lazy")
    with pytest.raises(LabError, match="not on PyTorch's lazy device"):
        find_waits(lambda: layer(torch.ones(2).to("lazy")).sum().backward())


@pytest.mark.xla
@pytest.mark.skipif(not find_spec("torch_xla"), reason="needs torch_xla")
def test_what_waits_on_xla():
    import torch_xla

    device = torch_xla.device()
    x = torch.ones(3).to(device)
    report = find_waits(lambda: assign(x, x > 0, 0.0))
    assert (report.waits, report.device) == ([], "xla")
    step = training(device, options={"capturable": True})
    assert find_waits(step).waits == []
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


def test_a_trainer_that_counts_its_steps_is_no_step_without_waits():
    """Its second call trains nothing, or only logs."""
    net = nn.Linear(4, 4)
    losses = []

    def train():
        while len(losses) < 2:
            loss = net(torch.ones(2, 4)).sum()
            loss.backward()
            losses.append(loss.item())

    with pytest.raises(LabError, match="a further call trained nothing"):
        find_waits(train)
    losses.clear()
    with pytest.raises(LabError, match="begin anew"):
        find_waits(lambda: train() or torch.ones(2) + 1)
    assert find_waits(lambda: losses.clear() or train()).waits[0].times == 2


def copied(x, device):
    return x.to(device)


def test_what_was_made_before_the_step_is_named_where_it_is_moved():
    """On a CPU it passes for a GPU's: if it lies on the host, each copy waits."""
    device, mask, net = torch.device("cpu"), torch.ones(4), nn.Linear(4, 4)
    held = torch.ones(4)  # what is copied into it tells not where it lies
    data = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=8)

    def step():
        (x,) = (batch.to(device, non_blocking=True) for batch in data)
        for _ in range(2):
            x = net(x) * copied(mask[:4], x.device)  # a view is named, too
        torch.as_tensor(mask, device=device)
        held.copy_(x[0].detach())
        copied(held, device)

    report = find_waits(step, steps=3)
    (moved, times), (made, once) = report.assumed.items()
    assert report.waits == [] and (times, once) == (3, 1)
    text = " ".join(str(report).split())
    assert f"Taken as on the GPU already: {moved} ×3, {made}. If these" in text
    assert max(map(len, str(report).splitlines())) <= 88
    assert report.to_dict()["assumed"] == report.assumed


def moved(given, device, non_blocking=False):
    given.mask = given.mask.to(device, non_blocking=non_blocking)
    return given.mask


QUIET = {
    "a second time": lambda x, given: moved(given, x.device, True).to(x.device),
    "kept": lambda x, given: moved(given, x.device),
    "to no device": lambda x, given: given.mask.to("meta"),
    "of a loader": lambda x, given: next(given).to(x.device, non_blocking=True),
    "made of parameters": lambda x, given: (x * 2).to(x.device),
    "moved by the step": lambda x, given: torch.ones(1).to("cpu").to(x.device),
    "made there": lambda x, given: torch.ones(1, device=x.device).to(x.device),
    "to the host": lambda x, given: given.mask.to("cpu"),
    "another type": lambda x, given: given.mask.to(torch.float64),
    "non_blocking": lambda x, given: given.mask.to(x.device, non_blocking=True),
    "empty": lambda x, given: given.mask[:0].to(x.device),
    "a module": lambda x, given: given.net.to(x.device),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_known_is_not_named_as_taken(name):
    class Given:
        mask, net = torch.ones(3), nn.Linear(1, 1)
        loader = iter(torch.utils.data.DataLoader(torch.ones(9, 1)))

        def __next__(self):
            return next(self.loader)

    given, x = Given(), nn.Parameter(torch.ones(3))
    report = find_waits(lambda: QUIET[name](x, given))
    assert report.assumed == {} and "Taken" not in str(report)


def needs(model, batch, *rest, rate, more=1):
    pass


def test_a_step_that_needs_arguments():
    call = r"needs arguments: lambda: needs\(model, next\(batches\), rate=rate\)"
    asked = find_waits, peak, lambda fn: measure(fn, "cpu")
    for ask in asked:
        with pytest.raises(LabError, match=call):
            ask(needs)
    with pytest.raises(LabError, match=r"^step needs arguments: lambda: step\(x\)$"):
        find_waits(lambda x: None)
    with pytest.raises(LabError, match=r"does_it_pay\(copied, x, device\)"):
        does_it_pay(copied)

    @functools.wraps(copied)
    def filled():
        torch.ones(1).cos()

    for fine in (filled, lambda *all, **named: filled(), lambda x=1: filled(), print):
        assert find_waits(fine).waits == []
