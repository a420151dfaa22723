"""Exercises of lesson 04."""

import contextlib
import copy
import math
import random
import sys
import threading
import time
import timeit
import types
import weakref
from collections import Counter
from statistics import mean, median, median_high, median_low

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from utils.timing import median_interval
from utils.waits import CountWaits

MS = 1e-3


class Products(TorchDispatchMode):
    """Notes the matrix products, and how long each takes: on the CPU at once, on `meta`
    in a queue that `wait` empties.

    The time is made up (`now`), so that the right answer is known exactly.
    """

    LAUNCH = 5e-6
    FACTORIES = {"rand", "randn", "randint", "ones", "zeros", "full", "empty", "arange"}

    def __init__(self, most=2000):
        super().__init__()
        self.most, self.now, self.readings = most, 100.0, 0
        # of each product: seconds, shapes, types of device, whether timed
        self.made = {"cpu": [], "meta": []}
        self.random = {kind: random.Random(kind) for kind in self.made}
        self.queue, self.queues = [], []  # seconds; how many there were at each wait
        self.moves, self.created, self.clock_read = 0, 0, False
        self.places = set()  # where matrices were created
        # number of a timed product on `meta` → seconds, with those that were in the
        # queue before it
        self.spoiled = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            a, b = args[-2:]
            kinds = {a.device.type, b.device.type}
            self.multiplied(kinds, (tuple(a.shape[-2:]), tuple(b.shape[-2:])))
        elif name in ("_to_copy", "copy_"):
            tensors = [x for x in args if isinstance(x, torch.Tensor)]
            self.moves += any(x.device != result.device for x in tensors)
        elif name in self.FACTORIES:
            self.created += 1
            self.places.add(result.device.type)
            self.clock_read = False  # what was timed before has ended
        return result

    def multiplied(self, types, shapes):
        kind = "meta" if "meta" in types else "cpu"
        if len(self.made[kind]) == self.most:
            raise RuntimeError(f"{self.most:,} products, and no end")
        seconds = self.seconds(kind)
        self.made[kind].append((seconds, shapes, types, self.clock_read))
        self.clock_read = False
        self.now += self.LAUNCH
        if kind == "meta":
            self.queue.append(seconds)
        else:
            self.now += seconds

    def seconds(self, kind):
        """60 ms for the first product, 4 to 9 ms for most, on the CPU half of that; no
        two alike.
        """
        count, uniform = len(self.made[kind]), self.random[kind].uniform
        # falls, so that a run more or less shows
        usual = 6 + 3 / count if 0 < count < 5 else uniform(4, 4.5)
        if count % 5 == 0:
            usual = uniform(24, 25) if count else 60
        elif count % 5 == 2 and count > 5:
            usual = uniform(1, 1.1)
        return usual * MS / (1 if kind == "meta" else 2)

    def wait(self):
        if not self.queue:
            return
        timed = [product[3] for product in self.made["meta"][-len(self.queue) :]]
        if timed[-1] and not any(timed[:-1]) and len(timed) > 1:
            self.spoiled[len(self.made["meta"]) - 1] = sum(self.queue) + self.LAUNCH
        self.now += sum(self.queue)
        self.queues.append(len(self.queue))
        self.queue.clear()

    @contextlib.contextmanager
    def clocks(self, answer):
        """Within it, the clocks of the module `time` show `now` to this thread, and to
        all others what they did.
        """
        here, changed, clocks = threading.get_ident(), [], {}
        names = "perf_counter", "monotonic", "time", "process_time", "thread_time"
        for name in names:
            real, real_ns = getattr(time, name), getattr(time, name + "_ns")
            clocks[real] = self._clock(real, 1, here)
            clocks[real_ns] = self._clock(real_ns, 1e9, here)
        # timer=default_timer
        with_default = [timeit.Timer.__init__, timeit.timeit, timeit.repeat]
        defaults = [function.__defaults__ for function in with_default]
        try:
            for function in with_default:
                values = [clocks.get(x, x) for x in function.__defaults__]
                function.__defaults__ = tuple(values)
            for names in (vars(time), vars(timeit), getattr(answer, "__globals__", {})):
                for name, value in list(names.items()):
                    if isinstance(value, types.BuiltinFunctionType) and value in clocks:
                        changed.append((names, name, value))
                        names[name] = clocks[value]
            yield
        finally:
            for names, name, value in changed:
                names[name] = value
            for function, values in zip(with_default, defaults, strict=True):
                function.__defaults__ = values

    def _clock(self, real, scale, thread):
        def clock():
            if threading.get_ident() != thread:
                return real()
            self.readings += 1
            self.clock_read = True
            return self.now if scale == 1 else int(self.now * scale)

        return clock


