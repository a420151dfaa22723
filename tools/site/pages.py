"""Lessons as pages of the website: from a notebook to one that Sphinx renders with
answers and solutions folded.

`page(nb, ...)` is what tools/site/website.py calls; all functions here are pure. Markup
that Markdown lacks goes into raw cells of the format text/html; a `<details>` opens in
one such cell and closes in another.
"""

import ast
import base64
import hashlib
import html
import re
import struct
from xml.etree import ElementTree

from nbformat import from_dict, v4

from course import messages
from tools.lessons.parts import checks, folded
from tools.lessons.questions import find_answers, folded_texts, summary

PICTURES = "_static/pictures"  # where website.py puts them, from the root of the site
# the title of folded code
TITLE = re.compile(r"^# @title (.+)\n?", re.M)
# the title of folded code without one: a row of lesson 16
PARTS = re.compile(r"^%%today (.+?):", re.M)
GAP = re.compile(r"^.*\S {2,}\S.*$", re.M)  # a line of a table, as it is printed
# a line of code that a cell has printed
CODE = re.compile(r"^(?: *(?:def|class) \w+.*:|import \w+)$", re.M)
BADGES = re.compile(r"^\[!\[Open in Colab\].*$", re.M)
ROW = re.compile(r"^### ", re.M)  # a heading below that of a section
# code in a hint; not a backtick that is itself a part of the code
QUOTED = re.compile(r"(?<!\S)`([^`]+)`(?=[\s.,;:)]|$)")
AS_CODE = r'<code class="literal">\1</code>'
MANY = 50  # of them are too many for the contents beside the page


def page(nb, *, links, exercises, explorer, name=None):
    """The lesson as a notebook for the site, and its pictures as {file name: bytes}.

    links: HTML that stands in place of the badges. exercises: as
    course.exercises.lesson_exercises gives them. explorer: HTML that stands in place of
    the explorer's picture, or None. name: of the lesson in menus and links, "05 ·
    Streams", which becomes the title; the notebook's own stands below it.
    """
    pictures, said = {}, said_of_guesses(nb.cells)
    answers, answering = find_answers(nb.cells), folded_texts(nb.cells)
    pieces = []  # (key of the question that it answers, or None; cell)
    for index, cell in enumerate(nb.cells):
        key, is_text = answers.get(index), cell.cell_type == "markdown"
        if cell.id != "title":
            target = raw(f'<span class="cell" id="{cell.id}"></span>')
            pieces.append((key if is_text else None, target))
        if cell.id == "title":
            pieces += _title(cell, links, bool(answers), name)
        elif is_text:
            key, explains, rest = answering.get(index, (None, "", cell.source))
            texts = [(key, explains), (None, rest)]
            pieces += [(key, v4.new_markdown_cell(text)) for key, text in texts if text]
        else:
            pieces += _code(cell, key, explorer, pictures, said)
        for number in checks(cell):
            pieces += [(None, piece) for piece in help_with(exercises[number])]
    metadata = {"language_info": {"name": "lesson"}}
    if sum(len(ROW.findall(cell.source)) for cell in nb.cells) > MANY:
        metadata["tocdepth"] = 2  # the contents beside the page list sections only
    return v4.new_notebook(cells=list(_folded(pieces)), metadata=metadata), pictures


def raw(text):
    """A cell of HTML."""
    return v4.new_raw_cell(text, metadata={"format": "text/html"})


# --------------------------------------------------------------------------------------
# Answers


def _folded(pieces):
    """The cells, one `<details>` around neighbors that answer the same question. What
    stands between them stays open; site.js opens all parts of an answer at once.
    """
    current, begun = None, set()
    for key, cell in [*pieces, (None, None)]:
        if key != current:
            if current is not None:
                yield raw("</details>")
            if key is not None:
                opens = f'<details class="answer" data-key="{html.escape(key)}">'
                yield raw(opens + summary(key, begun))
        current = key
        if cell:
            yield cell


# --------------------------------------------------------------------------------------
# Cells


def _title(cell, links, has_answers, name):
    """The pieces of a lesson's first cell."""
    source = BADGES.sub(lambda _: links, cell.source)
    if name:
        source = re.sub(
            r"\A# (.+)\n", lambda own: f"# {name}\n\n**{own[1]}.**\n", source
        )
    yield None, v4.new_markdown_cell(source)
    if has_answers:
        yield None, raw(SWITCH)


SWITCH = (
    '<p><button type="button" class="show-answers" hidden>Show all answers</button></p>'
)


def _code(cell, key, explorer, pictures, said):
    """The pieces of a code cell: the code, folded where the notebook folds it, and what
    it shows.
    """
    for asked in facts(cell, "asked"):
        if above := above_the_question(cell.source):
            yield None, v4.new_code_cell(above)
        yield None, raw(question(asked, said.get(asked["key"], {})))
        return
    code = v4.new_code_cell(TITLE.sub("", cell.source))
    if folded(cell):
        named = TITLE.search(cell.source) or PARTS.search(cell.source)
        title = html.escape(named[1])
        yield None, raw(f'<details class="code"><summary>{title}</summary>')
        yield None, code
        yield None, raw("</details>")
    else:
        yield None, code
    explores = "plots.explorer(" in cell.source
    if explores and explorer is not None:
        yield None, raw(explorer)
        return
    outputs = [shown(output, pictures) for output in joined(cell.outputs)]
    if explores:
        drawn = any("image/png" in output.get("data", {}) for output in cell.outputs)
        outputs.append(html_output(ITS_FIGURE if drawn else ITS_FIELD))
    for group in in_groups(outputs):
        # MyST-NB skips cells without a source
        columns = ["columns"] if has_columns(group[0]) else []
        tags = {"tags": ["remove-input", *columns]}
        yield key, v4.new_code_cell("...", outputs=group, metadata=tags)


