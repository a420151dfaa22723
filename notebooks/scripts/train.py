"""Train a small network on any device: CPU, NVIDIA, AMD, Intel or Apple GPU, or TPU, in
one process or several.

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

Ctrl-C ends the training after the step it is in, with exit code 130. Several processes
end at the next look at the loss, for which torchrun gives them 30 seconds, and torchrun
exits with 1. With --checkpoint it loses nothing.

The result does not depend on interruptions: on one machine, with as many processes, it
is the same to the bit (on XLA but for rounding). That holds for dropout and random
augmentation, too, if it draws from PyTorch's, NumPy's or Python's global generator:
what a step draws follows from its number and the rank. With another
number of processes rounding differs, and what dropout draws and batch norm sees.

The models and their data are in tasks.py: put your own there. Its loss_of must return a
mean over the samples: --accumulate and several processes average it. tasks.py and
checkpoint.py must lie beside this file.

Run so far with --device cpu; with cuda, on an NVIDIA H100 and on emulated GPUs; with
xla, on XLA's CPU device. With tpu, TorchTPU ran --task digits and dropout on XLA's CPU
device, which lacks its kernel for attention. Not run: a TPU, by either package; mps;
xpu.
"""

import argparse
import contextlib
import ctypes
import json
import math
import os
import random
import signal
import socket
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

# before the group opens: it keeps the group that it finds, and its threads
import torch.distributed.nn.functional
from checkpoint import Problem, read_checkpoint, save_checkpoint
from tasks import add_arguments, load, loss_of, model_of
from torch import nn

try:
    from tqdm import tqdm
except ImportError:
    from types import SimpleNamespace

    # no bar then, but the lines that come where the output is no terminal
    def tqdm(**_):
        return SimpleNamespace(disable=True, update=int, set_postfix=dict, close=int)


TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODES = ["default", "reduce-overhead", "max-autotune"]
# between one start and the next: settings that change no step but for rounding (and
# --accumulate: what batch norm sees); where the data lie (they themselves may not); and
# how many steps there are (they may grow)
MAY_CHANGE = (
    "accumulate",
    "device",
    "compile",
    "checkpoint",
    "save_every",
    "metrics",
    "log_every",
    "data",
    "steps",
)
FUSED = ("cpu", "cuda", "mps", "xpu")  # where AdamW updates all weights in one kernel


class Help(
    argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter
):
    """The text above as it is, and each option with its default."""


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    add_arguments(parser)  # those of tasks.py
    numbers = {
        "steps": (300, "optimizer steps; a training that goes on may get more"),
        "batch": (32, "samples in a step, all processes together"),
        "accumulate": (1, "compute a step in so many parts, to save memory"),
        "lr": (2e-3, "highest learning rate, after the warm-up"),
        "clip": (1.0, "longest gradient"),
        "save-every": (100, "steps between checkpoints"),
        "log-every": (10, "steps between looks at the loss"),
    }
    for name, (value, text) in numbers.items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=text)
    add = parser.add_argument
    add("--seed", type=int, default=0, help="for weights, order of samples, dropout")
    add("--device", default="auto", help="cpu, cuda, mps, xpu, tpu, xla or another")
    add("--precision", choices=["auto", *TYPES], default="auto", help="of the matmuls")
    add("--compile", nargs="?", const="default", choices=MODES, help="torch.compile it")
    add(
        "--checkpoint", type=Path, help="save to this file; if it exists, go on from it"
    )
    add("--metrics", type=Path, help="write loss and speed to this file, as JSON lines")
    args = parser.parse_args(words)
    for name in numbers:
        if not getattr(args, name.replace("-", "_")) > 0:
            parser.error(f"--{name} must be greater than 0")
    return args


