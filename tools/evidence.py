"""Pages of the website that say what is known, and from where: evidence, status of the tests, index of errors.

    pages() -> {"docs/evidence.md": …, "docs/status.md": …, "docs/errors.md": …}, called by tools/website.py

Nothing on them is typed. Claims and conditional cells are read from the lessons' code; figures and messages from their
stored outputs, from notebooks/recorded/ (`make record`) and from build/status/ (tests/lessons_plugin.py, `make test`).
Links lead to cells: ../notebooks/NN_name.ipynb#CELL-ID.
"""

import ast
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tools.lab import edition
from utils import cells, claims, recordings, today
from utils.messages import NOT_LIVE

ROOT = Path(__file__).resolve().parent.parent
NEEDS = {  # what a word after %%requires stands for, wherever this page is made
    "cuda": "a CUDA GPU",
    "mps": "an Apple GPU",
    "xla": "torch_xla",
    "tpu": "a TPU",
    "accelerator": "an accelerator",
    "compiler": "a C++ compiler",
    "triton": "a CUDA GPU with Triton",
}
ENVIRONMENTS = ["main", "XLA", "Colab-like", "newest", "emulated Tesla T4", "emulated NVIDIA H200"]
WHERE_FROM = {  # environment → what makes its files
    "main": "the versions of requirements.txt: `make test`, `make lesson`",
    "XLA": "the oldest PyTorch, with torch_xla on XLA's own CPU device: `make test`, `make test-tpu`",
    "Colab-like": "the versions and the front end of Colab's GPU runtime: `make test-colab`",
    "newest": "the newest PyTorch, as a reader: `make test-next`",
    "emulated Tesla T4": "CUDA's own code on a GPU that does not exist, each cell twice: `make test-cuda`",
    "emulated NVIDIA H200": "the same as another GPU: `make test-cuda`",
}


# ---------------------------------------------------------------------------------------------------------------
# What the pages are made from


@dataclass
class Cell:
    """A code cell. section: the heading above it. word, name: of its %%requires line, or None."""

    id: str
    source: str
    section: str
    outputs: list
    header: cells.Header | None

    @property
    def live(self):
        """Whether the stored outputs are its own, not those of a recording."""
        return NOT_LIVE.isdisjoint(o.get("metadata", {}).get("device_lab", {}).get("state") for o in self.outputs)

    @property
    def texts(self):
        """What it printed, output by output, without colors."""
        return [re.sub(r"\x1b\[[\d;]*m", "", "".join(o["text"])) for o in self.outputs if "text" in o]


@dataclass
class Recording:
    """One cell as a machine recorded it. changed: whether the cell is another one now."""

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
        return not self.emulated and ("capability" in self.machine or "TPU" in self.machine["device"])

    @property
    def told(self):
        """The day and the versions."""
        known = [f"{key} {self.machine[key]}" for key in recordings.VERSIONS if key in self.machine]
        return ", ".join([self.date, *known]) + (CHANGED if self.changed else "")


CHANGED = " (the cell has changed since)"


@dataclass
class Lesson:
    """A lesson, with all that is recorded for it. recorded: name of a cell → [Recording], newest first, real ones
    before those of the emulated device. judged: [(cell id, line of a claim, its Recording)] of other cells."""

    stem: str
    title: str
    edition: str
    cells: list
    recorded: dict = field(default_factory=dict)
    judged: list = field(default_factory=list)

    def link(self, cell=None):
        return f"../notebooks/{self.stem}.ipynb" + (f"#{cell.id}" if cell else "")

    def cell(self, id):
        return next((cell for cell in self.cells if cell.id == id), None)

    @property
    def heading(self):
        return f"## {self.stem[:2]} · {md(self.title)}\n"

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
            makers = [c for c in self.conditional if c.header.result == cell.header.result]
            return self.needs(makers[0]) if makers else None
        base, _, count = word.partition(":")
        return f"{count} CUDA GPUs" if count else NEEDS[base]


