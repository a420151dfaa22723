"""Exercises of lesson 03."""

import copy
import io
import pickle
import warnings
import zipfile
from unittest import mock

import torch
from torch import nn

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call


def check_standardize(answer):
    mean, std = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0])
    module = call(answer, mean, std, shown="mean and std of two columns")
    if not isinstance(module, nn.Module):
        raise Wrong(f"expected a class that makes an nn.Module, it makes {module!r}")
    x = torch.tensor([[3.0, 2.0], [1.0, 10.0]])
    got = call(module, x, shown=x.tolist())
    expected = (x - mean) / std
    if not isinstance(got, torch.Tensor) or got.shape != expected.shape or not torch.allclose(got, expected):
        shown = got.tolist() if isinstance(got, torch.Tensor) else repr(got)
        raise Wrong(f"for {x.tolist()} you returned {shown}, expected {expected.tolist()}")
    if any(p.requires_grad for p in module.parameters()):
        raise Wrong("an optimizer would train mean and std: they are parameters, and should be buffers")
    saved = module.state_dict()
    if sum(x.numel() for x in saved.values()) < mean.numel() + std.numel():
        raise Wrong(f"the file would hold {list(saved)}: mean and std must both be in the state_dict")
    try:
        there = module.to("meta")(x.to("meta"))
    except RuntimeError as error:
        raise Wrong(f"moved to meta, forward raised: {error} Something stayed behind") from error
    if there.device.type != "meta":
        raise Wrong(f"moved to meta, forward gave a tensor on {there.device}")
    other = answer(torch.zeros(2), torch.ones(2))
    other.load_state_dict(saved)
    if not torch.allclose(other(x), expected):
        raise Wrong("another Standardize that loaded the state_dict still uses its own mean and std")


def check_count_crossings(answer):
    cases = [
        (["cpu", "cpu"], [8, 4, 2], (0, 0)),
        (["cuda:0", "cuda:0"], [8, 4, 2], (2, 10)),
        (["cpu", "cuda:0"], [8, 4, 2], (2, 6)),
        (["cpu", "cuda:0", "cpu", "cuda:0"], [100, 40, 60, 30, 10], (4, 140)),
        (["cuda:0", "cuda:1", "cuda:1"], [100, 40, 60, 30], (3, 170)),
    ]
    for places, sizes, expected in cases:
        shown = f"places {places}, sizes {sizes}"
        got = call(answer, list(places), list(sizes), shown=shown)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(f"for {shown} you returned {got!r}, expected a pair (crossings, bytes)")
        if any(value is DOTS for value in got):
            raise NotAnswered
        if not all(isinstance(value, int) for value in got):
            raise Wrong(f"for {shown} you returned {got!r}, expected two whole numbers")
        if tuple(got) != expected:
            raise Wrong(f"for {shown} you returned {tuple(got)}, expected {expected}: {_why(places, got, expected)}")


def _why(places, got, expected):
    if got[0] < expected[0]:
        return f"the whole path is cpu → {' → '.join(places)} → cpu, and a border lies wherever two neighbors differ"
    if got[0] > expected[0]:
        return "nothing crosses between two neighbors on the same device"
    return "what crosses in front of layer i is sizes[i]; what crosses at the end is the last entry"


