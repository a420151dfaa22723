"""Does the emulated device behave as a GPU does?

    python -m emulated_cuda.run --gpus 2 python -m pytest tests/checks.py

Not named test_*.py: without the emulator there is nothing to test.
"""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from emulated_cuda import run

MIB = 2**20
GPU = torch.device("cuda")

if "libemulator" not in os.environ.get("LD_PRELOAD", ""):
    pytest.exit(
        "no emulated device here: python -m emulated_cuda.run --gpus 2 python -m"
        " pytest tests/checks.py",
        2,
    )


@pytest.fixture(autouse=True)
def nothing_left():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    yield
    torch.cuda.synchronize()


def program(source, gpu="T4", gpus=1, gib=None, **variables):
    """What a program prints that runs in a process of its own, above other emulated
    GPUs; and its standard error.
    """
    emulated = run.environment(gpu, gpus, gib)
    options = {"env": {**os.environ, **emulated, **variables}, "timeout": 120}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return done.stdout, done.stderr


def close(got, expected, tolerance=2e-5):
    assert got.is_cuda and got.dtype == expected.dtype and got.shape == expected.shape
    assert got.stride() == expected.stride() or got.is_contiguous()
    options = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    torch.testing.assert_close(got.cpu(), expected, **options)


# --------------------------------------------------------------------------------------
# Memory: PyTorch's allocator on a device that rounds up to 2 MiB. Source of the
# figures: PyTorch's CUDACachingAllocator: kMinBlockSize 512 B, kSmallBuffer 2,
# kLargeBuffer 20, kMinLargeAlloc 10 and kRoundLarge 2 MiB.


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (9 * MIB, 9 * MIB, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),
        (30 * MIB - 1, 30 * MIB, 30 * MIB),
    ],
)
def test_allocator_rounds_as_it_does_on_a_gpu(size, allocated, reserved):
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    x = torch.empty(size, dtype=torch.uint8, device=GPU)
    assert torch.cuda.memory_allocated() - before[0] == allocated
    assert torch.cuda.memory_reserved() - before[1] == reserved
    del x
    assert torch.cuda.memory_allocated() == before[0]
    assert torch.cuda.memory_reserved() - before[1] == reserved
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before[1]


def test_peak_and_driver_see_the_segments():
    free, total = torch.cuda.mem_get_info()
    assert total == int(14.56 * 2**30)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    x = torch.empty(64 * MIB, dtype=torch.uint8, device=GPU)
    assert torch.cuda.mem_get_info()[0] == free - 64 * MIB
    del x
    assert torch.cuda.max_memory_allocated() == before + 64 * MIB


def test_memory_ends_at_the_configured_size():
    source = """
import torch
kept = torch.empty(700 * 2**20, dtype=torch.uint8, device="cuda")
try:
    torch.empty(400 * 2**20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(error)
del kept
print(torch.empty(900 * 2**20, dtype=torch.uint8, device="cuda").numel())
"""
    out, err = program(source, gib=1)
    assert "CUDA out of memory. Tried to allocate 400.00 MiB." in out, err
    assert "GPU 0 has a total capacity of 1024.00 MiB" in out
    assert out.splitlines()[-1] == str(900 * MIB)


def test_segments_can_expand():
    source = """
import torch
MIB = 2**20
first, second = (torch.ones(40 * MIB, dtype=torch.int8, device="cuda") for _ in "ab")
print(torch.cuda.memory_reserved() // MIB)
del first, second
joined = torch.ones(80 * MIB, dtype=torch.int8, device="cuda")
print(torch.cuda.memory_reserved() // MIB, (joined == 1).all().item())
del joined
torch.cuda.empty_cache()
print(torch.cuda.memory_reserved() // MIB)
"""
    options = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    out, err = program(source, **options)
    assert out == "80\n80 True\n0\n", err


# --------------------------------------------------------------------------------------
# Values: those of the CPU


