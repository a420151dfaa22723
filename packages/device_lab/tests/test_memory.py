"""rehearse counts as a GPU does, peak what a step holds; what both say."""

import dataclasses
import functools
import gc
import types
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from device_lab import LabError, peak, rehearse
from device_lab._kit import memory
from device_lab._kit._cuda_rules import WHOLE, AsCuda
from device_lab._kit.trace import trace_events

MIB = 2**20


def linear(optimizer=torch.optim.AdamW, zero="first", **options):
    """A layer of 4 MiB, 8 samples: everything but weights is small."""

    def make():
        model = nn.Linear(1024, 1024, bias=False, device="cuda")
        steps = optimizer(model.parameters(), lr=0.1, **options)
        x = torch.randn(8, 1024, device="cuda")

        def step():
            if zero == "first":
                steps.zero_grad()
            loss = model(x).square().mean()
            if zero == "between":
                steps.zero_grad()
            loss.backward()
            steps.step()

        return step

    return make


@pytest.mark.parametrize(
    ("optimizer", "options", "mib"),
    [
        ("SGD", {}, 4 + 4),
        ("SGD", {"momentum": 0.9}, 4 + 4 + 4),
        ("AdamW", {}, 4 + 4 + 8 + 4),  # foreach by default: one copy of the parameters
        ("AdamW", {"fused": True}, 4 + 4 + 8),
    ],
)
def test_parameters_gradients_state_and_the_optimizer_s_temporaries(
    optimizer, options, mib
):
    need = rehearse(linear(getattr(torch.optim, optimizer), **options))
    assert need.peak / MIB == pytest.approx(mib, abs=0.2)
    assert sum(need.kinds.values()) == need.peak and not need.grows
    assert need.kinds["gradients"] == need.kinds["parameters"] == 4 * MIB
    copies = optimizer == "AdamW" and not options
    assert (need.phase == "the optimizer step") == copies
    assert any("fused" in way for way in need.lower) == copies


def test_without_lower_make_runs_once():
    made, make = [], linear()
    need = rehearse(lambda: made.append(1) or make(), lower=False)
    assert len(made) == 1 and need.lower is None
    assert need.peak == rehearse(make).peak and "changes tried" not in str(need)


def stack(layer):
    """Activations of 16 MiB each."""

    def make():
        pairs = [each for _ in range(4) for each in (layer(), nn.Linear(1024, 1024))]
        model, x = nn.Sequential(*pairs), torch.randn(4096, 1024)

        def step():
            model(x).sum().backward()
            model.zero_grad()

        return step

    return rehearse(make, lower=False)


def test_what_only_the_cpu_takes_apart_counts_as_one_operation():
    """RMSNorm, SiLU and Mish have a kernel on CUDA: they keep no more than others."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    before = [has(f"aten::{name}", "CUDA") for name in WHOLE]
    functions, norms = (nn.GELU, nn.SiLU, nn.Mish), (nn.LayerNorm, nn.RMSNorm)
    for kind in (functions, [functools.partial(norm, 1024) for norm in norms]):
        usual, *others = [stack(layer).peak for layer in kind]
        assert others == [pytest.approx(usual, rel=0.01)] * len(others)
    # no kernel that raises is left behind
    assert [has(f"aten::{name}", "CUDA") for name in WHOLE] == before


def test_what_cudnn_keeps_for_recurrent_layers_is_said_not_to_be_counted():
    def make():
        model, x = nn.GRU(8, 8), torch.ones(2, 2, 8)
        return lambda: model(x)[0].sum().backward()

    need = rehearse(make, lower=False)
    assert need.recurrent and "recurrent layers is not counted" in str(need)
    assert "recurrent" not in str(rehearse(linear(), lower=False))


def test_gradients_that_live_through_forward_are_named():
    need = rehearse(linear(zero="between", fused=True))
    assert "gradients" in need.kinds
    assert rehearse(linear(zero="never")).peak >= need.peak


class Block(nn.Module):
    """That of lesson 07."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = (
            nn.Linear(hidden, 4 * hidden),
            nn.Linear(4 * hidden, hidden),
        )

    def attention(self, x):
        b, s, h = x.shape
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = [y.view(b, s, self.heads, -1).transpose(1, 2) for y in parts]
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(b, s, h))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def blocks(sequence, batch, hidden=1024, heads=16):
    def make():
        model = nn.Sequential(*[Block(hidden, heads) for _ in range(4)])
        optimizer = torch.optim.AdamW(model.parameters())

        def forward():
            return model(torch.randn(batch, sequence, hidden)).sum()

        def step():
            optimizer.zero_grad()
            forward().backward()
            optimizer.step()

        return step

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sequence", "batch", "measured", "best"),
    [(1024, 8, 2_939_274_240, "checkpoint"), (64, 1, 1_007_698_432, "fused")],
)
def test_an_h100_measured_the_same(sequence, batch, measured, best):
    """memory_forecast in notebooks/recorded/nvidia-h100-80gb-hbm3/07_memory.json."""
    need = rehearse(blocks(sequence, batch))
    assert need.peak == pytest.approx(measured, rel=1e-4)
    assert best in next(iter(need.lower)), need.lower
    lines = str(need).splitlines()
    assert len(lines) <= 10 and max(map(len, lines)) <= 88


