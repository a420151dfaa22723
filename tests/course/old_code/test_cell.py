"""%%today: rows and listings are judged by what they do."""

import re

import pytest

from course.claims import ClaimError
from course.old_code import cell as today
from course.old_code import lookup, snippets
from course.old_code.row import TodayError, parse
from tests.conftest import text_of
from torch_messages.lookup import mentions
from torch_messages.messages import entries


def cell(old, new="print(1)", announced="fine", lines=""):
    today.run_cell(f"group/name: {announced}", f"{lines}{old}\n# ---- today\n{new}\n")


# --------------------------------------------------------------------------------------
# Verdicts and findings

VERDICTS = {  # announcement → old part, with a new part that prints 1
    "fine": "print(1)",
    'warns "FutureWarning: soon gone"': (
        "import warnings\nwarnings.warn('soon gone', FutureWarning)"
    ),
    'raises "ValueError: no such thing"': "raise ValueError('no such thing')",
    "wrong": "print(2)",
    "slower 3": "import time\ntime.sleep(0.2)\nprint(1)",
}


@pytest.mark.slow
@pytest.mark.parametrize("announced", VERDICTS)
def test_each_verdict_is_measured(announced, capsys, monkeypatch):
    cell(VERDICTS[announced], "import time\ntime.sleep(0.01)\nprint(1)", announced)
    shown, word = capsys.readouterr().out, announced.split()[0]
    assert shown.startswith(f"{today.SIGNS[word]} {word} · PyTorch ")
    assert "\n  today  prints 1" in shown and "Not on this device" not in shown
    monkeypatch.setenv("LAB_STRICT", "1")
    other = "wrong" if word != "wrong" else "raises"
    said = rf"^group/name: announced as {other}, but with PyTorch \S+ it is \w+: .*$"
    with pytest.raises(TodayError, match=said):
        cell(VERDICTS[announced], announced=other)


OF_TODAY = (
    r"the part of today must run without error and without warning, and with PyTorch"
    r" \S+ it says: "
)
# What a PyTorch of the future may do: (announcement, old part, new part, what is said
# of it)
FUTURES = {
    "other words": (
        'raises "gone"',
        "raise ValueError('no')",
        "print(1)",
        r"announced with the words 'gone', but PyTorch \S+ says: ValueError: no",
    ),
    "removed": (
        'warns "soon gone"',
        "torch.was_there_once",
        "print(1)",
        (
            r"announced as warns, but with PyTorch \S+ it is raises: AttributeError:"
            r" module 'torch' has no attribute"
        ),
    ),
    "the new part warns": (
        "fine",
        "print(1)",
        "import warnings\nwarnings.warn('hm')\nprint(1)",
        OF_TODAY + "UserWarning: hm",
    ),
    "the new part fails": (
        "fine",
        "print(1)",
        "from torch import private_thing",
        OF_TODAY + "ImportError",
    ),
    "slower no longer": (
        "slower 3",
        "print(2)",
        "print(1)",
        r"announced as slower, but with PyTorch \S+ it is wrong: 2",
    ),
}


@pytest.mark.parametrize("name", FUTURES)
def test_a_newer_pytorch_is_a_finding_and_the_cell_goes_on(name, capsys, monkeypatch):
    announced, old, new, said = FUTURES[name]
    cell(old, new, announced)
    shown = capsys.readouterr().out
    assert re.search(rf"(?s)\n  old    .*\n  today  .*group/name: {said}", shown)
    assert shown.count("group/name: ") == 1
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(TodayError, match="group/name: " + said):
        cell(old, new, announced)