def made(shape=(6, 5), seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


GALLERY = {
    "add": lambda x, y: x + y,
    "add a number": lambda x, y: 2 - x,
    "mixed types": lambda x, y: x * y.int(),
    "compare": lambda x, y: (x > y) & ~(x == 0),
    "where": lambda x, y: torch.where(x > 0, x, y),
    "exp": lambda x, y: x.exp(),
    "pow": lambda x, y: x.abs().pow(1.5),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "in place": lambda x, y: x.clone().mul_(y).add_(1),
    "out": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "transposed": lambda x, y: x.t().contiguous() + y.t(),
    "expand": lambda x, y: x[:, :1].expand(6, 5) * y,
    "matmul": lambda x, y: x @ y.t(),
    "addmm": lambda x, y: torch.addmm(y, x @ y.t(), x),
    "bmm": lambda x, y: torch.bmm(x[None], y.t()[None]),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "sum": lambda x, y: x.sum(),
    "mean": lambda x, y: x.mean(1),
    "var": lambda x, y: x.var(0),
    "norm": lambda x, y: torch.linalg.vector_norm(x, dim=1),
    "max": lambda x, y: x.max(1).values,
    "argmax": lambda x, y: x.argmax(1),
    "amin": lambda x, y: x.amin((0, 1)),
    "cumsum": lambda x, y: x.cumsum(1),
    "sort": lambda x, y: x.sort(1, descending=True).values,
    "topk": lambda x, y: x.topk(2, 1).values,
    "unique": lambda x, y: (x * 3).int().unique(),
    "nonzero": lambda x, y: (x > 0).nonzero(),
    "mask": lambda x, y: x[x > 0],
    "index": lambda x, y: x[torch.tensor([0, 3], device=x.device)],
    "index put": lambda x, y: x.clone().index_put_(
        (torch.tensor([1, 2], device=x.device),), y[:2]
    ),
    "gather": lambda x, y: x.gather(
        1, torch.tensor([[0], [1], [2], [3], [4], [0]], device=x.device)
    ),
    "scatter add": lambda x, y: x.clone().scatter_add_(
        1, torch.zeros(6, 5, dtype=torch.long, device=x.device), y
    ),
    "masked fill": lambda x, y: x.masked_fill(y > 0, -1.0),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x, y]),
    "split": lambda x, y: torch.cat(x.split(2)[::-1]),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "repeat": lambda x, y: x.repeat(2, 1),
    "repeat interleave": lambda x, y: x.repeat_interleave(2, 0),
    "arange": lambda x, y: torch.arange(7, device=x.device),
    "linspace": lambda x, y: torch.linspace(0, 1, 9, device=x.device),
    "tril": lambda x, y: torch.ones(4, 4, device=x.device).tril(),
    "one hot": lambda x, y: F.one_hot(torch.tensor([0, 2], device=x.device)),
    "embedding": lambda x, y: F.embedding(torch.tensor([[0, 5]], device=x.device), x),
    "softmax": lambda x, y: x.softmax(1),
    "cross entropy": lambda x, y: F.cross_entropy(
        x, torch.arange(6, device=x.device) % 5
    ),
    "mse": lambda x, y: F.mse_loss(x, y),
    "gelu": lambda x, y: F.gelu(x),
    "layer norm": lambda x, y: F.layer_norm(x, (5,)),
    "batch norm": lambda x, y: F.batch_norm(
        x, torch.zeros(5, device=x.device), torch.ones(5, device=x.device)
    ),
    "conv1d": lambda x, y: F.conv1d(x[None], y.t()[:, :, None].repeat(1, 1, 3)),
    "conv2d": lambda x, y: F.conv2d(x[None, None], y[None, None, :3, :3], padding=1),
    "pool": lambda x, y: F.max_pool2d(x[None, None], 2),
    "interpolate": lambda x, y: F.interpolate(
        x[None, None], scale_factor=2, mode="bilinear", align_corners=False
    ),
    "grid sample": lambda x, y: F.grid_sample(
        x[None, None], y[None, :, :2].tanh()[None].view(1, 6, 1, 2), align_corners=True
    ),
    "is in": lambda x, y: torch.isin(x.mul(9).int(), y.mul(9).int()),
    "outer products": lambda x, y: torch.bmm(
        x.view(-1, 1).expand(-1, 64)[:, :, None], y.view(-1, 1).expand(-1, 64)[:, None]
    ),
    "attention": lambda x, y: F.scaled_dot_product_attention(
        x[None, None], y[None, None], y[None, None]
    ),
    "causal attention": lambda x, y: F.scaled_dot_product_attention(
        x[None, None], y[None, None], y[None, None], is_causal=True
    ),
    "solve": lambda x, y: torch.linalg.solve(
        x.t() @ x + torch.eye(5, device=x.device), y[0]
    ),
    "svdvals": lambda x, y: torch.linalg.svdvals(x),
    "fft": lambda x, y: torch.fft.rfft(x).abs(),
    "complex": lambda x, y: torch.view_as_real(torch.complex(x, y) * 1j),
    "double": lambda x, y: x.double() @ y.double().t(),
    "foreach": lambda x, y: torch._foreach_add([x, y], 1.0)[1],
}


