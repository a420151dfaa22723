"""Results of conditional cells, with where they came from: store, find, replay.

A recording is one JSON file a lesson and machine:
notebooks/recorded/<machine>/<lesson>.json. It holds plain JSON values, plain text and
PNG pictures, nothing that could be executed. Format:

    {"format": "pytorch-device-lab recording 1", "lesson": "02_tensors_on_devices", "pretended": false,
     "cells": {NAME: {"requires": "cuda", "source": HASH, "date": "2026-11-20", "seconds": 1.5,
                      "machine": {"device": "NVIDIA H200", "capability": "9.0", "driver": …, "cuda": …,
                                  "torch": …, "python": …, "system": …},
                      "value": …, "outputs": [{"text": "…"}, {"png": "base64", "alt": "…"}]}},
     "claims": {CELL ID: {"source": HASH, "lines": ["✓ what other cells claimed there"]}}}

What others have measured stands in notebooks/recorded/published.json, by the NAME of
the cell that asks the same:

    {NAME: [{"experiment": "what was measured, and how it differs from the cell", "who": …, "link": "https://…",
             "date": "published 2012", "figures": [{"device": …, "what": …, "value": 5.77, "unit": "GB/s"}]}]}
"""

import contextlib
import datetime
import functools
import html
import json
import math
import os
import pathlib
import re
import types
from dataclasses import dataclass

import torch

from utils.course import COURSE
from utils.devices import cpu_name, name_of, pick_device, versions
from utils.messages import LabError, note, picture

FORMAT = "pytorch-device-lab recording 1"
FOLDER = COURSE / "notebooks" / "recorded"
TEXT = r"(?s).*"
# a PNG file in base64: its signature, then anything
PNG = r"iVBORw0KGg[A-Za-z0-9+/]*={0,2}"
# What a recorded cell and a published source must look like: `_misfit` reads it.
CELL = {"requires": TEXT, "source": TEXT, "date": TEXT, "seconds": float, "*": object}
CELL |= {
    "machine": {"device": TEXT, "*": TEXT},
    "outputs": [({"text": TEXT}, {"png": PNG, "alt": TEXT})],
}
CLAIMS = {"*": {"source": TEXT, "lines": [TEXT]}}
SOURCE = {
    "experiment": ".+",
    "who": ".+",
    "date": r"(published|measured|read) \d{4}\b.*",
}
SOURCE |= {
    "link": r"https://[^\s\"'<>]+",
    "figures": [{"device": ".+", "what": ".+", "value": float, "unit": ".+"}],
}

