"""Exercises of lesson 02."""

import contextlib
import logging
import math
import re

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from course import expect
from course.answers import DOTS, NotAnswered, Wrong, call, state
from course.exercises import Exercise
from exercises.doubles.watch import Moves
from simulate.fake import fake_gpus
from simulate.waits import CountWaits


def _pair(got, shown, names):
    """`got` as two numbers, or what is wrong with it."""
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"for {shown} you returned {got!r}, expected a pair ({names})")
    if not all(map(expect.is_number, got)):
        returned = " ".join(repr(got).split())
        raise Wrong(
            f"for {shown} you returned {returned}; Python numbers are asked, as a pair"
            f" ({names})"
        )
    return got


@contextlib.contextmanager
def _gpus():
    """fake_gpus(); an operation that an answer tries in vain is not logged with its
    traceback.
    """
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        with fake_gpus():
            yield
    finally:
        log.disabled = before


class NoNumber(TorchFunctionMode):
    """Refuses a move to "cuda", the one without a number: PyTorch would ask a real GPU
    which one is meant.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        given = [*args, *kwargs.values()]
        places = [str(x) for x in given if isinstance(x, (str, torch.device))]
        if "cuda" in places or (name == "cuda" and len(given) == 1):
            raise Wrong(
                f"your function moves a tensor to 'cuda' ({name}): move it to the"
                " device that it was given"
            )
        return function(*args, **kwargs)


def check_zeros_beside(answer):
    with _gpus():
        _check_zeros(answer, torch.ones(2), 3)
        _check_zeros(answer, torch.ones(2, 2, device="meta"), 4)
        _check_zeros(answer, torch.tensor(1.0, device="cuda:1"), 1)
        _check_zeros(answer, torch.ones(5, device="cuda:0"), 2)
    before = torch.are_deterministic_algorithms_enabled()
    # fills what torch.empty leaves unwritten with NaN
    torch.use_deterministic_algorithms(True)
    try:
        x, shown = torch.ones(2), "x on cpu and n = 3"
        got = call(answer, x, 3, shown=shown)
    finally:
        torch.use_deterministic_algorithms(before)
    if got.tolist() != [0, 0, 0]:
        raise Wrong(f"for {shown} you returned {got.tolist()}, expected three zeros")


def _check_zeros(answer, x, n):
    shown = f"x on {x.device} and n = {n}"
    with Moves() as moves:
        got = call(answer, x, n, shown=shown)
    default = torch.get_default_device()
    if default.type != "cpu":
        torch.set_default_device(None)
        raise Wrong(
            f"for {shown} your function leaves {default} as the default device: say"
            " device= instead"
        )
    expect.instance(got, torch.Tensor, shown, "a tensor")
    if got.device != x.device:
        raise Wrong(
            f"for {shown} your tensor is on {got.device}: say device= when you make it"
        )
    expect.equal(tuple(got.shape), (n,), shown, said="the shape is")
    if moves.names:
        raise Wrong(
            f"for {shown} your tensor was made elsewhere, and moved ({moves.names[0]}):"
            " make it there"
        )


LINES = {
    'x.to("cpu", torch.float32)': (
        "x is on the CPU and float32 already, so .to hands back x itself"
    ),
    "x[2:].to(torch.float64)": "numbers of another size need memory of their own",
    'x[2:].to("cpu").float()': "a slice is a view, and neither call has anything to do",
    "x.reshape(2, 3).T.cpu()": (
        "the table is on the CPU already, and .cpu() asks for no order"
    ),
    "x.reshape(2, 3).T.contiguous()": (
        "the transposed view is not in order, so contiguous() must rewrite it"
    ),
    "x.reshape(2, 3).T.reshape(6)": (
        "no view of x has its numbers in this order, so reshape must copy"
    ),
}


def check_copies(answer):
    answer = expect.listed(answer)
    if not isinstance(answer, (list, tuple)) or len(answer) != len(LINES):
        raise Wrong(
            f"expected a list of {len(LINES)} values, one for each line, got {answer!r}"
        )
    x = torch.arange(6.0)
    for given, (line, why) in zip(answer, LINES.items(), strict=True):
        if not isinstance(given, int) or given not in (False, True):
            raise Wrong(f"for {line} you said {given!r}: write True or False")
        result = eval(line, {"torch": torch, "x": x})
        copied = result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        if given != copied:
            verb = "has a storage of its own" if copied else "shares the storage of x"
            raise Wrong(
                f"for {line} you said {bool(given)}, but the result {verb}: {why}"
            )


LINKS = [  # latency in s, bandwidth in bytes/s, two sizes in bytes
    (10e-6, 25e9, 10**6, 10**8),
    (2.5e-6, 10e9, 10**6, 10**4),
    (0.0, 1e9, 4000, 1000),
    (3.0, 2.5, 10, 20),
]


def check_link_from_two(answer):
    for latency, bandwidth, n1, n2 in LINKS:
        t1, t2 = latency + n1 / bandwidth, latency + n2 / bandwidth
        shown = f"{n1} bytes in {t1:.5g} s and {n2} bytes in {t2:.5g} s"
        got = expect.listed(call(answer, n1, t1, n2, t2, shown=shown))
        first, second = _pair(got, shown, "latency, bandwidth")
        if math.isclose(first, bandwidth, rel_tol=1e-3):
            raise Wrong(
                "the order is another one: the latency comes first, then the bandwidth"
            )
        expect.close(
            second,
            bandwidth,
            shown,
            "take the difference of the two measurements, for there the latency drops"
            " out",
            slips=[
                (1 / bandwidth, "that is seconds per byte, so take the reciprocal"),
                (bandwidth / 1e9, "that is in GB/s, and bytes per second are asked"),
                (-bandwidth, "subtract bytes and times the same way round"),
            ],
            said="you returned a bandwidth of",
            unit=" bytes per second",
            rel_tol=1e-3,
        )
        expect.close(
            first,
            latency,
            shown,
            "it is what remains of a time when the time of its bytes is taken off",
            slips=[(latency * 1e6, "that is in µs, and seconds are asked")],
            said="you returned a latency of",
            unit=" s",
            rel_tol=1e-3,
            abs_tol=1e-5 * min(t1, t2),  # as exact as float32
        )


def check_ensure_same_device(answer):
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    errors = []
    with _gpus():
        for tensors, may_meet, why in _meetings():
            error, shown = _raised(answer, tensors), _described(tensors)
            if may_meet and error is not None:
                raise Wrong(
                    f"{shown} must pass, {why}; you raised"
                    f" {type(error).__name__}: {error}"
                )
            if may_meet:
                continue
            if error is None:
                raise Wrong(f"for {shown} you raised nothing: {why}")
            if not isinstance(error, ValueError):
                raise Wrong(
                    f"for {shown} expected a ValueError, you raised"
                    f" {type(error).__name__}: {error}"
                )
            errors.append((tensors, str(error)))
    for tensors, message in errors:
        _check_names(message, tensors)


def _meetings():
    """Tensors, whether they may meet, and why."""
    cpu, meta = torch.ones(2), torch.ones(2, device="meta")
    first, second, third = (torch.ones(2, device=f"cuda:{i}") for i in range(3))
    number, there = torch.tensor(1.0), torch.tensor(1.0, device="cuda:0")
    whole, one = torch.ones(2, dtype=torch.int64), torch.ones(1)
    two = "cuda:0 and cuda:1 are two devices"
    apart = "the number may pass, but the two others may not meet"
    joins = "a number on the CPU may join any device"
    return [
        ((cpu, torch.ones(3, 3)), True, "they share a device"),
        ((cpu, whole), True, "they share a device, and types do not matter"),
        ((meta, cpu), False, "they do not share a device"),
        ((meta, meta, meta), True, "they share a device"),
        ((meta, number), True, joins),
        ((number, first, number), True, joins),
        ((number, there), True, joins),
        ((number, number), True, joins),
        ((first,), True, "one tensor is on one device"),
        ((), True, "nothing is on two devices"),
        ((first, second), False, two),
        ((first, one), False, "a vector of length one is a vector"),
        ((cpu, there), False, "a number may only join if it is on the CPU"),
        ((cpu, cpu, meta), False, "compare them all, not only the first two"),
        ((meta, cpu, cpu), False, "compare them all, not only the last two"),
        ((cpu, first, cpu), False, "compare them all, not only the first and the last"),
        ((number, second, third), False, apart),
        ((first, number, second), False, apart),
        ((cpu, number, meta), False, apart),
        ((there, torch.tensor(1.0, device="cuda:1")), False, two),
        ((third, meta, cpu), False, "they are on three devices"),
    ]


def _raised(answer, tensors):
    """The error that the answer raises for these tensors, or None."""
    error = None
    with Moves() as moves:
        try:
            if answer(*tensors) is DOTS:
                raise NotAnswered
        except NotAnswered:
            raise
        except Exception as raised:
            error = raised
    if moves.names:
        raise Wrong(
            f"for {_described(tensors)} you moved a tensor ({moves.names[0]}): a helper"
            " that moves them hides a copy in each call"
        )
    return error


def _check_names(message, tensors):
    """Whether the message names the devices, as str(device), repr(device) or a tuple
    writes them.
    """
    meet = {str(x.device) for x in tensors if x.dim() > 0 or x.device.type != "cpu"}
    others = {"meta", "cuda:0", "cuda:1", "cuda:2"} - {str(x.device) for x in tensors}
    for device in sorted(meet | others):
        kind, _, index = device.partition(":")
        pattern = rf"\b{kind}\b"
        if index:  # cuda:1, or what stands between in device(type='cuda', index=1)
            pattern = rf"\b{kind}\W+(index=)?{index}\b"
        named = re.search(pattern, message)
        if named and device not in meet:
            fault = f"names {device}, where none of them is"
        elif not named and device in meet:
            fault = f"does not name {device}"
        else:
            continue
        raise Wrong(f"for {_described(tensors)} your message {message[:150]!r} {fault}")


def _described(tensors):
    kinds = "number", "vector", "table"
    return (
        " and ".join(f"a {kinds[x.dim()]} on {x.device}" for x in tensors)
        or "no tensors"
    )


def check_move_all(answer):
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    x, y = torch.ones(2), torch.arange(6).reshape(2, 3).T
    z = torch.zeros(1, dtype=torch.float64)
    batch = {
        "image": x,
        "boxes": [y, (z, 5, "dog")],
        "name": "cat",
        "none": None,
        7: [{"deep": (x,)}, [], {}, ()],
    }
    _check_moved(answer, batch, "meta")
    _check_moved(answer, batch, "cpu")
    _check_moved(answer, [z, (range(3), [x], {3, 5})], "meta")
    _check_moved(answer, ({"only": y},), "meta")
    with _gpus():
        here, there = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        _check_moved(answer, {"a": here, "b": [there, torch.ones(2)]}, "cuda:1")
        _check_moved(answer, {"a": here, "b": [there, torch.ones(2)]}, "cuda:0")


def _check_moved(answer, nested, device):
    """Not by `call` alone, which copies what it hands over and what it gets: the same
    objects count here.
    """
    before, results = state(nested), []
    places = tree_map(lambda x: str(x.device) if torch.is_tensor(x) else x, nested)

    def move():
        results.append(answer(nested, torch.device(device)))

    with NoNumber():
        call(move, shown=f"{places} (tensors by their devices), to {device}")
    if results[0] is DOTS:
        raise NotAnswered
    if before != state(nested):
        raise Wrong(
            "the input itself was changed: build new dicts and lists, the caller may"
            " still need the old ones"
        )
    _same_structure(results[0], nested, "nested", torch.device(device))


def _same_structure(got, given, path, device):
    if isinstance(given, torch.Tensor):
        return _same_tensor(got, given, path, device)
    kind = type(given)
    if kind not in (dict, list, tuple):
        if got is not given:
            raise Wrong(f"{path} should be {given!r} itself, it is {got!r}, or a copy")
        return
    if type(got) is not kind:
        raise Wrong(
            f"{path} should be of type {kind.__name__}, you returned one of type"
            f" {type(got).__name__}"
        )
    if got is given and kind is not tuple:
        raise Wrong(
            f"{path} is the {kind.__name__} of the input itself: build new dicts and"
            " lists"
        )
    keys, theirs = (list(x) if kind is dict else [*range(len(x))] for x in (given, got))
    expect.equal(theirs, keys, path, said="the keys or places are")
    for key in keys:
        _same_structure(got[key], given[key], f"{path}[{key!r}]", device)


def _same_tensor(got, given, path, device):
    if not isinstance(got, torch.Tensor) or got.device != device:
        place = f"on {got.device}" if isinstance(got, torch.Tensor) else repr(got)
        raise Wrong(f"{path} should be a tensor on {device}, it is {place}")
    if got.dtype != given.dtype or got.shape != given.shape:
        old, new = (f"{x.dtype} {tuple(x.shape)}" for x in (given, got))
        raise Wrong(f"{path} changed from {old} to {new}: only the device may change")
    if given.device == device and got is not given:
        raise Wrong(
            f"{path} was on {device} already, and is copied or another tensor of its"
            " storage: hand on the same one, as .to alone does"
        )


LOSSES = [
    [1.0, 4.0, 1.0],
    [0.5, 0.25, 2.0, 1.25, 1.0],
    [-0.5, -1.5],
    [3.0],
    [7.1, *[0.1] * 30, 1.0],
]


def check_summary(answer):
    for values in LOSSES:
        losses, waits = [torch.tensor(value) for value in values], CountWaits()
        shown = f"the losses {values}" if len(values) < 9 else f"{len(values)} losses"
        with waits:
            got = call(answer, losses, shown=shown)
        got = got.tolist() if isinstance(got, np.ndarray) else got
        first, second = _pair(got, shown, "mean, maximum")
        mean, largest = sum(values) / len(values), max(values)
        slips = [(largest, "the mean comes first, then the maximum")]
        said = "you returned as the mean", "you returned as the maximum"
        expect.close(first, mean, shown, "", slips, said[0], rel_tol=1e-5)
        expect.close(second, largest, shown, "", (), said[1], rel_tol=1e-5)
        _one_wait(waits, shown)


def _one_wait(waits, shown):
    if waits.late and not waits.names:
        raise Wrong(
            "with non_blocking=True the copy has only been asked for, and nothing"
            " waits for it: you may read numbers that have not arrived"
        )
    if not waits.names:
        raise Wrong(
            f"right values for {shown}, and no wait that this check counts: use a"
            " method of tensors"
        )
    if len(waits.names) > 1:
        names = ", ".join(waits.names[:5]) + (", …" if len(waits.names) > 5 else "")
        raise Wrong(
            f"right values, but {len(waits.names)} waits for {shown} ({names}):"
            " compute on the device, fetch once"
        )


EXERCISES = [
    Exercise(
        number="02.0",
        title="Create it there",
        name="zeros_beside",
        stars=1,
        check=check_zeros_beside,
        hints=[
            "x.device says where. Each function that makes a tensor takes device=.",
            "torch.zeros(n) makes them on the CPU. One argument is missing.",
        ],
        solution="""
