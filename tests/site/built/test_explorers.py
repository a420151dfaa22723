"""The explorers in the built site: what the page shows is what Python draws, at
settings chosen by chance.

The pages are opened as files, without a server: so the explorers work from a folder as
well. Both drawings, the page's and the one that matplotlib writes anew, are read here
as words and numbers; nothing of tools/site/drawings.py that makes them small is used.
"""

import json
import re
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE
from tools.site import drawings, explorers

NEAR = 0.006  # points: coordinates in the page are rounded to a hundredth
NUMBER = re.compile(r"(-?\d[\d.]*(?:e-?\d+)?)")
# Sets a control as a reader's browser does, by its value and the events that follow.
MOVE = """(field, at) => {
    field[field.type === "checkbox" ? "checked" : "value"] = at;
    for (const name of ["input", "change"]) {
        field.dispatchEvent(new Event(name, {bubbles: true}));
    }
}"""


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert problems == []


def address(number):
    return (SITE / "notebooks" / f"{drawings.lesson_path(number).stem}.html").as_uri()


def opened(page, number):
    """The explorer of a lesson in its page, when its controls work."""
    page.goto(address(number))
    box = page.locator(".explorer")
    box.scroll_into_view_if_needed()
    expect(box).to_have_attribute("data-ready", "")
    return box


def kept(number):
    """What was kept when the explorer was drawn (`explorers.keep`): the values of its
    controls, and some drawings by their place among all settings; which is the first.
    """
    path = explorers.drawn([number])[number]
    text = path.with_name(f"{path.name}.json").read_text(encoding="utf-8")
    return json.loads(text)


def move(box, number, values, setting):
    for name, here in values.items():
        box.locator(f"#explorer-{number}-{name}").evaluate(
            MOVE, here.index(setting[name])
        )


def shown(box):
    """(SVG, text alternative) as they stand in the page."""
    picture = box.locator(".explorer-picture")
    svg = picture.locator("svg").evaluate(
        "svg => new XMLSerializer().serializeToString(svg)"
    )
    return svg, picture.get_attribute("aria-label")


# --------------------------------------------------------------------------------------
# What a drawing shows


def marks(svg):
    """All that a drawing shows, in its order, as text: of each element its kind, words
    and attributes, these cut into numbers and what stands between them. Left out are
    the names of groups, and the font of all words.
    """
    svg = re.sub("(?s)<metadata>.*?</metadata>", "", svg)
    root = ElementTree.fromstring(svg)
    found = root.get("viewBox").split()
    for part in root.iter():
        kind = part.tag.rpartition("}")[2]
        if kind in ("svg", "defs", "style"):
            continue
        found += [kind, (part.text or "").strip()]
        for name, value in sorted(part.attrib.items()):
            value = re.sub(r"font-family: 'DejaVu Sans'[^;]*;? ?", "", value)
            if value and (kind, name) != ("g", "id"):
                found += [name, *map(str.strip, NUMBER.split(value))]
    return [text for text in found if text]


def differences(one, other):
    """Where two drawings differ, in words; empty if they show the same."""
    first, second = marks(one), marks(other)
    if len(first) != len(second):
        return [f"{len(first)} words and numbers, {len(second)} words and numbers"]
    pairs = zip(first, second, strict=True)
    return [f"{a} is not {b}" for a, b in pairs if not alike(a, b)]


def alike(a, b):
    if a != b and NUMBER.fullmatch(a) and NUMBER.fullmatch(b):
        return abs(float(a) - float(b)) <= NEAR
    return a == b


# --------------------------------------------------------------------------------------
# The tests


@pytest.mark.parametrize("number", explorers.GRID)
def test_the_page_shows_what_python_draws(number, page):
    box, beside = opened(page, number), kept(number)
    settings = drawings.settings(beside["values"])
    assert len(beside["drawings"]) >= min(20, len(settings))
    for at, (whole, told, _, _) in beside["drawings"].items():
        setting = settings[int(at)]
        move(box, number, beside["values"], setting)
        svg, alt = shown(box)
        says = box.locator(".explorer-says").inner_text()
        assert alt == says == told, setting
        assert differences(whole, svg) == [], setting
    page.set_viewport_size({"width": 390, "height": 900})
    controls = box.locator("fieldset :is(input, select, output)")
    ends = controls.evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
    assert max(ends) <= 390  # no control goes beyond a phone's edge


def test_small_faults_of_a_picture_are_found():
    beside = kept("00")
    drawn = beside["drawings"][str(beside["first"])][0]
    for old, new in {
        "CPU</text>": "GPU</text>",
        "#0072b2": "#0072b3",
        "L 509.76 ": "L 509.56 ",
        "54 43.2": "54 42.9",
    }.items():
        assert old in drawn and differences(drawn, drawn.replace(old, new, 1))


def test_nothing_is_fetched_before_the_reader_comes_near(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address("05"))
    page.wait_for_timeout(500)
    assert page.locator(".explorer select").first.is_disabled()
    assert not [url for url in asked if "explorers/" in url]
    opened(page, "05")
    assert len([url for url in asked if "explorers/05.js" in url]) == 1


def test_without_scripts_the_first_picture_stands_there(browser):
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(address("05"))
        picture = page.locator(".explorer-picture")
        beside = kept("05")
        alt = beside["drawings"][str(beside["first"])][1]
        assert picture.get_attribute("aria-label") == alt
        assert picture.locator("svg").bounding_box()["height"] > 200
        assert page.locator(".explorer select").first.is_disabled()
