"""Exercises of lesson 04."""

import copy
import math
import time
from statistics import median

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call

MS = 1e-3


class MadeUpDevice:
    """A device and a host clock that exist as two numbers, so that the right answer is known exactly."""

    LAUNCH = 5e-6

    def __init__(self, first, later):
        self.now, self.busy_until = 100.0, 100.03  # 30 ms of somebody's work are in the queue
        self.first, self.later, self.runs = first, later, 0

    def fn(self):
        seconds = self.later[(self.runs - 1) % len(self.later)] if self.runs else self.first
        self.runs += 1
        self.now += self.LAUNCH
        self.busy_until = max(self.now, self.busy_until) + seconds

    def wait(self):
        self.now = max(self.now, self.busy_until)

    def clock(self):
        return self.now


def check_median_seconds(answer):
    for later in ([2 * MS], [2 * MS, 2 * MS, 3 * MS, 2 * MS, 40 * MS]):
        device = MadeUpDevice(500 * MS, later)
        got = call(answer, device.fn, device.wait, device.clock, shown="a made-up device")
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            raise Wrong(f"expected a number of seconds, got {got!r}")
        expected = 2 * MS + device.LAUNCH
        if device.runs < 10:
            raise Wrong(f"fn ran {device.runs} times; n = 9 runs are to be counted, and the first one is not")
        if math.isclose(got, expected, abs_tol=MS / 100):
            continue
        raise Wrong(f"you measured {got * 1e3:.4g} ms, the device takes 2 ms: {_why(got, later)}")


def _why(got, later):
    if got < 0.1 * MS:
        return "that is the launch. Wait for the device before you read the clock the second time"
    if len(later) > 1 and 2.5 * MS < got < 20 * MS:
        return "that is a mean, and one run of 40 ms decides it. Take the median"
    if got > 100 * MS:
        return "that is a sum, or the first run"
    return (
        "the first run (500 ms) is in it, or the work that was in the queue before (30 ms). "
        "Run fn once and wait, before any clock is read"
    )


def check_faster(answer):
    steady = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]
    slower = [x + 0.5 for x in steady]
    many = [1 + k / 100 for k in range(20)]
    spiky = [*many[:-2], 9.0, 9.0]
    cases = [
        (steady, slower, "a", "all of a lies below all of b"),
        (slower, steady, "b", "all of b lies below all of a"),
        (steady, list(reversed(steady)), "cannot tell", "these are the same samples in another order"),
        (
            steady,
            [x + 0.001 for x in steady],
            "cannot tell",
            "the medians differ, but the intervals of the medians overlap",
        ),
        ([x + 0.5 for x in many], spiky, "b", "two outliers move the mean of b, but not the interval of its median"),
        ([1.0, 1.1], [2.0, 2.1], "cannot tell", "two samples on each side are too few"),
        (steady, slower[:5], "cannot tell", "five samples of b are too few"),
        (steady[:6], slower[:6], "a", "six samples are enough, and all of a lies below all of b"),
    ]
    for a, b, expected, why in cases:
        shown = f"a = {_short(a)}, b = {_short(b)}"
        got = call(answer, list(a), list(b), shown=shown)
        if got != expected:
            raise Wrong(f"for {shown} you said {got!r}, expected {expected!r}: {why}")


def _short(samples):
    text = ", ".join(f"{x:g}" for x in samples[:6])
    return f"[{text}{', …' if len(samples) > 6 else ''}]"


