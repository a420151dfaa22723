"""train.py against Accelerate and Lightning: same model, data, optimizer and precision, interleaved in one run.

python benchmarks/train_loops.py [--rounds 40] [--batches 32 256] [options of train.py]

Samples/s are compared round by round: in each round every way takes its steps, in an order drawn anew, and the ratio
of that round counts. Printed are the median of the ratios and its 95% interval. On a CPU with one thread: with more,
one that a neighbor holds up holds up all. Then the time from the start of a process to the line that it prints after
its first step. On a CUDA GPU, also a ladder of train.py's options on a model that fills the GPU.

Target: no slower than the faster of the two, and no later. Exits with status 1 where a median misses it, and says
whether that is beyond doubt: the whole interval lies on the wrong side.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import torch
from torch.utils.flop_counter import FlopCounterMode

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import peers  # noqa: E402
import tasks  # noqa: E402
import train  # noqa: E402

from utils import devices, hardware  # noqa: E402
from utils.timing import median_interval  # noqa: E402

STARTS = 7
FILLS_A_GPU = "--width=2048 --layers=16 --heads=16 --context=1024 --batch=32".split()
LADDER = {  # what train.py can be told; each adds to the one before
    "float32": ["--precision=fp32"],
    "bfloat16": ["--precision=bf16"],
    "compiled": ["--precision=bf16", "--compile"],
    "CUDA graphs": ["--precision=bf16", "--compile=reduce-overhead"],
}


def spread(numbers):
    low, high = median_interval(numbers)
    return f"{statistics.median(numbers):6.3f}  (95%: {low:.3f} to {high:.3f}, n={len(numbers)})"


def verdict(what, bad, beyond_doubt):
    """One line about a target, None where it is met. `bad`: by the median. `beyond_doubt`: by the interval, too."""
    return f"{'target missed' if beyond_doubt else 'cannot tell, by the median'}: {what}" if bad else None


def compare(words, batch, rounds, seconds=0.3):
    """Ratios of train.py's samples/s to each peer's, {peer: one for each round}, and its median samples/s."""
    args = train.parse_arguments([*words, f"--batch={batch}", "--steps=100000"])
    ways = {name: way(args) for name, way in peers.WAYS.items()}
    steps = max(1, round(seconds / (ways["train.py"].take(5) / 5)))
    rates = {name: [] for name in ways}
    for _ in range(rounds):
        for name in random.sample(list(ways), len(ways)):
            rates[name].append(steps * batch / ways[name].take(steps))
    ours = rates.pop("train.py")
    return {name: [a / b for a, b in zip(ours, theirs, strict=True)] for name, theirs in rates.items()}, ours


def first_steps(words):
    """Seconds from starting a process to the line that says its first step is done: {way: one for each start}."""
    commands = {"train.py": [train.__file__, "--steps=1"]}
    commands |= {name: [peers.__file__, name.lower()] for name in ("Accelerate", "Lightning")}
    found = {name: [] for name in commands}
    for start in range(STARTS + 1):
        for name in random.sample(list(commands), len(commands)):
            begin = time.perf_counter()
            out, seconds = [], None
            command = [sys.executable, *commands[name], *words]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
                for line in run.stdout:
                    out.append(line)
                    if seconds is None and line.startswith("step 1"):
                        seconds = time.perf_counter() - begin
            if seconds is None or run.returncode:
                raise RuntimeError(f"{name}, exit code {run.returncode}: {''.join(out)}")
            if start:  # the first start only warms the disk cache
                found[name].append(seconds)
    return found


def flops(args):
    """Operations of one sample: products of the forward pass and of the backward pass, counted without computing."""
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        text = torch.zeros(1, args.context, dtype=torch.uint8)
        tasks.loss_of(tasks.model_of(args), text, text).backward()
    return counter.get_total_flops()


def ladder(words, steps=20):
    """Print samples/s, share of the device's peak and memory for each rung of LADDER."""
    row = hardware.look_up(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    for rung, more in LADDER.items():
        args = train.parse_arguments([*words, *more, "--steps=100000"])
        if torch.cuda.is_available():
            torch.accelerator.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        try:
            way = peers.Ours(args)
            way.take(2)  # CUDA graphs are recorded in the third step
            rate = args.batch * steps / way.take(steps)
        except torch.OutOfMemoryError as error:
            print(f"  {rung:12} {str(error).splitlines()[0]}")
            continue
        teraflops = rate * flops(args) / 1e12
        line = f"  {rung:12} {rate:9,.1f} samples/s  {teraflops:8.3f} TFLOP/s"
        peak = row and (row.tf32 or row.fp32 if args.precision == "fp32" else row.bf16)
        line += f", {teraflops / peak:.0%} of {peak:g}" if peak else ", peak unknown"
        if torch.cuda.is_available():
            line += f", at most {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
        print(line)
        del way


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="(default: %(default)s)")
    parser.add_argument("--batches", type=int, nargs="*", default=[32, 256], help="(default: %(default)s)")
    parser.add_argument(
        "--ladder", action="store_true", help="climb the ladder without a CUDA GPU too, with the options"
    )
    options, words = parser.parse_known_args()
    device = train.pick_device(train.parse_arguments(words))
    if device.type == "cpu":
        torch.set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"
    print(f"{devices.name_of(device.type)}, torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    verdicts = []
    for batch in options.batches:
        ratios, rates = compare(words, batch, options.rounds)
        print(f"batch {batch}: train.py {statistics.median(rates):,.0f} samples/s. Its samples/s divided by those of")
        for peer, numbers in ratios.items():
            print(f"  {peer:12} {spread(numbers)}")
            doubtless = median_interval(numbers)[1] < 1
            verdicts.append(verdict(f"slower than {peer} at batch {batch}", statistics.median(numbers) < 1, doubtless))
    print("seconds from starting a process to the end of its first step")
    starts = first_steps(words)
    ours = starts["train.py"]
    for name, numbers in starts.items():
        print(f"  {name:12} {spread(numbers)}")
        later = statistics.median(numbers) < statistics.median(ours)
        doubtless = median_interval(numbers)[1] < median_interval(ours)[0]
        verdicts.append(verdict(f"first step later than that of {name}", later, doubtless))
    if device.type == "cuda" or options.ladder:
        print("ladder")
        ladder(words if options.ladder else [*FILLS_A_GPU, *words])
    verdicts = [line for line in verdicts if line]
    print("\n".join(verdicts) or "every target is met")
    return 1 if verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
