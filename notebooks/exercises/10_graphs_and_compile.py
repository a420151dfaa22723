"""Exercises of lesson 10."""

import math

import torch

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.simulate.timeline import Op, makespan, schedule


def check_graph_gain(answer):
    for n, kernel, launch in ((50, 2.0, 5.0), (50, 20.0, 5.0), (1, 3.0, 5.0), (4, 5.0, 5.0), (200, 0.5, 8.0)):
        shown = f"n = {n}, kernel = {kernel} µs, launch = {launch} µs"
        got = _number(call(answer, n, kernel, launch, shown=shown), shown)
        eager, graph = (_step(kernel, launches) for launches in ([launch] * n, [launch] + [0] * (n - 1)))
        if math.isclose(got, eager / graph, rel_tol=1e-9):
            continue
        times = f"eager {eager:g} µs, graph {graph:g} µs"
        why = f"expected {eager / graph:.4g} ({times})"
        if math.isclose(got, n * (launch + kernel) / (launch + n * kernel), rel_tol=1e-9):
            why += ": you added launches and kernels, but the host issues the next one while the device works"
        elif math.isclose(got, n * max(launch, kernel) / (n * kernel), rel_tol=1e-9):
            why += ": the graph has a launch too, and the last kernel runs when the last launch is over"
        elif math.isclose(got, (n * launch + kernel) / (launch + n * kernel), rel_tol=1e-9):
            why += ": that is the host-bound case; here the kernels are longer than the launches and set the pace"
        raise Wrong(f"for {shown} you returned {got:.4g}, {why}")


def _step(kernel, launches):
    ops = [Op(str(k), "stream", "device", kernel, launch=launch) for k, launch in enumerate(launches)]
    return makespan(schedule(ops))


def _number(got, shown):
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise Wrong(f"for {shown} you returned {got!r}, expected a number")
    return got


def check_calls_until_it_pays(answer):
    cases = [
        (10.0, 0.5, 1.0, 20),
        (10.0, 9.0, 10.0, 2),
        (9.5, 0.5, 1.0, 19),
        (20.0, 1.0, 1.0, math.inf),
        (20.0, 2.0, 1.0, math.inf),
        (0.5, 0.25, 1.0, 1),
        (3.25, 0.25, 1.25, 4),
    ]
    for first, compiled, eager, expected in cases:
        shown = f"first = {first} s, compiled = {compiled} s, eager = {eager} s"
        got = _number(call(answer, first, compiled, eager, shown=shown), shown)
        if got == expected:
            continue
        if expected == math.inf:
            raise Wrong(f"for {shown} you returned {got}: no call is faster than an eager one, so it never pays")
        if got in (math.inf, -math.inf) or got != int(got) or got < 1:
            raise Wrong(f"for {shown} you returned {got}: a number of calls is whole, at least 1; expected {expected}")
        got = int(got)
        ours, theirs = first + (got - 1) * compiled, got * eager
        late = f"after {got} calls: compiled {ours:g} s, eager {theirs:g} s"
        if ours >= theirs:
            raise Wrong(
                f"for {shown} you returned {got}, but it has not paid yet {late}; less time is asked, not equal"
            )
        raise Wrong(
            f"for {shown} you returned {got}, but {expected} are enough: the first call has done the work of one, too"
        )


OPERATIONS = {  # operations, outputs: what the case is about
    "this is the lesson's gate": ([("a", ("x",)), ("b", ("a",)), ("c", ("x", "b")), ("d", ("c",))], ("d",)),
    "x * x reads x once": ([("a", ("x", "x")), ("b", ("a", "y"))], ("b",)),
    "a is needed at the end, so it is written": ([("a", ("x",)), ("b", ("a",)), ("c", ("a", "b"))], ("a", "c")),
    "a single operation has nothing to fuse with": ([("a", ("x", "y"))], ("a",)),
    "two operations read z": ([("a", ("x",)), ("b", ("a", "z")), ("c", ("b", "z"))], ("c",)),
}


