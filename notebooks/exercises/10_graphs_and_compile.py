"""Exercises of lesson 10."""

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from simulate.graph import ToyGraph

# --------------------------------------------------------------------------------------
# 10.0


OPERATION, GRAPH = 2.0, 13.0  # what each of them costs, in µs
PROGRAMS = {  # the case: what each line is, number of graphs, why
    "four operations": (["tensor"] * 4, 1, "without a break all are one graph"),
    "a break after the first operation": (
        ["tensor", "break", "tensor"],
        2,
        "a graph before the break, and one after it",
    ),
    "two breaks in a row": (
        ["tensor", "tensor", "break", "break", "tensor"],
        2,
        "no operation stands between the two breaks, so there is no graph either",
    ),
    "a break at the end": (
        ["tensor", "tensor", "break"],
        1,
        "no operation follows the break, so there is no graph either",
    ),
    "a break at the beginning": (
        ["break", "tensor"],
        1,
        "no operation stands before the break, so there is no graph either",
    ),
    "three breaks apart": (
        ["tensor", "break"] * 3 + ["tensor"] * 2,
        4,
        "each break ends a graph",
    ),
    "breaks alone": (["break", "break"], 0, "there is no operation, so no graph"),
    "no line": ([], 0, "there is no operation, so no graph"),
}


def check_host_times(answer):
    for shown, (lines, graphs, why) in PROGRAMS.items():
        got = call(answer, list(lines), OPERATION, GRAPH, shown=shown)
        asked = "a pair of numbers: the time eager, the time compiled"
        eager, compiled = expect.numbers(got, 2, shown, asked)
        count = lines.count("tensor")
        wanted = count * OPERATION, graphs * GRAPH
        if (compiled, eager) == wanted != (eager, compiled):
            raise Wrong(f"for {shown} you returned {got!r}: first eager, then compiled")
        slips = [(len(lines) * OPERATION, "a break is no operation on tensors")]
        each = f"{count} operations, each asked for by itself"
        expect.close(eager, wanted[0], shown, each, slips, "eager, you returned")
        slips = [(wanted[0], "the operations of a graph are one call together")]
        if graphs == 0:
            slips = []
        if graphs > 1:
            slips.append((GRAPH, "a break cuts the graph in two"))
        expect.close(compiled, wanted[1], shown, why, slips, "compiled, you returned")


# --------------------------------------------------------------------------------------
# 10.1

STEPS = {  # the weight before, two gradients
    "three weights": (torch.zeros(3), torch.ones(3), torch.tensor([1.0, -2.0, 4.0])),
    "a matrix in float64": (
        torch.ones(2, 2, dtype=torch.float64),
        torch.full((2, 2), 3.0, dtype=torch.float64),
        torch.eye(2, dtype=torch.float64),
    ),
}
RATES = [0.1, 0.05, 2.0]
OLD_BATCH = (
    "that is the result of the recorded batch: copy_ the new numbers, before the"
    " replay, into the tensor that was recorded, made before the capture"
)
BEFORE = "that is the result of the one before: copy_ first, then replay, then read"
CLONE = "a later replay has overwritten it: hand out a clone"
FROZEN = (
    "the recording goes on to use the first rate: a Python number is written into it as"
    " it was, so compute with a tensor"
)


def check_recorded_step(answer):
    for name, (start, *gradients) in STEPS.items():
        weight, gradient = start.clone(), gradients[0].clone()
        got = call(answer, weight, gradient, shown=name, changes=[weight])
        asked = "a pair: the graph, and the rate"
        expect.instance(got, (list, tuple), name, asked)
        expect.equal(len(got), 2, f"{name}, the length of what you return")
        graph, rate = got
        expect.instance(graph, ToyGraph, name, "first a ToyGraph")
        what = "a tensor as rate, because the caller cannot write into a Python number"
        expect.instance(rate, torch.Tensor, f"{name}, the rate,", what)
        if not torch.equal(weight, start):
            raise Wrong(
                f"for {name} the weight has changed before any replay: record the step,"
                " the caller replays it"
            )
        _judge_steps(graph, rate, weight, gradient, gradients, name)


def _judge_steps(graph, rate, weight, gradient, gradients, name):
    for place, value in enumerate(RATES):
        new = gradients[place % 2]
        gradient.copy_(new)
        if place:
            rate.fill_(value)
        before = weight.clone()
        graph.replay()
        why = "weight -= rate * gradient, with what stands in both at the replay"
        for wrong, fault in (
            (before - RATES[0] * new, FROZEN),
            (before, "the step makes a new tensor: change weight in place"),
            (
                before - value * gradients[0],
                "it reads a copy of gradient",
            ),
            (before + value * new, "the step goes uphill: subtract"),
        ):
            if torch.allclose(weight, wrong):
                why = fault
        shown = f"{name}, the weight after replay {place + 1} with rate {value},"
        # a rate in float32 has seven digits
        if not torch.allclose(weight, before - value * new, rtol=1e-5):
            expect.tensor(weight, before - value * new, shown, why)