def read_lessons(root=ROOT):
    """All lessons, with their recordings."""
    return [read_lesson(path) for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))]


def read_lesson(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    found, section = [], ""
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            prose = re.sub(r"```.*?```", "", source, flags=re.S)
            section = (re.findall(r"^#+ (.+)$", prose, re.M) or [section])[-1]
        if cell["cell_type"] == "code":
            found.append(Cell(cell["id"], source, section, cell["outputs"], cells.header(source)))
    title = re.match(r"# ([^:\n]+)", "".join(content["cells"][0]["source"]))[1]
    lesson = Lesson(path.stem, title, edition(content), found)
    _read_recordings(lesson, path.parent / "recorded")
    return lesson


def _read_recordings(lesson, folder):
    now = {cell.header.name: cell for cell in lesson.conditional}
    for path in sorted(folder.glob(f"*/{lesson.stem}.json")):
        stored = recordings.load(path)
        for name, kept in stored.items():
            changed = name not in now or kept["source"] != cells.source_hash(now[name].source)
            text = "\n".join(output["text"].rstrip("\n") for output in kept["outputs"] if "text" in output)
            lesson.recorded.setdefault(name, []).append(Recording(kept["machine"], kept["date"], text, changed))
        machine, date = next((kept["machine"], kept["date"]) for kept in stored.values())
        for id, kept in json.loads(path.read_text(encoding="utf-8")).get("claims", {}).items():
            cell = lesson.cell(id)
            changed = cell is None or kept["source"] != cells.source_hash(cell.source)
            lesson.judged += [(id, line, Recording(machine, date, "", changed)) for line in kept["lines"]]
    for found in lesson.recorded.values():
        found.sort(key=lambda recording: (not recording.emulated, recording.date), reverse=True)


def read_status(root=ROOT):
    """What the last test runs said: (environment, stem of the lesson) → content of the file."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in (root / "build" / "status").glob("*/*.json")]
    return {(kept["environment"], kept["lesson"]): kept for kept in files}


# ---------------------------------------------------------------------------------------------------------------
# Claims


@dataclass
class Figure:
    """What one judged line of a claim says. value: "" where it is true or false. share: of the limit."""

    text: str
    sign: str
    value: str
    promised: str
    limit: str
    share: str
    where: str

    LINE = re.compile(
        r"(?P<sign>[✓✗]) (?P<text>.*?)"
        r"(?:: (?P<value>[^:]*?) \(claimed (?P<promised>[≥≤].*?)(?:; limit (?P<limit>.*), reached (?P<share>\S+))?\)"
        r"| \(claimed\)) · (?P<where>.*)"
    )

    @classmethod
    def of(cls, line):
        found = cls.LINE.fullmatch(line)
        if not found:
            raise ValueError(f"no line of a claim: {line!r}")
        return cls(**{key: text or "" for key, text in found.groupdict().items()})


@dataclass
class Claim:
    """A call of `claim` in a lesson, or of lesson 16 a row that is slower. pattern: regular expression of its sentence.

    refused: whether it is false on purpose, in a block that expects the error. figures: [(Figure, where it was
    measured)], without times of the emulated device."""

    cell: Cell
    sentence: str
    pattern: str
    promised: str
    timed: bool
    refused: bool = False
    figures: list = field(default_factory=list)

    @property
    def kind(self):
        """What is the best that is known of it: "measured" on a device, "computed", "emulated", "refused" or "open"."""
        if self.refused:
            return "refused"
        kinds = {kind_of(where) for _, where in self.figures}
        return next((kind for kind in ("measured", "computed", "emulated") if kind in kinds), "open")


def kind_of(where):
    """What a figure is by what its line says of its origin: measured on a device, emulated, or computed by anybody."""
    if where.startswith(recordings.EMULATED):
        return "emulated"
    return "measured" if re.search(r"this machine|recorded \d|stored here|test run", where) else "computed"


def claims_of(lesson):
    """The claims of a lesson, in its order, without figures."""
    found = []
    for cell in lesson.cells:
        source = re.sub(r"\A(%%.*\n)+", "", cell.source)
        if re.search(r"^%%today \S", cell.source, re.M):
            found += [_claim_of_row(cell, row) for row in [_row(cell)] if row.expected[""].word == "slower"]
        elif "claim(" in source:
            tree = ast.parse(source)
            blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
            blocks = [node for node in blocks if any("expect_error(" in ast.unparse(item) for item in node.items)]
            refused = {call for block in blocks for call in _calls(block)}
            for call in sorted(_calls(tree), key=lambda call: call.lineno):
                found.append(_claim_of_call(cell, call, call in refused))
    return found


def _calls(tree):
    """The calls of `claim` in a piece of code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "claim"]


