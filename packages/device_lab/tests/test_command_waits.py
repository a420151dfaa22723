"""_command/waits and branches: what waits in each step of a running script, and which
lines depend on the device.
"""

import textwrap

import pytest
import torch
from torch import nn, overrides
from torch.amp import GradScaler
from torch.utils import _python_dispatch as dispatch
from torch.utils.data import DataLoader, dataloader

from device_lab._command.branches import branch, branches
from device_lab._command.waits import StepWaits, note_scalers

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA's own rules")
NEXT = dataloader._BaseDataLoaderIter.__next__


@pytest.fixture
def waits():
    waits = StepWaits()
    waits.open()
    yield waits
    assert waits.close()
    modes = overrides._get_current_function_mode_stack()
    assert modes + dispatch._get_current_dispatch_mode_stack() == []


def step(waits, *functions):
    """The rows of a step that does these."""
    waits.begin()
    for each in functions:
        each()
    return {key: (waits.row(key), n) for key, n in waits.end().items()}


def rows(waits, *functions):
    return [row for row, _ in step(waits, *functions).values()]


def test_each_step_has_its_own_counts(waits):
    loss = torch.ones(2).mean().to("cpu")

    def reads():
        return loss.item()

    once = step(waits, reads)
    ((key, (row, times)),) = once.items()
    assert times == 1
    line = reads.__code__.co_firstlineno + 1
    assert row == {
        "where": f"test_command_waits.py:{line}",
        "path": __file__,
        "line": line,
        "code": "return loss.item()",
        "inside": "",
        "operation": "item",
        "kind": "value",
        "why": "a value is read",
        "cure": "keep it on the device, read it every n steps",
        "assumed": False,
        "branch": None,
    }
    assert step(waits) == {}
    assert step(waits, reads, reads) == {key: (row, 2)}


def test_the_librarys_line_is_named(waits):
    model, mask = nn.TransformerEncoderLayer(8, 2, 8).to("cpu"), torch.ones(4, 4)
    mask = nn.Transformer.generate_square_subsequent_mask(4).to("cpu")
    encoder = nn.TransformerEncoder(model, 1, enable_nested_tensor=False)
    found = rows(waits, lambda: encoder(torch.ones(4, 1, 8).to("cpu"), mask=mask))
    inside = [row for row in found if row["inside"]]
    assert any(x["inside"].startswith("torch/nn/modules/transf") for x in inside)
    assert {row["path"] for row in found} == {__file__}


def test_nothing_is_counted_while_a_loader_works(waits):
    def item():
        torch.zeros(1, device="cpu").item()

    assert len(rows(waits, item)) == 1
    waits.silence(True)
    assert rows(waits, item) == []
    waits.silence(False)
    assert len(rows(waits, item)) == 1


def test_a_loaders_batch_is_on_the_host(waits):
    batches = iter(DataLoader(torch.ones(8, 2), batch_size=4))
    waits.begin()
    batch = next(batches)
    batch.tolist()
    batch.to("cpu:0").tolist()
    found = [(waits.row(key)["operation"], n) for key, n in waits.end().items()]
    assert found == [("to", 1), ("tolist", 1)]


def test_what_was_made_before_the_step_is_assumed():
    mask, waits = torch.ones(4), StepWaits()  # made before it is watched
    device = torch.device("cpu")
    waits.open()
    ((row, times),) = step(waits, lambda: mask.to(device)).values()
    assert waits.close()
    assert times == 1
    assert row["assumed"]
    assert row["operation"] == "to"
    assert row["kind"] == "to the device"
    assert row["code"].endswith("mask.to(device)).values()")
    assert row["path"] == __file__


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.filterwarnings("ignore:.*GradScaler is enabled")
def test_a_scaler_that_cuda_would_enable(waits, enabled):
    note_scalers()
    w = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([w], fused=False)
    scaler = GradScaler("cuda", enabled=enabled)
    assert not scaler.is_enabled()
    w.sum().backward()
    found = rows(waits, lambda: scaler.step(optimizer))
    assert [row["operation"] for row in found] == ["item"] * enabled
    assert all(row["cure"].startswith("an optimizer with fused") for row in found)


def test_scalers_of_older_names_are_told_apart():
    note_scalers()
    from device_lab._command import waits as module

    with pytest.warns(Warning):
        off = torch.cuda.amp.GradScaler(1.0, 2.0, 0.5, 10, False)
        on = torch.cuda.amp.GradScaler(1.0)
    assert off not in module._enabled
    assert on in module._enabled
    with pytest.raises(TypeError, match="unexpected"):
        GradScaler(nothing=1)


