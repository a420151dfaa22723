"""Exercises of lesson 05."""

import math
import numbers
import threading

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.simulate.timeline import Op, makespan, pipeline, races, schedule
from utils.simulate.toy import ToyStream


class WatchedStream(ToyStream):
    """A toy stream that refuses to make the host wait."""

    def synchronize(self):
        raise Wrong("you called synchronize(), which holds the host: let the consumer wait instead")


def check_make_then_use(answer):
    gate, log = threading.Event(), []

    def make():
        gate.wait(2)
        log.append("made")

    producer, consumer = WatchedStream(), WatchedStream()
    try:
        if answer(producer, consumer, make, lambda: log.append("used")) is DOTS:
            raise NotAnswered
        held = "made" in log
        elsewhere = producer.query()
        idle = _ends_within(consumer, 0.3)
        used_first = "used" in log
    finally:
        gate.set()
    ToyStream.synchronize(producer)
    ToyStream.synchronize(consumer)
    if held:
        raise Wrong("your function came back only after make had ended: the host has waited")
    if log.count("made") != 1 or log.count("used") != 1:
        raise Wrong(f"make must run once and use once; what ran is {log}")
    if elsewhere:
        raise Wrong("make is not on the producer: its queue was empty. Launch make on producer")
    if used_first:
        raise Wrong("use ran while make was still waiting in its queue: nothing makes the consumer wait for it")
    if idle:
        raise Wrong("use is in order, but not on the consumer: its queue was empty. Launch use on consumer")


def _ends_within(stream, seconds):
    """Whether all that is in the queue of `stream` now is done within so many seconds."""
    try:
        stream.record_event().result(seconds)
    except TimeoutError:
        return False
    except Exception as error:  # concurrent.futures has a TimeoutError of its own before Python 3.11
        if type(error).__name__ != "TimeoutError":
            raise
        return False
    return True


OPERATIONS = {
    "two streams on one engine": [("a", "compute", 4), ("b", "compute", 3)],
    "one stream on two engines": [("a", "copy", 4), ("a", "compute", 3)],
    "two streams on two engines": [("a", "copy", 4), ("b", "compute", 3)],
    "copy and compute of two chunks": [
        ("a", "copy", 2),
        ("a", "compute", 5),
        ("b", "copy", 2),
        ("b", "compute", 5),
    ],
    "a queue behind one that must wait": [("a", "copy", 3), ("a", "compute", 2), ("b", "compute", 1), ("b", "copy", 1)],
}


def check_last_end(answer):
    for what, ops in OPERATIONS.items():
        got = call(answer, list(ops))
        expected = makespan(schedule([Op(str(k), *op) for k, op in enumerate(ops)]))
        if not isinstance(got, numbers.Real) or not math.isclose(got, expected):
            raise Wrong(f"{what}: for {ops} you returned {got!r}, expected {expected:g}")
    if call(answer, []) != 0:
        raise Wrong("without operations nothing ends later than 0: return 0")


ENGINES = {"in": "copy", "compute": "compute", "out": "copy"}