def _row(cell):
    header, _, body = cells.body(cell.source).partition("\n")
    return today.parse(header.removeprefix("%%today "), body)


def _claim_of_row(cell, row):
    sentence = f"{row.slug}: the old form takes longer"
    return Claim(cell, sentence, re.escape(sentence), f"≥ {row.expected[''].factor} times", True)


def _claim_of_call(cell, call, refused):
    text, given = call.args[0], {keyword.arg: keyword.value for keyword in call.keywords}
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
    promised = [f"{sign} {_plain(given[name])}{unit}" for sign, name in bounds if name in given]
    if not promised:
        promised = ["bounds that the cell computes"] if None in given else ["true"]
    return Claim(cell, sentence, pattern, "; ".join(promised), "timed" in given, refused)


def _plain(node):
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return f"‹{ast.unparse(node)}›"
    return value if isinstance(value, str) else f"{value:,g}"


def measured_claims(lesson, status):
    """The claims of a lesson, with every figure that is known. A stored line that no claim prints is a ValueError."""
    found = claims_of(lesson)
    for cell in lesson.cells:
        if cell.live:
            for line in claims.LINE.findall("\n".join(cell.texts)):
                if not _give(found, cell.id, line, "stored here"):
                    raise ValueError(f"{lesson.stem}, cell {cell.id}: no claim prints {line!r}")
        for kept in lesson.recorded.get(cell.header and cell.header.name, []):
            for line in claims.LINE.findall(kept.text):
                _give(found, cell.id, line, f"recorded {kept.date}", CHANGED if kept.changed else "")
    for id, line, kept in lesson.judged:
        _give(found, id, line, f"recorded {kept.date}", CHANGED if kept.changed else "")
    for environment in sorted({key[0] for key in status}, key=_in_order):
        kept = status.get((environment, lesson.stem))
        if kept and kept["edition"] == lesson.edition:
            for id, lines in kept["claims"].items():
                for line in lines:
                    if "recorded" not in line.rpartition(" · ")[2]:  # figures of a recording have been read there
                        _give(found, id, line, f"test run, {environment}, {kept['date']}")
    return found


def _give(found, id, line, when, note=""):
    """Give a line to the claim that prints it: one of its cell, or of a function of another. Whether there is one."""
    figure = Figure.of(line)
    order = sorted(found, key=lambda claim: (claim.cell.id != id, claim.pattern.count(".+"), -len(claim.pattern)))
    claim = next((claim for claim in order if re.fullmatch(claim.pattern, figure.text)), None)
    if claim is None:
        return False
    where = figure.where.partition(": numbers and memory real")[0]
    if "this machine" in where:
        where = where.replace("this machine", when)
    elif where.startswith(recordings.EMULATED):
        where = re.sub(r" \(.*?\)", "", where) if "recorded" in where else f"{where}, {when}"
    known = (figure.text, figure.value, where)
    if (where + note).startswith(recordings.EMULATED) and claim.timed:
        return True  # a time there is a model
    if known not in [(other.text, other.value, place) for other, place in claim.figures]:
        claim.figures.append((figure, where + note))
    return True