def test_what_the_script_asks_of_a_missing_device_is_its_own(waits):
    with pytest.raises((AssertionError, RuntimeError)):
        torch.cuda.synchronize()
    assert torch.cuda.empty_cache() is None
    waits.begin()
    torch.cuda.empty_cache()
    ((key, times),) = waits.end().items()
    assert (waits.row(key)["operation"], times) == ("empty_cache", 1)


# ---- the script's tensors behave as without it


def in_place(x):
    x.to("cpu").add_(1)
    x.to(torch.device("cpu")).mul_(2)
    x.cpu().add_(1)
    return x


def new():
    return torch.zeros(3)


OLD = torch.zeros(3)


@pytest.mark.parametrize("make", [new, OLD.clone, lambda: torch.zeros(3, device="cpu")])
def test_what_is_written_into_a_moved_tensor_reaches_it(waits, make):
    assert in_place(make()).tolist() == [3, 3, 3]


def test_a_frozen_state_still_follows_the_model(waits):
    model = nn.Linear(2, 1, bias=False)
    state = {name: x.cpu() for name, x in model.state_dict().items()}
    with torch.no_grad():
        model.weight.fill_(5)
    assert state["weight"].tolist() == [[5, 5]]


@pytest.mark.parametrize("move", [lambda x: x.to("cpu"), torch.Tensor.cpu])
def test_a_leaf_is_itself(waits, move):
    made = torch.ones(2, requires_grad=True), nn.Parameter(torch.ones(2))
    for x in (*made, nn.Parameter(torch.ones(2), requires_grad=False)):
        assert move(x) is x
    sparse = torch.eye(2).to_sparse()
    assert move(sparse) is sparse


def test_a_tensor_moved_without_gradients_may_be_written_to_with_them(waits):
    w = nn.Parameter(torch.ones(2))
    with torch.no_grad():
        x = torch.ones(2).to("cpu")
        y = x.cpu()
    y.mul_(w)
    y.sum().backward()
    assert w.grad.tolist() == [1, 1]
    with torch.inference_mode():
        z = torch.ones(2).to("cpu").add_(1)
        assert z.cpu().is_inference()