def check_issue_order(answer):
    for chunks in (4, 2, 7):
        got = call(answer, chunks)
        wanted = {(stage, chunk) for chunk in range(chunks) for stage in ENGINES}
        if not isinstance(got, (list, tuple)) or len(got) != len(wanted) or set(map(tuple, got)) != wanted:
            raise Wrong(f"for {chunks} chunks each of the {3 * chunks} pairs must be there once, you returned {got!r}")
        for chunk in range(chunks):
            stages = [stage for stage, number in got if number == chunk]
            if stages != list(ENGINES):
                raise Wrong(
                    f"chunk {chunk} goes through {stages}: a stream keeps this order, so it would copy out results "
                    "that are not there yet"
                )
        ops = [Op(f"{stage} {chunk}", f"stream {chunk}", ENGINES[stage], 1) for stage, chunk in got]
        steps, best = makespan(schedule(ops)), 2 * chunks
        if steps > best:
            raise Wrong(
                f"{chunks} chunks take {steps:g} of {3 * chunks} steps, {best} are possible: the copy engine is held "
                "up by a copy out that waits for its computing"
            )


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
    if answer is DOTS or (isinstance(answer, (list, tuple)) and any(wait is DOTS for wait in answer)):
        raise NotAnswered
    names = [op.name for op in LOADER]
    if not isinstance(answer, (list, tuple)):
        raise Wrong(f"expected a list of pairs of names, got {answer!r}")
    for wait in answer:
        if not isinstance(wait, (list, tuple)) or len(wait) != 2 or not set(wait) <= set(names):
            raise Wrong(f"{wait!r} is no pair of operations; their names are {', '.join(names)}")
        if names.index(wait[0]) >= names.index(wait[1]):
            raise Wrong(f"{wait!r}: the first of a pair is the one that is issued earlier, and is waited for")
    after = {name: tuple(first for first, later in answer if later == name) for name in names}
    ops = [Op(**{**vars(op), "after": after[op.name]}) for op in LOADER]
    left = races(ops)
    if left:
        first, second = left[0]
        why = "reads the buffer that the other fills" if "load" in first else "overwrites what the other still reads"
        raise Wrong(f"{second!r} still races with {first!r}: it {why}")
    if makespan(schedule(ops)) > LOADER_ENDS:
        raise Wrong(
            f"no race is left, but the loader takes {makespan(schedule(ops)):g} instead of {LOADER_ENDS}: one of the "
            "waits is for something that comes later than it needs to"
        )
    if len(answer) > FEWEST_WAITS:
        raise Wrong(
            f"no race is left, but {FEWEST_WAITS} waits do what your {len(answer)} do: order is passed on, and a "
            "stream keeps its own"
        )


def check_fewest_chunks(answer):
    cases = [
        (0.5, (4, 4, 4), 0.0),
        (0.4, (4, 4, 4), 0.0),
        (1.0, (4, 4, 4), 0.0),
        (0.75, (2, 8, 2), 0.0),
        (0.3, (4, 4, 4), 0.0),
        (0.5, (4, 4, 4), 0.05),
        (0.4, (4, 4, 4), 0.2),
    ]
    for case in cases:
        got = call(answer, *case)
        expected = _fewest(*case)
        if got != expected or isinstance(got, float):
            why = "the longest stage alone takes more than that" if max(case[1]) > case[0] * sum(case[1]) else "look"
            why = "the host needs time for three launches a chunk" if case[2] else why
            why = "the formula (n + 2) / (3n) is for equal stages only" if len(set(case[1])) > 1 else why
            why = f" ({why})" if why != "look" else ""
            raise Wrong(
                f"for at_most={case[0]}, seconds={case[1]}, launch={case[2]} you returned {got!r}, expected "
                f"{expected!r}{why}"
            )


def _fewest(at_most, seconds, launch):
    for chunks in range(1, 65):
        if makespan(schedule(pipeline(chunks, seconds, launch=launch))) <= at_most * sum(seconds) + 1e-9:
            return chunks
    return None


