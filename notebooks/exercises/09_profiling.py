"""Exercises of lesson 09."""

import math
import os
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from utils.exercises import (
    Exercise,
    Wrong,
    apart,
    call,
    expect_number,
    is_number,
    plain,
)
from utils.simulate.roofline import transformer_flops
from utils.waits import CountWaits

# as in the lesson: the profiler keeps its log to itself
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


def _close(got, right):
    return is_number(got) and math.isclose(got, right, abs_tol=1e-9)


# --------------------------------------------------------------------------------------
# 09.0


def five_sums():
    for _ in range(5):
        torch.ones(3).sum()


def two_layers():
    layers = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 2))
    layers(torch.ones(8, 4)).square().mean().backward()


def one_product():
    torch.ones(2, 3) @ torch.ones(3, 2)


CALLS = [
    (
        "aten::sum",
        "five sums in a loop",
        five_sums,
        5,
        "the row of a name has the count of all its calls",
    ),
    (
        "aten::mm",
        "one product",
        one_product,
        1,
        "aten::matmul calls it; operators that others call count as well",
    ),
    (
        "aten::addmm",
        "a training step of two layers",
        two_layers,
        2,
        "each layer multiplies once in its forward pass",
    ),
    (
        "aten::mm",
        "a training step of two layers",
        two_layers,
        3,
        "the lesson says why not four",
    ),
    (
        "aten::add",
        "a training step of two layers",
        two_layers,
        0,
        "aten::addmm is another operator",
    ),
    (
        "aten::linear",
        "a training step of two layers",
        two_layers,
        2,
        "operators that call others count as well",
    ),
    ("aten::mm", "five sums in a loop", five_sums, 0, "it is never called"),
]


def check_calls_of(answer):
    for name, text, program, expected, why in CALLS:
        shown = f"{name!r} in {text}"
        got = call(answer, name, program, shown=shown)
        expect_number(got, shown, "a number of calls, 0 if there is none")
        if got != expected:
            if isinstance(got, float):
                why = "the number of calls is asked, not their time"
            elif program is five_sums and got == 0:
                why = (
                    "call the program in the `with` block, ask after it, and for the"
                    " whole name, aten:: included"
                )
            elif program is five_sums and got == 2 * expected:
                why = "call the program once"
            raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


# --------------------------------------------------------------------------------------
# 09.1

NESTED = [
    ("step", 0, 100),
    ("linear", 10, 60),
    ("mm", 20, 50),
    ("linear", 70, 90),
    ("mm", 75, 85),
]
INSIDE = "self time is the length less the time of what is inside"
SELF_TIMES = [
    (
        "two operators one after the other",
        [("a", 0, 3), ("b", 5, 9)],
        {"a": 3, "b": 4},
        "nothing is inside of them",
    ),
    (
        "a name twice",
        [("mm", 0, 2), ("relu", 3, 4), ("mm", 5, 10)],
        {"mm": 7, "relu": 1},
        "add up all spans of a name",
    ),
    (
        "one operator inside another",
        [("linear", 0, 10), ("mm", 2, 9)],
        {"linear": 3, "mm": 7},
        INSIDE,
    ),
    (
        "a step with three levels",
        NESTED,
        {"step": 30, "linear": 30, "mm": 40},
        "only the direct children count, their own children are in their time already",
    ),
    (
        "the same step in another order",
        NESTED[::-1],
        {"step": 30, "linear": 30, "mm": 40},
        "the order of the list says nothing, sort it first",
    ),
    (
        "operators that touch",
        [("a", 2, 5), ("b", 5, 9), ("c", 9, 10)],
        {"a": 3, "b": 4, "c": 1},
        "what begins where another span ends is not inside of it",
    ),
    (
        "a child that begins with its parent",
        [("mm", 0, 4), ("linear", 0, 10)],
        {"linear": 6, "mm": 4},
        "of two that begin together, the longer one is the parent",
    ),
    (
        "a child that ends with its parent",
        [("linear", 0, 10), ("mm", 6, 10)],
        {"linear": 6, "mm": 4},
        "mm lies inside of linear",
    ),
    (
        "three that end together",
        [("call", 0, 10), ("linear", 2, 10), ("mm", 6, 10)],
        {"call": 2, "linear": 4, "mm": 4},
        "the parent of mm is linear, the shortest around it",
    ),
    (
        "children that fill their parent",
        [("linear", 0, 10), ("mm", 0, 4), ("add", 4, 10)],
        {"linear": 0, "mm": 4, "add": 6},
        "nothing of linear is left, so it gets 0",
    ),
    (
        "a function that calls itself",
        [("f", 0, 10), ("f", 2, 6)],
        {"f": 10},
        "add up the self times of both calls, 6 and 4",
    ),
    (
        "times with fractions",
        [("step", 0.25, 2.0), ("mm", 0.5, 1.75)],
        {"step": 0.5, "mm": 1.25},
        INSIDE,
    ),
    ("no spans", [], {}, "there are no names"),
]


