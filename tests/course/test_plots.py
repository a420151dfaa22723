"""Figures and explorers, as a notebook shows them."""

import base64
import io

import numpy as np
import PIL.Image
import pytest

from course import plots
from tests.conftest import text_of

FIGURE = """
fig, ax = plots.figure("A finding", "cpu", xlabel="size (bytes)", ylabel="rate (GB/s)")
ax.plot([1, 2])
plots.show(fig, alt="A line that rises.")
"""
EXPLORER = """
import ipywidgets
def draw(height, color):
    title, about = f"height {height}", "a model, no device measured"
    fig, ax = plots.figure(title, about=about, xlabel="x (s)", ylabel="y (s)")
    ax.bar([0], [height], color=color)
    return fig, "A bar & <more>."
slider = ipywidgets.IntSlider(3, 1, 9)
plots.explorer(draw, height=slider, color=ipywidgets.Dropdown(options=["red", "blue"]))
"""
MOVED = """
import gc
slider.value = 7
pictures = [o for o in gc.get_objects() if isinstance(o, ipywidgets.HTML)]
print(pictures[0].value[-110:])
"""
WIDGET = "application/vnd.jupyter.widget-view+json"


def empty(**options):
    """A figure without titles; options as for plots.figure."""
    return plots.figure("A", about="a simulation", xlabel="", ylabel="", **options)


def test_figure_has_alt_text_and_is_small(run):
    (cell,) = run(FIGURE)
    (output,) = cell.outputs
    assert output.data["text/plain"] == "A line that rises. A finding."
    assert output.metadata["image/png"]["alt"] == "A line that rises. A finding."
    assert 1000 < len(base64.b64decode(output.data["image/png"])) < 60_000


@pytest.mark.slow
def test_explorer_leaves_a_picture_and_redraws(run):
    count = "print(pictures[0].value.count('data:image/png'))"
    # in a kernel of its own: other tests leave widgets
    cell, moved, counted = run(EXPLORER, MOVED, count, alone=True)
    (output,) = cell.outputs
    assert {"image/png", "text/plain", WIDGET} <= set(output.data)
    assert output.data["text/plain"] == "A bar & <more>. height 3."
    assert 'alt="A bar &amp; &lt;more&gt;. height 7."' in text_of(moved)
    assert text_of(counted).strip() == "1"


def red_bars(length):
    """How many red bars are seen of 20 of this length, one each 2 units."""
    fig, ax = empty()
    bars = [("gpu", 2 * n + 1, 2 * n + 1 + length, "", "#FF0000") for n in range(20)]
    plots.gantt(ax, bars)
    ax.set_xlim(0, 41)
    png = io.BytesIO(base64.b64decode(plots._png(fig)))
    image = np.asarray(PIL.Image.open(png).convert("RGB")).astype(int)
    middle = image[image.shape[0] // 2]
    red = (middle[:, 0] > 200) & (middle[:, 1] < 200)
    return int((red[1:] & ~red[:-1]).sum())


def test_a_bar_narrower_than_a_pixel_is_seen():
    """20 kernels of 48 µs, one each 2 ms: white edges would cover them."""
    assert red_bars(0.048) == red_bars(0.0) == 20


@pytest.mark.parametrize(
    ("ends", "base", "labels"),
    [
        ((0.4, 30), 10, ["0.5", "1", "2", "5", "10", "20"]),
        ((1500, 6000), 10, ["1,500", "2,000", "3,000", "5,000"]),
        ((1, 1e6), 10, None),  # powers of ten
        ((1, 64), 2, None),
    ],
)
def test_a_logarithmic_axis_has_plain_numbers_where_it_is_short(ends, base, labels):
    fig, ax = empty()
    ax.set_xscale("log", base=base)
    ax.set_xlim(ends)
    ax.set_yscale("log")
    ax.set_yticks([3, 7], ["three", "seven"])
    plots._png(fig)
    ticks = zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
    shown = [label.get_text() for label, x in ticks if ends[0] <= x <= ends[1]]
    if labels:
        assert shown == labels
    else:
        assert all("^{" in text for text in shown)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["three", "seven"]
