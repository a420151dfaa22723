"""Exercises of lesson 06."""

import contextlib
import functools
import threading
import warnings
from concurrent.futures import Future

import torch
from torch.utils.data import DataLoader, TensorDataset

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from course.operators import Operators
from simulate.toy import ToyStream


def check_make_loader(answer):
    for workers, name in (
        (0, "cpu"),
        (2, "cuda"),
        (1, "cuda:1"),
        (1, "cpu"),
        (2, "mps"),
        (1, "xpu"),
    ):
        _check_loader(answer, workers, torch.device(name))


def _check_loader(answer, workers, device):
    dataset = TensorDataset(torch.arange(40))
    shown = f"workers={workers}, device={device}"
    # of more workers than cores; none of them is started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = call(answer, dataset, workers, device, shown=shown)
    if not isinstance(loader, DataLoader):
        raise Wrong(
            f"for {shown} you returned a thing of type {type(loader).__name__},"
            " expected a DataLoader"
        )
    if loader.dataset is not dataset:
        raise Wrong("the loader must load from `dataset` itself")
    if len(loader) != 3 or loader.batch_sampler is None:
        raise Wrong(
            "40 samples in batches of 16 are 3 batches (16, 16, 8), your loader has"
            f" {len(loader)}"
        )
    first, second = (
        [int(n) for batch in loader.batch_sampler for n in batch] for _ in range(2)
    )
    if first == second:
        raise Wrong("the batches are not shuffled: in each epoch they are the same")
    missing = sorted({*range(40)} - {*first} | {*range(40)} - {*second})
    if missing:
        raise Wrong(
            "in an epoch each sample must come once: in one of yours sample"
            f" {missing[0]} never came"
        )
    if loader.num_workers != workers:
        raise Wrong(f"for {shown} the loader has num_workers={loader.num_workers}")
    if workers and not loader.persistent_workers:
        raise Wrong(
            f"for {shown} the workers do not stay alive: each epoch starts new ones"
        )
    if loader.pin_memory != (device.type == "cuda"):
        does = "pins" if loader.pin_memory else "does not pin"
        raise Wrong(
            f"for {shown} the loader {does} its batches: pin for CUDA devices (cuda,"
            " cuda:1, …), and for no others"
        )
    if workers:
        return
    try:
        sizes = [len(batch) for (batch,) in loader]
    except Exception as error:
        line = str(error).partition("\n")[0]
        raise Wrong(
            f"for {shown} the loader raised {type(error).__name__}: {line}"
        ) from error
    if sizes != [16, 16, 8]:
        raise Wrong(
            f"40 samples in batches of 16 are 16, 16 and 8; your loader gives {sizes}"
        )


def _whole_number(got, shown):
    if isinstance(got, bool) or not isinstance(got, int):
        raise Wrong(
            f"for {shown} you returned {got!r}, expected a whole number, an int"
        )
    if abs(got) > 10**15:
        raise Wrong(
            f"for {shown} you returned a number of {got.bit_length()} bits: far too"
            " many"
        )
    return got


