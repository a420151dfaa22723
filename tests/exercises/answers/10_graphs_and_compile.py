"""Answers to the exercises of lesson 10."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}
ON_CPU = "Not judged: a check has tensors on the CPU only, where this does nothing."

TIMES = SOLUTION["10.0"]
ANSWERS["10.0"] = Answers(
    right=[
        """
from itertools import groupby


def host_times(lines, per_operation, per_graph):
    graphs = sum(kind for kind, _ in groupby(line == "tensor" for line in lines))
    return sum(line == "tensor" for line in lines) * per_operation, graphs * per_graph
""",
        """
def host_times(lines, per_operation, per_graph):
    text = "".join("t" if line == "tensor" else " " for line in lines)
    return [text.count("t") * per_operation, len(text.split()) * per_graph]
""",
        """
def host_times(lines, per_operation, per_graph):
    eager = compiled = 0.0
    in_graph = False
    for line in lines:
        if line == "break":
            in_graph = False
            continue
        eager += per_operation
        if not in_graph:
            compiled += per_graph
        in_graph = True
    return eager, compiled
""",
    ],
    wrong={
        """
def host_times(lines, per_operation, per_graph):
    breaks = lines.count("break")
    return lines.count("tensor") * per_operation, (breaks + 1) * per_graph
""": "no operation stands between the two breaks",
        """
def host_times(lines, per_operation, per_graph):
    return lines.count("tensor") * per_operation, per_graph
""": "a break cuts the graph in two",
        """
def host_times(lines, per_operation, per_graph):
    graphs = 1
    for one, other in zip(lines, lines[1:]):
        graphs += one != "tensor" and other == "tensor"
    return lines.count("tensor") * per_operation, graphs * per_graph
""": "no operation stands before the break",
        edit(
            TIMES,
            ('lines.count("tensor") * per_operation', "len(lines) * per_operation"),
        ): "a break is no operation",
        edit(
            TIMES,
            (
                'lines.count("tensor") * per_operation, graphs * per_graph',
                'graphs * per_graph, lines.count("tensor") * per_operation',
            ),
        ): "first eager, then compiled",
        edit(
            TIMES, (' and before != "tensor"', "")
        ): "without a break all are one graph",
    },
    equivalent={
        "graphs, before = (0, None) → graphs, before = (0, 0)": (
            'Whatever is not "tensor" may stand before the first line.'
        ),
    },
)

STEP = SOLUTION["10.1"]
ANSWERS["10.1"] = Answers(
    right=[
        """
import torch
from simulate.graph import ToyGraph


def recorded_step(weight, gradient):
    rate = torch.full((1,), 0.1, dtype=weight.dtype)
    graph = ToyGraph()
    with graph.capture():
        weight -= rate * gradient
    return graph, rate
""",
        """
import torch
from simulate.graph import ToyGraph


def recorded_step(weight, gradient):
    graph, rate = ToyGraph(), torch.full_like(weight, 0.1)
    with graph.capture():
        weight.addcmul_(gradient, rate, value=-1)
    return [graph, rate]
""",
    ],
    wrong={
        edit(STEP, ("torch.tensor(0.1)", "0.1")): "cannot write into a Python number",
        edit(STEP, ("rate * gradient", "0.1 * gradient")): "use the first rate",
        edit(STEP, ("rate * gradient", "rate.item() * gradient")): "needs a value",
        edit(
            STEP, ("weight.sub_(rate * gradient)", "weight = weight - rate * gradient")
        ): "change weight in place",
        edit(
            STEP, ("    return", "    graph.replay()\n    return")
        ): "before any replay",
        edit(
            STEP,
            ("torch.tensor(0.1)\n", "torch.tensor(0.1)\n    old = gradient.clone()\n"),
            ("rate * gradient", "rate * old"),
        ): "a copy of gradient",
    },
    equivalent={
        "moves weight to the CPU": ON_CPU,
        "moves gradient to the CPU": ON_CPU,
    },
)

MOVED = SOLUTION["10.2"]
ANSWERS["10.2"] = Answers(
    right=[
        """
