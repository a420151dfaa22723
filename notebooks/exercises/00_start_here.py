"""Exercises of lesson 00."""

import math
import numbers

import torch

from utils.exercises import Exercise, Wrong, apart, call
from utils.simulate.fake import fake_gpus


def check_size_in_bytes(answer):
    shapes = [
        (torch.zeros(3), "a tensor of shape (3,) and type float32"),
        (torch.zeros(4, 5, dtype=torch.float64), "a tensor of shape (4, 5) and type float64"),
        (torch.zeros(7, dtype=torch.int8), "a tensor of shape (7,) and type int8"),
        (torch.zeros(2, 3, 4, dtype=torch.bfloat16), "a tensor of shape (2, 3, 4) and type bfloat16"),
        (torch.zeros(2, 9, dtype=torch.bool), "a tensor of shape (2, 9) and type bool"),
        (torch.zeros(5, dtype=torch.complex64), "a tensor of shape (5,) and type complex64"),
        (torch.zeros(()), "a single number, of shape () and type float32"),
        (torch.zeros(0, 5), "an empty tensor, of shape (0, 5) and type float32"),
        (torch.zeros(4, 6)[:2], "the first two rows of a 4 × 6 tensor of type float32"),
        (torch.zeros(4, 6)[:, :3], "the first three columns of a 4 × 6 tensor of type float32"),
        (torch.zeros(4, 6, device="meta"), "a tensor of shape (4, 6) and type float32 on the device meta"),
    ]
    for x, shown in shapes:
        expected = x.numel() * x.element_size()
        got = call(answer, x, shown=shown)
        if not isinstance(got, (int, float)):
            raise Wrong(f"for {shown} you returned {got!r}, expected a number of bytes")
        if got != expected:
            count = f"{x.numel()} number{'s' * (x.numel() != 1)}"
            why = f"{count}, and each number takes element_size() bytes, here {x.element_size()}"
            raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


def check_device_type(answer):
    names = ["cuda:1", "cuda:12", "xpu:0", "mps:0"]
    with fake_gpus():
        elsewhere = [torch.ones(2, device=name) for name in names]
    for x in (torch.ones(2), torch.ones(2, device="meta"), *elsewhere):
        shown, expected = f"a tensor on {x.device}", x.device.type
        got = call(answer, x, shown=shown)
        if isinstance(got, torch.device):
            raise Wrong(f"for {shown} you returned a torch.device; its type alone is asked, as text")
        if not isinstance(got, str) or got != expected:
            raise Wrong(f"for {shown} you returned {got!r}, expected {expected!r}")


COSTS = [(50, 20), (10, 2), (0, 4), (12.5, 100), (3, 1.25), (200, 1.01)]  # overhead in µs, times faster


def check_break_even(answer):
    for overhead, faster in COSTS:
        shown = f"an overhead of {overhead} µs and a device {faster} times as fast"
        expected = overhead * faster / (faster - 1)
        got = call(answer, overhead, faster, shown=shown)
        if not isinstance(got, numbers.Real):
            raise Wrong(f"for {shown} you returned {got!r}, expected the number {expected:.4g}")
        if math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-9):
            continue
        text, wanted = apart(float(got), expected)
        why = "such a device pays from some t on"
        if math.isfinite(got):
            there = apart(overhead + got / faster, float(got))[0]
            why = f"a job of {text} µs on the CPU takes {there} µs there, and both sides must be equal"
        raise Wrong(f"for {shown} you returned {text}, expected {wanted}: {why}")


