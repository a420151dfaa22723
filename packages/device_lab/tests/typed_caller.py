"""What mypy --strict reads in test_typing.py: a caller of each public function, as in a
project that is typed. It is not run.
"""

from collections.abc import Callable, Iterator

import torch

import device_lab
from device_lab import (
    LabError,
    busy,
    does_it_pay,
    find_waits,
    left_behind,
    measure,
    measure_together,
    peak,
    rehearse,
    speedup,
    who_waits,
)

Batch = tuple[torch.Tensor, torch.Tensor]


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def loader() -> Iterator[Batch]:
    yield torch.ones(2, 2), torch.ones(2)


def step() -> None:
    pass


def train(batch: Batch) -> float:
    return float(batch[0].sum())


def make() -> Callable[[], None]:
    return step


def ask(model: Net, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    waits = find_waits(step, steps=2)
    lines: list[str] = [wait.where for wait in waits.waits]
    names: list[str] = [left.path for left in left_behind(model).found]
    names += [x.why for x in left_behind(model, "cuda", optimizer=optimizer).found]
    pace = who_waits(list(loader()), train, device)
    shares: dict[str, float] = {name: part.median for name, part in pace.parts.items()}
    highest: int = peak(step).highest + peak(step, "cuda").highest
    need = rehearse(make, lower=False)
    kinds: dict[str, int] = need.kinds
    share: float = busy("trace.json").share
    with torch.profiler.profile() as prof:
        step()
    gaps: list[tuple[float, float]] = busy(prof).gaps
    pays = does_it_pay(model, torch.ones(2), backend="eager")
    gain: float = pays.gain.times
    one = measure(step, device, n=7)
    both = measure_together({"old": step, "new": lambda: train(next(loader()))}, "cpu")
    low: float = speedup(both["old"], one).low
    print(lines, names, shares, highest, kinds, share, gaps, gain, low)
    for result in (waits, pace, need, pays, one, speedup(one, one), busy(prof)):
        saved: dict[str, object] = result.to_dict()
        print(result, saved)


def slowest(pace: device_lab.Pace, before: list[device_lab.Wait]) -> device_lab.Part:
    waits: device_lab.Waits = find_waits(step)
    print([wait for wait in waits.waits if wait not in before])
    return max(pace.parts.values(), key=lambda part: part.median)


def version() -> str:
    try:
        step()
    except LabError as error:
        return str(error)
    return device_lab.__version__
