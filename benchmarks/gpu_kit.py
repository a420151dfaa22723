"""The kit on a CUDA GPU, for on_a_gpu.py: what each function says, beside what CUDA
says or what is known by construction.

A part takes notes, and whether sizes are to be small: notes.say prints a line and keeps
a row, notes.keep keeps a row.
"""

import functools
import gc
import math
import sys
import time
from unittest import mock

import torch
from torch.utils.data import DataLoader, Dataset

from utils.compiling import does_it_pay
from utils.loader import who_waits

MIB = 2**20


@functools.cache
def lists():
    """The programs, models and counters of the kit's tests. Those modules ask for
    pytest, which may lack here, and for the emulated device: here they get neither.
    """
    real = sys.modules.get("pytest")
    sys.modules["pytest"] = mock.MagicMock()
    try:
        from tests.emulator import kit_memory, kit_waits
    finally:
        del sys.modules["pytest"]
        if real:
            sys.modules["pytest"] = real
    return kit_memory, kit_waits


def waits(notes, small, seconds=None):
    """Each program and step: what find_waits counts, and what CUDA warns of."""
    _, kit = lists()
    gpu = torch.device("cuda")
    steps = {text: functools.partial(kit.program, text, gpu) for text in kit.TABLE}
    for name, options in [*kit.OPTIMIZERS, ("Adam", {"capturable": True})]:
        make = functools.partial(kit.training, "cuda", name, options)
        steps[f"a step with {name} {options}"] = make
    for name in ("ASGD", "Adafactor"):
        steps[f"a step with {name}"] = functools.partial(kit.training, "cuda", name)
    if small:
        steps = dict(list(steps.items())[::3])
    sorts = {sort: 0 for sort in ("agrees", "count", "FALSE ALARM", "MISSED", "failed")}
    for text, make in steps.items():
        sort, row = one_wait(make, kit)
        sorts[sort] += 1
        if sort == "agrees":
            notes.keep(step=text, sort=sort, **row)
        else:
            notes.say(f"  {sort:11} {text}: {row}", step=text, sort=sort, **row)
    said = ", ".join(f"{sort} {count}" for sort, count in sorts.items())
    notes.say(f"{len(steps)} steps: {said}", summary=sorts)


def one_wait(make, kit):
    """(how the two agree, what both count)"""
    try:
        step = make()
        seen = sum(wait.times for wait in kit.find_waits(step).waits)
        warned = kit.warned(step)
    except Exception as error:
        return "failed", {"error": f"{type(error).__name__}: {error}"[:300]}
    row = {"find_waits": seen, "cuda": warned}
    if seen == warned:
        return "agrees", row
    if seen and warned:
        return "count", row
    return ("FALSE ALARM" if seen else "MISSED"), row


def models(kit):
    """Ten training steps, as large as a GPU likes them."""
    deep = functools.partial(kit.Language, 8, 768, 512)
    wide = functools.partial(kit.Language, 4, 1536, 512)
    text, one = (16, 512), (1, 512)
    train = kit.training
    return {
        "attention": train(deep, text),
        "dropout": train(lambda: deep(dropout=0.1), text),
        "checkpoint": train(lambda: deep(again=True), text),
        "bfloat16": train(deep, text, dtype=torch.bfloat16),
        "float16": train(deep, text, dtype=torch.float16, clip=True),
        "foreach": train(wide, one),
        "fused": train(wide, one, kit.FUSED),
        "for-loop": train(wide, one, kit.LOOP),
        "convolutions": train(kit.convolutions, (256, 3, 96, 96), kit.SGD),
        "encoder": train(kit.encoder, (64, 256, 256)),
    }


def memory(notes, small, seconds=None):
    """rehearse against peak. Off: by how many percent the rehearsed is larger."""
    kit, _ = lists()
    steps = models(kit)
    if small:
        steps = {name: kit.STEPS[name] for name in steps}
    kit.measured(kit.STEPS["perceptron"])  # cuBLAS takes its workspaces and keeps them
    notes.say(f"  {'':13} rehearsed    peak   off   asked for   off")
    for name, make in steps.items():
        try:
            row = one_peak(make, kit)
        except Exception as error:
            notes.say(f"  {name:13} {error}"[:200], model=name, error=str(error))
            continue
        forecast, highest, asked = (each / MIB for each in row.values())
        off = {"off_peak": forecast / highest - 1, "off_asked": forecast / asked - 1}
        line = f"  {name:13} {forecast:9,.1f} {highest:7,.1f} {off['off_peak']:+.1%}"
        line += f" {asked:11,.1f} {off['off_asked']:+.2%}  MiB"
        notes.say(line, model=name, **row, **off)


def one_peak(make, kit):
    """Bytes: rehearsed; of the allocator's blocks, by peak; asked of the allocator."""
    forecast = kit.rehearse(make, lower=False).peak
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    highest = kit.peak(make(), "cuda").highest - before
    asked = kit.measured(make)[1]
    return {"rehearsed": forecast, "peak": highest, "asked": asked}


class Sleeper(Dataset):
    """Items that take `seconds` each to load."""

    def __init__(self, seconds, count=64):
        self.seconds, self.count = seconds, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.zeros(8)


def loops(small):
    """who sets the pace → (loader, step)"""
    width = 256 if small else 4096
    a, tiny = torch.randn(width, width, device="cuda"), torch.zeros(8, device="cuda")
    large = torch.zeros(width * width)

    def multiply(batch):
        batch.cuda()
        return [a @ a for _ in range(4)]

    def launch(batch):
        batch.cuda()
        x = tiny
        for _ in range(300):
            x = x + 1
        return x

    def sleep(batch):
        time.sleep(0.01)
        return batch.cuda().sum()

    few = DataLoader(Sleeper(0.0, 16), 4, num_workers=2)
    return {
        "loader": (DataLoader(Sleeper(0.002), 8), lambda batch: batch.cuda().sum()),
        "start": (few, lambda batch: batch.cuda().sum()),
        "copy": ([large] * 8, lambda batch: batch.cuda()[:8].sum()),
        "device": ([torch.zeros(8)] * 8, multiply),
        "host": ([torch.zeros(8)] * 8, launch),
        "between": (DataLoader(Sleeper(0.00125), 8), sleep),
    }


def who(notes, small, seconds=None):
    right, cases = 0, loops(small)
    for expected, (loader, step) in cases.items():
        found = who_waits(loader, step, "cuda", batches=22)
        right += found.who == expected
        row = {"expected": expected, "who": found.who, "saved": found.saved}
        parts = {name: part.median for name, part in found.parts.items()}
        notes.say(f"expected {expected}: {found.who}. {found}", **row, parts=parts)
    notes.say(f"{right} of {len(cases)} as expected", right=right, of=len(cases))


def pays(notes, small, seconds=None):
    kit, _ = lists()
    layers, width, tokens, batch = (2, 128, 32, 4) if small else (6, 512, 256, 16)
    model = kit.Language(layers, width, tokens).cuda()
    words = torch.randint(1000, (batch, tokens), device="cuda")
    for mode in ("evaluating", "training"):
        model.train(mode == "training")
        found = does_it_pay(model, words, seconds=0.5 if small else 2.0)
        row = {"gain": found.gain._asdict(), "first": found.first, "agree": found.agree}
        calls = None if math.isinf(found.calls) else found.calls
        row |= {"calls": calls, "graphs": found.graphs, "breaks": found.breaks}
        notes.say(f"{mode}: {found}", mode=mode, **row)