def pick_device(args):
    """What --device names; "auto": the accelerator of this machine, else the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    kind = args.device
    if kind == "auto":
        kind = accelerator.type if accelerator else "cpu"
        kind = "xla" if xla_has_tpu() else kind
    if kind == "xla":
        return xla_device()
    if kind != "cpu" and (accelerator is None or accelerator.type != kind):
        here = f"cpu and {accelerator.type}" if accelerator else "cpu alone"
        raise Problem(
            f"PyTorch {torch.__version__} finds no {kind} device here, but {here}."
            " Lesson 01 helps to find out why."
        )
    if kind not in ("cpu", "tpu"):  # TorchTPU shows each process one chip, its own
        take_own(kind)
    if kind == "cuda":
        # TF32 for what stays float32: ten bits of mantissa are enough
        torch.set_float32_matmul_precision("high")
    return torch.device(kind)


def take_own(kind):
    """Of several devices this process takes the one of its number on this machine."""
    index = int(os.environ.get("LOCAL_RANK", 0))
    count = torch.accelerator.device_count()
    if index >= count:
        raise Problem(
            f"more processes than {kind} devices: this machine has {count}. Start"
            " fewer, or add --device cpu."
        )
    torch.accelerator.set_device_index(index)


def xla_has_tpu():
    """XLA's own CPU device is slower than the CPU."""
    try:
        from torch_xla.runtime import device_type
    except ImportError:
        return False
    return device_type() == "TPU"


def xla_device():
    try:
        import torch_xla
    except ImportError as error:
        raise Problem(
            f"--device xla needs torch_xla of the same release as torch ({error})"
        ) from None
    return torch_xla.device()


def pick_precision(device, args):
    """The name of the type of the products in the model: half as long where the device
    multiplies it faster.
    """
    if args.precision != "auto":
        return args.precision
    if device.type == "cuda":
        major = torch.cuda.get_device_capability()[0]
        if major >= 8 or torch.version.hip:
            return "bf16"
        return "fp16" if major >= 7 else "fp32"
    if device.type == "xpu":
        return "bf16"
    # of the two kinds of XLA device, the CPU gains nothing
    on_tpu = device.type == "xla" and os.environ.get("PJRT_DEVICE") != "CPU"
    return "bf16" if device.type == "tpu" or on_tpu else "fp32"


def join(device):
    """Enter the group that torchrun has started. Alone, there is nobody to meet."""
    if "WORLD_SIZE" not in os.environ:
        return 0, 1
    inside = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    # keep the traffic on this machine
    if inside and os.environ["WORLD_SIZE"] == os.environ.get("LOCAL_WORLD_SIZE"):
        for backend in ("GLOO", "NCCL"):
            os.environ.setdefault(f"{backend}_SOCKET_IFNAME", inside[0])
    dist.init_process_group(backend_of(device))
    return dist.get_rank(), dist.get_world_size()


def backend_of(device):
    """What processes with this kind of device talk by."""
    try:
        backend = dist.get_default_backend_for_device(device.type)
    except ValueError:
        backend = None
    if device.type == "cuda" and not dist.is_nccl_available():
        return "gloo"  # PyTorch for Windows has no NCCL
    # Gloo is registered for MPS, and computes on CPU and CUDA tensors only; torch_xla
    # starts its processes in another way
    available = backend and dist.is_backend_available(backend)
    if device.type in ("mps", "xla") or not available:
        raise Problem(
            f"this PyTorch has nothing by which processes with {device.type} devices"
            " could talk. Start one process, or add --device cpu (for TPUs see"
            " lesson 14)."
        )
    return backend


