"""Exercises of lesson 05."""

import contextlib

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.streams import CudaStreams
from simulate.timeline import Op, makespan, races, schedule


@contextlib.contextmanager
def streams_of_a_gpu(made_on="side"):
    """Streams in place of those of torch.cuda, one of which has made the input; Wrong
    if the host waits in the block, or `main` is not current after it.
    """
    gpu = CudaStreams()
    getattr(gpu, made_on).before.add("input")
    with gpu.in_place_of_cuda():
        yield gpu
    if gpu.held:
        raise Wrong(
            f"you called {gpu.held[0]}, which holds the host: let one stream wait for"
            " the other"
        )
    if gpu.current != [gpu.main]:
        raise Wrong(
            "after your function side is still the current stream: use"
            " torch.cuda.stream(side) in a with"
        )


NUMBERS = [3.0, -1.0, 0.5], [[2.0, 7.0]]


def check_sum_on_main(answer):
    for values in NUMBERS:
        batch, shown = torch.tensor(values), f"batch = {values}"
        with streams_of_a_gpu() as gpu:
            got = call(answer, batch, gpu.main, gpu.side, shown=shown)
        expect.tensor(got, batch.sum(), shown)
        users = gpu.users(batch)
        lost = gpu.main not in users and not gpu.all_before(gpu.side)
        overwritten = (
            "side from writing into the block of batch while main still reads it"
        )
        expect.no_slip(
            [
                (
                    gpu.ran_on(gpu.side),
                    "the sum ran on side. main is the current stream: no block is"
                    " needed",
                ),
                (
                    not gpu.all_after("input"),
                    "main does not wait for side before it reads batch: the copy may"
                    " still be going on",
                ),
                (
                    lost and gpu.side in users,
                    "you recorded side, whose block it is anyway; the allocator must"
                    f" hear of the other user. As it is, nothing keeps {overwritten}",
                ),
                (lost, f"nothing keeps {overwritten}"),
            ]
        )


def check_matmul_beside_sum(answer):
    for values in [[1.0, 2.0], [3.0, -4.0]], [[0.5]]:
        x, shown = torch.tensor(values), f"x = {values}"
        with streams_of_a_gpu(made_on="main") as gpu:
            got = call(answer, x, gpu.main, gpu.side, shown=shown)
        pair = expect.instance(got, (list, tuple), shown, "the matmul and the sum")
        if len(pair) != 2:
            raise Wrong(f"for {shown} you returned {got!r}, expected two tensors")
        for found, expected in zip(pair, (x @ x, x.sum()), strict=True):
            expect.tensor(found, expected, shown)
        expect.no_slip(_beside_slips(gpu, *map(gpu.last_work, pair)))


def _beside_slips(gpu, matmul, total):
    """What is wrong with two operations, given as CudaStreams.last_work gives them."""
    yield (
        matmul.stream is not gpu.side,
        "the matmul ran on main: with streams.stream(side) sends a block to side",
    )
    yield (
        total.stream is not gpu.main,
        "the sum ran on side, too: launch it outside the block",
    )
    yield (
        "input" not in matmul.before,
        "side does not wait for main before it reads x: main may still be writing it",
    )
    yield (
        matmul.number in total.before,
        "main waits for side before the sum is launched, so nothing overlaps: launch"
        " the sum, then wait",
    )
    yield (
        total.number in matmul.before,
        "side waits for the sum, too, so nothing overlaps: launch the sum after side's"
        " wait",
    )
    yield (
        matmul.number not in gpu.main.before,
        "in the end main does not wait for side: who uses the matmul may read it before"
        " it is there",
    )


OPERATIONS = {
    "one operation": [("a", "compute", 4)],
    "two streams on one engine": [("a", "compute", 4), ("b", "compute", 3)],
    "one stream on two engines": [("a", "copy", 4), ("a", "compute", 3)],
    "two streams on two engines": [("a", "copy", 4), ("b", "compute", 3)],
    "copy and compute of two chunks": [
        ("a", "copy", 2),
        ("a", "compute", 5),
        ("b", "copy", 2),
        ("b", "compute", 5),
    ],
    "a queue behind one that must wait": [
        ("a", "copy", 3),
        ("a", "compute", 2),
        ("b", "compute", 1),
        ("b", "copy", 1),
    ],
    "a stream with the name of an engine": [("copy", "compute", 4), ("b", "copy", 3)],
    "two of three streams on one engine": [
        ("a", "x", 1),
        ("b", "x", 1),
        ("c", "y", 5),
        ("b", "y", 1),
        ("a", "y", 0.5),
    ],
    "two short operations beside a long one": [
        ("a", "copy", 5),
        ("b", "compute", 1),
        ("b", "compute", 2),
    ],
    "four chunks": [
        (f"s{k}", engine, seconds)
        for k in range(4)
        for engine, seconds in (("in", 1), ("compute", 2.5))
    ],
    "no operations": [],
}