def zeros_beside(x, n):
    return torch.zeros(n, device=x.device)
""",
        praise=(
            "x.new_zeros(n) does the same in one word, and takes the dtype of x as"
            " well."
        ),
    ),
    Exercise(
        number="02.1",
        title="Does it copy?",
        name="copies",
        stars=1,
        check=check_copies,
        hints=[
            (
                "Ask of each line: does it have anything to do? Other type, other"
                " device, other order of the numbers?"
            ),
            (
                "x[2:], x.reshape(2, 3) and .T are views. .to, .cpu(), .contiguous()"
                " and reshape copy only if they have to."
            ),
            (
                "show_storage from the lesson decides it: make the six tensors and look"
                " at the letters."
            ),
        ],
        solution="""
copies = [False, True, False, False, True, True]
""",
        praise=(
            "Watch reshape in your own code: it gives a view where it can, and copies"
            " without a word where it cannot, as in the last line. view raises an error"
            " there."
        ),
    ),
    Exercise(
        number="02.2",
        title="One wait instead of many",
        name="summary",
        stars=2,
        check=check_summary,
        hints=[
            "torch.stack makes one tensor of the list, without waiting.",
            (
                "mean() and max() of it are computed on the device. Two calls of item()"
                " would wait twice."
            ),
            "Stack the two results as well, and fetch both at once with tolist().",
        ],
        solution="""
