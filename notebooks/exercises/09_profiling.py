"""Exercises of lesson 09."""

import math
import os
import re
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from course.operators import Operators
from simulate.roofline import transformer_flops
from utils.waits import CountWaits

# as in the lesson: the profiler keeps its log to itself
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


# --------------------------------------------------------------------------------------
# 09.0


def five_sums():
    """five sums in a loop"""
    for _ in range(5):
        torch.ones(3).sum()


def two_layers():
    """a training step of two layers"""
    layers = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))
    layers(torch.ones(8, 4)).square().mean().backward()


def one_product():
    """one product"""
    torch.ones(2, 3) @ torch.ones(3, 2)


CALLS = [  # operator, program, number of calls, why
    ("aten::sum", five_sums, 5, "the row of a name has the count of all its calls"),
    (
        "aten::mm",
        one_product,
        1,
        "aten::matmul calls it; operators that others call count as well",
    ),
    ("aten::addmm", two_layers, 2, "each layer multiplies once in its forward pass"),
    ("aten::mm", two_layers, 3, "the lesson says why not four"),
    ("aten::add", two_layers, 0, "aten::addmm is another operator"),
    ("aten::linear", two_layers, 2, "operators that call others count as well"),
    ("aten::mm", five_sums, 0, "it is never called"),
]


def check_calls_of(answer):
    for name, program, expected, why in CALLS:
        shown = f"{name!r} in {program.__doc__}"
        got = call(answer, name, program, shown=shown)
        expect.number(got, shown, "a number of calls, 0 if there is none")
        if isinstance(got, float):
            why = "the number of calls is asked, not their time"
        elif program is five_sums and got == 0:
            why = (
                "call the program in the `with` block, ask after it, and for the whole"
                " name, aten:: included"
            )
        elif program is five_sums and got == 2 * expected:
            why = "call the program once"
        expect.equal(got, expected, shown, why)


# --------------------------------------------------------------------------------------
# 09.1

RECORDINGS = [  # steps, first, count
    (8, 3, 3),
    (6, 1, 2),
    (12, 4, 1),
    (30, 3, 3),  # a cycle that repeats would record others
    (7, 4, 3),  # the loop ends with the last of them
]


class Steps:
    """A training step with a range of its own, "step 0" for the first, and a count of
    the calls.
    """

    def __init__(self):
        self.done = 0

    def __call__(self):
        with record_function(f"step {self.done}"):
            torch.ones(3).sum()
        self.done += 1


def check_record(answer):
    for steps, first, count in RECORDINGS:
        shown = f"steps = {steps}, first = {first}, count = {count}"
        step = Steps()
        got = call(answer, step, steps, first, count, shown=shown)
        if step.done != steps:
            raise Wrong(
                f"for {shown} your function called step() {step.done} times: the loop"
                f" goes on to its end, {steps} times, watched or not"
            )
        held = _steps_held(got, shown)
        _judge_steps(held, list(range(first, first + count)), shown)


def _steps_held(got, shown):
    """The numbers of the steps that a profiler has recorded, in order."""
    try:
        # torch.profiler.profile, or the older torch.autograd.profiler.profile
        events = got.events() if hasattr(got, "events") else got.function_events
    except AttributeError:
        raise Wrong(
            f"for {shown} you returned {_kind(got)}; the profiler is asked, what `with"
            " profile(…) as prof` calls prof"
        ) from None
    except AssertionError:
        raise Wrong(
            f"for {shown} the profiler has recorded nothing: call prof.step() at the"
            " end of each step, and let the profiler end before you return it"
        ) from None
    names = [event.name for event in events or ()]
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step \d+", name))


def _kind(got):
    return "None" if got is None else f"a value of type {type(got).__name__}"