def check_last_end(answer):
    for what, ops in OPERATIONS.items():
        shown = f"{what}, {ops},"
        got = call(answer, ops, shown=shown)
        expected = makespan(schedule([Op(str(k), *op) for k, op in enumerate(ops)]))
        expect.number(got, shown, f"the number {expected:g}")
        expect.close(got, expected, shown, "" if ops else "nothing ends later than 0")


ENGINES = {"in": "copy", "compute": "compute", "out": "copy"}


def check_issue_order(answer):
    for chunks in (4, 1, 2, 7):
        got, shown = call(answer, chunks), f"chunks={chunks}"
        expect.instance(got, (list, tuple), shown, "a list of pairs such as ('in', 0)")
        got = [tuple(pair) if isinstance(pair, list) else pair for pair in got]
        wanted = [(stage, chunk) for chunk in range(chunks) for stage in ENGINES]
        for pair in (*got, *wanted):
            if pair not in wanted:
                raise Wrong(
                    f"for {shown} there is no {pair!r}; the last one is ('out',"
                    f" {chunks - 1})"
                )
            if got.count(pair) != 1:
                raise Wrong(
                    f"for {shown} each of the {3 * chunks} pairs must be there once:"
                    f" yours have {pair!r} {got.count(pair)} times"
                )
        for chunk in range(chunks):
            stages = [stage for stage, number in got if number == chunk]
            if stages != list(ENGINES):
                raise Wrong(
                    f"chunk {chunk} of {chunks} goes through {stages}: a stream keeps"
                    " this order, so one stage would work with what is not there yet"
                )
        _check_room(got, shown)
        spans = schedule(
            Op(f"{stage} {chunk}", f"stream {chunk}", ENGINES[stage], 1)
            for stage, chunk in got
        )
        steps, best = makespan(spans), max(2 * chunks, 3)
        if steps > best:
            raise Wrong(
                f"{chunks} chunks take {steps:g} of {3 * chunks} steps, {best} are"
                f" possible: {_first_gap(spans)}"
            )


def _check_room(order, shown):
    """Wrong if more than two chunks are between their copy in and their copy out."""
    there = set()
    for stage, chunk in order:
        there.add(chunk)
        if len(there) > 2:
            raise Wrong(
                f"for {shown} there is room for two chunks, and at {(stage, chunk)!r}"
                f" {sorted(there)} are on the device: one must go out first"
            )
        if stage == "out":
            there.remove(chunk)


def _first_gap(spans):
    """Where the copy engine stands still first, and for whom."""
    end = 0
    for op, start, later in spans:
        if op.engine == "copy":
            if start > end:
                return (
                    f"from {end:g} to {start:g} the copy engine idles, because"
                    f" {op.name!r} comes next and must wait"
                )
            end = later


LOADER = [
    Op("load 0", "copies", "copy in", 3, writes=("A",)),
    Op("work 0", "main", "compute", 4, reads=("A",)),
    Op("load 1", "copies", "copy in", 3, writes=("B",)),
    Op("work 1", "main", "compute", 4, reads=("B",)),
    Op("load 2", "copies", "copy in", 3, writes=("A",)),
    Op("work 2", "main", "compute", 4, reads=("A",)),
]
FEWEST_WAITS, LOADER_ENDS = 4, 15


def check_waits(answer):
    if not isinstance(answer, (list, tuple, set, frozenset)):
        raise Wrong(f"expected a list of pairs of names, got {answer!r}")
    pairs = _pairs(answer)
    ops = []
    for op in LOADER:
        after = tuple(first for first, later in pairs if later == op.name)
        ops.append(Op(**{**vars(op), "after": after}))
    for first, second in races(ops):
        why = "overwrites what the other still reads"
        if "load" in first:
            why = "reads the buffer that the other fills"
        raise Wrong(f"{second!r} still races with {first!r}: it {why}")
    ends = makespan(schedule(ops))
    if ends > LOADER_ENDS:
        raise Wrong(
            f"no race is left, but the loader takes {ends:g} instead of {LOADER_ENDS}:"
            " one of the waits is for something that comes later than it needs to"
        )
    if len(pairs) > FEWEST_WAITS:
        raise Wrong(
            f"no race is left, but {FEWEST_WAITS} waits do what your {len(pairs)} do:"
            " order is passed on, and a stream keeps its own"
        )


