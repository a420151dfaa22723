"""What lesson 16 adds to an answer of torch_messages: the verdict on an old line, and
its row. And the tables of rows.
"""

import html
import re
import textwrap

from course import cells
from course.old_code.row import SIGNS, rows
from torch_messages import lookup, match
from torch_messages.messages import entries

MOST = 10  # rows of a list
SHORT = 6  # lines of a replacement that a table shows
NEEDED = {"cuda": "a CUDA GPU", "xla": "torch_xla"}  # as an answer says it
CELL = "padding-right: 1em; line-height: 1.4; text-align: left"
PRE = "margin: 0; white-space: pre-wrap; background: transparent"
seen = {}  # slug → what the old part of its row said when it was run here


def look_up(text: str) -> None:
    """Print what is known about a text, or that nothing is, and where to ask on.

    text: a message with whatever stands around it (a whole traceback, a warning with
        its path), a name (`xm.mark_step`), a listing, or words
    """
    print(lookup.answer(text, headline, where, texts))


def headline(found):
    """The first line of an answer: what it is about, of a name or a listing with the
    verdict on it.
    """
    row = rows().get(found.entry.id)
    if not row or found.by == "message":
        return lookup.headline(found)
    lacks = row.needs and cells.missing(row.needs)
    needs = f" with {NEEDED.get(row.needs, row.needs)}" if lacks else ""
    word = row.here().word
    return f"{SIGNS.get(word, '?')} {word}{needs} · {plain(row.heading)}"


def where(entry):
    """Where an entry is explained: lesson, row, the first of its sources."""
    row = rows().get(entry.id)
    places = []
    if entry.lesson or row:
        places.append(f"lesson {entry.lesson[:2] or row.lesson}")
    if row:
        places.append(f"row {row.slug} in section {row.section} of lesson 16")
    else:
        places.append(lookup.source(entry))
    return "; ".join(places)


def texts(entry):
    """What words are looked for in: also what its row has, and said here."""
    row = rows().get(entry.id)
    of_row = [row.old, row.heading, seen.get(row.slug, "")] if row else []
    return [*lookup.texts(entry), *of_row]


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
        of_rows = [entry for entry in entries().values() if entry.id in rows()]
        chosen = _chosen(of_rows, group, verdict)
        return _listed(chosen, "row" if len(chosen) == 1 else "rows")
    first, others = match.find(text)
    answers = [found.entry for found in (*first, *others)]
    if not answers:
        mentioned = lookup.mentions(text, texts)
        listed = _chosen(mentioned, group, verdict)
        content, alternative = _listed(listed, "that mention these words")
        missed = lookup.missed(text, match.look(text).unknown)
        return (
            f"<p>{html.escape(missed, False)}</p>{content}",
            f"{missed} {alternative}",
        )
    near = ", not word for word" if first[0].near else ""
    return _listed(_chosen(answers, group, verdict), f"found{near}")


def _chosen(some, group, verdict):
    return [
        entry
        for entry in some
        if group in ("", entry.group) and (not verdict or _word(entry) == verdict)
    ]


def _word(entry):
    """The verdict on an entry's row here, "" where it has none."""
    row = rows().get(entry.id)
    return row.here().word if row else ""


def _listed(some, what):
    shown = f", the first {MOST} shown" if len(some) > MOST else ""
    title = f"{len(some)} {what}{shown}"
    names = ", ".join(entry.id for entry in some[:MOST]) or "none"
    content = f"<p><b>{title}</b></p>{_html(some[:MOST]) if some else ''}"
    return content, f"A table. {title}: {names}."


def index(*groups: str) -> None:
    """Display the rows of these groups ("memory") as a table: message or name, verdict,
    and what to write today.
    """
    from IPython.display import display

    of_groups = [row for row in rows().values() if row.group in groups]
    lines = [f"{plain(row.heading)} → {row.slug}" for row in of_groups]
    table = entries()
    data = {
        "text/html": _html([table[row.slug] for row in of_groups], means=False),
        "text/plain": "\n".join(lines),
    }
    display(data, raw=True)


def _html(some, means=True):
    """Entries as a table. means: with what each means."""
    names = ("verdict", "message or name", "today", "row" if not means else "entry")
    head = "".join(f'<th style="text-align: left">{name}</th>' for name in names)
    body = "".join(_line(entry, means) for entry in some)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _line(entry, means):
    row, word = rows().get(entry.id), _word(entry)
    title = _marked(row.heading) if row else html.escape(entry.title)
    if means:
        title += f"<br>{html.escape(entry.means, False)}"
    code = entry.do.splitlines()
    if len(code) > SHORT:
        code = [*code[: SHORT - 1], "…"]
    # a narrow column: a comment far to the right would wrap
    code = html.escape(re.sub(" {3,}#", "  #", "\n".join(code)))
    columns = [
        ("; white-space: nowrap", f"{SIGNS.get(word, '')} {word}"),
        ("", title),
        ("; min-width: 27em", f'<pre style="{PRE}">{code}</pre>'),
        ("", entry.id.replace("/", "/<wbr>")),
    ]
    shown = [f'<td style="{CELL}{style}">{text}</td>' for style, text in columns]
    return f'<tr style="vertical-align: top">{"".join(shown)}</tr>'


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
