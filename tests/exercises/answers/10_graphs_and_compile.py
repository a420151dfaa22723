"""Answers to the exercises of lesson 10."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

GRAPHS = SOLUTION["10.0"]
ANSWERS["10.0"] = Answers(
    right=[
        """
graphs = []


def counting(graph_module, example_inputs):
    graphs.append(graph_module)
    return graph_module.forward


def count_graphs(fn, inputs):
    torch.compiler.reset()
    graphs.clear()
    compiled = torch.compile(fn, backend=counting)
    for x in inputs:
        compiled(x)
    return len(graphs)
""",
        """
def count_graphs(fn, inputs):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    list(map(torch.compile(fn, backend=counter), inputs))
    return counter.frame_count
""",
        """
def count_graphs(fn, inputs):
    count = 0

    def backend(graph_module, example_inputs):
        nonlocal count
        count += 1
        return graph_module

    torch.compiler.reset()
    run = torch.compile(backend=backend)(fn)
    kept = [run(x) for x in inputs]
    return count
""",
    ],
    wrong={
        edit(
            GRAPHS,
            ("def count_graphs", "graphs = []\n\ndef count_graphs"),
            ("    graphs = []\n\n", ""),
        ): "the graphs of earlier calls are among them",
        edit(
            GRAPHS,
            (
                "        compiled(x)",
                "        compiled(x)\n        torch.compiler.reset()",
            ),
        ): "later calls find the graph of the first",
        edit(GRAPHS, ("inputs:", "inputs[:1]:")): "a new dtype is compiled again",
        edit(
            GRAPHS, (", backend=counting", "")
        ): "torch.compile got no backend of yours",
        edit(GRAPHS, ("compiled(x)", "fn(x)")): "your backend was never asked",
        edit(
            GRAPHS, ("backend=counting", "backend=counting, fullgraph=True")
        ): "your function raised",
        """
def count_graphs(fn, inputs):
    return len(inputs)
""": "later calls find the graph of the first",
        edit(GRAPHS, ("len(graphs)", "graphs")): "expected a number",
        edit(
            GRAPHS, ("    torch.compiler.reset()\n", "")
        ): "PyTorch compiles it no more",
        edit(
            GRAPHS, ("append(graph_module)", "extend(graph_module.graph.nodes)")
        ): "a graph has several nodes",
    },
    equivalent={
        "graphs.append(graph_module) → graphs.append(example_inputs)": (
            "Only the length of the list counts."
        ),
    },
)

FEED = SOLUTION["10.1"]
SCRATCH = "x and y are the graph's: the next batch and the next replay fill them again."
ANSWERS["10.1"] = Answers(
    right=[
        """
def results_of(graph, x, y, batches):
    def one(batch):
        x[...] = batch
        graph.replay()
        return y.detach().clone()

    return [one(batch) for batch in batches]
""",
        """
import copy


def results_of(graph, x, y, batches):
    if not batches:
        return []
    x.copy_(batches[0])
    graph.replay()
    first = copy.deepcopy(y)
    return [first, *results_of(graph, x, y, batches[1:])]
""",
        """
import torch


def results_of(graph, x, y, batches):
    kept = torch.empty(len(batches), *y.shape, dtype=y.dtype)
    for n, batch in enumerate(batches):
        x.copy_(batch, non_blocking=True)
        graph.replay()
        kept[n] = y
    return list(kept)
""",
        """
def results_of(graph, x, y, batches):
    results = ()
    for batch in batches:
        x.zero_().add_(batch)
        graph.replay()
        results += (y + 0,)
    return results
