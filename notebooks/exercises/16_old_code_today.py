"""Exercises of lesson 16."""

import copy
import pathlib
import tempfile
import unittest.mock
import warnings
import weakref
from collections import OrderedDict

import torch
from torch import nn

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.checkpoint import saved_on
from exercises.doubles.watch import MetaValues
from simulate.fake import fake_gpus


class _Matrix(nn.Module):
    """A layer that remembers what autocast is set to for the device of its input when
    it is called.
    """

    def __init__(self, device):
        super().__init__()
        ones = torch.ones(3, 2, device=device)
        # autograd on a device that is not there would end the process
        self.weight = nn.Parameter(ones, requires_grad=device == "cpu")
        self.seen = None

    def forward(self, x):
        kind = x.device.type
        self.seen = None
        if torch.is_autocast_enabled(kind):
            self.seen = torch.get_autocast_dtype(kind)
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
    shown, kind = f"a net and an x on {device}", x.device.type
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = call(answer, net, x, shown=shown)
    on = torch.is_autocast_enabled(kind)
    torch.set_autocast_enabled(kind, False)
    expect.instance(got, torch.Tensor, shown, "the tensor net(x)")
    if net.seen is None:
        raise Wrong(
            f"for {shown} autocast was not on for {kind} when net was called: call it"
            " within `with torch.autocast(…)`, and name the type of x's device"
        )
    why, said = "name it with dtype=", "autocast was set to"
    expect.equal(net.seen, torch.bfloat16, shown, why, said)
    for warning in caught:
        if issubclass(warning.category, FutureWarning):
            raise Wrong(
                f"for {shown} it works and warns, so it is not the form of today:"
                f" {warning.message}"
            )
    if on:
        raise Wrong(f"for {shown} autocast is still on afterwards: use a with block")
    form = str(got.device), got.dtype, tuple(got.shape), got.requires_grad
    expected = str(x.device), torch.bfloat16, (4, 2), device == "cpu"
    why = "net(x) as it is, with its device, dtype, shape and graph"
    expect.equal(form, expected, shown, why)
    if device == "cpu":
        expect.tensor(got, torch.full((4, 2), 3, dtype=torch.bfloat16), shown, why)


MESSAGES = {  # message of a warning: expected, why
    "`torch.cuda.memory_cached` has been renamed to `torch.cuda.memory_reserved`": (
        "torch.cuda.memory_reserved",
        "the name behind `to`",
    ),
    "`torch.cuda.amp.autocast(args...)` is deprecated. Please use"
    " `torch.amp.autocast('cuda', args...)` instead.": (
        "torch.amp.autocast",
        "the name behind `use`, without its options",
    ),
    "`torch.distributed.reduce_op` is deprecated, please use"
    " `torch.distributed.ReduceOp` instead": (
        "torch.distributed.ReduceOp",
        "the name behind `use`",
    ),
    "'pin_memory' argument is set as true but no accelerator is found": (
        None,
        "it offers no replacement",
    ),
    "`functorch.vmap` is deprecated. Please use `torch.vmap` instead; see"
    " `torch.func`.": ("torch.vmap", "the name behind `use`, not the last one"),
    "The attribute `use_cuda` will be deprecated soon.": (
        None,
        "it offers no replacement",
    ),
    "Please use `torch.vmap` instead of `functorch.vmap`.": (
        "torch.vmap",
        "the name behind `use`, wherever it stands",
    ),
    "Detected call of `lr_scheduler.step()` before `optimizer.step()`.": (
        None,
        "none of its names stands behind `use` or `to`",
    ),
    "To copy from a tensor, it is recommended to use source.detach().clone()": (
        None,
        "no name in it has a backtick",
    ),
    "`torch.old` moved to `torch.utils._new2.name_3`": (
        "torch.utils._new2.name_3",
        "a name may hold digits and underscores",
    ),
    "`numpy.row_stack` is an old name, please use `numpy.vstack`.": (
        "numpy.vstack",
        "the name may be one of another library",
    ),
    "`torch.old` goes away.\nPlease use `torch.new` instead.": (
        "torch.new",
        "the name behind `use`, in the second line",
    ),
    "To use a GPU, call `torch.accelerator.is_available` first.": (
        None,
        "what stands directly in front of the name is `call`",
    ),
    "The result is written into `x`; you may reuse `y.grad`.": (
        None,
        "`into` and `reuse` end in `to` and `use`, and are other words",
    ),
    "": (None, "an empty text offers nothing"),
}


