"""The pages that the look-up searches: where they stand, and the same in JavaScript."""

import json
import re
import shutil
import subprocess

import pytest
from docutils.nodes import make_id

from tools.lessons import places as generator
from tools.lessons.links import read
from tools.lessons.parts import HEADING
from tools.site.website import ROOT
from torch_messages import phrases, places, rules

TESTS = ROOT / "packages" / "torch_messages" / "tests"
SCRIPT = ROOT / "docs" / "_static" / "places.js"


def test_the_file_is_what_lessons_and_pages_say():
    assert list(generator.problems()) == []


def test_an_old_file_and_a_large_one_are_said(monkeypatch, tmp_path):
    told = json.loads(read(generator.FILE))
    told["places"]["07"].pop()
    old = tmp_path / "places.json"
    old.write_text(generator.written(told), encoding="utf-8")
    monkeypatch.setattr(generator, "FILE", old)
    monkeypatch.setattr(generator, "MOST", 1000)
    stale, large = generator.problems()
    assert stale == "places.json is not what lessons and pages say: run `make format`"
    assert large.endswith("bytes, more than 1000")
    generator.write()
    assert read(old) == read(places.FILE)


def test_each_address_is_a_cell_or_a_heading():
    cells, headings = {}, {}
    for path in generator.lessons():
        content = json.loads(read(path))
        cells[path.stem[:2]] = {cell["id"] for cell in content["cells"]}
    for page in ("answers", "zh"):
        titles = HEADING.findall(read(ROOT / "docs" / f"{page}.md"))
        headings[page] = [make_id(title) for _, title, _ in titles]
    for _, short, *_ in places.read()["places"]:
        page, anchor = short.split("#")
        assert anchor in cells.get(page, headings.get(page)), short
        assert headings.get(page, [anchor]).count(anchor) == 1, short


def test_each_answer_and_each_task_is_there():
    known = {title for title, *_ in places.read()["places"]}
    for page, mark in (("answers", "##"), ("zh", "###")):
        text = read(ROOT / "docs" / f"{page}.md")
        assert known.issuperset(re.findall(rf"^{mark} (.*)", text, re.M))
    tasks = read(ROOT / "tools" / "site" / "tasks.txt").splitlines()
    assert known.issuperset(f"How do I {line.split(' | ')[1]}?" for line in tasks)


def test_how_people_put_it_belongs_to_an_answer():
    text = read(ROOT / "docs" / "answers.md")
    assert list(generator.PUT) == re.findall("^## (.*)", text, re.M)


@pytest.mark.parametrize(
    "title, more, stored",
    [
        ("A title", "the forked subprocess, forks", ["fork", "subprocess"]),
        ("Loss", "losses of top k", ["losses", "top", "k"]),
        ("显存不足", "如果 存不 显存不够 CUDA 60", ["如果", "显存不够", "cuda"]),
    ],
)
def test_stored_is_what_the_search_has_not_yet_and_reads_alike(title, more, stored):
    assert generator.further(title, more) == stored
    read = [places.words(" ".join([title, *words])) for words in ([more], stored)]
    assert set(read[0]) == set(read[1])


# --------------------------------------------------------------------------------------
# In JavaScript


def texts():
    """Questions, and what people paste."""
    pasted = read(TESTS / "messages.txt").split("\n\n")
    asked = [" ".join(more) for _, _, *more in places.read()["places"]]
    titles = [title for title, *_ in places.read()["places"]]
    own = read(TESTS / "test_places.py") + read(TESTS / "test_phrases.py")
    quoted = re.findall('"([^"\n]{4,})"', own) + own.splitlines()
    quoted += own.split("\n\n") + [each.replace("\\n", "\n") for each in quoted]
    return [*pasted, *asked, *titles, *quoted, own[-9000:], "", " ", "\r\n", "怎么"]


@pytest.mark.slow
def test_javascript_finds_the_same():
    if not shutil.which("node"):
        pytest.skip("no Node.js")
    program = (
        f"{read(SCRIPT)}\n"
        "const {data, rule, rules, texts} ="
        " JSON.parse(require('fs').readFileSync(0, 'utf-8'));\n"
        "const said = phrasesOf(rule, rules);\n"
        "const search = searchPlaces(data, said), tracker = trackerOf(data);\n"
        "const all = text => [search(text), search(text, 1), tracker(text),"
        " said.lineOf(text), said.lineOf('', text), said.missing(text)];\n"
        "console.log(JSON.stringify(texts.map(all)));\n"
    )
    given = texts()
    both = {"rule": json.loads(read(phrases.FILE)), "rules": rules.RULES}
    done = subprocess.run(
        ["node", "-e", program],
        input=json.dumps({"data": places.read(), "texts": given, **both}),
        capture_output=True,
        encoding="utf-8",
    )
    assert not done.stderr
    for text, found in zip(given, json.loads(done.stdout), strict=True):
        own = [places.search(text), places.search(text, 1), places.tracker(text)]
        own += [phrases.phrase(text), phrases.phrase("", text), phrases.missing(text)]
        assert json.loads(json.dumps(own)) == found, text
    names = {places.tracker(text)[0] for text in given}
    assert len(names) > 15 and sum(bool(places.search(text)) for text in given) > 400