# ---------------------------------------------------------------------------------------------------------------
# Conditional cells


def shown_for(cell, lesson, published):
    """What a reader without the device sees of a conditional cell: (kind, text). The rules are those of `replay`."""
    kept = lesson.recorded.get(cell.header.name, [])
    real = [recording for recording in kept if not recording.emulated]
    emulated = [recording for recording in kept if recording.emulated and cell.header.timeless]
    others = [f"[{md(s['who'])}]({s['link']}), {s['date']}" for s in published.get(cell.header.name, [])]
    others = [f"PUBLISHED by {text}" for text in others]
    if real:
        lines = [f"RECORDED on {md(recording.machine['device'])}, {recording.told}" for recording in real]
        return "recorded", "<br>".join(lines + others)
    if emulated:
        return "emulated", f"EMULATED, {emulated[0].told}"
    return ("published", "<br>".join(others)) if others else ("nothing", "nothing yet")


def gpu_sentence(lessons):
    """What the course has from a CUDA GPU or a TPU, in one sentence. README.md says the same (a test compares)."""
    found = [r.machine["device"] for lesson in lessons for kept in lesson.recorded.values() for r in kept if r.real]
    if not found:
        return "No result in this course comes from a CUDA GPU or a TPU yet."
    devices = ", ".join(f"{count} on {device}" for device, count in sorted(Counter(found).items()))
    return f"Recorded on a CUDA GPU or a TPU so far: cells {devices}."


# ---------------------------------------------------------------------------------------------------------------
# The pages


def pages(root=ROOT):
    """The texts of the three pages by their path."""
    lessons, status = read_lessons(root), read_status(root)
    published = recordings.load_published(root / "notebooks" / "recorded" / "published.json")
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
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def table(head, rows):
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]) + "\n"


def evidence(lessons, status, published):
    """The evidence page."""
    parts, kinds, shown, on = [], Counter(), Counter(), Counter()
    for lesson in lessons:
        found, cells_shown = measured_claims(lesson, status), {}
        for cell in lesson.conditional:
            cells_shown[cell.id] = shown_for(cell, lesson, published)
            real = [kept for kept in lesson.recorded.get(cell.header.name, []) if not kept.emulated]
            on.update({kept.machine["device"] for kept in real})
        kinds.update(claim.kind for claim in found)
        shown.update(kind for kind, _ in cells_shown.values())
        parts.append(lesson.heading)
        if found:
            rows = [_claim_row(claim, lesson) for claim in found]
            parts.append(table([f"{len(found)} claim{'s' * (len(found) > 1)}", "figure"], rows))
        if cells_shown:
            many = len(cells_shown) > 1
            head = [f"{len(cells_shown)} cell{'s' * many} that need{'s' * (not many)} hardware", "shown without it"]
            rows = [
                [
                    f"[{code(cell.header.name)}]({lesson.link(cell)})<br>needs {lesson.needs(cell)}",
                    cells_shown[cell.id][1],
                ]
                for cell in lesson.conditional
            ]
            parts.append(table(head, rows))
        if not found and not cells_shown:
            parts.append("No claim, and no cell that needs hardware.\n")
    devices = "; ".join(f"{device} ({count})" for device, count in on.most_common()) or "none"
    known = {
        "measured": "measured on a device that is named",
        "computed": "computed, simulated, or checked on figures of others: no device of ours measured",
        "emulated": "not about time, seen to hold on the emulated CUDA device only",
        "open": "not measured yet",
        "refused": "false on purpose, to show that it is refused",
    }
    seen = {
        "recorded": f"RECORDED on a device that is named: {devices}",
        "emulated": "EMULATED: PyTorch's own CUDA code on a device without a GPU; only cells whose point is no time",
        "published": "PUBLISHED by others, and not measured here",
        "nothing": "nothing yet",
    }
    return "\n".join(
        [
            "# Evidence\n",
            "What the lessons claim, and what has been measured for it. This page is made from the cells of the "
            "lessons, from their stored outputs, from recordings and from the last test run: no figure is typed.\n",
            f"**{gpu_sentence(lessons)}**\n",
            table(
                [f"{kinds.total()} claims", "best that is known"],
                [[str(kinds[kind]), text] for kind, text in known.items()],
            ),
            table(
                [f"{shown.total()} cells that need hardware", "what is shown without it"],
                [[str(shown[kind]), text] for kind, text in seen.items()],
            ),
            "A claim has a bound, sometimes also a physical limit, above which a figure would be a mistake of the "
            "measurement. “Stored here” is what you see in the lesson on this site. In ‹ › stands code: the cell "
            "computes it. What none of our machines can measure is said to be open. If yours can, "
            "[send a recording](../CONTRIBUTING.md#send-a-recording).\n",
            *parts,
        ]
    )


