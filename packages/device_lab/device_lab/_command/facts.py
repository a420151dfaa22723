"""What was watched, as plain values: the dictionary that --json writes."""

import collections
import gc
import json
import linecache
import multiprocessing
import os
import platform
import re
import shlex
import statistics
import sys
import traceback
import warnings
import weakref

import torch
from torch import nn

import device_lab

from .._kit._cures import pinned
from .._kit._ledger import FORWARD as LEDGERS_FORWARD
from .._kit._lines import is_reader
from .._kit.placement import COMPUTED
from . import advice
from .branches import branches
from .report import page, terminal
from .sampling import FORWARD, line_of, longest
from .steps import world

SHORT = 0.003  # seconds: of such steps the sampler meets operators alone
LONG = 3  # a step that takes so many medians is told apart,
BURST = 3  # and one that waits so many times as often as usual
ROOTS = 4  # models that are described
MOVES = r"device|cuda|accelerat|Trainer|Learner|\.to\("  # or what does so itself
TYPES = r"torch\.cuda\.\w+Tensor\b"
PARTS = "loader", "backward", "optimizer"  # the rest is forward and Python
HELP = """A step is found by an optimizer of torch.optim that comes again, by 8 backward
passes, 4 batches or 16 calls of a model under torch.no_grad(); a report needs about 10
steps. Processes that the script spawns report for themselves, those that it forks are
not watched."""


def report(watch, ended):
    """Prints it, of the first of several processes that train together."""
    try:
        if rank():
            return
        facts = of(watch, ended)
        texts = {"json": json.dumps(facts, indent=1), "html": page(facts)}
        for name, text in texts.items():
            if watch.options[name]:
                with open(_path(watch, name), "w", encoding="utf-8") as file:
                    file.write(text)
        if not watch.options["quiet"]:
            say(terminal(facts, color=sys.stderr.isatty()))
    except Exception:  # the script is not to end by its report
        say(f"device-lab could not report: {traceback.format_exc(-3)}")


def _path(watch, name):
    """Of a process that the script has spawned, with its name."""
    stem, ending = os.path.splitext(watch.options[name])
    return f"{stem}{_process('.')}{ending}"


def _process(before):
    process = multiprocessing.current_process()
    return "" if process.name == "MainProcess" else before + process.name


def say(text):
    sys.stdout.flush()
    encoding = sys.stderr.encoding or "utf-8"
    text = text.encode(encoding, "replace").decode(encoding)
    print("\n" + text, file=sys.stderr, flush=True)  # behind a progress bar


def nothing(watch, by):
    """Said where no step was found, or too few."""
    if rank():
        return
    seen = watch.boundaries.seen
    counts = f"{seen['optimizer']} optimizer steps, {seen['backward']} backward passes"
    counts += f", {seen['batch']} batches of a DataLoader"
    lines = [f"device-lab: no report. Seen: {counts}{by}."]
    if not (by or watch.notes):
        lines.append(HELP)
    say("\n".join(lines + watch.notes))


def rank():
    if world() > 1:
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", 0))


