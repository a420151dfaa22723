"""Pages of the website that say what is known, and from where: evidence, status of the
tests, index of errors.

    pages() -> {"docs/evidence.md": …, "docs/status.md": …, "docs/errors.md": …}, called by tools/site/website.py

Nothing on them is typed. Claims and conditional cells are read from the lessons' code;
figures and messages from their stored outputs, from notebooks/recorded/ (`make record`)
and from build/status/ (tests/lessons/plugin.py, `make test`). Links lead to cells:
../notebooks/NN_name.ipynb#CELL-ID.
"""

import ast
import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab import edition
from utils import claims, grammar, recordings
from utils.messages import NOT_LIVE
from utils.today import cell as today

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = {  # of the status page → what makes its files
    "main": "the versions of requirements.txt: `make test`, `make lesson`",
    "XLA": (
        "the oldest PyTorch, with torch_xla on XLA's own CPU device: `make test`, `make"
        " test-tpu`"
    ),
    "Colab-like": (
        "the versions and the front end of Colab's GPU runtime: `make test-colab`"
    ),
    "newest": "the newest PyTorch, as a reader: `make test-next`",
    "emulated Tesla T4": (
        "CUDA's own code on a GPU that does not exist, each cell twice: `make"
        " test-cuda`"
    ),
    "emulated NVIDIA H200": "the same as another GPU: `make test-cuda`",
}


# --------------------------------------------------------------------------------------
# What the pages are made from


@dataclass
class Recording:
    """One cell as a machine recorded it. text: what it printed. changed: whether the
    cell is another one now.
    """

    machine: dict
    date: str
    text: str
    changed: bool

    @property
    def emulated(self):
        return self.machine["device"].startswith(recordings.EMULATED)

    @property
    def real(self):
        """Whether a CUDA GPU or a TPU gave it."""
        return not self.emulated and (
            "capability" in self.machine or "TPU" in self.machine["device"]
        )

    @property
    def told(self):
        """The day and the versions."""
        known = [
            f"{key} {self.machine[key]}"
            for key in recordings.VERSIONS
            if key in self.machine
        ]
        return ", ".join([self.date, *known]) + self.note

    @property
    def note(self):
        return " (the cell has changed since)" if self.changed else ""


