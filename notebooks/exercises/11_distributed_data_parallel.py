"""Exercises of lesson 11."""

import math
import numbers
import queue
import threading

import torch

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call

WAIT = 1.0  # seconds until a rank that waits for another has waited in vain


def check_share(answer):
    for n, world in ((12, 3), (10, 4), (7, 2), (3, 5), (5, 1)):
        shown = f"n = {n}, world = {world}, seed = 0, epoch = 0"
        dealt = [_indices(call(answer, n, rank, world, 0, 0, shown=shown), shown) for rank in range(world)]
        every = sorted(sum(dealt, []))
        if len(every) > n and set(every) == set(range(n)):
            twice = next(i for i in every if every.count(i) > 1)
            raise Wrong(
                f"for {shown} index {twice} is dealt out twice: {dealt}; no padding, and one order for all ranks"
            )
        if every != list(range(n)):
            lost = sorted(set(range(n)) - set(every))
            raise Wrong(f"for {shown} you dealt out {dealt}: {lost or 'nothing'} is lost, all ranks must shuffle alike")
        longest, shortest = max(map(len, dealt)), min(map(len, dealt))
        if longest - shortest > 1:
            raise Wrong(f"for {shown} one rank has {longest} samples, another {shortest}: at most one more")
    orders = {(seed, epoch): list(answer(50, 0, 2, seed, epoch)) for seed in (0, 1) for epoch in (0, 1, 2)}
    if orders[0, 0] == sorted(orders[0, 0]):
        raise Wrong("the samples are not shuffled: rank 0 of 2 gets them in ascending order")
    if list(answer(50, 0, 2, 0, 0)) != orders[0, 0]:
        raise Wrong("two calls with the same arguments gave two orders: the order must follow from seed and epoch")
    if orders[0, 0] == orders[0, 1] or orders[0, 1] == orders[0, 2]:
        raise Wrong("two epochs have the same order: the epoch must go into the seed of the shuffle")
    if orders[0, 0] == orders[1, 0]:
        raise Wrong("two seeds give the same order: the seed must count, too")


def _indices(got, shown):
    if hasattr(got, "tolist"):  # a tensor, an array
        got = got.tolist()
    whole = isinstance(got, (list, tuple, range)) and all(isinstance(i, numbers.Integral) for i in got)
    if not whole or any(isinstance(i, bool) for i in got):
        raise Wrong(f"for {shown} you returned {got!r}, expected a list of indices")
    return list(got)


def check_loss_factor(answer):
    for sizes in ([32, 32], [48, 16], [5, 3, 0, 8], [10], [1, 99]):
        got = []
        for rank in range(len(sizes)):
            shown = f"rank = {rank}, sizes = {sizes}"
            got.append(_number(call(answer, rank, sizes, shown=shown), shown))
        factors = [size * len(sizes) / sum(sizes) for size in sizes]
        if all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12) for a, b in zip(got, factors, strict=True)):
            continue
        why = f"for sizes = {sizes} you returned {_list(got)}, expected {_list(factors)}"
        if all(math.isclose(a * len(sizes), b, rel_tol=1e-6) for a, b in zip(got, factors, strict=True)):
            why += ": DDP divides the sum over the ranks by their number, so multiply by it"
        elif len(set(sizes)) > 1 and len(set(got)) == 1:
            why += ": a rank with more samples must weigh more"
        elif len(got) > 1 and got[0] < got[1] and sizes[0] > sizes[1]:
            why += ": the rank with more samples must weigh more, not less"
        raise Wrong(why)


def _list(numbers):
    return "[" + ", ".join(f"{number:.4g}" for number in numbers) + "]"


def _number(got, shown):
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, numbers.Real):
        raise Wrong(f"for {shown} you returned {got!r}, expected a number")
    return got


class _Stuck(Exception):
    """A rank has waited in vain."""


