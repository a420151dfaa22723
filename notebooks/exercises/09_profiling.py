"""Exercises of lesson 09."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from utils.exercises import Exercise, Wrong, call
from utils.simulate.roofline import transformer_flops

# ---------------------------------------------------------------------------------------------------------------
# 09.1

NESTED = [("step", 0, 100), ("linear", 10, 60), ("mm", 20, 50), ("linear", 70, 90), ("mm", 75, 85)]
SELF_TIMES = [
    ("two operators one after the other", [("a", 0, 3), ("b", 5, 9)], {"a": 3, "b": 4}),
    ("one operator inside another", [("linear", 0, 10), ("mm", 2, 9)], {"linear": 3, "mm": 7}),
    ("a step with three levels", NESTED, {"step": 30, "linear": 30, "mm": 40}),
    ("the same step in another order", NESTED[::-1], {"step": 30, "linear": 30, "mm": 40}),
    ("a function that calls itself", [("f", 0, 10), ("f", 2, 6)], {"f": 10}),
]


def check_self_times(answer):
    for text, spans, expected in SELF_TIMES:
        got = call(answer, list(spans), shown=text)
        if not isinstance(got, dict):
            raise Wrong(f"for {text} you returned {got!r}, expected a dict of name → self time")
        if set(got) != set(expected):
            raise Wrong(f"for {text} your names are {sorted(map(str, got))}, expected {sorted(expected)}")
        for name, right in expected.items():
            if not _close(got[name], right):
                raise Wrong(f"for {text}, {spans}, you gave {name!r} {got[name]!r}, expected {right}: {_why(text)}")


def _why(text):
    return {
        "a step with three levels": "only the direct children count, their own children are in their time already",
        "a function that calls itself": "add up the self times of both calls, 6 and 4",
        "the same step in another order": "the order of the list says nothing, sort it first",
    }.get(text, "self time is the length less the time of what is inside")


def _close(got, right):
    return isinstance(got, (int, float)) and not isinstance(got, bool) and math.isclose(got, right, abs_tol=1e-9)


SELF = """
def self_times(spans):
    times, stack = {}, []
    for name, start, end in sorted(spans, key=lambda span: (span[1], -span[2])):
        while stack and stack[-1][1] <= start:
            stack.pop()
        times[name] = times.get(name, 0) + end - start
        if stack:
            times[stack[-1][0]] -= end - start
        stack.append((name, end))
    return times
