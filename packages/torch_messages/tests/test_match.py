"""What people paste: whole messages, with what stands around them."""

from pathlib import Path

import pytest

from torch_messages import code, lookup, match
from torch_messages import messages as table

# the first line of each says where it must lead; "-": to nothing
PASTED = Path(__file__).with_name("messages.txt").read_text(encoding="utf-8")


def test_each_paste_leads_to_its_entry():
    wrong = []
    for pasted in PASTED.split("\n----\n"):
        right, message = pasted.split("\n", 1)
        ids = [found.entry.id for found in match.find(message)[0]]
        expected = set(right.split()) - {"-"}
        if not set(ids) <= expected or bool(ids) != bool(expected):
            wrong.append(f"{message[:200]!r} leads to {ids}, not to {right}")
    assert not wrong, "\n".join(wrong)


ERROR = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
AROUND = [
    "{}",
    "[rank0]: {}",
    "[rank3]:[E1120 14:44:07.101109672 Some.cpp:28] {}",
    'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
    "    step()\n{}",
    "/usr/lib/python3/x.py:35: UserWarning: something else\n  warn(\n{}",
    "\x1b[31m{}\x1b[0m",
]


@pytest.mark.parametrize("around", AROUND)
def test_what_stands_around_a_message_does_not_count(around):
    for error in (ERROR, ERROR.replace(" ", "\n"), ERROR.upper()):
        first, _ = match.find(around.format(error))
        assert [found.entry.id for found in first] == ["memory/cuda-oom"]


def test_the_cause_is_answered_not_its_cover():
    cover = "RuntimeError: Caught RuntimeError in DataLoader worker process 0."
    cause = f"{cover}\nOriginal Traceback (most recent call last):\n{ERROR}"
    assert match.find(cause)[0][0].entry.id == "memory/cuda-oom"
    assert match.find(cover)[0][0].entry.cover
    first, others = match.find(
        f"{ERROR}\n\nThe above exception was the direct cause of the following"
        " exception:\n\nRuntimeError: Cannot copy out of meta tensor; no data!"
    )
    assert first[0].entry.id == "memory/cuda-oom"
    assert [found.entry.id for found in others] == ["movement/no-data"]


def test_names_within_a_message_do_not_lead_to_their_row():
    said = "RuntimeError: torch.cuda.memory_cached and xm.mark_step had an odd day"
    assert match.find(said) == ([], [])


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: invalid argument",
        "ValueError: an error occurred",
        "is not implemented",
        "CUDA kernel errors might be asynchronously reported somewhere",
        "timed out",
        "shared memory",
        "hello",
        "torch",
        "frobnicate",
        "TypeError: forward() got an unexpected keyword argument 'pixel_values'",
        "ModuleNotFoundError: No module named 'pandas'",
        "IndexError: list index out of range",
        "The weather is fine today, and my model learns nothing at all",
    ],
)
def test_what_is_not_known_gets_no_guess(text):
    first, _ = match.find(text)
    assert [found.entry.id for found in first] == []


@pytest.mark.parametrize(
    ("text", "listing"),
    [
        ("KeyError: 'RANK'", False),
        ("RuntimeError: no", False),
        ("x.to(device)", True),
        ("for x in y:\na = 1\nb = 2\nif x:\nc = 3", True),
        ("CUDA error: out of memory", False),
        ("torch.cuda.is_available() is False on Windows after pip install", False),
        ("with autocast():\n    y = net(x)\n  loss = y.sum()", True),
    ],
)
def test_what_is_a_listing(text, listing):
    assert code.is_code(text) is listing


def test_names_are_written_in_full():
    source = "import torch.nn as n\nfrom torch.cuda.amp import autocast as a\n"
    listing = code.read(source + "with a():  # fast\n    y = n.Linear(1, 2)(x)")
    called = [each for line in listing.statements for each in line]
    assert "torch.cuda.amp.autocast" in called and "torch.nn.Linear" in called
    assert "fast" not in listing.words


def test_a_rare_word_says_more():
    assert table.weight({"ancdata"}) > table.weight({"cuda"})


def test_the_texts_of_a_program_are_no_messages():
    said = "Input type (double) and bias type (float) should be the same"
    program = f'def check(x):\n    raise TypeError("{said}")\n\n\ncheck(1)'
    assert match.find(program) == ([], [])
    assert "like this listing" in lookup.missed(program)
    assert match.find(program.replace("check(1)", f"check(1)  # {said}"))[0]
    assert match.find(f"TypeError: {said}")[0]
