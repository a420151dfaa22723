"""The page of errors and warnings: the table, and what cells of the lessons got."""

import json
import re

import pytest
from torch_messages.messages import entries

from tools.site import errors
from tools.site.read_lessons import read_lessons
from tools.site.website import ROOT


@pytest.fixture(scope="module")
def page():
    return errors.page(read_lessons(), ROOT)


def entry_on(page, id):
    start = page.index(f"({errors.anchor(id)})=")
    return page[start : page.find("\n(message-", start + 1)]


def test_each_entry_says_what_it_means_what_to_do_and_where(page):
    for entry in entries().values():
        shown = entry_on(page, entry.id)
        assert "### " in shown and entry.do in shown
        assert "](../notebooks/" in shown or "\n- " in shown, entry.id


def test_what_mends_a_message_stands_above_its_words_and_links(page):
    shown = entry_on(page, "memory/cuda-oom")
    below = page[page.index(shown) :].partition("<details")[2]
    assert "(../notebooks/07_memory.ipynb#" in shown
    assert below.index("OutOfMemoryError: CUDA out of memory") < 2000


def test_a_row_of_lesson_16_says_why_and_what_to_write(page):
    shown = entry_on(page, "amp/scaler")
    assert "Scaling is for float16" in shown
    assert "scaler = torch.amp.GradScaler(device.type, enabled=" in shown


def test_a_title_is_words_of_the_message_not_its_file():
    text = "RuntimeError: [/a/b/transport/unbound_buffer.cc:78] Timed out waiting"
    assert errors.Message("RuntimeError", text).title == "Timed out waiting"


def test_anchors_are_different(page):
    anchors = re.findall(r"^\((message-.*)\)=$", page, re.M)
    assert len({*anchors}) == len(anchors) and "message-" not in anchors


def test_the_field_reads_the_table(page):
    script = re.search(r'id="messages">(.*?)</script>', page)[1]
    known = json.loads(script)
    assert [each[0] for each in known] == list(entries())
    names = {name for each in known for name in each[3]}
    assert "torch.cuda.memory_cached" in names  # of a row
    assert {each[0] for each in known if each[4]} == {
        entry.id for entry in entries().values() if entry.cover
    }
