"""Exercises of lesson 03."""

import copy
import warnings
from unittest import mock

import torch
from torch import nn

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.checkpoint import saved_on

META = torch.device("meta")


def _short(value):
    text = repr(value)
    return text if len(text) <= 60 else f"an object of type {type(value).__name__}"


def check_standardize(answer):
    x = torch.tensor([[3.0, 2.0], [1.0, 10.0]])
    _check_module(answer, torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]), x)
    x = torch.tensor([[1.0, 2.0, 3.0]])
    _check_module(
        answer, torch.tensor([0.5, -1.0, 5.0]), torch.tensor([0.5, 4.0, 1.0]), x
    )


def _check_module(answer, mean, std, x):
    shown = f"mean {mean.tolist()} and std {std.tolist()}"
    module = call(answer, mean.clone(), std.clone(), shown=shown)
    if not isinstance(module, nn.Module):
        raise Wrong(f"expected a class that makes an nn.Module, it makes {module!r}")
    expected, batch = (x - mean) / std, x.clone()
    for again in ("", ", the second time"):
        shown = f"mean {mean.tolist()}, std {std.tolist()} and x {x.tolist()}{again}"
        expect.tensor(call(module, batch, shown=shown), expected, shown)
    trained = [name for name, p in module.named_parameters() if p.requires_grad]
    if trained:
        raise Wrong(
            f"an optimizer would train {' and '.join(trained)}: make buffers of what"
            " nobody is to train"
        )
    saved = module.state_dict()
    if sum(value.numel() for value in saved.values()) < mean.numel() + std.numel():
        raise Wrong(
            f"the file would hold {list(saved)}: mean and std must both be in the"
            " state_dict"
        )
    other = answer(torch.zeros_like(mean), torch.ones_like(std))
    shown = "another Standardize that is to load the state_dict"
    call(other.load_state_dict, saved, shown=shown)
    expect.tensor(call(other, x, shown=shown), expected, shown)
    shown = "a module and an x that are moved to meta"
    there = call(module.to(META), x.to(META).requires_grad_(), shown=shown)
    expect.equal(there.device, META, shown, said="forward gave a tensor on")
    if not there.requires_grad:
        raise Wrong(
            "no gradient passes through forward to x: what stands in front of the"
            " module would not be trained"
        )


def check_count_crossings(answer):
    for places, sizes, expected in (
        (["cpu", "cpu"], [8, 4, 2], (0, 0)),
        (["cuda:0", "cuda:0"], [8, 4, 2], (2, 10)),
        (["cpu", "cuda:0"], [8, 4, 2], (2, 6)),
        (["cuda:0", "cpu"], [8, 4, 2], (2, 12)),
        (["cuda:0"], [8, 4], (2, 12)),
        (["cuda:0"], [8, 8], (2, 16)),
        (["cpu", "cuda:0", "cpu", "cuda:0"], [100, 40, 60, 30, 10], (4, 140)),
        (["cuda:0", "cuda:1", "cuda:1"], [100, 40, 60, 30], (3, 170)),
        (["xla:0", "xla:0", "cpu", "meta", "xla:0"], [1, 2, 4, 8, 16, 32], (5, 61)),
        ([], [8], (0, 0)),
    ):
        shown = f"places {places}, sizes {sizes}"
        # as from a file: equal texts, but other objects than "cpu"
        read = ["".join(place) for place in places]
        got = call(answer, read, list(sizes), shown=shown)
        got = tuple(expect.numbers(got, 2, shown, "a pair (crossings, bytes)"))
        if got != expected:
            why = _why(places, got, expected)
            raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


def _why(places, got, expected):
    if got == expected[::-1]:
        return "the number of crossings comes first, then the bytes"
    if got == tuple(2 * value for value in expected):
        return "this is the forward pass alone, and no gradient goes back"
    path = " → ".join(["cpu", *places, "cpu"])
    if got[0] < expected[0]:
        return (
            f"the whole path is {path}, and a border lies wherever two neighbors differ"
        )
    if got[0] > expected[0]:
        return (
            f"on the path {path}, nothing crosses between equal neighbors, and one"
            " tensor between unequal ones"
        )
    return (
        "what crosses in front of layer i is sizes[i]; what crosses at the end is the"
        " last entry"
    )