def check_vectors_moved(answer):
    for why, (operations, outputs) in OPERATIONS.items():
        shown = f"{operations} with outputs {outputs}"
        got = call(answer, list(operations), outputs, shown=shown)
        if isinstance(got, (tuple, list)) and any(value is DOTS for value in got):
            raise NotAnswered
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(f"for {shown} you returned {got!r}, expected a pair (one kernel an operation, fused)")
        made, used = {name for name, _ in operations}, {name for _, read in operations for name in read}
        apart, fused = sum(len(set(read)) + 1 for _, read in operations), len(used - made) + len(outputs)
        if got[0] != apart:
            raise Wrong(
                f"for {shown} you counted {got[0]!r} vectors for one kernel an operation, expected {apart}: "
                f"each reads its different inputs and writes its result ({why})"
            )
        if got[1] != fused:
            raise Wrong(
                f"for {shown} you counted {got[1]!r} vectors for the fused kernel, expected {fused}: "
                f"it reads once what no operation makes, and writes the outputs ({why})"
            )


def check_clip(answer):
    inputs = {"a long vector": (torch.tensor([3.0, 4.0]), 1.0), "a short one": (torch.tensor([0.3, 0.4]), 1.0)}
    inputs |= {"zeros": (torch.zeros(3), 1.0), "a matrix": (torch.full((2, 2), 2.0), 2.0)}
    for name, (x, limit) in inputs.items():
        _compare(call(answer, x.clone(), limit, shown=name), x, limit, name)
    graphs = []

    def counting(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    torch.compiler.reset()  # else each check of the same function counts as one more recompilation
    compiled = torch.compile(answer, backend=counting, fullgraph=True)
    for name, (x, limit) in list(inputs.items())[:3]:
        try:
            got = compiled(x.clone(), limit)
        except RuntimeError as error:
            line = str(error).strip().splitlines()[0]
            raise Wrong(f"right values, but there is still a graph break: {line}") from error
        _compare(got, x, limit, f"{name}, compiled")
    if not graphs:
        raise Wrong("right values, but nothing in it could be compiled: compute with PyTorch's operations")


def _compare(got, x, limit, name):
    norm = x.norm()
    expected = x * (limit / norm) if norm > limit else x
    if not isinstance(got, torch.Tensor) or got.shape != x.shape:
        raise Wrong(f"for {name} you returned {got!r}, expected a tensor like x")
    if got.isnan().any():
        raise Wrong(f"for {name} you returned {got.tolist()}: 0 / 0 is not a number; where does a norm of 0 go?")
    if not torch.allclose(got, expected):
        raise Wrong(
            f"for {name}, {x.tolist()} with limit {limit}, you returned {got.tolist()}, expected {expected.tolist()}: "
            "what is longer than the limit is shortened to it, all else stays as it is"
        )


def check_graphed(answer):
    ran = []

    def fn(x):
        ran.append(1)
        return x * 2 + 1

    example = torch.tensor([[1.0], [2.0], [3.0]])
    original, frozen = example.clone(), fn(example)
    ran.clear()
    replay = call(answer, fn, example, shown="fn and an example")
    if not callable(replay):
        raise Wrong(f"graphed should return a function, you returned {replay!r}")
    if not ran:
        raise Wrong("fn was never called: it must run once, in `with graph.capture():`, to be recorded")
    captured, kept = len(ran), []
    inputs = [torch.tensor([[n], [n + 1.0], [n + 2.0]]) for n in (10.0, 20.0, 30.0)]
    for x in inputs:
        before = x.clone()
        kept.append(call(replay, x, shown="a new tensor"))
        if not torch.equal(example, original):
            raise Wrong("the caller's example was written to: the static input must be a tensor of your own")
        _same_as_eager(kept[-1], x * 2 + 1, frozen)
        if not torch.equal(x, before):
            raise Wrong("your function wrote into the tensor that the caller passed")
    if len(ran) > captured:
        raise Wrong(f"fn ran {len(ran) - captured} more times: record it once, then replay")
    if not torch.equal(kept[0], inputs[0] * 2 + 1):
        raise Wrong("a later call overwrote an earlier result: hand out a clone of the static output")
    for x in (torch.ones(1, 1), torch.ones(2, 1)):
        try:
            replay(x)
        except ValueError:
            continue
        except Exception as error:
            raise Wrong(f"for a shape of {tuple(x.shape)} expected a ValueError, you raised {error!r}") from error
        raise Wrong(f"a tensor of shape {tuple(x.shape)} passed without an error: copy_ has broadcast it to 3 rows")


def _same_as_eager(got, expected, frozen):
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"your function returned {got!r}, expected a tensor")
    if got.isnan().any():
        raise Wrong("the result holds NaN: nothing has been replayed yet when it is read")
    if got.shape == frozen.shape and torch.equal(got, frozen):
        raise Wrong("the result is always that of the example: the new numbers must be copied into the static input")
    if got.shape != expected.shape or not torch.equal(got, expected):
        raise Wrong(f"your function returned {got.tolist()}, fn gives {expected.tolist()}")


