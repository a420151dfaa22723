"""Does a cell give on a real device what it gave on the emulated one? One line a cell, for the report of a recording.

Only timeless cells have been recorded on the emulated device. Compared are the words that a cell printed, the texts of
its pictures and its value, whole numbers exactly. Left aside is what differs between two machines anyway: names of
devices, versions, addresses, line breaks, and in numbers with a decimal point what is below a part in a thousand.
"""

import itertools
import json
import math
import re

from utils import recordings

ASIDE = "but for names of devices, versions, addresses, decimals below 0.1%"
DECIMAL = re.compile(r"[-+]?\d+(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)")
CONTEXT = 6  # words before the first difference


def line(name, kept):
    """What the report says of the cell `name`, recorded now as `kept`; None if the emulated device has no such."""
    found = [cell for origin, cell in recordings.find(name, timeless=True) if origin.emulated]
    if not found:
        return None
    if found[0]["source"] != kept["source"]:
        return f"not compared with the emulated device: {name} (the cell has changed since then)"
    ours, theirs = words(kept), words(found[0])
    place = first_difference(ours, theirs)
    if place is None:
        return f"same as emulated: {name} ({ASIDE})"
    begin = max(0, place - CONTEXT)
    shown = [" ".join(each[begin : place + CONTEXT]) or "nothing more" for each in (ours, theirs)]
    return f"differs from the emulated device: {name}: “{shown[0]}”, emulated “{shown[1]}”"


def words(cell):
    """What a recorded cell shows and holds, as words, without what differs between two machines anyway."""
    texts = [output.get("text", output.get("alt", "")) for output in cell["outputs"]]
    text = "\n".join([*texts, json.dumps(cell["value"]) if "value" in cell else ""])
    device = cell["machine"]["device"].removeprefix(recordings.EMULATED)
    text = re.sub(rf"(?:{recordings.EMULATED})?{re.escape(device)}", "DEVICE", text)
    text = re.sub(r"DEVICE(?: \(this machine\)|: numbers and memory real, times modeled)", "DEVICE", text)
    text = re.sub(r"\b0x[0-9a-f]{4,}\b", "ADDRESS", text)
    text = re.sub(r"\b\d+\.\d+\.\d+(?:\+\w+)?", "VERSION", text)
    return text.split()


def first_difference(ours, theirs):
    """The place of the first word that differs, or None."""
    pairs = itertools.zip_longest(ours, theirs, fillvalue="")
    return next((n for n, pair in enumerate(pairs) if not alike(*pair)), None)


def alike(one, other):
    """Whether two words are the same, or differ in decimal numbers by a part in a thousand at most."""
    if DECIMAL.sub("#", one) != DECIMAL.sub("#", other):
        return False
    pairs = zip(DECIMAL.findall(one), DECIMAL.findall(other), strict=True)
    return all(math.isclose(float(a), float(b), rel_tol=1e-3) for a, b in pairs)
