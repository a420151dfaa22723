"""Steps of the kinds that strangers' loops are made of, for cuda_memory.py: autocast
with checkpoints, copies of the weights, normed weights, images as bytes, host tensors.
"""

import contextlib
import copy
import functools

import numpy
import torch
import torch.nn.functional as F
from memory_steps import ADAMW, GPU, SGD, Language
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

half, bf16 = torch.float16, torch.bfloat16


class Reentrant(Language):
    """checkpoint's older kind."""

    def forward(self, i):
        x = self.embed(i) + self.place
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)


def trained(model, dtype=None, optimizer=ADAMW, after=lambda: None):
    """step(x, labels) with an optimizer; after: what follows each."""
    steps = optimizer(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == half)
    casts = functools.partial(torch.autocast, "cuda", dtype)

    def step(x, labels):
        with casts() if dtype else contextlib.nullcontext():
            loss = F.cross_entropy(model(x).flatten(0, -2), labels)
        steps.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(steps)
        scaler.update()
        after()
        return loss.item()

    return step


def language(dtype, kind=Language, **options):
    def make():
        step = trained(kind(**options).to(GPU), dtype)
        x = torch.randint(1000, (16, 128), device=GPU)
        return lambda: step(x, x.flatten())

    return make


def images(count=64, side=32):
    """A batch that stays on the device."""
    x = torch.randn(count, 3, side, side, device=GPU)
    return x, torch.arange(count, device=GPU) % 10


def averaged():
    """The older way to keep an average: a copy of the model, a loop over both."""
    model = convolutional().to(GPU)
    average = copy.deepcopy(model).requires_grad_(False)

    def follow():
        with torch.no_grad():
            for mean, now in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(now, 0.01)

    step = trained(model, after=follow)
    batch = images()
    return lambda: step(*batch)


class Average(nn.Module):
    """A wrapper that registers the model and its copy, as public EMA packages do."""

    def __init__(self, model):
        super().__init__()
        self.online, self.ema = model, copy.deepcopy(model).requires_grad_(False)
        self.register_buffer("count", torch.tensor(0))

    @torch.no_grad()
    def update(self):
        self.count += 1
        pairs = zip(self.ema.parameters(), self.online.parameters(), strict=True)
        for mean, now in pairs:
            mean.copy_(mean * 0.99 + now * 0.01)


def wrapped():
    wrapper = Average(Language(2).to(GPU)).to(GPU)
    step = trained(wrapper.online, bf16, after=wrapper.update)
    x = torch.randint(1000, (16, 128), device=GPU)
    return lambda: step(x, x.flatten())


def swa():
    model = Language(2).to(GPU)
    multi = torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=multi)
    step = trained(model, after=lambda: average.update_parameters(model))
    x = torch.randint(1000, (16, 128), device=GPU)
    return lambda: step(x, x.flatten())


def normed(norm):
    """Heads as DINO's: a wide last layer with a normed weight."""

    def make():
        last = norm(nn.Linear(256, 8192, bias=False))
        layers = nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), last
        step = trained(nn.Sequential(*layers).to(GPU))
        x = torch.randn(1, 256, 256, device=GPU)
        labels = torch.arange(256, device=GPU)
        return lambda: step(x, labels)

    return make


class Pictures(Dataset):
    """Bytes, as from a file; each picture becomes numbers when it is asked for."""

    def __init__(self, count=128, side=48):
        self.x = torch.randint(256, (count, side, side, 3), dtype=torch.uint8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, number):
        x = self.x[number].permute(2, 0, 1).float().div(255)
        return (x - 0.5) / 0.25, number % 10


def pictures():
    """An epoch of a loader with transforms, batches moved to the device."""
    step = trained(convolutional().to(GPU), bf16)
    loader = DataLoader(Pictures(), 64, shuffle=True)

    def epoch():
        for x, labels in loader:
            step(x.to(GPU, non_blocking=True), labels.to(GPU, non_blocking=True))

    return epoch