class Picky(nn.Module):
    """A frozen batch norm, a block of batch norm and dropout, and a layer; raises for a
    batch of zeros.
    """

    # for each call, whether autograd was on. (In the class: a copy of the model notes
    # there, too.)
    recorded = []

    def __init__(self):
        super().__init__()
        self.frozen = nn.BatchNorm1d(4).eval()
        self.block = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
        self.layer = nn.Linear(4, 3)
        self.layer.bias.requires_grad_(False)

    def forward(self, x):
        self.recorded.append(torch.is_grad_enabled())
        if not x.any():
            raise ValueError("a batch of zeros")
        return self.layer(self.block(self.frozen(x)))


def _modes(model):
    return {name: module.training for name, module in model.named_modules()}


def check_evaluate(answer):
    batch = torch.arange(20.0).reshape(5, 4)
    dropping = Picky().eval()
    dropping.block[1].train()
    mixed = Picky()
    mixed.block.training = False
    for shown, model in {
        "a model in train mode": Picky(),
        "a model in eval mode": Picky().eval(),
        "a model in eval mode whose dropout is in train mode": dropping,
        "a model with a block in eval mode whose parts are in train mode": mixed,
    }.items():
        _check_evaluation(answer, model, batch, shown)
    _check_evaluation(answer, Picky(), batch[:1], "a batch of one row")
    recorded = batch.clone().requires_grad_()
    _check_evaluation(answer, Picky(), recorded, "a batch that requires gradients")
    with torch.no_grad():
        _check_evaluation(answer, Picky(), batch, "a call inside of no_grad")
    _check_error(answer, Picky(), torch.zeros(5, 4), ValueError)
    _check_error(answer, Picky(), torch.ones(5, 3), RuntimeError)  # the wrong width


def _check_evaluation(answer, model, batch, shown):
    before, modes = copy.deepcopy(model.state_dict()), _modes(model)
    wants = [p.requires_grad for p in model.parameters()]
    grad = torch.is_grad_enabled()
    model.recorded.clear()
    got = call(answer, model, batch, shown=shown, changes=[model])
    after, on = _modes(model), torch.is_grad_enabled()
    torch.set_grad_enabled(grad)
    expect.instance(got, torch.Tensor, shown, "the tensor that the model answers")
    slips = [
        (
            not _same_values(model.state_dict(), before),
            "the running mean of batch norm changed: the model computed in train mode",
        ),
        (
            got.requires_grad,
            "the answer carries a graph: eval() does not switch off gradients",
        ),
        (
            any(model.recorded),
            "autograd was on in the model: do not cut a graph off afterwards, do not"
            " record it",
        ),
        (
            got.is_inference(),
            "the answer is an inference tensor: a later training cannot use it. no_grad"
            " leaves it usable",
        ),
        (
            on != grad,
            "autograd is not on or off as it was before: use a with block",
        ),
        (
            [p.requires_grad for p in model.parameters()] != wants,
            "requires_grad of the parameters is not what it was before",
        ),
    ]
    for is_made, slip in slips:
        if is_made:
            raise Wrong(f"for {shown} {slip}")
    if after != modes:
        raise Wrong(_mode_message(modes, after))
    with torch.no_grad():
        expected = model.eval()(batch)
    why = "the answer is not the one of eval mode (is dropout still on?)"
    expect.tensor(got, expected, shown, why)


def _same_values(state, before):
    return all(torch.equal(value, before[name]) for name, value in state.items())


def _mode_message(before, after):
    text = {True: "train", False: "eval"}
    if after[""] != before[""]:
        return f"the model was in {text[before['']]} mode before, and is not any more"
    part = next(name for name in before if after[name] != before[name])
    return (
        f"the model as a whole is back in {text[before['']]} mode, but its layer"
        f" `{part}`, which was in {text[before[part]]} mode before, is not: remember"
        " the mode of each part (train() sets all alike)"
    )


