"""Exercises of lesson 05."""

import contextlib
import math
import numbers
import threading
import time
from concurrent.futures import Future, wait
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from simulate.timeline import Op, makespan, races, schedule
from simulate.toy import ToyStream

NO_EVENT = (
    "wait_event takes an event, as record_event() returns it; for a stream there is"
    " wait_stream"
)
NO_STREAM = "wait_stream takes a stream; for an event there is wait_event"


class NotingStream:
    """Has the methods of torch.cuda.Stream. Its work runs at once; what is noted is
    what surely comes before what.
    """

    def __init__(self, name, gpu):
        # before: the work that all later work here comes after
        self.name, self.gpu, self.before = name, gpu, set()

    def record_event(self, event=None):
        event = event or NotingEvent(self.gpu)
        event.record(self)
        return event

    def wait_event(self, event):
        if isinstance(event, NotingStream):
            raise Wrong(NO_EVENT)
        event.wait(self)

    def wait_stream(self, other):
        if isinstance(other, NotingEvent):
            raise Wrong(NO_STREAM)
        self.wait_event(other.record_event())

    def synchronize(self):
        self.gpu.held.append(f"{self.name}.synchronize()")

    def query(self):
        return self.gpu.asked()

    def __enter__(self):
        self.gpu.current.append(self)
        return self

    def __exit__(self, *error):
        self.gpu.current.pop()


class NotingEvent:
    """Has the methods of torch.cuda.Event."""

    def __init__(self, gpu):
        self.gpu, self.before = gpu, set()

    def record(self, stream=None):
        self.before = set((stream or self.gpu.current[-1]).before)

    def wait(self, stream=None):
        (stream or self.gpu.current[-1]).before |= self.before

    def synchronize(self):
        self.gpu.held.append("event.synchronize()")

    def query(self):
        return self.gpu.asked()


# Methods of a tensor that wait for its numbers.
HOLDS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__")


class NotingGpu(TorchFunctionMode):
    """Notes on which of two streams each operation on tensors runs, and after which
    work. The tensors are the CPU's.
    """

    def __init__(self):
        super().__init__()
        self.main, self.side = NotingStream("main", self), NotingStream("side", self)
        self.current, self.work, self.held, self.questions = [self.main], [], [], 0
        self.recorded = []  # pairs of a tensor and the stream that record_stream named
        self.made = []  # pairs of a tensor and the stream that was current then

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function == torch.Tensor.is_cuda.__get__:
            return True  # the recipe asks, to run on a CPU, too
        result, name = function(*args, **(kwargs or {})), function.__name__
        if name in HOLDS:
            self.held.append(f".{name}()")
        elif isinstance(result, torch.Tensor):
            self.made.append((result, self.current[-1]))
            given_back = any(result is x for x in args) and not name.endswith("_")
            launched = not (name.startswith("empty") or result._is_view() or given_back)
            if launched:
                stream = self.current[-1]
                self.work.append((stream, set(stream.before)))
                stream.before.add(len(self.work))
        return result

    def asked(self):
        """What query() answers: not yet, until it has been asked so often that it is a
        wait.
        """
        self.questions += 1
        if self.questions == 20:
            self.held.append("query() again and again")
        return self.questions >= 20

    @staticmethod
    def no_new_stream(*args, **options):
        raise Wrong("you made a new stream: use those that your function gets")

    @contextlib.contextmanager
    def in_place_of_cuda(self):
        """Within it, torch.cuda, torch.accelerator and torch.cpu know these streams,
        with or without a real GPU.
        """
        names = {
            "current_stream": lambda device=None: self.current[-1],
            "set_stream": lambda stream: self.current.__setitem__(-1, stream),
            "synchronize": lambda device=None: self.held.append("synchronize()"),
        }
        event = {"Event": lambda *args, **options: NotingEvent(self)}
        cuda = {
            "stream": lambda stream: stream,
            "StreamContext": lambda stream: stream,
            "default_stream": lambda device=None: self.main,
            "Stream": self.no_new_stream,
        }

        def record_stream(x, stream):
            self.recorded.append((x, stream))

        with (
            mock.patch.multiple(torch.cuda, **names, **event, **cuda),
            mock.patch.multiple(torch.accelerator, **names),
            mock.patch.object(torch.cpu, "current_stream", names["current_stream"]),
            mock.patch.object(torch.cpu, "stream", cuda["stream"]),
            mock.patch.multiple(torch, **event),
            mock.patch.object(torch.Tensor, "record_stream", record_stream),
            self,
        ):
            yield

    def home(self, x):
        """The stream that the memory of `x` belongs to."""
        return next((s for made, s in self.made if _same_memory(made, x)), self.main)

    def users(self, x):
        """The streams that record_stream named for the memory of `x`."""
        return [s for tensor, s in self.recorded if _same_memory(tensor, x)]

    def all_before(self, stream):
        """Whether all that was launched comes before what is launched there now."""
        return set(range(1, len(self.work) + 1)) <= stream.before

    def expect_no_hold(self):
        if self.held:
            raise Wrong(
                f"you called {self.held[0]}, which holds the host: let one stream wait"
                " for the other"
            )

    def expect_main(self):
        if self.current != [self.main]:
            raise Wrong(
                "after your function side is still the current stream: use"
                " torch.cuda.stream(side) in a with"
            )


