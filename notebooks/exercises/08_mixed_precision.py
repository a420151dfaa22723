"""Exercises of lesson 08."""

import contextlib
import copy
import itertools
import math

import torch
import torch.nn.functional as F

from course import expect
from course.answers import NotAnswered, Wrong, call
from course.exercises import Exercise
from simulate.fake import fake_autocast, fake_gpus


class Product(torch.nn.Module):
    """x @ weight; notes under which autocast each pass ran, and on what input. lift:
    its output is float32.
    """

    def __init__(self, weight, lift):
        super().__init__()
        on_cpu = weight.device.type == "cpu"
        self.weight = torch.nn.Parameter(weight, requires_grad=on_cpu)
        self.seen, self.inputs, self.lift = [], [], lift

    def forward(self, x):
        self.seen.append(autocast_type(x.device.type))
        self.inputs.append(x.dtype)
        return (x @ self.weight).float() if self.lift else x @ self.weight


def check_autocast(answer):
    for lift, kind, dtype in itertools.product(
        (False, True), ("cpu", "xpu"), (torch.float16, torch.bfloat16)
    ):
        with fake_gpus() if kind == "xpu" else contextlib.nullcontext():
            _check_autocast(answer, lift, kind, dtype)


def _check_autocast(answer, lift, kind, dtype):
    model = Product(torch.ones(8, 4, device=kind) / 3, lift)
    x, default = torch.ones(2, 8, device=kind), torch.get_autocast_dtype(kind)
    shown = f"a tensor on {kind} and {dtype}"
    got = call(answer, model, x, dtype, shown=shown, changes=[model])
    if autocast_type(kind):
        torch.set_autocast_enabled(kind, False)
        raise Wrong(
            "autocast is still on after your function: use it in a with statement"
        )
    if torch.get_autocast_dtype(kind) != default:
        torch.set_autocast_dtype(kind, default)
        raise Wrong(
            f"autocast has another default type for {kind} now: hand dtype to"
            " torch.autocast instead"
        )
    if model.weight.dtype != torch.float32:
        raise Wrong(
            f"the weight is {model.weight.dtype} now: autocast casts a copy, and leaves"
            " it as it is"
        )
    if not model.seen:
        raise Wrong(f"for {shown} the model did not run: call model(x)")
    if model.seen[0] is None:
        gpu = ""
        if kind == "xpu":
            gpu = " (an Intel GPU; the tensor is a fake, so you need none)"
        raise Wrong(
            f"for {shown}{gpu} autocast was off while the model ran: it must be on for"
            " x.device.type"
        )
    if model.seen[0] != dtype:
        raise Wrong(f"for {shown} autocast ran with {model.seen[0]}")
    if not isinstance(got, torch.Tensor) or got.shape != (2, 4):
        raise Wrong(f"for {shown} you returned {got!r}, expected what model(x) gives")
    if model.inputs[0] != torch.float32:
        raise Wrong(
            f"for {shown} the model got x in {model.inputs[0]}: hand it over as it is,"
            " autocast casts"
        )
    if got.dtype != (torch.float32 if lift else dtype):
        last = ", the model's last operation gave torch.float32" if lift else ""
        raise Wrong(
            f"for {shown} your output is {got.dtype}{last}: return it as it comes out"
        )
    if kind == "cpu" and not got.requires_grad:
        raise Wrong(
            f"for {shown} backward() would fail on your output: no torch.no_grad(), no"
            " detach()"
        )
    if got.device.type != kind:
        raise Wrong(f"for {shown} your output is on {got.device}")


LINES = {
    "h @ w": (
        "a matmul is on the list of what runs in 16 bits, so the float32 weight is"
        " cast down"
    ),
    "h.softmax(-1)": "softmax is on CUDA's list of what needs float32",
    "h.relu()": "relu is on no list, so it keeps the type of what it gets",
    "h + w": (
        "an addition is on no list, so the ordinary rule of type promotion holds: the"
        " wider type wins"
    ),
    "h.sum()": "a sum over many numbers is on CUDA's list of what needs float32",
    "torch.cat([h, w])": (
        "cat is on no list, and of two types the wider one wins, as in an addition"
    ),
}


