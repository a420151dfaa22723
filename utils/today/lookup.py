"""Looking up the rows of lesson 16 by words, group and verdict."""

import textwrap

from utils import plots
from utils.messages import pytorch
from utils.today import pasted
from utils.today.row import rows

MOST = 10  # rows of a list
seen = {}  # slug → what the old part of its row said when it was run here


def search(text="", group="", verdict=""):
    """Rows that `text` leads to, best first, with this group and verdict ("": any).

    text: a whole message or traceback, a name, a listing: the rows that
        `pasted.like` knows it by; or words: the rows whose name, code, cause or
        message holds each of them
    """
    words = text.lower().split()
    known = pasted.like(rows(), text, text) if words else []
    others = [
        row
        for row in rows().values()
        if row not in known and all(word in _whole(row) for word in words)
    ]
    return [
        row
        for row in known + others
        if group in ("", row.group) and verdict in ("", row.here().word)
    ]


def _whole(row):
    said = seen.get(row.slug, "")
    texts = [row.slug, row.old, row.new, row.because, said, *row.patterns()]
    return "\n".join(texts).replace("\\", "").lower()


def find(text: str, group: str = "", verdict: str = "") -> None:
    """Print the rows that `search` finds, the first three with their code, and the
    lessons that explain `text`.
    """
    for line in [*_listed(search(text, group, verdict), 3), *pasted.elsewhere(text)]:
        print(line)


def table(text="", group="", verdict=""):
    """A figure of the rows that `search` finds; of one or two also the code. Returns
    (figure, alt).
    """
    found = search(text, group, verdict)
    title, *lines = _listed(found, 2 if len(found) <= 2 else 0)
    fig, ax = plots.figure(
        title, about=pytorch(), xlabel="", ylabel="", size=(8.4, 3.4)
    )
    ax.set_axis_off()
    ax.text(
        -0.07,
        1,
        "\n".join(lines),
        va="top",
        transform=ax.transAxes,
        fontsize=8,
        linespacing=1.6,
        family="monospace",
    )
    names = ", ".join(row.slug for row in found[:MOST]) or "none"
    return fig, f"A table of rows of this lesson. {title}: {names}."


def _listed(found, with_code):
    """Lines on rows: how many, then of each its name, its verdict and its message or
    its cause. with_code: of how many the code follows.
    """
    shown = f", the first {MOST} shown" if len(found) > MOST else ""
    yield f"{len(found)} of {len(rows())} rows{shown}"
    for n, row in enumerate(found[:MOST]):
        told = first_line(seen.get(row.slug) or row.because, 74)
        yield f"{row.slug:30}{row.here().word:8}{told}"
        if n < with_code:
            yield textwrap.indent(f"{row.old}\n# ---- today\n{row.new}\n", "    ")


def first_line(text, most=300):
    """The first line of a text, at most so many characters of it."""
    first = textwrap.shorten(text.split("\n", 1)[0], most, placeholder=" …")
    return first or "(nothing)"
