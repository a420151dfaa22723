"""Pages of the website that say what is known, and from where: evidence, status of the
tests, index of errors.

    pages() -> {"docs/evidence.md": …, "docs/status.md": …, "docs/errors.md": …}

Nothing on them is typed. Claims and conditional cells are read from the lessons' code;
figures and messages from their stored outputs, from notebooks/recorded/ (`make record`)
and from build/status/ (tests/lessons/plugin.py, `make test`). Links lead to cells:
../notebooks/NN_name.ipynb#CELL-ID.
"""

import ast
from collections import Counter
from dataclasses import dataclass, field

from tools.site.course import ROOT, Cell, code, md, read_lessons, read_status, table
from tools.site.errors import errors
from tools.site.status import ENVIRONMENTS, status_page
from utils import grammar, recordings
from utils.claims import figure, promised
from utils.provenance import EMULATED


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


# --------------------------------------------------------------------------------------
# Claims


@dataclass
class Figure:
    """What a claim said somewhere. told: its data (utils/claims.py). place: where it
    was measured. note: of a recording.
    """

    told: dict
    place: str
    note: str

    @property
    def kind(self):
        """Measured on a device, emulated, or computed by anybody."""
        if "about" in self.told:
            return "computed"
        emulated = self.told["device"].startswith(EMULATED)
        return "emulated" if emulated else "measured"

    @property
    def value(self):
        value = self.told["value"]
        if isinstance(value, bool):
            return str(value).lower()
        return figure(value, self.told["unit"])

    @property
    def promised(self):
        return promised(self.told)


@dataclass
class Claim:
    """A call of `claim` in a lesson, or of lesson 16 a row that is slower.

    call: its sentence as the code has it, None of a row. refused: whether it is false
    on purpose, in a block that expects the error. figures: what is known, without times
    of the emulated device.
    """

    cell: Cell
    sentence: str
    call: str | None
    promised: str
    timed: bool
    refused: bool = False
    figures: list[Figure] = field(default_factory=list)

    @property
    def kind(self):
        """What is the best that is known of it: "measured" on a device, "computed",
        "emulated", "refused" or "open".
        """
        if self.refused:
            return "refused"
        kinds = {figure.kind for figure in self.figures}
        best = (kind for kind in ("measured", "computed", "emulated") if kind in kinds)
        return next(best, "open")


def claims_of(lesson):
    """The claims of a lesson, in its order, without figures."""
    found = []
    for cell in lesson.cells:
        _, source = grammar.split(cell.source)
        if cell.row:
            slower = cell.row.expected[""]
            if slower.word == "slower":
                sentence = f"{cell.row.slug}: the old form takes longer"
                bound = f"≥ {slower.factor} times"
                found.append(Claim(cell, sentence, None, bound, timed=True))
        elif "claim(" in source:
            tree = ast.parse(source)
            refused = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.With) and "expect_error(" in ast.unparse(
                    node.items
                ):
                    refused.update(_calls(node))
            for call in sorted(_calls(tree), key=lambda call: call.lineno):
                found.append(_claim_of_call(cell, source, call, call in refused))
    return found


