"""Recordings: what is stored, found, refused, replayed."""

import base64
import json
import math
import re

import nbformat
import pytest
import torch

from course import grammar, provenance, recordings, uses
from course.provenance import RecordingError
from tests.conftest import ROOT, errors_of, text_of
from tools.lessons import notebooks, recorder, schemas

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
ENTRY = {
    "requires": "cuda",
    "source": uses.source_key("x = 1"),
    "uses": {},
    "date": "2026-11-20",
    "seconds": 1.5,
    "machine": {
        "device": "NVIDIA H200",
        "torch": "2.11.0",
        "cuda": "13.0",
        "driver": "580.1",
    },
    "outputs": [{"text": "hello\n"}, {"png": PNG, "alt": "a figure"}],
    "value": [1, 2.5, {"a": None}],
}
OLD = {**ENTRY, "date": "2025-01-01", "machine": {"device": "Tesla T4"}}
EMULATED = {
    **ENTRY,
    "date": "2026-11-22",
    "machine": {"device": "emulated Tesla T4", "torch": "2.13.0+cu130"},
}
WITHOUT_GPU = (
    "emulated CUDA device (PyTorch 2.13.0's own CUDA code, no GPU), run on 2026-11-22"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    return tmp_path


def devices(timeless=False):
    return [origin.device for origin, _ in recordings.find("bandwidth", timeless)]


def test_what_was_stored_is_found_the_newest_first_and_the_emulated_last_if_it_will_do(
    folder,
):
    paths = [
        recorder.store(folder, "02_tensors", {"bandwidth": entry})
        for entry in (OLD, EMULATED)
    ]
    assert [path.relative_to(folder).as_posix() for path in paths] == [
        "tesla-t4/02_tensors.json",
        "emulated-tesla-t4/02_tensors.json",
    ]
    assert devices() == ["Tesla T4"]
    recorder.store(folder, "02_tensors", {"bandwidth": ENTRY})
    assert devices() == ["NVIDIA H200", "Tesla T4"]
    assert devices(timeless=True) == ["NVIDIA H200", "Tesla T4", "emulated Tesla T4"]
    origin, cell = recordings.find("bandwidth")[0]
    assert (origin.live, origin.date, cell["value"]) == (
        False,
        "2026-11-20",
        ENTRY["value"],
    )
    assert str(recordings.find("bandwidth", timeless=True)[-1][0]) == WITHOUT_GPU
    assert recordings.find("other") == []


SVG = base64.b64encode(b"<svg onload=alert(1)>").decode()
FOREIGN = '{"format": "something else", "cells": {}}'
# what is changed in a recorded cell, or the text of the file; whether a reader's kernel
# refuses the file (else it shows no more than text and PNG), how lint calls it
DAMAGED = [
    ("{", "is damaged", "Expecting property name"),
    (FOREIGN, "is not a recording of this course", "'something else'|required"),
    ("[1]", "is not a recording of this course", "is not of type 'object'"),
    ({"outputs": [{"html": "<script>alert(1)</script>"}]}, "is damaged", "outputs/0"),
    ({"outputs": [{"png": SVG, "alt": ""}]}, "is damaged", "outputs/0"),
    ({"outputs": [{"png": "not base64!", "alt": ""}]}, "is damaged", "outputs/0"),
    ({"outputs": [{"png": f'{PNG}" onload="a()', "alt": ""}]}, "is damaged", "outp"),
    ({"outputs": [{"png": PNG}]}, "is damaged", "outputs/0"),
    ({"outputs": [{"text": 5}]}, "is damaged", "outputs/0"),
    ({"outputs": 5}, "is damaged", "outputs"),
    ({"machine": {"device": 5}}, "is damaged", "machine/device"),
    ({"machine": {}}, "is damaged", "'device' is a required"),
    ({"outputs": [{"text": "x", "application/javascript": "a()"}]}, None, "outputs/0"),
    ({"outputs": [{"text": "x", "claim": {}}]}, None, "outputs/0"),
    ({"seconds": math.nan}, None, "NaN"),
    ({"html": "<b>"}, None, "html"),
]


@pytest.mark.parametrize(("change", "refused", "lint"), DAMAGED)
def test_what_is_damaged_foreign_or_more_than_text_and_png(
    folder, capsys, change, refused, lint
):
    path = recorder.store(folder, "02_tensors", {"bandwidth": ENTRY})
    text = change
    if isinstance(change, dict):
        content = json.loads(path.read_text(encoding="utf-8"))
        content["cells"]["bandwidth"].update(change)
        text = json.dumps(content)
        with pytest.raises(RecordingError, match="cannot be recorded"):
            recorder.store(folder, "02_tensors", content["cells"])
    path.write_text(text, encoding="utf-8")
    assert re.search(lint, schemas.problem(text, schemas.RECORDING))
    if refused is None:
        recordings.replay("bandwidth", "x", ENTRY["source"], {})
        assert "a()" not in capsys.readouterr().out
        return
    message = f"nvidia-h200/02_tensors.json.*{refused}"
    with pytest.raises(RecordingError, match=message) as caught:
        recordings.load(path)
    assert "\n" not in str(caught.value) and str(folder) not in str(caught.value)


def test_what_the_recorder_writes_fits_its_schema(folder):
    outputs = [{"text": "E: a", "error": {"kind": "E", "text": "E: a"}}]
    judged = {"a": {"source": "0", "uses": {}, "claims": [{"text": "a"}]}}
    cells = {"bandwidth": {**ENTRY, "outputs": outputs}}
    path = recorder.store(folder, "02_tensors", cells, claims=judged)
    assert schemas.problem(path.read_text("utf-8"), schemas.RECORDING) is None
    judged["a"]["claims"] = 1
    with pytest.raises(RecordingError, match="claims/a"):
        recorder.store(folder, "02_tensors", cells, claims=judged)


@pytest.mark.parametrize(
    "value", [torch.ones(2), {1, 2}, float("nan"), float("inf"), object()]
)
def test_values_without_json_form_are_one_line(value):
    with pytest.raises(RecordingError, match="cannot be recorded") as caught:
        provenance.as_json("x", value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, [(1, 2)]])