def _judge_result(result, right, faults, shown):
    """faults: pairs (tensor, what went wrong where it is the result)."""
    expect.instance(result, torch.Tensor, shown, "a tensor")
    why = ""
    if result.isnan().any():
        why = "nothing has been replayed yet when it is read"
    for wrong, fault in reversed(faults):
        if result.shape == wrong.shape and torch.equal(result, wrong):
            why = fault
    expect.tensor(result, right, shown, why)


# --------------------------------------------------------------------------------------
# 10.2

OPERATIONS = {  # operations, outputs: what the case is about
    "a chain of two: b reads what a writes": ([("a", ("x",)), ("b", ("a",))], ("b",)),
    "a single operation has nothing to fuse with": ([("a", ("x", "y"))], ("a",)),
    "x * x reads x once": ([("a", ("x", "x")), ("b", ("a", "y"))], ("b",)),
    "this is the lesson's gate": (
        [("a", ("x",)), ("b", ("a",)), ("c", ("x", "b")), ("d", ("c",))],
        ("d",),
    ),
    "a is needed at the end, so it is written": (
        [("a", ("x",)), ("b", ("a",)), ("c", ("a", "b"))],
        ("a", "c"),
    ),
    "two operations read z": (
        [("a", ("x",)), ("b", ("a", "z")), ("c", ("b", "z"))],
        ("c",),
    ),
    "the names say nothing": (
        [("mul", ("in", "out")), ("sum", ("mul", "in"))],
        ("sum",),
    ),
}


def check_vectors_moved(answer):
    for why, (operations, outputs) in OPERATIONS.items():
        shown = f"{operations} with outputs {outputs}"
        asked = "a pair of numbers (one kernel an operation, fused)"
        got = call(answer, operations, outputs, shown=shown)
        got = expect.numbers(got, 2, shown, asked)
        made = {name for name, _ in operations}
        used = {name for _, read in operations for name in read}
        each = sum(len(set(read)) + 1 for _, read in operations)
        fused = len(used - made) + len(outputs)
        rule = f"each reads its different inputs and writes its result ({why})"
        if got == [fused, each]:
            rule = "first comes one kernel an operation, then the fused one"
        kernels = f"{shown}, one kernel an operation,"
        expect.equal(got[0], each, kernels, rule, said="you counted")
        rule = f"read once what no operation makes, write the outputs ({why})"
        kernels = f"{shown}, the fused kernel,"
        expect.equal(got[1], fused, kernels, rule, said="you counted")


# --------------------------------------------------------------------------------------
# 10.3

CLIPPED = {
    "a long vector": (torch.tensor([-3.0, 4.0]), 1.0),
    "a short one": (torch.tensor([0.3, -0.4]), 1.0),
    "zeros": (torch.zeros(2), 1.0),
    "a vector as long as the limit": (torch.tensor([3.0, 4.0]), 5),
    "a matrix (one norm for all)": (torch.full((2, 2), 2.0), 2.0),
    "a transposed matrix": (torch.arange(6.0).view(2, 3).T, 0.5),
    "a vector in float64": (torch.tensor([3.0, 4.0], dtype=torch.float64), 1.0),
    "nothing, a tensor without numbers": (torch.empty(0), 1.0),
}


def _call(answer, *args, shown):
    """call(), with the beginning of what went wrong: the compiler's messages have
    dozens of lines.
    """
    try:
        return call(answer, *args, shown=shown)
    except Wrong as problem:
        own = problem.__cause__ if isinstance(problem.__cause__, Wrong) else problem
        first, *more = str(own).splitlines()
        if first.endswith(":") and more:
            first += f" {more[0]}"
        raise Wrong(first) from problem


def check_clip(answer):
    for name, (x, limit) in CLIPPED.items():
        torch.compiler.reset()  # torch.cond compiles, too
        _judge_clipped(_call(answer, x, limit, shown=name), x, limit, name)
    _clip_compiled(answer, list(CLIPPED.items())[:3])
    _clip_on_meta(answer)


