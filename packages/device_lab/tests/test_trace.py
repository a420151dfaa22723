"""trace_events gives what a profiler has recorded, in order of time; busy says how much
of it a GPU worked, and what the host did meanwhile.
"""

import gzip
import json

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from device_lab import LabError
from device_lab._kit.trace import NOTHING, busy, trace_events


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


def event(cat, name, start, end, pid=0, tid=7):
    """A row of a trace; times in µs."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid} | {
        "ts": start,
        "dur": end - start,
    }


def host(cat, name, start, end, tid=1):
    return event(cat, name, start, end, pid=99, tid=tid)


# The GPU works at 100–200, 200–240 on another stream, 300–310, 1000–1100: 250 of 1000.
# Gaps: 60 and 690.
TRACE = [
    {"ph": "M", "name": "process_name", "pid": 0, "ts": 0},
    event("kernel", "gemm", 100, 200),
    event("gpu_memcpy", "Memcpy HtoD", 190, 240, tid=20),
    event("gpu_memset", "Memset", 300, 310),
    event("kernel", "gemm", 1000, 1100),
    event("gpu_user_annotation", "forward", 0, 2000),
    event("kernel", "elsewhere", 0, 10, pid=1),
    host("user_annotation", "ProfilerStep#3", 0, 2000),
    host("user_annotation", "data", 320, 900),
    host("cpu_op", "aten::item", 240, 290),
    host("cuda_runtime", "cudaStreamSynchronize", 245, 285),
    host("cpu_op", "aten::stack", 400, 500),
    host("cpu_op", "aten::cat", 410, 490),
    host("cpu_op", "backward op", 800, 1200, tid=2),
]


def test_busy_merges_streams_and_says_what_the_host_did_in_the_gaps():
    work = busy(TRACE)
    assert work.share == pytest.approx(0.25)
    assert work.worked == pytest.approx(250e-6)
    assert work.window == pytest.approx(1000e-6)
    assert work.pieces == 4
    expected = [(210e-6, 690e-6), (140e-6, 60e-6)]
    assert [x for gap in work.gaps for x in gap] == pytest.approx(sum(expected, ()))
    assert {name: round(x * 1e6) for name, x in work.longest.items()} == {
        "data": 480,
        "backward op": 200,
        "aten::cat": 80,
        "aten::stack": 20,
        NOTHING: 10,
    }
    assert round(work.idle["cudaStreamSynchronize"] * 1e6) == 40
    assert round(work.idle["aten::item"] * 1e6) == 10
    assert round(work.idle[NOTHING] * 1e6) == 20
    text = str(work)
    assert "worked 25.0% of 1 ms, in 4 pieces with 2 gaps" in text
    assert "690 µs (at 210 µs)" in text and "480 µs  data" in text


def test_busy_reads_files_and_events_in_any_order(tmp_path):
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    text = json.dumps({"traceEvents": TRACE[::-1]})
    plain.write_text(text, encoding="utf-8")
    with gzip.open(packed, "wt", encoding="utf-8") as file:
        file.write(text)
    assert busy(plain) == busy(str(packed)) == busy(TRACE) == busy(TRACE[::-1])


def test_busy_without_a_gpu_or_with_a_recording_that_is_gone():
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(2).sum()
    with pytest.raises(LabError, match=r"no work of a GPU.*key_averages"):
        busy(prof)
    with pytest.raises(LabError, match="exported before"):
        busy(prof)
    assert busy([event("kernel", "only", 5, 5)]).share == 1


@pytest.mark.parametrize("text", ["no JSON", "{}", "3", "[3]"])
def test_what_is_no_trace(text, tmp_path):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(LabError, match=r"file\.json holds no Chrome trace"):
        busy(path)
    with pytest.raises(LabError, match="a path or a list, this is dict"):
        busy({})
    with pytest.raises(LabError, match="nothing is recorded yet"):
        busy(profile())
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with pytest.raises(LabError, match="nothing is recorded yet"):
            busy(prof)
