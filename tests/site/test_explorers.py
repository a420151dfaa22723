"""The explorers in the built site: what the page shows is what Python draws, at settings chosen by chance.

The pages are opened as files, without a server: so the explorers work from a folder as well. Both drawings, the page's
and the one that matplotlib writes anew, are read here as lists of marks with points, colors and words; nothing of the
packing in tools/frames.py is used for that.
"""

import random
import re
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.test_browser import ARGUMENTS, BROWSER, needs_browser
from tools import explorers, frames

SITE = explorers.ROOT / "dist" / "site"
SEED = random.SystemRandom().randrange(10**6)
NEAR = 0.06  # points: coordinates in the page are rounded to a tenth
TOLD = {"font-family", "font"}  # a style that the page says once, for all text

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    page.close()
    assert page.problems == []


def opened(page, number):
    """The explorer of a lesson in its page, when its controls work."""
    page.goto((SITE / "notebooks" / f"{frames.lesson_path(number).stem}.html").as_uri())
    box = page.locator(f'.explorer[data-explorer="{number}"]')
    box.scroll_into_view_if_needed()
    expect(box).to_have_attribute("data-ready", "")
    return box


def move(box, number, setting):
    """Set each control as a reader's browser does, by its value and the events that follow."""
    for name, values in explorers.values(number).items():
        field, at = box.locator(f"#explorer-{number}-{name}"), values.index(setting[name])
        kind = field.evaluate("field => field.type")
        if kind == "checkbox":
            field.set_checked(setting[name])
        elif kind == "range":
            field.evaluate(
                "(field, at) => { field.value = at; for (const name of ['input', 'change'])"
                " field.dispatchEvent(new Event(name, {bubbles: true})); }",
                at,
            )
        else:
            field.select_option(index=at)


def shown(box):
    """(SVG, text alternative) as they stand in the page."""
    picture = box.locator(".explorer-picture")
    svg = picture.locator("svg").evaluate("svg => new XMLSerializer().serializeToString(svg)")
    return svg, picture.get_attribute("aria-label")


# ---------------------------------------------------------------------------------------------------------------
# What a drawing shows


def marks(svg):
    """All that a drawing shows, in its order: [kind, points, style, words, where it is cut off]."""
    root = ElementTree.fromstring(svg)
    shapes = {part.get("id"): part for part in root.iter() if part.get("id")}
    found = []
    _collect(root, [], shapes, found)
    return found


def _collect(part, transforms, shapes, found):
    kind = part.tag.rpartition("}")[2]
    if kind in ("defs", "metadata", "style"):
        return
    if part.get("transform"):
        moves = [
            move for move in re.findall(r"\w+\([^)]*\)", part.get("transform")) if not move.startswith("rotate(-0 ")
        ]
        transforms = transforms + moves
    numbers = [float(number) for text in transforms for number in re.findall(r"-?[\d.]+", text)]
    words = [re.sub("[^a-z]", "", text) for text in transforms] + [(part.text or "").strip()]
    if kind == "path":
        letters, points = outline(part.get("d"))
        found.append([kind + letters, numbers + points, style(part), words, cut(part, shapes)])
    elif kind == "use":
        link = next(value for name, value in part.attrib.items() if name.endswith("href")).removeprefix("#")
        letters, points = outline(shapes[link].get("d"))
        at = [float(part.get(name, 0)) for name in "xy"]
        found.append(
            [kind + letters, numbers + at + points, style(part) | style(shapes[link]), words, cut(part, shapes)]
        )
    elif kind in ("text", "tspan") and (part.text or "").strip():
        at = [float(part.get(name, 0)) for name in "xy"]
        found.append([kind, numbers + at, style(part), words, cut(part, shapes)])
    elif kind not in ("svg", "g", "text"):
        found.append([kind, sorted(part.attrib.items()), {}, words, None])
    for child in part:
        _collect(child, transforms, shapes, found)


