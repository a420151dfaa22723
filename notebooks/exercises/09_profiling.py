"""Exercises of lesson 09."""

import os
import re
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import record_function
from torch.utils._pytree import tree_leaves

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from device_lab import busy
from exercises.doubles.operators import Operators
from simulate.fake import Fetched, MetaAsGpu
from simulate.roofline import transformer_flops
from simulate.waits import CountWaits

# as in the lesson: the profiler keeps its log to itself
os.environ.setdefault("KINETO_LOG_LEVEL", "99")


# --------------------------------------------------------------------------------------
# 09.1

RECORDINGS = [  # steps, first, count
    (8, 3, 3),
    (6, 1, 2),
    (12, 4, 1),
    (30, 3, 3),  # a cycle that repeats would record others
    (7, 4, 3),  # the loop ends with the last of them
]


def check_record(answer):
    for steps, first, count in RECORDINGS:
        shown, done = f"steps = {steps}, first = {first}, count = {count}", []

        def step(done=done):
            with record_function(f"step {len(done)}"):
                torch.ones(3).sum()
            done.append(1)

        got = call(answer, step, steps, first, count, shown=shown)
        why = "the loop goes on to its end, watched or not"
        expect.equal(len(done), steps, shown, why, "the number of calls of step() is")
        held, last = _steps_held(got, shown), first + count - 1
        why = (
            f"wait + warmup steps come before number {first}, and active says how many"
            " are kept"
        )
        if not held or held[0] > last or held[-1] - held[0] >= len(held):
            why = (
                "a later cycle is in it, or has thrown away the first one (repeat=1),"
                " or the loop never came to the steps that are kept"
            )
        expected = list(range(first, last + 1))
        expect.equal(held, expected, shown, why, "your recording holds the steps")


def _steps_held(got, shown):
    """The numbers of the steps that a profiler has recorded, in order."""
    try:
        # torch.profiler.profile, or the older torch.autograd.profiler.profile
        events = got.events() if hasattr(got, "events") else got.function_events
    except AttributeError:
        raise Wrong(
            f"for {shown} you returned a value of type {type(got).__name__}; the"
            " profiler is asked, what `with profile(…) as prof` calls prof"
        ) from None
    except AssertionError:
        raise Wrong(
            f"for {shown} the profiler has recorded nothing: call prof.step() at the"
            " end of each step, and let the profiler end before you return it"
        ) from None
    names = [event.name for event in events or ()]
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step \d+", name))


# --------------------------------------------------------------------------------------
# 09.2

NAMES = "busy", "input-bound", "sync-bound", "launch-bound"


def _event(cat, name, start, end, pid=0, tid=7):
    where = {"pid": pid, "tid": tid, "ph": "X"}
    return {"cat": cat, "name": name, "ts": start, "dur": end - start, **where}


def _trace(kernels, host):
    """kernels: (start, end) in µs; host: (category, name, start, end)."""
    events = [_event("kernel", "a kernel", *span) for span in kernels]
    return events + [_event(*each, pid=1, tid=1) for each in host]


def _launches(start, end, name="cudaLaunchKernel"):
    return [("cpu_op", "aten::mul", start, end), ("cuda_runtime", name, start + 2, end)]


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
TENTHS = [(0, 60), (100, 160), (200, 260)]  # two gaps of 40 µs
FAULTS = [  # events, lines that wait, the fault, why
    (_trace([(0, 90), (95, 200)], _launches(85, 100)), 0, "busy", "the share is 98%"),
    (_trace([(0, 50), (60, 100)], []), 3, "busy", "90% is asked, and asked first"),
    (
        _trace([(0, 60), (40, 90), (95, 100)], _launches(80, 96)),
        1,
        "busy",
        "kernels of two streams overlap, and the share is 95%",
    ),
    (
        _trace(
            [(0, 60), (100, 160), (190, 250), (280, 340)],
            [("user_annotation", "data", 60, 100), *_launches(158, 282)],
        ),
        0,
        "launch-bound",
        "the longest gap is in data, but of 100 µs idle 60 are launching",
    ),
    (
        _trace(TENTHS, _launches(55, 100) + _launches(155, 200)),
        0,
        "launch-bound",
        "all idle time is in aten:: and cudaLaunchKernel, and no line waits",
    ),
    (
        _trace(TENTHS, [("cpu_op", f"aten::{n}", n, n + 50) for n in (55, 155)]),
        0,
        "launch-bound",
        "all idle time is in aten::, operators that have not launched yet",
    ),
    (
        _trace(TENTHS, _launches(60, 90, "hipLaunchKernel")),
        0,
        "input-bound",
        "of 80 µs idle 30 are launching, 50 in no event",
    ),
    (
        _trace(TENTHS, _launches(60, 80) + _launches(160, 200, "hipLaunchKernel")),
        0,
        "launch-bound",
        "of 80 µs idle 60 are launching: aten::, cuda and hip together",
    ),
    (
        _trace(TENTHS, _launches(55, 100) + _launches(155, 200)),
        1,
        "sync-bound",
        "all idle time is launching, and a line waits: that emptied the queue",
    ),
    (
        _trace(TENTHS, [("user_annotation", LOADER, 50, 210)]),
        2,
        "input-bound",
        "all idle time is in the DataLoader, whatever waits",
    ),
    (
        _trace(TENTHS, [("user_annotation", "data", 60, 100), *_launches(165, 200)]),
        0,
        "input-bound",
        "of 80 µs idle 40 are in the range data, 5 in no event, 35 launching",
    ),
]


