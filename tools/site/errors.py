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
CUT = re.compile(r"… \(\d+ more lines\)")
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
    most = max(
        [int(n) for n in re.findall(r"\blines=(\d+)", source)],
        default=1 if exact else 4,
    )
    lines = text.splitlines()
    for n, line in enumerate(lines):
        if not (found := begins.search(line)):
            continue
        kind, prefix = found[found.lastgroup], line[: found.start(found.lastgroup)]
        rest = list(
            itertools.takewhile(
                lambda line: not begins.search(line), lines[n + 1 : n + 1 + most]
            )
        )
        ends = [end for end, line in enumerate(rest, 1) if CUT.fullmatch(line)]
        if "│" in prefix:  # a rank's words go on behind its name
            rest = [
                line.removeprefix(prefix).strip()
                for line in rest
                if line.startswith(prefix)
            ]
        elif not ends:
            rest = rest[: most - 1] if exact and announced else []
        else:
            rest = rest[: ends[0]]
        yield Message(
            kind,
            "\n".join(line.rstrip() for line in [line.removeprefix(prefix), *rest]),
        )


def _of_row(shown):
    """The messages in what the old part of a row of lesson 16 did: what it printed is
    none.
    """
    text = "\n".join(line.removeprefix(" " * 9) for line in shown.split("\n"))
    text = re.split(r"^(?:prints |runs, prints nothing)", text, maxsplit=1, flags=re.M)[
        0
    ]
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
                    places = found.setdefault(
                        first.setdefault(message.words, message), {}
                    )
                    # once, also if shown twice
                    places[_place(lesson, cell, where)] = True
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
    version = re.search(
        r"^torch==([\d.]+)",
        (root / "requirements.txt").read_text(encoding="utf-8"),
        re.M,
    )[1]
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
        for message in sorted(
            (m for m in found if m.kind == kind),
            key=lambda m: (m.title.lower(), m.text),
        ):
            titles.setdefault(message.title, []).append(message)
        for title, messages in titles.items():
            parts.append(f"### {code(title)}\n")
            for message in messages:
                fence = ticks(message.text, 3)
                parts.append(
                    f"{fence}{{code-block}} text\n:class:"
                    f" message\n\n{message.text}\n{fence}\n"
                )
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
