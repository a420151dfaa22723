"""Exercises of lesson 08."""

import contextlib
import functools
import itertools
import math

import torch
import torch.nn.functional as F

from course import expect
from course.answers import NotAnswered, Wrong, call
from course.exercises import Exercise
from exercises.doubles.amp import AmpStep, autocast_type
from simulate.fake import fake_gpus

# --------------------------------------------------------------------------------------
# 08.1


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
    if kind == "xpu":
        shown += " (an Intel GPU; the tensor is a fake, so you need none)"
    got = call(answer, model, x, dtype, shown=shown, changes=[model])
    now = autocast_type(kind), torch.get_autocast_dtype(kind)
    if now != (None, default):
        torch.set_autocast_enabled(kind, False)
        torch.set_autocast_dtype(kind, default)
        raise Wrong(
            f"after your function autocast is on, or has another default type for"
            f" {kind}: use it in a with statement, and hand dtype to it"
        )
    if model.weight.dtype != torch.float32:
        raise Wrong(
            f"the weight is {model.weight.dtype} now: autocast casts a copy, and leaves"
            " it as it is"
        )
    why = "autocast must be on for x.device.type while the model runs, with dtype"
    expect.equal(set(model.seen), {dtype}, shown, why, "the model ran under")
    why = "hand x over as it is, autocast casts"
    expect.equal(set(model.inputs), {torch.float32}, shown, why, "the model got x in")
    expect.instance(got, torch.Tensor, shown, "what model(x) gives")
    form = got.dtype, got.device.type, tuple(got.shape), got.requires_grad
    right = torch.float32 if lift else dtype, kind, (2, 4), kind == "cpu"
    why = "return model(x) as it comes out (type, device, shape, requires_grad)"
    expect.equal(form, right, shown, why, "your output is")


# --------------------------------------------------------------------------------------
# 08.3


