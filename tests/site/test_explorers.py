"""The explorers of the site: what of a lesson they run, where their controls stand, how
their pictures are packed.
"""

import ast
import base64
import io
import json
import random
import re
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest

from tools.site import drawings, explorers
from utils import plots

NUMBERS = list(explorers.GRID)
# On the page a slider may end before the lesson's does where the rest shows nothing
# new, or too much to carry.
CUT = {("06", "copy"), ("06", "prefetch")}
# Calls that read a clock, or measure.
CLOCKS = {
    "measure",
    "measure_together",
    "Timer",
    "perf_counter",
    "perf_counter_ns",
    "time",
    "timeit",
    "elapsed_time",
}


def plain(part):
    """The text of an element tree, without packing."""
    if isinstance(part, str):
        return part
    return (
        part[0]
        + "".join(map(plain, part[1:]))
        + ("</svg>" if part[0].startswith("<svg") else "</g>")
    )


def cell(number):
    """The cell of a lesson that has its explorer."""
    nb = json.loads(drawings.lesson_path(number).read_text(encoding="utf-8"))
    return next(
        cell for cell in nb["cells"] if "plots.explorer(" in "".join(cell["source"])
    )


@pytest.mark.parametrize("number", NUMBERS)
def test_what_runs_measures_nothing_and_is_known_to_the_cache(number):
    statements, _ = drawings.needed(number)
    called, used = set(), set()
    for statement in statements:
        for node in ast.walk(statement.node) if statement.node else ():
            if isinstance(node, ast.Call) and not isinstance(
                node.func, ast.Call | ast.Subscript
            ):
                called.add(
                    node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                )
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "utils."
            ):
                used.add(node.module.split(".")[1])
    assert not called & CLOCKS
    assert used <= {*explorers.USED, "simulate"}
    read = set.union(*(statement.reads for statement in statements))
    common = {
        "check",
        "claim",
        "doctor",
        "expect_error",
        "hint",
        "pick_device",
        "predict",
        "progress",
        "reveal",
    }
    assert not read & (common | {"solution"}), (
        "the cache does not see changes of this part of utils"
    )


def test_statements_are_found_backwards():
    cells = [
        "import math\nsize = 3\nsizes = [1]\nclock = measure(size)",
        "def area(x):\n    return math.pi * x * scale\n",
        "sizes.append(2)\nsizes[0] = 7\nscale = 2\nprint(sizes)",
        "%%requires cuda --result far\nfar = 1",
        "scale = far\nunused = 5",
        "plots.explorer(area, x=sizes)",
    ]
    lists = [drawings._statements(source) for source in cells]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawings, "explorer_cells", lambda number: cells)
        statements, header = drawings.needed("99")
    assert [len(found) for found in lists] == [4, 1, 4, 1, 2, 1] and header is None
    assert [statement.source for statement in statements] == [
        "import math",
        "sizes = [1]",
        "def area(x):\n    return math.pi * x * scale",
        "sizes.append(2)",
        "sizes[0] = 7",
        cells[3],
        "scale = far",
        cells[5],
    ]


@pytest.mark.parametrize("number", NUMBERS)
def test_controls_stand_where_the_lesson_can_put_them(number):
    given, first = explorers.values(number), explorers.first(number)
    controls = drawings.load(number).controls
    assert explorers.GRID[number].keys() <= controls.keys() == given.keys()
    for name, control in controls.items():
        assert (
            first[name] in given[name] and len(set(given[name])) == len(given[name]) > 1
        )
        possible = list(drawings.choices(control))
        # a field for a number; a logarithmic slider rounds nothing
        free = not possible or hasattr(control, "base")
        if free:
            before = control.value
            for value in given[name]:
                control.value = value
                assert control.value == pytest.approx(value), (
                    f"{name} does not take {value}"
                )
            control.value = before
        else:
            assert set(given[name]) <= set(possible)
        if "Slider" in type(control).__name__ and (number, name) not in CUT:
            ends = given[name][0], given[name][-1]
            assert ends == pytest.approx((possible[0], possible[-1]), rel=0.03)
            assert sorted(given[name]) == given[name]
    assert len(explorers.settings(number)) <= 800


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_picture_is_the_one_that_the_lesson_stores(number):
    explorer = drawings.load(number)
    svg, alt = drawings.drawn(number, explorers.first(number))
    assert "this machine" not in svg, (
        "nothing may be called measured on the machine that builds the site"
    )
    if number in drawings.GIVEN and number != "09":
        # the lesson begins with what it has measured, the page with something else
        return
    data = cell(number)["outputs"][-1]["data"]
    assert alt == "".join(data["text/plain"])
    drawings.provenance.running[:] = [explorer.result]
    fig, _ = explorer.draw(**explorers.first(number))
    ours, stored = (
        matplotlib.image.imread(io.BytesIO(base64.b64decode(png)))
        for png in (plots._png(fig), "".join(data["image/png"]))
    )
    assert ours.shape == stored.shape
    assert np.abs(ours - stored).max() < 0.05


