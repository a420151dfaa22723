"""Models and steps whose memory is known, for cuda_memory.py and for a GPU
(benchmarks/on_a_gpu.py, where pytest may lack).
"""

import contextlib
import functools
import gc

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

MIB = 2**20
GPU = torch.device("cuda")
ADAMW, SGD = torch.optim.AdamW, functools.partial(torch.optim.SGD, momentum=0.9)


class Block(nn.Module):
    def __init__(self, width, dropout=0.0, mask=None, groups=1):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, width // groups) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop, self.gqa = nn.Dropout(dropout), groups > 1
        self.register_buffer("mask", mask)

    def attention(self, x):
        heads = [f(x).unflatten(-1, (-1, 64)).transpose(1, 2) for f in self.parts()]
        options = {"attn_mask": self.mask, "is_causal": self.mask is None}
        options |= {"enable_gqa": True} if self.gqa else {}
        y = F.scaled_dot_product_attention(*heads, **options)
        return self.out(y.transpose(1, 2).flatten(2))

    def parts(self):
        return self.q, self.k, self.v

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Language(nn.Module):
    def __init__(self, layers=4, width=256, tokens=128, again=False, **block):
        super().__init__()
        self.embed, self.again = nn.Embedding(1000, width), again
        self.place = nn.Parameter(torch.zeros(tokens, width))
        self.blocks = nn.ModuleList(Block(width, **block) for _ in range(layers))
        self.head = nn.Linear(width, 1000, bias=False)

    def forward(self, i):
        x = self.embed(i) + self.place
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


def training(build, shape, optimizer=ADAMW, dtype=None, parts=1, clip=False):
    """make() for a step; parts: gradients are accumulated over so many."""

    def make():
        model = build().to(GPU)
        step_with = optimizer(model.parameters(), lr=1e-3)
        scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
        x = torch.randn(shape) if len(shape) > 2 else torch.randint(1000, shape)
        x = x.cuda()

        def step():
            step_with.zero_grad()
            for _ in range(parts):
                casts = (
                    torch.autocast("cuda", dtype) if dtype else contextlib.nullcontext()
                )
                with casts:
                    y = model(x).flatten(0, -2)
                    loss = F.cross_entropy(y, torch.arange(len(y), device=GPU) % 10)
                scaler.scale(loss / parts).backward()
            del y
            if clip:
                scaler.unscale_(step_with)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(step_with)
            scaler.update()
            return loss.item()

        return step

    return make


def convolutions():
    def layer(i, o):
        normed = nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o)
        return nn.Sequential(*normed, nn.ReLU(inplace=True))

    layers = layer(3, 32), layer(32, 32), nn.MaxPool2d(2), layer(32, 64)
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )


def perceptron():
    layers = nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(1024, 10))


def encoder():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


FUSED = functools.partial(ADAMW, fused=True)
LOOP = functools.partial(ADAMW, foreach=False)
MASK = torch.ones(128, 128, dtype=torch.bool).tril()
half, bf16 = torch.float16, torch.bfloat16
MANY, FEW = (8, 128), (1, 128)
STEPS = {
    "attention": training(Language, MANY),
    "dropout": training(lambda: Language(dropout=0.1), MANY),
    "checkpoint": training(lambda: Language(again=True), (16, 128)),
    "bfloat16": training(Language, MANY, dtype=bf16),
    "float16": training(Language, MANY, dtype=half, clip=True),
    "mask": training(lambda: Language(mask=MASK), MANY),
    "grouped": training(lambda: Language(groups=2), MANY),
    "foreach": training(lambda: Language(2, 512), FEW),
    "fused": training(lambda: Language(2, 512), FEW, FUSED),
    "for-loop": training(lambda: Language(2, 512), FEW, LOOP),
    "accumulated": training(Language, MANY, SGD, parts=2, clip=True),
    "perceptron": training(perceptron, (1, 4096, 256), SGD),
    "convolutions": training(convolutions, (64, 3, 32, 32), SGD),
    "encoder": training(encoder, (16, 128, 256)),
}


def measured(make):
    """(allocated, asked for) at the highest moment of the second step, bytes."""

    def asked(when):
        return torch.cuda.memory_stats()[f"requested_bytes.all.{when}"]

    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated(), asked("current")
    step = make()
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before[0], asked("peak") - before[1]
