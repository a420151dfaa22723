"""Ranks of torch.distributed that are threads of this process: no network, no process
group, and a hang is an error after milliseconds.

On the CPU the calls of `Ranks` leave what those of a gloo group leave (the tests hold
them against one). It is stricter than a real group: collectives that do not fit
together, and one that nobody waits for, are errors here, where a real job may go on
with wrong numbers. Left out: groups other than that of all ranks, the other calls, and
that a large send() waits for its recv().
"""

import ctypes
import threading
import time
from collections import defaultdict
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

from device_lab import LabError

SECONDS = 10  # that the ranks of one run may take; they need some milliseconds
REDUCE = {
    "SUM": torch.sum,
    "AVG": torch.mean,
    "MAX": torch.amax,
    "MIN": torch.amin,
    "PRODUCT": torch.prod,
}


class RankError(LabError):
    """What a rank did wrong. in_vain: it waited for what another one never did."""

    in_vain = False


class Work:
    """What a call with async_op=True returns."""

    def __init__(self, finish):
        self._finish = finish

    def wait(self, timeout=None):
        finish, self._finish = self._finish, lambda: None
        finish()
        return True

    is_completed = wait


class _Threads:
    """Ranks, each of them a thread. As soon as all that have not ended wait for what
    cannot come any more, they are told so.
    """

    def __init__(self, size):
        self._size = size
        self._me = threading.local()  # of each thread: its rank, collectives, open ones
        self._news = threading.Condition()
        self._ended, self._over = 0, False
        self._waiting = {}  # rank → function: is what it waits for there?
        self._errors = {}  # rank → its first fault, or what ended it

    def run(self, work: Callable) -> list:
        """work(rank) of all ranks at once: the list of what it returned.

        Raises the error of the lowest rank that has one, before those that waited for
        another rank in vain. A RankError counts even if the rank has caught it. After
        10 seconds a rank is taken to be in a loop without end, and stopped.
        """
        results = [None] * self._size

        def run(rank):
            me = self._me
            me.rank, me.calls, me.open = rank, 0, []
            try:
                results[rank] = work(rank)
                if me.open:
                    self._fail(f"started {me.open[0]} and never called wait() on it")
            except BaseException as error:
                self._errors.setdefault(rank, error)
            with self._news:
                self._ended += 1
                self._look()

        threads = [
            threading.Thread(target=run, args=(rank,), daemon=True)
            for rank in range(self._size)
        ]
        for thread in threads:
            thread.start()
        self._join(threads)
        for in_vain in (False, True):
            for _, error in sorted(self._errors.items()):
                if getattr(error, "in_vain", False) == in_vain:
                    raise error
        return results

    def _join(self, threads):
        end = time.monotonic() + SECONDS
        for thread in threads:
            thread.join(max(0, end - time.monotonic()))
        endless = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
        if not endless:
            return
        waiting = list(self._waiting)
        for rank in endless:  # it ends at the next line of Python that it runs
            ident = ctypes.c_ulong(threads[rank].ident)
            stop = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, stop)
        rank = next((rank for rank in endless if rank not in waiting), endless[0])
        raise RankError(
            f"rank {rank} of {self._size} had not ended after {SECONDS} seconds: a loop"
            " without end?"
        )

    def _fail(self, text, in_vain=False):
        rank = self.get_rank()
        error = RankError(f"rank {rank} of {self._size} {text}")
        error.in_vain = in_vain
        raise self._errors.setdefault(rank, error)

    def get_rank(self, group=None) -> int:
        if not hasattr(self._me, "rank"):
            raise RankError("these ranks have ended: use the `dist` of this call")
        return self._me.rank

    def settle(self) -> None:
        """Wait until no other rank can go on: each has ended, waits for what is not
        there, or settles, too.
        """
        self._wait(self._still)

    def _still(self):
        others = [ready for ready in self._waiting.values() if ready != self._still]
        all_wait = self._ended + len(self._waiting) == self._size
        # who waits for what is there, has not woken yet
        return all_wait and not any(ready() for ready in others)

    def _wait(self, ready):
        """Wait until ready(); False if that cannot be any more."""
        rank = self.get_rank()
        with self._news:
            self._waiting[rank] = ready
            self._look()
            try:
                self._news.wait_for(lambda: ready() or self._over)
            finally:
                del self._waiting[rank]
            return ready()

    def _look(self):
        if self._ended + len(self._waiting) == self._size:
            self._over |= not any(ready() for ready in self._waiting.values())
        self._news.notify_all()


