"""The explorers of the site: what of a lesson they run, where their controls stand,
what a page gets.
"""

import base64
import functools
import gzip
import io
import json
import re
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

from tools.site import drawings, explorers
from utils.devices import cpu_name

NUMBERS = list(explorers.GRID)
# sliders that have no steps of their own
LOGARITHMIC = {"10": ("kernel", "launch")}


def stored(number):
    """What the cell with the explorer of a lesson shows in the stored notebook."""
    nb = json.loads(drawings.lesson_path(number).read_text(encoding="utf-8"))
    (cell,) = [c for c in nb["cells"] if "plots.explorer(" in "".join(c["source"])]
    return cell["outputs"][-1]["data"]


@pytest.fixture(scope="module", params=NUMBERS)
def number(request):
    """All tests of one lesson stand side by side: one process draws its pictures."""
    return request.param


def test_of_a_cell_that_only_defines_no_more_than_is_used():
    cell = "# @title T\nimport a, b\n\n\n@a.c\ndef f():\n    return b\n\n\nx = f()"
    wanted = "import a, b\n@a.c\ndef f():\n    return b"
    assert drawings.only_definitions(cell, [0, 1]) == wanted
    assert drawings.only_definitions(cell, [0, 2]) == "", "x may be changed: all of it"
    assert drawings.only_definitions(f"#| requires: cuda\n{cell}", [0]) == ""
    assert drawings.only_definitions(f"#| takes: 9 s to wait\n{cell}", [0, 1]) == wanted


def test_an_explorer_needs_no_cell_that_starts_processes():
    for number in NUMBERS:
        assert "%%torchrun" not in "\n".join(drawings.explorer_cells(number))


@functools.cache
def made(number):
    """What a page shows of an explorer, and what stands beside it for tests."""
    path = explorers.drawn([number])[number]
    beside = path.with_name(f"{path.name}.json").read_text(encoding="utf-8")
    return explorers.unpack(path), json.loads(beside)


@pytest.mark.slow
def test_controls_stand_where_the_lesson_can_put_them(number):
    content, beside = made(number)
    given = beside["values"]
    assert explorers.GRID[number].keys() <= given.keys() == content["controls"].keys()
    assert len(drawings.settings(given)) == len(content["pictures"]) <= 800
    for name, here in given.items():
        control, possible = content["controls"][name], beside["choices"][name]
        assert len(set(here)) == len(here) == len(control["texts"]) > 1
        if control["kind"] == "range":
            ends = possible[0], possible[-1]
            assert (here[0], here[-1]) == pytest.approx(ends, rel=0.03)
            assert sorted(here) == here
        # a field for a number has no choices; a logarithmic slider rounds nothing
        if possible and name not in LOGARITHMIC.get(number, ()):
            assert set(here) <= set(possible)


def farthest(picture, other):
    """The largest difference of a pixel from the most similar one of the nine around
    its place in the other: where a line lies between two pixels, the last bit of a sum
    decides, and processors differ in it.
    """
    wide = np.pad(other, [(1, 1), (1, 1), (0, 0)], mode="edge")
    rows, columns, _ = picture.shape
    near = [
        np.abs(picture - wide[y : y + rows, x : x + columns]).max(2)
        for y in range(3)
        for x in range(3)
    ]
    return np.min(near, 0).max()


def test_a_line_may_lie_a_pixel_aside_and_no_farther():
    one, other, third = np.zeros((3, 20, 20, 4))
    one[:, 8] = other[:, 9] = third[:, 10] = 1
    assert farthest(one, other) == 0 and farthest(one, third) == 1


@pytest.mark.slow
def test_the_first_picture_is_the_one_that_the_lesson_stores(number):
    content, beside = made(number)
    data = stored(number)
    ours, theirs = (
        matplotlib.image.imread(io.BytesIO(base64.b64decode(png)))
        for png in (beside["png"], "".join(data["image/png"]))
    )
    assert ours.shape == theirs.shape
    assert max(farthest(ours, theirs), farthest(theirs, ours)) < 0.06
    page = ElementTree.fromstring(xml(explorers.page(stem(number), "../")))
    alt = page.find(".//*[@role='img']").get("aria-label")
    assert alt == "".join(data["text/plain"])


