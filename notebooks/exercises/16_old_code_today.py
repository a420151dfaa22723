"""Exercises of lesson 16."""

import copy
import math
import unittest.mock
import warnings
import weakref
from collections import OrderedDict

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from utils.exercises import Exercise, Wrong, apart, call
from utils.simulate.fake import fake_gpus


class _Matrix(nn.Module):
    """A layer that remembers what autocast is set to for the device of its input when
    it is called.
    """

    def __init__(self, device):
        super().__init__()
        # autograd on a device that is not there would end the process
        trained = device == "cpu"
        self.weight = nn.Parameter(
            torch.ones(3, 2, device=device), requires_grad=trained
        )
        self.called, self.seen = False, None

    def forward(self, x):
        kind = x.device.type
        self.called = True
        self.seen = (
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        )
        return x @ self.weight

    def _apply(self, fn, recurse=True):
        there = fn(self.weight.detach())
        if (there.device, there.dtype) != (self.weight.device, self.weight.dtype):
            raise RuntimeError(
                "net is where it should be: move nothing, and leave the casts to"
                " autocast"
            )
        return self


def check_under_autocast(answer):
    _check_autocast(answer, "cpu")
    with fake_gpus():
        # CUDA's autocast is off without CUDA, this one is not
        _check_autocast(answer, "xpu:0")


def _check_autocast(answer, device):
    net, x = _Matrix(device), torch.ones(4, 3, device=device)
    shown = f"a net and an x on {device}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = call(answer, net, x, shown=shown)
    on = torch.is_autocast_enabled(x.device.type)
    torch.set_autocast_enabled(x.device.type, False)
    if not isinstance(got, torch.Tensor):
        raise Wrong(
            f"for {shown} you returned {_brief(got)}, expected the tensor net(x)"
        )
    if not net.called:
        raise Wrong(f"for {shown} you returned a tensor, but net was not called")
    if got.device != x.device:
        raise Wrong(
            f"for {shown} the result is on {got.device}: leave net and x where they are"
        )
    if net.seen is None:
        why = f"autocast was not on for {x.device.type} when net was called"
        raise Wrong(
            f"for {shown} {why}: call it within `with torch.autocast(…)`, and name the"
            " type of x's device"
        )
    if net.seen != torch.bfloat16:
        raise Wrong(
            f"for {shown} autocast was set to {net.seen}, expected torch.bfloat16: name"
            " it with dtype="
        )
    old = [
        str(warning.message)
        for warning in caught
        if issubclass(warning.category, FutureWarning)
    ]
    if old:
        raise Wrong(
            f"for {shown} it works and warns, so it is not the form of today: {old[0]}"
        )
    if on:
        raise Wrong(f"for {shown} autocast is still on afterwards: use a with block")
    if got.dtype != torch.bfloat16 or got.shape != (4, 2):
        raise Wrong(
            f"for {shown} you returned {got.dtype} of shape {tuple(got.shape)},"
            " expected net(x) as it is"
        )
    if device == "cpu" and not got.requires_grad:
        raise Wrong(
            f"for {shown} the result has no graph, expected net(x) as it is: autocast"
            " alone, nothing around it"
        )
    if not net.training:
        raise Wrong(f"for {shown} net is in eval mode afterwards: leave it as it is")
    if device == "cpu" and (got != 3).any():
        raise Wrong(
            f"for {shown} you returned {got[0].tolist()} in each row, expected net(x)"
            f" as it is, {[3.0, 3.0]}"
        )


