"""Answers to the exercises of lesson 15."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

OPTIMIZER_OF = SOLUTION["15.0"]
ANSWERS["15.0"] = Answers(
    right=[
        """
from torch import optim


def optimizer_of(model, lr):
    weights = [p for p in model.parameters() if p.requires_grad]
    return optim.AdamW(weights, lr=lr, foreach=False, fused=True)
""",
        """
def optimizer_of(model, lr):
    optimizer = torch.optim.AdamW(
        [{"params": list(model.parameters()), "lr": lr}], fused=True
    )
    return optimizer
""",
    ],
    wrong={
        edit(OPTIMIZER_OF, ("lr, fused=True", "lr")): "expected one that updates all",
        edit(
            OPTIMIZER_OF, ("lr, fused", "lr=lr, foreach")
        ): "expected one that updates all",
        edit(
            OPTIMIZER_OF, ("lr, fused", "fused")
        ): "the learning rate is 0.001, expected 0.1",
        edit(OPTIMIZER_OF, ("AdamW", "Adam")): "expected a torch.optim.AdamW",
        edit(
            OPTIMIZER_OF, ("model.", "model[0].")
        ): "holds 2 of the model's 4 tensors of weights",
        """
def optimizer_of(model, lr):
    weights = [p for layer in model.children() for p in layer.parameters(recurse=False)]
    return torch.optim.AdamW(weights, lr, fused=True)
""": "holds 2 of the model's 4 tensors of weights",
        """
def optimizer_of(model, lr):
    return torch.optim.AdamW(model.parameters(), lr, fused=True), model
""": "you returned an object of type tuple",
        edit(
            OPTIMIZER_OF,
            ("model.parameters()", '[{"params": [p]} for p in model.parameters()]'),
        ): "expected one that updates all",
    },
)

WHOLE_GAIN = SOLUTION["15.1"]
ANSWERS["15.1"] = Answers(
    right=[
        """
def whole_gain(step, part, times):
    share = part / step
    return 1 / ((1 - share) + share / times)
""",
        """
from fractions import Fraction


def whole_gain(step, part, times):
    saved = Fraction(part) * (1 - Fraction(1 / times))
    return float(Fraction(step) / (Fraction(step) - saved))
""",
    ],
    wrong={
        """
def whole_gain(step, part, times):
    return times * part / step
""": "the rest still takes",
        """
def whole_gain(step, part, times):
    return 1 + part / step * (times - 1)
""": "the rest still takes",
        """
def whole_gain(step, part, times):
    return step / (step - part)
""": "the rest still takes",
        """
def whole_gain(step, part, times):
    return 1 / (1 - part + part / times)
""": "the rest still takes",
        """
def whole_gain(step, part, times):
    return step - part + part / times
""": "how long a step now takes",
        """
def whole_gain(step, part, times):
    return (step - part + part / times) / step
""": "is its reciprocal",
        """
def whole_gain(step, part, times):
    return step / (step - part + part / times) - 1
""": "1 means as fast as before",
        edit(WHOLE_GAIN, ("+ part ", "")): "the rest still takes 18 s",
        """
def whole_gain(step, part, times):
    return "faster"
""": "expected a number",
    },
)

ORDER = """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(
        n, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch)
    )
    return order[index * batch : (index + 1) * batch]
"""
ANSWERS["15.2"] = Answers(
    right=[
        """
import numpy as np