def outline(data):
    """A path as its letters and the points of each, a line along an axis as any other line."""
    letters, points, at = "", [], (0.0, 0.0)
    for letter, text in re.findall(r"([A-Za-z])([^A-Za-z]*)", data):
        numbers = [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", text)]
        assert letter in "MLHVCQz", letter
        if letter in "HV":
            numbers = [numbers[0], at[1]] if letter == "H" else [at[0], numbers[0]]
            letter = "L"
        letters, points, at = letters + letter, points + numbers, tuple(numbers[-2:]) or at
    return letters, points


def style(part):
    pairs = (pair.split(":") for pair in part.get("style", "").split(";") if pair.strip())
    found = {name.strip(): value.strip() for name, value in pairs}
    mono = {"mono": "Mono" in found.get("font-family", "")}
    return {name: value for name, value in found.items() if name not in TOLD} | mono


def cut(part, shapes):
    """The rectangle outside of which a mark is not seen, or None."""
    link = re.fullmatch(r"url\(#(\w+)\)", part.get("clip-path", ""))
    return link and [float(shapes[link[1]][0].get(name, 0)) for name in ("x", "y", "width", "height")]


def differences(one, other):
    """Where two drawings differ, in words; empty if they show the same."""
    first, second = marks(one), marks(other)
    found = [] if len(first) == len(second) else [f"{len(first)} marks, {len(second)} marks"]
    for a, b in zip(first, second, strict=False):
        close = len(a[1]) == len(b[1]) and all(map(_close, a[1], b[1]))
        cut_alike = (a[4] is None) == (b[4] is None) and all(map(_close, a[4] or [], b[4] or []))
        if not (a[0] == b[0] and close and a[2:4] == b[2:4] and cut_alike):
            found.append(f"{a} is not {b}")
    return found


def _close(a, b):
    return a == b if isinstance(a, tuple) else abs(a - b) <= NEAR


# ---------------------------------------------------------------------------------------------------------------
# The tests


@pytest.mark.parametrize("number", explorers.GRID)
def test_the_page_shows_what_python_draws(number, page):
    box, chance = opened(page, number), random.Random(f"{SEED} {number}")
    every = explorers.settings(number)
    print(f"seed {SEED}")
    for setting in [explorers.first(number), *chance.sample(every, 20)]:
        move(box, number, setting)
        svg, alt = shown(box)
        drawn, told = frames.drawn(number, setting)
        assert alt == told, (SEED, setting)
        assert differences(drawn, svg) == [], (SEED, setting)
        assert box.locator(".explorer-says").inner_text() == alt or setting == explorers.first(number)


def test_a_wrong_picture_would_be_found(page):
    """The script of a page, with its pictures moved by one place: the first setting must not pass."""

    def wrong(route):
        text = route.fetch().text() if route.request.url.startswith("http") else _script("00")
        pictures = re.search(r'"pictures":\[(\d+),([\d,]+)\]', text)
        route.fulfill(body=text.replace(pictures[0], f'"pictures":[{pictures[2]},{pictures[1]}]'))

    page.route("**/explorers/00.js", wrong)
    box, setting = opened(page, "00"), explorers.first("00")
    move(box, "00", setting)
    assert differences(frames.drawn("00", setting)[0], shown(box)[0])


def _script(number):
    return (SITE / "_static" / "explorers" / f"{number}.js").read_text(encoding="utf-8")


def test_small_faults_of_a_picture_are_found():
    drawn = frames.drawn("00", explorers.first("00"))[0]
    assert differences(drawn, drawn) == []
    for old, new in [
        ("CPU</text>", "GPU</text>"),
        ("#0072b2", "#0072b3"),
        ("L 509.76 ", "L 509.56 "),
        ("54 43.2", "54 42.9"),
    ]:
        assert old in drawn and differences(drawn, drawn.replace(old, new, 1)), old


@pytest.mark.parametrize("number", ["00", "13"])
def test_by_keyboard_alone(number, page):
    box = opened(page, number)
    before = shown(box)
    for name in explorers.values(number):
        field = box.locator(f"#explorer-{number}-{name}")
        field.focus()
        page.keyboard.press("ArrowLeft" if field.evaluate("field => field.value === field.max") else "ArrowRight")
        page.keyboard.press("Tab")
        assert not field.evaluate("field => field === document.activeElement")
    assert shown(box) != before


def test_nothing_is_fetched_before_the_reader_comes_near(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((SITE / "notebooks" / f"{frames.lesson_path('05').stem}.html").as_uri())
    page.wait_for_timeout(500)
    assert page.locator(".explorer select").is_disabled()
    assert not [url for url in asked if "explorers/" in url]
    opened(page, "05")
    assert len([url for url in asked if "explorers/05.js" in url]) == 1


def test_without_scripts_the_first_picture_stands_there(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((SITE / "notebooks" / f"{frames.lesson_path('05').stem}.html").as_uri())
    picture = page.locator(".explorer-picture")
    assert picture.get_attribute("aria-label") == frames.drawn("05", explorers.first("05"))[1]
    assert picture.locator("svg").bounding_box()["height"] > 200
    assert page.locator(".explorer select").first.is_disabled()
    context.close()


def test_no_lesson_is_left_out_without_a_reason():
    """Of these the figure shows what the reader's own machine has measured; 16 has a field for words."""
    left = {path.stem[:2] for path in (explorers.ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")} - set(explorers.GRID)
    assert left == {"01", "02", "03", "15", "16"}
