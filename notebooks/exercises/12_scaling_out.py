"""Exercises of lesson 12."""

import contextlib
import math
import os
import pathlib
import tempfile
import unittest.mock

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.simulate.collectives import Link, all_reduce


def _number(got, shown):
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise Wrong(f"for {shown} you returned {got!r}, expected a number")
    return got


def check_latency_share(answer):
    cases = [
        (100e6, 1024, 5e-6, 200e9),
        (100e6, 8, 5e-6, 200e9),
        (1024, 2, 1e-5, 1e9),
        (1e9, 2, 0.0, 1e9),
        (1e6, 1, 1e-6, 1e9),
    ]
    for size, ranks, latency, bandwidth in cases:
        shown = f"{size:g} bytes, {ranks} ranks, {latency:g} s, {bandwidth:g} bytes/s"
        got = _number(call(answer, size, ranks, latency, bandwidth, shown=shown), shown)
        steps, share = 2 * (ranks - 1), 2 * (ranks - 1) / ranks
        whole = all_reduce(size, ranks, Link(latency, bandwidth))
        expected = steps * latency / whole if whole else 0.0
        if math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-12):
            continue
        why = f"expected {expected:.4g}: {steps} steps, and {share:.4g} times the bytes from each rank"
        if whole and math.isclose(got, latency * steps, rel_tol=1e-9):
            why += ". That is the time of the latency, not its share"
        elif math.isclose(got, (ranks - 1) * latency / ((ranks - 1) * latency + size / bandwidth), rel_tol=1e-9):
            why += ". A step carries one piece of the bytes, 1/p of them"
        raise Wrong(f"for {shown} you returned {got:.4g}, {why}")


def _order(epoch):
    return [(7 * n + 3 * epoch) % 22 for n in range(22)]  # 7 and 22 have no common factor: each number once