def check_name_fault(answer):
    for trace, waits, right, why in FAULTS:
        work = busy(trace)
        inside = ", ".join(f"{s * 1e6:.0f} µs {name}" for name, s in work.idle.items())
        shown = f"waits = {waits}, a share of {work.share:.0%}, and idle: {inside}"
        got = call(answer, trace, waits, shown=shown)
        if not isinstance(got, str) or got not in NAMES:
            names = ", ".join(map(repr, NAMES))
            raise Wrong(f"for {shown} you returned {got!r}, expected one of {names}")
        expect.equal(got, right, shown, why, said="you said")


# --------------------------------------------------------------------------------------
# 09.3

MATMULS = [  # m, k, n, b, FLOP/s, bytes/s
    (1000, 2000, 1500, 4, 8.1e12, 320e9),  # on a T4
    (1, 4096, 4096, 2, 989e12, 4.8e12),  # one token on an H200, bf16
    (4096, 4096, 4096, 2, 989e12, 4.8e12),
    (64, 64, 8, 1, 8.1e12, 4e12),
    (300, 20, 500, 8, 1e11, 3e10),
    (2, 3, 4, 4, 48.0, 104.0),  # one second each
    (2, 3, 4, 4, 48.0, 96.0),  # a ridge at 0.5, the matmul at 0.46
    (1, 1, 1, 2, 1e12, 1e12),
]


def check_bound(answer):
    for m, k, n, b, rate, bandwidth in MATMULS:
        shown = f"m = {m}, k = {k}, n = {n}, b = {b}"
        shown += f", {rate:.3g} FLOP/s, {bandwidth:.3g} bytes/s"
        got = call(answer, m, k, n, b, rate, bandwidth, shown=shown)
        asked = "(intensity, 'memory' or 'arithmetic', seconds)"
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Wrong(f"for {shown} you returned {got!r}, expected {asked}")
        intensity, limit, seconds = got
        expect.numbers([intensity, seconds], 2, shown, f"two numbers in {asked}")
        flop, values = 2 * m * k * n, m * k + k * n + m * n
        slips = [
            (flop / 2 / b / values, "a multiplication and an addition a term are two"),
            (flop / values, "that is FLOP per number. How many bytes has a number?"),
            (flop / 4 / values, "that is for numbers of 4 bytes"),
            (flop / b / (values - m * n), "the result is written to memory, too"),
            (b * values / flop, "that is bytes per FLOP"),
        ]
        why, said = f"{flop:,} FLOP over {b * values:,} bytes", "your intensity is"
        expect.close(intensity, flop / b / values, shown, why, slips, said)
        arithmetic, memory = flop / rate, b * values / bandwidth
        why = f"the arithmetic takes {arithmetic:.3g} s, the memory {memory:.3g} s"
        if arithmetic != memory or limit != "arithmetic":  # at the ridge both are right
            expected = "arithmetic" if arithmetic > memory else "memory"
            expect.equal(limit, expected, shown, why, "you said")
        both = "the two go on at the same time, so the longer one is the least time"
        slips = [(arithmetic + memory, both), (min(arithmetic, memory), both)]
        longer = max(arithmetic, memory)
        expect.close(seconds, longer, shown, why, slips, "you said", " s")