def test_values_that_json_would_change(value):
    with pytest.raises(RecordingError, match="would come back changed"):
        provenance.as_json("x", value)


@pytest.mark.parametrize(
    "place", ["notebooks/recorded", "tests/../notebooks/recorded/deep"]
)
def test_what_is_pretended_gets_neither_into_the_course_nor_out_of_it(
    tmp_path, monkeypatch, place
):
    with pytest.raises(RecordingError, match="pretended devices measure nothing"):
        recorder.store(ROOT / place, "02_tensors", {"x": ENTRY}, pretended=True)
    path = recorder.store(tmp_path / place, "02_tensors", {"x": ENTRY}, pretended=True)
    assert recordings.load(path)["x"]["pretended"] is True
    monkeypatch.setattr(recordings, "COURSE", tmp_path)
    with pytest.raises(RecordingError, match="made on a pretended device"):
        recordings.load(path)


# cells whose point is what a GPU is called, and where each line says EMULATED
NAMES_GPUS = {"detection_gpus"}


def test_committed_recordings_name_their_machine_and_emulated_ones_no_time_no_gpu():
    timeless = set()
    for lesson in notebooks.lessons():
        heads = [
            grammar.header(cell.source)
            for cell in nbformat.read(lesson, as_version=4).cells
        ]
        timeless.update(head.name for head in heads if head and head.timeless)
    time = re.compile(r"\d ?(ns|µs|us|ms|s)\b|\b[GMT]B/s|FLOP/s|samples/s")
    paths = sorted((ROOT / "notebooks" / "recorded").glob("*/*"))
    assert paths
    for path in paths:
        for name, cell in recordings.load(path).items():
            assert set(cell["machine"]) >= {"device", "torch", "python", "cpu"}, name
            # what stands in for a TPU ends with the words "no TPU"
            assert not cell["machine"]["device"].startswith("TPU"), (
                "no TPU has recorded anything yet"
            )
            if path.parent.name.startswith("emulated-"):
                shown = json.dumps(
                    [cell["outputs"], cell.get("value")], ensure_ascii=False
                )
                # a claim names its device, which says itself what it is
                named = re.search("(?<!emulated Tesla )T4|H200", shown)
                named = named and name not in NAMES_GPUS
                assert name in timeless, name
                assert not named and not time.search(shown), (name, shown)


# --------------------------------------------------------------------------------------
# Replay, in a real kernel