def _on_threads(world, work):
    """work(rank) on a thread for each rank: the list of results, or the first error, a _Stuck last of all."""
    results, errors = [None] * world, [None] * world

    def run(rank):
        try:
            results[rank] = work(rank)
        except Exception as error:
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * WAIT)
    if any(thread.is_alive() for thread in threads):
        raise Wrong(f"with {world} ranks, some rank never came to an end")
    for error in sorted(filter(None, errors), key=lambda error: isinstance(error, _Stuck)):
        raise error
    return results


def check_ring_all_gather(answer):
    for world in (1, 2, 5):
        values = [f"v{rank}" for rank in range(world)]
        links = [queue.Queue() for _ in range(world)]
        sent = [0] * world

        def work(rank, world=world, values=values, links=links, sent=sent):
            def send(value):
                sent[rank] += 1
                if sent[rank] > 4 * world + 4:
                    raise Wrong(f"rank {rank} of {world} has sent {sent[rank]} values and goes on")
                links[(rank + 1) % world].put(value)

            def receive():
                try:
                    return links[rank].get(timeout=WAIT)
                except queue.Empty:
                    raise _Stuck(rank) from None

            return call(answer, rank, world, values[rank], send, receive, shown=f"rank {rank} of {world}")

        try:
            results = _on_threads(world, work)
        except Wrong as problem:
            if "_Stuck" in str(problem):
                raise Wrong(f"with {world} ranks all wait for a value that nobody has sent: a deadlock") from None
            raise
        for rank, got in enumerate(results):
            got = list(got) if isinstance(got, (list, tuple)) else got
            if got != values:
                why = ": the same values, but in the order of ranks, please" if _same(got, values) else ""
                raise Wrong(f"rank {rank} of {world} returned {got!r}, expected {values}{why}")
            if sent[rank] != world - 1:
                raise Wrong(f"rank {rank} of {world} sent {sent[rank]} values; {world - 1} are enough")


def _same(got, values):
    return isinstance(got, list) and len(got) == len(values) and all(value in got for value in values)


def check_one_against_several(answer):
    cases = [(1000.0, 1600.0, 2), (1000.0, 2000.0, 2), (500.0, 400.0, 2), (200.0, 1000.0, 8), (1000.0, 1000.0, 1)]
    for one, several, processes in cases:
        shown = f"one = {one:g}, several = {several:g}, processes = {processes}"
        got = call(answer, one, several, processes, shown=shown)
        if isinstance(got, (tuple, list)) and any(value is DOTS for value in got):
            raise NotAnswered
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Wrong(f"for {shown} you returned {got!r}, expected three numbers")
        got = [_number(value, shown) for value in got]
        rest = 1 / several - 1 / (one * processes)  # seconds a sample that do not shrink
        expected = [several / one, several / one / processes, 1 / one / rest if rest > 1e-12 else math.inf]
        for name, mine, theirs in zip(("speed-up", "efficiency", "limit"), got, expected, strict=True):
            if mine == theirs or math.isclose(mine, theirs, rel_tol=1e-6):
                continue
            why = f"for {shown} the {name} is {theirs:.4g}, you returned {mine:.4g}"
            if name == "speed-up" and math.isclose(mine, one / several, rel_tol=1e-6):
                why += ": more samples a second are faster, so the other way round"
            if name == "limit" and processes > 1 and _amdahl(one, several, processes, mine):
                why += (
                    ": that is Amdahl's law, where a part of one process's time does not divide; here one process has "
                )
                why += "no such rest, it computes all the time"
            elif name == "limit":
                why += (
                    f": a sample takes {1 / several:.4g} s, of which {1 / one / processes:.4g} s are computing; "
                    "with endless processes only the rest remains"
                )
            raise Wrong(why)


def _amdahl(one, several, processes, limit):
    serial = (processes * one / several - 1) / (processes - 1)
    return serial > 1e-12 and math.isclose(limit, 1 / serial, rel_tol=1e-6)