def _clip_compiled(answer, inputs):
    graphs = []

    def counting(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    # what the lesson or another answer has compiled says nothing about this one
    torch.compiler.reset()
    # Lengths and limits as they are: PyTorch 2.9 translates conditions on those that
    # vary with a C++ compiler.
    compiled = torch.compile(answer, backend=counting, fullgraph=True, dynamic=False)
    for name, (x, limit) in inputs:
        try:
            got = compiled(x.clone(), limit)
        except Exception as error:
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            # its names are the compiler's
            if "data-dependent expression" in line or ".item()" in line:
                line = "Python asks for a value (.item(), float) and decides by it"
            raise Wrong(
                f"right values, but there is still a graph break: {line}"
            ) from error
        _judge_clipped(got, x, limit, f"{name}, compiled")
    for node in [node for graph in graphs for node in graph.graph.nodes]:
        waits = node.target in ("item", "tolist", "cpu", "numpy")
        # PyTorch compiles some of them, and the wait remains
        if node.op == "call_method" and waits:
            raise Wrong(
                f"right values, but a value is fetched ({node.target}): let the device"
                " choose, as torch.where does"
            )
    if not graphs:
        raise Wrong(
            "right values, but nothing in it could be compiled: compute with PyTorch's"
            " operations"
        )


def _clip_on_meta(answer):
    try:
        outcome = answer(torch.empty(2, device="meta"), 1.0).device.type
    except Exception as error:
        # a Python max, say, asks eagerly, and nobody when compiled
        if "item()" in str(error):
            return
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    said = "right on the CPU, your result is on"
    expect.equal(outcome, "meta", "an x on meta", "", said)


def _judge_clipped(got, x, limit, name):
    norm, shown = x.norm(), f"{name}, {x.tolist()} with limit {limit},"
    why = "what is longer than the limit is shortened to it, all else stays as it is"
    if isinstance(got, torch.Tensor) and got.isnan().any():
        why = "0 / 0 is not a number; where does a norm of 0 go?"
    expect.tensor(got, x * (limit / norm) if norm > limit else x, shown, why)


# --------------------------------------------------------------------------------------
# 10.4


def check_graphed(answer):
    three = torch.tensor([[1.0], [2.0], [3.0]])
    later = [three * n + 7 for n in (10, 20, 30)]
    first = _judge_graphed(answer, "x * 2 + 1", lambda x: x * 2 + 1, three, later)
    table = torch.arange(6, dtype=torch.float64).view(3, 2)
    later = [table / 8, -table, table]
    text = "(x - x.sum()).exp()"
    _judge_graphed(answer, text, lambda x: (x - x.sum()).exp(), table, later)
    later = [table, -table, table + 2]
    _judge_graphed(answer, "x.sum(0)", lambda x: x.sum(0), table + 5, later)
    shown = "the function of the first graph, after graphed has made others,"
    x, why = torch.ones(3, 1), "each needs a graph and tensors of its own"
    expect.tensor(call(first, x, shown=shown), x * 2 + 1, shown, why)


def _judge_graphed(answer, text, operation, example, inputs):
    """Judges what graphed makes of a function, and returns it."""
    ran = []

    def fn(x):
        ran.append(1)
        return operation(x)

    shown = f"fn = {text} and an example of shape {tuple(example.shape)}"
    original, frozen = example.clone(), operation(example)
    replay = call(answer, fn, example, shown=shown)
    if not callable(replay) or not ran:
        raise Wrong(
            f"graphed should return a function and run fn once, in `with"
            f" graph.capture():`, to record it; you returned a {type(replay).__name__},"
            f" fn ran {len(ran)} times"
        )
    captured, kept, faults = len(ran), [], [(frozen, OLD_BATCH)]
    then = f"{shown}, then a new tensor of this shape,"
    again = inputs[0].clone()
    for place, x in enumerate([*inputs, again, again]):
        if place > len(inputs):
            again.sub_(3)  # the same tensor, with new numbers in it
        kept.append(call(replay, x, shown=then))
        if not torch.equal(example, original):
            raise Wrong(
                "the caller's example was written to: the static input must be a tensor"
                " of your own"
            )
        _judge_result(kept[-1], operation(x), faults, then)
        faults = [(frozen, OLD_BATCH), (operation(x), BEFORE)]
    more = f"{shown}, {len(kept)} replays later,"
    why = "record it once, then replay"
    expect.equal(len(ran), captured, more, why, said="the number of runs of fn is")
    expect.tensor(kept[0], operation(inputs[0]), more, CLONE)
    rows, columns = captured_shape = tuple(example.shape)
    for shape in [(rows, 1), (rows + 1, columns), (1, columns), (rows, columns, 1), ()]:
        if shape != captured_shape:
            _must_raise(replay, shape, captured_shape)
    return replay


def _must_raise(replay, shape, captured):
    try:
        said = f"you returned {replay(torch.ones(shape))!r}"
    except ValueError:
        return
    except Exception as error:
        said = f"you raised {error!r}"
    raise Wrong(
        f"for a tensor of shape {shape}, where {captured} was captured, {said};"
        " expected a ValueError: copy_ broadcasts, so compare the shapes first"
    )


EXERCISES = [
    Exercise(
        number="10.0",
        title="What does a break cost?",
        name="host_times",
        stars=1,
        check=check_host_times,
        hints=[
            "Eager: how many lines are operations on tensors?",
            (
                "Compiled: a graph begins at an operation before which no operation"
                " stands. What do two breaks in a row make of that?"
            ),
            (
                "Go through the lines and keep the one before: count a graph where line"
                ' == "tensor" and before != "tensor".'
            ),
        ],
        solution="""
def host_times(lines, per_operation, per_graph):
    graphs, before = 0, None
    for line in lines:
        if line == "tensor" and before != "tensor":
            graphs += 1
        before = line
    return lines.count("tensor") * per_operation, graphs * per_graph
""",
        praise=(
            "So a compiled function with a break after every few operations may take"
            " longer than an eager one."
        ),
    ),
    Exercise(
        number="10.1",
        title="A rate that reaches the recording",
        name="recorded_step",
        stars=1,
        check=check_recorded_step,
        hints=[
            (
                "A recording holds numbers of Python as they were, and tensors by their"
                " address. So what has the rate to be?"
            ),
            (
                "rate = torch.tensor(0.1) before the capture. Which operation changes"
                " weight in place?"
            ),
            "with graph.capture(): weight.sub_(rate * gradient)",
        ],
        solution="""
from simulate.graph import ToyGraph


def recorded_step(weight, gradient):
    graph, rate = ToyGraph(), torch.tensor(0.1)
    with graph.capture():
        weight.sub_(rate * gradient)
    return graph, rate
""",
        praise=(
            "PyTorch's optimizers do the same: Adam with capturable=True takes a tensor"
            " on the device as lr, and a scheduler fills it."
        ),
    ),
    Exercise(
        number="10.2",
        title="Count before you fuse",
        name="vectors_moved",
        stars=2,
        check=check_vectors_moved,
        hints=[
            (
                "One kernel an operation: each reads len(set(inputs)) vectors and"
                " writes one."
            ),
            (
                "Fused: what do the operations read that none of them makes? Those are"
                " its inputs."
            ),
            (
                "len(used - made) + len(outputs), with made = {name for name, _ in"
                " operations}."
            ),
        ],
        solution="""
def vectors_moved(operations, outputs):
    made = {name for name, _ in operations}
    used = {name for _, inputs in operations for name in inputs}
    apart = sum(len(set(inputs)) + 1 for _, inputs in operations)
    return apart, len(used - made) + len(outputs)
""",
        praise=(
            "The ratio of the two is the most that fusing can give to work bound by"
            " memory. In training, what the backward pass needs counts as an output, so"
            " the ratio is smaller."
        ),
    ),
    Exercise(
        number="10.3",
        title="A branch without a break",
        name="clip",
        stars=2,
        check=check_clip,
        hints=[
            "The factor is limit / norm where that is below 1, and 1 where it is not.",
            (
                "torch.where(condition, a, b) chooses on the device;"
                " torch.clamp(factor, max=1) does it even shorter."
            ),
            "limit / norm is infinite for a vector of zeros, and clamp makes 1 of it.",
        ],
        solution="""
def clip(x, limit):
    return x * torch.clamp(limit / x.norm(), max=1.0)
""",
        praise=(
            "It also runs on meta. What the device chooses (clamp, where) runs in a"
            " CUDA graph, too, without a wait; torch.cond waits. PyTorch's"
            " clip_grad_norm_ chooses by clamp, and adds 1e-6 to the norm: without that"
            " the gradient through clip is not a number for an x of zeros."
        ),
    ),
    Exercise(
        number="10.4",
        title="A graph that nobody can misuse",
        name="graphed",
        stars=2,
        check=check_graphed,
        hints=[
            (
                "Three lines before the inner function: a graph, a static input (whose"
                " copy?), the capture."
            ),
            (
                "Inside: compare the shapes, copy_ the new numbers in, replay. What do"
                " you return?"
            ),
            (
                "static = example.clone() before the capture, out.clone() after the"
                " replay."
            ),
        ],
        solution="""
from simulate.graph import ToyGraph


def graphed(fn, example):
    graph, static = ToyGraph(), example.clone()
    with graph.capture():
        out = fn(static)

    def replay(x):
        if x.shape != static.shape:
            raise ValueError("not the recorded shape")
        static.copy_(x)
        graph.replay()
        return out.clone()

    return replay
""",
        praise=(
            "torch.cuda.make_graphed_callables does the first half, but its outputs are"
            " overwritten by the next call: they are yours to clone."
        ),
    ),
]
