"""Exercises of lesson 15."""

import math
import random
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from simulate.waits import CountWaits
from utils.timing import median_interval

# ---- 15.0 ----

ARRAYS = [  # type, images, height, width, mean, std
    ("uint8", 3, 4, 4, 0.5, 0.25),
    ("float64", 2, 3, 5, 0.125, 0.5),
    ("uint8", 1, 2, 6, 0.0, 2.0),
]


def check_ready_images(answer):
    draw = np.random.default_rng(0)
    for dtype, n, height, width, mean, std in ARRAYS:
        pixels = draw.integers(0, 256, (n, height, width)).astype(dtype)
        pixels[0, 0, :2] = 0, 255
        shown = f"a {dtype} array of shape {pixels.shape}, mean {mean}, std {std}"
        exact = (torch.from_numpy(pixels.astype("float64")) / 255 - mean) / std
        got = call(answer, pixels, mean, std, torch.device("cpu"), shown=shown)
        expect.instance(got, torch.Tensor, shown, "a tensor")
        why = "NumPy computes in float64"
        expect.equal(got.dtype, torch.float32, shown, why, "the dtype is")
        shape = n, 1, height, width
        expect.equal(tuple(got.shape), shape, shown, said="the shape is")
        wrong = ((got - exact[:, None]).abs() > 1e-5).nonzero().tolist()
        for place in map(tuple, wrong[:1]):
            pixel, why = f"{shown}, at {place}", "(pixel / 255 - mean) / std"
            right = exact[:, None][place].item()
            expect.close(got[place].item(), right, pixel, why)
        there = call(answer, pixels, mean, std, torch.device("meta"), shown=shown)
        said = "for the device meta you made a tensor on"
        on = str(getattr(there, "device", None))
        expect.equal(on, "meta", shown, "use .to(device)", said)


# ---- 15.1 ----


class _Watched(nn.Module):
    """Its score is largest at the number behind the input's largest one. Notes whether
    it was called with gradients.
    """

    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(classes, classes, bias=False)
        self.drop = nn.Dropout(0.9)
        self.grad = False
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(classes).roll(1, 0))

    def forward(self, x):
        scores = self.layer(x)
        self.grad |= scores.requires_grad
        return self.drop(scores) - 3


EVALUATIONS = [  # classes, number of samples, in batches of, which are missed
    (4, 10, 4, [3, 8, 9]),
    (3, 5, 1, range(5)),
    (5, 7, 7, []),
    (2, 13, 3, [0, 1, 2, 5, 12]),
]


def check_accuracy(answer):
    for classes, n, size, missed in EVALUATIONS:
        largest = torch.arange(n) % classes
        offset = torch.tensor([2 if k in missed else 1 for k in range(n)])
        inputs = F.one_hot(largest, classes).float().split(size)
        labels = ((largest + offset) % classes).split(size)
        batches = list(zip(inputs, labels, strict=True))
        model = _Watched(classes).eval()
        shown = f"{n} samples in batches of {', '.join(str(len(y)) for y in labels)}"
        with CountWaits(numpy_raises=False) as waits:
            got = call(answer, model, batches, shown=shown, changes=[model])
        asked = "a Python number: ask for it once, at the end"
        got = float(expect.number(got, shown, asked))
        expected = 1 - len(missed) / n
        means = [(part == 1).float().mean().item() for part in offset.split(size)]
        why = f"{n - len(missed)} of the {n} samples are right"
        if abs(got - sum(means) / len(means)) < 1e-6:
            why = (
                "that is the mean over batches, but the last one has"
                f" {len(labels[-1])} samples, not {size}"
            )
        elif model.training:
            why = "in train mode, dropout changes the scores: leave it in eval mode"
        expect.close(got, expected, shown, why, rel_tol=0, abs_tol=1e-6)
        _judge_evaluation(waits.names, len(batches), model)


def _judge_evaluation(asked, batches, model):
    grad = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    slips = {
        f"you asked for {len(asked)} values in {batches} batches"
        f" ({', '.join(asked[:4])}): add up on the device": len(asked) > 1,
        "the forward passes kept what a backward pass needs: torch.no_grad()": (
            model.grad
        ),
        "gradients are off for the rest of the program: with torch.no_grad()": not grad,
        "the model is another one now: leave its mode and its weights alone": (
            model.training or not model.layer.weight.requires_grad
        ),
    }
    for slip, is_made in slips.items():
        if is_made:
            raise Wrong(f"the right value, but {slip}")


# ---- 15.2 ----

EPOCHS = 12
LOW_BITS = "(Of the seed of a generator on the CPU, only the lowest 32 bits count.)"


def check_samples_of(answer):
    # whatever the answer does to the generator of all, it is undone
    with torch.random.fork_rng(devices=[]):
        state = torch.random.get_rng_state()
        for n, batch in ((23, 5), (20, 5), (7, 1), (10, 10)):
            _check_epochs(answer, n, batch)
        _check_seeds(answer)
        if not torch.equal(torch.random.get_rng_state(), state):
            raise Wrong(
                "the samples are right, but PyTorch's own generator was seeded or drawn"
                " from on the way: dropout would draw other numbers. Take a"
                " torch.Generator of your own"
            )


