"""Exercises of lesson 04."""

import copy
import itertools
import math
import random
import weakref
from collections import Counter
from statistics import mean, median, median_high, median_low
from unittest import mock

import torch
import torch.nn.functional as F
from torch.utils.benchmark import Timer

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.clocks import LAUNCH, Clock, Matmuls, QueueDevice
from simulate.waits import CountWaits
from utils.timing import median_interval

MS = 1e-3


def check_timer_seconds(answer):
    before = torch.get_num_threads()
    try:
        for threads, number in ((3, 20), (1, 7)):
            _check_timer(answer, threads, number)
    finally:
        torch.set_num_threads(before)


def _check_timer(answer, threads, runs):
    shown = f"8 × 4 by 4 × 8, threads = {threads}, number = {runs}"
    a, b, matmuls, measured = torch.ones(8, 4), torch.ones(4, 8), Matmuls(), []
    timeit = Timer.timeit

    def noted(timer, number=1_000_000):
        if number != runs:
            raise Wrong(
                f"number = {runs}, and timeit was to make {number:,} runs (without a"
                " number a million): timeit(number)"
            )
        matmuls.done.clear()
        measured.append(timeit(timer, number))
        return measured[-1]

    with mock.patch.object(Timer, "timeit", noted), matmuls:
        got = call(answer, a, b, threads, runs, shown=shown)
    if not measured:
        raise Wrong(
            "a @ b was timed outside of Timer: let timeit(number) of"
            " torch.utils.benchmark.Timer do all of it"
        )
    if len(matmuls.done) < runs:
        raise Wrong("no matmul of a and b was timed")
    last = matmuls.done[-1]
    if last.shapes != ((8, 4), (4, 8)):
        shapes = last.shapes
        raise Wrong(f"the matmul of {shapes[0]} and {shapes[1]} was timed, not a @ b")
    if type(got).__name__ == "Measurement":
        raise Wrong(
            f"for {shown} you returned a Measurement, expected a number of seconds. It"
            " has a median"
        )
    expect.number(got, shown, "a number of seconds")
    if last.threads != threads:
        raise Wrong(
            f"threads = {threads}, and the matmuls ran with {last.threads}: Timer's"
            " default is one thread, whatever your program has. num_threads= changes it"
        )
    seconds = measured[-1].median
    expect.close(got, seconds, shown, "seconds of one matmul are asked")


RATE_CASES = (  # ms of the host and of the device for a batch, before it; its samples
    (4, 10, 30, (16, 16, 5)),
    (4, 10, 0, (8, 8, 8, 8, 3)),
    (9, 2, 500, (6, 2)),
    (1, 7, 45, (12,)),
)
IDLES = (
    "you waited after each batch, so the device idles while the host prepares the next"
    " one"
)


def _clock_read(clock):
    if not clock.readings:
        raise Wrong("you read some other clock: the time is what `clock()` returns")


def _in_other_units(seconds):
    return [(seconds * unit, "seconds are asked") for unit in (1e3, 1e6, 1e9)]


def check_samples_per_second(answer):
    for case in RATE_CASES:
        _check_rate(answer, *case)


def _check_rate(answer, host, ms, before, sizes):
    batches, stepped = [torch.zeros(n, 3) for n in sizes], []
    clock, device, step = _loop_of(host, ms, before, stepped)
    shown = f"batches of {', '.join(map(str, sizes))} samples"
    shown += f", with {before} ms of work in the queue"
    given = list(batches)
    got = call(answer, step, given, device.wait, clock, shown=shown)
    expect.number(got, shown, "a number")
    if sorted(map(id, stepped)) != sorted(map(id, batches)):
        raise Wrong(
            f"for {shown} `step` ran {len(stepped)} times: call it once for each of the"
            f" {len(batches)} batches, step(x)"
        )
    _clock_read(clock)
    seconds = _loop_seconds(host, ms, before, len(sizes))
    why = "all samples, divided by the time from one wait to the other"
    slips = _rate_slips(host, ms, before, sizes, seconds)
    expect.close(got, sum(sizes) / seconds, shown, why, slips)