def check_dtypes(answer):
    if not isinstance(answer, (list, tuple)) or len(answer) != len(LINES):
        raise Wrong(f"expected a list of {len(LINES)} names of types, got {answer!r}")
    with fake_autocast(torch.float16):
        h = torch.ones(8, 8, dtype=torch.float16, device="cuda")
        names = {"torch": torch, "h": h, "w": torch.ones(8, 8, device="cuda")}
        dtypes = [str(eval(line, names).dtype) for line in LINES]
    for given, dtype, (line, why) in zip(answer, dtypes, LINES.items(), strict=True):
        expected = dtype.removeprefix("torch.")
        if str(given).removeprefix("torch.") != expected:
            raise Wrong(
                f"for {line} you said {given!r}, PyTorch gives {expected}: {why}"
            )


def _inputs(e, m):
    """Numbers to try in a format, each with what it shows."""
    bias = 2 ** (e - 1) - 1
    normal, step, largest = 2.0 ** (1 - bias), 2.0**-m, (2 - 2.0**-m) * 2.0**bias
    tiny, half = normal * step, 2.0 ** (bias - m) / 2
    even = "it lies halfway between two neighbors, and the even one wins"
    subnormal = f"below 2**{1 - bias} the steps get no smaller, down to zero"
    reach = (
        f"the largest number of this format is {largest:.6g}, and what is too large"
        " becomes infinite"
    )
    first = (
        "round first: the nearest is the largest number. Infinite is what is too large"
        " then"
    )
    beyond = "the next number would be too large, and it is the even one: infinity"
    return [
        (0.3, f"the nearest of its neighbors, which are 2**{-2 - m} apart"),
        (-0.3, "rounding to the nearest, below zero as above"),
        (3, "a number that all formats know"),
        (1 + step / 2, even),
        (1 + 1.5 * step, even),
        (-1 - 1.5 * step, even),
        (2 - step / 4, "the nearest may be the next power of two"),
        (1e-7, subnormal),
        (3e-6, subnormal),
        (tiny, subnormal),
        (3 * tiny, subnormal),
        (-0.75 * tiny, subnormal),
        (normal - tiny, subnormal),
        (normal + tiny, "just above the smallest normal number"),
        (tiny / 4, "less than half of the smallest number is zero"),
        (tiny / 2, even),
        (1.5 * tiny, even),
        (0.0, "zero stays zero"),
        (largest, "the largest number of this format"),
        (70000.0, reach),
        (-70000.0, f"{reach}, here on the other side"),
        (1e38, reach),
        (largest + 0.9 * half, first),
        (largest + half, beyond),
        (-largest - half, f"{beyond}, on the other side"),
    ]


def _nearest(x, e, m):
    """Counts through all numbers of the format: an even place has an even mantissa, the
    last stands for infinity.
    """
    bias, count = 2 ** (e - 1) - 1, (2**e - 1) * 2**m + 1
    sizes = []
    for i in range(count):
        exponent, mantissa = divmod(i, 2**m)
        if exponent:  # a normal number
            mantissa += 2**m
        sizes.append(math.ldexp(mantissa, max(exponent, 1) - bias - m))
    size = min(abs(x), sizes[-1])
    place = min(range(count), key=lambda i: (abs(sizes[i] - size), i % 2))
    return math.copysign(math.inf if place == count - 1 else sizes[place], x)


def check_keep(answer):
    formats = {
        (5, 10): torch.float16,
        (8, 7): torch.bfloat16,
        (5, 2): torch.float8_e5m2,
        (4, 3): None,
        (3, 4): None,
    }
    for (e, m), dtype in formats.items():
        name = "this format"
        if dtype:
            name = f"PyTorch's {str(dtype).removeprefix('torch.')}"
        for value, why in _inputs(e, m):
            # what float32 keeps of it: PyTorch goes through float32, too
            x = torch.tensor(value).item()
            if dtype:
                expected = torch.tensor(float(x)).to(dtype).float().item()
            else:
                expected = _nearest(x, e, m)
            _check_kept(answer, (x, e, m), f"{x:.9g}", expected, name, why)
    why = "float32 keeps 23 bits of mantissa, a Python number 52: compute with those"
    expected = round(0.1 * 2**34) / 2**34
    _check_kept(answer, (0.1, 8, 30), "0.1", expected, "this format", why)