class Picky(nn.Module):
    """Two layers with dropout and batch norm, one of them frozen in eval mode; raises for a batch of zeros."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.BatchNorm1d(4).eval()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        self.recorded = torch.is_grad_enabled()
        if not x.any():
            raise ValueError("a batch of zeros")
        return self.layer(self.drop(self.norm(self.frozen(x))))


def _modes(model):
    return [module.training for module in model.modules()]


def check_evaluate(answer):
    batch = torch.arange(20.0).reshape(5, 4)
    for start in (True, False):
        model = Picky() if start else Picky().eval()
        modes, running = _modes(model), model.norm.running_mean.clone()
        shown = f"a model in {'train' if start else 'eval'} mode"
        got = call(answer, model, batch, shown=shown)
        if not isinstance(got, torch.Tensor):
            raise Wrong(f"for {shown} you returned {got!r}, expected what the model answers")
        if not torch.equal(running, model.norm.running_mean):
            raise Wrong(f"for {shown} the running mean of batch norm changed: the model computed in train mode")
        if got.requires_grad:
            raise Wrong(f"for {shown} the answer carries a graph: eval() does not switch off gradients")
        if model.recorded:
            raise Wrong(
                f"for {shown} autograd recorded a graph, and you cut it off afterwards: do not record it at all"
            )
        if got.is_inference():
            raise Wrong("the answer is an inference tensor: a later training cannot use it. no_grad leaves it usable")
        if _modes(model) != modes:
            raise Wrong(_mode_message(model, start))
        with torch.no_grad():
            expected = model.eval()(batch)
        if got.shape != expected.shape or not torch.allclose(got, expected):
            raise Wrong(f"for {shown} the answer is not the one of eval mode (is dropout still on?)")
    model = Picky()
    modes = _modes(model)
    try:
        answer(model, torch.zeros(5, 4))
    except ValueError:
        if _modes(model) != modes:
            message = "the model raised an error, and afterwards it was still in eval mode: use try and finally"
            raise Wrong(message) from None
    else:
        raise Wrong("the model raised an error, and your function kept it to itself: the caller must hear of it")


def _mode_message(model, start):
    if model.training != start:
        return f"the model was in {'train' if start else 'eval'} mode before, and is not any more"
    return (
        "the model as a whole is back in train mode, but so is its layer `frozen`, which was in eval mode before: "
        "train() sets all parts alike, so remember the mode of each one"
    )


class Trap:
    """Asks whoever unpickles it to call a function: here one that only warns."""

    def __reduce__(self):
        return warnings.warn, ("the code of the file runs",)


def _file(contents):
    """A file in memory with `contents`."""
    file = io.BytesIO()
    torch.save(contents, file)
    file.seek(0)
    return file


def _file_from_elsewhere():
    """A file whose tensors say that they were on cuda:99: the tag in the frame of the archive is written anew."""
    file = io.BytesIO()
    source = _file({"weight": torch.zeros(1, 2), "bias": torch.zeros(1)})
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"\x03\0\0\0cpu", b"\x07\0\0\0cuda:99"))
    file.seek(0)
    return file


def check_load_onto(answer):
    cpu, source = torch.device("cpu"), nn.Linear(2, 1)
    model = call(answer, nn.Linear(2, 1), _file(source.state_dict()), cpu, shown="a file from the CPU")
    if not isinstance(model, nn.Module):
        raise Wrong(f"you returned {model!r}, expected the model")
    if not torch.equal(model.weight, source.weight) or not torch.equal(model.bias, source.bias):
        raise Wrong("the weights of the model are not those of the file")
    call(answer, nn.Linear(2, 1), _file_from_elsewhere(), cpu, shown="a file from cuda:99")
    _must_move(answer, source)
    try:
        answer(nn.Linear(2, 1), _file({"weight": torch.zeros(1, 2)}), cpu)
    except Exception:  # any error tells the caller
        _must_refuse(answer, source)
    else:
        raise Wrong("the file had no `bias`, and nobody heard of it: the layer keeps its random one")


def _must_move(answer, source):
    loads_state = nn.Module.load_state_dict
    with (
        mock.patch.object(torch, "load", wraps=torch.load) as load,
        mock.patch.object(nn.Module, "load_state_dict", autospec=True, side_effect=loads_state) as load_state,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # a copy to meta says that it does nothing
        try:
            model = answer(nn.Linear(2, 1), _file(source.state_dict()), torch.device("meta"))
        except (NotImplementedError, RuntimeError) as error:
            model = error
    there = any(str(value) == "meta" for each in load.call_args_list for value in [*each.args, *each.kwargs.values()])
    states = [value for each in load_state.call_args_list for value in [*each.args, *each.kwargs.values()]]
    moved = [x for state in states if isinstance(state, dict) for x in state.values() if isinstance(x, torch.Tensor)]
    if there or any(x.is_meta for x in moved):
        raise Wrong(
            "the file is loaded straight to the device: there the weights are twice for a while. Load to the CPU"
        )
    if isinstance(model, Exception):
        raise Wrong(f"for the device meta your function raised {type(model).__name__}: {model}")
    if {p.device.type for p in model.parameters()} != {"meta"}:
        raise Wrong(f"asked for the device meta, but the model is on {model.weight.device}")


def _must_refuse(answer, source):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer(nn.Linear(2, 1), _file({**source.state_dict(), "note": Trap()}), torch.device("cpu"))
        except (pickle.UnpicklingError, RuntimeError) as error:
            refused = isinstance(error, pickle.UnpicklingError)
        else:
            refused = False
    if any("the code of the file runs" in str(warning.message) for warning in caught):
        raise Wrong("the file asked for a call of a function, and your loader made it: a stranger's code ran here")
    if not refused:
        raise Wrong("the file asked for a call of a function, and the caller did not hear that it was refused")


def check_resume(answer):
    state, expected = _half_trained()
    for device in (torch.device("cpu"), torch.device("meta")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a copy to meta says that it does nothing
            got = call(answer, lambda: nn.Linear(2, 1), copy.deepcopy(state), device, shown=f"the device {device}")
        if not isinstance(got, (tuple, list)) or len(got) != 2 or not isinstance(got[1], torch.optim.Adam):
            raise Wrong(f"you returned {got!r}, expected a pair (model, Adam optimizer)")
        _check_pair(*got, device)
        if device.type == "cpu":
            losses = _steps(*got, 3)
            if losses != expected:
                raise Wrong(f"three more steps gave the losses {losses}; without the interruption they are {expected}")


def _check_pair(model, optimizer, device):
    if {p.device.type for p in model.parameters()} != {device.type}:
        raise Wrong(f"asked for {device}, but the model is on {next(model.parameters()).device}")
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if held != {id(p) for p in model.parameters()}:
        raise Wrong(
            f"for {device}: the optimizer holds parameters that the model no longer has, so training would change "
            "nothing. The move replaced them: build the optimizer after it"
        )
    if not all("exp_avg" in optimizer.state[p] for p in model.parameters()):
        raise Wrong("the optimizer starts without its state: its running means are lost")
    where = {optimizer.state[p]["exp_avg"].device.type for p in model.parameters()}
    if where != {device.type}:
        raise Wrong(f"the model is on {device}, and the optimizer's running means on {where.pop()}")


def _half_trained():
    """The state after three steps, and the losses of the next three."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    _steps(model, optimizer, 3)
    state = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    return state, _steps(model, optimizer, 3)