class Add(torch.nn.Module):
    """x plus a table of the type dtype."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.register_buffer("table", torch.zeros(4, dtype=dtype))

    def forward(self, x):
        return x + self.table


class Block(torch.nn.Module):
    """Runs its parts in another order than it has made them in."""

    def __init__(self):
        super().__init__()
        self.late, self.last, self.mask = Add(), torch.nn.Linear(4, 4), Add()
        self.act, self.first = torch.nn.ReLU(), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.late(self.last(self.act(self.mask(self.first(x)))))


def _models(dtype):
    """(what it is, the model, the names of the modules that widen, why)"""
    nn, layer = torch.nn, functools.partial(torch.nn.Linear, 4, 4)
    yield "a layer and a ReLU", nn.Sequential(layer(), nn.ReLU()), [], "none widens"
    why = "the mask makes float32 of 16 bits; the ReLU after it was given float32"
    model = nn.Sequential(layer(), Add(), nn.ReLU(), layer())
    yield "layer, float32 mask, ReLU, layer", model, ["1"], why
    why = "16 bits plus 16 bits has 16 bits"
    model = nn.Sequential(layer(), Add(dtype), layer(), Add())
    yield "two masks, the first with 16 bits", model, ["3"], why
    why = "the Sequential around the mask has children, so it does not count"
    model = nn.Sequential(layer(), nn.Sequential(nn.ReLU(), Add()), layer())
    yield "a mask at the end of an inner Sequential", model, ["1.1"], why
    why = "the order is that in which they ran, not that of named_modules()"
    yield (
        "a block that makes its parts in another order",
        Block(),
        ["mask", "late"],
        why,
    )


def check_widening(answer):
    for dtype in (torch.bfloat16, torch.float16):
        for what, model, expected, why in _models(dtype):
            shown = f"{what}, {dtype}"
            x = torch.ones(2, 4)
            got = call(answer, model, x, dtype, shown=shown, changes=[model])
            if autocast_type("cpu"):
                torch.set_autocast_enabled("cpu", False)
                raise Wrong("autocast is on after your function: use a with statement")
            if any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()):
                raise Wrong(
                    f"for {shown} hooks are left in the model: keep what"
                    " register_forward_hook returns, and call its remove()"
                )
            got = list(expect.instance(got, (list, tuple), shown, "a list of names"))
            expect.equal(got, expected, shown, why)


# --------------------------------------------------------------------------------------
# 08.5

LOST = [  # weights, updates, type, share, why
    (
        [1.0] * 5,
        [1e-4, -1e-4, 0.01, 0.02, 0.0],
        torch.float16,
        0.6,
        "0.0001 is less than half of the distance from 1 to the next number",
    ),
    (
        [1.0] * 5,
        [1e-4, -1e-4, 0.01, 0.02, 0.0],
        torch.float32,
        0.2,
        "float32 has a number 0.0000001 above 1: only the update of zero is lost",
    ),
    (
        [[256.0, 1.0], [0.001, -1.0]],
        [[0.5, 0.5], [0.5, 0.5]],
        torch.bfloat16,
        0.25,
        "the distance to the next number grows with the weight: it is 2 at 256",
    ),
    (
        [[256.0, 1.0], [0.001, -1.0]],
        [[0.5, 0.5], [0.5, 0.5]],
        torch.float16,
        0.0,
        "float16 has three bits more than bfloat16: 256 and 256.5 are two numbers",
    ),
    (
        [1.0003, 1.0003, 1.0],
        [0.0003, 0.0003, 0.1],
        torch.float16,
        2 / 3,
        "round both first: float16 makes 1 of this weight, and 1 + 0.0003 is 1",
    ),
]


def check_share_lost(answer):
    for weights, updates, dtype, expected, why in LOST:
        given, shown = torch.tensor(weights), f"weights {weights}, updates {updates}"
        shown += f", {dtype}"
        got = _number(call(answer, given, torch.tensor(updates), dtype, shown=shown))
        slips = [
            (1 - expected, "that is the share that moves"),
            (expected * given.numel(), "that is how many, not which share"),
        ]
        expect.close(expect.number(got, shown), expected, shown, why, slips)


def _number(got):
    """A tensor of one number as a Python number; all else as it is."""
    return got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got


# --------------------------------------------------------------------------------------
# 08.2, 08.4

# what is wrong in the record of a step of `count` batches, and what to say of it
PASSES = [
    (
        lambda step, count: len(step.forward) != count,
        "call the model once for each batch",
    ),
    (
        lambda step, count: set(step.forward) != {torch.float16},
        "the model ran without autocast for the CPU in float16: put the forward pass"
        " and the loss into it",
    ),
    (
        lambda step, count: any(step.backward),
        "backward ran within autocast: it belongs after it, each operation remembers"
        " its own types",
    ),
    (
        lambda step, count: len(step.backward) != count,
        "call backward once for each batch, or the activations of all stay in memory"
        " until the end",
    ),
    (
        lambda step, count: step.scaler.calls.count("scale") != count,
        "each loss needs scaler.scale once",
    ),
    (
        lambda step, count: set(step.scaler.scaled) != {torch.float32},
        "the loss was computed in float16, outside of autocast: within, cross_entropy"
        " gets float32",
    ),
    (
        lambda step, count: "step" not in step.scaler.calls,
        "use scaler.step(optimizer): it skips the step where a gradient is not finite",
    ),
    (
        lambda step, count: step.scaler.calls[count:] != ["step", "update"],
        "when backward has run for all batches comes scaler.step(optimizer), and after"
        " it scaler.update(), each once",
    ),
    (
        lambda step, count: len(step.seen) != 1,
        "step the optimizer once, by scaler.step(optimizer)",
    ),
]
# of a gradient with a wrong norm
NORMS = [
    (
        lambda step, ratio: step.adds[0],
        "what was left over from before was still in it: zero_grad comes first",
    ),
    (
        lambda step, ratio: not all(step.adds[1:]),
        "the batches before the last were thrown away: zero_grad comes once, before"
        " the loop",
    ),
    (
        lambda step, ratio: _near(step.seen[0].norm(), step.gradient.norm()),
        "it was not clipped",
    ),
    (
        lambda step, ratio: len(step.adds) > 1 and _near(ratio, len(step.adds)),
        "each loss is a mean over its batch. Divide each loss by the number of batches",
    ),
    (
        lambda step, ratio: _near(ratio * 2**10, 1),
        "it was clipped while it still had the scale (unscale_ first, once), or"
        " divided by the scale without scaler.scale(loss).backward()",
    ),
    (lambda step, ratio: True, "clip the whole gradient once, after the loop"),
]


def _near(got, expected):
    return math.isclose(got, expected, rel_tol=0.05)


def _take_step(answer, count, max_norm, scale=2.0**10, more="", single=False):
    """The record of one call of the answer, and what it returned. single: it gets x, y,
    and not a list.
    """
    step = AmpStep(count, scale)
    batches = step.batches[0] if single else [step.batches]
    given = [step.model, step.optimizer, step.scaler, *batches, max_norm]
    shown = f"{count} batch{'es' if count > 1 else ''}, max_norm {max_norm:g}{more}"
    return step, call(answer, *given, shown=shown, changes=[step.model]), shown


def _judge_step(step, count, max_norm, shown):
    for is_so, text in PASSES:
        if is_so(step, count):
            raise Wrong(
                f"for {shown} model, backward and optimizer ran {len(step.forward)},"
                f" {len(step.backward)}, {len(step.seen)} times, calls of the scaler"
                f" (without unscale_): {', '.join(step.scaler.calls)}; {text}"
            )
    seen = step.seen[0]
    found, expected = seen.norm().item(), min(max_norm, step.gradient.norm().item())
    if not math.isclose(found, expected, rel_tol=0.02):
        why = next(text for is_so, text in NORMS if is_so(step, found / expected))
        raise Wrong(
            f"for {shown} the optimizer saw a gradient of norm {found:.3g}, expected"
            f" {expected:.3g}: {why}"
        )
    if F.cosine_similarity(seen, step.gradient, 0) < 0.999:
        raise Wrong(
            "the gradient has the right norm and another direction: clip all of it"
            " together, once"
        )
    rate = step.optimizer.param_groups[0]["lr"]
    if rate != 0.1 or not torch.allclose(step.moved, 0.1 * seen, rtol=1e-3, atol=1e-5):
        raise Wrong(
            "the weights have moved by something else than a step with the learning"
            f" rate of 0.1 (now it is {rate:.4g}): leave both to the optimizer"
        )


def _judge_skipped(answer, count, single=False):
    """A step whose gradients are infinite."""
    more = ", a scale so large that gradients are infinite"
    step, _, shown = _take_step(answer, count, 0.5, 2.0**40, more, single)
    if step.seen or step.moved.any() or step.scaler.calls.count("update") != 1:
        raise Wrong(
            f"for {shown}: scaler.step(optimizer) must skip the step, and"
            " scaler.update() lower the scale for next time"
        )


def _stub(): ...


def check_accumulate(answer):
    # this stub returns no dots, because nothing is to be returned
    code = getattr(answer, "__code__", None)
    if code and code.co_code == _stub.__code__.co_code:
        raise NotAnswered
    # at first nothing to clip
    for max_norm, count in ((1e6, 4), (0.125, 4), (1e6, 2), (0.5, 1), (0.25, 8)):
        step, _, shown = _take_step(answer, count, max_norm)
        _judge_step(step, count, max_norm, shown)
    _judge_skipped(answer, 2)


def check_mended(answer):
    for max_norm in (1e6, 0.125, 0.5):  # at first nothing to clip
        step, got, shown = _take_step(answer, 1, max_norm, single=True)
        _judge_step(step, 1, max_norm, shown)
        shown += ", the step is right,"
        got = expect.number(_number(got), shown, "the loss")
        slips = [(step.loss * 2**10, "that is the loss times the scale")]
        why = "return the loss itself"
        expect.close(got, step.loss, shown, why, slips, rel_tol=0.02)
    _judge_skipped(answer, 1, single=True)


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
        title="Mend somebody's step",
        name="mended",
        stars=1,
        check=check_mended,
        hints=[
            "Which calls belong into the autocast block, and which must not be in it?",
            (
                "The clip must see gradients without the scale; the scale adapts once"
                " a step; the loss to return is the one before scaler.scale."
            ),
            (
                "scaler.scale(loss).backward() outside of the block, then unscale_,"
                " clip, step, update, and return loss."
            ),
        ],
        solution="""
