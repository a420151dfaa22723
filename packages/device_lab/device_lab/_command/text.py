"""The report: what each section says, and how a terminal shows it."""

import unicodedata
from typing import NamedTuple

LINES, COLUMNS, INDENT = 45, 100, 14
STEPS = {
    "optimizer": "from one optimizer.step() to the next",
    "backward": "from one backward() to the next: no optimizer was seen",
    "batch": "from one batch to the next: no backward() was seen",
}
LONG = {
    "workers start": ": the loader's workers start",
    "machine": ", on the same lines: the machine, not the script",
}


class Row(NamedTuple):
    """mark: its number, share or rate. notes: a line each."""

    mark: str
    place: str
    code: str = ""
    notes: tuple = ()


class Section(NamedTuple):
    """bars: (name, value, share from 0 to 1). most: rows that a terminal shows."""

    title: str
    said: list
    bars: list = []
    rows: list = []
    most: int = 6


def size(nbytes):
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(nbytes) >= factor:
            return f"{nbytes / factor:,.4g} {unit}"
    return f"{nbytes:.0f} bytes"


def time(seconds):
    units = [("s", seconds), ("ms", seconds * 1e3), ("µs", seconds * 1e6)]
    unit, number = next((x for x in units if abs(x[1]) >= 1), units[-1])
    return f"{number:.3g} {unit}" if number < 999.5 else f"{number:,.0f} {unit}"


def many(number, word):
    text = f"{number:,}" if isinstance(number, int) else f"{number:,.3g}"
    return f"{text} {word}{'s' * (number != 1)}"


def sections(facts):
    """All of the report. What a terminal cuts stands on the page, whole."""
    changes = [
        Row(f"{i}.", x["where"], x["code"], (_cure(x), f"saves: {x['saves']['text']}"))
        for i, x in enumerate(facts["changes"], 1)
    ]
    nothing = [] if changes else ["nothing worth a change was seen"]
    return [
        Section("", list(_head(facts))),
        Section("CHANGE FIRST", nothing, rows=changes),
        _pace(facts["pace"]),
        _waits(facts["waits"]),
        _memory(facts["memory"]),
        Section("LEFT BEHIND", *_left(facts["left_behind"]), most=3),
        Section("SEEN", ["; ".join([*_models(facts["seen"]), *_seen(facts["seen"])])]),
        Section("NOT KNOWN", facts["not_known"] or ["nothing else"]),
    ]


def _cure(change):
    return f"{change['cure']} (lesson {change['lesson']})"


def _head(facts):
    step, watched = facts["step"] or {}, facts["watched"]
    yield f"device-lab {facts['device_lab']}: {facts['script']}"
    name = f" ({facts['device_name']})" if facts["device_name"] else ""
    yield (
        f"{facts['device']}{name}, torch {facts['torch']}, Python {facts['python']},"
        f" {facts['system']}; {many(sum(watched.values()), 'step')} watched in"
        f" {time(facts['seconds'])}, of it {time(facts['own_seconds'])} to watch"
    )
    said = "a step: " + STEPS.get(step.get("by"), "no two equal steps were seen")
    said += f", {step['at']['where']}" if step.get("at") else ""
    names = {
        "optimizers": "optimizer",
        "backwards": "backward pass",
        "batches": "batch",
    }
    for key, name in names.items():
        number = step.get(key) or 0
        said += f"; {number:g} × {name}" if number > 1 else ""
    yield said + (f"; a cycle has {step['cycle']}" if step.get("cycle") else "")
    if facts["ended"]:
        yield f"not watched whole: {facts['ended']}"


def _parts(parts, whole, text):
    """The largest first, without what is next to nothing."""
    rows = sorted(parts.items(), key=lambda row: -row[1])
    whole = whole or 1
    return [(name, text(x), x / whole) for name, x in rows if x >= 0.005 * whole]