def _calls(tree):
    """The calls of `claim` in a piece of code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func) == "claim"]


def _claim_of_call(cell, source, call, refused):
    text = call.args[0]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    sentence = ""
    for part in text.values if isinstance(text, ast.JoinedStr) else [text]:
        if isinstance(part, ast.Constant):
            sentence += part.value
        else:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            sentence += f"‹{ast.unparse(value)}›"
    unit = f" {_plain(given['unit'])}" if "unit" in given else ""
    bounds = [("≥", "at_least"), ("≤", "at_most"), ("limit", "limit")]
    announced = [
        f"{sign} {_plain(given[name])}{unit}" for sign, name in bounds if name in given
    ]
    if not announced:
        announced = ["bounds that the cell computes"] if None in given else ["true"]
    written, timed = ast.get_source_segment(source, text), "timed" in given
    return Claim(cell, sentence, written, "; ".join(announced), timed, refused)


def _plain(node):
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return f"‹{ast.unparse(node)}›"
    return value if isinstance(value, str) else f"{value:,g}"


def measured_claims(lesson, status):
    """The claims of a lesson, with every figure that is known. A stored figure that is
    of none of them is a ValueError.
    """
    found = claims_of(lesson)
    for id, told, when, note in _told(lesson, status):
        own = [claim for claim in found if claim.cell.id == id]
        asks = [claim for claim in own if claim.cell.row or claim.call == told["call"]]
        # else it is a claim in a function of another cell
        asks += [claim for claim in found if claim.call and claim.call == told["call"]]
        if asks:
            _give(asks[0], Figure(told, _place(told, when), note))
        elif when == "stored here":
            text = told["text"]
            raise ValueError(f"{lesson.stem}, cell {id}: no claim says {text!r}")
    return found


def _told(lesson, status):
    """What a lesson has claimed anywhere: (id of the cell, data, when, note)."""
    for cell in lesson.cells:
        if cell.live:
            for told in cell.claims:
                yield cell.id, told, "stored here", ""
        for kept in cell.recorded:
            for told in kept.claims:
                yield cell.id, told, f"recorded {kept.origin.date}", kept.note
    for environment in ENVIRONMENTS:
        kept = status.get((environment, lesson.stem))
        if kept and kept.get("content_hash") == lesson.content_hash:
            for id, claims in kept["claims"].items():
                for told in claims:
                    if told.get("live", True):  # a recording has been read there
                        yield id, told, f"test run, {environment}, {kept['date']}", ""


def _place(told, when):
    """Where a figure is from, in words. when: it was measured, if it was live."""
    if "about" in told:
        return told["about"]
    device, emulated = told["device"], told["device"].startswith(EMULATED)
    if not told["live"]:
        when = f"recorded {told['date']}"
        device = "emulated CUDA device" if emulated else device
    return f"{device}, {when}" if emulated else f"{device} ({when})"


def _give(claim, new):
    """Add a figure to a claim, unless it is there, or a time on the emulated device,
    which is a model.
    """
    if claim.timed and new.kind == "emulated":
        return
    known = [(old.told["text"], old.value, old.place) for old in claim.figures]
    if (new.told["text"], new.value, new.place) not in known:
        claim.figures.append(new)


# --------------------------------------------------------------------------------------
# Conditional cells


def shown_for(cell, published):
    """What a reader without the device sees of a conditional cell: (kind, text)."""
    found = [(kept.origin, kept) for kept in cell.recorded]
    sources = published.get(cell.header.name, [])
    state, found, sources = recordings.shown(found, sources, cell.header.timeless)
    lines = [
        f"PUBLISHED by [{md(source['who'])}]({source['link']}), {source['date']}"
        for source in sources
    ]
    if state == "emulated":
        return "emulated", f"EMULATED, {found[0][1].told}"
    if state == "replayed":
        devices = [f"RECORDED on {md(o.device)}, {kept.told}" for o, kept in found]
        return "recorded", "<br>".join(devices + lines)
    return ("published", "<br>".join(lines)) if lines else ("nothing", "nothing yet")


def gpu_sentence(lessons):
    """What the course has from a CUDA GPU or a TPU, in one sentence. README.md says the
    same (a test compares).
    """
    found = Counter(
        kept.origin.device
        for lesson in lessons
        for cell in lesson.conditional
        for kept in cell.recorded
        if kept.real
    )
    if not found:
        return "No result in this course comes from a CUDA GPU or a TPU yet."
    devices = ", ".join(
        f"{count} on {device}" for device, count in sorted(found.items())
    )
    return f"Recorded on a CUDA GPU or a TPU so far: cells {devices}."


# --------------------------------------------------------------------------------------
# The page


def evidence(lessons, status, published):
    """The evidence page."""
    parts, claims, cells = [], [], []
    for lesson in lessons:
        found = measured_claims(lesson, status)
        shows = [(cell, *shown_for(cell, published)) for cell in lesson.conditional]
        parts.append(f"## {lesson.stem[:2]} · {md(lesson.title)}\n")
        if found:
            head = "1 claim" if len(found) == 1 else f"{len(found)} claims"
            rows = [_claim_row(claim, lesson) for claim in found]
            parts.append(table([head, "figure"], rows))
        if shows:
            many = f"{len(shows)} cells that need"
            head = f"{'1 cell that needs' if len(shows) == 1 else many} hardware"
            rows = [_cell_row(cell, text, lesson) for cell, _, text in shows]
            parts.append(table([head, "shown without it"], rows))
        if not found and not shows:
            parts.append("No claim, and no cell that needs hardware.\n")
        claims += found
        cells += shows
    introduction = (
        "A claim has a bound, sometimes also a physical limit, above which a figure"
        " would be a mistake of the measurement. “Stored here” is what you see in the"
        " lesson on this site. In ‹ › stands code: the cell computes it. What none of"
        " our machines can measure is said to be open. If yours can, [send a"
        " recording](../CONTRIBUTING.md#send-a-recording).\n"
    )
    return "\n".join(
        [
            "# Evidence\n",
            "What the lessons claim, and what has been measured for it. This page is"
            " made from the cells of the lessons, from their stored outputs, from"
            " recordings and from the last test run: no figure is typed.\n",
            f"**{gpu_sentence(lessons)}**\n",
            _claims_in_short(claims),
            _cells_in_short(cells),
            introduction,
            *parts,
        ]
    )


def _claims_in_short(claims):
    """The table that counts claims."""
    words = {
        "measured": "measured on a device that is named",
        "computed": "computed, simulated, or checked on figures of others: no device of"
        " ours measured",
        "emulated": "not about time, seen to hold on the emulated CUDA device only",
        "open": "not measured yet",
        "refused": "false on purpose, to show that it is refused",
    }
    kinds = Counter(claim.kind for claim in claims)
    rows = [(kinds[kind], text) for kind, text in words.items()]
    return table([f"{len(claims)} claims", "best that is known"], rows)


def _cells_in_short(cells):
    """The table that counts conditional cells. cells: (cell, kind, text) of each."""
    on = Counter()
    for cell, _, _ in cells:
        origins = [kept.origin for kept in cell.recorded]
        on.update({origin.device for origin in origins if not origin.emulated})
    devices = "; ".join(f"{device} ({count})" for device, count in on.most_common())
    words = {
        "recorded": f"RECORDED on a device that is named: {devices or 'none'}",
        "emulated": "EMULATED: PyTorch's own CUDA code on a device without a GPU; only"
        " cells whose point is no time",
        "published": "PUBLISHED by others, and not measured here",
        "nothing": "nothing yet",
    }
    kinds = Counter(kind for _, kind, _ in cells)
    rows = [(kinds[kind], text) for kind, text in words.items()]
    head = f"{len(cells)} cells that need hardware"
    return table([head, "what is shown without it"], rows)


def _cell_row(cell, text, lesson):
    name = f"[{code(cell.header.name)}]({lesson.link(cell)})"
    return [f"{name}<br>needs {lesson.needs(cell)}", text]


def _claim_row(claim, lesson):
    texts, bounds = set(), set()
    for found in claim.figures:
        texts.add(found.told["text"])
        limit = found.told.get("limit")
        end = "" if limit is None else f"; limit {figure(limit, found.told['unit'])}"
        bounds.add(found.promised + end)
    sentence = texts.pop() if len(texts) == 1 else claim.sentence
    announced = bounds.pop() if len(bounds) == 1 else claim.promised
    lines = []
    if claim.refused:
        lines.append("false on purpose: the lesson shows that it is refused")
    if claim.kind in ("open", "emulated"):
        needs = lesson.needs(claim.cell)
        lines.append(f"not measured yet{f': needs {needs}' if needs else ''}")
    # what differs between the figures stands with each of them
    lines += [_figure_line(found, texts, bounds) for found in claim.figures]
    if announced and announced != "true":
        announced = f"<br>promised: {md(announced)}"
    else:
        announced = ""
    link = f"[{md(sentence)}]({lesson.link(claim.cell)})"
    return [link + announced, "<br>".join(lines)]


def _figure_line(found, with_text, with_bounds):
    line = f"**{md(found.value)}**"
    if not found.told["holds"]:
        line += " ✗ missed"
    if with_text:
        line = f"{md(found.told['text'])}: {line}"
    if with_bounds and found.promised:
        line += f" (promised {md(found.promised)})"
    if "share" in found.told:
        line += f", {found.told['share']:.0%} of the limit"
    return f"{line} · {md(found.place + found.note)}"