class TimedProducts(Products):
    """Products on the CPU that take real time; notes when each began and was done, in
    how many threads, and whether in Timer.
    """

    def __init__(self, most):
        super().__init__(most)
        self.begun, self.done, self.threads, self.by_timer = [], [], [], 0

    def multiplied(self, types, shapes):
        super().multiplied(types, shapes)
        self.begun.append(time.perf_counter())
        time.sleep(2 * MS)
        self.done.append(time.perf_counter())
        self.threads.append(torch.get_num_threads())
        frame = sys._getframe()
        while frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("torch.utils.benchmark"):
                self.by_timer += 1
                break
            frame = frame.f_back


def check_timer_seconds(answer):
    threads_before = torch.get_num_threads()
    try:
        _check_timer(answer, threads=3, number=20)
        _check_timer(answer, threads=1, number=7)
    finally:
        torch.set_num_threads(threads_before)


def _check_timer(answer, threads, number):
    products = TimedProducts(most=300)
    shown = f"8 × 4 by 4 × 8, threads = {threads}, number = {number}"
    a, b = torch.ones(8, 4), torch.ones(4, 8)
    try:
        with products:
            got = call(answer, a, b, threads, number, shown=shown)
    except Wrong:
        if len(products.done) == products.most:
            raise Wrong(
                f"{products.most} products, and no end: without a number, timeit makes"
                " a million runs"
            ) from None
        raise
    if not products.done:
        raise Wrong("no product of a and b was computed")
    if products.by_timer < len(products.done):
        raise Wrong(
            "a product was computed outside of Timer: let torch.utils.benchmark.Timer"
            " do all of it"
        )
    shapes = products.made["cpu"][-1][1]
    if shapes != ((8, 4), (4, 8)):
        raise Wrong(f"the product of {shapes[0]} and {shapes[1]} was timed, not a @ b")
    if type(got).__name__ == "Measurement":
        raise Wrong(
            f"for {shown} you returned a Measurement, expected a number of seconds. It"
            " has a median"
        )
    expect.number(got, shown, "a number of seconds")
    if products.threads[-1] != threads:
        raise Wrong(
            f"threads = {threads}, and the products ran with {products.threads[-1]}:"
            " Timer's default is one thread, whatever your program has. num_threads="
            " changes it"
        )
    if not number < len(products.done) <= number + 5:  # a few to warm up
        raise Wrong(
            f"number = {number}, and Timer computed {len(products.done)} products:"
            " timeit(number)"
        )
    # not from the last one to warm up: what Timer does in between may take long
    seconds = (products.done[-1] - products.begun[-number]) / number
    if not seconds / 4 < got < 4 * seconds:  # a busy machine disturbs one of seven
        raise Wrong(
            f"a product took {seconds * 1e3:.3g} ms, you returned {got:.3g}: seconds of"
            " one product are asked"
        )


