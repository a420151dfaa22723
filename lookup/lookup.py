"""Looking up the rows of lesson 16 by message, name, group and verdict."""

import html
import re
import textwrap

from course import cells
from lookup import pasted
from lookup.row import SIGNS, rows

MOST = 10  # rows of a list
ANSWERS = 3  # rows that are answered in full
OTHERS = 3  # rows that are named below them
SHORT = 6  # lines of a replacement that a table shows
NEEDED = {"cuda": "a CUDA GPU", "xla": "torch_xla"}  # as an answer says it
CELL = "padding-right: 1em; line-height: 1.4; text-align: left"
PRE = "margin: 0; white-space: pre-wrap; background: transparent"
seen = {}  # slug → what the old part of its row said when it was run here


def search(text="", group="", verdict=""):
    """Rows that `text` leads to, best first, with this group and verdict ("": any).

    text: a whole message or traceback, a name, a listing: the rows that
        `pasted.like` knows it by; or words: the rows whose name, code, cause or
        message holds them side by side, or else each of them
    """
    known = _known(text)
    return [
        row
        for row in known + [row for row in _holding(text) if row not in known]
        if group in ("", row.group) and verdict in ("", row.here().word)
    ]


def _holding(text):
    """The rows that hold a text's words as a phrase; if there are none, those that hold
    each word; if there are none, those that hold each as a part of a word.
    """
    words = [re.escape(word) for word in text.lower().split()]
    one_by_one = [rf"(?<!\w){word}(?!\w)" for word in words]
    for wanted in ([rf"(?<!\w){' '.join(words)}(?!\w)"], one_by_one, words):
        found = [
            row
            for row in rows().values()
            if all(re.search(one, _whole(row)) for one in wanted)
        ]
        if found:
            return sorted(found, key=lambda row: _distance(row, text.strip()))
    return []


def _distance(row, name):
    """How far a row is from being about a name: 0 where its heading is this name, with
    or without what stands before the dot, 1 where the heading holds it, 2 elsewhere.
    """
    ends = rf"(?i)(^|\.){re.escape(name)}(\(\))?$"
    if re.search(ends, plain(row.heading)):
        return 0
    return 1 if name.lower() in plain(row.heading).lower() else 2


def _whole(row):
    said, name = seen.get(row.slug, ""), row.slug.split("/")[1]
    texts = [name, plain(row.heading), row.old, row.today, row.new, row.why]
    texts += [row.because, said, *row.patterns()]
    return "\n".join(texts).replace("\\", "").lower()


def look_up(text: str) -> None:
    """Print what lesson 16 knows about a text: a message or a whole traceback, a name,
    a listing. Of the best rows what the old line does here, why, the lines of today,
    the lesson that explains it, and where the row stands.
    """
    found = search(text)
    elsewhere = pasted.elsewhere(text)
    if not _known(text):
        if len(found) > MOST:
            print(f"Too short: {len(found)} rows hold it. Give a name or a message.")
            return
        if elsewhere:  # not the rows that happen to hold these words
            found = [row for row in found if _distance(row, text.strip()) < 2]
    # what says at once what to write
    cures = [line for line in elsewhere if not line.startswith("Lesson ")]
    for line in cures:
        print(textwrap.fill(line, 88, subsequent_indent=" " * 8) + "\n")
    for row in found[:ANSWERS]:
        print(textwrap.fill(_headed(row, text), 88, subsequent_indent=" " * 8))
        print(textwrap.fill(f"why     {row.why}", 88, subsequent_indent=" " * 8))
        print(textwrap.indent(row.today, " " * 8).replace(" " * 8, "today   ", 1))
        print(f"more    lesson {row.lesson}; row {row.slug}, section {row.section}\n")
    label = "also    " if found else ""
    for line in [line for line in elsewhere if line not in cures]:
        print(textwrap.fill(f"{label}{line}", 88, subsequent_indent=" " * 8))
    for row in found[ANSWERS : ANSWERS + OTHERS]:
        print(f"also    {plain(row.heading)}: row {row.slug}, section {row.section}")
    if not found and not elsewhere:
        print(_missed(text))


