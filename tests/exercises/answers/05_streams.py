"""Answers to the exercises of lesson 05."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

MAKE_THEN_USE = SOLUTION["05.1"]
ANSWERS["05.1"] = Answers(
    right=[
        """
def make_then_use(producer, consumer, make, use):
    consumer.wait_event(producer.launch(make))
    return consumer.launch(use)
""",
        """
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    made = producer.record_event()
    consumer.launch(made.result)
    consumer.launch(use)
""",
        """
import threading

def make_then_use(producer, consumer, make, use):
    made = threading.Event()
    producer.launch(lambda: (make(), made.set()))
    consumer.launch(lambda: (made.wait(), use()))
""",
    ],
    wrong={
        edit(
            MAKE_THEN_USE, ("wait_stream", "wait_event")
        ): "for a stream there is wait_stream",
        """
def make_then_use(producer, consumer, make, use):
    consumer.wait_stream(producer.launch(make))
    consumer.launch(use)
""": "for an event there is wait_event",
        edit(
            MAKE_THEN_USE, ("    consumer.wait_stream(producer)\n", "")
        ): "nothing makes the consumer wait",
        edit(
            MAKE_THEN_USE, ("consumer.wait_stream(producer)", "producer.synchronize()")
        ): "you called synchronize()",
        """
def make_then_use(producer, consumer, make, use):
    producer.launch(make).result()
    consumer.launch(use)
""": "you called result(), which holds the host",
        edit(
            MAKE_THEN_USE,
            ("consumer.wait_stream(producer)", "producer.wait_stream(consumer)"),
        ): "It is the consumer that must wait",
        """
def make_then_use(producer, consumer, make, use):
    consumer.wait_stream(producer)
    producer.launch(make)
    consumer.launch(use)
""": "the consumer's wait stands before the launch of make",
        """
def make_then_use(producer, consumer, make, use):
    producer.launch(make)
    consumer.launch(use)
    consumer.wait_stream(producer)
""": "the consumer's wait stands after the launch of use",
        """
def make_then_use(producer, consumer, make, use):
    ready = producer.record_event()
    producer.launch(make)
    consumer.wait_event(ready)
    consumer.launch(use)
""": "for an event that does not come after make",
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
        edit(
            MAKE_THEN_USE, ("(make)", "(make())"), ("(use)", "(use())")
        ): "your function ran make itself",
    },
)

SQUARE_ON_SIDE = SOLUTION["05.2"]
ANSWERS["05.2"] = Answers(
    right=[
        """
def square_on_side(x, main, side):
    with torch.cuda.stream(side):
        side.wait_event(main.record_event())
        y = x**2
        y.record_stream(main)
        done = side.record_event()
    main.wait_event(done)
    return y
""",
        """
def square_on_side(x, main, side):
    ready, done = torch.cuda.Event(), torch.cuda.Event()
    y = torch.empty_like(x)
    ready.record()
    with torch.cuda.stream(side):
        ready.wait()
        torch.mul(x, x, out=y)
        done.record()
    done.wait()
    return y
""",
        """
def square_on_side(x, main, side):
    side.wait_stream(torch.cuda.current_stream())
    with side:
        y = x.square()
    y.record_stream(main)
    torch.accelerator.current_stream().wait_stream(side)
    return y
""",
        edit(SQUARE_ON_SIDE, ("cuda.stream", "cuda.StreamContext")),
        # the recipe, to the letter
        """
def square_on_side(x, main, side):
    streams = torch.get_device_module("cpu")
    side.wait_stream(main)
    with streams.stream(side):
        y = x * x
    main.wait_stream(side)
    if y.is_cuda:
        y.record_stream(main)
    return y
""",
    ],
    wrong={
        edit(
            SQUARE_ON_SIDE, ("wait_stream", "wait_event", 2)
        ): "for a stream there is wait_stream",
        """
def square_on_side(x, main, side):
    own = torch.cuda.Stream()
    own.wait_stream(main)
    with torch.cuda.stream(own):
        y = x * x
    main.wait_stream(own)
    return y