@dataclass
class Cell:
    """A code cell. section: the heading above it. header: of its %%requires line, or
    None. recorded: what machines gave for it, or for its claims, newest first, real
    ones before the emulated.
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
        return NOT_LIVE.isdisjoint(
            o.get("metadata", {}).get("device_lab", {}).get("state")
            for o in self.outputs
        )

    @property
    def texts(self):
        """What it printed, output by output, without colors."""
        return [
            re.sub(r"\x1b\[[\d;]*m", "", "".join(o["text"]))
            for o in self.outputs
            if "text" in o
        ]

    @property
    def row(self):
        """The row of lesson 16 that it is, or None."""
        header, _, body = grammar.body(self.source).partition("\n")
        return (
            today.parse(header.removeprefix("%%today "), body)
            if header.startswith("%%today ")
            else None
        )


@dataclass
class Lesson:
    """A lesson, with its code cells and all that is recorded for them."""

    stem: str
    title: str
    edition: str
    cells: list

    def link(self, cell=None):
        return f"../notebooks/{self.stem}.ipynb" + (f"#{cell.id}" if cell else "")

    @property
    def conditional(self):
        """The cells that need hardware, and can be recorded."""
        return [cell for cell in self.cells if cell.header and cell.header.recordable]

    def needs(self, cell):
        """What a cell needs, also by way of the result that it reads; None: nothing."""
        if cell.header is None:
            return None
        word = cell.header.word
        if word.startswith("result:"):
            makers = [
                c for c in self.conditional if c.header.result == cell.header.result
            ]
            return self.needs(makers[0]) if makers else None
        return cell.header.hardware


def read_lessons(root=ROOT):
    """All lessons, with their recordings."""
    return [
        read_lesson(path)
        for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    ]


def read_lesson(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    found, section = [], ""
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            prose = re.sub(r"```.*?```", "", source, flags=re.S)
            section = (re.findall(r"^#+ (.+)$", prose, re.M) or [section])[-1]
        if cell["cell_type"] == "code":
            found.append(
                Cell(
                    cell["id"], source, section, cell["outputs"], grammar.header(source)
                )
            )
    title = re.match(r"# ([^:\n]+)", "".join(content["cells"][0]["source"]))[1]
    lesson = Lesson(path.stem, title, edition(content), found)
    _read_recordings(lesson, path.parent / "recorded")
    return lesson


def _read_recordings(lesson, folder):
    for path in sorted(folder.glob(f"*/{lesson.stem}.json")):
        stored, judged = (
            recordings.load(path),
            json.loads(path.read_text(encoding="utf-8")).get("claims", {}),
        )
        # also a claim was judged on that machine, that day
        first = next(iter(stored.values()))
        for cell in lesson.cells:
            kept = stored.get(cell.header and cell.header.name) or judged.get(cell.id)
            if kept:
                lines = [
                    output["text"].rstrip("\n")
                    for output in kept.get("outputs", [])
                    if "text" in output
                ]
                changed = kept["source"] != grammar.source_hash(cell.source)
                machine, date = (
                    kept.get("machine", first["machine"]),
                    kept.get("date", first["date"]),
                )
                cell.recorded.append(
                    Recording(
                        machine, date, "\n".join(kept.get("lines", lines)), changed
                    )
                )
    for cell in lesson.cells:
        cell.recorded.sort(
            key=lambda recording: (not recording.emulated, recording.date), reverse=True
        )


def read_status(root=ROOT):
    """What the last test runs said: (environment, stem of the lesson) → content of the
    file.
    """
    files = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (root / "build" / "status").glob("*/*.json")
    ]
    return {(kept["environment"], kept["lesson"]): kept for kept in files}


# --------------------------------------------------------------------------------------
# Claims


# What a judged line of a claim says; no value where it is true or false. share: of the
# limit.
FIGURE = re.compile(
    r"(?P<sign>[✓✗]) (?P<text>.*?)"
    r"(?:: (?P<value>[^:]*?) \(claimed (?P<promised>[≥≤].*?)(?:; limit (?P<limit>.*),"
    r" reached (?P<share>\S+))?\)"
    r"| \(claimed\)) · (?P<where>.*)"
)


@dataclass
class Claim:
    """A call of `claim` in a lesson, or of lesson 16 a row that is slower. pattern:
    regular expression of its sentence.

    refused: whether it is false on purpose, in a block that expects the error. figures:
    [(groups of FIGURE by name, where it was measured)], without times of the emulated
    device.
    """

    cell: Cell
    sentence: str
    pattern: str
    promised: str
    timed: bool
    refused: bool = False
    figures: list = field(default_factory=list)

    @property
    def kind(self):
        """What is the best that is known of it: "measured" on a device, "computed",
        "emulated", "refused" or "open".
        """
        if self.refused:
            return "refused"
        kinds = {kind_of(where) for _, where in self.figures}
        return next(
            (kind for kind in ("measured", "computed", "emulated") if kind in kinds),
            "open",
        )


def kind_of(where):
    """What a figure is by what its line says of its origin: measured on a device,
    emulated, or computed by anybody.
    """
    if where.startswith(recordings.EMULATED):
        return "emulated"
    return (
        "measured"
        if re.search(r"this machine|recorded \d|stored here|test run", where)
        else "computed"
    )


def claims_of(lesson):
    """The claims of a lesson, in its order, without figures."""
    found = []
    for cell in lesson.cells:
        _, source = grammar.split(cell.source)
        if cell.row:
            if cell.row.expected[""].word == "slower":
                found.append(_claim_of_row(cell))
        elif "claim(" in source:
            tree = ast.parse(source)
            blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
            blocks = [
                node
                for node in blocks
                if any("expect_error(" in ast.unparse(item) for item in node.items)
            ]
            refused = {call for block in blocks for call in _calls(block)}
            for call in sorted(_calls(tree), key=lambda call: call.lineno):
                found.append(_claim_of_call(cell, call, call in refused))
    return found


def _calls(tree):
    """The calls of `claim` in a piece of code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "claim"
    ]


def _claim_of_row(cell):
    sentence = f"{cell.row.slug}: the old form takes longer"
    promised = f"≥ {cell.row.expected[''].factor} times"
    return Claim(cell, sentence, re.escape(sentence), promised, timed=True)


def _claim_of_call(cell, call, refused):
    text, given = (
        call.args[0],
        {keyword.arg: keyword.value for keyword in call.keywords},
    )
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    sentence, pattern = "", ""
    for part in parts:
        if isinstance(part, ast.Constant):
            sentence, pattern = sentence + part.value, pattern + re.escape(part.value)
        else:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            sentence, pattern = f"{sentence}‹{ast.unparse(value)}›", pattern + ".+"
    unit = f" {_plain(given['unit'])}" if "unit" in given else ""
    bounds = [("≥", "at_least"), ("≤", "at_most"), ("limit", "limit")]
    promised = [
        f"{sign} {_plain(given[name])}{unit}" for sign, name in bounds if name in given
    ]
    if not promised:
        promised = ["bounds that the cell computes"] if None in given else ["true"]
    return Claim(
        cell, sentence, pattern, "; ".join(promised), "timed" in given, refused
    )


