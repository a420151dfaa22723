"""Results of conditional cells, with where they came from: store, find, replay.

A recording is one JSON file a lesson and machine: notebooks/recorded/<machine>/<lesson>.json. It holds plain
JSON values, plain text and PNG pictures, nothing that could be executed. Format:

    {"format": "pytorch-device-lab recording 1", "lesson": "02_tensors_on_devices", "pretended": false,
     "cells": {NAME: {"requires": "cuda", "source": HASH, "date": "2026-11-20", "seconds": 1.5,
                      "machine": {"device": "NVIDIA H200", "capability": "9.0", "driver": …, "cuda": …,
                                  "torch": …, "python": …, "system": …},
                      "value": …, "outputs": [{"text": "…"}, {"png": "base64", "alt": "…"}]}}}
"""

import contextlib
import datetime
import functools
import json
import os
import pathlib
import re
from dataclasses import dataclass

import torch

from utils.devices import cpu_name, name_of, pick_device, versions
from utils.messages import LabError, note, picture
from utils.paths import COURSE

FORMAT = "pytorch-device-lab recording 1"
FOLDER = COURSE / "notebooks" / "recorded"
KEYS = {"requires": str, "source": str, "date": str, "seconds": (int, float), "machine": dict, "outputs": list}
PNG = r"iVBORw0KGg[A-Za-z0-9+/]*={0,2}"  # a PNG file in base64: its signature, then anything


VERSIONS = ("torch", "cuda", "rocm", "driver", "torch_xla")  # what a reader is told of the machine
EMULATED = "emulated "  # the name of an emulated device begins with it


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from. device: its display name. live: measured by this kernel, on this machine.
    date: day of the measurement (ISO). machine: versions and further facts. pretended: a test double.

    An emulated device, as its results show it, is never called a GPU."""

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
            return f"emulated CUDA device (PyTorch {version}'s own CUDA code, no GPU), recorded {self.date}"
        when = "this machine" if self.live else f"recorded {self.date}"
        return f"{self.device} ({'pretended, ' if self.pretended else ''}{when})"


class RecordingError(LabError):
    """A recording or a value that cannot be used."""


# ---------------------------------------------------------------------------------------------------------------
# Where a result comes from

results = {}  # name of a result → Provenance, as far as this kernel has produced or replayed them
running = []  # of each cell that runs now, the outer one first: name of the result that its header names, or None
_said = set()  # what this kernel has told the reader about where replayed results come from


def where(of: str | torch.device | Provenance = "cpu") -> Provenance:
    """Where a result comes from: its str() names the device and says whether it was measured here or recorded.

    of: the name of a result (`--result NAME` of a conditional cell above), a torch.device, or a device type
    such as "cpu". Raises RecordingError for any other name.
    """
    if isinstance(of, Provenance):
        return of
    if isinstance(of, str) and of in results:
        return results[of]
    kind = of.type if isinstance(of, torch.device) else of
    if not re.fullmatch("cpu|cuda|mps|xpu|xla|tpu|meta", kind):
        known = ", ".join(results) or "none so far"
        raise RecordingError(f"no result named {of!r}; results of this notebook: {known}")
    return here(kind)


def default() -> Provenance:
    """Where numbers come from if a cell does not say: the result that its header names, or this CPU.

    The header names one by `result:NAME` or `--result NAME`.
    """
    name = running[-1] if running else None
    return results.get(name) or here("cpu")


@contextlib.contextmanager
def running_again(names):
    """For what is drawn after its cell has ended, as an explorer is. names: a copy of `running` from that cell."""
    running.extend(names)
    try:
        yield
    finally:
        del running[len(running) - len(names) :]


def origin(of=None, note: str | None = None) -> str:
    """What a figure or a claim says about where its numbers come from.

    of: as for `where`; None: as `default` says. note: what it says instead where no device has measured anything:
    "simulated", "computed".
    """
    if note is not None:
        return note
    if isinstance(of, str) and " " in of:  # a note, in the place of `of`
        return of
    return str(default() if of is None else where(of))


def here(word: str) -> Provenance:
    """Provenance of what a cell with `%%requires word` measures now, on this machine. word: also a device type."""
    word = word.split(":")[0]
    pretended = word in pretending()
    device = f"pretended {word} on {cpu_name()}" if pretended else name_of(_device_type(word))
    return Provenance(device, True, datetime.date.today().isoformat(), versions(), pretended)


def _device_type(word):
    if word not in ("accelerator", "tpu"):
        return {"compiler": "cpu", "triton": "cuda"}.get(word, word)
    found = pick_device().type
    return "xla" if word == "tpu" and found != "tpu" else found  # torch_xla, and not TorchTPU


def pretending() -> list[str]:
    """Device words that tests pretend to have on this machine (LAB_PRETEND=cuda,tpu). Never true for a reader."""
    return [word for word in os.environ.get("LAB_PRETEND", "").split(",") if word]


# ---------------------------------------------------------------------------------------------------------------
# Store


def plain(name, value):
    """`value` as JSON would give it back, or a RecordingError that says what is in the way."""
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RecordingError(
            f"result {name!r} cannot be recorded ({error}): use numbers, text, lists and dicts (tensor.tolist())"
        ) from None
    if back != value:
        raise RecordingError(
            f"result {name!r} would come back changed from a recording: use lists for tuples and text for keys"
        )
    return back


def known_here(word, name=None, value=None):
    """What only the kernel that ran a cell knows, as JSON: [facts about the device for `word`, value of result `name`].

    tools/record.py asks for it after each cell.
    """
    origin = here(word)
    return json.dumps([{"device": origin.device, **origin.machine}, plain(name, value) if name else None])


def store(folder, lesson, cells, pretended=False):
    """Write one lesson's recorded cells below `folder`, in a folder named after the machine. Returns the path."""
    folder = pathlib.Path(folder)
    if pretended and folder.resolve().is_relative_to(FOLDER.resolve()):
        raise RecordingError("pretended devices measure nothing: refused to write into notebooks/recorded")
    content = {"format": FORMAT, "lesson": lesson, "pretended": pretended, "cells": cells}
    path = folder / machine_slug(cells) / f"{lesson}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def machine_slug(cells):
    """Folder name for a machine: its most telling device, such as nvidia-h200."""
    rank = {"compiler": 2, "xla": 1}
    best = min(cells.values(), key=lambda cell: rank.get(cell["requires"], 0))["machine"]["device"]
    return re.sub(r"[^a-z0-9]+", "-", best.lower()).strip("-")


