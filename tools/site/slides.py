"""The slides of docs/slides/, filled from lessons, as HTML by sphinx-revealjs.
python -m tools.site.slides writes dist/slides, and a PDF there.

`<!-- code 02#three-tensors 1-4 -->` names a kind (code, output, question of a `predict`
cell), a lesson, a cell, perhaps lines; what stands behind `>` a lesson says, word for
word. What is no longer there is an error.
"""

import html
import re
import shutil

import nbformat
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from tools.lessons.links import read
from tools.lessons.notebooks import ROOT, lessons
from tools.site import pages, paper

PLACE = re.compile(r"^<!-- (\w+) (\d\d)#([\w-]+)(?: ([\d,-]+))? -->$", re.M)
QUOTE = re.compile(r"^> (?:- )?(.+)$", re.M)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
COLORED = HtmlFormatter(noclasses=True, style="a11y-high-contrast-light")
SETTINGS = {
    "extensions": ["myst_parser", "sphinx_revealjs"],
    "source_suffix": {".md": "markdown"},  # not that of a build before
    "html_favicon": "_static/favicon.svg",
    "smartquotes": False,
    "revealjs_html_theme": "revealjs-simple",
    "revealjs_style_theme": "slides.css",
    "revealjs_static_path": ["_static"],
    "revealjs_script_conf": {
        **{"width": 1024, "height": 768, "margin": 0, "center": False, "hash": True},
        **{"slideNumber": "c/t", "controls": False, "transition": "none"},
    },
    "revealjs_script_plugins": [
        {"src": "revealjs/plugin/notes/notes.js", "name": "RevealNotes"}
    ],
}


def printed(kind, text, which):
    """Code or an output, the lines `which` ("1,3-5") or all, as large as they allow."""
    lines = text.rstrip("\n").split("\n")
    if which:
        ends = [part.split("-") for part in which.split(",")]
        numbers = [range(int(end[0]), int(end[-1]) + 1) for end in ends]
        lines = [lines[number - 1] for each in numbers for number in each]
    size = max(24, min(40, 1700 // max(map(len, lines)), 300 // len(lines)))
    if kind == "code":
        body = highlight("\n".join(lines), PythonLexer(), COLORED)
    else:
        body = "".join(f"<div>{html.escape(line)}\n</div>" for line in lines)
        body = f"<pre>{body}</pre>"
    return f'<div class="{kind}" style="font-size: {size}px">{body}</div>'


def filled(text):
    """The slides, and their pictures as {file name: content}."""
    course = [(path.name[:2], nbformat.read(path, 4)) for path in lessons()]
    cells = {(number, cell.id): cell for number, nb in course for cell in nb.cells}
    said = LINK.sub(r"\1", "\n".join(cell.source for cell in cells.values()))
    pictures = {}
    for quote in QUOTE.findall(text):
        if quote not in said:
            raise ValueError(f"no lesson says: {quote}")

    def shown(output, which):
        output = pages.shown(output, pictures)
        data = output.get("data", {})
        if "text/html" not in data:
            return printed("out", output.get("text") or data["text/plain"], which)
        made = data["text/html"].replace(f"../{pages.PICTURES}", "_static")
        return made.replace(' loading="lazy"', "")

    def content(place):
        kind, number, name, which = place.groups()
        cell = cells[number, name]
        if kind == "code":
            made = [printed(kind, pages.TITLE.sub("", cell.source), which)]
        elif kind == "question":
            made = [pages.question(each, {}) for each in pages.facts(cell, "asked")]
        else:
            made = [shown(each, which) for each in pages.joined(cell.outputs)]
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
    (source / "_static").mkdir(parents=True)
    for file in ("_static/favicon.svg", "slides/slides.css"):
        shutil.copy(ROOT / "docs" / file, source / "_static")
    text, pictures = filled(read(ROOT / "docs" / "slides" / "two-hours.md"))
    (source / "index.md").write_text(text, encoding="utf-8")
    for name, picture in pictures.items():
        (source / "_static" / name).write_bytes(picture)
    how = source, None, made, work / "trees", "revealjs", SETTINGS, None
    with docutils_namespace():
        Sphinx(*how, exception_on_warning=True).build()
    loaded = re.findall(r'(?:src|href)="(_static/[^"?]+)', read(made / "index.html"))
    for name in {"index.html", *loaded}:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(made / name, out / name)


def pdf(path):
    """Write the slides as a PDF."""
    folder = ROOT / "build" / "slides-pdf"
    build(folder)

    def load(page):
        page.goto(f"{folder.as_uri()}/index.html?print-pdf")
        page.wait_for_selector(".pdf-page")

    paper.pdf(path, load)


if __name__ == "__main__":
    build(ROOT / "dist" / "slides")
    pdf(ROOT / "dist" / "slides" / "two-hours.pdf")