def _plain(node):
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return f"‹{ast.unparse(node)}›"
    return value if isinstance(value, str) else f"{value:,g}"


def measured_claims(lesson, status):
    """The claims of a lesson, with every figure that is known. A stored line that no
    claim prints is a ValueError.
    """
    found = claims_of(lesson)
    for id, line, when, note in _judged_lines(lesson, status):
        if not _give(found, id, line, when, note) and when == "stored here":
            raise ValueError(f"{lesson.stem}, cell {id}: no claim prints {line!r}")
    return found


def _judged_lines(lesson, status):
    """What claims of a lesson have printed anywhere: (id of the cell, line, when,
    note).
    """
    for cell in lesson.cells:
        if cell.live:
            for line in claims.LINE.findall("\n".join(cell.texts)):
                yield cell.id, line, "stored here", ""
        for kept in cell.recorded:
            for line in claims.LINE.findall(kept.text):
                yield cell.id, line, f"recorded {kept.date}", kept.note
    for environment in ENVIRONMENTS:
        kept = status.get((environment, lesson.stem))
        if not kept or kept["edition"] != lesson.edition:
            continue
        for id, lines in kept["claims"].items():
            for line in lines:
                # figures of a recording have been read there
                if "recorded" not in line.rpartition(" · ")[2]:
                    yield id, line, f"test run, {environment}, {kept['date']}", ""


def _give(found, id, line, when, note):
    """Give a line to the claim that prints it: one of its cell, or of a function of
    another. Whether there is one.
    """
    judged = FIGURE.fullmatch(line)
    if not judged:
        raise ValueError(f"no line of a claim: {line!r}")
    figure = judged.groupdict("")
    order = sorted(
        found,
        key=lambda claim: (
            claim.cell.id != id,
            claim.pattern.count(".+"),
            -len(claim.pattern),
        ),
    )
    claim = next(
        (claim for claim in order if re.fullmatch(claim.pattern, figure["text"])), None
    )
    if claim is None:
        return False
    where = figure["where"].partition(": numbers and memory real")[0]
    if "this machine" in where:
        where = where.replace("this machine", when)
    elif where.startswith(recordings.EMULATED):
        where = (
            re.sub(r" \(.*?\)", "", where)
            if "recorded" in where
            else f"{where}, {when}"
        )
    if (where + note).startswith(recordings.EMULATED) and claim.timed:
        return True  # a time there is a model
    known = [(other["text"], other["value"], place) for other, place in claim.figures]
    if (figure["text"], figure["value"], where) not in known:
        claim.figures.append((figure, where + note))
    return True


# --------------------------------------------------------------------------------------
# Conditional cells


def shown_for(cell, lesson, published):
    """What a reader without the device sees of a conditional cell: (kind, text). The
    rules are those of `replay`.
    """
    kept = cell.recorded
    real = [
        f"RECORDED on {md(k.machine['device'])}, {k.told}"
        for k in kept
        if not k.emulated
    ]
    emulated = [
        f"EMULATED, {k.told}" for k in kept if k.emulated and cell.header.timeless
    ]
    others = published.get(cell.header.name, [])
    others = [
        f"PUBLISHED by [{md(source['who'])}]({source['link']}), {source['date']}"
        for source in others
    ]
    if real:
        return "recorded", "<br>".join(real + others)
    if emulated:
        return "emulated", emulated[0]
    return ("published", "<br>".join(others)) if others else ("nothing", "nothing yet")


def gpu_sentence(lessons):
    """What the course has from a CUDA GPU or a TPU, in one sentence. README.md says the
    same (a test compares).
    """
    conditional = [cell for lesson in lessons for cell in lesson.conditional]
    found = [
        kept.machine["device"]
        for cell in conditional
        for kept in cell.recorded
        if kept.real
    ]
    if not found:
        return "No result in this course comes from a CUDA GPU or a TPU yet."
    devices = ", ".join(
        f"{count} on {device}" for device, count in sorted(Counter(found).items())
    )
    return f"Recorded on a CUDA GPU or a TPU so far: cells {devices}."


# --------------------------------------------------------------------------------------
# The pages