def _check_error(answer, model, batch, kind):
    model.train()
    model.frozen.eval()
    modes = _modes(model)
    raised, error = f"the model raised a {kind.__name__}", None
    try:
        answer(model, batch)
    except Exception as caught:
        error = caught
    on = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    if not isinstance(error, kind):
        raise Wrong(
            f"{raised}, and the caller saw {type(error).__name__}: your function kept"
            " it to itself. Let the model's own error pass"
        ) from error
    if _modes(model) != modes or not on:
        raise Wrong(
            f"{raised}, and afterwards the model was in another mode, or autograd off:"
            " use try and finally"
        ) from error


class Trap:
    """Asks whoever unpickles it to call a function: here one that only warns."""

    def __reduce__(self):
        return warnings.warn, ("the code of the file runs",)


def _small(seed=0):
    """A model with parameters and buffers, all of them other numbers for another seed.
    One buffer is in no file.
    """
    model = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    model.register_buffer("mask", torch.ones(2), persistent=False)
    random = torch.Generator().manual_seed(seed)
    for value in model.state_dict().values():
        value.copy_(100 * torch.rand(value.shape, generator=random))
    return model


def check_load_onto(answer):
    cpu, state = torch.device("cpu"), _small(seed=1).state_dict()
    for tag in ("cpu", "cuda:99", "cuda:7", "xla:0"):
        model, shown = _small(), f"a file from {tag}"
        given = model, saved_on(tag, state), cpu
        got = call(answer, *given, shown=shown, changes=[model])
        _check_place(got, model, cpu)
        for key, value in model.state_dict().items():
            if not torch.equal(value, state[key]):
                raise Wrong(f"for {shown}, {key} in the model is not that of the file")
    _must_move(answer, state)
    for key in ("0.bias", "1.running_mean"):
        rest = {name: value for name, value in state.items() if name != key}
        try:
            answer(_small(), saved_on("cpu", rest), cpu)
        except Exception:  # any error tells the caller
            continue
        raise Wrong(
            f"the file had no `{key}`, and nobody heard of it: the model keeps its own"
        )
    _must_refuse(answer, state)


def _must_move(answer, state):
    loads_state, loads, model = nn.Module.load_state_dict, torch.load, _small()
    places = []  # where the model was whenever a file was loaded

    def note_place(*args, **options):
        places.append(next(model.parameters()).device)
        return loads(*args, **options)

    with (
        mock.patch.object(torch, "load", side_effect=note_place) as load,
        mock.patch.object(
            nn.Module, "load_state_dict", autospec=True, side_effect=loads_state
        ) as load_state,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # a copy to meta says that it does nothing
        try:
            got = answer(model, saved_on("cpu", state), META)
        except Exception as error:
            got = error
    there = any(str(value) == "meta" for value in _given(load))
    for value in _given(load_state):
        if isinstance(value, dict):
            tensors = [x for x in value.values() if isinstance(x, torch.Tensor)]
            there = there or any(x.is_meta for x in tensors)
    # they are the weights, then, unless the model's own are there, too
    assigned = any(each.kwargs.get("assign") for each in load_state.call_args_list)
    assigned = assigned and META not in places
    if there and not assigned:
        raise Wrong(
            "the file's weights come to the device beside the model's: there they are"
            " twice for a while. Load to CPU"
        )
    if isinstance(got, Exception):
        raise Wrong(
            f"for the device meta your function raised {type(got).__name__}: {got}"
        ) from got
    _check_place(got, model, META)


def _given(called):
    """All that a mock got, in any of its calls."""
    return [
        value
        for each in called.call_args_list
        for value in (*each.args, *each.kwargs.values())
    ]


def _check_place(got, model, device):
    if not isinstance(got, nn.Module):
        raise Wrong(f"you returned {_short(got)}, expected the model")
    if got is not model:
        raise Wrong("you returned another model than the one that you were given")
    for name, x in [*model.named_parameters(), *model.named_buffers()]:
        if x.device != device:
            raise Wrong(f"asked for {device}, but {name} of the model is on {x.device}")


def _must_refuse(answer, state):
    file, refused = saved_on("cpu", {**state, "note": Trap()}), False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer(_small(), file, torch.device("cpu"))
        except Exception:  # any error tells the caller
            refused = True
    if any("the code of the file runs" in str(warning.message) for warning in caught):
        raise Wrong(
            "the file asked for a call of a function, and your loader made it: a"
            " stranger's code ran here"
        )
    if not refused:
        raise Wrong(
            "the file asked for a call of a function, and the caller did not hear that"
            " it was refused"
        )


def check_resume(answer):
    cpu = torch.device("cpu")
    _check_resumed(answer, lambda: nn.Linear(2, 1), 0.1, cpu)
    _check_resumed(answer, _two_layers, 0.02, cpu)
    _check_resumed(answer, lambda: nn.Linear(2, 1), 0.1, META)


def _two_layers():
    return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))