@pytest.mark.parametrize("name", GALLERY)
def test_operators_have_the_values_of_the_cpu(name):
    x, y = made(), made(seed=1)
    close(GALLERY[name](x.to(GPU), y.to(GPU)), GALLERY[name](x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_16_bits_are_summed_in_32(dtype):
    x, y = made((64, 512), dtype=dtype), made((512, 64), 1, dtype)
    expected = (x.float() @ y.float()).to(dtype)
    close(x.to(GPU) @ y.to(GPU), expected, 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_with_a_type_of_16_bits(dtype):
    x = made((6, 5), dtype=dtype)
    for function in (torch.sum, torch.mean, torch.linalg.vector_norm):
        expected = function(x.float(), dim=1).to(dtype)
        close(function(x.to(GPU), dim=1, dtype=dtype), expected)


def trained(device, **options):
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, 16),
        nn.LayerNorm(16),
    ]
    model = nn.Sequential(*layers, nn.GELU(), nn.Linear(16, 10)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, **options)
    x, y = made((16, 3, 8, 8)).to(device), (torch.arange(16) % 10).to(device)
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}], ids=str)
def test_training_ends_where_it_ends_on_the_cpu(options):
    assert trained(GPU, **options) == pytest.approx(trained("cpu"), rel=1e-4)


RECURRENT = {
    "lstm": lambda: nn.LSTM(5, 7, 2, bidirectional=True),
    "gru": lambda: nn.GRU(5, 7, 2),
    "rnn": lambda: nn.RNN(5, 7),
    "encoder": lambda: nn.TransformerEncoderLayer(5, 1, 8, 0.0, batch_first=True),
}


