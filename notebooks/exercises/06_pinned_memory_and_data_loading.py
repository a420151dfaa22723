"""Exercises of lesson 06."""

import contextlib
import warnings
from concurrent.futures import Future

import torch
from torch.utils.data import DataLoader, TensorDataset

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.operators import Operators
from exercises.doubles.streams import SpyStream

ORDER = [[5, 3, 8], [1, 2], [0, 39, 4, 7]]


def _added(samples):
    """A collate_fn: the sum of the samples of a batch."""
    return sum(int(x) for (x,) in samples)


def _given_loaders():
    dataset = TensorDataset(torch.arange(40))
    yield "shuffled, 16 in a batch", DataLoader(dataset, batch_size=16, shuffle=True)
    yield "with an order of its own", DataLoader(dataset, batch_sampler=ORDER)
    options = {"batch_size": 7, "drop_last": True, "collate_fn": _added}
    yield "with a collate_fn", DataLoader(dataset, sampler=range(39, -1, -1), **options)


def check_with_workers(answer):
    for what, given in _given_loaders():
        for workers, name in ((0, "cpu"), (2, "cuda"), (1, "cuda:1"), (1, "cpu")):
            _check_loader(answer, what, given, workers, name)
    for workers, name in ((2, "mps"), (1, "xpu"), (0, "cuda")):
        _check_loader(answer, what, given, workers, name)


def _check_loader(answer, what, given, workers, name):
    device = torch.device(name)
    shown = f"a loader {what}, workers={workers}, device={device}"
    # of more workers than cores; none of them is started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = call(answer, given, workers, device, shown=shown)
    expect.instance(loader, DataLoader, shown, "a DataLoader")
    expect.no_slip(_batch_slips(loader, given, shown))
    expect.no_slip(_option_slips(loader, given, workers, device, shown))


def _batch_slips(loader, given, shown):
    yield (
        loader.dataset is not given.dataset,
        "the new loader must load from `loader.dataset` itself",
    )
    yield loader.batch_sampler is None, f"for {shown} yours makes no batches"
    epochs, expected = _epochs(loader), _epochs(given)
    if expected[0] == expected[1]:
        mine, theirs = epochs[0][:3], expected[0][:3]
        yield (
            epochs != expected,
            f"for {shown} your first batches have the samples {mine}, expected"
            f" {theirs}: loader.batch_sampler deals them out",
        )
    yield (
        epochs[0] == epochs[1] and expected[0] != expected[1],
        "the given loader shuffles anew in each epoch; yours has the same batches in"
        " each",
    )
    sizes, asked = ([len(x) for x in found[0]] for found in (epochs, expected))
    yield sizes != asked, f"for {shown} your batches have {sizes} samples, not {asked}"
    samples = [given.dataset[0], given.dataset[39]]
    mine, theirs = (repr(one.collate_fn(samples)) for one in (loader, given))
    yield (
        mine != theirs,
        f"for {shown} a batch of the samples 0 and 39 is {mine}, not {theirs}:"
        " loader.collate_fn says how it is put together",
    )


def _epochs(loader):
    """The numbers of the samples in the batches of two epochs."""
    return [[[int(n) for n in x] for x in loader.batch_sampler] for _ in range(2)]


def _option_slips(loader, given, workers, device, shown):
    yield (
        given.num_workers or given.pin_memory,
        "you changed the loader that you were given: make a new one",
    )
    yield (
        loader.num_workers != workers,
        f"for {shown} yours has num_workers={loader.num_workers}",
    )
    yield (
        workers and not loader.persistent_workers,
        f"for {shown} the workers do not stay alive: each epoch starts new ones",
    )
    does = "pins" if loader.pin_memory else "does not pin"
    yield (
        loader.pin_memory != (device.type == "cuda"),
        f"for {shown} yours {does} its batches: pin for CUDA devices (cuda, cuda:1, …),"
        " and for no others",
    )


EPOCH_CASES = (  # load, step, workers, batches
    (30, 20, 1, 4),
    (30, 20, 2, 4),
    (30, 20, 2, 5),
    (100, 20, 4, 8),
    (100, 20, 4, 9),
    (100, 20, 4, 2),
    (60, 20, 3, 9),
    (40, 30, 1, 1),
    (5, 20, 2, 7),
    (0, 12.5, 1, 6),
    (90.5, 0, 3, 10),
)


