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
        edit(READY, (".to(device)", "")): "for the device meta",
        """
import torch


def ready_images(pixels, mean, std, device):
    if pixels.dtype != "float64":
        pixels = pixels.astype("float64")
    pixels /= 255
    images = torch.from_numpy(pixels).float()[:, None].to(device)
    return (images - mean) / std
""": "changed",
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
        edit(ACCURACY, (".item()", "")): "expected a Python number: ask for it once",
    },
)

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
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    return order[index * batch : (index + 1) * batch]
""": "repeat each other",
        """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    torch.manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(n)[index * batch : (index + 1) * batch]
""": "dropout would draw other numbers",
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
            VERDICT, ("a / b for a, b in", "b / a for a, b in")
        ): "three times as fast",
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
