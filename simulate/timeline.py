"""When does which operation run? A timeline of streams, engines and events, computed
instead of measured.

The host issues operations one after the other; each goes to a stream and to an engine
(a copy engine, or the processors as a whole); a stream works in order; an engine takes
its operations in the order of issue, and one that is not ready holds up those behind
it; an operation that waits for an event starts after the operation the event follows.

No bound: it errs in both directions. It says too much where several hardware queues
stand in front of an engine (since compute capability 3.5), or where small kernels share
the processors; too little where engines share a memory, where handing over between
queues takes time, and on the Fermi generation, whose GPU signals the end of kernels
issued back to back only when all have ended (a Tesla C2050 takes 9/12 of the serial
time for four chunks, breadth first; `schedule` says 6/12, unless each copy out is given
all kernels as `after`).

Of a pipeline it leaves out more. It says too little there: a pageable copy is slower
than a pinned one, each copy has a latency, and to record an event or wait for one costs
the host time as well. It says too much: a pageable copy in may return when its bytes
lie in the driver's pinned buffer (NVIDIA, CUDA Driver API, "API synchronization
behavior"), and one copy engine may have several hardware queues before it.

Source: M. Harris, "How to Overlap Data Transfers in CUDA C/C++" (NVIDIA 2012): times of
a Tesla C1060, C2050, K20c.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from device_lab import LabError


@dataclass(frozen=True)
class Op:
    """One operation as the host issues it.

    name: unique
    stream, engine: where it queues
    seconds: how long it takes (any unit of time, the same in all)
    after: names of earlier operations it waits for (events)
    launch: time the host needs to issue it
    blocks: whether the host waits until it is done, as for a copy that is not
        asynchronous
    reads, writes: names of the buffers it touches, for `races`
    """

    name: str
    stream: str
    engine: str
    seconds: float
    after: tuple = ()
    launch: float = 0.0
    blocks: bool = False
    reads: tuple = ()
    writes: tuple = ()


class Span(NamedTuple):
    """When an operation ran. start, end: in the unit of Op.seconds, from the moment the
    host began to issue.
    """

    op: Op
    start: float
    end: float


def schedule(ops: Iterable[Op]) -> list[Span]:
    """When each operation runs: a list of Span in the order of issue.

    ops: Op objects in the order in which the host issues them. LabError where one waits
    for an operation that was not issued before it, where a name occurs twice, or where
    a time is negative.
    """
    spans, stream_free, engine_free, host = {}, {}, {}, 0.0
    for op in ops:
        _check(op, spans)
        host += op.launch
        waits = [spans[name].end for name in op.after]
        start = max(
            host,
            stream_free.get(op.stream, 0.0),
            engine_free.get(op.engine, 0.0),
            *waits,
        )
        spans[op.name] = Span(op, start, start + op.seconds)
        stream_free[op.stream] = engine_free[op.engine] = start + op.seconds
        if op.blocks:
            host = start + op.seconds
    return list(spans.values())


def _check(op, earlier):
    if op.name in earlier:
        raise LabError(f"two operations are named {op.name!r}")
    unknown = [name for name in op.after if name not in earlier]
    if unknown:
        raise LabError(
            f"{op.name!r} waits for {unknown[0]!r}, which has not been issued before it"
        )
    if op.seconds < 0 or op.launch < 0:
        raise LabError(f"{op.name!r} takes a negative time")


def makespan(spans: Iterable[Span]) -> float:
    """When the last operation ends; 0 without operations."""
    return max((span.end for span in spans), default=0.0)


def pipeline(
    chunks: int,
    seconds: Sequence[float],
    *,
    streams: int | None = None,
    order: str = "depth",
    copy_engines: int = 2,
    pinned: bool = True,
    launch: float = 0.0,
) -> list[Op]:
    """The operations of "copy in, compute, copy out" on work cut into `chunks`.

    seconds: (copy in, compute, copy out) for the whole work; each chunk takes its share
    streams: how many to deal the chunks out to (default: one a chunk)
    order: "depth" issues chunk by chunk, "breadth" stage by stage
    copy_engines: 2, one a direction, or 1 for both
    pinned: False makes the copies hold the host
    launch: host time to issue one operation

    With equal stages and a stream each, n chunks take (n + 2)/(3n) of the serial time,
    four on one copy engine 8/12 by "breadth", 12/12 by "depth" (Tesla C1060, as above).
    """
    if chunks < 1 or copy_engines not in (1, 2) or order not in ("depth", "breadth"):
        raise LabError(
            "a pipeline has at least one chunk, 1 or 2 copy engines, and order 'depth'"
            " or 'breadth'"
        )
    engine = {"in": "copy in", "compute": "compute", "out": "copy out"}
    if copy_engines == 1:
        engine["in"] = engine["out"] = "copy"
    shares = dict(zip(engine, seconds, strict=True))
    issue = [(chunk, stage) for stage in engine for chunk in range(chunks)]
    if order == "depth":
        issue.sort(key=lambda pair: pair[0])
    return [
        Op(
            name=f"{stage} {chunk}",
            stream=f"stream {chunk % (streams or chunks)}",
            engine=engine[stage],
            seconds=shares[stage] / chunks,
            launch=launch,
            blocks=not pinned and stage != "compute",
        )
        for chunk, stage in issue
    ]


def races(ops: Sequence[Op]) -> list[tuple[str, str]]:
    """Pairs of names of operations that touch the same buffer, one of them writing,
    with nothing to order them.

    What orders two operations: the same stream, an event (`after`), or the host having
    waited for the first one before it issued the second (`blocks`). That an engine
    happens to run them one by one does not count: whoever relies on it has a race that
    another device shows. Names are in the order of issue.
    """
    # before: name → names of all operations surely done by then
    before, last, host, pairs = {}, {}, set(), []
    for op in ops:
        _check(op, before)
        earlier = list(op.after)
        if op.stream in last:
            earlier.append(last[op.stream])
        before[op.name] = host.union(*({name} | before[name] for name in earlier))
        last[op.stream] = op.name
        if op.blocks:
            host = host | before[op.name] | {op.name}
    for n, second in enumerate(ops):
        for first in ops[:n]:
            if _share(first, second) and first.name not in before[second.name]:
                pairs.append((first.name, second.name))
    return pairs


def _share(first, second):
    """Whether two operations touch the same buffer, one of them writing."""
    touched = {*first.reads, *first.writes} & {*second.reads, *second.writes}
    return bool(touched & {*first.writes, *second.writes})