def _same_memory(x, y):
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def check_square_on_side(answer):
    for values in ([3.0, -1.0, 0.5], [[2.0, 7.0]]):
        x, gpu, shown = torch.tensor(values), NotingGpu(), f"x = {values}"
        gpu.main.before.add("x")
        with gpu.in_place_of_cuda():
            got = call(answer, x, gpu.main, gpu.side, shown=shown)
        expect.instance(got, torch.Tensor, shown, "the tensor x * x")
        gpu.expect_no_hold()
        expect.tensor(got, torch.tensor(values) ** 2, shown)
        if x.tolist() != values:
            raise Wrong(
                f"your function changed x itself: it was {values} and is {x.tolist()}."
                " Return a new tensor"
            )
        if any(stream is gpu.main for stream, _ in gpu.work):
            raise Wrong(
                "x * x ran on main, the current stream. Put it into a block: with"
                " torch.cuda.stream(side):"
            )
        if not all("x" in before for _, before in gpu.work):
            raise Wrong(
                "side does not wait for main before it reads x: x may not be there yet"
            )
        if not gpu.all_before(gpu.main):
            raise Wrong(
                "main does not wait for side after x * x was launched there: it may"
                " read the result too early"
            )
        if gpu.home(got) is gpu.side and gpu.main not in gpu.users(got):
            named = ""
            if gpu.side in gpu.users(got):
                named = "you recorded side, whose memory it is anyway. "
            raise Wrong(
                f"{named}The memory of the result belongs to side, and the allocator"
                " does not know that main uses it: once the result is dropped, side"
                " may write there while main still reads"
            )
        gpu.expect_main()


def check_sum_on_main(answer):
    for values in ([3.0, -1.0, 0.5], [[2.0, 7.0]]):
        batch, gpu, shown = torch.tensor(values), NotingGpu(), f"batch = {values}"
        gpu.side.before.add("batch")
        with gpu.in_place_of_cuda():
            got = call(answer, batch, gpu.main, gpu.side, shown=shown)
        gpu.expect_no_hold()
        expect.instance(got, torch.Tensor, shown, "the tensor batch.sum()")
        expect.tensor(got, torch.tensor(values).sum(), shown)
        if batch.tolist() != values:
            raise Wrong(
                f"your function changed batch itself: it was {values} and is"
                f" {batch.tolist()}"
            )
        if any(stream is gpu.side for stream, _ in gpu.work):
            raise Wrong(
                "the sum ran on side. main is the current stream: no block is needed"
            )
        if not all("batch" in before for _, before in gpu.work):
            raise Wrong(
                "main does not wait for side before it reads batch: the copy may still"
                " be going on"
            )
        users = gpu.users(batch)
        if gpu.main not in users and not gpu.all_before(gpu.side):
            named = ""
            if gpu.side in users:
                named = (
                    "you recorded side, whose block it is anyway; the allocator must"
                    " hear of the other user. As it is, "
                )
            raise Wrong(
                f"{named}nothing keeps side from writing into the block of batch while"
                " main still reads it"
            )
        gpu.expect_main()


class WatchedEvent(Future):
    """A toy event that tells its stream when somebody waits for it."""

    asked = 0

    def result(self, timeout=30):
        self.stream.waited_for("result()")
        return super().result(timeout)

    def done(self):
        self.asked += 1
        if self.asked > 20:
            self.stream.waited_for("done() or query() again and again")
        return super().done()

    synchronize, query = result, done


