"""The page of the website that says what is known, and from where: claims with their
figures, and what stands in place of cells that need hardware.

Nothing on it is typed: claims are metadata of stored outputs and of recordings
(notebooks/recorded/, `make record`). Links lead to cells:
../notebooks/NN_name.ipynb#CELL-ID.
"""

from collections import Counter

from course import recordings
from course.claims import figure, promised
from course.provenance import EMULATED
from tools.site.read_lessons import ROOT, code, md, table

# what a cell that needs hardware shows without it
SHOWN = {
    "recorded": "RECORDED on a device that is named",
    "emulated": "EMULATED: PyTorch's own CUDA code on a device without a GPU; only"
    " cells whose point is no time",
    "published": "PUBLISHED by others, and not measured here",
    "nothing": "nothing yet",
}


def shown_for(cell, published):
    """What a reader without the device sees of a conditional cell: (kind, text)."""
    found = [(kept.origin, kept) for kept in cell.recorded]
    sources = published.get(cell.header.name, [])
    state, found, sources = recordings.shown(found, sources, cell.header.timeless)
    lines = [
        f"PUBLISHED by [{md(source['who'])}]({source['link']}), {source['date']}"
        for source in sources
    ]
    if state == "emulated":
        return "emulated", f"EMULATED, {found[0][1].told}"
    if state == "replayed":
        devices = [f"RECORDED on {md(o.device)}, {kept.told}" for o, kept in found]
        return "recorded", "<br>".join(devices + lines)
    return ("published", "<br>".join(lines)) if lines else ("nothing", "nothing yet")


def gpu_sentence(lessons):
    """What the course has from a CUDA GPU or a TPU, in one sentence. README.md says the
    same (a test compares).
    """
    found = Counter(
        kept.origin.device
        for lesson in lessons
        for cell in lesson.conditional
        for kept in cell.recorded
        if kept.real
    )
    if not found:
        return "No result in this course comes from a CUDA GPU or a TPU yet."
    devices = ", ".join(
        f"{count} on {device}" for device, count in sorted(found.items())
    )
    return f"Cells recorded on a CUDA GPU or a TPU so far: {devices}."


def claims_of(lesson):
    """The claims of a lesson by their cell and place in it, in its order: [(cell,
    [(what was claimed, as data; where and when)])]. Times of the emulated device, which
    are a model, are none.
    """
    found = {}
    for cell in lesson.cells:
        stored = cell.claims if cell.live else []
        sources = [(stored, "stored here")]
        for kept in cell.recorded:
            sources.append((kept.claims, f"recorded {kept.origin.date}{kept.note}"))
        for claims, when in sources:
            for n, claim in enumerate(claims):
                # "about": what it computed or was told, where no device measured
                device = claim.get("device", "")
                place = claim.get("about", f"{device}, {when}")
                same = found.setdefault((cell.id, n), (cell, []))[1]
                modeled = claim["timed"] and device.startswith(EMULATED)
                if not modeled and (claim, place) not in same:
                    same.append((claim, place))
    return [(cell, told) for cell, told in found.values() if told]


def page(lessons, root=ROOT):
    """The page, as Markdown."""
    recorded = root / "notebooks" / "recorded"
    published = recordings.load_published(recorded / "published.json")
    parts, count, kinds = [], 0, Counter()
    for lesson in lessons:
        claims = claims_of(lesson)
        shows = [(cell, *shown_for(cell, published)) for cell in lesson.conditional]
        parts.append(f"## {lesson.stem[:2]} · {md(lesson.title)}\n")
        if claims:
            rows = [_claim_row(cell, told, lesson) for cell, told in claims]
            parts.append(table([_count(claims, "claim"), "figure"], rows))
        if shows:
            rows = [_cell_row(cell, text, lesson) for cell, _, text in shows]
            head = f"{_count(shows, 'cell')} for hardware"
            parts.append(table([head, "shown without it"], rows))
        if not claims and not shows:
            parts.append("No claim, and no cell that needs hardware.\n")
        count += len(claims)
        kinds.update(kind for _, kind, _ in shows)
    rows = [(kinds[kind], text) for kind, text in SHOWN.items()]
    head = [f"{kinds.total()} cells that need hardware", "what is shown without it"]
    introduction = (
        f"What was recorded where, and {count} claims of the lessons with the figures"
        " that were measured for them: from stored outputs (“stored here” is what you"
        " see in the lesson on this site) and from recordings. No figure is typed. A"
        " claim has a bound, sometimes also a physical limit, above which a figure"
        " would be a mistake of the measurement. Where a cell has nothing yet, what it"
        " claims is open: if your machine can measure it, [send a"
        " recording](contributing/recording.md).\n"
    )
    return "\n".join(
        [
            "# Evidence\n",
            f"**{gpu_sentence(lessons)}**\n",
            introduction,
            table(head, rows),
            *parts,
        ]
    )


def _count(things, name):
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _cell_row(cell, text, lesson):
    name = f"[{code(cell.header.name)}]({lesson.link(cell.id)})"
    return [f"{name}<br>needs {lesson.needs(cell)}", text]


def _claim_row(cell, told, lesson):
    """What a claim says, and each figure; what differs stands with the figure."""
    texts = {claim["text"] for claim, _ in told}
    link = f"[{md(told[0][0]['text'])}]({lesson.link(cell.id)})"
    return [link, "<br>".join(_figure(*each, texts) for each in told)]


def _figure(claim, place, texts):
    value = claim["value"]
    value = str(value).lower() if isinstance(value, bool) else None
    line = f"**{md(value or figure(claim['value'], claim['unit']))}**"
    if len(texts) > 1:
        line = f"{md(claim['text'])}: {line}"
    if not claim["holds"]:
        line += " ✗ missed"
    if promised(claim):
        line += f" (promised {md(promised(claim))})"
    if "share" in claim:
        limit = figure(claim["limit"], claim["unit"])
        line += f", {claim['share']:.0%} of the limit {md(limit)}"
    return f"{line} · {md(place)}"
