"""The page of errors and warnings, and its field for a message."""

import json
import re

import pytest

from tools.site.cures import CURES
from tools.site.errors import Message, entries
from tools.site.messages import field
from tools.site.read_lessons import read_lessons
from tools.site.website import ROOT


@pytest.fixture(scope="module")
def lessons():
    return read_lessons()


@pytest.fixture(scope="module")
def found(lessons):
    grouped = entries(lessons, ROOT)
    return [entry for group in grouped.values() for entry in group]


@pytest.mark.parametrize("cure", CURES, ids=lambda cure: cure.words)
def test_every_cure_is_of_a_message_and_leads_to_a_cell(cure, found, lessons):
    assert cure in [entry.cure for entry in found]
    lesson = next(each for each in lessons if each.number == cure.place[0])
    assert cure.place[1] in lesson.sections


def test_what_mends_a_message_stands_above_its_words_and_links(found):
    entry = next(each for each in found if each.title == "CUDA out of memory")
    cure, link, words, other = (
        entry.markdown().index(text)
        for text in (
            entry.cure.text,
            "(../notebooks/07_memory.ipynb#remedies)",
            "OutOfMemoryError: CUDA out of memory",
            "16_old_code_today.ipynb",
        )
    )
    assert cure < link < words < other


def test_a_row_of_lesson_16_says_why_and_what_to_write(found):
    entry = next(each for each in found if "cuda.amp.GradScaler(args" in each.title)
    above = entry.markdown().partition(":class: message")[0]
    assert "Scaling is for float16" in above
    assert "scaler = torch.amp.GradScaler(device.type, enabled=" in above


def test_a_title_is_words_of_the_message_not_its_file(found):
    text = "RuntimeError: [/a/b/transport/unbound_buffer.cc:78] Timed out waiting"
    assert Message("RuntimeError", text).title == "Timed out waiting"
    assert [entry.title for entry in found if entry.anchor == "message-"] == []


def test_anchors_are_different(found):
    anchors = [entry.anchor for entry in found]
    assert len({*anchors}) == len(anchors)


def test_the_field_reads_what_the_page_has_and_a_browser_its_patterns(found, lessons):
    text = field({"all": found}, lessons)
    script = re.search(r'id="messages">(.*?)</script>', text)[1]
    known = json.loads(script)
    assert [each[1] for each in known[: len(found)]] == [f"#{e.anchor}" for e in found]
    patterns = [each for *_, alone, shared in known for each in alone + shared]
    assert len(patterns) > 100
    assert not [each for each in patterns if "(?i" in each or "(?P" in each]
    cells = {lesson.stem: lesson.sections for lesson in lessons}
    for _, link, *_ in known[len(found) :]:
        if link:  # else what to do stands in place of a link
            stem, id = re.fullmatch(r"\.\./notebooks/(\w+)\.html#(.+)", link).groups()
            assert id in cells[stem]