def learning_rate(step, args):
    """A tenth of the steps up in a line, then down along half a cosine."""
    warmup = max(1, args.steps // 10)
    way_down = max(0, step - warmup) / max(1, args.steps - warmup)
    return args.lr * min((step + 1) / warmup, (1 + math.cos(math.pi * way_down)) / 2)


def set_rate(optimizer, rate, device):
    for group in optimizer.param_groups:
        tensor = torch.is_tensor(group["lr"])
        group["lr"] = torch.tensor(rate).to(device) if tensor else rate


def seed_step(step, rank, args, device):
    """What a step draws (dropout, augmentation) follows from its number and the rank.
    So no state of a generator has to be saved, and a step that is taken again draws
    what it drew before.
    """
    seed = zlib.crc32(f"{args.seed} {step} {rank}".encode())
    # torch.manual_seed alone would do, and takes ten times as long: it looks for
    # devices of all kinds
    torch.default_generator.manual_seed(seed)  # the CPU's
    if device.type in ("cuda", "mps", "xpu"):
        getattr(torch, device.type).manual_seed(seed)
    elif device.type == "xla":
        sys.modules["torch_xla"].manual_seed(seed)
    elif device.type != "cpu":
        torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def fingerprint(data, most=4_000_000):
    """Tells one set of data from another: its length, and a checksum of all samples, or
    of 256 of them where all are more than `most` bytes.
    """
    count = len(data)
    one = data.take(torch.zeros(1, dtype=torch.long))
    if count * sum(part.nbytes for part in one) > most:
        samples = torch.arange(256) * (count - 1) // 255  # from the first to the last
    else:
        samples = torch.arange(count)
    checksum = 0
    for part in data.take(samples):
        flat = part.cpu().contiguous().view(torch.uint8)
        checksum = zlib.crc32(flat.numpy(), checksum)
    return f"{count:,} samples (checksum {checksum:08x})"


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
        graphs = device.type == "cuda" and args.compile not in (None, "default")
        if graphs and args.accumulate > 1:
            raise Problem(
                f"--compile {args.compile} overwrites gradients that add up: leave out"
                " --accumulate"
            )
        if len(data) < args.batch:
            raise Problem(
                f"the data has {len(data)} samples, fewer than --batch {args.batch}"
            )
        self.args = args
        self.device = device
        self.data = data
        self.rank = rank
        self.size = size
        self.precision = pick_precision(device, args)
        # the CPU's alone: the same weights for every device
        torch.default_generator.manual_seed(args.seed)
        net = model_of(args)
        images = any(weight.dim() == 4 for weight in net.parameters())  # convolutions
        fast = images and device.type == "cuda"
        layout = torch.channels_last if fast else torch.preserve_format
        self.net = net.to(device, memory_format=layout)
        # there, numbers that change must be tensors, or each step is compiled anew
        xla = device.type == "xla"
        kind = {"fused": True} if device.type in FUSED else {"capturable": xla}
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), torch.tensor(args.lr) if xla else args.lr, **kind
        )
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=self.precision == "fp16"
        )
        self.order = (None, None)  # an epoch, and its order of samples
        self.model = self.net
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

    def casting(self):
        """Around the model: 16-bit products, where that is the precision."""
        if self.precision == "fp32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, TYPES[self.precision])

    def step(self, number):
        args, last = self.args, self.args.accumulate - 1
        seed_step(number, self.rank, args, self.device)
        set_rate(self.optimizer, learning_rate(number, args), self.device)
        parts = zip(
            *(t.chunk(args.accumulate) for t in self.batch(number)), strict=True
        )
        total = 0
        for k, part in enumerate(parts):
            # only the last backward talks to the other processes; before it,
            # gradients add up at home
            at_home = self.size > 1 and k < last
            with self.model.no_sync() if at_home else contextlib.nullcontext():
                with self.casting():
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


def say(text):
    sys.stderr.write(f"train: {text}\n")


def on_cpu(tree):  # so that a checkpoint loads on any device
    if isinstance(tree, dict):
        return {key: on_cpu(value) for key, value in tree.items()}
    return tree.cpu() if torch.is_tensor(tree) else tree


def settings(trainer):
    """What must not change between one start and the next."""
    args = vars(trainer.args)
    fixed = {name: args[name] for name in args if name not in MAY_CHANGE}
    # the samples may be drawn at random, too
    seed_step(0, 0, trainer.args, trainer.device)
    return fixed | {"data": fingerprint(trainer.data)}


def save(step, trainer, settings):
    state = {
        "model": trainer.net.state_dict(),
        # the rest of it follows from `step`
        "optimizer": trainer.optimizer.state_dict()["state"],
        "scaler": trainer.scaler.state_dict(),
    }
    state = on_cpu(state) | {"step": step, "settings": settings}
    state |= {"steps": trainer.args.steps, "precision": trainer.precision}
    save_checkpoint(state, trainer.args.checkpoint)


def resume(trainer, settings):
    """Continue from the checkpoint, if there is one. Returns the number of steps taken
    so far.
    """
    path, steps = trainer.args.checkpoint, trainer.args.steps
    checkpoint = read_checkpoint(path, settings)
    if checkpoint is None:
        return 0
    before = checkpoint["steps"]
    if steps < before:
        raise Problem(
            f"{path} is of a training of {before} steps, now --steps is {steps}: it may"
            " only grow. Use another --checkpoint."
        )
    if steps > before and trainer.rank == 0:
        say(f"{before} steps become {steps}: the learning rate goes on as for {steps}")
    if checkpoint["precision"] != trainer.precision and trainer.rank == 0:
        say(
            f"{path} was computed in {checkpoint['precision']}, here it goes on in"
            f" {trainer.precision}"
        )
    trainer.net.load_state_dict(checkpoint["model"])
    # the file's running means, but this device's settings, such as fused
    groups = trainer.optimizer.state_dict()["param_groups"]
    trainer.optimizer.load_state_dict(
        {"state": checkpoint["optimizer"], "param_groups": groups}
    )
    if checkpoint["scaler"]:
        trainer.scaler.load_state_dict(checkpoint["scaler"])
    return checkpoint["step"]


