"""A claim gives the same figure as the table above it, where both give it."""

import json
import re

import nbformat
import pytest

from course.paths import COURSE
from device_lab import busy
from tools.lessons.recorder import claims_in

# Lesson, how the claim begins, and where in the outputs up to it the two figures stand
# whose ratio it is (one: the figure itself). The last match counts.
SAME = [
    ("00", "one call beats", r"Python loop +(\S+)", r"PyTorch +(\S+)"),
    ("04", "32 bits are faster", r"float64 (\S+) ms", r"float32 (\S+) ms"),
    ("05", "host_waits holds", r"host_waits .* (\S+) ms", r"stream_waits .* (\S+) ms"),
    ("06", "a new buffer in", r"new buffer +(\S+) ms", r"directly +(\S+) ms"),
    ("06", "an index against Data", r"DataLoader +(\S+) ms", r"an index +(\S+) ms"),
    ("06", "an index against 2", r"their start +(\S+) ms", r"an index +(\S+) ms"),
    ("08", "clipped first", r"unscale, then .* (\S+)", r"clip, then .* (\S+)"),
    ("08", "bfloat16 is less", r"in bfloat16 .* (\S+)", r"in tf32  .* (\S+)"),
    ("09", "all three mends", r"(\S+) → \S+ ms a step", r"→ (\S+) ms a step"),
    ("09", "all three mends", r"Three mends: (\S+) times"),
    (
        "10",
        "16 million",
        r"16,777,216 .*place (\S+) ms",
        r"16,777,216 .*fused (\S+) ms",
    ),
    ("10", "64 numbers: in", r"  64 .* place (\S+) µs", r"  64 .* fused (\S+) µs"),
    ("10", "60 operations on", r"eager': '(\S+) µs", r"compiled': '(\S+) µs"),
    ("15", "the mended loop against", r"fused optimizer +\S+ ms +(\S+)"),
]


def outputs_up_to(lesson, begin):
    """What the lesson's stored outputs say up to a claim, and the claim's data."""
    (path,) = (COURSE / "notebooks").glob(f"{lesson}_*.ipynb")
    said = []
    for cell in nbformat.read(path, 4).cells:
        for output in cell.get("outputs", []):
            for claim in claims_in([output]):
                if claim["text"].startswith(begin):
                    return "\n".join(said), claim
            said.append(output.get("text") or output.get("data", {}).get("text/plain"))
    raise AssertionError(f"lesson {lesson} has no claim '{begin} …'")


def read(text, pattern):
    """The last number that the pattern finds, and by which share it is rounded."""
    found = re.findall(pattern, text)
    assert found, pattern
    number = found[-1].replace(",", "")
    digits = re.sub(r"e.*|\.", "", number).lstrip("0")
    return float(number), 0.5 / int(digits)


@pytest.mark.parametrize(
    "lesson, begin, of, by", [(*each[:3], each[3:]) for each in SAME]
)
def test_a_claim_and_the_table_above_it_agree(lesson, begin, of, by):
    text, claim = outputs_up_to(lesson, begin)
    value, rounded = read(text, of)
    for pattern in by:
        divisor, coarse = read(text, pattern)
        value, rounded = value / divisor, rounded + coarse
    # 0.5%: the claim itself has three digits
    assert value == pytest.approx(claim["value"], rel=rounded + 0.005)


def test_busy_says_of_real_gpu_work_what_the_lesson_says():
    """Against `covered` of lesson 09, on work that an H100 did."""
    path = COURSE / "notebooks/recorded/nvidia-h100-80gb-hbm3/09_profiling.json"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    for recorded in cells["profiling_gpu_patterns"]["value"].values():
        events = [
            {"ph": "X", "cat": "kernel", "name": "", "pid": 0, "tid": 7}
            | {"ts": 1e3 * start, "dur": 1e3 * (end - start)}
            for start, end in recorded["spans"]
        ]
        verdict = busy(events)
        assert verdict.share == pytest.approx(recorded["busy"], abs=1e-6)
        assert verdict.window == pytest.approx(recorded["whole"] / 1e3)