def _ask(answer, step, n, batch, seed=7):
    shown = f"step = {step}, n = {n}, batch = {batch}, seed = {seed}"
    got = call(answer, step, n, batch, seed, shown=shown)
    whole = torch.is_tensor(got) and got.dtype in (torch.int64, torch.int32)
    if not whole or got.shape != (batch,):
        what = repr(got)
        if torch.is_tensor(got):
            what = f"a {got.dtype} tensor of shape {tuple(got.shape)}"
        raise Wrong(
            f"for {shown} you returned {what}, expected a tensor of {batch} integers"
        )
    if got.min() < 0 or got.max() >= n:
        raise Wrong(
            f"for {shown} you returned {got.tolist()}: samples are numbered from 0 to"
            f" {n - 1}"
        )
    return got.tolist()


def _check_seeds(answer):
    owners, numbers = {}, (*range(EPOCHS), 64, 100, 1000)
    for seed in numbers:
        for epoch in numbers:
            order = tuple(_ask(answer, epoch, 64, 64, seed))
            if order not in owners:
                owners[order] = seed, epoch
                continue
            other, earlier = owners[order]
            why = "two runs that should differ repeat each other"
            if epoch == earlier:
                why = f"the seed must go into the order. {LOW_BITS}"
            elif seed == other:
                why = "each epoch has an order of its own"
            raise Wrong(
                f"epoch {earlier} of seed {other} and epoch {epoch} of seed {seed} have"
                f" the same order: {why}"
            )


def _check_epochs(answer, n, batch):
    per_epoch = n // batch
    steps = random.Random(0).sample(range(EPOCHS * per_epoch), EPOCHS * per_epoch)
    drawn = {step: _ask(answer, step, n, batch) for step in steps}
    for step in steps[::-3]:
        if _ask(answer, step, n, batch) != drawn[step]:
            raise Wrong(
                f"step {step} gives other samples when it is asked for again: no"
                " resumed run is the same"
            )
    in_order = [drawn[step] for step in sorted(drawn)]
    epochs = [
        in_order[first : first + per_epoch]
        for first in range(0, len(in_order), per_epoch)
    ]
    expect.no_slip(_slips_of_epochs(epochs, n, batch))


def _slips_of_epochs(epochs, n, batch):
    """For expect.no_slip. epochs: of each, the samples of its steps."""
    count = "1 step" if len(epochs[0]) == 1 else f"{len(epochs[0])} steps"
    shown = f"with {n} samples in batches of {batch}, an epoch has {count}"
    for number, epoch in enumerate(epochs):
        samples = sum(epoch, [])
        twice = f"{shown}; in epoch {number} samples come twice"
        yield len(set(samples)) < len(samples), twice
        pairs = [pair for step in epoch for pair in pairwise(step)]
        neighbors = pairs and all((b - a) % n == 1 for a, b in pairs)
        draw = f"each holds neighbors, as {epoch[0]}: draw an order of the samples"
        yield neighbors, f"{shown}; {draw}"
    yield (
        epochs[0] == epochs[1],
        "the second epoch has the order of the first: the number of the epoch must go"
        f" into the seed. {LOW_BITS}",
    )
    batches = {frozenset(map(frozenset, epoch)) for epoch in epochs}
    yield (
        1 < batch < n and len(batches) == 1,
        f"{shown}; their samples are the same in all epochs: draw an order of samples,"
        " not of batches",
    )
    never = sorted(set(range(n)) - {k for epoch in epochs for k in sum(epoch, [])})
    yield (
        never,
        f"{shown}; in {EPOCHS} epochs the samples {never} never come: let each epoch"
        " leave out others",
    )


# ---- 15.3 ----

SAME = [2.5, 2.0, 1.5, 1.25]
ROUNDS = [1.0, 1.2, 0.9, 1.1, 1.0, 1.3, 0.8]  # how busy the machine was
THIRDS = ROUNDS, [s / 3 for s in ROUNDS]
BUSIER = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
ONES = [1.0] * 7
VERDICTS = [  # losses afterwards, seconds, verdict, what the case is about
    (SAME, THIRDS, "faster", "it is three times as fast in each round"),
    (SAME, THIRDS[::-1], "slower", "it takes three times as long in each round"),
    (
        SAME,
        ([1.1, 0.9, 1.2, 0.8, 1.0, 1.05, 0.95], ONES),
        "cannot tell",
        "some rounds are faster, some slower",
    ),
    ([2.5, 2, 1.5, 1.3125], THIRDS, "not the same", "the last loss is 0.0625 higher"),
    ([2.4375, 2, 1.5, 1.25], THIRDS, "not the same", "the first loss is 0.0625 lower"),
    ([2.53125, 1.96875, 1.5, 1.25], THIRDS, "faster", "losses differ by the bound"),
    (SAME[:3], THIRDS, "not the same", "a step is missing afterwards"),
    ([2.5, math.nan, 1.5, 1.25], THIRDS, "not the same", "a loss is NaN afterwards"),
    (  # each list alone spreads over the other
        SAME,
        (BUSIER, [0.8 * s for s in BUSIER]),
        "faster",
        "it is 1.25 times as fast in each round, on a machine that gets busier",
    ),
    (
        SAME,
        (BUSIER, [1.25 * s for s in BUSIER]),
        "slower",
        "it is 0.8 times as fast in each round, on a machine that gets busier",
    ),
    (SAME, ([1, *[1.5] * 6], ONES), "cannot tell", "the interval begins at 1 itself"),
    (SAME, ([1, *[0.5] * 6], ONES), "cannot tell", "the interval ends at 1 itself"),
]
WORDS = ("faster", "slower", "cannot tell", "not the same")