def _claim_row(claim, lesson):
    promises = {figure.promised + (f"; limit {figure.limit}" if figure.limit else "") for figure, _ in claim.figures}
    texts = {figure.text for figure, _ in claim.figures}
    sentence = texts.pop() if len(texts) == 1 else claim.sentence
    several = bool(texts) or sentence != claim.sentence and not claim.figures
    promised = promises.pop() if len(promises) == 1 else claim.promised
    lines = []
    if claim.refused:
        lines.append("false on purpose: the lesson shows that it is refused")
    if claim.kind in ("open", "emulated"):
        needs = lesson.needs(claim.cell)
        lines.append(f"not measured yet: needs {needs}" if needs else "not measured yet")
    for figure, where in claim.figures:
        value = (f"**{md(figure.value)}**" if figure.value else "**true**") + (
            " ✗ missed" if figure.sign == "✗" else ""
        )
        value = f"{md(figure.text)}: {value}" if several else value
        value += f" (promised {md(figure.promised)})" if promises and figure.promised else ""
        value += f", {figure.share} of the limit" if figure.share else ""
        lines.append(f"{value} · {md(where)}")
    promised = f"<br>promised: {md(promised)}" if promised and promised != "true" else ""
    return [f"[{md(sentence)}]({lesson.link(claim.cell)}){promised}", "<br>".join(lines)]


# ---------------------------------------------------------------------------------------------------------------
# Status of the tests


def _in_order(environment):
    return (ENVIRONMENTS.index(environment) if environment in ENVIRONMENTS else len(ENVIRONMENTS), environment)


def status_page(lessons, status):
    """The status page: lesson × environment, then each environment."""
    seen = sorted({*ENVIRONMENTS, *(environment for environment, _ in status)}, key=_in_order)
    rows = []
    for lesson in lessons:
        ran = [_verdict(status.get((environment, lesson.stem)), lesson) for environment in seen]
        rows.append([f"[{lesson.stem[:2]}]({lesson.link()})", *ran])
    parts = [
        "# Status of the tests\n",
        "What the last run of each lesson's cells said, in each environment: `make test` and its sisters write it, "
        "and this page is made from what they left on the machine that built this site.\n",
    ]
    if not status:
        parts.append("Nothing has run on this machine: after `make test`, `make site` fills this table.\n")
    parts += [
        "✓: every cell ran to its end, and every claim that was judged held. ✗: something failed. –: no run. "
        "changed: the lesson has changed since.\n",
        table(["lesson", *seen], rows),
    ]
    for environment in seen:
        kept = [
            (lesson, status[environment, lesson.stem]) for lesson in lessons if (environment, lesson.stem) in status
        ]
        if kept:
            parts += _environment(environment, kept)
    return "\n".join(parts)


def _verdict(kept, lesson):
    if kept is None:
        return "–"
    sign = "✗" if kept["problems"] else "✓"
    return sign if kept["edition"] == lesson.edition else f"{sign} changed"