"""

# ---------------------------------------------------------------------------------------------------------------
# 09.2

GAPS = [
    ("three kernels of one stream", [(0, 2), (5, 6), (7, 9)], (2, 5)),
    ("kernels in no order", [(5, 6), (7, 9), (0, 2)], (2, 5)),
    ("a long kernel of one stream over short ones of another", [(0, 10), (1, 2), (3, 4), (12, 13)], (10, 12)),
    ("two streams that fill each other's gaps", [(0, 4), (6, 9), (3, 7)], None),
    ("kernels that touch", [(0, 1), (1, 2)], None),
    ("a single kernel", [(3, 4)], None),
]


def check_longest_gap(answer):
    for text, spans, expected in GAPS:
        got = call(answer, list(spans), shown=f"{text}, {spans}")
        if expected is None:
            if got is not None:
                raise Wrong(f"for {text}, {spans}, you returned {got!r}: there is no gap, expected None")
        elif not isinstance(got, (tuple, list)) or len(got) != 2 or not all(map(_close, got, expected)):
            why = {
                "kernels in no order": "sort the kernels by their start first",
                GAPS[2][0]: "the first kernel runs until 10, whatever ends earlier in another stream",
            }.get(text, "a gap goes from the end of all that ran before to the next start")
            raise Wrong(f"for {text}, {spans}, you returned {got!r}, expected {expected}: {why}")


# ---------------------------------------------------------------------------------------------------------------
# 09.3


def _name(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if data > (step - busy) / 2:
        return "input-bound"
    return "sync-bound" if fetched > 1 else "launch-bound"


FIGURES = [
    ((10, 9.5, 0.2, 0), "the GPU worked 95% of the step"),
    ((10, 9.0, 6, 200), "the GPU worked 90%, so nothing else matters"),
    ((20, 4, 12, 0), "12 of the 16 idle ms went by in the data range"),
    ((20, 4, 12, 128), "the data range explains most of the idle time, and it is asked first"),
    ((20, 4, 2, 128), "128 values were fetched in one step"),
    ((20, 4, 2, 1), "one fetch a step is no swarm, and the data took little"),
    ((20, 16, 2.5, 0), "the GPU was idle for 4 ms, and the data range took 2.5 of them: compare with the idle time"),
]


def check_name_fault(answer):
    for figures, why in FIGURES:
        shown = "step={}, busy={}, data={}, fetched={}".format(*figures)
        got, right = call(answer, *figures, shown=shown), _name(*figures)
        if got != right:
            raise Wrong(f"for {shown} you said {got!r}, expected {right!r}: {why}")


# ---------------------------------------------------------------------------------------------------------------
# 09.4


class Fetches(TorchFunctionMode):
    """Notes each call that needs a value on the host."""

    NAMES = {"item", "tolist", "cpu", "numpy", "__array__", "nonzero", "is_nonzero", "equal", "allclose", "unique"}
    NAMES |= {"__bool__", "__float__", "__int__", "__index__", "__format__", "__repr__", "__contains__"}

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name in self.NAMES:
            self.names.append(name)
        elif name in ("tensor", "as_tensor") and args and isinstance(args[0], (list, tuple)):
            self.names += [name for value in args[0] if isinstance(value, torch.Tensor)]
        with torch._C.DisableTorchFunction():
            return function(*args, **(kwargs or {}))


class Operators(TorchDispatchMode):
    """Counts the operators that run, and notes the types that products compute in."""

    def __init__(self):
        super().__init__()
        self.count, self.types = 0, []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        if operation.overloadpacket.__name__ in ("mm", "addmm", "bmm", "mv", "addmv"):
            self.types += [x.dtype for x in args if isinstance(x, torch.Tensor)]
        return operation(*args, **(kwargs or {}))


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
    weight = torch.randn(24, 5, generator=draw)
    for sizes in ((16, 16), (16, 16, 8)):
        batches = []
        for size in sizes:
            x = torch.randint(0, 256, (size, 24), dtype=torch.uint8, generator=draw)
            batches.append((x, torch.randint(0, 5, (size,), generator=draw)))
        expected, shown = slow_epoch(batches, weight), f"batches of {', '.join(map(str, sizes))} samples"
        fetches, operators = Fetches(), Operators()
        with operators, fetches:
            got = call(answer, batches, weight, shown=shown)
        _judge_epoch(got, expected, shown, sizes)
        if torch.float64 in operators.types:
            raise Wrong(f"right numbers for {shown}, but a product still computes in float64: use x.float()")
        if len(fetches.names) > 1:
            raise Wrong(
                f"right numbers for {shown}, but {len(fetches.names)} fetches ({', '.join(fetches.names[:4])} …): "
                "add up on the device, fetch both sums at once at the end"
            )
        if operators.count > 20 * len(sizes) + 15:
            raise Wrong(
                f"right numbers for {shown}, but {operators.count} operators: cross_entropy and argmax take a whole "
                "batch at once"
            )


def _judge_epoch(got, expected, shown, sizes):
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"for {shown} you returned {got!r}, expected a pair (mean loss, share of right answers)")
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in got):
        kinds = " and ".join(type(value).__name__ for value in got)
        raise Wrong(f"for {shown} you returned {got!r}; Python numbers are asked, not {kinds}")
    for what, a, b in zip(("mean loss", "share of right answers"), got, expected, strict=True):
        if not math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6):
            why = ": a mean of means is no mean when the batches differ in size" if len(set(sizes)) > 1 else ""
            raise Wrong(f"for {shown} your {what} is {a:.6g}, expected {b:.6g}{why}")


EPOCH = """
def epoch(batches, weight):
    loss = right = count = 0
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        loss = loss + torch.nn.functional.cross_entropy(scores, y, reduction="sum")
        right = right + (scores.argmax(1) == y).sum()
        count += len(y)
    loss, right = torch.stack([loss, right]).tolist()
    return loss / count, right / count
