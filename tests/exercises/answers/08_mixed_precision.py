"""Answers to the exercises of lesson 08."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}
ON_CPU = "Not judged: a check has tensors on the CPU only, where this does nothing."

AUTOCAST_TO = SOLUTION["08.1"]
ANSWERS["08.1"] = Answers(
    right=[
        """
def autocast_to(model, x, dtype):
    with torch.amp.autocast(device_type=x.device.type, dtype=dtype, enabled=True):
        output = model(x)
    return output
""",
        """
def autocast_to(model, x, dtype):
    return torch.autocast(str(x.device), dtype)(model)(x)
""",
    ],
    wrong={
        edit(
            AUTOCAST_TO, ("x.device.type", '"cpu"')
        ): "for a tensor on xpu and torch.float16 (an Intel GPU",
        """
def autocast_to(model, x, dtype):
    return model.to(dtype)(x.to(dtype))
""": "autocast casts a copy",
        edit(AUTOCAST_TO, ("(x)", "(x).float()")): "return model(x) as it comes out",
        """
def autocast_to(model, x, dtype):
    torch.set_autocast_dtype(x.device.type, dtype)
    with torch.autocast(x.device.type):
        return model(x)
""": "has another default type for cpu",
    },
)

MENDED = SOLUTION["08.2"]
ANSWERS["08.2"] = Answers(
    right=[
        edit(MENDED, (" loss\n", " loss.item()\n")),
        """
def mended(model, optimizer, scaler, x, y, max_norm):
    model.zero_grad()
    with torch.amp.autocast(x.device.type, torch.half):
        loss = torch.nn.CrossEntropyLoss()(model(x), y)
        scaled = scaler.scale(loss)
    scaled.backward()
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, max_norm=max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()
""",
    ],
    wrong={
        """
import torch.nn.functional as F

def mended(model, optimizer, scaler, x, y, max_norm):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
        loss = scaler.scale(loss)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    return loss
""": "backward ran within autocast",
        edit(
            MENDED, ("    scaler.unscale_(optimizer)\n", "")
        ): "clipped while it still had the scale",
        edit(MENDED, ("    scaler.update()\n", "")): "scaler.update(), each once",
        edit(
            MENDED, ("scaler.scale(loss)", "loss = scaler.scale(loss)\n    loss")
        ): "that is the loss times the scale",
        edit(
            MENDED,
            ("scaler.step(optimizer)", "optimizer.step()"),
            ("    scaler.update()\n", ""),
        ): "use scaler.step(optimizer)",
    },
    equivalent={"moves x to the CPU": ON_CPU, "moves y to the CPU": ON_CPU},
)

WIDENING = SOLUTION["08.3"]
ANSWERS["08.3"] = Answers(
    right=[
        """
import functools

def widening(model, x, dtype):
    seen = []

    def note(name, module, inputs, output):
        seen.append((name, inputs[0].dtype, output.dtype))

    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]
    handles = [
        m.register_forward_hook(functools.partial(note, n)) for n, m in leaves
    ]
    with torch.no_grad(), torch.amp.autocast("cpu", dtype):
        model(x)
    [handle.remove() for handle in handles]
    return [n for n, before, after in seen if (before, after) == (dtype, torch.float)]
""",
        """
import torch.nn.modules.module as hooks

def widening(model, x, dtype):
    names = {module: name for name, module in model.named_modules()}
    found = []

    def note(module, inputs, output):
        leaf = next(module.children(), None) is None
        if leaf and inputs[0].dtype is dtype and output.dtype is torch.float32:
            found.append(names[module])

    handle = hooks.register_module_forward_hook(note)
    with torch.autocast(x.device.type, dtype):
        model(x)
    handle.remove()
    return tuple(found)
""",
    ],
    wrong={
        edit(
            WIDENING, ("inputs[0].dtype == dtype and ", "")
        ): "the ReLU after it was given float32",
        edit(
            WIDENING, ("if not any(module.children()):", "if True:")
        ): "has children, so it does not count",
        edit(WIDENING, ("handle.remove()", "pass")): "hooks are left in the model",
        edit(
            WIDENING,
            (
                "return found",
                "return [n for n, _ in model.named_modules() if n in found]",
            ),
        ): "not that of named_modules()",
        edit(WIDENING, (", name=name", "")): "expected ['1']",
    },
    equivalent={"moves x to the CPU": ON_CPU},
)

ACCUMULATE = SOLUTION["08.4"]
ANSWERS["08.4"] = Answers(
    right=[
        """
import torch.nn as nn

def accumulate(model, optimizer, scaler, batches, max_norm):
    model.zero_grad(set_to_none=False)
    k, criterion = len(batches), nn.CrossEntropyLoss()
    for x, y in batches:
        with torch.amp.autocast(device_type=x.device.type, dtype=torch.half):
            logits = model(x)
            loss = criterion(logits, y)
        scaler.scale(loss / k).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.item()
""",
        """
import torch.nn.functional as F

def accumulate(model, optimizer, scaler, batches, max_norm):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = None
    for x, y in batches:
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x)
        scaler.scale(F.cross_entropy(logits.float(), y)).backward()
    scaler.unscale_(optimizer)
    for p in parameters:
        p.grad /= len(batches)
    norm = torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in parameters]))
    if norm > max_norm:
        for p in parameters:
            p.grad *= max_norm / norm
    scaler.step(optimizer)
    scaler.update()
""",
    ],
    wrong={
        edit(
            ACCUMULATE, (" / len(batches)", "")
        ): "Divide each loss by the number of batches",
        edit(
            ACCUMULATE,
            ("    scaler.update()\n", ""),
            ("backward()", "backward()\n        scaler.update()"),
        ): "when backward has run for all batches comes scaler.step(optimizer)",
        edit(
            ACCUMULATE,
            ("    optimizer.zero_grad()\n", ""),
            ("y in batches:\n", "y in batches:\n        optimizer.zero_grad()\n"),
        ): "the batches before the last were thrown away",
        edit(
            ACCUMULATE, ("        scaler.scale(loss)", "            scaler.scale(loss)")
        ): "within autocast",
    },
)

SHARE_LOST = SOLUTION["08.5"]
ANSWERS["08.5"] = Answers(
    right=[
        """
def share_lost(weights, updates, dtype):
    stored = weights.to(dtype)
    still = stored + updates.to(dtype) == stored
    return still.sum() / still.numel()
""",
        """
def share_lost(weights, updates, dtype):
    before = weights.type(dtype).flatten().tolist()
    after = (weights.type(dtype) + updates.type(dtype)).flatten().tolist()
    return sum(a == b for a, b in zip(after, before)) / len(before)
""",
    ],
    wrong={
        edit(
            SHARE_LOST, ("updates.to(dtype)", "updates")
        ): "less than half of the distance",
        edit(SHARE_LOST, ("mean", "sum")): "that is how many, not which share",
        """
def share_lost(weights, updates, dtype):
    before, after = weights.to(dtype), (weights + updates).to(dtype)
    return (after == before).float().mean().item()
""": "round both first",
        """
def share_lost(weights, updates, dtype):
    return (updates.abs() < torch.finfo(dtype).eps / 2).float().mean().item()
""": "grows with the weight",
    },
    equivalent={"moves weights to the CPU": ON_CPU, "moves updates to the CPU": ON_CPU},
)
