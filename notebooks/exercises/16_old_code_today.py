"""Exercises of lesson 16."""

import copy

import torch
from torch import nn

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call

MESSAGES = [  # message of a warning, expected
    ("`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`", "torch.cuda.memory_reserved"),
    (
        "`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.",
        "torch.amp.autocast",
    ),
    (
        "`torch.distributed.reduce_op` is deprecated, please use `torch.distributed.ReduceOp` instead",
        "torch.distributed.ReduceOp",
    ),
    ("'pin_memory' argument is set as true but no accelerator is found", None),
    ("`functorch.vmap` is deprecated. Please use `torch.vmap` instead; see `torch.func`.", "torch.vmap"),
    ("The attribute `use_cuda` will be deprecated soon.", None),
]


def check_replacement(answer):
    for message, expected in MESSAGES:
        got = call(answer, message)
        if got != expected:
            why = (
                "it offers no replacement" if expected is None else "the name behind `use` or `to`, without its options"
            )
            raise Wrong(f"for {message!r} you returned {got!r}, expected {expected!r}: {why}")


def _did(printed="1\n", seconds=0.1, error=None, warnings=()):
    return {"error": error, "warnings": list(warnings), "printed": printed, "seconds": seconds}


JUDGED = [  # old, new, expected, why
    (_did(), _did(), "fine", "it is silent, as fast, and prints the same"),
    (_did(error="RuntimeError: no"), _did(), "raises", "it ended in an error"),
    (_did(error="E", warnings=["W"]), _did(), "raises", "an error outweighs the warning before it"),
    (_did(warnings=["FutureWarning"]), _did(), "warns", "it gave a warning"),
    (_did(printed="2\n", warnings=["W"]), _did(), "warns", "a warning is not silence, whatever it prints"),
    (_did(printed="2\n"), _did(), "wrong", "it is silent and prints something else"),
    (_did(printed="2\n", seconds=5.0), _did(), "wrong", "a wrong result is not made better by being slow"),
    (_did(seconds=1.0), _did(), "slower", "10 times as long is at least 10 times"),
    (_did(seconds=0.9), _did(), "fine", "9 times as long is less than the factor"),
    (_did(printed=""), _did(printed="1\n", seconds=0.01), "wrong", "printing nothing differs from printing 1"),
    (_did(error=""), _did(), "raises", "an error without a text is an error: compare with None"),
]


def check_verdict(answer):
    for old, new, expected, why in JUDGED:
        got = call(answer, old, new)
        if got != expected:
            raise Wrong(f"for old {old} and new {new} you returned {got!r}, expected {expected!r}: {why}")
    old, new = _did(seconds=0.3), _did()
    if call(answer, old, new, 2, shown="factor=2") != "slower":
        raise Wrong("with factor=2, 3 times as long is slower: use the argument")


