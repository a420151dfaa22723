"""Exercises of lesson 11."""

import collections
import math
import numbers
import threading
import time

import torch
from torch.utils.data import DistributedSampler

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise, stop

SECONDS = 4  # that the ranks of one world may take; they need some milliseconds


class _Stop(BaseException):
    """Ends a rank with a verdict. No Exception, so that `except Exception` in an answer
    does not catch it.
    """


class _InVain(_Stop):
    """The rank waited for what could not come any more."""


class _World:
    """Ranks, each of them a thread. As soon as all that have not ended wait in vain,
    they are told so.
    """

    def __init__(self, size):
        self.size = size
        self.news = threading.Condition()
        self.ended, self.over, self.deadlock = 0, False, False
        # rank → function that says whether what it waits for is there
        self.waiting = {}
        # number of the collective → rank → (its name, what it gave)
        self.calls = collections.defaultdict(dict)
        self.mail = collections.defaultdict(list)  # (from, to) → messages

    def run(self, work):
        """work(rank) for all ranks: the list of results. Or the first rank's fault,
        before what others waited for.
        """
        results, errors = [None] * self.size, []

        def run(rank):
            try:
                results[rank] = work(rank)
            except BaseException as error:
                errors.append((isinstance(error, _InVain), rank, error))
            with self.news:
                self.ended += 1
                self._look()

        threads = [
            threading.Thread(target=run, args=(rank,), daemon=True)
            for rank in range(self.size)
        ]
        # a busy machine makes no loop endless; who waits for good, ends some time
        begin, end = time.process_time(), time.monotonic() + 20
        for thread in threads:
            thread.start()
        for thread in threads:
            while (
                thread.is_alive()
                and time.process_time() - begin < SECONDS
                and time.monotonic() < end
            ):
                thread.join(0.01)
        endless = [
            rank
            for rank, thread in enumerate(threads)
            if thread.is_alive() and rank not in self.waiting
        ]
        for rank in endless:
            stop(threads[rank])
        if endless:
            raise Wrong(
                f"rank {endless[0]} of {self.size} had not ended after {SECONDS}"
                " seconds: a loop without end?"
            )
        if errors:
            error = min(errors, key=lambda found: found[:2])[2]
            raise Wrong(str(error)) if isinstance(error, _Stop) else error
        return results

    def wait(self, rank, ready):
        """Wait until ready(); False if that cannot be any more."""
        with self.news:
            self.waiting[rank] = ready
            self._look()
            self.news.wait_for(lambda: ready() or self.over)
            del self.waiting[rank]
            return ready()

    def _look(self):
        all_wait = self.ended + len(self.waiting) == self.size
        if all_wait and not self.over:
            if not any(ready() for ready in self.waiting.values()):
                self.over, self.deadlock = True, not self.ended
        self.news.notify_all()

    def send(self, source, to, value):
        with self.news:
            self.mail[source, to].append(value)
            self.news.notify_all()

    def receive(self, source, to):
        with self.news:
            mail = self.mail[source, to]
        if self.wait(to, lambda: mail):
            return mail.pop(0)
        if self.deadlock:
            raise _InVain(
                f"all {self.size} ranks wait for a value that nobody has sent: a"
                " deadlock"
            )
        raise _InVain(
            f"rank {to} of {self.size} waits for one more value, which rank {source}"
            " never sends"
        )


