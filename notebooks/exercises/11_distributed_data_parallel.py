"""Exercises of lesson 11."""

import collections
import itertools
import math
import numbers
import threading
import time

import torch
from torch.utils.data import DistributedSampler

from utils.exercises import Exercise, Wrong, apart, call, stop

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
        self.size, self.news, self.ended, self.over, self.deadlock = (
            size,
            threading.Condition(),
            0,
            False,
            False,
        )
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
        end = time.monotonic() + SECONDS
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
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
        running = self.size - self.ended - len(self.waiting)
        if (
            not self.over
            and not running
            and not any(ready() for ready in self.waiting.values())
        ):
            self.over, self.deadlock = True, not self.ended
        self.news.notify_all()

    def send(self, source, to, value):
        with self.news:
            self.mail[source, to].append(value)
            self.news.notify_all()

    def receive(self, source, to):
        with self.news:
            mail = self.mail[source, to]
        if not self.wait(to, lambda: mail):
            if self.deadlock:
                raise _InVain(
                    f"all {self.size} ranks wait for a value that nobody has sent: a"
                    " deadlock"
                )
            raise _InVain(
                f"rank {to} of {self.size} waits for one more value, which rank"
                f" {source} never sends"
            )
        return mail.pop(0)


class _Dist:
    """What one rank sees as `dist`: the calls of torch.distributed that the lesson
    names.
    """

    ReduceOp, group = (
        getattr(torch.distributed, "ReduceOp", None),
        getattr(torch.distributed, "group", None),
    )

    def __init__(self, rank, world):
        self._rank, self._world, self._count, self._open = rank, world, 0, []

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
        return self._collective(
            f"broadcast from {src}",
            tensor,
            lambda given: tensor.copy_(given[src]),
            async_op,
        )

    def all_reduce(self, tensor, op=None, group=None, async_op=False):
        return self._collective(
            "all_reduce",
            tensor,
            lambda given: tensor.copy_(self._reduced(given, op)),
            async_op,
        )

    def reduce(self, tensor, dst=0, op=None, group=None, async_op=False):
        def finish(given):
            if self._rank == dst:
                tensor.copy_(self._reduced(given, op))

        return self._collective(f"reduce to {dst}", tensor, finish, async_op)

    def gather(self, tensor, gather_list=None, dst=0, group=None, async_op=False):
        if (gather_list is None) == (self._rank == dst):
            raise ValueError(
                "Argument ``gather_list`` must be specified on destination rank, and on"
                " no other one."
            )
        _need_tensors("gather_list", gather_list)
        return self._collective(
            f"gather to {dst}",
            tensor,
            lambda given: _fill(gather_list, given),
            async_op,
        )

    def all_gather(self, tensor_list, tensor, group=None, async_op=False):
        _need_tensors("tensor_list", tensor_list)
        return self._collective(
            "all_gather", tensor, lambda given: _fill(tensor_list, given), async_op
        )

    def all_gather_into_tensor(
        self, output_tensor, input_tensor, group=None, async_op=False
    ):
        def finish(given):
            output_tensor.copy_(torch.stack(given).reshape(output_tensor.shape))

        return self._collective(
            "all_gather_into_tensor", input_tensor, finish, async_op
        )

    def gather_object(self, obj, object_gather_list=None, dst=0, group=None):
        if (object_gather_list is None) == (self._rank == dst):
            raise ValueError(
                "Argument ``object_gather_list`` must be specified on destination rank,"
                " and on no other."
            )
        self._collective(
            f"gather_object to {dst}",
            obj,
            lambda given: _fill(object_gather_list, given),
            objects=True,
        )

    def all_gather_object(self, object_list, obj, group=None):
        self._collective(
            "all_gather_object",
            obj,
            lambda given: _fill(object_list, given),
            objects=True,
        )

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

    def _reduced(self, given, op):
        ways = {
            "SUM": torch.sum,
            "AVG": torch.mean,
            "MAX": torch.amax,
            "MIN": torch.amin,
            "PRODUCT": torch.prod,
        }
        return ways["SUM" if op is None else op.name](torch.stack(given), 0)

    def _collective(self, name, value, finish, async_op=False, objects=False):
        """Calls finish with the list of what all ranks gave, in their order, as soon as
        all are there.
        """
        if not objects and name != "barrier":
            if not isinstance(value, torch.Tensor):
                raise TypeError(
                    "Invalid function argument. Expected a torch.Tensor, but got"
                    f" {type(value)} instead."
                )
            value, name = (
                value.detach().clone(),
                f"{name} ({value.dtype}, shape {tuple(value.shape)})",
            )
        self._count = number = self._count + 1
        if number > 1000:
            raise _Stop(
                f"rank {self._rank} of {self._world.size} has called 1,000 collectives"
                " and goes on"
            )
        with self._world.news:
            calls = self._world.calls[number]
            calls[self._rank] = name, value
            self._world.news.notify_all()

        def wait():
            if work in self._open:
                self._open.remove(work)
            if not self._world.wait(self._rank, lambda: len(calls) == self._world.size):
                missing = next(
                    rank for rank in range(self._world.size) if rank not in calls
                )
                raise _InVain(
                    f"rank {self._rank} of {self._world.size} waits in"
                    f" {name.split()[0]}, which rank {missing} never calls: a hang; all"
                    " ranks must call it"
                )
            for rank, (other, _) in sorted(calls.items()):
                if other != name:
                    raise _Stop(
                        f"collective number {number} is {name} on rank {self._rank},"
                        f" and {other} on rank {rank}: all ranks must call the same"
                        " ones, in the same order, with the same shapes and dtypes"
                    )
            finish([calls[rank][1] for rank in range(self._world.size)])

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


