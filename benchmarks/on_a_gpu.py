"""What only a CUDA GPU can tell, in one command of at most twelve minutes.

python -m benchmarks.on_a_gpu [--out DIR] [--only PART …] [--seconds 720] [--rehearse]

waits    find_waits against CUDA's sync-debug mode: programs, steps with optimizers
memory   rehearse against peak, and against what the allocator was asked for
who      who_waits on loops of which it is known who sets the pace
pays     does_it_pay on a transformer, training and evaluating
float8   a matmul in float8 by F.scaled_mm against bfloat16
ladder   samples/s of train.py with each option, and their share of the card's peak
race     train.py against Accelerate at two batch sizes, as `make bench` does
capstone what its judge says of the script as it is, and of the answer

It needs PyTorch and NumPy; the race Accelerate, the capstone scikit-learn, too. Each
part runs in a process of its own, which is ended at the part's time limit. Below DIR,
by default build/on_a_gpu, a part writes NAME.json and NAME.txt again with each result:
nothing is lost where the machine goes away. A part that fails writes its traceback,
and the next one begins. In NAME.json "done" says that the part came to its end,
"skipped" why it did not begin. --rehearse: small sizes, for the emulated device, whose
times prove nothing.

Exit status 1 where a part failed, was cut off or did not begin for lack of time.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time
import traceback

import torch
import torch.nn.functional as F

from benchmarks import ROOT, gpu_kit, train_loops
from benchmarks.train_loops import FILLS_A_GPU, LADDER, Way, flops, train
from device_lab import measure_together
from utils.devices import emulated
from utils.hardware import look_up

GIB = 2**30


class Notes:
    """The results of a part. Each is written as soon as it is known."""

    def __init__(self, part, folder, rehearse):
        self.text, self.json = folder / f"{part}.txt", folder / f"{part}.json"
        self.begin, self.rows = time.monotonic(), []
        self.facts = {"part": part, "rehearsed": rehearse, **machine()}
        self.text.write_text("")
        self.say(f"{part}: {self.facts['device']}, torch {self.facts['torch']}")

    def say(self, line, **row):
        """Print a line, and keep the row behind it."""
        print(line, flush=True)
        with self.text.open("a") as file:
            file.write(line + "\n")
        self.keep(**row)

    def keep(self, **row):
        self.rows += [row] if row else []
        self.write()

    def write(self, **more):
        self.facts |= {"seconds": round(time.monotonic() - self.begin, 1), **more}
        new = self.json.with_suffix(".new")
        new.write_text(json.dumps({**self.facts, "rows": self.rows}, indent=1))
        new.replace(self.json)


def machine():
    """What the results hold for."""
    facts = {"device": "no CUDA GPU", "torch": torch.__version__}
    facts |= {"python": platform.python_version(), "cuda": torch.version.cuda}
    facts |= {"date": datetime.date.today().isoformat(), "cores": os.cpu_count()}
    if torch.cuda.is_available():
        row = torch.cuda.get_device_properties(0)
        facts["device"] = "emulated " * emulated() + row.name
        facts |= {"memory": row.total_memory, "capability": [row.major, row.minor]}
    return facts


def peak_of(kind):
    """TFLOP/s that the card's maker states for this kind of numbers, or None."""
    row = look_up(torch.cuda.get_device_name())
    if row is None:
        return None
    return row.tf32 or row.fp32 if kind == "fp32" else getattr(row, kind)


def share_of(teraflops, peak):
    return f"{teraflops / peak:.0%} of {peak:g}" if peak else "peak unknown"


# --------------------------------------------------------------------------------------
# Products and training


def to_float8(x):
    """x as float8_e4m3fn, and the scale that takes it back."""
    scale = x.abs().max().float().clamp(min=1e-12) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale


def float8(notes, small, seconds):
    if not hasattr(F, "scaled_mm"):
        return "this PyTorch has no F.scaled_mm"
    if torch.cuda.get_device_capability() < (8, 9):
        return "this card does not multiply float8: that needs 8.9 or newer"
    for size in (256,) if small else (4096, 8192):
        one_size(notes, size)


def one_size(notes, size):
    x, w = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
    (x8, x_scale), (w8, w_scale) = to_float8(x), to_float8(w)
    one = F.ScalingType.TensorWise

    def multiply(x8, x_scale, **options):
        return F.scaled_mm(x8, w8.t(), x_scale, one, w_scale, one, **options)

    ways = {
        "bfloat16": lambda: x @ w.t(),
        "float8": lambda: multiply(x8, x_scale),
        "float8, fast accumulation": lambda: multiply(x8, x_scale, use_fast_accum=True),
        "float8, the input cast each time": lambda: multiply(*to_float8(x)),
    }
    exact = x.float() @ w.float().t()
    times = measure_together(ways, "cuda", seconds=2.0)
    for way, call in ways.items():
        teraflops = 2 * size**3 / times[way].median / 1e12
        off = ((call() - exact).norm() / exact.norm()).item()
        share = share_of(teraflops, peak_of("bf16" if way == "bfloat16" else "fp8"))
        line = f"  {size} {way:32} {teraflops:7.1f} TFLOP/s, {share}, {off:.2%} off"
        row = {"size": size, "way": way, "seconds": times[way].median}
        notes.say(line, **row, teraflops=teraflops, off=off)


def filling():
    """Options of train.py for a model that fills this card, and fits in float32."""
    gib = torch.cuda.get_device_properties(0).total_memory / GIB
    if gib > 100:
        return FILLS_A_GPU
    if gib > 60:
        return [*FILLS_A_GPU, "--batch=16"]
    return "--width=1024 --layers=12 --heads=16 --context=512 --batch=16".split()