def check_replacement(answer):
    for message, (expected, why) in MESSAGES.items():
        got = call(answer, message)
        expect.equal(got, expected, repr(message), why)


TRACE = """\
Traceback (most recent call last):
  File "train.py", line 12, in <module>
    loss = step(batch)
"""
JOINT = "\nThe above exception was the direct cause of the following exception:\n\n"
AGAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"
CAUGHT = "RuntimeError: Caught ValueError in DataLoader worker process 0.\nOriginal "
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
DEVICES = "RuntimeError: Expected all tensors to be on the same device"
LATE = "CUDA kernel errors might be asynchronously reported at some other API call"
PASTES = [  # a paste, the line to look up, why
    (f"{TRACE}{DEVICES}", DEVICES, "the last line has class and message"),
    (f"{OOM}\n", OOM, "one line without a traceback is the message"),
    (
        f"{TRACE}RuntimeError: CUDA error: device not ready\n{LATE}",
        "RuntimeError: CUDA error: device not ready",
        "a message can have several lines: the first one has the class",
    ),
    (
        f"{TRACE}{CAUGHT}{TRACE}ValueError: could not convert string: 'n/a'",
        "ValueError: could not convert string: 'n/a'",
        "the cause stands below Original Traceback",
    ),
    (
        f"{TRACE}KeyError: 'x'\n{JOINT}{TRACE}ValueError: no such column",
        "KeyError: 'x'",
        "the cause stands above this joint",
    ),
    (
        f"{TRACE}{OOM}\n{AGAIN}{TRACE}RuntimeError: could not save",
        OOM,
        "the first error, not the one while it was handled",
    ),
    (
        f"[rank1]: {DEVICES}",
        DEVICES,
        "what stands before the class, such as the name of a rank, is no part of it",
    ),
    (
        f"{TRACE}KeyError: 'a'\n{JOINT}{TRACE}KeyError: 'b'\n{AGAIN}{TRACE}{OOM}",
        "KeyError: 'a'",
        "of three the first",
    ),
    (
        f"x.py:3: FutureWarning: old\n  f()\n{TRACE}{DEVICES}",
        DEVICES,
        "a warning above is not what stopped the program",
    ),
]


def check_cause(answer):
    for paste, expected, why in PASTES:
        got = call(answer, paste, shown="\n" + paste)
        expect.equal(got, expected, f"the paste\n{paste}\n", why)


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
        if y.grad_fn is not None:
            self.graphs.append(weakref.ref(y.grad_fn))
        return y


def _batches(count, scale=1):
    """The first of six batches of several sizes. Their losses go up and down; the
    lowest is the fourth.

    scale: of the targets. With large ones the losses are large, too.
    """
    draw = torch.Generator().manual_seed(91)
    batches = []
    for size in (8, 6, 4, 8, 2, 8)[:count]:
        x = torch.randn(size, 2, generator=draw)
        batches.append((x, scale * torch.randn(size, 1, generator=draw)))
    return batches