def test_a_step_may_ask_for_values_and_devices_and_casts_to_half():
    def make():
        model = blocks(32, 1, 64, 4)
        device = "cuda" if torch.cuda.is_available() else "mps"
        net = nn.Sequential(Block(64, 4), nn.Dropout(0.1)).to(device)
        scaler = torch.amp.GradScaler("cuda")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net, seen = torch.compile(net), []
        del model

        def step():
            x = torch.tensor([[1.0] * 64] * 2, device=device).cuda()[None]
            with torch.autocast(x.device.type, torch.float16):
                loss = net(x).float().sum()
            if loss > 1 or loss.isnan():
                raise ValueError
            with torch.inference_mode():
                accuracy = (x > 0).float().mean()
            seen.append(accuracy.item())
            seen.append(loss.item())
            seen.append(x.cpu().numpy().sum() + loss.detach().numpy())
            if torch.equal(x, x + 1) or torch.allclose(x, loss):
                raise ValueError
            scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()

        return step

    need = rehearse(make)
    assert need.peak > 0 and not any("autocast" in way for way in need.lower)


def test_a_model_with_buffers_may_be_copied():
    def make():
        model = nn.Sequential(nn.Linear(1024, 1024), nn.BatchNorm1d(1024))
        average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)

        def step():
            model(torch.ones(8, 1024)).sum().backward()
            model.zero_grad()
            average.update_parameters(model)

        return step

    assert rehearse(make, lower=False).before / MIB == pytest.approx(8, abs=0.1)


def test_within_as_cuda_the_rules_are_cuda_s_and_afterwards_none_is_left():
    def names():
        x = torch.randn(1, 4, 32, 64, requires_grad=True)
        y = F.scaled_dot_product_attention(x, x, x)
        return type(y.grad_fn).__name__, type(F.dropout(x).grad_fn).__name__

    before, made = names(), torch.Tensor._make_subclass
    known = weakref.ref(names)
    with AsCuda():
        assert weakref.getweakrefs(names) == [known]  # of the process nothing changes
        attention, dropout = names()
        assert "EfficientAttention" in attention and "NativeDropout" in dropout
        x, layer = torch.randn(2, 64, requires_grad=True), nn.Linear(64, 64)
        with torch.autocast("cuda", torch.bfloat16):
            y = layer(x)
            assert y.dtype == torch.bfloat16
            assert F.layer_norm(y, (64,)).dtype == F.softmax(y, 1).dtype == x.dtype
            assert (y + x).dtype == x.dtype and torch.cat([y, x]).dtype == x.dtype
    with pytest.raises(ZeroDivisionError):
        rehearse(lambda: nn.Linear(2, 2) and (lambda: 1 / 0))
    assert names() == before and torch.Tensor._make_subclass is made
    assert torch.utils.weakref is weakref
    with torch.autocast("cpu", torch.bfloat16):
        assert nn.Linear(2, 2)(torch.ones(2, 2)).dtype == torch.bfloat16


def test_what_cannot_be_rehearsed_is_said_in_one_line():
    with pytest.raises(LabError, match="this returned a Linear"):
        rehearse(lambda: nn.Linear(2, 2))
    outside = nn.Linear(2, 2)
    with pytest.raises(LabError, match="build the model"):
        rehearse(lambda: lambda: outside(torch.ones(2)))

    def make():
        model = nn.Linear(512, 512)
        return lambda: model(torch.ones(512)).nonzero()

    for build in (make, lambda: make()()):
        with pytest.raises(LabError, match=r"nonzero.*values"):
            rehearse(build)
    for wrong in (None, outside):
        with pytest.raises(LabError, match="returns the function.*this is "):
            rehearse(wrong)


@pytest.mark.parametrize("batches", [0, 1])
def test_batches_that_end_are_said_in_one_line(batches):
    model = nn.Linear(2, 2)
    given = iter([torch.ones(2)] * batches)
    with pytest.raises(LabError, match="ended too early: peak takes"):
        peak(lambda: model(next(given)), "cpu")

    def make():
        model, given = nn.Linear(2, 2), iter([torch.ones(2)] * batches)
        return lambda: model(next(given)).sum().backward()

    with pytest.raises(
        LabError, match="ended too early: rehearse takes the step twice"
    ):
        rehearse(make)


