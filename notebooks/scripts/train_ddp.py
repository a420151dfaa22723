"""Train a small network on handwritten digits with one process or many. The result does
not depend on how many.

  python train_ddp.py
      one process
  torchrun --standalone --nproc-per-node=2 train_ddp.py
      two processes on this machine
  torchrun --standalone --nproc-per-node=2 --max-restarts=3 train_ddp.py --checkpoint run.pt
      the same, and it survives a dead process

Each process takes one GPU (NCCL). Without a GPU, or with --cpu, it computes on the CPU
(gloo). It knows no other accelerator: train.py does. The last line of output is a JSON
object with the results. checkpoint.py must lie beside this file.
"""  # noqa: E501 (a command as it is typed)

# ruff: noqa: E402
import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path


def stop(*_):
    if os.environ.get("RANK", "0") == "0":
        # print writes twice: another process may write in between
        sys.stderr.write("train_ddp: interrupted\n")
    sys.stdout.flush()
    # at once: leaving the group politely needs the others, who are leaving too
    os._exit(130)


if __name__ == "__main__":
    # before the imports below: they take seconds, and Ctrl-C may come earlier
    signal.signal(signal.SIGINT, stop)

import torch
import torch.distributed as dist

# before the group opens: it keeps the group that it finds, and its threads
import torch.distributed.nn.functional
import torch.nn.functional as F
from checkpoint import Problem, read_checkpoint, save_checkpoint
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

