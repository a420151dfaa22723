"""Exercises of lesson 10."""

import logging
from unittest import mock

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from simulate.graph import ToyGraph

# --------------------------------------------------------------------------------------
# 10.0


def doubled(x):
    return x * 2


def careful(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


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


def _compile(*args, backend="inductor", real=torch.compile, **options):
    if backend == "inductor":
        raise Wrong(
            "torch.compile got no backend of yours: the default one writes and compiles"
            " C++, and counts nothing"
        )
    return real(*args, backend=backend, **options)


X = torch.ones(4)
COUNTED = {  # the case: function, its inputs, number of graphs, why
    "x * 2 on four tensors alike": (
        doubled,
        [X, X + 1, X + 2, X + 3],
        1,
        "a graph has several nodes",
    ),
    "x * 2 on float32, float64, float32": (
        doubled,
        [X, X.double(), X],
        2,
        "a new dtype is compiled again",
    ),
    "x * 2 on no tensor": (
        doubled,
        [],
        0,
        "it is compiled at the first call, and there is none",
    ),
    "the lesson's `careful` on a positive tensor": (
        careful,
        [X],
        2,
        "one graph up to the `if`, one after it",
    ),
    "`careful` on a positive and a negative tensor": (
        careful,
        [X, -X],
        3,
        "each way out is a graph",
    ),
    "the same, asked again": (
        careful,
        [X, -X],
        3,
        "begin with no graphs, and with torch.compiler.reset()",
    ),
}


def _ask_ten_times(answer):
    shown = "x * 2, asked ten times"
    why = (
        "after eight graphs of a function PyTorch compiles it no more. Begin with"
        " torch.compiler.reset()"
    )
    for time in range(1, 11):
        got = _call(answer, doubled, [X], shown=shown)
        expect.equal(got, 1, f"{shown}, at time {time}", why)


def check_count_graphs(answer):
    before = 0
    for text, (fn, inputs, expected, why) in COUNTED.items():
        again = text == "the same, asked again"
        if not again:
            # what the lesson or another answer has compiled says nothing about this one
            torch.compiler.reset()
        with mock.patch.object(torch, "compile", _compile):
            got = _call(answer, fn, inputs, shown=text)
        expect.number(got, text)
        if expected == 1 and got == len(inputs):
            why = "later calls find the graph of the first"
        elif got == 0 and not again:
            why = (
                "your backend was never asked: does torch.compile get it, and do you"
                " call what it returns?"
            )
        elif got == expected + before:
            why = "the graphs of earlier calls are among them"
        expect.equal(got, expected, text, why)
        before += expected
    # PyTorch says that it gives up, and so does the verdict
    logging.disable(logging.WARNING)
    try:
        _ask_ten_times(answer)
    finally:
        logging.disable(logging.NOTSET)
        torch.compiler.reset()


# --------------------------------------------------------------------------------------
# 10.1

RECORDED = {  # what is recorded: its function, a batch
    "x * 2 + 1 on three numbers": (lambda x: x * 2 + 1, torch.tensor([1.0, 2.0, 3.0])),
    "x.sum(0) on a 2 × 2 matrix": (lambda x: x.sum(0), torch.ones(2, 2)),
    "(x - 1).relu() on one number in float64": (
        lambda x: (x - 1).relu(),
        torch.tensor([3.0], dtype=torch.float64),
    ),
}
# multiples of the batch, with which the answer is called
FED = [[2, 5, 3], [4], [3, 3, 7, 2], []]


def check_results_of(answer):
    for text, (fn, one) in RECORDED.items():
        for multiples in FED:
            batches = [one * multiple for multiple in multiples]
            shown = f"{text}, {len(batches)} batches"
            _judge_fed(answer, fn, one, batches, shown)


def _judge_fed(answer, fn, one, batches, shown):
    x, graph = one.clone(), ToyGraph()
    with graph.capture():
        y = fn(x)
    places = x.data_ptr(), y.data_ptr()
    given = [graph, x, y, batches]
    got = call(answer, *given, shown=shown, changes=[x, y])
    expect.instance(got, (list, tuple), shown, "a list of tensors")
    if len(got) != len(batches):
        raise Wrong(
            f"for {shown} you returned {len(got)} results, expected {len(batches)}:"
            " one for each batch"
        )
    if (x.data_ptr(), y.data_ptr()) != places:
        raise Wrong(
            f"for {shown} you gave x or y other memory: the graph of a GPU reads at the"
            " old address. Copy the numbers"
        )
    left = y.clone()
    if batches:  # somebody else uses the graph
        x.copy_(one * 100)
        graph.replay()
    for place, result in enumerate(got):
        _judge_result(result, fn, one, batches, place, f"{shown}, result {place},")
    if batches and not torch.equal(left, fn(batches[-1])):
        fault = "no replay filled y" if left.isnan().any() else "you wrote into y"
        raise Wrong(f"for {shown} {fault}: leave that to the replay of each batch")


def _judge_result(result, fn, one, batches, place, shown):
    expect.instance(result, torch.Tensor, shown, "a tensor")
    why = "copy_ the batch into x, replay, and keep a copy of y"
    faults = [(fn(one), "that is the result of the recorded batch: copy_ into x first")]
    if place:
        before = fn(batches[place - 1])
        faults.append((before, "that is the batch before: copy_ first, then replay"))
    faults.append((fn(one * 100), "a later replay has overwritten it: clone y"))
    later = "a later replay in your function has overwritten it: clone y"
    faults += [(fn(batch), later) for batch in batches[place + 1 :]]
    for wrong, fault in faults:
        if result.shape == wrong.shape and torch.equal(result, wrong):
            why = fault
    if result.isnan().any():
        why = "nothing has been replayed yet when it is read"
    expect.tensor(result, fn(batches[place]), shown, why)


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
    "a and b are both needed at the end": (
        [("a", ("w", "x", "y")), ("b", ("a", "x"))],
        ("b", "a"),
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
        if got == [fused, each] != [each, fused]:
            raise Wrong(
                f"for {shown} you returned {got!r}: first comes one kernel an"
                " operation, then the fused one"
            )
        rule = f"each reads its different inputs and writes its result ({why})"
        kernels = f"{shown}, one kernel an operation,"
        expect.equal(got[0], each, kernels, rule, said="you counted")
        rule = f"read once what no operation makes, write the outputs ({why})"
        kernels = f"{shown}, the fused kernel,"
        expect.equal(got[1], fused, kernels, rule, said="you counted")


# --------------------------------------------------------------------------------------
# 10.3


def check_clip(answer):
    inputs = {
        "a long vector": (torch.tensor([-3.0, 4.0]), 1.0),
        "a short one": (torch.tensor([0.3, -0.4]), 1.0),
        "zeros": (torch.zeros(2), 1.0),
        "a vector as long as the limit": (torch.tensor([3.0, 4.0]), 5),
        "a matrix (one norm for all)": (torch.full((2, 2), 2.0), 2.0),
        "a transposed matrix": (torch.arange(6.0).view(2, 3).T, 0.5),
        "a vector in float64": (torch.tensor([3.0, 4.0], dtype=torch.float64), 1.0),
        "nothing, a tensor without numbers": (torch.empty(0), 1.0),
    }
    for name, (x, limit) in inputs.items():
        torch.compiler.reset()  # torch.cond compiles, too
        got = _call(answer, x, limit, shown=name)
        _judge_clipped(got, x, limit, name)
    _clip_compiled(answer, list(inputs.items())[:3])
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
    nodes = [node for graph in graphs for node in graph.graph.nodes]
    for node in nodes:
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
        got = answer(torch.empty(2, device="meta"), 1.0)
    except Exception as error:
        # a Python max, say, asks eagerly, and nobody when compiled
        if "item()" in str(error):
            return
        line = str(error).splitlines()[0]
        raise Wrong(
            f"right on the CPU, but for an x on meta, {type(error).__name__}: {line}"
        ) from error
    if got.device.type != "meta":
        raise Wrong(
            f"right on the CPU, but for an x on meta the result is on {got.device}"
        )


def _numbers(x):
    return x.double().round(decimals=6).tolist()


def _judge_clipped(got, x, limit, name):
    norm = x.norm()
    expected = x * (limit / norm) if norm > limit else x
    if not isinstance(got, torch.Tensor) or got.shape != x.shape:
        raise Wrong(f"for {name} you returned {got!r}, expected a tensor like x")
    expect.equal(got.dtype, x.dtype, name, "the dtype stays that of x")
    if got.isnan().any():
        raise Wrong(
            f"for {name} you returned {got.tolist()}: 0 / 0 is not a number; where does"
            " a norm of 0 go?"
        )
    if not torch.allclose(got, expected):
        raise Wrong(
            f"for {name}, {_numbers(x)} with limit {limit}, you returned"
            f" {_numbers(got)}, expected {_numbers(expected)}: what is longer than the"
            " limit is shortened to it, all else stays as it is"
        )


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
    x = torch.ones(3, 1)
    if not torch.equal(call(first, x, shown=shown), x * 2 + 1):
        raise Wrong(
            f"{shown} gives another one's result: each needs a graph and tensors of"
            " its own"
        )


def _judge_graphed(answer, text, operation, example, inputs):
    """Judges what graphed makes of a function, and returns it."""
    ran = []

    def fn(x):
        ran.append(1)
        return operation(x)

    shown = f"fn = {text} and an example of shape {tuple(example.shape)}"
    original, frozen = example.clone(), operation(example)
    replay = call(answer, fn, example, shown=shown)
    if not callable(replay):
        raise Wrong(
            f"graphed should return a function, you returned a {type(replay).__name__}"
        )
    if not ran:
        raise Wrong(
            "fn was never called: graphed runs it once, in `with graph.capture():`, to"
            " record it"
        )
    captured, kept, last = len(ran), [], None
    for x in inputs:
        before = x.clone()
        kept.append(call(replay, x, shown=f"{shown}, then a new tensor of this shape,"))
        if not torch.equal(example, original):
            raise Wrong(
                "the caller's example was written to: the static input must be a tensor"
                " of your own"
            )
        _same_as_eager(kept[-1], operation(before), frozen, last, shown)
        if not torch.equal(x, before):
            raise Wrong("your function wrote into the tensor that the caller passed")
        last = operation(x)
    if len(ran) > captured:
        raise Wrong(
            f"fn ran {len(ran) - captured} more times: record it once, then replay"
        )
    if not torch.equal(kept[0], operation(inputs[0])):
        raise Wrong(
            "a later call overwrote an earlier result: hand out a clone of the static"
            " output"
        )
    _judge_other_shapes(replay, tuple(example.shape))
    example.zero_()  # the caller's own
    got = call(replay, inputs[0], shown=shown)
    _same_as_eager(got, operation(inputs[0]), frozen, None, shown)
    again = inputs[0] + 1
    call(replay, again, shown=shown)
    again.sub_(3)
    if not torch.equal(call(replay, again, shown=shown), operation(again)):
        raise Wrong(
            "given the same tensor again, with new numbers in it, your function"
            " returned the old result"
        )
    return replay


def _judge_other_shapes(replay, captured):
    rows, columns = captured
    shapes = [(rows, 1), (1, 1), (rows - 1, 1), (rows + 1, columns), (1, columns)]
    shapes += [(rows, columns, 1), (columns,), ()]
    for shape in shapes:
        if shape != captured:
            _must_raise(replay, shape, captured)


def _must_raise(replay, shape, captured):
    try:
        got = replay(torch.ones(shape))
    except ValueError:
        return
    except Exception as error:
        raise Wrong(
            f"for a shape of {shape} expected a ValueError, you raised {error!r}"
        ) from error
    if isinstance(got, Exception):
        raise Wrong(f"for a shape of {shape} your function returned an error: raise it")
    raise Wrong(
        f"a tensor of shape {shape} passed without an error, captured was {captured}:"
        " copy_ broadcasts, so compare the shapes first"
    )


def _same_as_eager(got, expected, frozen, last, shown):
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"for {shown}, your function returned {got!r}, expected a tensor")
    if got.is_floating_point() and got.isnan().any():
        raise Wrong(
            "the result holds NaN: nothing has been replayed yet when it is read"
        )
    said = f"for {shown}, your function returned"
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Wrong(
            f"{said} {got.dtype} of shape {tuple(got.shape)}, fn gives"
            f" {expected.dtype} of shape {tuple(expected.shape)}"
        )
    if torch.equal(got, expected):
        return
    if torch.equal(got, frozen):
        raise Wrong(
            "the result is always that of the example: copy the new numbers, before the"
            " replay, into the static input that fn has read. Make it before the"
            " capture, or each replay makes it anew"
        )
    if last is not None and torch.equal(got, last):
        raise Wrong(
            "the result is that of the tensor before: copy_ first, then replay, then"
            " read"
        )
    raise Wrong(f"{said} {got.tolist()}, fn gives {expected.tolist()}")


EXERCISES = [
    Exercise(
        number="10.0",
        title="Count the graphs",
        name="count_graphs",
        stars=1,
        check=check_count_graphs,
        hints=[
            (
                "A backend is a function of a graph and its inputs. Yours appends the"
                " graph to a list, as in the lesson."
            ),
            (
                "torch.compile(fn, backend=…) once, then call the result with each x."
                " When is it compiled?"
            ),
            (
                "Start from an empty list and torch.compiler.reset() in each call of"
                " count_graphs; then take the length."
            ),
        ],
        solution="""
def count_graphs(fn, inputs):
    graphs = []

    def counting(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    torch.compiler.reset()
    compiled = torch.compile(fn, backend=counting)
    for x in inputs:
        compiled(x)
    return len(graphs)
""",
        praise=(
            "A test of your own program can count as well: some graphs in the first"
            " step, and none in any later one."
        ),
    ),
    Exercise(
        number="10.1",
        title="Feed a graph",
        name="results_of",
        stars=1,
        check=check_results_of,
        hints=[
            (
                "For each batch three things: new numbers into x, a replay, and what"
                " you keep of y."
            ),
            (
                "An assignment gives the name x to another tensor. Which method writes"
                " into the tensor that is there?"
            ),
            "x.copy_(batch), graph.replay(), results.append(y.clone()).",
        ],
        solution="""
def results_of(graph, x, y, batches):
    results = []
    for batch in batches:
        x.copy_(batch)
        graph.replay()
        results.append(y.clone())
    return results
""",
        praise=(
            "The same three lines feed a torch.cuda.CUDAGraph. On a GPU none of them"
            " waits: the copies stand in the queue, before and after the replay."
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
            " CUDA graph, too, without a wait; torch.cond, called eagerly, waits."
            " PyTorch's clip_grad_norm_ chooses by clamp."
        ),
    ),
    Exercise(
        number="10.4",
        title="A graph that nobody can misuse",
        name="graphed",
        stars=3,
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
