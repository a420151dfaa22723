"""The one place that uses the private recording of the allocator; its names must exist in each supported torch."""

import inspect

import pytest
import torch

from utils.memory_history import memory_history


def test_the_private_functions_take_what_we_give():
    parameters = inspect.signature(torch.cuda.memory._record_memory_history).parameters
    assert {"enabled", "stacks", "max_entries", "clear_history"} <= set(parameters)
    assert "device_traces" in torch.cuda.memory._snapshot.__doc__


@pytest.fixture
def recorder(monkeypatch):
    calls = []
    ours = {"filename": "/tmp/ipykernel_1/2.py", "name": "train", "line": 3}
    theirs = {"filename": "/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", "name": "forward", "line": 9}
    traces = [
        {"action": "segment_alloc", "size": 2097152, "addr": 4096, "frames": [theirs]},
        {"action": "alloc", "size": 512, "addr": 4096, "frames": [theirs, ours]},
        {"action": "oom", "size": 9999},
    ]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *a, **k: calls.append((a, k)))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], traces]})
    return calls


def test_entries_are_plain_and_name_the_own_code(recorder):
    with memory_history(max_entries=7) as events:
        assert events == []
    assert [e["action"] for e in events] == ["segment_alloc", "alloc", "oom"]
    assert events[0]["code"] == "" and events[1] == {
        "action": "alloc",
        "bytes": 512,
        "address": 4096,
        "code": "train:3",
    }
    assert events[2]["address"] == 0
    assert recorder[0][1]["max_entries"] == 7 and recorder[1] == ((None,), {})


def test_an_error_ends_the_recording_and_goes_on(recorder):
    with pytest.raises(torch.OutOfMemoryError), memory_history() as events:
        raise torch.OutOfMemoryError("full")
    assert len(events) == 3 and recorder[-1] == ((None,), {})


def test_an_action_that_is_no_allocation_has_no_bytes(recorder, monkeypatch):
    """PyTorch 2.15 added "annotate"; what a later one adds must not stop the recording."""
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], [{"action": "annotate"}]]})
    with memory_history() as events:
        pass
    assert events == [{"action": "annotate", "bytes": 0, "address": 0, "code": ""}]


@pytest.mark.parametrize("name", ["_record_memory_history", "_snapshot"])
def test_a_private_name_that_is_gone_is_named(recorder, monkeypatch, name):
    monkeypatch.delattr(torch.cuda.memory, name)
    with pytest.raises(AttributeError, match=name) as caught, memory_history():
        pass
    assert caught.value.name == name and caught.value.obj is torch.cuda.memory  # what the cells' line is made of
    assert recorder == [], "nothing was switched on that nobody would switch off"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_allocations_and_frees_are_seen():
    with memory_history() as events:
        x = torch.empty(3 * 2**20, dtype=torch.uint8, device="cuda")
        del x
    ours = [e for e in events if e["bytes"] == 3 * 2**20]
    assert {"alloc", "free_completed"} <= {e["action"] for e in ours}
