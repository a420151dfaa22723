"""claim: one checked sentence about a measurement.

In a notebook a claim is data, too, in the metadata of its output (`device_lab`, claim),
for recorder, website and tests: text, value, unit, timed, holds; as far as given
at_least, at_most, limit and the share of it that was reached; and where it is from,
which is `about`, or device and live, and the date of a recording. (Older recordings
have `call`, too, the sentence as the code has it.)
"""

import math

import torch

from course.messages import finding, note, say, untimed
from course.provenance import Provenance, origin
from device_lab import LabError


class ClaimError(LabError):
    """A claim that failed in strict mode, cannot be judged, or lies above its physical
    limit.
    """


def claim(
    text: str,
    measured: float | bool,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    limit: float | None = None,
    unit: str = "",
    where: str | torch.device | Provenance | None = None,
    about: str | None = None,
    timed: bool = False,
) -> None:
    """Show one line: the claim, the measured figure, its physical limit, ✓ or ✗, and
    the device. A missed claim is a finding: information for a reader, a ClaimError with
    LAB_STRICT=1.

    text: what is claimed
    measured: a number, or whether the claim is true
    at_least, at_most: what a claim about a number promises, one or both
    limit: the most that physics allows, in the same unit; a figure above it always
        raises, because then the measurement is wrong
    unit: of the number and its bounds
    where: the name of a result, a device or a Provenance; by default the result that
        the cell's header names, or this CPU
    about: text in its place, for what no device measured
    timed: it speaks of a time, a rate or an overlap; such a claim is not judged where
        times prove nothing (an emulated device, LAB_UNTIMED=1)
    """
    facts = {"text": text, "value": measured, "unit": unit, "timed": timed}
    for name, bound in (("at_least", at_least), ("at_most", at_most), ("limit", limit)):
        if bound is not None:
            facts[name] = bound
    _check(facts)
    source = about or origin(where)
    if timed and (untimed() or getattr(source, "emulated", False)):
        why = "not judged here, where times prove nothing"
        return note(f"– {text}: {why} · {source}", "unjudged")
    facts |= {"about": about} if about else source.facts
    _judge(facts, source)


def _check(facts):
    """ClaimError where there is nothing to judge."""
    text, value = facts["text"], facts["value"]
    bounds = facts.keys() & {"at_least", "at_most"}
    if isinstance(value, bool):
        if bounds or "limit" in facts:
            raise ClaimError(f"{text!r} is true or false: it has no bound and no limit")
    elif not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ClaimError(
            f"{text!r} was measured as {value!r}: a claim needs a finite number, or"
            " True or False"
        )
    elif not bounds:
        raise ClaimError(f"{text!r} promises nothing: give at_least or at_most")


def _judge(facts, source):
    """Whether a claim holds; shows its line. source: text or Provenance."""
    value, line = facts["value"], f"{facts['text']} (claimed)"
    facts["holds"] = value
    if not isinstance(value, bool):
        least, most = facts.get("at_least", -math.inf), facts.get("at_most", math.inf)
        facts["holds"] = bool(least <= value <= most)
        number, reached = figure(value, facts["unit"]), ""
        if "limit" in facts:
            limit, facts["share"] = (
                figure(facts["limit"], facts["unit"]),
                value / facts["limit"],
            )
            if value > facts["limit"]:
                raise ClaimError(
                    f"{facts['text']!r}: {number} lies above the physical limit of"
                    f" {limit}; the measurement is wrong (a missing synchronization,"
                    " or a wrong count of bytes)"
                )
            reached = f"; limit {limit}, reached {facts['share']:.0%}"
        line = f"{facts['text']}: {number} (claimed {promised(facts)}{reached})"
    if facts["holds"]:
        say(f"✓ {line} · {source}", "claim", claim=facts)
    else:
        line = (
            f"✗ {line} · {source}. Not on this device: a result too, the text says"
            " where it was seen to hold."
        )
        finding(line, ClaimError, "missed", claim=facts)


def figure(number: float, unit: str) -> str:
    """A number of a claim as a reader sees it: three digits, or a whole number."""
    text = f"{number:,.3g}" if abs(number) < 1000 else f"{number:,.0f}"
    return f"{text} {unit}".strip()


def promised(facts: dict) -> str:
    """The bounds of a claim, from its data; "" if it is true or false."""
    bounds = [("≥", facts.get("at_least")), ("≤", facts.get("at_most"))]
    return " and ".join(
        f"{sign} {figure(bound, facts['unit'])}"
        for sign, bound in bounds
        if bound is not None
    )