MESSAGES = [  # message of a warning, expected, why
    (
        "`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`",
        "torch.cuda.memory_reserved",
        "the name behind `to`",
    ),
    (
        (
            "`torch.cuda.amp.autocast(args...)` is deprecated. Please use"
            " `torch.amp.autocast('cuda', args...)` instead."
        ),
        "torch.amp.autocast",
        "the name behind `use`, without its options",
    ),
    (
        (
            "`torch.distributed.reduce_op` is deprecated, please use"
            " `torch.distributed.ReduceOp` instead"
        ),
        "torch.distributed.ReduceOp",
        "the name behind `use`",
    ),
    (
        "'pin_memory' argument is set as true but no accelerator is found",
        None,
        "it offers no replacement",
    ),
    (
        (
            "`functorch.vmap` is deprecated. Please use `torch.vmap` instead; see"
            " `torch.func`."
        ),
        "torch.vmap",
        "the name behind `use`, not the last one",
    ),
    (
        "The attribute `use_cuda` will be deprecated soon.",
        None,
        "it offers no replacement",
    ),
    (
        "Please use `torch.vmap` instead of `functorch.vmap`.",
        "torch.vmap",
        "the name behind `use`, wherever it stands",
    ),
    (
        "Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
        None,
        "none of its names stands behind `use` or `to`",
    ),
    (
        "To copy from a tensor, it is recommended to use source.detach().clone()",
        None,
        "no name in it has a backtick",
    ),
    (
        "`torch.old` moved to `torch.utils._new2.name_3`",
        "torch.utils._new2.name_3",
        "a name may hold digits and underscores",
    ),
    (
        "`numpy.row_stack` is an old name, please use `numpy.vstack`.",
        "numpy.vstack",
        "the name may be one of another library",
    ),
    (
        "`torch.old` goes away.\nPlease use `torch.new` instead.",
        "torch.new",
        "the name behind `use`, in the second line",
    ),
    (
        "To use a GPU, call `torch.accelerator.is_available` first.",
        None,
        "what stands directly in front of the name is `call`",
    ),
    ("The result was copied into `x.grad`.", None, "`into` is another word than `to`"),
    ("", None, "an empty text offers nothing"),
]


def check_replacement(answer):
    for message, expected, why in MESSAGES:
        got = call(answer, message)
        if not isinstance(got, (str, type(None))) or got != expected:
            raise Wrong(
                f"for {message!r} you returned {got!r}, expected {expected!r}: {why}"
            )


def _did(printed="1\n", seconds=0.125, error=None, warnings=()):
    text = "".join(printed)  # another object each time, as in life
    return {
        "error": error,
        "warnings": list(warnings),
        "printed": text,
        "seconds": seconds,
    }


JUDGED = [  # old, new, expected, why
    (_did(), _did(), "fine", "it is silent, as fast, and prints the same"),
    (_did(error="RuntimeError: no"), _did(), "raises", "it ended in an error"),
    (
        _did(error="E", warnings=["W"]),
        _did(),
        "raises",
        "an error outweighs the warning before it",
    ),
    (
        _did(error="E", printed=""),
        _did(),
        "raises",
        "an error outweighs what was printed",
    ),
    (_did(warnings=["FutureWarning"]), _did(), "warns", "it gave a warning"),
    (
        _did(printed="2\n", warnings=["W"]),
        _did(),
        "warns",
        "a warning is not silence, whatever it prints",
    ),
    (
        _did(seconds=5.0, warnings=["W", "V"]),
        _did(),
        "warns",
        "a warning outweighs the time",
    ),
    (_did(printed="2\n"), _did(), "wrong", "it is silent and prints something else"),
    (
        _did(printed="10\n"),
        _did(printed="01\n"),
        "wrong",
        "it is silent and prints something else",
    ),
    (
        _did(printed="2\n", seconds=5.0),
        _did(),
        "wrong",
        "a wrong result is not made better by being slow",
    ),
    (_did(seconds=1.25), _did(), "slower", "10 times as long is at least 10 times"),
    (_did(seconds=1.1875), _did(), "fine", "9.5 times as long is less than the factor"),
    (_did(), _did(seconds=5.0), "fine", "faster than the new one is no fault"),
    (
        _did(printed=""),
        _did(seconds=0.0078125),
        "wrong",
        "printing nothing differs from printing 1",
    ),
    (
        _did(error=""),
        _did(),
        "raises",
        "an error without a text is an error: compare with None",
    ),
    (
        _did(warnings=["W"]),
        _did(warnings=["W"]),
        "warns",
        "what the old part does counts, whatever the new one does",
    ),
    (
        _did(error="E"),
        _did(error="E"),
        "raises",
        "what the old part does counts, whatever the new one does",
    ),
    (
        _did(),
        _did(warnings=["W"]),
        "fine",
        "the verdict is on the old part, and the warning came from the new one",
    ),
    (
        _did(),
        _did(error="E"),
        "fine",
        "the verdict is on the old part, and the error came from the new one",
    ),
]
FACTORS = [  # seconds of the old part, factor, expected; the new part takes 0.125 s
    (0.375, 2, "slower"),
    (0.25, 2, "slower"),
    (0.125, 2, "fine"),
    (5.0, 100, "fine"),
    (12.5, 100, "slower"),
    (0.34375, 2.5, "slower"),
]


