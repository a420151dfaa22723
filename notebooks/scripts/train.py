"""Train a small network on any device: CPU, NVIDIA or AMD GPU, Apple GPU or TPU, in one process or several.

  python train.py                                      a small GPT, on text that it makes itself
  python train.py --task digits                        a small convolutional network, on handwritten digits
  python train.py --data book.txt --width 256          a wider GPT, on a text of yours
  python train.py --checkpoint run.pt                  save to run.pt; started again, it goes on from there
  torchrun --standalone --nproc-per-node=2 train.py    two processes, each with a GPU of its own (or on the CPU)

Ctrl-C ends the training after the step it is in, and saves. The result does not depend on interruptions, and but for
rounding not on the number of processes either. The models and their data are in tasks.py: put your own there.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from tasks import load, loss_of, model_of
from torch import nn

MUST_MATCH = "task batch steps lr clip precision seed width layers heads context samples".split()  # in a checkpoint


class Problem(Exception):
    """Something the user can put right: shown as one line, exit code 2."""


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--task", choices=["text", "digits"], default="text", help="what to learn (default: %(default)s)")
    add("--data", type=Path, metavar="FILE", help="a text to learn, any file (default: a text made up here)")
    add("--steps", type=int, default=300, help="optimizer steps (default: %(default)s)")
    add("--batch", type=int, default=32, help="samples in a step, all processes together (default: %(default)s)")
    add("--accumulate", type=int, default=1, metavar="K", help="compute each step in K smaller parts, to save memory")
    add("--lr", type=float, default=2e-3, help="highest learning rate, after the warm-up (default: %(default)s)")
    add("--clip", type=float, default=1.0, metavar="NORM", help="longest gradient (default: %(default)s)")
    for name, value in (("width", 128), ("layers", 4), ("heads", 4), ("context", 64)):
        add(f"--{name}", type=int, default=value, help=f"{name} of the GPT (default: %(default)s)")
    add("--seed", type=int, default=0, help="for the first weights and the order of samples (default: %(default)s)")
    add("--device", choices=["auto", "cpu", "cuda", "mps", "xla"], default="auto", help="(default: the best here)")
    add("--precision", choices=["auto", "fp32", "bf16", "fp16"], default="auto", help="of the products in the model")
    modes = ["default", "reduce-overhead", "max-autotune"]
    add(
        "--compile", nargs="?", const="default", choices=modes, help="torch.compile the model (reduce-overhead: graphs)"
    )
    add("--checkpoint", type=Path, metavar="FILE", help="save to FILE; if it exists, continue from it")
    add("--save-every", type=int, default=100, metavar="STEPS", help="between checkpoints (default: %(default)s)")
    add(
        "--log-every",
        type=int,
        default=10,
        metavar="STEPS",
        help="between two looks at the loss (default: %(default)s)",
    )
    add(
        "--metrics", type=Path, metavar="FILE", help="write loss, learning rate and speed to FILE, one JSON line a look"
    )
    args = parser.parse_args(words)
    for name in (
        "steps",
        "batch",
        "accumulate",
        "lr",
        "clip",
        "width",
        "layers",
        "heads",
        "context",
        "save_every",
        "log_every",
    ):
        if getattr(args, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be greater than 0")
    if args.width % args.heads:
        parser.error(f"--width {args.width} cannot be divided into {args.heads} heads of one size")
    return args


# ---- The device, and the other processes ----


def pick_device(args):
    kind = args.device
    if kind == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        kind = found.type if found else "xla" if importlib.util.find_spec("torch_xla") else "cpu"
    if kind == "xla":
        try:
            import torch_xla
        except ImportError as error:
            raise Problem(f"--device xla needs torch_xla of the same release as torch ({error})") from None
        return torch_xla.device()
    missing = {"cuda": not torch.cuda.is_available(), "mps": not torch.backends.mps.is_available()}
    if missing.get(kind):
        raise Problem(f"PyTorch {torch.__version__} finds no {kind} device here. Lesson 01 helps to find out why.")
    if kind == "cuda":
        index, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if index >= gpus:
            raise Problem(f"more processes than GPUs: this machine has {gpus}. Start fewer, or add --device cpu.")
        torch.cuda.set_device(index)
        torch.backends.cuda.matmul.fp32_precision = "tf32"  # what stays float32: ten bits of mantissa are enough
    return torch.device(kind)


def pick_precision(device, args):
    """The type of the products in the model: half as long where the device multiplies it faster."""
    name = args.precision
    if name == "auto" and device.type == "cuda":
        major, _ = torch.cuda.get_device_capability()
        name = "bf16" if major >= 8 or torch.version.hip else "fp16" if major >= 7 else "fp32"
    elif name == "auto":
        name = "bf16" if device.type == "xla" and os.environ.get("PJRT_DEVICE") != "CPU" else "fp32"
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]


def join(device):
    """Enter the group that torchrun has started. Alone, there is nobody to meet."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    if os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE"):  # all on this machine: keep the traffic inside
        for _, name in socket.if_nameindex():
            if name in ("lo", "lo0"):
                os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
                os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
    if device.type not in ("cpu", "cuda"):
        raise Problem(f"several processes need CPUs or CUDA GPUs, not {device.type}. For TPUs see lesson 14.")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return dist.get_rank(), dist.get_world_size()


# ---- Training ----


def learning_rate(step, args):
    """A tenth of the steps up in a line, then down along half a cosine."""
    warmup = max(1, args.steps // 10)
    if step < warmup:
        return args.lr * (step + 1) / warmup
    return args.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, args.steps - warmup)))