class _ToyGroup:
    """What one rank sees as `dist`: threads in place of processes."""

    ReduceOp = torch.distributed.ReduceOp if torch.distributed.is_available() else None

    def __init__(self, world):
        self.world, self.place = world, threading.local()
        self.meeting, self.lock, self.given = threading.Barrier(world), threading.Lock(), []

    def get_rank(self):
        return self.place.rank

    def get_world_size(self):
        return self.world

    def barrier(self):
        try:
            self.meeting.wait(WAIT)
        except threading.BrokenBarrierError:
            raise _Stuck(self.place.rank) from None

    def all_reduce(self, tensor, op=None):
        tensor.copy_(self._total(tensor, op))

    def reduce(self, tensor, dst=0, op=None):
        total = self._total(tensor, op)
        if self.place.rank == dst:
            tensor.copy_(total)

    def _total(self, tensor, op):
        if op is not None and op != self.ReduceOp.SUM:
            raise Wrong(f"this group only sums, and was asked for {op}")
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"all_reduce needs a tensor, not {tensor!r}")
        with self.lock:
            self.given.append(tensor.clone())
        self.barrier()
        total = sum(self.given[1:], self.given[0])
        self.barrier()
        self.given.clear()
        self.barrier()
        return total


class _Sampler:
    def __init__(self, rank):
        self.rank, self.epoch, self.calls = rank, 0, []

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.calls.append(epoch)

    def __iter__(self):
        return iter([10 * self.epoch + self.rank, 10 * self.epoch + self.rank + 2])


