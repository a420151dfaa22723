"""What to change first, and what is not known: from the facts alone."""

import re

from .text import many, size, time

# Only what surely is no work of PyTorch: a call of it in C leaves no frame.
OTHERS = r"(numpy|PIL|cv2|pandas|scipy|skimage|sklearn|gym|gymnasium|json|csv|pickle"
OTHERS += r"|random|gzip|zipfile|logging|subprocess)(/|\.py:)"
OWN = r"\b(np|numpy|pd|json|csv|pickle|random|Image|cv2)\.\w|\btime\.sleep\("
OWN += r"|\benvs?\.(step|reset)\("
TORCH = r"torch|tensor|model|\bnet\b|\.(cpu|numpy|item|tolist|to|cuda)\("
NO_TENSOR_CORES = r"GTX|\bMX\d|\b[KMP]\d+\b|TITAN X|AMD|Radeon"
FLOAT16 = r"\b(T4|V100|RTX 20\d\d|TITAN (V|RTX))\b"  # tensor cores without bfloat16
MOVED = "before the loop, more at a time, or in a loader's workers: no work of PyTorch"
FAULT, TIMED, UNKNOWN, SMALL, LAST = range(5)


def changes(facts):
    """At most three: faults, then by what each saves. What nobody knows, such as the
    cost of a wait without a GPU, stands below what saves 10% of a step.
    """
    ways = [way for kind in KINDS for way in kind(facts)]
    found = {}
    for *_, change in sorted(ways, key=lambda way: (way[0], -way[1])):
        key, saves = (change["where"], change["cure"]), change["saves"]
        first = found.setdefault(key, change)["saves"]
        if first is not saves:
            first["bytes"] = first["bytes"] or saves["bytes"]
            first["text"] += "; " + saves["text"]
    return list(found.values())[:3]


def _change(line, cure, text, lesson, seconds=None, nbytes=None):
    if isinstance(line, str):  # no line of the reader's is known
        line = {"where": line, "path": None, "line": None, "code": ""}
    line = {key: line[key] for key in ("where", "path", "line", "code")}
    saves = {"seconds": seconds, "bytes": nbytes, "text": text}
    return {**line, "cure": cure, "saves": saves, "lesson": lesson}


def _timed(share, *change):
    return TIMED if share >= 0.1 else SMALL, share, _change(*change)


def _saved(pace, seconds):
    """On a GPU no more than it idles: the rest is hidden behind its work."""
    busy = pace["busy"]
    return seconds if busy is None else min(seconds, (1 - busy) * pace["step"])


def _faults(facts):
    memory, left = facts["memory"], facts["left_behind"]
    grows = memory["grows"] if memory else 0
    if grows and grows >= 0.001 * memory["highest"]:
        cure = "look for a list or a sum that keeps tensors: .detach(), or a number"
        line = "no line is known"
        if memory["keeper"]:
            line = memory["keeper"]
            cure = (
                f"{line['name']} keeps tensors: a number; .detach() frees their graph"
            )
        text = f"{size(grows)} in each step, {size(1000 * grows)} in 1,000"
        yield FAULT, 1, _change(line, cure, text, "07", None, grows)
    left = [x for x in left if "computed" not in x["why"]]  # forward may make it anew
    if left:
        more = f"; {len(left) - 1} more below" if left[1:] else ""
        text = f"an error, or a copy in each step, on another device{more}"
        yield FAULT, 0, _change(left[0]["path"], left[0]["why"], text, "03")


def _loader(facts):
    pace = facts["pace"]
    loaders = [x for x in facts["seen"]["loaders"] if not x["evaluation"]]
    load = _saved(pace, pace["parts"].get("loader", 0)) if pace else 0
    if not load or not loaders or load < 0.05 * pace["step"]:
        return
    main = max(loaders, key=lambda x: x["batches"])
    text = f"up to {time(load)} of {time(pace['step'])} a step"
    if facts["device"] == "cpu":
        text += ", where cores are free"
    if main["workers"]:
        cure = f"more workers (now {main['workers']}), or less work for an item"
    elif main["dataset"] == "TensorDataset":
        cut = f".split({main['batch_size'] or 'n_batch'})"
        cure = f"without a loader: for i in torch.randperm(n){cut}: x[i], y[i]"
        text = text.removesuffix(", where cores are free")
    else:
        cure = "num_workers=2 or more: they load while the step works"
    line = main["made"] or "the DataLoader"
    yield _timed(load / pace["step"], line, cure, text, "06", load)