def check_workers_needed(answer):
    for load, copy, compute, overlapped in (
        (30, 10, 20, True),
        (30, 10, 20, False),
        (100, 10, 20, True),
        (100, 5, 20, False),
        (3, 10, 20, True),
        (60, 10, 20, True),
        (61, 10, 20, True),
        (60, 10, 20, False),
        (59, 10, 20, True),
        (0, 10, 20, True),
        (12.5, 4.5, 4.5, False),
        (12.5, 4.5, 4.5, True),
        (10.5, 1, 3.5, True),
        (20.01, 10, 20, True),
        (630, 10, 20, True),
    ):
        shown = (
            f"load {load} ms, copy {copy} ms, compute {compute} ms, overlapped"
            f" {overlapped}"
        )
        got = call(answer, load, copy, compute, overlapped, shown=shown)
        _whole_number(got, shown)
        step = compute if overlapped else copy + compute
        expected = max(1, int(-(-load // step)))
        if got == expected:
            continue
        if got < 1:
            raise Wrong(f"for {shown} you returned {got}: at least one worker is asked")
        if got < expected:
            why = (
                f"{got} would load a batch every {load / got:.5g} ms, the device takes"
                f" one every {step} ms"
            )
        else:
            they = "one worker loads" if expected == 1 else f"{expected} load"
            why = (
                f"{they} a batch every {load / expected:.5g} ms, enough for one every"
                f" {step} ms"
            )
        raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


def _sent_by(operators):
    """How many copies went from the CPU to another device, and which devices were named
    until the first one.
    """
    count, named = 0, set()
    for name, args, kwargs, _ in operators.ran:
        device = str(kwargs.get("device"))
        if (
            not count
        ):  # what is made from a tensor on meta names no index: there is none
            named.add(device)
        if name == "_to_copy" and device not in ("None", "cpu"):
            count += args[0].device.type == "cpu"
        if name == "copy_" and args[0].device.type != "cpu":
            count += args[1].device.type == "cpu"
    return count, named


SMALL = {
    "four shapes": [
        torch.arange(6.0).reshape(2, 3),
        torch.tensor(7.0),
        torch.arange(4.0) + 10,
        torch.ones(1, 2, 2),
    ],
    "not contiguous": [
        torch.arange(12).reshape(3, 4).T,
        torch.arange(8)[::2],
        torch.tensor(2**40 + 1),
    ],
    "one of them empty": [
        x.bfloat16() for x in (torch.ones(2), torch.ones(0, 3), torch.full((1, 3), 0.1))
    ],
    "one tensor": [torch.tensor([True, False, True])],
}


def check_send_packed(answer):
    for what, tensors in SMALL.items():
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors)
        shown = f"{what} ({shapes} of {tensors[0].dtype})"
        meta, cpu = torch.device("meta:1"), torch.device("cpu")
        with Operators() as operators:
            got = call(answer, tensors, meta, shown=f"{shown}, sent to meta")
        _check_sent(got, tensors, "meta", shown)
        count, named = _sent_by(operators)
        if count != 1:
            raise Wrong(
                f"{shown}: right shapes, but {count} copies to the device for"
                f" {len(tensors)} tensors: one is asked"
            )
        if "meta" in named:
            raise Wrong(
                "`device` was meta:1, you sent to meta: with GPUs, that is another one."
                " Use `device` as it is"
            )
        there = call(answer, tensors, cpu, shown=f"{shown}, sent to cpu")
        _check_sent(there, tensors, "cpu", shown)
        for n, (mine, x) in enumerate(zip(there, tensors, strict=True)):
            if not torch.equal(mine, x):
                raise Wrong(
                    f"{shown}: entry {n} should hold {x.tolist()}, it holds"
                    f" {mine.tolist()}: whose numbers are they?"
                )


def _check_sent(got, tensors, device, shown):
    if not isinstance(got, (list, tuple)) or len(got) != len(tensors):
        kind = type(got).__name__
        if isinstance(got, (list, tuple)):
            kind = f"{len(got)} things"
        raise Wrong(
            f"for {shown} you returned {kind}, expected a list of {len(tensors)}"
            " tensors"
        )
    for n, (mine, x) in enumerate(zip(got, tensors, strict=True)):
        entry = f"{shown}: entry {n}"
        if not isinstance(mine, torch.Tensor):
            raise Wrong(f"{entry} should be a tensor, it is {mine!r}")
        if mine.device.type != device:
            raise Wrong(f"{entry} should be on {device}, it is on {mine.device}")
        if mine.dtype != x.dtype:
            raise Wrong(f"{entry} left as {x.dtype} and came as {mine.dtype}")
        if mine.shape != x.shape:
            raise Wrong(
                f"{entry} should have the shape {tuple(x.shape)}, it has"
                f" {tuple(mine.shape)}"
            )


class HeldEvent(Future):
    """The event of a copy that stays in its queue until the host waits for it. Has the
    methods of both kinds of events: result and done, as in the toy, synchronize and
    query, as in CUDA.
    """

    asked = 0

    def result(self, timeout=10):
        # less is no wait for the copy, but a guess at its time
        if timeout is None or timeout >= 1:
            self.let_go()
        return super().result(timeout)

    def done(self):
        self.asked += 1
        if self.asked > 1:  # asking again and again is a wait
            self.let_go()
        return super().done()

    synchronize, query = result, done


class HeldStream(ToyStream):
    """A toy stream whose work does not run before the host waits for it: too early is
    then too early on any machine.

    hold: seconds after which it runs nevertheless. at_launch, around: called with the
    number of an operation when it is launched, and for a context to run it in. pending:
    how many copies were under way at each launch. waited: whether the host has waited;
    told: whether only the stream was told to.
    """

    def __init__(self, hold, at_launch=int, around=contextlib.nullcontext):
        super().__init__()
        self.hold, self.at_launch, self.around = hold, at_launch, around
        self.host = threading.get_ident()
        self.copies, self.gates, self.pending = [], [], []
        self.waited = self.told = False

    def launch(self, fn, *args):
        self.pending.append(sum(not Future.done(event) for event in self.copies))
        self.gates.append(threading.Event())
        self.at_launch(len(self.gates) - 1)
        event = super().launch(self._run, len(self.gates) - 1, fn, *args)
        event.__class__ = HeldEvent
        event.let_go = functools.partial(self.let_go, len(self.gates))
        self.copies.append(event)
        return event

    def _run(self, n, fn, *args):
        self.gates[n].wait(self.hold)
        with self.around(n):
            return fn(*args)

    def let_go(self, count):
        if threading.get_ident() == self.host:
            self.waited = True
            for gate in self.gates[:count]:
                gate.set()

    def wait_event(self, event):
        self.told = True

    def end(self):
        """Let everything run. An error in it is Wrong."""
        for gate in self.gates:
            gate.set()
        for event in self.copies:
            error = event.exception(5)
            if error is not None:
                raise Wrong(
                    f"what you launched on the stream raised {type(error).__name__}:"
                    f" {error}"
                )


def check_fetch_sum(answer):
    for sent in (torch.arange(5.0), torch.full((2, 3), 2.25), torch.tensor([3, 5, -1])):
        if not _fetch_sum(answer, sent, 0.1) and not _fetch_sum(answer, sent, 1.5):
            return  # it waits in a way of its own, and does so for a long copy, too


def _fetch_sum(answer, sent, hold):
    """Whether the answer waits for the copy in one of the ways that are known here.
    Wrong if it does not wait.
    """
    there, here = sent.clone(), torch.full_like(sent, -1)

    @contextlib.contextmanager
    def goes_on(n):
        yield
        there.fill_(9)  # the device uses its memory again

    stream = HeldStream(hold, around=goes_on)
    early, late, expected = here.sum().item(), 9 * sent.numel(), sent.sum().item()
    shown = f"a copy of {sent.tolist()}"
    got = call(answer, stream, there, here, shown=shown, changes=[there, here])
    finished = bool(stream.copies) and all(map(Future.done, stream.copies))
    stream.end()
    expect.number(got, shown, "a Python number: .item()")
    returned = f"for {shown} you returned {got}"
    if not stream.copies:
        raise Wrong("nothing was launched on the stream: launch the copy there")
    copied = sum(Future.result(event) is here for event in stream.copies)
    if copied > 1:
        raise Wrong(
            f"for {shown} the copy into `here` was launched {copied} times: once is"
            " asked"
        )
    if not finished and got == expected:
        raise Wrong(
            f"for {shown} the number is right, but not from the copy, which was not"
            " done: wait, and read `here`"
        )
    if not finished:
        raise Wrong(_why_too_early(stream, got, returned))
    if not torch.equal(here, sent):
        raise Wrong(
            f"for {shown} `here` holds {here.tolist()}: the copy goes from `there` into"
            " `here`"
        )
    if got == late:
        raise Wrong(
            f"{returned}: that is `there`, where the device has gone on. Read `here`"
        )
    if got == early:
        raise Wrong(
            f"{returned}, expected {expected}: read `here` after the wait, not before"
        )
    if got != expected:
        raise Wrong(f"{returned}, expected {expected}")
    return stream.waited


def _why_too_early(stream, got, returned):
    if stream.told:
        return (
            "you made the stream wait; it is the host that reads `here`: event.result()"
        )
    if stream.hold > 1:
        return (
            f"when the copy took {stream.hold} s you returned {got}: wait for the"
            " copy's event, guess no times"
        )
    return f"{returned}: that was in `here` before the copy, which ended later"


MUST = "the host must fill a slot with the batch, and the copy must come from there"


def check_feed(answer):
    for count in (6, 5, 1):
        _feed(answer, [torch.arange(4.0) + 10 * n for n in range(count)])


def _feed(answer, batches):
    slots = [torch.full((4,), -1.0) for _ in range(2)]
    there = [torch.full((4,), -2.0) for _ in batches]
    given, late = [batch.clone() for batch in batches], []

    def filled(n):  # at the launch of copy n, one of the slots must hold batch n
        if n < len(given) and not any(torch.equal(slot, given[n]) for slot in slots):
            late.append(n)

    @contextlib.contextmanager
    # while copy n runs, batch n is not there: what is copied comes from a slot
    def batch_gone(n):
        if n < len(given):
            batches[n].fill_(-3)
        yield
        if n < len(given):
            batches[n].copy_(given[n])

    stream = HeldStream(1, filled, batch_gone)
    shown = f"{len(batches)} batches and two slots"
    events = call(
        answer, stream, batches, slots, there, shown=shown, changes=[*slots, *there]
    )
    stream.end()
    if len(stream.copies) != len(batches):
        raise Wrong(
            f"{len(stream.copies)} operations were launched on the stream for"
            f" {len(batches)} batches: one copy for each is asked"
        )
    _check_arrived(there, given, stream)
    if late:
        raise Wrong(
            f"right numbers, but when copy {late[0]} was launched no slot held batch"
            f" {late[0]}: {MUST}"
        )
    if max(stream.pending) > 1:
        raise Wrong(
            f"right numbers, but {max(stream.pending)} copies were pending at a launch,"
            f" more than two slots allow: {MUST}"
        )
    in_slots = sorted(slot.tolist() for slot in slots if slot[0] >= 0)
    if in_slots != [batch.tolist() for batch in given[-2:]]:
        raise Wrong(
            "everything arrived, but not through the slots in turn: fill a slot, and"
            " copy from there"
        )
    _check_overlap(stream.pending)
    copies = list(map(id, stream.copies))
    if not isinstance(events, (list, tuple)) or list(map(id, events)) != copies:
        raise Wrong(
            f"everything arrived; return the list of the {len(batches)} events, in the"
            " order of the batches"
        )


def _check_arrived(there, given, stream):
    for n, got in enumerate(there):
        if (got == -3).any():
            raise Wrong(f"the copy of batch {n} took the batch itself: {MUST}")
        if (got == -2).any():
            raise Wrong(
                f"nothing arrived in there[{n}]: is it what that copy writes into? (A"
                " lambda looks n up late)"
            )
    for n, got in enumerate(there):
        if torch.equal(got, given[n]):
            continue
        arrived = f"batch {n} is {given[n].tolist()}, but {got.tolist()} arrived"
        if stream.told:
            raise Wrong(
                "you made the stream wait; it is the host that fills the slot:"
                " event.result()"
            )
        if any(torch.equal(got, batch) for batch in given[n:]):
            raise Wrong(f"{arrived}: its slot was refilled before its copy was done")
        raise Wrong(
            f"{arrived}: before the launch, fill the slot with the batch,"
            " slot.copy_(batch)"
        )


def _check_overlap(pending):
    if len(pending) > 1 and not pending[1]:
        raise Wrong(
            "right numbers, but the host waited for the first copy before it filled the"
            " second slot"
        )
    for n, count in enumerate(pending):
        if n > 1 and not count:
            raise Wrong(
                f"right numbers, but the host waited for the copy of batch {n - 1}"
                f" before it filled the slot for batch {n}: nothing overlaps there."
                f" That slot was free when the copy of batch {n - 2} was done"
            )


EXERCISES = [
    Exercise(
        number="06.0",
        title="A loader for this device",
        name="make_loader",
        stars=1,
        check=check_make_loader,
        hints=[
            ("All of it are options of DataLoader; the recipe has them."),
            (
                "batch_size, shuffle, num_workers, persistent_workers, pin_memory. Two"
                " of them depend on the parameters."
            ),
            (
                "persistent_workers=workers > 0, as it is an error without workers, and"
                ' pin_memory=device.type == "cuda".'
            ),
        ],
        solution="""
from torch.utils.data import DataLoader

def make_loader(dataset, workers, device):
    return DataLoader(
        dataset,
        batch_size=16,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )
""",
        praise=(
            "What stays alive also stays in memory: each worker keeps its copy of the"
            " dataset and two batches ahead until the loader is gone, loader = None."
        ),
    ),
    Exercise(
        number="06.1",
        title="Read after the copy",
        name="fetch_sum",
        stars=1,
        check=check_fetch_sum,
        hints=[
            "launch returns at once. What it returns knows when the copy is done.",
            (
                "event.result() makes the host wait for it (in CUDA"
                " event.synchronize(), which works here, too)."
            ),
            "Between launch and return: event.result(). Then here.sum().item().",
        ],
        solution="""
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    event.result()
    return here.sum().item()
""",
        praise=(
            "On a GPU: event = stream.record_event() after the copy, and"
            " event.synchronize() as late as you can, with other work in between."
        ),
    ),
    Exercise(
        number="06.2",
        title="How many workers feed the device?",
        name="workers_needed",
        stars=2,
        check=check_workers_needed,
        hints=[
            "How often does the device take a batch, with overlap and without?",
            (
                "W workers finish a batch every load / W. That must be at most the"
                " device's time for one."
            ),
            (
                "The smallest whole number that is at least load / step: math.ceil, and"
                " never less than 1."
            ),
        ],
        solution="""
import math


def workers_needed(load, copy, compute, overlapped):
    step = compute if overlapped else copy + compute
    return max(1, math.ceil(load / step))
""",
        praise=(
            "A forecast for the mean. Loading times vary, so take one more, and then"
            " believe the measured curve."
        ),
    ),
    Exercise(
        number="06.3",
        title="Many small tensors, one copy",
        name="send_packed",
        stars=2,
        check=check_send_packed,
        hints=[
            (
                "Make one long vector of all of them on the CPU, send it, and cut it up"
                " over there."
            ),
            (
                "torch.cat takes vectors: flatten each tensor first, for example with"
                " x.reshape(-1)."
            ),
            (
                "Over there: packed.split([x.numel() for x in tensors]), then"
                " part.view(x.shape) for each part."
            ),
        ],
        solution="""
def send_packed(tensors, device):
    packed = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    parts = packed.split([x.numel() for x in tensors])
    return [part.view(x.shape) for part, x in zip(parts, tensors)]
""",
        praise=(
            "The parts are views of one tensor: they cost nothing, and keep all of it"
            " alive as long as one of them lives."
        ),
    ),
    Exercise(
        number="06.4",
        title="Two buffers in turn",
        name="feed",
        stars=3,
        check=check_feed,
        hints=[
            (
                "Which earlier copy used the slot that you are about to fill? Batch n"
                " uses the slot of batch n - 2."
            ),
            (
                "Keep the events in a list. Before filling: if n >= len(slots), wait"
                " for events[n - len(slots)]."
            ),
            (
                "In the loop: wait if need be, slot.copy_(batch),"
                " events.append(stream.launch(there[n].copy_, slot))."
            ),
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
        praise=(
            "This is how the driver's staging buffer works, and how loaders that keep"
            " their own pinned buffers do."
        ),
    ),
]