def _judge_steps(held, expected, shown):
    first, last, count = expected[0], expected[-1], len(expected)
    run = list(range(held[0], held[-1] + 1)) if held else []
    if not held:
        why = (
            "nothing is left in it. A later cycle has begun (repeat=1 ends that), or"
            " the loop never came to the steps that are kept"
        )
    elif held != run:
        why = "the steps of a later cycle are in it, too: repeat=1"
    elif held[0] > last:
        why = "that is a later cycle, which has thrown away the first one: repeat=1"
    elif len(held) > count and held[-1] > last and held[0] == first:
        why = "it goes on for too long: active says how many are kept"
    elif len(held) == count:
        why = (
            f"{count} steps, but not the right ones: wait + warmup steps come before"
            f" the first, number {first}"
        )
    else:
        why = "wait and warmup come before them, active says how many are kept"
    expect.equal(held, expected, shown, why, "your recording holds the steps")


# --------------------------------------------------------------------------------------
# 09.2

NAMES = "busy", "input-bound", "sync-bound", "launch-bound"
FIGURES = [  # step, busy, data, fetched
    ((10, 9.5, 0.2, 0), "busy"),
    ((10, 9, 0.2, 0), "busy"),
    ((20, 20, 0, 0), "busy"),
    ((10, 8.9, 0.2, 0), "launch-bound"),
    ((1000, 898, 20, 0), "launch-bound"),
    ((10, 9, 6, 200), "busy"),
    ((20, 4, 12, 0), "input-bound"),
    ((20, 16, 2.5, 0), "input-bound"),
    ((20, 4, 9, 0), "input-bound"),
    ((20, 4, 12, 128), "input-bound"),
    ((20, 4, 8, 0), "launch-bound"),
    ((20, 4, 7, 0), "launch-bound"),
    ((20, 5, 7.25, 0), "launch-bound"),
    ((20, 4, 2, 128), "sync-bound"),
    ((20, 4, 8, 2), "sync-bound"),
    ((20, 4, 2, 1), "launch-bound"),
    ((2, 0.5, 0.5, 0), "launch-bound"),
]


def check_name_fault(answer):
    for figures, right in FIGURES:
        step, busy, data, fetched = figures
        shown = f"{step=}, {busy=}, {data=}, {fetched=}"
        got = call(answer, *figures, shown=shown)
        if not isinstance(got, str) or got not in NAMES:
            names = ", ".join(map(repr, NAMES))
            raise Wrong(f"for {shown} you returned {got!r}, expected one of {names}")
        share = f"the GPU worked {100 * busy / step:g}% of the step"
        took = f"the data range took {data} of {step - busy:g} ms of idle time"
        fetches = f"values fetched: {fetched}"
        why = {
            "busy": f"{share}, and that is asked first",
            "input-bound": f"{share}, {took}, more than half",
            "sync-bound": f"{took}, not more than half; {fetches}",
            "launch-bound": f"{share}, {took}, {fetches}; none of the three is enough",
        }[right]
        if right == "input-bound" and got == "sync-bound":
            why += ", which is asked before the fetches"
        expect.equal(got, right, shown, why, said="you said")


# --------------------------------------------------------------------------------------
# 09.3


def check_bound(answer):
    cases = [
        (1000, 2000, 1500, 4, 8.1e12, 320e9),  # on a T4
        (1, 4096, 4096, 2, 989e12, 4.8e12),  # one token on an H200, bf16
        (4096, 4096, 4096, 2, 989e12, 4.8e12),
        (64, 64, 8, 4, 8.1e12, 320e9),
        (64, 64, 8, 1, 8.1e12, 4e12),
        (300, 20, 500, 8, 1e11, 3e10),
        (2, 3, 4, 4, 48.0, 104.0),  # one second each
        (2, 3, 4, 4, 48.0, 96.0),  # a ridge at 0.5, the matmul at 0.46
        (1, 1, 1, 2, 1e12, 1e12),
    ]
    for m, k, n, b, rate, bandwidth in cases:
        shown = (
            f"m = {m}, k = {k}, n = {n}, b = {b}, {rate:.3g} FLOP/s, {bandwidth:.3g}"
            " bytes/s"
        )
        got = call(answer, m, k, n, b, rate, bandwidth, shown=shown)
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Wrong(
                f"for {shown} you returned {got!r}, expected (intensity, 'memory' or"
                " 'arithmetic', seconds)"
            )
        intensity, limit, seconds = got
        if not expect.is_number(intensity) or not expect.is_number(seconds):
            raise Wrong(
                f"for {shown} you returned {got!r}; the first and the third should be"
                " numbers"
            )
        flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
        why = f"{flop:,} FLOP over {moved:,} bytes"
        slips = _intensity_slips(m, k, n, b)
        said = "your intensity is"
        expect.close(intensity, flop / moved, shown, why, slips, said)
        arithmetic, memory = flop / rate, moved / bandwidth
        if not (limit == "arithmetic" and arithmetic == memory):  # the ridge
            expected = "arithmetic" if arithmetic > memory else "memory"
            why = (
                f"the ridge is at {rate / bandwidth:.3g} FLOP per byte, the matmul has"
                f" {flop / moved:.3g}"
            )
            expect.equal(limit, expected, shown, why, "you said")
        why = f"the arithmetic takes {arithmetic:.3g} s, the memory {memory:.3g} s"
        slips = _time_slips(arithmetic, memory)
        longer = max(arithmetic, memory)
        expect.close(seconds, longer, shown, why, slips, "you said", " s")