class WatchedStream(ToyStream):
    """A toy stream that notes what it is at, what failed, and the host's waits. A wait
    of the host opens the gate.
    """

    def __init__(self, gate, launched):
        super().__init__()
        self.launched = launched  # pairs (stream, function) of all streams, in order
        self.thread = self._worker.submit(threading.get_ident).result()
        self.host, self.gate = threading.get_ident(), gate
        self.now = self.error = self.held = None

    def launch(self, fn, *args):
        self.launched.append((self, fn))
        event = super().launch(self._run, fn, *args)
        event.__class__, event.stream = WatchedEvent, self
        return event

    def _run(self, fn, *args):
        self.now = fn
        try:
            return fn(*args)
        except Exception as error:
            self.error = self.error or error
            raise

    def wait_event(self, event):
        if isinstance(event, ToyStream):
            raise Wrong(NO_EVENT)
        super().wait_event(event)

    def wait_stream(self, other):
        if isinstance(other, Future):
            raise Wrong(NO_STREAM)
        super().wait_stream(other)

    def synchronize(self):
        self.waited_for("synchronize()")
        super().synchronize()

    def waited_for(self, how):
        if threading.get_ident() == self.host:
            self.held = self.held or how
            self.gate.set()

    def stands(self):
        """Whether the queue is empty, or what is at its head waits for an event that
        has not come.
        """
        if Future.done(self.record_event()):
            return True
        event = getattr(self.now, "__self__", None)
        return isinstance(event, Future) and not Future.done(event)

    def ends(self, seconds):
        """Whether all that is in the queue ends within so many seconds."""
        return not wait([self.record_event()], seconds).not_done


def check_make_then_use(answer):
    for _ in range(2):
        _make_then_use(answer)


def _make_then_use(answer):
    gate, making = threading.Event(), threading.Event()
    log, host = [], threading.get_ident()  # log: what happened in which thread

    def make():
        log.append(("make", threading.get_ident()))
        making.set()
        if threading.get_ident() != host:
            gate.wait(20)
        log.append(("made", threading.get_ident()))

    def use():
        log.append(("use", threading.get_ident()))

    launched = []
    producer, consumer = WatchedStream(gate, launched), WatchedStream(gate, launched)
    try:
        call(answer, producer, consumer, make, use, shown="two toy streams")
        late = "made" in dict(log) and host not in dict(log).values()
        _until(lambda: making.is_set() or _stuck(producer, consumer), 20)
        # the limit for waits of other kinds than those of a stream, such as a lock
        made = [("make", producer.thread)]
        _until(lambda: log != made or consumer.stands(), 2)
        early = "use" in dict(log)
    finally:
        gate.set()
    streams = {"producer": producer, "consumer": consumer}
    # a busy machine holds up both queues, and neither is at fault
    _until(lambda: _stuck(producer, consumer), 60)
    ended = {name: stream.ends(2) for name, stream in streams.items()}
    for name in ("make", "use"):
        if (name, host) in log:
            raise Wrong(
                f"your function ran {name} itself. launch takes the function, without"
                f" (): launch({name})"
            )
    _check_streams(streams, ended, late)
    ran = [what for what, _ in log]
    if ran.count("make") != 1 or ran.count("use") != 1:
        raise Wrong(
            f"each must be launched once: make ran {ran.count('make')} times, use"
            f" {ran.count('use')} times"
        )
    where = dict(log)
    if where["make"] != producer.thread:
        raise Wrong("make is not on the producer. Launch make on producer")
    if where["use"] != consumer.thread:
        raise Wrong("use is not on the consumer. Launch use on consumer")
    if early:
        why = _misplaced(launched, producer, consumer, make, use)
        raise Wrong(f"use ran while make was still running: {why}")


def _stuck(*streams):
    """Whether nothing more can happen in these queues: each stood at the same place
    while the others were looked at.
    """
    heads = [stream.now for stream in streams]
    return (
        all(stream.stands() for stream in streams * 2)
        and [stream.now for stream in streams] == heads
    )


def _misplaced(launched, producer, consumer, make, use):
    """Why the waits among the functions that were launched do not help."""
    places = {fn: place for place, (_, fn) in enumerate(launched) if fn in (make, use)}
    for place, (stream, fn) in enumerate(launched):
        if not isinstance(getattr(fn, "__self__", None), Future):
            continue
        if stream is producer:
            return "the producer waits. It is the consumer that must wait"
        if place < places.get(make, 0):
            return (
                "the consumer's wait stands before the launch of make, and so waits"
                " only for what was in the queue then"
            )
        if place > places.get(use, place):
            return (
                "the consumer's wait stands after the launch of use, and so holds up"
                " only what is launched later"
            )
        return "the consumer waits, but for an event that does not come after make"
    return "nothing makes the consumer wait for it"


