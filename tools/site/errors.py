"""The pages of errors and warnings: one with the field, and one for each group of the
table of messages. Below each entry stand the messages that cells of the lessons show,
from their stored outputs and from recordings.
"""

import itertools
import json
import pathlib
import re
import zlib
from dataclasses import asdict, dataclass

from course.old_code.row import Row
from tools.site.read_lessons import Lesson, code, md, ticks
from torch_messages import match, numbers, phrases
from torch_messages import places as pages_of_course
from torch_messages.messages import entries
from torch_messages.rules import RULES
from utils.jobs import COLORS

CLASS = r"[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)"
# where a message begins that a cell prints: with its class, perhaps after words such as
# "rank 1 │ "
BEGINS = re.compile(rf"(?:^|[:│…] )(?P<kind>CUDA error|{CLASS}): (?=\S)")
# what the old part of a row did, or what the reader pasted: a line behind its label,
# and those below it, which are indented by nine
ROW = re.compile(r"^  (?:old   |yours ) ((?:.*\n(?: {9}.*\n)*))", re.M)


@dataclass(frozen=True)
class Message:
    """What a cell showed. kind: class of the error or warning. text: as shown, in
    lines.
    """

    kind: str
    text: str

    @property
    def title(self):
        """The beginning of its text, up to where it goes into detail."""
        first = self.text.split("\n")[0].partition(f"{self.kind}: ")[2]
        first = re.sub(r"^\[[^ ]*/[^ ]*\] ", "", first)  # [/a/file.cc:78]
        first = re.split(r"[.;!](?= |$)|, (?=but |which |please )", first)[0]
        return first if len(first) <= 72 else first[:72].rpartition(" ")[0] + " …"

    @property
    def anchor(self):
        """Where the message stands on the page."""
        return "message-" + re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def words(self):
        """What makes it the same message, wherever its lines break."""
        return " ".join(self.text.split())


def messages_in(shown, source):
    """The messages that a cell showed: those that expect_error has announced, as data;
    what a row of lesson 16 did; else lines that begin as a message does, and of a rank
    those behind its name.

    shown: (text, what is kept of it as data) of each output. source: of the cell
    """
    for text, facts in shown:
        if "error" in facts:
            yield Message(
                facts["error"]["kind"], COLORS.sub("", facts["error"]["text"])
            )
        elif re.search(r"^%%today\b", source, re.M):
            for did in ROW.findall(text + "\n"):
                yield from _of_row(did)
        else:
            yield from _printed(text.splitlines())


def _printed(lines):
    for n, line in enumerate(lines):
        if found := BEGINS.search(line):
            prefix, rest = line[: found.start("kind")], []
            if "│" in prefix:
                below = lines[n + 1 : n + 5]
                below = itertools.takewhile(lambda line: not BEGINS.search(line), below)
                rest = [line for line in below if line.startswith(prefix)]
            told = [each.removeprefix(prefix) for each in (line, *rest)]
            yield Message(found["kind"], "\n".join(map(str.strip, told)))


def _of_row(shown):
    """The messages in what the old part of a row of lesson 16 did: what it printed is
    none.
    """
    text = "\n".join(line.removeprefix(" " * 9) for line in shown.split("\n"))
    text, *_ = re.split(r"^(?:prints |runs, prints nothing)", text, flags=re.M)
    for message in re.split(rf"^(?={CLASS}: \S)", text, flags=re.M):
        if message:
            yield Message(message.partition(":")[0], message.rstrip("\n"))


@dataclass(frozen=True)
class Place:
    """A cell of a lesson, with the row of lesson 16 that it is, or None. where: on what
    it showed a message, "" if it did not.
    """

    lesson: Lesson
    id: str
    row: Row | None = None
    where: str = ""

    @property
    def label(self):
        """What it is called."""
        section = re.sub("[`*]", "", self.lesson.sections[self.id])
        return f"Lesson {self.lesson.number} · {self.row.slug if self.row else section}"

    @property
    def line(self):
        """As a line of a list, on the page of a group."""
        where = f" ({md(self.where)})" if self.where else ""
        return f"- [{md(self.label)}](../{self.lesson.link(self.id)}){where}"