def pages(root=ROOT):
    """The texts of the three pages by their path."""
    lessons, status = read_lessons(root), read_status(root)
    published = recordings.load_published(
        root / "notebooks" / "recorded" / "published.json"
    )
    return {
        "docs/evidence.md": evidence(lessons, status, published),
        "docs/status.md": status_page(lessons, status),
        "docs/errors.md": errors(lessons, root),
    }


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


def evidence(lessons, status, published):
    """The evidence page."""
    parts, kinds, shown, on = [], Counter(), Counter(), Counter()
    for lesson in lessons:
        found = measured_claims(lesson, status)
        shows = [
            (cell, *shown_for(cell, lesson, published)) for cell in lesson.conditional
        ]
        kinds.update(claim.kind for claim in found)
        shown.update(kind for _, kind, _ in shows)
        for cell in lesson.conditional:
            on.update(
                {kept.machine["device"] for kept in cell.recorded if not kept.emulated}
            )
        parts.append(f"## {lesson.stem[:2]} · {md(lesson.title)}\n")
        if found:
            head = "1 claim" if len(found) == 1 else f"{len(found)} claims"
            parts.append(
                table([head, "figure"], [_claim_row(claim, lesson) for claim in found])
            )
        if shows:
            head = (
                "1 cell that needs hardware"
                if len(shows) == 1
                else f"{len(shows)} cells that need hardware"
            )
            rows = [
                [
                    (
                        f"[{code(cell.header.name)}]({lesson.link(cell)})<br>needs"
                        f" {lesson.needs(cell)}"
                    ),
                    text,
                ]
                for cell, _, text in shows
            ]
            parts.append(table([head, "shown without it"], rows))
        if not found and not shows:
            parts.append("No claim, and no cell that needs hardware.\n")
    devices = (
        "; ".join(f"{device} ({count})" for device, count in on.most_common()) or "none"
    )
    known = [
        (kinds["measured"], "measured on a device that is named"),
        (
            kinds["computed"],
            (
                "computed, simulated, or checked on figures of others: no device of"
                " ours measured"
            ),
        ),
        (
            kinds["emulated"],
            "not about time, seen to hold on the emulated CUDA device only",
        ),
        (kinds["open"], "not measured yet"),
        (kinds["refused"], "false on purpose, to show that it is refused"),
    ]
    seen = [
        (shown["recorded"], f"RECORDED on a device that is named: {devices}"),
        (
            shown["emulated"],
            (
                "EMULATED: PyTorch's own CUDA code on a device without a GPU; only"
                " cells whose point is no time"
            ),
        ),
        (shown["published"], "PUBLISHED by others, and not measured here"),
        (shown["nothing"], "nothing yet"),
    ]
    return "\n".join(
        [
            "# Evidence\n",
            (
                "What the lessons claim, and what has been measured for it. This page"
                " is made from the cells of the lessons, from their stored outputs,"
                " from recordings and from the last test run: no figure is typed.\n"
            ),
            f"**{gpu_sentence(lessons)}**\n",
            table([f"{kinds.total()} claims", "best that is known"], known),
            table(
                [
                    f"{shown.total()} cells that need hardware",
                    "what is shown without it",
                ],
                seen,
            ),
            (
                "A claim has a bound, sometimes also a physical limit, above which a"
                " figure would be a mistake of the measurement. “Stored here” is what"
                " you see in the lesson on this site. In ‹ › stands code: the cell"
                " computes it. What none of our machines can measure is said to be"
                " open. If yours can, [send a"
                " recording](../CONTRIBUTING.md#send-a-recording).\n"
            ),
            *parts,
        ]
    )


def _claim_row(claim, lesson):
    promises = {
        figure["promised"] + (f"; limit {figure['limit']}" if figure["limit"] else "")
        for figure, _ in claim.figures
    }
    texts = {figure["text"] for figure, _ in claim.figures}
    sentence = texts.pop() if len(texts) == 1 else claim.sentence
    promised = promises.pop() if len(promises) == 1 else claim.promised
    lines = []
    if claim.refused:
        lines.append("false on purpose: the lesson shows that it is refused")
    if claim.kind in ("open", "emulated"):
        needs = lesson.needs(claim.cell)
        lines.append(
            f"not measured yet: needs {needs}" if needs else "not measured yet"
        )
    for figure, where in claim.figures:
        value = f"**{md(figure['value'] or 'true')}**" + (
            " ✗ missed" if figure["sign"] == "✗" else ""
        )
        value = f"{md(figure['text'])}: {value}" if texts else value
        value += (
            f" (promised {md(figure['promised'])})"
            if promises and figure["promised"]
            else ""
        )
        value += f", {figure['share']} of the limit" if figure["share"] else ""
        lines.append(f"{value} · {md(where)}")
    promised = (
        f"<br>promised: {md(promised)}" if promised and promised != "true" else ""
    )
    return [
        f"[{md(sentence)}]({lesson.link(claim.cell)}){promised}",
        "<br>".join(lines),
    ]


