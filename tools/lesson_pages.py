"""Lessons as pages of the website: from a notebook to one that Sphinx renders with answers and solutions folded.

`page(nb, ...)` is what tools/website.py calls; all functions here are pure. Markup that Markdown lacks goes into raw
cells of the format text/html; a `<details>` opens in one such cell and closes in another.
"""

import base64
import hashlib
import html
import re
import struct
from typing import NamedTuple
from xml.etree import ElementTree

from nbformat import from_dict, v4

from utils import messages

PICTURES = "_static/pictures"  # where website.py puts them, from the root of the site
QUESTION = re.compile(r"^\*\*(?:Predict|Bet)\.\*\*", re.M)
ASKS = re.compile(r'^predict\(\s*"(.+?)"', re.M)
TITLE = re.compile(r"^# @title (.+)\n?", re.M)
NEXT_SUBJECT = re.compile(r"^(?:#{1,6} |\*\*(?:Predict|Bet)\.\*\*|\*\*\d\d\.\d\*\* ★)", re.M)  # ends an explanation
ANNOUNCES = re.compile(r".*:")
BRIDGE = re.compile(r"[\w*`\[(\"“]")  # how a paragraph begins, other than a list, a table, a formula
OPTION = re.compile(r"<b>(.*?)</b>")


class Answer(NamedTuple):
    """What answers a question: key of the `predict` cell, "" for a question in the text."""

    key: str


def page(nb, *, links, exercises, explorer):
    """The lesson as a notebook for the site, and its pictures as {file name: bytes}.

    links: HTML that stands in place of the badges. exercises: as utils.exercises.lesson_exercises gives them. explorer:
    HTML that stands in place of the explorer's picture, or None.
    """
    pictures, made = {}, v4.new_notebook(metadata={"language_info": {"name": "lesson"}})
    answers = find_answers(nb.cells)
    pieces = []  # (Answer or None, cell)
    for index, cell in enumerate(nb.cells):
        answer = answers.get(index)
        is_text = cell.cell_type == "markdown"
        if cell.id != "title":
            pieces.append((answer if is_text else None, raw(f'<span class="cell" id="{cell.id}"></span>')))
        if is_text:
            pieces += _text(cell, answer, links, bool(answers))
        else:
            pieces += _code(cell, answer, explorer, pictures)
        if "exercise" in cell.metadata.get("tags", []):
            for number in re.findall(r'^check\("([\d.]+)"', cell.source, re.M):
                pieces += [(None, piece) for piece in help_with(exercises[number])]
    made.cells = list(_folded(pieces))
    return made, pictures


def raw(text):
    """A cell of HTML."""
    return v4.new_raw_cell(text, metadata={"format": "text/html"})


# ---------------------------------------------------------------------------------------------------------------
# Answers


def find_answers(cells):
    """Which cells answer a question, as {index: Answer}: of a code cell the outputs do, of a text the explanation.

    From a `predict` cell on, these are the code cells up to the one that reveals; from a text that asks, the code cells
    up to the next text. In both cases the text that follows, unless it begins with something new. Where nothing has
    been shown before that text, or it is a paragraph that ends with a colon, the answer to a text goes on below it.
    """
    found = {}
    for index, cell in enumerate(cells):
        if cell.cell_type == "code" and (key := ASKS.search(cell.source)):
            answer, end = Answer(key[1]), _reveals(cells, index, key[1])
        elif cell.cell_type == "markdown" and QUESTION.search(cell.source):
            answer, end = Answer(""), _answered(cells, index)
        else:
            continue
        for between in range(index + 1, end + 1):
            if cells[between].get("outputs") and not ASKS.search(cells[between].source):
                found.setdefault(between, answer)
            elif not answer.key and cells[between].cell_type == "markdown":
                found.setdefault(between, answer)
        after = end + 1
        if index < end and after < len(cells) and cells[after].cell_type == "markdown":
            if explanation(cells[after].source)[0]:
                found.setdefault(after, answer)
    return found


def _reveals(cells, asks, key):
    call = re.compile(rf'\breveal\(\s*"{re.escape(key)}"')
    return next((i for i in range(asks + 1, len(cells)) if call.search(cells[i].source)), asks)


def _answered(cells, asks):
    """The last code cell that answers the question in the text `asks`; `asks` where no code follows."""
    end = asks
    while end + 1 < len(cells):
        following, shown_so_far = cells[end + 1], any(cell.get("outputs") for cell in cells[asks + 1 : end + 1])
        if following.cell_type == "markdown":
            goes_on = not shown_so_far or ANNOUNCES.fullmatch(following.source)
            if end == asks or not goes_on or NEXT_SUBJECT.search(following.source):
                break
        end += 1
    return end


