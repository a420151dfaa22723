"""Exercises of lesson 02."""

import contextlib
import logging
import math
import re

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, apart, call, is_number
from utils.simulate.fake import fake_gpus
from utils.waits import CountWaits


def _pair(got, shown, names):
    """`got` as two numbers, or what is wrong with it."""
    got = got.tolist() if isinstance(got, np.ndarray) else got
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"for {shown} you returned {got!r}, expected a pair ({names})")
    if any(value is DOTS for value in got):
        raise NotAnswered
    if not all(map(is_number, got)):
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
        bare = [
            value
            for value in (*args, *kwargs.values())
            if isinstance(value, (str, torch.device))
        ]
        if (name == "cuda" and len(args) < 2 and not kwargs) or "cuda" in map(
            str, bare
        ):
            raise Wrong(
                f"your function moves a tensor to 'cuda' ({name}): move it to the"
                " device that it was given"
            )
        return function(*args, **kwargs)


class Moves(TorchFunctionMode):
    """Notes each call that brings numbers from one device to another."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            given = [value for value in args if isinstance(value, torch.Tensor)]
            if any(value.device != result.device for value in given):
                self.names.append(getattr(function, "__name__", "?"))
        return result


def check_zeros_beside(answer):
    with _gpus():
        for x, n in (
            (torch.ones(2), 3),
            (torch.ones(2, 2, device="meta"), 4),
            (torch.tensor(1.0, device="cuda:1"), 1),
            (torch.ones(5, device="cuda:0"), 2),
        ):
            _check_zeros(answer, x, n)
    before = torch.are_deterministic_algorithms_enabled()
    # fills what torch.empty leaves unwritten with NaN
    torch.use_deterministic_algorithms(True)
    try:
        x = torch.ones(2)
        got = call(answer, x, 3, shown="x on cpu and n = 3")
    finally:
        torch.use_deterministic_algorithms(before)
    if x.tolist() != [1, 1]:
        raise Wrong(
            f"x was [1.0, 1.0] and now is {x.tolist()}: make a new tensor, and leave x"
            " as it is"
        )
    if got.tolist() != [0, 0, 0]:
        raise Wrong(
            f"for x on cpu and n = 3 you returned {got.tolist()}, expected three zeros"
        )


def _check_zeros(answer, x, n):
    shown, shape = f"x on {x.device} and n = {n}", x.shape
    with Moves() as moves:
        got = call(answer, x, n, shown=shown)
    default = torch.get_default_device()
    if default.type != "cpu":
        torch.set_default_device(None)
        raise Wrong(
            f"for {shown} your function leaves {default} as the default device: say"
            " device= instead"
        )
    if x.shape != shape:
        raise Wrong(
            f"for {shown} you changed the shape of x to {tuple(x.shape)}: make a new"
            " tensor"
        )
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"for {shown} you returned {got!r}, expected a tensor")
    if got.device != x.device:
        raise Wrong(
            f"for {shown} your tensor is on {got.device}: say device= when you make it"
        )
    if got.shape != (n,):
        raise Wrong(f"for {shown} the shape is {tuple(got.shape)}, expected ({n},)")
    if moves.names:
        raise Wrong(
            f"for {shown} your tensor was made elsewhere, and moved ({moves.names[0]}):"
            " make it there"
        )


LINES = {
    'x.to("cpu")': "x is there already, so .to hands back x itself",
    "x.to(torch.float64)": "other numbers of other size need memory of their own",
    "x[2:].cpu()": "a slice is a view, and .cpu() has nothing to do",
    'x.to("cpu", copy=True)': "copy=True copies in any case",
    "x.reshape(2, 3).contiguous()": (
        "reshape gives a view, and contiguous() finds it in order already"
    ),
    "x.reshape(2, 3).T.contiguous()": (
        "the transposed view is not in order, so contiguous() must rewrite it"
    ),
}


def check_copies(answer):
    answer = (
        answer.tolist() if isinstance(answer, (np.ndarray, torch.Tensor)) else answer
    )
    if not isinstance(answer, (list, tuple)) or len(answer) != len(LINES):
        raise Wrong(
            f"expected a list of {len(LINES)} values, one for each line, got {answer!r}"
        )
    if any(given is DOTS for given in answer):
        raise NotAnswered
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
        got = call(answer, n1, t1, n2, t2, shown=shown)
        got = _pair(
            got.tolist() if isinstance(got, torch.Tensor) else got,
            shown,
            "latency, bandwidth",
        )
        almost = 1e-5 * min(t1, t2)  # as exact as float32
        if math.isclose(got[0], bandwidth, rel_tol=1e-3):
            raise Wrong(
                "the order is another one: the latency comes first, then the bandwidth"
            )
        if not math.isclose(got[1], bandwidth, rel_tol=1e-3):
            returned, expected = apart(got[1], bandwidth)
            raise Wrong(
                f"for {shown} you returned a bandwidth of {returned} bytes per second,"
                f" expected {expected}: {_bandwidth_fault(got[1], bandwidth)}"
            )
        if not math.isclose(got[0], latency, rel_tol=1e-3, abs_tol=almost):
            returned, expected = apart(got[0], latency)
            raise Wrong(
                f"for {shown} you returned a latency of {returned} s, expected"
                f" {expected} s: {_latency_fault(got[0], latency)}"
            )


def _bandwidth_fault(got, bandwidth):
    if math.isclose(got * bandwidth, 1, rel_tol=1e-3):
        return "that is seconds per byte, so take the reciprocal"
    for unit, size in {
        "GB/s": 1e9,
        "GiB/s": 2**30,
        "MB/s": 1e6,
        "MiB/s": 2**20,
        "bits per second": 1 / 8,
    }.items():
        if math.isclose(got * size, bandwidth, rel_tol=1e-3):
            return f"that is in {unit}, and bytes per second are asked"
    if abs(got - bandwidth) < 1:
        return "do not round it"
    if got < 0:
        return "subtract the bytes and the times the same way round"
    return (
        "take the difference of the two measurements, for there the latency drops out"
    )


def _latency_fault(got, latency):
    for unit, size in {"µs": 1e-6, "ms": 1e-3}.items():
        if math.isclose(got * size, latency, rel_tol=1e-3):
            return f"that is in {unit}, and seconds are asked"
    if any(got and math.isclose(got, round(latency, digits)) for digits in range(9)):
        return "do not round it"
    return "it is what remains of a time when the time of its bytes is taken off"


def check_ensure_same_device(answer):
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    with _gpus():
        cpu, meta = torch.ones(2), torch.ones(2, device="meta")
        first, second, third = (torch.ones(2, device=f"cuda:{i}") for i in range(3))
        number, there = torch.tensor(1.0), torch.tensor(1.0, device="cuda:0")
        joins, two, vector = (
            "a number on the CPU may join any device",
            "cuda:0 and cuda:1 are two devices",
            "a vector of length one is a vector",
        )
        _let_pass(answer, "they share a device", cpu, torch.ones(3, 3))
        _let_pass(
            answer,
            "they share a device, and types do not matter",
            cpu,
            torch.ones(2, dtype=torch.int64),
        )
        errors = [
            ((meta, cpu), _raised(answer, "they do not share a device", meta, cpu))
        ]
        _let_pass(answer, "they share a device", meta, meta, meta)
        for tensors in (
            (meta, number),
            (number, first, number),
            (number, there),
            (number, number),
        ):
            _let_pass(answer, joins, *tensors)
        _let_pass(answer, "one tensor is on one device", first)
        _let_pass(answer, "nothing is on two devices")
        for why, *tensors in (
            (two, first, second),
            (vector, first, torch.ones(1)),
            ("a number may only join if it is on the CPU", cpu, there),
            ("compare them all, not only the first two", cpu, cpu, meta),
            ("compare them all, not only the last two", meta, cpu, cpu),
            ("compare them all, not only the first and the last", cpu, first, cpu),
            (
                "the number may pass, but the two others may not meet",
                number,
                second,
                third,
            ),
            (
                "the number may pass, but the two others may not meet",
                first,
                number,
                second,
            ),
            ("the number may pass, but the two others may not meet", cpu, number, meta),
            (two, there, torch.tensor(1.0, device="cuda:1")),
            ("they are on three devices", third, meta, cpu),
        ):
            errors.append((tensors, _raised(answer, why, *tensors)))
    for tensors, error in errors:
        _check_names(str(error), tensors)


def _ask(answer, tensors):
    with Moves() as moves:
        try:
            if answer(*tensors) is DOTS:
                raise NotAnswered
        finally:
            if moves.names:
                raise Wrong(
                    f"for {_described(tensors)} you moved a tensor ({moves.names[0]}):"
                    " a helper that moves them hides a copy in each call"
                )


def _let_pass(answer, why, *tensors):
    try:
        _ask(answer, tensors)
    except (NotAnswered, Wrong):
        raise
    except Exception as error:
        raise Wrong(
            f"{_described(tensors)} must pass, {why}; you raised"
            f" {type(error).__name__}: {error}"
        ) from error


def _raised(answer, why, *tensors):
    try:
        _ask(answer, tensors)
    except (NotAnswered, Wrong):
        raise
    except ValueError as error:
        return error
    except Exception as error:
        shown = f"for {_described(tensors)} expected a ValueError"
        raise Wrong(f"{shown}, you raised {type(error).__name__}: {error}") from error
    raise Wrong(f"for {_described(tensors)} you raised nothing: {why}")


def _check_names(message, tensors):
    """Whether the message names the devices, as str(device), repr(device) or a tuple
    writes them.
    """
    meet = {str(x.device) for x in tensors if x.dim() > 0 or x.device.type != "cpu"}
    others = {"meta", "cuda:0", "cuda:1", "cuda:2"} - {str(x.device) for x in tensors}
    for device in sorted(meet | others):
        kind, _, index = device.partition(":")
        named = re.search(
            rf"\b{kind}\W+(index=)?{index}\b" if index else rf"\b{kind}\b", message
        )
        if bool(named) != (device in meet):
            fault = (
                f"names {device}, where none of them is"
                if named
                else f"does not name {device}"
            )
            raise Wrong(
                f"for {_described(tensors)} your message {message[:150]!r} {fault}"
            )


def _described(tensors):
    kinds = "number", "vector", "table"
    return (
        " and ".join(f"a {kinds[x.dim()]} on {x.device}" for x in tensors)
        or "no tensors"
    )


def check_move_all(answer):
    if not callable(answer):
        raise Wrong(f"expected a function, got {answer!r}")
    x, y, z = (
        torch.ones(2),
        torch.arange(6).reshape(2, 3).T,
        torch.zeros(1, dtype=torch.float64),
    )
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
    before, results = list(_parts(nested)), []
    shown = f"{_text(nested)}, to {device}"
    with NoNumber():
        call(
            lambda: results.append(answer(nested, torch.device(device))) and None,
            shown=shown,
        )
    if results[0] is DOTS:
        raise NotAnswered
    after = list(_parts(nested))
    if len(before) != len(after) or any(
        a is not b for a, b in zip(before, after, strict=True)
    ):
        raise Wrong(
            "the input itself was changed: build new dicts and lists, the caller may"
            " still need the old ones"
        )
    _same_structure(results[0], nested, "nested", torch.device(device))


def _parts(nested):
    yield nested
    if isinstance(nested, (dict, list, tuple)):
        for value in nested.values() if isinstance(nested, dict) else nested:
            yield from _parts(value)


def _text(nested):
    """`nested` with the devices of its tensors in their place."""
    if isinstance(nested, torch.Tensor):
        return f"<{nested.device}>"
    if isinstance(nested, dict):
        return (
            "{"
            + ", ".join(f"{key!r}: {_text(value)}" for key, value in nested.items())
            + "}"
        )
    if isinstance(nested, (list, tuple)):
        inside = ", ".join(map(_text, nested))
        return (
            f"[{inside}]"
            if isinstance(nested, list)
            else f"({inside}{',' * (len(nested) == 1)})"
        )
    return repr(nested)


def _same_structure(got, given, path, device):
    if isinstance(given, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.device != device:
            found = f"on {got.device}" if isinstance(got, torch.Tensor) else repr(got)
            raise Wrong(f"{path} should be a tensor on {device}, it is {found}")
        if got.dtype != given.dtype or got.shape != given.shape:
            old, new = (f"{x.dtype} {tuple(x.shape)}" for x in (given, got))
            raise Wrong(
                f"{path} changed from {old} to {new}: only the device may change"
            )
        if (
            given.device == device
            and got is not given
            and device.type == "cpu"
            and got.is_set_to(given)
        ):
            raise Wrong(
                f"{path} was on cpu already, and you made another tensor of its"
                " storage: hand on the same one"
            )
        if given.device == device and got is not given:
            raise Wrong(
                f"{path} was on {device} already, and was copied on its way: .to alone"
                " knows better"
            )
        return
    if type(got) is not type(given) and isinstance(given, (dict, list, tuple)):
        raise Wrong(
            f"{path} should be of type {type(given).__name__}, you returned one of type"
            f" {type(got).__name__}"
        )
    if isinstance(given, (dict, list)) and got is given:
        raise Wrong(
            f"{path} is the {type(given).__name__} of the input itself: build new dicts"
            " and lists"
        )
    if isinstance(given, dict):
        if list(got) != list(given):
            raise Wrong(
                f"{path} should have the keys {list(given)}, it has {list(got)}"
            )
        for key in given:
            _same_structure(got[key], given[key], f"{path}[{key!r}]", device)
    elif isinstance(given, (list, tuple)):
        if len(got) != len(given):
            raise Wrong(f"{path} should have {len(given)} entries, it has {len(got)}")
        for i, value in enumerate(given):
            _same_structure(got[i], value, f"{path}[{i}]", device)
    elif got is not given:
        found = (
            "a copy of it" if type(got) is type(given) and got == given else repr(got)
        )
        raise Wrong(f"{path} should be {given!r} as it was, it is {found}")


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
        got = _pair(got, shown, "mean, maximum")
        expected = sum(values) / len(values), max(values)
        right = [
            math.isclose(a, b, rel_tol=1e-5) for a, b in zip(got, expected, strict=True)
        ]
        if not all(right):
            if math.isclose(got[0], expected[1], rel_tol=1e-5) and math.isclose(
                got[1], expected[0], rel_tol=1e-5
            ):
                raise Wrong(
                    "the order is another one: the mean comes first, then the maximum"
                )
            name, place = ("maximum", 1) if right[0] else ("mean", 0)
            returned, asked = apart(got[place], expected[place])
            raise Wrong(
                f"for {shown} you returned {returned}, expected {asked} as the {name}"
            )
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
                "A slice, reshape and .T give views here; .cpu() and .contiguous() copy"
                " only if they have to."
            ),
            (
                "show_storage from the lesson decides it: make the six tensors and look"
                " at the letters."
            ),
        ],
        solution="""
copies = [False, True, False, True, False, True]
""",
        praise=(
            "Watch reshape in your own code: it gives a view where it can, and copies"
            " without a word where it cannot, as in x.reshape(2, 3).T.reshape(6). view"
            " raises an error there."
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
            " the caller passed. Inside, PyTorch checks anyway; and a version that"
            " moves the arguments would hide a copy in each call."
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