def samples_of(step, n, batch, seed):
    per_epoch = n // batch
    order = np.random.default_rng([seed, step // per_epoch]).permutation(n)
    first = step % per_epoch * batch
    return torch.from_numpy(order[first : first + batch])
""",
        """
def samples_of(step, n, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    # draws the orders of the earlier epochs again
    for _ in range(1 + step // (n // batch)):
        order = torch.randperm(n, generator=generator)
    return order.split(batch)[step % (n // batch)]
""",
        """
import random


def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = random.Random(f"{seed}, {epoch}").sample(range(n), n)
    return torch.tensor(order).narrow(0, index * batch, batch)
""",
    ],
    wrong={
        """
def samples_of(step, n, batch, seed):
    return torch.randint(
        n, (batch,), generator=torch.Generator().manual_seed(1_000_003 * seed + step)
    )
""": "samples come twice",
        """
def samples_of(step, n, batch, seed):
    torch.manual_seed(seed)
    order = torch.randperm(n)
    index = step % (n // batch)
    return order[index * batch : (index + 1) * batch]
""": "the order of the first",
        """
def samples_of(step, n, batch, seed):
    index = step % (n // batch)
    return torch.randperm(n)[index * batch : (index + 1) * batch]
""": "when it is asked for again",
        """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    return order[index * batch : (index + 1) * batch]
""": "repeat each other",
        """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed ^ epoch))
    return order[index * batch : (index + 1) * batch]
""": "repeat each other",
        """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed * n + epoch))
    return order[index * batch : (index + 1) * batch]
""": "epoch 64 of seed 0 and epoch 0 of seed 1",
        edit(ORDER, ("1_000_003 * seed", "(seed << 32)")): "lowest 32 bits",
        """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    torch.manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(n)[index * batch : (index + 1) * batch]
""": "dropout would draw other numbers",
        edit(
            ORDER, ("n, generator", "n // batch * batch,\n        generator")
        ): "the samples [20, 21, 22] never come",
        edit(
            ORDER, ("n // batch", "-(-n // batch)")
        ): "expected a tensor of 5 integers",
        """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    which = torch.randperm(
        n // batch, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch)
    )[index]
    return order[which * batch : (which + 1) * batch]
""": "not of batches",
        """
def samples_of(step, n, batch, seed):
    index = step % (n // batch)
    return torch.arange(index * batch, (index + 1) * batch)
""": "each holds neighbors",
    },
    equivalent={
        (
            "generator = torch.Generator().manual_seed(1000003 * seed + epoch) →"
            " generator = torch.Generator().manual_seed(1000003 * seed - epoch)"
        ): "Counted down, the seeds of the epochs are as different as counted up.",
        (
            "generator = torch.Generator().manual_seed(1000003 * seed + epoch) →"
            " generator = torch.Generator().manual_seed(1000002 * seed + epoch)"
        ): "Any factor larger than the number of epochs keeps the seeds apart.",
        (
            "generator = torch.Generator().manual_seed(1000003 * seed + epoch) →"
            " generator = torch.Generator().manual_seed(1000004 * seed + epoch)"
        ): "Any factor larger than the number of epochs keeps the seeds apart.",
    },
)

ACCURACY = SOLUTION["15.3"]
ANSWERS["15.3"] = Answers(
    right=[
        """
def accuracy(model, batches):
    with torch.inference_mode():
        right = [model(inputs).argmax(-1).eq(labels) for inputs, labels in batches]
        return torch.cat(right).float().mean().item()
""",
        """
@torch.no_grad()
def accuracy(model, batches):
    counts = [(model(x).max(dim=1).indices == y).sum() for x, y in batches]
    return int(sum(counts).cpu()) / sum(y.numel() for _, y in batches)
""",
        """
def accuracy(model, batches):
    wrong, seen = torch.zeros(()), 0
    for inputs, labels in batches:
        with torch.no_grad():
            wrong += torch.count_nonzero(
                model(inputs).topk(1).indices.flatten() - labels
            )
        seen += labels.shape[0]
    return float(1 - wrong / seen)
""",
        """
@torch.no_grad()
def accuracy(model, batches):
    device = next(model.parameters()).device
    right, seen = torch.zeros((), device=device), 0
    for inputs, labels in batches:
        inputs, labels = inputs.to(device), labels.to(device)
        right += (model(inputs).argmax(dim=1) == labels).sum()
        seen += len(labels)
    return right.item() / seen
""",
    ],
    wrong={
        """
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right += (model(inputs).argmax(1) == labels).sum().item()
        seen += len(labels)
    return right / seen
""": "values in 3 batches",
        """
@torch.no_grad()
def accuracy(model, batches):
    shares = [
        (model(inputs).argmax(1) == labels).float().mean() for inputs, labels in batches
    ]
    return torch.stack(shares).mean().item()
""": "that is the mean over batches",
        edit(ACCURACY, ("@torch.no_grad()\n", "")): "torch.no_grad()",
        edit(ACCURACY, (".item()", "")): "you returned a tensor",
        """
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right += (model(inputs).argmax(1) == labels).sum().cpu().numpy()
        seen += len(labels)
    return right / seen
""": "you asked for 3 values in 3 batches (cpu, cpu, cpu)",
        """
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right += sum((model(inputs).argmax(1) == labels).tolist())
        seen += len(labels)
    return right / seen
""": "(tolist, tolist, tolist)",
        """
@torch.no_grad()
def accuracy(model, batches):
    device, right, seen = torch.device("cpu"), 0, 0
    for inputs, labels in batches:
        right += (model(inputs).argmax(1).to(device) == labels.to(device)).sum()
        seen += len(labels)
    return right.item() / seen
""": "(to, to, to, item)",
        """
@torch.no_grad()
def accuracy(model, batches):
    model.train()
    right = sum((model(inputs).argmax(1) == labels).sum() for inputs, labels in batches)
    return right.item() / sum(len(labels) for _, labels in batches)
""": "dropout changes the scores",
        """
def accuracy(model, batches):
    torch.set_grad_enabled(False)
    right = torch.cat([model(inputs).argmax(1) == labels for inputs, labels in batches])
    return right.float().mean().item()
""": "gradients are off for the rest",
        """
@torch.no_grad()
def accuracy(model, batches):
    right = sum((model(inputs).argmax(1) == labels).sum() for inputs, labels in batches)
    return 100 * right.item() / sum(len(labels) for _, labels in batches)
""": "from 0 to 1",
    },
)

IN_ONE = """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
"""
ANSWERS["15.4"] = Answers(
    right=[
        """
from torch import nn


def take_step(model, optimizer, scaler, parts, loss_of, limit):
    optimizer.zero_grad()
    count = sum(targets.shape[0] for _, targets in parts)
    for inputs, targets in parts:
        scaler.scale(
            loss_of(model, inputs, targets) * (targets.shape[0] / count)
        ).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=limit)
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad(set_to_none=False)
""",
        """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    for inputs, targets in parts:
        scaler.scale(len(inputs) * loss_of(model, inputs, targets)).backward()
    scaler.unscale_(optimizer)
    whole = sum(len(inputs) for inputs, _ in parts)
    grads = [p.grad.div_(whole) for p in model.parameters()]
    norm = torch.linalg.vector_norm(torch.cat([grad.flatten() for grad in grads]))
    for grad in grads:
        grad.mul_((limit / norm).clamp(max=1))
    scaler.step(optimizer)
    scaler.update()
    for p in model.parameters():
        p.grad = None
    return norm
""",
    ],
    wrong={
        edit(
            IN_ONE,
            ("    whole = sum(len(inputs) for inputs, _ in parts)\n", ""),
            ("* len(inputs) / whole", "/ len(parts)"),
        ): "its share of the samples",
        edit(
            IN_ONE, ("    scaler.unscale_(optimizer)\n", "")
        ): "unscale before you clip",
        """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""": "one batch, one step",
        """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) * len(inputs) / whole).backward()
        scaler.update()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    optimizer.zero_grad()
""": "update() came before",
        edit(
            IN_ONE,
            (
                "whole = sum(len(inputs) for inputs, _ in parts)",
                "count = len(parts) * len(parts[0][0])",
            ),
            ("/ whole", "/ count"),
        ): "its share of the samples",
        """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.zero_grad()
    scaler.step(optimizer)
    scaler.update()
""": "no gradient was left",
        """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        (loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    optimizer.zero_grad()
""": "the losses were not scaled by the scaler",
        edit(
            IN_ONE,
            ("    whole = sum(len(inputs) for inputs, _ in parts)\n", ""),
            (" * len(inputs) / whole", ""),
        ): "were added, and are to be one mean",
        edit(
            IN_ONE, ("scaler.step(optimizer)", "optimizer.step()")
        ): "not taken through the scaler",
        edit(
            IN_ONE,
            (
                "step(optimizer)\n    scaler.update()",
                "update()\n    scaler.step(optimizer)",
            ),
        ): "update() came before",
        edit(
            IN_ONE,
            (
                (
                    "    scaler.unscale_(optimizer)\n"
                    "    torch.nn.utils.clip_grad_norm_(model.parameters(),"
                    " limit)\n"
                ),
                "",
            ),
        ): "clip it to the limit",
        """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    scaler.unscale_(optimizer)
    for p in model.parameters():
        torch.nn.utils.clip_grad_norm_(p, limit)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""": "clip",
        edit(IN_ONE, ("    optimizer.zero_grad()\n", "")): "still there",
    },
)

TAKE_OVER = SOLUTION["15.5"]
ANSWERS["15.5"] = Answers(
    right=[
        """
import io


def take_over(new, old):
    file = io.BytesIO()
    torch.save(
        {"model": old.model.state_dict(), "optimizer": old.optimizer.state_dict()}, file
    )
    file.seek(0)
    checkpoint = torch.load(file, weights_only=True)
    new.model.load_state_dict(checkpoint["model"])
    new.optimizer.load_state_dict(checkpoint["optimizer"])
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""",
        """
import copy


def take_over(new, old):
    with torch.no_grad():
        for name, value in old.model.state_dict().items():
            new.model.state_dict()[name].copy_(value)
    new.optimizer.load_state_dict(copy.deepcopy(old.optimizer.state_dict()))
    new.generator = torch.Generator()
    new.generator.set_state(old.generator.get_state().clone())
    new.done = old.done
    return new
""",
        """
import copy


def take_over(new, old):
    clone = copy.deepcopy(old)
    new.model, new.optimizer, new.generator, new.done = (
        clone.model,
        clone.optimizer,
        clone.generator,
        clone.done,
    )
    return new
""",
    ],
    wrong={
        """
def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""": "moments",
        edit(
            TAKE_OVER, ("    new.generator.set_state(old.generator.get_state())\n", "")
        ): "draw different samples",
        edit(
            TAKE_OVER,
            ("import copy\n\n\n", ""),
            ("copy.deepcopy(old.optimizer.state_dict())", "old.optimizer.state_dict()"),
        ): "share memory",
        edit(
            TAKE_OVER,
            ("model.load_state_dict", "model = copy.deepcopy"),
            ("model.state_dict()", "model"),
        ): "does not update the weights",
        edit(TAKE_OVER, ("    new.done = old.done\n", "")): "new.done is",
        """
import copy


def take_over(new, old):
    return copy.deepcopy(old)
""": "you returned something else",
        edit(
            TAKE_OVER,
            (
                "load_state_dict(old.model.state_dict())",
                "state_dict = old.model.state_dict",
            ),
        ): "are not those of old.model",
        """
def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    for mine, theirs in zip(new.model.parameters(), old.model.parameters()):
        state = old.optimizer.state.get(theirs, {})
        new.optimizer.state[mine] = {
            name: value.clone() for name, value in state.items()
        }
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""": "moments or settings",
        edit(
            TAKE_OVER,
            ("generator.set_state(old", "generator = old"),
            ("get_state()", "get_state("),
        ): "new.generator is now of type Tensor",
        edit(
            TAKE_OVER,
            (
                "new.model.load_state_dict(old.model.state_dict())",
                (
                    "with torch.no_grad():\n"
                    "        for mine, theirs in zip(new.model.parameters(),"
                    " old.model.parameters()):\n"
                    "            mine.copy_(theirs)"
                ),
            ),
        ): "the buffers",
        edit(
            TAKE_OVER, ("set_state", "manual_seed"), ("get_state", "initial_seed")
        ): "draw different samples",
    },
)