class _Dist:
    """What one rank sees as `dist`: the calls of torch.distributed that the lesson
    names.
    """

    ReduceOp = getattr(torch.distributed, "ReduceOp", None)
    group = getattr(torch.distributed, "group", None)

    def __init__(self, rank, world):
        self._rank, self._world, self._count, self._open = rank, world, 0, []
        self._thread = threading.current_thread()

    def __getattr__(self, name):
        if name.startswith("_") or not hasattr(torch.distributed, name):
            raise AttributeError(f"torch.distributed has no {name!r}")
        raise _Stop(
            f"`dist` of this exercise has no {name}; it has all_reduce, all_gather,"
            " broadcast and others that the lesson names, and is set up already"
        )

    def get_rank(self, group=None):
        return self._rank

    def get_world_size(self, group=None):
        return self._world.size

    def is_initialized(self):
        return True

    def barrier(self, group=None, async_op=False):
        return self._collective("barrier", None, lambda given: None, async_op)

    def broadcast(self, tensor, src, group=None, async_op=False):
        def finish(given):
            tensor.copy_(given[src])

        return self._of_tensors(f"broadcast from {src}", tensor, finish, async_op)

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        def finish(given):
            tensor.copy_(_reduced(given, op))

        return self._of_tensors("all_reduce", tensor, finish, async_op)

    def reduce(self, tensor, dst=0, op=None, group=None, async_op=False):
        def finish(given):
            if self._rank == dst:
                tensor.copy_(_reduced(given, op))

        return self._of_tensors(f"reduce to {dst}", tensor, finish, async_op)

    def gather(self, tensor, gather_list=None, dst=0, group=None, async_op=False):
        self._need_list("gather_list", gather_list, dst)
        _need_tensors("gather_list", gather_list)

        def finish(given):
            _fill(gather_list, given)

        return self._of_tensors(f"gather to {dst}", tensor, finish, async_op)

    def all_gather(self, tensor_list, tensor, group=None, async_op=False):
        _need_tensors("tensor_list", tensor_list)

        def finish(given):
            _fill(tensor_list, given)

        return self._of_tensors("all_gather", tensor, finish, async_op)

    def all_gather_into_tensor(
        self, output_tensor, input_tensor, group=None, async_op=False
    ):
        def finish(given):
            output_tensor.copy_(torch.stack(given).reshape(output_tensor.shape))

        name = "all_gather_into_tensor"
        return self._of_tensors(name, input_tensor, finish, async_op)

    def gather_object(self, obj, object_gather_list=None, dst=0, group=None):
        self._need_list("object_gather_list", object_gather_list, dst)

        def finish(given):
            _fill(object_gather_list, given)

        self._collective(f"gather_object to {dst}", obj, finish)

    def all_gather_object(self, object_list, obj, group=None):
        def finish(given):
            _fill(object_list, given)

        self._collective("all_gather_object", obj, finish)

    def send(self, tensor, dst, group=None):
        self._world.send(self._rank, dst, tensor.detach().clone())

    def recv(self, tensor, src, group=None):
        tensor.copy_(self._world.receive(src, self._rank))
        return src

    def isend(self, tensor, dst, group=None):
        self.send(tensor, dst)
        return _Work(lambda: None)

    def irecv(self, tensor, src, group=None):
        return _Work(lambda: self.recv(tensor, src))

    def _need_list(self, name, places, dst):
        if (places is None) == (self._rank == dst):
            raise ValueError(
                f"Argument ``{name}`` must be specified on destination rank, and on no"
                " other one."
            )

    def _of_tensors(self, name, tensor, finish, async_op):
        """A collective of tensors that have one dtype and one shape on all ranks."""
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                "Invalid function argument. Expected a torch.Tensor, but got"
                f" {type(tensor)} instead."
            )
        name = f"{name} ({tensor.dtype}, shape {tuple(tensor.shape)})"
        return self._collective(name, tensor.detach().clone(), finish, async_op)

    def _collective(self, name, value, finish, async_op=False):
        """Calls finish with the list of what all ranks gave, in their order, as soon as
        all are there.
        """
        rank, world = self._rank, self._world
        if threading.current_thread() is not self._thread:
            raise _Stop(
                f"a `dist` of rank {rank} was used in another call: take the one that"
                " the call gets"
            )
        self._count = number = self._count + 1
        if number > 1000:
            raise _Stop(
                f"rank {rank} of {world.size} has called 1,000 collectives and goes on"
            )
        with world.news:
            calls = world.calls[number]
            calls[rank] = name, value
            world.news.notify_all()

        def wait():
            if work in self._open:
                self._open.remove(work)
            if not world.wait(rank, lambda: len(calls) == world.size):
                missing = min(set(range(world.size)) - set(calls))
                raise _InVain(
                    f"rank {rank} of {world.size} waits in {name.split()[0]}, which"
                    f" rank {missing} never calls: a hang; all ranks must call it"
                )
            for other, (called, _) in sorted(calls.items()):
                if called != name:
                    raise _Stop(
                        f"collective number {number} is {name} on rank {rank}, and"
                        f" {called} on rank {other}: all ranks must call the same ones,"
                        " in the same order, with the same shapes and dtypes"
                    )
            finish([calls[other][1] for other in range(world.size)])

        work = _Work(wait)
        if async_op:
            self._open.append(work)
            return work
        work.wait()

    def _close(self):
        """At the end of a rank's work."""
        if self._open:
            raise _Stop(
                f"rank {self._rank} started a collective with async_op=True and never"
                " called wait() on it"
            )


