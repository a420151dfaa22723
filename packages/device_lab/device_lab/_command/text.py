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
    """mark: number, share or rate. inside: where in a library. notes: a line each."""

    mark: str
    place: str
    code: str = ""
    inside: str = ""
    notes: tuple = ()


class Section(NamedTuple):
    """bars: (name, value, share from 0 to 1). A terminal shows so many rows, lines."""

    title: str
    said: list
    bars: list = []
    rows: list = []
    most: int = 6
    room: int = 20


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
        Row(f"{i}.", x["where"], x["code"], notes=_notes(x))
        for i, x in enumerate(facts["changes"], 1)
    ]
    nothing = [] if changes else ["nothing worth a change was seen"]
    return [
        Section("", list(_head(facts)), room=6),
        Section("CHANGE FIRST", nothing, rows=changes),
        _pace(facts["pace"]),
        _waits(facts["waits"]),
        _memory(facts["memory"]),
        Section("LEFT BEHIND", *_left(facts["left_behind"]), most=3),
        Section("SEEN", ["; ".join([*_models(facts["seen"]), *_seen(facts["seen"])])]),
        Section("NOT KNOWN", facts["not_known"], room=8),
    ]


def _notes(change):
    cure = f"{change['cure']} (lesson {change['lesson']})"
    return cure, f"saves: {change['saves']['text']}"


def _head(facts):
    step, watched = facts["step"] or {}, facts["watched"]
    yield f"device-lab {facts['device_lab']}: {facts['script']}"
    name = f" ({facts['device_name']})" if facts["device_name"] else ""
    yield (
        f"{facts['device']}{name}, torch {facts['torch']}, Python {facts['python']},"
        f" {facts['system']}; {many(sum(watched.values()), 'step')} in"
        f" {time(facts['seconds'])}; watching took {time(facts['own_seconds'])}"
    )
    said = "a step: " + STEPS.get(step.get("by"), "no two equal steps were seen")
    said += f", {step['at']['where']}" if step.get("at") else ""
    for name in ("optimizers", "backwards", "batches"):
        number = step.get(name) or 0
        said += f"; {number:g} {name}" if number > 1 else ""
    yield said + (f"; a cycle has {step['cycle']}" if step.get("cycle") else "")


def _parts(parts, whole, text):
    """The largest first, without what is next to nothing."""
    rows = sorted(parts.items(), key=lambda row: -row[1])
    whole = whole or 1
    return [(name, text(x), x / whole) for name, x in rows if x >= 0.005 * whole]


def _line(line, whole, kind=""):
    share = f"{line['seconds'] / (whole or 1):.0%}"
    return Row(share, line["where"] + kind, line["code"], line["inside"])


def _pace(pace):
    if not pace:
        return Section("PACE", ["no step was timed"])
    step = pace["step"]
    said = (
        f"{time(step)} a step, {1 / (step or 1):,.3g} steps a second (mean of"
        f" {pace['timed']}, from {time(pace['lowest'])} to {time(pace['highest'])})"
    )
    rows = [_line(x, step) for x in pace["lines"] if x["seconds"] >= 0.03 * step][:5]
    long = pace["long"]
    if long and long["why"] != "machine":
        late = [_line(x, long["seconds"], ", long steps") for x in long["lines"]]
        rows = late + rows if long["share"] > 0.5 else rows + late
    bars = _parts(pace["parts"], step, time)
    return Section("PACE", [said, *_more(pace)], bars, rows, most=8)


def _more(pace):
    if pace["busy"] is not None:
        yield f"the GPU works {pace['busy']:.0%} of the time"
    if pace["device_parts"]:
        parts = _parts(pace["device_parts"], sum(pace["device_parts"].values()), time)
        yield "on the GPU: " + ", ".join(f"{x[0]} {x[1]}" for x in parts)
    long, evaluation = pace["long"], pace["evaluation"]
    if long:
        every = f", one in {long['every']:g}" if long["every"] else ""
        each, why = time(long["seconds"]), LONG.get(long["why"], "")
        yield (
            f"long steps: {long['count']} of {long['of']}{every}, {each} each,"
            f" {long['share']:.0%} of the time{why}"
        )
    if evaluation:
        each, batches = time(evaluation["seconds"]), evaluation["batches"]
        yield f"evaluations: {evaluation['count']}, {each} and {batches:g} batches each"


