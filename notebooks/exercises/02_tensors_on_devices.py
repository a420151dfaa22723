"""Exercises of lesson 02."""

import math

import torch
from torch.overrides import TorchFunctionMode

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call
from utils.simulate.fake import fake_gpus

LINES = {
    'x.to("cpu")': "x is there already, so .to hands back x itself",
    "x.to(torch.float64)": "other numbers of other size need memory of their own",
    "x[2:].cpu()": "a slice is a view, and .cpu() has nothing to do",
    'x.to("cpu", copy=True)': "copy=True copies in any case",
    "x.reshape(2, 3).contiguous()": "reshape gives a view, and contiguous() finds it in order already",
    "x.reshape(2, 3).T.contiguous()": "the transposed view is not in order, so contiguous() must rewrite it",
}


def check_copies(answer):
    if not isinstance(answer, (list, tuple)) or len(answer) != len(LINES):
        raise Wrong(f"expected a list of {len(LINES)} values, got {answer!r}")
    if any(given is DOTS for given in answer):
        raise NotAnswered
    x = torch.arange(6.0)
    for given, (line, why) in zip(answer, LINES.items(), strict=True):
        result = eval(line, {"torch": torch, "x": x})
        copied = result.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
        if given is not copied:
            verb = "has a storage of its own" if copied else "shares the storage of x"
            raise Wrong(f"for {line} you said {given!r}, but the result {verb}: {why}")


def check_link_from_two(answer):
    for latency, bandwidth, n1, n2 in ((10e-6, 25e9, 10**3, 10**8), (0.5e-6, 10e9, 10**6, 10**4)):
        t1, t2 = latency + n1 / bandwidth, latency + n2 / bandwidth
        shown = f"{n1} bytes in {t1 * 1e6:.4g} µs and {n2} bytes in {t2 * 1e6:.4g} µs"
        got = call(answer, n1, t1, n2, t2, shown=shown)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(f"for {shown} you returned {got!r}, expected a pair (latency, bandwidth)")
        if math.isclose(got[0], bandwidth, rel_tol=1e-6):
            raise Wrong("these are the right numbers in the wrong order: the latency comes first")
        if not math.isclose(got[1], bandwidth, rel_tol=1e-6):
            raise Wrong(
                f"for {shown} you returned a bandwidth of {got[1]:.4g} bytes per second, expected {bandwidth:.4g}: "
                "the latency is in both times, so take the difference of the times"
            )
        if not math.isclose(got[0], latency, rel_tol=1e-6):
            raise Wrong(
                f"for {shown} you returned a latency of {got[0]:.4g} s, expected {latency:.4g} s: "
                "it is what remains of a time when the time of its bytes is taken off"
            )


def check_ensure_same_device(answer):
    with fake_gpus():
        first, second = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
        gpu_number = torch.tensor(1.0, device="cuda:0")
    cpu, meta, number = torch.ones(2), torch.ones(2, device="meta"), torch.tensor(1.0)
    _let_pass(answer, cpu, cpu)
    _must_raise(answer, meta, cpu)
    for tensors in ((meta, meta), (first,), (meta, number), (number, first, number)):
        _let_pass(answer, *tensors)
    for tensors in ((cpu, meta, meta), (first, second), (first, torch.ones(1)), (cpu, gpu_number)):
        _must_raise(answer, *tensors)


def _let_pass(answer, *tensors):
    try:
        if answer(*tensors) is DOTS:
            raise NotAnswered
    except NotAnswered:
        raise
    except Exception as error:
        why = "a number on the CPU may join any device" if any(x.dim() == 0 for x in tensors) else "they share a device"
        raise Wrong(f"{_described(tensors)} must pass, {why}; you raised {type(error).__name__}: {error}") from error


def _must_raise(answer, *tensors):
    shown = _described(tensors)
    try:
        answer(*tensors)
    except ValueError as error:
        missing = [str(x.device) for x in tensors if str(x.device) not in str(error)]
        if missing:
            raise Wrong(f"for {shown} your message {str(error)!r} does not name {missing[0]}") from error
    except Exception as error:
        raise Wrong(f"for {shown} expected a ValueError, you raised {type(error).__name__}: {error}") from error
    else:
        why = "cuda:0 and cuda:1 are two devices" if str(tensors[-1].device) == "cuda:1" else "they cannot meet"
        raise Wrong(f"for {shown} you raised nothing: {why}, and a helper that moves them hides a copy in each call")


