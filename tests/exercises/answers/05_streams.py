"""Answers to the exercises of lesson 05."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

BESIDE = SOLUTION["05.1"]
ANSWERS["05.1"] = Answers(
    right=[
        """
def matmul_beside_sum(x, main, side):
    side.wait_event(main.record_event())
    total = x.sum()
    with torch.cpu.stream(side):
        matmul = torch.mm(x, x)
        done = side.record_event()
    main.wait_event(done)
    matmul.record_stream(main)
    return [matmul, total]
""",
        """
def matmul_beside_sum(x, main, side):
    side.wait_stream(main)
    torch.cuda.set_stream(side)
    matmul = x.matmul(x)
    torch.cuda.set_stream(main)
    total = torch.sum(x)
    torch.cuda.current_stream().wait_stream(side)
    return matmul, total
""",
    ],
    wrong={
        edit(
            BESIDE, ("    side.wait_stream(main)\n", "")
        ): "side does not wait for main before it reads x",
        edit(
            BESIDE, ("    main.wait_stream(side)\n", "")
        ): "in the end main does not wait for side",
        edit(
            BESIDE,
            (
                "    total = x.sum()\n    main.wait_stream(side)\n",
                "    main.wait_stream(side)\n    total = x.sum()\n",
            ),
        ): "main waits for side before the sum is launched",
        edit(BESIDE, ("    total =", "        total =")): "the sum ran on side, too",
        edit(
            BESIDE, ("    with torch.cuda.stream(side):\n    ", "")
        ): "the matmul ran on main",
        edit(BESIDE, ("main.wait_stream(side)", "side.synchronize()")): (
            "holds the host"
        ),
        """
def matmul_beside_sum(x, main, side):
    total = x.sum()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        matmul = x @ x
    main.wait_stream(side)
    return matmul, total
""": "side waits for the sum, too",
        edit(BESIDE, ("return matmul, total", "return matmul")): (
            "expected the matmul and the sum"
        ),
        edit(BESIDE, ("return matmul, total", "return total, matmul")): (
            "expected [[7.0"
        ),
    },
    equivalent={
        "with torch.cuda.stream(side): → with side:": (
            "A stream is a context manager itself, in 2.9 already."
        ),
    },
)

SUM_ON_MAIN = SOLUTION["05.2"]
ANSWERS["05.2"] = Answers(
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
    ],
    wrong={
        edit(
            SUM_ON_MAIN, ("    main.wait_stream(side)\n", "")
        ): "main does not wait for side",
        edit(
            SUM_ON_MAIN, ("    batch.record_stream(main)\n", "")
        ): "nothing keeps side from writing into the block of batch",
        edit(
            SUM_ON_MAIN, ("batch.record_stream", "side.wait_stream")
        ): "nothing keeps side from writing into the block of batch",
        edit(SUM_ON_MAIN, ("sum()", "sum().item()")): "holds the host",
    },
    equivalent={
        "reads a global side, that of the first call": (
            "Not judged: the side streams of both calls are alike."
        ),
    },
)

ISSUE_ORDER = SOLUTION["05.3"]
ANSWERS["05.3"] = Answers(
    right=[
        """
def issue_order(chunks):
    order = [("in", k) for k in range(chunks)][:2]
    for k in range(chunks):
        order += [("compute", k), ("out", k)]
        if k + 2 < chunks:
            order.append(("in", k + 2))
    return order
""",
        """
def issue_order(chunks):
    steps = {"in": 0, "compute": 1, "out": 3}
    pairs = [[stage, chunk] for stage in steps for chunk in range(chunks)]
    return tuple(sorted(pairs, key=lambda pair: 2 * pair[1] + steps[pair[0]]))
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
        """
def issue_order(chunks):
    return [
        (stage, chunk) for stage in ("in", "compute", "out") for chunk in range(chunks)
    ]
""": "there is room for two chunks, and at ('in', 2) [0, 1, 2] are on the device",
        """
def issue_order(chunks):
    return [
        (stage, chunk) for chunk in range(chunks) for stage in ("in", "out", "compute")
    ]
""": "chunk 0 of 4 goes through ['in', 'out', 'compute']",
        edit(
            ISSUE_ORDER, ('        order.append(("out", k))\n', "")
        ): "yours have ('out', 0) 0 times",
        edit(ISSUE_ORDER, ("range(chunks)", "range(4)")): "for chunks=1 there is no",
    },
)

LOADED = 'waits = [("load 0", "work 0"), ("load 1", "work 1"), ("load 2", "work 2")'
ANSWERS["05.4"] = Answers(
    right=[
        f'{LOADED}, ("work 0", "load 2")]',
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
        f"{LOADED}]": "overwrites what the other still reads",
        'waits = [("load 0", "work 0"), ("load 1", "work 1"), ("work 0", "load 2")]': (
            "reads the buffer that the other fills"
        ),
        f'{LOADED}, ("work 1", "load 2")]': "takes 18 instead of 15",
        f'{LOADED}, ("work 0", "load 2"), ("load 0", "work 2")]': (
            "4 waits do what your 5 do"
        ),
    },
)

ANSWERS["05.5"] = Answers(
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
    ],
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
    },
)