EXERCISES = [
    Exercise(
        number="05.1",
        title="One event between two streams",
        name="make_then_use",
        stars=2,
        check=check_make_then_use,
        hints=[
            "Three lines. The first puts make into the queue of the producer.",
            "Before use is launched, the consumer must get a note in its queue: wait for what is in that other one.",
            "The reader waits: consumer.wait_stream(producer), between the two launches.",
        ],
        solution="""
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    consumer.wait_stream(producer)
    consumer.launch(use)
""",
        praise="If the producer had more work behind make, wait_stream would wait for that, too. An event recorded "
        "right after make waits for make alone.",
        wrong={
            """
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    consumer.launch(use)
""": "nothing makes the consumer wait",
            """
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    producer.synchronize()
    consumer.launch(use)
""": "you called synchronize()",
            """
def make_then_use(producer, consumer, make, use):
    producer.launch(make).result()
    consumer.launch(use)
""": "the host has waited",
            """
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    producer.wait_stream(consumer)
    consumer.launch(use)
""": "nothing makes the consumer wait",
            """
def make_then_use(producer, consumer, make, use):
    consumer.wait_stream(producer)
    producer.launch(make)
    consumer.launch(use)
""": "nothing makes the consumer wait",
            """
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    producer.launch(use)
""": "not on the consumer",
            """
def make_then_use(producer, consumer, make, use):
    consumer.launch(make)
    consumer.launch(use)
""": "not on the producer",
            """
def make_then_use(producer, consumer, make, use):
    consumer.launch(make)
    consumer.launch(use)
    make()
""": "the host has waited",
        },
    ),
    Exercise(
        number="05.2",
        title="The heart of the simulator",
        name="last_end",
        stars=2,
        check=check_last_end,
        hints=[
            "Go through the operations in the order of issue. When can the next one start?",
            "Keep two dicts: when each stream is free again, and when each engine is.",
            "start = max(streams.get(stream, 0), engines.get(engine, 0)); both are free again at start + seconds.",
        ],
        solution="""
def last_end(ops):
    free, last = {}, 0
    for stream, engine, seconds in ops:
        end = max(free.get(("stream", stream), 0), free.get(("engine", engine), 0)) + seconds
        free["stream", stream] = free["engine", engine] = end
        last = max(last, end)
    return last
""",
        praise="One pass is enough, because all queues keep the order of issue: nothing that comes later can push "
        "something earlier back. Events are one more term in the max.",
        wrong={
            """
def last_end(ops):
    return sum(seconds for _, _, seconds in ops)
""": "two streams on two engines",
            """
def last_end(ops):
    free = {}
    for stream, _, seconds in ops:
        free[stream] = free.get(stream, 0) + seconds
    return max(free.values(), default=0)
""": "two streams on one engine",
            """
def last_end(ops):
    free = {}
    for _, engine, seconds in ops:
        free[engine] = free.get(engine, 0) + seconds
    return max(free.values(), default=0)
""": "one stream on two engines",
            """
def last_end(ops):
    streams, engines = {}, {}
    for stream, engine, seconds in ops:
        streams[stream] = streams.get(stream, 0) + seconds
        engines[engine] = engines.get(engine, 0) + seconds
    return max([0, *streams.values(), *engines.values()])
""": "copy and compute of two chunks",
        },
    ),
    Exercise(
        number="05.3",
        title="The order of issue for one copy engine",
        name="issue_order",
        stars=2,
        check=check_issue_order,
        hints=[
            "In which order do the copies wait for nobody?",
            "No copy out may stand in the queue before a copy in that could run.",
            "Two loops: over the stages outside, over the chunks inside.",
        ],
        solution="""
def issue_order(chunks):
    return [(stage, chunk) for stage in ("in", "compute", "out") for chunk in range(chunks)]
""",
        praise="The copy engine now never idles: 2n steps for 2n copies. Breadth first has a price: all chunks are on "
        "the device at once. In between lies in k + 1 before out k: as fast, and with room for two chunks.",
        wrong={
            """
def issue_order(chunks):
    return [(stage, chunk) for chunk in range(chunks) for stage in ("in", "compute", "out")]
""": "4 chunks take 12 of 12 steps",
            """
def issue_order(chunks):
    return [(stage, chunk) for stage in ("in", "out", "compute") for chunk in range(chunks)]
""": "results that are not there yet",
            """
def issue_order(chunks):
    first = [(stage, chunk) for stage in ("in", "compute") for chunk in range(chunks)]
    return first + [("out", chunk) for chunk in reversed(range(chunks))]
""": "4 chunks take 9 of 12 steps",
            """
def issue_order(chunks):
    return [(stage, chunk) for stage in ("in", "compute") for chunk in range(chunks)]
""": "each of the 12 pairs must be there once",
        },
    ),
    Exercise(
        number="05.4",
        title="A loader with two buffers",
        name="waits",
        stars=2,
        check=check_waits,
        hints=[
            "Three waits are of the kind everybody thinks of: work on a batch after it has been loaded.",
            "Which load writes into a buffer that somebody may still be reading?",
            "load 2 writes into A, and work 0 reads A. That wait also settles the pair of load 0 and work 2.",
        ],
        solution="""
waits = [
    ("load 0", "work 0"),
    ("load 1", "work 1"),
    ("load 2", "work 2"),
    ("work 0", "load 2"),
]
""",
        praise="The fourth wait is the one that is forgotten: data goes to the device, permission to overwrite comes "
        "back. With it, two buffers are enough, however many batches there are.",
        wrong={
            """
waits = [("load 0", "work 0"), ("load 1", "work 1"), ("load 2", "work 2")]
""": "overwrites what the other still reads",
            """
waits = [("load 0", "work 0"), ("load 1", "work 1"), ("work 0", "load 2")]
""": "reads the buffer that the other fills",
            """
waits = [("load 0", "work 0"), ("load 1", "work 1"), ("load 2", "work 2"), ("work 1", "load 2")]
""": "takes 18 instead of 15",
            """
waits = [
    ("load 0", "work 0"), ("load 1", "work 1"), ("load 2", "work 2"), ("work 0", "load 2"), ("load 0", "work 2")
]
""": "4 waits do what your 5 do",
            """
waits = [("work 0", "load 0")]
""": "the one that is issued earlier",
            """
waits = [("load 0", "load 9")]
""": "is no pair of operations",
        },
    ),
    Exercise(
        number="05.5",
        title="The fewest chunks that are enough",
        name="fewest_chunks",
        stars=2,
        check=check_fewest_chunks,
        hints=[
            "There is a simulator. Ask it.",
            "For chunks in range(1, 65): makespan(schedule(pipeline(chunks, seconds, launch=launch))).",
            "Compare with at_most * sum(seconds) + 1e-9, since sums of floats are not exact. None after the loop.",
        ],
        solution="""
from utils.simulate.timeline import makespan, pipeline, schedule

def fewest_chunks(at_most, seconds, launch):
    for chunks in range(1, 65):
        if makespan(schedule(pipeline(chunks, seconds, launch=launch))) <= at_most * sum(seconds) + 1e-9:
            return chunks
    return None
""",
        praise="Fewest, not fastest: the last few percent cost many chunks, each with buffers, launches and its "
        "latency.",
        wrong={
            """
import math
def fewest_chunks(at_most, seconds, launch):
    return math.ceil(2 / (3 * at_most - 1) - 1e-9) if 3 * at_most > 1 else None
""": "for equal stages only",
            """
from utils.simulate.timeline import makespan, pipeline, schedule
def fewest_chunks(at_most, seconds, launch):
    for chunks in range(1, 65):
        if makespan(schedule(pipeline(chunks, seconds))) <= at_most * sum(seconds) + 1e-9:
            return chunks
""": "three launches a chunk",
            """
from utils.simulate.timeline import makespan, pipeline, schedule
def fewest_chunks(at_most, seconds, launch):
    times = {n: makespan(schedule(pipeline(n, seconds, launch=launch))) for n in range(1, 65)}
    return min(times, key=times.get)
""": "for at_most=0.5, seconds=(4, 4, 4), launch=0.0 you returned 64, expected 4",
            """
from utils.simulate.timeline import makespan, pipeline, schedule
def fewest_chunks(at_most, seconds, launch):
    for chunks in range(1, 65):
        if makespan(schedule(pipeline(chunks, seconds, launch=launch))) <= at_most * sum(seconds) + 1e-9:
            return chunks
    return 64
""": "the longest stage alone takes more than that",
        },
    ),
]