def check_verdict(answer):
    for after, seconds, expected, why in VERDICTS:
        got = call(
            answer, (SAME, after), seconds, 1 / 32, shown=f"bound 1/32 where {why}"
        )
        low, high = median_interval([a / b for a, b in zip(*seconds, strict=True)])
        rule = f"the interval of the ratios is {low:.3g} to {high:.3g}"
        if got not in WORDS:
            rule = f"it is one of {', '.join(map(repr, WORDS))}"
        expect.equal(got, expected, f"bound 1/32 and data where {why}", rule)


EXERCISES = [
    Exercise(
        number="15.0",
        title="An array made ready, once",
        name="ready_images",
        stars=1,
        check=check_ready_images,
        hints=[
            (
                "torch.from_numpy, then the arithmetic on the whole tensor. Where does"
                " float64 come in?"
            ),
            (
                "Move the pixels first, then .float(), / 255, - mean, / std; a channel"
                " is one more dimension, x[:, None]."
            ),
            "(torch.from_numpy(pixels).to(device).float()[:, None] / 255 - mean) / std",
        ],
        solution="""
import torch


def ready_images(pixels, mean, std, device):
    images = torch.from_numpy(pixels).to(device)[:, None]  # as they are
    return (images.float() / 255 - mean) / std
""",
        praise=(
            "The arithmetic is done once. Moved before .float(), bytes cross the link"
            " as bytes; moved after it, four times as many cross. (An Apple GPU has no"
            " float64: an array of that type needs .float() before .to(device).) What"
            " does not fit there whole is prepared once and kept on the disk."
        ),
    ),
    Exercise(
        number="15.1",
        title="An evaluation that asks once",
        name="accuracy",
        stars=2,
        check=check_accuracy,
        hints=[
            (
                "Count the right ones in a tensor on the device; the number of samples"
                " is known from the shapes."
            ),
            (
                "right = right + (scores.argmax(1) == labels).sum(), and .item() after"
                " the loop."
            ),
            (
                "Wrap it in torch.no_grad(), or write the decorator @torch.no_grad()"
                " above the function."
            ),
        ],
        solution="""
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right = right + (model(inputs).argmax(1) == labels).sum()
        seen += len(labels)
    return right.item() / seen
""",
        praise=(
            "The host runs ahead of the device through all batches and waits once. On"
            " XLA it would be one program a batch, as long as each ends with a sync()."
        ),
    ),
    Exercise(
        number="15.2",
        title="Samples from the step alone",
        name="samples_of",
        stars=2,
        check=check_samples_of,
        hints=[
            (
                "How many whole batches has an epoch? divmod then gives the epoch and"
                " the batch in it."
            ),
            (
                "A torch.Generator of your own, seeded with seed and epoch, draws"
                " torch.randperm(n)."
            ),
            (
                "Make one number of both: 1_000_003 * seed + epoch, so that no two"
                " pairs meet in practice."
            ),
        ],
        solution="""
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[index * batch : (index + 1) * batch]
""",
        praise=(
            "No state to save, nothing to skip: step 1,000,000 of a resumed run finds"
            " its samples at once. With several processes each takes every size-th of"
            " them, as in train.py."
        ),
    ),
    Exercise(
        number="15.3",
        title="Your own loop",
        name="verdict",
        stars=3,
        check=check_verdict,
        hints=[
            (
                "First the losses: as many before as after, and none further apart than"
                " bound. Only then the clock."
            ),
            (
                "The ratio of each round, before / after; then low, high ="
                " median_interval(ratios)."
            ),
            (
                "NaN compares as False with everything: ask `abs(a - b) <= bound`, not"
                " whether it is greater."
            ),
        ],
        solution="""
from utils.timing import median_interval


def verdict(losses, seconds, bound):
    before, after = losses
    same = len(before) == len(after)
    if not same or not all(abs(a - b) <= bound for a, b in zip(before, after)):
        return "not the same"
    low, high = median_interval([a / b for a, b in zip(*seconds)])
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "cannot tell"
""",
        praise=(
            'Now the numbers of your loop. If it says "cannot tell", more rounds make'
            " the interval shorter. A gain smaller than the interval is not shown."
        ),
    ),
]
