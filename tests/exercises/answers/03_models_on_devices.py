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
        """
class Standardize(torch.nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.mean = torch.nn.Parameter(mean, requires_grad=False)
        self.std = torch.nn.Parameter(std, requires_grad=False)

    def forward(self, x):
        return (x - self.mean) / self.std
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
            STANDARDIZE, ("return (x", "with torch.no_grad():\n            return (x")
        ): "no gradient passes through",
        edit(
            STANDARDIZE, ('"std", std)', '"std", std, persistent=False)')
        ): "the file would hold ['mean']",
        edit(STANDARDIZE, ("(x - self.mean)", "x - self.mean")): "you returned",
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
        edit(
            STANDARDIZE,
            ("(x - self.mean) / self.std", "(x - self.fixed) / self.std"),
            ("super().__init__()", "super().__init__()\n        self.fixed = mean"),
        ): "moved to meta, forward raised",
        edit(
            STANDARDIZE,
            (
                "(x - self.mean) / self.std",
                "(x.cpu() - self.mean.cpu()) / self.std.cpu()",
            ),
        ): "moved to meta, forward raised",
    },
)

LOAD = SOLUTION["03.2"]
ANSWERS["03.2"] = Answers(
    right=[
        edit(LOAD, ("(state)", "(state, assign=True)")),
        """
def load_onto(model, file, device):
    model = model.to(device)
    model.load_state_dict(
        torch.load(file, lambda storage, tag: storage, weights_only=True)
    )
    return model
""",
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
        edit(
            LOAD, ("return model.to(device)", "return model")
        ): "0.weight of the model is on cpu",
        edit(LOAD, ('"cpu"', "device")): "twice for a while",
        """
def load_onto(model, file, device):
    model.to(device)
    state = torch.load(file, map_location=device, weights_only=True)
    model.load_state_dict(state, assign=True)
    return model
""": "twice for a while",
        edit(
            LOAD,
            ('"cpu"', "device"),
            ("(state)", "(state, assign=True)"),
            (".to(device)", ""),
        ): "asked for meta, but mask of the model is on cpu",
        edit(
            LOAD,
            (
                "model.load_state_dict(state)",
                (
                    "model.to(device).load_state_dict({key: x.to(device) for"
                    " key, x in state.items()})"
                ),
            ),
        ): "twice for a while",
        edit(
            LOAD, ("model.load_state_dict(state)\n    ", "")
        ): "0.weight in the model is not that of the file",
        edit(LOAD, ("return ", "")): "expected the model",
        """
def load_onto(model, file, device):
    state = torch.load(file, map_location="cpu", weights_only=True)
    return model.to(device).load_state_dict(state)
""": "you returned <All keys matched successfully>, expected the model",
        """
def load_onto(model, file, device):
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(state)
    except Exception:
        pass
    return model.to(device)
""": "nobody heard of it",
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
        edit(RESUME, ("return model, optimizer", "return model")): "expected a pair",
        edit(
            RESUME, ("return model, optimizer", "return optimizer, model")
        ): "you returned a pair (Adam, Linear)",
        edit(RESUME, ("Adam", "SGD")): "expected (model, Adam optimizer)",
        edit(
            RESUME, ("make_model()", "torch.nn.Linear(2, 1)")
        ): "your function raised RuntimeError",
        edit(
            RESUME, ("return", 'optimizer.param_groups[0]["lr"] = 0.1\n    return')
        ): "the optimizer's learning rate is 0.1, and that of the state 0.02",
        edit(
            RESUME, ("model.to(device)", "model.to(device).eval()")
        ): "the model is in eval mode",
        edit(
            RESUME, ("model.parameters()", "reversed(list(model.parameters()))")
        ): "three more steps raised",
        edit(
            RESUME, ("model.to(device)", "model.to(device).half()")
        ): "weight of the model is torch.float16",
        edit(
            RESUME, ("model.to(device)", "model.to(device).requires_grad_(False)")
        ): "want no gradient any more",
        edit(
            RESUME,
            ("    model = ", "    torch.set_default_device(device)\n    model = "),
        ): "the default device",
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
def count_crossings(places, sizes):
    here, count, total = "cpu", 0, 0
    for place, size in zip(list(places) + ["cpu"], sizes):
        if place != here:
            count += 1
            total += size
        here = place
    return [count, total]
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
            COUNT, (" if path[i] != path[i + 1]", "")
        ): "nothing crosses between equal neighbors",
        edit(COUNT, ("[i] !=", "[i] is not")): "between equal neighbors",
        edit(
            COUNT, ("path[i] != path[i + 1]", "path[i][:4] != path[i + 1][:4]")
        ): "a border lies wherever two neighbors differ",
        edit(
            COUNT, ("len(crossed), sum(crossed)", "sum(crossed), len(crossed)")
        ): "the number of crossings comes first",
        edit(
            COUNT, ("len(crossed), sum(crossed)", "2 * len(crossed), 2 * sum(crossed)")
        ): "no gradient goes back",
        """
def count_crossings(places, sizes):
    return sum(a != b for a, b in zip(places, places[1:]))
""": "expected a pair",
    },
)

EVALUATE = SOLUTION["03.5"]
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
        edit(
            EVALUATE,
            ("with torch.no_grad():", "if True:"),
            ("model(batch)", "model(batch).detach()"),
        ): "do not cut a graph off afterwards",
        edit(EVALUATE, ("no_grad", "inference_mode")): "an inference tensor",
        edit(
            EVALUATE,
            (
                "with torch.no_grad():",
                "torch.set_grad_enabled(False)\n        if True:",
            ),
        ): "autograd is off afterwards",
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
""": "but its layer `frozen`",
        edit(
            EVALUATE, ("model.modules()", "[model, *model.children()]")
        ): "but its layer `block.0`",
        edit(
            EVALUATE,
            ("model.modules()]", "model.modules() if not list(module.children())]"),
            ("    model.eval()\n", "    was = model.training\n    model.eval()\n"),
            ("    finally:", "    finally:\n        model.train(was)"),
        ): "but its layer `block`",
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
        edit(
            EVALUATE,
            (
                "    finally:",
                "    except ValueError:\n        return None\n    finally:",
            ),
        ): "your function kept it to itself",
        edit(
            EVALUATE,
            (
                "    finally:",
                (
                    "    except ValueError:\n"
                    "        raise RuntimeError('failed')\n"
                    "    finally:"
                ),
            ),
        ): "the caller saw a RuntimeError",
        edit(
            EVALUATE, ("model(batch)", "model(batch).argmax(1)")
        ): "you returned torch.int64 of shape (5,)",
    },
    equivalent={
        "moves batch to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
    },
)
