"""The pages of errors and warnings: the table, and what cells of the lessons got."""

import dataclasses
import json
import pathlib
import re

import pytest

from tools.lessons import notebooks, table
from tools.site import errors
from tools.site.read_lessons import read_lessons
from tools.site.website import ROOT
from torch_messages.messages import entries


@pytest.fixture(scope="module")
def pages():
    return errors.pages(read_lessons())


@pytest.fixture(scope="module")
def page(pages):
    """All of them."""
    return "\n".join(pages.values())


@pytest.fixture(scope="module")
def known():
    """What the script of the table holds, its entries as {field: value}."""
    script = errors.table(read_lessons())
    text = script.removeprefix("const messageTable = ").removesuffix(";\n")
    whole = json.loads(text)
    rows = [dict(zip(whole["fields"], row, strict=True)) for row in whole["rows"]]
    return {**whole, "entries": rows}


def entry_on(pages, id):
    page = pages[f"docs/errors/{errors.PAGE_OF[id.split('/')[0]]}.md"]
    start = page.index(f"({errors.anchor(id)})=")
    return page[start : page.find("\n(message-", start + 1)]


def test_each_entry_says_what_it_means_what_to_do_and_where(pages):
    for entry in entries().values():
        shown = entry_on(pages, entry.id)
        assert "## " in shown and entry.do in shown
        assert "](../../notebooks/" in shown or "\n- " in shown, entry.id


def test_what_mends_a_message_stands_above_its_words_and_links(pages, page):
    shown = entry_on(pages, "memory/cuda-oom")
    below = page[page.index(shown) :].partition("<details")[2]
    assert "(../../notebooks/07_memory.ipynb#" in shown
    assert below.index("OutOfMemoryError: CUDA out of memory") < 2000


def test_the_first_page_leads_to_all_groups_and_to_common_entries(pages):
    first = pages["docs/errors.md"]
    linked = re.findall(r"\]\((errors/[\w-]+\.md)(?:#([\w-]+))?\)", first)
    groups = {f"docs/{page}" for page, anchor in linked if not anchor}
    assert groups | {"docs/errors.md"} == {*pages} and len(pages) > 8
    for page, anchor in linked:
        assert not anchor or f"({anchor})=" in pages[f"docs/{page}"]
    often = [entry for entry in entries().values() if entry.often]
    assert len([anchor for _, anchor in linked if anchor]) == len(often) > 20
    listed = re.findall(r"^- \[.*\]\(errors/[\w-]+\.md\): (\d+) entries$", first, re.M)
    assert sum(map(int, listed)) == len(entries())


def test_a_row_of_lesson_16_says_why_and_what_to_write(pages):
    shown = entry_on(pages, "amp/scaler")
    assert "Scaling is for float16" in shown
    assert "scaler = torch.amp.GradScaler(device.type, enabled=" in shown


def test_a_title_is_words_of_the_message_not_its_file():
    text = "RuntimeError: [/a/b/transport/unbound_buffer.cc:78] Timed out waiting"
    assert errors.Message("RuntimeError", text).title == "Timed out waiting"


def test_anchors_are_different(page):
    anchors = re.findall(r"^\((message-.*)\)=$", page, re.M)
    assert len({*anchors}) == len(anchors) and "message-" not in anchors


def test_the_field_reads_the_table(known):
    """Each field of an entry, whatever fields there are, but its sources."""
    assert [each["id"] for each in known["entries"]] == list(entries())
    for each, entry in zip(known["entries"], entries().values(), strict=True):
        whole = json.loads(json.dumps(dataclasses.asdict(entry)))
        del whole["source"]
        title = errors.title(entry)
        assert each == {**whole, "names": [*entry.called], "title": title}
    names = {name for each in known["entries"] for name in each["names"]}
    assert "torch.cuda.memory_cached" in names  # of a row


def test_the_table_knows_pages_cells_and_messages(known, pages):
    links = {lesson.link(id) for lesson in read_lessons() for id in lesson.sections}
    addresses = {address for _, address in known["cells"].values()}
    assert {link.replace(".ipynb", ".html") for link in links} >= addresses
    explained = [each for each in known["entries"] if each["lesson"] in known["cells"]]
    assert len(explained) > 300 and "amp/scaler" in known["cells"]
    assert len(known["shown"]) > 100
    for anchor, id in known["shown"].items():
        page = known["pages"][id.split("/")[0]]
        assert f"({anchor})=" in pages[f"docs/errors/{page}.md"]


def test_a_browser_takes_no_old_table(monkeypatch):
    """The address of the scripts changes with any of them."""
    lessons = read_lessons()

    def version():
        first = errors.pages(lessons)["docs/errors.md"]
        return re.search(r"messages\.js\?v=(\w+)", first)[1]

    first = version()
    assert version() == first
    monkeypatch.setattr(errors, "table", lambda lessons: "const messageTable = {};")
    assert version() != first


def test_versions_are_those_of_the_outputs_not_of_the_pin(pages, monkeypatch):
    """A pin of tomorrow changes no word of what yesterday's PyTorch said."""
    read = pathlib.Path.read_text

    def pinned(path, *arguments, **options):
        text = read(path, *arguments, **options)
        return re.sub(r"^torch==.*$", "torch==9.8.7", text, flags=re.M)

    monkeypatch.setattr(pathlib.Path, "read_text", pinned)
    assert "torch==9.8.7" in (ROOT / "requirements.txt").read_text()
    assert errors.pages(read_lessons()) == pages
    assert not [name for name, text in pages.items() if "9.8.7" in text]
    lesson = read_lessons()[2]
    setup = lesson.cells[0].outputs[0]
    setup["text"] = ["Ready: PyTorch 9.8.7, CPU\n"]
    assert "PyTorch 9.8.7" in "\n".join(errors.pages([lesson]).values())


def test_each_row_shows_the_version_that_its_lesson_names():
    """One run gives the outputs of a lesson, so its first cell can speak for all."""
    (lesson,) = [lesson for lesson in read_lessons() if lesson.number == "16"]
    versions = set()
    for cell in lesson.cells:
        if cell.row and cell.live:
            versions |= set(re.findall(r"^. \w+ · PyTorch ([\d.]+)", cell.shown[0][0]))
    assert versions == {lesson.version}


# of programs that lessons make up, not of PyTorch
OWN = ("division by zero", "could not convert string to float", "load() will go")


def test_each_message_of_a_lesson_leads_to_an_entry():
    shown = errors.shown_messages(read_lessons())
    lost = [each.text for each, at in shown.items() if not errors.entry_of(each, at)]
    assert [text for text in lost if not any(own in text for own in OWN)] == []
    assert len(lost) <= len(OWN)


def test_each_entry_belongs_to_a_group_of_the_pages():
    groups = sum(errors.GROUPS.values(), [])
    assert [entry.id for entry in entries().values() if entry.group not in groups] == []


def test_a_lesson_or_a_cell_that_is_not_there_is_one_sentence(monkeypatch):
    entry = {"id": "a/b", "means": "No.", "do": "x", "source": ["here"]}
    wrong = [{**entry, "lesson": "01 nowhere"}, {**entry, "lesson": "99 pick"}]
    monkeypatch.setattr(table.messages, "read", lambda: wrong)
    assert list(table.problems(notebooks.lessons())) == [
        "messages.toml, a/b: no cell nowhere in lesson 01",
        "messages.toml, a/b: no cell pick in lesson 99",
    ]
    # and no other test fails because of it
    broken = dataclasses.replace(entries()["memory/cuda-oom"], lesson="07 nowhere")
    assert list(errors._further(broken, errors.cells_by_key(read_lessons())))
