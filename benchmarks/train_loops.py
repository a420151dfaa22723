"""train.py against Accelerate and Lightning: same model, data, optimizer and precision,
interleaved in one run.

python benchmarks/train_loops.py [--seconds 130] [--batches 32 256] [--peers Accelerate
Lightning] [options of train.py]

Each way runs in a process of its own, as its users start it, and takes its steps when
it is told to. Samples/s are compared round by round: in each round every way takes its
turn, in an order drawn anew, and the ratio of that round counts. Printed are the median
of the ratios and its 95% interval. On a CPU with one thread: with more, one that a
neighbor holds up holds up all. The first line says what the intervals decide: train.py
is ahead, behind, or they cannot tell. `--peers train.py` compares train.py with itself:
that must give 1.

Then the time from the start of a process to the line that it prints after its first
step. On a CUDA GPU, also a ladder of train.py's options on a model that fills the GPU.

Target: no slower than the faster of the two, and no later. Exits with status 1 where a
median misses it, and says whether that is beyond doubt: the whole interval lies on the
wrong side.
"""

import argparse
import json
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

# TURN: seconds that a turn takes at least, if one step does not take longer
STARTS, TURN = 5, 0.5
FILLS_A_GPU = "--width=2048 --layers=16 --heads=16 --context=1024 --batch=32".split()
LADDER = {  # what train.py can be told; each adds to the one before
    "float32": ["--precision=fp32"],
    "bfloat16": ["--precision=bf16"],
    "compiled": ["--precision=bf16", "--compile"],
    "CUDA graphs": ["--precision=bf16", "--compile=reduce-overhead"],
}


def spread(numbers):
    low, high = median_interval(numbers)
    return (
        f"{statistics.median(numbers):6.3f}  (95%: {low:.3f} to {high:.3f},"
        f" n={len(numbers)})"
    )


def verdict(what, bad, beyond_doubt):
    """One line about a target, None where it is met. `bad`: by the median.
    `beyond_doubt`: by the interval, too.
    """
    return (
        f"{'target missed' if beyond_doubt else 'cannot tell, by the median'}: {what}"
        if bad
        else None
    )


class Way:
    """A process that takes steps when it is told to: peers.py."""

    def __init__(self, name, words):
        command = [sys.executable, peers.__file__, name, *words]
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        self.name, self.process = name, subprocess.Popen(command, text=True, **pipes)

    def take(self, steps):
        """Take so many steps. Returns the seconds that they took, and the most bytes
        that a GPU held so far.
        """
        print(steps, file=self.process.stdin, flush=True)
        said = []
        for line in self.process.stdout:
            if line.startswith("step "):
                return json.loads(line.split(": ", 1)[1])
            said.append(line)
        raise RuntimeError(f"{self.name} has ended: {''.join(said[-5:])}")

    def close(self):
        self.process.communicate()  # it ends where its input ends


def compare(words, batch, names, seconds):
    """Ratios of train.py's samples/s to each peer's, {peer: one for each round}, and
    its samples/s.
    """
    words = [*words, f"--batch={batch}", "--steps=100000"]
    ours, *others = ways = [Way(name, words) for name in ("train.py", *names)]
    for way in ways:
        way.take(2)  # the first step imports and allocates
    steps = max(1, round(TURN / ours.take(1)[0]))
    rates, end = {way: [] for way in ways}, time.monotonic() + seconds
    while time.monotonic() < end:
        for way in random.sample(ways, len(ways)):
            rates[way].append(steps * batch / way.take(steps)[0])
    for way in ways:
        way.close()
    ratios = {
        way.name: [a / b for a, b in zip(rates[ours], rates[way], strict=True)]
        for way in others
    }
    return ratios, rates[ours]


def decides(ratios):
    low, high = median_interval(ratios)
    return "ahead of" if low > 1 else "behind" if high < 1 else "cannot tell from"


def first_steps(words, names):
    """Seconds from starting a process to the line that says its first step is done:
    {way: one for each start}.
    """
    found = {name: [] for name in ("train.py", *names)}
    for start in range(STARTS + 1):
        for name in random.sample(list(found), len(found)):
            begin = time.perf_counter()
            if name == "train.py":
                command = [sys.executable, train.__file__, "--steps=1", *words]
                with subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                ) as run:
                    seconds = next(
                        time.perf_counter() - begin
                        for line in run.stdout
                        if line.startswith("step 1")
                    )
            else:
                way = Way(name, words)
                way.take(1)
                seconds = time.perf_counter() - begin
                way.close()
            if start:  # the first start only warms the disk cache
                found[name].append(seconds)
    return found


