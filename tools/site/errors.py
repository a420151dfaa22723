"""The index of errors and warnings: the messages that cells of the lessons show, from
their stored outputs and from recordings.
"""

import itertools
import re
from collections import Counter
from dataclasses import dataclass

from tools.site.course import code, md, ticks

CLASS = r"[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)"
# Where a message begins: with its class, perhaps after words such as "rank 1 │ "; an
# announced one is of any class.
BEGINS = rf"(?:^|[:│…] )(?P<kind>CUDA error|{CLASS}): (?=\S)"
ANNOUNCED = r"^(?P<other>[A-Z][A-Za-z]*[a-z]): (?=\S)"
# the line with which expect_error cuts a long message
CUT = re.compile(r"… \(\d+ more lines\)")
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
        first = re.split(r"[.;!](?= |$)|, (?=but |which |please )", first)[0]
        return first if len(first) <= 72 else first[:72].rpartition(" ")[0] + " …"

    @property
    def words(self):
        """What makes it the same message, wherever its lines break."""
        return " ".join(self.text.split())


def messages_in(text, source):
    """The messages in what a cell printed. source: its code, which says how many lines
    of a message are shown.
    """
    if re.search(r"^%%today\b", source, re.M):
        for shown in ROW.findall(text + "\n"):
            yield from _of_row(shown)
        return
    announced, exact = "expect_error(" in source, "lines=" in source
    begins = re.compile(f"{BEGINS}|{ANNOUNCED}" if announced else BEGINS)
    given = [int(n) for n in re.findall(r"\blines=(\d+)", source)]
    most = max(given, default=1 if exact else 4)
    lines = text.splitlines()
    for n, line in enumerate(lines):
        if not (found := begins.search(line)):
            continue
        kind, prefix = found[found.lastgroup], line[: found.start(found.lastgroup)]
        below = lines[n + 1 : n + 1 + most]
        below = list(itertools.takewhile(lambda line: not begins.search(line), below))
        ends = [end for end, line in enumerate(below, 1) if CUT.fullmatch(line)]
        rest = []
        if "│" in prefix:  # a rank's words go on behind its name
            own = [line for line in below if line.startswith(prefix)]
            rest = [line.removeprefix(prefix).strip() for line in own]
        elif ends:
            rest = below[: ends[0]]
        elif exact and announced:
            rest = below[: most - 1]
        shown = [line.removeprefix(prefix), *rest]
        yield Message(kind, "\n".join(line.rstrip() for line in shown))


def _of_row(shown):
    """The messages in what the old part of a row of lesson 16 did: what it printed is
    none.
    """
    text = "\n".join(line.removeprefix(" " * 9) for line in shown.split("\n"))
    text, *_ = re.split(r"^(?:prints |runs, prints nothing)", text, flags=re.M)
    for message in re.split(rf"^(?={CLASS}: \S)", text, flags=re.M):
        if message:
            yield Message(message.partition(":")[0], message.rstrip("\n"))


def shown_messages(lessons, version):
    """Message → the places that show it, as lines of a list, both in the order of the
    lessons.
    """
    found, first = {}, {}
    for lesson in lessons:
        for cell in lesson.cells:
            shown = [(text, f"PyTorch {version}") for text in cell.texts if cell.live]
            for kept in cell.recorded:
                shown.append((kept.text, _where(kept)))
            for text, where in shown:
                for message in messages_in(text, cell.source):
                    message = first.setdefault(message.words, message)
                    # once, also if shown twice
                    found.setdefault(message, {})[_place(lesson, cell, where)] = True
    return found


def _where(kept):
    """Where a recording is from."""
    badge = f"RECORDED on {kept.origin.device}"
    if kept.origin.emulated:
        badge = "EMULATED, no GPU"
    version = kept.origin.machine.get("torch", "").partition("+")[0]
    return f"{badge}, PyTorch {version}, {kept.origin.date}{kept.note}"


def errors(lessons, root):
    """The index of errors and warnings: by class, then by their words."""
    pins = (root / "requirements.txt").read_text(encoding="utf-8")
    version = re.search(r"^torch==([\d.]+)", pins, re.M)[1]
    found = shown_messages(lessons, version)
    kinds = sorted({message.kind for message in found}, key=str.lower)
    anchor = {kind: f"messages-{kind.lower().replace(' ', '-')}" for kind in kinds}
    count = Counter(message.kind for message in found)
    parts = [
        "# Errors and warnings\n",
        (
            f"{len(found)} messages that cells of the lessons got, word for word, each"
            " with the place that explains it. They stand by the class of the error,"
            " then by their words. Numbers, names and paths in yours will differ: look"
            " for the words between them. [Lesson"
            " 16](../notebooks/16_old_code_today.ipynb) runs code that you paste, and"
            " finds its message.\n"
        ),
        " · ".join(f"[{kind}](#{anchor[kind]}) {count[kind]}" for kind in kinds) + "\n",
    ]
    for kind in kinds:
        parts.append(f"({anchor[kind]})=\n\n## {kind}\n")
        titles = {}
        ours = [message for message in found if message.kind == kind]
        for message in sorted(ours, key=lambda m: (m.title.lower(), m.text)):
            titles.setdefault(message.title, []).append(message)
        for title, messages in titles.items():
            parts.append(f"### {code(title)}\n")
            for message in messages:
                fence = ticks(message.text, 3)
                block = f"{fence}{{code-block}} text\n:class: message\n\n"
                parts.append(f"{block}{message.text}\n{fence}\n")
                parts += [*found[message], ""]
    return "\n".join(parts)


def _place(lesson, cell, where):
    row = cell.row
    label = md(row.slug if row else re.sub("[`*]", "", cell.section))
    because = f": because {md(row.because)}" if row and row.because else ""
    return (
        f"- [Lesson {lesson.stem[:2]} · {label}]({lesson.link(cell)}){because}"
        f" ({md(where)})"
    )