def _line(line, whole):
    inside = (f"in {line['inside']}",) if line["inside"] else ()
    share = line["seconds"] / (whole or 1)
    return Row(f"{share:.0%}", line["where"], line["code"], inside)


def _pace(pace):
    if not pace:
        return Section("PACE", ["no step was timed"])
    step = pace["step"]
    said = (
        f"{time(step)} a step, {1 / (step or 1):,.3g} steps a second (mean of"
        f" {pace['timed']}, from {time(pace['lowest'])} to {time(pace['highest'])})"
    )
    rows = [_line(x, step) for x in pace["lines"] if x["seconds"] >= 0.03 * step]
    long = pace["long"]
    if long:
        rows += [
            _line(x, long["seconds"])._replace(notes=("of the long steps",))
            for x in long["lines"]
        ]
    bars = _parts(pace["parts"], step, time)
    return Section("PACE", [said, *_more(pace)], bars, rows, 5 + 3 * bool(long))


def _more(pace):
    if pace["busy"] is not None:
        yield f"the GPU works {pace['busy']:.0%} of the time"
    if pace["device_parts"]:
        parts = _parts(pace["device_parts"], sum(pace["device_parts"].values()), time)
        yield "on the GPU: " + ", ".join(f"{x[0]} {x[1]}" for x in parts)
    long, evaluation = pace["long"], pace["evaluation"]
    if long:
        every = f", one in {long['every']:g}" if long["every"] else ""
        yield (
            f"{long['count']} of {long['of']} steps take {time(long['seconds'])}{every},"
            f" {long['share']:.0%} of the time{LONG.get(long['why'], '')}"
        )
    if evaluation:
        batches = f"in all {evaluation['batches']:g} batches"
        each = f"{time(evaluation['seconds'])} each, {batches}"
        yield f"{many(evaluation['count'], 'evaluation')}, {each}"


def _waits(waits):
    if not waits:
        return Section("WAITS", ["not watched"])
    counted = ", counted as on a GPU" if waits["device"] == "cpu" else ""
    said = f"{waits['each']:.3g} in each step{counted} ({many(waits['steps'], 'step')})"
    rows = []
    for x in waits["rows"]:
        place = x["where"] + (f" in {x['inside']}" if x["inside"] else "")
        note = f"{x['operation']}{_often(x, waits)}: {x['why']}: {x['cure']}"
        rows.append(Row(f"×{x['times']:.3g}", place, x["code"], (note,)))
    return Section("WAITS", [said], rows=rows)


def _often(row, waits):
    if row["assumed"]:
        return ", if the tensor lies on the host"
    if row["branch"]:
        return f", where {row['branch']} chose the CPU's way"
    if row["every"]:
        return f", in one of {row['every']:g} steps"
    return "" if row["each"] else f", in {row['steps']} of {waits['steps']} steps"


def _memory(memory):
    if not memory:
        return Section("MEMORY", ["not watched"])
    highest, largest = memory["highest"], memory["largest"]
    said = [
        f"{size(highest)} at the highest, in {memory['phase']}; {size(memory['before'])}"
        " before the step"
    ]
    if memory["grows"]:
        keeper = memory["keeper"]
        by = f": {keeper['name']}, {keeper['where']}" if keeper else ""
        said += [f"each step leaves {size(memory['grows'])} behind{by}"]
    if largest:
        said += [f"largest new tensor: {size(largest['bytes'])}, {largest['where']}"]
    lower = [f"{size(x)} with {way}" for way, x in memory["lower"].items()]
    said += ["; ".join(lower)] if lower else []
    return Section("MEMORY", said, _parts(memory["kinds"], highest, size))


def _left(rows):
    found = [
        Row(
            "",
            x["path"],
            f"{many(x['count'], 'tensor')}, {size(x['bytes'])}",
            (x["why"],),
        )
        for x in rows
    ]
    return [] if found else ["nothing found"], [], found


