"""Streams that tell: which order is sure, and which waits hold the host."""

import concurrent.futures
import threading

import pytest
import torch

from device_lab import LabError
from exercises.doubles.streams import CudaStreams, SpyStream


@pytest.fixture
def gpu():
    with (gpu := CudaStreams()).in_place_of_cuda():
        yield gpu


def by_stream(main, side):
    side.wait_stream(main)


def by_event(main, side):
    side.wait_event(main.record_event())


def by_made_event(main, side):
    event = torch.cuda.Event()
    event.record()
    event.wait(side)


@pytest.mark.parametrize("orders", [by_stream, by_event, by_made_event])
def test_a_wait_orders_what_was_launched_before_it_and_after(gpu, orders):
    x = torch.ones(2)
    assert gpu.work == [(gpu.main, set())]
    with torch.cuda.stream(gpu.side):
        x + 1
    assert gpu.work[1] == (gpu.side, set()) and not gpu.all_before(gpu.side)
    orders(gpu.main, gpu.side)
    with torch.cuda.stream(gpu.side):
        x + 1
    assert gpu.work[2] == (gpu.side, {1, 2}) and gpu.all_before(gpu.side)
    assert not gpu.all_before(gpu.main) and not gpu.held


def test_a_wait_for_a_wait_is_passed_on(gpu):
    gpu.main.before.add("batch")
    event = gpu.main.record_event()
    gpu.side.wait_event(event)
    gpu.side.record_event(event)
    with torch.cuda.stream(gpu.side):
        torch.ones(2)
    assert gpu.all_after("batch") and gpu.ran_on(gpu.side) and not gpu.ran_on(gpu.main)


def test_the_last_work_is_found_by_its_memory(gpu):
    x = torch.ones(2)
    with torch.cuda.stream(gpu.side):
        y = x + 1
        y.add_(1)
    assert gpu.last_work(y.view(1, 2)) == (3, gpu.side, {2})
    assert gpu.last_work(x).number == 1
    assert gpu.last_work(torch.empty(2)) == (0, gpu.main, set())


def test_neither_views_nor_empty_tensors_are_work(gpu):
    y = torch.empty(4).view(2, 2)
    assert y.contiguous() is y and not gpu.work
    y.zero_()
    torch.neg(y, out=y)
    assert len(gpu.work) == 2


def test_memory_has_users(gpu):
    with torch.cuda.stream(gpu.side):
        x = torch.ones(2)
    view = x[:1]
    assert gpu.users(view) == []
    x.record_stream(gpu.main)
    assert gpu.users(view) == [gpu.main] and gpu.users(view + 1) == []


def ask(gpu):
    while not gpu.side.query():
        pass


@pytest.mark.parametrize(
    ("hold", "how"),
    [
        (lambda gpu: gpu.side.synchronize(), "side.synchronize()"),
        (lambda gpu: torch.cuda.Event().synchronize(), "event.synchronize()"),
        (lambda gpu: torch.accelerator.synchronize(), "synchronize()"),
        (lambda gpu: torch.ones(1).item(), ".item()"),
        (ask, "query() again and again"),
    ],
)
def test_what_holds_the_host_is_noted(gpu, hold, how):
    assert gpu.side.query() is False and not gpu.held
    hold(gpu)
    assert gpu.held == [how]


def test_pytorch_is_as_it_was_afterwards():
    def names():
        modules = torch.cuda, torch.cpu, torch.accelerator, torch, torch.Tensor
        return [dict(vars(module)) for module in modules]

    before, gpu = names(), CudaStreams()
    with gpu.in_place_of_cuda():
        assert torch.cuda.current_stream() is gpu.main and torch.ones(1).is_cuda
        with pytest.raises(LabError, match="a new stream"):
            torch.cuda.Stream()
    assert names() == before and not torch.ones(1).is_cuda


def spies():
    return SpyStream(hold=5), SpyStream()


@pytest.mark.parametrize(
    "streams", [lambda: (CudaStreams().main, CudaStreams().side), spies]
)
def test_stream_and_event_are_two_things(streams):
    main, side = streams()
    with pytest.raises(LabError, match="for a stream there is wait_stream"):
        side.wait_event(main)
    with pytest.raises(LabError, match="for an event there is wait_event"):
        side.wait_stream(main.record_event())


def test_work_is_held_until_the_host_waits_for_it():
    stream, ran = SpyStream(hold=20), []
    first = stream.launch(ran.append, 1)
    second = stream.launch(ran.append, 2)
    with pytest.raises(concurrent.futures.TimeoutError):
        first.result(timeout=0.05)  # a guess at its time
    assert not second.done() and not ran and not stream.held
    first.synchronize()
    assert ran == [1] and stream.held == ["result()"] and stream.pending == [0, 1]
    assert not second.query() and stream.held[1:] == [
        "done() or query() again and again"
    ]
    assert stream.end() and ran == [1, 2] and stream.events == [first, second]


def test_held_work_runs_in_the_end():
    stream, ran = SpyStream(hold=0.05), []
    stream.launch(ran.append, 1)
    concurrent.futures.wait([stream.record_event()])
    assert ran == [1] and not stream.held


def test_the_wait_of_a_stream_is_not_one_of_the_host():
    one, two = SpyStream(hold=20), SpyStream()
    event = one.launch(threading.get_ident)
    two.wait_event(event)
    two.launch(event.result)
    assert not two.held and not one.held and two.told and not one.told
    assert not two.end(0.05) and one.end() and two.end()
    assert event.result() == one.thread and not two.launch(int).result()


def test_an_operation_has_a_number_and_its_errors_are_kept():
    numbers, stream = [], SpyStream(at_launch=lambda n: numbers.append(n))
    stream.launch(int)
    stream.launch(lambda: 1 / 0)
    assert stream.end() and numbers == [0, 1]
    assert isinstance(stream.error, ZeroDivisionError)
