"""Recordings: what is stored, found, refused, replayed."""

import base64
import json
import re

import pytest

from tests.conftest import ROOT, text_of
from utils import cells, recordings
from utils.recordings import RecordingError

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
ENTRY = {
    "requires": "cuda",
    "source": cells.source_hash("x = 1"),
    "date": "2026-11-20",
    "seconds": 1.5,
    "machine": {"device": "NVIDIA H200", "torch": "2.11.0", "cuda": "13.0", "driver": "580.1"},
    "outputs": [{"text": "hello\n"}, {"png": PNG, "alt": "a figure"}],
    "value": [1, 2.5, {"a": None}],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    return tmp_path


def test_stored_and_found(folder):
    path = recordings.store(folder, "02_tensors", {"bandwidth": ENTRY})
    assert path == folder / "nvidia-h200" / "02_tensors.json"
    ((origin, cell),) = recordings.find("bandwidth")
    assert (origin.device, origin.live, origin.date) == ("NVIDIA H200", False, "2026-11-20")
    assert cell["value"] == ENTRY["value"] and recordings.find("other") == []


def test_newest_comes_first(folder):
    old = {**ENTRY, "date": "2025-01-01", "machine": {"device": "Tesla T4"}}
    recordings.store(folder, "02_tensors", {"bandwidth": old})
    recordings.store(folder, "02_tensors", {"bandwidth": ENTRY})
    assert [origin.device for origin, _ in recordings.find("bandwidth")] == ["NVIDIA H200", "Tesla T4"]


EMULATED = {**ENTRY, "date": "2026-11-22", "machine": {"device": "emulated Tesla T4", "torch": "2.13.0+cu130"}}


def test_what_is_emulated_is_for_timeless_cells_and_gives_way_to_a_real_device(folder):
    path = recordings.store(folder, "02_tensors", {"bandwidth": EMULATED})
    assert path == folder / "emulated-tesla-t4" / "02_tensors.json"
    assert recordings.find("bandwidth") == []
    ((origin, _),) = recordings.find("bandwidth", timeless=True)
    assert str(origin) == "emulated CUDA device (PyTorch 2.13.0's own CUDA code, no GPU), recorded 2026-11-22"
    recordings.store(folder, "02_tensors", {"bandwidth": ENTRY})
    assert [origin.device for origin, _ in recordings.find("bandwidth", True)] == ["NVIDIA H200", "emulated Tesla T4"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is not a recording of this course"),
        ('{"format": "something else", "cells": {}}', "is not a recording of this course"),
    ],
)
def test_corrupt_and_foreign_files_are_one_line(folder, text, message):
    path = folder / "machine" / "02_tensors.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(RecordingError) as caught:
        recordings.load(path)
    assert message in str(caught.value) and "machine/02_tensors.json" in str(caught.value)
    assert "\n" not in str(caught.value) and str(folder) not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": [{"html": "<script>alert(1)</script>"}]},
        {"outputs": [{"text": "x", "application/javascript": "alert(1)"}]},
        {"outputs": [{"png": base64.b64encode(b"<svg onload=alert(1)>").decode(), "alt": ""}]},
        {"outputs": [{"png": "not base64!", "alt": ""}]},
        {"outputs": [{"text": 5}]},
        {"machine": {}},
        {"machine": {"device": 5}},
        {"date": None},
        {"seconds": "1"},
    ],
)
def test_a_recording_shows_text_and_png_only(folder, change):
    recordings.store(folder, "02_tensors", {"bandwidth": ENTRY})
    path = folder / "nvidia-h200" / "02_tensors.json"
    content = json.loads(path.read_text())
    content["cells"]["bandwidth"].update(change)
    path.write_text(json.dumps(content))
    with pytest.raises(RecordingError, match="is damaged"):
        recordings.load(path)


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "text", [1, [2.5]], {"a": {"b": []}}])
def test_values_with_json_form(value):
    assert recordings.plain("x", value) == value


def test_values_without_json_form_are_one_line():
    import torch

    for value in (torch.ones(2), {1, 2}, float("nan"), float("inf"), object()):
        with pytest.raises(RecordingError, match="cannot be recorded") as caught:
            recordings.plain("x", value)
        assert "\n" not in str(caught.value)
    for value in ((1, 2), {1: "a"}, [(1, 2)]):
        with pytest.raises(RecordingError, match="would come back changed"):
            recordings.plain("x", value)


def test_pretended_devices_never_reach_the_real_folder(tmp_path):
    with pytest.raises(RecordingError, match="pretended devices measure nothing"):
        recordings.store(ROOT / "notebooks" / "recorded", "02_tensors", {"x": ENTRY}, pretended=True)
    with pytest.raises(RecordingError, match="pretended devices measure nothing"):
        recordings.store(ROOT / "tests" / ".." / "notebooks" / "recorded" / "deep", "x", {"x": ENTRY}, pretended=True)
    assert not (ROOT / "notebooks" / "recorded" / "nvidia-h200-test").exists()


def test_a_pretended_file_in_the_real_folder_is_refused(tmp_path, monkeypatch):
    path = recordings.store(tmp_path / "elsewhere", "02_tensors", {"x": ENTRY}, pretended=True)
    assert recordings.load(path)["x"]["pretended"] is True
    monkeypatch.setattr(recordings, "COURSE", tmp_path)
    moved = tmp_path / "notebooks" / "recorded" / "m" / "02_tensors.json"
    moved.parent.mkdir(parents=True)
    moved.write_text(path.read_text())
    with pytest.raises(RecordingError, match="made on a pretended device"):
        recordings.load(moved)


