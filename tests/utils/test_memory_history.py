"""The one place that uses the private recording of the allocator; its names must exist
in each supported torch.
"""

import inspect
from unittest import mock

import pytest
import torch

from utils.memory_history import _entry, memory_history


def test_the_private_functions_take_what_we_give():
    parameters = inspect.signature(torch.cuda.memory._record_memory_history).parameters
    assert {"enabled", "stacks", "max_entries", "clear_history"} <= set(parameters)
    assert "device_traces" in torch.cuda.memory._snapshot.__doc__


OURS = {"filename": "/tmp/ipykernel_1/2.py", "name": "train", "line": 3}
CELL = {**OURS, "name": "<module>"}
THEIRS = [
    {"filename": torch.nn.modules.linear.__file__, "name": "forward", "line": 9},
    {"filename": inspect.__file__, "name": "signature", "line": 1},
]


ALLOCATED = {"action": "alloc", "size": 12, "addr": 4, "frames": [*THEIRS, OURS, CELL]}
SEGMENT = {"action": "segment_alloc", "size": 512, "addr": 8, "frames": THEIRS}


@pytest.mark.parametrize(
    "trace, entry",
    [
        (SEGMENT, ("segment_alloc", 512, 8, "")),
        (ALLOCATED, ("alloc", 12, 4, "train:3")),
        ({"action": "oom", "size": 9999}, ("oom", 9999, 0, "")),
        # new in PyTorch 2.15; a later one may add others
        ({"action": "annotate"}, ("annotate", 0, 0, "")),
    ],
)
def test_entries_are_plain_and_name_the_own_code(trace, entry):
    names = ("action", "bytes", "address", "code")
    assert _entry(trace) == dict(zip(names, entry, strict=True))


def test_the_recording_is_switched_off_when_the_block_fails(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    traces = {"device_traces": [[], [{"action": "oom"}]]}
    record, memory = mock.Mock(), torch.cuda.memory
    monkeypatch.setattr(memory, "_snapshot", lambda: traces)
    monkeypatch.setattr(memory, "_record_memory_history", record)
    with pytest.raises(ZeroDivisionError), memory_history() as events:
        raise ZeroDivisionError
    assert [event["action"] for event in events] == ["oom"]
    on, off = record.mock_calls
    assert on.kwargs["max_entries"] == 100_000 and off == mock.call(None)


@pytest.mark.parametrize("name", ["_record_memory_history", "_snapshot"])
def test_a_private_name_that_is_gone_is_named_before_anything_is_switched_on(
    monkeypatch, name
):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.delattr(torch.cuda.memory, name)
    with pytest.raises(AttributeError, match=name), memory_history():
        pytest.fail("the block ran")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_allocations_and_frees_are_seen_also_where_the_block_fails():
    with pytest.raises(ZeroDivisionError), memory_history() as events:
        x = torch.empty(3 * 2**20, dtype=torch.uint8, device="cuda")
        del x
        raise ZeroDivisionError
    ours = [e for e in events if e["bytes"] == 3 * 2**20]
    assert {"alloc", "free_completed"} <= {e["action"] for e in ours}