def _steps(model, optimizer, count):
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    losses = []
    for _ in range(count):
        loss = (model(x) - torch.tensor([[1.0], [-1.0]])).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 5))
    return losses


# Parts that several answers share
STANDARDIZE = """
class Standardize(torch.nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        return (x - self.mean) / self.std
"""
COUNT = """
def count_crossings(places, sizes):
    path = ["cpu", *places, "cpu"]
    crossed = [size for size, a, b in zip(sizes, path[:-1], path[1:], strict=True) if a != b]
    return len(crossed), sum(crossed)
"""
EVALUATE = """
def evaluate(model, batch):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return model(batch)
    finally:
        for module, training in modes:
            module.training = training
"""
LOAD = """
def load_onto(model, file, device):
    state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(state)
    return model.to(device)
"""
RESUME = """
def resume(make_model, state, device):
    model = make_model()
    model.load_state_dict(state["model"])
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer
"""

EXERCISES = [
    Exercise(
        number="03.1",
        title="A module that leaves nothing behind",
        name="Standardize",
        stars=2,
        check=check_standardize,
        hints=[
            "Which of the registers fits: parameters, buffers, children?",
            "They must be saved, so a persistent buffer: the default of register_buffer.",
            'self.register_buffer("mean", mean), and then use it as self.mean.',
        ],
        solution=STANDARDIZE,
        praise="A third way to lose them is a buffer with persistent=False: it moves, and is in no file.",
        wrong={
            STANDARDIZE.replace(
                'self.register_buffer("mean", mean)', "self.mean = mean"
            ): "must both be in the state_dict",
            STANDARDIZE.replace('self.register_buffer("mean", mean)', "self.mean = torch.nn.Parameter(mean)"): (
                "an optimizer would train mean and std"
            ),
            STANDARDIZE.replace('"std", std)', '"std", std, persistent=False)'): "the file would hold ['mean']",
            STANDARDIZE.replace("(x - self.mean)", "x - self.mean"): "you returned",
            STANDARDIZE.replace("(x - self.mean) / self.std", "(x - self.fixed) / self.std").replace(
                "super().__init__()", "super().__init__()\n        self.fixed = mean"
            ): "moved to meta, forward raised",
            STANDARDIZE.replace("(x - self.mean) / self.std", "(x.cpu() - self.mean.cpu()) / self.std.cpu()"): (
                "moved to meta, forward raised"
            ),
        },
    ),
    Exercise(
        number="03.2",
        title="Count the crossings",
        name="count_crossings",
        stars=2,
        check=check_count_crossings,
        hints=[
            "Write down the whole path, with the CPU at both ends.",
            'path = ["cpu", *places, "cpu"]; a border lies where path[i] differs from path[i + 1].',
            "At the border between path[i] and path[i + 1], sizes[i] bytes cross.",
        ],
        solution=COUNT,
        praise="In training, count every border twice, except one that the batch itself crosses: "
        "data needs no gradient.",
        wrong={
            COUNT.replace('["cpu", *places, "cpu"]', "places").replace(", strict=True", ""): "the whole path is",
            COUNT.replace("zip(sizes,", "zip(sizes[1:] + [0],"): "what crosses in front of layer i is sizes[i]",
            COUNT.replace(" if a != b", ""): "nothing crosses between two neighbors",
            COUNT.replace("a != b", "a[:4] != b[:4]"): "a border lies wherever two neighbors differ",
            """
def count_crossings(places, sizes):
    return sum(a != b for a, b in zip(places, places[1:]))
""": "expected a pair",
        },
    ),
    Exercise(
        number="03.3",
        title="Evaluate and leave no trace",
        name="evaluate",
        stars=2,
        check=check_evaluate,
        hints=[
            "One switch for the layers, one for autograd. Which of the latter gives tensors that a training may use?",
            "Remember the mode of each part first: [(module, module.training) for module in model.modules()].",
            "finally: puts the modes back, whatever happens. Set module.training itself; train() would go deeper.",
        ],
        solution=EVALUATE,
        praise="Frozen batch norms inside a model that trains are common in fine-tuning, and model.train() after an "
        "evaluation thaws them without a word.",
        wrong={
            """
def evaluate(model, batch):
    with torch.no_grad():
        return model(batch)
""": "the running mean of batch norm changed",
            """
def evaluate(model, batch):
    return model.eval()(batch)
""": "the answer carries a graph",
            EVALUATE.replace("with torch.no_grad():", "if True:").replace("model(batch)", "model(batch).detach()"): (
                "you cut it off afterwards"
            ),
            EVALUATE.replace("no_grad", "inference_mode"): "an inference tensor",
            """
def evaluate(model, batch):
    model.eval()
    with torch.no_grad():
        return model(batch)
""": "the model was in train mode before",
            """
def evaluate(model, batch):
    before = model.training
    model.eval()
    with torch.no_grad():
        result = model(batch)
    model.train(before)
    return result
""": "but so is its layer `frozen`",
            EVALUATE.replace("    try:\n        with", "    if True:\n        with")
            .replace("            return model(batch)", "            result = model(batch)")
            .replace("    finally:\n", "    if True:\n")
            .replace(
                "            module.training = training\n",
                "            module.training = training\n    return result\n",
            ): ("use try and finally"),
        },
    ),
    Exercise(
        number="03.4",
        title="Load a stranger's file",
        name="load_onto",
        stars=2,
        check=check_load_onto,
        hints=[
            "Two arguments of torch.load: one for where the tensors go, one for what may be loaded.",
            'Load to the CPU: map_location="cpu". Then load_state_dict, strict as it is by default.',
            "model.to(device) moves in place and hands back the model.",
        ],
        solution=LOAD,
        praise="With a model on meta, load_state_dict(state, assign=True) would do the same without a second copy.",
        wrong={
            LOAD.replace('map_location="cpu", ', ""): "map_location",
            LOAD.replace("weights_only=True", "weights_only=False"): "a stranger's code ran here",
            LOAD.replace("load_state_dict(state)", "load_state_dict(state, strict=False)"): "nobody heard of it",
            LOAD.replace("return model.to(device)", "return model"): "but the model is on cpu",
            LOAD.replace('map_location="cpu"', "map_location=device"): "twice for a while",
            LOAD.replace(
                "model.load_state_dict(state)",
                "model.to(device).load_state_dict({key: x.to(device) for key, x in state.items()})",
            ): "twice for a while",
            LOAD.replace("model.load_state_dict(state)\n    ", ""): "not those of the file",
            LOAD.replace("return model.to(device)", "model.to(device)"): "expected the model",
        },
    ),
    Exercise(
        number="03.5",
        title="Resume in the right order",
        name="resume",
        stars=2,
        check=check_resume,
        hints=[
            "Four lines: the model's state, the move, the optimizer, its state. Which must come before which?",
            "A move may replace the parameters, so the optimizer is built after it.",
            "optimizer.load_state_dict puts the running means where the parameters are, so it comes last.",
        ],
        solution=RESUME,
        praise="The check moves to meta, which replaces the parameters as XLA does. On CUDA the wrong order goes "
        "unnoticed, until the state is on the wrong device.",
        wrong={
            """
def resume(make_model, state, device):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return model.to(device), optimizer
""": "The move replaced them",
            RESUME.replace('    optimizer.load_state_dict(state["optimizer"])\n', ""): "its running means are lost",
            RESUME.replace('    model.load_state_dict(state["model"])\n', ""): "three more steps gave",
            RESUME.replace("    model.to(device)\n", ""): "asked for meta, but the model is on cpu",
            RESUME.replace("return model, optimizer", "return model"): "expected a pair",
        },
    ),
]
