"""What importing the kit, all that it names, and `utils` costs on top of `import
torch`: timed one after another in the same process, in several new processes.

python -m benchmarks.import_cost

Prints medians and spread, and exits with status 1 when the kit adds 50 ms or more, or
all together 100 ms.
"""

import statistics
import subprocess
import sys

from benchmarks import ROOT

RUNS = 11
CODE = """
import time
times = [time.perf_counter()]
import torch
times.append(time.perf_counter())
import device_lab
times.append(time.perf_counter())
for name in device_lab.__all__:
    getattr(device_lab, name)
times.append(time.perf_counter())
import utils
times.append(time.perf_counter())
print(*times)
"""
PARTS = "torch", "device_lab", "all that it names", "utils"


def seconds():
    """Seconds that a new process takes for each part."""
    command = [sys.executable, "-c", CODE]
    output = {"capture_output": True, "text": True}
    done = subprocess.run(command, cwd=ROOT, check=True, **output)
    times = [float(number) for number in done.stdout.split()]
    return [after - before for before, after in zip(times, times[1:], strict=False)]


def main():
    seconds()  # warms the disk cache
    runs = [seconds() for _ in range(RUNS)]
    medians = {}
    for name, samples in zip(PARTS, zip(*runs, strict=True), strict=True):
        medians[name] = statistics.median(samples)
        spread = f"{min(samples):.4f} to {max(samples):.4f}, n={RUNS}"
        print(f"{name:18} {medians[name]:7.4f} s  ({spread})")
    added = statistics.median(sum(run[1:]) for run in runs)
    print(f"all but torch: {added * 1000:.0f} ms")
    return 0 if medians["device_lab"] < 0.05 and added < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