def _need_tensors(name, places):
    """What PyTorch asks of the list that a gather fills."""
    kinds = (
        [type(place) for place in places if not isinstance(place, torch.Tensor)]
        if places is not None
        else []
    )
    if kinds:
        raise TypeError(
            f"Expected parameter `{name}` of type List[torch.Tensor], but got elements"
            f" of type {kinds[0]}."
        )


def _fill(places, given):
    """What a gather leaves in its list: in the tensors that stand there, or, of
    objects, in their places.
    """
    for k, value in enumerate(given if places is not None else ()):
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
        world = _World(len(losses))

        def work(rank, world=world, losses=losses):
            dist, loss, shown = (
                _Dist(rank, world),
                torch.tensor(losses[rank]),
                f"rank {rank} of {world.size}",
            )
            for _ in range(2):
                got = call(answer, dist, loss, shown=shown)
                dist._close()
                if got is None:
                    raise Wrong(
                        f"on {shown} you returned None, expected the mean (all_reduce"
                        " itself returns nothing)"
                    )
                if loss.item() != losses[rank]:
                    raise Wrong(
                        f"on {shown} `loss` was {losses[rank]} and now is"
                        f" {loss.item():g}: a collective writes into the tensor that it"
                        " gets, so give it another one"
                    )
            return _number(got, f"on {shown}")

        for rank, got in enumerate(world.run(work)):
            mean = sum(losses) / world.size
            if math.isclose(got, mean, rel_tol=1e-5):
                continue
            mine, theirs = apart(got, mean)
            why = (
                f"the losses of {world.size} ranks are {losses}; rank {rank} returned"
                f" {mine}, expected {theirs}"
            )
            if math.isclose(got, sum(losses), rel_tol=1e-5):
                why += ": all_reduce leaves the sum"
            elif math.isclose(got, losses[rank], rel_tol=1e-5):
                why += ": it has its own loss only"
            raise Wrong(why)


