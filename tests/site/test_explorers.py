"""The explorers of the site: what of a lesson they run, where their controls stand,
what a page gets.
"""

import ast
import base64
import gzip
import io
import json
import re
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

from course import plots
from tools.site import drawings, explorers

NUMBERS = list(explorers.GRID)
# Calls that read a clock, or measure.
CLOCKS = {"measure", "measure_together", "Timer", "timeit", "elapsed_time"}
CLOCKS |= {"perf_counter", "perf_counter_ns", "time"}


def stored(number):
    """What the cell with the explorer of a lesson shows in the stored notebook."""
    nb = json.loads(drawings.lesson_path(number).read_text(encoding="utf-8"))
    (cell,) = [c for c in nb["cells"] if "plots.explorer(" in "".join(c["source"])]
    return cell["outputs"][-1]["data"]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_runs_measures_nothing(number):
    statements, _ = drawings.needed(number)
    for statement in statements:
        for node in ast.walk(statement.node) if statement.node else ():
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func).split(".")[-1] not in CLOCKS


@pytest.mark.parametrize("number", NUMBERS)
def test_controls_stand_where_the_lesson_can_put_them(number):
    given, first = explorers.values(number), explorers.first(number)
    controls = drawings.load(number).controls
    assert explorers.GRID[number].keys() <= controls.keys() == given.keys()
    assert len(explorers.settings(number)) <= 800
    for name, control in controls.items():
        here, possible = given[name], list(drawings.choices(control))
        assert first[name] in here and len(set(here)) == len(here) > 1
        # a field for a number; a logarithmic slider rounds nothing
        if not possible or hasattr(control, "base"):
            before = control.value
            for value in here:
                control.value = value
                assert control.value == pytest.approx(value), name
            control.value = before
        else:
            assert set(here) <= set(possible)
        if "Slider" in type(control).__name__:
            ends = possible[0], possible[-1]
            assert (here[0], here[-1]) == pytest.approx(ends, rel=0.03)
            assert sorted(here) == here


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


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_picture_is_the_one_that_the_lesson_stores(number):
    explorer, first = drawings.load(number), explorers.first(number)
    svg, alt, _, _ = drawings.drawn(number, first)
    # nothing is measured on the machine that builds the site
    assert "this machine" not in svg
    data = stored(number)
    assert alt == "".join(data["text/plain"])
    drawings.provenance.running[:] = [explorer.result]
    fig, _ = explorer.draw(**first)
    ours, theirs = (
        matplotlib.image.imread(io.BytesIO(base64.b64decode(png)))
        for png in (plots._png(fig), "".join(data["image/png"]))
    )
    assert ours.shape == theirs.shape
    assert max(farthest(ours, theirs), farthest(theirs, ours)) < 0.06


def test_a_figure_is_cut_between_its_panels():
    found = drawings.drawn("14", explorers.first("14"))
    assert len(found.cuts) == 2 and 150 < found.cuts[0] < found.cuts[1] - 150
    assert found.head[0] in found.alt and len(found.head) == 2
    assert drawings.drawn("00", explorers.first("00")).cuts == []


@pytest.mark.parametrize("number", ["00", "08", "06"])
def test_page_and_script(number, tmp_path, monkeypatch):
    first = explorers.first(number)
    few = {
        name: sorted({values[0], first[name]})
        for name, values in explorers.values(number).items()
    }
    monkeypatch.setattr(explorers, "GRID", {number: few})
    monkeypatch.setattr(explorers, "CACHE", tmp_path)
    found = drawings.drawings(number, explorers.settings(number))
    path = tmp_path / f"{number}-{explorers.content_hash(number)}"
    explorers.keep(number, path, found)

    explorers.write(tmp_path / "scripts")
    script = (tmp_path / "scripts" / f"{number}.js").read_text()
    text = re.fullmatch(rf'deviceLab.explorer\("{number}", "(.*)"\)\n', script)[1]
    content = json.loads(gzip.decompress(base64.b64decode(text)))
    pictures = ["".join(content["tags"][n] for n in p) for p in content["pictures"]]
    columns = pictures, content["alts"], content["heads"], content["cuts"]
    assert list(zip(*columns, strict=True)) == found

    text = explorers.page(drawings.lesson_path(number).stem, "../")
    svg, alt, _, _ = drawings.drawn(number, first)
    assert drawings.slim(svg) in text and len(text) < 60_000
    # and with that it is XML, if each tag is closed
    closed = re.sub(r"(<input.*?)>", r"\1/>", text)
    page = ElementTree.fromstring(
        re.sub(r" (disabled|checked|selected)(?=[ />])", r" \1=''", closed)
    )
    parts = list(page.find("fieldset[@disabled]").iter())
    fields = [part.get("id") for part in parts if part.tag in ("input", "select")]
    assert fields == [f"explorer-{number}-{name}" for name in few]
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