"""
SUM = "right = right + (scores.argmax(1) == y).sum()"
FETCH = "loss, right = torch.stack([loss, right]).tolist()"
WIDE = EPOCH.replace("x.float() / 64) @ weight", "x.double() / 64) @ weight.double()")
FETCHING = EPOCH.replace(SUM, f"right += {SUM[16:]}.item()").replace(FETCH, "loss = loss.item()")

# ---------------------------------------------------------------------------------------------------------------
# 09.5


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.heads = heads

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, hidden)
        return x + self.down(F.gelu(self.up(x + self.out(mixed))))


def _needed(hidden, length, batch, layers):
    """A training step of `layers` blocks whose input needs no gradient: that of the first product is not computed."""
    return transformer_flops(layers, hidden, length, batch) - 2 * batch * length * hidden * 3 * hidden


def check_mfu_of(answer):
    cases = [(64, 4, 128, 2, 1, 1e-3, 0.5), (32, 2, 64, 4, 3, 2e-3, 0.1), (16384, 128, 4096, 8, 2, 1.5, 989)]
    for hidden, heads, length, batch, layers, seconds, peak in cases:
        huge = hidden > 10_000

        def make(hidden=hidden, heads=heads, layers=layers, huge=huge):
            weight = torch.empty(0)
            if huge and weight.device.type != "meta":
                raise Wrong("the large model was built on the CPU, where it takes 26 GB: build it on meta")
            return nn.Sequential(*(Attention(hidden, heads) for _ in range(layers)))

        shown = f"{layers} blocks of width {hidden}, input {(batch, length, hidden)}, {seconds} s, {peak} TFLOP/s"
        got = _call_mfu(answer, make, (batch, length, hidden), seconds, peak, shown)
        expected = _needed(hidden, length, batch, layers) / seconds / peak / 1e12
        if not isinstance(got, (int, float)) or isinstance(got, bool):
            raise Wrong(f"for {shown} you returned {got!r}, expected a number")
        if not math.isclose(got, expected, rel_tol=1e-3):
            raise Wrong(f"for {shown} you returned {got:.4g}, expected {expected:.4g}: {_mfu_hint(got / expected)}")


def _call_mfu(answer, make, shape, seconds, peak, shown):
    try:
        return call(answer, make, shape, seconds, peak, shown=shown)
    except Wrong as problem:
        if getattr(problem.__cause__, "name", None) == "tabulate":
            raise Wrong(
                "FlopCounterMode() prints a table at its end and needs the package tabulate for it; you want the "
                "number only: FlopCounterMode(display=False)"
            ) from None
        raise problem.__cause__ if isinstance(problem.__cause__, Wrong) else problem from None


def _mfu_hint(ratio):
    if math.isclose(ratio, 100, rel_tol=0.01):
        return "a share is asked, not percent"
    if ratio > 1e6:
        return "a TFLOP is 10¹² FLOP"
    if ratio < 0.5:
        return "a training step is forward and backward"
    if ratio < 1:
        return "is the attention counted? On the CPU it is not in every version; count on meta"
    return (
        "the input needs no gradient, so its gradient is not computed; and on a GPU (since 2.15 on a CPU, too) the "
        "counter adds what attention computes twice: count on meta"
    )


MFU = """
from torch.utils.flop_counter import FlopCounterMode

def mfu_of(make, shape, seconds, peak):
    with torch.device("meta"):
        model, x = make(), torch.empty(shape)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    return counter.get_total_flops() / seconds / (peak * 1e12)