# what a reader is told of the machine
VERSIONS = ("torch", "cuda", "rocm", "driver", "torch_xla")
EMULATED = "emulated "  # the name of an emulated device begins with it


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from. device: its display name. live: measured by this
    kernel, on this machine. date: day of the measurement (ISO). machine: versions and
    further facts. pretended: a test double.

    An emulated device, as its results show it, is never called a GPU.
    """

    device: str
    live: bool
    date: str
    machine: dict
    pretended: bool = False

    @property
    def emulated(self):
        """Whether the device is the emulated one of tests/emulator."""
        return self.device.startswith(EMULATED)

    def __str__(self):
        if self.emulated:
            if self.live:
                return f"{self.device}: numbers and memory real, times modeled"
            version = self.machine.get("torch", "").split("+")[0]
            return (
                f"emulated CUDA device (PyTorch {version}'s own CUDA code, no GPU),"
                f" recorded {self.date}"
            )
        when = "this machine" if self.live else f"recorded {self.date}"
        return f"{self.device} ({'pretended, ' if self.pretended else ''}{when})"


class RecordingError(LabError):
    """A recording or a value that cannot be used."""


# --------------------------------------------------------------------------------------
# Where a result comes from

# name of a result → Provenance, as far as this kernel has produced or replayed them
results = {}
# of each cell that runs now, the outer one first: name of the result that its header
# names, or None
running = []
# what this kernel has told the reader about where replayed results come from
_said = set()


def where(of: str | torch.device | Provenance = "cpu") -> Provenance:
    """Where a result comes from: its str() names the device and says whether it was
    measured here or recorded.

    of: the name of a result (`--result NAME` of a conditional cell above), a
    torch.device, or a device type such as "cpu". Raises RecordingError for any other
    name.
    """
    if isinstance(of, Provenance):
        return of
    if isinstance(of, str) and of in results:
        return results[of]
    kind = of.type if isinstance(of, torch.device) else of
    if not re.fullmatch("cpu|cuda|mps|xpu|xla|tpu|meta", kind):
        known = ", ".join(results) or "none so far"
        raise RecordingError(
            f"no result named {of!r}; results of this notebook: {known}"
        )
    return here(kind)


def default_origin() -> Provenance:
    """Where numbers come from if a cell does not say: the result that its header names,
    or this CPU.

    The header names one by `result:NAME` or `--result NAME`.
    """
    name = running[-1] if running else None
    return results.get(name) or here("cpu")


@contextlib.contextmanager
def running_again(names):
    """For what is drawn after its cell has ended, as an explorer is. names: a copy of
    `running` from that cell.
    """
    running.extend(names)
    try:
        yield
    finally:
        del running[len(running) - len(names) :]


def origin(of=None) -> str:
    """What a figure or a claim says about where its numbers come from. of: as for
    `where`; None: `default_origin()`.
    """
    return str(default_origin() if of is None else where(of))


def here(word: str) -> Provenance:
    """Provenance of what a cell with `%%requires word` measures now, on this machine.
    word: also a device type.
    """
    pretended = word.split(":")[0] in pretending()
    return Provenance(
        device_here(word),
        True,
        datetime.date.today().isoformat(),
        versions(),
        pretended,
    )


def device_here(word: str) -> str:
    """Name of the device that a cell with `%%requires word` uses on this machine."""
    word = word.split(":")[0]
    return (
        f"pretended {word} on {cpu_name()}"
        if word in pretending()
        else name_of(_device_type(word))
    )


def _device_type(word):
    if word not in ("accelerator", "tpu"):
        return {"compiler": "cpu", "triton": "cuda"}.get(word, word)
    found = pick_device().type
    # torch_xla, and not TorchTPU
    return "xla" if word == "tpu" and found != "tpu" else found


def pretending() -> list[str]:
    """Device words that tests pretend to have on this machine (LAB_PRETEND=cuda,tpu).
    Never true for a reader.
    """
    return [word for word in os.environ.get("LAB_PRETEND", "").split(",") if word]


# --------------------------------------------------------------------------------------
# Store


def plain(name, value):
    """`value` as JSON would give it back, or a RecordingError that says what is in the
    way.
    """
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RecordingError(
            f"result {name!r} cannot be recorded ({error}): use numbers, text, lists"
            " and dicts (tensor.tolist())"
        ) from None
    if back != value:
        raise RecordingError(
            f"result {name!r} would come back changed from a recording: use lists for"
            " tuples and text for keys"
        )
    return back


def known_here(word, name=None, value=None):
    """What only the kernel that ran a cell knows, as JSON: [facts about the device for
    `word`, value of result `name`].

    tools/record.py asks for it after each cell.
    """
    origin = here(word)
    return json.dumps(
        [
            {"device": origin.device, **origin.machine},
            plain(name, value) if name else None,
        ]
    )


def store(folder, lesson, cells, pretended=False, claims=None):
    """Write one lesson's recorded cells below `folder`, in a folder named after the
    machine. Returns the path.

    claims: what its other cells claimed of this machine's devices, by cell id.
    """
    folder = pathlib.Path(folder)
    if pretended and folder.resolve().is_relative_to(FOLDER.resolve()):
        raise RecordingError(
            "pretended devices measure nothing: refused to write into"
            " notebooks/recorded"
        )
    content = {
        "format": FORMAT,
        "lesson": lesson,
        "pretended": pretended,
        "cells": cells,
    }
    content |= {"claims": claims} if claims else {}
    path = folder / machine_slug(cells) / f"{lesson}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    return path


def machine_slug(cells):
    """Folder name for a machine: its most telling device, such as nvidia-h200."""
    rank = {"compiler": 2, "xla": 1}
    best = min(cells.values(), key=lambda cell: rank.get(cell["requires"], 0))[
        "machine"
    ]["device"]
    return re.sub(r"[^a-z0-9]+", "-", best.lower()).strip("-")


# --------------------------------------------------------------------------------------
# Find


def load(path):
    """Cells of one recording file, checked. RecordingError where it is damaged or was
    not written by the course.
    """
    path = pathlib.Path(path)
    label = f"{path.parent.name}/{path.name}"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(
            f"the recording {label} is damaged ({error}): fetch the course again"
        ) from None
    if (
        not isinstance(content, dict)
        or content.get("format") != FORMAT
        or not isinstance(content.get("cells"), dict)
    ):
        raise RecordingError(
            f"{label} is not a recording of this course: move it out of"
            " notebooks/recorded"
        )
    if content.get("pretended") and path.resolve().is_relative_to(
        (COURSE / "notebooks" / "recorded").resolve()
    ):
        raise RecordingError(
            f"{label} was made on a pretended device: remove it from notebooks/recorded"
        )
    for name, cell in content["cells"].items():
        if place := _misfit(cell, CELL, name):
            raise RecordingError(
                f"the recording {label} is damaged (see cell {place}): fetch the course"
                " again"
            )
        cell["pretended"] = bool(content.get("pretended"))
    if place := _misfit(content.get("claims", {}), CLAIMS, "claims"):
        raise RecordingError(
            f"the recording {label} is damaged (see {place}): fetch the course again"
        )
    return content["cells"]


def load_published(path):
    """What others have measured, as a list of sources by name of the cell.
    RecordingError where it is damaged.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        found = {
            name: kept if isinstance(kept, list) else [kept]
            for name, kept in content.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        raise RecordingError(
            f"recorded/published.json is damaged ({error}): fetch the course again"
        ) from None
    for name, sources in found.items():
        place = _misfit(sources, [SOURCE], name)
        if place or not all(source["figures"] for source in sources):
            raise RecordingError(
                f"recorded/published.json is damaged (see {place or name}): fetch the"
                " course again"
            )
    return found


def _misfit(value, form, place):
    """Where in `value` something has not the form that it must have, or None.

    form: a regular expression, float for a finite number, object for anything; a tuple
    of forms, one of which must fit; a list with the form of all elements; a dict of
    forms by key, "*" for keys that it does not name.
    """
    if isinstance(form, tuple):
        return None if None in [_misfit(value, each, place) for each in form] else place
    parts = []
    if isinstance(form, list):
        well = isinstance(value, list)
        parts = [(each, form[0], place) for each in value] if well else []
    elif isinstance(form, dict):
        well = isinstance(value, dict) and form.keys() - {"*"} <= value.keys()
        parts = (
            [
                (value[key], form.get(key, form.get("*")), f"{place}, {key}")
                for key in value
            ]
            if well
            else []
        )
    elif form is float:
        well = type(value) in (int, float) and math.isfinite(value)
    else:
        well = (
            form is object
            or isinstance(value, str)
            and isinstance(form, str)
            and re.fullmatch(form, value)
        )
    return (
        next(filter(None, (_misfit(*part) for part in parts)), None) if well else place
    )


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
    sources = [
        (s["figures"], {"who": s["who"], "link": s["link"], "date": s["date"]})
        for s in _published(name)
    ]
    return [
        types.SimpleNamespace(**figure, **by)
        for figures, by in sources
        for figure in figures
    ]


def _published(name):
    path = FOLDER / "published.json"
    return _loaded(path, path.stat().st_mtime_ns).get(name, []) if path.exists() else []


# --------------------------------------------------------------------------------------
# Replay


def replay(name, missing, source, variables, timeless=False):
    """Show what a cell that cannot run here gave elsewhere, and put its recorded result
    into `variables`.

    The first that there is: recorded on a real device (beside it what others have
    published), recorded on the emulated one, published by others (which sets no
    variable), one quiet line. name: of the result or cell, or None. missing: what this
    machine lacks. source: hash of the cell as it is now. variables: the notebook's
    namespace. timeless: what the emulated device gave will do.
    """
    if name:
        variables.pop(name, None)
        results.pop(name, None)
    found = find(name, timeless) if name else []
    others = _published(name) if name and not (found and found[0][0].emulated) else []
    if found:
        _show_recorded(name, missing, source, variables, *found[0])
    for entry in others:
        _show_published(
            entry,
            ""
            if found or entry is not others[0]
            else f" (This cell needs {_once(missing)}.)",
        )
    if not found and not others:
        note(f"needs {_once(missing)}; not recorded yet", "unavailable")


def _once(missing):
    """What this machine lacks, the first time with the reason."""
    if missing in _said:
        return missing.partition(", and ")[0]
    _said.add(missing)
    return missing


def _show_recorded(name, missing, source, variables, origin, cell):
    text = str(origin) if origin.emulated else f"{origin.device} on {origin.date}"
    if text in _said and not origin.pretended:  # some lessons have dozens of such cells
        text = f"recorded {origin.date}, no GPU" if origin.emulated else text
    else:
        _said.add(text)
        built = ", ".join(
            f"{key} {origin.machine[key]}" for key in VERSIONS if key in origin.machine
        )
        mark = "a pretended device, " if origin.pretended else ""
        text = (
            f"{mark}{text}{'' if origin.emulated else f' ({built})'}. This cell needs"
            f" {missing}."
        )
    if cell["source"] != source:
        text += (
            "\nThe cell has changed since then; what you see belongs to the cell as it"
            " was recorded."
        )
    note(text, "emulated" if origin.emulated else "replayed")
    for output in cell["outputs"]:
        _show(output)
    if "value" in cell:
        variables[name] = json.loads(json.dumps(cell["value"]))
        results[name] = origin


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
    cells = [
        "".join(
            f'<td style="text-align: left">{html.escape(text)}</td>' for text in row
        )
        for row in rows
    ]
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    table = f'<table style="margin: 0.3em 0; color: inherit">{table}</table>'
    note(
        "\n".join(plain),
        "published",
        f'{device}<a href="{link}">{who}</a>, {date}<br>{about}{table}',
    )


def _show(output):
    if "text" in output:
        print(output["text"], end="" if output["text"].endswith("\n") else "\n")
    else:
        picture(output["png"], output["alt"])