def _loop_of(host, ms, before, stepped):
    clock = Clock()
    device = QueueDevice(clock, itertools.repeat(ms * MS), before * MS)

    def step(x):
        stepped.append(x)
        clock.now += host * MS
        device.run()

    return clock, device, step


def _loop_seconds(host, ms, before, count, first=True, each=False, last=True):
    """Seconds of the loop with the waits that are named, and no others."""
    clock, device, step = _loop_of(host, ms, before, [])
    if first:
        device.wait()
    start = clock()
    for _ in range(count):
        step(None)
        if each:
            device.wait()
    if last:
        device.wait()
    return clock() - start


def _rate_slips(host, ms, before, sizes, seconds):
    """(number, sentence) of what people return in place of the rate."""
    count, samples, rate = len(sizes), sum(sizes), sum(sizes) / seconds
    case = host, ms, before, count
    early = "wait for the device before you read the clock the second time"
    old = "somebody else's work is in the time. Wait before you read the clock first"
    yield samples / _loop_seconds(*case, last=False), early
    yield samples / _loop_seconds(*case, first=False, last=False), early
    if count > 1:
        yield samples / _loop_seconds(*case, each=True), IDLES
        yield count * sizes[0] / seconds, "the last batch is smaller: add up len(x)"
    for each in (False, True):
        yield samples / _loop_seconds(*case, first=False, each=each), old
    yield count / seconds, "those are batches per second"
    yield seconds, "those are the seconds. Divide the samples by them"
    yield seconds / samples, "that is seconds per sample, the other way round"
    yield -rate, "the second reading of the clock minus the first"
    yield rate / 1e3, "samples per second are asked, not per millisecond"


def _close_ms(got, expected, shown, why, slips):
    """expect.close of seconds, shown as milliseconds."""
    slips = [(number * 1e3, text) for number, text in slips]
    said = {"said": "you measured", "unit": " ms"}
    expect.close(got * 1e3, expected * 1e3, shown, why, slips, **said)


class _SlowingDown:
    """A machine on which each run takes a little longer than the one before, and the
    first one of each function 500 ms; some are disturbed. log: (name, seconds)
    """

    def __init__(self, versions, ms):
        self.versions, self.ms, self.log = versions, ms, []
        self.chance = random.Random(740)

    def seconds(self, fn):
        name = next((x for x, known in self.versions.items() if known is fn), None)
        if name is None:
            raise Wrong(
                "seconds got something else than a function of versions: seconds(fn),"
                " without calling fn"
            )
        ms = self.ms[name] * (1 + 0.02 * len(self.log))
        if self.chance.random() < 0.25:
            ms += 40 * self.chance.uniform(0.9, 1.1)
        if all(name != before for before, _ in self.log):
            ms = 500
        self.log.append((name, ms * MS))
        return ms * MS

    def of(self, name):
        return [seconds for known, seconds in self.log if known == name]


def check_in_turns(answer):
    cases = ({"old": 2.0, "new": 1.9}, {"x": 1.0, "y": 1.0, "z": 3.0}, {"only": 2.0})
    for ms in cases:
        for n in (None, 3, 5, 1):
            _check_turns(answer, ms, n)


def _check_turns(answer, ms, n):
    versions = {name: lambda: None for name in ms}
    machine, runs = _SlowingDown(versions, ms), n or 9
    shown = f"versions named {list(ms)}" + (f", n = {n}" if n else "")
    given = [versions, machine.seconds, *([n] if n else [])]
    got = call(answer, *given, shown=shown)
    asked = f"a dict with the names {list(ms)}"
    expect.instance(got, dict, shown, asked)
    expect.equal(sorted(map(str, got)), sorted(ms), shown, asked, "you named")
    for name in ms:
        expect.number(got[name], f"{name!r}", "a number of seconds")
        if len(machine.of(name)) < runs + 1:
            raise Wrong(
                f"{name!r} ran {len(machine.of(name))} times; n = {runs} runs are to be"
                " counted, and the first one is not"
            )
    _check_order(machine, runs)
    for name in ms:
        samples = machine.of(name)
        why = f"the median of the last {runs} runs of {name!r}"
        slips = _median_slips(samples, runs)
        _close_ms(got[name], median(samples[-runs:]), shown, why, slips)