class MadeUpDevice:
    """A device and a host clock that exist as two numbers, so that the right answer is
    known exactly.
    """

    LAUNCH = 5e-6

    def __init__(self, first=500.0, before=30.0):
        """first: ms of the first run. before: ms of somebody's work in the queue."""
        self.first, self.now, self.busy_until = first, 100.0, 100.0 + before * MS
        self.samples, self.readings, self.random = [], 0, random.Random(740)

    def fn(self):
        # the first run, later 1 to 3 ms, and 40 where it was disturbed
        seconds, uniform = self.first, self.random.uniform
        if self.samples:
            seconds = uniform(39, 41) if self.random.random() < 0.25 else uniform(1, 3)
        # what a run takes from an empty queue on
        self.samples.append(seconds * MS + self.LAUNCH)
        self.now += self.LAUNCH
        self.busy_until = max(self.now, self.busy_until) + seconds * MS

    def wait(self):
        self.now = max(self.now, self.busy_until)

    def clock(self):
        self.readings += 1
        return self.now


def check_seconds_of_one(answer):
    for first, before in ((20.0, 30.0), (7.0, 0.0), (3.0, 500.0)):
        device = MadeUpDevice(first, before)
        shown = f"a made-up device with {before:g} ms of work in its queue"
        got = call(answer, device.fn, device.wait, device.clock, shown=shown)
        expect.number(got, shown, "a number of seconds")
        runs = len(device.samples)
        if runs != 1:
            raise Wrong(f"fn ran {runs} times; run it once")
        if device.readings == 0:
            raise Wrong("you read some other clock: the time is what `clock()` returns")
        (expected,) = device.samples
        if not _same(got, expected):
            texts = expect.distinct_texts(got * 1e3, expected * 1e3)
            why = expect.explain(got, _one_slips(expected, before * MS), _ONE)
            raise Wrong(
                f"for {shown} you measured {texts[0]} ms, the work of fn takes"
                f" {texts[1]} ms: {why}"
            )


_ONE = "wait, clock, fn, wait, clock; then the second reading minus the first"


def _one_slips(seconds, before):
    launch = MadeUpDevice.LAUNCH
    early = (
        "that is the launch. Wait for the device before you read the clock the second"
        " time"
    )
    old = (
        "somebody else's work is in it. Wait for the device before you read the clock"
        " the first time, too"
    )
    swapped = "the second reading of the clock minus the first, not the other way round"
    slips = [(launch, early), (0.0, early), (-seconds, swapped)]
    slips += [(seconds - launch, "the launch is part of it: read the clock before fn")]
    if before:
        slips += [(before + seconds - extra, old) for extra in (0, launch)]
        slips += [(before, old)]
    slips += [(seconds * unit, "seconds are asked") for unit in (1e3, 1e6, 1e9)]
    return slips


def check_median_seconds(answer):
    earlier = []
    for n in (None, 5, 3, 15, 1):
        device = MadeUpDevice()
        shown = f"a made-up device, n = {n}" if n else "a made-up device"
        given = [device.fn, device.wait, device.clock]
        got = call(answer, *given, *([n] if n else []), shown=shown)
        n = n or 9
        if not expect.is_number(got):
            raise Wrong(f"expected a number of seconds, got {got!r}")
        if len(device.samples) < n + 1:
            raise Wrong(
                f"fn ran {len(device.samples)} times; n = {n} runs are to be counted,"
                " and the first one is not"
            )
        if device.readings == 0:
            raise Wrong("you read some other clock: the time is what `clock()` returns")
        expected = median(device.samples[-n:])
        if not _same(got, expected):
            texts = expect.distinct_texts(got * 1e3, expected * 1e3)
            why = _why(got, expected, device.samples, n, earlier)
            raise Wrong(
                f"for n = {n} you measured {texts[0]} ms, the median is {texts[1]} ms:"
                f" {why}"
            )
        earlier += device.samples[-n:]


def _same(a, b):
    return math.isclose(a, b, rel_tol=1e-6)