def summary(losses):
    stacked = torch.stack(losses)
    mean, largest = torch.stack([stacked.mean(), stacked.max()]).tolist()
    return mean, largest
""",
        praise=(
            "torch.stack(losses).tolist() and plain Python afterwards is one wait too."
            " It carries every loss across; computed on the device, two numbers cross,"
            " however long the list is."
        ),
    ),
    Exercise(
        number="02.3",
        title="Latency and bandwidth from two measurements",
        name="link_from_two",
        stars=1,
        check=check_link_from_two,
        hints=[
            "Write the model down twice, once for each measurement, and subtract.",
            "t2 - t1 = (n2 - n1) / bandwidth: the latency is gone.",
            "bandwidth = (n2 - n1) / (t2 - t1), then latency = t1 - n1 / bandwidth.",
        ],
        solution="""
def link_from_two(n1, t1, n2, t2):
    bandwidth = (n2 - n1) / (t2 - t1)
    return t1 - n1 / bandwidth, bandwidth
""",
        praise=(
            "Two points always give two numbers, and no idea how well the model fits."
            " So the lesson took thirteen."
        ),
    ),
    Exercise(
        number="02.4",
        title="Check the devices, move nothing",
        name="ensure_same_device",
        stars=2,
        check=check_ensure_same_device,
        hints=[
            (
                "Collect the devices in a set: {x.device for x in tensors}. How large"
                " may it be?"
            ),
            (
                "Leave numbers on the CPU out of the set: x.dim() == 0 and"
                " x.device.type == 'cpu'."
            ),
            (
                "Build the message from all tensors: ', '.join(str(x.device) for x in"
                " tensors)."
            ),
        ],
        solution="""