def explanation(text):
    """A text as (what explains, the rest). The rest begins with a heading, a question or an exercise; without these it
    is the last of several paragraphs, which leads to the next cell: a reader needs it with the answer closed."""
    begin = NEXT_SUBJECT.search(text)
    if begin:
        return text[: begin.start()].strip(), text[begin.start() :].strip()
    explains, _, last = text.strip().rpartition("\n\n")
    return (explains, last) if explains and BRIDGE.match(last) and "```" not in text else (text.strip(), "")


def _folded(pieces):
    """The cells, with one `<details>` around neighbors that answer the same question."""
    current = None
    for answer, cell in [*pieces, (None, None)]:
        if answer != current:
            if current:
                yield raw("</details>")
            if answer:
                key = f' data-key="{html.escape(answer.key)}"' if answer.key else ""
                yield raw(f'<details class="answer"{key}><summary>The answer</summary>')
        current = answer
        if cell:
            yield cell


# ---------------------------------------------------------------------------------------------------------------
# Cells


def _text(cell, answer, links, has_answers):
    if cell.id == "title":
        text = re.sub(r"^\[!\[Open in Colab\].*$", lambda _: links, cell.source, flags=re.M)
        yield None, v4.new_markdown_cell(text)
        if has_answers:
            switch = '<button type="button" class="show-answers" aria-pressed="false" hidden>Show all answers</button>'
            yield None, raw(f"<p>{switch}</p>")
        return
    text, rest = explanation(cell.source) if answer else ("", cell.source)
    if text:
        yield answer, v4.new_markdown_cell(text)
    if rest:
        yield None, v4.new_markdown_cell(rest)


def _code(cell, answer, explorer, pictures):
    """The code, folded where the notebook folds it, and what it shows."""
    if key := ASKS.search(cell.source):
        yield None, raw(question(key[1], cell.outputs))
        return
    source = v4.new_code_cell(TITLE.sub("", cell.source))
    if "fold" in cell.metadata.get("tags", []):
        title = TITLE.search(cell.source)
        yield None, raw(f'<details class="code"><summary>{html.escape(title[1]) if title else "Code"}</summary>')
        yield None, source
        yield None, raw("</details>")
    else:
        yield None, source
    explores = "plots.explorer(" in cell.source
    if explores and explorer is not None:
        yield None, raw(explorer)
        return
    outputs = [shown(output, pictures) for output in cell.outputs]
    if explores:
        outputs.append(html_output('<p class="note quiet">Sliders need a running notebook.</p>'))
    if outputs:
        # MyST-NB skips cells without a source
        yield answer, v4.new_code_cell("...", outputs=outputs, metadata={"tags": ["remove-input"]})


def html_output(text):
    return v4.new_output("display_data", {"text/html": text})


def shown(output, pictures):
    """An output for the site: pictures as files, styles of the course's own lines as classes."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        return html_output(picture(data["image/svg+xml"].encode(), ".svg", data["text/plain"], pictures))
    if "image/png" in data:
        alt = output.metadata["image/png"]["alt"]
        return html_output(picture(base64.b64decode(data["image/png"]), ".png", alt, pictures))
    if "text/html" in data:
        return html_output(classes(data["text/html"]))
    return from_dict(output)


def picture(content, suffix, alt, pictures):
    """The HTML of a picture, which is added to `pictures`. Loaded when it comes near; it keeps its place until then."""
    name = hashlib.sha256(content).hexdigest()[:16] + suffix
    pictures[name] = content
    width, height = _svg_size(content) if suffix == ".svg" else struct.unpack(">II", content[16:24])
    size = f'width="{width}" height="{height}"'
    return f'<img src="../{PICTURES}/{name}" alt="{html.escape(alt)}" {size} loading="lazy">'


def _svg_size(content):
    root = ElementTree.fromstring(content)
    return root.get("width"), root.get("height")


def classes(text):
    """The HTML of utils.messages.note with classes in place of styles."""
    for style, name in ((messages.LOUD, "note"), (messages.QUIET, "note quiet"), (messages.FRAME, "badge")):
        text = text.replace(f'style="{style}"', f'class="{name}"')
    return text


def question(key, outputs):
    """The question of a `predict` cell, from its stored output. site.js makes buttons of the options."""
    stored = next(output.data["text/html"] for output in outputs if "text/html" in output.get("data", {}))
    text = stored.partition("</b>")[2].partition("<b>")[0].strip()
    options = "".join(f"<li>{option}</li>" for option in OPTION.findall(stored)[1:])
    return f'<div class="predict" data-key="{html.escape(key)}"><p><b>Predict.</b> {text}</p><ul>{options}</ul></div>'


def help_with(exercise):
    """Cells with the hints and the solution of an exercise, each behind a click."""
    for count, hint in enumerate(exercise.hints, 1):
        yield raw(f'<details class="hint"><summary>Hint {count}</summary><p>{html.escape(hint)}</p></details>')
    yield raw('<details class="solution"><summary>Solution</summary>')
    yield v4.new_code_cell(exercise.solution.strip())
    yield raw("</details>")
