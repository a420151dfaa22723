"""The claims of a lesson, each with every figure that is known: from its stored
outputs, from recordings, and from the last test runs.
"""

import ast
import re
from dataclasses import dataclass, field

from course import grammar
from course.claims import figure
from course.provenance import EMULATED
from tools.site.course import Cell
from tools.site.status import ENVIRONMENTS


@dataclass
class Figure:
    """What a claim said somewhere. told: its data (course/claims.py). place: where it
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


@dataclass
class Claim:
    """A call of `claim` in a lesson, or of lesson 16 a row that is slower.

    place: which claim of its cell it is. says: pattern of what it says, of a row
    anything. refused: whether it is false on purpose, in a block that expects the
    error. figures: what is known, without times of the emulated device.
    """

    cell: Cell
    place: int
    sentence: str
    says: str
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
        kinds = {known.kind for known in self.figures}
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
                found.append(Claim(cell, 0, sentence, ".*", bound, timed=True))
        elif "claim(" in source:
            tree = ast.parse(source)
            refused = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.With) and any(
                    "expect_error(" in ast.unparse(item) for item in node.items
                ):
                    refused.update(_calls(node))
            calls = sorted(_calls(tree), key=lambda call: call.lineno)
            for place, call in enumerate(calls):
                found.append(_claim_of_call(cell, place, call, call in refused))
    return found


def _calls(tree):
    """The calls of `claim` in a piece of code."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if ast.unparse(call.func) == "claim"]


def _claim_of_call(cell, place, call, refused):
    text = call.args[0]
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    sentence, says = "", "(?s)"
    for part in text.values if isinstance(text, ast.JoinedStr) else [text]:
        if isinstance(part, ast.Constant):
            sentence += part.value
            says += re.escape(part.value)
        else:
            value = part.value if isinstance(part, ast.FormattedValue) else part
            sentence += f"‹{ast.unparse(value)}›"
            says += ".*"
    unit = f" {_plain(given['unit'])}" if "unit" in given else ""
    bounds = [("≥", "at_least"), ("≤", "at_most"), ("limit", "limit")]
    announced = [
        f"{sign} {_plain(given[name])}{unit}" for sign, name in bounds if name in given
    ]
    if not announced:
        announced = ["bounds that the cell computes"] if None in given else ["true"]
    if re.fullmatch("‹[^›]*›", sentence):  # the cell computes all of it
        sentence = f"{cell.section}: {sentence}" if cell.section else sentence
    return Claim(
        cell, place, sentence, says, "; ".join(announced), "timed" in given, refused
    )


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
    for id, claims, when, note in _told(lesson, status):
        for n, told in enumerate(claims):
            asks = [claim for claim in found if re.fullmatch(claim.says, told["text"])]
            if asks:
                nearest = min(asks, key=lambda claim: _distance(claim, id, n))
                _give(nearest, Figure(told, _place(told, when), note))
            elif when == "stored here":
                text = told["text"]
                raise ValueError(f"{lesson.stem}, cell {id}: no claim says {text!r}")
    return found


def _distance(claim, id, n):
    """How far a claim is from the n-th of a cell: in another cell is farthest (it calls
    a function that claims), then come words that the claim computes.
    """
    return claim.cell.id != id, -len(claim.says), abs(claim.place - n)


def _told(lesson, status):
    """What a lesson has claimed anywhere: (id of the cell, its claims as data, when,
    note).
    """
    for cell in lesson.cells:
        if cell.live:
            yield cell.id, cell.claims, "stored here", ""
        for kept in cell.recorded:
            yield cell.id, kept.claims, f"recorded {kept.origin.date}", kept.note
    for environment in ENVIRONMENTS:
        kept = status.get((environment, lesson.stem))
        if kept and kept.get("content_hash") == lesson.content_hash:
            when = f"test run, {environment}, {kept['date']}"
            for id, claims in kept["claims"].items():
                # a recording has been read there
                yield id, [told for told in claims if told.get("live", True)], when, ""


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
