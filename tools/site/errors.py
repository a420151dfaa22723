"""The index of errors and warnings: the messages that cells of the lessons show, from
their stored outputs and from recordings.
"""

import itertools
import re
from dataclasses import dataclass

from lookup.row import Row
from tools.site.cures import Cure, cure_of
from tools.site.messages import field
from tools.site.read_lessons import Lesson, code, md, ticks
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


def shown_messages(lessons, version):
    """Message → the places that show it, both in the order of the lessons."""
    found, first = {}, {}
    for lesson in lessons:
        for cell in lesson.cells:
            every = [(cell.shown, f"PyTorch {version}")] if cell.live else []
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


# The groups of the page, by the number of a lesson or the first word of a row's name.
GROUPS = {
    "Which device": ["01", "detection"],
    "Tensors and models on devices": ["02", "03", "movement"],
    "Time and streams": ["04", "05", "streams"],
    "Loading data": ["06", "data"],
    "Memory and gradients": ["07", "memory"],
    "Mixed precision": ["08", "amp"],
    "Profilers, graphs, compilers": ["09", "10", "graphs"],
    "Several processes": ["11", "12", "distributed"],
    "TPU": ["13", "14", "tpu"],
    "Scripts": ["00", "15", "16"],
}


def page(grouped, lessons):
    """The index of errors and warnings: by subject, then by their words. grouped: as
    `entries` gives it.
    """
    count = sum(len(entry.messages) for group in grouped.values() for entry in group)
    often = [
        f"- [{code(entry.title)}](#{entry.anchor})"
        for group in grouped.values()
        for entry in group
        if entry.cure and entry.cure.often
    ]
    parts = [
        # deeper headings would fill the contents beside the page
        "---\ntocdepth: 2\n---\n",
        "# Errors and warnings\n",
        (
            f"{count} messages that cells of the lessons got, word for word, most with"
            " cause and cure, each with the place that explains it. Numbers, names and"
            " paths in yours will differ. [Lesson"
            " 16](../notebooks/16_old_code_today.ipynb) runs code that you paste, and"
            " finds its message.\n"
        ),
        field(grouped, lessons),
        "## Common ones\n",
        *often,
        "",
    ]
    for name, group in grouped.items():
        parts.append(f"## {name}\n")
        for entry in group:
            parts.append(entry.markdown())
    return "\n".join(parts)


@dataclass(frozen=True)
class Entry:
    """Messages with one title, and the places that show each."""

    title: str
    messages: dict[Message, list[Place]]
    cure: Cure | None
    mends: Place | None  # where, if a Cure says so

    @property
    def anchor(self):
        return "message-" + re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def places(self):
        """All of them, the one that mends it first."""
        found = [place for places in self.messages.values() for place in places]
        return [self.mends, *found] if self.mends else found

    @property
    def group(self):
        place = self.places[0]
        key = place.row.group if place.row else place.lesson.number
        return next(name for name, keys in GROUPS.items() if key in keys)

    def markdown(self):
        parts = [f"({self.anchor})=\n\n### {code(self.title)}\n", self._cause()]
        if self.mends:
            parts.append(f"{self.mends.line}\n")
        for message, places in self.messages.items():
            fence = ticks(message.text, 3)
            block = f"{fence}{{code-block}} text\n:class: message\n\n"
            parts.append(f"{block}{message.text}\n{fence}\n")
            parts += [*(place.line for place in places), ""]
        return "\n".join(parts)

    @property
    def answer(self):
        """Why, and what to write instead, in Markdown and in code: of a Cure, or of the
        first row.
        """
        rows = [place.row for place in self.places if place.row]
        return (
            (self.cure.text, "") if self.cure else of_row(rows[0]) if rows else ("", "")
        )

    def _cause(self):
        cause, instead = self.answer
        if not instead or instead.count("\n") >= SHORT:
            return f"{cause}\n"
        fence = ticks(instead, 3)
        return f"{cause} Today:\n\n{fence}python\n{instead}\n{fence}\n"


def of_row(row):
    """Why a message comes, in Markdown, and what is written today, of a row."""
    if not row.because:
        return "", ""
    first, _, rest = row.because.partition(" ")
    if not re.search(r"[._(]", first):  # a name stays as it is
        first = first[0].upper() + first[1:]
    return md(f"{first} {rest}."), row.today.strip()


SHORT = 6  # lines of a replacement that the page shows


def entries(lessons, root):
    """The entries of the page by their group, each in the order of their titles."""
    pins = (root / "requirements.txt").read_text(encoding="utf-8")
    version = re.search(r"^torch==([\d.]+)", pins, re.M)[1]
    titles = {}
    for message, places in shown_messages(lessons, version).items():
        titles.setdefault(message.title, {})[message] = places
    grouped = {name: [] for name in GROUPS}
    for title, messages in sorted(titles.items(), key=lambda pair: pair[0].lower()):
        cure = next(filter(None, (cure_of(message.text) for message in messages)), None)
        entry = Entry(title, messages, cure, cure and _place_of(cure, lessons))
        grouped[entry.group].append(entry)
    return {name: group for name, group in grouped.items() if group}


def _place_of(cure, lessons):
    number, id = cure.place
    return next(Place(each, id) for each in lessons if each.number == number)
