"""A figure drawn from a recording is the one that was drawn live, value by value and
color by color.

The cells' code comes from the lessons. The values are made up: a trap is in the order
of keys, not in the numbers.
"""

import ast
import json
from dataclasses import dataclass, field

import nbformat
import numpy
import pytest
import torch

from tests.conftest import ROOT
from utils import claim, grammar, plots, provenance


@dataclass(frozen=True)
class Row:
    """lesson: start of its file's name. figure: id of the cell that draws. result: name
    that it reads. value: made up, in the order in which the lesson makes it. functions:
    ids of cells whose functions the figure uses. names: what else the cells expect to
    find.
    """

    lesson: str
    figure: str
    result: str
    value: dict
    functions: tuple = ()
    names: dict = field(default_factory=dict)


FEEDING = {
    "pageable, blocking": 0.5,
    "pageable, non_blocking": 0.49,
    "pinned, blocking": 0.3,
    "pinned, non_blocking": 0.28,
    "pinned, prefetcher": 0.2,
    "no copy": 0.1,
}
FAULTS = {
    "as it came": 0.05,
    "data mended": 0.03,
    "and loss": 0.02,
    "and features": 0.0014,
}
MODES = {
    "eager": {"first": 1.0, "median": 0.0008},
    "default": {"first": 9.0, "median": 0.0005},
    "reduce-overhead": {"first": 12.0, "median": 0.0002},
    "max-autotune-no-cudagraphs": {"first": 30.0, "median": 0.0006},
    "max-autotune": {"first": 33.0, "median": 0.0003},
}
ROWS = [
    Row("06", "feeding-figure", "data_feeding", FEEDING),
    Row(
        "09",
        "gain-gpu-figure",
        "profiling_faults",
        FAULTS,
        ("gain-figure",),
        {"VERSIONS": dict.fromkeys(FAULTS)},
    ),
    Row("10", "modes-figure", "compile_modes", MODES),
]


def sources(lesson):
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


def functions_of(source):
    """The code of a cell without all that is neither an import nor a function or class."""
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    tree = ast.parse(source)
    return ast.unparse(
        ast.Module([node for node in tree.body if isinstance(node, kinds)], [])
    )


def drawn(row, value, monkeypatch):
    """What the cell shows for `value`: text alternative, texts, rows, bars and lines of
    its panel, as plain values.
    """
    shown = []
    monkeypatch.setattr(plots, "show", lambda fig, alt: shown.append((fig, alt)))
    origin = provenance.Provenance("A made-up GPU", False, "2026-11-20", {})
    monkeypatch.setitem(provenance.results, row.result, origin)
    source = sources(row.lesson)
    names = {
        "torch": torch,
        "np": numpy,
        "plots": plots,
        "claim": claim,
        **row.names,
        row.result: value,
    }
    for cell in row.functions:
        exec(functions_of(source[cell]), names)
    assert grammar.header(source[row.figure]).word == f"result:{row.result}"
    exec(grammar.body(source[row.figure]), names)
    ((fig, alt),) = shown
    fig.draw_without_rendering()
    (ax,) = fig.axes
    rows = {
        round(at): label.get_text()
        for at, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True)
    }
    return {
        "texts": [alt, *(text.get_text() for text in fig.texts)],
        "labels": [
            text.get_text()
            for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts)
        ],
        "rows": rows,
        "bars": {
            rows[round(bar.get_y() + bar.get_height() / 2)]: _bar(bar)
            for bar in ax.patches
        },
        "lines": [(line.get_xydata().tolist(), line.get_color()) for line in ax.lines],
    }


def _bar(bar):
    return float(bar.get_x()), float(bar.get_width()), bar.get_facecolor()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.lesson} {row.figure}")
def test_a_figure_from_a_recording_is_the_one_drawn_live_in_any_order_of_keys(
    row, monkeypatch
):
    live = drawn(row, row.value, monkeypatch)
    assert set(live["bars"]) == set(row.value) and len(live["texts"]) == 3
    assert drawn(row, provenance.as_json(row.result, row.value), monkeypatch) == live
    other = json.loads(json.dumps(row.value, sort_keys=True))
    assert list(other) != list(row.value)
    sorted_keys = drawn(row, other, monkeypatch)
    assert (sorted_keys["texts"], sorted_keys["bars"]) == (live["texts"], live["bars"])