def check_verdict(answer):
    for old, new, expected, why in JUDGED:
        shown = (
            f"an old part with {_told(old, new)} and a new one with {_told(new, old)}"
        )
        got = call(answer, old, new, shown=shown)
        if not isinstance(got, str) or got != expected:
            raise Wrong(
                f"for {shown} you returned {got!r}, expected {expected!r}: {why}"
            )
    for seconds, factor, expected in FACTORS:
        shown = f"an old part of {seconds} s, a new one of 0.125 s and factor={factor}"
        got = call(answer, _did(seconds=seconds), _did(), factor, shown=shown)
        if got != expected:
            why = f"it took {seconds / 0.125:g} times as long; use the argument"
            raise Wrong(
                f"for {shown} you returned {got!r}, expected {expected!r}: {why}"
            )


def _told(did, other):
    """In words, what matters of an outcome: what is not as in the other one, or not as
    usual.
    """
    usual = _did()
    matters = [
        key for key in did if did[key] != other[key] or did[key] != usual[key]
    ] or ["printed", "seconds"]
    return ", ".join(f"{key} {did[key]!r}" for key in matters)


class _Mark(torch.autograd.Function):
    """Does nothing. Its node in the graph is a Python object, so that one can see how
    long the graph lives.
    """

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class _Watched(nn.Module):
    """A small model, the same each time, that remembers the devices of its inputs and
    its graphs.
    """

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        with torch.no_grad():
            self.layer.weight.copy_(torch.tensor([[0.5, -0.5]]))
            self.layer.bias.fill_(0.25)
        self.register_buffer("scale", torch.ones(()))  # a state dict holds buffers, too
        self.inputs, self.graphs, self.kept = [], [], 0

    def forward(self, x):
        self.inputs.append(x.device)
        # of earlier batches
        self.kept = sum(graph() is not None for graph in self.graphs)
        y = _Mark.apply(self.layer(x) * self.scale)
        self.graphs += [] if y.grad_fn is None else [weakref.ref(y.grad_fn)]
        return y


def _batches(count, scale=1):
    """The first of six batches of several sizes. Their losses go up and down; the
    lowest is the fourth.

    scale: of the targets. With large ones the losses are large, too.
    """
    generator = torch.Generator().manual_seed(91)
    sizes = (8, 6, 4, 8, 2, 8)[:count]
    return [
        (
            torch.randn(n, 2, generator=generator),
            scale * torch.randn(n, 1, generator=generator),
        )
        for n in sizes
    ]