def _described(tensors):
    return " and ".join(f"a {'number' if x.dim() == 0 else 'vector'} on {x.device}" for x in tensors)


def check_move_all(answer):
    x, y, z = torch.ones(2), torch.arange(3), torch.zeros(1)
    nested = {"image": x, "boxes": [y, (z, 5)], "name": "cat", "none": None}
    moved = call(answer, nested, torch.device("meta"), shown="a nested batch on the CPU, to meta")
    if nested["image"] is not x or nested["boxes"][0] is not y or moved is nested or moved["boxes"] is nested["boxes"]:
        raise Wrong("the input itself was changed: build new dicts and lists, the caller may still need the old ones")
    _same_structure(moved, nested, "batch")
    stayed = call(answer, nested, torch.device("cpu"), shown="a nested batch on the CPU, to cpu")
    _same_structure(stayed, nested, "batch", device="cpu")
    for got, tensor in ((stayed["image"], x), (stayed["boxes"][0], y), (stayed["boxes"][1][0], z)):
        if got is not tensor:
            raise Wrong("a tensor that was on the CPU already was copied on its way to the CPU: .to alone knows better")


def _same_structure(got, expected, path, device="meta"):
    if isinstance(expected, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.device.type != device:
            found = got.device if isinstance(got, torch.Tensor) else repr(got)
            raise Wrong(f"{path} should be a tensor on {device}, it is {found}")
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise Wrong(
                f"{path} changed from {expected.dtype} to {got.dtype}, or its shape: only the device may change"
            )
        return
    if type(got) is not type(expected):
        raise Wrong(f"{path} should be a {type(expected).__name__}, you returned a {type(got).__name__}")
    if isinstance(expected, dict):
        if list(got) != list(expected):
            raise Wrong(f"{path} should have the keys {list(expected)}, it has {list(got)}")
        for key in expected:
            _same_structure(got[key], expected[key], f"{path}[{key!r}]", device)
    elif isinstance(expected, (list, tuple)):
        if len(got) != len(expected):
            raise Wrong(f"{path} should have {len(expected)} entries, it has {len(got)}")
        for i, value in enumerate(expected):
            _same_structure(got[i], value, f"{path}[{i}]", device)
    elif got != expected:
        raise Wrong(f"{path} should be {expected!r}, it is {got!r}")


class Waits(TorchFunctionMode):
    """Notes each call that needs a value on the host."""

    ALWAYS = {"item", "tolist", "cpu", "numpy", "__array__", "nonzero", "is_nonzero", "equal", "allclose", "unique"}
    ALWAYS |= {"__bool__", "__float__", "__int__", "__index__", "__complex__", "__format__", "__repr__", "__contains__"}

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        to_cpu = name == "to" and any(str(value) == "cpu" for value in [*args[1:], *(kwargs or {}).values()])
        from_tensors = name in ("tensor", "as_tensor") and args and isinstance(args[0], (list, tuple))
        if name in self.ALWAYS or to_cpu:
            self.names.append(name)
        elif from_tensors:  # reads each tensor in the list, one after the other
            self.names += [name for value in args[0] if isinstance(value, torch.Tensor)]
        with torch._C.DisableTorchFunction():
            return function(*args, **(kwargs or {}))


def check_summary(answer):
    for values in ([1.0, 4.0, 1.0], [0.5, 0.25, 2.0, 1.25, 1.0]):
        losses = [torch.tensor(value) for value in values]
        waits = Waits()
        with waits:
            got = call(answer, losses, shown=f"the losses {values}")
        expected = (sum(values) / len(values), max(values))
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise Wrong(f"for the losses {values} you returned {got!r}, expected a pair (mean, maximum)")
        if not all(isinstance(value, (int, float)) for value in got):
            raise Wrong(f"for the losses {values} you returned {got!r}; Python numbers are asked, not tensors")
        if not all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, expected, strict=True)):
            raise Wrong(f"for the losses {values} you returned {got!r}, expected {expected}")
        if len(waits.names) != 1:
            raise Wrong(
                f"right values, but {len(waits.names)} waits for {len(values)} losses ({', '.join(waits.names)}): "
                "compute on the device, fetch once"
            )