def _expected(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, best = [], None
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        if not losses or loss.item() < min(losses):
            best = copy.deepcopy(model.state_dict())
        losses.append(loss.item())
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
    shown = f"a small model on the CPU and batches: {count}"
    if scale != 1:
        shown += f" (targets near {scale:,.0f})"
    given = model, _batches(count, scale), torch.device("cpu")
    got = call(answer, *given, shown=shown, changes=[model])
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(
            f"for {shown} you returned {_brief(got)}, expected a pair: mean loss, best"
            " weights"
        )
    mean, best = got
    expected, weights = _expected(twin, _batches(count, scale))
    _judge_mean(mean, expected, model, shown)
    _judge_best(best, weights, model, shown)
    current = model.state_dict()
    if _same(current, start):
        raise Wrong(
            f"for {shown} the weights of the model that was passed did not change:"
            " the order of a step is zero_grad, backward, step"
        )
    if not _same(current, twin.state_dict()):
        raise Wrong(
            f"for {shown} the model is not trained as it should be: one step of plain"
            " SGD with lr=0.1 for each batch, on the model that was passed, with the"
            " gradients of its batch alone (zero_grad)"
        )


def _judge_mean(mean, expected, model, shown):
    if not isinstance(mean, torch.Tensor) or mean.numel() != 1:
        raise Wrong(
            f"for {shown} the mean loss is {_brief(mean)}, expected a tensor with one"
            " number (a Python number would have to be read, and reading waits for a"
            " GPU)"
        )
    if mean.requires_grad or model.kept > 2:  # two may be: the last loss and the lowest
        raise Wrong(
            "the graphs of all batches are kept, by the sum of their losses: add up"
            " loss.detach()"
        )
    why = "the sum of the losses, divided by the number of batches"
    said = "the mean loss is"
    expect.close(mean.item(), expected, shown, why, said=said, rel_tol=1e-5)


def _judge_best(best, weights, model, shown):
    if not isinstance(best, dict) or set(best) != set(weights):
        raise Wrong(
            f"for {shown} the best weights are {_brief(best)}, expected a dict with the"
            f" keys of state_dict(): {', '.join(weights)}"
        )
    own = {weight.data_ptr() for weight in model.state_dict().values()}
    if any(torch.is_tensor(kept) and kept.data_ptr() in own for kept in best.values()):
        raise Wrong(
            "the best weights share memory with the model: state_dict() is no copy,"
            " clone each tensor"
        )
    if not _same(best, weights):
        raise Wrong(
            f"for {shown} the best weights are not those with which the lowest loss was"
            " computed: compare each loss with the lowest so far, and copy before the"
            " step"
        )


def _brief(value):
    short = isinstance(value, (int, float, str, type(None)))
    return repr(value) if short else f"an object of type {type(value).__name__}"


def _same(got, expected):
    return all(
        isinstance(got[name], torch.Tensor)
        and got[name].shape == value.shape
        and torch.allclose(got[name].double(), value.double(), atol=1e-6)
        for name, value in expected.items()
    )


def _check_movement(answer):
    """The same on `meta`, where nothing has a value: only what moves, and in which
    order, can be seen.
    """
    model, built, raised = _Watched(), [], None
    build = torch.optim.SGD.__init__

    def watch(optimizer, *args, **options):
        build(optimizer, *args, **options)
        built.append(optimizer)

    with unittest.mock.patch.object(torch.optim.SGD, "__init__", watch), MetaValues():
        try:
            answer(model, _batches(2), torch.device("meta"))
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
    groups = [group for optimizer in built for group in optimizer.param_groups]
    used = {id(weight) for group in groups for weight in group["params"]}
    if used and not used.issuperset(map(id, model.parameters())):
        raise Wrong(
            "the optimizer has other parameters than the moved model: move first, then"
            " build the optimizer"
        )
    # a copy from meta to the CPU, and a value: a GPU allows both
    allowed = isinstance(raised, NotImplementedError)
    if "cannot be called on meta tensors" in str(raised):
        allowed = True
    if raised is not None and not allowed:
        raise Wrong(
            "with the device `meta`, where x, y, and each new tensor must be, your"
            f" function raised {type(raised).__name__}: {raised}"
        )


STATES = [  # keys, what goes in front of them, why
    ("weight bias", "", "a bare model stays as it is"),
    ("module.weight module.bias", "module.", "all keys begin with module."),
    (
        "module.dense.weight module.model.bias",
        "module.",
        "module. goes, and nothing else",
    ),
    (
        "_orig_mod.0.weight _orig_mod.0.bias",
        "_orig_mod.",
        "all keys begin with _orig_mod.",
    ),
    (
        "module._orig_mod.weight module._orig_mod.bias",
        "module._orig_mod.",
        "both wrappers, one in the other",
    ),
    (
        "_orig_mod.module.weight",
        "_orig_mod.module.",
        "both wrappers, in the other order",
    ),
    ("module.weight head.bias", "", "not all keys have it: a layer is named module"),
    ("head.weight module.bias", "", "not all keys have it: a layer is named module"),
    (
        "module.module.weight module.head.bias",
        "module.",
        "only what all keys have goes",
    ),
    (
        "module.module.weight",
        "module.",
        "a wrapper is there once; the second one is a layer named module",
    ),
    (
        "_orig_mod.module.module.weight",
        "_orig_mod.module.",
        "each wrapper is there once; then comes a layer",
    ),
    (
        "module._orig_mod.module.weight",
        "module._orig_mod.",
        "each wrapper is there once; then comes a layer",
    ),
    ("a.module.weight b.module.bias", "", "only at the front"),
    ("0._orig_mod.weight 1.bias", "", "only at the front"),
    ("modules.weight modules.bias", "", "modules. is another name"),
    ("", "", "an empty dict stays empty"),
]


def check_bare(answer):
    for text, prefix, why in STATES:
        keys = text.split()
        expected = [key.removeprefix(prefix) for key in keys]
        tensors = [torch.tensor(float(n)) for n in range(len(keys))]
        # what state_dict() returns
        state = OrderedDict(zip(keys, tensors, strict=True))
        shown = f"the keys {keys}"
        got = call(answer, state, shown=shown)
        expect.instance(got, dict, shown, "a dict")
        if set(got) != set(expected):
            expect.equal(list(got), expected, shown, why, "you returned the keys")
        if got is state or list(state) != keys:
            raise Wrong(
                f"for {shown} you changed or returned the dict that was passed: return"
                " a new one"
            )
        for name, tensor in zip(expected, tensors, strict=True):
            expect.tensor(got[name], tensor, f"{shown}, {name}")


IN_FILE = OrderedDict(
    weight=torch.tensor([[0.5, -1.0]]),
    bias=torch.tensor([2.0]),
    steps=torch.ones(()),
)


def check_restore(answer):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "x.pt")
        path.write_bytes(saved_on("cuda:0", IN_FILE).getvalue())
        for place in (torch.device("cpu"), torch.device("meta"), "cpu", "meta"):
            shown = f"a file from a GPU and the device {place!r}"
            got = call(answer, str(path), place, shown=shown)
            if not isinstance(got, dict) or list(got) != list(IN_FILE):
                raise Wrong(
                    f"for {shown} you returned {_brief(got)}, expected the state dict"
                    f" in the file, with {', '.join(IN_FILE)}"
                )
            for name, expected in IN_FILE.items():
                where, why = torch.device(place), "the device that was asked for"
                loaded = expect.instance(got[name], torch.Tensor, shown, "tensors")
                on = str(loaded.device)
                expect.equal(on, str(where), shown, why, f"{name} is on")
                if where.type == "cpu":
                    expect.tensor(loaded, expected, shown, f"{name} as in the file")