def _expected(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, best = [], None
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        if not losses or loss.item() < min(losses):
            best = copy.deepcopy(model.state_dict())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return sum(losses) / len(losses), best


def check_train(answer):
    for count in (1, 2, 6):
        _check_training(answer, count)
    _check_training(answer, 2, scale=1e6)
    _check_movement(answer)


def _check_training(answer, count, scale=1):
    model, twin, start = _Watched(), _Watched(), _Watched().state_dict()
    shown = (
        f"a small model and {count} {'batch' if count == 1 else 'batches'} on the CPU"
    )
    shown += "" if scale == 1 else f" (targets near {scale:,.0f})"
    got = call(answer, model, _batches(count, scale), torch.device("cpu"), shown=shown)
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        text = f"{len(got)} values" if isinstance(got, (tuple, list)) else _brief(got)
        raise Wrong(
            f"for {shown} you returned {text}, expected a pair: mean loss, best weights"
        )
    mean, best = got
    expected, weights = _expected(twin, _batches(count, scale))
    if isinstance(best, torch.Tensor) and isinstance(mean, dict):
        raise Wrong("the mean loss comes first, then the best weights")
    if not isinstance(mean, torch.Tensor):
        why = (
            ": a number would have to be read, and reading waits for a GPU"
            if isinstance(mean, float)
            else ""
        )
        raise Wrong(
            f"for {shown} the mean loss is {_brief(mean)}, expected a tensor{why}"
        )
    if mean.requires_grad or model.kept > 2:  # two may be: the last loss and the lowest
        raise Wrong(
            "the graphs of all batches are kept, by the sum of their losses: add up"
            " loss.detach()"
        )
    if mean.numel() != 1:
        raise Wrong(
            f"for {shown} the mean loss has the shape {tuple(mean.shape)}, expected a"
            " single number"
        )
    if not math.isclose(mean.item(), expected, rel_tol=1e-5):
        text, wanted = apart(mean.item(), expected)
        why = "the sum of the losses, divided by the number of batches"
        raise Wrong(f"for {shown} the mean loss is {text}, expected {wanted}: {why}")
    if not isinstance(best, dict) or set(best) != set(weights):
        text = (
            f"a dict with the keys {', '.join(map(str, best))}"
            if isinstance(best, dict)
            else _brief(best)
        )
        wanted = f"a dict with the keys of state_dict(): {', '.join(weights)}"
        raise Wrong(f"for {shown} the best weights are {text}, expected {wanted}")
    if any(
        not isinstance(best[name], torch.Tensor)
        or best[name].shape != weights[name].shape
        for name in weights
    ):
        raise Wrong(
            "the best weights are no tensors of the same shapes as in the model's"
            " state_dict()"
        )
    current = model.state_dict()
    if any(best[name].data_ptr() == current[name].data_ptr() for name in best):
        raise Wrong(
            "the best weights share memory with the model: state_dict() is no copy,"
            " clone each tensor"
        )
    if not _same(best, weights):
        why = "compare each loss with the lowest so far, and copy before the step"
        raise Wrong(
            f"for {shown} the best weights are not those with which the lowest loss was"
            f" computed: {why}"
        )
    if _same(current, start):
        why = "the order of a step is zero_grad, backward, step"
        raise Wrong(
            f"for {shown} the weights of the model that was passed did not change:"
            f" {why}"
        )
    if not _same(current, twin.state_dict()):
        why = (
            "one step of plain SGD with lr=0.1 for each batch, on the model that was"
            " passed"
        )
        why = (
            why
            if count == 1
            else f"{why}, and each with the gradients of its batch alone (zero_grad)"
        )
        raise Wrong(f"for {shown} the model is not trained as it should be: {why}")


def _brief(value):
    short = isinstance(value, (int, float, str, type(None)))
    return repr(value) if short else f"an object of type {type(value).__name__}"


def _same(got, expected):
    return all(
        torch.allclose(got[name].double(), expected[name].double(), atol=1e-6)
        for name in expected
    )


class _NoValues(TorchFunctionMode):
    """A tensor on `meta` that is asked for its value says 0, or yes. Sums in place mind
    the device, as on a GPU.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if args and getattr(args[0], "is_meta", False):
            if func in (torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.__float__):
                return 0.0
            if func is torch.Tensor.__bool__:
                return True  # a loss is lower than the lowest so far
            if func in (
                torch.isnan,
                torch.isinf,
                torch.Tensor.isnan,
                torch.Tensor.isinf,
            ):
                return torch.tensor(False)
            if func is torch.Tensor.__format__:
                return "0"
            if func in (torch.Tensor.to, torch.Tensor.cpu):
                try:
                    return func(*args, **(kwargs or {}))
                except NotImplementedError:  # a copy to the CPU, which a GPU allows
                    return torch.zeros(args[0].shape, dtype=args[0].dtype)
        if (
            func is torch.Tensor.add_
            and not args[0].is_meta
            and getattr(args[1], "is_meta", False)
        ):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two,"
                " cpu and meta"
            )
        return func(*args, **(kwargs or {}))


def _check_movement(answer):
    """The same on `meta`, where nothing has a value: only what moves, and in which
    order, can be seen.
    """
    model, built, raised = _Watched(), [], None
    build = torch.optim.SGD.__init__

    def watch(optimizer, *args, **options):
        build(optimizer, *args, **options)
        built.append(optimizer)

    with unittest.mock.patch.object(torch.optim.SGD, "__init__", watch), _NoValues():
        try:
            answer(model, _batches(2), torch.device("meta"))
        except NotImplementedError:
            pass  # a copy from meta to the CPU, which a GPU allows
        except Exception as error:
            raised = error
    if any(device.type != "meta" for device in model.inputs):
        raise Wrong(
            "the batch was not moved to `device`: `x.to(device)` returns the moved"
            " tensor, so keep its result"
        )
    if any(not weight.is_meta for weight in model.parameters()):
        raise Wrong(
            "with the device `meta`, the model that was passed stays on the CPU: move"
            " it to `device`"
        )
    used = [
        id(weight)
        for optimizer in built
        for group in optimizer.param_groups
        for weight in group["params"]
    ]
    if used and not {id(weight) for weight in model.parameters()} <= set(used):
        raise Wrong(
            "the optimizer has other parameters than the moved model: move first, then"
            " build the optimizer"
        )
    if raised and "cannot be called on meta tensors" not in str(raised):
        raised = f"{type(raised).__name__}: {raised}"
        raise Wrong(
            "with the device `meta`, where x, y, and each new tensor must be, your"
            f" function raised {raised}"
        )


STATES = [  # keys, expected, why
    (["weight", "bias"], ["weight", "bias"], "a bare model stays as it is"),
    (
        ["module.weight", "module.bias"],
        ["weight", "bias"],
        "all keys begin with module.",
    ),
    (
        ["module.dense.weight", "module.model.bias"],
        ["dense.weight", "model.bias"],
        "module. goes, and nothing else",
    ),
    (
        ["_orig_mod.0.weight", "_orig_mod.0.bias"],
        ["0.weight", "0.bias"],
        "all keys begin with _orig_mod.",
    ),
    (
        ["module._orig_mod.weight", "module._orig_mod.bias"],
        ["weight", "bias"],
        "both wrappers, one in the other",
    ),
    (["_orig_mod.module.weight"], ["weight"], "both wrappers, in the other order"),
    (
        ["module.weight", "head.bias"],
        ["module.weight", "head.bias"],
        "not all keys have it: a layer is named module",
    ),
    (
        ["head.weight", "module.bias"],
        ["head.weight", "module.bias"],
        "not all keys have it: a layer is named module",
    ),
    (
        ["module.module.weight", "module.head.bias"],
        ["module.weight", "head.bias"],
        "only what all keys have goes",
    ),
    (
        ["module.module.weight"],
        ["module.weight"],
        "a wrapper is there once; the second one is a layer named module",
    ),
    (
        ["_orig_mod.module.module.weight"],
        ["module.weight"],
        "each wrapper is there once; then comes a layer",
    ),
    (
        ["module._orig_mod.module.weight"],
        ["module.weight"],
        "each wrapper is there once; then comes a layer",
    ),
    (
        ["a.module.weight", "b.module.bias"],
        ["a.module.weight", "b.module.bias"],
        "only at the front",
    ),
    (
        ["0._orig_mod.weight", "1.bias"],
        ["0._orig_mod.weight", "1.bias"],
        "only at the front",
    ),
    (
        ["modules.weight", "modules.bias"],
        ["modules.weight", "modules.bias"],
        "modules. is another name",
    ),
    ([], [], "an empty dict stays empty"),
]


def check_bare(answer):
    for keys, expected, why in STATES:
        tensors = [torch.tensor(float(n)) for n in range(len(keys))]
        # what state_dict() returns
        state = OrderedDict(zip(keys, tensors, strict=True))
        got = call(answer, state, shown=f"the keys {keys}")
        if not isinstance(got, dict):
            raise Wrong(
                f"for the keys {keys} you returned {_brief(got)}, expected a dict"
            )
        if set(got) != set(expected):
            raise Wrong(
                f"for the keys {keys} you returned the keys {list(got)}, expected"
                f" {expected}: {why}"
            )
        if got is state or list(state) != keys:
            raise Wrong(
                f"for the keys {keys} you changed or returned the dict that was passed:"
                " return a new one"
            )
        if any(not isinstance(got[name], torch.Tensor) for name in expected):
            raise Wrong(f"for the keys {keys} the values are no tensors any more")
        if any(
            not torch.equal(got[name], tensor)
            for name, tensor in zip(expected, tensors, strict=True)
        ):
            raise Wrong(f"for the keys {keys} the tensors went to other names")


EXERCISES = [
    Exercise(
        number="16.0",
        title="Warm-up: autocast today",
        name="under_autocast",
        stars=1,
        check=check_under_autocast,
        hints=[
            (
                'The row under "Mixed precision" has both forms. Which of them asks for'
                " a device type?"
            ),
            (
                "torch.autocast takes a type of device, such as x.device.type, and the"
                " dtype; use it with `with`."
            ),
            (
                "with torch.autocast(x.device.type, dtype=torch.bfloat16): and in it,"
                " return net(x)."
            ),
        ],
        solution="""
def under_autocast(net, x):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return net(x)
""",
        praise=(
            "The dtype is worth a word: without it, it is bfloat16 on a CPU and float16"
            " on a CUDA GPU."
        ),
    ),
    Exercise(
        number="16.1",
        title="Read the warning to its end",
        name="replacement",
        stars=2,
        check=check_replacement,
        hints=[
            (
                "A regular expression with re.search: which words stand directly before"
                " the name?"
            ),
            (
                "The name ends where something else begins that is no letter, digit,"
                " underscore or dot."
            ),
            (
                r're.search(r"\b(?:use|to) `([\w.]+)", message) finds the name in its'
                r" first group, or returns None."
            ),
        ],
        solution=r"""
import re


def replacement(message):
    found = re.search(r"\b(?:use|to) `([\w.]+)", message)
    return found[1] if found else None
""",
        praise=(
            "Run over the log of a job, this lists what to change before the next"
            " version removes it."
        ),
    ),
    Exercise(
        number="16.2",
        title="Judge a snippet",
        name="verdict",
        stars=2,
        check=check_verdict,
        hints=[
            "Ask in the order of the list: which of two findings outweighs the other?",
            "Error, warning, other output, time. What is left is fine.",
            "Compare the error with None; an error may have an empty text.",
        ],
        solution="""
def verdict(old, new, factor=10):
    if old["error"] is not None:
        return "raises"
    if old["warnings"]:
        return "warns"
    if old["printed"] != new["printed"]:
        return "wrong"
    return "slower" if old["seconds"] >= factor * new["seconds"] else "fine"
""",
        praise=(
            "utils/today/cell.py asks in the same order; everything else in it is for"
            " running code safely."
        ),
    ),
    Exercise(
        number="16.3",
        title="Mend a training loop",
        name="train",
        stars=3,
        check=check_train,
        hints=[
            (
                "Print what you believe: the device of x, whether total requires a"
                " gradient, whether best changes later."
            ),
            (
                "Keep `x = x.to(device)`, add up `loss.detach()`, clone each tensor of"
                " the state dict."
            ),
            (
                "And the order: the optimizer is built from the parameters that the"
                " model has after the move."
            ),
        ],
        solution="""
def train(model, batches, device):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, best, lowest = 0, None, float("inf")
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        if loss < lowest:
            lowest, best = (
                loss,
                {name: tensor.clone() for name, tensor in model.state_dict().items()},
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total / len(batches), best
""",
        praise=(
            "On a CPU three of the four bugs change no result: that is why such code"
            " lives so long."
        ),
    ),
    Exercise(
        number="16.4",
        title="Load any checkpoint",
        name="bare",
        stars=2,
        check=check_bare,
        hints=[
            (
                "A wrapper puts its name before every key, so look at all keys before"
                " you take anything away."
            ),
            (
                "Either wrapper may be the outer one. In which order do you look, so"
                " that both are found?"
            ),
            (
                "all(key.startswith(prefix) for key in state) asks,"
                " key.removeprefix(prefix) takes away."
            ),
        ],
        solution="""
def bare(state):
    for wrapper in ("_orig_mod.", "module.", "_orig_mod."):
        if all(key.startswith(wrapper) for key in state):
            state = {key.removeprefix(wrapper): tensor for key, tensor in state.items()}
    return dict(state)
""",
        praise=(
            "Better still is to save what is inside the wrapper:"
            " `model.module.state_dict()`, or `net.compile()`."
        ),
    ),
]