def _intensity_slips(m, k, n, b):
    flop, values = 2 * m * k * n, m * k + k * n + m * n
    slips = [
        (flop / 2 / b / values, "a multiplication and an addition a term, that is two"),
        (flop / values, "that is FLOP per number. How many bytes has a number?"),
        (flop / b / (values - m * n), "the result is written to memory, too"),
        (b * values / flop, "that is bytes per FLOP"),
    ]
    if b != 4:
        wide = f"that is for numbers of 4 bytes, and b = {b}"
        slips.insert(0, (flop / 4 / values, wide))
    return slips


def _time_slips(arithmetic, memory):
    both = (
        "the two go on at the same time, so the longer one is the least that it can"
        " take"
    )
    shorter = (
        "that is the shorter of the two, and the matmul has to wait for the longer one"
    )
    units = "rate and bandwidth come in FLOP/s and bytes/s, and seconds are asked"
    slips = [(arithmetic + memory, both), (min(arithmetic, memory), shorter)]
    for power in (-12, -9, -6, -3, 3, 6, 9, 12):
        slips += [(10.0**power * time, units) for time in (arithmetic, memory)]
    return slips


# --------------------------------------------------------------------------------------
# 09.4


class Fetched(BaseException):
    """Ends an answer at its first fetch. No Exception, so that `except Exception` does
    not catch it.
    """


def slow_epoch(batches, weight):
    losses, right, count = [], 0, 0
    for x, y in batches:
        scale = torch.tensor([1 / 64] * x.shape[1], dtype=torch.float64)
        scores = (x.double() * scale) @ weight.double()
        for k in range(len(y)):
            losses.append(F.cross_entropy(scores[k], y[k]).item())
            right += (scores[k].argmax() == y[k]).item()
            count += 1
    return sum(losses) / count, right / count


EPOCHS = [  # sizes of the batches, numbers a sample, classes
    ((16, 16), 24, 5),
    ((16, 16, 8), 24, 5),
    ((1, 6), 10, 3),
    ((3,), 7, 4),
]


def check_epoch(answer):
    draw = torch.Generator().manual_seed(0)
    for sizes, width, classes in EPOCHS:
        weight = torch.randn(width, classes, generator=draw)
        batches = []
        for size in sizes:
            x = torch.randint(0, 256, (size, width), dtype=torch.uint8, generator=draw)
            batches.append((x, torch.randint(0, classes, (size,), generator=draw)))
        expected = slow_epoch(batches, weight)
        shown = f"batches of {', '.join(map(str, sizes))} samples"
        pairs = list(batches)
        tensors = [*tree_leaves(batches), weight]
        before = [x.clone() for x in tensors]
        # bound, so that it gets the list itself and no copy
        bound = partial(answer, batches, weight) if callable(answer) else answer
        waits, operators = CountWaits(numpy_raises=False), Operators()
        with operators, waits:
            got = call(bound, shown=shown)
        if list(map(id, batches)) != list(map(id, pairs)):
            raise Wrong(
                f"for {shown} your function changed the list of batches; the next epoch"
                " needs it"
            )
        if not all(map(torch.equal, before, tensors)):
            raise Wrong(
                f"for {shown} your function wrote into a batch or into weight; the next"
                " epoch needs them"
            )
        _judge_epoch(got, expected, shown, batches, weight, _product_types(operators))
        _judge_work(waits, operators, f"right numbers for {shown}, but", sizes, width)
    _try_on_a_gpu(answer)


