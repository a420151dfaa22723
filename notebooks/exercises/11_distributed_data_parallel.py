"""Exercises of lesson 11."""

import math

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.ranks import NotingSampler, RankError, Ranks


def on_ranks(dist, work):
    """What work(rank, its name) returns on each rank of `dist`."""
    size = dist.get_world_size()
    try:
        return dist.run(lambda rank: work(rank, f"rank {rank} of {size}"))
    except RankError as error:
        raise Wrong(str(error)) from error


def check_mean_loss(answer):
    for losses in ([0.5, 3.0, 1.0], [4.0], [1.5, 2.25]):
        _judge_mean_loss(answer, losses)


def _judge_mean_loss(answer, losses):
    dist = Ranks(len(losses))

    def work(rank, shown):
        loss = torch.tensor(losses[rank])
        nothing = "all_reduce itself returns nothing, it writes into its tensor"
        try:
            got = call(answer, dist, loss, shown=shown, changes=[loss])
        except Wrong as error:
            if "NoneType" in str(error):
                raise Wrong(f"{error}; {nothing}") from error
            raise
        if got is None:
            raise Wrong(f"on {shown} you returned None, expected the mean: {nothing}")
        if loss.item() != losses[rank]:
            raise Wrong(
                f"on {shown} `loss` was {losses[rank]} and now is {loss.item():g}: a"
                " collective writes into the tensor that it gets, so give it another"
                " one"
            )
        return expect.real(got, shown)

    shown = f"{len(losses)} ranks with the losses {losses},"
    for rank, got in enumerate(on_ranks(dist, work)):
        slips = [
            (sum(losses), "all_reduce leaves the sum"),
            (losses[rank], "it has its own loss only"),
        ]
        mean, said = sum(losses) / len(losses), f"rank {rank} returned"
        expect.close(got, mean, shown, slips=slips, said=said, rel_tol=1e-5)


def check_load_data(answer):
    for size, here in ((4, 2), (6, 3), (2, 1), (1, 1)):  # ranks, those of a machine
        _judge_load_data(answer, size, here)