# --------------------------------------------------------------------------------------
# 09.4


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
        shown = f"batches of {', '.join(map(str, sizes))} samples"
        pairs, tensors = list(batches), [*tree_leaves(batches), weight]
        before = [x.clone() for x in tensors]
        # bound, so that it gets the list itself and no copy
        bound = partial(answer, batches, weight) if callable(answer) else answer
        waits, operators = CountWaits(numpy_raises=False), Operators()
        with operators, waits:
            got = call(bound, shown=shown)
        if [*map(id, batches)] != [*map(id, pairs)] or not all(
            map(torch.equal, before, tensors)
        ):
            raise Wrong(
                f"for {shown} your function changed the list, a batch or weight; the"
                " next epoch needs them"
            )
        _judge_types(operators.ran, shown)
        _judge_epoch(got, batches, weight, shown)
        _judge_work(waits.names, operators.ran, shown, len(sizes), width)
    _try_on_a_gpu(answer)


def _judge_epoch(got, batches, weight, shown):
    asked = "a pair of Python numbers (mean loss, share of right answers)"
    got = expect.numbers(got, 2, shown, asked)
    expected, alone = slow_epoch(batches, weight), []
    for batch in batches:
        alone.append(slow_epoch([batch], weight))
    whys = (
        "cross_entropy over all samples, with x / 64 @ weight as scores",
        "a sample is right where the largest of its scores is that of its class",
    )
    for place, what in enumerate(("mean loss", "share of right answers")):
        right, samples = expected[place], sum(len(y) for _, y in batches)
        mean_of_means = sum(each[place] for each in alone) / len(alone)
        slips = [
            (right * samples, "divide the sum by the number of samples"),
            (
                right * samples / len(alone),
                "divide by the number of samples, not of batches",
            ),
            (mean_of_means, "a mean of means is no mean: the batches differ in size"),
            (100 * right, "a share is asked, not percent"),
            (expected[1 - place], "the mean loss comes first, the share second"),
        ]
        said, near = f"your {what} is", {"rel_tol": 1e-4, "abs_tol": 1e-6}
        expect.close(got[place], right, shown, whys[place], slips, said, **near)


# the operators that multiply matrices
PRODUCTS = ("mm", "addmm", "bmm", "mv", "addmv", "dot")


def _judge_types(ran, shown):
    types = {x.dtype for o in ran if o.name in PRODUCTS for x in _tensors(o.args)}
    for other in types & {torch.float64, torch.float16, torch.bfloat16}:
        raise Wrong(
            f"for {shown} a product computes in {other}; float32 is asked: x.float()"
        )


def _judge_work(waits, ran, shown, count, width):
    """What right numbers have cost: names of the waits for a device, and the operators
    that ran.
    """
    but = f"right numbers for {shown}, but"
    if {"numpy", "__array__"} & set(waits):
        raise Wrong(
            f"{but} NumPy cannot read a tensor on a GPU: that raises. .cpu() first, or"
            " .tolist()"
        )
    # what writes into a tensor on the CPU is refused below, on a GPU that takes nothing
    # from there
    fetches = [name for name in waits if name not in ("__setitem__", "copy_")]
    if len(fetches) > 1:
        raise Wrong(
            f"{but} {len(fetches)} fetches ({', '.join(fetches[:4])} …): add up on the"
            " device, fetch both sums at once at the end"
        )
    if len(ran) > 20 * count + 15:
        raise Wrong(
            f"{but} {len(ran)} operators: cross_entropy and argmax take a whole batch"
            " at once"
        )
    # made from no other tensor; lift_fresh: what torch.tensor makes
    made = [o for o in ran if o.name == "lift_fresh" or not _tensors(o.args)]
    sizes = [x.numel() for o in made for x in _tensors(o.result)]
    if count > 1 and sizes.count(width) >= count:
        raise Wrong(
            f"{but} a tensor for the scale is still made for each batch: a constant"
            " factor needs none"
        )


def _tensors(values):
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _try_on_a_gpu(answer):
    batches = []
    for size in (16, 8):
        x = torch.zeros(size, 24, dtype=torch.uint8, device="meta")
        batches.append((x, torch.zeros(size, dtype=torch.int64, device="meta")))
    weight = torch.zeros(24, 5, device="meta")
    try:
        with MetaAsGpu():
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
    if hidden > 10_000 and not torch.empty(0).is_meta:
        raise Wrong(
            "the large model was built on the CPU, where it takes 26 GB: build it on"
            " meta"
        )
    return nn.Sequential(*(Attention(hidden, heads) for _ in range(layers)))


def _two_layers():
    return nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 20))