def _why(got, expected, samples, n, earlier):
    counted = samples[-n:]
    if 0 <= got < 0.1 * MS:
        return (
            "that is the launch. Wait for the device before you read the clock the"
            " second time"
        )
    not_first = (
        "the first run (500 ms) is in it, or the work that was in the queue before"
        " (30 ms). Run fn once and wait, before any clock is read"
    )
    swapped = "the second reading of the clock minus the first, not the other way round"
    left = (
        "runs of an earlier call are among the samples. Begin each call with an empty"
        " list"
    )
    slips = [(expected * unit, "seconds are asked") for unit in (1e3, 1e6, 1e9)]
    slips += [(-expected, swapped)]
    if earlier:
        slips += [(median(earlier + counted), left)]
    if n > 1:
        if math.isclose(got, mean(counted), rel_tol=0.01):
            return "that is a mean, and one run of 40 ms decides it. Take the median"
        if math.isclose(got, sum(counted), rel_tol=0.01):
            return "that is a sum"
        slips += [
            (sum(samples), "that is a sum"),
            (min(counted), "that is the fastest run. Take the median"),
            (max(counted), "that is the slowest run. Take the median"),
        ]
    slips += [
        (median(samples), not_first),
        (median([1.0, *counted[1:]]), not_first),
    ]
    for k in {9, n - 1, n + 1} - {0, n}:
        if k < len(samples):
            slips += [(median(samples[-k:]), f"that is the median of {k} runs")]
    if got <= 50 * MS:
        one = "that is one of the runs, but not the middle one. Sort them"
        slips += [(run, one) for run in counted]
    if slip := expect.explain(got, slips):
        return slip
    if got > 50 * MS:
        return not_first
    return f"fn ran {len(samples)} times. For each of n runs: clock, fn, wait, clock"


def _swapped(a, b, why_a, why_b):
    """Two cases: one where a is faster, and the same the other way round."""
    yield a, b, "a", why_a
    yield b, a, "b", why_b


def _faster_cases():
    unclear = "cannot tell"
    steady = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]
    slower = [x + 0.5 for x in steady]
    yield from _swapped(
        steady, slower, "all of a lies below all of b", "all of b lies below all of a"
    )
    why = "these are the same samples in another order"
    yield steady, steady[::-1], unclear, why
    close = [x + 0.001 for x in steady]
    why = "the medians differ, but the intervals of the medians overlap"
    yield steady, close, unclear, why
    many = [1 + k / 100 for k in range(20)]
    spiky = [*many[:-2], 9.0, 9.0]
    why = "two outliers move the mean of b, but not the interval of its median"
    yield [x + 0.5 for x in many], spiky, "b", why
    few = "with fewer than six samples on either side, nobody can tell"
    yield [1.0, 1.1], [2.0, 2.1], unclear, few
    yield steady, slower[:5], unclear, few
    yield steady[:5], slower, unclear, few
    yield slower, [], unclear, few
    yield [], [], unclear, few
    yield from _swapped(
        [x / 1e6 for x in steady[:6]],
        [x / 1e6 for x in slower[:6]],
        "six samples are enough, and all of a lies below all of b",
        "six samples are enough, and all of b lies below all of a",
    )
    alike = "samples that are all alike have an interval without width"
    yield [1.0] * 7, [1.0] * 9, unclear, alike
    yield [1.0] * 7, [1.1] * 9, "a", alike
    left = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.15]
    right = [1.12, 1.22, 1.23, 1.24, 1.25, 1.26, 1.27]
    why = (
        "the medians are 20 % apart, but the intervals, here all seven samples, overlap"
    )
    yield left, right, unclear, why
    touches = [steady[-1], *[x + 0.07 for x in steady[1:-1]], 2.0]
    yield steady, touches, unclear, "the intervals share the value 1.07"
    yield touches, steady, unclear, "the intervals share the value 1.07"
    wide = [0.5 + k / 400 for k in range(140)]
    wide += [1 + k / 1e5 for k in range(120)]
    wide += [1.2 + k / 100 for k in range(140)]
    why = (
        "the medians are only 2 % apart, but with 400 samples the intervals are narrow"
    )
    yield from _swapped(wide, [1.02 * x for x in wide], why, why)
    mixed = random.Random(0)
    for n in (8, 11, 20, 30, 50, 101):
        a = mixed.sample(range(n), n)
        low, high = median_interval(a)
        beside = [x + high - low + 0.5 for x in a]
        over = [x + high - low - 0.5 for x in a]
        mixed.shuffle(beside)
        ends = f"the interval of a ends at {high}, that of b begins at"
        ends_b = f"the interval of b ends at {high}, that of a begins at"
        yield from _swapped(a, beside, f"{ends} {high + 0.5}", f"{ends_b} {high + 0.5}")
        yield a, over, unclear, f"{ends} {high - 0.5}"
        yield over, a, unclear, f"{ends_b} {high - 0.5}"