def _judge_load_data(answer, size, here):
    dist, disks, early = Ranks(size), {}, []

    def work(rank, shown):
        machine = rank // here

        def download():
            dist.settle()  # who does not wait for the data, reads before they are there
            disks.setdefault(machine, []).append(rank)

        def read():
            if machine not in disks:
                early.append(rank)
            return f"data read by rank {rank}"

        return call(answer, dist, rank % here, download, read, shown=shown)

    got = on_ranks(dist, work)
    shown = f"{size // here} machines with {here} ranks each"
    for machine in range(size // here):
        ranks = sorted(disks.get(machine, []))
        if len(ranks) != 1:
            raise Wrong(
                f"for {shown}, machine {machine} was given the data by ranks {ranks}:"
                " one rank of each machine downloads, for each has a disk of its own"
            )
    if early:
        raise Wrong(
            f"for {shown}, rank {min(early)} read before the data were there: nobody"
            " reads until all downloads have ended"
        )
    for rank, value in enumerate(got):
        theirs = f"data read by rank {rank}"
        expect.equal(value, theirs, shown, said=f"rank {rank} returned")


def check_loss_factor(answer):
    for sizes in ([48, 16], [32, 32], [5, 3, 0, 8], [10], [1, 99], [5, 4, 2]):
        for rank, size in enumerate(sizes):
            shown = f"rank = {rank}, sizes = {sizes}"
            got = expect.real(call(answer, rank, sizes, shown=shown), shown)
            share, mean = size / sum(sizes), sum(sizes) / len(sizes)
            slips = [
                (
                    share,
                    "DDP divides the sum over the ranks by their number, so multiply"
                    " by it",
                ),
                (1, "a rank with more samples must weigh more"),
                (1 / mean, "a rank with more samples must weigh more"),
                (mean / (size or 1), "a rank with more samples weighs more, not less"),
            ]
            theirs = len(sizes) * share
            expect.close(got, theirs, shown, "", slips, rel_tol=1e-5, abs_tol=1e-9)


RATES = [  # samples a second of one process, of several, and how many these are
    (200.0, 1000.0, 8),
    (1000.0, 1600.0, 2),
    (1000.0, 2000.0, 2),
    (500.0, 400.0, 2),
    (1000.0, 1000.0, 1),
    (1200.0, 500.0, 2),
    (1000.0, 2100.0, 2),
    (121245.0, 47150.0, 4),
    (300.0, 900.0, 3),
    (700.0, 2300.0, 4),
]


def check_one_against_several(answer):
    for one, several, processes in RATES:
        shown = f"one = {one:g}, several = {several:g}, processes = {processes}"
        got = expect.listed(call(answer, one, several, processes, shown=shown))
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Wrong(f"for {shown} you returned {got!r}, expected three numbers")
        speed_up = several / one
        efficiency = speed_up / processes
        other_way = "more samples a second are faster, so the other way round"
        limit, why, slips = _limit(one, several, processes)
        parts = [
            ("speed-up", speed_up, "", [(1 / speed_up, other_way)]),
            ("efficiency", efficiency, "the speed-up by the number of processes", []),
            ("limit", limit, why, slips),
        ]
        for mine, (name, theirs, why, slips) in zip(got, parts, strict=True):
            said = f"you say that the {name} is"
            mine = expect.real(mine, shown, said=said)
            expect.close(mine, theirs, shown, why, slips, said, rel_tol=1e-5)


def _limit(one, several, processes):
    """The limit of the speed-up, why, and slips."""
    computing = 1 / (one * processes)
    rest = 1 / several - computing
    if rest <= 0:
        return math.inf, "there is no rest that would not shrink", []
    limit = 1 / one / rest
    why = (
        f"a sample takes {1 / several:.4g} s, of which {computing:.4g} s are computing;"
        " with endless processes only the rest remains"
    )
    amdahl = (
        "that is Amdahl's law, where a part of one process's time does not divide; here"
        " one process has no such rest, it computes all the time"
    )
    slips = [((processes - 1) / (processes * one / several - 1), amdahl)]
    if limit < 1:
        slower = "any number of them may be slower than one process: it may be below 1"
        slips.append((1, slower))
    return limit, why, slips


# of each rank, after no epoch; each epoch brings one more sample, not right
RIGHT, TOTAL = (3, 2, 3), (4, 7, 3)


def check_train_right(answer):
    for size, epochs in ((2, 3), (3, 2), (1, 1)):
        samplers = [NotingSampler(range(4 * size), size, rank) for rank in range(size)]
        trained, files = _train(answer, samplers, epochs)
        _judge_training(trained, samplers, epochs)
        _judge_files(files, size, epochs)


def _train(answer, samplers, epochs):
    """What each rank was trained on, and (rank, accuracy) of all files."""
    dist, trained, files = Ranks(len(samplers)), [[] for _ in samplers], []

    def count():
        rank = dist.get_rank()
        return RIGHT[rank], TOTAL[rank] + len(trained[rank]) // 4

    def save(accuracy):
        files.append((dist.get_rank(), accuracy))

    def work(rank, shown):
        given = dist, samplers[rank], trained[rank].append, count, save, epochs
        call(answer, *given, shown=shown)

    on_ranks(dist, work)
    return trained, files


def _judge_training(trained, samplers, epochs):
    for rank, (seen, sampler) in enumerate(zip(trained, samplers, strict=True)):
        given = sampler.given
        if seen != sum(given, []) or len(given) != epochs:
            raise Wrong(
                f"rank {rank} trained on {seen}, expected {epochs} times what its"
                f" sampler gives; it was gone through {len(given)} times: {given}"
            )
        for k, indices in enumerate(given):
            if indices in given[:k]:
                raise Wrong(
                    f"epochs {given.index(indices)} and {k} train in the same order on"
                    f" rank {rank}: the sampler must be told the epoch, before the loop"
                    " over it begins"
                )
    for epoch in range(epochs):
        indices = [sampler.given[epoch] for sampler in samplers]
        if len({*sum(indices, [])}) < 4 * len(samplers):
            raise Wrong(
                f"in epoch {epoch} the ranks take each other's samples, {indices}: all"
                " samplers must be told the same epoch"
            )


def _judge_files(files, size, epochs):
    ranks = [rank for rank, _ in files]
    if ranks != [0] * epochs:
        raise Wrong(
            f"in {epochs} epochs, files came from ranks {ranks[:12]}: only rank 0"
            " writes, one in each epoch, after the training"
        )
    right = RIGHT[:size]
    for epoch, (_, accuracy) in enumerate(files):
        totals = [total + epoch + 1 for total in TOTAL[:size]]
        shown = f"{list(right)} of {totals} right on the ranks, after epoch {epoch},"
        each = [r / total for r, total in zip(right, totals, strict=True)]
        slips = [
            (
                sum(each) / size,
                "that is the mean of the ranks' accuracies. Sum what was right and how"
                " many there were, then divide",
            ),
            (each[0], "that is the accuracy of rank 0 alone"),
            (
                sum(right) / (sum(totals) - size),
                "as before this epoch: count after each epoch's training",
            ),
        ]
        accuracy = expect.real(accuracy, shown, said="you saved")
        theirs = sum(right) / sum(totals)
        expect.close(accuracy, theirs, shown, "", slips, "you saved", rel_tol=1e-5)


EXERCISES = [
    Exercise(
        number="11.0",
        title="The mean over the ranks",
        name="mean_loss",
        stars=1,
        check=check_mean_loss,
        hints=[
            (
                "Which collective leaves the same sum on every rank? And what does it"
                " do with the tensor that it gets?"
            ),
            (
                "all_reduce writes the sum into the tensor and returns nothing. Give it"
                " a copy of `loss`, or a new tensor."
            ),
            "mean = loss / dist.get_world_size(), then dist.all_reduce(mean).",
        ],
        solution="""
def mean_loss(dist, loss):
    mean = loss / dist.get_world_size()
    dist.all_reduce(mean)
    return mean
""",
        praise=(
            "So a loop logs the loss of the whole batch. All ranks must call it; only"
            " the line that prints belongs under `if rank == 0:`."
        ),
    ),
    Exercise(
        number="11.1",
        title="One download on each machine",
        name="load_data",
        stars=1,
        check=check_load_data,
        hints=[
            (
                "Rank 0 is on one machine only. Which number begins at 0 on each"
                " machine?"
            ),
            (
                "Which collective moves nothing, and lets nobody go before all have"
                " come? Who must call it, and when does the downloader come to it?"
            ),
            "Under `if local_rank == 0:` download(), then for all dist.barrier().",
        ],
        solution="""
def load_data(dist, local_rank, download, read):
    if local_rank == 0:
        download()
    dist.barrier()
    return read()
""",
        praise=(
            "The `if` holds what some ranks do, and no collective: the barrier stands"
            " outside, where all ranks come to it."
        ),
    ),
    Exercise(
        number="11.2",
        title="Weigh an uneven share",
        name="loss_factor",
        stars=2,
        check=check_loss_factor,
        hints=[
            (
                "The mean over all samples is the weighted mean of the ranks' means."
                " What is the weight of rank r?"
            ),
            (
                "The weight is sizes[rank] / sum(sizes). But DDP also divides by the"
                " number of ranks."
            ),
            "sizes[rank] * len(sizes) / sum(sizes).",
        ],
        solution="""
def loss_factor(rank, sizes):
    return sizes[rank] * len(sizes) / sum(sizes)
""",
        praise=(
            "For equal shares it is 1. With a sum loss in place of the mean, the factor"
            " is len(sizes) / sum(sizes): that is the line in train_ddp.py."
        ),
    ),
    Exercise(
        number="11.3",
        title="Three mistakes",
        name="train_right",
        stars=2,
        check=check_train_right,
        hints=[
            (
                "What does the sampler have to be told in each epoch? And who must call"
                " a collective?"
            ),
            (
                "The mean of the ranks' accuracies is not the accuracy of all samples"
                " when their shares differ."
            ),
            (
                "counts = torch.tensor(count()), all_reduce by all ranks, then rank 0"
                " saves right / total."
            ),
        ],
        solution="""
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
""",
        praise=(
            "A training that reads the file afterwards needs a barrier, or it may be"
            " faster than the writer."
        ),
    ),
    Exercise(
        number="11.4",
        title="One against several",
        name="one_against_several",
        stars=3,
        check=check_one_against_several,
        hints=[
            (
                "A sample takes 1 / one seconds with one process, and 1 / several with"
                " all of them."
            ),
            (
                "If only computing took time, it would be 1 / (one * processes). What"
                " is more than that does not shrink."
            ),
            (
                "limit = (1 / one) / (1 / several - 1 / (one * processes)), and"
                " infinite where the rest is not above 0."
            ),
        ],
        solution="""
def one_against_several(one, several, processes):
    speedup = several / one
    rest = 1 / several - 1 / (one * processes)
    limit = 1 / one / rest if rest > 0 else float("inf")
    return speedup, speedup / processes, limit
""",
        praise=(
            "It resembles Amdahl's law; but there one process pays for the part that"
            " does not divide as well, and here it is the price of having several. A"
            " limit below 1 means that one process is the best choice for this work on"
            " this machine. A larger batch shrinks the rest of each sample."
        ),
    ),
]
