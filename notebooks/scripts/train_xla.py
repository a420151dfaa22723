"""Train a small network on handwritten digits on all TPU chips of this machine, in one
process for each chip.

  python train_xla.py --save digits.pt

Without a TPU, torch_xla takes XLA's own CPU device, and there is one process. The
training runs twice: with DistributedDataParallel, and by hand with xm.optimizer_step.
The last line of output is a JSON object with the results.

Run so far on XLA's CPU device, in one process; on a TPU not yet. It is for torch_xla.
With TorchTPU take train.py --device tpu, which has not run on a TPU either.
"""

# ruff: noqa: E402
import argparse
import importlib.metadata
import json
import os
import sys
import tempfile

# Kaggle sets one of them: launch would trip over it
for name in ("TPU_PROCESS_ADDRESSES", "CLOUD_TPU_TASK_ID"):
    os.environ.pop(name, None)
# processes that talk need XLA to have one CPU device, not several
os.environ.pop("CPU_NUM_DEVICES", None)
# images in the training set (of 1797), images in a step of all processes together
TRAIN, BATCH = 1437, 64


def release(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


# importing would fail with a riddle
if release("torch").split(".")[:2] != release("torch_xla").split(".")[:2]:
    versions = f"here are torch {release('torch')} and torch_xla {release('torch_xla')}"
    sys.stderr.write(
        f"train_xla: torch and torch_xla must be of the same release; {versions}\n"
    )
    sys.exit(2)

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as metrics
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend  # noqa: F401 (makes the backend "xla" known)
import torch_xla.runtime as xr
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def load_data():
    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    images, labels = (
        torch.tensor(pixels / 16, dtype=torch.float32)[order],
        torch.tensor(digits)[order],
    )
    return TensorDataset(images[:TRAIN], labels[:TRAIN]), (
        images[TRAIN:],
        labels[TRAIN:],
    )


def compilations():
    torch_xla.sync()
    xm.wait_device_ops()  # the counters lag behind
    return (metrics.metric_data("CompileTime") or [0])[0]


def train(model, step, data, epochs, device):
    """Train. Returns the mean loss (of all processes) and the compilations of each
    epoch, and the samples seen here.
    """
    world, losses, compiled, seen = xr.world_size(), [], [], 0
    sampler = DistributedSampler(data, world, xr.global_ordinal(), shuffle=True, seed=0)
    # batches of one shape only
    loader = DataLoader(
        data, batch_size=BATCH // world, sampler=sampler, drop_last=True
    )
    # moves the batches, and calls torch_xla.sync() after each of them
    batches = pl.MpDeviceLoader(loader, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # another order
        total, before = torch.zeros((), device=device), compilations()
        for images, labels in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            step(optimizer)
            total += loss.detach()
            seen += len(labels)
        losses.append(xm.all_reduce(xm.REDUCE_SUM, total).item() / len(loader) / world)
        compiled.append(compilations() - before)
    return losses, compiled, seen


def main(rank, args):
    store = dist.FileStore(os.path.join(args.folder, "store"), xr.world_size())
    dist.init_process_group("xla", store=store, rank=rank, world_size=xr.world_size())
    device = torch_xla.device()
    data, (images, labels) = load_data()
    report = {
        "world_size": xr.world_size(),
        "runtime": xr.device_type(),
        "losses": {},
        "compilations": {},
    }
    for way in ("DDP", "by hand"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
        ).to(device)
        if way == "DDP":  # backward() averages the gradients
            wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
            results = train(wrapped, torch.optim.SGD.step, data, args.epochs, device)
        else:
            # the same weights everywhere, then optimizer_step averages the gradients
            # and takes the step
            xm.broadcast_master_param(model)
            results = train(model, xm.optimizer_step, data, args.epochs, device)
        report["losses"][way], report["compilations"][way], report["seen"] = results
    if args.save:
        # all call it: one process writes, and tensors go to the CPU before
        xm.save(model.state_dict(), args.save)
    model.eval()
    right = (model(images.to(device)).argmax(1).cpu() == labels).float().mean().item()
    if rank == 0:
        print(json.dumps({**report, "accuracy": right}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--epochs",
        type=int,
        default=5,
        help="passes over the training set (default: %(default)s)",
    )
    parser.add_argument("--save", metavar="FILE", help="where to save the weights")
    args = parser.parse_args()
    # The child processes are copies of this one (fork), and need not import all that
    # again. So nothing before this line may have used an XLA device, or called
    # backward().
    # the processes meet in a file there: no port, no network
    with tempfile.TemporaryDirectory() as args.folder:
        torch_xla.launch(main, args=(args,), start_method="fork")