"""

EXERCISES = [
    Exercise(
        number="09.1",
        title="Self times",
        name="self_times",
        stars=2,
        check=check_self_times,
        hints=[
            "Self time = own length, less the lengths of the direct children. Who is the parent of a span?",
            "Sorted by (start, -end), a parent comes before its children. Keep the open spans on a stack.",
            "For each span: pop what has ended, add its length to its name, take it off the name on top of the stack.",
        ],
        solution=SELF,
        praise="The self times of a thread never add up to more than its clock. That is why a profile is sorted by "
        "them.",
        wrong={
            """
def self_times(spans):
    times = {}
    for name, start, end in spans:
        times[name] = times.get(name, 0) + end - start
    return times
""": "less the time of what is inside",
            """
def self_times(spans):
    times = {}
    for name, a, b in spans:
        inside = sum(d - c for _, c, d in spans if a <= c and d <= b and (c, d) != (a, b))
        times[name] = times.get(name, 0) + b - a - inside
    return times
""": "only the direct children count",
            SELF.replace("sorted(spans, key=lambda span: (span[1], -span[2]))", "spans"): "sort it first",
            SELF.replace("times.get(name, 0) + end - start", "end - start"): "expected",
            "def self_times(spans):\n    return [end - start for _, start, end in spans]\n": "expected a dict",
        },
    ),
    Exercise(
        number="09.2",
        title="Where did the GPU starve?",
        name="longest_gap",
        stars=2,
        check=check_longest_gap,
        hints=[
            "Sort by start. Then walk, and remember the latest end so far, of whichever stream.",
            "A gap opens where the next start lies after the latest end so far.",
            "gaps.append((reached, start)) if start > reached; reached = max(reached, end); at the end max by length.",
        ],
        solution="""
def longest_gap(spans):
    gaps, reached = [], min(start for start, _ in spans)
    for start, end in sorted(spans):
        if start > reached:
            gaps.append((reached, start))
        reached = max(reached, end)
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=None)
""",
        praise="With its two times you go to the host's row of the trace, and read there why.",
        wrong={
            """
def longest_gap(spans):
    pairs = [(a[1], b[0]) for a, b in zip(spans, spans[1:]) if b[0] > a[1]]
    return max(pairs, key=lambda gap: gap[1] - gap[0], default=None)
""": "sort the kernels",
            """
def longest_gap(spans):
    spans = sorted(spans)
    pairs = [(a[1], b[0]) for a, b in zip(spans, spans[1:]) if b[0] > a[1]]
    return max(pairs, key=lambda gap: gap[1] - gap[0], default=None)
""": "the first kernel runs until 10",
            """
def longest_gap(spans):
    gaps, reached = [], 0
    for start, end in sorted(spans):
        gaps.append((reached, start))
        reached = max(reached, end)
    return max(gaps, key=lambda gap: gap[1] - gap[0])
""": "there is no gap, expected None",
            """
def longest_gap(spans):
    spans = sorted(spans)
    return max((b[0] - a[1] for a, b in zip(spans, spans[1:])), default=None)
""": "you returned 3, expected (2, 5)",
        },
    ),
    Exercise(
        number="09.3",
        title="Name the fault",
        name="name_fault",
        stars=2,
        check=check_name_fault,
        hints=[
            "The time that needs an explanation is step - busy, the GPU's idle time.",
            "Ask in the order of the text, and return at the first yes.",
            "busy >= 0.9 * step; data > (step - busy) / 2; fetched > 1; else launch-bound.",
        ],
        solution="""
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if data > (step - busy) / 2:
        return "input-bound"
    return "sync-bound" if fetched > 1 else "launch-bound"
""",
        praise="A rule of thumb, good enough to know where to look. A real loop has two faults at once, and shows the "
        "second one when the first is mended.",
        wrong={
            """
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if data > step / 2:
        return "input-bound"
    return "sync-bound" if fetched > 1 else "launch-bound"
""": "compare with the idle time",
            """
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if fetched > 1:
        return "sync-bound"
    return "input-bound" if data > (step - busy) / 2 else "launch-bound"
""": "it is asked first",
            """
def name_fault(step, busy, data, fetched):
    if data > (step - busy) / 2:
        return "input-bound"
    if busy >= 0.9 * step:
        return "busy"
    return "sync-bound" if fetched > 1 else "launch-bound"