def check_self_times(answer):
    for text, spans, expected, why in SELF_TIMES:
        got = call(answer, spans, shown=f"{text}, {spans}")
        if not isinstance(got, dict):
            raise Wrong(
                f"for {text} you returned {got!r}, expected a dict of name → self time"
            )
        got = plain(dict(got))  # a Counter or a defaultdict will do
        if set(got) != set(expected):
            raise Wrong(
                f"for {text}, {spans}, your names are {sorted(map(str, got))}, expected"
                f" {sorted(expected)}: every name of a span, none else"
            )
        for name, right in expected.items():
            if not is_number(got[name]):
                raise Wrong(
                    f"for {text} you gave {name!r} {got[name]!r}, expected a number"
                )
            if not _close(got[name], right):
                value, wanted = apart(got[name], right)
                raise Wrong(
                    f"for {text}, {spans}, you gave {name!r} {value}, expected"
                    f" {wanted}: {why}"
                )


# --------------------------------------------------------------------------------------
# 09.2

FROM_TO = "a gap goes from the end of all that ran before to the next start"
GAPS = [
    (
        "three kernels of one stream",
        [(0, 2), (5, 6), (7, 9)],
        (2, 5),
        "the gaps are (2, 5) and (6, 7)",
    ),
    ("kernels that touch", [(0, 1), (1, 2)], None, "one begins as the other ends"),
    (
        "a single kernel",
        [(3, 4)],
        None,
        "what comes before the first start does not count",
    ),
    (
        "kernels that start late",
        [(100, 101), (103, 104)],
        (101, 103),
        "what comes before the first start is no gap",
    ),
    (
        "four kernels",
        [(0, 1), (2, 3), (10, 11), (13, 14)],
        (3, 10),
        "the gaps are (1, 2), (3, 10), (11, 13)",
    ),
    (
        "gaps that grow",
        [(0, 1), (2, 3), (6, 7), (11, 12)],
        (7, 11),
        "the gaps are (1, 2), (3, 6), (7, 11)",
    ),
    (
        "gaps that grow, late",
        [(100, 101), (103, 104), (110, 111)],
        (104, 110),
        "the gaps are (101, 103) and (104, 110); their lengths decide",
    ),
    (
        "kernels that touch, and a gap",
        [(0, 1), (1, 2), (4, 5)],
        (2, 4),
        "the second kernel runs until 2",
    ),
    (
        "kernels in no order",
        [(7, 9), (5, 6), (0, 2)],
        (2, 5),
        "sort the kernels by their start first",
    ),
    (
        "a long kernel of one stream over short ones of another",
        [(0, 10), (1, 2), (3, 4), (12, 13)],
        (10, 12),
        "the first kernel runs until 10, whatever ends earlier in another stream",
    ),
    (
        "a long kernel over a short one",
        [(0, 5), (1, 2), (6, 7)],
        (5, 6),
        "the first kernel runs until 5",
    ),
    (
        "a kernel that ends last, but starts early",
        [(0, 1), (5, 6), (2, 10)],
        (1, 2),
        "one kernel runs from 2 on",
    ),
    (
        "two streams that fill each other's gaps",
        [(0, 4), (6, 9), (3, 7)],
        None,
        "something runs all the time",
    ),
    (
        "two kernels that start together",
        [(0, 3), (0, 1), (2, 4)],
        None,
        "something runs all the time",
    ),
    ("times with fractions", [(0.5, 0.75), (1.5, 2.25)], (0.75, 1.5), FROM_TO),
    ("no kernels", [], None, "where nothing runs, nothing starves"),
]