def output_and_gradients(module, x):
    found = module(x)
    y = found[0] if isinstance(found, tuple) else found
    (y**2).sum().backward()
    return [y.detach(), *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("name", RECURRENT)
def test_layers_of_many_steps_have_the_values_of_the_cpu(name):
    torch.manual_seed(0)
    module, x = RECURRENT[name](), made((4, 3, 5))
    expected = output_and_gradients(module, x)
    module.zero_grad()
    found = output_and_gradients(module.to(GPU), x.to(GPU))
    for got, of_cpu in zip(found, expected, strict=True):
        close(got, of_cpu)
    with torch.no_grad():  # where PyTorch would take a faster way
        module(x.to(GPU))
        with torch.autocast("cuda"):
            module(x.to(GPU))
        module.eval()(x.to(GPU))


def test_recurrent_layers_in_a_graph_read_their_inputs_anew():
    module, x = nn.LSTM(4, 4).to(GPU), made((3, 2, 4)).to(GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        module(x)
        with torch.cuda.graph(graph):
            y, _ = module(x)
        x.mul_(2)
        graph.replay()
        close(y, module(x)[0].cpu())


def test_scripted_and_compiled_functions_compute():
    def function(x):
        return (x * x + 1).relu().sigmoid()

    x = made().to(GPU)
    scripted = torch.jit.trace(function, x)
    for _ in range(4):  # the third call is the first that a fuser would compile
        close(scripted(x), function(x).cpu())
    count = torch.compile(lambda n: torch.arange(n, device=GPU) * 2)
    close(count(3), torch.tensor([0, 2, 4]))


# The same for sparse tensors: s is one with two elements in one place, x a dense one.
SPARSE = {
    "dense": lambda s, x: s.to_dense(),
    "coalesced": lambda s, x: s.coalesce().values(),
    "transposed": lambda s, x: s.t().coalesce().indices(),
    "times dense": lambda s, x: s @ x,
    "times vector": lambda s, x: s @ x[0],
    "times sparse": lambda s, x: (s @ s.t()).to_dense(),
    "plus sparse": lambda s, x: (s + 2 * s).to_dense(),
    "dense plus sparse": lambda s, x: x.t().clone().add_(s),
    "sum": lambda s, x: torch.sparse.sum(s, 1).to_dense(),
    "softmax": lambda s, x: torch.sparse.softmax(s, 1).to_dense(),
    "from dense": lambda s, x: x.relu().to_sparse().to_dense(),
    "csr": lambda s, x: s.to_sparse_csr().col_indices(),
    "csr times dense": lambda s, x: s.to_sparse_csr() @ x,
    "csr from dense": lambda s, x: x.relu().to_sparse_csr().to_dense(),
}


def sparse():
    indices = torch.tensor([[0, 1, 3, 3, 1], [1, 0, 2, 0, 0]])
    return torch.sparse_coo_tensor(indices, made((5,)), (6, 6), check_invariants=True)


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors_have_the_values_of_the_cpu(name):
    s, x = sparse(), made((6, 6), 1)
    close(SPARSE[name](s.to(GPU), x.to(GPU)), SPARSE[name](s, x))


def test_sparse_gradients_train_as_on_the_cpu():
    def weights(device):
        torch.manual_seed(0)
        table = nn.Embedding(9, 4, sparse=True).to(device)
        matrix = sparse().to(device).requires_grad_()
        optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)
        torch.sparse.mm(matrix, table(torch.arange(6, device=device))).sum().backward()
        optimizer.step()
        return table.weight.detach(), matrix.grad.to_dense()

    for got, expected in zip(weights(GPU), weights("cpu"), strict=True):
        close(got, expected)


def test_attention_drops_the_same_elements_forward_and_backward():
    q, k = (made((2, 3, 8, 16), seed).to(GPU).requires_grad_() for seed in (0, 1))
    v = torch.eye(8, device=GPU).expand(2, 3, 8, 8).clone().requires_grad_()
    v = F.pad(v, (0, 8))  # so the result is the probabilities that are left
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        probabilities = F.scaled_dot_product_attention(q, k, v)
    results = []
    for seed in (1, 1, 0):
        torch.manual_seed(seed)
        left = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        results.append(left)
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], left)
    kept = 2.0 * (left != 0)
    assert 0.7 < kept[..., :8].mean().item() < 1.3
    close(left.contiguous(), (probabilities * kept).cpu())
    weight = made(left.shape, 2).to(GPU)
    got = torch.autograd.grad((left * weight).sum(), [q, k], retain_graph=True)
    expected = torch.autograd.grad((probabilities * kept * weight).sum(), [q, k])
    for found, of_math in zip(got, expected, strict=True):
        close(found.contiguous(), of_math.cpu())