IMPORT = """
from utils.simulate.graph import ToyGraph


def graphed(fn, example):
    graph, static = ToyGraph(), example.clone()
    with graph.capture():
        out = fn(static)
"""
CHECKED = """
    def replay(x):
        if x.shape != static.shape:
            raise ValueError(f"captured for {tuple(static.shape)}, got {tuple(x.shape)}")
        static.copy_(x)
        graph.replay()
        return out.clone()

    return replay
"""

EXERCISES = [
    Exercise(
        number="10.1",
        title="What a graph gains",
        name="graph_gain_exactly",
        stars=2,
        check=check_graph_gain,
        hints=[
            "Draw both rows for n = 3: when does the host issue each kernel, when does the device run it?",
            "Graph: one launch, then n kernels. Eager and host-bound: n launches, then the last kernel.",
            "Eager: launch + n * kernel if the kernels are longer, n * launch + kernel if the launches are.",
        ],
        solution="""
def graph_gain_exactly(n, kernel, launch):
    graph = launch + n * kernel
    eager = max(launch + n * kernel, n * launch + kernel)
    return eager / graph
""",
        praise="For many kernels this goes toward launch / kernel, or 1. The cost of capturing is in neither: a graph "
        "that is replayed a few times may never pay.",
        wrong={
            """
def graph_gain_exactly(n, kernel, launch):
    return n * (launch + kernel) / (launch + n * kernel)
""": "while the device works",
            """
def graph_gain_exactly(n, kernel, launch):
    return max(launch, kernel) / kernel
""": "the graph has a launch too",
            """
def graph_gain_exactly(n, kernel, launch):
    return (n * launch + kernel) / (launch + n * kernel)
""": "set the pace",
            """
def graph_gain_exactly(n, kernel, launch):
    return "much"
""": "expected a number",
        },
    ),
    Exercise(
        number="10.2",
        title="Calls until it pays",
        name="calls_until_it_pays",
        stars=2,
        check=check_calls_until_it_pays,
        hints=[
            "Write down both totals for n calls. Only one of n compiled calls is the first.",
            "first + (n - 1) * compiled < n * eager. Solve for n; what if compiled >= eager?",
            "n > (first - compiled) / (eager - compiled): the next whole number above, and at least 1.",
        ],
        solution="""
import math


def calls_until_it_pays(first, compiled, eager):
    if first < eager:
        return 1
    if compiled >= eager:
        return float("inf")
    return math.floor((first - compiled) / (eager - compiled)) + 1
""",
        praise="And each recompilation adds another `first`: a program whose shapes change all the time moves its own "
        "break-even ahead of itself.",
        wrong={
            """
import math


def calls_until_it_pays(first, compiled, eager):
    return math.ceil(first / (eager - compiled)) if eager > compiled else float("inf")
""": "are enough",
            """
import math


def calls_until_it_pays(first, compiled, eager):
    return math.ceil((first - compiled) / (eager - compiled)) if eager > compiled else float("inf")
""": "it has not paid yet",
            """
def calls_until_it_pays(first, compiled, eager):
    return (first - compiled) / (eager - compiled) + 1 if eager > compiled else float("inf")
""": "whole",
            """
def calls_until_it_pays(first, compiled, eager):
    return int((first - compiled) / max(eager - compiled, 1e-9)) + 1
""": "it never pays",
        },
    ),
    Exercise(
        number="10.3",
        title="Count before you fuse",
        name="vectors_moved",
        stars=2,
        check=check_vectors_moved,
        hints=[
            "One kernel an operation: each reads len(set(inputs)) vectors and writes one.",
            "Fused: what do the operations read that none of them makes? Those are its inputs.",
            "len(used - made) + len(outputs), with made = {name for name, _ in operations}.",
        ],
        solution="""
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = {name for _, inputs in operations for name in inputs}
    apart = sum(len(set(inputs)) + 1 for _, inputs in operations)
    return apart, len(used - made) + len(outputs)
""",
        praise="The ratio of the two is the most that fusing can give to work bound by memory. In training, what the "
        "backward pass needs counts as an output, so the ratio is smaller.",
        wrong={
            """
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = {name for _, inputs in operations for name in inputs}
    return sum(len(inputs) + 1 for _, inputs in operations), len(used - made) + len(outputs)
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
    return sum(len(set(inputs)) + 1 for _, inputs in operations), len(used) + len(outputs)
""": "what no operation makes",
            """
def vectors_moved(operations, outputs):
    return 2 * len(operations), 2
""": "each reads its different inputs",
        },
    ),
    Exercise(
        number="10.4",
        title="A branch without a break",
        name="clip",
        stars=2,
        check=check_clip,
        hints=[
            "The factor is limit / norm where that is below 1, and 1 where it is not.",
            "torch.where(condition, a, b) chooses on the device; torch.clamp(factor, max=1) does it even shorter.",
            "limit / norm is infinite for a vector of zeros, and clamp makes 1 of it.",
        ],
        solution="""
def clip(x, limit):
    return x * torch.clamp(limit / x.norm(), max=1.0)
""",
        praise="It also runs in a CUDA graph, on meta, and without a wait. PyTorch's clip_grad_norm_ does the same.",
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
    return x * (limit / x.norm())
""": "all else stays as it is",
            """
def clip(x, limit):
    norm = x.norm()
    return torch.where(norm >= 0, x * torch.clamp(norm, max=limit) / norm, x)
""": "0 / 0 is not a number",
        },
    ),
    Exercise(
        number="10.5",
        title="A graph that nobody can misuse",
        name="graphed",
        stars=2,
        check=check_graphed,
        hints=[
            "Three lines before the inner function: a graph, a static input (whose copy?), the capture.",
            "Inside: compare the shapes, copy_ the new numbers in, replay. What do you return?",
            "static = example.clone() before the capture, out.clone() after the replay.",
        ],
        solution=IMPORT + CHECKED,
        praise="torch.cuda.make_graphed_callables does the first half, but its outputs are overwritten by the next "
        "call: they are yours to clone.",
        wrong={
            IMPORT + CHECKED.replace("out.clone()", "out"): "overwrote an earlier result",
            IMPORT + CHECKED.replace("static.copy_(x)", "example = x"): "always that of the example",
            IMPORT.replace("example.clone()", "example") + CHECKED: "the caller's example was written to",
            IMPORT + CHECKED.replace("x.shape != static.shape", "x.dtype != static.dtype"): "copy_ has broadcast it",
            IMPORT + CHECKED.replace("graph.replay()", ""): "nothing has been replayed",
            """
def graphed(fn, example):
    fn(example)
    return lambda x: fn(x)
""": "more times: record it once",
            """
def graphed(fn, example):
    return lambda x: x * 2 + 1
""": "fn was never called",
        },
    ),
]