def _waits(waits):
    if not waits:
        return Section("WAITS", ["not watched"])
    counted = ", counted as on a GPU" if waits["device"] == "cpu" else ""
    said = f"{waits['each']:.3g} in each step{counted} ({many(waits['steps'], 'step')})"
    rows = []
    for x in waits["rows"]:
        note = f"{x['operation']}{often(x, waits)}: {x['why']}: {x['cure']}"
        many_times = f"×{x['times']:.3g}"
        rows.append(Row(many_times, x["where"], x["code"], x["inside"], (note,)))
    return Section("WAITS", [said], rows=rows)


def lies(row):
    """Where the tensor lies that makes an assumed row wait."""
    return "host" if row["operation"] in ("to", "type_as") else "GPU"


def often(row, waits):
    if row["assumed"]:
        return f", if the tensor lies on the {lies(row)}"
    if row["branch"]:
        return f", where {row['branch']} chose the CPU's way"
    if row["each"]:
        return ""
    if row["every"]:
        return f", in one of {row['every']:g} steps"
    return f", in {row['steps']} of {waits['steps']} steps"


def _memory(memory):
    if not memory:
        return Section("MEMORY", ["not watched"])
    highest, largest = memory["highest"], memory["largest"]
    before = f"; {size(memory['before'])} before the step"
    said = [f"{size(highest)} at the highest, in {memory['phase']}{before}"]
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
    found = []
    for x in rows:
        much = f"{many(x['count'], 'tensor')}, {size(x['bytes'])}"
        found.append(Row("", x["path"], notes=(f"{much}; {x['why']}",)))
    said = "what model.to(device) does not move:" if found else "nothing found"
    return [said], [], found


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
    yield "autocast " + (", ".join(seen["autocast"]) or "off")
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
    """(all lines, how many a terminal shows)"""
    title, indent = section.title, INDENT if section.title else 0
    bars = [f"{name} {value} ({share:.0%})" for name, value, share in section.bars]
    said = [*section.said[:1], ", ".join(bars), *section.said[1:]]
    if not title:
        said[0] = clip(clean(said[0]))
    lines = [line for x in said if x for line in wrap(clean(x), indent)]
    if section.said:
        lines[0] = title + lines[0][len(title) :]
    else:
        lines = [title, *lines]
    shown = section.room
    for i, row in enumerate(section.rows):
        if i == section.most:
            shown = min(shown, len(lines) + 1)
        parts = row.place, row.code, f"in {row.inside}" if row.inside else ""
        parts = [clean(part) for part in parts if part]
        lines.append(clip(f"{row.mark:>6}  {'  '.join(parts)}"))
        for note in map(clean, row.notes):
            change = title == "CHANGE FIRST"
            lines += wrap(clip(note, 160), 8) if change else [clip(" " * 8 + note)]
    return lines, min(shown, len(lines))


def terminal(facts, color=False):
    """At most 45 lines of 100 columns. color adds ANSI codes, and nothing else."""
    blocks = [_lines(section) for section in sections(facts)]
    sizes = [shown for _, shown in blocks]
    airy = sum(sizes) + len(blocks) - 1 <= LINES
    while sum(sizes) > LINES - 2:  # head and changes stay whole
        sizes[max(range(2, len(sizes)), key=sizes.__getitem__)] -= 1
    found = []
    for i, ((lines, _), shown) in enumerate(zip(blocks, sizes, strict=True)):
        found += [""] * (i in (1, 2) or (airy and i > 0))
        left = len(lines) - shown + 1
        if left > 1:
            lines[shown - 1 :] = [f"        … and {left} more lines: see --json"]
        if color and i:
            lines[0] = f"\033[1m{lines[0][:INDENT]}\033[0m{lines[0][INDENT:]}"
        found += lines
    return "\n".join(found)