def check_faster(answer):
    for a, b, expected, why in _faster_cases():
        shown = f"a = {_short(a)}, b = {_short(b)}"
        expect.equal(call(answer, a, b, shown=shown), expected, shown, why, "you said")


def _short(samples):
    texts = [f"{x:g}" for x in samples[:6]]
    if len(samples) > 6:
        texts.append(f"… {len(samples)} samples")
    return f"[{', '.join(texts)}]"


class Graph(torch.autograd.Function):
    """Changes nothing. Its context lives as long as the graph that it is in."""

    @staticmethod
    def forward(ctx, x, model):
        model.kept = max(model.kept, len(model.graphs))
        model.graphs.add(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Watched(torch.nn.Linear):
    """A linear layer that counts the graphs of earlier calls at each call; kept: the
    most there were.
    """

    def forward(self, x):
        return Graph.apply(super().forward(x), self)


# What the messages call a wait, where the name of the function would not say it
SAID = {
    "__getitem__": "mask",
    "__setitem__": "copy to the CPU",
    "copy_": "copy to the CPU",
}


def check_train(answer):
    for count, options in ((5, {"lr": 0.3, "momentum": 0.5}), (1, {"lr": 0.1})):
        _check_train(answer, count, options)


def _check_train(answer, count, options):
    random = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(count):
        x = torch.randn(8, 4, generator=random)
        batches.append((x, torch.randint(3, (8,), generator=random)))
    model = Watched(4, 3)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=random))
    start, twin = copy.deepcopy(model), copy.deepcopy(model)
    for layer in (model, start, twin):
        layer.graphs, layer.kept = weakref.WeakSet(), 0
    expected = _losses(twin, batches, options)
    watched = CountWaits(numpy_raises=False)
    many = "five batches" if count > 1 else "a list of one batch"
    optimizer = torch.optim.SGD(model.parameters(), **options)
    with watched:
        given = model, optimizer, batches
        got = call(answer, *given, shown=many, changes=[model])
    if not isinstance(got, (list, tuple)) or len(got) != count:
        text = repr(got)
        if hasattr(got, "tolist"):
            text = f"the {type(got).__name__} {got.tolist()}"
        asked = "five losses" if count > 1 else "one loss"
        raise Wrong(f"for {many} you returned {text}, expected a list of {asked}")
    if not all(isinstance(value, float) for value in got):
        raise Wrong(
            f"you returned {list(got)!r}; Python numbers are asked, not tensors"
        )
    if not _all_close(got, expected):
        untrained = [F.cross_entropy(start(x), y).item() for x, y in batches]
        why = (
            "in each step zero_grad, backward, step of the given optimizer, and nothing"
            " else"
        )
        if not _all_close(got[:1], expected[:1]):
            why = (
                "the first is wrong already. F.cross_entropy(model(x), y), before the"
                " step"
            )
        elif _all_close(got, untrained):
            why = f"that is the model without any training; {why}"
        losses = [[round(x, 4) for x in values] for values in (got, expected)]
        raise Wrong(
            f"for {many} the losses are {losses[0]}, expected {losses[1]}: {why}"
        )
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        if not torch.allclose(p, q, atol=1e-5):
            raise Wrong("right losses, but the weights differ after the last step")
    _one_wait(watched, many)
    if model.kept > 1:
        raise Wrong(
            "right losses and one wait, but the graph of every step is still there:"
            " keep loss.detach()"
        )