@pytest.mark.parametrize("number", ["00", "05", "14"])
def test_pictures_survive_packing(number):
    some = random.Random(20).sample(explorers.settings(number), 4)
    trees = [drawings.elements(drawings.drawn(number, setting)[0]) for setting in some]
    packed = drawings.pack([*trees, trees[0]])
    assert packed["pictures"][-1] == packed["pictures"][0], (
        "the same picture stands there once"
    )
    assert [drawings.unpack(packed, root) for root in packed["pictures"][:4]] == list(
        map(plain, trees)
    )


def test_each_different_element_stands_once():
    tree = (
        "<svg>",
        "<a/>",
        ("<g>", "<b/>", "<c/>"),
        "<a/>",
        "<d x='-1.5'/>",
        "<d x='2'/>",
        "<e/>",
        "<a/>",
    )
    packed = drawings.pack([tree])
    assert packed["forms"] == ["<a/>", "<b/>", "<c/>", "<d x='¤'/>", "<e/>"]
    assert packed["elements"][-1] == ("<svg>", 0, 3, -3, 4, 1, 1, -6)
    assert drawings.unpack(packed, packed["pictures"][0]) == plain(tree)


def test_numbers_and_paths():
    assert [
        drawings._number(value) for value in (123.456, 9.876, -0.001, 20.0, 1234.04)
    ] == [*("123.5", "9.88", "0", "20", "1234")]
    assert (
        drawings._path("M 1 2 \nL 1 30.26 \nL 40 30.26 \nL 41 32 \nz\n")
        == "M1 2V30.3H40L41 32z"
    )
    assert drawings._path("M 0 1 \nC 1 2 3 4 5 6 \nL 5 8 \n") == "M0 1C1 2 3 4 5 6V8"


@pytest.mark.parametrize("number", ["00", "08", "06"])
def test_page(number, tmp_path, monkeypatch):
    first = explorers.first(number)
    few = {
        name: sorted({values[0], first[name]})
        for name, values in explorers.values(number).items()
    }
    monkeypatch.setitem(explorers.GRID, number, few)
    monkeypatch.setattr(explorers, "CACHE", tmp_path)
    path = tmp_path / f"{number}-{explorers._hash(number)}.js"
    some = explorers.settings(number)
    explorers._write_script(number, path, drawings.drawings(number, some))

    text = explorers.page(drawings.lesson_path(number).stem, "../")
    # and with that it is XML, if each tag is closed
    closed = re.sub(r"(<input.*?)>", r"\1/>", text)
    page = ElementTree.fromstring(
        re.sub(r" (disabled|checked|selected)(?=[ />])", r" \1=''", closed)
    )
    parts = list(page.find("fieldset[@disabled]").iter())
    names = [f"explorer-{number}-{name}" for name in few]
    assert [
        part.get("id") for part in parts if part.tag in ("input", "select")
    ] == names
    assert [part.get("for") for part in parts if part.tag == "label"] == names
    assert (
        page.get("data-script") == f"../_static/explorers/{number}.js"
        and len(text) < 60_000
    )
    svg, alt = drawings.drawn(number, first)
    assert plain(drawings.elements(svg)) in text
    assert page.find(".//*[@role='img']").get("aria-label") == alt


def test_no_lesson_is_left_out_without_a_reason():
    """Of these the figure shows what the reader's own machine has measured; 16 has a
    field for words.
    """
    stems = sorted(
        path.stem for path in (explorers.ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")
    )
    left = [stem for stem in stems if stem[:2] not in NUMBERS]
    assert [stem[:2] for stem in left] == ["01", "02", "03", "15", "16"]
    assert [explorers.page(stem, "../") for stem in left] == [None] * 5