EXERCISES = [
    Exercise(
        number="16.1",
        title="A file from a GPU",
        name="restore",
        stars=1,
        check=check_restore,
        hints=[
            "look_up takes the last line of the traceback. Which argument is new?",
            "torch.load(…, map_location=…) says where the tensors are put.",
            "return torch.load(path, map_location=device)",
        ],
        solution="""
def restore(path, device):
    return torch.load(path, map_location=device)
""",
        praise=(
            "The message offers the CPU; the device that you want is as good, and saves"
            " a line."
        ),
    ),
    Exercise(
        number="16.2",
        title="Autocast today",
        name="under_autocast",
        stars=1,
        check=check_under_autocast,
        hints=[
            (
                'look_up("torch.cuda.amp.autocast") shows the form of today. What does'
                " it ask for?"
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
        number="16.3",
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
        number="16.4",
        title="Which line do you look up?",
        name="cause",
        stars=2,
        check=check_cause,
        hints=[
            "First cut: which part of the paste has the cause, above or below a joint?",
            (
                'paste.split("Original Traceback")[-1] is what stands below the last'
                " of them; [0] would be what stands above the first."
            ),
            (
                r're.search(r"[\w.]+(Error|Exception): .*", line) finds the message in'
                " a line, without what stands before it."
            ),
        ],
        solution=r"""
import re


def cause(paste):
    part = paste.split("Original Traceback")[-1]
    for joint in ("The above exception was", "During handling of the above"):
        part = part.split(joint)[0]
    found = re.finditer(r"[\w.]+(Error|Exception): .*", part)
    return [message[0] for message in found][-1]
""",
        praise=(
            "look_up cuts a paste in the same places; what is left, it compares with"
            " its table."
        ),
    ),
    Exercise(
        number="16.5",
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
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        if loss < lowest:
            lowest, best = (
                loss,
                {name: tensor.clone() for name, tensor in model.state_dict().items()},
            )
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
        number="16.6",
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
