"""The judge of the capstone: `make capstone`.

    python -m tools.capstone [FILE]

puts notebooks/scripts/capstone.py to work/capstone.py, if no file is there, and judges
that file, or FILE. It goes by what a run shows, never by the source: device-lab's
report; PyTorch's calls, heard by a mode; how often the compiler begins anew; a pretend
device for the clock; both scripts in turns for the speed. What this machine cannot tell
gets no points, and none are asked for.
"""

import math
import shutil
import statistics
import sys
import textwrap
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import torch

from tools.capstone_look import EPOCHS, device_here, look, report, run
from utils.devices import emulated, name_of

ROOT = Path(__file__).resolve().parent.parent
ORIGINAL = ROOT / "notebooks" / "scripts" / "capstone.py"
ROUNDS = 3  # of the speed
POINTS = 10  # a fault
SPEED = {2: 20, 1.75: 15, 1.5: 10, 1.25: 5}  # at least so many times as fast → points
# Other orders of the samples moved losses by up to 11%, shares by 0.08, accuracy by
# 0.03: eight trainings of the original on a CPU.
LOSS, SHARE, ACCURACY = 0.15, 0.1, 0.05
RARE = 0.25  # waits and copies a step: an epoch has 22 steps
KEPT = 1024  # bytes that a step may leave: numbers, no outputs
GRAPHS = 4  # a graph for training, one for the test, and a second try with other sizes
HALF = "bfloat16", "float16"
SECTIONS = {  # fault → what to read again
    "loader": ("06", "2 · How many workers?"),
    "waits": ("04", "3 · Which lines of this step wait?"),
    "copy": ("06", "4 · What does pinned memory buy?"),
    "precision": ("09", "4 · Which fault do you mend first?"),
    "leak": ("07", "2 · Who still holds it?"),
    "compile": ("10", "3 · When does it start over?"),
    "left behind": ("03", "1 · What does `model.to(device)` take along?"),
    "clock": ("04", "1 · What does a clock see?"),
}
FOUND, LEFT, UNKNOWN = "found", "left", "not judged here"


def disagreement(old, new):
    """The sentence that says why results are not those of the original; "" if they are.
    old, new: what `look` gave.
    """
    try:
        losses, shares, accuracy = new["result"]
        figures = [*losses, *shares, accuracy]
        if not all(type(x) is float and math.isfinite(x) for x in figures):
            return "train() gives something else than Python's finite numbers"
    except (TypeError, ValueError):
        return "train() does not give losses, shares and accuracy"
    if new["steps"] != old["steps"]:
        return (
            f"it takes {new['steps']} optimizer steps, not {old['steps']}: another"
            " training, not a faster one"
        )
    return other_samples(old["samples"], new["samples"]) or other_figures(old, new)


def other_samples(old, new):
    if len(new) != len(old):
        return f"its steps see {len(new):,} samples, not {len(old):,}"
    size = len(new) // EPOCHS
    epochs = [new[k * size : (k + 1) * size] for k in range(EPOCHS)]
    for epoch in epochs:
        pairs = zip(sorted(epoch), sorted(old[:size]), strict=True)
        if any(abs(a - b) > 2e-3 * max(map(abs, old)) for a, b in pairs):
            return (
                "an epoch does not have each sample once, as the model got them before"
            )
    if any(epoch == epochs[0] for epoch in epochs[1:]):
        return (
            "each epoch has the samples in the same order: they are no longer shuffled"
        )
    return ""


