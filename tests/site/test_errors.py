"""The page of errors and warnings, and what the search page knows of it."""

import json

import pytest
from nbformat import v4

from tools.site.course import read_lessons
from tools.site.cures import CURES
from tools.site.errors import Message, entries
from tools.site.lookup import places
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


def test_a_name_leads_to_the_lesson_that_says_most_about_it():
    few = [v4.new_markdown_cell("## A\n\n`x.seldom_seen()`, `often_seen`", id="a")]
    many = [
        v4.new_markdown_cell("## B\n\n`often_seen`", id="b"),
        v4.new_markdown_cell("## What does `often_seen` do? (3 minutes)", id="c"),
        v4.new_code_cell("often_seen(1)\nother_name = 2\nother_name", id="d"),
    ]
    notebooks = {
        stem: v4.new_notebook(cells=cells)
        for stem, cells in {"00_few": few, "01_many": many}.items()
    }
    found = places(notebooks, {"00_few": "00 · Few", "01_many": "01 · Many"})
    section = "What does `often_seen` do?"
    # seldom_seen is said once, other_name by no text
    assert json.loads(json.dumps(found)) == {
        "often_seen": [["notebooks/01_many", "01 · Many", "c", section]]
    }