def check_rest_of_epoch(answer):
    for steps, batch, size in ((8, 6, 2), (9, 6, 3), (4, 6, 1), (11, 4, 3), (0, 5, 2), (8, 6, 4)):
        shares = []
        epoch, done = divmod(steps, -(-22 // batch))
        order = _order(epoch)
        batches = [order[first : first + batch] for first in range(done * batch, 22, batch)]
        for rank in range(size):
            shown = f"steps = {steps}, batch = {batch}, rank = {rank}, size = {size}, an epoch of 22 samples"
            got = call(answer, steps, _order, batch, rank, size, shown=shown)
            expected = [samples[rank::size] for samples in batches]
            if not isinstance(got, (list, tuple)) or not all(isinstance(part, (list, tuple)) for part in got):
                raise Wrong(f"for {shown} you returned {got!r}, expected a list of lists, one for each step")
            got = [list(part) for part in got]
            if got != expected:
                _explain(got, expected, shown, epoch, done, batches, rank, size)
            shares.append(got)
        together = sorted(sample for share in shares for part in share for sample in part)
        assert together == sorted(order[done * batch :])


def _explain(got, expected, shown, epoch, done, batches, rank, size):
    why = f"expected {expected}: the run is in epoch {epoch}, of which {done} steps are done"
    if len(got) != len(expected):
        why += f"; {len(expected)} steps remain, the last of which may be smaller, not {len(got)}"
    elif got == [s[rank * len(s) // size : (rank + 1) * len(s) // size] for s in batches]:
        why += "; a rank takes every size-th sample of a step, not a part in one piece"
    elif sum(batches, [])[rank::size] == sum(got, []):
        why += "; the samples are divided within each step, so that steps are the same for any number of processes"
    raise Wrong(f"for {shown} you returned {got}, {why}")


def check_save(answer):
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _save_well(answer, folder / "well.pt")
        _save_badly(answer, folder / "badly.pt")


def _save_well(answer, path):
    seen, real = {}, os.fsync

    def write(file):
        file.write(b"new ")
        file.flush()
        seen["while writing"] = path.read_bytes()
        file.write(b"checkpoint")

    def fsync(descriptor):
        texts = [p.read_bytes() for p in path.parent.iterdir()]
        seen.setdefault("at fsync", (path.read_bytes(), b"new checkpoint" in texts))
        return real(descriptor)

    def watched(function):
        def run(*args, **kwargs):
            result = function(*args, **kwargs)
            if not path.exists():
                seen["gone"] = True
            return result

        return run

    path.write_bytes(b"old checkpoint")
    before = path.stat().st_ino
    with contextlib.ExitStack() as stack:
        for name in ("unlink", "remove", "rename", "replace"):
            stack.enter_context(unittest.mock.patch.object(os, name, watched(getattr(os, name))))
        stack.enter_context(unittest.mock.patch.object(os, "fsync", fsync))
        names = {name: fsync for name, value in getattr(answer, "__globals__", {}).items() if value is real}
        stack.enter_context(unittest.mock.patch.dict(getattr(answer, "__globals__", {}), names))  # from os import fsync
        call(answer, write, path, shown="a write that goes well")
    names = sorted(p.name for p in path.parent.iterdir())
    if path.read_bytes() != b"new checkpoint":
        raise Wrong(f"after a save that went well, path holds {path.read_bytes()!r}, expected b'new checkpoint'")
    if "gone" in seen:
        raise Wrong("for a moment there was no checkpoint at all: os.replace renames over the old file in one step")
    if seen["while writing"] != b"old checkpoint":
        raise Wrong("path was written directly: a crash while writing leaves half a file. Write beside it, then rename")
    if names != [path.name]:
        raise Wrong(f"after a save that went well, the folder holds {names}, expected {path.name} alone")
    if path.stat().st_ino == before:
        raise Wrong("the new bytes were copied into the old file: a crash in that moment leaves half. Use os.replace")
    at_path, complete = seen.get("at fsync", (b"new checkpoint", False))
    if at_path != b"old checkpoint":
        raise Wrong("os.fsync was not called before the rename: after a power cut the name may point to no bytes")
    if not complete:
        raise Wrong("os.fsync was called while Python's own buffer still held bytes: call file.flush() first")


def _save_badly(answer, path):
    def fails(file):
        file.write(b"half a ")
        file.flush()
        raise OSError("no space left on device")

    path.write_bytes(b"old checkpoint")
    for attempt in ("once", "twice"):
        try:
            answer(fails, path)
        except OSError as error:
            if "no space" not in str(error):
                raise Wrong(f"after write had failed {attempt}, save raised {error!r}") from error
        else:
            raise Wrong("write raised OSError('no space left on device'), but save did not: nobody will notice")
        held = path.read_bytes() if path.exists() else "nothing"
        if held != b"old checkpoint":
            raise Wrong(f"write failed in the middle, and path holds {held!r}, expected b'old checkpoint'")
    answer(lambda file: file.write(b"third try"), path)
    if path.read_bytes() != b"third try":
        raise Wrong(f"a save after two that failed left {path.read_bytes()!r}, expected b'third try'")


def check_best_interval(answer):
    for cost, host_mtbf, hosts in ((60.0, 3e7, 2048), (5.0, 3e7, 1), (120.0, 1e7, 16), (60.0, 3e7, 512)):
        shown = f"cost = {cost:g} s, host_mtbf = {host_mtbf:g} s, {hosts} hosts"
        got = call(answer, cost, host_mtbf, hosts, shown=shown)
        if isinstance(got, (tuple, list)) and any(value is DOTS for value in got):
            raise NotAnswered
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(f"for {shown} you returned {got!r}, expected a pair (seconds, share)")
        M = host_mtbf / hosts
        T = math.sqrt(2 * cost * M)
        seconds, share = (_number(value, shown) for value in got)
        if not math.isclose(seconds, T, rel_tol=1e-6):
            why = f"expected {T:.4g} s, as the job crashes every {M:.4g} s"
            if math.isclose(seconds, math.sqrt(2 * cost * host_mtbf), rel_tol=1e-6):
                why += "; you took the time between crashes of one host"
            raise Wrong(f"for {shown} you returned an interval of {seconds:.4g} s, {why}")
        if not math.isclose(share, cost / T + T / (2 * M), rel_tol=1e-6):
            why = f"expected {cost / T + T / (2 * M):.4g}: cost / T for saving and T / (2 M) for work that is repeated"
            raise Wrong(f"for {shown} you returned a share of {share:.4g}, {why}")


def check_efficiency(answer):
    weak = {8: 0.25, 64: 0.26, 512: 0.3125}
    fixed = {1: 64.0, 8: 8.0, 64: 1.25, 512: 0.5}
    for seconds, strong in ((weak, False), (fixed, True), ({512: 0.5, 8: 0.25}, False), ({64: 1.0, 128: 0.625}, True)):
        shown = f"{seconds}, strong={strong}"
        got = call(answer, dict(seconds), strong, shown=shown)
        first = min(seconds)
        expected = {n: seconds[first] / t * (first / n if strong else 1) for n, t in seconds.items()}
        if not isinstance(got, dict) or set(got) != set(seconds):
            raise Wrong(f"for {shown} you returned {got!r}, expected a dict with the keys {sorted(seconds)}")
        for n in seconds:
            value = _number(got[n], shown)
            if math.isclose(value, expected[n], rel_tol=1e-9):
                continue
            why = f"expected {expected[n]:.4g}"
            if math.isclose(value, seconds[first] / seconds[n], rel_tol=1e-9):
                why += f": that is the speed-up; {n} devices could have been {n / first:g} times as fast as {first}"
            elif math.isclose(value, seconds[first] / seconds[n] * first / n, rel_tol=1e-9):
                why += ": each device has as much work as before, so the same time would be perfect"
            elif first != next(iter(seconds)):
                why += f": relative to the smallest number, {first}, wherever it stands in the dict"
            raise Wrong(f"for {shown} you returned {value:.4g} at {n} devices, {why}")


EXERCISES = [
    Exercise(
        number="12.1",
        title="Latency's share of a ring",
        name="latency_share",
        stars=2,
        check=check_latency_share,
        hints=[
            "How many steps does a ring of p ranks make, and how many bytes leave each rank in all?",
            "2(p - 1) steps of latency; 2(p - 1)/p of the bytes over the bandwidth.",
            "Divide the first by the sum of both. Mind one rank, where both are 0.",
        ],
        solution="""
def latency_share(size, ranks, latency, bandwidth):
    if ranks == 1:
        return 0.0
    waiting = 2 * (ranks - 1) * latency
    sending = 2 * (ranks - 1) / ranks * size / bandwidth
    return waiting / (waiting + sending)
""",
        praise="Divide both by 2(p - 1): latency against size / p / bandwidth. More ranks cut the message into "
        "smaller pieces, and the pieces become too small for the wire.",
        wrong={
            """
def latency_share(size, ranks, latency, bandwidth):
    return 2 * (ranks - 1) * latency
""": "not its share",
            """
def latency_share(size, ranks, latency, bandwidth):
    return (ranks - 1) * latency / ((ranks - 1) * latency + size / bandwidth)
""": "one piece of the bytes",
            """
def latency_share(size, ranks, latency, bandwidth):
    waiting, sending = 2 * (ranks - 1) * latency, 2 * (ranks - 1) / ranks * size / bandwidth
    return waiting / (waiting + sending)
""": "ZeroDivisionError",
        },
    ),
    Exercise(
        number="12.2",
        title="The rest of an epoch",
        name="rest_of_epoch",
        stars=2,
        check=check_rest_of_epoch,
        hints=[
            "First find the epoch and the step in it. An epoch has as many steps as batches, the last smaller one too.",
            "divmod(steps, steps_per_epoch) gives both. The samples before step * batch are done.",
            "Cut what remains into batches first, then take [rank::size] of each.",
        ],
        solution="""
def rest_of_epoch(steps, order, batch, rank, size):
    per_epoch = -(-len(order(0)) // batch)  # rounded up
    epoch, done = divmod(steps, per_epoch)
    samples = order(epoch)
    return [samples[first : first + batch][rank::size] for first in range(done * batch, len(samples), batch)]
""",
        praise="Nothing in it depends on how many processes there were before. That is what lets a job go on with "
        "fewer: the global batches stay the same, only their division changes.",
        wrong={
            """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, len(order(0)) // batch)
    samples = order(epoch)
    return [samples[first : first + batch][rank::size] for first in range(done * batch, len(samples), batch)]
""": "steps are done",
            """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch, done = divmod(steps, -(-len(order(0)) // batch))
    samples = order(epoch)
    rest = [samples[first : first + batch] for first in range(done * batch, len(samples), batch)]
    return [part[rank * len(part) // size : (rank + 1) * len(part) // size] for part in rest]
""": "not a part in one piece",
            """
def rest_of_epoch(steps, order, batch, rank, size):
    epoch = steps // -(-len(order(0)) // batch)
    samples = order(epoch)
    return [samples[first : first + batch][rank::size] for first in range(0, len(samples), batch)]
""": "steps remain",
            """
def rest_of_epoch(steps, order, batch, rank, size):
    return order(0)[rank::size]
""": "a list of lists",
        },
    ),
    Exercise(
        number="12.3",
        title="Save atomically",
        name="save",
        stars=2,
        check=check_save,
        hints=[
            "Give write a file with another name, in the same folder as path.",
            "After write: file.flush(), then os.fsync(file.fileno()), then close. An error goes no further.",
            "Last, os.replace(temporary, path): it takes the place of an old file, on Windows too.",
        ],
        solution="""
import os


def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
""",
        praise="A crash leaves a .tmp behind, which the next save overwrites. On Linux a careful program also calls "
        "fsync on the folder, so that the new name survives a power cut.",
        wrong={
            """
def save(write, path):
    with open(path, "wb") as file:
        write(file)
""": "written directly",
            """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
    os.replace(temporary, path)
""": "os.fsync was not called",
            """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    os.rename(temporary, path)
""": "no checkpoint at all",
            """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        os.fsync(file.fileno())
    os.replace(temporary, path)
""": "file.flush() first",
            """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return
    os.replace(temporary, path)
""": "nobody will notice",
            """
import os

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    finally:
        os.replace(temporary, path)
""": "failed in the middle",
            """
import os, shutil

def save(write, path):
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    shutil.copy(temporary, path)
""": "the folder holds",
        },
    ),
    Exercise(
        number="12.4",
        title="How often to save",
        name="best_interval",
        stars=2,
        check=check_best_interval,
        hints=[
            "Twice as many hosts crash twice as often: how many seconds pass between crashes of the job?",
            "M = host_mtbf / hosts, and T = sqrt(2 · cost · M).",
            "The share is cost / T for saving and T / (2 M) for repeated work. At the best T both are equal.",
        ],
        solution="""
def best_interval(cost, host_mtbf, hosts):
    mtbf = host_mtbf / hosts
    interval = (2 * cost * mtbf) ** 0.5
    return interval, cost / interval + interval / (2 * mtbf)
""",
        praise="The share is sqrt(2 · cost / M): four times as many hosts lose twice as much, unless saving gets "
        "faster. Sharded checkpoints do, because each host writes its own part.",
        wrong={
            """
def best_interval(cost, host_mtbf, hosts):
    interval = (2 * cost * host_mtbf) ** 0.5
    return interval, cost / interval + interval / (2 * host_mtbf)
""": "of one host",
            """
def best_interval(cost, host_mtbf, hosts):
    mtbf = host_mtbf / hosts
    interval = (2 * cost * mtbf) ** 0.5
    return interval, cost / interval
""": "work that is repeated",
            """
def best_interval(cost, host_mtbf, hosts):
    return (2 * cost * host_mtbf / hosts) ** 0.5
""": "expected a pair",
        },
    ),
    Exercise(
        number="12.5",
        title="Efficiency, weak and strong",
        name="efficiency",
        stars=2,
        check=check_efficiency,
        hints=[
            "What would a step take at n devices if nothing were lost?",
            "Weak: as long as at the smallest number. Strong: that time, times smallest / n.",
            "Efficiency is that ideal time divided by the measured one.",
        ],
        solution="""
def efficiency(seconds, strong):
    first = min(seconds)
    ideal = {n: seconds[first] * (first / n if strong else 1) for n in seconds}
    return {n: ideal[n] / seconds[n] for n in seconds}
""",
        praise="When somebody publishes an efficiency, ask for three things: weak or strong, relative to how many "
        "devices, and the seconds themselves. 90 % of a slow base is easy to reach.",
        wrong={
            """
def efficiency(seconds, strong):
    return {n: seconds[min(seconds)] / t for n, t in seconds.items()}
""": "that is the speed-up",
            """
def efficiency(seconds, strong):
    first = min(seconds)
    return {n: seconds[first] * first / (n * t) for n, t in seconds.items()}
""": "as much work as before",
            """
def efficiency(seconds, strong):
    first = next(iter(seconds))
    return {n: seconds[first] * (first / n if strong else 1) / t for n, t in seconds.items()}
""": "wherever it stands",
        },
    ),
]
