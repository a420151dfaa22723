"""The pages of single figures, in an <iframe> on a site that is not ours."""

import html
import re

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE
from tests.site.built.test_explorers import MOVE
from tests.site.built.test_pages import noted
from tools.lessons.notebooks import address
from tools.site import drawings, explorers

FOREIGN = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Foreign</title>
<link rel="icon" href="data:,">
<body style="font-family: serif; background: #fdf6e3"><h1>My course</h1>{}</html>"""
BELOW = "() => document.documentElement.scrollHeight - innerHeight"


@pytest.fixture(scope="module")
def home(serve):
    return serve(SITE)


def line_in(number):
    """The line that the page of the lesson gives to copy."""
    stem = drawings.lesson_path(number).stem
    page = (SITE / "notebooks" / f"{stem}.html").read_text(encoding="utf-8")
    [line] = re.findall(r"<pre>(&lt;iframe .*?)</pre>", page)
    return html.unescape(line)


@pytest.mark.parametrize("number", explorers.GRID)
def test_a_figure_on_a_foreign_page(number, browser, serve, home, tmp_path):
    file = SITE / "embed" / f"{number}.html"
    assert file.stat().st_size <= 100_000
    line = line_in(number).replace(f"{address('Site')}/", home)
    (tmp_path / "index.html").write_text(FOREIGN.format(line), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    away = serve(tmp_path)
    found = noted(page, "http://127.0.0.1:")
    asked = []
    page.on("request", lambda each: asked.append(each.url.startswith(home)))
    page.goto(away)
    box = page.frame_locator("iframe").locator(".explorer")
    expect(box).to_have_attribute("data-ready", "")
    picture = box.locator(".explorer-picture")
    assert picture.locator("svg").bounding_box()["height"] > 150
    assert box.evaluate(BELOW) <= 0, "the frame is high enough"
    before = picture.inner_html()
    for control in box.locator("input, select").all():
        values = (
            [True, False] if control.get_attribute("type") == "checkbox" else [0, 1]
        )
        for value in values:
            control.evaluate(MOVE, value)
    assert picture.inner_html() != before
    assert asked.count(True) == 1, "the page, and nothing else"
    assert found == []
    page.close()