def _check_order(machine, n):
    """Wrong unless in each of the last n rounds each version ran once."""
    names, width = [name for name, _ in machine.log], len(machine.versions)
    counted = names[-n * width :]
    for start in range(0, len(counted), width):
        if len({*counted[start : start + width]}) < width:
            raise Wrong(
                f"the order was {' '.join(names[:8])} …: what comes later meets a"
                " slower machine. Let the versions take turns, once each in a round"
            )


NOT_FIRST = "the first run (500 ms) is in it: leave the first round out"


def _median_slips(samples, n):
    """What people return in place of the median of the last n samples."""
    counted = samples[-n:]
    slips = _in_other_units(median(counted))
    slips += [(median(x), NOT_FIRST) for x in (samples, samples[:n])]
    slips += [(mean(samples), NOT_FIRST)]
    if n == 1:
        return slips
    averaged = "that is a mean, and one run of 40 ms decides it. Take the median"
    return slips + [
        (mean(counted), averaged),
        (sum(counted), "that is a sum"),
        (min(counted), "that is the fastest run. Take the median"),
        (max(counted), "that is the slowest run. Take the median"),
    ]


STEADY = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]


def _plus(samples, more):
    return [x + more for x in samples]


def _wide(scale):
    """400 samples whose median has a narrow interval."""
    samples = [0.5 + k / 400 for k in range(140)]
    samples += [1 + k / 1e5 for k in range(120)]
    samples += [1.2 + k / 100 for k in range(140)]
    return [scale * x for x in samples]


def _faster_cases():
    """(a, b, whether a is faster, why); where it is not, nobody can tell."""
    slower, many = _plus(STEADY, 0.5), [1 + k / 100 for k in range(20)]
    six = [[x / 1e6 for x in samples[:6]] for samples in (STEADY, slower)]
    few = "with fewer than six samples on either side, nobody can tell"
    alike = "samples that are all alike have an interval without width"
    left = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.15]
    right = [1.12, 1.22, 1.23, 1.24, 1.25, 1.26, 1.27]
    touches = [STEADY[-1], *_plus(STEADY[1:-1], 0.07), 2.0]
    yield STEADY, slower, True, "all of one lies below all of the other"
    why = "these are the same samples in another order"
    yield STEADY, STEADY[::-1], False, why
    why = "the medians differ, but the intervals of the medians overlap"
    yield STEADY, _plus(STEADY, 0.001), False, why
    why = "two outliers move the mean, but not the interval of the median"
    yield [*many[:-2], 9.0, 9.0], _plus(many, 0.5), True, why
    for a, b in (STEADY[:2], slower[:2]), (STEADY, slower[:5]), ([], slower), ([], []):
        yield a, b, False, few
    yield *six, True, "six samples are enough, and they lie apart"
    yield [1.0] * 7, [1.0] * 9, False, alike
    yield [1.0] * 7, [1.1] * 9, True, alike
    why = (
        "the medians are 20 % apart, but the intervals, here all seven samples, overlap"
    )
    yield left, right, False, why
    yield STEADY, touches, False, "the intervals share the value 1.07"
    why = (
        "the medians are only 2 % apart, but with 400 samples the intervals are narrow"
    )
    yield _wide(1), _wide(1.02), True, why
    mixed = random.Random(0)
    for n in (8, 11, 20, 30, 50, 101):
        a = mixed.sample(range(n), n)
        low, high = median_interval(a)
        for gap in (0.5, -0.5):
            b = mixed.sample(_plus(a, high - low + gap), n)
            why = f"one interval ends at {high}, the other begins at {high + gap}"
            yield a, b, gap > 0, why


