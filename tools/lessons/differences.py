"""Does a cell give on a real device what it gave on the emulated one? One line a cell,
for the report of a recording.

Only timeless cells have been recorded on the emulated device. Compared are the words
that a cell printed, the texts of its pictures and its value, whole numbers exactly.
Left aside is what differs between two machines anyway: names of devices, versions,
addresses, numbers of lines, line breaks, and in numbers with a decimal point what is
below a part in a thousand.
"""

import difflib
import json
import math
import re

from utils import recordings
from utils.provenance import EMULATED

ASIDE = "but for names of devices, versions, addresses, decimals below 0.1%"
DECIMAL = re.compile(r"[-+]?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
CONTEXT, SHOWN = 4, 3  # words before a difference; differences that the line shows


def line(name, kept):
    """What the report says of the cell `name`, recorded now as `kept`; None if the
    emulated device has no such.
    """
    found = [
        cell for origin, cell in recordings.find(name, timeless=True) if origin.emulated
    ]
    if not found:
        return None
    if found[0]["source"] != kept["source"]:
        return (
            f"not compared with the emulated device: {name} (the cell has changed since"
            " then)"
        )
    ours, theirs = words(kept), words(found[0])
    places = differences(ours, theirs)
    if not places:
        return f"same as emulated: {name} ({ASIDE})"
    shown = []
    for i, i_end, j, j_end in places[:SHOWN]:
        before = " ".join(ours[max(0, i - CONTEXT) : i])
        mine, other = (
            " ".join(ours[i:i_end][:20]) or "nothing",
            " ".join(theirs[j:j_end][:20]) or "nothing",
        )
        shown.append(f"after “{before}” {mine} (emulated: {other})")
    more = f"; {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    versions = [
        cell["machine"].get("torch", "?").split("+")[0] for cell in (kept, found[0])
    ]
    built = (
        ""
        if len(set(versions)) == 1
        else f" (PyTorch {versions[0]}, emulated {versions[1]})"
    )
    return f"differs from the emulated device{built}: {name}: {'; '.join(shown)}{more}"


def words(cell):
    """What a recorded cell shows and holds, as words, without what differs between two
    machines anyway.
    """
    texts = [output.get("text", output.get("alt", "")) for output in cell["outputs"]]
    text = "\n".join([*texts, json.dumps(cell["value"]) if "value" in cell else ""])
    device = cell["machine"]["device"].removeprefix(EMULATED)
    text = re.sub(rf"(?:{EMULATED})?{re.escape(device)}", "DEVICE", text)
    text = re.sub(
        r"DEVICE(?: \(this machine\)|: numbers and memory real, times modeled)",
        "DEVICE",
        text,
    )
    text = re.sub(r"\b0x[0-9a-f]{4,}\b", "ADDRESS", text)
    text = re.sub(r"(\.(?:cpp|cu|h|py)):\d+", r"\1:LINE", text)
    text = re.sub(r"\(\d+ more lines?\)", "(LINES more)", text)
    text = re.sub(r"\b\d+\.\d+\.\d+(?:\+\w+)?", "VERSION", text)
    return text.split()


def differences(ours, theirs):
    """Where two lists of words differ: (begin, end) in the one and (begin, end) in the
    other, of each place.
    """
    # so that a number counts as the same that is nearly the same
    if len(ours) == len(theirs):
        theirs = [
            mine if alike(mine, other) else other
            for mine, other in zip(ours, theirs, strict=True)
        ]
    steps = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    return [
        places
        for what, *places in steps
        if what != "equal" and not all_alike(ours, theirs, *places)
    ]


def all_alike(ours, theirs, i, i_end, j, j_end):
    return i_end - i == j_end - j and all(map(alike, ours[i:i_end], theirs[j:j_end]))


def alike(one, other):
    """Whether two words are the same, or differ in decimal numbers by a part in a
    thousand at most.
    """
    if DECIMAL.sub("#", one) != DECIMAL.sub("#", other):
        return False
    pairs = zip(DECIMAL.findall(one), DECIMAL.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-3) for a, b in pairs)
