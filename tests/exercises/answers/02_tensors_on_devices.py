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
        """
def zeros_beside(x, n):
    return torch.full((n,), 0.0, dtype=x.dtype, device=str(x.device))
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
    return torch.zeros_like(x)
""": "the shape is (2,), expected (3,)",
        """
def zeros_beside(x, n):
    return torch.zeros(n, device=x.device.type)
""": "x on cuda:1",
        """
def zeros_beside(x, n):
    return torch.empty(n, device=x.device)
""": "expected three zeros",
        """
def zeros_beside(x, n):
    return x.resize_(n).zero_()
""": "you changed the shape of x",
        """
def zeros_beside(x, n):
    x.zero_()
    return x.new_zeros(n)
""": "your function changed x (its numbers)",
        """
def zeros_beside(x, n):
    torch.set_default_device(x.device)
    return torch.zeros(n)
""": "leaves meta as the default device",
    },
)

ANSWERS["02.1"] = Answers(
    right=[
        "copies = (0, 1, 0, 1, 0, 1)",
        """
x = torch.arange(6.0)
made = [x.to("cpu"), x.to(torch.float64), x[2:].cpu(), x.to("cpu", copy=True)]
made += [x.reshape(2, 3).contiguous(), x.reshape(2, 3).T.contiguous()]
copies = [
    y.untyped_storage().data_ptr() != x.untyped_storage().data_ptr() for y in made
]
""",
    ],
    wrong={
        "copies = [True, True, False, True, False, True]": (
            "so .to hands back x itself"
        ),
        "copies = [False, False, False, True, False, True]": (
            "need memory of their own"
        ),
        "copies = [False, True, True, True, False, True]": "a slice is a view",
        "copies = [False, True, False, False, False, True]": "copies in any case",
        "copies = [False, True, False, True, True, True]": "shares the storage of x",
        "copies = [False, True, False, True, False, False]": (
            "has a storage of its own: the transposed view"
        ),
        "copies = [False, True]": "expected a list of 6 values",
        'copies = ["no", "yes", "no", "yes", "no", "yes"]': (
            "you said 'no': write True or False"
        ),
        """
x = torch.arange(6.0)
made = [x.to("cpu"), x.to(torch.float64), x[2:].cpu(), x.to("cpu", copy=True)]
made += [x.reshape(2, 3).contiguous(), x.reshape(2, 3).T.contiguous()]
copies = [y.data_ptr() != x.data_ptr() for y in made]
""": "a slice is a view",
    },
)

FETCH = SOLUTION["02.2"]
ANSWERS["02.2"] = Answers(
    right=[
        edit(FETCH, ("tolist", "cpu().tolist")),
        """
def summary(losses):
    here = torch.empty(len(losses))
    here.copy_(torch.stack(losses))
    assert f"{here.max():.3f}" in f"{here.max():.4f} {here}"
    return here.mean().item(), here.max().item()
""",
        """
def summary(losses):
    total, largest = torch.tensor(0.0), losses[0]
    for x in losses:
        total, largest = total + x, torch.maximum(largest, x)
    return torch.stack([total / len(losses), largest]).tolist()
""",
        """
def summary(losses):
    values = torch.stack(losses).cpu().numpy()
    return values.mean(), values.max()
""",
        """
def summary(losses):
    out = torch.empty(2, device=losses[0].device)
    out[0] = sum(losses) / len(losses)
    out[1] = torch.stack(losses).max()
    mean, largest = out.to("cpu")
    return float(mean), largest.item()
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
""": "(tensor, tensor, tensor)",
        """
def summary(losses):
    values = torch.stack(losses).numpy()
    return values.mean(), values.max()
""": "Use Tensor.cpu()",
        """
def summary(losses):
    stacked = torch.stack(losses)
    return stacked.mean(), stacked.max()
""": "Python numbers are asked",
        """
def summary(losses):
    stacked = torch.stack(losses)
    return torch.stack([stacked.sum(), stacked.max()]).tolist()
""": "expected 2 as the mean",
        """
def summary(losses):
    stacked = torch.stack(losses)
    return torch.stack([stacked.max(), stacked.mean()]).tolist()
""": "the mean comes first",
        """
def summary(losses):
    out, stacked = torch.empty(2), torch.stack(losses)
    out[0], out[1] = stacked.mean(), stacked.max()
    return out.tolist()
""": "(__setitem__, __setitem__)",
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
def link_from_two(n1, t1, n2, t2):
    system = torch.tensor([[1.0, n1], [1.0, n2]])
    latency, slope = torch.linalg.solve(system, torch.tensor([t1, t2])).tolist()
    return latency, 1 / slope
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
""": "the latency comes first",
        """
def link_from_two(n1, t1, n2, t2):
    slope = (t2 - t1) / (n2 - n1)
    return t1 - n1 * slope, slope
""": "that is seconds per byte",
        edit(LINK_FROM_TWO, (" bandwidth\n", " bandwidth / 1e9\n")): "that is in GB/s",
        edit(LINK_FROM_TWO, ("n2 - n1", "n1 - n2")): "the same way round",
        edit(LINK_FROM_TWO, ("/ (t2", "// (t2")): "do not round it",
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
        edit(
            SAME, ("{found}", "cpu meta cuda:0 cuda:1 cuda:2")
        ): "names cuda:0, where none of them is",
        edit(SAME, ("str(x.device)", "x.device.type")): "does not name cuda:0",
        """
def ensure_same_device(*tensors):
    assert len({x.device for x in tensors if x.dim()}) < 2, tensors
""": "expected a ValueError, you raised AssertionError",
        """
def ensure_same_device(*tensors):
    if len({x.device for x in tensors if x.dim()}) > 1:
        raise ValueError([str(x.device) for x in tensors])
""": "a vector on cpu and a number on cuda:0",
        edit(
            SAME, ("{x.device for", "{(x.device, x.dtype) for")
        ): "types do not matter",
        edit(
            SAME, ("x.dim() > 0", "x.numel() > 1")
        ): "a vector of length one is a vector",
        edit(
            SAME, ("for x in tensors if", "for x in tensors[:2] if")
        ): "not only the first two",
        edit(
            SAME,
            ("for x in tensors if", "for x in tensors[::max(1, len(tensors) - 1)] if"),
        ): "not only the first and the last",
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
            MOVE, ("nested.to(device)", "nested.to(device, copy=True)")
        ): "was copied on its way",
        edit(
            MOVE, ("nested.to(device)", "nested.float().to(device)")
        ): "only the device may change",
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
        edit(MOVE, ("return nested.to(device)", "nested.to(device)")): "it is on cpu",
        edit(
            MOVE, ("nested.to(device)", "nested.to(device.type)")
        ): "moves a tensor to 'cuda'",
        edit(
            MOVE, ("nested.to(device)", "nested.detach().to(device)")
        ): "hand on the same one",
        edit(
            MOVE,
            ("def", "import copy\n\ndef"),
            (" nested\n", " copy.deepcopy(nested)\n"),
        ): "a copy of it",
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
)