def flops(args):
    """Operations of one sample: products of the forward pass and of the backward pass,
    counted without computing.
    """
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        text = torch.zeros(1, args.context, dtype=torch.uint8)
        tasks.loss_of(tasks.model_of(args), text, text).backward()
    return counter.get_total_flops()


def ladder(words, steps=20):
    """Print samples/s, share of the device's peak and memory for each rung of LADDER."""
    row = (
        hardware.look_up(torch.cuda.get_device_name())
        if torch.cuda.is_available()
        else None
    )
    for rung, more in LADDER.items():
        args = train.parse_arguments([*words, *more, "--steps=100000"])
        way = Way("train.py", [*words, *more, "--steps=100000"])
        try:
            way.take(3)  # CUDA graphs are recorded in the third step
            seconds, most = way.take(steps)
        except RuntimeError as error:  # out of memory
            print(f"  {rung:12} {str(error).strip().splitlines()[-1]}")
            continue
        way.close()
        rate = args.batch * steps / seconds
        teraflops = rate * flops(args) / 1e12
        line = f"  {rung:12} {rate:9,.1f} samples/s  {teraflops:8.3f} TFLOP/s"
        peak = row and (row.tf32 or row.fp32 if args.precision == "fp32" else row.bf16)
        line += f", {teraflops / peak:.0%} of {peak:g}" if peak else ", peak unknown"
        if torch.cuda.is_available():
            line += f", at most {most / 2**30:.1f} GiB"
        print(line)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--seconds",
        type=float,
        default=130,
        help="of rounds, for each batch (default: %(default)s)",
    )
    add(
        "--batches",
        type=int,
        nargs="*",
        default=[32, 256],
        help="(default: %(default)s)",
    )
    add(
        "--peers",
        nargs="*",
        choices=peers.WAYS,
        default=["Accelerate", "Lightning"],
        help="(default: %(default)s)",
    )
    add(
        "--ladder",
        action="store_true",
        help="climb the ladder without a CUDA GPU too, with the options",
    )
    options, words = parser.parse_known_args()
    device = train.pick_device(train.parse_arguments(words))
    if device.type == "cpu":
        torch.set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"
    found = {
        batch: compare(words, batch, options.peers, options.seconds)
        for batch in options.batches
    }
    decided = [
        f"{decides(r)} {peer} at batch {batch}"
        for batch, (ratios, _) in found.items()
        for peer, r in ratios.items()
    ]
    print(f"train.py, by the 95% intervals: {', '.join(decided)}")
    print(
        f"{devices.name_of(device.type)}, torch {torch.__version__},"
        f" {torch.get_num_threads()} thread(s)"
    )
    verdicts = []
    for batch, (ratios, rates) in found.items():
        print(
            f"batch {batch}: train.py {statistics.median(rates):,.0f} samples/s. Its"
            " samples/s divided by those of"
        )
        for peer, numbers in ratios.items():
            print(f"  {peer:12} {spread(numbers)}")
            doubtless = median_interval(numbers)[1] < 1
            verdicts.append(
                verdict(
                    f"slower than {peer} at batch {batch}",
                    statistics.median(numbers) < 1,
                    doubtless,
                )
            )
    print("seconds from starting a process to the end of its first step")
    starts = first_steps(words, options.peers)
    ours = starts["train.py"]
    for name, numbers in starts.items():
        print(f"  {name:12} {spread(numbers)}")
        later = statistics.median(numbers) < statistics.median(ours)
        doubtless = median_interval(numbers)[1] < median_interval(ours)[0]
        verdicts.append(
            verdict(f"first step later than that of {name}", later, doubtless)
        )
    if device.type == "cuda" or options.ladder:
        print("ladder")
        ladder(words if options.ladder else [*FILLS_A_GPU, *words])
    verdicts = [line for line in verdicts if line]
    print("\n".join(verdicts) or "every target is met")
    return 1 if verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
