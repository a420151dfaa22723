"""What `import utils` costs on top of `import torch`, in one run: both measured alternately in new processes.

Prints medians, spread and their ratio, and exits with status 1 when utils adds 100 ms or more.
"""

import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS = 9
CODE = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"


def seconds(statement):
    """Seconds that a new process takes for `statement`."""
    command = [sys.executable, "-c", CODE.format(statement)]
    return float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def main():
    torch_alone, with_utils = [], []
    seconds("import torch, utils")  # warms the disk cache
    for _ in range(RUNS):
        torch_alone.append(seconds("import torch"))
        with_utils.append(seconds("import torch, utils"))
    base, both = statistics.median(torch_alone), statistics.median(with_utils)
    for name, samples in (("import torch", torch_alone), ("import torch, utils", with_utils)):
        print(f"{name:20} {statistics.median(samples):6.3f} s  ({min(samples):.3f} to {max(samples):.3f}, n={RUNS})")
    print(f"utils adds {(both - base) * 1000:.0f} ms, {both / base:.3f} times the import of torch")
    return 0 if both - base < 0.1 else 1


if __name__ == "__main__":
    sys.exit(main())
