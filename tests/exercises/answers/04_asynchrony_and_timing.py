"""Answers to the exercises of lesson 04."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

ONE = SOLUTION["04.0"]
ANSWERS["04.0"] = Answers(
    right=[
        edit(
            ONE,
            ("    return clock() - start", "    end = clock()\n    return end - start"),
        ),
        """
def seconds_of_one(fn, wait, clock):
    def now():
        wait()
        return clock()

    return -now() + (fn(), now())[1]
""",
        """
import numpy as np

def seconds_of_one(fn, wait, clock):
    wait()
    wait()
    readings = [clock()]
    fn()
    wait()
    readings.append(clock())
    return np.diff(readings)[0]
""",
    ],
    wrong={
        edit(ONE, ("    fn()\n    wait()\n", "    fn()\n")): "that is the launch",
        edit(
            ONE, ("    wait()\n    start", "    start")
        ): "somebody else's work is in it",
        edit(ONE, ("    wait()\n", "", 2)): "that is the launch",
        edit(ONE, ("clock() - start", "start - clock()")): "not the other way round",
        edit(ONE, ("clock() - start", "(clock() - start) * 1e3")): "seconds are asked",
        edit(ONE, ("    fn()\n", "")): "fn ran 0 times",
        edit(ONE, ("    fn()\n", "    fn()\n    fn()\n")): "fn ran 2 times",
        edit(
            ONE, ("    start = clock()\n    fn()\n", "    fn()\n    start = clock()\n")
        ): "the launch is part of it",
        edit(
            ONE, ("    return clock() - start", "    return clock()")
        ): "clock, fn, wait",
        """
import time

def seconds_of_one(fn, wait, clock):
    wait()
    start = time.perf_counter()
    fn()
    wait()
    return time.perf_counter() - start
""": "some other clock",
    },
)

TRAIN = SOLUTION["04.1"]
ANSWERS["04.1"] = Answers(
    right=[
        edit(TRAIN, ("tolist", "cpu().tolist")),
        edit(
            TRAIN,
            ("return", "return [float(x) for x in"),
            ("tolist()", "cpu().numpy()]"),
        ),
        edit(
            TRAIN,
            (
                "        loss =",
                "        x, y = x.to(device), y.to(device)\n        loss =",
            ),
            (
                "    losses =",
                "    device = next(model.parameters()).device\n    losses =",
            ),
            ("    return", "    torch.cpu.synchronize()\n    return"),
        ),
        """
import torch.nn.functional as F

def train(model, optimizer, batches):
    losses = torch.empty(len(batches), device=batches[0][0].device)
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses[step] = loss.detach()
    return losses.tolist()
""",
    ],
    wrong={
        edit(
            TRAIN, ("detach", "item"), ("torch.stack(losses).tolist()", "losses")
        ): "right losses, but 5 waits",
        edit(
            TRAIN, ("torch.stack(losses).tolist()", "[loss.item() for loss in losses]")
        ): "right losses, but 5 waits",
        edit(TRAIN, ("detach", "detach().cpu")): "right losses, but 5 waits",
        edit(TRAIN, ("stack", "tensor")): "right losses, but 5 waits",
        edit(
            TRAIN, ("torch.stack(losses).tolist()", "losses")
        ): "Python numbers are asked",
        edit(
            TRAIN, ("tolist", "numpy().tolist")
        ): "numpy() raises for a tensor on a GPU",
        edit(TRAIN, (".detach()", "")): "the graph of every step is still there",
        edit(TRAIN, ("tolist", "squeeze().tolist")): "for a list of one batch",
        edit(
            TRAIN, ("        optimizer.zero_grad()\n", "")
        ): "in each step zero_grad, backward, step",
        edit(
            TRAIN, ("        optimizer.step()\n", "")
        ): "the model without any training",
        edit(
            TRAIN, ("model(x), y", "model(x).softmax(1), y")
        ): "the first is wrong already",
        edit(
            TRAIN, ("        loss =", "        zeros = x[y == 0]\n        loss =")
        ): "5 × mask",
        edit(TRAIN, ("model(x), y", "model(x.cpu()), y.cpu()")): "10 × cpu",
        edit(
            TRAIN, ("        loss =", "        torch.cpu.synchronize()\n        loss =")
        ): "5 calls of synchronize",
        edit(
            TRAIN,
            (
                "    losses = []",
                (
                    "    losses, optimizer = [],"
                    " torch.optim.SGD(model.parameters(), lr=0.1)"
                ),
            ),
        ): "in each step zero_grad, backward, step",
        """