def check_bound(answer):
    cases = [
        (1, 4096, 4096, 2, 989e12, 4.8e12),  # one token on an H200, bf16
        (4096, 4096, 4096, 2, 989e12, 4.8e12),
        (1000, 2000, 1500, 4, 8.1e12, 320e9),  # the lesson's product on a T4
        (64, 64, 8, 4, 8.1e12, 320e9),
    ]
    for m, k, n, b, rate, bandwidth in cases:
        flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
        shown = f"m = {m}, k = {k}, n = {n}, b = {b}, {rate:.3g} FLOP/s, {bandwidth:.3g} bytes/s"
        got = call(answer, m, k, n, b, rate, bandwidth, shown=shown)
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Wrong(f"for {shown} you returned {got!r}, expected (intensity, 'memory' or 'arithmetic', seconds)")
        intensity, limit, seconds = got
        if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in (intensity, seconds)):
            raise Wrong(f"for {shown} you returned {got!r}; the first and the third should be numbers")
        if not math.isclose(intensity, flop / moved, rel_tol=1e-6):
            raise Wrong(
                f"for {shown} your intensity is {intensity:.4g}, expected {flop / moved:.4g}{_slip(got, m, k, n, b)}"
            )
        expected = "arithmetic" if flop / rate > moved / bandwidth else "memory"
        if limit != expected:
            raise Wrong(
                f"for {shown} you said {limit!r}, expected {expected!r}: the ridge is at "
                f"{rate / bandwidth:.3g} FLOP per byte, the product has {flop / moved:.3g}"
            )
        least = max(flop / rate, moved / bandwidth)
        if not math.isclose(seconds, least, rel_tol=1e-6):
            raise Wrong(
                f"for {shown} you said {seconds:.4g} s, expected {least:.4g} s: the two go on at the same time, "
                "so the longer one is the least that it can take"
            )


def _slip(got, m, k, n, b):
    moved = b * (m * k + k * n + m * n)
    if math.isclose(got[0], m * k * n / moved, rel_tol=1e-6):
        return ": a multiplication and an addition for each term, that is two"
    if math.isclose(got[0], 2 * m * k * n / (moved / b), rel_tol=1e-6):
        return ": that is FLOP per number. How many bytes has a number?"
    if math.isclose(got[0], 2 * m * k * n / (moved - b * m * n), rel_tol=1e-6):
        return ": the result is written to memory, too"
    return ""


class Waits(TorchFunctionMode):
    """Notes each call that needs a value on the host."""

    ALWAYS = {"item", "tolist", "cpu", "numpy", "__array__", "nonzero", "is_nonzero", "equal", "allclose", "unique"}
    ALWAYS |= {"__bool__", "__float__", "__int__", "__index__", "__complex__", "__format__", "__repr__", "__contains__"}

    def __init__(self):
        super().__init__()
        self.names, self.fetched = [], []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        to_cpu = name == "to" and any(str(value) == "cpu" for value in [*args[1:], *(kwargs or {}).values()])
        from_tensors = name in ("tensor", "as_tensor") and args and isinstance(args[0], (list, tuple))
        read = [x for x in (args[0] if from_tensors else args[:1]) if isinstance(x, torch.Tensor)]
        if name in self.ALWAYS or to_cpu or from_tensors:
            self.names += [name for x in read if not self._is_fetched(x)]
        result = function(*args, **(kwargs or {}))
        if name == "cpu" or to_cpu:
            with torch._C.DisableTorchFunction():
                self.fetched.append(result.untyped_storage())  # kept alive, so that its address stays its own
        return result

    def _is_fetched(self, x):
        """Whether the numbers of `x` are on the host already, because cpu() brought them there."""
        with torch._C.DisableTorchFunction():
            return x.untyped_storage().data_ptr() in [storage.data_ptr() for storage in self.fetched]


def check_train(answer):
    generator = torch.Generator().manual_seed(0)
    batches = [(torch.randn(8, 4, generator=generator), torch.randint(3, (8,), generator=generator)) for _ in range(5)]
    model = torch.nn.Linear(4, 3)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    twin = copy.deepcopy(model)
    expected = _losses(twin, batches)
    waits = Waits()
    with waits:
        got = call(answer, model, torch.optim.SGD(model.parameters(), lr=0.1), batches, shown="five batches")
    if not isinstance(got, (list, tuple)) or len(got) != len(batches):
        raise Wrong(f"for five batches you returned {got!r}, expected a list of five losses")
    if any(isinstance(value, bool) or not isinstance(value, float) for value in got):
        raise Wrong(f"you returned {list(got)!r}; Python numbers are asked, not tensors")
    if not all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in zip(got, expected, strict=True)):
        raise Wrong(
            f"the losses are {[round(x, 4) for x in got]}, expected {[round(x, 4) for x in expected]}: "
            "in each step zero_grad, backward, step"
        )
    if not all(torch.allclose(p, q, atol=1e-5) for p, q in zip(model.parameters(), twin.parameters(), strict=True)):
        raise Wrong("right losses, but the weights differ after the last step")
    if len(waits.names) != 1:
        raise Wrong(
            f"right losses, but {len(waits.names)} waits for five batches ({', '.join(waits.names)}): "
            "keep them on the device, stack them, fetch once"
        )


