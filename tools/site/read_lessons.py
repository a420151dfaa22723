"""What the pages about the course are made from: the lessons with all that is recorded
for them. And Markdown for what they say.
"""

import functools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from course import grammar, recordings, uses
from course.messages import NOT_LIVE, facts_of, state_of
from course.old_code import cell as today
from course.provenance import Provenance
from tools.lessons.parts import HEADING
from tools.lessons.recorder import claims_in
from utils.jobs import COLORS

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Recording:
    """One cell as a machine recorded it. shown: its texts, each with what is kept of it
    as data. claims: what it claimed, as data. changed: what has changed since, the cell
    or what it uses from above, in words.
    """

    origin: Provenance
    shown: list
    claims: list
    changed: str

    @property
    def real(self):
        """Whether a CUDA GPU or a TPU gave it."""
        machine = self.origin.machine
        known = "capability" in machine or machine["device"].startswith("TPU")
        cpu = machine["device"] == machine.get("cpu")  # a compiler's cell, beside a GPU
        return known and not cpu and not self.origin.emulated

    @property
    def told(self):
        """The day and the versions."""
        versions = recordings.built_with(self.origin.machine)
        return ", ".join(filter(None, [self.origin.date, versions])) + self.note

    @property
    def note(self):
        return f" ({self.changed} since)" if self.changed else ""


@dataclass
class Cell:
    """A code cell. section: the heading above it. header: of its options, or None.
    recorded: what machines gave for it, or for its claims, newest first, real ones
    before the emulated.
    """

    id: str
    source: str
    section: str
    outputs: list
    header: grammar.Header | None
    recorded: list[Recording] = field(default_factory=list)

    @property
    def live(self):
        """Whether the stored outputs are its own, not those of a recording."""
        return NOT_LIVE.isdisjoint(map(state_of, self.outputs))

    @property
    def shown(self):
        """What it printed or announced: (text without colors, what is kept of it as
        data) of each output.
        """
        found = []
        for output in self.outputs:
            facts = facts_of(output)
            if "text" in output or "error" in facts:
                text = output.get("text") or output["data"]["text/plain"]
                found.append((COLORS.sub("", "".join(text)), facts))
        return found

    @property
    def claims(self):
        """What it claimed, as data."""
        return claims_in(self.outputs)

    @functools.cached_property
    def row(self):
        """The row of lesson 16 that it is, or None."""
        line, _, body = grammar.body(self.source).partition("\n")
        if not line.startswith("%%today "):
            return None
        return today.parse(line.removeprefix("%%today "), body)


@dataclass
class Lesson:
    """A lesson, with its code cells and all that is recorded for them. sections: id of
    every cell → the heading above it, or its first, without minutes.
    """

    stem: str
    title: str
    cells: list
    sections: dict

    @property
    def number(self):
        return self.stem[:2]

    @property
    def version(self):
        """The PyTorch that gave the stored outputs, as the set-up cell says first."""
        [(text, _)] = self.cells[0].shown
        return re.match(r"Ready: PyTorch ([\d.]+)", text)[1]

    def link(self, id=None):
        """To the lesson, or to the cell with this id."""
        return f"../notebooks/{self.stem}.ipynb" + (f"#{id}" if id else "")

    @property
    def conditional(self):
        """The cells that need hardware, and can be recorded."""
        return [cell for cell in self.cells if cell.header and cell.header.recordable]

    def needs(self, cell):
        """What a cell needs, also by way of the result that it reads; None: nothing."""
        if cell.header is None:
            return None
        if not cell.header.word.startswith("result:"):
            return cell.header.hardware
        result = cell.header.result
        makers = [maker for maker in self.conditional if maker.header.result == result]
        return self.needs(makers[0]) if makers else None


def read_lessons(root=ROOT):
    """All lessons, with their recordings."""
    paths = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    return [_read_lesson(path) for path in paths]


def _read_lesson(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    found, section, sections = [], "", {}
    for cell in content["cells"]:
        source = "".join(cell["source"])
        headings = [section]
        if cell["cell_type"] == "markdown":
            prose = re.sub(r"```.*?```", "", source, flags=re.S)
            headings = [title for _, title, _ in HEADING.findall(prose)]
            section = (headings or [section])[-1]
        sections[cell["id"]] = (headings or [section])[0]
        if cell["cell_type"] == "code":
            header = grammar.header(source)
            found.append(Cell(cell["id"], source, section, cell["outputs"], header))
    title = re.match(r"# ([^:\n]+)", "".join(content["cells"][0]["source"]))[1]
    lesson = Lesson(path.stem, title, found, sections)
    keys = uses.keys(content["cells"])
    for recorded in sorted((path.parent / "recorded").glob(f"*/{path.stem}.json")):
        _read_recording(lesson, recordings.read(recorded), keys)
    for cell in found:
        order = {"key": lambda kept: (not kept.origin.emulated, kept.origin.date)}
        cell.recorded.sort(**order, reverse=True)
    return lesson


def _read_recording(lesson, content, keys):
    """Give what a machine recorded to the cells of a lesson, whose keys these are."""
    stored, judged = content["cells"], content.get("claims", {})
    # also a claim was judged on that machine, that day
    first = next(iter(stored.values()))
    for cell in lesson.cells:
        kept = stored.get(cell.header and cell.header.name) or judged.get(cell.id)
        if not kept:
            continue
        machine, date = (kept.get(key, first[key]) for key in ("machine", "date"))
        outputs = kept.get("outputs", [])
        shown = [(output["text"], output) for output in outputs if "text" in output]
        told = [output["claim"] for output in outputs if "claim" in output]
        origin = Provenance(machine["device"], False, date, machine)
        changed = uses.changed(kept, keys[cell.id])
        told = kept.get("claims", told)
        cell.recorded.append(Recording(origin, shown, told, changed))


# --------------------------------------------------------------------------------------
# Markdown


def md(text):
    """Text as Markdown shows it literally, also in a table."""
    return re.sub(r"([\\`*_{}\[\]<>|$~^#&])", r"\\\1", text)


def code(text):
    """Text as code, whatever quotes of code it contains."""
    return f"{ticks(text)} {text} {ticks(text)}" if "`" in text else f"`{text}`"


def ticks(text, least=1):
    """Quotes of code, more in a row than `text` contains."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def table(head, rows):
    return "".join(
        f"| {' | '.join(map(str, row))} |\n"
        for row in [head, ["---"] * len(head), *rows]
    )