def _check_resumed(answer, make_model, lr, device):
    state, expected = _half_trained(make_model, lr)
    shown = f"the device {device}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a copy to meta says that it does nothing
        got = call(answer, make_model, copy.deepcopy(state), device, shown=shown)
    if torch.get_default_device().type != "cpu":
        torch.set_default_device(None)
        raise Wrong(
            f"for {shown} the default device is another one afterwards: leave it alone"
        )
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"you returned {_short(got)}, expected a pair (model, optimizer)")
    model, optimizer = got
    kinds = nn.Module, torch.optim.Adam
    if not all(map(isinstance, got, kinds)):
        names = ", ".join(type(value).__name__ for value in got)
        raise Wrong(f"you returned a pair ({names}), expected (model, Adam optimizer)")
    _check_pair(model, optimizer, device)
    _check_state(model, optimizer, state)
    if device == META:
        return
    losses = call(_steps, model, optimizer, 3, shown="three more steps", changes=got)
    for mine, right in zip(losses, expected, strict=True):
        why = f"without the interruption the losses are {expected}"
        expect.close(mine, right, "three more steps", why, rel_tol=1e-4)


def _check_state(model, optimizer, state):
    for key, x in model.state_dict().items():
        saved = state["model"][key]
        if x.dtype != saved.dtype:
            raise Wrong(
                f"{key} of the model is {x.dtype}, and that of the state {saved.dtype}"
            )
        if not x.is_meta and not torch.equal(x, saved):
            raise Wrong(
                f"{key} of the model is not that of the state: load it, and change"
                " nothing after that"
            )
    if not all(p.requires_grad for p in model.parameters()) or not model.training:
        raise Wrong(
            "the model is in eval mode, or its parameters want no gradient any more,"
            " and a training is to go on"
        )
    rates = [
        each["param_groups"][0]["lr"]
        for each in (optimizer.state_dict(), state["optimizer"])
    ]
    expect.equal(*rates, "the state", said="the optimizer's learning rate is")


def _check_pair(model, optimizer, device):
    if {p.device.type for p in model.parameters()} != {device.type}:
        raise Wrong(
            f"asked for {device}, but the model is on {next(model.parameters()).device}"
        )
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held != {id(p) for p in model.parameters()}:
        why = ""
        if device == META:
            why = ". The move replaced them: build the optimizer after it"
        raise Wrong(
            f"for {device}: the optimizer holds parameters that the model does not"
            f" have, so training would change nothing{why}"
        )
    where = [
        str(optimizer.state[p]["exp_avg"].device.type) if optimizer.state[p] else "none"
        for p in model.parameters()
    ]
    if set(where) != {device.type}:
        raise Wrong(
            f"the model is on {device}, the optimizer's running means on {where[0]}:"
            " without its state, its running means are lost"
        )


