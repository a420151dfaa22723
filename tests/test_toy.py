"""ToyStream behaves like a stream: returns at once, keeps its order, races with others, waits for events."""

import threading
import time

import pytest

from utils.simulate.toy import ToyStream


@pytest.fixture
def gate():
    """A task that holds a stream until gate.set()."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_launch_returns_while_the_work_waits(gate):
    stream, done = ToyStream(), []
    stream.launch(gate.wait, 10)
    stream.launch(done.append, 1)
    assert not done and not stream.query()
    gate.set()
    stream.synchronize()
    assert done == [1] and stream.query()


def test_order_within_a_stream_none_between_streams(gate):
    one, two, order = ToyStream(), ToyStream(), []
    one.launch(gate.wait, 10)
    one.launch(order.append, "one")
    two.launch(order.append, "two")
    two.synchronize()
    gate.set()
    one.synchronize()
    assert order == ["two", "one"]


@pytest.mark.parametrize("how", ["stream", "event"])
def test_waiting_orders_two_streams_and_not_the_host(gate, how):
    one, two, order = ToyStream(), ToyStream(), []
    one.launch(gate.wait, 10)
    one.launch(order.append, "one")
    two.wait_stream(one) if how == "stream" else two.wait_event(one.record_event())
    two.launch(order.append, "two")
    time.sleep(0.05)
    assert order == [] and not two.query()
    gate.set()
    two.synchronize()
    assert order == ["one", "two"]


def test_an_event_is_about_the_work_before_it(gate):
    one, two = ToyStream(), ToyStream()
    event = one.record_event()
    one.launch(gate.wait, 10)
    two.wait_event(event)
    two.synchronize()  # does not wait for what was launched after the event


def test_an_error_shows_at_the_synchronization():
    stream = ToyStream()
    stream.launch(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
