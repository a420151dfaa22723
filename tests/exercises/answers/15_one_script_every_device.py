"""Answers to the exercises of lesson 15."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

READY = SOLUTION["15.0"]
ANSWERS["15.0"] = Answers(
    right=[
        """
import torch


def ready_images(pixels, mean, std, device):
    x = torch.tensor(pixels, dtype=torch.float32, device=device).unsqueeze(1)
    return x.div(255).sub(mean).div(std)
""",
        """
import numpy as np
import torch


def ready_images(pixels, mean, std, device):
    images = ((pixels / 255 - mean) / std).astype(np.float32)
    return torch.from_numpy(images[:, np.newaxis]).to(device)
""",
        """
import torch


def ready_images(pixels, mean, std, device):
    n, height, width = pixels.shape
    x = torch.as_tensor(pixels).to(device, torch.float32) / (255 * std) - mean / std
    return x.reshape(n, 1, height, width)
""",
    ],
    wrong={
        edit(READY, (".float()", "")): "expected torch.float32",
        edit(READY, ("[:, None]", "")): "expected (3, 1, 4, 4)",
        edit(READY, ("[:, None]", "[..., None]")): "expected (3, 1, 4, 4)",
        edit(READY, (" / 255", "")): "(pixel / 255 - mean) / std",
        edit(READY, (".to(device)", "")): "for the device meta",
        edit(READY, (" - mean) / std", ") / std - mean")): "(pixel / 255 - mean) / std",
        """
import torch


def ready_images(pixels, mean, std, device):
    pixels = pixels.astype("float32")
    return ((pixels / 255 - mean) / std)[:, None]
""": "an object of type ndarray",
        """
import torch


def ready_images(pixels, mean, std, device):
    if pixels.dtype != "float64":
        pixels = pixels.astype("float64")
    pixels /= 255
    images = torch.from_numpy(pixels).float()[:, None].to(device)
    return (images - mean) / std
""": "changed",
        """
import torch


def ready_images(pixels, mean, std, device):
    images = torch.from_numpy(pixels).to(device).float() / 255
    n, height, width = pixels.shape
    return ((images - mean) / std).transpose(1, 2).reshape(n, 1, height, width)
""": "(pixel / 255 - mean) / std",
    },
)

ACCURACY = SOLUTION["15.1"]
ANSWERS["15.1"] = Answers(
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
        """
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right += torch.where(model(inputs).argmax(1) == labels)[0].numel()
        seen += len(labels)
    return right / seen
""": "(where, where, where)",
        """
@torch.no_grad()
def accuracy(model, batches):
    counts, seen = 0, 0
    for inputs, labels in batches:
        hits = (model(inputs).argmax(1) == labels).long()
        counts = counts + torch.bincount(hits, minlength=2)
        seen += len(labels)
    return counts[1].item() / seen
""": "bincount",
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

VERDICT = SOLUTION["15.3"]
ANSWERS["15.3"] = Answers(
    right=[
        """
import numpy as np

from utils.timing import median_interval


def verdict(losses, seconds, bound):
    if len(losses[0]) != len(losses[1]):
        return "not the same"
    apart = np.abs(np.subtract(*losses)).max()
    if np.isnan(apart) or apart > bound:
        return "not the same"
    low, high = median_interval(np.divide(*seconds).tolist())
    return "faster" if low > 1 else "slower" if high < 1 else "cannot tell"
""",
        """
import torch

from utils.timing import median_interval


def verdict(losses, seconds, bound):
    before, after = (torch.tensor(part, dtype=torch.float64) for part in losses)
    if before.shape != after.shape or not torch.allclose(
        before, after, rtol=0, atol=bound
    ):
        return "not the same"
    before, after = (torch.tensor(part, dtype=torch.float64) for part in seconds)
    low, high = median_interval((after / before).tolist())
    if high < 1:
        return "faster"
    if low > 1:
        return "slower"
    return "cannot tell"
""",
    ],
    wrong={
        edit(
            VERDICT, ("abs(a - b) <= bound", "a - b <= bound")
        ): "the last loss is 0.0625 higher",
        edit(
            VERDICT,
            ("not all(abs(a - b) <= bound", "any(abs(a - b) > bound"),
        ): "a loss is NaN afterwards",
        edit(
            VERDICT, ("a / b for a, b in", "b / a for a, b in")
        ): "three times as fast",
        edit(VERDICT, ("low > 1", "low >= 1")): "the interval begins at 1",
        edit(VERDICT, ("high < 1", "high <= 1")): "the interval ends at 1",
        edit(VERDICT, ("len(before) == len(after)", "True")): "a step is missing",
        """
from statistics import median


def verdict(losses, seconds, bound):
    before, after = losses
    same = len(before) == len(after)
    if not same or not all(abs(a - b) <= bound for a, b in zip(before, after)):
        return "not the same"
    times = median(seconds[0]) / median(seconds[1])
    return "faster" if times > 1 else "slower"
""": "some rounds are faster, some slower",
        """
from utils.timing import median_interval


def verdict(losses, seconds, bound):
    before, after = losses
    same = len(before) == len(after)
    if not same or not all(abs(a - b) <= bound for a, b in zip(before, after)):
        return "not the same"
    (low, high), (least, most) = map(median_interval, seconds)
    if most < low:
        return "faster"
    return "slower" if high < least else "cannot tell"
""": "on a machine that gets busier",
        edit(VERDICT, ('return "not the same"', "return None")): "expected one of",
    },
    equivalent={
        (
            "if not same or not all((abs(a - b) <= bound for a, b in zip(before,"
            " after))): → if not same or not all((abs(a - b) <= bound for a, b in"
            " zip(after, before))):"
        ): "A distance is the same in both directions.",
        (
            "if not same or not all((abs(a - b) <= bound for a, b in zip(before,"
            " after))): → if not same or not all((abs(b - a) <= bound for a, b in"
            " zip(before, after))):"
        ): "A distance is the same in both directions.",
    },
)
