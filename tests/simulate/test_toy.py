"""ToyStream behaves like a stream: returns at once, keeps its order, races with others,
waits for events.
"""

import threading
import time

import pytest

from simulate.toy import ToyStream


@pytest.fixture
def held():
    """(a stream, a list, gate): the stream adds "one" to the list after gate.set()."""
    gate, stream, order = threading.Event(), ToyStream(), []
    stream.launch(gate.wait, 10)
    stream.launch(order.append, "one")
    yield stream, order, gate
    gate.set()


def test_launch_returns_while_the_work_waits_and_other_streams_go_on(held):
    one, order, gate = held
    two = ToyStream()
    two.launch(order.append, "two")
    two.synchronize()
    assert order == ["two"] and two.query() and not one.query()
    gate.set()
    one.synchronize()
    assert order == ["two", "one"] and one.query()


@pytest.mark.parametrize("how", ["stream", "event"])
def test_waiting_orders_two_streams_and_not_the_host(held, how):
    one, order, gate = held
    two = ToyStream()
    if how == "stream":
        two.wait_stream(one)
    else:
        two.wait_event(one.record_event())
    two.launch(order.append, "two")
    time.sleep(0.05)
    assert order == [] and not two.query()
    gate.set()
    two.synchronize()
    assert order == ["one", "two"]


def test_an_event_is_about_the_work_before_it(held):
    one, order, gate = held
    two = ToyStream()
    event = two.record_event()
    two.launch(gate.wait, 10)
    three = ToyStream()
    three.wait_event(event)
    three.synchronize()  # does not wait for what was launched after the event
    assert order == []


def test_an_error_shows_at_the_synchronization():
    stream = ToyStream()
    stream.launch(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
