"""What a text says in words: what to search for, and what is missing."""

import pytest
from growth import growth

from torch_messages import lookup, match, phrases, places
from torch_messages.phrases import NO_FRAME, NO_MESSAGE, missing, phrase, sentences

FRAMES = """\
[rank15]: Traceback (most recent call last):
[rank15]:   File "/work/train.py", line 876, in <module>
[rank15]:     main()
[rank15]:     ^^^^^^
[rank15]:"""
TITLE = "loss goes to NaN after 600K steps"
# a text → what to search for
PHRASES = {
    f"{TITLE}\n\n> optim:\n>   epochs: 15\n>   num_updates: 2000  # warmup": TITLE,
    f"Could you have a look?\n{FRAMES}": "Could you have a look?",
    f"thanks for the great work.\nI get odd losses on 2 nodes.\n{FRAMES}": (
        "I get odd losses on 2 nodes."
    ),
    "The old processes keep the T4.\n\nPID   GPU Memory\n3800979  5154 MiB": (
        "The old processes keep the T4."
    ),
    "Hello, thank you for this repo. \nI found a GPU memory leak here. \n"
    "Did you notice that from your side?": "I found a GPU memory leak here.",
    "Run on RTX 5060\n\ntorch   2.9.1+cu128\nCUDA toolkit 12.8": "Run on RTX 5060",
    'I installed torch and got the one for CPUs.\n```\nname = "torch"\n```': (
        "I installed torch and got the one for CPUs."
    ),
    "> pip install wheels/*.whl\nERROR: Cannot install a and b.\n\nTo fix this you"
    " could try to:\n1. loosen the range of versions": "Cannot install a and b.",
    "On Linux each worker has one.\n\n| | memory |\n|---|---|\n| fork | 11 GiB |": (
        "On Linux each worker has one."
    ),
    "<td>NaN</td>\n  <td>A parameter is shared with others.</td>\n <th>bf16</th>": (
        "A parameter is shared with others."
    ),
    "Odd\n\nHi, I see this:\n\n`RuntimeError: expected dtype float. `\n\nIt is odd.": (
        "expected dtype float."
    ),
    "a title (TypeError: Cannot interpret it)": "Cannot interpret it",
    "Qwen2.5-3B模型 OOM\n\n最新llamafactory、系统centos": "Qwen2.5-3B模型 OOM",
    "你好。我的多卡训练卡住不动。怎么办？": "我的多卡训练卡住不动。",
    "I installed `torch` on a machine that has a CUDA device, and\nit is slow.": (
        "I installed torch on a machine that has a CUDA device, and it is slow."
    ),
    "[rank0]:": "[rank0]:",
    "": "",
}


@pytest.mark.parametrize("text", PHRASES)
def test_what_to_search_for(text):
    assert phrase(text) == PHRASES[text]


def test_a_line_that_is_known_to_have_failed_goes_first():
    assert phrase(TITLE, "[rank1]: ValueError: odd") == "odd"
    assert phrase(f"{TITLE}\n\nValueError: odd things") == "odd things"


def test_sentences_are_prose():
    code = "import torch\nfrom a import b\nx = f(y for y in some list)\nprint(x and y)"
    log = "2026-11-29 15:00:00 it is the first step of all"
    for text in (code, log, "- [x] this is one of two", "/a/path/of/one", "Hi all,"):
        assert sentences(text) == []
    assert sentences("One is e.g. this one here. torch.compile is slow with it.") == [
        "One is e.g. this one here.",
        "torch.compile is slow with it.",
    ]


def test_a_traceback_without_its_last_line():
    assert missing(FRAMES) == NO_FRAME
    assert missing(f"{FRAMES}\nValueError: odd") == ""
    assert missing(FRAMES.replace("last", "first")) == ""  # of a program that waits
    assert lookup.answer(FRAMES, result=match.Result([], [])).startswith(NO_FRAME)


@pytest.mark.parametrize(
    "text",
    [
        "not working at Kaggle\n\nI try to run it on two GPUs, but failed.",
        "Why is it slower?\n\nI compile it. It takes long.",
        "Run on RTX 5060\n\ntorch   2.9.1",
    ],
)
def test_a_text_without_a_message(text):
    assert missing(text) == NO_MESSAGE
    shown = lookup.answer(text, result=match.Result([], []))
    assert " ".join(shown.split()).startswith(f"{NO_MESSAGE} Not known here")
    unknown = lookup.answer(text, result=match.Result([], [], "KeyError: 3"))
    assert "There is no message" not in unknown


@pytest.mark.parametrize(
    "text",
    [
        "frobnicate",
        "how do I choose num_workers?",
        "one line that may be a message",
        "prog: cannot open the file\nprog: end",
        "UserWarning: this is odd\n  it is",
        "the arena alloc failed:\nout of memory",
        'It now raises "You are using it with a meta device". Stay on 4.\nIt helps.',
        "<td>one</td>\n<td>two</td>",
        "RuntimeError: odd things",
        "Killed\n$",
        "",
    ],
)
def test_what_may_be_a_message_is_none_that_is_missing(text):
    assert missing(text) == ""


def test_time_grows_no_faster_than_a_text():
    text = "We see that the loss grows. It is the same on a GPU. " * 40_000
    for each in (text, text.replace(". ", ".\n"), text.replace(" ", "\n")):
        assert phrase(each) and missing(each) == NO_MESSAGE
        assert growth(phrase, each) < 20 and growth(missing, each) < 20


def test_a_frame_is_the_same_for_a_tracker():
    frame = phrases._rules()["FRAME"].pattern
    assert frame == places.read()["rules"]["FRAME"]