def check_share(answer):
    def share(n, rank, world, seed, epoch):
        shown = (
            f"n = {n}, rank = {rank}, world = {world}, seed = {seed}, epoch = {epoch}"
        )
        return _indices(call(answer, n, rank, world, seed, epoch, shown=shown), shown)

    for n, world, seed, epoch in (
        (12, 3, 0, 0),
        (10, 4, 0, 1),
        (7, 2, 3, 0),
        (3, 5, 1, 2),
        (5, 1, 0, 0),
        (0, 2, 0, 0),
    ):
        dealt = [share(n, rank, world, seed, epoch) for rank in range(world)]
        count = collections.Counter(sum(dealt, []))
        twice, lost = (
            [i for i in count if count[i] > 1],
            [i for i in range(n) if i not in count],
        )
        shown = (
            f"for n = {n}, world = {world}, seed = {seed}, epoch = {epoch} you dealt"
            f" out {dealt}"
        )
        for i in count:
            if not 0 <= i < n:
                raise Wrong(f"{shown}: there is no index {i}")
        if twice and lost:
            raise Wrong(
                f"{shown}: {twice[0]} twice, {lost[0]} not at all. All ranks must"
                " shuffle alike, and take different parts"
            )
        if twice:
            raise Wrong(
                f"{shown}: {twice[0]} twice, but each index belongs to one rank,"
                " without padding"
            )
        if lost and n % world:
            raise Wrong(
                f"{shown}: {lost[0]} not at all, but what does not divide must be dealt"
                " out, too"
            )
        if lost:
            raise Wrong(
                f"{shown}: {lost[0]} not at all, but every index belongs to one rank"
            )
        if max(map(len, dealt)) - min(map(len, dealt)) > 1:
            raise Wrong(
                f"{shown}, {[len(part) for part in dealt]} samples: no rank may have"
                " two more than another"
            )

    seeds, epochs = (0, 1, 7), (0, 1, 2, 3, 10)
    orders = {
        (seed, epoch): share(50, 0, 2, seed, epoch)
        for seed in seeds
        for epoch in epochs
    }
    for (seed, epoch), order in orders.items():
        if order == sorted(order):
            raise Wrong(
                f"not shuffled: with n = 50, seed = {seed}, epoch = {epoch}, rank 0 of"
                f" 2 gets {order[:4]} …"
            )
        if share(50, 0, 2, seed, epoch) != order:
            raise Wrong(
                "two calls with the same arguments gave two orders: the order must"
                " follow from seed and epoch"
            )
    for seed, (a, b) in itertools.product(seeds, itertools.combinations(epochs, 2)):
        if orders[seed, a] == orders[seed, b]:
            raise Wrong(
                f"with seed {seed}, epochs {a} and {b} have the same order: it must"
                " follow from the epoch, too"
            )
    for epoch, (a, b) in itertools.product(epochs, itertools.combinations(seeds, 2)):
        if orders[a, epoch] == orders[b, epoch]:
            raise Wrong(
                f"in epoch {epoch}, seeds {a} and {b} give the same order: it must"
                " follow from the seed, too"
            )
    for seed, (a, b) in itertools.product(seeds, itertools.combinations(epochs, 2)):
        if set(orders[seed, a]) == set(orders[seed, b]):
            raise Wrong(
                f"with seed {seed}, rank 0 of 2 has the same samples in epochs {a} and"
                f" {b}, in another order: shuffle all samples before you deal them out"
            )


def _indices(got, shown):
    if hasattr(got, "tolist"):  # a tensor, an array
        got = got.tolist()
    if isinstance(got, (list, tuple)):  # of tensors with one number each
        got = [
            i.item() if isinstance(i, torch.Tensor) and i.dim() == 0 else i for i in got
        ]
    whole = isinstance(got, (list, tuple, range)) and all(
        isinstance(i, numbers.Integral) for i in got
    )
    if not whole or any(isinstance(i, bool) for i in got):
        raise Wrong(
            f"for {shown} you returned {got!r}, expected a list of indices, whole"
            " numbers"
        )
    return list(got)