class Ranks(_Threads):
    """What `size` ranks see as `torch.distributed`, set up already: calls of its names,
    with its arguments.
    """

    ReduceOp, group = dist.ReduceOp, dist.group

    def __init__(self, size: int):
        super().__init__(size)
        self._given = defaultdict(dict)  # number of a collective → rank → (name, value)
        self._mail = defaultdict(list)  # (from, to) → tensors

    def __getattr__(self, name):
        if name.startswith("_") or not hasattr(dist, name):
            raise AttributeError(f"torch.distributed has no {name!r}")
        self._fail(
            f"asked for {name}, which these ranks do not have: they have all_reduce,"
            " all_gather, broadcast, send and others, and are set up already"
        )

    def get_world_size(self, group=None) -> int:
        return self._size

    def is_initialized(self) -> bool:
        return True

    def barrier(self, group=None, async_op=False):
        return self._collective("barrier", None, lambda given: None, async_op)

    def broadcast(self, tensor, src, group=None, async_op=False):
        def finish(given):
            tensor.copy_(given[src])

        return self._of_tensors(f"broadcast from {src}", tensor, finish, async_op)

    def all_reduce(self, tensor, op=ReduceOp.SUM, group=None, async_op=False):
        def finish(given):
            tensor.copy_(REDUCE[op.name](torch.stack(given), 0))

        return self._of_tensors("all_reduce", tensor, finish, async_op)

    def reduce(self, tensor, dst=0, op=ReduceOp.SUM, group=None, async_op=False):
        def finish(given):
            if self.get_rank() == dst:
                tensor.copy_(REDUCE[op.name](torch.stack(given), 0))

        return self._of_tensors(f"reduce to {dst}", tensor, finish, async_op)

    def gather(self, tensor, gather_list=None, dst=0, group=None, async_op=False):
        finish = self._fill("gather_list", gather_list, dst, torch.Tensor)
        return self._of_tensors(f"gather to {dst}", tensor, finish, async_op)

    def all_gather(self, tensor_list, tensor, group=None, async_op=False):
        finish = self._fill("tensor_list", tensor_list, None, torch.Tensor)
        return self._of_tensors("all_gather", tensor, finish, async_op)

    def all_gather_into_tensor(
        self, output_tensor, input_tensor, group=None, async_op=False
    ):
        def finish(given):
            output_tensor.copy_(torch.stack(given).reshape(output_tensor.shape))

        name = "all_gather_into_tensor"
        return self._of_tensors(name, input_tensor, finish, async_op)

    def gather_object(self, obj, object_gather_list=None, dst=0, group=None):
        finish = self._fill("object_gather_list", object_gather_list, dst)
        self._collective(f"gather_object to {dst}", obj, finish)

    def all_gather_object(self, object_list, obj, group=None):
        finish = self._fill("object_list", object_list, None)
        self._collective("all_gather_object", obj, finish)

    def send(self, tensor, dst, group=None):
        with self._news:
            self._mail[self.get_rank(), dst].append(tensor.detach().clone())
            self._news.notify_all()

    def recv(self, tensor, src, group=None):
        with self._news:
            mail = self._mail[src, self.get_rank()]
        if not self._wait(lambda: mail):
            text = f"waits for one more tensor, which rank {src} never sends: a hang"
            self._fail(text, in_vain=True)
        tensor.copy_(mail.pop(0))
        return src

    def isend(self, tensor, dst, group=None):
        self.send(tensor, dst)
        return Work(lambda: None)

    def irecv(self, tensor, src, group=None):
        return Work(lambda: self.recv(tensor, src))

    def _fill(self, name, places, dst, kind=object):
        """A function that puts what all ranks gave into the list `places`, as PyTorch
        asks for it: on rank dst (None: on each), with a `kind` in each place.
        """
        here = dst in (None, self.get_rank())
        if (places is not None) != here:
            raise ValueError(
                f"Argument ``{name}`` must be specified on destination rank, and on no"
                " other one."
            )
        for place in places or ():
            if not isinstance(place, kind):
                raise TypeError(
                    f"Expected parameter `{name}` of type List[torch.Tensor], but got"
                    f" elements of type {type(place)}."
                )

        def finish(given):
            for k, value in enumerate(given if here else ()):
                if kind is torch.Tensor:
                    places[k].copy_(value)
                else:
                    places[k] = value

        return finish

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
        rank, me = self.get_rank(), self._me
        me.calls = number = me.calls + 1
        with self._news:
            given = self._given[number]
            given[rank] = name, value
            self._news.notify_all()

        def wait():
            if async_op:
                me.open.remove(name)
            if not self._wait(lambda: len(given) == self._size):
                missing = min(set(range(self._size)) - set(given))
                self._fail(
                    f"waits in {name.split()[0]}, which rank {missing} never calls: a"
                    " hang; all ranks must call it",
                    in_vain=True,
                )
            for other, (called, _) in sorted(given.items()):
                if called != name:
                    self._fail(
                        f"calls {name} as its collective number {number}, and rank"
                        f" {other} {called}: all ranks must call the same ones, in the"
                        " same order, with the same shapes and dtypes"
                    )
            finish([given[other][1] for other in range(self._size)])

        if not async_op:
            return wait()
        me.open.append(name)
        return Work(wait)


class NotingSampler(DistributedSampler):
    """A DistributedSampler that notes what it gave, in `given`: a list of indices for
    each time that it was gone through.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.given = []

    def __iter__(self):
        self.given.append([*super().__iter__()])
        return iter(self.given[-1])