def _reduced(given, op):
    ways = {
        "SUM": torch.sum,
        "AVG": torch.mean,
        "MAX": torch.amax,
        "MIN": torch.amin,
        "PRODUCT": torch.prod,
    }
    return ways["SUM" if op is None else op.name](torch.stack(given), 0)


def _need_tensors(name, places):
    """What PyTorch asks of the list that a gather fills."""
    for place in () if places is None else places:
        if not isinstance(place, torch.Tensor):
            raise TypeError(
                f"Expected parameter `{name}` of type List[torch.Tensor], but got"
                f" elements of type {type(place)}."
            )


def _fill(places, given):
    """What a gather leaves in its list: in the tensors that stand there, or, of
    objects, in their places.
    """
    if places is None:
        return
    for k, value in enumerate(given):
        if isinstance(value, torch.Tensor) and isinstance(places[k], torch.Tensor):
            places[k].copy_(value)
        else:
            places[k] = value


class _Work:
    """What a call with async_op=True returns."""

    def __init__(self, finish):
        self.finish = finish

    def wait(self, timeout=None):
        finish, self.finish = self.finish, lambda: None
        finish()
        return True

    is_completed = wait


def check_mean_loss(answer):
    for losses in ([0.5, 3.0, 1.0], [4.0], [1.5, 2.25]):
        _judge_mean_loss(answer, losses)


def _judge_mean_loss(answer, losses):
    world = _World(len(losses))

    def work(rank):
        dist, loss = _Dist(rank, world), torch.tensor(losses[rank])
        shown = f"rank {rank} of {world.size}"
        for _ in range(2):
            got = call(answer, dist, loss, shown=shown, changes=[loss])
            dist._close()
            if got is None:
                raise Wrong(
                    f"on {shown} you returned None, expected the mean (all_reduce"
                    " itself returns nothing)"
                )
            if loss.item() != losses[rank]:
                raise Wrong(
                    f"on {shown} `loss` was {losses[rank]} and now is {loss.item():g}:"
                    " a collective writes into the tensor that it gets, so give it"
                    " another one"
                )
        return _number(got, f"on {shown} you returned")

    shown = f"{world.size} ranks with the losses {losses},"
    mean = sum(losses) / world.size
    for rank, got in enumerate(world.run(work)):
        slips = [
            (sum(losses), "all_reduce leaves the sum"),
            (losses[rank], "it has its own loss only"),
        ]
        said = f"rank {rank} returned"
        expect.close(got, mean, shown, slips=slips, said=said, rel_tol=1e-5)