def _check_kept(answer, given, x, expected, name, why):
    shown = f"keep_bits({x}, {given[1]}, {given[2]})"
    got = call(answer, *given, shown=shown)
    if not expect.is_number(got):
        raise Wrong(f"{shown} gave {got!r}, expected a Python number")
    if got != expected:
        mine, theirs = expect.distinct_texts(float(got), expected)
        raise Wrong(f"{shown} gave {mine}, {name} keeps {theirs}: {why}")


def check_share_lost(answer):
    ones, steps = torch.ones(5), torch.tensor([1e-4, -1e-4, 0.01, 0.02, 0.0])
    large = torch.tensor([[256.0, 1.0], [0.001, -1.0]])
    half, brain = torch.float16, torch.bfloat16
    near = "0.0001 is less than half of the distance from 1 to the next number"
    all_move = "float32 has a number 0.0000001 above 1: only the update of zero is lost"
    far = "the distance to the next number grows with the weight: it is 2 at 256"
    fine = "float16 has three bits more than bfloat16: 256 and 256.5 are two numbers"
    first = "round both first: float16 makes 1 of this weight, and 1 + 0.0003 is 1"
    for weights, updates, dtype, expected, why in (
        (ones, steps, half, 0.6, near),
        (ones, steps, brain, 0.6, near),
        (ones, steps, torch.float32, 0.2, all_move),
        (large, torch.full((2, 2), 0.5), brain, 0.25, far),
        (large, torch.full((2, 2), 0.5), half, 0.0, fine),
        (
            torch.tensor([1.0003, 1.0003, 1.0]),
            torch.tensor([0.0003, 0.0003, 0.1]),
            half,
            2 / 3,
            first,
        ),
    ):
        shown = f"weights {weights.tolist()}, updates {updates.tolist()}, {dtype}"
        got = call(answer, weights.clone(), updates.clone(), dtype, shown=shown)
        if isinstance(got, torch.Tensor) and got.numel() == 1:
            got = got.item()
        if not expect.is_number(got):
            raise Wrong(f"for {shown} you returned {got!r}: expected a number")
        if math.isclose(got, expected, abs_tol=1e-6):
            continue
        if math.isclose(got, 1 - expected, abs_tol=1e-6):
            why = "that is the share that moves"
        elif got == expected * weights.numel():
            why = "that is how many, not which share"
        raise Wrong(f"for {shown} you returned {got:g}, expected {expected:g}: {why}")


class SpyScaler(torch.amp.GradScaler):
    """A GradScaler on the CPU that notes what is asked of it."""

    def __init__(self, scale):
        super().__init__("cpu", init_scale=scale)
        self.calls, self.scaled = [], []

    def scale(self, outputs):
        self.calls.append("scale")
        self.scaled.append(getattr(outputs, "dtype", None))
        return super().scale(outputs)

    def unscale_(self, optimizer):
        self.calls.append("unscale_")
        return super().unscale_(optimizer)

    def step(self, optimizer, *args, **kwargs):
        self.calls.append("step")
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        if "step" not in self.calls:
            raise Wrong(
                "update() came before step(): it ends a step, after the loop over the"
                " batches, and makes the scale for the next one"
            )
        self.calls.append("update")
        return super().update(new_scale)