def of(watch, ended):
    device = watch.device()
    found, left = watch.found.get("models") or models(watch)
    names = collections.Counter(step.phase for step in watch.steps)
    timed = [step for step in watch.steps if step.phase == "pace" and step.seconds]
    cuda = device.type == "cuda"
    facts = {
        "schema": 1,
        "device_lab": device_lab.__version__,
        "script": shlex.join(sys.argv) + _process(", "),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.system(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if cuda else None,
        "ended": ended,
        "step": _step(watch),
        "watched": {name: names[name] for name in ("warm", "pace", "waits", "memory")},
        "seconds": sum(step.seconds for step in watch.steps),
        "own_seconds": watch.spent,
        "pace": pace(watch, timed) if timed else None,
        "waits": _waits(watch),
        "memory": _memory(watch),
        "left_behind": left,
        "seen": _seen(watch, found) | {"moved": bool(_finds(watch, MOVES))},
        "branches": branches(_files(watch)),
        "notes": watch.notes + _others(watch),
    }
    facts["changes"] = advice.changes(facts)
    facts["not_known"] = advice.not_known(facts)
    return facts


def _others(watch):
    threads = watch.boundaries.other_threads
    many = ", ".join(f"{n} × {kind}" for kind, n in threads.items())
    said = [f"Other threads took steps, too, unwatched: {many}."] if many else []
    if watch.device().type == "cpu" and (kind := _finds(watch, TYPES)):
        said.append(f"Copies that {kind[0]} makes on a GPU are not counted.")
    return said


def _step(watch):
    kind, calls, _ = watch.boundaries.anchor or ("optimizer", (), None)
    mine = [line for line in calls if is_reader(line[0])]

    def usual(name):  # a scaler skips some; where they differ, no number is true
        counts = [n for x in watch.steps[2:] if (n := x.counts[name])] or [0]
        most = statistics.mode(counts)
        return most if counts.count(most) > 0.8 * len(counts) else None

    return {
        "by": kind,
        "at": line_of(*mine[0][:2]) if mine else None,
        "optimizers": usual("optimizer"),
        "backwards": usual("backward"),
        "batches": usual("loader"),
        "cycle": _cycle(watch),
    }


def _cycle(watch):
    """After how many steps what comes now and then comes again, if that is regular."""
    late = _counted(watch)[1:]  # the first one stands alone
    rows = _rows(watch, late)
    periods = {x["every"] for x in rows if not x["each"] and x["every"]}
    return periods.pop() if len(periods) == 1 else None


# ---- pace


def pace(watch, timed):
    """Of the timed steps, those with an evaluation in them and long ones told apart."""
    plain = [step for step in timed if not _evaluates(watch, step)]
    half = statistics.median(step.seconds for step in plain or timed)
    usual = [step for step in plain if step.seconds <= LONG * half] or timed
    long = [i for i, step in enumerate(plain) if step.seconds > LONG * half]
    if cycle := _cycle(watch):  # the others took long by chance
        longest_first = sorted(long, key=lambda i: -plain[i].seconds)
        long = sorted(longest_first[: round(len(plain) / cycle)])
    for step in timed:
        _parts(step)
    mean = statistics.fmean(step.seconds for step in usual)
    parts = {name: _mean(usual, "parts", name) for name in PARTS}
    parts[FORWARD] = max(0.0, mean - sum(parts.values()))
    lines = longest(usual, parts)
    if watch.device().type == "cpu":  # what `.to` costs there is no copy
        for row in lines:
            row["part"] = row["part"].replace("copy", "")
    parts["copy"] = sum(row["seconds"] for row in lines if row["part"] == "copy")
    parts[FORWARD] -= parts["copy"]
    on_device = {name: _mean(usual, "device_parts", name) for name in (*parts,)}
    return {
        "step": mean,
        "median": half,
        "lowest": min(step.seconds for step in usual),
        "highest": max(step.seconds for step in usual),
        "timed": len(usual),
        "all": statistics.fmean(step.seconds for step in timed),
        "parts": parts,
        "device_parts": on_device if any(on_device.values()) else None,
        "busy": watch.found.get("busy"),
        "lines": lines[:8] if mean >= SHORT else [],
        "long": _long(watch, plain, long, lines, cycle or 0) if long else None,
        "evaluation": _evaluation(watch, timed),
    }


def _mean(steps, attribute, name):
    return statistics.fmean(getattr(step, attribute)[name] for step in steps)


def _parts(step):
    """Seconds of each part, from its timeline."""
    ends = [*step.timeline[1:], (step.start + step.seconds, None, "")]
    for (now, event, part), (then, after, _) in zip(step.timeline, ends, strict=True):
        step.parts[part] += then - now
        if event is not None and after is not None:
            after.synchronize()
            step.device_parts[part] += event.elapsed_time(after) / 1e3


def _evaluates(watch, step):
    return trains(watch) and step.counts["evaluation"] > 0


def trains(watch):
    return watch.boundaries.anchor[0] != "batch"


def _evaluation(watch, timed):
    steps = [step for step in timed if _evaluates(watch, step)]
    if not steps:
        return None
    return {
        "count": len(steps),
        "seconds": statistics.fmean(step.seconds for step in steps),
        "batches": _mean(steps, "counts", "evaluation"),
    }


def _long(watch, steps, at, often, cycle):
    """Of the steps that took long: how often they come, and whether on lines of their
    own.
    """
    long = [steps[i] for i in at]
    each = statistics.fmean(step.seconds for step in long)
    usual = {(row["path"], row["line"]): row["seconds"] for row in often}
    rows = [x for x in longest(long) if x["seconds"] >= 0.03 * each]
    rows = [
        x for x in rows if usual.get((x["path"], x["line"]), 0) < 0.1 * x["seconds"]
    ]
    loading = statistics.fmean(step.parts["loader"] / step.seconds for step in long)
    started = any(loader["workers"] for loader in watch.loaders.values())
    why = "lines" if rows else "same lines"
    why = "workers start" if loading > 0.5 and started else why
    return {
        "count": len(long),
        "of": len(steps),
        "seconds": each,
        "every": _every(at) or (cycle if 2 * len(at) * cycle > len(steps) else None),
        "share": sum(s.seconds for s in long) / sum(s.seconds for s in steps),
        "why": why,
        "lines": rows[:4],
    }


def _every(at):
    """The distance of such numbers, if it is the same each time; else None."""
    gaps = {b - a for a, b in zip(at, at[1:], strict=False)}
    return max(gaps) if len(gaps) == 1 and len(at) > 2 and gaps != {1} else None


# ---- waits


def _waits(watch):
    watched = _counted(watch)
    if all(_evaluates(watch, step) for step in watched):
        return None
    counter, found = watch.found["waits"], {}
    for row in _rows(watch, watched):
        row = counter.row(row.pop("key")) | row
        names = "path line code kind cure assumed branch each steps every".split()
        same = found.setdefault(tuple(row[name] for name in names), row)
        if same is not row:  # several calls of a library, at one line of the script
            same["times"] += row["times"]
            if row["operation"] not in same["operation"].split(", "):
                same["operation"] += ", " + row["operation"]
            same["inside"] = same["inside"] if same["inside"] == row["inside"] else ""
    rows = list(found.values())
    loaders = [each for each in watch.loaders.values() if not each["evaluation"]]
    if loaders and all(each["pinned"] for each in loaders):
        for row in rows:
            row["cure"] = pinned(row["cure"])
    rows.sort(key=lambda row: (not row["each"], -row["times"] * row["steps"]))
    sure = [r for r in rows if r["each"] and not r["assumed"] and r["branch"] is None]
    return {
        "device": counter.device or "cpu",
        "steps": len(watched),
        "each": sum(row["times"] * row["steps"] for row in sure) / len(watched),
        "rows": rows,
    }


def _counted(watch):
    """Steps with their waits: what is sure in one of them was so in all."""
    watched = [step for step in watch.steps if step.waits is not None]
    sure = {key for step in watched for sort, key in step.waits if sort == "wait"}
    for step in watched:
        waits = collections.Counter()
        for (sort, key), times in step.waits.items():
            waits["wait" if key in sure else sort, key] += times
        step.waits = waits
    return watched


def _rows(watch, watched):
    """How often each wait came: usually, and more now and then, as rollouts of PPO."""
    keys = dict.fromkeys(key for step in watched for key in step.waits)
    for key in keys:
        times = {i: s.waits[key] for i, s in enumerate(watched) if key in s.waits}
        plain = [i for i, s in enumerate(watched) if not _evaluates(watch, s)]
        came = [times[i] for i in plain if i in times]
        each = len(came) > len(plain) / 2
        usual = statistics.median(came) if each else 0
        more = {i: n - usual for i, n in times.items() if each and n > BURST * usual}
        often = {i: n for i, n in times.items() if i not in more}
        yield _row(key, often, len(times), each, None if each else _every([*often]))
        if more:
            yield _row(key, more, len(more), False, _every([*more]))


def _row(key, times, steps, each, every):
    mean = statistics.fmean(times.values())
    return {"key": key, "times": mean, "steps": steps, "each": each, "every": every}


def _memory(watch):
    memory = watch.found.get("memory")
    if memory and watch.batch is None:  # nobody knows what half of it is
        ways = memory["lower"].items()
        memory["lower"] = {way: n for way, n in ways if "batch" not in way}
    if memory and memory["phase"] == LEDGERS_FORWARD:
        memory["phase"] = FORWARD  # a target network is updated in no pass
    return memory


# ---- what the script uses


def models(watch):
    """(models, what is left behind): roots among the modules that hold what the
    optimizers step. The garbage collector knows them.
    """
    modules = [x for x in gc.get_objects() if issubclass(type(x), nn.Module)]
    inner = {id(child) for m in modules for child in m._modules.values()}
    stepped = set(map(id, watch.stepped()))
    roots = [m for m in modules if id(m) not in inner and [*m.parameters()]]
    trained = [m for m in roots if any(id(p) in stepped for p in m.parameters())]
    if roots and watch.model() is None:
        watch.model = weakref.ref(roots[0])
    found, left = [], []
    for model in (trained or roots)[:ROOTS]:
        dtypes = collections.Counter()
        for p in model.parameters():
            dtypes[str(p.dtype).removeprefix("torch.")] += p.numel()
        steps = [p for p in model.parameters() if id(p) in stepped or not stepped]
        own = (p.numel() for p in steps if p.requires_grad)
        row = {
            "class": type(model).__name__,
            "parameters": sum(dtypes.values()),
            "trained": sum(own),
            "dtypes": dict(dtypes),
            "training": model.training,
        }
        found.append(row)
        left += _left(model)
    return found, left


def _left(model):
    rows, scripted = {}, isinstance(model, torch.jit.ScriptModule)
    for each in () if scripted else device_lab.left_behind(model).found:
        path = f"{type(model).__name__}.{each.group}"
        row = {"path": path, "count": 0, "bytes": 0, "why": each.why}
        if each.why is not COMPUTED:  # mostly what a step has made, and makes anew
            row = rows.setdefault((path, each.why), row)
        row["count"] += 1
        row["bytes"] += each.bytes
    return list(rows.values())


def _seen(watch, models):
    scaled = {"steps": watch.scaled, "skipped": watch.skipped}
    return {
        "models": models,
        "optimizers": watch.found.get("optimizers") or optimizers(watch),
        "loaders": [
            each | {"evaluation": each["evaluation"] and trains(watch)}
            for each in watch.loaders.values()
        ],
        "batch": watch.batch,
        "autocast": sorted(watch.autocast),
        "scaler": scaled if watch.scaled else None,
        "compiled": _compiled(),
        "matmul_precision": _precision(),
        "threads": torch.get_num_threads(),
        "world": max(world(), int(os.environ.get("WORLD_SIZE", 1))),
    }


def _precision():
    with warnings.catch_warnings():  # 2.9 recommends others of its settings
        warnings.simplefilter("ignore")
        return torch.get_float32_matmul_precision()


def optimizers(watch):
    return [
        {
            "class": type(each).__name__,
            "fused": bool(each.defaults.get("fused")),
            "could_be_fused": "fused" in each.defaults and not each.defaults["fused"],
            "made": watch.made.get(each),
        }
        for each in watch.optimizers
    ]


def loader(watch, loader, evaluates):
    return {
        "dataset": type(loader.dataset).__name__,
        "batch_size": loader.batch_size
        or getattr(loader.batch_sampler, "batch_size", None),
        "workers": loader.num_workers,
        "pinned": bool(loader.pin_memory),
        "persistent": bool(loader.persistent_workers),
        "batches": 0,
        "made": watch.made.get(loader),
        "evaluation": evaluates,
    }


def _compiled():
    if "torch._dynamo" not in sys.modules:
        return None
    found = torch._dynamo.utils.counters  # with fullgraph=True not of frames
    frames = found["frames"]["total"] or found["stats"]["unique_graphs"]
    breaks = sum(found["graph_break"].values())
    return {"frames": frames, "graph_breaks": breaks} if frames else None


def _files(watch):
    """The reader's."""
    paths = {path for step in watch.steps for path, *_ in step.sampled if path}
    paths.add(os.path.abspath(sys.argv[0]))
    return sorted(p for p in paths if p.endswith(".py") and os.path.exists(p))


def _finds(watch, pattern):
    text = "".join(line for path in _files(watch) for line in linecache.getlines(path))
    return re.search(pattern, text)