# --------------------------------------------------------------------------------------
# Status of the tests


def status_page(lessons, status):
    """The status page: lesson × environment, then each environment."""
    rows = []
    for lesson in lessons:
        ran = [
            _verdict(status.get((environment, lesson.stem)), lesson)
            for environment in ENVIRONMENTS
        ]
        rows.append([f"[{lesson.stem[:2]}]({lesson.link()})", *ran])
    parts = [
        "# Status of the tests\n",
        (
            "What the last run of each lesson's cells said, in each environment: `make"
            " test` and its sisters write it, and this page is made from what they left"
            " on the machine that built this site.\n"
        ),
    ]
    if not status:
        parts.append(
            "Nothing has run on this machine: after `make test`, `make site` fills this"
            " table.\n"
        )
    parts += [
        (
            "✓: every cell ran to its end, and every claim that was judged held. ✗:"
            " something failed. –: no run. changed: the lesson has changed since.\n"
        ),
        table(["lesson", *ENVIRONMENTS], rows),
    ]
    for environment in ENVIRONMENTS:
        ran = [(lesson, status.get((environment, lesson.stem))) for lesson in lessons]
        parts += _environment(
            environment, [(lesson, kept) for lesson, kept in ran if kept]
        )
    return "\n".join(parts)


def _verdict(kept, lesson):
    if kept is None:
        return "–"
    sign = "✗" if kept["problems"] else "✓"
    return sign if kept["edition"] == lesson.edition else f"{sign} changed"


def _environment(environment, kept):
    """The section of an environment, if anything ran there. kept: [(Lesson, content of
    its file)].
    """
    if not kept:
        return
    machines = {}
    for lesson, content in kept:
        versions = ", ".join(
            f"{name} {version}" for name, version in content["versions"].items()
        )
        machines.setdefault(
            f"{versions} · {content['system']}, {content['cpu']}", []
        ).append(lesson.stem[:2])
    made = ENVIRONMENTS[environment]
    yield f"## {environment[0].upper()}{environment[1:]}\n"
    yield f"{made[0].upper()}{made[1:]}.\n"
    for machine, numbers in machines.items():
        yield f"- {md(machine)}" + (
            f" (lessons {' '.join(numbers)})" if len(machines) > 1 else ""
        )
    rows = []
    for lesson, content in kept:
        n = content["counts"]
        ran = (
            f"{n.get('done', 0)} of {n['cells']}{', twice' if content['twice'] else ''}"
        )
        live = f"{n.get('done', 0) - n.get('not live', 0)} live"
        judged = f"{n.get('held', 0)} held, {n.get('unjudged', 0)} not judged"
        took = f"{n.get('seconds', 0):.0f} s, {content['kernel_mib']:,} MiB"
        if content["family_mib"] > content["kernel_mib"]:
            took += f", {content['family_mib']:,} with its processes"
        notes = [content["date"]]
        notes += (
            [] if content["strict"] else ["as a reader: a missed claim stops nothing"]
        )
        notes += [] if content["timed"] else ["times not judged"]
        notes += [f"{content['findings']} findings"] if content["findings"] else []
        notes += (
            ["second run, after missed claims about time"]
            if content["attempt"] > 1
            else []
        )
        notes += (
            ["the lesson has changed since"]
            if content["edition"] != lesson.edition
            else []
        )
        notes += [f"✗ {md(problem)}" for problem in content["problems"]]
        rows.append(
            [
                f"[{lesson.stem[:2]}]({lesson.link()})",
                f"{ran}, {live}",
                judged,
                took,
                "; ".join(notes),
            ]
        )
    yield ""
    yield table(["lesson", "cells", "claims", "took", "run"], rows)


# --------------------------------------------------------------------------------------
# Messages

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
                badge = (
                    "EMULATED, no GPU"
                    if kept.emulated
                    else f"RECORDED on {kept.machine['device']}"
                )
                torch = f"PyTorch {kept.machine.get('torch', '').partition('+')[0]}"
                shown.append((kept.text, f"{badge}, {torch}, {kept.date}{kept.note}"))
            for text, where in shown:
                for message in messages_in(text, cell.source):
                    places = found.setdefault(
                        first.setdefault(message.words, message), {}
                    )
                    # once, also if shown twice
                    places[_place(lesson, cell, where)] = True
    return found


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