def bytes_on_the_device():
    """Images stay bytes until they are there."""
    step = trained(convolutional().to(GPU))
    x = torch.randint(256, (64, 3, 48, 48), dtype=torch.uint8, device=GPU)
    labels = torch.arange(64, device=GPU) % 10
    return lambda: step(x.float().div(255).sub(0.5), labels)


def on_the_host():
    """A data set on the host, of which each step takes a part."""
    data = numpy.random.default_rng(0).random((512, 3, 64, 64), numpy.float32)
    step = trained(convolutional().to(GPU), optimizer=SGD)

    def one():
        x = torch.from_numpy(data[:64])
        step((x - x.mean()).to(GPU), torch.arange(64).to(GPU) % 10)

    return one


def convolutional():
    """Strides, groups, group norm, a residual."""

    class Residual(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.one = nn.Conv2d(i, o, 3, stride, 1, bias=False)
            self.two = nn.Conv2d(o, o, 3, 1, 1, groups=8, bias=False)
            self.norm, self.again = nn.BatchNorm2d(o), nn.GroupNorm(8, o)
            self.short = nn.Conv2d(i, o, 1, stride, bias=False)

        def forward(self, x):
            y = F.silu(self.norm(self.one(x)))
            return F.relu(self.again(self.two(y)) + self.short(x), inplace=True)

    layers = Residual(3, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(256, 10)
    return nn.Sequential(*layers, *head)


def up_and_down():
    """Transposed convolutions, interpolation, concatenation: a small U-net."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.deep = (
                nn.Conv2d(3, 64, 3, 2, 1),
                nn.Conv2d(64, 128, 3, 2, 1),
            )
            self.up, self.out = (
                nn.ConvTranspose2d(128, 64, 4, 2, 1),
                nn.Conv2d(128, 3, 3, padding=1),
            )

        def forward(self, x):
            first = F.leaky_relu(self.down(x), 0.1)
            y = torch.cat([self.up(F.silu(self.deep(first))), first], 1)
            return self.out(F.interpolate(y, scale_factor=2, mode="bilinear"))

    net = Net().to(GPU)
    steps = torch.optim.Adam(net.parameters())
    x = torch.randn(32, 3, 64, 64, device=GPU)

    def step():
        noise = torch.randn_like(x)
        loss = F.mse_loss(net(x + noise), noise)
        steps.zero_grad()
        loss.backward()
        steps.step()

    return step


def scaled_images():
    """float16 with a scaler, on images."""
    step = trained(convolutional().to(GPU), half)
    batch = images()
    return lambda: step(*batch)


def two_players():
    """A generator and a discriminator, each with its optimizer."""
    g = nn.Sequential(nn.Linear(128, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 4096))
    d = nn.Sequential(nn.Linear(4096, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1))
    g, d = g.to(GPU), d.to(GPU)
    for_g, for_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    real = torch.randn(512, 4096, device=GPU)
    loss = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(512, 1, device=GPU), torch.zeros(512, 1, device=GPU)

    def step():
        fake = g(torch.randn(512, 128, device=GPU))
        for_d.zero_grad()
        (loss(d(real), ones) + loss(d(fake.detach()), zeros)).backward()
        for_d.step()
        for_g.zero_grad()
        loss(d(fake), ones).backward()
        for_g.step()

    return step


HARDER = {
    "autocast, checkpoint": language(bf16, again=True),
    "autocast, reentrant checkpoint": language(bf16, Reentrant),
    "scaler, checkpoint": language(half, again=True),
    "reentrant checkpoint": language(None, Reentrant),
    "scaler, images": scaled_images,
    "average by a loop": averaged,
    "average in a wrapper": wrapped,
    "AveragedModel": swa,
    "weight_norm": normed(nn.utils.weight_norm),
    "parametrized weight_norm": normed(nn.utils.parametrizations.weight_norm),
    "spectral_norm": normed(nn.utils.parametrizations.spectral_norm),
    "loader with transforms": pictures,
    "bytes on the device": bytes_on_the_device,
    "data on the host": on_the_host,
    "transposed convolutions": up_and_down,
    "two players": two_players,
}