def _check_streams(streams, ended, late):
    """Whether the host waited, and whether all that was launched ended well."""
    for stream in streams.values():
        if stream.held:
            raise Wrong(
                f"you called {stream.held}, which holds the host: let the consumer wait"
                " instead"
            )
    if late:
        raise Wrong(
            "your function came back only after make had ended: the host has waited"
        )
    for name, stream in streams.items():
        if stream.error is not None:
            raise Wrong(
                f"what you launched on {name} raised {type(stream.error).__name__}:"
                f" {stream.error}"
            )
        if not ended[name]:
            raise Wrong(
                f"two seconds after make had ended, {name} was still waiting: it waits"
                " for itself"
            )


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
        got = call(answer, ops)
        expected = makespan(schedule([Op(str(k), *op) for k, op in enumerate(ops)]))
        if isinstance(got, bool) or not isinstance(got, numbers.Real):
            raise Wrong(
                f"{what}: for {ops} you returned {got!r}, expected the number"
                f" {expected:g}"
            )
        if not math.isclose(got, expected):
            mine, theirs = expect.distinct_texts(float(got), expected)
            why = "" if ops else ": nothing ends later than 0"
            raise Wrong(
                f"{what}: for {ops} you returned {mine}, expected {theirs}{why}"
            )


ENGINES = {"in": "copy", "compute": "compute", "out": "copy"}


def check_issue_order(answer):
    for chunks in (4, 1, 2, 7):
        got, shown = call(answer, chunks), f"chunks={chunks}"
        if not isinstance(got, (list, tuple)):
            if not isinstance(got, (int, float, str, type(None))):
                got = type(got).__name__
            raise Wrong(
                f"for {shown} you returned {got!r}, expected a list of pairs such as"
                " ('in', 0)"
            )
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
        ops = [
            Op(f"{stage} {chunk}", f"stream {chunk}", ENGINES[stage], 1)
            for stage, chunk in got
        ]
        spans = schedule(ops)
        steps, best = makespan(spans), max(2 * chunks, 3)
        if steps > best:
            raise Wrong(
                f"{chunks} chunks take {steps:g} of {3 * chunks} steps, {best} are"
                f" possible: {_first_gap(spans)}"
            )


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
    names = [op.name for op in LOADER]
    pairs = []
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
    ops = []
    for op in LOADER:
        after = tuple(first for first, later in pairs if later == op.name)
        ops.append(Op(**{**vars(op), "after": after}))
    left = races(ops)
    if left:
        first, second = left[0]
        why = "overwrites what the other still reads"
        if "load" in first:
            why = "reads the buffer that the other fills"
        raise Wrong(f"{second!r} still races with {first!r}: it {why}")
    if makespan(schedule(ops)) > LOADER_ENDS:
        raise Wrong(
            f"no race is left, but the loader takes {makespan(schedule(ops)):g} instead"
            f" of {LOADER_ENDS}: one of the waits is for something that comes later"
            " than it needs to"
        )
    if len(pairs) > FEWEST_WAITS:
        raise Wrong(
            f"no race is left, but {FEWEST_WAITS} waits do what your {len(pairs)} do:"
            " order is passed on, and a stream keeps its own"
        )


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
        title="Out to a side stream and back",
        name="square_on_side",
        stars=1,
        check=check_square_on_side,
        hints=[
            (
                "Three things, in this order: side waits for x, the product goes to"
                " side, main waits for the product. Then its memory, which belongs to"
                " side."
            ),
            (
                "What stands in a block with torch.cuda.stream(side): goes to side. A"
                " wait is reader.wait_stream(writer)."
            ),
            (
                "side.wait_stream(main) before the block, main.wait_stream(side) after"
                " it, and record_stream(main) on the result."
            ),
        ],
        solution="""
def square_on_side(x, main, side):
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y = x * x
    main.wait_stream(side)
    y.record_stream(main)
    return y
""",
        praise=(
            "A y made on main, before side waits for main, needs no record_stream: its"
            " memory belongs to main, which waits for side anyway."
        ),
    ),
    Exercise(
        number="05.3",
        title="The memory of somebody else",
        name="sum_on_main",
        stars=2,
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
            "A loader that copies ahead does this for every batch. With"
            " side.wait_stream(main) after the sum instead no block is kept back, but"
            " the next copy waits for all that main has launched so far."
        ),
    ),
    Exercise(
        number="05.4",
        title="The order of issue for one copy engine",
        name="issue_order",
        stars=1,
        check=check_issue_order,
        hints=[
            "In which order do the copies wait for nobody?",
            "No copy out may stand in the queue before a copy in that could run.",
            "Two loops: over the stages outside, over the chunks inside.",
        ],
        solution="""
def issue_order(chunks):
    return [
        (stage, chunk) for stage in ("in", "compute", "out") for chunk in range(chunks)
    ]
""",
        praise=(
            "The copy engine now never idles: 2n steps for 2n copies. Breadth first has"
            " a price: all chunks are on the device at once. In between lies in k + 1"
            " before out k: as fast, and with room for two chunks."
        ),
    ),
    Exercise(
        number="05.5",
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
        number="05.6",
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