def check_faster(answer):
    for a, b, a_faster, why in _faster_cases():
        for x, y, faster in ((a, b, "a"), (b, a, "b")):
            shown = f"a = {_short(x)}, b = {_short(y)}"
            got = call(answer, x, y, shown=shown)
            expected = faster if a_faster else "cannot tell"
            expect.equal(got, expected, shown, why, "you said")


def _short(samples):
    texts = [f"{x:g}" for x in samples[:6]]
    if len(samples) > 6:
        texts.append(f"… {len(samples)} samples")
    return f"[{', '.join(texts)}]"


def _note_graphs(model):
    """A list that grows at each call of the model by the number of graphs of earlier
    calls that are still there.
    """
    alive, counts = weakref.WeakSet(), []

    class Mark:
        pass

    def note(model, args, output):
        counts.append(len(alive))
        # lives as long as the node of the graph that it is in
        output.grad_fn.metadata["mark"] = mark = Mark()
        alive.add(mark)

    model.register_forward_hook(note)
    return counts


def check_train(answer):
    _check_train(answer, 5, "five batches", {"lr": 0.3, "momentum": 0.5})
    _check_train(answer, 1, "a list of one batch", {"lr": 0.1})


def _check_train(answer, count, many, options):
    random = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(count):
        x = torch.randn(8, 4, generator=random)
        batches.append((x, torch.randint(3, (8,), generator=random)))
    model = torch.nn.Linear(4, 3)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=random))
    twin, graphs = copy.deepcopy(model), _note_graphs(model)
    untrained = [F.cross_entropy(twin(x), y).item() for x, y in batches]
    expected = _losses(twin, batches, options)
    watched = CountWaits(numpy_raises=False)
    optimizer = torch.optim.SGD(model.parameters(), **options)
    with watched:
        given = model, optimizer, batches
        got = call(answer, *given, shown=many, changes=[model])
    asked = f"a list of {count} losses, as Python numbers"
    got = expect.numbers(got, count, many, asked)
    for losses, why in _train_slips(got, expected, untrained):
        if not _all_close(losses, expected[: len(losses)]):
            mine, theirs = ([round(x, 4) for x in values] for values in (got, expected))
            raise Wrong(f"for {many} the losses are {mine}, expected {theirs}: {why}")
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        if not torch.allclose(p, q, atol=1e-5):
            raise Wrong("right losses, but the weights differ after the last step")
    _one_wait(watched, many)
    if max(graphs) > 1:
        raise Wrong(
            "right losses and one wait, but the graph of every step is still there:"
            " keep loss.detach()"
        )


def _train_slips(got, expected, untrained):
    """Losses that are to be the expected ones, and why they are not."""
    yield (
        got[:1],
        ("the first is wrong already. F.cross_entropy(model(x), y), before the step"),
    )
    why = (
        "in each step zero_grad, backward, step of the given optimizer, and nothing"
        " else"
    )
    if _all_close(got, untrained):
        why = f"that is the model without any training; {why}"
    yield got, why


def _one_wait(watched, many):
    waits = [name for name in watched.names if name != "synchronize"]
    synchronized = watched.count - len(waits)
    # a copy that waits for nothing, and one synchronize: that is the wait
    late = not waits and watched.late == 1
    names = ", ".join(f"{n} × {name}" for name, n in Counter(waits).items())
    expect.no_slip(
        [
            (
                "numpy" in waits,
                "right losses here, but numpy() raises for a tensor on a GPU: fetch it"
                " first, or take tolist()",
            ),
            (
                late and not synchronized,
                "right losses here, but on a GPU they are read before that copy is"
                " done: call synchronize in between",
            ),
            (
                len(waits) != 1 and not late,
                f"right losses, but {len(waits)} waits for {many} ({names}): keep them"
                " on the device, stack them, fetch once",
            ),
            (
                synchronized > 1 + late,
                f"right losses, but {synchronized} calls of synchronize, and each is a"
                " wait: leave them out",
            ),
        ]
    )


