"""Samples a second of one network on one or two GPUs: torchrun --nproc-per-node=2
one_or_two_gpus.py DDP 2

DDP runs in as many processes as GPUs, DataParallel in one. Rank 0 computes with
1/processes of the same global batch. Without a GPU it runs on the CPU, which says
nothing about GPUs. The last line is the number.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

# before the group opens: it keeps the group that it finds, and its threads
import torch.distributed.nn.functional
from torch import nn

BATCH, WARM_UP, STEPS = 8192, 20, 200


def main(way, gpus):
    cuda, rank = torch.cuda.is_available(), int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(rank)
    nccl = cuda and dist.is_nccl_available()
    dist.init_process_group("nccl" if nccl else "gloo")
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(
        device
    )
    model = (
        nn.parallel.DistributedDataParallel(net)
        if way == "DDP"
        else nn.DataParallel(net, list(range(gpus)))
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(BATCH // dist.get_world_size(), 1024, device=device)
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            if cuda:
                torch.cuda.synchronize()
            begin = time.perf_counter()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    if cuda:
        torch.cuda.synchronize()
    print(json.dumps(STEPS * BATCH / (time.perf_counter() - begin)))
    del model, optimizer
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