def check_longest_gap(answer):
    for text, spans, expected, why in GAPS:
        got = call(answer, spans, shown=f"{text}, {spans}")
        if expected is None:
            if got is not None:
                raise Wrong(
                    f"for {text}, {spans}, you returned {got!r}: there is no gap,"
                    f" expected None ({why})"
                )
        elif got is None:
            raise Wrong(
                f"for {text}, {spans}, you returned None, expected {expected}: {why}"
            )
        elif (
            not isinstance(got, (tuple, list))
            or len(got) != 2
            or not all(map(is_number, got))
        ):
            raise Wrong(
                f"for {text}, {spans}, you returned {got!r}, expected the pair"
                f" {expected}: start and end"
            )
        elif not all(map(_close, got, expected)):
            raise Wrong(
                f"for {text}, {spans}, you returned {got!r}, expected {expected}: {why}"
            )


# --------------------------------------------------------------------------------------
# 09.3

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
    for (step, busy, data, fetched), right in FIGURES:
        shown = f"{step=}, {busy=}, {data=}, {fetched=}"
        got = call(answer, step, busy, data, fetched, shown=shown)
        if not isinstance(got, str) or got not in NAMES:
            raise Wrong(
                f"for {shown} you returned {got!r}, expected one of"
                f" {', '.join(map(repr, NAMES))}"
            )
        if got != right:
            share = f"the GPU worked {100 * busy / step:g}% of the step"
            took = f"the data range took {data} of {step - busy:g} ms of idle time"
            why = {
                "busy": f"{share}, and that is asked first",
                "input-bound": (
                    f"{share}, {took}, more than half"
                    + (
                        ", which is asked before the fetches"
                        if got == "sync-bound"
                        else ""
                    )
                ),
                "sync-bound": f"{took}, not more than half; values fetched: {fetched}",
                "launch-bound": (
                    f"{share}, {took}, values fetched: {fetched}; none of the three is"
                    " enough"
                ),
            }[right]
            raise Wrong(f"for {shown} you said {got!r}, expected {right!r}: {why}")


# --------------------------------------------------------------------------------------
# 09.4


class Fetched(BaseException):
    """Ends an answer at its first fetch. No Exception, so that `except Exception` does
    not catch it.
    """


class Operators(TorchDispatchMode):
    """Counts the operators that run; notes types that products compute in, and sizes of
    tensors made from nothing.
    """

    def __init__(self):
        super().__init__()
        self.count, self.types, self.made = 0, set(), []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        name, result = (
            operation.overloadpacket.__name__,
            operation(*args, **(kwargs or {})),
        )
        if name in ("mm", "addmm", "bmm", "mv", "addmv", "dot"):
            self.types |= {x.dtype for x in args if isinstance(x, torch.Tensor)}
        made = name == "lift_fresh" or not any(
            isinstance(x, torch.Tensor) for x in tree_leaves(args)
        )
        # lift_fresh: what torch.tensor makes
        if made and isinstance(result, torch.Tensor):
            self.made.append(result.numel())
        return result


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


