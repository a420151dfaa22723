"""Where results come from: the device, its day and its versions, measured here or
recorded elsewhere.
"""

import contextlib
import datetime
import json
import os
import re
from dataclasses import dataclass

import torch

from device_lab import LabError
from utils.devices import cpu_name, name_of, pick_device, versions

EMULATED = "emulated "  # the name of an emulated device begins with it


class RecordingError(LabError):
    """A recording or a value that cannot be used."""


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
        """Whether the device is the one of packages/emulated_cuda."""
        return self.device.startswith(EMULATED)

    @property
    def facts(self):
        """What a claim keeps of it."""
        facts = {"device": self.device, "live": self.live}
        return facts if self.live else {**facts, "date": self.date}

    def __str__(self):
        if self.emulated:
            if self.live:
                return f"{self.device}: numbers and memory real, times modeled"
            version = self.machine.get("torch", "").split("+")[0]
            return (
                f"emulated CUDA device (PyTorch {version}'s own CUDA code, no GPU),"
                f" run on {self.date}"
            )
        # what `make record` runs is shown later: its pictures say so, too
        day = os.environ.get("LAB_RECORDED") if self.live else self.date
        when = f"recorded {day}" if day else "this run"
        return f"{self.device} ({'pretended, ' if self.pretended else ''}{when})"


# name of a result → Provenance, as far as this kernel has produced or replayed them
results = {}
# of each cell that runs now, the outer one first: name of the result that its header
# names, or None
running = []


def where(of: str | torch.device | Provenance = "cpu") -> Provenance:
    """Where a result comes from: its str() names the device and says whether it was
    measured here or recorded.

    of: the name of a result (`#| result: NAME` of a conditional cell above), a
    torch.device, or a device type such as "cpu". Raises RecordingError for any other
    name.
    """
    if isinstance(of, Provenance):
        return of
    if isinstance(of, str) and of in results:
        return results[of]
    kind = of.type if isinstance(of, torch.device) else of
    if not re.fullmatch("cpu|cuda|mps|xpu|xla|tpu|meta", kind):
        names = ", ".join(results) or "none so far"
        raise RecordingError(
            f"no result named {of!r}; results of this notebook: {names}"
        )
    return here(kind)


def origin(of: str | torch.device | Provenance | None = None) -> Provenance:
    """Where the numbers of a figure or a claim come from.

    of: as for `where`. None: the result that the cell's header names (`result:NAME` or
    `result: NAME`), or this CPU.
    """
    if of is not None:
        return where(of)
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


def here(word: str) -> Provenance:
    """Provenance of what a cell with `requires: word` measures now, on this machine.
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
    """Name of the device that a cell with `requires: word` uses on this machine."""
    word = word.split(":")[0]
    if word in pretending():
        return f"pretended {word} on {cpu_name()}"
    return name_of(_device_type(word))


def _device_type(word):
    if word not in ("accelerator", "tpu"):
        return {"compiler": "cpu", "triton": "cuda"}.get(word, word)
    kind = pick_device().type
    # torch_xla, and not TorchTPU
    return "xla" if word == "tpu" and kind != "tpu" else kind


def pretending() -> list[str]:
    """Device words that tests pretend to have on this machine (LAB_PRETEND=cuda,tpu).
    Never true for a reader.
    """
    return [word for word in os.environ.get("LAB_PRETEND", "").split(",") if word]


# --------------------------------------------------------------------------------------
# What the recorder asks a kernel


def as_json(name, value):
    """`value` as JSON would give it back, or a RecordingError that says what is in the
    way. name: of the result.
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
    source = here(word)
    machine = {"device": source.device, **source.machine}
    return json.dumps([machine, as_json(name, value) if name else None])