class Run:
    """One call of the answer, and what the model and the optimizer saw. single: it gets
    x, y, and not a list.
    """

    def __init__(self, answer, max_norm, k, scale=2.0**10, more="", single=False):
        random = torch.Generator().manual_seed(0)
        layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
        self.model, self.k, self.max_norm = torch.nn.Sequential(*layers), k, max_norm
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(torch.randn(p.shape, generator=random))
                # left over from the step before, with its scale
                p.grad = torch.full_like(p, 5000.0)
        x = torch.randn(32, 8, generator=random)
        y = torch.randint(3, (32,), generator=random)
        twin = copy.deepcopy(self.model)
        twin.zero_grad()
        loss = F.cross_entropy(twin(x), y)
        loss.backward()
        self.loss, self.whole = loss.item(), flat(twin)
        self.scaler = SpyScaler(scale)
        # types of autocast in each pass; gradients that backward added to; gradients
        # that the optimizer saw
        self.forward, self.backward, self.there, self.seen = [], [], [], []
        self.model.register_forward_hook(
            lambda *_: self.forward.append(autocast_type())
        )
        self.last = list(self.model.parameters())[-1]
        self.last.register_hook(self.note)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        optimizer.register_step_pre_hook(lambda *_: self.seen.append(flat(self.model)))
        start = flat_weights(self.model)
        batches = list(zip(x.split(32 // k), y.split(32 // k), strict=True))
        given = batches[0] if single else (batches,)
        given = self.model, optimizer, self.scaler, *given, max_norm
        shown = f"{k} batches, max_norm {max_norm}{more}"
        self.returned = call(answer, *given, shown=shown, changes=[self.model])
        self.lr = optimizer.param_groups[0]["lr"]
        self.moved = start - flat_weights(self.model)
        self.batches = f"{k} batch{'es' if k > 1 else ''}"

    def note(self, _):
        """Before a gradient is added: whether that is within autocast, and to what it
        is added.
        """
        self.backward.append(autocast_type())
        self.there.append(self.last.grad is not None and bool(self.last.grad.any()))

    def check(self):
        self.check_passes()
        self.check_scaler()
        self.check_gradient()

    def check_passes(self):
        if len(self.forward) != self.k:
            raise Wrong(
                f"{self.batches}: the model ran {_times(len(self.forward))}, the"
                f" optimizer {_times(len(self.seen))}, expected {self.k} and 1"
            )
        if not all(self.forward):
            raise Wrong(
                "the model ran without autocast for the CPU: put the forward pass and"
                " the loss into it"
            )
        if any(dtype != torch.float16 for dtype in self.forward):
            raise Wrong("autocast ran with another type: dtype=torch.float16")
        if any(self.backward):
            raise Wrong(
                "backward ran within autocast: it belongs after it, each operation"
                " remembers its own types"
            )
        if len(self.backward) != self.k:
            raise Wrong(
                f"backward ran {_times(len(self.backward))} for {self.batches}: call it"
                " for each of them, or the activations of all stay in memory until the"
                " end"
            )

    def check_scaler(self):
        calls = self.scaler.calls
        if calls.count("scale") != self.k:
            raise Wrong(
                f"backward ran {_times(self.k)}, scaler.scale"
                f" {_times(calls.count('scale'))}: each loss needs it once"
            )
        if any(dtype != torch.float32 for dtype in self.scaler.scaled):
            raise Wrong(
                "the loss was computed in float16, outside of autocast: within,"
                " cross_entropy gets float32"
            )
        if len(self.seen) != 1:
            raise Wrong(
                f"{len(self.seen)} optimizer steps for {self.batches}: accumulate"
                " first, step once"
            )
        if calls.count("step") != 1:
            raise Wrong(
                "use scaler.step(optimizer): it skips the step where a gradient is not"
                " finite"
            )
        if "update" not in calls:
            raise Wrong("scaler.update() was not called: call it once, after the step")
        if calls.count("update") != 1:
            raise Wrong(
                f"scaler.update() was called {_times(calls.count('update'))}: call it"
                " once, after the step"
            )

    def check_gradient(self):
        size, seen = self.whole.norm().item(), self.seen[0]
        expected, found = min(self.max_norm, size), seen.norm().item()
        if not math.isclose(found, expected, rel_tol=0.02):
            slip = self.slip(found, expected, size)
            raise Wrong(
                f"{self.batches}: the optimizer saw a gradient of norm {found:.3g},"
                f" expected {expected:.3g}: {slip}"
            )
        if F.cosine_similarity(seen, self.whole, 0) < 0.999:
            raise Wrong(
                "the gradient has the right norm and another direction: clip all of it"
                " together, once"
            )
        if self.lr != 0.1:
            raise Wrong(
                f"the optimizer had a learning rate of 0.1, now it has {self.lr:.4g}:"
                " leave its settings alone"
            )
        if not torch.allclose(self.moved, 0.1 * seen, rtol=1e-3, atol=1e-5):
            raise Wrong(
                "the weights have moved by something else than the optimizer's step"
            )

    def check_skipped(self):
        """After a call in which gradients were infinite."""
        if self.seen or self.moved.any():
            raise Wrong(
                "a gradient was infinite, and the weights moved: scaler.step(optimizer)"
                " skips such a step"
            )
        if self.scaler.calls.count("update") != 1:
            raise Wrong(
                "a gradient was infinite, and scaler.update() was not called: it lowers"
                " the scale for next time"
            )

    def slip(self, found, expected, size):
        ratio = found / expected
        if self.there[0]:
            return (
                "what was left over from before was still in it: zero_grad comes first"
            )
        if not all(self.there[1:]):
            return (
                "the batches before the last were thrown away: zero_grad comes once,"
                " before the loop"
            )
        if math.isclose(found, size, rel_tol=0.02):
            return "it was not clipped"
        if self.k > 1 and math.isclose(ratio, self.k, rel_tol=0.05):
            return (
                f"the gradients of {self.k} means add up. Divide each loss by the"
                " number of batches"
            )
        if math.isclose(ratio, 1 / 2**10, rel_tol=0.05):
            if self.max_norm > size:
                return (
                    "it was divided by the scale twice, or never multiplied by it:"
                    " scaler.scale(loss).backward()"
                )
            return "it was clipped while it still had the scale. unscale_ first, once"
        if ratio > 2**9:
            return "it still has the scale"
        return (
            f"it should be that of the sum of all F.cross_entropy(…) / {self.k},"
            " clipped once, after the loop"
        )


def _times(n):
    return "once" if n == 1 else f"{n} times"


def autocast_type(kind="cpu"):
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def flat(model):
    """The gradients of all parameters, zeros where there is none."""
    grads = [
        torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()
    ]
    return torch.cat([grad.flatten() for grad in grads])


LARGE = {
    "scale": 2.0**40,
    "more": ", a scale so large that gradients are infinite",
}


def flat_weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _stub(): ...


def _refuse_stub(answer):
    """NotAnswered for a function that does nothing: these stubs return no dots, because
    nothing is to be returned.
    """
    code = getattr(answer, "__code__", None)
    if code and code.co_code == _stub.__code__.co_code:
        raise NotAnswered


def check_accumulate(answer):
    _refuse_stub(answer)
    # at first nothing to clip
    for max_norm, k in ((1e6, 4), (0.125, 4), (1e6, 2), (0.5, 1), (0.25, 8)):
        Run(answer, max_norm, k).check()
    Run(answer, 0.5, 2, **LARGE).check_skipped()


def check_complete(answer):
    right = "the step is right; you returned"
    for max_norm in (1e6, 0.125, 0.5):  # at first nothing to clip
        run = Run(answer, max_norm, 1, single=True)
        run.check()
        returned = run.returned
        if isinstance(returned, torch.Tensor) and returned.numel() == 1:
            returned = returned.item()
        if not expect.is_number(returned):
            raise Wrong(f"{right} {returned!r}: return the loss")
        if math.isclose(returned, run.loss * 2**10, rel_tol=0.02):
            raise Wrong(f"{right} the loss times the scale: return the loss itself")
        if not math.isclose(returned, run.loss, rel_tol=0.02):
            raise Wrong(f"{right} {returned:.4g}, the loss is {run.loss:.4g}")
    Run(answer, 0.5, 1, **LARGE, single=True).check_skipped()


EXERCISES = [
    Exercise(
        number="08.1",
        title="Under autocast",
        name="autocast_to",
        stars=1,
        check=check_autocast,
        hints=[
            (
                "with torch.autocast(…): around model(x). It wants the name of a kind"
                " of device, and a dtype."
            ),
            "x.device.type is that name: 'cpu', 'cuda', 'mps', 'xpu', …",
            "with torch.autocast(x.device.type, dtype=dtype): return model(x)",
        ],
        solution="""
def autocast_to(model, x, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        return model(x)
""",
        praise=(
            "The check also had a tensor on an Intel GPU. Code that takes the type from"
            " the device runs on devices that you never thought of."
        ),
    ),
    Exercise(
        number="08.2",
        title="Two lines are missing",
        name="complete",
        stars=1,
        check=check_complete,
        hints=[
            (
                "One of them belongs between backward and the clip, the other one"
                " after the step."
            ),
            (
                "The clip must see gradients without the scale; and the scale adapts"
                " once a step."
            ),
            (
                "scaler.unscale_(optimizer) before the clip, scaler.update() after the"
                " step, and return loss."
            ),
        ],
        solution="""
import torch.nn.functional as F

def complete(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss
""",
        praise=(
            "With no gradient to clip you may leave unscale_ out: step then does it."
            " update() you may never leave out, or the next step raises an error."
        ),
    ),
    Exercise(
        number="08.3",
        title="Which type comes out?",
        name="dtypes",
        stars=1,
        check=check_dtypes,
        hints=[
            "Three cases: on the list for 16 bits, on the list for float32, on none.",
            "On no list: the type stays what it was; of two types the wider one wins.",
            (
                "Matmuls go down to 16 bits, softmax and sums up to float32, the other"
                " three are on no list."
            ),
        ],
        solution="""
dtypes = ["float16", "float32", "float16", "float32", "float32", "float32"]
""",
        praise=(
            "h + w is the one that surprises people: one float32 tensor, such as a mask"
            " or a positional table, and all that follows is float32 up to the next"
            " matmul."
        ),
    ),
    Exercise(
        number="08.4",
        title="Several batches, one step",
        name="accumulate",
        stars=2,
        check=check_accumulate,
        hints=[
            (
                "In the loop: autocast around forward pass and loss, then"
                " scaler.scale(loss).backward() outside of it."
            ),
            (
                "After the loop, once: unscale_, clip, step, update. Before it, once:"
                " zero_grad."
            ),
            "The mean over all batches is the sum of loss / len(batches).",
        ],
        solution="""
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

def accumulate(model, optimizer, scaler, batches, max_norm):
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y) / len(batches)
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
""",
        praise=(
            "The scale must not change between two batches of one step: the gradients"
            " would add up with different scales. So update belongs after the loop."
        ),
    ),
    Exercise(
        number="08.5",
        title="Which weights would stand still?",
        name="share_lost",
        stars=1,
        check=check_share_lost,
        hints=[
            "weights.to(dtype) is what would be stored; so is updates.to(dtype).",
            "Compare the stored weight before and after the addition, with ==.",
            "(after == before).float().mean() is a share.",
        ],
        solution="""
def share_lost(weights, updates, dtype):
    before = weights.to(dtype)
    after = before + updates.to(dtype)
    return (after == before).float().mean()
""",
        praise=(
            "With the updates of a real step (learning rate times gradient), this tells"
            " how many weights would stand still. Of the optimizer's own state in 16"
            " bits it says nothing."
        ),
    ),
    Exercise(
        number="08.6",
        title="Build a number format",
        name="keep_bits",
        stars=3,
        check=check_keep,
        hints=[
            (
                "math.frexp(x)[1] - 1 is the exponent of x: the largest k with 2**k not"
                " above abs(x)."
            ),
            (
                "Neighbors of x are 2.0 ** (exponent - mantissa_bits) apart. Python's"
                " round takes the even one in a tie."
            ),
            (
                "The exponent is at least 1 - bias. What reaches 2.0 ** (bias + 1)"
                " after rounding is infinite."
            ),
        ],
        solution="""
import math

def keep_bits(x, exponent_bits, mantissa_bits):
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = max(math.frexp(x)[1] - 1, 1 - bias)
    step = 2.0 ** (exponent - mantissa_bits)
    kept = round(x / step) * step
    return kept if abs(kept) < 2.0 ** (bias + 1) else math.copysign(math.inf, x)
""",
        praise=(
            "You can now try formats that no hardware has. With the float8_e4m3fn of"
            " PyTorch it would disagree at the upper end only: that format has no"
            " infinity, and uses the bit patterns for numbers."
        ),
    ),
]
