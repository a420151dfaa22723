"""train.py against Accelerate and Lightning: same model, data, optimizer and precision,
interleaved in one run.

python -m benchmarks.train_loops [--seconds 600] [--batches 32 256]
                                 [--peers Accelerate Lightning] [options of train.py]

Each way runs in a process of its own, as its users start it, and takes its steps when
it is told to. Samples/s are compared round by round: in each round every way takes its
turn, in an order drawn anew, and the ratio of that round counts. Printed are the median
of the ratios and its 95% interval. On a CPU with one thread: with more, one that a
neighbor holds up holds up all. The first line says what the intervals decide: train.py
is ahead, behind, or they cannot tell. Rounds go on until they can tell of all peers, or
the time is over; that is asked after 40, 80, 160, … rounds, not after each, since an
interval that is looked at often enough leaves 1 by chance. `--peers train.py` compares
train.py with itself: that must give 1.

Then the time from the start of a process to the line that it prints after its first
step. On a CUDA GPU, also a ladder of train.py's options on a model that fills the GPU.

Target: no slower than the faster of the two, and no later. Exits with status 1 where it
is missed beyond doubt: the whole interval lies on the wrong side. Where only the median
does, it says that it cannot tell.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

import tasks
import torch
import train
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import ROOT, peers
from device_lab._kit.timing import median_interval
from utils import devices, hardware

# TURN: seconds that a turn takes at least, if one step does not take longer
# LOOK: rounds after which it is first asked whether the intervals can tell
STARTS, TURN, LOOK = 5, 0.5, 40
FILLS_A_GPU = "--width=2048 --layers=16 --heads=16 --context=1024 --batch=32".split()
LADDER = {  # what train.py can be told; each adds to the one before
    "float32": ["--precision=fp32"],
    "bfloat16": ["--precision=bf16"],
    "compiled": ["--precision=bf16", "--compile"],
    "CUDA graphs": ["--precision=bf16", "--compile=reduce-overhead"],
}


def spread(numbers):
    low, high = median_interval(numbers)
    interval = f"95%: {low:.3f} to {high:.3f}, n={len(numbers)}"
    return f"{statistics.median(numbers):6.3f}  ({interval})"


def verdict(what, bad, beyond_doubt):
    """(one line, whether the target is missed) about a target; None where it is met.

    bad: by the median
    beyond_doubt: by the interval, too
    """
    if not bad:
        return None
    begin = "target missed" if beyond_doubt else "cannot tell, by the median"
    return f"{begin}: {what}", beyond_doubt


class Way:
    """A process that takes steps when it is told to: peers.py."""

    def __init__(self, name, words):
        command = [sys.executable, "-m", peers.__name__, name, *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        pipes["stderr"] = subprocess.STDOUT
        self.name = name
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)

    def take(self, steps):
        """Take so many steps. Returns the seconds that they took, and the most bytes
        that a GPU held so far.
        """
        print(steps, file=self.process.stdin, flush=True)
        lines = []
        for line in self.process.stdout:
            if line.startswith("step "):
                return json.loads(line.split(": ", 1)[1])
            lines.append(line)
        raise RuntimeError(f"{self.name} has ended: {''.join(lines[-5:])}")

    def close(self):
        self.process.communicate()  # it ends where its input ends


class Race:
    """train.py and its peers at one batch size."""

    def __init__(self, words, batch, names):
        words = [*words, f"--batch={batch}", "--steps=100000"]
        self.ways = [Way(name, words) for name in ("train.py", *names)]
        self.batch, self.rates = batch, {way: [] for way in self.ways}
        for way in self.ways:
            way.take(2)  # the first step imports and allocates
        self.steps = max(1, round(TURN / self.ways[0].take(1)[0]))

    def run_round(self):
        for way in random.sample(self.ways, len(self.ways)):
            rate = self.steps * self.batch / way.take(self.steps)[0]
            self.rates[way].append(rate)

    def ratios(self):
        """train.py's samples/s over each peer's, {peer: one for each round}."""
        ours, *others = self.ways
        return {
            way.name: [
                a / b for a, b in zip(self.rates[ours], self.rates[way], strict=True)
            ]
            for way in others
        }

    def goes_on(self):
        rounds, look = len(self.rates[self.ways[0]]), LOOK
        while look < rounds:
            look *= 2
        can_tell = all(decides(r) != CANNOT_TELL for r in self.ratios().values())
        return not (rounds == look and can_tell)

    def close(self):
        for way in self.ways:
            way.close()


def compare(words, batches, names, seconds):
    """The races of all batch sizes, side by side, until they can tell or the time is
    over.
    """
    races, end = [Race(words, batch, names) for batch in batches], time.monotonic()
    end += seconds
    running = list(races)
    while running and time.monotonic() < end:
        for race in running:
            race.run_round()
        running = [race for race in running if race.goes_on()]
    for race in races:
        race.close()
    return races


CANNOT_TELL = "cannot tell from"


def decides(ratios):
    low, high = median_interval(ratios)
    if low > 1:
        return "ahead of"
    return "behind" if high < 1 else CANNOT_TELL


def wait_for_first_step(words):
    """Start train.py and wait for the line that says its first step is done. Its end is
    not waited for.
    """
    command = [sys.executable, train.__file__, "--steps=1", *words]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(command, text=True, **quiet)
    next(line for line in run.stdout if line.startswith("step 1"))
    return run


def first_steps(words, names):
    """Seconds from starting a process to the line that says its first step is done:
    {way: one for each start}.
    """
    starts = {name: [] for name in ("train.py", *names)}
    for start in range(STARTS + 1):
        for name in random.sample(list(starts), len(starts)):
            begin = time.perf_counter()
            if name == "train.py":
                run = wait_for_first_step(words)
                seconds = time.perf_counter() - begin
                run.communicate()
            else:
                way = Way(name, words)
                way.take(1)
                seconds = time.perf_counter() - begin
                way.close()
            if start:  # the first start only warms the disk cache
                starts[name].append(seconds)
    return starts


def flops(args):
    """Operations of one sample, in the products of forward and backward pass: counted
    without computing.
    """
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        text = torch.zeros(1, args.context, dtype=torch.uint8)
        tasks.loss_of(tasks.model_of(args), text, text).backward()
    return counter.get_total_flops()


def ladder(words, steps=20):
    """Print samples/s, share of the device's peak and memory of each rung of LADDER."""
    row = None
    if torch.cuda.is_available():
        row = hardware.look_up(torch.cuda.get_device_name())
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
        peak = None
        if row:
            peak = row.tf32 or row.fp32 if args.precision == "fp32" else row.bf16
        line += f", {teraflops / peak:.0%} of {peak:g}" if peak else ", peak unknown"
        if torch.cuda.is_available():
            line += f", at most {most / 2**30:.1f} GiB"
        print(line)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    each = "of rounds, at most, for all batches (default: %(default)s)"
    add("--seconds", type=float, default=600, help=each)
    default = {"help": "(default: %(default)s)", "nargs": "*"}
    add("--batches", type=int, default=[32, 256], **default)
    names = ["Accelerate", "Lightning"]
    add("--peers", choices=peers.WAYS, default=names, **default)
    climb = "climb the ladder without a CUDA GPU too, with the options"
    add("--ladder", action="store_true", help=climb)
    options, words = parser.parse_known_args()
    device = train.pick_device(train.parse_arguments(words))
    if device.type == "cpu":
        torch.set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"
    verdicts = report_rates(words, options, device)
    verdicts += report_starts(words, options.peers)
    if device.type == "cuda" or options.ladder:
        print("ladder")
        ladder(words if options.ladder else [*FILLS_A_GPU, *words])
    verdicts = [each for each in verdicts if each]
    print("\n".join(line for line, _ in verdicts) or "every target is met")
    return int(any(missed for _, missed in verdicts))