def _losses(model, batches):
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class SlowMeta(TorchFunctionMode):
    """Turns `meta` into a device with a queue: a product there takes 4 ms, which `wait` waits for."""

    SECONDS = 4 * MS
    FACTORIES = {"rand", "randn", "ones", "zeros", "full", "empty", "arange", "tensor"}

    def __init__(self):
        super().__init__()
        self.queued, self.products, self.moves, self.created = 0, 0, 0, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        result = function(*args, **(kwargs or {}))
        if not isinstance(result, torch.Tensor):
            return result
        if name in ("matmul", "__matmul__", "__rmatmul__", "mm") and result.device.type == "meta":
            self.shape = tuple(args[0].shape), tuple(args[1].shape)
            self.queued += 1
            self.products += 1
        elif name in ("to", "cuda"):
            self.moves += any(isinstance(a, torch.Tensor) and a.device != result.device for a in args)
        elif name in self.FACTORIES:
            self.created.append(result.device.type)
        return result

    def wait(self):
        time.sleep(self.queued * self.SECONDS)
        self.queued = 0


def check_product_seconds(answer):
    m, k, n = 40, 30, 20
    slow = SlowMeta()
    devices = {"cpu": (torch.device("cpu"), lambda: None), "slow": (torch.device("meta"), slow.wait)}
    with slow:
        got = call(answer, m, k, n, devices, shown="the CPU and a slow device")
    if not isinstance(got, dict) or set(got) != set(devices):
        raise Wrong(f"expected a dict with the names {list(devices)}, got {got!r}")
    if any(value is DOTS for value in got.values()):
        raise NotAnswered
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in got.values()):
        raise Wrong(f"expected a number of seconds for each name, got {got!r}")
    if slow.products == 0:
        raise Wrong("no product was computed on the slow device")
    if slow.shape != ((m, k), (k, n)):
        raise Wrong(f"the slow device multiplied {slow.shape[0]} by {slow.shape[1]}, expected {(m, k)} by {(k, n)}")
    if slow.moves:
        raise Wrong(f"{slow.moves} moves to the slow device: create the matrices there, with device=")
    if len(slow.created) > 3 * len(devices):
        raise Wrong(
            f"{len(slow.created)} matrices were created for two devices: "
            "create a and b once for each, outside of the timed loop"
        )
    if slow.products < 4:
        raise Wrong(
            f"{slow.products} products on the slow device: warm up, then take the median of at least three runs"
        )
    if got["slow"] < 0.5 * slow.SECONDS:
        raise Wrong(
            f"the slow device needs {slow.SECONDS * 1e3:g} ms for a product, you measured "
            f"{got['slow'] * 1e3:.3g} ms: that is the launch, or you waited before it only. Wait, then read the clock"
        )
    if got["slow"] > 5 * slow.SECONDS:
        raise Wrong(
            f"the slow device needs {slow.SECONDS * 1e3:g} ms for a product, you measured "
            f"{got['slow'] * 1e3:.3g} ms: one product's time is asked, not that of all runs"
        )
    if not 0 < got["cpu"] < 1:
        raise Wrong(f"{got['cpu']:.3g} s on the CPU for a product of {m} × {k} by {k} × {n} cannot be")


assert median  # what the solutions use

TRAIN = """
import torch.nn.functional as F

def train(model, optimizer, batches):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append({kept})
    return {returned}
"""


def train_source(kept, returned):
    return TRAIN.format(kept=kept, returned=returned)