def _one_wait(watched, many):
    waits = [SAID.get(name, name) for name in watched.names if name != "synchronize"]
    synchronized = watched.count - len(waits)
    if "numpy" in waits:
        raise Wrong(
            "right losses here, but numpy() raises for a tensor on a GPU: fetch it"
            " first, or take tolist()"
        )
    if not waits and watched.late == 1:
        if not synchronized:
            raise Wrong(
                "right losses here, but on a GPU they are read before that copy is"
                " done: call synchronize in between"
            )
        waits, synchronized = ["synchronize"], synchronized - 1
    if len(waits) != 1:
        names = ", ".join(f"{n} × {name}" for name, n in Counter(waits).items())
        raise Wrong(
            f"right losses, but {len(waits)} waits for {many} ({names}): "
            "keep them on the device, stack them, fetch once"
        )
    if synchronized > 1:
        raise Wrong(
            f"right losses, but {synchronized} calls of synchronize, and each is a"
            " wait: leave them out"
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


def check_product_seconds(answer):
    places = {"slow": torch.device("meta"), "cpu": torch.device("cpu")}
    _check_products(answer, (40, 30, 20), places)
    _check_products(answer, (3, 5, 2), {"other": "meta"})


def _check_products(answer, sizes, devices):
    m, k, n = sizes
    products = Products()
    waits = {"meta": products.wait, "cpu": lambda: None}
    given = {name: (device, waits[str(device)]) for name, device in devices.items()}
    shown = f"m = {m}, k = {k}, n = {n}, devices named {list(given)}"
    with products.clocks(answer), products:
        got = call(answer, m, k, n, given, shown=shown)
    if not isinstance(got, dict) or set(got) != set(given):
        raise Wrong(f"expected a dict with the names {list(given)}, got {got!r}")
    if not all(map(expect.is_number, got.values())):
        raise Wrong(f"expected a number of seconds for each name, got {got!r}")
    elsewhere = any(products.made.values())
    for name, device in devices.items():
        if elsewhere and str(device) not in products.places and not products.moves:
            raise Wrong(
                f"no matrix was created on {name!r}: device= takes the device of this"
                " name"
            )
        _check_device(name, products.made[str(device)], str(device), sizes, elsewhere)
    if products.moves:
        raise Wrong(
            f"{products.moves} moves to another device: create the matrices there, with"
            " device="
        )
    if products.created > 3 * len(given):
        raise Wrong(
            f"{products.created} matrices were created for {len(given)} devices: "
            "create a and b once for each, outside of the timed loop"
        )
    if products.readings == 0:
        raise Wrong("no clock was read: call time.perf_counter() in your function")
    for name, device in devices.items():
        _check_seconds(name, got[name], products, str(device))


def _check_device(name, made, kind, sizes, elsewhere):
    m, k, n = sizes
    if not made and elsewhere:
        raise Wrong(
            f"no product was computed on {name!r}, only on another device: a lambda"
            " looks up `a` and `b` when it is called. Has the loop moved on by then?"
        )
    if not made:
        raise Wrong(f"no product was computed on {name!r}")
    _, shapes, types, _ = made[-1]
    if types != {kind}:
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
            f"{len(made)} products on {name!r}: warm up, then take the median of at"
            " least three runs"
        )


def _check_seconds(name, got, products, kind):
    samples = [product[0] + products.LAUNCH for product in products.made[kind]]
    usual = median(samples[1:])
    mine, theirs = expect.distinct_texts(got * 1e3, usual * 1e3)
    text = f"a product on {name!r} takes about {theirs} ms, you measured {mine} ms: "
    if got < 0.1 * usual:
        raise Wrong(
            text
            + "that is the launch, or you waited before it only. Wait, then read the"
            " clock"
        )
    # the first wait may be for several, to warm up
    if kind == "meta" and max(products.queues[1:], default=9) > 1:
        most = max(products.queues)
        raise Wrong(
            f"{text}only a mean can come out of {most} products and one wait. Wait"
            " after each, take the median"
        )
    timed = [product[3] for product in products.made[kind]]
    spoiled = products.spoiled if kind == "meta" else {}
    if not _is_median(got, samples, timed, spoiled):
        raise Wrong(_seconds_slip(name, got, text, products, kind, samples, spoiled))