def check_loss_factor(answer):
    for sizes in ([48, 16], [32, 32], [5, 3, 0, 8], [10], [1, 99], [5, 4, 2]):
        got = []
        for rank in range(len(sizes)):
            shown = f"rank = {rank}, sizes = {sizes}"
            got.append(_number(call(answer, rank, sizes, shown=shown), f"for {shown}"))
        factors = [size * len(sizes) / sum(sizes) for size in sizes]
        wrong = [
            r
            for r, f in enumerate(factors)
            if not math.isclose(got[r], f, rel_tol=1e-5, abs_tol=1e-9)
        ]
        if not wrong:
            continue
        mine, theirs = apart(got[wrong[0]], factors[wrong[0]])
        why = (
            f"for rank = {wrong[0]}, sizes = {sizes} you returned {mine}, expected"
            f" {theirs}"
        )
        if all(
            math.isclose(a * len(sizes), b, rel_tol=1e-5)
            for a, b in zip(got, factors, strict=True)
        ):
            why += (
                ": DDP divides the sum over the ranks by their number, so multiply"
                " by it"
            )
        elif len(set(sizes)) > 1 and len(set(got)) == 1:
            why += ": a rank with more samples must weigh more"
        elif len(got) > 1 and got[0] < got[1] and sizes[0] > sizes[1]:
            why += ": the rank with more samples must weigh more, not less"
        raise Wrong(why)


def _number(got, shown, verb="returned"):
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, numbers.Real):
        raise Wrong(f"{shown} you {verb} {got!r}, expected a number")
    return float(got)


def _named(function):
    """The function, called by its bare name in messages of Python."""
    function.__qualname__ = function.__name__
    return function


def check_ring_all_gather(answer):
    for size in (2, 3, 1, 5):
        # in no order, and one value twice
        world, values, sent = _World(size), list("dbeba")[:size], [0] * size

        def work(rank, world=world, values=values, sent=sent):
            left, right = (rank - 1) % world.size, (rank + 1) % world.size

            @_named
            def send(value):
                sent[rank] += 1
                if sent[rank] > 2 * world.size:
                    raise _Stop(
                        f"rank {rank} of {world.size} has sent {sent[rank]} values and"
                        " goes on"
                    )
                # more than one of the values, which are strings
                if str(value).count("'") > 2:
                    raise _Stop(
                        f"rank {rank} of {world.size} sent {value}: one value in each"
                        " message, please"
                    )
                world.send(rank, right, value)

            @_named
            def receive():
                return world.receive(left, rank)

            return call(
                answer,
                rank,
                world.size,
                values[rank],
                send,
                receive,
                shown=f"rank {rank} of {world.size}",
            )

        for rank, got in enumerate(world.run(work)):
            got = list(got) if isinstance(got, (list, tuple)) else got
            if got != values:
                same = isinstance(got, list) and sorted(map(str, got)) == sorted(values)
                why = (
                    ": the same values, but in the order of ranks, please"
                    if same
                    else ""
                )
                if (
                    isinstance(got, list)
                    and size > 2
                    and {*map(str, got)} == {values[rank], values[rank - 1]}
                ):
                    why = ": send on what you received, not your own value again"
                raise Wrong(
                    f"rank {rank} of {size} returned {got!r}, expected {values}{why}"
                )
            if sent[rank] < size - 1:
                raise Wrong(
                    f"rank {rank} of {size} sent only {sent[rank]} of {size - 1}: ranks"
                    " do not share variables"
                )
            if sent[rank] > size - 1:
                raise Wrong(
                    f"rank {rank} of {size} sent too many values: {sent[rank]} instead"
                    f" of {size - 1}"
                )


