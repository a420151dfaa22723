"""How long a look-up takes: a usual paste, a log, 2 MB of several kinds.

python -m benchmarks.look_up
"""

import random
import time

from torch_messages import find

OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
STEP = "2026-03-11 12:00:{:02d} INFO train: step {} loss 0.1234 lr 0.001\n"
LINE = "x = model(y.to(device), a=[1, 2])  # why\n"
SIZE = 2_000_000


def pastes():
    """name → text."""
    chance = random.Random(0)
    known = "cuda error tensor rank memory of the device worker x12 step".split()
    log = "".join(STEP.format(n % 60, n) for n in range(1000))
    return {
        "an error": OOM,
        "code and its error": LINE * 40 + OOM,
        "a log of 1,000 lines": log + OOM,
        "the same without an error": log,
        "2 MB of a log": log * (SIZE // len(log)),
        "2 MB of words": " ".join(chance.choices(known, k=SIZE // 6)),
        "2 MB of binary": "".join(map(chr, chance.choices(range(1, 255), k=SIZE))),
        "2 MB of code": LINE * (SIZE // len(LINE)),
        "2 MB of brackets": "(" * SIZE,
        "2 MB of errors": "RuntimeError: odd things\n" * (SIZE // 25),
    }


def main():
    begin = time.perf_counter()
    find(OOM)
    print(
        f"{'the first, which reads the table':34}{time.perf_counter() - begin:8.3f} s"
    )
    for name, text in pastes().items():
        begin = time.perf_counter()
        find(text)
        print(f"{name:34}{time.perf_counter() - begin:8.3f} s")


if __name__ == "__main__":
    main()