def _is_median(got, samples, timed, spoiled):
    """Whether `got` is the median of the samples, after some runs to warm up."""
    warm = max((number for number, seen in enumerate(timed) if not seen), default=0) + 1
    last = max(spoiled, default=0)  # no sample up to it counts
    for first in {*range(1, 6), warm, last + 1}:  # so many runs to warm up
        runs = samples[first:]
        if len(runs) < 3 or first <= last:
            continue
        if _same(got, median(runs)) or _same(got, median_low(runs)):
            return True
        # with the first run among them, that would be the median of all
        of_all = timed[0] and first == 1
        if _same(got, median_high(runs)) and not spoiled and not of_all:
            return True
    return False


def _seconds_slip(name, got, text, products, kind, samples, spoiled):
    measured = [spoiled.get(number, seconds) for number, seconds in enumerate(samples)]
    for first in range(1, max(spoiled, default=0) + 1):
        if _same(got, median(measured[first:])):
            return (
                f"on {name!r} the run before was still in the queue when you read the"
                " clock: call wait() first"
            )
    runs = samples[1:]
    if _same(got, median(samples)):
        return text + "the first run, which is slow, is among the samples"
    if any(math.isclose(got, x, rel_tol=0.02) for x in (mean(runs), mean(samples))):
        return text + "that is a mean, which one slow run decides. Take the median"
    slowest = "that is the slowest run. Take the median"
    slips = [
        (min(runs), "that is the fastest run. Take the median"),
        (max(samples), slowest),
        (max(runs), slowest),
    ]
    slips += [(median(runs) * unit, "seconds are asked") for unit in (1e3, 1e6, 1e9)]
    others = []
    for other, made in products.made.items():
        if other != kind:
            others += [product[0] + products.LAUNCH for product in made[1:]]
    if others:
        mixed = "samples of another device are among yours. A new list for each"
        slips += [(median(others + runs), mixed), (median(others + samples), mixed)]
    other = "that is not the median of the runs, from a launch to the end of the wait"
    if got > sum(runs) / 2:
        other = "one product's time is asked, not that of all runs"
    return text + expect.explain(got, slips, other)


EXERCISES = [
    Exercise(
        number="04.0",
        title="One run, from wait to wait",
        name="seconds_of_one",
        stars=1,
        check=check_seconds_of_one,
        hints=[
            "The recipe has the five calls. Which of its lines belong to one run?",
            "wait(), start = clock(), fn(), wait(): what is left to do?",
        ],
        solution="""
def seconds_of_one(fn, wait, clock):
    wait()
    start = clock()
    fn()
    wait()
    return clock() - start
""",
        praise=(
            "The wait before the work is the one that people forget: without it, the"
            " answer depends on what ran before."
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
            " blocked_autorange makes several blocks. On a GPU the same line waits for"
            " the device."
        ),
    ),
    Exercise(
        number="04.3",
        title="A timer for a queue",
        name="median_seconds",
        stars=2,
        check=check_median_seconds,
        hints=[
            (
                "Before any clock is read: run fn once, and wait. That takes the slow"
                " first run and the old work out."
            ),
            "In the loop: clock, fn, wait, clock. Keep the difference.",
            "from statistics import median; return median(samples).",
        ],
        solution="""
from statistics import median

def median_seconds(fn, wait, clock, n=9):
    fn()
    wait()
    samples = []
    for _ in range(n):
        start = clock()
        fn()
        wait()
        samples.append(clock() - start)
    return median(samples)
""",
        praise=(
            "The clock as an argument makes the timer testable: with a made-up clock,"
            " its answer is exact."
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
                " then time a @ b as in 04.3."
            ),
            (
                "Your median_seconds takes the product as fn, wait as it is, and"
                " time.perf_counter as clock."
            ),
            (
                "result[name] = median_seconds(lambda: a @ b, wait, time.perf_counter),"
                " inside of the loop."
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