def other_figures(old, new):
    losses, shares, accuracy = new["result"]
    first, second, third = old["result"]
    if len(losses) != len(first) or len(shares) != len(second):
        return "losses or shares are not one an epoch"
    size = len(new["losses"]) // EPOCHS
    for k, said in enumerate(losses):
        mean = statistics.fmean(new["losses"][k * size : (k + 1) * size])
        # a GradScaler makes losses larger
        if mean < 100 and abs(said - mean) > 0.02 * mean:
            return f"losses[{k}] is {said:.3f}, and the mean of the steps {mean:.3f}"
    rows = [
        ("losses", *pair, LOSS * pair[0]) for pair in zip(first, losses, strict=True)
    ]
    rows += [("shares", *pair, SHARE) for pair in zip(second, shares, strict=True)]
    rows += [("accuracy", third, accuracy, ACCURACY)]
    for name, before, now, most in rows:
        if abs(now - before) > most:
            return (
                f"{name}: {now:.3f}, before {before:.3f}, which is more than rounding"
                " and another order of the samples explain"
            )
    return ""


def rate(report, copies):
    """(waits, or copies that block, in a step; where most of them are)"""
    rows = [
        (x["times"] * x["steps"] / report["waits"]["steps"], x["where"], x["code"])
        for x in report["waits"]["rows"]
        if not (x["assumed"] or x["branch"])
        and (x["kind"] == "to the device") == copies
    ]
    most = max(rows, default=(0, "", ""))
    return sum(row[0] for row in rows), f"{most[1]}  {most[2]}"


def loader(old, new, before, after, runs):
    was, now = before["pace"]["parts"], after["pace"]["parts"]
    long = after["pace"]["long"] or {}
    if long.get("why") == "workers start" and long["share"] >= 0.05:
        return LEFT, f"{long['share']:.0%} of the time the loader begins an epoch"
    python = "forward and Python"
    # what was the loader's may stand in the loop now
    needs = now["loader"] + max(0, now[python] + now["copy"] - was[python])
    said = (
        f"{1000 * needs:.2f} ms a step, {1000 * was['loader']:.2f} ms in the original"
    )
    return FOUND if needs < 0.4 * was["loader"] else LEFT, f"batches take {said}"


def waits(old, new, before, after, runs):
    often, where = rate(after, copies=False)
    if often > RARE:
        return LEFT, f"{often:.3g} in each step: {where}"
    return FOUND, f"{often:.2g} in each step"


def copy(old, new, before, after, runs):
    if device_here().type != "cpu":
        if new["copies"] > RARE:
            said = f"{new['copies']:.3g} in each step from memory that is not pinned,"
            return LEFT, f"{said} or without non_blocking=True"
        return FOUND, "no batch is copied in a way that blocks"
    often, where = rate(after, copies=True)
    if often > RARE:
        return LEFT, f"{often:.3g} in each step would block: {where}"
    return UNKNOWN, "nothing would block; whether copies overlap, a GPU shows"


def precision(old, new, before, after, runs):
    types, device = set(new["types"]), device_here()
    said = f"matmuls in {', '.join(new['types'])}"
    if set(new["weights"]) & set(HALF):
        return LEFT, "the weights themselves have 16 bits, which lose small updates"
    if "float64" in types:
        return LEFT, f"{said}: twice the bytes, and slow on most GPUs"
    if device.type == "cuda" and torch.cuda.get_device_capability()[0] >= 7:
        if not (types <= set(HALF) or new["tf32"]):
            return LEFT, f"{said}: this GPU has units for shorter numbers"
    return FOUND, said


def leak(old, new, before, after, runs):
    keeper = after["memory"]["keeper"]
    grows = max(after["memory"]["grows"], new["kept"])
    where = ", in no list that device-lab names: what is appended in each step"
    if keeper:
        where = f": {keeper['where']}  {keeper['code']}"
    said = f"each step leaves {grows:,.0f} bytes behind"
    return (LEFT, said + where) if grows > KEPT else (FOUND, said)


def compiling(old, new, before, after, runs):
    _, graphs, breaks = runs[-1]
    said = f"{graphs} graphs in {new['steps']} steps, {breaks} graph breaks"
    return LEFT if graphs > GRAPHS or breaks else FOUND, said