def _long(facts):
    """Workers that start anew, and evaluations."""
    pace, loaders = facts["pace"], facts["seen"]["loaders"]
    long, evaluation = (pace or {}).get("long"), (pace or {}).get("evaluation")
    rows = [x for x in loaders if x["workers"] and not x["persistent"]]
    if long and long["why"] == "workers start" and rows and long["share"] >= 0.05:
        more = long["seconds"] - pace["step"]
        text = f"most of {time(more)} in each epoch but the first"
        cure = "persistent_workers=True keeps them from epoch to epoch"
        saved = more / long["every"] if long["every"] else None
        line = rows[0]["made"] or "the DataLoader"
        yield _timed(long["share"], line, cure, text, "06", saved)
    took = evaluation["count"] * evaluation["seconds"] if evaluation else 0
    if took > 0.25 * pace["timed"] * pace["step"] if took else False:
        rows = [x for x in loaders if x["evaluation"]] or [
            {"batch_size": 0, "made": None}
        ]
        most = max((x["batch_size"] or 0 for x in loaders), default=0)
        small = 0 < (rows[0]["batch_size"] or 0) < most
        cure = (
            f"batch_size={most} or more" if small else "less often, or larger batches"
        )
        steps = evaluation["seconds"] / (pace["step"] or 1)
        text = f"part of {time(evaluation['seconds'])} each time, as long as"
        text += f" {many(round(steps), 'step')}"
        line = rows[0]["made"] or "the evaluation"
        yield UNKNOWN, 1, _change(line, cure + ", under torch.no_grad()", text, "15")


def _could_be_fused(facts):
    for x in facts["seen"]["optimizers"]:
        if x["could_be_fused"]:
            return x["made"] or "the optimizer", f"{x['class']}(…, fused=True)"


def _fused(facts):
    pace, could = facts["pace"], _could_be_fused(facts)
    if not pace or not could:
        return
    if (pace["busy"] or 0) > 0.9 and pace["device_parts"]:
        took = pace["device_parts"].get("optimizer", 0)
    else:
        took = _saved(pace, pace["parts"].get("optimizer", 0))
    if took and took >= 0.15 * pace["step"]:
        text = f"part of {time(took)} of {time(pace['step'])} a step"
        yield _timed(took / pace["step"] / 2, *could, text, "10")


def _own(facts):
    pace = facts["pace"]
    if not pace:
        return
    waits = {x["where"] for x in facts["waits"]["rows"]} if facts["waits"] else ()
    rows = [(x, pace["step"], 1, "a step") for x in pace["lines"] if not x["part"]]
    long = pace["long"]
    if long and long["why"] == "lines":
        rows += [
            (x, long["seconds"], long["share"], "a long step") for x in long["lines"]
        ]
    for line, whole, weight, when in rows:
        saved = line["seconds"] if weight < 1 else _saved(pace, line["seconds"])
        share, code = weight * saved / (whole or 1), line["code"]
        sure = re.match(OTHERS, line["inside"])
        if not line["inside"]:
            sure = re.search(OWN, code) and not re.search(TORCH, code)
        if sure and share > 0.2 and line["where"] not in waits:
            text = f"part of {time(saved)} of {time(whole)} {when}"
            yield _timed(share / 2, line, MOVED, text, "09")


def _waits(facts):
    waits, pace = facts["waits"], facts["pace"] or {"busy": None}
    idle = 0.5 if pace["busy"] is None else 1 - pace["busy"]
    lines = {}
    for x in waits["rows"] if waits and idle >= 0.03 else ():
        if not (x["assumed"] or x["branch"] or "nothing is known" in x["cure"]):
            lines.setdefault(x["where"], []).append(x)
    for rows in lines.values():
        number = sum(x["times"] * x["steps"] for x in rows) / (waits["steps"] or 1)
        if number < 0.99 and not any(x["each"] for x in rows):
            continue
        row = max(rows, key=lambda x: x["times"] * x["steps"])
        text = "not known" + " without a GPU" * (facts["device"] == "cpu")
        if pace["busy"] is not None:
            text = f"part of the {idle:.0%} of the time that the GPU idles"
        text += f"; {many(float(number), 'wait')} a step"
        share = idle + number / (number + 1000) / 10  # above all: does the GPU idle?
        yield UNKNOWN, share, _change(row, row["cure"], text, "04")