def _all_close(got, expected):
    return all(
        math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6)
        for a, b in zip(got, expected, strict=True)
    )


def _losses(model, batches, options):
    optimizer, losses = torch.optim.SGD(model.parameters(), **options), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _matmul_times(kind, sizes):
    """Seconds of the matmuls on a device: 60 ms for the first, 9 to 4 for most, half of
    that on the CPU. No two are alike, they fall at first, so that a run more or less
    shows, and each time in another order, so that no run is the median every time.
    """
    chance, scale = random.Random(f"{kind} {sizes}"), MS if kind == "meta" else MS / 2
    for ms in (60, 9, 7.5, 7, 6.75):
        yield ms * scale
    ranges = [(24, 25), (4, 4.5), (4, 4.5), (4, 4.5), (1, 1.1)]
    while True:
        for low, high in chance.sample(ranges, 5):
            yield chance.uniform(low, high) * scale


def check_product_seconds(answer):
    places = {"slow": torch.device("meta"), "cpu": torch.device("cpu")}
    _check_products(answer, (40, 30, 20), places)
    _check_products(answer, (3, 5, 2), {"other": "meta"})


def _check_products(answer, sizes, places):
    m, k, n = sizes
    clock = Clock()
    devices = {
        kind: QueueDevice(clock, _matmul_times(kind, sizes)) for kind in ("cpu", "meta")
    }

    def at_matmul(kind):
        devices[kind].run()
        if kind == "cpu":
            devices[kind].wait()

    def at_creation(kind):  # what was timed before has ended
        clock.just_read = False

    matmuls = Matmuls(at_matmul, at_creation)
    waits = {"meta": devices["meta"].wait, "cpu": lambda: None}
    given = {name: (place, waits[str(place)]) for name, place in places.items()}
    shown = f"m = {m}, k = {k}, n = {n}, devices named {list(given)}"
    with clock.in_place_of_time(answer), matmuls:
        got = call(answer, m, k, n, given, shown=shown)
    if not isinstance(got, dict) or set(got) != set(given):
        raise Wrong(f"expected a dict with the names {list(given)}, got {got!r}")
    for name, place in places.items():
        expect.number(got[name], f"{name!r}", "a number of seconds")
        _check_matrices(name, str(place), sizes, matmuls)
    if matmuls.moves:
        raise Wrong(
            f"{matmuls.moves} moves to another device: create the matrices there, with"
            " device="
        )
    if len(matmuls.created) > 3 * len(given):
        raise Wrong(
            f"{len(matmuls.created)} matrices were created for {len(given)} devices: "
            "create a and b once for each, outside of the timed loop"
        )
    if not clock.readings:
        raise Wrong("no clock was read: call time.perf_counter() in your function")
    for name, place in places.items():
        device = devices[str(place)]
        others = [x.samples for x in devices.values() if x is not device and x.samples]
        _check_seconds(name, got[name], device, *others)


def _check_matrices(name, kind, sizes, matmuls):
    m, k, n = sizes
    if matmuls.done and kind not in matmuls.created and not matmuls.moves:
        raise Wrong(
            f"no matrix was created on {name!r}: device= takes the device of this name"
        )
    made = [
        matmul
        for matmul in matmuls.done
        if kind in matmul.places and (kind == "meta" or "meta" not in matmul.places)
    ]
    if not made and matmuls.done:
        raise Wrong(
            f"no matmul was computed on {name!r}, only on another device: a lambda"
            " looks up `a` and `b` when it is called. Has the loop moved on by then?"
        )
    if not made:
        raise Wrong(f"no matmul was computed on {name!r}")
    shapes = made[-1].shapes
    if made[-1].places != {kind}:
        raise Wrong(
            f"only one of the two matrices was on {name!r}: create both there, with"
            " device="
        )
    if shapes != ((m, k), (k, n)):
        raise Wrong(
            f"on {name!r} you multiplied {shapes[0]} by {shapes[1]}, expected {(m, k)}"
            f" by {(k, n)}"
        )
    if len(made) < 4:
        raise Wrong(
            f"{len(made)} matmuls on {name!r}: warm up, then take the median of at"
            " least three runs"
        )