def vectors_moved(operations, outputs):
    apart, made, needed = 0, [], []
    for name, inputs in operations:
        apart += 1
        for each in dict.fromkeys(inputs):
            apart += 1
            if each not in made and each not in needed:
                needed.append(each)
        made.append(name)
    return [apart, len(needed) + len(outputs)]
""",
        """
def vectors_moved(operations, outputs):
    operations = dict(operations)
    reads = set().union(*operations.values()) - operations.keys()
    apart = sum(map(len, map(set, operations.values()))) + len(operations)
    return apart, len(reads) + len(outputs)
""",
    ],
    wrong={
        edit(MOVED, ("len(set(inputs))", "len(inputs)")): "x * x reads x once",
        edit(MOVED, ("len(outputs)", "1")): "a is needed at the end",
        edit(MOVED, ("used - made", "used")): "what no operation makes",
        edit(
            MOVED,
            (
                "return apart, len(used - made) + len(outputs)",
                "fused = len(used - made)",
            ),
            ("made)\n", "made) + len(outputs)\n    return fused, apart\n"),
        ): "first comes one kernel an operation",
    },
)

CLIP = SOLUTION["10.3"]
ANSWERS["10.3"] = Answers(
    right=[
        """
def clip(x, limit):
    norm = x.norm()
    return torch.where(norm > limit, x * (limit / norm), x)
""",
        """
def clip(x, limit):
    norm = x.norm()
    return torch.cond(
        norm > limit, lambda x: x * (limit / norm), lambda x: x.clone(), (x,)
    )
""",
    ],
    wrong={
        """
def clip(x, limit):
    norm = x.norm()
    if norm > limit:
        x = x * (limit / norm)
    return x
""": "there is still a graph break",
        """
def clip(x, limit):
    return x * min(1.0, limit / max(x.norm().item(), 1e-9))
""": "right values, but",
        edit(CLIP, ("x.norm()", "x.norm(dim=-1, keepdim=True)")): (
            "a matrix (one norm for all)"
        ),
        """
def clip(x, limit):
    norm = x.norm()
    return torch.where(norm >= 0, x * torch.clamp(norm, max=limit) / norm, x)
""": "0 / 0 is not a number",
    },
)

GRAPHED = SOLUTION["10.4"]
FREE = "The text of the error is free."
ANSWERS["10.4"] = Answers(
    right=[
        """
import torch
from simulate.graph import ToyGraph


def graphed(fn, example):
    static = torch.empty_like(example).copy_(example)
    for _ in range(3):
        fn(static)
    graph = ToyGraph()
    with graph.capture():
        out = fn(static)
    return lambda x: run(graph, static, out, x)


def run(graph, static, out, x):
    if tuple(x.size()) != tuple(static.size()):
        raise ValueError
    static[...] = x
    graph.replay()
    return out + 0
""",
        """
import copy
from simulate.graph import ToyGraph


class graphed:
    def __init__(self, fn, example):
        self.graph, self.static = ToyGraph(), copy.deepcopy(example)
        with self.graph.capture():
            self.out = fn(self.static)

    def __call__(self, x):
        if x.shape == self.static.shape:
            self.static.copy_(x)
            self.graph.replay()
            return copy.deepcopy(self.out)
        raise ValueError(f"{x.shape} is not {self.static.shape}")
""",
    ],
    wrong={
        edit(GRAPHED, ("out.clone()", "out")): "a later replay has overwritten it",
        edit(
            GRAPHED, ("example.clone()", "example")
        ): "the caller's example was written to",
        edit(
            GRAPHED, ("x.shape != static.shape", "x.numel() != static.numel()")
        ): "expected a ValueError",
        edit(
            GRAPHED,
            (", static = ToyGraph(), example.clone()", " = ToyGraph()"),
            ("        out", "        static = example.clone()\n        out"),
        ): "made before the capture",
    },
    equivalent={
        "moves example to the CPU": ON_CPU,
        "raise ValueError('not the recorded shape') → raise ValueError()": FREE,
        (
            "raise ValueError('not the recorded shape') → raise ValueError('not"
            " the recorded shapex')"
        ): FREE,
    },
)