def check_epoch_time(answer):
    for case in EPOCH_CASES:
        load, step, workers, batches = case
        shown = f"load {load} ms, step {step} ms, {workers} workers, {batches} batches"
        got = expect.number(call(answer, *case, shown=shown), shown)
        ready = [load * (b // workers + 1) for b in range(batches)]
        expected = max(at + (batches - b) * step for b, at in enumerate(ready))
        pace = max(load / workers, step)
        slips = [
            (ready[-1] + step, "a batch waits until the one before is done"),
            (batches * pace, "nobody works before the first batch is loaded"),
            (load + batches * step, "the device waits for later batches, too"),
            (
                load + (batches - 1) * pace + step,
                "workers begin together, so their batches come together, not evenly",
            ),
        ]
        slips = [(value, why) for value, why in slips if value != expected]
        why = "the device takes a batch when it is loaded and the one before is done"
        expect.close(got, expected, shown, why, slips)


def _sent_by(operators):
    """How many copies went from the CPU to another device, and which devices were named
    until the first one.
    """
    count, named = 0, set()
    for name, args, kwargs, _ in operators.ran:
        device = str(kwargs.get("device"))
        # what is made from a tensor on meta names no index: there is none
        if not count:
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
        expect.no_slip(_sent_slips(got, tensors, "meta", shown))
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
        expect.no_slip(_sent_slips(there, tensors, "cpu", shown))
        for n, (mine, x) in enumerate(zip(there, tensors, strict=True)):
            if not torch.equal(mine, x):
                raise Wrong(
                    f"{shown}: entry {n} should hold {x.tolist()}, it holds"
                    f" {mine.tolist()}: whose numbers are they?"
                )


def _sent_slips(got, tensors, device, shown):
    asked = f"a list of {len(tensors)} tensors"
    expect.instance(got, (list, tuple), shown, asked)
    yield (
        len(got) != len(tensors),
        f"for {shown} you returned {len(got)} things, expected {asked}",
    )
    for n, (mine, x) in enumerate(zip(got, tensors, strict=True)):
        entry = f"{shown}: entry {n}"
        expect.instance(mine, torch.Tensor, entry, "a tensor")
        yield (
            mine.device.type != device,
            f"{entry} should be on {device}, it is on {mine.device}",
        )
        yield mine.dtype != x.dtype, f"{entry} left as {x.dtype}, came as {mine.dtype}"
        yield (
            mine.shape != x.shape,
            f"{entry} should have the shape {tuple(x.shape)}, it has"
            f" {tuple(mine.shape)}",
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

    stream = SpyStream(hold, around=goes_on)
    sums = here.sum().item(), 9 * sent.numel(), sent.sum().item()
    shown = f"a copy of {sent.tolist()}"
    got = call(answer, stream, there, here, shown=shown, changes=[there, here])
    finished = bool(stream.events) and all(map(Future.done, stream.events))
    _end(stream)
    expect.number(got, shown, "a Python number: .item()")
    expect.no_slip(_fetch_slips(stream, got, finished, shown, sent, here, *sums))
    return bool(stream.held)


def _end(stream):
    """Let everything run on the stream. Wrong if something raises."""
    stream.end()
    if stream.error is not None:
        raise Wrong(f"what you launched on the stream raised {stream.error!r}")


def _fetch_slips(stream, got, finished, shown, sent, here, early, late, expected):
    returned = f"for {shown} you returned {got}"
    yield (
        not stream.events,
        "nothing was launched on the stream: launch the copy there",
    )
    copied = sum(Future.result(event) is here for event in stream.events)
    yield (
        copied > 1,
        f"for {shown} the copy into `here` was launched {copied} times: once is asked",
    )
    yield (
        not finished and got == expected,
        f"for {shown} the number is right, but not from the copy, which was not done:"
        " wait, and read `here`",
    )
    yield (
        not finished and stream.told,
        "you made the stream wait; it is the host that reads `here`: event.result()",
    )
    yield (
        not finished and stream.hold > 1,
        f"when the copy took {stream.hold} s you returned {got}: wait for the copy's"
        " event, guess no times",
    )
    yield (
        not finished,
        f"{returned}: that was in `here` before the copy, which ended later",
    )
    yield (
        not torch.equal(here, sent),
        f"for {shown} `here` holds {here.tolist()}: the copy goes from `there` into"
        " `here`",
    )
    yield (
        got == late,
        f"{returned}: that is `there`, where the device has gone on. Read `here`",
    )
    why = ": read `here` after the wait, not before" if got == early else ""
    yield got != expected, f"{returned}, expected {expected}{why}"


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

    stream = SpyStream(1, filled, batch_gone)
    shown = f"{len(batches)} batches and two slots"
    events = call(
        answer, stream, batches, slots, there, shown=shown, changes=[*slots, *there]
    )
    _end(stream)
    expect.no_slip(_arrival_slips(there, given, stream))
    expect.no_slip(_slot_slips(slots, given, late, stream.pending))
    copies = list(map(id, stream.events))
    if not isinstance(events, (list, tuple)) or list(map(id, events)) != copies:
        raise Wrong(
            f"everything arrived; return the list of the {len(batches)} events, in the"
            " order of the batches"
        )


def _arrival_slips(there, given, stream):
    yield (
        len(stream.events) != len(given),
        f"{len(stream.events)} operations were launched on the stream for"
        f" {len(given)} batches: one copy for each is asked",
    )
    for n, got in enumerate(there):
        yield (got == -3).any(), f"the copy of batch {n} took the batch itself: {MUST}"
        yield (
            (got == -2).any(),
            f"nothing arrived in there[{n}]: is it what that copy writes into? (A"
            " lambda looks n up late)",
        )
    for n, got in enumerate(there):
        wrong = not torch.equal(got, given[n])
        arrived = f"batch {n} is {given[n].tolist()}, but {got.tolist()} arrived"
        yield (
            wrong and stream.told,
            "you made the stream wait; it is the host that fills the slot:"
            " event.result()",
        )
        yield (
            wrong and any(torch.equal(got, batch) for batch in given[n:]),
            f"{arrived}: its slot was refilled before its copy was done",
        )
        yield (
            wrong,
            f"{arrived}: before the launch, fill the slot with the batch,"
            " slot.copy_(batch)",
        )


def _slot_slips(slots, given, late, pending):
    for n in late:
        yield (
            True,
            f"right numbers, but when copy {n} was launched no slot held batch {n}:"
            f" {MUST}",
        )
    in_slots = sorted(slot.tolist() for slot in slots if slot[0] >= 0)
    yield (
        max(pending) > 1 or in_slots != [batch.tolist() for batch in given[-2:]],
        "everything arrived, but not through the slots in turn: fill a slot, and copy"
        " from there",
    )
    for n, count in enumerate(pending[1:], 1):
        free = f". That slot was free when the copy of batch {n - 2} was done"
        yield (
            not count,
            f"right numbers, but the host waited for the copy of batch {n - 1} before"
            f" it filled the slot for batch {n}: nothing overlaps there"
            f"{free if n > 1 else ''}",
        )


EXERCISES = [
    Exercise(
        number="06.0",
        title="The same batches, from workers",
        name="with_workers",
        stars=1,
        check=check_with_workers,
        hints=[
            (
                "Make a new DataLoader. Three options say what the batches are, three"
                " how they come: those are the recipe's."
            ),
            (
                "DataLoader(loader.dataset, batch_sampler=loader.batch_sampler,"
                " collate_fn=loader.collate_fn, …): batch_size and shuffle are in the"
                " batch_sampler."
            ),
            (
                "persistent_workers=workers > 0, as it is an error without workers, and"
                ' pin_memory=device.type == "cuda".'
            ),
        ],
        solution="""
from torch.utils.data import DataLoader

def with_workers(loader, workers, device):
    return DataLoader(
        loader.dataset,
        batch_sampler=loader.batch_sampler,
        collate_fn=loader.collate_fn,
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
        title="How long is an epoch?",
        name="epoch_time",
        stars=2,
        check=check_epoch_time,
        hints=[
            "When is batch b loaded? Its worker has loaded b // workers before it.",
            (
                "The device begins with a batch when it is loaded and the one before is"
                " done. Go through the batches in order."
            ),
            (
                "done = 0; for each b: done = max(done, load * (b // workers + 1)) +"
                " step."
            ),
        ],
        solution="""
def epoch_time(load, step, workers, batches):
    done = 0
    for b in range(batches):
        ready = load * (b // workers + 1)
        done = max(done, ready) + step
    return done
""",
        praise=(
            "An epoch of few batches is mostly beginning and end: there a forecast from"
            " the pace alone is far too short."
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