# Parts that several wrong answers to 02.4 share
TENSOR = """
def move_all(nested, device):
    if isinstance(nested, torch.Tensor):
        return nested.to(device)
"""
DICT = """
    if isinstance(nested, dict):
        return {key: move_all(value, device) for key, value in nested.items()}
"""
LIST = """
    if isinstance(nested, (list, tuple)):
        return type(nested)(move_all(value, device) for value in nested)
"""
COPY = TENSOR.replace("nested.to(device)", "nested.to(device, copy=True)")

EXERCISES = [
    Exercise(
        number="02.1",
        title="Does it copy?",
        name="copies",
        stars=2,
        check=check_copies,
        hints=[
            "Ask of each line: does it have anything to do? Other type, other device, other order of the numbers?",
            "A slice, reshape and .T give views here; .cpu() and .contiguous() copy only if they have to.",
            "show_storage from the lesson decides it: make the six tensors and look at the letters.",
        ],
        solution="""
copies = [False, True, False, True, False, True]
""",
        praise="Watch reshape in your own code: it gives a view where it can, and copies without a word where it "
        "cannot, as in x.reshape(2, 3).T.reshape(6). view raises an error there.",
        wrong={
            "copies = [True, True, False, True, False, True]": "so .to hands back x itself",
            "copies = [False, False, False, True, False, True]": "need memory of their own",
            "copies = [False, True, True, True, False, True]": "a slice is a view",
            "copies = [False, True, False, False, False, True]": "copies in any case",
            "copies = [False, True, False, True, True, True]": "shares the storage of x",
            "copies = [False, True, False, True, False, False]": "has a storage of its own: the transposed view",
            "copies = [False, True]": "expected a list of 6 values",
        },
    ),
    Exercise(
        number="02.2",
        title="Latency and bandwidth from two measurements",
        name="link_from_two",
        stars=2,
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
        praise="Two points always give two numbers, and no idea how well the model fits. So the lesson took ten.",
        wrong={
            """
def link_from_two(n1, t1, n2, t2):
    return t1, n2 / t2
""": "take the difference of the times",
            """
def link_from_two(n1, t1, n2, t2):
    return t1, (n2 - n1) / (t2 - t1)
""": "what remains of a time when the time of its bytes",
            """
def link_from_two(n1, t1, n2, t2):
    return (n2 - n1) / (t2 - t1)
""": "expected a pair",
            """
def link_from_two(n1, t1, n2, t2):
    bandwidth = (n2 - n1) / (t2 - t1)
    return bandwidth, t1 - n1 / bandwidth
""": "in the wrong order",
        },
    ),
    Exercise(
        number="02.3",
        title="Check the devices, move nothing",
        name="ensure_same_device",
        stars=2,
        check=check_ensure_same_device,
        hints=[
            "Collect the devices in a set: {x.device for x in tensors}. How large may it be?",
            "Leave numbers on the CPU out of the set: x.dim() == 0 and x.device.type == 'cpu'.",
            "Build the message from all tensors: ', '.join(str(x.device) for x in tensors).",
        ],
        solution="""
def ensure_same_device(*tensors):
    devices = {x.device for x in tensors if x.dim() > 0 or x.device.type != "cpu"}
    if len(devices) > 1:
        found = ", ".join(f"tensor {i} on {x.device}" for i, x in enumerate(tensors))
        raise ValueError(f"all tensors must be on one device, found {found}")
""",
        praise="Put it at the doors of your own library, where the message can name what the caller passed. Inside, "
        "PyTorch checks anyway; and a version that moves the arguments would hide a copy in each call.",
        wrong={
            """
def ensure_same_device(*tensors):
    return [x.to(tensors[0].device) for x in tensors]
""": "hides a copy in each call",
            """
def ensure_same_device(*tensors):
    if len({x.device for x in tensors}) > 1:
        raise ValueError([str(x.device) for x in tensors])
""": "a number on the CPU may join any device",
            """
def ensure_same_device(*tensors):
    if len({x.device.type for x in tensors if x.dim()}) > 1:
        raise ValueError([str(x.device) for x in tensors])
""": "cuda:0 and cuda:1 are two devices",
            """
def ensure_same_device(*tensors):
    if len({x.device for x in tensors if x.dim()}) > 1:
        raise ValueError("different devices")
""": "does not name meta",
            """
def ensure_same_device(*tensors):
    assert len({x.device for x in tensors if x.dim()}) < 2, tensors
""": "expected a ValueError, you raised AssertionError",
            """
def ensure_same_device(*tensors):
    if len({x.device for x in tensors if x.dim()}) > 1:
        raise ValueError([str(x.device) for x in tensors])
""": "a vector on cpu and a number on cuda:0",
        },
    ),
    Exercise(
        number="02.4",
        title="Move a nested batch",
        name="move_all",
        stars=2,
        check=check_move_all,
        hints=[
            "The function calls itself for what is inside a dict, a list or a tuple.",
            "Four cases with isinstance: torch.Tensor, dict, list or tuple, and everything else.",
            "type(nested)(move_all(value, device) for value in nested) keeps a list a list and a tuple a tuple.",
        ],
        solution=TENSOR.rstrip() + DICT.rstrip() + LIST + "    return nested\n",
        praise="A named tuple would need type(nested)(*values). PyTorch's own code does this with "
        "torch.utils._pytree.tree_map, which knows named tuples too.",
        wrong={
            TENSOR.rstrip() + DICT + "    return nested\n": "the input itself was changed",
            TENSOR.rstrip() + DICT.rstrip() + LIST.replace("type(nested)", "list") + "    return nested\n": (
                "should be a tuple, you returned a list"
            ),
            COPY.rstrip() + DICT.rstrip() + LIST + "    return nested\n": "was copied on its way to the CPU",
            """
def move_all(nested, device):
    for key, value in nested.items():
        if isinstance(value, torch.Tensor):
            nested[key] = value.to(device)
    return nested
""": "the input itself was changed",
            """
def move_all(nested, device):
    return {key: value.to(device) for key, value in nested.items()}
""": "raised AttributeError",
        },
    ),
    Exercise(
        number="02.5",
        title="One wait instead of many",
        name="summary",
        stars=2,
        check=check_summary,
        hints=[
            "torch.stack makes one tensor of the list, without waiting.",
            "mean() and max() of it are computed on the device. Two calls of item() would wait twice.",
            "Stack the two results as well, and fetch both at once with tolist().",
        ],
        solution="""
def summary(losses):
    stacked = torch.stack(losses)
    mean, largest = torch.stack([stacked.mean(), stacked.max()]).tolist()
    return mean, largest
""",
        praise="torch.stack(losses).tolist() and plain Python afterwards is one wait too. It carries every loss "
        "across; computed on the device, two numbers cross, however long the list is.",
        wrong={
            """
def summary(losses):
    values = [x.item() for x in losses]
    return sum(values) / len(values), max(values)
""": "3 waits for 3 losses (item, item, item)",
            """
def summary(losses):
    stacked = torch.stack(losses)
    return stacked.mean().item(), stacked.max().item()
""": "2 waits",
            """
def summary(losses):
    mean = sum(losses) / len(losses)
    return torch.stack([mean, max(losses)]).tolist()
""": "(__bool__, __bool__, tolist)",
            """
def summary(losses):
    stacked = torch.tensor(losses)
    return torch.stack([stacked.mean(), stacked.max()]).tolist()
""": "(tensor, tensor, tensor, tolist)",
            """
def summary(losses):
    stacked = torch.stack(losses)
    return stacked.mean(), stacked.max()
""": "Python numbers are asked",
            """
def summary(losses):
    stacked = torch.stack(losses)
    return torch.stack([stacked.sum(), stacked.max()]).tolist()
""": "expected (2.0, 4.0)",
        },
    ),
]