EXERCISES = [
    Exercise(
        number="04.1",
        title="A timer for a queue",
        name="median_seconds",
        stars=2,
        check=check_median_seconds,
        hints=[
            "Before any clock is read: run fn once, and wait. That takes the slow first run and the old work out.",
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
        praise="The clock as an argument makes the timer testable: with a made-up clock, its answer is exact.",
        wrong={
            """
from statistics import median

def median_seconds(fn, wait, clock, n=9):
    fn()
    wait()
    samples = []
    for _ in range(n):
        start = clock()
        fn()
        samples.append(clock() - start)
    return median(samples)
""": "that is the launch",
            """
def median_seconds(fn, wait, clock, n=9):
    fn()
    wait()
    start = clock()
    for _ in range(n):
        fn()
    wait()
    return (clock() - start) / n
""": "that is a mean",
            """
from statistics import median

def median_seconds(fn, wait, clock, n=9):
    samples = []
    for _ in range(n):
        start = clock()
        fn()
        wait()
        samples.append(clock() - start)
    return median(samples)
""": "fn ran 9 times",
            """
def median_seconds(fn, wait, clock, n=9):
    start = clock()
    for _ in range(n + 1):
        fn()
    wait()
    return (clock() - start) / (n + 1)
""": "the first run (500 ms) is in it",
            """
def median_seconds(fn, wait, clock, n=9):
    fn()
    wait()
    start = clock()
    for _ in range(n):
        fn()
    wait()
    return (clock() - start) * 10
""": "that is a sum",
        },
    ),
    Exercise(
        number="04.2",
        title="Faster, or not to be told",
        name="faster",
        stars=2,
        check=check_faster,
        hints=[
            "First the samples: if min(len(a), len(b)) < 6, return at once.",
            "low_a, high_a = interval(a), and the same for b. Which two of the four do you have to compare?",
            'a is faster if high_a < low_b. b is faster if high_b < low_a. Otherwise "cannot tell".',
        ],
        solution="""
import math

def interval(samples):
    n, half = len(samples), 1.96 * math.sqrt(len(samples))
    low, high = max(1, math.floor((n - half) / 2)), min(n, math.ceil(1 + (n + half) / 2))
    ordered = sorted(samples)
    return ordered[low - 1], ordered[high - 1]

def faster(a, b):
    if min(len(a), len(b)) < 6:
        return "cannot tell"
    (low_a, high_a), (low_b, high_b) = interval(a), interval(b)
    if high_a < low_b:
        return "a"
    return "b" if high_b < low_a else "cannot tell"
""",
        praise="'Cannot tell' is an answer: more samples, or a quieter machine. This test is on the safe side: two "
        "intervals may overlap a little where speedup(a, b), which looks at the ratio, already sees a difference.",
        wrong={
            """
from statistics import median

def faster(a, b):
    return "a" if median(a) < median(b) else "b"
""": "expected 'cannot tell'",
            """
def faster(a, b):
    if min(len(a), len(b)) < 6:
        return "cannot tell"
    if max(a) < min(b):
        return "a"
    return "b" if max(b) < min(a) else "cannot tell"
""": "two outliers move the mean",
            """
def faster(a, b):
    if max(a) < min(b):
        return "a"
    return "b" if max(b) < min(a) else "cannot tell"
""": "",
            """
from statistics import mean

def faster(a, b):
    if abs(mean(a) - mean(b)) < 0.1:
        return "cannot tell"
    return "a" if mean(a) < mean(b) else "b"
""": "",
        },
    ),
    Exercise(
        number="04.3",
        title="Which roof?",
        name="bound",
        stars=2,
        check=check_bound,
        hints=[
            "FLOP: 2·m·k·n. Bytes: b times the numbers of the three matrices.",
            "The time of the arithmetic is FLOP / rate, that of the memory is bytes / bandwidth.",
            "The longer of the two times is the least time, and it names the limit.",
        ],
        solution="""
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    arithmetic, memory = flop / rate, moved / bandwidth
    limit = "arithmetic" if arithmetic > memory else "memory"
    return flop / moved, limit, max(arithmetic, memory)
""",
        praise="Halving b, with bfloat16 in place of float32, doubles the intensity and halves the memory's time, "
        "whether or not the arithmetic gets faster: lesson 08.",
        wrong={
            """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = m * k * n, b * (m * k + k * n + m * n)
    return flop / moved, "memory", max(flop / rate, moved / bandwidth)
""": "that is two",
            """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, m * k + k * n + m * n
    return flop / moved, "memory", max(flop / rate, moved / bandwidth)
""": "FLOP per number",
            """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n)
    return flop / moved, "memory", max(flop / rate, moved / bandwidth)
""": "the result is written to memory",
            """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    return flop / moved, "arithmetic", max(flop / rate, moved / bandwidth)
""": "the ridge is at 206",
            """
def bound(m, k, n, b, rate, bandwidth):
    flop, moved = 2 * m * k * n, b * (m * k + k * n + m * n)
    limit = "arithmetic" if flop / moved > rate / bandwidth else "memory"
    return flop / moved, limit, flop / rate + moved / bandwidth
""": "the two go on at the same time",
        },
    ),
    Exercise(
        number="04.4",
        title="Train without waiting",
        name="train",
        stars=2,
        check=check_train,
        hints=[
            "Keep loss.detach() in a list. detach, because the loss holds the whole graph otherwise.",
            "After the loop: torch.stack makes one tensor of the list.",
            "return torch.stack(losses).tolist() is the one wait.",
        ],
        solution=train_source("loss.detach()", "torch.stack(losses).tolist()"),
        praise="On a GPU the host now runs ahead by whole batches. For a progress bar, read the losses every hundred "
        "steps: item() waits for all that is in the queue by then, even when the loss itself is an old one.",
        wrong={
            train_source("loss.item()", "losses"): "right losses, but 5 waits",
            train_source("loss.detach()", "[loss.item() for loss in losses]"): "right losses, but 5 waits",
            train_source("loss.detach()", "torch.tensor(losses).tolist()"): "right losses, but 6 waits",
            train_source("loss.detach()", "losses"): "Python numbers are asked",
            train_source("loss.detach()", "torch.stack(losses).tolist()").replace(
                "        optimizer.zero_grad()\n", ""
            ): "in each step zero_grad, backward, step",
            train_source("loss.detach()", "torch.stack(losses).tolist()").replace(
                "        optimizer.step()\n", ""
            ): "in each step zero_grad, backward, step",
        },
    ),
    Exercise(
        number="04.5",
        title="Run-times on different devices",
        name="product_seconds",
        stars=2,
        check=check_product_seconds,
        hints=[
            "One loop over devices.items(). In it: create a and b with device=, then time a @ b as in 04.1.",
            "Your median_seconds takes the product as fn, wait as it is, and time.perf_counter as clock.",
            "result[name] = median_seconds(lambda: a @ b, wait, time.perf_counter)",
        ],
        solution="""
import time
from statistics import median

def product_seconds(m, k, n, devices):
    result = {}
    for name, (device, wait) in devices.items():
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        a @ b
        wait()
        samples = []
        for _ in range(9):
            start = time.perf_counter()
            a @ b
            wait()
            samples.append(time.perf_counter() - start)
        result[name] = median(samples)
    return result
""",
        praise="Before you compare the two numbers: state m, k, n, the precision, and how many threads the CPU had.",
        wrong={},
    ),
]

RIGHT = EXERCISES[-1].solution
EXERCISES[-1].wrong.update(
    {
        RIGHT.replace("            wait()\n", ""): "that is the launch",
        RIGHT.replace("torch.randn(m, k, device=device)", "torch.randn(m, k).to(device)"): "create the matrices there",
        RIGHT.replace(
            "            start =", "            a = torch.randn(m, k, device=device)\n            start ="
        ): "outside of the timed loop",
        RIGHT.replace("range(9)", "range(1)"): "at least three runs",
        RIGHT.replace("median(samples)", "sum(samples)"): "not that of all runs",
        RIGHT.replace("torch.randn(k, n", "torch.randn(k, k"): "expected (40, 30) by (30, 20)",
        RIGHT.replace("result[name] =", "result['cpu'] ="): "expected a dict with the names",
    }
)