def _pairs(answer):
    names, pairs = [op.name for op in LOADER], []
    for pair in answer:
        if (
            not isinstance(pair, (list, tuple))
            or len(pair) != 2
            or not all(name in names for name in pair)
        ):
            raise Wrong(
                f"{pair!r} is no pair of operations; their names are {', '.join(names)}"
            )
        if names.index(pair[0]) >= names.index(pair[1]):
            raise Wrong(
                f"{pair!r}: the first of a pair is the one that is issued earlier, and"
                " is waited for"
            )
        if tuple(pair) in pairs:
            raise Wrong(f"{pair!r} is there twice: once is enough")
        pairs.append(tuple(pair))
    return pairs


EXERCISES = [
    Exercise(
        number="05.1",
        title="A matmul beside a sum",
        name="matmul_beside_sum",
        stars=1,
        check=check_matmul_beside_sum,
        hints=[
            "It is the recipe, with the sum in the place of its other work.",
            (
                "side waits for main; then a block of side with the matmul; the sum"
                " stands behind the block, not in it."
            ),
            (
                "main.wait_stream(side) comes last: behind the launch of the sum,"
                " before the return."
            ),
        ],
        solution="""
def matmul_beside_sum(x, main, side):
    side.wait_stream(main)
    with torch.cuda.stream(side):
        matmul = x @ x
    total = x.sum()
    main.wait_stream(side)
    return matmul, total
""",
        praise=(
            "What stands between the block and the last wait may overlap with the"
            " block. The memory of the matmul belongs to side: section 3."
        ),
    ),
    Exercise(
        number="05.2",
        title="The memory of somebody else",
        name="sum_on_main",
        stars=1,
        check=check_sum_on_main,
        hints=[
            (
                "Two hazards, two lines: main reads what side is still copying; side"
                " overwrites what main still reads."
            ),
            (
                "The first is a wait, before the sum. The second: who tells the"
                " allocator that main uses batch, too?"
            ),
            (
                "main.wait_stream(side) first, then batch.record_stream(main). Or"
                " side.wait_stream(main) after the sum."
            ),
        ],
        solution="""
def sum_on_main(batch, main, side):
    main.wait_stream(side)
    batch.record_stream(main)
    return batch.sum()
""",
        praise=(
            "The prefetcher of section 5 waits back instead, with"
            " side.wait_stream(main): no block is kept back, but the next copy waits"
            " for all that main has launched so far."
        ),
    ),
    Exercise(
        number="05.3",
        title="One copy engine, and room for two chunks",
        name="issue_order",
        stars=2,
        check=check_issue_order,
        hints=[
            "What can the copy engine do while chunk 0 is computed?",
            "The next copy in must be issued before the copy out of this chunk.",
            (
                '("in", 0) first. Then for each chunk k: its compute, the copy in of'
                " k + 1 if there is one, and its copy out."
            ),
        ],
        solution="""
def issue_order(chunks):
    order = [("in", 0)]
    for k in range(chunks):
        order.append(("compute", k))
        if k + 1 < chunks:
            order.append(("in", k + 1))
        order.append(("out", k))
    return order
""",
        praise=(
            "The copy engine now never idles: 2n steps for 2n copies, as breadth first,"
            " with two buffers instead of n. in k + 2 writes where out k has read: on a"
            " device with two copy engines it needs an event."
        ),
    ),
    Exercise(
        number="05.4",
        title="A loader with two buffers",
        name="waits",
        stars=2,
        check=check_waits,
        hints=[
            (
                "Three waits are of the kind everybody thinks of: work on a batch after"
                " it has been loaded."
            ),
            "Which load writes into a buffer that somebody may still be reading?",
            (
                "load 2 writes into A, and work 0 reads A. That wait also settles the"
                " pair of load 0 and work 2."
            ),
        ],
        solution="""
loaded = [(f"load {batch}", f"work {batch}") for batch in range(3)]
waits = loaded + [("work 0", "load 2")]
""",
        praise=(
            "The fourth wait is the one that is forgotten: data goes to the device,"
            " permission to overwrite comes back. With it, two buffers are enough,"
            " however many batches there are."
        ),
    ),
    Exercise(
        number="05.5",
        title="The heart of the simulator",
        name="last_end",
        stars=2,
        check=check_last_end,
        hints=[
            (
                "Go through the operations in the order of issue. When can the next one"
                " start?"
            ),
            "Keep two dicts: when each stream is free again, and when each engine is.",
            (
                "start = max(streams.get(stream, 0), engines.get(engine, 0)); both are"
                " free again at start + seconds."
            ),
        ],
        solution="""
def last_end(ops):
    streams, engines = {}, {}
    for stream, engine, seconds in ops:
        end = max(streams.get(stream, 0), engines.get(engine, 0)) + seconds
        streams[stream] = engines[engine] = end
    return max(streams.values(), default=0)
""",
        praise=(
            "One pass is enough, because all queues keep the order of issue: nothing"
            " that comes later can push something earlier back. Events are one more"
            " term in the max."
        ),
    ),
]
