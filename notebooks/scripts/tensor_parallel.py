import os
import sys
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, parallel


def build():  # yours, without dropout
    torch.manual_seed(0)  # the same model, and the same batch below, in all processes
    layers = {"up": nn.Linear(64, 256), "gelu": nn.GELU(), "down": nn.Linear(256, 64)}
    layers |= {"norm": nn.LayerNorm(64), "head": nn.Linear(64, 10)}
    return nn.Sequential(OrderedDict(layers))


def train(model, x, y):
    # foreach, the default on CUDA, refuses plain tensors beside cut ones
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001, foreach=False)
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return f"{loss.item():.5f}"


dist.init_process_group("gloo")
mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
whole, cut = build(), build()
x, y = torch.randn(32, 64), torch.randint(10, (32,))
plan = {"up": parallel.ColwiseParallel(), "down": parallel.RowwiseParallel()}
parallel.parallelize_module(cut, mesh, plan)
for name, p in cut.named_parameters():
    here = p.to_local() if isinstance(p, DTensor) else p
    placements = getattr(p, "placements", "not cut")
    print(f"{name:11} {[*here.shape]} of {[*p.shape]}:", placements)
print("last loss: whole", train(whole, x, y), "cut", train(cut, x, y))
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # DTensor keeps the group, and gloo's threads: leave at once
