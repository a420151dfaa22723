"""From a lesson that has run to a recording: which cells, in which form
(course/recordings.py describes it), in which file.
"""

import contextlib
import datetime
import json
import pathlib
import re

from course import grammar, uses
from course.messages import NOT_LIVE, facts_of, state_of
from course.recordings import FOLDER, FORMAT, RecordingError
from device_lab import LabError
from tools.lessons import run
from tools.lessons.schemas import RECORDING, problem


def conditional(nb):
    """(header, cell) of each cell of a lesson that can be recorded somewhere."""
    found = []
    for cell in nb.cells:
        with contextlib.suppress(LabError):  # a wrong header: the cell will say so
            found.append((grammar.header(cell.source), cell))
    return [(header, cell) for header, cell in found if header and header.recordable]


def ran_live(cell):
    """Whether a cell that has run did so on this machine's devices."""
    return NOT_LIVE.isdisjoint(map(state_of, cell.outputs))


def claims_in(outputs):
    """What a cell claimed, from its outputs: the data of each claim."""
    facts = [facts_of(output) for output in outputs]
    return [fact["claim"] for fact in facts if "claim" in fact]


# --------------------------------------------------------------------------------------
# What is stored


def entry(client, cell, n, header, seconds):
    """A cell that has run, as a recording holds it. What the machine is and the
    result's value its kernel says.

    client: nbclient's, whose kernel has run it
    cell, n: the cell, and its number in the lesson
    header: the Header of the cell
    seconds: how long it took
    """
    arguments = repr(header.word)
    if header.kind == "result":
        arguments += f", {header.name!r}, {header.name}"
    # Not an import statement: it would bind a name, and a lesson may have one like it.
    question = (
        f"print(__import__('course.provenance').provenance.known_here({arguments}))"
    )
    answer = run.ask(client, n, question)
    printed = "".join(
        output.text for output in answer if output.get("name") == "stdout"
    )
    try:
        # a library may have printed something before
        machine, value = json.loads(printed.strip().splitlines()[-1])
    except (IndexError, ValueError):
        said = printed.strip()[-200:]
        raise LabError(
            f"the kernel did not say what {header.name!r} is, but: {said!r}"
        ) from None
    return {
        "requires": header.word,
        **uses.keys(client.nb.cells)[cell.id],
        "date": datetime.date.today().isoformat(),
        "seconds": round(seconds, 3),
        "machine": machine,
        "outputs": list(filter(None, map(_output, cell.outputs))),
        **({"value": value} if header.kind == "result" else {}),
    }


def _output(output):
    """An output as a recording holds it, or None."""
    if state_of(output) == "live":  # true on this machine only
        return None
    if output.get("name") == "stdout":
        return {"text": output.text}
    data = output.get("data", {})
    if "image/png" in data:
        png = data["image/png"].replace("\n", "")
        return {"png": png, "alt": data.get("text/plain", "")}
    if "text/plain" not in data:
        return None
    facts = facts_of(output)
    told = {name: facts[name] for name in ("claim", "error") if name in facts}
    return {"text": data["text/plain"], **told}


def claims_here(nb, stored):
    """What cells claimed of this machine's devices, by cell id; without those whose
    outputs are recorded.
    """
    found, keys = {}, uses.keys(nb.cells)
    for cell in nb.cells:
        claims = claims_in(cell.get("outputs", []))
        told = [claim for claim in claims if claim.get("live")]
        if told and ran_live(cell):
            header = grammar.header(cell.source)
            if header is None or header.name not in stored:
                found[cell.id] = {**keys[cell.id], "claims": told}
    return found


def not_stored(nb, stored, failures):
    """A line for each cell that could be recorded and is not, with the reason if it is
    not that the hardware lacks.
    """
    failed = {name for name, _ in failures}
    for header, cell in conditional(nb):
        if header.name in stored:
            continue
        why = ""
        if cell.id in failed:
            why = ": it failed"
        elif not cell.outputs:
            why = ": not reached"
        elif ran_live(cell):
            why = ": not timeless"
        yield f"{header.name} ({header.word}){why}"


def store(folder, lesson, cells, pretended=False, claims=None):
    """Write one lesson's recorded cells below `folder`, in a folder named after the
    machine. Returns the path.

    folder: such as notebooks/recorded
    lesson: its name, such as 02_tensors_on_devices
    cells: as `entry` gives them, by name
    pretended: whether a test only pretended to have the devices
    claims: what its other cells claimed of this machine's devices, by cell id
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
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    if wrong := problem(text, RECORDING):
        raise RecordingError(f"cannot be recorded: {wrong}")
    path = folder / _machine_folder(cells) / f"{lesson}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _machine_folder(cells):
    """Folder name for a machine: its most telling device, such as nvidia-h200."""
    rank = {"compiler": 2, "xla": 1}
    best = min(cells.values(), key=lambda cell: rank.get(cell["requires"], 0))
    # what is neither a letter nor a digit becomes a hyphen
    return re.sub(r"[^a-z0-9]+", "-", best["machine"]["device"].lower()).strip("-")