def _check_seconds(name, got, device, others=()):
    if any(_same(got, x) for x in _medians(device)):
        return
    if _mixed(device) and not _same(got, LAUNCH):
        raise Wrong(
            f"on {name!r} the run before was still in the queue when you read the"
            " clock: call wait() first"
        )
    samples, runs = device.samples, device.samples[1:]
    why = "that is not the median of the runs, from a launch to the end of the wait"
    if got > sum(runs) / 2:
        why = "one matmul's time is asked, not that of all runs"
    early = (
        "that is the launch, or you waited before it only. Wait, then read the clock"
    )
    first = "the first run, which is slow, is among the samples"
    fastest = "that is the fastest run. Take the median"
    averaged = "that is a mean, which one slow run decides. Take the median"
    mixed = "samples of another device are among yours. A new list for each"
    slips = [(LAUNCH, early), (median(samples), first), (min(runs), fastest)]
    slips += _in_other_units(median(runs))
    for counted in (runs, samples):
        waits_once = sum(counted) - (len(counted) - 1) * LAUNCH
        averages = mean(counted), waits_once / len(counted)
        slips += [(average, averaged) for average in averages]
        slips += [(max(counted), "that is the slowest run. Take the median")]
        slips += [(median([*others[1:], *counted]), mixed)]
    _close_ms(got, median(runs), f"a matmul on {name!r}", why, slips)


