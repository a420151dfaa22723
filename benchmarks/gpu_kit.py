"""The kit on a CUDA GPU, for on_a_gpu.py: what each function says, beside what CUDA
says or what is known by construction.

A part takes notes, and whether sizes are to be small: notes.say prints a line and keeps
a row, notes.keep keeps a row.
"""

import functools
import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import cuda_command
import memory_steps
import torch
import waiting_steps
from torch.utils.data import DataLoader, Dataset

from device_lab import does_it_pay, find_waits, peak, rehearse, who_waits

MIB = 2**20


def waits(notes, small, seconds=None):
    """Each program and step: what find_waits counts, and what CUDA warns of."""
    gpu = torch.device("cuda")
    steps = {
        text: functools.partial(waiting_steps.program, text, gpu)
        for text in waiting_steps.TABLE
    }
    for name, options in [*waiting_steps.OPTIMIZERS, ("Adam", {"capturable": True})]:
        make = functools.partial(waiting_steps.training, "cuda", name, options)
        steps[f"a step with {name} {options}"] = make
    for name in ("ASGD", "Adafactor"):
        steps[f"a step with {name}"] = functools.partial(
            waiting_steps.training, "cuda", name
        )
    if small:
        steps = dict(list(steps.items())[::3])
    sorts = {sort: 0 for sort in ("agrees", "count", "FALSE ALARM", "MISSED", "failed")}
    for text, make in steps.items():
        sort, row = one_wait(make)
        sorts[sort] += 1
        if sort == "agrees":
            notes.keep(step=text, sort=sort, **row)
        else:
            notes.say(f"  {sort:11} {text}: {row}", step=text, sort=sort, **row)
    counts = ", ".join(f"{sort} {count}" for sort, count in sorts.items())
    notes.say(f"{len(steps)} steps: {counts}", summary=sorts)


def one_wait(make):
    """(how the two agree, what both count)"""
    try:
        step = make()
        seen = sum(wait.times for wait in find_waits(step).waits)
        warned = waiting_steps.warned(step)
    except Exception as error:
        return "failed", {"error": f"{type(error).__name__}: {error}"[:300]}
    row = {"find_waits": seen, "cuda": warned}
    if seen == warned:
        return "agrees", row
    if seen and warned:
        return "count", row
    return ("FALSE ALARM" if seen else "MISSED"), row


def models():
    """Ten training steps, as large as a GPU likes them."""
    deep = functools.partial(memory_steps.Language, 8, 768, 512)
    wide = functools.partial(memory_steps.Language, 4, 1536, 512)
    text, one = (16, 512), (1, 512)
    train = memory_steps.training
    return {
        "attention": train(deep, text),
        "dropout": train(lambda: deep(dropout=0.1), text),
        "checkpoint": train(lambda: deep(again=True), text),
        "bfloat16": train(deep, text, dtype=torch.bfloat16),
        "float16": train(deep, text, dtype=torch.float16, clip=True),
        "foreach": train(wide, one),
        "fused": train(wide, one, memory_steps.FUSED),
        "for-loop": train(wide, one, memory_steps.LOOP),
        "convolutions": train(
            memory_steps.convolutions, (256, 3, 96, 96), memory_steps.SGD
        ),
        "encoder": train(memory_steps.encoder, (64, 256, 256)),
    }


def memory(notes, small, seconds=None):
    """rehearse against peak. Off: by how many percent the rehearsed is larger."""
    steps = models()
    if small:
        steps = {name: memory_steps.STEPS[name] for name in steps}
    # cuBLAS takes its workspaces, and keeps them
    memory_steps.measured(memory_steps.STEPS["perceptron"])
    notes.say(f"  {'':13} rehearsed    peak   off   asked for   off")
    for name, make in steps.items():
        try:
            row = one_peak(make)
        except Exception as error:
            notes.say(f"  {name:13} {error}"[:200], model=name, error=str(error))
            continue
        forecast, highest, asked = (each / MIB for each in row.values())
        off = {"off_peak": forecast / highest - 1, "off_asked": forecast / asked - 1}
        line = f"  {name:13} {forecast:9,.1f} {highest:7,.1f} {off['off_peak']:+.1%}"
        line += f" {asked:11,.1f} {off['off_asked']:+.2%}  MiB"
        notes.say(line, model=name, **row, **off)


def one_peak(make):
    """Bytes: rehearsed; of the allocator's blocks, by peak; asked of the allocator."""
    forecast = rehearse(make, lower=False).peak
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    highest = peak(make(), "cuda").highest - before
    asked = memory_steps.measured(make)[1]
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
        pace = who_waits(loader, step, "cuda")
        right += pace.who == expected
        row = {"expected": expected, "who": pace.who, "saved": pace.saved}
        parts = {name: part.median for name, part in pace.parts.items()}
        notes.say(f"expected {expected}: {pace.who}. {pace}", **row, parts=parts)
    notes.say(f"{right} of {len(cases)} as expected", right=right, of=len(cases))


def pays(notes, small, seconds=None):
    layers, width, tokens, batch = (2, 128, 32, 4) if small else (6, 512, 256, 16)
    model = memory_steps.Language(layers, width, tokens).cuda()
    words = torch.randint(1000, (batch, tokens), device="cuda")
    for mode in ("evaluating", "training"):
        model.train(mode == "training")
        report = does_it_pay(model, words, seconds=0.5 if small else 2.0)
        row = {
            "gain": report.gain.to_dict(),
            "first": report.first,
            "agree": report.agree,
        }
        row |= {"calls": report.to_dict()["calls"], "graphs": report.graphs}
        row |= {"breaks": report.breaks}
        notes.say(f"{mode}: {report}", mode=mode, **row)


def command(notes, small, seconds=None):
    """`device-lab` on the script of its test, alone and with known sleeps in it."""
    sleeps = "time.sleep(0.02)  # after the step"
    known = cuda_command.SCRIPT.replace(
        "    kept.append", f"    {sleeps}\n    kept.append"
    )
    for name, script in (
        ("alone", cuda_command.SCRIPT),
        ("sleeps", f"import time{known}"),
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "train.py")
            path.write_text(script)
            words = "-m device_lab --json report.json train.py".split()
            ran = subprocess.run(
                [sys.executable, *words], cwd=folder, capture_output=True, text=True
            )
            report = pathlib.Path(folder, "report.json")
            facts = json.loads(report.read_text()) if report.exists() else None
        notes.say(ran.stderr, script=name, status=ran.returncode, facts=facts)
        if name == "sleeps" and facts:
            lines = facts["pace"]["lines"]
            slept = sum(x["seconds"] for x in lines if sleeps in x["code"])
            notes.say(f"of 20 ms asleep in a step {1000 * slept:.1f} were found")
