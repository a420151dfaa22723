"""What to change first, and what is not known: from the facts alone."""

import re

from .report import lies, many, often, size, time

# Lines that surely do no work of PyTorch: what it does in C has no frame of its own.
LIBRARIES = r"(numpy|PIL|cv2|pandas|scipy|skimage|sklearn|gym|gymnasium)/"
CALLS = r"\b(np|numpy|pd|json|csv|pickle|random|Image|cv2)\.\w|\btime\.sleep\("
TORCH = r"torch|tensor|model|\bnet\b|\.(cpu|numpy|item|tolist|to|cuda)\("
NO_TENSOR_CORES = r"GTX|\bMX\d|\b[KMP]\d+\b|TITAN X|AMD|Radeon"
HALF = "torch.autocast to bfloat16; before Ampere to float16, with a GradScaler"

HANDED = 0.002  # seconds a batch: what workers may cost to hand it over
LITTLE = 256 * 2**20  # bytes that are not worth a change
FAULT, TIMED, UNKNOWN, SMALL, LAST = range(5)
EMPTY = {
    "pace": {"step": 1.0, "timed": 1, "parts": {}, "device_parts": None, "busy": None}
    | {"lines": [], "long": None, "evaluation": None},
    "waits": {"steps": 1, "rows": []},
    "memory": {"highest": 0, "grows": 0, "lower": {}},
}


def changes(facts):
    """At most three: faults, then by what each saves. What nobody knows, such as the
    cost of a wait without a GPU, stands below what saves 10% of a step.
    """
    facts = facts | {key: facts[key] or none for key, none in EMPTY.items()}
    ways = [way for kind in KINDS for way in kind(facts)]
    found = {}
    for *_, change in sorted(ways, key=lambda way: (way[0], -way[1])):
        found.setdefault((change["where"], change["cure"]), change)
    return list(found.values())[:3]


def _calls(facts):
    """Whether a step is a call of a model without gradients."""
    return (facts["step"] or {}).get("by") == "call"


def _change(line, cure, text, lesson, seconds=None, nbytes=None):
    if isinstance(line, str):  # none of the reader's is known
        line = {"where": line, "path": None, "line": None, "code": ""}
    line = {key: line[key] for key in ("where", "path", "line", "code")}
    saves = {"seconds": seconds, "bytes": nbytes, "text": text}
    return line | {"cure": cure, "saves": saves, "lesson": lesson}


def _timed(share, *change):
    return TIMED if share >= 0.1 else SMALL, share, _change(*change)


def _saved(pace, seconds):
    """On a GPU no more than it idles: the rest is hidden behind its work."""
    busy = pace["busy"]
    return seconds if busy is None else min(seconds, (1 - busy) * pace["step"])


def _share(pace, seconds):
    """Of all time: long steps of another kind are none of it."""
    long = pace["long"]
    usual = 1 - long["share"] if long and long["why"] != "same lines" else 1
    return usual * seconds / (pace["step"] or 1)


def _faults(facts):
    grows, keeper = facts["memory"]["grows"], facts["memory"].get("keeper")
    if grows and grows >= 0.001 * facts["memory"]["highest"]:
        cure = "look for a list or a sum that keeps tensors"
        cure = f"{keeper['name']} keeps what each step made" if keeper else cure
        text, rank, lesson = f"{size(grows)} in each step", (FAULT, 1), "07"
        if not _calls(facts):
            cure += ": .detach(), or a number"
            text += f", {size(1000 * grows)} in 1,000 steps"
        elif not keeper:  # most caches grow by design
            cure = "if a cache grows: one of a fixed size"
            rank, lesson = (UNKNOWN, 0), "17"
        change = _change(keeper or "no line is known", cure, text, lesson, None, grows)
        yield *rank, change
    left = [x for x in facts["left_behind"] if "computed" not in x["why"]]  # made anew?
    if left:
        text = "an error, or a copy in each step, on another device"
        text += f"; {len(left) - 1} more below" if left[1:] else ""
        yield FAULT, 0, _change(left[0]["path"], left[0]["why"], text, "03")