def _environment(environment, kept):
    """The section of an environment. kept: [(Lesson, content of its file)]."""
    machines = {}
    for lesson, content in kept:
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        machines.setdefault(f"{versions} · {content['system']}, {content['cpu']}", []).append(lesson.stem[:2])
    yield f"## {environment[0].upper()}{environment[1:]}\n"
    yield f"{WHERE_FROM[environment][0].upper()}{WHERE_FROM[environment][1:]}.\n" if environment in WHERE_FROM else ""
    for machine, numbers in machines.items():
        yield f"- {md(machine)}{f' (lessons {chr(32).join(numbers)})' if len(machines) > 1 else ''}"
    rows = []
    for lesson, content in kept:
        n = content["counts"]
        ran = f"{n.get('done', 0)} of {n['cells']}{', twice' if content['twice'] else ''}"
        live = f"{n.get('done', 0) - n.get('not live', 0)} live"
        judged = f"{n.get('held', 0)} held, {n.get('unjudged', 0)} not judged"
        memory = f"{n.get('seconds', 0):.0f} s, {content['kernel_mib']:,} MiB"
        memory += (
            f", {content['family_mib']:,} with its processes" if content["family_mib"] > content["kernel_mib"] else ""
        )
        notes = [content["date"]]
        notes += [] if content["strict"] else ["as a reader: a missed claim stops nothing"]
        notes += [] if content["timed"] else ["times not judged"]
        notes += [f"{content['findings']} findings"] if content["findings"] else []
        notes += ["second run, after missed claims about time"] if content["attempt"] > 1 else []
        notes += ["the lesson has changed since"] if content["edition"] != lesson.edition else []
        notes += [f"✗ {md(problem)}" for problem in content["problems"]]
        rows.append([f"[{lesson.stem[:2]}]({lesson.link()})", f"{ran}, {live}", judged, memory, "; ".join(notes)])
    yield ""
    yield table(["lesson", "cells", "claims", "took", "run"], rows)


# ---------------------------------------------------------------------------------------------------------------
# Messages

CLASS = r"[A-Z][A-Za-z]*(?:Error|Exception|Warning|Exit)"
# Where a message begins: with its class, perhaps after words such as "rank 1 │ "; an announced one is of any class.
BEGINS = re.compile(rf"(?:^|[:│…] )(?P<kind>CUDA error|{CLASS}): (?=\S)")
ANNOUNCED = re.compile(r"^(?P<kind>[A-Z][A-Za-z]*[a-z]): (?=\S)")
CUT = re.compile(r"… \(\d+ more lines\)")
ROW = re.compile(r"^  (?:old   |yours ) ((?:.*\n(?: {9}.*\n)*))", re.M)


@dataclass(frozen=True)
class Message:
    """What a cell showed. kind: class of the error or warning. text: as shown, in lines."""

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
    """The messages in what a cell printed. source: its code, which says how many lines of a message are shown."""
    if re.search(r"^%%today\b", source, re.M):
        for shown in ROW.findall(text + "\n"):
            yield from _of_row(shown)
        return
    begins = re.compile(f"{BEGINS.pattern}|{ANNOUNCED.pattern.replace('kind', 'other')}")
    announced = "expect_error(" in source
    most = max([int(n) for n in re.findall(r"\blines=(\d+)", source)], default=1 if "lines=" in source else 4)
    exact = "lines=" in source
    lines = text.splitlines()
    n = 0
    while n < len(lines):
        found = begins.search(lines[n])
        if not found or not (found["kind"] or announced):
            n += 1
            continue
        kind = found["kind"] or found["other"]
        prefix = lines[n][: found.start("kind") if found["kind"] else 0]
        message, n = [lines[n].removeprefix(prefix)], n + 1
        rest = []
        for line in lines[n : n + most]:
            if begins.search(line):
                break
            rest.append(line)
            if CUT.fullmatch(line):
                break
        if "│" in prefix:  # a rank's words go on behind its name
            taken = [line for line in rest if line.startswith(prefix)]
            message += [line.removeprefix(prefix).strip() for line in taken]
        elif rest and CUT.fullmatch(rest[-1]):
            message += rest
            n += len(rest)
        elif exact and announced:
            message += rest[: most - 1]
            n += len(rest[: most - 1])
        yield Message(kind, "\n".join(line.rstrip() for line in message))


