"""Streams that tell what a program does with them, on a machine without a GPU.

`CudaStreams` stands in for those of torch.cuda: operations run at once, on the CPU, and
what is noted is what surely comes before what. `SpyStream` is a toy stream, whose
thread is real; it notes each wait of the host, and can keep its work in the queue till
then. Both know order and nothing of time: no engines, no limit of queues, no device
whose errors come late.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import NamedTuple
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

from device_lab import LabError
from simulate.toy import ToyStream

NO_EVENT = (
    "wait_event takes an event, as record_event() returns it; for a stream there is"
    " wait_stream"
)
NO_STREAM = "wait_stream takes a stream; for an event there is wait_event"


def _expect(thing, kind, otherwise):
    if not isinstance(thing, kind):
        raise LabError(otherwise)


# --------------------------------------------------------------------------------------
# In place of torch.cuda

# Methods of a tensor that wait for its numbers.
WAITS = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__")


class CudaStream:
    """Has the methods of torch.cuda.Stream.

    before: the work that all later work here comes after.
    """

    def __init__(self, name, gpu):
        self.name, self.gpu, self.before = name, gpu, set()

    def record_event(self, event=None):
        event = event or CudaEvent(self.gpu)
        event.record(self)
        return event

    def wait_event(self, event):
        _expect(event, CudaEvent, NO_EVENT)
        event.wait(self)

    def wait_stream(self, other):
        _expect(other, CudaStream, NO_STREAM)
        self.before |= other.before

    def synchronize(self):
        self.gpu.held.append(f"{self.name}.synchronize()")

    def query(self):
        return self.gpu.asked()

    def __enter__(self):
        self.gpu.current.append(self)
        return self

    def __exit__(self, *error):
        self.gpu.current.pop()


class CudaEvent:
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


class Work(NamedTuple):
    """An operation: its number, from 1; its stream; what surely comes before it."""

    number: int
    stream: CudaStream
    before: set


class CudaStreams(TorchFunctionMode):
    """Two streams of a GPU, `main` and `side`; notes on which of them each operation on
    tensors runs, and after which work. The tensors are the CPU's.

    Make the tensors that a program gets before `in_place_of_cuda`, and say where they
    come from: `gpu.side.before.add("batch")`. Their memory belongs to main.

    work: pairs (stream, what surely comes before), one for each operation
    held: what held the host, as the program wrote it: "side.synchronize()"
    """

    def __init__(self):
        super().__init__()
        self.main, self.side = CudaStream("main", self), CudaStream("side", self)
        self.current, self.work, self.held, self._asked = [self.main], [], [], 0
        self._recorded = []  # pairs (tensor, stream)
        self._made = []  # what each operation gave

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function == torch.Tensor.is_cuda.__get__:
            return True  # the recipe asks, to run on a CPU, too
        result, name = function(*args, **(kwargs or {})), function.__name__
        if name in WAITS:
            self.held.append(f".{name}()")
        elif isinstance(result, torch.Tensor):
            stream = self.current[-1]
            writes = "out" in (kwargs or {}) or name[-1] == "_" != name[-2]
            given_back = result._is_view() or any(result is x for x in args)
            if writes or not (given_back or name.startswith("empty")):
                self.work.append((stream, set(stream.before)))
                stream.before.add(len(self.work))
                self._made.append(result)
        return result

    def asked(self):
        """What query() answers: not yet, until it has been asked so often that it is a
        wait.
        """
        self._asked += 1
        if self._asked == 20:
            self.held.append("query() again and again")
        return self._asked >= 20

    @contextlib.contextmanager
    def in_place_of_cuda(self) -> Iterator[None]:
        """Within it, torch.cuda, torch.accelerator and torch.cpu know these streams,
        with or without a real GPU. LabError for who makes another one.
        """
        names = {
            "current_stream": lambda device=None: self.current[-1],
            "set_stream": lambda stream: self.current.__setitem__(-1, stream),
            "synchronize": lambda device=None: self.held.append("synchronize()"),
        }
        event = {"Event": lambda *args, **options: CudaEvent(self)}
        cuda = {
            "stream": lambda stream: stream,
            "StreamContext": lambda stream: stream,
            "default_stream": lambda device=None: self.main,
            "Stream": _no_new_stream,
        }
        cpu = {"current_stream": names["current_stream"], "stream": cuda["stream"]}

        def record_stream(x, stream):
            self._recorded.append((x, stream))

        with (
            mock.patch.multiple(torch.cuda, **names, **event, **cuda),
            mock.patch.multiple(torch.accelerator, **names),
            mock.patch.multiple(torch.cpu, **cpu),
            mock.patch.multiple(torch, **event),
            mock.patch.object(torch.Tensor, "record_stream", record_stream),
            self,
        ):
            yield

    def ran_on(self, stream: CudaStream) -> bool:
        """Whether an operation ran there."""
        return any(where is stream for where, _ in self.work)

    def all_after(self, what) -> bool:
        """Whether all operations surely come after `what`, which somebody has put into
        a stream's `before`.
        """
        return all(what in before for _, before in self.work)

    def all_before(self, stream: CudaStream) -> bool:
        """Whether all operations surely come before what is launched there now."""
        return set(range(1, len(self.work) + 1)) <= stream.before

    def last_work(self, x: torch.Tensor) -> Work:
        """The last operation whose result has the memory of `x`; with the number 0
        where there is none.
        """
        for number in range(len(self.work), 0, -1):
            if _same_memory(self._made[number - 1], x):
                return Work(number, *self.work[number - 1])
        return Work(0, self.main, set())

    def users(self, x: torch.Tensor) -> list[CudaStream]:
        """The streams that record_stream has named for the memory of `x`."""
        return [s for tensor, s in self._recorded if _same_memory(tensor, x)]


def _no_new_stream(*args, **options):
    raise LabError("you made a new stream: use those that your function gets")


def _same_memory(x, y):
    return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


# --------------------------------------------------------------------------------------
# In place of a toy stream


class SpyEvent(Future):
    """The event of an operation on a SpyStream, which hears of each wait of the host.

    Has the methods of both kinds of events: result and done, as in the toy, synchronize
    and query, as in CUDA.
    """

    asked = 0

    def result(self, timeout=30):
        # less is no wait, but a guess at its time
        if timeout is None or timeout >= 1:
            self.stream.host_waits("result()", self.number)
        return super().result(timeout)

    def done(self):
        self.asked += 1
        if self.asked > 1:  # asking again and again is a wait
            how = "done() or query() again and again"
            self.stream.host_waits(how, self.number)
        return super().done()

    synchronize, query = result, done


class SpyStream(ToyStream):
    """A toy stream that notes what is launched, and how the host, the thread that made
    it, waits.

    hold: seconds for which an operation stays in the queue, unless the host waits for
        it: what is too early is then too early on any machine
    at_launch, around: called with the number of an operation, 0 for the first, when it
        is launched, and for a context to run it in

    events: those of what was launched; pending: how many were not done at each launch
    held: the host's waits, such as "result()"; told: whether the stream was told to
    wait; error: the first one in its work; thread: the one that does its work
    """

    def __init__(
        self,
        hold: float = 0.0,
        at_launch: Callable = int,
        around: Callable = contextlib.nullcontext,
    ):
        super().__init__()
        self.thread = self._worker.submit(threading.get_ident).result()
        self.host, self.hold = threading.get_ident(), hold
        self.at_launch, self.around = at_launch, around
        self.events, self.gates, self.pending, self.held = [], [], [], []
        self.told, self.error = False, None

    def launch(self, fn, *args):
        number = len(self.gates)
        self.pending.append(sum(not Future.done(event) for event in self.events))
        self.gates.append(threading.Event())
        self.at_launch(number)
        event = self._spied(super().launch(self._run, number, fn, *args))
        self.events.append(event)
        return event

    def _spied(self, event):
        event.__class__, event.stream = SpyEvent, self
        event.number = len(self.gates) - 1
        return event

    def _run(self, number, fn, *args):
        self.gates[number].wait(self.hold)
        try:
            with self.around(number):
                return fn(*args)
        except Exception as error:
            self.error = self.error or error
            raise

    def wait_event(self, event):
        _expect(event, Future, NO_EVENT)
        self.told = True
        self._spied(super().launch(self._wait, event))

    def _wait(self, event):
        event.result()

    def wait_stream(self, other):
        _expect(other, ToyStream, NO_STREAM)
        super().wait_stream(other)

    def synchronize(self):
        self.host_waits("synchronize()", len(self.gates) - 1)
        super().synchronize()

    def host_waits(self, how, number):
        """Note a wait of the host, and let all go that it waits for."""
        if threading.get_ident() == self.host:
            self.held.append(how)
            for gate in self.gates[: number + 1]:
                gate.set()

    def end(self, seconds: float = 5.0) -> bool:
        """Let everything run; whether all of it ended within so many seconds."""
        for gate in self.gates:
            gate.set()
        return not wait([self.record_event()], seconds).not_done