CELL = "#| requires: cuda:64\n#| result: bandwidth\nx = 1"


@pytest.fixture
def replay(run, tmp_path):
    """replay(entries, *sources): run cells where only `entries` are recorded."""

    def go(entries, *sources):
        for entry in entries:
            recorder.store(tmp_path, "02_tensors", {"bandwidth": entry})
        use = f"""import pathlib
from course import provenance, recordings
recordings.FOLDER = pathlib.Path({str(tmp_path)!r})"""
        return run(use, *sources)[1:]

    return go


def test_replay_shows_text_picture_and_value_with_their_origin(replay):
    read = (
        "#| requires: result:bandwidth\nprint(bandwidth, '|', where('bandwidth'), '|',"
        " provenance.origin())"
    )
    cell, after, again, changed = replay([ENTRY], CELL, read, CELL, CELL + "\nx = 2")
    facts = (
        "NVIDIA H200 on 2026-11-20 (torch 2.11.0, cuda 13.0, driver 580.1). This cell"
        " needs "
    )
    text = text_of(cell)
    assert (
        text.startswith(f"RECORDED · {facts}")
        and "hello" in text
        and "has changed" not in text
    )
    assert cell.outputs[0].metadata["device_lab"]["state"] == "replayed"
    (picture,) = [o for o in cell.outputs if "image/png" in o.get("data", {})]
    assert (
        picture.metadata["image/png"]["alt"] == "a figure"
        and picture.data["text/plain"] == "a figure"
    )
    origin = "NVIDIA H200 (recorded 2026-11-20)"
    assert text_of(after).strip() == f"[1, 2.5, {{'a': None}}] | {origin} | {origin}"
    # the rest was said
    assert text_of(again).startswith("RECORDED · NVIDIA H200 on 2026-11-20\nhello")
    assert "The cell has changed since then" in text_of(changed) and "hello" in text_of(
        changed
    )


@pytest.mark.parametrize("device", ["TPU v5e", "TorchTPU on XLA's CPU device, no TPU"])
def test_what_torchtpu_gave_names_it_its_version_and_its_device(replay, device):
    machine = {"device": device, "torch": "2.13.0", "torch_tpu": "0.2.0"}
    (cell,) = replay([{**ENTRY, "machine": machine}], CELL)
    facts = "on 2026-11-20 (torch 2.13.0, torch_tpu 0.2.0). This cell needs "
    assert text_of(cell).startswith(f"RECORDED · {device} {facts}")


def test_a_claim_that_was_recorded_does_not_speak_of_this_run(replay):
    said = "✓ a rule: 2 (claimed ≥ 1) · NVIDIA H200 (this run)"
    claim = {"text": said, "claim": {"text": "a rule", "value": 2}}
    printed = {"text": "printed (this run)\n"}
    (cell,) = replay([{**ENTRY, "outputs": [claim, printed]}], CELL)
    assert said.replace("this run", "recorded 2026-11-20") in text_of(cell)
    assert "printed (this run)" in text_of(cell)


def test_what_is_emulated_says_so_in_its_first_word(replay):
    timeless = CELL.replace("bandwidth\n", "bandwidth\n#| timeless: true\n", 1)
    without, cell, again, after = replay(
        [EMULATED], CELL, timeless, timeless, "print(where('bandwidth'))"
    )
    assert re.fullmatch("NOT RUN HERE · needs .*; not recorded yet", text_of(without))
    assert text_of(cell).startswith(
        f"EMULATED · {WITHOUT_GPU}. This cell needs "
    ) and "T4" not in text_of(cell)
    assert text_of(again).startswith("EMULATED · run on 2026-11-22, no GPU\nhello")
    assert cell.outputs[0].metadata["device_lab"]["state"] == "emulated"
    assert text_of(after).strip() == WITHOUT_GPU


def test_damaged_recording_is_one_line_and_does_not_hide_the_others(replay, tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "02.json").write_text("{")
    cell, again = replay([ENTRY], CELL, CELL)
    ignored = re.findall(
        "^Ignored: the recording m/02.json is damaged", text_of(cell), re.M
    )
    assert (
        errors_of(cell) == []
        and len(ignored) == 1
        and "hello" in text_of(cell)
        and "Ignored" not in text_of(again)
    )