class Trainer:
    """The model with all that a step needs. `step(k)` takes step k and returns its loss, on the device."""

    def __init__(self, args, device, data, rank=0, size=1):
        if args.batch % (size * args.accumulate):
            raise Problem(f"--batch {args.batch} cannot be divided by {size} processes x {args.accumulate} parts")
        if len(data) < args.batch:
            raise Problem(f"the data has {len(data)} samples, fewer than --batch {args.batch}")
        self.args, self.device, self.data, self.rank, self.size = args, device, data, rank, size
        self.precision = pick_precision(device, args)
        layout = torch.channels_last if args.task == "digits" and device.type == "cuda" else torch.preserve_format
        self.net = model_of(args).to(device, memory_format=layout)
        xla = device.type == "xla"  # there, numbers that change must be tensors, or each step is compiled anew
        kind = {"capturable": True} if xla else {"fused": True}
        self.optimizer = torch.optim.AdamW(self.net.parameters(), torch.tensor(args.lr) if xla else args.lr, **kind)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == torch.float16)
        self.model, self.order = self.net, (None, None)
        if size > 1:
            self.model = nn.parallel.DistributedDataParallel(self.net, gradient_as_bucket_view=True)
        if args.compile:
            self.model = torch.compile(self.model, mode=args.compile)

    def batch(self, step):
        """This process's samples of a step, on the device. They follow from `step` alone: that makes resuming exact."""
        epoch, index = divmod(step, len(self.data) // self.args.batch)
        if self.order[0] != epoch:
            seed = torch.Generator().manual_seed(1_000_003 * self.args.seed + epoch)
            self.order = epoch, torch.randperm(len(self.data), generator=seed)
        samples = self.order[1][index * self.args.batch : (index + 1) * self.args.batch]
        parts = self.data.take(samples[self.rank :: self.size])
        if (
            self.device.type == "cuda"
        ):  # from pinned memory the copy needs no waiting: the next step is prepared meanwhile
            parts = [part.pin_memory() for part in parts]
        return [part.to(self.device, non_blocking=True) for part in parts]

    def step(self, number):
        args, last = self.args, self.args.accumulate - 1
        for group in self.optimizer.param_groups:
            rate = learning_rate(number, args)
            group["lr"] = torch.tensor(rate).to(self.device) if torch.is_tensor(group["lr"]) else rate
        total = 0
        for k, part in enumerate(zip(*(tensor.chunk(args.accumulate) for tensor in self.batch(number)), strict=True)):
            # Only the last backward talks to the other processes; before it, gradients add up at home.
            with self.model.no_sync() if self.size > 1 and k < last else contextlib.nullcontext():
                with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
                    loss = loss_of(self.model, *part) / args.accumulate
                self.scaler.scale(loss).backward()
            total = total + loss.detach()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.net.parameters(), args.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.device.type == "xla":
            sys.modules["torch_xla"].sync()
        return total

    @torch.inference_mode()
    def evaluate(self, data, most=256):
        """Mean loss on the first samples of `data`."""
        inputs, targets = (part.to(self.device) for part in data.take(torch.arange(min(most, len(data)))))
        return loss_of(self.net, inputs, targets).item()


# ---- Checkpoints and metrics ----


def on_cpu(tree):
    if torch.is_tensor(tree):
        return tree.cpu()
    if isinstance(tree, dict):
        return {key: on_cpu(value) for key, value in tree.items()}
    return [on_cpu(value) for value in tree] if isinstance(tree, list) else tree


def settings(trainer):
    return {name: getattr(trainer.args, name, len(trainer.data)) for name in MUST_MATCH}


def save(step, trainer):
    """Write a temporary file, then rename it: at any moment the name stands for a whole checkpoint, old or new."""
    path, parts = trainer.args.checkpoint, {name: getattr(trainer, name).state_dict() for name in SAVED}
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save({"step": step, "settings": settings(trainer), **on_cpu(parts)}, file)
            file.flush()
            os.fsync(file.fileno())  # the content must be on the disk before the name points to it
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # torch.save says RuntimeError when the disk is full
        temporary.unlink(missing_ok=True)
        reason = str(error).splitlines()[0]
        raise Problem(f"cannot write {path} ({reason}). The checkpoint before is untouched.") from None


def resume(trainer):
    """Continue from the checkpoint if there is one. Returns the number of steps already taken."""
    path = trainer.args.checkpoint
    if not path or not path.exists():
        return 0
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        saved = {name: checkpoint["settings"][name] for name in MUST_MATCH}
    except Exception as error:
        broken = f"{path} is damaged, or no checkpoint of this script ({type(error).__name__})"
        raise Problem(f"{broken}. Delete it, or use another --checkpoint.") from None
    for name, now in settings(trainer).items():
        if saved[name] != now:
            raise Problem(f"{path} was written with {name} {saved[name]}, now it is {now}. Use another --checkpoint.")
    for name in SAVED:
        getattr(trainer, name).load_state_dict(checkpoint[name])
    return checkpoint["step"]


def continue_metrics(path, step):
    """Drop the lines of steps that will be taken again, and a line that was cut off."""
    lines = path.read_text().splitlines(keepends=True) if step and path.exists() else []
    path.write_text("".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step))


# ---- The whole ----


def train(args):
    device = pick_device(args)
    rank, size = join(device)
    training, test = load(args)
    trainer = Trainer(args, device, training, rank, size)
    first = resume(trainer)
    low, high = extremes(first, device, size)
    if low != high:
        raise Problem("not all processes see the same checkpoint: put it where all machines can read it")
    ...