def ladder(notes, small, seconds):
    words = ["--width=64", "--layers=2", "--batch=8"] if small else filling()
    notes.say(f"  train.py {' '.join(words)}", words=words)
    for rung, more in LADDER.items():
        try:
            line, row = climb([*words, *more])
        except RuntimeError as error:  # out of memory; no compiler
            line = str(error).strip().splitlines()[-1]
            row = {"error": str(error)}
        notes.say(f"  {rung:12} {line}", rung=rung, **row)


def climb(words):
    """(a line, a row) of train.py with these options."""
    words = [*words, "--steps=100000"]
    args, way = train.parse_arguments(words), Way("train.py", words)
    way.take(3)  # CUDA graphs are recorded in the third step
    steps = max(3, min(20, round(10 / way.take(1)[0])))
    seconds, most = way.take(steps)
    way.close()
    rate = args.batch * steps / seconds
    teraflops, peak = rate * flops(args) / 1e12, peak_of(args.precision)
    line = f"{rate:9,.1f} samples/s  {teraflops:7.1f} TFLOP/s, "
    line += f"{share_of(teraflops, peak)}, at most {most / GIB:.1f} GiB"
    row = {"samples_per_second": rate, "teraflops": teraflops, "peak": peak}
    row |= {"mfu": teraflops / peak if peak else None, "steps": steps, "bytes": most}
    return line, row


def race(notes, small, seconds):
    if not importlib.util.find_spec("accelerate"):
        return "Accelerate is not installed: no race"
    words = ["--width=32", "--layers=1"] if small else []
    for batch in (32, 256):  # a third of the time is for the start of four processes
        (race,) = train_loops.compare(words, [batch], ["Accelerate"], seconds / 3)
        ratios = race.ratios()["Accelerate"]
        rates = {way.name: statistics.median(r) for way, r in race.rates.items()}
        low, high = train_loops.median_interval(ratios)
        verdict = f"{train_loops.decides(ratios)} Accelerate"
        line = f"batch {batch}: train.py {rates['train.py']:,.0f} samples/s, {verdict},"
        line += f" ratio {train_loops.spread(ratios).strip()}"
        row = {"batch": batch, "samples_per_second": rates, "low": low, "high": high}
        notes.say(line, **row, ratio=statistics.median(ratios), ratios=ratios)


def capstone(notes, small, seconds):
    if not importlib.util.find_spec("sklearn"):
        return "scikit-learn is not installed: no capstone"
    from tools.capstone import ORIGINAL, compared

    for path in (ORIGINAL, ROOT / "tests" / "tools" / "capstone_answer.py"):
        lines = list(compared(path))
        notes.say("\n".join(lines), script=path.name, lines=lines)


# --------------------------------------------------------------------------------------

# part → (what it does, the seconds that it may take); first what the kit needs most
PARTS = {
    "waits": (gpu_kit.waits, 60),
    "memory": (gpu_kit.memory, 90),
    "who": (gpu_kit.who, 60),
    "pays": (gpu_kit.pays, 90),
    "command": (gpu_kit.command, 60),
    "float8": (float8, 40),
    "ladder": (ladder, 200),
    "race": (race, 180),
    "capstone": (capstone, 180),
}


def run_here(part, folder, small, seconds):
    """Run a part in this process. Returns the exit status."""
    notes, lack = Notes(part, folder, small), "needs a CUDA GPU"
    try:
        if torch.cuda.is_available():
            lack = PARTS[part][0](notes, small, seconds)
    except Exception:
        notes.say(traceback.format_exc())
        notes.write(error=traceback.format_exc())
        return 1
    if lack:
        notes.say(f"skipped: {lack}")
    notes.write(**({"skipped": lack} if lack else {"done": True}))
    return 0


def run_apart(part, args, seconds):
    """Run a part in a process of its own, at most so long. Returns how it ended."""
    command = [sys.executable, "-m", "benchmarks.on_a_gpu", "--here", "--only", part]
    command += ["--out", str(args.out), "--seconds", str(seconds)]
    command += ["--rehearse"] if args.rehearse else []
    run = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    outcome = "ended"
    try:
        if status := run.wait(seconds):
            outcome = f"failed, exit status {status}"
    except subprocess.TimeoutExpired:
        outcome = f"cut off after {seconds:.0f} s"
    finally:  # with the processes that it has started
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    if outcome != "ended":
        with (args.out / f"{part}.txt").open("a") as file:
            file.write(outcome + "\n")
    return outcome


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default = ROOT / "build" / "on_a_gpu"
    add("--out", type=pathlib.Path, default=default, help="folder of the results")
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts")
    add("--seconds", type=float, default=720, help="of all parts together, at most")
    add("--rehearse", action="store_true", help="small sizes")
    add("--here", action="store_true", help="in this process, without a limit")
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.here:
        runs = [run_here(p, args.out, args.rehearse, args.seconds) for p in args.only]
        return max(runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the part, too
    end, missed = time.monotonic() + args.seconds, False
    for part in args.only:
        most = PARTS[part][1] * (4 if args.rehearse else 1)  # a CPU computes it
        left = min(most, end - time.monotonic())
        outcome = "not begun: no time left"
        if left > 10:
            outcome = run_apart(part, args, left)
        print(f"{part}: {outcome}\n", flush=True)
        missed |= outcome != "ended"
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