TRAIN = 1437  # of the 1797 images; the other 360 are the test set
# settings that a checkpoint fixes
MUST_MATCH = ("hidden", "batch", "lr", "clip", "amp", "seed")


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--epochs",
        type=int,
        default=5,
        help="passes over the training set (default: %(default)s)",
    )
    add(
        "--batch",
        type=int,
        default=64,
        help="samples in a step, all processes together (default: %(default)s)",
    )
    add("--lr", type=float, default=0.1, help="learning rate (default: %(default)s)")
    add(
        "--hidden",
        type=int,
        default=64,
        help="width of the hidden layer (default: %(default)s)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        help="for the first weights and the order of samples (default: %(default)s)",
    )
    add(
        "--accumulate",
        type=int,
        default=1,
        metavar="K",
        help="compute each step in K smaller parts, to save memory",
    )
    add(
        "--clip",
        type=float,
        metavar="NORM",
        help="scale longer gradients down to this norm",
    )
    add("--amp", action="store_true", help="compute in bfloat16 where autocast does")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save to FILE; if it exists, continue from it",
    )
    add(
        "--save-every",
        type=int,
        default=20,
        metavar="STEPS",
        help="steps between checkpoints (default: %(default)s)",
    )
    add("--resume", action="store_true", help="insist that the checkpoint exists")
    add("--log-file", type=Path, metavar="FILE", help="append one JSON line a step")
    add(
        "--pause",
        type=float,
        default=0,
        metavar="SECONDS",
        help="sleep after each step, to have time to break things",
    )
    add(
        "--timeout",
        type=float,
        default=60,
        metavar="SECONDS",
        help="longest wait for others (default: %(default)s)",
    )
    args = parser.parse_args(words)
    for name in ("epochs", "batch", "hidden", "accumulate", "save_every", "timeout"):
        if getattr(args, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be greater than 0")
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint FILE")
    return args


# ---- Which process am I, and how do I reach the others? ----


def number(name, default=0):
    text = os.environ.get(name, str(default))
    if not text.isdecimal():
        raise Problem(
            f"{name} is {text!r}, not a whole number. Start with torchrun, which"
            " sets it."
        )
    return int(text)


def pick_device(args):
    """Check what torchrun (or you) set, then take a GPU of one's own, or the CPU."""
    rank, size, gpus = (
        number("RANK"),
        number("WORLD_SIZE", 1),
        torch.cuda.device_count(),
    )
    if rank >= size or (size > 1 and "RANK" not in os.environ):
        given = f"RANK is {os.environ.get('RANK', 'not set')} and WORLD_SIZE is {size}"
        raise Problem(
            f"{given}. Ranks count from 0 to WORLD_SIZE - 1. Start with torchrun, which"
            " sets both."
        )
    if args.batch < size:
        raise Problem(
            f"--batch {args.batch} is too small for {size} processes: each needs a"
            " sample."
        )
    if args.cpu or gpus == 0:
        return torch.device("cpu")
    if number("LOCAL_RANK", rank) >= gpus:
        raise Problem(
            f"more processes than GPUs: this machine has {gpus}. Start fewer, or add"
            " --cpu."
        )
    torch.accelerator.set_device_index(number("LOCAL_RANK", rank))
    return torch.device("cuda", number("LOCAL_RANK", rank))


def join(device, timeout):
    """Open the process group: from here on the processes can talk. One process alone is
    a group of one.
    """
    rank, size, host = (
        number("RANK"),
        number("WORLD_SIZE", 1),
        os.environ.get("MASTER_ADDR", "127.0.0.1"),
    )
    one_machine = number("LOCAL_WORLD_SIZE", 1) == size or host in (
        "127.0.0.1",
        "::1",
        "localhost",
    )
    for _, name in socket.if_nameindex():
        if one_machine and name in ("lo", "lo0"):  # keep the traffic inside
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", name)
    timeout = timedelta(seconds=timeout)
    store = (
        dist.HashStore()
        if size == 1
        else open_store(host, rank, size, timeout, one_machine)
    )
    options = {"store": store, "rank": rank, "world_size": size, "timeout": timeout}
    if device.type == "cuda" and dist.is_nccl_available():
        dist.init_process_group("nccl", device_id=device, **options)
    else:
        dist.init_process_group("gloo", **options)


def open_store(host, rank, size, timeout, one_machine):
    """The place at MASTER_ADDR:MASTER_PORT where processes leave their addresses for
    each other.
    """
    port, options = (
        number("MASTER_PORT", 29500),
        {"timeout": timeout, "use_libuv": os.name != "nt"},
    )
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # torchrun hosts the store, and after a restart the addresses of the dead are
        # still in it. So each restart writes under a name of its own. Machines may
        # count restarts differently: with several, start torchrun with
        # TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, then rank 0 hosts a new store each time
        # (below).
        store = dist.TCPStore(host, port, size, False, **options)
        return (
            dist.PrefixStore(f"restart {number('TORCHELASTIC_RESTART_COUNT')}", store)
            if one_machine
            else store
        )
    if rank == 0:
        # Left alone, TCPStore listens on all networks. Given a socket, it listens where
        # that one does.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server(
                (host if one_machine else "", port), family=family
            )
        except OSError as error:
            reason = str(error).split(" (")[0]
            raise Problem(
                f"rank 0 cannot listen at {host}:{port} ({reason}). Choose another"
                " MASTER_PORT."
            ) from None
        options["master_listen_fd"] = listener.detach()
    else:
        wait_for(host, port, timeout.total_seconds())
    return dist.TCPStore(host, port, size, rank == 0, **options)


def wait_for(host, port, timeout):
    deadline = time.monotonic() + timeout
    while True:
        try:
            return socket.create_connection((host, port), timeout=1).close()
        except OSError as error:
            if time.monotonic() > deadline:
                advice = "Is rank 0 running? Are MASTER_ADDR and MASTER_PORT right?"
                raise Problem(
                    f"no answer from {host}:{port} for {timeout:g} s ({error})."
                    f" {advice}"
                ) from None
        time.sleep(0.1)


# ---- Which samples, in which order? ----


def load_data(device):
    """Images and labels: of the training set, then of the test set. The split is always
    the same.
    """
    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(pixels / 16, dtype=torch.float32)[order].to(device)
    labels = torch.tensor(digits, dtype=torch.int64)[order].to(device)
    return (images[:TRAIN], labels[:TRAIN]), (images[TRAIN:], labels[TRAIN:])