def check_one_against_several(answer):
    cases = [
        (200.0, 1000.0, 8),
        (1000.0, 1600.0, 2),
        (1000.0, 2000.0, 2),
        (500.0, 400.0, 2),
        (1000.0, 1000.0, 1),
    ]
    cases += [
        (1200.0, 500.0, 2),
        (1000.0, 2100.0, 2),
        (121245.0, 47150.0, 4),
        (300.0, 900.0, 3),
        (700.0, 2300.0, 4),
    ]
    for one, several, processes in cases:
        shown = f"one = {one:g}, several = {several:g}, processes = {processes}"
        got = call(answer, one, several, processes, shown=shown)
        got = got.tolist() if hasattr(got, "tolist") else got
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Wrong(f"for {shown} you returned {got!r}, expected three numbers")
        # seconds a sample that do not shrink
        rest = 1 / several - 1 / (one * processes)
        expected = [
            several / one,
            several / one / processes,
            1 / one / rest if rest > 0 else math.inf,
        ]
        for name, mine, theirs in zip(
            ("speed-up", "efficiency", "limit"), got, expected, strict=True
        ):
            mine = _number(mine, f"for {shown}, as {name},")
            if mine == theirs or math.isclose(mine, theirs, rel_tol=1e-5):
                continue
            texts = apart(mine, theirs)
            why = f"for {shown} the {name} is {texts[1]}, you returned {texts[0]}"
            if name == "speed-up" and math.isclose(mine, one / several, rel_tol=1e-5):
                why += ": more samples a second are faster, so the other way round"
            elif name == "speed-up" and math.isclose(mine, expected[1], rel_tol=1e-5):
                why += ": that is the efficiency, and the speed-up comes first"
            elif name == "efficiency" and math.isclose(
                mine, 100 * theirs, rel_tol=1e-5
            ):
                why += ": no percent, please"
            if name == "limit" and any(
                mine != 1 and mine == round(theirs, k)
                for k in range(6)
                if theirs < math.inf
            ):
                why += ": do not round it"
            elif (
                name == "limit"
                and theirs < math.inf
                and math.isclose(mine, theirs * one, rel_tol=1e-5)
            ):
                why += ": that is in samples a second, but the speed-up has no unit"
            elif (
                name == "limit"
                and processes > 1
                and _amdahl(one, several, processes, mine)
            ):
                why += (
                    ": that is Amdahl's law, where a part of one process's time does"
                    " not divide; here one process has no such rest, it computes all"
                    " the time"
                )
            elif name == "limit" and theirs < 1 and mine == 1:
                why += (
                    ": any number of them may be slower than one process, so the limit"
                    " may be below 1"
                )
            elif name == "limit" and rest <= 0:
                why += ": there is no rest that would not shrink"
            elif name == "limit":
                why += (
                    f": a sample takes {1 / several:.4g} s, of which"
                    f" {1 / one / processes:.4g} s are computing; with endless"
                    " processes only the rest remains"
                )
            raise Wrong(why)


def _amdahl(one, several, processes, limit):
    serial = (processes * one / several - 1) / (processes - 1)
    return serial > 1e-12 and math.isclose(limit, 1 / serial, rel_tol=1e-5)


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
        world, samplers = _World(size), [_Sampler(rank, size) for rank in range(size)]
        trained, saved = [[] for _ in range(size)], []

        def work(
            rank,
            world=world,
            samplers=samplers,
            trained=trained,
            saved=saved,
            epochs=epochs,
        ):
            @_named
            def count():
                return RIGHT[rank], TOTAL[rank] + len(trained[rank]) // 4

            @_named
            def save(accuracy):
                saved.append((rank, accuracy))

            dist, shown = _Dist(rank, world), f"rank {rank} of {world.size}"
            call(
                answer,
                dist,
                samplers[rank],
                trained[rank].append,
                count,
                save,
                epochs,
                shown=shown,
            )
            dist._close()

        world.run(work)
        _judge_training(trained, samplers, epochs)
        _judge_files(saved, size, epochs)