def test_two_halves_of_a_batch_are_normalized_as_the_whole():
    """What nn.SyncBatchNorm does in two processes."""
    x, dy, weight, bias = made((8, 3, 4)), made((8, 3, 4), 1), made((3,)), made((3,), 2)
    whole = x.clone().requires_grad_(), weight.clone().requires_grad_()
    y = F.batch_norm(whole[0], None, None, whole[1], bias, training=True)
    y.backward(dy)
    x, dy, weight, bias = x.to(GPU), dy.to(GPU), weight.to(GPU), bias.to(GPU)
    parts = list(zip(x.split(4), dy.split(4), strict=True))
    stats = [torch.batch_norm_stats(part, 1e-5) for part, _ in parts]
    counts = torch.full((2,), 16.0, device=GPU)
    mean, deviation = torch.batch_norm_gather_stats_with_counts(
        x, *map(torch.stack, zip(*stats, strict=True)), None, None, 0.1, 1e-5, counts
    )
    same = weight, bias, mean, deviation, 1e-5
    close(torch.cat([torch.batch_norm_elemt(part, *same) for part, _ in parts]), y)
    same = mean, deviation, weight
    sums = [
        torch.batch_norm_backward_reduce(d, part, *same, True, True, True)
        for part, d in parts
    ]
    close(sums[0][2] + sums[1][2], whole[1].grad, 1e-4)
    sums = [a + b for a, b in zip(*sums, strict=True)][:2]
    dx = [
        torch.batch_norm_backward_elemt(d, part, *same, *sums, counts.int())
        for part, d in parts
    ]
    close(torch.cat(dx), whole[0].grad, 1e-4)


def test_random_numbers_follow_the_seed():
    torch.manual_seed(3)
    first, second = torch.rand(5, device=GPU), torch.rand(5, device=GPU)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(5, device=GPU), first)
    assert not torch.equal(first, second)


# --------------------------------------------------------------------------------------
# Errors: PyTorch's own


def ones(*shape):
    return torch.ones(*shape, device=GPU)


