"""Answers to the exercises of lesson 03."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

STANDARDIZE = SOLUTION["03.1"]
ANSWERS["03.1"] = Answers(
    right=[
        """
from torch import nn

class Standardize(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = nn.Buffer(mean), nn.Buffer(std)

    def forward(self, x):
        return x.sub(self.mean).div(self.std)
""",
        """
class Standardize(torch.nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("both", torch.stack([1 / std, -mean / std]))

    def forward(self, x):
        return x * self.both[0] + self.both[1]
""",
    ],
    wrong={
        edit(
            STANDARDIZE, ('self.register_buffer("mean", mean)', "self.mean = mean")
        ): "must both be in the state_dict",
        edit(
            STANDARDIZE,
            (
                'self.register_buffer("mean", mean)',
                "self.mean = torch.nn.Parameter(mean)",
            ),
        ): "an optimizer would train mean: make buffers",
        edit(
            STANDARDIZE,
            (
                "return (x - self.mean) / self.std",
                "x -= self.mean\n        return x / self.std",
            ),
        ): "your function changed x (its numbers)",
        """
class Standardize(torch.nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x):
        return (x - self.mean.to(x.device)) / self.std.to(x.device)
""": "the file would hold []",
    },
)

LOAD = SOLUTION["03.2"]
ANSWERS["03.2"] = Answers(
    right=[
        edit(LOAD, ("(state)", "(state, assign=True)")),
        """
def load_onto(model, file, device):
    state = torch.load(file, map_location=torch.device("cpu"))
    answer = model.load_state_dict(state, strict=False)
    if answer.missing_keys:
        raise KeyError(f"not in the file: {answer.missing_keys}")
    return model.to(device)
""",
    ],
    wrong={
        edit(LOAD, ('map_location="cpu", ', "")): "map_location",
        edit(LOAD, ("True", "False")): "a stranger's code ran here",
        edit(LOAD, ("(state)", "(state, strict=False)")): "nobody heard of it",
        edit(LOAD, ('"cpu"', "device")): "twice for a while",
    },
    equivalent={
        (
            "state = torch.load(file, map_location='cpu', weights_only=True) →"
            " state = torch.load(file, map_location='cpu')"
        ): "weights_only=True is the default since PyTorch 2.6.",
    },
)

RESUME = SOLUTION["03.3"]
ANSWERS["03.3"] = Answers(
    right=[
        """
def resume(make_model, state, device):
    model = make_model().to(device)
    model.load_state_dict(state["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer
""",
        """
def resume(make_model, state, device):
    model = make_model()
    optimizer = torch.optim.Adam(model.to(device).parameters(), lr=1.0)
    for name, item in {"model": model, "optimizer": optimizer}.items():
        item.load_state_dict(state[name])
    return [model, optimizer]
""",
    ],
    wrong={
        """
def resume(make_model, state, device):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return model.to(device), optimizer
""": "The move replaced them",
        edit(
            RESUME, ('    optimizer.load_state_dict(state["optimizer"])\n', "")
        ): "its running means are lost",
        edit(
            RESUME, ('    model.load_state_dict(state["model"])\n', "")
        ): "weight of the model is not that of the state",
        edit(
            RESUME, ("    model.to(device)\n", "")
        ): "asked for meta, but the model is on cpu",
    },
)

COUNT = SOLUTION["03.4"]
ANSWERS["03.4"] = Answers(
    right=[
        """
from itertools import pairwise

def count_crossings(places, sizes):
    crossed = [
        size
        for size, (a, b) in zip(sizes, pairwise(["cpu", *places, "cpu"]), strict=True)
        if a != b
    ]
    return len(crossed), sum(crossed)
""",
        """
import numpy as np

def count_crossings(places, sizes):
    path = np.array(["cpu", *places, "cpu"])
    crossed = path[1:] != path[:-1]
    return crossed.sum(), np.dot(crossed, sizes)
""",
    ],
    wrong={
        """
def count_crossings(places, sizes):
    crossed = [size for size, a, b in zip(sizes[1:], places[:-1], places[1:]) if a != b]
    return len(crossed), sum(crossed)
""": "the whole path is",
        edit(
            COUNT, ("enumerate(sizes)", "enumerate(sizes[1:] + [0])")
        ): "what crosses in front of layer i is sizes[i]",
        edit(
            COUNT, ("len(crossed), sum(crossed)", "sum(crossed), len(crossed)")
        ): "the number of crossings comes first",
        edit(
            COUNT, ("len(crossed), sum(crossed)", "2 * len(crossed), 2 * sum(crossed)")
        ): "no gradient goes back",
    },
)

ANSWERS["03.5"] = Answers(
    right=[
        """
@torch.no_grad()
def evaluate(model, batch):
    before = {module: module.training for module in model.modules()}
    try:
        return model.eval()(batch)
    finally:
        for module, training in before.items():
            module.train(training)
""",
        """
import copy

def evaluate(model, batch):
    with torch.inference_mode():
        result = copy.deepcopy(model).eval()(batch)
    return result.clone()
""",
    ],
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
        """
def evaluate(model, batch):
    before = model.training
    model.eval()
    with torch.no_grad():
        result = model(batch)
    model.train(before)
    return result
""": "but its layer `frozen`",
        """
def evaluate(model, batch):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    if True:
        with torch.no_grad():
            result = model(batch)
    if True:
        for module, training in modes:
            module.training = training
    return result
""": "use try and finally",
    },
    equivalent={
        "moves batch to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
)