@pytest.mark.slow
def test_no_picture_shows_what_the_machine_measured_that_built_the_site(number):
    content, _ = made(number)
    words = json.dumps([content["tags"], content["alts"], content["heads"]])
    assert "this machine" not in words and "this run" not in words
    assert cpu_name() not in words


@pytest.mark.slow
def test_a_figure_is_cut_between_its_panels():
    content, _ = made("14")
    for cuts, head, alt in zip(
        *map(content.get, ("cuts", "heads", "alts")), strict=True
    ):
        assert len(cuts) == 2 and 150 < cuts[0] < cuts[1] - 150
        assert head[0] in alt and len(head) == 2
    assert not any(made("00")[0]["cuts"])


@pytest.mark.slow
@pytest.mark.parametrize("number", ["00", "08", "06"])
def test_script(number, tmp_path, monkeypatch):
    monkeypatch.setattr(explorers, "GRID", {number: explorers.GRID[number]})
    explorers.write(tmp_path)
    script = (tmp_path / f"{number}.js").read_text()
    text = re.fullmatch(rf'deviceLab.explorer\("{number}", "(.*)"\)\n', script)[1]
    content, beside = made(number)
    assert json.loads(gzip.decompress(base64.b64decode(text))) == content
    assert len(beside["drawings"]) >= 20
    for at, (svg, alt, head, cuts) in beside["drawings"].items():
        at = int(at)
        tags = "".join(content["tags"][place] for place in content["pictures"][at])
        assert tags == drawings.slim(svg) and alt == content["alts"][at]
        assert [head, cuts] == [content["heads"][at], content["cuts"][at]]


def test_a_page_to_embed_shows_the_same_at_fewer_positions():
    def control(first, *texts):
        return {"label": "l", "kind": "range", "first": first, "texts": list(texts)}

    names = [a + b for a in "xyz" for b in "pq"]
    found = {
        "controls": {"one": control(1, *"xyz"), "two": control(0, *"pq")},
        "tags": ["<svg>", *names],
        "pictures": [[0, at] for at in range(1, 7)],
        "alts": names,
        "heads": [[name] for name in names],
        "cuts": [[] for _ in names],
    }
    new = json.loads(gzip.decompress(explorers.fewer(found, {"one": ["x"]})))
    assert new["controls"]["one"] == control(0, *"yz")
    assert new["tags"] == ["<svg>", "yp", "yq", "zp", "zq"] and new["alts"] == names[2:]
    assert [explorers.picture(new, at)[5:] for at in range(4)] == names[2:]


def xml(text):
    """HTML of an explorer as XML, if each tag is closed."""
    closed = re.sub(r"(<input.*?)>", r"\1/>", text)
    return re.sub(r" (disabled|checked|selected)(?=[ />])", r" \1=''", closed)


def stem(number):
    return drawings.lesson_path(number).stem


@pytest.mark.slow
@pytest.mark.parametrize("number", ["00", "08", "06"])
def test_page(number):
    content, beside = made(number)
    text = explorers.page(stem(number), "../")
    svg, alt, _, _ = beside["drawings"][str(beside["first"])]
    assert drawings.slim(svg) in text and len(text) < 60_000
    page = ElementTree.fromstring(xml(text))
    parts = list(page.find("fieldset[@disabled]").iter())
    fields = [part.get("id") for part in parts if part.tag in ("input", "select")]
    assert fields == [f"explorer-{number}-{name}" for name in beside["values"]]
    assert [part.get("for") for part in parts if part.tag == "label"] == fields
    assert page.get("data-script") == f"../_static/explorers/{number}.js"
    assert page.find(".//*[@role='img']").get("aria-label") == alt


def test_no_lesson_is_left_out_without_a_reason():
    """Of these the figure shows what the reader's own machine has measured; 16 has a
    field for words.
    """
    folder = explorers.ROOT / "notebooks"
    stems = sorted(path.stem for path in folder.glob("[0-9][0-9]_*.ipynb"))
    left = [stem for stem in stems if stem[:2] not in NUMBERS]
    assert [stem[:2] for stem in left] == ["01", "02", "03", "15", "16"]
    assert [explorers.page(stem, "../") for stem in left] == [None] * 5
