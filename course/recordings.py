"""What conditional cells gave elsewhere: find it, and show it.

A recording is one JSON file a lesson and machine, written by tools/record.py:
notebooks/recorded/<machine>/<lesson>.json. It holds plain JSON values, plain text and
PNG pictures, nothing that could be executed. Format:

    {"format": "pytorch-device-lab recording 1",
     "lesson": "02_tensors_on_devices", "pretended": false,
     "cells": {NAME: {
        "requires": "cuda", "source": HASH, "uses": {NAME: HASH},
        "date": "2026-11-20", "seconds": 1.5,
        "machine": {"device": "NVIDIA H200", "capability": "9.0", "driver": …,
                    "cuda": …, "torch": …, "python": …, "system": …},
        "value": …,
        "outputs": [{"text": "…"}, {"text": "✓ …", "claim": CLAIM},
                    {"text": "…", "error": ERROR}, {"png": "base64", "alt": "…"}]}},
     "claims": {CELL ID: {"source": HASH, "uses": {NAME: HASH}, "claims": [CLAIM]}}}

CLAIM is what `claim` puts into the metadata of its output (course/claims.py), ERROR
what `expect_error` does (course/expected.py); "claims" has those of cells that are not
recorded. What the hashes are of says course/uses.py. tools/lessons/schemas.py has all
of it as a schema.

What others have measured stands in notebooks/recorded/published.json, by the NAME of
the cell that asks the same:

    {NAME: [{"experiment": "what was measured, and how it differs from the cell",
             "who": …, "link": "https://…", "date": "published 2012",
             "figures": [{"device": …, "what": …, "value": 5.77, "unit": "GB/s"}]}]}
"""

import contextlib
import functools
import html
import itertools
import json
import pathlib
import re
import types

from course import grammar, uses
from course.messages import note, picture
from course.paths import COURSE
from course.provenance import Provenance, RecordingError, results

FORMAT = "pytorch-device-lab recording 1"
FOLDER = COURSE / "notebooks" / "recorded"
# a PNG file in base64: its signature, then anything
PNG = r"iVBORw0KGg[A-Za-z0-9+/]*={0,2}"
LINK = r"https://[^\s\"'<>]+"

# what a reader is told of the machine
VERSIONS = ("torch", "cuda", "rocm", "driver", "torch_xla", "torch_tpu")
# what this kernel has told the reader about where replayed results come from
_said = set()


# --------------------------------------------------------------------------------------
# Find


def load(path):
    """The recorded cells of one file by name. RecordingError as `read`."""
    return read(path)["cells"]


def read(path):
    """What one recording file holds. RecordingError where it was not written by the
    course, or holds what `replay` cannot show as text and PNG.
    """
    path = pathlib.Path(path)
    label = f"{path.parent.name}/{path.name}"
    with _damage(f"the recording {label}"):
        content = json.loads(path.read_text(encoding="utf-8"))
    if (
        not isinstance(content, dict)
        or content.get("format") != FORMAT
        or not isinstance(content.get("cells"), dict)
    ):
        raise RecordingError(
            f"{label} is not a recording of this course: move it out of"
            " notebooks/recorded"
        )
    committed = (COURSE / "notebooks" / "recorded").resolve()
    if content.get("pretended") and path.resolve().is_relative_to(committed):
        raise RecordingError(
            f"{label} was made on a pretended device: remove it from notebooks/recorded"
        )
    with _damage(f"the recording {label}"):
        for cell in content["cells"].values():
            _usable(cell)
            cell["pretended"] = bool(content.get("pretended"))
            cell["lesson"] = path.stem
    return content


def _usable(cell):
    """Raises an error where a recorded cell has not what is shown of it, in the form in
    which it is safe to show (the rest is checked where it is written).
    """
    texts = [cell["source"], cell["date"], cell["machine"]["device"]]
    texts += [*cell["machine"].values(), *cell.get("uses", {}).values()]
    for output in cell["outputs"]:
        if "png" in output and not re.fullmatch(PNG, output["png"]):
            raise ValueError("no PNG")
        texts.append(output["alt"] if "png" in output else output["text"])
    _all_text(texts)