def check_epoch(answer):
    draw = torch.Generator().manual_seed(0)
    for sizes, width, classes in (
        ((16, 16), 24, 5),
        ((16, 16, 8), 24, 5),
        ((1, 6), 10, 3),
        ((3,), 7, 4),
    ):
        weight = torch.randn(width, classes, generator=draw)
        batches = []
        for size in sizes:
            x = torch.randint(0, 256, (size, width), dtype=torch.uint8, generator=draw)
            batches.append((x, torch.randint(0, classes, (size,), generator=draw)))
        expected, shown = (
            slow_epoch(batches, weight),
            f"batches of {', '.join(map(str, sizes))} samples",
        )
        before = [x.clone() for pair in batches for x in pair] + [weight.clone()]
        waits, operators = CountWaits(numpy_raises=False), Operators()
        mine = list(batches)
        with operators, waits:
            # not a copy
            got = call(
                partial(answer, batches, weight) if callable(answer) else answer,
                shown=shown,
            )
        if len(batches) != len(mine) or any(
            a is not b for a, b in zip(batches, mine, strict=True)
        ):
            raise Wrong(
                f"for {shown} your function changed the list of batches; the next epoch"
                " needs it"
            )
        if not all(
            map(torch.equal, before, [x for pair in batches for x in pair] + [weight])
        ):
            raise Wrong(
                f"for {shown} your function wrote into a batch or into weight; the next"
                " epoch needs them"
            )
        _judge_epoch(got, expected, shown, batches, weight, operators.types)
        # what writes into a tensor on the CPU is refused below, on a GPU that takes
        # nothing from there
        fetches = [name for name in waits.names if name not in ("__setitem__", "copy_")]
        _judge_work(
            fetches, operators, f"right numbers for {shown}, but", len(sizes), width
        )
    _try_on_a_gpu(answer)


def _judge_epoch(got, expected, shown, batches, weight, types):
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(
            f"for {shown} you returned {got!r}, expected a pair (mean loss, share of"
            " right answers)"
        )
    if not all(map(is_number, got)):
        kinds = " and ".join(type(value).__name__ for value in got)
        raise Wrong(
            f"for {shown} you returned {got!r}; Python numbers are asked, not {kinds}"
        )
    if types & {torch.float16, torch.bfloat16}:
        raise Wrong(
            f"for {shown} a product computes in 16 bits; float32 is asked: x.float()"
        )
    sizes, single = (
        [len(y) for _, y in batches],
        [slow_epoch([batch], weight) for batch in batches],
    )
    near = lambda a, b: math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6)  # noqa: E731
    for k, (what, a, b) in enumerate(
        zip(("mean loss", "share of right answers"), got, expected, strict=True)
    ):
        if not near(a, b):
            why = (
                (
                    "asked is the mean of cross_entropy over all samples, with x / 64 @"
                    " weight as scores"
                ),
                (
                    "a sample is right where the largest of its scores is that of its"
                    " class: scores.argmax(1) == y"
                ),
            )[k]
            if near(got[0], expected[1]) and near(got[1], expected[0]):
                why = "the mean loss comes first, the share second"
            elif near(a, b * sum(sizes)):
                why = "divide the sum by the number of samples"
            elif near(a, b * sum(sizes) / len(sizes)):
                why = "divide the sum by the number of samples, not of batches"
            elif k == 1 and near(a, 100 * b):
                why = "a share is asked, not percent"
            elif near(a, sum(one[k] for one in single) / len(single)):
                why = (
                    "divide by the number of samples; a mean of means is no mean when"
                    " the batches differ in size"
                )
            elif near(a, single[0][k]):
                why = "that is the first batch alone"
            elif near(a * sizes[0], b):
                why = "cross_entropy gives the mean of a batch; add up sums"
            elif len(set(sizes)) > 1:
                why = "all samples count, and the batches differ in size"
            value, wanted = apart(float(a), b)
            raise Wrong(f"for {shown} your {what} is {value}, expected {wanted}: {why}")


def _judge_work(fetches, operators, but, batches, width):
    if torch.float64 in operators.types:
        raise Wrong(f"{but} a product still computes in float64: use x.float()")
    if {"numpy", "__array__"} & set(fetches):
        raise Wrong(
            f"{but} NumPy cannot read a tensor on a GPU: that raises. .cpu() first, or"
            " .tolist()"
        )
    if len(fetches) > 1:
        more = " …" if len(fetches) > 4 else ""
        raise Wrong(
            f"{but} {len(fetches)} fetches ({', '.join(fetches[:4])}{more}): add up on"
            " the device, fetch both sums at once at the end"
        )
    if operators.count > 20 * batches + 15:
        raise Wrong(
            f"{but} {operators.count} operators: cross_entropy and argmax take a whole"
            " batch at once"
        )
    if batches > 1 and operators.made.count(width) >= batches:
        raise Wrong(
            f"{but} a tensor for the scale is still made for each batch: a constant"
            " factor needs none"
        )