# ---------------------------------------------------------------------------------------------------------------
# Find


def load(path):
    """Cells of one recording file, checked. RecordingError where it is damaged or was not written by the course."""
    path = pathlib.Path(path)
    label = f"{path.parent.name}/{path.name}"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordingError(f"the recording {label} is damaged ({error}): fetch the course again") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("cells"), dict):
        raise RecordingError(f"{label} is not a recording of this course: move it out of notebooks/recorded")
    if content.get("pretended") and path.resolve().is_relative_to((COURSE / "notebooks" / "recorded").resolve()):
        raise RecordingError(f"{label} was made on a pretended device: remove it from notebooks/recorded")
    for name, cell in content["cells"].items():
        problem = _problem(cell)
        if problem:
            raise RecordingError(f"the recording {label} is damaged (cell {name!r}: {problem}): fetch the course again")
        cell["pretended"] = bool(content.get("pretended"))
    return content["cells"]


def _problem(cell):
    if not isinstance(cell, dict):
        return "not an object"
    for key, kind in KEYS.items():
        if not isinstance(cell.get(key), kind):
            return f"no {key}"
    if not all(isinstance(value, str) for value in cell["machine"].values()) or "device" not in cell["machine"]:
        return "no device name"
    for output in cell["outputs"]:
        if not isinstance(output, dict) or set(output) not in ({"text"}, {"png", "alt"}):
            return "an output that is neither text nor PNG"
        if not all(isinstance(value, str) for value in output.values()):
            return "an output that is neither text nor PNG"
        if "png" in output and not re.fullmatch(PNG, output["png"]):
            return "a picture that is no PNG"
    return None


@functools.cache
def _loaded(path, modified):
    """Cells of a recording; none, and one line said once, where it cannot be used."""
    try:
        return load(path)
    except RecordingError as error:
        note(f"Ignored: {error}")
        return {}


def find(name: str, timeless: bool = False) -> list[tuple[Provenance, dict]]:
    """All recordings of the result or cell `name`, newest first, as a list of (Provenance, cell) pairs.

    timeless: after those of real devices also those of the emulated one.
    """
    found = []
    for path in sorted(FOLDER.glob("*/*.json")):
        cells = _loaded(path, path.stat().st_mtime_ns)
        if name in cells:
            cell = cells[name]
            machine = cell["machine"]
            origin = Provenance(machine["device"], False, cell["date"], machine, cell["pretended"])
            if timeless or not origin.emulated:
                found.append((origin, cell))
    return sorted(found, key=lambda pair: (not pair[0].emulated, pair[0].date), reverse=True)


# ---------------------------------------------------------------------------------------------------------------
# Replay


def replay(name, missing, source, variables, timeless=False):
    """Show what a cell that cannot run here gave elsewhere, and put its recorded result into `variables`.

    name: of the result or cell, or None. missing: what this machine lacks. source: hash of the cell as it is
    now. variables: the notebook's namespace. timeless: what the emulated device gave will do.
    """
    if name:
        variables.pop(name, None)
        results.pop(name, None)
    found = find(name, timeless) if name else []
    if not found:
        note(
            f"Not run here: this cell needs {missing}. Nobody has recorded it yet; "
            "on a machine that has it, `make record` would. Nothing is shown, and nothing made up.",
            "unavailable",
        )
        return
    origin, cell = found[0]
    if origin.emulated:
        text = f"Emulated: this cell needs {missing}.\nShown instead: {origin}."
        again = f"Emulated: recorded {origin.date}, no GPU."
    else:
        mark = "a pretended device, " if origin.pretended else ""
        built = ", ".join(f"{key} {origin.machine[key]}" for key in VERSIONS if key in origin.machine)
        text = f"Not run here: this cell needs {missing}.\nShown instead: the result recorded on "
        text += f"{mark}{origin.device} on {origin.date} ({built})."
        again = f"Not run here: recorded on {origin.device} on {origin.date}."
    if text in _said and not origin.pretended:  # some lessons have dozens of such cells
        text = again
    else:
        _said.add(text)
    if cell["source"] != source:
        text += "\nThe cell has changed since then; what you see belongs to the cell as it was recorded."
    note(text, "emulated" if origin.emulated else "replayed")
    for output in cell["outputs"]:
        _show(output)
    if "value" in cell:
        variables[name] = json.loads(json.dumps(cell["value"]))
        results[name] = origin


def _show(output):
    if "text" in output:
        print(output["text"], end="" if output["text"].endswith("\n") else "\n")
    else:
        picture(output["png"], output["alt"])