def shown_messages(lessons):
    """Message → the places that show it, both in the order of the lessons."""
    found, first = {}, {}
    for lesson in lessons:
        for cell in lesson.cells:
            every = [(cell.shown, f"PyTorch {lesson.version}")] if cell.live else []
            every += [(kept.shown, _where(kept)) for kept in cell.recorded]
            for shown, where in every:
                for message in messages_in(shown, cell.source):
                    message = first.setdefault(message.words, message)
                    place = Place(lesson, cell.id, cell.row, where)
                    places = found.setdefault(message, [])
                    if place not in places:
                        places.append(place)
    return found


def _where(kept):
    """Where a recording is from."""
    badge = f"RECORDED on {kept.origin.device}"
    if kept.origin.emulated:
        badge = "EMULATED, no GPU"
    version = kept.origin.machine.get("torch", "").partition("+")[0]
    return f"{badge}, PyTorch {version}, {kept.origin.date}{kept.note}"


# The groups of the table, by the first word of an entry's id.
GROUPS = {
    "Which device": ["detection"],
    "Tensors and models on devices": ["movement"],
    "Time and streams": ["streams"],
    "Loading data": ["data"],
    "Memory and gradients": ["memory"],
    "Mixed precision": ["amp"],
    "Profilers, graphs, compilers": ["profiler", "graphs"],
    "Several processes": ["distributed"],
    "TPU": ["tpu"],
    "Notebooks and scripts": ["notebook", "script"],
    "Accelerate, Transformers, Lightning": ["accelerate", "transformers", "lightning"],
}
# name of a group → that of its page, in docs/errors/
PAGES = {name: re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in GROUPS}
# first word of an entry's id → the name of its page
PAGE_OF = {word: PAGES[name] for name, words in GROUPS.items() for word in words}
STATIC = pathlib.Path(__file__).resolve().parents[2] / "docs" / "_static"
SCRIPTS = ["messages.js", "find.js", "find-worker.js", "numbers.js", "places.js"]
FIELD = """\
```{{raw}} html
<div class="find-message"><label for="message">Your message, as it stands:</label>
<textarea id="message" rows="4" spellcheck="false"></textarea>
<div id="messages-found" aria-live="polite"></div></div>
<script defer src="../_static/messages.js?v={}"></script>
```
"""
WIDEST = 90  # characters of a heading
MOST = 6  # wordings of an entry that its page shows; the field knows all


def pages(lessons):
    """The pages, as Markdown by their names. lessons: as read_lessons() gives them."""
    known, seen = entries(), set()
    shown, cells = by_entry(lessons), cells_by_key(lessons)
    found = {"docs/errors.md": _first_page(table(lessons))}
    for name, some in grouped():
        parts = [
            "---\ntocdepth: 1\n---\n",
            f"# Errors · {name}\n",
            (
                f"{len(some)} messages, names and old lines. One that you have got is"
                f" found by [the field](../errors.md), among all {len(known)}.\n"
            ),
        ]
        for entry in some:
            parts += _entry(entry, shown.get(entry.id, {}), cells, seen)
        found[f"docs/errors/{PAGES[name]}.md"] = "\n".join(parts)
    return found


def _first_page(script):
    """The page with the field. script: the table's."""
    known = entries()
    parts = [
        "# Errors and warnings\n",
        (
            f"{len(known)} messages, names and old lines: what each means today,"
            " what to do, and where it is explained. Paste yours, with whatever stands"
            " around it; numbers, names and paths may differ. It stays in your browser."
            " Also a script: its old lines are named, and"
            " [lesson 16](../notebooks/16_old_code_today.ipynb) runs them.\n"
        ),
        FIELD.format(_version(script)),
        "## Common ones\n",
        *(f"- [{heading(e)}]({address(e)})" for e in known.values() if e.often),
        "\n## All, by what they are about\n",
        *(
            f"- [{name}](errors/{PAGES[name]}.md): {len(some)} entries"
            for name, some in grouped()
        ),
        "\n```{toctree}\n:hidden:\n",
        *(f"{name} <errors/{page}>" for name, page in PAGES.items()),
        "```\n",
    ]
    return "\n".join(parts)


def grouped():
    """(group, its entries) in the order of the pages."""
    for name, groups in GROUPS.items():
        some = [entry for entry in entries().values() if entry.group in groups]
        yield name, sorted(some, key=lambda entry: heading(entry).lower())


