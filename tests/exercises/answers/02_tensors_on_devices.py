"""Answers to the exercises of lesson 02."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

ANSWERS["02.0"] = Answers(
    right=[
        """
def zeros_beside(x, n):
    return x.new_zeros(n)
""",
        """
def zeros_beside(x, n):
    with x.device:
        return torch.zeros(n)
""",
    ],
    wrong={
        """
def zeros_beside(x, n):
    return torch.zeros(n)
""": "say device= when you make it",
        """
def zeros_beside(x, n):
    return torch.zeros(n).to(x.device)
""": "was made elsewhere, and moved (to)",
        """
def zeros_beside(x, n):
    return torch.zeros(n, device=x.device.type)
""": "x on cuda:1",
        """
def zeros_beside(x, n):
    return torch.empty(n, device=x.device)
""": "expected three zeros",
    },
)

ANSWERS["02.1"] = Answers(
    right=[
        "copies = (0, 1, 0, 0, 1, 1)",
        """
x = torch.arange(6.0)
made = [x.to("cpu", torch.float32), x[2:].to(torch.float64)]
made += [x[2:].to("cpu").float(), x.reshape(2, 3).T.cpu()]
made += [x.reshape(2, 3).T.contiguous(), x.reshape(2, 3).T.reshape(6)]
copies = [
    y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() for y in made
]
""",
    ],
    wrong={
        "copies = [True, True, False, False, True, True]": (
            "so .to hands back x itself"
        ),
        "copies = [False, False, False, False, True, True]": (
            "need memory of their own"
        ),
        "copies = [False, True, True, False, True, True]": "a slice is a view",
        "copies = [False, True, False, True, True, True]": "asks for no order",
        "copies = [False, True, False, False, True, False]": "so reshape must copy",
        'copies = ["no", "yes", "no", "no", "yes", "yes"]': (
            "you said 'no': write True or False"
        ),
    },
)

FETCH = SOLUTION["02.2"]
ANSWERS["02.2"] = Answers(
    right=[
        edit(FETCH, ("tolist", "cpu().tolist")),
        """
def summary(losses):
    total, largest = torch.tensor(0.0), losses[0]
    for x in losses:
        total, largest = total + x, torch.maximum(largest, x)
    return torch.stack([total / len(losses), largest]).tolist()
""",
    ],
    wrong={
        """
def summary(losses):
    values = [x.item() for x in losses]
    return sum(values) / len(values), max(values)
""": "3 waits for the losses [1.0, 4.0, 1.0] (item, item, item)",
        """
def summary(losses):
    mean = sum(losses) / len(losses)
    return torch.stack([mean, max(losses)]).tolist()
""": "(__bool__, __bool__, tolist)",
        """
def summary(losses):
    stacked = torch.stack(losses)
    return stacked.mean(), stacked.max()
""": "Python numbers are asked",
        """
def summary(losses):
    values = torch.stack(losses).to("cpu", non_blocking=True)
    return values.mean().item(), values.max().item()
""": "nothing waits for it",
    },
)

LINK_FROM_TWO = SOLUTION["02.3"]
ANSWERS["02.3"] = Answers(
    right=[
        """
def link_from_two(n1, t1, n2, t2):
    seconds_per_byte = (t1 - t2) / (n1 - n2)
    return [t2 - n2 * seconds_per_byte, 1 / seconds_per_byte]
""",
        """
import numpy as np

def link_from_two(n1, t1, n2, t2):
    slope, latency = np.polyfit([n1, n2], [t1, t2], 1)
    return np.array([latency, 1 / slope])
""",
    ],
    wrong={
        """
def link_from_two(n1, t1, n2, t2):
    return t1, n2 / t2
""": "take the difference of the two measurements",
        """
def link_from_two(n1, t1, n2, t2):
    bandwidth = (n2 - n1) / (t2 - t1)
    return bandwidth, t1 - n1 / bandwidth
""": "the latency comes first",
        """
def link_from_two(n1, t1, n2, t2):
    slope = (t2 - t1) / (n2 - n1)
    return t1 - n1 * slope, slope
""": "that is seconds per byte",
        edit(LINK_FROM_TWO, (" bandwidth\n", " bandwidth / 1e9\n")): "that is in GB/s",
    },
)

SAME = SOLUTION["02.4"]
ANSWERS["02.4"] = Answers(
    right=[
        """
def ensure_same_device(*tensors):
    devices = set()
    for x in tensors:
        if x.ndim == 0 and x.device == torch.device("cpu"):
            continue
        devices.add(x.device)
    if len(devices) > 1:
        raise ValueError(f"different devices: {devices}")
""",
        """
def ensure_same_device(*tensors):
    placed = [t for t in tensors if t.shape != () or t.device.type != "cpu"]
    if any(t.device != placed[0].device for t in placed):
        raise ValueError(
            "not one device", [(t.device.type, t.device.index) for t in placed]
        )
    return tensors
""",
    ],
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
        edit(SAME, ("{found}", "{len(devices)}")): "does not name cpu",
    },
)

MOVE = SOLUTION["02.5"]
ANSWERS["02.5"] = Answers(
    right=[
        """
def move_all(nested, device):
    match nested:
        case torch.Tensor():
            return nested.to(device, non_blocking=True)
        case dict():
            return dict((key, move_all(value, device)) for key, value in nested.items())
        case list():
            return [move_all(value, device) for value in nested]
        case tuple():
            return tuple(move_all(value, device) for value in nested)
    return nested
""",
        """
from torch.utils._pytree import tree_map

def move_all(nested, device):
    return tree_map(
        lambda value: value.to(device) if isinstance(value, torch.Tensor) else value,
        nested,
    )
""",
    ],
    wrong={
        edit(
            MOVE,
            (
                (
                    "    if isinstance(nested, (list, tuple)):\n"
                    "        return type(nested)(move_all(value, device) for"
                    " value in nested)\n"
                ),
                "",
            ),
        ): "is the list of the input itself",
        edit(
            MOVE, ("type(nested)", "list")
        ): "should be of type tuple, you returned one of type list",
        edit(
            MOVE,
            (
                "return nested.to(device)",
                (
                    "return nested if nested.device.type == device.type else"
                    " nested.to(device)"
                ),
            ),
        ): "should be a tensor on cuda:1, it is on cuda:0",
        """
def move_all(nested, device):
    for key, value in nested.items():
        if isinstance(value, torch.Tensor):
            nested[key] = value.to(device)
    return nested
""": "the input itself was changed",
    },
)
