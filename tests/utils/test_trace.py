"""trace_events gives what a profiler has recorded, in order of time."""

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from utils.trace import trace_events


def test_a_range_comes_before_the_work_within_it_and_ends_after_it():
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as prof:
        with record_function("first"):
            torch.ones(256, 256)
        with record_function("second"):
            torch.ones(2).sum()
    events = trace_events(prof)
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events)
    work = [e for e in events if e.get("cat") in ("cpu_op", "user_annotation")]
    assert {e["ph"] for e in work} == {"X"}
    second = [e["name"] for e in work].index("second")
    assert [e["name"] for e in work[:2]] == ["first", "aten::ones"]
    assert work[second + 1]["name"] == "aten::ones"
    first, called = work[0], work[1:second]
    end = first["ts"] + first["dur"]
    assert max(e["ts"] + e["dur"] for e in called) <= end <= work[second]["ts"]
    memory = [
        e["args"]["Bytes"]
        for e in events
        if e["name"] == "[memory]" and first["ts"] <= e["ts"] < end
    ]
    assert memory == [256 * 256 * 4, -256 * 256 * 4]
