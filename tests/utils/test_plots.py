"""Figures and explorers, as a notebook shows them."""

import base64
import io

import numpy as np
import PIL.Image
import pytest

from tests.conftest import text_of
from utils import plots

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


def test_figure_names_the_device_and_the_finding():
    fig, ax = plots.figure("A finding", "cpu", xlabel="x (s)", ylabel="y (s)")
    texts = [text.get_text().strip() for text in fig.texts]
    assert "A finding" in texts and any("this machine" in text for text in texts)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x (s)", "y (s)")


def test_explorer_leaves_a_picture_and_redraws(run):
    count = "print(pictures[0].value.count('data:image/png'))"
    # in a kernel of its own: other tests leave widgets
    cell, moved, counted = run(EXPLORER, MOVED, count, alone=True)
    (output,) = cell.outputs
    assert {"image/png", "text/plain", WIDGET} <= set(output.data)
    assert output.data["text/plain"] == "A bar & <more>. height 3."
    assert 'alt="A bar &amp; &lt;more&gt;. height 7."' in text_of(moved)
    assert text_of(counted).strip() == "1"


def test_size_text():
    sizes = (512, 4096, 3 * 2**20, 2**31)
    assert [plots.size_text(n) for n in sizes] == ["512 B", "4 KiB", "3 MiB", "2 GiB"]


def test_gantt_has_rows_in_order_and_bars_where_they_belong():
    fig, ax = empty()
    bars = [
        ("copy", 0, 2, "in 0", plots.BLUE),
        ("compute", 2, 5, "k 0", plots.GREEN),
        ("copy", 2, 4, "in 1", plots.BLUE),
    ]
    plots.gantt(ax, bars)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["copy", "compute"]
    assert [(p.get_x(), p.get_width()) for p in ax.patches] == [(0, 2), (2, 3), (2, 2)]
    assert ax.get_ylim()[0] > ax.get_ylim()[1] and ax.get_xlabel() == "time (ms)"


def test_a_text_is_left_out_where_its_bar_has_no_room():
    fig, ax = empty()
    long, short = (
        ("gpu", 0, 9, "matmul", "#0000FF"),
        ("gpu", 9, 9.2, "matmul", "#0000FF"),
    )
    plots.gantt(ax, [long, short])
    assert len(ax.texts) == 1


def test_labeled_curves_get_a_legend_unless_the_figure_has_one():
    fig, ax = empty()
    ax.plot([1, 2], label="a curve")
    plots._png(fig)
    assert ax.get_legend()
    fig, (left, right) = empty(panels=2)
    left.plot([1, 2], label="a curve")
    right.plot([1, 2], label="a curve")
    right.legend(title="mine")
    plots._png(fig)
    assert not left.get_legend() and right.get_legend()


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


def test_stacked_parts_follow_each_other_and_the_lengths_come_back():
    fig, (lying, standing) = empty(panels=2)
    rows = {"one": [1, 2.5], "two": [3, 0]}
    parts = {"first": plots.BLUE, "second": plots.GREEN}
    assert plots.stacked(lying, rows, parts) == [3.5, 3]
    assert plots.stacked(standing, rows, parts, upright=True) == [3.5, 3]
    expected = [(0, 1), (0, 3), (1, 2.5), (3, 0)]
    assert [(bar.get_x(), bar.get_width()) for bar in lying.patches] == expected
    assert [(bar.get_y(), bar.get_height()) for bar in standing.patches] == expected
    names = [text.get_text() for text in lying.get_yticklabels()]
    assert lying.yaxis_inverted() and names == ["one", "two"]


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
