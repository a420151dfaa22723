"""The models and the data of train.py: what you replace by your own.

train.py asks for four functions: `add_arguments(parser)`, `model_of(args)`,
`loss_of(model, inputs, targets)`, and `load(args)`, which returns what to train on and
what to test on. A data set has a length, and take(samples) → (inputs, targets), for a
tensor of sample numbers.
"""

import random
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from checkpoint import Problem
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, attention):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads, self.attention = heads, attention

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x))
            .view(batch, length, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        mixed = self.attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Bytes (batch, length) in, scores of the next byte (batch, length, 256) out."""

    def __init__(
        self,
        width=128,
        layers=4,
        heads=4,
        context=64,
        attention=F.scaled_dot_product_attention,
    ):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(
            *(Block(width, heads, attention) for _ in range(layers))
        )
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, text):
        x = self.bytes(text) + self.places.weight[: text.shape[1]]
        return self.scores(self.norm(self.blocks(x)))


class ConvNet(nn.Module):
    """Images (batch, 1, 8, 8) in, scores of ten digits (batch, 10) out."""

    def __init__(self, channels=64):
        super().__init__()
        layers, inputs = [], 1
        # GroupNorm looks at one image, BatchNorm would look at all that a process has
        for _ in range(3):
            layers += [
                nn.Conv2d(inputs, channels, 3, padding=1),
                nn.GroupNorm(8, channels),
                nn.ReLU(),
            ]
            inputs = channels
        self.layers = nn.Sequential(
            *layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * channels, 10)
        )

    def forward(self, images):
        return self.layers(images)


class Dropped(nn.Module):
    """The same in and out, with what behaves otherwise in training: dropout and batch
    norm. Several processes gather statistics each from its own samples.
    """

    def __init__(self, width=128):
        super().__init__()
        layers, inputs = [nn.Flatten()], 64
        for _ in range(2):
            layers += [nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
            layers += [nn.Dropout(0.2)]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(width, 10))

    def forward(self, images):
        return self.layers(images)


class Text:
    """A text, cut into samples of `context` bytes. The target of a byte is the byte
    after it.
    """

    def __init__(self, text, context):
        self.text, self.window = text, np.arange(context + 1)

    def __len__(self):
        return (len(self.text) - 1) // (len(self.window) - 1)

    def take(self, samples):
        starts = samples.numpy()[:, None] * (len(self.window) - 1)
        windows = torch.from_numpy(self.text[starts + self.window])
        # uint8: an eighth of int64 to move
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


class Digits:
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def take(self, samples):
        return self.images[samples], self.labels[samples]


def make_text(length=400_000, seed=0):
    """Sums and sentences without end, as bytes: something that a small model can learn
    a good part of.
    """
    pick, parts, size = random.Random(seed), [], 0
    while size < length:
        a, b = pick.randrange(50), pick.randrange(50)
        who, does = (
            pick.choice(["the fox", "a bird", "my cat", "the old man"]),
            pick.choice(["sees", "counts", "likes"]),
        )
        what = pick.choice(["apples", "stars", "stones", "boats"])
        parts.append(f"{who} {does} {a} and {b} {what}: {a + b} {what}. ")
        size += len(parts[-1])
    return np.frombuffer("".join(parts)[:length].encode(), dtype=np.uint8)


def add_arguments(parser):
    """The options that belong to the models and the data."""
    # dropout: digits by a network with dropout and batch norm
    tasks = ["text", "digits", "dropout"]
    numbers = {"width": 128, "layers": 4, "heads": 4, "context": 64}
    parser.add_argument("--task", choices=tasks, default="text", help="what to learn")
    parser.add_argument("--data", type=Path, help="a text to learn, any file")
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value, help="of the GPT")


def load(args):
    """What to train on, and what to test on."""
    if args.task != "text":
        from sklearn.datasets import load_digits

        pixels, digits = load_digits(return_X_y=True)
        order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
        images, labels = (
            torch.tensor(pixels / 16, dtype=torch.float32)[order].view(-1, 1, 8, 8),
            torch.tensor(digits, dtype=torch.int64)[order],
        )
        return Digits(images[:1437], labels[:1437]), Digits(
            images[1437:], labels[1437:]
        )
    try:  # a file is mapped, not read: it may be larger than the memory
        text = np.memmap(args.data, np.uint8, mode="r") if args.data else make_text()
    except ValueError as error:
        raise Problem(f"{args.data}: {error}") from None
    cut = len(text) * 9 // 10
    if len(text) - cut <= args.context:
        raise Problem(
            f"{args.data} is too short: its last tenth, for the test, must be longer"
            " than --context"
        )
    return Text(text[:cut], args.context), Text(text[cut:], args.context)


def model_of(args):
    for name in ("width", "layers", "heads", "context"):
        if getattr(args, name) < 1:
            raise Problem(f"--{name} must be greater than 0")
    if args.width % args.heads:
        raise Problem(
            f"--width {args.width} cannot be divided into {args.heads} heads of one"
            " size"
        )
    if args.task == "text":
        return GPT(args.width, args.layers, args.heads, args.context)
    return ConvNet() if args.task == "digits" else Dropped(args.width)


def loss_of(model, inputs, targets):
    scores = model(inputs if inputs.is_floating_point() else inputs.int())
    return F.cross_entropy(scores.float().flatten(0, -2), targets.long().flatten())
