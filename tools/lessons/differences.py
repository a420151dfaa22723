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

from course import recordings, uses
from course.provenance import EMULATED

ASIDE = "but for names of devices, versions, addresses, decimals below 0.1%"
# numbers with a decimal point or an exponent: 1.5, -2.0e-06, 3e8
DECIMAL = re.compile(r"[-+]?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
CONTEXT, SHOWN = 4, 3  # words before a difference; differences that the line shows


def line(name, kept):
    """What the report says of the cell `name`, recorded now as `kept`; None if the
    emulated device has no such.
    """
    found = recordings.find(name, timeless=True)
    emulated = [cell for origin, cell in found if origin.emulated]
    if not emulated:
        return None
    if change := uses.changed(emulated[0], kept):
        return f"not compared with the emulated device: {name} ({change} since then)"
    ours, theirs = words(kept), words(emulated[0])
    places = differences(ours, theirs)
    if not places:
        return f"same as emulated: {name} ({ASIDE})"
    shown = [_shown(ours, theirs, *place) for place in places[:SHOWN]]
    if len(places) > SHOWN:
        shown.append(f"{len(places) - SHOWN} more")
    here, there = (_version(cell) for cell in (kept, emulated[0]))
    built = "" if here == there else f" (PyTorch {here}, emulated {there})"
    return f"differs from the emulated device{built}: {name}: {'; '.join(shown)}"


def _shown(ours, theirs, i, i_end, j, j_end):
    """One difference, at most 20 words, with the words before it."""
    before = " ".join(ours[max(0, i - CONTEXT) : i])
    mine = " ".join(ours[i:i_end][:20]) or "nothing"
    other = " ".join(theirs[j:j_end][:20]) or "nothing"
    return f"after “{before}” {mine} (emulated: {other})"


def _version(cell):
    return cell["machine"].get("torch", "?").split("+")[0]


def words(cell):
    """What a recorded cell shows and holds, as words, without what differs between two
    machines anyway.
    """
    texts = [output.get("text", output.get("alt", "")) for output in cell["outputs"]]
    text = "\n".join([*texts, json.dumps(cell["value"]) if "value" in cell else ""])
    device = cell["machine"]["device"].removeprefix(EMULATED)
    text = re.sub(rf"(?:{EMULATED})?{re.escape(device)}", "DEVICE", text)
    # what LIVE and EMULATED say behind the name
    said = r"DEVICE(?: \(this run\)|: numbers and memory real, times modeled)"
    text = re.sub(said, "DEVICE", text)
    text = re.sub(r"\b0x[0-9a-f]{4,}\b", "ADDRESS", text)
    text = re.sub(r"(\.(?:cpp|cu|h|py)):\d+", r"\1:LINE", text)
    text = re.sub(r"\(\d+ more lines?\)", "(LINES more)", text)
    text = re.sub(r"\b\d+\.\d+\.\d+(?:\+\w+)?", "VERSION", text)
    return text.split()


def differences(ours, theirs):
    """Where two lists of words differ: (begin, end) in the one and (begin, end) in the
    other, of each place.
    """
    shapes = [[DECIMAL.sub("#", word) for word in side] for side in (ours, theirs)]
    steps = difflib.SequenceMatcher(None, *shapes, autojunk=False).get_opcodes()
    found = []
    for what, i, i_end, j, j_end in steps:
        if what != "equal":
            found.append((i, i_end, j, j_end))
            continue
        for n, m in zip(range(i, i_end), range(j, j_end), strict=True):
            if not alike(ours[n], theirs[m]):
                found.append((n, n + 1, m, m + 1))
    return found


def alike(one, other):
    """Whether the decimal numbers in two words differ by a part in a thousand at most.
    The words are the same but for these.
    """
    pairs = zip(DECIMAL.findall(one), DECIMAL.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-3) for a, b in pairs)