def _judge_training(trained, samplers, epochs):
    if not any(trained):
        raise Wrong(
            "no step was trained: call step(index) for each index of the sampler, in"
            " every epoch"
        )
    for rank, (seen, sampler) in enumerate(zip(trained, samplers, strict=True)):
        gave = sampler.gave()
        if seen != gave:
            k = next(
                (k for k, (a, b) in enumerate(zip(seen, gave, strict=False)) if a != b),
                min(len(seen), len(gave)),
            )
            raise Wrong(
                f"rank {rank} trained {len(seen)} times, its sampler gave {len(gave)}"
                f" indices; from number {k} on you trained on {seen[k : k + 4]}, and it"
                f" gave {gave[k : k + 4]}"
            )
        if len(sampler.begun) != epochs:
            raise Wrong(
                f"rank {rank} went through its sampler {len(sampler.begun)} instead of"
                f" {epochs} times"
            )
        twice = next(
            (k for k in range(epochs) if sampler.begun[k] in sampler.begun[:k]), None
        )
        if twice is not None:
            first = sampler.begun.index(sampler.begun[twice])
            raise Wrong(
                f"epochs {first} and {twice} train in the same order on rank {rank}:"
                " the sampler must be told the epoch, before the loop over it begins"
            )
        if sampler.begun != samplers[0].begun:
            raise Wrong(
                f"the samplers were told the epochs {samplers[0].begun} on rank 0, and"
                f" {sampler.begun} on rank {rank}: so the ranks take each other's"
                " samples"
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
    for epoch, (_, accuracy) in enumerate(saved):
        accuracy = _number(accuracy, f"after epoch {epoch}", "saved")
        totals = [total + epoch + 1 for total in TOTAL[:size]]
        each = [right / total for right, total in zip(RIGHT, totals, strict=False)]
        right, before = (
            sum(RIGHT[:size]) / sum(totals),
            sum(RIGHT[:size]) / (sum(totals) - size),
        )
        if math.isclose(accuracy, right, abs_tol=1e-5):
            continue
        mine, theirs = apart(accuracy, right)
        why = (
            f"after epoch {epoch}, the ranks had {list(RIGHT[:size])} of {totals}"
            f" samples right, so {theirs} in all; you saved {mine}"
        )
        if math.isclose(accuracy, sum(each) / size, abs_tol=1e-5):
            why += (
                ", the mean of the ranks' accuracies. Sum what was right and how many"
                " there were, then divide"
            )
        elif math.isclose(accuracy, each[0], abs_tol=1e-5):
            why += ", the accuracy of rank 0 alone"
        elif math.isclose(accuracy, before, abs_tol=1e-5):
            why += ", as before this epoch: count after each epoch's training"
        raise Wrong(why)


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
        title="Deal out without padding",
        name="share",
        stars=2,
        check=check_share,
        hints=[
            (
                "All ranks must make the same shuffled list. From what can its seed"
                " follow, that all of them know?"
            ),
            (
                "torch.Generator().manual_seed(...) and torch.randperm(n,"
                " generator=...) give one order to all ranks."
            ),
            (
                "The slice [rank::world] takes every world-th element, beginning with"
                " the rank's own."
            ),
        ],
        solution="""
import torch


def share(n, rank, world, seed, epoch):
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator)[rank::world]
""",
        praise=(
            "DistributedSampler adds seed and epoch, too, so its seed 0 in epoch 1 is"
            " seed 1 in epoch 0. And shares of unequal length need join, or a loss that"
            " is weighted."
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
        title="Half a ring",
        name="ring_all_gather",
        stars=3,
        check=check_ring_all_gather,
        hints=[
            (
                "In each of world - 1 steps: send one value to the right, receive one"
                " from the left. Which one to send?"
            ),
            "Send on what you received last. At the start that is your own value.",
            (
                "What arrives in the first step is from rank - 1, in the second from"
                " rank - 2. Below 0, count modulo world (or let Python count from the"
                " end)."
            ),
        ],
        solution="""
def ring_all_gather(rank, world, value, send, receive):
    values = [value] * world
    for step in range(1, world):
        send(value)
        value = receive()
        values[rank - step] = value
    return values
""",
        praise=(
            "With chunks that are added on the way before it, this is the all-reduce of"
            " the lesson."
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
    Exercise(
        number="11.5",
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
]