def joined(outputs):
    """Outputs, where what was printed in several pieces is one: a table whose lines
    came one after the other.
    """
    found = []
    for output in outputs:
        last = found[-1] if found else {}
        streams = [each.get("name") for each in (last, output)]
        if streams[0] and streams[0] == streams[1]:
            found[-1] = from_dict({**last, "text": last["text"] + output["text"]})
        else:
            found.append(output)
    return found


def in_groups(outputs):
    """Outputs, in lists: tables apart from the rest, and what was printed below
    something else apart from what was printed above it. MyST-NB joins what one list
    has printed.
    """
    groups = []
    for output in outputs:
        kinds = [each.output_type for each in groups[-1]] if groups else []
        new = not groups or has_columns(groups[-1][0]) != has_columns(output)
        printed = output.output_type == "stream"
        below = printed and "stream" in kinds and kinds[-1] != "stream"
        if new or below:
            groups.append([])
        groups[-1].append(output)
    return groups


ITS_FIGURE = (
    '<p class="note quiet">This figure shows what your machine measures: its sliders'
    " move where you run the lesson (links at the top).</p>"
)
ITS_FIELD = (
    '<p class="note quiet">The field works where you run the lesson (links at the top).'
    ' On this website the <a href="../docs/errors.html">page of errors</a> takes'
    " messages and names.</p>"
)


def has_columns(output):
    """Whether an output's text is a table, two lines or more with gaps between their
    words, or code. Such lines are not wrapped.
    """
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    if "text/html" in output.get("data", {}):
        return False
    return len(GAP.findall(text)) > 1 or CODE.search(text) is not None


def html_output(text):
    return v4.new_output("display_data", {"text/html": text})


def shown(output, pictures):
    """An output for the site: pictures as files, styles of the course's own lines as
    classes.
    """
    data = output.get("data", {})
    if messages.state_of(output) in ("claim", "revealed"):  # a sentence
        return html_output(
            f'<p class="said">{messages.in_html(data["text/plain"])}</p>'
        )
    if "image/svg+xml" in data:
        content, alt = data["image/svg+xml"].encode(), data["text/plain"]
        root = ElementTree.fromstring(content)
        size = root.get("width"), root.get("height")
        return html_output(picture(content, ".svg", size, alt, pictures))
    if "image/png" in data:
        content = base64.b64decode(data["image/png"])
        alt = output.metadata["image/png"]["alt"]
        size = struct.unpack(">II", content[16:24])  # in its first block, IHDR
        return html_output(picture(content, ".png", size, alt, pictures))
    if "text/html" in data:
        return html_output(classes(data["text/html"]))
    return from_dict(output)


def picture(content, suffix, size, alt, pictures):
    """The HTML of a picture, which is added to `pictures`. Loaded when it comes near;
    it keeps its place until then.

    content: its file. suffix: ".svg" or ".png". size: (width, height) in pixels. alt:
    its text alternative. pictures: {file name: content}.
    """
    name = hashlib.sha256(content).hexdigest()[:16] + suffix
    pictures[name] = content
    at = f'src="../{PICTURES}/{name}" alt="{html.escape(alt)}"'
    return f'<img {at} width="{size[0]}" height="{size[1]}" loading="lazy">'


def classes(text):
    """The HTML of course.messages.note with classes in place of styles."""
    text = text.replace(f'style="{messages.LOUD}"', 'class="note"')
    text = text.replace(f'style="{messages.QUIET}"', 'class="note quiet"')
    return text.replace(f'style="{messages.FRAME}"', 'class="badge"')


def facts(cell, name):
    """What the course keeps under this name in a cell's stored outputs."""
    kept = map(messages.facts_of, cell.get("outputs", []))
    return [each[name] for each in kept if name in each]


def said_of_guesses(cells):
    """What is said of each guess, {key of the `predict` cell: {option: sentence}}."""
    revealed = [each for cell in cells for each in facts(cell, "revealed")]
    return {each["key"]: each["said"] for each in revealed}


def above_the_question(source):
    """The code of a `predict` cell that stands above the call, for a reader predicts
    what it does. Without what only names the words of question and options.
    """
    lines, kept = source.splitlines(), []
    for node in ast.parse(source).body:
        if lines[node.lineno - 1].startswith("predict("):
            break
        if not (isinstance(node, ast.Assign) and _is_words(node.value)):
            kept += lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(kept)


def _is_words(node):
    if isinstance(node, ast.Tuple):
        return all(map(_is_words, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def question(asked, said):
    """The question of a `predict` cell, from its data. site.js makes buttons of the
    options. said: what it says of each as soon as the answer is open.
    """
    listed = ""
    for option in asked["options"]:
        about = f' data-said="{html.escape(said[option])}"' if option in said else ""
        listed += f"<li{about}>{html.escape(option)}</li>"
    return (
        f'<div class="predict" data-key="{html.escape(asked["key"])}">'
        f"<p><b>Predict.</b> {messages.in_html(asked['question'])}</p>"
        f"<ul>{listed}</ul></div>"
    )


def help_with(exercise):
    """Cells with the hints and the solution of an exercise, each behind a click."""
    for count, hint in enumerate(exercise.hints, 1):
        summary = f"<summary>Hint {count}</summary>"
        text = f"{summary}<p>{QUOTED.sub(AS_CODE, html.escape(hint))}</p>"
        yield raw(f'<details class="hint">{text}</details>')
    yield raw('<details class="solution"><summary>Solution</summary>')
    yield v4.new_code_cell(exercise.solution.strip())
    yield raw("</details>")
