"""Pages of the website that say what is known, and from where: evidence, status of the
tests, index of errors.

    pages() -> {"docs/evidence.md": …, "docs/status.md": …, "docs/errors.md": …}

Nothing on them is typed. Claims and conditional cells are read from the lessons' code;
figures and messages from their stored outputs, from notebooks/recorded/ (`make record`)
and from build/status/ (tools/lessons/status.py, `make test`). Links lead to cells:
../notebooks/NN_name.ipynb#CELL-ID.
"""

from collections import Counter

from course import recordings
from course.claims import figure, promised
from tools.site.claims import measured_claims
from tools.site.course import ROOT, code, md, read_lessons, read_status, table
from tools.site.errors import errors
from tools.site.status import status_page


def pages(root=ROOT):
    """The texts of the three pages by their path."""
    lessons, status = read_lessons(root), read_status(root)
    published = recordings.load_published(
        root / "notebooks" / "recorded" / "published.json"
    )
    return {
        "docs/evidence.md": evidence(lessons, status, published),
        "docs/status.md": status_page(lessons, status),
        "docs/errors.md": errors(lessons, root),
    }


# --------------------------------------------------------------------------------------
# Conditional cells


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


# --------------------------------------------------------------------------------------
# The page


def evidence(lessons, status, published):
    """The evidence page."""
    parts, claims, cells = [], [], []
    for lesson in lessons:
        found = measured_claims(lesson, status)
        shows = [(cell, *shown_for(cell, published)) for cell in lesson.conditional]
        parts.append(f"## {lesson.stem[:2]} · {md(lesson.title)}\n")
        if found:
            head = "1 claim" if len(found) == 1 else f"{len(found)} claims"
            rows = [_claim_row(claim, lesson) for claim in found]
            parts.append(table([head, "figure"], rows))
        if shows:
            many = f"{len(shows)} cells that need"
            head = f"{'1 cell that needs' if len(shows) == 1 else many} hardware"
            rows = [_cell_row(cell, text, lesson) for cell, _, text in shows]
            parts.append(table([head, "shown without it"], rows))
        if not found and not shows:
            parts.append("No claim, and no cell that needs hardware.\n")
        claims += found
        cells += shows
    introduction = (
        "A claim has a bound, sometimes also a physical limit, above which a figure"
        " would be a mistake of the measurement. “Stored here” is what you see in the"
        " lesson on this site. In ‹ › stands code: the cell computes it. What none of"
        " our machines can measure is said to be open. If yours can, [send a"
        " recording](contributing/recording.md).\n"
    )
    return "\n".join(
        [
            "---\nnosearch: true\n---\n",
            "# Evidence\n",
            "What the lessons claim, and what has been measured for it. This page is"
            " made from the cells of the lessons, from their stored outputs, from"
            " recordings and from the last test run: no figure is typed.\n",
            f"**{gpu_sentence(lessons)}**\n",
            _claims_in_short(claims),
            _cells_in_short(cells),
            introduction,
            *parts,
        ]
    )


def _claims_in_short(claims):
    """The table that counts claims."""
    words = {
        "measured": "measured on a device that is named",
        "computed": "computed, simulated, or checked on figures of others: no device of"
        " ours measured",
        "emulated": "not about time, seen to hold on the emulated CUDA device only",
        "open": "not measured yet",
        "refused": "false on purpose, to show that it is refused",
    }
    kinds = Counter(claim.kind for claim in claims)
    rows = [(kinds[kind], text) for kind, text in words.items()]
    return table([f"{len(claims)} claims", "best that is known"], rows)


def _cells_in_short(cells):
    """The table that counts conditional cells. cells: (cell, kind, text) of each."""
    on = Counter()
    for cell, _, _ in cells:
        origins = [kept.origin for kept in cell.recorded]
        on.update({origin.device for origin in origins if not origin.emulated})
    devices = "; ".join(f"{device} ({count})" for device, count in on.most_common())
    words = {
        "recorded": f"RECORDED on a device that is named: {devices or 'none'}",
        "emulated": "EMULATED: PyTorch's own CUDA code on a device without a GPU; only"
        " cells whose point is no time",
        "published": "PUBLISHED by others, and not measured here",
        "nothing": "nothing yet",
    }
    kinds = Counter(kind for _, kind, _ in cells)
    rows = [(kinds[kind], text) for kind, text in words.items()]
    head = f"{len(cells)} cells that need hardware"
    return table([head, "what is shown without it"], rows)


def _cell_row(cell, text, lesson):
    name = f"[{code(cell.header.name)}]({lesson.link(cell.id)})"
    return [f"{name}<br>needs {lesson.needs(cell)}", text]


def _claim_row(claim, lesson):
    texts, bounds = set(), set()
    for found in claim.figures:
        texts.add(found.told["text"])
        limit = found.told.get("limit")
        end = "" if limit is None else f"; limit {figure(limit, found.told['unit'])}"
        bounds.add(promised(found.told) + end)
    sentence = texts.pop() if len(texts) == 1 else claim.sentence
    announced = bounds.pop() if len(bounds) == 1 else claim.promised
    lines = []
    if claim.refused:
        lines.append("false on purpose: the lesson shows that it is refused")
    if claim.kind in ("open", "emulated"):
        needs = lesson.needs(claim.cell)
        lines.append(f"not measured yet{f': needs {needs}' if needs else ''}")
    # what differs between the figures stands with each of them
    lines += [_figure_line(found, texts, bounds) for found in claim.figures]
    if announced and announced != "true":
        announced = f"<br>promised: {md(announced)}"
    else:
        announced = ""
    link = f"[{md(sentence)}]({lesson.link(claim.cell.id)})"
    return [link + announced, "<br>".join(lines)]


def _figure_line(found, with_text, with_bounds):
    line = f"**{md(found.value)}**"
    if not found.told["holds"]:
        line += " ✗ missed"
    if with_text:
        line = f"{md(found.told['text'])}: {line}"
    if with_bounds and promised(found.told):
        line += f" (promised {md(promised(found.told))})"
    if "share" in found.told:
        line += f", {found.told['share']:.0%} of the limit"
    return f"{line} · {md(found.place + found.note)}"