import torch.nn.functional as F

def train(model, optimizer, batches):
    losses = torch.zeros(len(batches))
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[step] = loss.detach()
    return losses.tolist()
""": "5 × copy to the CPU",
    },
)

TIMER = SOLUTION["04.2"]
ANSWERS["04.2"] = Answers(
    right=[
        """
def timer_seconds(a, b, threads, number):
    from torch.utils.benchmark import Timer

    return (
        Timer(stmt="fn()", globals={"fn": lambda: a @ b}, num_threads=threads)
        .timeit(number)
        .mean
    )
""",
        """
import torch.utils.benchmark as benchmark
from timeit import default_timer

def timer_seconds(a, b, threads, number):
    timer = benchmark.Timer(
        "torch.mm(a, b)",
        "import torch",
        "",
        default_timer,
        locals(),
        num_threads=threads,
    )
    return timer.timeit(number=number).times[0]
""",
    ],
    wrong={
        edit(TIMER, (", num_threads=threads", "")): "Timer's default is one thread",
        edit(
            TIMER,
            (", num_threads=threads", ""),
            ("    timer =", "    torch.set_num_threads(threads)\n    timer ="),
        ): "Timer's default is one thread",
        edit(TIMER, (".median", "")): "It has a median",
        edit(TIMER, ("timeit(number)", "timeit()")): "timeit makes a million runs",
        edit(
            TIMER, ("timeit(number)", "timeit(20)")
        ): "number = 7, and Timer computed 22 products",
        edit(TIMER, ("median", "raw_times[0]")): "seconds of one product are asked",
        edit(TIMER, ("median", "median * 1e3")): "seconds of one product are asked",
        """
import time

def timer_seconds(a, b, threads, number):
    torch.set_num_threads(threads)
    start = time.perf_counter()
    for _ in range(number):
        a @ b
    return (time.perf_counter() - start) / number
""": "outside of Timer",
    },
    equivalent={
        "moves a to the CPU": (
            "Both are on the CPU: Timer is asked for its clock and threads."
        ),
        "moves b to the CPU": (
            "Both are on the CPU: Timer is asked for its clock and threads."
        ),
        "return timer.timeit(number).median → return timer.timeit(number).mean": (
            "timeit makes one block of runs, so that median and mean are the"
            " same number."
        ),
    },
)

MEDIAN = SOLUTION["04.3"]
ANSWERS["04.3"] = Answers(
    right=[
        """
import numpy as np

def median_seconds(fn, wait, clock, n=9):
    def once():
        wait()
        start = clock()
        fn()
        wait()
        return clock() - start

    return np.median([once() for _ in range(n + 1)][1:])
""",
        """
