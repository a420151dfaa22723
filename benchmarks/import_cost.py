"""What `import utils` costs on top of `import torch`: both timed in the same process,
in several new processes.

Prints medians, spread and ratio, and exits with status 1 when utils adds 100 ms or
more.
"""

import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
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
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(number) for number in done.stdout.split()]


def main():
    seconds()  # warms the disk cache
    pairs = [seconds() for _ in range(RUNS)]
    for name, samples in zip(
        ("import torch", "import utils after it"), zip(*pairs, strict=True), strict=True
    ):
        print(
            f"{name:22} {statistics.median(samples):6.3f} s  ({min(samples):.3f} to"
            f" {max(samples):.3f}, n={RUNS})"
        )
    added = statistics.median(utils for _, utils in pairs)
    print(
        f"utils adds {added * 1000:.0f} ms,"
        f" {statistics.median(u / t for t, u in pairs):.1%} of the import of torch"
    )
    return 0 if added < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