def _precision(facts):
    seen, name = facts["seen"], facts["device_name"] or ""
    busy = (facts["pace"] or {}).get("busy")
    full = sum(x["dtypes"].get("float32", 0) for x in seen["models"])
    little = full < 1_000_000 if busy is None else busy < 0.5
    cores = facts["device"].startswith("cuda") and name
    if not cores or re.search(NO_TENSOR_CORES, name) or seen["autocast"]:
        return
    if full and not little:
        kind = "bfloat16"
        if re.search(FLOAT16, name.replace("-", " ")):
            kind = "float16, and a GradScaler"
        text = "not known: part of the float32 matmuls' time"
        cure = f"torch.autocast to {kind}"
        yield UNKNOWN, busy or 0.5, _change("the forward pass", cure, text, "08")


def _last(facts):
    """What lowers the memory, where it is much; graph breaks."""
    memory, compiled = facts["memory"], facts["seen"]["compiled"]
    highest = memory["highest"] if memory else 0
    least = max(0.2 * highest, 16 * 2**20)
    ways = memory["lower"].items() if memory else ()
    ways = [(way, highest - x) for way, x in ways if highest - x >= least]
    if ways:  # half of the batch changes the training
        way, saved = max(ways, key=lambda x: ("half" not in x[0], x[1]))
        line = f"memory, in {memory['phase']}", way
        line = _could_be_fused(facts) or line if "fused" in way else line
        text = f"{size(saved)} of {size(highest)}, if memory is short"
        yield LAST, saved, _change(*line, text, "07", None, saved)
    if compiled and compiled["graph_breaks"]:
        text = f"not known; {many(compiled['graph_breaks'], 'graph break')}"
        cure = "TORCH_LOGS=graph_breaks names the lines"
        yield LAST, 0, _change("torch.compile", cure, text, "10")


KINDS = _faults, _loader, _long, _fused, _own, _waits, _precision, _last


def not_known(facts):
    ended = facts["ended"]
    found = [ended[0].upper() + ended[1:] + "."] if ended else []
    found += facts["notes"]
    for kind in (_of_device, _of_waits, _of_steps, _of_others):
        found += kind(facts)
    return found


def _names(wheres):
    names = list(dict.fromkeys(wheres))
    return ", ".join(names[:4]) + (f", {len(names) - 4} more" if names[4:] else "")


def _of_device(facts):
    if facts["device"] == "cpu":
        yield (
            "No GPU: waits are counted, not timed; copies cost nothing; of the times, only"
            " the loader's and your own Python's carry over."
        )
        if facts["memory"]:
            yield "Memory is counted on a CPU: CUDA's kernels keep other temporaries."
        if facts["branches"]:
            yield f"On a GPU, other lines may run after {_names(facts['branches'])}."
    if facts["seen"].get("moved") is False:
        yield "No model was moved to a device: is the script for the CPU alone?"


def _of_waits(facts):
    waits = facts["waits"]
    if not waits:
        yield "Waits were not watched."
        return
    assumed = [x["where"] for x in waits["rows"] if x["assumed"]]
    if assumed:
        yield f"{_names(assumed)}: it waits only if the tensor lies on the host."
    if waits["steps"] < 5:
        yield f"Waits of {many(waits['steps'], 'step')}: what comes less often may be missing."


def _of_steps(facts):
    pace, cycle = facts["pace"], (facts["step"] or {}).get("cycle")
    if not pace:
        yield "No step was timed."
    elif pace["highest"] > 1.5 * pace["lowest"]:
        low, high = time(pace["lowest"]), time(pace["highest"])
        yield f"Steps took {low} to {high}: unlike steps, or a machine with other work."
    if not facts["memory"]:
        yield "Memory was not watched."
    watched = facts["watched"].items()
    part = [f"{key} in {n}" for key, n in watched if key != "warm" and n < (cycle or 0)]
    if part:
        yield f"Of the {cycle} steps of a cycle, only some were watched: {', '.join(part)}."


def _of_others(facts):
    seen = facts["seen"]
    if seen["compiled"]:
        yield "Compiled code ran eagerly while waits and memory were watched: last bits differ."
    if any(x["workers"] for x in seen["loaders"]):
        yield "What a loader's workers do is not seen, only the wait for them."
    if seen["world"] > 1:
        yield f"Of {seen['world']} ranks one was watched."