def table(lessons):
    """The script that has what the field finds entries by, and answers: every field of
    an entry but what only its page says. Addresses are seen from the field's page.
    """
    shown, anchors = by_entry(lessons), {}
    for _, some in grouped():
        for entry in some:
            for message in shown.get(entry.id, {}):
                anchors.setdefault(message.anchor, entry.id)
    rows = [_row(entry) for entry in entries().values()]
    keys = {entry.lesson for entry in entries().values()} | {*entries()}
    whole = {
        "rules": RULES,
        "numbers": numbers.RULES,
        "phrases": phrases.read(),
        "places": pages_of_course.read(),
        "fields": list(rows[0]),
        "rows": [list(row.values()) for row in rows],
        "pages": PAGE_OF,
        "cells": {
            key: [place.label, place.lesson.link(place.id).replace(".ipynb", ".html")]
            for key, place in cells_by_key(lessons).items()
            if key in keys
        },
        "shown": anchors,
    }
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return f"const messageTable = {text};\n"


def _row(entry):
    row = {**asdict(entry), "names": entry.called, "title": title(entry)}
    del row["source"]
    return row


def _version(script):
    """Of the table and the scripts that read it: a browser may have kept old ones."""
    read = "".join((STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS)
    return f"{zlib.crc32((read + script).encode()):08x}"


def anchor(id):
    """Where an entry stands on its page."""
    return "message-" + re.sub(r"[^a-z0-9]+", "-", id)


def address(entry):
    """Of an entry, from another page of docs/."""
    return f"errors/{PAGE_OF[entry.group]}.md#{anchor(entry.id)}"


def title(entry):
    """Of an entry, in one line."""
    whole = " ".join(entry.title.split())
    return whole if len(whole) <= WIDEST else whole[:WIDEST].rpartition(" ")[0] + " …"


def heading(entry):
    """Of an entry, as Markdown."""
    return code(title(entry)) if entry.says else md(title(entry))


def _entry(entry, shown, cells, seen):
    """An entry's part of its page. seen: anchors of messages so far, of all pages."""
    yield f"({anchor(entry.id)})=\n\n## {heading(entry)}\n"
    yield f"{md(entry.means)}\n"
    yield _block(entry.do)
    for id, apart in entry.unlike:
        other = entries()[id]
        there = f"{PAGE_OF[other.group]}.md#{anchor(id)}"
        yield f"- Not [{heading(other)}]({there}): {md(apart)}"
    yield from _further(entry, cells)
    yield ""
    others = entry.says[1:MOST]
    if others:
        yield "Other wordings: " + "; ".join(map(code, others)) + ".\n"
    if shown:
        head = '<details class="shown-by"><summary>As cells got it</summary>'
        yield f"```{{raw}} html\n{head}\n```\n"
        for message, places in shown.items():
            if message.anchor not in seen:  # one a title
                yield f"({message.anchor})=\n"
                seen.add(message.anchor)
            yield _block(message.text)
            yield from (place.line for place in places)
            yield ""
        yield "```{raw} html\n</details>\n```\n"


def _block(text):
    fence = ticks(text, 3)
    return f"{fence}{{code-block}} text\n:class: message\n\n{text}\n{fence}\n"


def cells_by_key(lessons):
    """The cells by what entries call them: "07 remedies", or the entry's own id, of a
    row of lesson 16.
    """
    found = {}
    for lesson in lessons:
        for id in lesson.sections:
            found[f"{lesson.number} {id}"] = Place(lesson, id)
        for cell in lesson.cells:
            if cell.row:
                found[cell.row.slug] = Place(lesson, cell.id, cell.row)
    return found


def _further(entry, cells):
    """Where it is explained, and where it is known from, a line each."""
    # of a cell that is not there `make lint` says so, in a sentence
    keys = (entry.lesson, entry.id)
    yield from (cells[key].line for key in keys if key in cells)
    links = [source for source in entry.source if source.startswith("https://")]
    yield from (f"- <{link}>" for link in links)
    if others := [code(source) for source in entry.source if source not in links]:
        yield "- Known from: " + ", ".join(others)


def by_entry(lessons):
    """id of an entry → the messages that cells show of it, with their places."""
    found = {}
    for message, places in shown_messages(lessons).items():
        if entry := entry_of(message, places):
            found.setdefault(entry.id, {})[message] = places
    return found


def entry_of(message, places=()):
    """The entry of a message that a cell showed: that of its row, if the message leads
    there, too; else the first that it leads to. None if there is none.
    """
    first, others = match.find(message.text)
    led = [found.entry for found in (*first, *others) if not found.near]
    slugs = [place.row.slug for place in places if place.row]
    return (
        next((entry for entry in led if entry.id in slugs), None) or (led or [None])[0]
    )