def _product_types(operators):
    """The types that products compute in."""
    products = ("mm", "addmm", "bmm", "mv", "addmv", "dot")
    return {
        x.dtype
        for name, args, _, _ in operators.ran
        for x in args
        if name in products and isinstance(x, torch.Tensor)
    }


def _judge_epoch(got, expected, shown, batches, weight, types):
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(
            f"for {shown} you returned {got!r}, expected a pair (mean loss, share of"
            " right answers)"
        )
    if not all(map(expect.is_number, got)):
        kinds = " and ".join(type(value).__name__ for value in got)
        raise Wrong(
            f"for {shown} you returned {got!r}; Python numbers are asked, not {kinds}"
        )
    if types & {torch.float16, torch.bfloat16}:
        raise Wrong(
            f"for {shown} a product computes in 16 bits; float32 is asked: x.float()"
        )
    loss, share = map(float, got)
    swapped = math.isclose(loss, expected[1], rel_tol=1e-4, abs_tol=1e-6)
    if swapped and math.isclose(share, expected[0], rel_tol=1e-4):
        raise Wrong(
            f"for {shown} you returned {got}: the mean loss comes first, the share"
            " second"
        )
    alone = [slow_epoch([batch], weight) for batch in batches]
    losses, shares = zip(*alone, strict=True)
    why = (
        "asked is the mean of cross_entropy over all samples, with x / 64 @ weight as"
        " scores"
    )
    _judge_mean(loss, expected[0], losses, batches, shown, "mean loss", why)
    why = (
        "a sample is right where the largest of its scores is that of its class:"
        " scores.argmax(1) == y"
    )
    what = "share of right answers"
    _judge_mean(share, expected[1], shares, batches, shown, what, why)


def _judge_mean(got, expected, alone, batches, shown, what, why):
    """alone: the same of each batch alone."""
    sizes = [len(y) for _, y in batches]
    total = expected * sum(sizes)
    slips = [
        (total, "divide the sum by the number of samples"),
        (total / len(sizes), "divide the sum by the number of samples, not of batches"),
        (
            sum(alone) / len(alone),
            "divide by the number of samples; a mean of means is no mean when the"
            " batches differ in size",
        ),
        (alone[0], "that is the first batch alone"),
        (
            expected / sizes[0],
            "cross_entropy gives the mean of a batch; add up sums",
        ),
    ]
    if what != "mean loss":
        slips.insert(2, (100 * expected, "a share is asked, not percent"))
    if len(set(sizes)) > 1:
        why = "all samples count, and the batches differ in size"
    expect.close(
        got,
        expected,
        shown,
        why,
        slips,
        said=f"your {what} is",
        rel_tol=1e-4,
        abs_tol=1e-6,
    )


def _judge_work(waits, operators, but, sizes, width):
    if torch.float64 in _product_types(operators):
        raise Wrong(f"{but} a product still computes in float64: use x.float()")
    if {"numpy", "__array__"} & set(waits.names):
        raise Wrong(
            f"{but} NumPy cannot read a tensor on a GPU: that raises. .cpu() first, or"
            " .tolist()"
        )
    # what writes into a tensor on the CPU is refused below, on a GPU that takes nothing
    # from there
    fetches = [name for name in waits.names if name not in ("__setitem__", "copy_")]
    if len(fetches) > 1:
        more = " …" if len(fetches) > 4 else ""
        raise Wrong(
            f"{but} {len(fetches)} fetches ({', '.join(fetches[:4])}{more}): add up on"
            " the device, fetch both sums at once at the end"
        )
    if len(operators.ran) > 20 * len(sizes) + 15:
        raise Wrong(
            f"{but} {len(operators.ran)} operators: cross_entropy and argmax take a"
            " whole batch at once"
        )
    made = [x.numel() for x in _made(operators)]
    if len(sizes) > 1 and made.count(width) >= len(sizes):
        raise Wrong(
            f"{but} a tensor for the scale is still made for each batch: a constant"
            " factor needs none"
        )