import torch.nn.functional as F

def mended(model, optimizer, scaler, x, y, max_norm):
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
        title="Which modules widen?",
        name="widening",
        stars=2,
        check=check_widening,
        hints=[
            (
                "module.register_forward_hook(note) calls note(module, inputs, output)"
                " after each forward pass of that module."
            ),
            (
                "One hook for each name in model.named_modules() whose module has no"
                " children: any(module.children()) tells."
            ),
            (
                "Append the name if inputs[0].dtype == dtype and output.dtype is"
                " torch.float32. In the end call remove() of each handle."
            ),
        ],
        solution="""
def widening(model, x, dtype):
    found, handles = [], []
    for name, module in model.named_modules():

        def note(module, inputs, output, name=name):
            if inputs[0].dtype == dtype and output.dtype == torch.float32:
                found.append(name)

        if not any(module.children()):
            handles.append(module.register_forward_hook(note))
    with torch.autocast(x.device.type, dtype=dtype):
        model(x)
    for handle in handles:
        handle.remove()
    return found
""",
        praise=(
            "Try it on a model of your own. On CUDA it names softmax and layer norms,"
            " too: those are lifted on purpose. A mask or a table is not."
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
            "With the updates of a real step (for SGD: minus learning rate times"
            " gradient), this tells how many weights would stand still. Of the"
            " optimizer's own state in 16 bits it says nothing."
        ),
    ),
]
