"""claim: one checked sentence about a measurement."""

import math
import re

import torch

from utils.messages import LabError, finding, note, untimed
from utils.recordings import EMULATED, Provenance, origin

# what a judged claim prints; exercises and rows have signs, too
LINE = re.compile(r"^[✓✗] .* \(claimed[ )].*$", re.M)


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
    """Print one line: the claim, the measured figure, its physical limit, ✓ or ✗, and
    the device.

    measured: a number, or whether the claim is true. at_least, at_most: what a claim
    about a number promises (one or both). limit: the most that physics allows, in the
    same unit; a figure above it always raises, because then the measurement is wrong.
    where: the name of a result, a device or a Provenance; by default the result that
    the cell's header names, or this CPU. about: text in its place, for what no device
    measured. timed: it speaks of a time, a rate or an overlap; such a claim is not
    judged where times prove nothing (an emulated device, LAB_UNTIMED=1). A missed claim
    is a finding: information for a reader, a ClaimError with LAB_STRICT=1.
    """
    bounds = [
        (sign, bound)
        for sign, bound in (("≥", at_least), ("≤", at_most))
        if bound is not None
    ]
    if isinstance(measured, bool):
        if bounds or limit is not None:
            raise ClaimError(f"{text!r} is true or false: it has no bound and no limit")
    elif not isinstance(measured, (int, float)) or not math.isfinite(measured):
        raise ClaimError(
            f"{text!r} was measured as {measured!r}: a claim needs a finite number, or"
            " True or False"
        )
    elif not bounds:
        raise ClaimError(f"{text!r} promises nothing: give at_least or at_most")
    source = about or origin(where)
    if timed and (untimed() or source.startswith(EMULATED)):
        note(
            f"– {text}: not judged here, where times prove nothing · {source}",
            "unjudged",
        )
        return
    if limit is not None and measured > limit:
        raise ClaimError(
            f"{text!r}: {_figure(measured, unit)} lies above the physical limit of"
            f" {_figure(limit, unit)}; the measurement is wrong (a missing"
            " synchronization, or a wrong count of bytes)"
        )
    if isinstance(measured, bool):
        holds, line = measured, f"{text} (claimed)"
    else:
        holds = (at_least is None or measured >= at_least) and (
            at_most is None or measured <= at_most
        )
        promised = " and ".join(
            f"{sign} {_figure(bound, unit)}" for sign, bound in bounds
        )
        reached = (
            ""
            if limit is None
            else f"; limit {_figure(limit, unit)}, reached {measured / limit:.0%}"
        )
        line = f"{text}: {_figure(measured, unit)} (claimed {promised}{reached})"
    line = f"{'✓' if holds else '✗'} {line} · {source}"
    if holds:
        print(line)
    else:
        line += (
            ". Not on this device: a result too, the text says where it was seen to"
            " hold."
        )
        finding(line, ClaimError, "missed")


def _figure(number, unit):
    text = f"{number:,.3g}" if abs(number) < 1000 else f"{number:,.0f}"
    return f"{text} {unit}".strip()