def _of_row(shown):
    """The messages in what the old part of a row of lesson 16 did: what it printed is none."""
    message = []
    for line in [*(line.removeprefix(" " * 9) for line in shown.rstrip("\n").split("\n")), "prints "]:
        printed = line.startswith(("prints ", "runs, prints nothing"))
        if message and (printed or re.match(rf"{CLASS}: (?=\S)", line)):
            yield Message(message[0].partition(":")[0], "\n".join(message))
            message = []
        if printed:
            return
        message.append(line)


def shown_messages(lessons, version):
    """Message → [(Lesson, Cell, row of lesson 16 or None, where it was shown)], in the order of the lessons."""
    found, first = {}, {}
    for lesson in lessons:
        for cell in lesson.cells:
            row = _row(cell) if re.search(r"^%%today \S", cell.source, re.M) else None
            shown = [(text, f"PyTorch {version}") for text in cell.texts if cell.live]
            for kept in lesson.recorded.get(cell.header and cell.header.name, []):
                badge = "EMULATED, no GPU" if kept.emulated else f"RECORDED on {kept.machine['device']}"
                torch = f"PyTorch {kept.machine.get('torch', '').partition('+')[0]}"
                shown.append((kept.text, f"{badge}, {torch}, {kept.date}{CHANGED if kept.changed else ''}"))
            for text, where in shown:
                for message in messages_in(text, cell.source):
                    place = (lesson, cell, row, where)
                    places = found.setdefault(first.setdefault(message.words, message), [])
                    if place[1:] not in [other[1:] for other in places]:
                        places.append(place)
    return found


def errors(lessons, root):
    """The index of errors and warnings: by class, then by their words."""
    version = re.search(r"^torch==([\d.]+)", (root / "requirements.txt").read_text(encoding="utf-8"), re.M)[1]
    found = shown_messages(lessons, version)
    kinds = sorted({message.kind for message in found}, key=str.lower)
    anchor = {kind: f"messages-{kind.lower().replace(' ', '-')}" for kind in kinds}
    count = Counter(message.kind for message in found)
    parts = [
        "# Errors and warnings\n",
        f"{len(found)} messages that cells of the lessons got, word for word, each with the place that explains it. "
        "They stand by the class of the error, then by their words. Numbers, names and paths in yours will differ: "
        "look for the words between them. [Lesson 16](../notebooks/16_old_code_today.ipynb) runs code that you paste, "
        "and finds its message.\n",
        " · ".join(f"[{kind}](#{anchor[kind]}) {count[kind]}" for kind in kinds) + "\n",
    ]
    for kind in kinds:
        parts.append(f"({anchor[kind]})=\n\n## {kind}\n")
        titles = {}
        for message in sorted((m for m in found if m.kind == kind), key=lambda m: (m.title.lower(), m.text)):
            titles.setdefault(message.title, []).append(message)
        for title, messages in titles.items():
            parts.append(f"### {code(title)}\n")
            for message in messages:
                fence = "`" * max(3, 1 + max(map(len, re.findall("`+", message.text)), default=0))
                parts.append(f"{fence}{{code-block}} text\n:class: message\n\n{message.text}\n{fence}\n")
                parts += [_place(*place) for place in found[message]]
                parts.append("")
    return "\n".join(parts)


def _place(lesson, cell, row, where):
    label = f"Lesson {lesson.stem[:2]} · {md(row.slug) if row else md(re.sub('[`*]', '', cell.section))}"
    because = f": because {md(row.because)}" if row and row.because else ""
    return f"- [{label}]({lesson.link(cell)}){because} ({md(where)})"