def _missed(text):
    """What is said of a text that is not collected."""
    if len(text.split()) < 2:
        told = "This name is not collected: it may be fine, or old. If its call warns,"
        told += " the last words of the warning usually say what to write."
    else:
        shorter = "its last line, or " if len(text.strip().splitlines()) > 1 else ""
        told = f"Not collected here. Try {shorter}one name from it; the last words of a"
        told += " warning usually say what to write."
    return textwrap.fill(told, 88)


def _known(text):
    # also in one line, as it was before somebody wrapped it
    whole = f"{text}\n{' '.join(text.split())}"
    return pasted.like(rows(), whole, text) if text.strip() else []


def _headed(row, text):
    """The first line of an answer: the verdict, and what the row is about."""
    told = pasted.told_as(row, text)
    word, where = told or row.here().word, ""
    if not told and row.needs and cells.missing(row.needs):
        where = f" with {NEEDED.get(row.needs, row.needs)}"
    return f"{SIGNS.get(word, '?')} {word}{where} · {plain(row.heading)}"


def table(text="", group="", verdict=""):
    """The rows that `search` finds, as (HTML, a sentence in place of it)."""
    if not (text.strip() or group or verdict):
        title = f"{len(rows())} rows: type a message, a name, some words"
        return f"<p>{title}.</p>", f"A field, and below it nothing yet. {title}."
    found = search(text, group, verdict)
    shown = f", the first {MOST} shown" if len(found) > MOST else ""
    title = f"{len(found)} of {len(rows())} rows{shown}"
    names = ", ".join(row.slug for row in found[:MOST]) or "none"
    told = _told(text) or ([] if found or not text else [_missed(text)])
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in told)
    rows_shown = _html(found[:MOST], text) if found else ""
    content = f"<p><b>{title}</b></p>{lines}{rows_shown}"
    return content, f"A table of rows of this lesson. {title}: {names}."


def _told(text):
    return pasted.elsewhere(text) if text else []


def index(*groups: str) -> None:
    """Display the rows of these groups ("memory") as a table: message or name, verdict,
    and what to write today.
    """
    from IPython.display import display

    found = [row for row in rows().values() if row.group in groups]
    lines = [f"{plain(row.heading)} → {row.slug}" for row in found]
    data = {"text/html": _html(found), "text/plain": "\n".join(lines)}
    display(data, raw=True)


def _html(found, text=None):
    """Rows as a table. text: what was looked up, for their sentences, and the verdict
    that it tells.
    """
    lines = []
    for row in found:
        word = (text and pasted.told_as(row, text)) or row.here().word
        why = "" if text is None else f"<br>{html.escape(row.why, False)}"
        new = row.today.splitlines()
        if len(new) > SHORT:
            new = [*new[: SHORT - 1], "…"]
        code = html.escape("\n".join(new))
        cells = [
            ("; white-space: nowrap", f"{SIGNS.get(word, '?')} {word}"),
            ("", f"{_marked(row.heading)}{why}"),
            ("; min-width: 27em", f'<pre style="{PRE}">{code}</pre>'),
            ("", row.slug.replace("/", "/<wbr>")),
        ]
        line = [f'<td style="{CELL}{more}">{shown}</td>' for more, shown in cells]
        lines.append(f'<tr style="vertical-align: top">{"".join(line)}</tr>')
    names = ("verdict", "message or name", "today", "row")
    head = "".join(f'<th style="text-align: left">{name}</th>' for name in names)
    body = "".join(lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def plain(heading):
    """A heading without the marks of Markdown."""
    return heading.replace("`", "")


def _marked(heading):
    """A heading as HTML."""
    return re.sub(r"`+ ?(.+?) ?`+", r"<code>\1</code>", html.escape(heading, False))


def first_line(text, most=300):
    """The first line of a text, at most so many characters of it."""
    first = textwrap.shorten(text.split("\n", 1)[0], most, placeholder=" …")
    return first or "(nothing)"
