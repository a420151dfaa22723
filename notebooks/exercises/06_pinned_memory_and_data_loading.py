"""Exercises of lesson 06."""

import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from utils.exercises import Exercise, Wrong, call
from utils.simulate.toy import ToyStream


def _whole_number(got, shown):
    try:
        whole = None if isinstance(got, (bool, str)) or got != int(got) else int(got)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # no number, or none that is whole
        whole = None
    if whole is None:
        raise Wrong(f"for {shown} you returned {got!r}, expected a whole number")
    return whole


def check_largest_batch(answer):
    for sample, limit in ((600, 2**20), (150_528, 2**27), (602_112, 3 * 2**26), (1024, 2**20), (1000, 1500)):
        shown = f"samples of {sample:,} bytes and a limit of {limit:,}"
        got = _whole_number(call(answer, sample, limit, shown=shown), shown)
        block = 1 << (max(got, 1) * sample - 1).bit_length()
        if block > limit:
            raise Wrong(f"for {shown} you returned {got}: these {got * sample:,} bytes take a block of {block:,}")
        following = 1 << ((got + 1) * sample - 1).bit_length()
        if got < 1 or following <= limit:
            raise Wrong(f"for {shown} you returned {got}, but {got + 1} would fit: a block of {following:,} bytes")


def check_workers_needed(answer):
    cases = ((30, 10, 20, True), (30, 10, 20, False), (100, 10, 20, True), (100, 5, 20, False), (3, 10, 20, True))
    for load, copy, compute, overlap in (*cases, (60, 10, 20, True), (61, 10, 20, True)):
        shown = f"load {load} ms, copy {copy} ms, compute {compute} ms, overlap {overlap}"
        got = _whole_number(call(answer, load, copy, compute, overlap, shown=shown), shown)
        step = compute if overlap else copy + compute
        expected = max(1, -(-load // step))
        if got == expected:
            continue
        if got < 1:
            raise Wrong(f"for {shown} you returned {got}: at least one worker is asked")
        if got < expected:
            why = f"{got} would load a batch every {load / got:.3g} ms, the device takes one every {step} ms"
        else:
            why = f"{expected} load a batch every {load / expected:.3g} ms, enough for one every {step} ms"
        raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


class CountCopies(TorchDispatchMode):
    """Counts copies from the CPU to another device."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        sent = name == "_to_copy" and args[0].device.type == "cpu" and str(kwargs.get("device", "cpu")) != "cpu"
        into = name == "copy_" and args[0].device.type != "cpu" and args[1].device.type == "cpu"
        self.count += sent or into
        return function(*args, **kwargs)


def check_send_packed(answer):
    tensors = [torch.arange(6.0).reshape(2, 3), torch.tensor(7.0), torch.arange(4.0) + 10, torch.ones(1, 2, 2)]
    shown = f"tensors of the shapes {[tuple(x.shape) for x in tensors]}"
    with CountCopies() as copies:
        got = call(answer, list(tensors), torch.device("meta"), shown=f"{shown}, sent to meta")
    if not isinstance(got, (list, tuple)) or len(got) != len(tensors):
        raise Wrong(f"for {shown} you returned {got!r}, expected a list of {len(tensors)} tensors")
    for n, (mine, x) in enumerate(zip(got, tensors, strict=True)):
        if not isinstance(mine, torch.Tensor):
            raise Wrong(f"entry {n} should be a tensor, it is {mine!r}")
        if mine.device.type != "meta":
            raise Wrong(f"entry {n} should be on meta, it is on {mine.device}")
        if mine.shape != x.shape or mine.dtype != x.dtype:
            expected = f"{tuple(x.shape)} of {x.dtype}"
            raise Wrong(f"entry {n} should have the shape {expected}, it has {tuple(mine.shape)} of {mine.dtype}")
    if copies.count != 1:
        raise Wrong(f"right shapes, but {copies.count} copies to the device for {len(tensors)} tensors: one is asked")
    there = call(answer, list(tensors), torch.device("cpu"), shown=f"{shown}, sent to cpu")
    for n, (mine, x) in enumerate(zip(there, tensors, strict=True)):
        if not torch.equal(mine, x):
            raise Wrong(f"entry {n} should hold {x.tolist()}, it holds {mine.tolist()}: whose numbers are they?")


class SpyStream(ToyStream):
    """A slow toy stream that notes how many copies were pending at each launch."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.copies, self.pending = seconds, [], []

    def launch(self, fn, *args):
        self.pending.append(sum(not event.done() for event in self.copies))
        event = super().launch(self._slowly, fn, *args)
        self.copies.append(event)
        return event

    def wait_event(self, event):
        raise Wrong("wait_event makes the stream wait; it is the host that fills the slot: event.result()")

    def _slowly(self, fn, *args):
        time.sleep(self.seconds)
        return fn(*args)


def check_fetch_sum(answer):
    for seconds in (0.02, 0.12):
        stream, there, here = SpyStream(seconds), torch.arange(5.0), torch.full((5,), -1.0)
        shown = f"a copy that takes {seconds * 1e3:.0f} ms"
        start = time.perf_counter()
        got = call(answer, stream, there, here, shown=shown)
        took, finished = time.perf_counter() - start, bool(stream.copies) and stream.copies[0].done()
        stream.synchronize()
        if not isinstance(got, (int, float)):
            raise Wrong(f"for {shown} you returned {got!r}, expected a Python number: .item()")
        if not stream.copies or not torch.equal(here, there):
            raise Wrong("nothing was copied into `here`: launch the copy on the stream")
        if got != 10 and not finished:
            raise Wrong(f"for {shown} you returned {got}: that was in `here` before the copy, which ended later")
        if got != 10:
            raise Wrong(f"for {shown} you returned {got}, expected 10.0: read `here` after the wait, not before")
        if not finished:
            raise Wrong(f"for {shown} the number is right, but the copy was not done: you did not read `here`")
        if seconds < 0.1 < took:
            raise Wrong(f"for {shown} you took {took * 1e3:.0f} ms: wait for the copy's event, guess no times")


def check_feed(answer):
    batches = [torch.full((4,), float(n)) for n in range(6)]
    stream, slots, there = SpyStream(0.03), [torch.zeros(4), torch.zeros(4)], [torch.full((4,), -1.0) for _ in batches]
    events = call(answer, stream, batches, slots, there, shown="six batches and two slots")
    stream.synchronize()
    if len(stream.copies) != len(batches):
        raise Wrong(f"{len(stream.copies)} copies were launched on the stream for {len(batches)} batches")
    for n, (got, batch) in enumerate(zip(there, batches, strict=True)):
        if not torch.equal(got, batch):
            found = f"{got[0].item():.0f}s" if got[0] >= 0 else "nothing"
            raise Wrong(f"batch {n} holds {n}s, but {found} arrived: its slot was refilled before its copy was done")
    if max(stream.pending) == 0:
        raise Wrong("right numbers, but the host waited for each copy before it filled the next slot: nothing overlaps")
    if max(stream.pending) > 1:
        raise Wrong(
            "more copies pending than there are slots: the batches were sent from somewhere else, not the slots"
        )
    if sorted(slot[0].item() for slot in slots) != [4.0, 5.0]:
        raise Wrong("everything arrived, but not through the slots: fill a slot, and copy from there")
    if not isinstance(events, (list, tuple)) or len(events) != len(batches):
        raise Wrong(f"everything arrived; return the list of {len(batches)} events, not {events!r}")


EXERCISES = [
    Exercise(
        number="06.1",
        title="A batch that fits its block",
        name="largest_batch",
        stars=2,
        check=check_largest_batch,
        hints=[
            "A block is a power of two. Which powers of two are at most limit?",
            "Only the largest of them matters: the batch must fit into it.",
            "The largest power of two up to limit is 1 << (limit.bit_length() - 1).",
        ],
        solution="""
def largest_batch(sample_bytes, limit):
    block = 1 << (limit.bit_length() - 1)
    return block // sample_bytes
""",
        praise="The limit itself need not be a power of two, and often you get a third of it less than you asked for: "
        "that is why a batch of 2**k samples of 2**j bytes is a good habit.",
        wrong={
            """
def largest_batch(sample_bytes, limit):
    return limit // sample_bytes
""": "take a block of",
            """
def largest_batch(sample_bytes, limit):
    block = 1
    while block < limit:
        block *= 2
    return block // sample_bytes
""": "take a block of",
            """
def largest_batch(sample_bytes, limit):
    return (limit // 2) // sample_bytes
""": "would fit",
        },
    ),
    Exercise(
        number="06.2",
        title="How many workers feed the device?",
        name="workers_needed",
        stars=2,
        check=check_workers_needed,
        hints=[
            "How often does the device take a batch, with overlap and without?",
            "W workers finish a batch every load / W. That must be at most the device's time for one.",
            "The smallest whole number that is at least load / step: math.ceil, and never less than 1.",
        ],
        solution="""
import math


def workers_needed(load, copy, compute, overlap):
    step = compute if overlap else copy + compute
    return max(1, math.ceil(load / step))
""",
        praise="A forecast for the mean. Loading times vary, so take one more, and then believe the measured curve.",
        wrong={
            """
def workers_needed(load, copy, compute, overlap):
    return max(1, load // (compute if overlap else copy + compute))
""": "expected 2: 1 would load a batch every 30 ms, the device takes one every 20 ms",
            """
def workers_needed(load, copy, compute, overlap):
    return load // (compute if overlap else copy + compute) + 1
""": "expected 1: 1 load a batch every 30 ms, enough for one every 30 ms",
            """
import math
def workers_needed(load, copy, compute, overlap):
    return max(1, math.ceil(load / compute))
""": "enough for one every 30 ms",
            """
import math
def workers_needed(load, copy, compute, overlap):
    return max(1, math.ceil(load / (copy + compute)))
""": "the device takes one every 20 ms",
        },
    ),
    Exercise(
        number="06.3",
        title="Many small tensors, one copy",
        name="send_packed",
        stars=2,
        check=check_send_packed,
        hints=[
            "Make one long vector of all of them on the CPU, send it, and cut it up over there.",
            "torch.cat takes vectors: flatten each tensor first, for example with x.reshape(-1).",
            "Over there: packed.split([x.numel() for x in tensors]), then each part.reshape(x.shape).",
        ],
        solution="""
def send_packed(tensors, device):
    packed = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    parts = packed.split([x.numel() for x in tensors])
    return [part.reshape(x.shape) for part, x in zip(parts, tensors)]
""",
        praise="The parts are views of one tensor: they cost nothing, and keep all of it alive as long as one of them "
        "lives.",
        wrong={
            """
def send_packed(tensors, device):
    return [x.to(device) for x in tensors]
""": "right shapes, but 4 copies to the device for 4 tensors",
            """
def send_packed(tensors, device):
    return list(torch.stack(tensors).to(device))
""": "raised RuntimeError",
            """
def send_packed(tensors, device):
    packed = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    return list(packed.split([x.numel() for x in tensors]))
""": "entry 0 should have the shape (2, 3)",
            """
def send_packed(tensors, device):
    packed = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    return [packed[: x.numel()].reshape(x.shape) for x in tensors]
""": "whose numbers are they?",
            """
def send_packed(tensors, device):
    return [torch.empty_like(x, device=device) for x in tensors]
""": "right shapes, but 0 copies",
        },
    ),
    Exercise(
        number="06.4",
        title="Read after the copy",
        name="fetch_sum",
        stars=2,
        check=check_fetch_sum,
        hints=[
            "launch returns at once. What it returns knows when the copy is done.",
            "An event of a ToyStream is a future: event.result() makes the host wait for it.",
            "Between launch and return: event.result(). Then here.sum().item().",
        ],
        solution="""
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    event.result()
    return here.sum().item()
""",
        praise="On a GPU: event = stream.record_event() after the copy, and event.synchronize() as late as you can, "
        "with other work in between.",
        wrong={
            """
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    return here.sum().item()
""": "that was in `here` before the copy",
            """
import time
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    time.sleep(0.05)
    return here.sum().item()
""": "for a copy that takes 120 ms",
            """
import time
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    time.sleep(0.5)
    return here.sum().item()
""": "guess no times",
            """
def fetch_sum(stream, there, here):
    stream.launch(here.copy_, there)
    return there.sum().item()
""": "you did not read `here`",
            """
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    total = here.sum().item()
    event.result()
    return total
""": "read `here` after the wait",
            """
def fetch_sum(stream, there, here):
    return there.sum().item()
""": "nothing was copied into `here`",
        },
    ),
    Exercise(
        number="06.5",
        title="Two buffers in turn",
        name="feed",
        stars=2,
        check=check_feed,
        hints=[
            "Which earlier copy used the slot that you are about to fill? Batch n uses the slot of batch n - 2.",
            "Keep the events in a list. Before filling: if n >= len(slots), wait for events[n - len(slots)].",
            "In the loop: wait if need be, slot.copy_(batch), events.append(stream.launch(there[n].copy_, slot)).",
        ],
        solution="""
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        if n >= len(slots):
            events[n - len(slots)].result()
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
    return events
""",
        praise="This is how the driver's staging buffer works, and how loaders that keep their own pinned buffers do.",
        wrong={
            """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
    return events
""": "its slot was refilled before its copy was done",
            """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
        stream.synchronize()
    return events
""": "the host waited for each copy",
            """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        if n >= len(slots):
            stream.wait_event(events[n - len(slots)])
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
    return events
""": "it is the host that fills the slot",
            """
def feed(stream, batches, slots, there):
    return [stream.launch(there[n].copy_, batch) for n, batch in enumerate(batches)]
""": "not the slots",
            """
def feed(stream, batches, slots, there):
    for n, batch in enumerate(batches):
        there[n].copy_(batch)
    return []
""": "0 copies were launched",
            """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        if events:
            events[-1].result()
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
    return events
""": "the host waited for each copy",
        },
    ),
]
