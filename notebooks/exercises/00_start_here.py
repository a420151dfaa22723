"""Exercises of lesson 00."""

import math

import torch

from utils.exercises import Exercise, Wrong, call
from utils.simulate.fake import fake_gpus


def check_size_in_bytes(answer):
    for x in (torch.zeros(3), torch.zeros(4, 5, dtype=torch.float64), torch.zeros(7, dtype=torch.int8)):
        shown = f"{x.numel()} numbers of {x.element_size()} bytes"
        got, expected = call(answer, x, shown=shown), x.numel() * x.element_size()
        if got != expected:
            raise Wrong(f"for {shown} you returned {got}, expected {expected}: each number takes element_size() bytes")


def check_device_type(answer):
    with fake_gpus():
        second_gpu = torch.ones(2, device="cuda:1")
    for x in (torch.ones(2), torch.ones(2, device="meta"), second_gpu):
        got = call(answer, x, shown=f"a tensor on {x.device}")
        if isinstance(got, torch.device):
            raise Wrong(f"for a tensor on {x.device} you returned a torch.device; its type alone is asked, as text")
        if got != x.device.type:
            raise Wrong(f"for a tensor on {x.device} you returned {got!r}, expected {x.device.type!r}")


def check_break_even(answer):
    for overhead, faster in ((50, 20), (10, 2), (50, 1), (50, 0.5)):
        expected = overhead * faster / (faster - 1) if faster > 1 else math.inf
        got = call(answer, overhead, faster, shown=f"overhead {overhead} and {faster} times faster")
        if not isinstance(got, (int, float)) or not math.isclose(got, expected, rel_tol=1e-6):
            why = "at that t both sides must be equal" if faster > 1 else "a device that is not faster never pays"
            raise Wrong(
                f"for overhead {overhead} and {faster} times faster you returned {got}, not {expected:.4g}: {why}"
            )


EXERCISES = [
    Exercise(
        number="00.1",
        title="How many bytes does a tensor hold?",
        name="size_in_bytes",
        stars=2,
        check=check_size_in_bytes,
        hints=["How many numbers, and how many bytes is each?", "Look at x.numel() and x.element_size()."],
        solution="""
def size_in_bytes(x):
    return x.numel() * x.element_size()
""",
        praise="PyTorch has this as x.nbytes. It counts the numbers, not what the allocator sets aside (lesson 07).",
        wrong={
            "def size_in_bytes(x):\n    return x.numel() + x.element_size()": "each number takes element_size() bytes",
            "def size_in_bytes(x):\n    return x.numel() * 4": "expected 160",
        },
    ),
    Exercise(
        number="00.2",
        title="Which type of device?",
        name="device_type",
        stars=2,
        check=check_device_type,
        hints=[
            "A tensor knows its device: x.device.",
            "A torch.device has two parts: a type and an index.",
            "x.device.type is text such as 'cuda'.",
        ],
        solution="""
def device_type(x):
    return x.device.type
""",
        praise="The index is a separate part, x.device.index; for the CPU it is None.",
        wrong={
            "def device_type(x):\n    return x.device": "its type alone is asked",
            "def device_type(x):\n    return str(x.device)": "you returned 'cuda:1', expected 'cuda'",
            "def device_type(x):\n    return 'cpu'": "for a tensor on meta you returned 'cpu'",
        },
    ),
    Exercise(
        number="00.3",
        title="When does another device pay?",
        name="break_even",
        stars=2,
        check=check_break_even,
        hints=[
            "Write down t = overhead + t / faster and solve it for t.",
            "t - t / faster = overhead, so t * (1 - 1 / faster) = overhead.",
            "t = overhead * faster / (faster - 1), but look at faster = 1 first.",
        ],
        solution="""
def break_even(overhead, faster):
    if faster <= 1:
        return float("inf")
    return overhead * faster / (faster - 1)
""",
        praise="For a fast device this is hardly more than the overhead itself: the overhead decides.",
        wrong={
            "def break_even(overhead, faster):\n    return overhead": "both sides must be equal",
            "def break_even(overhead, faster):\n    return overhead * faster / (faster - 1)": "ZeroDivisionError",
            "def break_even(overhead, faster):\n    return abs(overhead * faster / (faster - 1)) "
            "if faster != 1 else float('inf')": "a device that is not faster never pays",
        },
    ),
]