""": "nothing else matters",
            """
def name_fault(step, busy, data, fetched):
    if busy >= 0.9 * step:
        return "busy"
    if data > (step - busy) / 2:
        return "input-bound"
    return "sync-bound" if fetched else "launch-bound"
""": "one fetch a step is no swarm",
        },
    ),
    Exercise(
        number="09.4",
        title="Mend an epoch",
        name="epoch",
        stars=2,
        check=check_epoch,
        hints=[
            "A constant factor needs no tensor: x.float() / 64. And cross_entropy takes all rows of a batch at once.",
            'reduction="sum" gives a sum that you can add up over batches of different sizes, on the device.',
            "At the end: torch.stack([loss, right]).tolist() is one fetch for both sums.",
        ],
        solution=EPOCH,
        praise="Three faults of three kinds, one loop. On a GPU the host is now ahead of the device by whole batches.",
        wrong={
            """
def epoch(batches, weight):
    losses, right, count = [], 0, 0
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        for k in range(len(y)):
            losses.append(torch.nn.functional.cross_entropy(scores[k], y[k]).item())
            right += (scores[k].argmax() == y[k]).item()
            count += 1
    return sum(losses) / count, right / count
""": "fetches (item, item, item, item …)",
            EPOCH.replace(
                "x.float() / 64) @ weight", "x.double() / 64) @ weight.double()"
            ): "still computes in float64",
            EPOCH.replace(
                "right = right + (scores.argmax(1) == y).sum()", "right += (scores.argmax(1) == y).sum().item()"
            ).replace("loss, right = torch.stack([loss, right]).tolist()", "loss = loss.item()"): "3 fetches",
            """
def epoch(batches, weight):
    losses, rights = [], []
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        losses.append(torch.nn.functional.cross_entropy(scores, y))
        rights.append((scores.argmax(1) == y).float().mean())
    return tuple(torch.stack([torch.stack(losses).mean(), torch.stack(rights).mean()]).tolist())
""": "a mean of means is no mean",
            EPOCH.replace("loss, right = torch.stack([loss, right]).tolist()\n    ", ""): "Python numbers are asked",
            """
def epoch(batches, weight):
    losses, rights = [], []
    for x, y in batches:
        scores = (x.float() / 64) @ weight
        for k in range(len(y)):
            losses.append(torch.nn.functional.cross_entropy(scores[k], y[k]))
            rights.append((scores[k].argmax() == y[k]).float())
    return tuple(torch.stack([torch.stack(losses).mean(), torch.stack(rights).mean()]).tolist())
""": "operators: cross_entropy and argmax take a whole batch",
        },
    ),
    Exercise(
        number="09.5",
        title="MFU of any model",
        name="mfu_of",
        stars=2,
        check=check_mfu_of,
        hints=[
            'with torch.device("meta"): make the model and its input there, so that nothing is allocated or computed.',
            "with FlopCounterMode(display=False) as counter: forward and backward, both in the block.",
            "counter.get_total_flops() / seconds / (peak * 1e12)",
        ],
        solution=MFU,
        praise="The same line in your training loop, once at the start for the FLOP, gives a figure that you can "
        "compare with papers, as long as both take the peak from the data sheet.",
        wrong={
            MFU.replace("model(x).sum().backward()", "model(x)"): "forward and backward",
            MFU.replace("torch.empty(shape)", "torch.empty(shape, requires_grad=True)"): "the input needs no gradient",
            MFU.replace("(peak * 1e12)", "peak"): "a TFLOP is",
            MFU.replace("return counter", "return 100 * counter"): "not percent",
            MFU.replace('torch.device("meta")', 'torch.device("cpu")'): "",
            """
def mfu_of(make, shape, seconds, peak):
    parameters = sum(p.numel() for p in make().parameters())
    return 6 * parameters * shape[0] * shape[1] / seconds / (peak * 1e12)
""": "is the attention counted?",
        },
    ),
]