""",
    ],
    wrong={
        edit(FEED, ("y.clone()", "y")): "a later replay",
        edit(FEED, ("y.clone()", "y.detach()")): "a later replay",
        edit(FEED, ("x.copy_(batch)", "x = batch")): "the result of the recorded batch",
        edit(FEED, ("        graph.replay()\n", "")): "nothing has been replayed",
        edit(
            FEED,
            ("        x.copy_(batch)\n", ""),
            ("y.clone())\n", "y.clone())\n        x.copy_(batch)\n"),
        ): "copy_ into x first",
        edit(FEED, ("x.copy_(batch)", "x.data = batch")): "other memory",
        edit(FEED, ("x.copy_(batch)", "x.set_(batch)")): "other memory",
        edit(FEED, ("return results", "return y.clone()")): "expected a list",
        edit(FEED, ("y.clone()", "y.tolist()")): "expected a tensor",
        edit(
            FEED, ("    return results", "        y.zero_()\n    return results")
        ): "you wrote into y",
        edit(FEED, ("batches:", "batches[1:]:")): "one for each batch",
        """
def results_of(graph, x, y, batches):
    results = []
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        results.append(y)
    return [result.clone() for result in results]
""": "a later replay in your function",
        """
def results_of(graph, x, y, batches):
    results = []
    for batch in batches:
        x.copy_(batch)
        results.append(y.clone())
        graph.replay()
    return results
""": "nothing has been replayed",
        """
def results_of(graph, x, y, batches):
    results = []
    for batch in batches:
        batch.copy_(x)
        graph.replay()
        results.append(y.clone())
    return results
""": "your function changed",
        """
def results_of(graph, x, y, batches):
    return [2 * batch + 1 for batch in batches]
""": "no replay filled y",
    },
    equivalent={
        "clears x": SCRATCH,
        "changes what is in x": SCRATCH,
        "changes x before it is used": SCRATCH,
        "changes y before it is used": SCRATCH,
        "moves x to the CPU": "Not judged: a check has tensors on the CPU only.",
        "moves y to the CPU": "Not judged: a check has tensors on the CPU only.",
    },
)

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
    return sum(map(len, map(set, operations.values()))) + len(operations), len(
        reads
    ) + len(outputs)
""",
    ],
    wrong={
        """
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = {name for _, inputs in operations for name in inputs}
    return sum(len(inputs) + 1 for _, inputs in operations), len(used - made) + len(
        outputs
    )
""": "x * x reads x once",
        """
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = {name for _, inputs in operations for name in inputs}
    return sum(len(set(inputs)) + 1 for _, inputs in operations), len(used - made) + 1
""": "a is needed at the end",
        """
def vectors_moved(operations, outputs):
    used = {name for _, inputs in operations for name in inputs}
    return sum(len(set(inputs)) + 1 for _, inputs in operations), len(used) + len(
        outputs
    )
""": "what no operation makes",
        """
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = [
        name for _, inputs in operations for name in set(inputs) if name not in made
    ]
    return sum(len(set(inputs)) + 1 for _, inputs in operations), len(used) + len(
        outputs
    )
""": "this is the lesson's gate",
        """
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = {name for _, inputs in operations for name in inputs}
    return len(used - made) + len(outputs), sum(
        len(set(inputs)) + 1 for _, inputs in operations
    )
""": "first comes one kernel an operation",
        """
def vectors_moved(operations, outputs):
    return 2 * len(operations), 2
""": "each reads its different inputs",
        """
def vectors_moved(operations, outputs):
    made = "".join(name for name, _ in operations)
    used = {name for _, inputs in operations for name in inputs}
    return sum(len(set(inputs)) + 1 for _, inputs in operations), len(
        used - set(made)
    ) + len(outputs)
""": "the names say nothing",
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
    return x * (limit / (torch.linalg.vector_norm(x) + 1e-6)).clamp(max=1)
""",
        """
def clip(x, limit):
    return x.reshape(1, -1).renorm(2, 0, limit).view_as(x)
""",
        """
def clip(x, limit):
    return x / max(1, x.square().sum().sqrt() / limit)
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
        """
def clip(x, limit):
    norm = x.norm().item()
    return x * (limit / norm) if norm > limit else x
""": "Python asks for a value",
        """
def clip(x, limit):
    norm = x.norm(dim=-1, keepdim=True)
    return torch.where(norm > limit, x * (limit / norm), x)
""": "a matrix (one norm for all)",
        """
def clip(x, limit):
    return x * (limit / x.norm())
""": "all else stays as it is",
        """
def clip(x, limit):
    return x.clamp(-limit, limit)
""": "shortened to it",
        edit(CLIP, ("limit /", "1.0 /")): "for a vector as long as the limit",
        """
def clip(x, limit):
    norm = x.norm()
    return torch.where(norm >= 0, x * torch.clamp(norm, max=limit) / norm, x)
""": "0 / 0 is not a number",
        """
def clip(x, limit):
    return x.mul_(torch.clamp(limit / x.norm(), max=1.0))
""": "your function changed x (its numbers)",
        """
def clip(x, limit):
    return x * torch.where(x.norm() > limit, limit / x.norm(), torch.ones(1))
""": "right on the CPU, but for an x on meta",
        """
import numpy as np


def clip(x, limit):
    return x * np.minimum(1, limit / np.linalg.norm(x.numpy()))
""": "right on the CPU, but for an x on meta",
        """
def clip(x, limit):
    return x.float() * torch.clamp(limit / x.float().norm(), max=1.0)
""": "the dtype stays that of x",
    },
)