class _OneDevice(nn.Module):
    """A model that moves to another type instead of another device, which every machine has, and remembers it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.inputs = []

    def forward(self, x):
        self.inputs.append(x.device)
        return self.layer(x)


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
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(8, 2, generator=generator), torch.randn(8, 1, generator=generator)) for _ in range(6)]
    torch.manual_seed(0)
    model = _OneDevice()
    twin = copy.deepcopy(model)
    shown = "a small model and 6 batches on the CPU"
    got = call(answer, model, batches, torch.device("cpu"), shown=shown)
    if isinstance(got, (tuple, list)) and any(value is DOTS for value in got):
        raise NotAnswered
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"for {shown} you returned {got!r}, expected a pair: mean loss, best weights")
    mean, best = got
    expected, weights = _expected(twin, batches)
    if not isinstance(mean, torch.Tensor):
        raise Wrong(f"the mean loss is {mean!r}, expected a tensor: reading a number in each step would wait for a GPU")
    if mean.requires_grad:
        raise Wrong("the mean loss holds the graphs of all batches: add up loss.detach()")
    if mean.numel() != 1 or abs(mean.item() - expected) > 1e-5:
        raise Wrong(f"the mean loss is {mean}, expected {expected:.6f}: the mean over the batches")
    if not isinstance(best, dict) or set(best) != set(weights):
        raise Wrong(f"the best weights are {best!r}, expected a dict like the model's state_dict()")
    current = model.state_dict()
    if any(best[name].data_ptr() == current[name].data_ptr() for name in best):
        raise Wrong("the best weights share memory with the model: state_dict() is no copy, clone each tensor")
    if not all(torch.allclose(best[name], weights[name]) for name in weights):
        raise Wrong("the best weights are not those with which the lowest loss was computed: copy before the step")
    _check_movement(answer, batches)


def _check_movement(answer, batches):
    """The same on `meta`, where nothing has a value: only what moves, and in which order, can be seen."""
    model, order = _OneDevice(), []
    build = torch.optim.SGD.__init__

    def watch(optimizer, params, *args, **options):
        build(optimizer, params, *args, **options)
        order.append([id(p) for group in optimizer.param_groups for p in group["params"]])

    torch.optim.SGD.__init__ = watch
    try:
        answer(model, batches[:1], torch.device("meta"))
    except RuntimeError as error:
        if "item" not in str(error) and "bool" not in str(error) and "nonzero" not in str(error):
            raise Wrong(f"with the device `meta` it raised {error}: move each batch, `x = x.to(device)`") from error
    except NotImplementedError:
        pass  # a comparison of losses has no value on meta
    finally:
        torch.optim.SGD.__init__ = build
    if any(device.type != "meta" for device in model.inputs) or not model.inputs:
        raise Wrong("the batch was not moved: `x.to(device)` returns the moved tensor, the result was dropped")
    if order and order[-1] != [id(p) for p in model.parameters()]:
        raise Wrong("the optimizer has other parameters than the moved model: move first, then build the optimizer")


STATES = [
    (["weight", "bias"], ["weight", "bias"], "a bare model stays as it is"),
    (["module.weight", "module.bias"], ["weight", "bias"], "all keys begin with module."),
    (["_orig_mod.0.weight", "_orig_mod.0.bias"], ["0.weight", "0.bias"], "all keys begin with _orig_mod."),
    (["module._orig_mod.weight", "module._orig_mod.bias"], ["weight", "bias"], "both wrappers, one in the other"),
    (["_orig_mod.module.weight"], ["weight"], "both wrappers, in the other order"),
    (
        ["module.weight", "head.weight"],
        ["module.weight", "head.weight"],
        "not all keys have it: a layer is named module",
    ),
    (["module.module.weight", "module.head.bias"], ["module.weight", "head.bias"], "only what all keys have goes"),
    (["a.module.weight", "b.module.bias"], ["a.module.weight", "b.module.bias"], "only at the front"),
    ([], [], "an empty dict stays empty"),
]


def check_bare(answer):
    for keys, expected, why in STATES:
        state = {key: torch.tensor(float(n)) for n, key in enumerate(keys)}
        before = dict(state)
        got = call(answer, state, shown=f"the keys {keys}")
        if not isinstance(got, dict) or list(got) != expected:
            shown = list(got) if isinstance(got, dict) else got
            raise Wrong(f"for the keys {keys} you returned {shown!r}, expected {expected}: {why}")
        if list(state) != list(before):
            raise Wrong(f"for the keys {keys} you changed the dict that was passed: return a new one")
        if any(got[name] is not before[key] for name, key in zip(expected, keys, strict=True)):
            raise Wrong(f"for the keys {keys} the tensors went to other names or were copied")


TRAIN = """
def train(model, batches, device):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, best, lowest = torch.zeros((), device=device), None, float("inf")
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        total += loss.detach()
        if loss.detach() < lowest:
            lowest = loss.detach()
            best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return total / len(batches), best
"""
_MOVE = "    model.to(device)\n"
LATE = TRAIN.replace(_MOVE, "").replace("    total, best", _MOVE + "    total, best")

EXERCISES = [
    Exercise(
        number="16.1",
        title="Read the warning to its end",
        name="replacement",
        stars=2,
        check=check_replacement,
        hints=[
            "A regular expression with re.search: which words stand directly before the name?",
            "The name ends where something else begins that is no letter, digit, underscore or dot.",
            r're.search(r"(?:use|to) `([\w.]+)", message) finds the name in its first group, or returns None.',
        ],
        solution=r"""
import re