def _same(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


def _medians(device):
    """The right answers: medians of at least three samples, after some runs to warm up:
    up to five, or those without a clock, and all that another run was timed with.
    """
    samples, timed = device.samples, device.timed
    mixed, warm = _mixed(device), [*timed, True].index(True)
    for first in {*range(1, 6), warm or 1, mixed + 1}:
        runs = samples[first:]
        if len(runs) < 3 or first <= mixed:
            continue
        yield median(runs)
        yield median_low(runs)
        # with the first run among them, that would be the median of all
        if not mixed and (first > 1 or not timed[0]):
            yield median_high(runs)


def _mixed(device):
    """The number of the last run with whose time that of the one before was measured;
    0 where there is none.
    """
    return max((n for n in device.queued if device.timed[n]), default=0)


EXERCISES = [
    Exercise(
        number="04.0",
        title="Samples per second",
        name="samples_per_second",
        stars=1,
        check=check_samples_per_second,
        hints=[
            (
                "The recipe waits twice for each run. Here one run is the whole loop:"
                " where do its two waits stand?"
            ),
            "wait(), start = clock(), the loop of steps, wait(). How many samples?",
            "sum(len(x) for x in batches), divided by clock() - start.",
        ],
        solution="""
def samples_per_second(step, batches, wait, clock):
    wait()
    start = clock()
    for x in batches:
        step(x)
    wait()
    return sum(len(x) for x in batches) / (clock() - start)
""",
        praise=(
            "This is the figure to compare two training loops by. A wait in each step"
            " would time another loop than the one you run: section 2."
        ),
    ),
    Exercise(
        number="04.1",
        title="Train without waiting",
        name="train",
        stars=2,
        check=check_train,
        hints=[
            (
                "Keep loss.detach() in a list. detach, because the loss holds the whole"
                " graph otherwise."
            ),
            "After the loop: torch.stack makes one tensor of the list.",
            "return torch.stack(losses).tolist() is the one wait.",
        ],
        solution="""
import torch.nn.functional as F

def train(model, optimizer, batches):
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()
""",
        praise=(
            "On a GPU the host now runs ahead by whole batches. For a progress bar,"
            " read the losses every hundred steps: item() waits for all that is in the"
            " queue by then, even when the loss itself is an old one."
        ),
    ),
    Exercise(
        number="04.2",
        title="Take turns",
        name="in_turns",
        stars=1,
        check=check_in_turns,
        hints=[
            "Two loops, one in the other. Which is outside: rounds, or versions?",
            "samples = {name: [] for name in versions}, then 1 + n rounds.",
            "In the end {name: median(times[1:]) for name, times in samples.items()}.",
        ],
        solution="""
from statistics import median

def in_turns(versions, seconds, n=9):
    samples = {name: [] for name in versions}
    for _ in range(1 + n):
        for name, fn in versions.items():
            samples[name].append(seconds(fn))
    return {name: median(times[1:]) for name, times in samples.items()}
""",
        praise=(
            "Take it home: with the body of the recipe's loop as seconds, it compares"
            " any versions on any device. random.shuffle of the versions before each"
            " round makes it safer still."
        ),
    ),
    Exercise(
        number="04.3",
        title="PyTorch's own timer",
        name="timer_seconds",
        stars=1,
        check=check_timer_seconds,
        hints=[
            (
                "from torch.utils.benchmark import Timer. The statement is a text;"
                " globals= gives it its names."
            ),
            'Timer("a @ b", globals={"a": a, "b": b}, num_threads=…)',
            "timeit(number) returns a measurement, which has a median.",
        ],
        solution="""
from torch.utils.benchmark import Timer

def timer_seconds(a, b, threads, number):
    timer = Timer("a @ b", globals={"a": a, "b": b}, num_threads=threads)
    return timer.timeit(number).median
""",
        praise=(
            "timeit makes one block of runs, so that its median is their mean;"
            " blocked_autorange makes several blocks. On a GPU Timer's own clock waits"
            " for the device; with timer=default_timer nothing does."
        ),
    ),
    Exercise(
        number="04.4",
        title="Faster, or too close to call?",
        name="faster",
        stars=2,
        check=check_faster,
        hints=[
            "First the samples: if min(len(a), len(b)) < 6, return at once.",
            (
                "low_a, high_a = interval(a), and the same for b. Which two of the four"
                " do you have to compare?"
            ),
            (
                "a is faster if high_a < low_b. b is faster if high_b < low_a."
                ' Otherwise "cannot tell".'
            ),
        ],
        solution="""
from utils.timing import median_interval as interval  # the lesson's function

def faster(a, b):
    if min(len(a), len(b)) < 6:
        return "cannot tell"
    (low_a, high_a), (low_b, high_b) = interval(a), interval(b)
    if high_a < low_b:
        return "a"
    return "b" if high_b < low_a else "cannot tell"
""",
        praise=(
            "'Cannot tell' is an answer: more samples, or a quieter machine. This test"
            " is on the safe side: two intervals may overlap a little where speedup(a,"
            " b), which looks at the ratio, already sees a difference."
        ),
    ),
    Exercise(
        number="04.5",
        title="Run-times on different devices",
        name="product_seconds",
        stars=3,
        check=check_product_seconds,
        hints=[
            (
                "One loop over devices.items(). In it: create a and b with device=,"
                " then time a @ b as the recipe does."
            ),
            (
                "One run: read the clock, a @ b, wait(), read it again. Keep the"
                " difference in a list, a new one for each device."
            ),
            (
                "result[name] = median(samples[1:]), inside of the loop over the"
                " devices."
            ),
        ],
        solution="""
import time
from statistics import median

def product_seconds(m, k, n, devices):
    result = {}
    for name, (device, wait) in devices.items():
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        samples = []
        for _ in range(10):
            start = time.perf_counter()
            a @ b
            wait()
            samples.append(time.perf_counter() - start)
        result[name] = median(samples[1:])
    return result
""",
        praise=(
            "Before you compare the two numbers: state m, k, n, the precision, and how"
            " many threads the CPU had."
        ),
    ),
]
