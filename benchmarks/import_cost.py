"""What `import utils` costs on top of `import torch`: both timed in the same process,
in several new processes.

python -m benchmarks.import_cost

Prints medians, spread and ratio, and exits with status 1 when utils adds 100 ms or
more.
"""

import statistics
import subprocess
import sys

from benchmarks import ROOT

RUNS = 11
CODE = """
import time
start = time.perf_counter()
import torch
middle = time.perf_counter()
import utils
print(middle - start, time.perf_counter() - middle)
"""


def seconds():
    """Seconds that a new process takes to import torch, and then utils."""
    command, output = (
        [sys.executable, "-c", CODE],
        {"capture_output": True, "text": True},
    )
    done = subprocess.run(command, cwd=ROOT, check=True, **output)
    return [float(number) for number in done.stdout.split()]


def main():
    seconds()  # warms the disk cache
    pairs = [seconds() for _ in range(RUNS)]
    torch, utils = zip(*pairs, strict=True)
    for name, samples in (("import torch", torch), ("import utils after it", utils)):
        spread = f"{min(samples):.3f} to {max(samples):.3f}, n={RUNS}"
        print(f"{name:22} {statistics.median(samples):6.3f} s  ({spread})")
    added = statistics.median(utils)
    share = statistics.median(u / t for t, u in pairs)
    print(f"utils adds {added * 1000:.0f} ms, {share:.1%} of the import of torch")
    return 0 if added < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
