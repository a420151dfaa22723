"""Answers to the exercises of lesson 16."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

RESTORE = SOLUTION["16.1"]
ANSWERS["16.1"] = Answers(
    right=[
        """
def restore(path, device):
    state = torch.load(path, map_location="cpu")
    return {name: tensor.to(device) for name, tensor in state.items()}
""",
        """
def restore(path, device):
    return torch.load(path, map_location={"cuda:0": str(device)}, weights_only=True)
""",
    ],
    wrong={
        """
def restore(path, device):
    return torch.load(path)
""": "Attempting to deserialize object on a CUDA device",
        edit(RESTORE, ("=device", '="cpu"')): "the device that was asked for",
        edit(RESTORE, ("=device", "=torch.device('meta')")): "weight is on 'meta'",
        """
def restore(path, device):
    return list(torch.load(path, map_location=device).values())
""": "expected the state dict",
    },
)

UNDER_AUTOCAST = SOLUTION["16.2"]
ANSWERS["16.2"] = Answers(
    right=[
        """
def under_autocast(net, x):
    with torch.amp.autocast(device_type=x.device.type, dtype=torch.bfloat16):
        y = net(x)
    return y
""",
        """
def under_autocast(net, x):
    return torch.autocast(str(x.device).split(':')[0], torch.bfloat16)(net)(x)
""",
    ],
    wrong={
        """
def under_autocast(net, x):
    with torch.cuda.amp.autocast():
        return net(x)
""": "autocast was not on for cpu",
        """
def under_autocast(net, x):
    with torch.cpu.amp.autocast():
        return net(x)
""": "not the form of today: `torch.cpu.amp.autocast(args...)` is deprecated",
        edit(
            UNDER_AUTOCAST, (", dtype=torch.bfloat16", "")
        ): "autocast was set to torch.float16, expected torch.bfloat16",
        """
def under_autocast(net, x):
    return net(x).to(torch.bfloat16)
""": "autocast was not on for cpu",
    },
)

ANSWERS["16.3"] = Answers(
    right=[
        r"""
def replacement(message):
    import re
    found = re.search(r'(?:^|\s)(?:use|to) `([\w.]+)', message)
    return found[1] if found else None
""",
        """
def replacement(message):
    for word in (' use `', ' to `'):
        if word in message:
            return message.split(word)[1].split('`')[0].split('(')[0]
    return None
""",
    ],
    wrong={
        """
def replacement(message):
    parts = message.split('`')
    return parts[3] if len(parts) > 3 else None
""": "without its options",
        r"""
def replacement(message):
    import re
    found = re.findall(r'`([\w.]+)', message)
    return found[-1] if len(found) > 1 else None
""": "not the last one",
        r"""
def replacement(message):
    import re
    found = re.search(r'use `([\w.]+)', message)
    return found[1] if found else None
""": "the name behind `to`",
        r"""
def replacement(message):
    import re
    found = re.search(r'\b(?:use|to)\b.*?`([\w.]+)', message)
    return found[1] if found else None
""": "directly in front of the name",
    },
)

ANSWERS["16.4"] = Answers(
    right=[
        r"""
def cause(paste):
    import re
    if "Original Traceback" in paste:
        paste = paste[paste.rindex("Original Traceback"):]
    paste = re.split("The above exception was|During handling of the above", paste)[0]
    for line in reversed(paste.splitlines()):
        found = re.search(r"[A-Za-z.]*(Error|Exception): .*", line)
        if found:
            return found[0]
""",
        """
def cause(paste):
    _, _, below = paste.rpartition("Original Traceback")
    kept = []
    for line in below.splitlines():
        if line.startswith(("The above", "During handling")):
            break
        line = line.partition("]: ")[2] if line.startswith("[rank") else line
        if line.split(":")[0].endswith(("Error", "Exception")):
            kept.append(line)
    return kept[-1]
""",
    ],
    wrong={
        """
def cause(paste):
    return paste.strip().splitlines()[-1]
""": "the first one has the class",
        r"""
def cause(paste):
    import re
    return [m[0] for m in re.finditer(r"[\w.]+Error: .*", paste)][-1]
""": "above this joint",
        r"""
def cause(paste):
    import re
    return re.search(r"[\w.]+Error: .*", paste)[0]
