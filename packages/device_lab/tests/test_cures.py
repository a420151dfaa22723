"""Each cure that find_waits names, applied to a line that waits: the wait is gone. In
order of _cures.OPERATIONS, then what it says of libraries.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn
from torch.optim import swa_utils
from waiting_steps import program

from device_lab import find_waits
from device_lab._kit._cures import (
    ACTION,
    BRANCH,
    COMPARE,
    LIBRARIES,
    NEVER,
    OPERATIONS,
    cure,
    pinned,
)
from device_lab._kit._lines import Place

CPU = torch.device("cpu")
# a line that waits, part of the cure, the line that is cured
LINES = """
x.sum().item() | keep it on the device | x.sum().detach()
x[mask].sum() | torch.where(mask, a, b) | torch.where(mask, x, 0.0).sum()
torch.ones(3).to(device) | non_blocking=True | \
torch.ones(3).to(device, non_blocking=True)
torch.ones(3).to(device) | make it there | torch.ones(3, device=device)
torch.allclose(x, x) | torch.isclose(a, b).all() | torch.isclose(x, x).all()
torch.as_tensor([1, 2], device=device) | torch.full | torch.full((), 1.0, device=device)
torch.asarray([1, 2], device=device) | non_blocking=True | \
torch.tensor([1, 2]).to(device, non_blocking=True)
torch.bincount(labels) | index_add_ | \
torch.zeros(8, device=device).index_add_(0, labels, torch.ones(8, device=device))
torch.equal(x, x + 0) | (a == b).all() | (x == x + 0).all()
torch.histc(x) | min and max | torch.histc(x, 100, -1.0, 1.0)
x[[0, 2]] | make index or number once | x[labels]
x[numpy.array([0, 2])] | make index or number once | x[labels]
x[three] | x[i[None]] does not | x[three[None]]
x[:three] | Python's number as well | x[:3]
range(three) | Python's number as well | range(3)
numpy.ones(8)[:three] | Python's number as well | numpy.ones(8)[:3]
torch.cuda.empty_cache() | leave it out | x
x.index_fill(0, labels, total) | x[index] = value | assign(x.clone(), labels, total)
assign(x.clone(), torch.from_numpy(numpy.arange(2)), total) | index or number once | \
assign(x.clone(), labels, total)
torch.linalg.inv(square) | inv_ex | torch.linalg.inv_ex(square)
torch.linalg.cholesky(square) | cholesky_ex | torch.linalg.cholesky_ex(square)
torch.linalg.solve(square, x) | solve_ex | torch.linalg.solve_ex(square, x)
torch.linspace(0, total, 5, device=device) | torch.linspace(0, 1, n | \
0 + (total - 0) * torch.linspace(0, 1, 5, device=device)
torch.logspace(0, total, 5, device=device) | torch.linspace(0, 1, n | \
10 ** (total * torch.linspace(0, 1, 5, device=device))
x.masked_fill(mask, total) | torch.where(mask, value, x) | torch.where(mask, total, x)
x.new_tensor([1, 2]) | torch.full | torch.full((), 1.0, device=device)
x.new_tensor([x[0, 0], x[1, 1]]) | torch.stack | torch.stack([x[0, 0], x[1, 1]])
torch.normal(x, x.abs() + 1) | torch.randn_like | \
x + (x.abs() + 1) * torch.randn_like(x)
F.one_hot(labels) | F.one_hot(labels, n) | F.one_hot(labels, 8)
torch.repeat_interleave(labels, labels) | output_size | \
torch.repeat_interleave(labels, labels, output_size=28)
torch.tensor([1, 2], device=device) | torch.full | torch.full((), 1.0, device=device)
torch.tensor([x[0, 0], x[1, 1]]) | torch.stack | torch.stack([x[0, 0], x[1, 1]])
torch.where(mask, x, torch.tensor(0.0)) | a number of Python | torch.where(mask, x, 0.0)
"""
LINES = [line.split(" | ") for line in LINES.strip().splitlines()]
# what is of no use, of all operations that are named
NO_CURE = {NEVER, "every n steps", OPERATIONS["to the host"][""]}
if torch.__version__ >= (2, 15):  # since then the device checks
    NO_CURE.add(OPERATIONS["value"]["normal"])
    LINES = [line for line in LINES if "torch.normal" not in line[0]]


@pytest.mark.parametrize("waiting, advice, cured", LINES)
def test_the_cured_line_does_not_wait(waiting, advice, cured):
    report = find_waits(program(waiting, CPU))
    assert any(advice in wait.cure for wait in report.waits), report
    assert find_waits(program(cured, CPU)).waits == []


def test_every_cure_of_an_operation_is_tried():
    named = {advice for cures in OPERATIONS.values() for advice in cures.values()}
    tried = set()
    for waiting, _, _ in LINES:
        tried |= {wait.cure for wait in find_waits(program(waiting, CPU)).waits}
    assert named - NO_CURE == tried


def branches(x):
    if torch.isnan(x.sum()):  # a remark
        pass
    elif torch.equal(x, x + 1):
        pass
    while x.sum().item() < 0:
        pass
    assert x.sum() > 0
    return 1 if x.sum() > 0 else 2


def no_branches(x):
    n = 0
    if n == 0: x.sum().item()  # fmt: skip  # noqa: E701
    for _ in range(x.sum().int()):
        n += 1
    ifs = x.sum().item()
    if x[x > 0] is ifs:
        pass


def test_a_branch_has_a_cure_of_its_own():
    x = torch.ones(3)
    of_branches = find_waits(lambda: branches(x)).waits
    others = find_waits(lambda: no_branches(x)).waits
    assert [wait.cure for wait in of_branches] == [BRANCH] * 5
    assert len(others) == 4 and BRANCH not in {wait.cure for wait in others}
    assert find_waits(lambda: torch.where(x.isnan(), x, 0.0)).waits == []


def test_a_comparison_of_python_s_has_a_cure_of_its_own():
    """max() of a tensor reads once for each pair."""
    x = torch.arange(3.0)

    def step():
        max(x)
        print("", end="" if sorted(x) else ".")
        max(0, x.sum().item())
        float(x.max())
        f"{x.sum():.3f} {max(3, 4)}"

    waits = find_waits(step).waits
    assert [wait.cure == COMPARE for wait in waits] == [True, True] + [False] * 3
    assert find_waits(lambda: torch.max(x)).waits == []
    (wait,) = find_waits(lambda: max(x.tolist())).waits
    assert wait.times == 1


def test_a_wait_in_backward_names_the_line_that_made_it():
    x = nn.Parameter(torch.ones(3))
    source, mask = nn.Parameter(torch.ones(3)), torch.ones(3) > 0

    def step():
        y = x[torch.from_numpy(numpy.arange(2))] * 2
        z = x * 2
        z[torch.from_numpy(numpy.arange(2))] = y
        x.masked_scatter(mask, 2 * source).sum().backward()
        z.sum().backward()

    got, put, masked, *others = find_waits(step).waits
    size = OPERATIONS["size"][""]
    assert masked.cure == f"in the backward of a line further up: {size}"
    assert {wait.cure.partition(": ")[0] for wait in others} == {
        f"in the backward of {wait.where}" for wait in (got, put)
    }


WRAPPED = """
import torch
from device_lab import find_waits
net, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(net)
print(find_waits(lambda: model(x).sum().backward(), steps=3).waits)
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs it")
def test_waits_of_no_usual_step_are_none():
    """DistributedDataParallel builds its buckets anew in the second step of all."""
    # in a process of its own, as it changes much of PyTorch
    given, folder = [sys.executable, "-c", WRAPPED], Path(__file__).parents[1]
    shown = subprocess.check_output(given, text=True, cwd=folder)
    assert shown.splitlines()[-1] == "[]", shown


def encoder(cured):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model, x = (
        nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        torch.ones(1),
    )
    x, mask = torch.randn(2, 4, 8), nn.Transformer.generate_square_subsequent_mask(4)
    return lambda: model(x, mask, is_causal=True if cured else None)


def decoder(cured):
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 1)
    x, mask = torch.randn(4, 2, 8), nn.Transformer.generate_square_subsequent_mask(4)
    return lambda: model(x, x, mask, tgt_is_causal=True if cured else None)


def categorical(cured):
    logits, labels = torch.randn(4, 8), torch.arange(4)
    # torch.compile has switched the default off, if it was used in this process
    checks = not cured

    def step():
        given = torch.distributions.Categorical(logits=logits, validate_args=checks)
        given.log_prob(labels)

    return step


def clipped(cured):
    weight = torch.ones(3, requires_grad=True)
    options = {} if cured else {"error_if_nonfinite": True}

    def step():
        weight.grad = torch.ones_like(weight)
        nn.utils.clip_grad_norm_([weight], 1.0, **options)

    return step


def scaled(cured):
    model = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), fused=cured)
    scaler, x = torch.amp.GradScaler("cpu"), torch.ones(2, 3)

    def step():
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def anomaly(cured):
    model, x = nn.Linear(3, 3), torch.ones(2, 3)

    def step():
        with torch.autograd.set_detect_anomaly(not cured):
            model(x).sum().backward()

    return step


