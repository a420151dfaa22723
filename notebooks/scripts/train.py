"""Train a small network on any device: CPU, NVIDIA or AMD GPU, Apple GPU or TPU, in one
process or several.

  python train.py
      a small GPT, on text that it makes itself
  python train.py --task digits
      a small convolutional network, on handwritten digits
  python train.py --data book.txt --width 256
      a wider GPT, on a text of yours
  python train.py --checkpoint run.pt
      save to run.pt; started again, it goes on from there
  torchrun --standalone --nproc-per-node=2 train.py
      two processes, each with a GPU of its own (or on the CPU)

Ctrl-C ends the training after the step it is in (several processes: at the next look at
the loss, for which torchrun gives them 30 seconds). With --checkpoint it loses nothing.
The result does not depend on interruptions, and but for rounding not on the number of
processes either. The models and their data are in tasks.py: put your own there. It and
checkpoint.py must lie beside this file.
"""

import argparse
import contextlib
import ctypes
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

# before the group opens: it keeps the group that it finds, and its threads
import torch.distributed.nn.functional
from checkpoint import Problem, read_checkpoint, save_checkpoint
from tasks import add_arguments, load, loss_of, model_of
from torch import nn

try:
    from tqdm import tqdm
except (
    ImportError
):  # no bar then, but the lines that come where the output is no terminal
    from types import SimpleNamespace

    def tqdm(**_):
        return SimpleNamespace(disable=True, update=int, set_postfix=dict, close=int)


TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODES = ["default", "reduce-overhead", "max-autotune"]
MAY_CHANGE = (
    "accumulate",
    "device",
    "compile",
    "checkpoint",
    "save_every",
    "metrics",
    "log_every",
    "data",
)


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add_arguments(parser)
    add("--steps", type=int, default=300, help="optimizer steps (default: %(default)s)")
    add(
        "--batch",
        type=int,
        default=32,
        help="samples in a step, all processes together (default: %(default)s)",
    )
    add(
        "--accumulate",
        type=int,
        default=1,
        metavar="K",
        help="compute a step in K smaller parts, to save memory",
    )
    add(
        "--lr",
        type=float,
        default=2e-3,
        help="highest learning rate, after the warm-up (default: %(default)s)",
    )
    add(
        "--clip",
        type=float,
        default=1.0,
        metavar="NORM",
        help="longest gradient (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        help="for the first weights and the order of samples (default: %(default)s)",
    )
    add(
        "--device",
        choices=["auto", "cpu", "cuda", "mps", "xla"],
        default="auto",
        help="(default: the best here)",
    )
    add(
        "--precision",
        choices=["auto", *TYPES],
        default="auto",
        help="of the products in the model",
    )
    add(
        "--compile",
        nargs="?",
        const="default",
        choices=MODES,
        help="torch.compile the model",
    )
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save to FILE; if it exists, continue from it",
    )
    add(
        "--save-every",
        type=int,
        default=100,
        metavar="STEPS",
        help="between checkpoints (default: %(default)s)",
    )
    add(
        "--metrics",
        type=Path,
        metavar="FILE",
        help="write loss, learning rate and speed to FILE, as JSON lines",
    )
    add(
        "--log-every",
        type=int,
        default=10,
        metavar="STEPS",
        help="between looks at the loss (default: %(default)s)",
    )
    args = parser.parse_args(words)
    for name in (
        "steps",
        "batch",
        "accumulate",
        "lr",
        "clip",
        "save_every",
        "log_every",
    ):
        if not getattr(args, name) > 0:
            parser.error(f"--{name.replace('_', '-')} must be greater than 0")
    return args


def pick_device(args):
    kind, found = (
        args.device,
        torch.accelerator.current_accelerator(check_available=True),
    )
    if kind == "auto":
        kind = found.type if found else "cpu"
        # for a TPU only: XLA's own CPU device is slower than the CPU
        with contextlib.suppress(ImportError):
            from torch_xla.runtime import device_type

            kind = "xla" if device_type() == "TPU" else kind
    if kind == "xla":
        try:
            import torch_xla
        except ImportError as error:
            raise Problem(
                f"--device xla needs torch_xla of the same release as torch ({error})"
            ) from None
        return torch_xla.device()
    if kind != "cpu" and (found is None or found.type != kind):
        raise Problem(
            f"PyTorch {torch.__version__} finds no {kind} device here. Lesson 01 helps"
            " to find out why."
        )
    if kind == "cuda":
        index, gpus = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
        if index >= gpus:
            raise Problem(
                f"more processes than GPUs: this machine has {gpus}. Start fewer, or"
                " add --device cpu."
            )
        torch.cuda.set_device(index)
        # TF32 for what stays float32: ten bits of mantissa are enough
        torch.set_float32_matmul_precision("high")
    return torch.device(kind)


