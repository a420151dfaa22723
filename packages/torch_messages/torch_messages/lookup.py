"""Looking up by message, name, listing and words, for people."""

import html
import re
import textwrap

from course import cells
from course.old_code.row import SIGNS, rows
from torch_messages import match
from torch_messages.messages import entries

MOST = 10  # rows of a list
ALSO = 3  # entries that are named below the answers
SHORT = 6  # lines of a replacement that a table shows
NEEDED = {"cuda": "a CUDA GPU", "xla": "torch_xla"}  # as an answer says it
CELL = "padding-right: 1em; line-height: 1.4; text-align: left"
PRE = "margin: 0; white-space: pre-wrap; background: transparent"
INDENT = " " * 8
seen = {}  # slug → what the old part of its row said when it was run here


def look_up(text: str) -> None:
    """Print what is known about a text, or that nothing is, and where to ask on.

    text: a message with whatever stands around it (a whole traceback, a warning with
        its path), a name (`xm.mark_step`), a listing, or words
    """
    first, others = match.find(text)
    if not first:
        print(_wrapped("", match.missed(text)))
        for entry in mentions(text)[:ALSO]:
            print(_wrapped("words   ", f"{entry.title}: {entry.id}"))
        return
    if first[0].near:
        print("Not word for word. Most like it:\n")
    for found in first:
        _answer(found, [other.entry for other in first])
    for found in others[:ALSO]:
        entry = found.entry
        print(_wrapped("also    ", f"{entry.title}: {entry.means}"))


def _answer(found, beside):
    entry = found.entry
    print(_wrapped("", _headed(found)))
    print(_wrapped("means   ", entry.means))
    print(textwrap.indent(entry.do, INDENT).replace(INDENT, "do      ", 1))
    for other, apart in entry.unlike:
        if other in [each.id for each in beside]:
            print(_wrapped("not     ", f"{apart}: {other}"))
    print(_wrapped("more    ", where(entry)) + "\n")


def _headed(found):
    """The first line of an answer: what it is about, of a name or a listing with the
    verdict on it.
    """
    row = found.entry.row
    if not row or found.by == "message":
        return found.wording or found.entry.title
    lacks = row.needs and cells.missing(row.needs)
    needs = f" with {NEEDED.get(row.needs, row.needs)}" if lacks else ""
    word = row.here().word
    return f"{SIGNS.get(word, '?')} {word}{needs} · {plain(row.heading)}"


def where(entry):
    """Where an entry is explained: lesson, row, the first of its sources."""
    row, told = entry.row, []
    if entry.lesson or row:
        told.append(f"lesson {entry.lesson[:2] or row.lesson}")
    if row:
        told.append(f"row {row.slug} in section {row.section} of lesson 16")
    elif entry.source:
        source = entry.source[0]
        told.append(source if source.startswith("http") else f"seen in {source}")
    return "; ".join(told)


def _wrapped(label, text):
    return textwrap.fill(
        f"{label}{text}", 88, subsequent_indent=INDENT, break_long_words=False
    )


# --------------------------------------------------------------------------------------
# The field, and the tables of rows


def table(text="", group="", verdict=""):
    """What a text leads to, or the rows of a group and a verdict, as (HTML, a sentence
    in place of it).
    """
    if not (text.strip() or group or verdict):
        title = f"{len(entries())} messages and old lines: paste yours"
        return f"<p>{title}.</p>", f"A field, and below it nothing yet. {title}."
    if not text.strip():
        found = [entry for entry in entries().values() if entry.row]
        return _listed(_chosen(found, group, verdict), "rows")
    first, others = match.find(text)
    answers = [found.entry for found in (*first, *others)]
    if not answers:
        listed = _chosen(mentions(text), group, verdict)
        content, told = _listed(listed, "that mention these words")
        missed = match.missed(text)
        return f"<p>{html.escape(missed, False)}</p>{content}", f"{missed} {told}"
    near = ", not word for word" if first[0].near else ""
    return _listed(_chosen(answers, group, verdict), f"found{near}")


def mentions(text):
    """The entries that hold each word of a text, those first whose title does."""
    asked = text.lower().split()
    found = [
        entry
        for entry in entries().values()
        if asked and all(word in _whole(entry) for word in asked)
    ]
    return sorted(found, key=lambda entry: asked[0] not in entry.title.lower())


def _whole(entry):
    row = entry.row
    texts = [entry.id, entry.means, entry.do, *entry.says, *entry.asked, *entry.names]
    texts += [row.old, row.heading, seen.get(row.slug, "")] if row else []
    return "\n".join(texts).lower()


def _chosen(found, group, verdict):
    return [
        entry
        for entry in found
        if group in ("", entry.group)
        and (not verdict or entry.row and entry.row.here().word == verdict)
    ]


def _listed(found, what):
    shown = f", the first {MOST} shown" if len(found) > MOST else ""
    title = f"{len(found)} {what}{shown}"
    names = ", ".join(entry.id for entry in found[:MOST]) or "none"
    content = f"<p><b>{title}</b></p>{_html(found[:MOST]) if found else ''}"
    return content, f"A table. {title}: {names}."


def index(*groups: str) -> None:
    """Display the rows of these groups ("memory") as a table: message or name, verdict,
    and what to write today.
    """
    from IPython.display import display

    found = [entries()[slug] for slug, row in rows().items() if row.group in groups]
    lines = [f"{plain(entry.row.heading)} → {entry.id}" for entry in found]
    data = {
        "text/html": _html(found, means=False),
        "text/plain": "\n".join(lines),
    }
    display(data, raw=True)


def _html(found, means=True):
    """Entries as a table. means: with what each means."""
    lines = []
    for entry in found:
        word = entry.row.here().word if entry.row else ""
        title = _marked(entry.row.heading) if entry.row else html.escape(entry.title)
        means_ = f"<br>{html.escape(entry.means, False)}" if means else ""
        new = entry.do.splitlines()
        if len(new) > SHORT:
            new = [*new[: SHORT - 1], "…"]
        code = html.escape("\n".join(new))
        cells_ = [
            ("; white-space: nowrap", f"{SIGNS.get(word, '')} {word}"),
            ("", f"{title}{means_}"),
            ("; min-width: 27em", f'<pre style="{PRE}">{code}</pre>'),
            ("", entry.id.replace("/", "/<wbr>")),
        ]
        line = [f'<td style="{CELL}{more}">{shown}</td>' for more, shown in cells_]
        lines.append(f'<tr style="vertical-align: top">{"".join(line)}</tr>')
    names = ("verdict", "message or name", "today", "row" if not means else "entry")
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
