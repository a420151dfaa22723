"""The cheat sheet: the built page, and the page of paper."""

import pytest

from tests.site.built.conftest import SITE
from tests.site.built.test_pages import CHECKS, drawn_on
from tools.lessons.notebooks import lessons
from tools.site import sheet

# A4, landscape, without its margins, in px
PAPER = {"width": 1062, "height": 733}
CUT = """() => [...document.querySelectorAll("*")].filter(each =>
    each.scrollWidth > each.clientWidth + 1 && each.clientWidth
    || each.scrollHeight > each.clientHeight + 1 && each.clientHeight
).map(each => each.outerHTML.slice(0, 80))"""


@pytest.fixture
def paper(browser):
    page = browser.new_page(viewport=PAPER)
    page.add_init_script(path=CHECKS)
    page.goto((SITE / "sheet.html").as_uri())
    page.emulate_media(media="print")
    yield page
    page.close()


def test_each_lesson_is_there_and_linked(paper):
    titles = paper.locator("h3 > a")
    found = titles.evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert found == [f"notebooks/{path.stem}.html" for path in lessons()]
    assert all((SITE / link).exists() for link in found)
    assert all(map(str.strip, paper.locator(".recipe pre").all_inner_texts()))


def test_it_is_one_page_of_paper_and_nothing_is_cut(paper):
    [shows] = drawn_on(paper.pdf(prefer_css_page_size=True))
    assert shows > 300
    assert paper.evaluate(CUT) == []
    assert paper.evaluate("checks.smallText(6.5 / 0.75)") == []
    paper.set_viewport_size({"width": 500, "height": 733})
    assert paper.evaluate(CUT) != []  # what does not fit is seen


def test_what_is_quoted_has_to_stand_in_a_lesson(monkeypatch):
    monkeypatch.setitem(sheet.LINES, "05", ["main.no_such_line"])
    with pytest.raises(sheet.Gone, match="lesson 05"):
        sheet.page()