def _made(operators):
    """The tensors that were made from no other one."""
    for name, args, _, result in operators.ran:
        given = any(isinstance(x, torch.Tensor) for x in tree_leaves(args))
        # lift_fresh: what torch.tensor makes
        if isinstance(result, torch.Tensor) and (name == "lift_fresh" or not given):
            yield result


class AsOnAGpu(TorchDispatchMode):
    """Tensors on meta stand for tensors on a GPU. meta lets some mixtures with the CPU
    pass that a GPU refuses.

    It has no values: Fetched is raised where the first one would be fetched.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name, kwargs = operation.overloadpacket.__name__, kwargs or {}
        given = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
        to_host = name == "_to_copy" and str(kwargs.get("device")) == "cpu"
        if (to_host or name == "_local_scalar_dense") and given[0].is_meta:
            raise Fetched
        if not name.startswith(("index", "copy_", "_to_copy")):
            # a number on the CPU may join, but not receive
            here = [x for x in given if not x.is_meta and x.dim() > 0]
            if operation._schema.is_mutable and given and not given[0].is_meta:
                here.append(given[0])
            if here and any(x.is_meta for x in given):
                raise RuntimeError(
                    "Expected all tensors to be on the same device, found cuda:0 and"
                    f" cpu in {name}"
                )
        return operation(*args, **kwargs)


def _try_on_a_gpu(answer):
    batches = []
    for size in (16, 8):
        x = torch.zeros(size, 24, dtype=torch.uint8, device="meta")
        batches.append((x, torch.zeros(size, dtype=torch.int64, device="meta")))
    weight = torch.zeros(24, 5, device="meta")
    try:
        with AsOnAGpu():
            call(answer, batches, weight, shown="the same on a GPU")
    except Fetched:  # meta has no values
        return
    except Wrong as problem:
        raise Wrong(
            f"right on the CPU, but {problem}. Make what you add up to on x.device"
        ) from None


# --------------------------------------------------------------------------------------
# 09.5


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.heads = heads

    def forward(self, x):
        batch, length, hidden = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        mixed = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
        mixed = mixed.transpose(1, 2).reshape(batch, length, hidden)
        return x + self.down(F.gelu(self.up(x + self.out(mixed))))


def _blocks(hidden, heads, layers):
    def make():
        if hidden > 10_000 and not torch.empty(0).is_meta:
            raise Wrong(
                "the large model was built on the CPU, where it takes 26 GB: build it"
                " on meta"
            )
        return nn.Sequential(*(Attention(hidden, heads) for _ in range(layers)))

    return make


def _two_layers():
    return nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 20))


class Flops(NamedTuple):
    """FLOP of a training step, and of parts of it: forward, all without the attention,
    and the gradient of the input, which nobody asks for.
    """

    whole: int
    forward: int
    products: int
    first: int


def _step_flops(layers, hidden, length, batch):
    forward = 24 * batch * layers * length * hidden**2
    attention = 4 * batch * layers * length**2 * hidden
    first = 2 * batch * length * hidden * 3 * hidden
    whole = transformer_flops(layers, hidden, length, batch) - first
    return Flops(whole, forward + attention, whole - 3 * attention, first)


MODELS = [  # hidden, heads, layers, shape, seconds, peak
    (64, 4, 1, (2, 128, 64), 1e-3, 0.5),
    (32, 2, 3, (4, 64, 32), 2e-3, 0.1),
    (16384, 128, 2, (8, 4096, 16384), 1.5, 989),
]


def check_mfu_of(answer):
    for hidden, heads, layers, shape, seconds, peak in MODELS:
        shown = f"{layers} × width {hidden}, input {shape}, {seconds} s, {peak} TFLOP/s"
        flops = _step_flops(layers, hidden, shape[1], shape[0])
        make = _blocks(hidden, heads, layers)
        _judge_mfu(answer, make, shape, seconds, peak, shown, flops)
    shown = (
        "a model without attention, two layers 30 → 50 → 20, input (10, 30), 1e-06 s,"
        " 0.5 TFLOP/s"
    )
    first, second = 2 * 10 * 30 * 50, 2 * 10 * 50 * 20
    whole = 2 * first + 3 * second
    flops = Flops(whole, first + second, whole, first)
    _judge_mfu(answer, _two_layers, (10, 30), 1e-6, 0.5, shown, flops)


def _judge_mfu(answer, make, shape, seconds, peak, shown, flops):
    got = _call_mfu(answer, make, shape, seconds, peak, shown)
    if torch.empty(0).is_meta:
        torch.set_default_device(None)
        raise Wrong(
            "the default device is still meta after your function; `with"
            ' torch.device("meta"):` sets it back'
        )
    expect.number(got, shown)
    expected = flops.whole / seconds / peak / 1e12
    slips = [(round(expected, digits), "do not round") for digits in range(4)]
    faults = _mfu_faults(flops, seconds, peak, expected)
    slips += [(expected * ratio, text) for ratio, text in faults]
    why = (
        "count the model itself, forward and backward, on meta: a formula leaves"
        " something out, other devices count attention differently"
    )
    expect.close(float(got), expected, shown, why, slips, rel_tol=1e-3)


def _mfu_faults(flops, seconds, peak, expected):
    """Pairs (how many times the right result, what went wrong)."""
    forward = flops.forward / flops.whole
    return [
        (forward, "that is the forward pass; a training step is forward and backward"),
        (
            1 + flops.first / flops.whole,
            "the input needs no gradient, so the product that makes it is not computed",
        ),
        (100, "a share is asked, not percent"),
        (
            2 * forward,
            "that is twice the forward pass; count forward and backward",
        ),
        (
            2,
            "twice as much: the counter has multiplications and additions already;"
            " count one step",
        ),
        (
            0.5,
            "half as much: multiplications and additions count, and the counter has"
            " both",
        ),
        (3, "the counter has the backward pass already"),
        (0, "forward and backward must run inside of the counter's `with` block"),
        (1e12, "a TFLOP is 10¹² FLOP"),
        (
            1e3,
            "a factor of 1000: a TFLOP is 10¹² FLOP, not 10⁹, and the time is in"
            " seconds",
        ),
        (seconds, "divide by the seconds"),
        (seconds**2, "divide by the seconds, do not multiply"),
        (1e24, "a / b * c multiplies by c: put the whole divisor in brackets"),
        (peak * 1e12, "divide by the peak"),
        (peak**2, "divide by the peak, do not multiply"),
        (1 / expected**2, "that is the inverse"),
        (
            flops.products / flops.whole,
            "the attention is not counted. On the CPU it is not in every version;"
            " count on meta",
        ),
    ]


def _call_mfu(answer, make, shape, seconds, peak, shown):
    try:
        return call(answer, make, shape, seconds, peak, shown=shown)
    except Wrong as problem:
        cause = problem.__cause__
        if getattr(cause, "name", None) == "tabulate":
            raise Wrong(
                "FlopCounterMode() prints a table at its end and needs the package"
                " tabulate for it; you want the number only:"
                " FlopCounterMode(display=False)"
            ) from None
        raise (cause if isinstance(cause, Wrong) else problem) from None


EXERCISES = [
    Exercise(
        number="09.0",
        title="Ask the profiler",
        name="calls_of",
        stars=1,
        check=check_calls_of,
        hints=[
            (
                "with profile(**options) as prof: call the program in the block, and"
                " ask prof after it."
            ),
            "Each row of prof.key_averages() has a key, the name, and a count.",
            (
                "sum(row.count for row in prof.key_averages() if row.key == name) is 0"
                " where there is no such row."
            ),
        ],
        solution="""