def steps_per_epoch(args):
    # rounded up: the last batch of an epoch may be smaller
    return -(-TRAIN // args.batch)


def global_batch(step, args):
    """The samples of one step, for all processes together. They follow from `step`
    alone, so resuming is easy.
    """
    epoch, index = divmod(step, steps_per_epoch(args))
    order = torch.randperm(
        TRAIN, generator=torch.Generator().manual_seed(1_000_003 * args.seed + epoch)
    )
    return order[index * args.batch : (index + 1) * args.batch]


def my_share(samples):
    """Every size-th sample, from rank on. No padding: shares may be uneven, even empty,
    and no sample counts twice.
    """
    return samples[dist.get_rank() :: dist.get_world_size()]


# ---- Training ----


def train_step(model, optimizer, images, labels, batch, seen, args):
    """One optimizer step on a global batch. Returns this process's part of its loss."""
    optimizer.zero_grad()
    loss = torch.zeros((), device=images.device)
    parts = my_share(batch).to(images.device).tensor_split(args.accumulate)
    for k, part in enumerate(parts, start=1):
        # Only the last backward talks to the others; before it, gradients add up at
        # home.
        with contextlib.nullcontext() if k == len(parts) else model.no_sync():
            with torch.autocast(images.device.type, torch.bfloat16, enabled=args.amp):
                logits = model(images[part])
            # DDP takes the mean over processes; we want the mean over samples, of which
            # processes may have different numbers. The sum of losses * size / samples
            # gives it: the same step for any number of processes.
            part_loss = F.cross_entropy(logits.float(), labels[part], reduction="sum")
            part_loss = part_loss * dist.get_world_size() / len(batch)
            part_loss.backward()
        loss += part_loss.detach()
        seen[part] += 1
    if args.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    return loss


def write_log(step, loss, args):
    # everybody's part: a cost of looking at the loss
    dist.all_reduce(loss, dist.ReduceOp.SUM)
    line = {
        "epoch": step // steps_per_epoch(args),
        "step": step,
        "loss": loss.item() / dist.get_world_size(),
    }
    line |= {
        "world_size": dist.get_world_size(),
        "restarts": number("TORCHELASTIC_RESTART_COUNT"),
    }
    if dist.get_rank() == 0:
        with open(args.log_file, "a") as file:
            file.write(json.dumps(line) + "\n")


@torch.no_grad()
def evaluate(model, images, labels):
    """Accuracy and mean loss on the test set; the processes share the work."""
    model.eval()
    logits, mine = model(my_share(images)), my_share(labels)
    model.train()
    sums = torch.stack(
        [
            (logits.argmax(1) == mine).sum().float(),
            F.cross_entropy(logits, mine, reduction="sum"),
        ]
    )
    dist.all_reduce(sums)
    return (sums / len(labels)).tolist()


# ---- Checkpoints ----


def settings(args):
    return {name: getattr(args, name) for name in MUST_MATCH}


def save_training(step, model, optimizer, seen, args):
    """Save what is needed to go on after `step` steps. Rank 0 writes; all call, to add
    up what they have seen.
    """
    seen = seen.clone()
    dist.all_reduce(seen)
    if dist.get_rank() == 0:
        epoch, batch = divmod(step, steps_per_epoch(args))
        checkpoint = {
            "epoch": epoch,
            "batch": batch,
            "seen": seen.cpu(),
            "optimizer": optimizer.state_dict(),
        }
        # the model inside DDP: no "module." in the names
        checkpoint["model"] = model.module.state_dict()
        checkpoint["settings"] = settings(args)
        save_checkpoint(checkpoint, args.checkpoint)


def agree_on_checkpoint(args):
    """Rank 0 reads and all take what it read: machines may not share the folder, and
    none may start elsewhere.
    """
    box = [None, None]
    if dist.get_rank() == 0:
        try:
            box[0] = read_checkpoint(args.checkpoint, settings(args))
            if args.resume and box[0] is None:
                raise Problem(
                    f"there is no checkpoint {args.checkpoint}. Check the name, or"
                    " leave out --resume."
                )
        except Problem as problem:
            box[1] = str(problem)
    dist.broadcast_object_list(box, src=0)
    if box[1]:
        raise Problem(box[1] if dist.get_rank() == 0 else "")  # rank 0 says it for all
    return box[0]


# ---- The whole ----


def train(args):
    device = pick_device(args)
    if "OMP_NUM_THREADS" not in os.environ:
        # the network is tiny: more threads would only wait for each other
        torch.set_num_threads(1)
    join(device, args.timeout)
    checkpoint = agree_on_checkpoint(args)
    say = print if dist.get_rank() == 0 else lambda *_: None
    (images, labels), test_set = load_data(device)
    torch.manual_seed(args.seed)
    # with dropout, seed each step by its number and the rank, as train.py does
    model = torch.nn.Sequential(
        torch.nn.Linear(64, args.hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(args.hidden, 10),
    )
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    # how often this process used each sample
    seen = torch.zeros(TRAIN, dtype=torch.int64, device=device)
    first, end = 0, args.epochs * steps_per_epoch(args)
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first = checkpoint["epoch"] * steps_per_epoch(args) + checkpoint["batch"]
        if dist.get_rank() == 0:  # one process keeps the count of the past
            seen += checkpoint["seen"].to(device)
    model = DistributedDataParallel(model)
    say(
        f"world size {dist.get_world_size()}, {device.type}, {dist.get_backend()}:"
        f" steps {first} to {end}"
    )

    begin, samples = time.perf_counter(), 0
    for step in range(first, end):
        batch = global_batch(step, args)
        loss = train_step(model, optimizer, images, labels, batch, seen, args)
        samples += len(batch)
        if args.log_file:
            write_log(step, loss, args)
        if args.checkpoint and ((step + 1) % args.save_every == 0 or step + 1 == end):
            save_training(step + 1, model, optimizer, seen, args)
        time.sleep(args.pause)
    dist.all_reduce(seen)
    # on a GPU, this waits for all steps
    low, high = seen.min().item(), seen.max().item()
    speed = samples / (time.perf_counter() - begin)

    accuracy, loss = evaluate(model.module, *test_set)
    say(
        f"test accuracy {accuracy:.1%}, {speed:,.0f} samples/s, each sample seen {low}"
        f" to {high} times"
    )
    result = {
        "accuracy": accuracy,
        "loss": loss,
        "seen_min": low,
        "seen_max": high,
        "samples_per_second": speed,
    }
    result |= {
        "world_size": dist.get_world_size(),
        "steps": max(first, end),
        "resumed_at": first,
    }
    say(json.dumps(result | {"restarts": number("TORCHELASTIC_RESTART_COUNT")}))
    # first: a DDP model that outlives its group can hang the process (PyTorch 2.11,
    # 2.13)
    del model
    dist.destroy_process_group()


def main():
    args, rank = parse_arguments(), os.environ.get("RANK", "0")
    try:
        return train(args)
    except (Problem, OSError) as problem:
        code, message = 2, str(problem)
    except RuntimeError as error:
        text = str(error)
        if (
            not isinstance(error, dist.DistError)
            and "gloo" not in text
            and "pair closure" not in text
        ):
            raise  # not about the other processes
        reason = text.splitlines()[0].split("] ", 1)[-1].split(". This is")[0]
        code, message = 1, f"rank {rank} lost the other processes ({reason})"
    if message:
        sys.stderr.write(f"train_ddp: {message}\n")
    sys.stdout.flush()
    os._exit(code)  # at once, as above: the others may be gone


if __name__ == "__main__":
    main()
