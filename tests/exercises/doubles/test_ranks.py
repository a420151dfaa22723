"""Ranks as threads give what a real group gives, and say where it would hang."""

import time

import pytest
import torch

from exercises.doubles import ranks
from exercises.doubles.ranks import NotingSampler, RankError, Ranks
from utils import launch

# what one rank does, and the list of what it has then
EXCHANGE = """
import torch


def exchange(dist):
    rank, size = dist.get_rank(), dist.get_world_size()

    def mine():
        return torch.tensor([1.0 + rank, 10.0 * rank - 5])

    def empty():
        return [torch.zeros(2) for _ in range(size)]

    found = [dist.is_initialized()]
    for name in ("SUM", "MAX", "MIN", "PRODUCT"):
        x = mine()
        found.append(dist.all_reduce(x, op=getattr(dist.ReduceOp, name)))
        found.append(x)
    x = mine()
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    found.append(x)
    x = mine()
    dist.broadcast(x, src=1)
    found.append(x)
    x = mine()
    dist.reduce(x, dst=1)
    found.append(x if rank == 1 else None)  # elsewhere it is anything
    parts = empty()
    dist.all_gather(parts, mine())
    found += parts
    parts = empty() if rank == 0 else None
    dist.gather(mine(), parts)
    found += parts or []
    x = torch.zeros(2 * size)
    dist.all_gather_into_tensor(x, mine())
    found.append(x)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    found.append(objects)
    objects = [None] * size if rank == 1 else None
    dist.gather_object([rank, "x"], objects, dst=1)
    found.append(objects)
    x = torch.zeros(2)
    work = dist.isend(mine(), (rank + 1) % size)
    found.append(dist.recv(x, (rank - 1) % size))
    work.wait()
    found.append(x)
    if rank == 0:
        dist.send(mine(), 1)
    if rank == 1:
        x = torch.zeros(2)
        dist.irecv(x, 0).wait()
        found.append(x)
    dist.barrier()
    return [x.tolist() if torch.is_tensor(x) else x for x in found]
"""
JOB = f"""
import json
{EXCHANGE}
import torch.distributed as dist
dist.init_process_group("gloo")
print(json.dumps(exchange(dist)), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_the_calls_leave_what_those_of_a_gloo_group_leave(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    real = launch.torchrun(tmp_path / "job.py", processes=2).results()
    names = {}
    exec(EXCHANGE, names)
    dist = Ranks(2)
    found = dist.run(lambda rank: names["exchange"](dist))
    assert real == found


def average(dist, rank):
    x = torch.tensor(float(rank))
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    return x.item()


def test_the_mean_which_gloo_lacks():
    dist = Ranks(4)
    assert dist.run(lambda rank: average(dist, rank)) == [1.5] * 4


def only_rank_0(dist, rank):
    if rank == 0:
        dist.barrier()


def two_kinds(dist, rank):
    x = torch.ones(1)
    dist.all_reduce(x) if rank else dist.broadcast(x, 0)


def two_shapes(dist, rank):
    dist.all_reduce(torch.ones(1 + rank))


def never_waits(dist, rank):
    dist.barrier(async_op=True)


def nothing_sent(dist, rank):
    dist.recv(torch.ones(1), 1 - rank)


def scatters(dist, rank):
    dist.scatter(torch.ones(1))


def fails(dist, rank):
    if rank == 1:
        raise ValueError("no data")
    dist.barrier()


def catches(dist, rank):
    try:
        only_rank_0(dist, rank)
    except Exception:
        pass


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (only_rank_0, "rank 0 of 2 waits in barrier, which rank 1 never calls: a hang"),
        (catches, "rank 0 of 2 waits in barrier, which rank 1 never calls: a hang"),
        (two_kinds, "rank 0 of 2 calls broadcast .* and rank 1 all_reduce"),
        (two_shapes, r"shape \(1,\).* shape \(2,\)\): all ranks must call the same"),
        (never_waits, "rank 0 of 2 started barrier and never called wait"),
        (nothing_sent, "rank 0 of 2 waits for one more tensor, which rank 1 never"),
        (scatters, "rank 0 of 2 asked for scatter, which these ranks do not have"),
        (fails, "^no data$"),
    ],
)
def test_what_goes_wrong_is_said_at_once(work, said):
    dist = Ranks(2)
    with pytest.raises(ValueError if work is fails else RankError, match=said):
        dist.run(lambda rank: work(dist, rank))


def gathers(dist, places):
    dist.gather(torch.ones(1), places)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda dist: gathers(dist, None), ValueError),
        (lambda dist: dist.all_gather([None], torch.ones(1)), TypeError),
        (lambda dist: dist.all_gather_object([], 1), IndexError),
        (lambda dist: dist.all_reduce(1.5), TypeError),
        (lambda dist: dist.no_such_call(), AttributeError),
    ],
)
def test_arguments_that_pytorch_refuses(call, error):
    dist = Ranks(1)
    with pytest.raises(error):
        dist.run(lambda rank: call(dist))


def test_a_loop_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(ranks, "SECONDS", 0.2)
    dist, ended = Ranks(2), []

    def spin(rank):
        while rank:
            pass

    def work(rank):
        # since Python 3.12 what is raised in `spin` at its jump back passes by a
        # `finally` of `spin` itself
        try:
            spin(rank)
            dist.barrier()
        finally:
            ended.append(rank)

    with pytest.raises(RankError, match="rank 1 of 2 had not ended after 0.2 seconds"):
        dist.run(work)
    for _ in range(100):
        if sorted(ended) == [0, 1]:
            break
        time.sleep(0.05)
    assert sorted(ended) == [0, 1]


def test_settle_waits_until_no_other_rank_can_go_on():
    dist, gone = Ranks(3), []

    def work(rank):
        if rank == 0:
            dist.settle()
            seen = list(gone)
            dist.barrier()
            return seen
        if rank == 1:
            gone.append(rank)
        dist.barrier()
        gone.append(rank)

    assert dist.run(work)[0] == [1]


def test_settle_waits_for_who_has_not_woken_yet():
    def work(rank):
        dist.barrier()
        if rank:
            return gone.append(rank)
        dist.settle()
        return sorted(gone)

    for _ in range(100):
        dist, gone = Ranks(3), []
        assert dist.run(work)[0] == [1, 2]


def test_a_call_of_ranks_that_have_ended_is_an_error():
    dist = Ranks(1)
    dist.run(lambda rank: dist.barrier())
    with pytest.raises(RankError, match="have ended"):
        dist.barrier()


def test_a_sampler_notes_what_it_gave():
    sampler = NotingSampler(range(8), 2, 0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert sampler.given == [first] and list(sampler) == sampler.given[1] != first