def median_seconds(fn, wait, clock, n=9):
    for _ in range(3):
        fn()
    wait()
    times = [clock()]
    for _ in range(n):
        fn()
        wait()
        times.append(clock())
    return sorted(after - before for before, after in zip(times, times[1:]))[n // 2]
""",
    ],
    wrong={
        edit(MEDIAN, ("        wait()\n", "")): "that is the launch",
        edit(MEDIAN, ("clock() - start", "start - clock()")): "not the other way round",
        edit(
            MEDIAN, ("n=9)", "n=9, samples=[])"), ("    samples = []\n", "")
        ): "runs of an earlier call",
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
        edit(MEDIAN, ("    fn()\n    wait()\n", "")): "fn ran 9 times",
        edit(MEDIAN, ("fn()\n    wait", "fn")): "the first run (500 ms) is in it",
        """
def median_seconds(fn, wait, clock, n=9):
    start = clock()
    for _ in range(n + 1):
        fn()
    wait()
    return (clock() - start) / (n + 1)
""": "the first run (500 ms) is in it",
        edit(MEDIAN, ("median(samples)", "sum(samples)")): "that is a sum",
        edit(MEDIAN, ("median(samples)", "min(samples)")): "that is the fastest run",
        edit(MEDIAN, ("median(samples)", "samples[-1]")): "not the middle one",
        edit(MEDIAN, ("range(n)", "range(9)")): "for n = 5 you measured",
        """
import time

from statistics import median

def median_seconds(fn, wait, clock, n=9):
    fn()
    wait()
    samples = []
    for _ in range(n):
        start = time.perf_counter()
        fn()
        wait()
        samples.append(time.perf_counter() - start)
    return median(samples)
""": "some other clock",
    },
)

FASTER = SOLUTION["04.4"]
ANSWERS["04.4"] = Answers(
    right=[
        """
import math

def interval(samples):
    n, half = len(samples), 1.96 * math.sqrt(len(samples))
    low, high = (
        max(1, math.floor((n - half) / 2)),
        min(n, math.ceil(1 + (n + half) / 2)),
    )
    ordered = sorted(samples)
    return ordered[low - 1], ordered[high - 1]

def faster(a, b):
    if len(a) < 6 or len(b) < 6:
        return "cannot tell"
    a, b = interval(a), interval(b)
    if a[1] < b[0]:
        return "a"
    if b[1] < a[0]:
        return "b"
    return "cannot tell"
""",
        """
import numpy as np

def faster(a, b):
    def ranks(samples):
        n = len(samples)
        low, high = (n - 1.96 * n**0.5) // 2, (n + 1.96 * n**0.5) / 2
        return np.sort(samples)[max(0, int(low) - 1)], np.sort(samples)[
            min(n - 1, int(np.ceil(high)))
        ]

    if any(len(samples) < 6 for samples in (a, b)):
        return "cannot tell"
    first, second = sorted([(*ranks(a), "a"), (*ranks(b), "b")])
    return first[2] if first[1] < second[0] else "cannot tell"
""",
    ],
    wrong={
        """
from statistics import median

def faster(a, b):
    return "a" if median(a) < median(b) else "b"
""": "the same samples in another order",
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
""": "two outliers move the mean",
        edit(
            FASTER,
            ('    if min(len(a), len(b)) < 6:\n        return "cannot tell"\n', ""),
        ): "fewer than six samples",
        """
from statistics import mean

def faster(a, b):
    if abs(mean(a) - mean(b)) < 0.1:
        return "cannot tell"
    return "a" if mean(a) < mean(b) else "b"
""": "two outliers move the mean",
        """
from statistics import quantiles

def faster(a, b):
    if min(len(a), len(b)) < 6:
        return "cannot tell"
    (low_a, _, high_a), (low_b, _, high_b) = quantiles(a), quantiles(b)
    if high_a < low_b:
        return "a"
    return "b" if high_b < low_a else "cannot tell"
""": "here all seven samples, overlap",
        """
from statistics import median

def faster(a, b):
    if min(len(a), len(b)) < 6:
        return "cannot tell"
    if median(a) < 0.95 * median(b):
        return "a"
    return "b" if median(b) < 0.95 * median(a) else "cannot tell"
""": "here all seven samples, overlap",
        """
from utils.timing import median_interval as interval

def faster(a, b):
    if min(len(a), len(b)) < 6:
        return "cannot tell"
    if interval(a)[1] <= interval(b)[0]:
        return "a"
    return "b" if interval(b)[1] <= interval(a)[0] else "cannot tell"
""": "without width",
    },
)