STEPS = {
    "is_causal=True": encoder,
    "tgt_is_causal": decoder,
    "validate_args=False": categorical,
    "without error_if_nonfinite": clipped,
    "fused=True": scaled,
    "set_detect_anomaly(False)": anomaly,
}


@pytest.mark.parametrize("advice", STEPS)
def test_the_cured_step_does_not_wait(advice):
    report = find_waits(STEPS[advice](cured=False))
    assert report.waits and all(advice in wait.cure for wait in report.waits), report
    assert all(wait.inside.startswith("torch/") for wait in report.waits) or (
        STEPS[advice] is anomaly
    )
    assert find_waits(STEPS[advice](cured=True)).waits == []


def test_what_is_called_every_n_steps_waits_less():
    model = nn.Linear(3, 3)
    average, taken = swa_utils.AveragedModel(model), iter(range(100))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))

    def step(every):
        if next(taken) % every == 0:
            average.update_parameters(model)
            scaler.get_scale()

    often = find_waits(lambda: step(1), steps=4).waits
    assert {wait.cure for wait in often} == {NEVER}
    seldom = find_waits(lambda: step(2), steps=4).waits
    total, less = (sum(wait.times for wait in waits) for waits in (often, seldom))
    assert less == total / 2 > 0


# Libraries that the tests do not install: what is called as theirs is called
FAKES = {
    "transformers/masking_utils.py": (
        "_ignore_causal_mask_sdpa",
        "bool(mask.all())",
        "give it a 4-D attention_mask",
    ),
    "transformers/trainer.py": (
        "_run_epoch",
        "nans = bool(mask.isnan().any())",
        "logging_nan_inf_filter=False",
    ),
    "accelerate/utils/operations.py": (
        "send_to_device",
        'host.to("cpu")',
        "non_blocking=True for DataLoaderConfiguration",
    ),
    "lightning/fabric/utilities/apply_func.py": (
        "to_item",
        "mask.any().item()",
        "prog_bar=False",
    ),
    "ema_pytorch/ema_pytorch.py": ("update", "mask.any().item()", "update_every"),
    "torchmetrics/functional/classification/stat_scores.py": (
        "_binary_stat_scores_tensor_validation",
        "mask.unique()",
        "validate_args=False",
    ),
    "torchmetrics/aggregation.py": ("update", "bool(nans.any())", "nan_strategy"),
    "torch_geometric/nn/pool/glob.py": (
        "pool",
        "mask.any().item()  # dim_size=size",
        "size=, the number of graphs",
    ),
    "torch_geometric/data/data.py": (
        "to",
        'host.to("cpu", non_blocking=non_blocking)',
        "non_blocking=True in the call",
    ),
    # no row
    "timm/read.py": ("update", "mask.any().item()", NEVER),
    "timm/sized.py": (
        "update",
        "mask.nonzero()",
        "for the library's line: torch.where(mask, a, b)",
    ),
    "timm/never.py": ("update", "mask.unique()", NEVER),
}