def ensure_same_device(*tensors):
    devices = {x.device for x in tensors if x.dim() > 0 or x.device.type != "cpu"}
    if len(devices) > 1:
        found = ", ".join(str(x.device) for x in tensors)
        raise ValueError(f"all tensors must be on one device, found {found}")
""",
        praise=(
            "Put it at the doors of your own library, where the message can name what"
            " the caller passed. Inside, most operations check anyway; and a version"
            " that moves the arguments would hide a copy in each call."
        ),
    ),
    Exercise(
        number="02.5",
        title="Move a nested batch",
        name="move_all",
        stars=2,
        check=check_move_all,
        hints=[
            "The function calls itself for what is inside a dict, a list or a tuple.",
            (
                "Four cases with isinstance: torch.Tensor, dict, list or tuple, and"
                " everything else."
            ),
            (
                "type(nested)(move_all(value, device) for value in nested) keeps a list"
                " a list and a tuple a tuple."
            ),
        ],
        solution="""
def move_all(nested, device):
    if isinstance(nested, torch.Tensor):
        return nested.to(device)
    if isinstance(nested, dict):
        return {key: move_all(value, device) for key, value in nested.items()}
    if isinstance(nested, (list, tuple)):
        return type(nested)(move_all(value, device) for value in nested)
    return nested
""",
        praise=(
            "A named tuple would need type(nested)(*values). PyTorch's own code does"
            " this with torch.utils._pytree.tree_map, which knows named tuples too."
        ),
    ),
]