class AsOnAGpu(TorchDispatchMode):
    """Tensors on meta stand for tensors on a GPU. meta lets some mixtures with the CPU
    pass that a GPU refuses.

    It has no values: Fetched is raised where the first one would be fetched.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name, kwargs = operation.overloadpacket.__name__, kwargs or {}
        given = [
            x
            for value in args
            for x in (value if isinstance(value, (list, tuple)) else [value])
        ]
        given = [x for x in given if isinstance(x, torch.Tensor)]
        to_host = name == "_to_copy" and str(kwargs.get("device")) == "cpu"
        if (to_host or name == "_local_scalar_dense") and given[
            0
        ].device.type == "meta":
            raise Fetched
        if not name.startswith(("index", "copy_", "_to_copy")):
            # a number on the CPU may join, but not receive
            written = given[:1] if operation._schema.is_mutable else []
            here = [
                x
                for x in given
                if x.device.type == "cpu"
                and (x.dim() > 0 or any(x is each for each in written))
            ]
            if here and any(x.device.type == "meta" for x in given):
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
    try:
        with AsOnAGpu():
            call(
                answer,
                batches,
                torch.zeros(24, 5, device="meta"),
                shown="the same on a GPU",
            )
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
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = (
            nn.Linear(hidden, 4 * hidden),
            nn.Linear(4 * hidden, hidden),
        )
        self.heads = heads

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (
            self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = (
            F.scaled_dot_product_attention(q, k, v)
            .transpose(1, 2)
            .reshape(batch, length, hidden)
        )
        return x + self.down(F.gelu(self.up(x + self.out(mixed))))


def _blocks(hidden, heads, layers):
    huge = hidden > 10_000

    def make():
        if huge and torch.empty(0).device.type != "meta":
            raise Wrong(
                "the large model was built on the CPU, where it takes 26 GB: build it"
                " on meta"
            )
        return nn.Sequential(*(Attention(hidden, heads) for _ in range(layers)))

    return make


def _step_flops(layers, hidden, length, batch):
    """FLOP of a training step of blocks, in parts: forward, backward, and of both the
    share of the attention.
    """
    forward, attention = (
        24 * batch * layers * length * hidden**2,
        4 * batch * layers * length**2 * hidden,
    )
    # the gradient of the input, which nobody asks for
    first = 2 * batch * length * hidden * 3 * hidden
    whole = transformer_flops(layers, hidden, length, batch) - first
    return whole, forward + attention, whole - 3 * attention, first


def check_mfu_of(answer):
    for hidden, heads, layers, shape, seconds, peak in (
        (64, 4, 1, (2, 128, 64), 1e-3, 0.5),
        (32, 2, 3, (4, 64, 32), 2e-3, 0.1),
        (16384, 128, 2, (8, 4096, 16384), 1.5, 989),
    ):
        shown = f"{layers} × width {hidden}, input {shape}, {seconds} s, {peak} TFLOP/s"
        parts = _step_flops(layers, hidden, shape[1], shape[0])
        _judge_mfu(
            answer, _blocks(hidden, heads, layers), shape, seconds, peak, shown, *parts
        )
    shown = (
        "a model without attention, two layers 30 → 50 → 20, input (10, 30), 1e-06 s,"
        " 0.5 TFLOP/s"
    )
    layers = lambda: nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 20))  # noqa: E731
    first, second = 2 * 10 * 30 * 50, 2 * 10 * 50 * 20
    whole = 2 * first + 3 * second
    _judge_mfu(
        answer, layers, (10, 30), 1e-6, 0.5, shown, whole, first + second, whole, first
    )


def _judge_mfu(
    answer, make, shape, seconds, peak, shown, whole, forward, plain_products, first
):
    got = _call_mfu(answer, make, shape, seconds, peak, shown)
    if torch.empty(0).device.type == "meta":
        torch.set_default_device(None)
        raise Wrong(
            "the default device is still meta after your function; `with"
            ' torch.device("meta"):` sets it back'
        )
    expected = whole / seconds / peak / 1e12
    expect_number(got, shown)
    if math.isclose(got, expected, rel_tol=1e-3):
        return
    faults = {
        "that is the forward pass; a training step is forward and backward": (
            forward / whole
        ),
        "the input needs no gradient, so the product that makes it is not computed": (
            1 + first / whole
        ),
        "a share is asked, not percent": 100,
        "that is twice the forward pass; count forward and backward": (
            2 * forward / whole
        ),
        "twice as much: the counter has multiplications and additions already; count one step": (
            2
        ),
        "half as much: multiplications and additions count, and the counter has both": (
            0.5
        ),
        "the counter has the backward pass already": 3,
        "forward and backward must run inside of the counter's `with` block": 0,
        "a TFLOP is 10¹² FLOP": 1e12,
        "a factor of 1000: a TFLOP is 10¹² FLOP, not 10⁹, and the time is in seconds": (
            1e3
        ),
        "divide by the seconds": seconds,
        "divide by the seconds, do not multiply": seconds**2,
        "a / b * c multiplies by c: put the whole divisor in brackets": 1e24,
        "divide by the peak": peak * 1e12,
        "divide by the peak, do not multiply": peak**2,
        "that is the inverse": 1 / expected**2,
        "the attention is not counted. On the CPU it is not in every version; count on meta": (
            plain_products / whole
        ),
    }
    why = next(
        (
            text
            for text, ratio in faults.items()
            if math.isclose(got / expected, ratio, rel_tol=1e-3)
        ),
        None,
    )
    if got in [round(expected, digits) for digits in range(4)]:
        why = "do not round"
    why = why or (
        "count the model itself, forward and backward, on meta: a formula leaves"
        " something out, other devices count attention differently"
    )
    value, wanted = apart(float(got), expected)
    raise Wrong(f"for {shown} you returned {value}, expected {wanted}: {why}")


def _call_mfu(answer, make, shape, seconds, peak, shown):
    try:
        return call(answer, make, shape, seconds, peak, shown=shown)
    except Wrong as problem:
        if getattr(problem.__cause__, "name", None) == "tabulate":
            raise Wrong(
                "FlopCounterMode() prints a table at its end and needs the package"
                " tabulate for it; you want the number only:"
                " FlopCounterMode(display=False)"
            ) from None
        raise (
            problem.__cause__ if isinstance(problem.__cause__, Wrong) else problem
        ) from None


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
        title="Self times",
        name="self_times",
        stars=3,
        check=check_self_times,
        hints=[
            (
                "Self time = own length, less the lengths of the direct children. Who"
                " is the parent of a span?"
            ),
            (
                "Sorted by (start, -end), a parent comes before its children. Keep a"
                " list of those still open."
            ),
            (
                "For each span: keep in the list what ends after its start, add its"
                " length to its name, take it off the name of the last one in the list."
            ),
        ],
        solution="""
def self_times(spans):
    times, around = {}, []
    for name, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        around = [span for span in around if span[2] > start]
        times[name] = times.get(name, 0) + end - start
        if around:
            times[around[-1][0]] -= end - start
        around.append((name, start, end))
    return times
""",
        praise=(
            "The self times of a thread never add up to more than its clock. That is"
            " why a profile is sorted by them."
        ),
    ),
    Exercise(
        number="09.2",
        title="Where did the GPU starve?",
        name="longest_gap",
        stars=2,
        check=check_longest_gap,
        hints=[
            (
                "Sort by start. Then walk, and remember the latest end so far, of"
                " whichever stream."
            ),
            "A gap opens where the next start lies after the latest end so far.",
            (
                "gaps.append((reached, start)) if start > reached; reached ="
                " max(reached, end); at the end max by length."
            ),
        ],
        solution="""
def longest_gap(spans):
    gaps, ends = [], []
    for start, end in sorted(spans):
        if ends and start > max(ends):
            gaps.append((max(ends), start))
        ends.append(end)
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
""",
        praise=(
            "With its two times you go to the host's row of the trace, and read there"
            " why."
        ),
    ),
    Exercise(
        number="09.3",
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