def _half_trained(make_model, lr):
    """The state after three steps, and the losses of the next three."""
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    _steps(model, optimizer, 3)
    state = copy.deepcopy(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    )
    return state, _steps(model, optimizer, 3)


def _steps(model, optimizer, count):
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = (model(x) - torch.tensor([[1.0], [-1.0]])).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


EXERCISES = [
    Exercise(
        number="03.1",
        title="A module that leaves nothing behind",
        name="Standardize",
        stars=1,
        check=check_standardize,
        hints=[
            "Which of the registers fits: parameters, buffers, children?",
            (
                "They must be saved, so a persistent buffer: the default of"
                " register_buffer."
            ),
            'self.register_buffer("mean", mean), and then use it as self.mean.',
        ],
        solution="""
class Standardize(torch.nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        return (x - self.mean) / self.std
""",
        praise=(
            "A third way to lose them is a buffer with persistent=False: it moves, and"
            " is in no file."
        ),
    ),
    Exercise(
        number="03.2",
        title="Load a stranger's file",
        name="load_onto",
        stars=1,
        check=check_load_onto,
        hints=[
            (
                "Two arguments of torch.load: one for where the tensors go, one for"
                " what may be loaded."
            ),
            (
                'Load to the CPU: map_location="cpu". Then load_state_dict, strict as'
                " it is by default."
            ),
            "model.to(device) moves in place and hands back the model.",
        ],
        solution="""
def load_onto(model, file, device):
    state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(state)
    return model.to(device)
""",
        praise=(
            "With a model on meta whose buffers are all in the file,"
            " load_state_dict(state, assign=True) saves the second copy (section 10)."
        ),
    ),
    Exercise(
        number="03.3",
        title="Resume in the right order",
        name="resume",
        stars=2,
        check=check_resume,
        hints=[
            (
                "Four lines: the model's state, the move, the optimizer, its state."
                " Which must come before which?"
            ),
            "A move may replace the parameters, so the optimizer is built after it.",
            (
                "optimizer.load_state_dict puts the running means where the parameters"
                " are, so it comes last."
            ),
        ],
        solution="""
def resume(make_model, state, device):
    model = make_model()
    model.load_state_dict(state["model"])
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer
""",
        praise=(
            "The check moves to meta, which replaces the parameters as XLA does. On"
            " CUDA the wrong order goes unnoticed, until the state is on the wrong"
            " device."
        ),
    ),
    Exercise(
        number="03.4",
        title="Count the crossings",
        name="count_crossings",
        stars=2,
        check=check_count_crossings,
        hints=[
            "Write down the whole path, with the CPU at both ends.",
            (
                'path = ["cpu", *places, "cpu"]; a border lies where path[i] differs'
                " from path[i + 1]."
            ),
            "At the border between path[i] and path[i + 1], sizes[i] bytes cross.",
        ],
        solution="""
def count_crossings(places, sizes):
    path = ["cpu", *places, "cpu"]
    crossed = [size for i, size in enumerate(sizes) if path[i] != path[i + 1]]
    return len(crossed), sum(crossed)
""",
        praise=(
            "In training, count every border twice, except one with nothing in front of"
            " it that learns, such as that of the batch."
        ),
    ),
    Exercise(
        number="03.5",
        title="Evaluate and leave no trace",
        name="evaluate",
        stars=3,
        check=check_evaluate,
        hints=[
            (
                "One switch for the layers, one for autograd. Which of the latter gives"
                " tensors that a training may use?"
            ),
            (
                "Remember the mode of each part first: [(module, module.training) for"
                " module in model.modules()]."
            ),
            (
                "finally: puts the modes back, whatever happens. Set module.training"
                " itself; train() would go deeper."
            ),
        ],
        solution="""
def evaluate(model, batch):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return model(batch)
    finally:
        for module, training in modes:
            module.training = training
""",
        praise=(
            "Frozen batch norms inside a model that trains are common in fine-tuning,"
            " and model.train() after an evaluation thaws them without a word."
        ),
    ),
]