from torch.profiler import profile


def calls_of(name, program):
    with profile() as prof:
        program()
    return sum(row.count for row in prof.key_averages() if row.key == name)
""",
        praise=(
            "A test can say so: this part of my program calls aten::item never, and"
            " aten::mm three times."
        ),
    ),
    Exercise(
        number="09.1",
        title="Record the steps that matter",
        name="record",
        stars=1,
        check=check_record,
        hints=[
            (
                "schedule(wait=…, warmup=1, active=…, repeat=1): wait and warmup"
                " together are the steps before the first one."
            ),
            (
                "with profile(schedule=plan) as prof: the loop, with step() and"
                " prof.step()."
            ),
            "wait is first - 1, active is count.",
        ],
        solution="""
from torch.profiler import profile, schedule


def record(step, steps, first, count):
    plan = schedule(wait=first - 1, warmup=1, active=count, repeat=1)
    with profile(schedule=plan) as prof:
        for _ in range(steps):
            step()
            prof.step()
    return prof
""",
        praise=(
            "Three steps of a run of days, and a file that still opens. Choose them"
            " after the loop has settled: compiling, the first batches of the loader"
            " and the growing cache are over by then."
        ),
    ),
    Exercise(
        number="09.2",
        title="Name the fault",
        name="name_fault",
        stars=1,
        check=check_name_fault,
        hints=[
            "The time that needs an explanation is step - busy, the GPU's idle time.",
            "Ask in the order of the text, and return at the first yes.",
            (
                "busy >= 0.9 * step; data > (step - busy) / 2; fetched > 1; else"
                " launch-bound."
            ),
        ],
        solution="""
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if data > (step - busy) / 2:
        return "input-bound"
    return "sync-bound" if fetched > 1 else "launch-bound"