def _models(seen):
    for x in seen["models"]:
        part = f", {x['trained']:,} trained" if x["trained"] != x["parameters"] else ""
        kinds = ", ".join(x["dtypes"])
        mode = "" if x["training"] else ", in eval mode"
        yield f"{x['class']}: {x['parameters']:,} parameters ({kinds}){part}{mode}"
    for x in seen["optimizers"]:
        yield x["class"] + ", fused" * bool(x["fused"])
    for x in seen["loaders"]:
        more = ", pinned" * bool(x["pinned"]) + ", evaluation" * bool(x["evaluation"])
        workers = many(x["workers"], "worker")
        yield f"DataLoader of {x['dataset']}, batch {x['batch_size']}, {workers}{more}"


def _seen(seen):
    yield f"batch {seen['batch']}" if seen["batch"] else "no batch of a loader"
    yield (
        "autocast " + ", ".join(seen["autocast"]) if seen["autocast"] else "no autocast"
    )
    if seen["scaler"]:
        yield "GradScaler skipped {skipped} of {steps} steps".format(**seen["scaler"])
    compiled = seen["compiled"]
    breaks = compiled and many(compiled["graph_breaks"], "graph break")
    yield f"compiled, {breaks}" if compiled else "not compiled"
    yield f"matmul precision {seen['matmul_precision']}"
    yield many(seen["threads"], "thread")
    if seen["world"] > 1:
        yield f"{seen['world']} ranks"


# --------------------------------------------------------------------------------------
# In a terminal


def clean(value):
    """On one line, without what a terminal obeys or cannot print."""
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return " ".join(text.split())


def columns(text):
    return sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def clip(text, most=COLUMNS):
    if columns(text) <= most:
        return text
    text = text[:most]
    while columns(text) > most - 1:
        text = text[:-1]
    return text.rstrip() + "…"


def wrap(text, indent):
    lines, room = [""], COLUMNS - indent
    for word in text.split(" "):
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > room:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + word
    return [" " * indent + clip(line, room) for line in lines]


def _lines(section):
    title, indent = section.title, INDENT if section.title else 0
    bars = [f"{name} {value} ({share:.0%})" for name, value, share in section.bars]
    said = [*section.said[:1], ", ".join(bars), *section.said[1:]]
    lines = [line for x in said if x for line in wrap(clean(x), indent)]
    whole = title == "CHANGE FIRST"
    for row in section.rows[: section.most]:
        place = f"{row.mark:>6}  {clean(row.place)}  {clean(row.code)}"
        lines.append(clip(place.rstrip()))
        for note in row.notes:
            lines += wrap(clean(note), 8)[: 2 if whole else 1]
    more = len(section.rows) - section.most
    lines += [f"        … and {more} more: see --json"] if more > 0 else []
    if section.said:
        return [title + lines[0][len(title) :], *lines[1:]]
    return [title, *lines]


def _cut(lines, most):
    left = len(lines) - most + 1
    more = f"        … and {left} more lines: see --json"
    return lines if left < 2 else [*lines[: most - 1], more]


def terminal(facts, color=False):
    """At most 45 lines of 100 columns. color adds ANSI codes, and nothing else."""
    parts = sections(facts)
    blocks = [_lines(part) for part in parts]
    blocks[0], blocks[-1] = _cut(blocks[0], 6), _cut(blocks[-1], 8)
    sizes = [len(block) for block in blocks]
    airy = sum(sizes) + len(blocks) - 1 <= LINES
    while sum(sizes) > LINES - 2:
        sizes[sizes.index(max(sizes))] -= 1
    lines = []
    for i, (part, block, most) in enumerate(zip(parts, blocks, sizes, strict=True)):
        lines += [""] * (i in (1, 2) or (airy and i > 0))
        first, *rest = _cut(block, most)
        if color and part.title:
            first = f"\033[1m{part.title}\033[0m{first[len(part.title) :]}"
        lines += [first, *rest]
    return "\n".join(lines)