def report_rates(words, options, device):
    """Compare samples/s and print them; the verdicts."""
    races = compare(words, options.batches, options.peers, options.seconds)
    decided = [
        f"{decides(ratios)} {peer} at batch {race.batch}"
        for race in races
        for peer, ratios in race.ratios().items()
    ]
    print(f"train.py, by the 95% intervals: {', '.join(decided)}")
    threads = f"{torch.get_num_threads()} thread(s)"
    print(f"{devices.name_of(device.type)}, torch {torch.__version__}, {threads}")
    verdicts = []
    for race in races:
        batch, rates = race.batch, race.rates[race.ways[0]]
        ours = f"train.py {statistics.median(rates):,.0f} samples/s"
        print(f"batch {batch}: {ours}. Its samples/s divided by those of")
        for peer, numbers in race.ratios().items():
            print(f"  {peer:12} {spread(numbers)}")
            slower = statistics.median(numbers) < 1
            doubtless = median_interval(numbers)[1] < 1
            what = f"slower than {peer} at batch {batch}"
            verdicts.append(verdict(what, slower, doubtless))
    return verdicts


def report_starts(words, names):
    """Compare the seconds to the first step and print them; the verdicts."""
    print("seconds from starting a process to the end of its first step")
    starts, verdicts = first_steps(words, names), []
    ours = starts["train.py"]
    for name, numbers in starts.items():
        print(f"  {name:12} {spread(numbers)}")
        later = statistics.median(numbers) < statistics.median(ours)
        doubtless = median_interval(numbers)[1] < median_interval(ours)[0]
        what = f"first step later than that of {name}"
        verdicts.append(verdict(what, later, doubtless))
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