""",
        praise=(
            "A rule of thumb, good enough to know where to look. A real loop has two"
            " faults at once, and shows the second one when the first is mended."
        ),
    ),
    Exercise(
        number="09.3",
        title="Which roof?",
        name="bound",
        stars=2,
        check=check_bound,
        hints=[
            "FLOP: 2·m·k·n. Bytes: b times the numbers of the three matrices.",
            (
                "The time of the arithmetic is FLOP / rate, that of the memory is bytes"
                " / bandwidth."
            ),
            "The longer of the two times is the least time, and it names the limit.",
        ],
        solution="""
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    arithmetic, memory = flop / rate, moved / bandwidth
    limit = "arithmetic" if arithmetic > memory else "memory"
    return flop / moved, limit, max(arithmetic, memory)
""",
        praise=(
            "Halving b, with bfloat16 in place of float32, doubles the intensity and"
            " halves the memory's time, whether or not the arithmetic gets faster:"
            " lesson 08."
        ),
    ),
    Exercise(
        number="09.4",
        title="Mend an epoch",
        name="epoch",
        stars=3,
        check=check_epoch,
        hints=[
            (
                "A constant factor needs no tensor: x.float() / 64. And cross_entropy"
                " takes all rows of a batch at once."
            ),
            (
                'reduction="sum" gives a sum that you can add up over batches of'
                " different sizes, on the device."
            ),
            (
                "At the end: torch.stack([loss, right]).tolist() is one fetch for both"
                " sums."
            ),
        ],
        solution="""
def epoch(batches, weight):
    loss = right = count = 0
    for x, y in batches:
        scores = x.float() @ weight / 64
        loss = loss + torch.nn.functional.cross_entropy(scores, y, reduction="sum")
        right = right + (scores.argmax(1) == y).sum()
        count += len(y)
    loss, right = torch.stack([loss, right]).tolist()
    return loss / count, right / count
""",
        praise=(
            "Three faults of three kinds, one loop. On a GPU the host is now ahead of"
            " the device by whole batches."
        ),
    ),
    Exercise(
        number="09.5",
        title="MFU of any model",
        name="mfu_of",
        stars=2,
        check=check_mfu_of,
        hints=[
            (
                'with torch.device("meta"): make the model and its input there, so that'
                " nothing is allocated or computed."
            ),
            (
                "with FlopCounterMode(display=False) as counter: forward and backward,"
                " both in the block."
            ),
            "counter.get_total_flops() / (seconds * peak * 1e12)",
        ],
        solution="""
from torch.utils.flop_counter import FlopCounterMode

def mfu_of(make, shape, seconds, peak):
    with torch.device("meta"):
        model, x = make(), torch.empty(shape)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return counter.get_total_flops() / (seconds * peak * 1e12)
""",
        praise=(
            "The same line in your training loop, once at the start for the FLOP, gives"
            " a figure that you can compare with papers, as long as both take the peak"
            " from the data sheet."
        ),
    ),
]