def check_train_right(answer):
    world, epochs = 2, 3  # after epoch e, rank 0 had 1 of 1 right, rank 1 had 2 of 5 + e
    group, samplers = _ToyGroup(world), [_Sampler(rank) for rank in range(world)]
    trained, saved = [[] for _ in range(world)], []

    def work(rank):
        group.place.rank = rank

        def save(accuracy):
            saved.append((rank, accuracy))

        def count():
            return (2, 5 + max(0, len(trained[rank]) // 2 - 1)) if rank else (1, 1)

        shown = f"rank {rank} of {world}"
        call(answer, group, samplers[rank], trained[rank].append, count, save, epochs, shown=shown)

    try:
        _on_threads(world, work)
    except Wrong as problem:
        if "_Stuck" in str(problem):
            raise Wrong(
                "a rank waits in a collective that the other one never calls: a hang; all ranks must call all_reduce"
            ) from None
        raise
    if not any(trained):
        raise Wrong("no step was trained: call step(index) for each index of the sampler, in every epoch")
    for rank, seen in enumerate(trained):
        expected = [index for epoch in range(epochs) for index in (10 * epoch + rank, 10 * epoch + rank + 2)]
        if seen == [rank, rank + 2] * epochs:
            raise Wrong("every epoch trains in the same order: nobody tells the sampler the epoch")
        if seen != expected:
            raise Wrong(f"rank {rank} trained on {seen}, its sampler gave {expected}")
    if len(saved) > epochs:
        raise Wrong(
            f"{len(saved)} files were written in {epochs} epochs, by ranks {[rank for rank, _ in saved]}: one is enough"
        )
    if len(saved) < epochs or any(rank != 0 for rank, _ in saved):
        raise Wrong(f"in {epochs} epochs, files came from ranks {[rank for rank, _ in saved]}: one from rank 0 in each")
    for epoch, (_, accuracy) in enumerate(saved):
        accuracy, total = _number(accuracy, "save"), 5 + epoch
        if math.isclose(accuracy, (1 + 2 / total) / 2, abs_tol=1e-4):
            raise Wrong(
                f"the accuracy saved after epoch {epoch} is the mean of 1 of 1 and 2 of {total}; over all samples it "
                f"is 3 of {total + 1}: sum what was right and how many there were, then divide"
            )
        if not math.isclose(accuracy, 3 / (total + 1), abs_tol=1e-4):
            raise Wrong(
                f"after epoch {epoch}, 1 of 1 and 2 of {total} samples were right, so 3 of {total + 1}; you saved "
                f"{accuracy:.4g}: count after each epoch's training, and save once in each"
            )


TRAIN = """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index in sampler:
            step(index)
        counts = torch.tensor(count())
        dist.all_reduce(counts)
        if dist.get_rank() == 0:
            right, total = counts.tolist()
            save(right / total)
"""
RING = """
def ring_all_gather(rank, world, value, send, receive):
    values = [None] * world
    values[rank] = value
    for step in range(world - 1):
        send(value)
        value = receive()
        values[(rank - step - 1) % world] = value
    return values
"""
SHARE = """
import torch


def share(n, rank, world, seed, epoch):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.randperm(n, generator=generator).tolist()[rank::world]
"""

EXERCISES = [
    Exercise(
        number="11.1",
        title="Deal out without padding",
        name="share",
        stars=2,
        check=check_share,
        hints=[
            "All ranks must make the same shuffled list. From what can its seed follow, that all of them know?",
            "torch.Generator().manual_seed(...) and torch.randperm(n, generator=...) give one order to all ranks.",
            "The slice [rank::world] takes every world-th element, beginning with the rank's own.",
        ],
        solution=SHARE,
        praise="DistributedSampler adds seed and epoch, so its seed 0 in epoch 1 is seed 1 in epoch 0. "
        "And shares of unequal length need join, or a loss that is weighted.",
        wrong={
            SHARE.replace("1000 * seed + epoch", "1000 * seed + epoch + 7919 * rank"): "shuffle alike",
            SHARE.replace("1000 * seed + epoch", "seed"): "two epochs have the same order",
            SHARE.replace("1000 * seed + epoch", "epoch"): "two seeds give the same order",
            SHARE.replace("torch.randperm(n, generator=generator)", "torch.randperm(n)"): "shuffle alike",
            """
def share(n, rank, world, seed, epoch):
    return list(range(rank, n, world))
""": "not shuffled",
            """
import torch


def share(n, rank, world, seed, epoch):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1000 * seed + epoch)).tolist()
    size = -(-n // world)
    return (order + order)[rank * size : (rank + 1) * size]
""": "dealt out twice",
            """
import torch


def share(n, rank, world, seed, epoch):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1000 * seed + epoch)).tolist()
    size = n // world
    return order[rank * size : (rank + 1) * size if rank < world - 1 else n]
""": "at most one more",
        },
    ),
    Exercise(
        number="11.2",
        title="Weigh an uneven share",
        name="loss_factor",
        stars=2,
        check=check_loss_factor,
        hints=[
            "The mean over all samples is the weighted mean of the ranks' means. What is the weight of rank r?",
            "The weight is sizes[rank] / sum(sizes). But DDP also divides by the number of ranks.",
            "sizes[rank] * len(sizes) / sum(sizes).",
        ],
        solution="""
def loss_factor(rank, sizes):
    return sizes[rank] * len(sizes) / sum(sizes)
""",
        praise="For equal shares it is 1. With a sum loss in place of the mean, the factor is len(sizes) / sum(sizes): "
        "that is the line in train_ddp.py.",
        wrong={
            """
def loss_factor(rank, sizes):
    return sizes[rank] / sum(sizes)
""": "so multiply by it",
            """
def loss_factor(rank, sizes):
    return 1
""": "must weigh more",
            """
def loss_factor(rank, sizes):
    return sum(sizes) / (len(sizes) * sizes[rank])
""": "not less",
        },
    ),
    Exercise(
        number="11.3",
        title="Half a ring",
        name="ring_all_gather",
        stars=2,
        check=check_ring_all_gather,
        hints=[
            "In each of world - 1 steps: send one value to the right, receive one from the left. Which one to send?",
            "Send on what you received last. At the start that is your own value.",
            "What arrives in step 0 is from rank - 1, in step 1 from rank - 2; take it modulo world.",
        ],
        solution=RING,
        praise="With chunks that are added on the way before it, this is the all-reduce of the lesson.",
        wrong={
            RING.replace(
                "value = receive()\n        values[(rank - step - 1) % world] = value",
                "values[(rank - step - 1) % world] = receive()",
            ): "expected",
            RING.replace(
                "send(value)\n        value = receive()", "value = receive()\n        send(value)"
            ): "a deadlock",
            RING.replace("range(world - 1)", "range(world)"): "are enough",
            RING.replace(
                "values[(rank - step - 1) % world]", "values[(rank + step + 1) % world]"
            ): "in the order of ranks",
        },
    ),
    Exercise(
        number="11.4",
        title="One against several",
        name="one_against_several",
        stars=2,
        check=check_one_against_several,
        hints=[
            "A sample takes 1 / one seconds with one process, and 1 / several with all of them.",
            "If only computing took time, it would be 1 / (one * processes). What is more than that does not shrink.",
            "limit = (1 / one) / (1 / several - 1 / (one * processes)), and infinite where the rest is not above 0.",
        ],
        solution="""
def one_against_several(one, several, processes):
    speedup = several / one
    rest = 1 / several - 1 / (one * processes)
    limit = (1 / one) / rest if rest > 1e-12 else float("inf")
    return speedup, speedup / processes, limit
""",
        praise="It resembles Amdahl's law; but there one process pays for the part that does not divide as well, and "
        "here it is the price of having several. A limit below 1 means that one process is the best choice for this "
        "work on this machine. A larger batch shrinks the rest of each sample.",
        wrong={
            """
def one_against_several(one, several, processes):
    return one / several, one / several / processes, 1.0
""": "the other way round",
            """
def one_against_several(one, several, processes):
    return several / one, several / one, 1.0
""": "the efficiency is",
            """
def one_against_several(one, several, processes):
    return several / one, several / one / processes, float(processes)
""": "only the rest remains",
            """
def one_against_several(one, several, processes):
    speedup = several / one
    serial = (processes / speedup - 1) / (processes - 1) if processes > 1 else 1
    return speedup, speedup / processes, 1 / serial if serial > 1e-12 else float("inf")
""": "one process has no such rest",
        },
    ),
    Exercise(
        number="11.5",
        title="Three mistakes",
        name="train_right",
        stars=2,
        check=check_train_right,
        hints=[
            "What does the sampler have to be told in each epoch? And who must call a collective?",
            "The mean of the ranks' accuracies is not the accuracy of all samples when their shares differ.",
            "counts = torch.tensor(count()), all_reduce by all ranks, then rank 0 saves right / total.",
        ],
        solution=TRAIN,
        praise="A training that reads the file afterwards needs a barrier, or it may be faster than the writer.",
        wrong={
            TRAIN.replace("        sampler.set_epoch(epoch)\n", ""): "tells the sampler the epoch",
            """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index in sampler:
            step(index)
        counts = torch.tensor(count())
        if dist.get_rank() == 0:
            dist.all_reduce(counts)
            save(counts[0].item() / counts[1].item())
""": "a hang",
            """
import torch


def train_right(dist, sampler, step, count, save, epochs):
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for index in sampler:
            step(index)
        right, total = count()
        accuracy = torch.tensor(right / total)
        dist.all_reduce(accuracy)
        if dist.get_rank() == 0:
            save(accuracy.item() / dist.get_world_size())
""": "then divide",
            TRAIN.replace(
                "        sampler.set_epoch", "        counts = torch.tensor(count())\n        sampler.set_epoch", 1
            ).replace(
                "            step(index)\n        counts = torch.tensor(count())", "            step(index)"
            ): "count after each epoch",
            TRAIN.replace(
                "        if dist.get_rank() == 0:\n            right", "        if True:\n            right"
            ): "one is enough",
        },
    ),
]