def test_a_step_gives_the_same_bits():
    def train():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LSTM(24, 3)
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        loader, seen = DataLoader(torch.randn(12, 1, 8), batch_size=4, shuffle=True), []
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16):
                out, _ = model(batch.to("cpu"))
            loss = (
                out[:, 0].square().mean() + out.index_select(1, torch.tensor([1])).sum()
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            seen.append(loss.item())
        return seen, [p.tolist() for p in model.parameters()]

    alone = train()
    waits = StepWaits()
    waits.open()
    watched = train()
    assert waits.close()
    assert watched == alone


def test_higher_order_operators_run(waits):
    def cond():
        x = torch.ones(2)
        torch.cond(x.sum() > 1, lambda x: x + 1, lambda x: x - 1, (x,))

    step(waits, cond)


def test_the_scripts_function_is_compiled_after_it():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled, waits = torch.compile(lambda x: x + 1, backend=backend), StepWaits()
    waits.open()
    compiled(torch.ones(2))
    assert graphs == []
    assert waits.close()
    compiled(torch.ones(2))
    assert len(graphs) == 1
    assert dataloader._BaseDataLoaderIter.__next__ is NEXT


def test_closed_within_a_call_it_has_to_be_closed_again(monkeypatch):
    waits, closed = StepWaits(), []
    backward = torch.autograd.backward

    def ends(*args, **kwargs):
        backward(*args, **kwargs)
        closed.append(waits.close())

    monkeypatch.setattr(torch.autograd, "backward", ends)
    waits.open()
    torch.ones(2, requires_grad=True).sum().backward()  # a call of the function mode
    assert closed == [False]
    assert waits.close()


# ---- lines that depend on the device

DEPENDS = """
if device == "cuda":  # asks
    x.item()  # waits
---
if use_cuda:  # asks
    pass
else:
    x.item()  # waits
---
def move(x, device_type):
    if device_type == "cuda":  # asks
        x = x.pin_memory().to(device, non_blocking=True)
    else:
        x = x.to(device)  # waits
---
def move(x):
    kwargs = {}
    if isinstance(x, Tensor) and device.type not in _BLOCKING_DEVICE_TYPES:  # asks
        kwargs["non_blocking"] = True
    return x.to(device, **kwargs)  # waits
---
def move(x, device):
    pin = device.type == "cuda"  # asks
    return x.to(device, non_blocking=pin)  # waits
---
class Trainer:
    def __init__(self):
        self.fast = torch.cuda.is_available()  # asks
    def move(self, x):
        return x.to(self.device, non_blocking=self.fast)  # waits
---
fused = has_fused and device_type == "cuda"
def f(x):
    if fused:  # asks
        x.item()  # waits
---
x.to(device, non_blocking=use_cuda)  # asks waits
---
x = x.item() if x.is_cuda else 0  # asks waits
---
def f(x):
    if x.device.type == "cpu":  # asks
        return x
    x.item()  # waits
---
for x in batches:
    if torch.accelerator.is_available():  # asks
        with lock:
            x.item()  # waits
---
if first:
    pass
elif args.no_cuda:  # asks
    x.item()  # waits
---
kwargs = {"num_workers": 2}
if torch.accelerator.is_available():  # asks
    kwargs.update(non_blocking=True)
def f(x):
    return x.to(device, **kwargs)  # waits
---
pin = torch.cuda.is_available()
def f(x):
    if pin:  # asks
        x.item()  # waits
""".split("---\n")
DOES_NOT = """
device = "cuda" if torch.cuda.is_available() else "cpu"
x.to(device)  # waits
---
device = torch.device("cuda" if torch.cuda.is_available() and use_cuda else "cpu")
x.to(device)  # waits
---
if torch.cuda.is_available():
    device = torch.device("cuda")
    print("on a GPU")
else:
    device = torch.device("cpu")
x.to(device)  # waits
---
x.to("cuda" if torch.cuda.is_available() else "cpu")  # waits
---
def f(x, device=None):
    if device is None:
        device = x.device
    return x.to(device)  # waits
---
if not torch.cuda.is_available():
    raise SystemExit("a GPU is needed")
x.item()  # waits
---
if use_cuda:
    x = x.cuda()
x.item()  # waits
---
if acceleration > limit or dev_loss < best or os.cpu_count() > 1 or timestamps:
    x.item()  # waits
---
def f():
    pin = device == "cuda"
def g(x):
    x.to(device, non_blocking=pin)  # waits
---
if use_cuda:
    settings().update(pinned=True)
    a, (b, c) = d[0]["x"] = True
step(x.item(), 1 + 1, **settings())  # waits
---
if step % 100 == 0:
    x.item()  # waits
---
if x.cpu().sum() > 3 or y.cuda().any():
    x.item()  # waits
---
if accelerator.is_main_process and accelerator.sync_gradients:
    x.item()  # waits
---
world = 4 if args.num_gpus > 1 else 1
if world > 2:
    x.item()  # waits
---
def f(x, device):
    x.to(device=device, non_blocking=True)  # waits
---
x = (  # waits
""".split("---\n")


def marked(source, mark):
    """Numbers of the lines with it."""
    lines = enumerate(source.splitlines(), 1)
    return [n for n, line in lines if mark in line.partition("#")[2].split()]


@pytest.mark.parametrize("source", DEPENDS)
def test_lines_that_depend_on_the_device(source, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(source, encoding="utf-8")
    assert [branch(str(path), *marked(source, "waits"))] == marked(source, "asks")


@pytest.mark.parametrize("source", DOES_NOT)
def test_lines_that_do_not(source, tmp_path):
    path = tmp_path / "train.py"
    path.write_text(source, encoding="utf-8")
    assert branch(str(path), *marked(source, "waits")) == 0


def test_conditions_of_a_file(tmp_path):
    source = """
    import torch
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":  # asks
        torch.backends.cudnn.benchmark = True
    def move(x):
        if x.is_cuda:  # asks
            return x
        dtype = "float16" if use_gpu else "float32"  # asks
        place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if torch.cuda.is_available():
            device = torch.device(f"cuda:{rank}" if use_cuda else "cpu")
        with torch.autocast(device.type if device.type != "mps" else "cpu"):
            pass
    for x in batches:
        if "cuda" in str(device):  # asks
            move(x)
        if x is None:
            pass
    """
    source, path = textwrap.dedent(source), tmp_path / "train.py"
    path.write_text(source, encoding="utf-8")
    lines = marked(source, "asks")
    assert branches([str(path)]) == [f"train.py:{line}" for line in lines]


def test_the_row_names_the_condition(waits):
    device = "cpu"

    def move():
        if device == "cuda":
            return None
        return torch.zeros(2).to(device)

    (row,) = rows(waits, move)
    line = move.__code__.co_firstlineno + 1
    assert row["branch"] == f"test_command_waits.py:{line}"