GRAPHED = SOLUTION["10.4"]
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
        edit(GRAPHED, ("out.clone()", "out")): "overwrote an earlier result",
        edit(
            GRAPHED,
            ("static.copy_(x)", "static = x"),
            ("if", "nonlocal static\n        if"),
        ): "always that of the example",
        edit(
            GRAPHED, ("example.clone()", "example")
        ): "the caller's example was written to",
        edit(
            GRAPHED, ("example.clone()", "torch.zeros(example.shape)")
        ): "fn gives torch.float64",
        edit(
            GRAPHED, ("x.shape != static.shape", "x.dtype != static.dtype")
        ): "copy_ broadcasts",
        edit(
            GRAPHED, ("x.shape != static.shape", "len(x) != len(static)")
        ): "expected a ValueError",
        edit(
            GRAPHED, ("x.shape != static.shape", "x.numel() != static.numel()")
        ): "expected a ValueError",
        edit(GRAPHED, ("graph.replay()", "")): "nothing has been replayed",
        edit(
            GRAPHED,
            ("        static.copy_(x)\n", ""),
            ("replay()\n", "replay()\n        static.copy_(x)\n"),
        ): "always that of the example",
        """
def graphed(fn, example):
    fn(example)
    return lambda x: fn(x)
""": "more times: record it once",
        """
def graphed(fn, example):
    return lambda x: x * 2 + 1
""": "fn was never called",
        edit(
            GRAPHED,
            (", static = ToyGraph(), example.clone()", " = ToyGraph()"),
            ("        out", "        static = example.clone()\n        out"),
        ): "Make it before the capture",
        edit(
            GRAPHED, ("static.shape", "out.shape")
        ): "of this shape, your function raised ValueError",
        edit(GRAPHED, ("raise", "return")): "your function returned an error: raise it",
        edit(
            GRAPHED,
            ("from", "state = {}\n\nfrom"),
            ("def replay", 'state["out"] = out\n\n    def replay'),
            ("out.", 'state["out"].'),
        ): "each needs a graph and tensors of its own",
        """
from simulate.graph import ToyGraph


def graphed(fn, example):
    graph, static = ToyGraph(), example.clone()
    with graph.capture():
        out = fn(static)

    results = {}

    def replay(x):
        if x.shape != static.shape:
            raise ValueError("not the recorded shape")
        if id(x) not in results:
            static.copy_(x)
            graph.replay()
            results[id(x)] = out.clone()
        return results[id(x)]

    return replay
""": "given the same tensor again",
    },
    equivalent={
        "moves example to the CPU": (
            "Not judged: a check has tensors on the CPU only, where this does nothing."
        ),
        "raise ValueError('not the recorded shape') → raise ValueError()": (
            "The text of the error is free."
        ),
        (
            "raise ValueError('not the recorded shape') → raise ValueError('not"
            " the recorded shapex')"
        ): "The text of the error is free.",
    },
)
