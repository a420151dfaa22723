"""The report: what each section says, and how a terminal and a page show it."""

import html
import textwrap
from typing import NamedTuple

from .._kit._ledger import size_text as size
from .._kit.timing import time_text as time

LINES, COLUMNS, INDENT = 45, 100, 14
STEPS = {
    "optimizer": "from one optimizer.step() to the next",
    "backward": "from one backward() to the next: no optimizer was seen",
    "batch": "from one batch to the next: no backward() was seen",
    "call": "from one call of the model to the next: gradients off, no optimizer seen",
}
LONG = {
    "workers start": ": the loader begins an epoch",
    "same lines": ", on the same lines as the others",
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


def many(number, word):
    text = f"{number:,}" if isinstance(number, int) else f"{number:,.3g}"
    return f"{text} {word}{'s' * (number != 1)}"


def sections(facts):
    """All of the report."""
    return [
        Section("", list(_head(facts)), room=6),
        _changes(facts["changes"], facts["waits"]),
        _pace(facts["pace"]),
        _waits(facts["waits"]),
        _memory(facts["memory"]),
        _left(facts["left_behind"], facts["seen"]["models"]),
        Section("SEEN", ["; ".join([*_made(facts["seen"]), *_seen(facts["seen"])])]),
        Section("NOT KNOWN", facts["not_known"], room=8),
    ]


def _head(facts):
    step, watched = facts["step"] or {}, facts["watched"]
    yield f"device-lab {facts['device_lab']}: {facts['script']}"
    name = f" ({facts['device_name']})" if facts["device_name"] else ""
    yield (
        f"{facts['device']}{name}, torch {facts['torch']}, Python {facts['python']},"
        f" {facts['system']}; {many(sum(watched.values()), 'step')} in"
        f" {time(facts['seconds'])}; watching took {time(facts['own_seconds'])}"
    )
    said = ["a step: " + STEPS.get(step.get("by"), "no two equal steps were seen")]
    said[0] += f", {step['at']['where']}" if step.get("at") else ""
    names = {"optimizers": "optimizer step", "backwards": "backward pass"}
    for key, name in (names | {"batches": "batch"}).items():
        number = step.get(key) or 0
        said += [f"{number:g} × {name}"] if number > 1 else []
    cycle = step.get("cycle")
    yield "; ".join(said + [f"one in {cycle} is another kind"] * bool(cycle))


def _changes(changes, waits):
    rows = []
    for i, x in enumerate(changes, 1):
        cure = f"{x['cure']} (lesson {x['lesson']})"
        notes = cure, f"saves: {x['saves']['text']}"
        rows.append(Row(f"{i}.", x["where"], x["code"], notes=notes))
    nothing = "nothing worth a change was seen"
    nothing += "; waits were not watched" * (not waits)
    return Section("CHANGE FIRST", [] if changes else [nothing], rows=rows)


def _parts(parts, whole, text):
    """The largest first, without what is next to nothing."""
    rows = sorted(parts.items(), key=lambda row: -row[1])
    whole = whole or 1
    return [(name, text(x), x / whole) for name, x in rows if x >= 0.005 * whole]


def _line(line, whole, kind=""):
    share = f"{line['seconds'] / (whole or 1):.0%}"
    return Row(share, line["where"] + kind, line["code"], line["inside"])


def _rate(step):
    rate = 1 / (step or 1)
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _pace(pace):
    if not pace:
        return Section("PACE", ["no step was timed"])
    step, long, evaluation = pace["step"], pace["long"], pace["evaluation"]
    said = [
        f"{time(step)} a step, {_rate(step)} steps a second (mean of"
        f" {pace['timed']}, from {time(pace['lowest'])} to {time(pace['highest'])})"
    ]
    if pace["all"] > 1.05 * step and pace["timed"] > 20:  # else by chance
        said.append(f"with the steps that take longer, {_rate(pace['all'])} a second")
    rows = [_line(x, step) for x in pace["lines"] if x["seconds"] >= 0.03 * step][:5]
    if pace["busy"] is not None:
        said.append(f"the GPU works {pace['busy']:.0%} of the time")
    if pace["device_parts"]:
        parts = _parts(pace["device_parts"], sum(pace["device_parts"].values()), time)
        said.append("by the GPU's clock: " + ", ".join(f"{x[0]} {x[1]}" for x in parts))
    if long:
        every = f", one in {long['every']:g}" if long["every"] else ""
        said.append(
            f"long steps: {long['count']} of {long['of']}{every},"
            f" {time(long['seconds'])} each, {long['share']:.0%} of the time"
            + LONG.get(long["why"], "")
        )
        late = [_line(x, long["seconds"], ", long steps") for x in long["lines"]]
        rows = late + rows if long["share"] > 0.5 else rows + late
    if evaluation:
        each = f"{time(evaluation['seconds'])} and {evaluation['batches']:g} batches"
        said.append(f"steps with an evaluation: {evaluation['count']}, {each} each")
    return Section("PACE", said, _parts(pace["parts"], step, time), rows, most=8)


def _waits(waits):
    if not waits:
        return Section("WAITS", ["not watched"])
    counted = ", counted as on a GPU" if waits["device"] == "cpu" else ""
    said = f"{waits['each']:.3g} in each step{counted} ({many(waits['steps'], 'step')})"
    rows = []
    for x in waits["rows"]:
        note = f"{x['operation']}{often(x, waits)}: {x['why']}: {x['cure']}"
        times = f"×{x['times']:.3g}"
        rows.append(Row(times, x["where"], x["code"], x["inside"], (note,)))
    return Section("WAITS", [said], rows=rows)


def lies(row):
    """Where the tensor lies that makes an assumed row wait."""
    return "host" if row["operation"] in ("to", "type_as") else "GPU"


def often(row, waits):
    if row["assumed"]:
        return f", if the tensor lies on the {lies(row)}"
    if row["branch"]:
        return f", where {row['branch']} chose the CPU's way"
    if row["each"] and row["steps"] == waits["steps"]:
        return ""
    if row["every"]:
        return f", in one of {row['every']:g} steps"
    return f", in {row['steps']} of {waits['steps']} steps"


def _memory(memory):
    if not memory:
        return Section("MEMORY", ["not watched"])
    highest, largest, keeper = memory["highest"], memory["largest"], memory["keeper"]
    before = f"; {size(memory['before'])} before the step"
    said = [f"{size(highest)} at the highest, in {memory['phase']}{before}"]
    if memory["grows"]:
        by = f": {keeper['name']}, {keeper['where']}" if keeper else ""
        said.append(f"each step leaves {size(memory['grows'])} behind{by}")
    said.append(f"largest new tensor: {size(largest['bytes'])}, {largest['where']}")
    lower = [f"{size(x)} with {way}" for way, x in memory["lower"].items()]
    said += ["; ".join(lower)] * bool(lower)
    return Section("MEMORY", said, _parts(memory["kinds"], highest, size))


def _left(left, models):
    rows = []
    for x in left:
        much = f"{many(x['count'], 'tensor')}, {size(x['bytes'])}"
        rows.append(Row("", x["path"], notes=(f"{much}; {x['why']}",)))
    said = "nothing found" if models else "no model was found to look at"
    said = "what model.to(device) does not move:" if rows else said
    return Section("LEFT BEHIND", [said], rows=rows, most=3)


def _made(seen):
    for x in seen["models"]:
        part = f", {x['trained']:,} trained" if x["trained"] != x["parameters"] else ""
        mode = "" if x["training"] else ", in eval mode"
        kinds = ", ".join(x["dtypes"])
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
    breaks = seen["compiled"] and many(seen["compiled"]["graph_breaks"], "graph break")
    yield f"compiled, {breaks}" if breaks else "not compiled"
    yield f"matmul precision {seen['matmul_precision']}"
    yield many(seen["threads"], "thread")
    if seen["world"] > 1:
        yield f"{seen['world']} ranks"


def clean(value):
    """On one line, without what a terminal obeys or cannot print."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(value)).split())


# ---- in a terminal


def clip(text, most=COLUMNS):
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def wrap(text, indent):
    room = COLUMNS - indent
    lines = textwrap.wrap(text, room, break_on_hyphens=False)
    return [" " * indent + line for line in lines]


def _lines(section):
    """(all lines, how many a terminal shows)"""
    title, said = section.title, list(map(clean, section.said))
    bars = [f"{name} {value} ({share:.0%})" for name, value, share in section.bars]
    said[1:1] = [", ".join(bars)]
    if not title:
        said[0] = clip(said[0])
    lines = [line for x in said for line in wrap(x, INDENT if title else 0)] or [""]
    lines[0] = title + lines[0][len(title) :]
    shown = section.room
    for i, row in enumerate(section.rows):
        if i == section.most:
            shown = min(shown, len(lines) + 1)
        parts = row.place, row.code, f"in {row.inside}" if row.inside else ""
        said = "  ".join(map(clean, filter(None, parts)))
        lines.append(clip(f"{row.mark:>6}  {said}"))
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


# ---- as a page of HTML

HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto;
  padding: 0 1rem; overflow-wrap: anywhere }
meter { width: 40% }
</style>
"""


def page(facts):
    """All of the report; what a terminal cuts is whole here."""
    first, *rest = sections(facts)
    title, *said = map(_safe, first.said)
    body = [f"<title>{title}</title>", f"<h1>{title}</h1>"]
    body += [f"<p>{line}</p>" for line in said]
    for section in rest:
        body.append(f"<h2>{section.title.capitalize()}</h2>")
        body += [f"<p>{_safe(line)}</p>" for line in section.said]
        for name, value, share in section.bars:
            bar = f'<meter value="{min(share, 1):.3f}"></meter>'
            body.append(f"<p>{bar} {_safe(name)} {_safe(value)}, {share:.0%}</p>")
        for row in section.rows:
            place = f"{_safe(row.mark)} <b>{_safe(row.place)}</b>"
            code = f" <code>{_safe(row.code)}</code>" if row.code else ""
            inside = f" in {_safe(row.inside)}" if row.inside else ""
            notes = "".join(f"<br>{_safe(note)}" for note in row.notes)
            body.append(f"<p>{place}{code}{inside}{notes}</p>")
    return HEAD + "\n".join(body) + "\n</html>\n"


def _safe(value):
    return html.escape(clean(value))