SAME = "Expected all tensors to be on the same"


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda: ones(2) + torch.ones(2), f"{SAME} device, but found"),
        (lambda: F.linear(ones(1, 2), torch.ones(2, 2)), SAME),
        (lambda: F.embedding(torch.tensor([1]), ones(3, 3)), SAME),
        (lambda: torch.cat([ones(3), torch.ones(3)]), SAME),
        (lambda: ones(2).numpy(), "can't convert cuda:0 device type tensor to numpy"),
        # With one thread of the CPU a smaller batch has another message.
        (lambda: nn.Conv2d(3, 3, 1).to(GPU)(torch.ones(32, 3, 4, 4)), "be the same"),
        (lambda: torch.ones(1, device="cuda:7"), "invalid device ordinal"),
        (lambda: sparse().to(GPU) @ torch.ones(6, 2), SAME),
        (lambda: ones(2, 3) @ ones(2, 3), "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_mistakes_get_the_messages_of_pytorch(mistake, words):
    with pytest.raises((RuntimeError, TypeError), match=words):
        mistake()


INDEX = """
import torch
x = torch.arange(3.0, device="cuda")
y = x[torch.tensor([7], device="cuda")]
n = sum(range(100))
print(y)
"""


@pytest.mark.parametrize(("blocking", "line"), [("0", 6), ("1", 4)])
def test_an_index_out_of_range_is_found_at_the_next_wait(blocking, line):
    out, err = program(INDEX, CUDA_LAUNCH_BLOCKING=blocking, PYTHON_COLORS="0")
    assert f"line {line}, in <module>" in err and out == ""
    assert "device-side assert triggered" in err and "index out of bounds" in err


def test_an_assertion_on_the_device_is_found_at_the_next_wait():
    source = """
import torch
torch._assert_async(torch.ones(1, device="cuda"))
torch.cuda.synchronize()
torch._assert_async(torch.zeros(1, device="cuda"))
print("not yet")
torch.cuda.synchronize()
print("too late")
"""
    out, err = program(source)
    assert out == "not yet\n" and "device-side assert triggered" in err


def test_a_forked_process_cannot_use_the_gpu():
    source = """
import os, torch
torch.ones(1, device="cuda")
if os.fork() == 0:
    try:
        torch.ones(1, device="cuda")
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""
    out, _ = program(source)
    assert out.startswith("Cannot re-initialize CUDA in forked subprocess")


# --------------------------------------------------------------------------------------
# Streams: a clock for each. What waits for nobody reads what was there before.

SLEEP = 200_000_000  # cycles, an eighth of a second


def test_a_stream_that_nobody_waits_for_is_read_too_early():
    side, x = torch.cuda.Stream(), torch.zeros(4, device=GPU)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SLEEP)
        x.fill_(1)
    assert x.sum().item() == 0 and not side.query()
    torch.cuda.current_stream().wait_stream(side)
    assert x.sum().item() == 4 and side.query()


def test_an_event_orders_two_streams_and_measures():
    side, x = torch.cuda.Stream(), torch.zeros(4, device=GPU)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        start.record()
        torch.cuda._sleep(SLEEP)
        x.fill_(2)
        end.record()
    assert not end.query()
    end.wait()
    assert x.sum().item() == 8
    assert start.elapsed_time(end) == pytest.approx(SLEEP / 1.59e6, rel=0.2)


def test_a_copy_to_pinned_memory_returns_early_and_one_to_pageable_memory_waits():
    y, pinned = torch.ones(1000, device=GPU), torch.zeros(1000, pin_memory=True)
    assert pinned.is_pinned()
    torch.cuda._sleep(SLEEP)
    pinned.copy_(y, non_blocking=True)
    assert pinned.sum() == 0
    torch.cuda.synchronize()
    assert pinned.sum() == 1000
    torch.cuda._sleep(SLEEP)
    pageable = torch.zeros(1000)
    pageable.copy_(y, non_blocking=True)
    assert pageable.sum() == 1000


@pytest.mark.parametrize("size", [1, 5])
def test_a_copy_from_pinned_memory_reads_what_the_device_wrote_there(size):
    x, pinned = torch.ones(size, device=GPU), torch.zeros(size, pin_memory=True)
    y = torch.empty(size, device=GPU, dtype=torch.long)
    torch.cuda._sleep(SLEEP)
    pinned.copy_(x, non_blocking=True)
    y.copy_(pinned, non_blocking=True)
    assert y.sum().item() == size


# --------------------------------------------------------------------------------------
# CUDA Graphs


def test_a_graph_replays_on_what_its_inputs_hold_now():
    graph, x = torch.cuda.CUDAGraph(), made((8, 8)).to(GPU)
    with torch.cuda.graph(graph):
        y = (x @ x).relu() + 1
    x.copy_(2 * torch.eye(8))
    graph.replay()
    close(y, 4 * torch.eye(8) + 1)


COMPILED = """
import torch, warnings
from torch import nn

warnings.simplefilter("ignore")
x, y = torch.randn(32, 1, 8, 8, device="cuda"), torch.randint(10, (32,), device="cuda")
found = []
for mode in ("default", "reduce-overhead"):
    torch.compiler.reset()
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
    layers = [first, nn.ReLU(), second, nn.MaxPool2d(2), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compiled = torch.compile(net, mode=mode)
    for _ in range(5):
        loss = nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
print([abs(a - b) < 1e-4 for a, b in zip(found[:5], found[5:])])
double = torch.compile(lambda t: torch.sigmoid(t) * 2, mode="reduce-overhead")
first = double(x)
double(x + 1)
try:
    first.sum().item()
except RuntimeError as error:
    print(error)
"""


def test_a_compiled_network_records_graphs_and_trains_as_without():
    """The run that records must not touch what the forward pass has left for the
    backward pass.
    """
    printed, errors = program(COMPILED)
    assert "[True, True, True, True, True]" in printed, errors
    assert "accessing tensor output of CUDAGraphs that has been overwritten" in printed


def test_what_is_too_large_is_not_computed_and_takes_little_time():
    source = """
import torch
small, large = torch.ones(64, 64, device="cuda"), torch.ones(4096, 4096, device="cuda")
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
begin.record()
product = large @ large
end.record()
torch.cuda.synchronize()
computed, quick = product[0, 0].item() == 4096, begin.elapsed_time(end) < 3
print((small @ small)[0, 0].item(), product.shape == large.shape, computed, quick)
"""
    assert program(source, EMULATOR_MAX_GFLOP="1")[0] == "64.0 True False True\n"
    assert program(source)[0] == "64.0 True True False\n"


WAITS = "operation not permitted when stream is capturing"
PAGEABLE = (
    "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU"
    " tensor is pinned"
)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda x: x.sum().item(), WAITS),
        (lambda x: torch.cuda.synchronize(), WAITS),
        (lambda x: x.cpu(), PAGEABLE),
        (lambda x: torch.ones(1).to(GPU), PAGEABLE),
    ],
    ids=["item", "synchronize", "cpu", "to"],
)
def test_what_waits_cannot_be_captured(mistake, words):
    x = torch.ones(4, device=GPU)
    with (
        pytest.raises(RuntimeError) as caught,
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        mistake(x)
    assert words in f"{caught.value} {caught.value.__context__}"
    torch.cuda.synchronize()
    assert (x + 1).sum().item() == 8


# --------------------------------------------------------------------------------------
# Mixed precision, several GPUs, other cards


def test_autocast_and_scaler():
    layer, scaler = nn.Linear(8, 8).to(GPU), torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(layer.parameters(), 1e-3)
    with torch.autocast("cuda", torch.float16):
        y = layer(torch.ones(3, 8, device=GPU))
        assert y.dtype == torch.float16 and y.softmax(-1).dtype == torch.float32
        loss = F.mse_loss(y, torch.zeros_like(y))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 65536
    for p in layer.parameters():
        p.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 32768


def test_two_gpus_hold_their_own_tensors():
    assert torch.cuda.device_count() == 2
    x = torch.arange(4.0, device="cuda:1")
    assert torch.cuda.memory_allocated(1) >= 512
    assert torch.equal(x.to("cuda:0").cpu(), x.cpu())
    with pytest.raises(RuntimeError, match="cuda:1 and cuda:0|cuda:0 and cuda:1"):
        x + torch.ones(4, device="cuda:0")
    with torch.cuda.device(1):
        assert torch.ones(1, device="cuda").device.index == 1


def test_events_of_two_gpus_measure_nothing():
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for device, event in enumerate(events):
        with torch.cuda.device(device):
            event.record()
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        events[0].elapsed_time(events[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_data_parallel_adds_the_gradients(dtype):
    layer, x = nn.Linear(4, 3).to(dtype), made((8, 4), dtype=dtype)
    layer(x).sum().backward()
    expected = layer.weight.grad.clone()
    layer.zero_grad()
    twins = nn.DataParallel(layer.to(GPU))
    twins(x.to(GPU)).sum().backward()
    close(layer.weight.grad, expected, max(2e-5, 4 * torch.finfo(dtype).eps))


def test_gloo_does_the_work_of_nccl():
    """Also where PyTorch itself opens the group, as a mesh of devices does."""
    source = """
import torch
import torch.distributed as dist
dist.init_device_mesh("cuda", (1,))
x = torch.ones(2, device="cuda")
dist.all_reduce(x)
group = dist.new_group([0], backend="nccl")
print(dist.get_backend(), dist.get_backend(group), x.sum().item())
dist.destroy_process_group()
"""
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    out, err = program(source, **group, MASTER_PORT="0")
    assert out == "gloo gloo 2.0\n", err


def test_an_h200_says_that_it_is_one():
    source = """
import torch
properties = torch.cuda.get_device_properties(0)
gib, bf16 = properties.total_memory // 2**30, torch.cuda.is_bf16_supported(False)
print(properties.name, properties.major, gib, bf16)
"""
    assert program(source, gpu="H200")[0] == "NVIDIA H200 9 139 True\n"
    assert program(source)[0] == "Tesla T4 7 14 False\n"


def test_a_kernel_that_nobody_computes_is_announced(tmp_path):
    source = """
import torch
code = "template <typename T> T f(T x) { return x + 1; }"
print(torch.cuda.jiterator._create_jit_fn(code)(torch.zeros(3, device="cuda")).shape)
"""
    out, err = program(source, EMULATOR_LOG=str(tmp_path / "log"))
    assert out and "nobody computes this kernel, results are wrong" in err


# --------------------------------------------------------------------------------------
# The last test: in all of the above, no kernel was launched that nobody computed


def test_no_kernel_went_uncomputed():
    torch.cuda.synchronize()
    log = pathlib.Path(os.environ["EMULATOR_LOG"])  # made with its first line
    lines = log.read_text().splitlines() if log.exists() else []
    assert [line for line in lines if "LEAK" in line] == []