""": "below Original Traceback",
        r"""
def cause(paste):
    import re
    part = paste.split("Original Traceback")[-1]
    for joint in ("The above exception was", "During handling of the above"):
        part = part.split(joint)[0]
    return [line for line in part.splitlines() if "Error: " in line][-1]
""": "such as the name of a rank",
    },
)

TRAIN = SOLUTION["16.5"]
BY_HAND = """
def train(model, batches, device):
    model = model.to(device)
    total = torch.zeros((), device=device)
    best, lowest = {}, None
    for n, (x, y) in enumerate(batches):
        loss = (model(x.to(device)) - y.to(device)).square().mean()
        value = loss.item()
        if lowest is None or value < lowest:
            lowest = value
            best = {
                name: tensor.to("cpu", copy=True)
                for name, tensor in model.state_dict().items()
            }
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            total += loss
            for parameter, gradient in zip(model.parameters(), gradients):
                parameter -= 0.1 * gradient
    return total / (n + 1), best
"""
ANSWERS["16.5"] = Answers(
    right=[
        """
import copy

def train(model, batches, device):
    optimizer = torch.optim.SGD(model.to(device).parameters(), lr=0.1)
    losses, best = [], None
    for x, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        losses.append(loss.detach())
        if loss.item() <= min(losses):
            best = copy.deepcopy(model.state_dict())
        loss.backward()
        optimizer.step()
    return torch.stack(losses).mean(), best
""",
        BY_HAND,
    ],
    wrong={
        """
def train(model, batches, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.to(device)
    total, best, lowest = 0, None, float("inf")
    for x, y in batches:
        x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        if loss < lowest:
            lowest, best = loss, model.state_dict()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss
    return total / len(batches), best
""": "the graphs of all batches are kept",
        edit(TRAIN, ("x, y = x", "x")): "so keep its result",
        edit(TRAIN, ("tensor.clone()", "tensor")): "share memory",
        """
def train(model, batches, device):
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    total, best, lowest = 0, None, float("inf")
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if loss < lowest:
            lowest, best = (
                loss,
                {name: tensor.clone() for name, tensor in model.state_dict().items()},
            )
        total += loss.detach()
    return total / len(batches), best
""": "copy before the step",
    },
    equivalent={
        (
            "loss = torch.nn.functional.mse_loss(model(x), y) → loss ="
            " torch.nn.functional.mse_loss(y, model(x))"
        ): "The squared error is the same both ways around.",
        "if loss < lowest: → if loss <= lowest:": (
            "Of two equal losses, either may be called the lowest."
        ),
        (
            "total, best, lowest = (0, None, float('inf')) → total, best, lowest"
            " = (0, 0, float('inf'))"
        ): "The first batch replaces it.",
    },
)

ANSWERS["16.6"] = Answers(
    right=[
        """
def bare(state):
    state, left = dict(state), ['module.', '_orig_mod.']
    while state:
        found = [
            prefix for prefix in left if all(key.startswith(prefix) for key in state)
        ]
        if not found:
            break
        state = {key[len(found[0]) :]: tensor for key, tensor in state.items()}
        left.remove(found[0])
    return state
""",
        """
from itertools import permutations

def bare(state):
    both = ['module.', '_orig_mod.']
    for prefix in [''.join(p) for n in (2, 1) for p in permutations(both, n)]:
        if all(key.startswith(prefix) for key in state):
            return {key[len(prefix):]: tensor for key, tensor in state.items()}
    return dict(state)
""",
    ],
    wrong={
        """
def bare(state):
    return {k.removeprefix('module.'): v for k, v in state.items()}
""": "all keys begin with _orig",
        """
def bare(state):
    return {
        k.replace('module.', '').replace('_orig_mod.', ''): v for k, v in state.items()
    }
""": "a layer is named module",
        """
def bare(state):
    for prefix in ('module.', '_orig_mod.', 'module.'):
        if all(key.startswith(prefix) for key in state):
            for key in list(state):
                state[key.removeprefix(prefix)] = state.pop(key)
    return state
""": "you changed or returned the dict",
        """
def bare(state):
    for prefix in ('module.', '_orig_mod.'):
        if all(key.startswith(prefix) for key in state):
            state = {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return dict(state)
""": "both wrappers, in the other order",
    },
)