def test_a_row_newer_than_this_pytorch_is_not_run(capsys, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    cell("print(1)", "1 / 0", 'raises "x"', "#: from 2.0: newer\n")
    shown = capsys.readouterr().out
    assert re.search(
        r"✓ fine.*\n  old    prints 1\n  today  is newer than PyTorch \d", shown
    )
    cell("print(2)", "print(1)", "wrong", "#: before 2.0: newer\n")
    assert "PyTorch before 2.0: the form of today is newer" in capsys.readouterr().out


def test_too_fast_is_a_missed_claim(monkeypatch, capsys):
    cell("print(1)", announced="slower 1000000")
    assert "Not on this device" in capsys.readouterr().out
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(ClaimError, match="the old form takes longer"):
        cell("print(1)", announced="slower 1000000")


@pytest.mark.parametrize(
    ("header", "body", "message"),
    [
        (
            "name fine",
            "1\n# ---- today\n1",
            "cannot read 'name fine': write %%today GROUP/NAME",
        ),
        (
            "a/b: good",
            "1\n# ---- today\n1",
            "known are fine, warns, raises, wrong, slower 5",
        ),
        (
            "a/b: fine",
            "1\n",
            "a row has an old part, a line `# ---- today`, a new part and",
        ),
        (
            "a/b: fine",
            "#: with gpu: fine\n1\n# ---- today\n1",
            "unknown condition 'with gpu'; known are before 2.11",
        ),
    ],
)
def test_what_cannot_be_read_is_said(header, body, message):
    with pytest.raises(TodayError, match=re.escape(message)):
        today.run_cell(header, body)


def test_the_first_condition_that_holds_counts(capsys):
    lines = (
        "#: before 2.0: raises\n#: from 2.0: wrong\n#: from 2.1: raises\n#: because"
        " so\n"
    )
    cell("print(2)", announced="fine", lines=lines)
    shown = capsys.readouterr().out
    assert shown.startswith("≠ wrong")
    assert "PyTorch before 2.0: raises" in shown and "elsewhere: fine" in shown
    cell("print(2)", announced="fine", lines="#: from 2.0: any\n")
    assert "≠ wrong" in capsys.readouterr().out


def test_no_path_of_the_machine_is_shown():
    told = {"error": ["OSError", ""], "warnings": [], "ended": ""}
    for path in [
        "/root/a/b.py",
        "/tmp/device-lab-1/snippet.py",
        r"C:\Users\me\lib\b.py",
        "/usr/lib/python3.11/x.py",
    ]:
        text = "cannot read {!r} (see https://pytorch.org/docs/main/notes.html)"
        told["error"][1] = text.replace("{!r}", path)
        name = re.split(r"[/\\]", path)[-1]
        assert today.said(told) == "OSError: " + text.replace("{!r}", f"…/{name}")


def test_entries_are_found_by_words_group_and_verdict():
    def ids(words):
        return [entry.id for entry in mentions(words, lookup.texts)]

    assert "amp/autocast" in ids("cuda.amp.autocast")
    assert "distributed/twice" in ids("default process group twice")
    html, alt = lookup.table("warning memory_cached gone", group="data")
    assert "0 that mention these words" in alt
    html, alt = lookup.table("net numpy cpu")
    assert "movement/numpy-grad" in alt and "Not known here" in alt
    assert ".cpu().numpy()" in html and "<code>" in html
    html, alt = lookup.table("can't convert cuda:0 device type tensor to numpy.")
    assert "1 found: movement/numpy-device" in alt
    assert "rows: amp/autocast" in lookup.table(group="amp", verdict="warns")[1]
    assert "paste yours" in lookup.table()[1]


def test_an_answer_has_message_reason_cure_lesson_and_place(capsys):
    lookup.look_up("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")
    shown = capsys.readouterr().out
    means = entries()["movement/numpy-device"].means
    assert means in " ".join(shown.split()) and "\nmeans   NumPy" in shown
    assert "\ndo      " in shown and ".cpu().numpy()" in shown
    assert "\nmore    lesson 02; row movement/numpy-device in section 5 of" in shown
    lookup.look_up("torch.cuda.memory_cached")
    shown = capsys.readouterr().out
    assert shown.startswith("! warns · torch.cuda.memory_cached\n")
    assert "torch.cuda.memory_reserved()" in shown
    # somebody has wrapped it
    lookup.look_up("… but found at least\ntwo devices, cuda:0 and cuda:1! (when")
    assert "row movement/two-gpus" in capsys.readouterr().out
    for text in ("nobody knows this", "frobnicate"):
        lookup.look_up(text)
        assert f"Not known here, and no guess. Search for “{text}”" in (
            capsys.readouterr().out.replace("\n        ", " ")
        )


def test_a_set_up_runs_before_each_part_and_is_no_part_of_them(capsys):
    cell("print(made)", "made += 1\nprint(made - 1)\n# ---- set-up\nmade = 1")
    shown = capsys.readouterr().out
    assert "✓ fine" in shown and shown.count("prints 1") == 2
    row = parse("a/b: fine", "old\n# ---- today\nnew\n# ---- set-up\nmade = 1\n")
    assert (row.old, row.new, row.setup) == ("old", "new", "made = 1")
    assert row.today == "new"
    written = "#: write with a:\n#: write     b\nold\n# ---- today\nnew\n"
    assert parse("a/b: fine", written).today == "with a:\n    b"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.skipif(snippets.METHOD == "spawn", reason="nothing is forked here")
def test_a_server_that_died_is_a_finding(strict, capsys, monkeypatch):
    monkeypatch.setattr(snippets, "PRELOAD", [])
    monkeypatch.setattr(today, "PRELUDE", "")
    monkeypatch.setenv("LAB_STRICT", "1" if strict else "")
    kill = "import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(100)"
    for action in (lambda: cell(kill), lambda: today.run_cell("", kill)):
        if strict:
            with pytest.raises(TodayError, match="has ended; run the cell again"):
                action()
        else:
            action()
            assert capsys.readouterr().out.endswith("has ended; run the cell again\n")


def test_verdicts_are_the_same_without_forks(monkeypatch, capsys):
    monkeypatch.setattr(snippets, "METHOD", "spawn")
    monkeypatch.setattr(today, "PRELUDE", "")
    cell("print(2)", "print(1)", "wrong")
    cell("raise ValueError('no')", "print(1)", 'raises "ValueError: no"')
    assert "≠ wrong" in (shown := capsys.readouterr().out) and "announced" not in shown


@pytest.mark.slow
def test_in_a_notebook(run):
    row = "%%today a/b: wrong\nprint(x.device)\n# ---- today\nprint('meta')"
    cells = run(
        "from course import old_code",
        row,
        row.replace("wrong", "fine"),
        "#| requires: compiler\n#| name: some_row\n" + row,
        "#| requires: tpu\n#| name: other_row\n" + row,
        "%%today\nimport sys\nprint(net(x).shape, sys.argv[1:], 'IPython' in"
        " sys.modules)",
    )
    texts = [text_of(cell) for cell in cells]
    assert texts[1].startswith("≠ wrong") and "prints cpu" in texts[1]
    assert re.search(
        r"≠ wrong.*a/b: announced as fine, but with PyTorch \S+ it is wrong: cpu",
        texts[2],
        re.S,
    )
    assert not any(output.output_type == "error" for output in cells[2].outputs)
    assert "≠ wrong" in texts[3] or "NOT RUN HERE" in texts[3]
    assert "NOT RUN HERE" in texts[4] and "torch.Size([4, 2]) [] False" in texts[5]