def behind(old, new, before, after, runs):
    paths = [x["path"].replace("_orig_mod.", "") for x in after["left_behind"]]
    if paths:
        return LEFT, f"the model does not take along {', '.join(paths)}"
    return FOUND, "all of the model's tensors move with it"


def timing(old, new, before, after, runs):
    return (LEFT, new["clock"]) if new["clock"] else (FOUND, "timed() waits twice")


JUDGES = loader, waits, copy, precision, leak, compiling, behind, timing


def judge(old, new, before, after, runs):
    """[(fault, verdict, why)]. old, new: of `look`; before, after: of `report`; runs:
    of `run`, of the new script.
    """
    said = []
    for fault, ask in zip(SECTIONS, JUDGES, strict=True):
        try:
            said.append((fault, *ask(old, new, before, after, runs)))
        except (TypeError, KeyError):  # a part that the report does not have
            said.append((fault, UNKNOWN, "too few steps were seen"))
    return said


def rubric(rows, wrong, ratios):
    """The lines that are printed. wrong: of `disagreement`; ratios: of the speed, one a
    round, none where times are a model.
    """
    got, most = 0, 0
    for fault, verdict, why in rows:
        points = POINTS * (verdict == FOUND and not wrong)
        got, most = got + points, most + POINTS * (verdict != UNKNOWN)
        number, section = SECTIONS[fault]
        yield from line(fault, verdict, points, POINTS, why)
        if verdict == LEFT:
            yield from line("", "", "", "", f"read again: lesson {number}, {section}")
    yield from line("results", "do not agree" if wrong else "agree", "", "", wrong)
    if ratios:
        ratio = statistics.median(ratios)
        points = max([n for least, n in SPEED.items() if ratio >= least], default=0)
        points *= not wrong
        got, most = got + points, most + max(SPEED.values())
        why = f"{ratio:.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
        why += ", trainings in turns" + "; no points for another result" * bool(wrong)
        yield from line("speed", "", points, max(SPEED.values()), why)
    else:
        yield from line("speed", UNKNOWN, 0, 20, "times of this device are a model")
    yield f"total: {got} of {most} points that this machine can judge"
    if wrong:
        yield "As long as the results do not agree, nothing counts."


def line(name, verdict, points, most, why):
    if points == "" or verdict == UNKNOWN:
        score = ""
    else:
        score = f"{points}/{most}"
    first = f"{name:12} {score:>6}  "
    text = f"{verdict}: {why}" if verdict and why else verdict or why
    return textwrap.wrap(first + text, 88, subsequent_indent=" " * 21)


def main(path):
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        shutil.copyfile(ORIGINAL, path)
        print(f"{path} is new: your copy, to be mended.")
    device = device_here()
    print(f"{path}, on {name_of(device.type)}, PyTorch {torch.__version__}", flush=True)
    try:
        for text in compared(path):
            print(text, flush=True)
    except Exception as error:  # in the reader's script; of a process, its traceback
        print(error.__cause__ or error)
        sys.exit(f"{path} does not run to its end: nothing can be judged.")


def compared(path):
    """Lines for the reader, of ORIGINAL and the script at `path`, as they come."""
    with ExitStack() as stack:
        new, old = (
            stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))
            for _ in range(2)
        )
        yield "… what a training shows"
        heard = new.submit(look, path).result(), old.submit(look, ORIGINAL).result()
        yield "… device-lab's report"
        reports = report(ORIGINAL), report(path)
        yield "… trainings in turns, for the speed"
        turns = [
            (old.submit(run, ORIGINAL).result(), new.submit(run, path).result())
            for _ in range(1 if emulated() else ROUNDS)
        ]
    ratios = [] if emulated() else [before[0] / after[0] for before, after in turns]
    rows = judge(*heard[::-1], *reports, [after for _, after in turns])
    yield from rubric(rows, disagreement(*heard[::-1]), ratios)


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or [Path("work", "capstone.py")]))