def test_hash_ignores_header_and_spaces_but_not_code():
    same = cells.source_hash("%%requires cuda --result x\nx = 1\n")
    assert same == cells.source_hash("\nx = 1   \n\n") == cells.source_hash("%%requires cuda --name y\nx = 1")
    assert same != cells.source_hash("x = 2") and same != cells.source_hash("    x = 1\ny = 1")


def test_committed_recordings_are_sound():
    paths = sorted((ROOT / "notebooks" / "recorded").glob("*/*"))
    assert paths
    for path in paths:
        for name, cell in recordings.load(path).items():
            assert not cell["pretended"], name
            assert set(cell["machine"]) >= {"device", "torch", "python", "cpu"}
            if cell["requires"] in ("xla", "tpu"):
                assert "TPU" not in cell["machine"]["device"], "no TPU has recorded anything yet"


def test_emulated_recordings_are_of_timeless_cells_and_show_no_time_and_no_gpu():
    timeless = set()
    for lesson in (ROOT / "notebooks").glob("*.ipynb"):
        heads = re.findall(r"%%requires \S+ --(?:result|name) (\w+) --timeless", lesson.read_text(encoding="utf-8"))
        timeless.update(heads)
    time = re.compile(r"\d ?(ns|µs|us|ms|s)\b|\b[GMT]B/s|FLOP/s|samples/s")
    for path in sorted((ROOT / "notebooks" / "recorded").glob("emulated-*/*.json")):
        for name, cell in recordings.load(path).items():
            assert name in timeless, name
            shown = json.dumps([cell["outputs"], cell.get("value")], ensure_ascii=False)
            assert not time.search(shown) and "T4" not in shown and "H200" not in shown, (name, shown)


# ---------------------------------------------------------------------------------------------------------------
# Replay, in a real kernel

USE = "import pathlib\nfrom utils import recordings\nrecordings.FOLDER = pathlib.Path({folder!r})"
CELL = "%%requires cuda:64 --result bandwidth\nx = 1"


def test_replay_shows_text_picture_and_value_with_their_origin(run, tmp_path):
    recordings.store(tmp_path, "02_tensors", {"bandwidth": ENTRY})
    use, print_it = USE.format(folder=str(tmp_path)), "print(bandwidth, '|', where('bandwidth'))"
    _, cell, after, again = run(use, CELL, print_it, CELL)
    text = text_of(cell)
    assert (
        "Shown instead: the result recorded on NVIDIA H200 on 2026-11-20 (torch 2.11.0, cuda 13.0, driver 580.1)"
        in text
    )
    assert "hello" in text and "has changed" not in text
    assert cell.outputs[0].metadata["device_lab"]["state"] == "replayed"
    (picture,) = [o for o in cell.outputs if "image/png" in o.get("data", {})]
    assert picture.metadata["image/png"]["alt"] == "a figure" and picture.data["text/plain"] == "a figure"
    assert text_of(after).strip() == "[1, 2.5, {'a': None}] | NVIDIA H200 (recorded 2026-11-20)"
    assert text_of(again).startswith("Not run here: recorded on NVIDIA H200 on 2026-11-20.\n")  # the rest was said


def test_what_is_emulated_says_so_in_its_first_word(run, tmp_path):
    recordings.store(tmp_path, "02_tensors", {"bandwidth": EMULATED})
    timeless = CELL.replace("bandwidth", "bandwidth --timeless")
    _, without, cell, again, after = run(
        USE.format(folder=str(tmp_path)), CELL, timeless, timeless, "print(where('bandwidth'))"
    )
    assert "Nobody has recorded it yet" in text_of(without)
    said = "Shown instead: emulated CUDA device (PyTorch 2.13.0's own CUDA code, no GPU), recorded 2026-11-22."
    assert (
        text_of(cell).startswith("Emulated: this cell needs ") and said in text_of(cell) and "T4" not in text_of(cell)
    )
    assert text_of(again).startswith("Emulated: recorded 2026-11-22, no GPU.\n")
    assert cell.outputs[0].metadata["device_lab"]["state"] == "emulated"
    assert text_of(after).startswith("emulated CUDA device (PyTorch 2.13.0's own CUDA code, no GPU)")


def test_changed_cell_is_told(run, tmp_path):
    recordings.store(tmp_path, "02_tensors", {"bandwidth": ENTRY})
    _, cell = run(USE.format(folder=str(tmp_path)), CELL + "\nx = 2")
    assert "The cell has changed since then" in text_of(cell) and "hello" in text_of(cell)


def test_damaged_recording_is_one_line_and_does_not_hide_the_others(run, tmp_path):
    recordings.store(tmp_path, "02_tensors", {"bandwidth": ENTRY})
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "02.json").write_text("{")
    _, cell, again = run(USE.format(folder=str(tmp_path)), CELL, CELL)
    assert [o for o in cell.outputs if o.output_type == "error"] == []
    ignored = [
        line for line in text_of(cell).splitlines() if line.startswith("Ignored: the recording m/02.json is damaged")
    ]
    assert len(ignored) == 1 and "hello" in text_of(cell) and "Ignored" not in text_of(again)


def test_where_of_an_unknown_name_lists_the_known():
    with pytest.raises(RecordingError, match="no result named 'nonsense'"):
        recordings.where("nonsense")
