"""Answers to the exercises of lesson 04."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

RATE = SOLUTION["04.0"]
ANSWERS["04.0"] = Answers(
    right=[
        edit(
            RATE,
            (
                "    return sum(len(x) for x in batches) / (clock() - start)",
                "    seconds = clock() - start\n"
                "    return sum(map(len, batches)) / seconds",
            ),
        ),
        """
def samples_per_second(step, batches, wait, clock):
    def now():
        wait()
        return clock()

    start, count = now(), 0
    for x in reversed(batches):
        step(x)
        count += len(x)
    return count / (now() - start)
""",
    ],
    wrong={
        edit(
            RATE, ("step(x)\n    wait()", "step(x)")
        ): "wait for the device before you read the clock the second time",
        edit(
            RATE, ("    wait()\n    start", "    start")
        ): "somebody else's work is in the time",
        edit(
            RATE, ("step(x)\n    wait()", "step(x)\n        wait()")
        ): "the device idles while the host prepares the next one",
        edit(
            RATE, ("sum(len(x) for x in batches)", "len(batches)")
        ): "batches per second",
        edit(
            RATE,
            ("sum(len(x) for x in batches)", "len(batches) * len(batches[0])"),
        ): "the last batch is smaller",
        edit(
            RATE,
            ("def", "import time\ndef"),
            ("clock()", "time.perf_counter()", 2),
        ): "some other clock",
        edit(
            RATE,
            ("    wait()\n    start", "    step(batches[0])\n    wait()\n    start"),
        ): "once for each of the 3 batches",
    },
)

TRAIN = SOLUTION["04.1"]
ANSWERS["04.1"] = Answers(
    right=[
        edit(
            TRAIN,
            ("return", "return [float(x) for x in"),
            ("tolist()", "cpu().numpy()]"),
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
    torch.cpu.synchronize()
    return losses.tolist()
""",
    ],
    wrong={
        edit(
            TRAIN, ("detach", "item"), ("torch.stack(losses).tolist()", "losses")
        ): "right losses, but 5 waits",
        edit(TRAIN, ("torch.stack(losses).tolist()", "losses")): "as Python numbers",
        edit(TRAIN, (".detach()", "")): "the graph of every step is still there",
        edit(
            TRAIN, ("        optimizer.zero_grad()\n", "")
        ): "in each step zero_grad, backward, step",
    },
)

TURNS = SOLUTION["04.2"]
ANSWERS["04.2"] = Answers(
    right=[
        """
import random
import numpy as np

def in_turns(versions, seconds, n=9):
    for fn in versions.values():
        seconds(fn)
    times = {name: [] for name in versions}
    names = list(versions)
    for _ in range(n):
        random.shuffle(names)
        for name in names:
            times[name].append(seconds(versions[name]))
    return {name: np.median(found) for name, found in times.items()}
""",
        """
from statistics import median

def in_turns(versions, seconds, n=9):
    rounds = [[seconds(fn) for fn in versions.values()] for _ in range(n + 1)]
    columns = zip(*rounds[1:])
    return dict(zip(versions, map(median, columns)))
""",
    ],
    wrong={
        """
from statistics import median

def in_turns(versions, seconds, n=9):
    found = {}
    for name, fn in versions.items():
        found[name] = median([seconds(fn) for _ in range(n + 1)][1:])
    return found
""": "Let the versions take turns",
        edit(TURNS, ("times[1:]", "times")): "the first run (500 ms) is in it",
        edit(TURNS, ("seconds(fn)", "seconds(fn())")): "without calling fn",
        edit(TURNS, ("1 + n", "n")): "runs are to be counted",
        edit(TURNS, ("median(times[1:])", "min(times[1:])")): "that is the fastest run",
        edit(
            TURNS, ("median(times[1:])", "sum(times[1:]) / n")
        ): "one run of 40 ms decides it",
    },
)

TIMER = SOLUTION["04.3"]
ANSWERS["04.3"] = Answers(
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
        edit(
            TIMER,
            (", num_threads=threads", ""),
            ("    timer =", "    torch.set_num_threads(threads)\n    timer ="),
        ): "Timer's default is one thread",
        edit(TIMER, (".median", "")): "It has a median",
        edit(
            TIMER, ("timeit(number)", "timeit()")
        ): "timeit was to make 1,000,000 runs",
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
        edit(
            FASTER,
            ('    if min(len(a), len(b)) < 6:\n        return "cannot tell"\n', ""),
        ): "fewer than six samples",
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
    },
)

PRODUCTS = SOLUTION["04.5"]
ANSWERS["04.5"] = Answers(
    right=[
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
from time import monotonic
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
            start = monotonic()
            F.linear(matrices[name][0], matrices[name][1].T)
            wait()
            times[name].append(monotonic() - start)
    return {name: median(samples[1:]) for name, samples in times.items()}
""",
    ],
    wrong={
        edit(PRODUCTS, ("            wait()\n", "")): "that is the launch",
        edit(
            PRODUCTS, ("samples =", "a @ b\n        samples ="), ("[1:]", "")
        ): "the run before was still in the queue",
        edit(
            PRODUCTS, ("randn(m, k, device=device)", "randn(m, k).to(device)")
        ): "create the matrices there",
        edit(
            PRODUCTS, ("[1:]", "")
        ): "the first run, which is slow, is among the samples",
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