@pytest.mark.parametrize("path", FAKES)
def test_reads_of_other_libraries(path, tmp_path):
    name, code, advice = FAKES[path]
    file = tmp_path / "site-packages" / path
    file.parent.mkdir(parents=True)
    start = f"def {name}(mask, host):\n    nans, non_blocking = mask, False\n"
    file.write_text(f"{start}    {code}\n")
    spec = importlib.util.spec_from_file_location("fake", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mask, host = torch.ones(3) > 0, torch.from_numpy(torch.ones(3).numpy())

    def step():
        getattr(module, name)(mask, torch.from_numpy(host.numpy()))

    (wait,) = (wait for wait in find_waits(step).waits if wait.inside)
    assert advice in wait.cure and wait.inside == f"{path}:3  {code}"


def test_what_the_environment_needs_cannot_be_read_later():
    action, loss = torch.ones(2) + 1, torch.ones(2) + 1

    def step():
        actions = action.argmax(0).cpu().numpy()
        action_loss = loss.sum().item()
        return action[0].item(), action.argmax().item(), actions, action_loss

    cures = [wait.cure for wait in find_waits(step).waits]
    assert [cure == ACTION for cure in cures] == [True, False, True], cures


def test_what_is_pinned_is_not_to_be_pinned():
    cures = OPERATIONS["to the device"][""], LIBRARIES[".*non_blocking=non_blocking"]
    assert [pinned(cure) for cure in cures] == [
        "it is pinned: non_blocking=True; or make it there",
        "non_blocking=True in the call",
    ]


def test_what_no_cpu_can_try():
    """Tried on CUDA (cuda_waits.py): capturable; in transformers on Python 3.11."""
    call = "transformers/trainer.py _run_epoch: if ("
    advice = cure("bool", "value", Place("", "", "", (call,)))
    assert advice == "logging_nan_inf_filter=False"
    calls = "torch/optim/optimizer.py _get_value: x", "torch/optim/asgd.py asgd: x"
    assert cure("item", "value", Place("", "", "it", calls)) == "capturable=True"
    within = Place("", "", "it", ("torch/optim/_adafactor.py: x",))
    assert cure("item", "value", within) == NEVER


def test_patterns_are_patterns():
    assert all(re.compile(pattern) for pattern in LIBRARIES)
