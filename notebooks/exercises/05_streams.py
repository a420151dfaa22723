"""Exercises of lesson 05."""

import contextlib
import threading
import time
from concurrent.futures import Future

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.streams import CudaStreams, SpyStream
from simulate.timeline import Op, makespan, races, schedule


@contextlib.contextmanager
def streams_of_a_gpu():
    """Streams in place of those of torch.cuda, where `side` has made the input; Wrong
    if the host waits in the block, or `main` is not current after it.
    """
    gpu = CudaStreams()
    gpu.side.before.add("input")
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
        overwritten = "side from writing into the block of batch while main still reads"
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
                (lost, f"nothing keeps {overwritten} it"),
            ]
        )


def check_make_then_use(answer):
    for _ in range(2):
        launched, returned = [], threading.Event()
        streams = [SpyStream(launched=launched) for _ in range(2)]
        log = []  # pairs (what, in which thread)
        late = _run_on(*streams, returned, log, answer)
        ended = [stream.end(10) for stream in streams]
        expect.no_slip(_launch_slips(log, streams[0].host))
        expect.no_slip(_wait_slips(*streams, ended, late))
        expect.no_slip(_order_slips(*streams, log, launched))


def _run_on(producer, consumer, returned, log, answer):
    """Call the answer, with a `make` that does not end as long as `use` may still come
    too early; whether it was back only after `make` had ended.
    """

    def note(what):
        log.append((what, threading.get_ident()))

    def over():
        settled = returned.is_set() and consumer.stands()
        # a host that waits launches nothing more
        return "use" in dict(log) or producer.held or consumer.held or settled

    def make():
        note("make")
        if threading.get_ident() == producer.thread:
            _until(over, 2)  # waits of other kinds, such as a lock, are not seen
        note("made")

    given = producer, consumer, make, lambda: note("use")
    try:
        call(answer, *given, shown="two toy streams")
        return "made" in dict(log)
    finally:
        returned.set()


def _launch_slips(log, host):
    for name in ("make", "use"):
        yield (
            (name, host) in log,
            f"your function ran {name} itself. launch takes the function, without"
            f" (): launch({name})",
        )


def _wait_slips(producer, consumer, ended, late):
    """Whether the host waited, and whether all that was launched ended well."""
    for how in producer.held + consumer.held:
        yield (
            True,
            f"you called {how}, which holds the host: let the consumer wait instead",
        )
    yield (
        late,
        "your function came back only after make had ended: the host has waited",
    )
    for name, stream, end in zip(
        ("producer", "consumer"), (producer, consumer), ended, strict=True
    ):
        error = stream.error
        yield error, f"what you launched on {name} raised {error!r}"
        yield not end, f"{name} never came to its end: it waits for itself"


def _order_slips(producer, consumer, log, launched):
    ran, where = [what for what, _ in log], dict(log)
    counts = ran.count("make"), ran.count("use")
    yield (
        counts != (1, 1),
        f"each must be launched once: make ran {counts[0]} times, use {counts[1]}"
        " times",
    )
    for name, stream, its in (
        ("make", producer, "producer"),
        ("use", consumer, "consumer"),
    ):
        yield (
            where[name] != stream.thread,
            f"{name} is not on the {its}. Launch {name} on {its}",
        )
    if ran != ["make", "made", "use"]:
        why = _misplaced(launched, producer)
        yield True, f"use ran while make was still running: {why}"


def _misplaced(launched, producer):
    """Why the waits among the functions that were launched do not help: the first of
    them.
    """
    waits = [isinstance(getattr(fn, "__self__", None), Future) for _, fn in launched]
    if not any(waits):
        return "nothing makes the consumer wait for it"
    first = waits.index(True)
    if launched[first][0] is producer:
        return "the producer waits. It is the consumer that must wait"
    if producer in [stream for stream, _ in launched[first:]]:
        return (
            "the consumer's wait stands before the launch of make, and so waits only"
            " for what was in the queue then"
        )
    if first == len(launched) - 1:
        return (
            "the consumer's wait stands after the launch of use, and so holds up only"
            " what is launched later"
        )
    return "the consumer waits, but for an event that does not come after make"


def _until(condition, seconds):
    """Wait until the condition holds, at most so many seconds."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.0005)


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
        title="One wait between two streams",
        name="make_then_use",
        stars=1,
        check=check_make_then_use,
        hints=[
            "Three lines. The first puts make into the queue of the producer.",
            (
                "Before use is launched, the consumer must get a note in its queue:"
                " wait for what is in that other one."
            ),
            (
                "The reader waits: consumer.wait_stream(producer), between the two"
                " launches."
            ),
        ],
        solution="""
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    consumer.wait_stream(producer)
    consumer.launch(use)
""",
        praise=(
            "If the producer had more work behind make, wait_stream would wait for"
            " that, too. An event recorded right after make waits for make alone."
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
            "A loader that copies ahead does this for every batch, as the prefetcher"
            " below. With side.wait_stream(main) after the sum instead no block is kept"
            " back, but the next copy waits for all that main has launched so far."
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