def replacement(message):
    found = re.search(r"(?:use|to) `([\w.]+)", message)
    return found[1] if found else None
""",
        praise="Run over the log of a job, this lists what to change before the next version removes it.",
        wrong={
            "def replacement(message):\n    return message.split('`')[3]": "without its options",
            "def replacement(message):\n    parts = message.split('`')\n"
            "    return parts[3] if len(parts) > 3 else None": "without its options",
            "def replacement(message):\n    import re\n    return re.findall(r'`([\\w.]+)', message)[-1]": (
                "raised IndexError"
            ),
        },
    ),
    Exercise(
        number="16.2",
        title="Judge a snippet",
        name="verdict",
        stars=2,
        check=check_verdict,
        hints=[
            "Ask in the right order: which of two findings outweighs the other?",
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
        praise="utils/today.py holds the same five lines; everything else in it is for running code safely.",
        wrong={
            "def verdict(old, new, factor=10):\n    if old['error']:\n        return 'raises'\n"
            "    if old['warnings']:\n        return 'warns'\n    if old['printed'] != new['printed']:\n"
            "        return 'wrong'\n    return 'slower' if old['seconds'] >= factor * new['seconds'] else 'fine'": (
                "compare with None"
            ),
            "def verdict(old, new, factor=10):\n    if old['error'] is not None:\n        return 'raises'\n"
            "    if old['printed'] != new['printed']:\n        return 'wrong'\n    if old['warnings']:\n"
            "        return 'warns'\n    return 'slower' if old['seconds'] >= factor * new['seconds'] else 'fine'": (
                "a warning is not silence"
            ),
            "def verdict(old, new, factor=10):\n    if old['error'] is not None:\n        return 'raises'\n"
            "    if old['warnings']:\n        return 'warns'\n    if old['printed'] != new['printed']:\n"
            "        return 'wrong'\n    return 'slower' if old['seconds'] >= 10 * new['seconds'] else 'fine'": (
                "use the argument"
            ),
        },
    ),
    Exercise(
        number="16.3",
        title="Mend a training loop",
        name="train",
        stars=2,
        check=check_train,
        hints=[
            "Print what you believe: the device of x, whether total requires a gradient, whether best changes later.",
            "Keep `x = x.to(device)`, add up `loss.detach()`, clone each tensor of the state dict.",
            "And the order: the optimizer is built from the parameters that the model has after the move.",
        ],
        solution=TRAIN,
        praise="On a CPU three of the four bugs change no result: that is why such code lives so long.",
        wrong={
            TRAIN.replace("x, y = x.to(device), y.to(device)", "x.to(device), y.to(device)"): "move each batch",
            TRAIN.replace("total += loss.detach()", "total = total + loss"): "holds the graphs",
            TRAIN.replace("tensor.clone()", "tensor"): "share memory",
            LATE: "move first, then build",
        },
    ),
    Exercise(
        number="16.4",
        title="Load any checkpoint",
        name="bare",
        stars=2,
        check=check_bare,
        hints=[
            "A wrapper puts its name before every key, so look at all keys before you take anything away.",
            "Two wrappers, in any order: repeat until nothing changes. But each wrapper was there once at most.",
            'For a list of prefixes ["module.", "_orig_mod."]: go through it twice, drop one that was used.',
        ],
        solution="""
def bare(state):
    state, left = dict(state), ["module.", "_orig_mod."]
    while state:
        found = [prefix for prefix in left if all(key.startswith(prefix) for key in state)]
        if not found:
            break
        state = {key[len(found[0]) :]: tensor for key, tensor in state.items()}
        left.remove(found[0])
    return state
""",
        praise="Better still is to save what is inside the wrapper: `model.module.state_dict()`, or `net.compile()`.",
        wrong={
            "def bare(state):\n    return {k.removeprefix('module.'): v for k, v in state.items()}": (
                "all keys begin with _orig"
            ),
            "def bare(state):\n    return {k.replace('module.', '').replace('_orig_mod.', ''): v for k, v in"
            " state.items()}": ("a layer is named module"),
            "def bare(state):\n    for key in list(state):\n"
            "        state[key.removeprefix('module.')] = state.pop(key)\n"
            "    return state": "you changed the dict",
        },
    ),
]