class _Wrapped(torch.nn.Module):
    """As DistributedDataParallel: a module around the model, without a group."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


def check_finish(answer):
    for size in (2, 3, 1):
        models = [_model() for _ in range(size)]
        saved = _finish(answer, models)
        _judge_saved(saved, size, models[0].state_dict())


def _model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # all ranks hold the same
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


def _finish(answer, models):
    """(rank, what it saved, ranks that had left finish by then) of all files."""
    world, saved, gone = _World(len(models)), [], []

    def work(rank):
        @_named
        def save(state):
            # until no other rank can go on: who does not wait for the file, has left
            world.wait(rank, lambda: world.ended + len(world.waiting) == world.size)
            saved.append((rank, state, list(gone)))

        dist = _Dist(rank, world)
        given = dist, _Wrapped(models[rank]), save
        call(answer, *given, shown=f"rank {rank} of {world.size}")
        dist._close()
        gone.append(rank)

    world.run(work)
    return saved


def _judge_saved(saved, size, expected):
    ranks = sorted(rank for rank, *_ in saved)
    if not ranks:
        raise Wrong(f"with {size} ranks nobody called save: rank 0 does")
    if any(ranks):
        raise Wrong(f"save was called by ranks {ranks} of {size}: only rank 0 does")
    if len(ranks) > 1:
        raise Wrong(f"rank 0 of {size} called save {len(ranks)} times: once, please")
    ((_, state, gone),) = saved
    if not isinstance(state, dict):
        kind = type(state).__name__
        raise Wrong(f"rank 0 of {size} saved a {kind}, expected a state dict")
    if any(str(name).startswith("module.") for name in state):
        raise Wrong(
            f"the names that you saved begin with 'module.': {list(state)[:2]} …, and"
            f" do not fit the model without DDP; expected {list(expected)[:2]} …"
        )
    if state.keys() != expected.keys():
        raise Wrong(
            f"you saved the names {list(state)}, expected {list(expected)}: what the"
            " state_dict of the model holds"
        )
    for name, value in expected.items():
        same = isinstance(state[name], torch.Tensor) and torch.equal(state[name], value)
        if not same:
            raise Wrong(
                f"you saved {state[name]} as {name}, expected {value}, as in the model"
            )
    if gone:
        raise Wrong(
            f"rank {min(gone)} of {size} had left before the file was there: all wait"
            " for rank 0, until it *has* saved"
        )


def check_loss_factor(answer):
    for sizes in ([48, 16], [32, 32], [5, 3, 0, 8], [10], [1, 99], [5, 4, 2]):
        ranks = [f"rank = {rank}, sizes = {sizes}" for rank in range(len(sizes))]
        got = []
        for rank, shown in enumerate(ranks):
            factor = call(answer, rank, sizes, shown=shown)
            got.append(_number(factor, f"for {shown} you returned"))
        why = ""
        if len(set(sizes)) > 1 and len(set(got)) == 1:
            why = "a rank with more samples must weigh more"
        elif len(got) > 1 and got[0] < got[1] and sizes[0] > sizes[1]:
            why = "the rank with more samples must weigh more, not less"
        divided = (
            "DDP divides the sum over the ranks by their number, so multiply by it"
        )
        for mine, size, shown in zip(got, sizes, ranks, strict=True):
            share = size / sum(sizes)
            slips = [(share, divided)]
            theirs = len(sizes) * share
            expect.close(mine, theirs, shown, why, slips, rel_tol=1e-5, abs_tol=1e-9)


def _number(got, said):
    """said: the beginning of the message where it is no number."""
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, numbers.Real):
        raise Wrong(f"{said} {got!r}, expected a number")
    return float(got)


def _named(function):
    """The function, called by its bare name in messages of Python."""
    function.__qualname__ = function.__name__
    return function


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
        slips = [
            (1 / speed_up, "more samples a second are faster, so the other way round"),
            (efficiency, "that is the efficiency, and the speed-up comes first"),
        ]
        _judge_rate(got[0], speed_up, shown, "speed-up", slips)
        slips = [(100 * efficiency, "no percent, please")]
        _judge_rate(got[1], efficiency, shown, "efficiency", slips)
        _judge_limit(got[2], one, several, processes, shown)


def _judge_rate(got, expected, shown, name, slips, why=""):
    got = _number(got, f"for {shown}, as {name}, you returned")
    said = f"you say that the {name} is"
    expect.close(got, expected, shown, why, slips, said=said, rel_tol=1e-5)


def _judge_limit(got, one, several, processes, shown):
    # seconds a sample that do not shrink
    rest = 1 / several - 1 / (one * processes)
    if rest > 0:
        limit = 1 / one / rest
        why = (
            f"a sample takes {1 / several:.4g} s, of which {1 / one / processes:.4g} s"
            " are computing; with endless processes only the rest remains"
        )
    else:
        limit, why = math.inf, "there is no rest that would not shrink"
    rounded = [round(limit, digits) for digits in range(6)]
    slips = [(value, "do not round it") for value in rounded if value != 1]
    slips.append(
        (limit * one, "that is in samples a second, but the speed-up has no unit")
    )
    if processes > 1 and processes * one > several:
        serial = (processes * one / several - 1) / (processes - 1)
        amdahl = (
            "that is Amdahl's law, where a part of one process's time does not divide;"
            " here one process has no such rest, it computes all the time"
        )
        slips.append((1 / serial, amdahl))
    if limit < 1:
        slower = (
            "any number of them may be slower than one process, so the limit may be"
            " below 1"
        )
        slips.append((1, slower))
    _judge_rate(got, limit, shown, "limit", slips, why)


class _Sampler(DistributedSampler):
    """Notes for which epochs it was gone through."""

    def __init__(self, rank, world):
        super().__init__(range(4 * world), world, rank)
        self.begun = []

    def __iter__(self):
        self.begun.append(self.epoch)
        return super().__iter__()

    def gave(self):
        before, indices = self.epoch, []
        for epoch in self.begun:
            self.set_epoch(epoch)
            indices += super().__iter__()
        self.set_epoch(before)
        return indices


# of each rank, after no epoch; each epoch brings one more sample, not right
RIGHT, TOTAL = (3, 2, 3), (4, 7, 3)


def check_train_right(answer):
    for size, epochs in ((2, 3), (3, 2), (1, 1)):
        samplers = [_Sampler(rank, size) for rank in range(size)]
        trained, saved = _train(answer, samplers, epochs)
        _judge_training(trained, samplers, epochs)
        _judge_files(saved, size, epochs)


def _train(answer, samplers, epochs):
    """What each rank was trained on, and (rank, accuracy) of all files."""
    world = _World(len(samplers))
    trained, saved = [[] for _ in samplers], []

    def work(rank):
        @_named
        def count():
            return RIGHT[rank], TOTAL[rank] + len(trained[rank]) // 4

        @_named
        def save(accuracy):
            saved.append((rank, accuracy))

        dist = _Dist(rank, world)
        step = trained[rank].append
        given = dist, samplers[rank], step, count, save, epochs
        call(answer, *given, shown=f"rank {rank} of {world.size}")
        dist._close()

    world.run(work)
    return trained, saved


def _judge_training(trained, samplers, epochs):
    if not any(trained):
        raise Wrong(
            "no step was trained: call step(index) for each index of the sampler, in"
            " every epoch"
        )
    for rank, (seen, sampler) in enumerate(zip(trained, samplers, strict=True)):
        gave, begun = sampler.gave(), sampler.begun
        if seen != gave:
            k = 0
            while seen[k : k + 1] == gave[k : k + 1]:
                k += 1
            raise Wrong(
                f"rank {rank} trained {len(seen)} times, its sampler gave {len(gave)}"
                f" indices; from number {k} on you trained on {seen[k : k + 4]}, and it"
                f" gave {gave[k : k + 4]}"
            )
        if len(begun) != epochs:
            raise Wrong(
                f"rank {rank} went through its sampler {len(begun)} instead of"
                f" {epochs} times"
            )
        for k, epoch in enumerate(begun):
            if epoch in begun[:k]:
                raise Wrong(
                    f"epochs {begun.index(epoch)} and {k} train in the same order on"
                    f" rank {rank}: the sampler must be told the epoch, before the loop"
                    " over it begins"
                )
        if begun != samplers[0].begun:
            raise Wrong(
                f"the samplers were told the epochs {samplers[0].begun} on rank 0, and"
                f" {begun} on rank {rank}: so the ranks take each other's samples"
            )


def _judge_files(saved, size, epochs):
    ranks = sorted(rank for rank, _ in saved)
    if any(ranks):
        raise Wrong(
            f"in {epochs} epochs, files came from ranks {ranks[:12]}: only rank 0"
            " writes, one in each epoch"
        )
    if len(saved) != epochs:
        raise Wrong(
            f"rank 0 wrote {len(saved)} files in {epochs} epochs: one in each, after"
            " the training"
        )
    right = RIGHT[:size]
    for epoch, (_, accuracy) in enumerate(saved):
        accuracy = _number(accuracy, f"after epoch {epoch} you saved")
        totals = [total + epoch + 1 for total in TOTAL[:size]]
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
        shown = f"{list(right)} of {totals} right on the ranks, after epoch {epoch},"
        expected = sum(right) / sum(totals)
        expect.close(accuracy, expected, shown, "", slips, "you saved", rel_tol=1e-5)


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
        title="The end of a training",
        name="finish",
        stars=1,
        check=check_finish,
        hints=[
            (
                "The names in the state dict of a wrapped model begin with `module.`."
                " Where is the model inside?"
            ),
            (
                "Which collective moves nothing, and lets nobody go before all have"
                " come? Who must call it, and when does rank 0 come to it?"
            ),
            "Under `if`, save(ddp.module.state_dict()); behind it dist.barrier().",
        ],
        solution="""
def finish(dist, ddp, save):
    if dist.get_rank() == 0:
        save(ddp.module.state_dict())
    dist.barrier()
""",
        praise=(
            "The `if` holds what one rank does, and no collective: the barrier stands"
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