def _loader(facts):
    pace, long = facts["pace"], facts["pace"]["long"]
    loaders = [x for x in facts["seen"]["loaders"] if not x["evaluation"]]
    load = _saved(pace, pace["parts"].get("loader", 0))
    if loaders and _share(pace, load) >= 0.05:
        main = max(loaders, key=lambda x: x["batches"])
        text = f"up to {time(load)} of {time(pace['step'])} a step"
        text += ", where cores are free" * (facts["device"] == "cpu")
        cure = "num_workers=2 or more: they load while the step works"
        if main["workers"]:
            cure = f"more workers (now {main['workers']}), or less work for an item"
        elif main["dataset"] == "TensorDataset":
            cut = f".split({main['batch_size'] or 'batch_size'})"
            cure = f"without a loader: for i in torch.randperm(n){cut}: x[i], y[i]"
        line = main["made"] or "the DataLoader"
        if load >= HANDED or "workers" not in cure:
            yield _timed(_share(pace, load), line, cure, text, "06", load)
    start = [x for x in loaders if x["workers"] and not x["persistent"]]
    if start and long and long["why"] == "workers start" and long["share"] >= 0.05:
        more = long["seconds"] - pace["step"]
        text = f"most of {time(more)} in each epoch but the first"
        cure = "one loader for all epochs, with persistent_workers=True"
        saved = more / long["every"] if long["every"] else None
        line = start[0]["made"] or "the DataLoader"
        yield _timed(long["share"], line, cure, text, "06", saved)


def _evaluation(facts):
    pace, found = facts["pace"], facts["pace"]["evaluation"]
    took = found["count"] * found["seconds"] if found else 0
    if took > 0.25 * pace["timed"] * pace["step"]:
        cure = "less often, or larger batches"
        steps = many(round(found["seconds"] / (pace["step"] or 1)), "step")
        text = f"part of {time(found['seconds'])} each time, as long as {steps}"
        loaders = [x for x in facts["seen"]["loaders"] if x["evaluation"] and x["made"]]
        line = loaders[0]["made"] if loaders else "the evaluation"
        yield UNKNOWN, 1, _change(line, cure, text, "15")


def _could_be_fused(facts):
    able = [x for x in facts["seen"]["optimizers"] if x["could_be_fused"]]
    return [
        (x["made"] or "the optimizer", f"{x['class']}(…, fused=True)") for x in able
    ]


def _fused(facts):
    pace = facts["pace"]
    took = _saved(pace, pace["parts"].get("optimizer", 0))
    if (pace["busy"] or 0) > 0.9 and pace["device_parts"]:
        took = pace["device_parts"].get("optimizer", 0)
    for line, cure in _could_be_fused(facts)[:1] if _share(pace, took) >= 0.15 else ():
        text = f"part of {time(took)} of {time(pace['step'])} a step"
        yield _timed(_share(pace, took) / 2, line, cure, text, "10")


def _own(facts):
    pace, long = facts["pace"], facts["pace"]["long"]
    rows = [(x, _saved(pace, x["seconds"]), pace["step"], 1, "") for x in pace["lines"]]
    if long and long["why"] == "lines":
        each = long["seconds"]
        rows += [(x, x["seconds"], each, long["share"], "long ") for x in long["lines"]]
    cure = "no work of PyTorch: before the loop, more at a time, or in other processes"
    for line, saved, whole, weight, kind in rows:
        sure = re.match(LIBRARIES, line["inside"])
        if not line["inside"]:
            sure = re.search(CALLS, line["code"]) and not re.search(TORCH, line["code"])
        share = weight * saved / (whole or 1)
        if sure and share > 0.2 and not line["part"]:
            text = f"part of {time(saved)} of {time(whole)} a {kind}step"
            yield _timed(share / 2, line, cure, text, "09")


def _waits(facts):
    waits, busy, lines = facts["waits"], facts["pace"]["busy"], {}
    idle = 0.5 if busy is None else 1 - busy
    text = "not known" + " without a GPU" * (facts["device"] == "cpu")
    if busy is not None:
        text = f"part of the {idle:.0%} of the time that the GPU idles"
    for x in waits["rows"] if idle >= 0.03 else ():
        if not (x["assumed"] or x["branch"] or re.match("nothing|$", x["cure"])):
            argument = re.fullmatch(r"\w+=\w+", x["cure"])  # one, for all lines
            place = x["path" if argument else "where"]
            lines.setdefault((place, x["cure"]), []).append(x)
    for rows in lines.values():
        row = max(rows, key=lambda x: x["times"] * x["steps"])
        times = float(sum(x["times"] for x in rows if x["each"] == row["each"]))
        seldom = row["every"] or waits["steps"] / (row["steps"] or 1)
        a_step = row["times"] / seldom
        if row["each"] or a_step >= 1:
            how = often(row, waits) or " in each step"
            saves = f"{text}; {many(times, 'wait')}{how}"
            share = idle + a_step / (a_step + 1000) / 10  # how many: only among waits
            yield UNKNOWN, share, _change(row, row["cure"], saves, "04")


def _precision(facts):
    seen, name, busy = facts["seen"], facts["device_name"], facts["pace"]["busy"]
    full = sum(x["dtypes"].get("float32", 0) for x in seen["models"])
    much = full >= 1_000_000 if busy is None else full and busy >= 0.5
    if facts["device"] == "cpu" or not name or re.search(NO_TENSOR_CORES, name):
        return
    if much and not seen["autocast"]:
        text = "not known; part of the time of float32 matmuls"
        way = "model.bfloat16(), before Ampere model.half()" if _calls(facts) else HALF
        yield UNKNOWN, busy or 0.5, _change("the forward pass", way, text, "08")


