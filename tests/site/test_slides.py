"""The slides of the two hours: what they take from lessons is there, and their minutes
are those of the timetable.
"""

import re

import pytest

from tests.conftest import ROOT
from tools.site.slides import filled

SLIDES = (ROOT / "docs/slides/two-hours.md").read_text(encoding="utf-8")
TEACHING = (ROOT / "docs/teaching.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "gone",
    [
        "<!-- code 02#no-such-cell -->",
        "<!-- code 02#three-tensors 4-5 -->",
        "<!-- question 02#three-tensors -->",
        "<!-- output 02#three-tensors -->",
        "> A tensor lives on two devices.",
    ],
)
def test_what_no_lesson_has_is_an_error(gone):
    with pytest.raises((KeyError, IndexError, ValueError)):
        filled(gone)


def test_each_slide_has_minutes_and_all_make_two_hours():
    at, begins = 0, []
    for slide in SLIDES.split("\n## "):
        notes = slide.partition('<aside class="notes">\n\n')[2]
        begin, minutes = re.match(r"\*\*(\d:\d\d) · (\d+) min\*\*", notes).groups()
        assert begin == f"{at // 60}:{at % 60:02}", slide
        begins.append(begin)
        at += int(minutes)
    assert at == 120
    rows = TEACHING.partition("\n### Two hours\n")[2].partition("\n### ")[0]
    assert {*re.findall(r"^\| (\d:\d\d) ", rows, re.M)} <= {*begins, "2:00"}