""": "you made a new stream",
        edit(
            SQUARE_ON_SIDE,
            ("main.", "while not side.query():\n        pass\n    main."),
        ): "you called query() again and again",
        edit(
            SQUARE_ON_SIDE, ("    side.wait_stream(main)\n", "")
        ): "side does not wait for main",
        edit(
            SQUARE_ON_SIDE, ("    main.wait_stream(side)\n", "")
        ): "main does not wait for side",
        edit(
            SQUARE_ON_SIDE, ("    y.record_stream(main)\n", "")
        ): "the allocator does not know that main uses it",
        edit(
            SQUARE_ON_SIDE, ("y.record_stream(main)", "y.record_stream(side)")
        ): "you recorded side, whose memory it is anyway",
        edit(
            SQUARE_ON_SIDE, ("y.record_stream", "x.record_stream")
        ): "the allocator does not know that main uses it",
        edit(
            SQUARE_ON_SIDE, ("y.record_stream(main)", "side.wait_stream(main)")
        ): "the allocator does not know that main uses it",
        """
def square_on_side(x, main, side):
    main.wait_stream(side)
    with torch.cuda.stream(side):
        y = x * x
    side.wait_stream(main)
    return y
""": "side does not wait for main",
        edit(
            SQUARE_ON_SIDE, ("with torch.cuda.stream(side):\n        y", "y")
        ): "ran on main, the current stream",
        """
def square_on_side(x, main, side):
    side.wait_stream(main)
    main.wait_stream(side)
    with torch.cuda.stream(side):
        y = x * x
    return y
""": "main does not wait for side",
        edit(
            SQUARE_ON_SIDE, ("main.wait_stream(side)", "side.synchronize()")
        ): "you called side.synchronize()",
        edit(
            SQUARE_ON_SIDE,
            ("side.", "done = torch.cuda.Event()\n    side."),
            ("wait_stream(side)", "wait_event(done)"),
        ): "main does not wait for side",
    },
    equivalent={
        "with torch.cuda.stream(side): → with side:": (
            "A stream in a with statement makes itself the current one."
        ),
    },
)

SUM_ON_MAIN = SOLUTION["05.3"]
ANSWERS["05.3"] = Answers(
    right=[
        """
def sum_on_main(batch, main, side):
    main.wait_stream(side)
    total = batch.sum()
    side.wait_stream(main)
    return total
""",
        """
def sum_on_main(batch, main, side):
    copied = side.record_event()
    main.wait_event(copied)
    total = batch.sum()
    batch.record_stream(torch.cuda.current_stream())
    return total
""",
        """
def sum_on_main(batch, main, side):
    main.wait_stream(side)
    total = torch.sum(batch)
    side.wait_event(main.record_event())
    return total
""",
    ],
    wrong={
        edit(
            SUM_ON_MAIN, ("    main.wait_stream(side)\n", "")
        ): "main does not wait for side",
        edit(
            SUM_ON_MAIN, ("    batch.record_stream(main)\n", "")
        ): "nothing keeps side from writing into the block of batch",
        edit(SUM_ON_MAIN, ("(main)", "(side)")): "you recorded side",
        edit(
            SUM_ON_MAIN, ("batch.record_stream", "side.wait_stream")
        ): "nothing keeps side from writing into the block of batch",
        edit(
            SUM_ON_MAIN, ("main.", "side."), ("(side)", "(main)")
        ): "main does not wait for side",
        """
def sum_on_main(batch, main, side):
    batch.record_stream(main)
    with torch.cuda.stream(side):
        return batch.sum()
""": "ran on side",
        edit(
            SUM_ON_MAIN, ("main.wait_stream(side)", "side.synchronize()")
        ): "you called side.synchronize()",
        """
def sum_on_main(batch, main, side):
    main.wait_stream(side)
    total = batch.sum()
    total.record_stream(main)
    return total
""": "nothing keeps side from writing into the block of batch",
        edit(SUM_ON_MAIN, ("sum()", "sum().item()")): "holds the host",
    },
    equivalent={
        "reads a global side, that of the first call": (
            "Not judged: the side streams of both calls are alike."
        ),
    },
)

ISSUE_ORDER = SOLUTION["05.4"]
ANSWERS["05.4"] = Answers(
    right=[
        """
def issue_order(chunks):
    order = []
    for stage in ["in", "compute", "out"]:
        for chunk in range(chunks):
            order.append((stage, chunk))
    return order
""",
        """
def issue_order(chunks):
    order = [("in", 0)]
    for k in range(chunks):
        order.append(("compute", k))
        if k + 1 < chunks:
            order.append(("in", k + 1))
        order.append(("out", k))
    return order
""",
        """
import itertools

def issue_order(chunks):
    return tuple(map(list, itertools.product(("in", "compute", "out"), range(chunks))))
""",
    ],
    wrong={
        """
def issue_order(chunks):
    return [
        (stage, chunk) for chunk in range(chunks) for stage in ("in", "compute", "out")
    ]