def _idle(facts):
    idle = 1 - (facts["pace"]["busy"] or 1)
    if _calls(facts) and idle > 0.3 and not facts["seen"]["compiled"]:
        cure = "torch.compile, with a cache of a fixed size"
        text = f"part of the {idle:.0%} of the time that the GPU idles"
        line = facts["step"]["at"] or "the model"
        yield UNKNOWN, idle, _change(line, cure, text, "17")


def _memory(facts):
    memory = facts["memory"]
    least = max(0.2 * memory["highest"], LITTLE)
    ways = [(way, memory["highest"] - x) for way, x in memory["lower"].items()]
    ways = [way for way in ways if way[1] >= least]
    if ways:  # half of the batch, which changes the training, only if all else is less
        way, saved = max(ways, key=lambda x: ("half" not in x[0], x[1]))
        line = [(f"memory, in {memory['phase']}", way)]
        line = _could_be_fused(facts) or line if "fused" in way else line
        text = f"{size(saved)} of {size(memory['highest'])}, if memory is short"
        yield LAST, saved, _change(*line[0], text, "07", None, saved)


KINDS = _faults, _loader, _evaluation, _fused, _own, _waits, _precision, _memory, _idle


def not_known(facts):
    ended = [f"What more steps would show: {facts['ended']}."] if facts["ended"] else []
    kinds = _of_device, _of_waits, _of_steps, _of_others
    return [*ended, *facts["notes"], *(said for kind in kinds for said in kind(facts))]


def _names(wheres):
    names = list(dict.fromkeys(wheres))
    return ", ".join(names[:4]) + (f", {len(names) - 4} more" if names[4:] else "")


def _of_device(facts):
    if facts["device"] == "cpu":
        waits = "waits are counted, not timed; " * bool(facts["waits"])
        yield (
            f"No GPU: {waits}copies cost nothing. Of the times, those of a loader and"
            " of your own Python carry over, if a GPU gets the same lines."
        )
        if facts["memory"]:
            yield "Memory is counted on a CPU: CUDA's kernels keep other temporaries."
        if facts["branches"]:
            yield f"On a GPU, other lines may run after {_names(facts['branches'])}."
    if facts["seen"].get("moved") is False:
        yield "Nothing was moved to a device: is the script for the CPU alone?"


def _of_waits(facts):
    waits = facts["waits"] or {"rows": [], "steps": 0}
    for place in ("host", "GPU"):
        rows = [x for x in waits["rows"] if x["assumed"] and lies(x) == place]
        if rows:
            names = _names(x["where"] for x in rows)
            yield f"{names}: waits if the tensor, made before, lies on the {place}."
    if not waits["steps"]:
        yield "Waits were not watched."
    elif waits["steps"] < 20:
        steps = many(waits["steps"], "step")
        yield f"Waits were counted in {steps}: what comes less often may be missing."


def _of_steps(facts):
    pace, cycle = facts["pace"], (facts["step"] or {}).get("cycle") or 0
    if not pace:
        yield "No step was timed."
    elif pace["timed"] < 5:
        yield f"The pace is that of {many(pace['timed'], 'step')}."
    if pace and pace["highest"] > 1.5 * pace["lowest"]:
        low, high = time(pace["lowest"]), time(pace["highest"])
        yield f"Steps took {low} to {high}: unlike steps, or a machine with other work."
    if pace and not pace["lines"]:
        yield "Lines are not told of steps under 3 ms."
    elif pace and pace["step"] < 0.02:
        yield "Python of under 0.1 ms between two operators counts to their lines."
    if not facts["memory"]:
        yield "Memory was not watched."
    watched = [(k, n) for k, n in facts["watched"].items() if k != "warm" and n < cycle]
    if watched:
        few = ", ".join(f"{k} in {n}" for k, n in watched)
        yield f"Of the {cycle} steps of a cycle only some were watched: {few}."


def _of_others(facts):
    seen = facts["seen"]
    if seen["compiled"]:
        yield (
            "Compiled code ran eagerly while waits and memory were watched: last bits"
            " of results may differ."
        )
    if any(x["workers"] for x in seen["loaders"]):
        yield "What a loader's workers do is not seen, only the wait for them."
    if seen["world"] > 1:
        yield f"One of {seen['world']} ranks was watched."
    if not facts["ended"]:
        such = "" if _calls(facts) else ", such as an evaluation or a save"
        yield f"What comes after the steps watched{such}."