def profiled(step):
    """Bytes that a step needs at its highest, as the profiler counts them."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        step()
    more = highest = 0
    for event in trace_events(prof):
        if event["name"] == "[memory]":
            more += event["args"]["Bytes"]
            highest = max(highest, more)
    return highest


def test_peak_on_the_cpu_against_the_profiler():
    net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(net.parameters())
    x = torch.randn(512, 256)

    def step():
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    held = peak(step, "cpu")
    assert held.highest - held.before == pytest.approx(profiled(step), rel=0.02)
    assert held.before == held.after and held.grows == 0
    weights = 3 * 4 * sum(p.numel() for p in net.parameters())
    assert held.before == pytest.approx(weights + x.nbytes, rel=0.001)
    assert held.largest[0] == MIB and "test_memory.py" in held.largest[1]
    assert max(map(len, str(held).splitlines())) <= 88


class Sum(torch.autograd.Function):
    """Its backward pass makes a sum of its own."""

    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(1024, 1024) * 2 + grad.expand(1024, 1024) * 3


def branches(x):
    return (x * 2).sum() + (x * 3).sum() + (x * 4).sum()


def kept(x):
    """What a hook keeps nobody writes into."""
    x.register_hook(lambda grad: x.seen.append(grad * 2 + grad * 3))
    y = x * 2
    x.seen = []
    y.register_hook(x.seen.append)
    return branches(y)


SUMS = {  # of x, whose gradients need more than the forward pass
    "in place": branches,
    "twice": lambda x: (y := x * 2).sum() + (y + y).sum(),
    "expanded": lambda x: x.mean() + x.sum() + (x * 2).sum(),
    "views": lambda x: (x.t() * 2).sum() + (x.t() * 3).sum(),
    "transposed": lambda x: ((y := x * 2) + y.t()).sum(),
    "parts": lambda x: sum((part * 2).sum() for part in x.chunk(4)),
    "two layers": lambda x: sum(F.linear(torch.ones(2, 1024), x).sum() for _ in "ab"),
    "kept": kept,
    "Function": Sum.apply,
    "reentrant": lambda x: checkpoint(branches, x, use_reentrant=True) + x.sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_gradients_are_summed_in_place_where_autograd_does_so(name):
    weight = torch.ones(1024, 1024, requires_grad=True)

    def step():
        x = weight * 1
        loss = SUMS[name](x)
        del x
        loss.backward()
        weight.grad = None

    held = peak(step, "cpu")
    assert held.highest - held.before == pytest.approx(profiled(step), rel=0.002)


def test_a_leak_is_told_from_a_cache_that_is_filled_once():
    kept, once = [], {}

    def leak():
        kept.append(torch.ones(MIB // 4))

    def fill():
        once.setdefault("x", torch.ones(MIB)).add_(1)

    held = peak(leak, "cpu")
    assert held.grows == MIB and "leaves 1 MiB behind" in str(held)
    assert peak(fill, "cpu").grows == 0


class Trainer:
    """A cycle, which only a full collection frees: nothing younger does."""

    def __init__(self):
        self.me, layer = self, nn.Linear(512, 512)
        self.optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
        layer(torch.ones(1, 512)).sum().backward()
        self.optimizer.step()
        gc.collect(0)
        gc.collect(1)


def test_batches_that_were_made_ahead_are_no_leak():
    """Each is seen when it is used first."""
    batches = iter([torch.ones(1000) for _ in range(8)])
    kept = []
    assert peak(lambda: next(batches).sum() + 1, "cpu").grows == 0
    fresh = peak(lambda: kept.append(torch.from_numpy(np.ones(1000)) + 1), "cpu")
    assert fresh.grows == 8000  # nothing that a step makes is taken for one of them


def test_a_trainer_that_counts_its_steps_is_not_measured_at_rest():
    left = [1, 2]

    def train():
        while left and left.pop():
            nn.Linear(4, 4)(torch.ones(2, 4)).sum().backward()

    with pytest.raises(LabError, match="a further call trained nothing"):
        peak(train, "cpu")


def test_cycles_that_wait_for_a_full_collection_are_no_leak():
    assert peak(Trainer, "cpu").grows == 0
    assert rehearse(lambda: Trainer() and Trainer, lower=False).grows == 0


def test_a_view_is_no_new_tensor():
    weight = torch.ones(1024, 1024)
    held = peak(lambda: torch.ones(2, 1024) @ weight.t(), "cpu")
    assert held.largest[0] == 2 * 1024 * 4, held
    assert "new tensor" not in str(peak(lambda: weight.add_(1), "cpu"))


def test_bad_input_of_peak():
    for wrong in (None, nn.Linear(2, 2)):
        with pytest.raises(LabError, match="function that does one step"):
            peak(wrong)
    with pytest.raises(LabError, match="no lazy device here"):
        peak(print, "lazy")
    with pytest.raises(ZeroDivisionError):
        peak(lambda: 1 / 0, "cpu")
    with pytest.raises(LabError, match="not on XLA"):
        peak(print, "xla")


def test_copied_modules_are_parameters_too():
    """nn.TransformerEncoder copies its layer, which tells no hook of it."""

    def make():
        layer = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        x, optimizer = torch.randn(4, 8, 32), torch.optim.SGD(model.parameters(), 0.1)
        sizes.append(sum(p.numel() for p in model.parameters()))

        def step():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return step

    sizes = []
    kinds = rehearse(make, lower=False).kinds
    assert kinds["parameters"] >= 4 * sizes[0]


GIB = 2**30
# What machines whose GPU shares the CPU's memory have said, in GiB, from public
# reports: none of these was at hand here.
# NVIDIA GB10, DGX Spark, after a file of 60 GiB was written: github.com/unslothai/
# unsloth, pull 10704 of 2026-09-10; its total: issue 6757.
# NVIDIA N1X: pull 10283 of 2026-09-04; the host had 39 available. On Windows there is
# no /proc/meminfo; in WSL it is the virtual machine's.
SHARED = {
    "GB10": (
        (41.52, 121.69),
        "MemFree: 43537203 kB\nMemAvailable: 121267814 kB",
        115.65,
    ),
    "N1X, WSL": ((45.21, 45.39), "MemAvailable: 40894464 kB", 39.0),
    "N1X, Windows": ((45.21, 45.39), None, 45.21),
}


def a_gpu(monkeypatch, info, integrated, cuda="13.0"):
    def mem_get_info(device):
        if info is None:
            raise RuntimeError("doesn't support querying the available free memory")
        return tuple(int(each * GIB) for each in info)

    kind = types.SimpleNamespace(
        mem_get_info=mem_get_info,
        get_device_properties=lambda device: types.SimpleNamespace(
            is_integrated=integrated
        ),
    )
    monkeypatch.setattr(torch, "cuda", kind)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda device: 3 * GIB)
    monkeypatch.setattr(torch.accelerator, "memory_allocated", lambda device: GIB)


@pytest.mark.parametrize("machine", SHARED)
def test_room_where_a_cuda_gpu_shares_the_memory(machine, monkeypatch, tmp_path):
    """Linux's file cache is no memory that is missing. 2 GiB are in free blocks."""
    info, meminfo, gib = SHARED[machine]
    a_gpu(monkeypatch, info, integrated=1)
    file = tmp_path / "meminfo"
    if meminfo:
        file.write_text(meminfo)
    room, shared = memory._room(torch.device("cuda"), file)
    assert shared and room / GIB == pytest.approx(gib + 2, abs=0.01)