""": (
            "4 chunks take 12 of 12 steps, 8 are possible: from 1 to 2 the copy engine"
            " idles, because 'out 0' comes next"
        ),
        edit(
            ISSUE_ORDER, ('"compute", "out"', '"out", "compute"')
        ): "chunk 0 of 4 goes through ['in', 'out', 'compute']",
        """
def issue_order(chunks):
    first = [(stage, chunk) for stage in ("in", "compute") for chunk in range(chunks)]
    return first + [("out", chunk) for chunk in reversed(range(chunks))]
""": "because 'out 3' comes next and must wait",
        edit(ISSUE_ORDER, (', "out"', "")): "yours have ('out', 0) 0 times",
        edit(
            ISSUE_ORDER, ("range(chunks)", "range(4)")
        ): "for chunks=1 there is no ('in', 1); the last one is ('out', 0)",
        edit(
            ISSUE_ORDER, ("stage, chunk", "chunk, stage")
        ): "for chunks=4 there is no (0, 'in')",
    },
)

ANSWERS["05.5"] = Answers(
    right=[
        """
waits = [
    ("load 0", "work 0"),
    ("load 1", "work 1"),
    ("load 2", "work 2"),
    ("work 0", "load 2"),
]
""",
        """
waits = {
    ("work 0", "load 2"),
    ("load 2", "work 2"),
    ("load 1", "work 1"),
    ("load 0", "work 0"),
}
""",
    ],
    wrong={
        """
waits = [
    ("load 0", "work 0"),
    ("load 1", "work 1"),
    ("load 2", "work 2"),
    ("work 0", "load 2"),
    ("load 2", "work 2"),
]
""": "('load 2', 'work 2') is there twice",
        'waits = [("load 0", "work 0"), ("load 1", "work 1"), ("load 2", "work 2")]': (
            "overwrites what the other still reads"
        ),
        'waits = [("load 0", "work 0"), ("load 1", "work 1"), ("work 0", "load 2")]': (
            "reads the buffer that the other fills"
        ),
        """
waits = [
    ("load 0", "work 0"),
    ("load 1", "work 1"),
    ("load 2", "work 2"),
    ("work 1", "load 2"),
]
""": "takes 18 instead of 15",
        """
waits = [
    ("load 0", "work 0"),
    ("load 1", "work 1"),
    ("load 2", "work 2"),
    ("work 0", "load 2"),
    ("load 0", "work 2"),
]
""": "4 waits do what your 5 do",
        'waits = [("work 0", "load 0")]': "the one that is issued earlier",
        'waits = [("load 0", "load 9")]': "is no pair of operations",
        'waits = ["load 0", "work 0", "load 1", "work 1"]': (
            "'load 0' is no pair of operations"
        ),
    },
)

LAST_END = SOLUTION["05.6"]
ANSWERS["05.6"] = Answers(
    right=[
        """
from simulate.timeline import Op, makespan, schedule

def last_end(ops):
    return makespan(schedule([Op(str(n), *op) for n, op in enumerate(ops)]))
""",
        """
def last_end(ops):
    done = []
    for stream, engine, seconds in ops:
        start = max(
            [end for s, e, end in done if s == stream or e == engine], default=0
        )
        done.append((stream, engine, start + seconds))
    return max([end for _, _, end in done], default=0)
""",
        """
from collections import defaultdict

def last_end(ops):
    stream_free, engine_free, last = defaultdict(float), defaultdict(float), 0.0
    for op in ops:
        start = (
            stream_free[op[0]]
            if stream_free[op[0]] > engine_free[op[1]]
            else engine_free[op[1]]
        )
        stream_free[op[0]] = engine_free[op[1]] = start + op[2]
        last = max(last, start + op[2])
    return last
""",
    ],
    wrong={
        """
def last_end(ops):
    end, before = 0, (None, None)
    for stream, engine, seconds in ops:
        end = (
            end + seconds
            if stream == before[0] or engine == before[1]
            else max(end, seconds)
        )
        before = (stream, engine)
    return end
""": "two short operations beside a long one",
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
        """
def last_end(ops):
    free = {}
    for stream, engine, seconds in ops:
        free[stream] = free[engine] = (
            max(free.get(stream, 0), free.get(engine, 0)) + seconds
        )
    return max(free.values(), default=0)
""": "a stream with the name of an engine",
        edit(
            LAST_END,
            ("engines = {}, {}", "engines, end = {}, {}, 0"),
            ("max(streams.values(), default=0)", "end"),
        ): "two streams on two engines",
    },
)