def _all_text(values):
    if not all(isinstance(value, str) for value in values):
        raise TypeError("no text")


def load_published(path):
    """What others have measured, as a list of sources by name of the cell.
    RecordingError where it cannot be shown.
    """
    with _damage("recorded/published.json"):
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        found = {
            name: kept if isinstance(kept, list) else [kept]
            for name, kept in content.items()
        }
        for source in itertools.chain.from_iterable(found.values()):
            _all_text(source[key] for key in ("experiment", "who", "date"))
            # it becomes the target of a link, and these the columns of a table
            if not re.fullmatch(LINK, source["link"]) or not source["figures"]:
                raise ValueError("no link, or no figures")
            for figure in source["figures"]:
                _all_text(figure[key] for key in ("device", "what", "unit"))
                format(figure["value"], ".4g")
    return found


@contextlib.contextmanager
def _damage(what):
    """Whatever reading a file meets that is no recording, as one RecordingError."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise RecordingError(
            f"{what} is damaged ({why}): fetch the course again"
        ) from None


@functools.cache
def _loaded(path, modified):
    """What a file holds; nothing, and one line said once, where it cannot be used."""
    try:
        return load_published(path) if path.name == "published.json" else load(path)
    except RecordingError as error:
        note(f"Ignored: {error}")
        return {}


def find(name: str, timeless: bool = False) -> list[tuple[Provenance, dict]]:
    """All recordings of the result or cell `name`, newest first, as a list of
    (Provenance, cell) pairs.

    timeless: after those of real devices also those of the emulated one.
    """
    found = []
    for path in sorted(FOLDER.glob("*/*.json")):
        cells = _loaded(path, path.stat().st_mtime_ns)
        if name in cells:
            cell = cells[name]
            machine = cell["machine"]
            origin = Provenance(
                machine["device"], False, cell["date"], machine, cell["pretended"]
            )
            if timeless or not origin.emulated:
                found.append((origin, cell))
    return sorted(
        found, key=lambda pair: (not pair[0].emulated, pair[0].date), reverse=True
    )


def published(name: str) -> list[types.SimpleNamespace]:
    """What others have measured in the experiment of the result or cell `name`, perhaps
    nothing.

    Each figure has .device, .what, .value, .unit, .who, .link and .date ("published
    2012"; or measured, or read).
    """
    found = []
    for source in _published(name):
        by = {key: source[key] for key in ("who", "link", "date")}
        found += [types.SimpleNamespace(**figure, **by) for figure in source["figures"]]
    return found


def _published(name):
    path = FOLDER / "published.json"
    if not path.exists():
        return []
    return _loaded(path, path.stat().st_mtime_ns).get(name, [])


# --------------------------------------------------------------------------------------
# Replay


def shown(found, sources, timeless):
    """What a cell shows that cannot run here, the first that there is: recorded on a
    real device (beside it what others have published), recorded on the emulated one,
    published by others, nothing. As (state, recordings, published sources).

    found: recordings as (Provenance, anything) pairs, newest first
    sources: what others have published
    timeless: whether what the emulated device gave will do
    """
    real = [pair for pair in found if not pair[0].emulated]
    emulated = [pair for pair in found if pair[0].emulated]
    if real:
        return "replayed", real, sources
    if emulated and timeless:
        return "emulated", emulated, []
    return "published" if sources else "unavailable", [], sources


def replay(name, missing, source, variables, timeless=False):
    """Show what a cell that cannot run here gave elsewhere (`shown` says what), and put
    its recorded result into `variables`. What is published sets no variable.

    name: of the result or cell, or None
    missing: what this machine lacks
    source: hash of the cell as it is now (course/uses.py)
    variables: the notebook's namespace
    timeless: what the emulated device gave will do
    """
    found, sources = [], []
    if name:
        variables.pop(name, None)
        results.pop(name, None)
        found, sources = find(name, timeless), _published(name)
    state, found, sources = shown(found, sources, timeless)
    if found:
        _show_recorded(name, missing, source, variables, *found[0])
    for entry in sources:
        first = not found and entry is sources[0]
        needs = f" (This cell needs {_once(missing)}.)" if first else ""
        _show_published(entry, needs)
    if state == "unavailable":
        note(f"needs {_once(missing)}; not recorded yet", state)


def _once(missing):
    """What this machine lacks, the first time with the reason."""
    if missing in _said:
        return missing.partition(", and ")[0]
    _said.add(missing)
    return missing


def built_with(machine):
    """What a reader is told of the versions on a machine."""
    return ", ".join(f"{key} {machine[key]}" for key in VERSIONS if key in machine)


def _show_recorded(name, missing, source, variables, origin, cell):
    text = str(origin) if origin.emulated else f"{origin.device} on {origin.date}"
    if text in _said and not origin.pretended:  # some lessons have dozens of such cells
        text = f"run on {origin.date}, no GPU" if origin.emulated else text
    else:
        _said.add(text)
        if not origin.emulated:
            text += f" ({built_with(origin.machine)})"
        mark = "a pretended device, " if origin.pretended else ""
        text = f"{mark}{text}. This cell needs {missing}."
    uses_now = _used_in(cell["lesson"]).get(name, cell.get("uses", {}))
    if change := uses.changed(cell, {"source": source, "uses": uses_now}):
        text += (
            f"\n{change[0].upper()}{change[1:]} since then; what you see belongs to the"
            " cell as it was recorded."
        )
    note(text, "emulated" if origin.emulated else "replayed")
    for output in cell["outputs"]:
        _show(output, origin.date)
    if "value" in cell:
        variables[name] = json.loads(json.dumps(cell["value"]))
        results[name] = origin


@functools.cache
def _used_in(lesson):
    """{name of a conditional cell: what it uses from above} in a lesson of the course;
    nothing where its file cannot be read, as while a reader changes it.
    """
    path = COURSE / "notebooks" / f"{lesson}.ipynb"
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        keys = uses.keys(cells)
        heads = {
            cell["id"]: grammar.header("".join(cell["source"]))
            for cell in uses.code_cells(cells)
        }
    except (OSError, ValueError, KeyError, grammar.RequiresError):
        return {}
    return {head.name: keys[id]["uses"] for id, head in heads.items() if head}


def _show_published(entry, needs):
    """A card, with a column for each device. All that comes from the file is escaped:
    it is text, and one link.
    """
    value = {}
    for figure in entry["figures"]:
        four_digits = float(format(figure["value"], ".4g"))
        value[figure["what"], figure["device"]] = f"{four_digits:,g} {figure['unit']}"
    whats, devices = (list(dict.fromkeys(names)) for names in zip(*value, strict=True))
    rows = [
        [what, *(value.get((what, device), "–") for device in devices)]
        for what in whats
    ]
    device = f"{devices[0]} · " if len(devices) == 1 else ""
    rows = rows if device else [["", *devices], *rows]
    about = entry["experiment"] + needs
    plain = [
        f"{device}{entry['who']} ({entry['link']}), {entry['date']}",
        about,
        *map(" | ".join, rows),
    ]
    device, about, who, link, date = map(
        html.escape, (device, about, entry["who"], entry["link"], entry["date"])
    )
    table = ""
    for row in rows:
        cells = [
            f'<td style="text-align: left">{html.escape(text)}</td>' for text in row
        ]
        table += f"<tr>{''.join(cells)}</tr>"
    table = f'<table style="margin: 0.3em 0; color: inherit">{table}</table>'
    rich = f'{device}<a href="{link}">{who}</a>, {date}<br>{about}{table}'
    note("\n".join(plain), "published", rich)


def _show(output, date):
    if "text" in output:
        text = output["text"]
        if "claim" in output:  # it was made when the cell ran live
            text = text.replace("(this run)", f"(recorded {date})")
        print(text, end="" if text.endswith("\n") else "\n")
    else:
        picture(output["png"], output["alt"])