@pytest.mark.parametrize(
    ("integrated", "cuda"),
    # AMD's graphics in a processor: its firmware sets a part of the memory aside
    [(0, "13.0"), (1, None)],
)
def test_room_where_the_gpu_has_memory_of_its_own(
    integrated, cuda, monkeypatch, tmp_path
):
    a_gpu(monkeypatch, (70, 80), integrated, cuda)
    file = tmp_path / "meminfo"
    file.write_text("MemAvailable: 1 kB")
    assert memory._room(torch.device("cuda"), file) == (72 * GIB, False)


def test_room_on_a_mac(monkeypatch):
    """An M5 Pro with 48 GB: dev.to/nefayran/mps-backend-out-of-memory-on-a-mac-… of
    2026. 37.44 GiB are recommended, tensors hold 18.50; the cache is made up.
    """
    for name, gib in {
        "recommended_max_memory": 37.44,
        "current_allocated_memory": 18.5,
        "driver_allocated_memory": 30,
    }.items():
        monkeypatch.setattr(torch.mps, name, lambda gib=gib: int(gib * GIB))
    room, shared = memory._room(torch.device("mps"))
    assert shared and room / GIB == pytest.approx(18.94, abs=0.01)


def test_room_where_nothing_tells(monkeypatch):
    """Intel's integrated graphics: pytorch/pytorch, pull 194487 of 2026-08."""
    a_gpu(monkeypatch, None, integrated=1)
    assert memory._room(torch.device("cuda")) == (None, True)
    assert memory._room(torch.device("cpu")) == (None, False)


def test_peak_says_that_the_memory_is_shared():
    found = peak(lambda: torch.ones(1024) * 2, "cpu")
    shared = dataclasses.replace(found, room=3 * GIB, shared=True)
    assert "3 GiB more would fit; CPU and GPU share this memory." in str(shared)
    assert "would fit" not in str(found)
    over = dataclasses.replace(found, room=-GIB)
    assert "\n0 bytes more would fit.\n" in str(over), over