PRODUCTS = SOLUTION["04.5"]
ANSWERS["04.5"] = Answers(
    right=[
        edit(PRODUCTS, ("samples =", "a @ b\n        samples =")),
        """
import time

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

def product_seconds(m, k, n, devices):
    result = {}
    for name, (device, wait) in devices.items():
        a, b = torch.rand(m, k, device=device), torch.rand(k, n, device=device)
        result[name] = median_seconds(
            lambda: torch.mm(a, b), wait, time.perf_counter, n=5
        )
    return result
""",
        """
import timeit
import numpy as np

def product_seconds(m, k, n, devices):
    def prepare(device, wait):
        a, b = torch.ones(m, k, device=device), torch.ones(k, n, device=device)
        return lambda: (torch.einsum("ij,jk->ik", a, b), wait())

    jobs = {name: prepare(*pair) for name, pair in devices.items()}
    return {
        name: np.median(timeit.repeat(job, number=1, repeat=8)[3:])
        for name, job in jobs.items()
    }
""",
        """
import time
import torch.nn.functional as F
from statistics import median

def product_seconds(m, k, n, devices):
    times = {name: [] for name in devices}
    matrices = {
        name: [torch.randn(shape, device=d) for shape in ((m, k), (k, n))]
        for name, (d, _) in devices.items()
    }
    for run in range(10):
        for name, (device, wait) in devices.items():
            wait()
            start = time.monotonic()
            F.linear(matrices[name][0], matrices[name][1].T)
            wait()
            times[name].append(time.monotonic() - start)
    return {name: median(samples[1:]) for name, samples in times.items()}
""",
    ],
    wrong={
        edit(PRODUCTS, ("            wait()\n", "")): "that is the launch",
        edit(
            PRODUCTS, ("samples =", "a @ b\n        samples ="), ("[1:]", "")
        ): "the run before was still in the queue",
        edit(
            PRODUCTS, ("device=device", 'device="cpu"', 2)
        ): "no matrix was created on 'slow'",
        edit(PRODUCTS, ("perf_counter", "perf_counter_ns", 2)): "seconds are asked",
        edit(
            PRODUCTS,
            ("        samples = []\n", ""),
            ("result =", "samples, result = [],"),
        ): "samples of another device",
        edit(
            PRODUCTS, ("randn(m, k, device=device)", "randn(m, k).to(device)")
        ): "create the matrices there",
        edit(PRODUCTS, ("n, device=device", "n")): "only one of the two matrices",
        edit(
            PRODUCTS,
            (
                "            start =",
                (
                    "            a = torch.randn(m, k, device=device)\n"
                    "            start ="
                ),
            ),
        ): "outside of the timed loop",
        edit(PRODUCTS, ("range(10)", "range(2)")): "at least three runs",
        edit(PRODUCTS, ("median(samples[1:])", "sum(samples)")): "not that of all runs",
        edit(
            PRODUCTS, ("[1:]", "")
        ): "the first run, which is slow, is among the samples",
        edit(PRODUCTS, ("(10)", "(9)"), ("[1:]", "")): "the first run, which is slow",
        edit(
            PRODUCTS, ("median(samples[1:])", "min(samples)")
        ): "that is the fastest run",
        edit(
            PRODUCTS, ("median(samples[1:])", "sum(samples[1:]) / 9")
        ): "that is a mean",
        edit(PRODUCTS, ("n, device=", "k, device=")): "expected (40, 30) by (30, 20)",
        edit(PRODUCTS, ("[name]", "['cpu']")): "expected a dict with the names",
        """
import time
from statistics import median

def product_seconds(m, k, n, devices):
    jobs, result = {}, {}
    for name, (device, wait) in devices.items():
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        jobs[name] = lambda: (a @ b, wait())
    for name, job in jobs.items():
        samples = []
        for _ in range(10):
            start = time.perf_counter()
            job()
            samples.append(time.perf_counter() - start)
        result[name] = median(samples[1:])
    return result
""": "Has the loop moved on by then?",
        """
import time

def product_seconds(m, k, n, devices):
    result = {}
    for name, (device, wait) in devices.items():
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        a @ b
        wait()
        start = time.perf_counter()
        for _ in range(9):
            a @ b
        wait()
        result[name] = (time.perf_counter() - start) / 9
    return result
""": "only a mean can come out of 9 products",
    },
    equivalent={
        "for _ in range(10): → for _ in range(11):": (
            "How many runs there are is open."
        ),
        "for _ in range(10): → for _ in range(9):": "How many runs there are is open.",
        "result[name] = median(samples[1:]) → result[name] = median(samples[2:])": (
            "Two runs to warm up are fine."
        ),
    },
)
