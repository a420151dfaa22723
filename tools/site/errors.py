"""The page of errors and warnings: the table of messages, and below each entry the
messages that cells of the lessons show, from their stored outputs and from recordings.
"""

import itertools
import json
import re
from dataclasses import dataclass

from course.old_code.row import Row
from tools.site.read_lessons import Lesson, code, md, ticks
from torch_messages import match
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
    def line(self):
        """As a line of a list."""
        section = re.sub("[`*]", "", self.lesson.sections[self.id])
        label = (
            f"Lesson {self.lesson.number} · {self.row.slug if self.row else section}"
        )
        where = f" ({md(self.where)})" if self.where else ""
        return f"- [{md(label)}]({self.lesson.link(self.id)}){where}"


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


# The groups of the page, by the first word of an entry's id.
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
# The field. What finds an entry is data beside it: id, says, asked, names, cover.
FIELD = """\
```{{raw}} html
<div class="find-message"><label for="message">Your message, as it stands:</label>
<textarea id="message" rows="4" spellcheck="false"></textarea>
<div id="messages-found" aria-live="polite"></div></div>
<script type="application/json" id="messages">{}</script>
<script defer src="../_static/messages.js"></script>
```
"""
WIDEST = 90  # characters of a heading
MOST = 6  # wordings of an entry that the page shows; its field knows all


def page(lessons):
    """The page, as Markdown. lessons: as read_lessons() gives them."""
    known, seen = entries(), set()
    shown = by_entry(lessons)
    parts = [
        # deeper headings would fill the contents beside the page
        "---\ntocdepth: 2\n---\n",
        "# Errors and warnings\n",
        (
            f"{len(known)} messages, names and old lines: what each means today,"
            " what to do, and where it is explained. Paste yours, with whatever stands"
            " around it; numbers, names and paths may differ. It stays in your browser."
            " For a listing there is"
            " [lesson 16](../notebooks/16_old_code_today.ipynb).\n"
        ),
        FIELD.format(data()),
        "## Common ones\n",
        *(f"- [{heading(e)}](#{anchor(e.id)})" for e in known.values() if e.often),
        "",
    ]
    for name, groups in GROUPS.items():
        parts.append(f"## {name}\n")
        found = [entry for entry in known.values() if entry.group in groups]
        for entry in sorted(found, key=lambda entry: heading(entry).lower()):
            parts += _entry(entry, shown.get(entry.id, {}), lessons, seen)
    return "\n".join(parts)


def data():
    """What the field finds the entries by, and the rules, as JSON for a page."""
    known = [[e.id, e.says, e.asked, e.called, e.cover] for e in entries().values()]
    whole = {"rules": RULES, "entries": known}
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", r"\u003c")


def anchor(id):
    """Where an entry stands on the page."""
    return "message-" + re.sub(r"[^a-z0-9]+", "-", id)


def heading(entry):
    """Of an entry, as Markdown."""
    title = " ".join(entry.title.split())
    if len(title) > WIDEST:
        title = title[:WIDEST].rpartition(" ")[0] + " …"
    return code(title) if entry.says else md(title)


def _entry(entry, shown, lessons, seen):
    """An entry's part of the page. seen: anchors of messages so far."""
    yield f"({anchor(entry.id)})=\n\n### {heading(entry)}\n"
    yield f"{md(entry.means)}\n"
    yield _block(entry.do)
    for other, apart in entry.unlike:
        yield f"- Not [{heading(entries()[other])}](#{anchor(other)}): {md(apart)}"
    yield from _further(entry, lessons)
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


def _further(entry, lessons):
    """Where it is explained, and where it is known from, a line each."""
    number, _, id = entry.lesson.partition(" ")
    for lesson in lessons:
        # of a cell that is not there `make lint` says so, in a sentence
        if lesson.number == number and id in lesson.sections:
            yield Place(lesson, id).line
        for cell in lesson.cells:
            if cell.row and cell.row.slug == entry.id:
                yield Place(lesson, cell.id, cell.row).line
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
