"""The slides on the projector: each fits, and none gives an answer away. What they load
and say on the console, test_pages.py sees.
"""

import nbformat
import pytest

from tests.site.built.conftest import SITE
from tools.lessons.notebooks import lessons
from tools.site.pages import facts
from tools.site.search import kind_of

LOOK = """() => [...document.querySelectorAll(".slides section:not(.stack)")].map(
    (slide, n) => {
        Reveal.slide(n)
        const seen = [...slide.querySelectorAll("*:not(aside, aside *)")]
        const boxes = seen.map(each => each.getBoundingClientRect())
        const text = seen.filter(each => each.innerText && !each.children.length)
        const size = each => parseFloat(getComputedStyle(each).fontSize)
        const small = each => size(each) < (each.closest("pre") ? 24 : 28)
        return {
            text: seen.map(each => each.innerText ?? "").join("\\n"),
            keys: [...slide.querySelectorAll(".predict")].map(each => each.dataset.key),
            pictures: seen.filter(each => each.alt).map(each => each.alt),
            lines: Math.max(0, ...[...slide.querySelectorAll(".code pre")].map(
                each => each.innerText.trimEnd().split("\\n").length)),
            small: text.filter(small).map(each => each.innerText),
            outside: boxes.some(box => box.width && (
                box.left < 0 || box.right > 1024 || box.top < 0 || box.bottom > 768)),
        }
    })"""


@pytest.fixture(scope="module")
def slides(browser, serve):
    page = browser.new_page(viewport={"width": 1024, "height": 768})
    page.goto(f"{serve(SITE)}slides/")
    page.wait_for_function("Reveal.isReady()")
    yield page.evaluate(LOOK)
    page.close()


def test_each_slide_fits_and_is_legible(slides):
    assert len(slides) > 50 and kind_of("slides/index.html") is None
    for slide in slides:
        assert not slide["outside"] and not slide["small"], slide
        assert slide["lines"] <= 12, slide


def shown_until_revealed(key):
    """Lines, and alternatives of pictures, that a lesson shows between a question and
    the answer.
    """
    (path,) = [path for path in lessons() if path.name.startswith(key[:2])]
    asked, lines = False, set()
    for cell in nbformat.read(path, as_version=4).cells:
        asked |= any(each["key"] == key for each in facts(cell, "asked"))
        if asked and not facts(cell, "asked"):
            for output in cell.get("outputs", []):
                text = output.get("text") or output["data"].get("text/plain", "")
                lines |= {line.strip() for line in text.split("\n")}
        if any(each["key"] == key for each in facts(cell, "revealed")):
            return lines
    raise AssertionError(f"{key} is not answered")


def test_no_answer_before_the_vote_is_over(slides):
    votes = {key: n for n, slide in enumerate(slides) for key in slide["keys"]}
    for key, last in votes.items():
        told = {line for line in shown_until_revealed(key) if len(line) > 7}
        for slide in slides[: last + 1]:
            early = {line for line in told if line in slide["text"]}
            assert not early and not told & {*slide["pictures"]}, key
        if key[:2] != "00":  # lesson 00 is done at home
            assert "The answer: " in slides[last + 1]["text"], key