def pick_precision(device, args):
    """The type of the products in the model: half as long where the device multiplies
    it faster.
    """
    name = args.precision
    if name == "auto" and device.type == "cuda":
        major = torch.cuda.get_device_capability()[0]
        name = (
            "bf16"
            if major >= 8 or torch.version.hip
            else "fp16"
            if major >= 7
            else "fp32"
        )
    elif name == "auto":
        name = (
            "bf16"
            if device.type == "xla" and os.environ.get("PJRT_DEVICE") != "CPU"
            else "fp32"
        )
    return TYPES[name]


def join(device):
    """Enter the group that torchrun has started. Alone, there is nobody to meet."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    inside = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    # keep the traffic on this machine
    if inside and os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE"):
        for backend in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{backend}_SOCKET_IFNAME", inside[0])
    if device.type not in ("cpu", "cuda"):
        raise Problem(
            f"several processes need CPUs or CUDA GPUs, not {device.type}. For TPUs see"
            " lesson 14."
        )
    # PyTorch for Windows has no NCCL
    nccl = device.type == "cuda" and dist.is_nccl_available()
    dist.init_process_group("nccl" if nccl else "gloo")
    return dist.get_rank(), dist.get_world_size()


def learning_rate(step, args):
    """A tenth of the steps up in a line, then down along half a cosine."""
    warmup = max(1, args.steps // 10)
    way_down = max(0, step - warmup) / max(1, args.steps - warmup)
    return args.lr * min((step + 1) / warmup, (1 + math.cos(math.pi * way_down)) / 2)


class Trainer:
    """The model with all that a step needs. `step(k)` takes step k and returns its
    loss, on the device.
    """

    def __init__(self, args, device, data, rank=0, size=1):
        if args.batch % (size * args.accumulate):
            raise Problem(
                f"--batch {args.batch} cannot be divided by {size} process(es) x"
                f" {args.accumulate} parts"
            )
        if (
            args.accumulate > 1
            and args.compile not in (None, "default")
            and device.type == "cuda"
        ):
            raise Problem(
                f"--compile {args.compile} overwrites gradients that add up: leave out"
                " --accumulate"
            )
        if len(data) < args.batch:
            raise Problem(
                f"the data has {len(data)} samples, fewer than --batch {args.batch}"
            )
        self.args, self.device, self.data, self.rank, self.size = (
            args,
            device,
            data,
            rank,
            size,
        )
        self.settings = {k: v for k, v in vars(args).items() if k not in MAY_CHANGE} | {
            "samples": len(data)
        }
        precision = pick_precision(device, args)
        self.casting = (
            {"enabled": False} if precision == torch.float32 else {"dtype": precision}
        )
        layout = (
            torch.channels_last
            if args.task == "digits" and device.type == "cuda"
            else torch.preserve_format
        )
        self.net = model_of(args).to(device, memory_format=layout)
        # there, numbers that change must be tensors, or each step is compiled anew
        xla = device.type == "xla"
        kind = {"capturable": True} if xla else {"fused": True}
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), torch.tensor(args.lr) if xla else args.lr, **kind
        )
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=precision == torch.float16
        )
        self.model, self.order = self.net, (None, None)
        if size > 1:
            self.model = nn.parallel.DistributedDataParallel(
                self.net, gradient_as_bucket_view=True
            )
        if args.compile:
            self.model = torch.compile(self.model, mode=args.compile)

    def batch(self, step):
        """This process's samples of a step, on the device. They follow from `step`
        alone: that makes resuming exact.
        """
        epoch, index = divmod(step, len(self.data) // self.args.batch)
        if self.order[0] != epoch:
            seed = torch.Generator().manual_seed(1_000_003 * self.args.seed + epoch)
            self.order = epoch, torch.randperm(len(self.data), generator=seed)
        samples = self.order[1][index * self.args.batch : (index + 1) * self.args.batch]
        parts = self.data.take(samples[self.rank :: self.size])
        cuda = self.device.type == "cuda"
        # from pinned memory, nobody waits for the copy: we prepare the next step
        if cuda:
            parts = [part.pin_memory() for part in parts]
        # else it may read what is gone (MPS)
        return [part.to(self.device, non_blocking=cuda) for part in parts]

    def step(self, number):
        args, last = self.args, self.args.accumulate - 1
        for group in self.optimizer.param_groups:
            rate = learning_rate(number, args)
            group["lr"] = (
                torch.tensor(rate).to(self.device)
                if torch.is_tensor(group["lr"])
                else rate
            )
        total = 0
        for k, part in enumerate(
            zip(
                *(tensor.chunk(args.accumulate) for tensor in self.batch(number)),
                strict=True,
            )
        ):
            # Only the last backward talks to the other processes; before it, gradients
            # add up at home.
            with (
                self.model.no_sync()
                if self.size > 1 and k < last
                else contextlib.nullcontext()
            ):
                with torch.autocast(self.device.type, **self.casting):
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


def on_cpu(tree):  # so that a checkpoint loads on any device
    if isinstance(tree, dict):
        return {key: on_cpu(value) for key, value in tree.items()}
    return tree.cpu() if torch.is_tensor(tree) else tree


def save(step, trainer):
    optimizer = trainer.optimizer.state_dict()["state"]  # the rest follows from `step`
    state = {
        "model": trainer.net.state_dict(),
        "optimizer": optimizer,
        "scaler": trainer.scaler.state_dict(),
    }
    save_checkpoint(
        {"step": step, "settings": trainer.settings, **on_cpu(state)},
        trainer.args.checkpoint,
    )


def resume(trainer):
    """Continue from the checkpoint, if there is one. Returns the number of steps taken
    so far.
    """
    checkpoint = read_checkpoint(trainer.args.checkpoint, trainer.settings)
    if checkpoint is None:
        return 0
    trainer.net.load_state_dict(checkpoint["model"])
    # the file's running means, but this device's settings, such as fused
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict(
        {"state": checkpoint["optimizer"], "param_groups": groups}
    )
    if checkpoint["scaler"]:
        trainer.scaler.load_state_dict(checkpoint["scaler"])
    return checkpoint["step"]


def train(args, stop):
    """Train to the last step, or until `stop` is no longer empty. Returns the exit
    code.
    """
    device = pick_device(args)
    rank, size = join(device)
    training, test = load(args)
    trainer = Trainer(args, device, training, rank, size)
    done = looked = resume(trainer)
    if size > 1:
        found = [None] * size
        dist.all_gather_object(found, done)
        if len(set(found)) > 1:
            raise Problem(
                "not all processes see the same checkpoint: put it where all machines"
                " can read it"
            )
    # without lines of steps that will be taken again, or a line that was cut off
    if args.metrics and rank == 0:
        lines = (
            args.metrics.read_text().splitlines(keepends=True)
            if done and args.metrics.exists()
            else []
        )
        kept = [
            line
            for line in lines
            if line.endswith("\n") and json.loads(line)["step"] <= done
        ]
        args.metrics.write_text("".join(kept))
    # None: only in a terminal
    bar = tqdm(
        total=args.steps, initial=done, unit="step", disable=True if rank else None
    )
    clock, stopping = time.perf_counter(), False
    while done < args.steps and not stopping:
        loss = trainer.step(done)
        done += 1
        bar.update()
        if done % args.log_every == 0 or done == args.steps or (stop and size == 1):
            # A look waits for the device, and for all processes: they can only stop
            # together. Other steps do not wait.
            both = torch.stack([loss / size, torch.full_like(loss, len(stop))])
            if size > 1:
                dist.all_reduce(both)
            loss, stopping = both.tolist()
            if rank == 0:
                speed = (done - looked) * args.batch / (time.perf_counter() - clock)
                line = {
                    "step": done,
                    "loss": loss,
                    "lr": learning_rate(done - 1, args),
                    "samples_per_second": speed,
                }
                bar.set_postfix(loss=f"{loss:.3f}")
                if bar.disable:
                    print(
                        f"step {done}: loss {loss:.4f}, {speed:,.0f} samples/s",
                        flush=True,
                    )
                if args.metrics:
                    with open(args.metrics, "a") as file:
                        file.write(json.dumps(line) + "\n")
            looked, clock = done, time.perf_counter()
        if (
            rank == 0
            and args.checkpoint
            and (done % args.save_every == 0 or done == args.steps or stopping)
        ):
            save(done, trainer)
    bar.close()
    if rank == 0:
        inputs, targets = (
            part.to(device) for part in test.take(torch.arange(min(256, len(test))))
        )
        with torch.no_grad():
            print(
                f"{done} steps on {device.type}, test loss"
                f" {loss_of(trainer.net, inputs, targets).item():.4f}"
            )
    if dist.is_initialized():
        # first: a DDP model that outlives its group can hang the process (PyTorch 2.11,
        # 2.13)
        del trainer
        dist.destroy_process_group()
    return 130 if stopping else 0


def keep_memory():
    """Large tensors that are freed would go back to Linux, and each step take new
    pages: 5 to 10% of it on a CPU.
    """
    # another system, or another C library than glibc
    with contextlib.suppress(OSError, AttributeError):
        glibc = ctypes.CDLL("libc.so.6")
        glibc.mallopt(-4, 0)  # M_MMAP_MAX: large tensors lie on the heap, too
        glibc.mallopt(-1, -1)  # M_TRIM_THRESHOLD: its free end stays


def main():
    keep_memory()
    args, stop = parse_arguments(), []

    def ask_to_stop(number, _):
        stop.append(number)
        if "WORLD_SIZE" not in os.environ:  # torchrun sends the signal once more
            signal.signal(number, signal.SIG_DFL)  # a second Ctrl-C ends at once

    # SIGTERM: from a cluster that needs the machine
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)
    try:
        return train(args, stop)
    except (Problem, OSError) as error:
        sys.stderr.write(f"train: {error}\n")
        sys.stdout.flush()
        os._exit(2)  # at once: leaving the group politely needs the other processes


if __name__ == "__main__":
    sys.exit(main())