def check_together(done, size):
    """Processes that went on from different steps would wait for each other forever."""
    steps = [done] * size
    if size > 1:
        dist.all_gather_object(steps, done)
    if len(set(steps)) > 1:
        raise Problem(
            "not all processes see the same checkpoint: put it where all machines"
            " can read it"
        )


def cut_metrics(path, done):
    """Without lines of steps that will be taken again, or a line that was cut off."""
    text = path.read_text() if done and path.exists() else ""
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    path.write_text("".join(line for line in whole if json.loads(line)["step"] <= done))


def look(loss, stop, size):
    """(the loss of all processes, whether one of them is asked to stop). This waits for
    the device, and for all processes: they can only stop together. Other steps do not.
    """
    both = torch.stack([loss / size, torch.full_like(loss, len(stop))])
    if size > 1:
        dist.all_reduce(both)
    loss, requests = both.tolist()
    return loss, requests > 0


def report(step, loss, speed, args, bar):
    bar.set_postfix(loss=f"{loss:.3f}")
    if bar.disable:
        print(f"step {step}: loss {loss:.4f}, {speed:,.0f} samples/s", flush=True)
    if args.metrics:
        rate = learning_rate(step - 1, args)
        line = {"step": step, "loss": loss, "lr": rate, "samples_per_second": speed}
        with open(args.metrics, "a") as file:
            file.write(json.dumps(line) + "\n")


def run(trainer, done, stop, fixed):
    """The steps after `done`. Returns how many are taken, and whether to stop."""
    args, first = trainer.args, trainer.rank == 0
    if args.metrics and first:
        cut_metrics(args.metrics, done)
    off = None if first else True  # None: only in a terminal
    bar = tqdm(total=args.steps, initial=done, unit="step", disable=off)
    looked, clock, stopping = done, time.perf_counter(), False
    while done < args.steps and not stopping:
        loss = trainer.step(done)
        done += 1
        bar.update()
        last = done == args.steps
        if done % args.log_every == 0 or last or (stop and trainer.size == 1):
            loss, stopping = look(loss, stop, trainer.size)
            speed = (done - looked) * args.batch / (time.perf_counter() - clock)
            if first:
                report(done, loss, speed, args, bar)
            looked, clock = done, time.perf_counter()
        due = done % args.save_every == 0 or last or stopping
        if args.checkpoint and due and first:
            save(done, trainer, fixed)
    bar.close()
    return done, stopping


def train(args, stop):
    """Train to the last step, or until `stop` is not empty. Returns the exit code."""
    device = pick_device(args)
    rank, size = join(device)
    training, test = load(args)
    trainer = Trainer(args, device, training, rank, size)
    fixed = settings(trainer) if args.checkpoint else {}
    done = resume(trainer, fixed)
    check_together(done, size)
    done, stopping = run(trainer, done, stop, fixed)
    if rank == 0:
        loss = test_loss(trainer.net, test, device)
        print(f"{done} steps on {device.type}, test loss {loss:.4f}")
    if dist.is_initialized():
        # first: a DDP model that outlives its group can hang the process (PyTorch 2.11,
        # 2.13)
        del trainer
        dist.destroy_process_group()
    return 130 if stopping else 0


@torch.no_grad()
def test_loss(net, test, device):
    """The loss of the first 256 samples of the test set, without dropout, and with the
    statistics that batch norm has gathered.
    """
    inputs, targets = test.take(torch.arange(min(256, len(test))))
    net.eval()
    loss = loss_of(net, inputs.to(device), targets.to(device)).item()
    net.train()
    return loss


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
        say(error)
        sys.stdout.flush()
        os._exit(2)  # at once: leaving the group politely needs the other processes


if __name__ == "__main__":
    sys.exit(main())
