"""The slides of docs/slides/, with what lessons ask, show and say in their places, as
HTML by sphinx-revealjs. python -m tools.site.slides writes dist/slides, with a PDF.

A place: `<!-- code 02#three-tensors 1-4 -->`, of a kind, a lesson, a cell, perhaps some
of its lines. Kinds: code; output; question, of a `predict` cell. What stands behind `>`
a lesson says, word for word. What is no longer there is an error.
"""

import functools
import html
import pathlib
import re
import shutil
import textwrap

import nbformat
from playwright.sync_api import sync_playwright
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx

from tools.lessons.links import read
from tools.lessons.notebooks import lessons
from tools.site import pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLIDES = ROOT / "docs" / "slides"
PLACE = re.compile(r"^<!-- (\w+) (\d\d)#([\w-]+)(?: ([\d,-]+))? -->$", re.M)
QUOTE = re.compile(r"^> (?:- )?(.+)$", re.M)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
COLORED = HtmlFormatter(noclasses=True, style="a11y-high-contrast-light")
SETTINGS = {
    "extensions": ["myst_parser", "sphinx_revealjs"],
    "html_favicon": "favicon.svg",
    "language": "en",
    "smartquotes": False,
    "revealjs_html_theme": "revealjs-simple",
    "revealjs_style_theme": "slides.css",
    "revealjs_static_path": ["_static"],
    "revealjs_script_conf": "{width: 1024, height: 768, margin: 0, center: false,"
    " hash: true, slideNumber: 'c/t', controls: false, transition: 'none'}",
    "revealjs_script_plugins": [
        {"src": "revealjs/plugin/notes/notes.js", "name": "RevealNotes"}
    ],
}


@functools.cache
def cells():
    """The cells of all lessons, {("02", id): cell}."""
    read_all = ((path.name[:2], nbformat.read(path, 4)) for path in lessons())
    return {(number, cell.id): cell for number, nb in read_all for cell in nb.cells}


def some(text, which):
    """The lines `which`, such as "1,3-5", of a text."""
    lines = text.rstrip("\n").split("\n")
    kept = [] if which else lines
    for part in which.split(",") if which else []:
        first, _, last = part.partition("-")
        kept += lines[int(first) - 1 : int(last or first)]
    return textwrap.dedent("\n".join(kept))


def printed(kind, text, which):
    """Code or an output, as large as its lines allow."""
    text = some(text, which)
    lines = text.split("\n")
    size = max(24, min(40, 1580 // max(map(len, lines)), 340 // len(lines)))
    body = f"<pre>{html.escape(text)}</pre>"
    if kind == "code":
        body = highlight(text, PythonLexer(), COLORED)
    return f'<div class="{kind}" style="font-size: {size}px">{body}</div>'


def shown(output, which, pictures):
    output = pages.shown(output, pictures)
    data = output.get("data", {})
    if "text/html" not in data:
        return printed("out", output.get("text") or data["text/plain"], which)
    made = data["text/html"].replace(f"../{pages.PICTURES}", "_static")
    return made.replace(' loading="lazy"', "")


def filled(text):
    """The slides, and their pictures as {file name: content}."""
    pictures = {}
    said = LINK.sub(r"\1", "\n".join(cell.source for cell in cells().values()))
    for quote in QUOTE.findall(text):
        if quote not in said:
            raise ValueError(f"no lesson says: {quote}")

    def content(place):
        kind, number, name, which = place.groups()
        cell = cells()[number, name]
        if kind == "code":
            made = [printed(kind, pages.TITLE.sub("", cell.source), which)]
        elif kind == "question":
            made = [pages.question(each, {}) for each in pages.facts(cell, "asked")]
        else:
            outputs = pages.joined(cell.outputs)
            made = [shown(each, which, pictures) for each in outputs]
        if not made:
            raise ValueError(f"{place[0]}: nothing to show")
        return "\n".join(["```{raw} html", *made, "```"])

    return PLACE.sub(content, text), pictures


def build(out):
    """Write the slides to the folder `out`, with no file that they do not load."""
    work = ROOT / "build" / "slides"
    for old in (work, out):
        shutil.rmtree(old, ignore_errors=True)
    source, made = work / "source", work / "html"
    static = source / "_static"
    static.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "_static" / "favicon.svg", source)
    shutil.copy(SLIDES / "slides.css", static)
    text, pictures = filled(read(SLIDES / "two-hours.md"))
    (source / "index.md").write_text(text, encoding="utf-8")
    for name, picture in pictures.items():
        (static / name).write_bytes(picture)
    folders = source, None, made, work / "trees"
    Sphinx(*folders, "revealjs", SETTINGS, status=None, warningiserror=True).build()
    loaded = re.findall(r'(?:src|href)="(_static/[^"?]+)', read(made / "index.html"))
    for name in {"index.html", *loaded}:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / name, out / name)


def paper(out):
    """Write a PDF of the slides in the folder `out`."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch
        page = launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        page.goto(f"{(out / 'index.html').as_uri()}?print-pdf")
        page.wait_for_selector(".pdf-page")
        page.pdf(path=out / "two-hours.pdf", prefer_css_page_size=True)


if __name__ == "__main__":
    build(ROOT / "dist" / "slides")
    paper(ROOT / "dist" / "slides")