MODELS = [  # hidden, heads, layers, shape, seconds, peak
    (64, 4, 1, (2, 128, 64), 1e-3, 0.5),
    (32, 2, 3, (4, 64, 32), 2e-3, 0.1),
    (16384, 128, 2, (8, 4096, 16384), 1.5, 989),
]


def check_mfu_of(answer):
    for hidden, heads, layers, shape, seconds, peak in MODELS:
        shown = f"{layers} × width {hidden}, input {shape}, {seconds} s, {peak} TFLOP/s"
        batch, length, _ = shape
        tokens = batch * length
        forward = 4 * tokens * layers * hidden * (6 * hidden + length)
        # the gradient of the input, which nobody asks for
        unasked = 6 * tokens * hidden**2
        attention = 12 * tokens * layers * length * hidden
        whole = transformer_flops(layers, hidden, length, batch) - unasked
        make = partial(_blocks, hidden, heads, layers)
        slips = _mfu_slips(whole, forward, unasked, attention)
        _judge_mfu(answer, make, shape, seconds, peak, shown, whole, slips)
    first, second = 2 * 10 * 30 * 50, 2 * 10 * 50 * 20
    whole = 2 * first + 3 * second
    slips = _mfu_slips(whole, first + second, first, 0)
    shown = "two layers 30 → 50 → 20, input (10, 30), 1e-06 s, 0.5 TFLOP/s"
    _judge_mfu(answer, _two_layers, (10, 30), 1e-6, 0.5, shown, whole, slips)


def _mfu_slips(whole, forward, unasked, attention):
    """Pairs (FLOP, what went wrong where they are counted)."""
    return [
        (forward, "that is the forward pass; a training step is forward and backward"),
        (2 * forward, "that is twice the forward pass; count forward and backward"),
        (
            whole + unasked,
            "the input needs no gradient, so the product that makes it is not computed",
        ),
        (
            whole - attention,
            "the attention is not counted. On the CPU it is not in every version;"
            " count on meta",
        ),
        (2 * whole, "the counter counts multiplications and additions already"),
        (3 * whole, "the counter has the backward pass already"),
        (0, "forward and backward must run inside of the counter's `with` block"),
        (100 * whole, "a share is asked, not percent"),
        (1e12 * whole, "a TFLOP is 10¹² FLOP"),
        (1e24 * whole, "a / b * c multiplies by c: put the whole divisor in brackets"),
    ]


def _judge_mfu(answer, make, shape, seconds, peak, shown, whole, slips):
    got = _call_mfu(answer, make, shape, seconds, peak, shown)
    if torch.empty(0).is_meta:
        torch.set_default_device(None)
        raise Wrong(
            "the default device is still meta after your function; `with"
            ' torch.device("meta"):` sets it back'
        )
    expect.number(got, shown)
    slips = [(flops / seconds / peak / 1e12, text) for flops, text in slips]
    why = (
        "FLOP of the model itself, forward and backward, counted on meta, over"
        " seconds × peak × 10¹², and not rounded"
    )
    expected = whole / seconds / peak / 1e12
    expect.close(float(got), expected, shown, why, slips, rel_tol=1e-3)


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
        raise


EXERCISES = [
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
        title="Name the fault in a trace",
        name="name_fault",
        stars=1,
        check=check_name_fault,
        hints=[
            (
                "Three questions, in this order: is the share 90%? Was the host"
                " launching in at least half of the idle time? Does a line wait?"
            ),
            (
                "Mostly no launching is picture 4, whatever waits. Else it is 2,"
                " or 3 if a line waits: that has emptied the queue."
            ),
            (
                'launching: sum the seconds whose name.startswith(("aten::", "cuda",'
                ' "hip")), and compare with sum(found.idle.values()) / 2.'
            ),
        ],
        solution="""
from device_lab import busy


def name_fault(trace, waits):
    found = busy(trace)
    if found.share >= 0.9:
        return "busy"
    launching = 0
    for name, seconds in found.idle.items():
        if name.startswith(("aten::", "cuda", "hip")):
            launching += seconds
    if launching < sum(found.idle.values()) / 2:
        return "input-bound"
    return "sync-bound" if waits else "launch-bound"
""",
        praise=(
            "A rule of thumb, good enough to know where to look. A real loop often has"
            " two faults at once, and shows the second one when the first is mended."
        ),
    ),
    Exercise(
        number="09.3",
        title="Which roof?",
        name="bound",
        stars=1,
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
        stars=2,
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
            "Three faults of three kinds, one loop. On a GPU the host can now be ahead"
            " of the device by whole batches."
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