EXERCISES = [
    Exercise(
        number="00.1",
        title="How many bytes does a tensor hold?",
        name="size_in_bytes",
        stars=1,
        check=check_size_in_bytes,
        hints=["How many numbers, and how many bytes is each?", "Look at x.numel() and x.element_size()."],
        solution="""
def size_in_bytes(x):
    return x.numel() * x.element_size()
""",
        praise="PyTorch has this as x.nbytes. It counts the numbers, not what the allocator sets aside (lesson 07).",
        right=[
            "def size_in_bytes(x):\n    return x.nbytes",
            "def size_in_bytes(x):\n    return x.dtype.itemsize * x.shape.numel()",
            "import math\ndef size_in_bytes(x):\n    return math.prod(x.shape) * x.itemsize",
            "def size_in_bytes(x):\n    return x.clone().untyped_storage().nbytes()",
            "def size_in_bytes(x):\n    return x.reshape(-1).contiguous().view(torch.uint8).shape[0]",
        ],
        wrong={
            "def size_in_bytes(x):\n    return x.numel() + x.element_size()": "each number takes element_size() bytes",
            "def size_in_bytes(x):\n    return x.numel() * 4": "expected 160",
            "def size_in_bytes(x):\n    return len(x) * x.element_size()": "you returned 32, expected 160: 20 numbers",
            "def size_in_bytes(x):\n    return x.untyped_storage().nbytes()": "for the first two rows",
            "def size_in_bytes(x):\n    return x.contiguous().untyped_storage().nbytes()": "96, expected 48",
            "def size_in_bytes(x):\n    return x.view(-1).shape[0] * x.element_size()": "for the first three columns",
            "def size_in_bytes(x):\n    return x.numpy().nbytes": "BFloat16",
            "def size_in_bytes(x):\n    if x.dtype == torch.bool:\n        return x.numel()\n"
            "    info = torch.finfo if x.is_floating_point() or x.is_complex() else torch.iinfo\n"
            "    return x.numel() * info(x.dtype).bits // 8": "type complex64 you returned 20, expected 40",
            "def size_in_bytes(x):\n    info = torch.finfo if x.is_floating_point() else torch.iinfo\n"
            "    return x.numel() * info(x.dtype).bits // 8": "for a tensor of shape (2, 9) and type bool",
            "def size_in_bytes(x):\n    return max(x.numel(), 1) * x.element_size()": "expected 0: 0 numbers",
            "import sys\ndef size_in_bytes(x):\n    return sys.getsizeof(x)": "expected 12: 3 numbers",
            "def size_in_bytes(x):\n    return torch.tensor(x.shape).prod() * x.element_size()": "expected a number of",
            "def size_in_bytes(x):\n    return x * x.element_size()": "expected a number of bytes",
        },
    ),
    Exercise(
        number="00.2",
        title="Which type of device?",
        name="device_type",
        stars=1,
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
        right=[
            "def device_type(x):\n    return str(x.device).split(':')[0]",
            "import re\ndef device_type(x):\n    return re.match('[a-z]+', str(x.device))[0]",
            "def device_type(x):\n    return torch.device(x.device).type",
            "from operator import attrgetter\ndevice_type = attrgetter('device.type')",
        ],
        wrong={
            "def device_type(x):\n    return x.device": "its type alone is asked",
            "def device_type(x):\n    return str(x.device)": "you returned 'cuda:1', expected 'cuda'",
            "def device_type(x):\n    return 'cpu'": "for a tensor on meta you returned 'cpu'",
            "def device_type(x):\n    return 'cuda' if x.is_cuda else 'cpu'": "expected 'meta'",
            "def device_type(x):\n    return str(x.device)[:4]": "for a tensor on xpu:0 you returned 'xpu:'",
            "def device_type(x):\n    return str(x.device)[:-2] if x.device.index else str(x.device)": "on cuda:12",
            "def device_type(x):\n    return x.type()": "you returned 'torch.FloatTensor', expected 'cpu'",
        },
    ),
    Exercise(
        number="00.3",
        title="When does another device pay?",
        name="break_even",
        stars=1,
        check=check_break_even,
        hints=[
            "Write down t = overhead + t / faster and solve it for t.",
            "t - t / faster = overhead, so t * (1 - 1 / faster) = overhead.",
            "Divide by (1 - 1 / faster).",
        ],
        solution="""
def break_even(overhead, faster):
    return overhead / (1 - 1 / faster)
""",
        praise="For a fast device this is hardly more than the overhead itself: the overhead decides.",
        right=[
            "def break_even(overhead, faster):\n    return overhead * faster / (faster - 1)",
            "def break_even(overhead, faster):\n"
            "    saved = 1 - 1 / faster  # of each µs\n"
            "    return torch.inf if saved <= 0 else overhead / saved",
            "import numpy as np\ndef break_even(overhead, faster):\n"
            "    return np.linalg.solve([[1, -1], [1, -1 / faster]], [0, overhead])[0]",
            "from fractions import Fraction\ndef break_even(overhead, faster):\n"
            "    times = Fraction(faster)\n"
            "    return overhead * times / (times - 1)",
            "def break_even(overhead, faster):\n"
            "    t = overhead\n"
            "    for _ in range(5000):\n        t = overhead + t / faster\n"
            "    return t",
        ],
        wrong={
            "def break_even(overhead, faster):\n    return overhead": (
                "you returned 50, expected 52.63: a job of 50 µs on the CPU takes 52.5 µs there, and both sides"
            ),
            "def break_even(overhead, faster):\n    return overhead / faster": "both sides must be equal",
            "def break_even(overhead, faster):\n    return overhead * faster // (faster - 1)": "expected 52.6",
            "def break_even(overhead, faster):\n"
            "    return overhead * faster / (faster - 1) if faster >= 2 else float('inf')": "pays from some t on",
            "def break_even(overhead, faster):\n    return round(overhead * faster / (faster - 1), 2)": "expected 52.632:",
            "def break_even(overhead, faster):\n    return str(overhead * faster / (faster - 1))": "expected the number 52",
            "def break_even(overhead, faster):\n    return float('inf')": "such a device pays from some t on",
            "def break_even(overhead, faster):\n    job = 1\n    while overhead + job / faster > job:\n"
            "        job += 1\n    return job": "you returned 53, expected 52.6",
        },
    ),
]
