"""Figures and explorers, as a notebook shows them."""

import base64
import io
import re

import numpy as np
import PIL.Image
import pytest

from tests.conftest import text_of
from utils import plots

FIGURE = (
    "fig, ax = plots.figure('A finding', {where!r}, xlabel='size (bytes)',"
    " ylabel='bandwidth (GB/s)')\nax.plot([1, 2])\nplots.show(fig, alt='A line that"
    " rises.')"
)
EXPLORER = """
import ipywidgets
def draw(height, color):
    fig, ax = plots.figure(f"height {height}", about="a model, no device measured", xlabel="x (s)", ylabel="y (s)")
    ax.bar([0], [height], color=color)
    return fig, "A bar & <more>."
slider = ipywidgets.IntSlider(3, 1, 9)
plots.explorer(draw, height=slider, color=ipywidgets.Dropdown(options=["red", "blue"]))
"""


def test_figure_has_alt_text_and_is_small(run):
    (cell,) = run(FIGURE.format(where="cpu"))
    (output,) = cell.outputs
    assert (
        output.data["text/plain"]
        == output.metadata["image/png"]["alt"]
        == "A line that rises. A finding."
    )
    assert 1000 < len(base64.b64decode(output.data["image/png"])) < 60_000


def test_figure_names_the_device_and_the_finding():
    fig, ax = plots.figure("A finding", "cpu", xlabel="x (s)", ylabel="y (s)")
    texts = [text.get_text().strip() for text in fig.texts]
    assert "A finding" in texts and any("this machine" in text for text in texts)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x (s)", "y (s)")
    assert len(plots.figure("A", "cpu", xlabel="", ylabel="", panels=3)[1]) == 3


def test_explorer_leaves_a_picture_and_redraws(run):
    cell, moved, other = run(
        EXPLORER,
        "slider.value = 7\nimport gc\npictures = [o for o in gc.get_objects() if"
        " isinstance(o, ipywidgets.HTML)]\nprint(pictures[0].value[-110:])",
        "print(pictures[0].value.count('data:image/png'))",
        alone=True,  # other tests leave widgets
    )
    (output,) = cell.outputs
    assert {
        "image/png",
        "text/plain",
        "application/vnd.jupyter.widget-view+json",
    } <= set(output.data)
    assert output.data["text/plain"] == "A bar & <more>. height 3."
    assert (
        'alt="A bar &amp; &lt;more&gt;. height 7."' in text_of(moved)
        and text_of(other).strip() == "1"
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(512, "512 B"), (4096, "4 KiB"), (3 * 2**20, "3 MiB"), (2**31, "2 GiB")],
)
def test_size_text(count, text):
    assert plots.size_text(count) == text


def test_colors_are_the_published_ones():
    colors = [
        plots.BLUE,
        plots.ORANGE,
        plots.GREEN,
        plots.VERMILION,
        plots.PURPLE,
        plots.SKY,
        plots.GRAY,
    ]
    assert len(set(colors)) == 7 and all(
        re.fullmatch("#[0-9A-F]{6}", color) for color in colors
    )


def test_gantt_has_rows_in_order_and_bars_where_they_belong():
    fig, ax = plots.figure("Two engines", about="a simulator", xlabel="", ylabel="")
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
    fig, ax = plots.figure("One row", about="a simulator", xlabel="", ylabel="")
    plots.gantt(
        ax, [("gpu", 0, 9, "matmul", plots.BLUE), ("gpu", 9, 9.2, "matmul", plots.BLUE)]
    )
    assert len(ax.texts) == 1


def test_labeled_curves_get_a_legend_unless_the_figure_has_one():
    for title in ("", "mine"):
        fig, (left, right) = plots.figure(
            "Two", about="a simulator", xlabel="", ylabel="", panels=2
        )
        left.plot([1, 2], label="a curve")
        right.plot([1, 2], label="a curve" if title else "")
        if title:
            right.legend(title=title)
        plots._png(fig)
        assert [ax.get_legend() is not None for ax in (left, right)] == (
            [False, True] if title else [True, False]
        )


def test_a_bar_narrower_than_a_pixel_is_seen():
    """20 kernels of 48 µs, one each 2 ms: white edges would cover them."""
    pixels = []
    for length in (0.048, 0.0):
        fig, ax = plots.figure("Kernels", about="a simulator", xlabel="", ylabel="")
        plots.gantt(
            ax,
            [("gpu", 2 * n + 1, 2 * n + 1 + length, "", "#FF0000") for n in range(20)],
        )
        ax.set_xlim(0, 41)
        image = np.asarray(
            PIL.Image.open(io.BytesIO(base64.b64decode(plots._png(fig)))).convert("RGB")
        ).astype(int)
        middle = image[image.shape[0] // 2]
        red = (middle[:, 0] > 200) & (middle[:, 1] < 200)
        pixels.append(int((red[1:] & ~red[:-1]).sum()))
    assert pixels == [20, 20]


def test_panels_have_titles_and_rows_room_for_their_names():
    fig, axes = plots.figure(
        "Two",
        about="a simulation",
        xlabel="",
        ylabel="",
        panels=2,
        titles=("one", "other"),
        left=1.5,
    )
    assert [ax.get_title() for ax in axes] == ["one", "other"]
    assert axes[0].get_position().x0 * fig.get_size_inches()[0] == pytest.approx(1.5)


def test_stacked_parts_follow_each_other_and_the_lengths_come_back():
    fig, (lying, standing) = plots.figure(
        "Parts", about="a simulation", xlabel="", ylabel="", panels=2
    )
    rows, parts = (
        {"one": [1, 2.5], "two": [3, 0]},
        {"first": plots.BLUE, "second": plots.GREEN},
    )
    assert (
        plots.stacked(lying, rows, parts)
        == plots.stacked(standing, rows, parts, upright=True)
        == [3.5, 3]
    )
    assert [(bar.get_x(), bar.get_width()) for bar in lying.patches] == [
        (0, 1),
        (0, 3),
        (1, 2.5),
        (3, 0),
    ]
    assert [(bar.get_y(), bar.get_height()) for bar in standing.patches] == [
        (0, 1),
        (0, 3),
        (1, 2.5),
        (3, 0),
    ]
    assert lying.yaxis_inverted() and [
        text.get_text() for text in lying.get_yticklabels()
    ] == ["one", "two"]
    with pytest.raises(ValueError):
        plots.stacked(lying, {"one": [1]}, parts)


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
    fig, ax = plots.figure("Ticks", about="a simulation", xlabel="", ylabel="")
    ax.set_xscale("log", base=base)
    ax.set_xlim(ends)
    ax.set_yscale("log")
    ax.set_yticks([3, 7], ["three", "seven"])
    plots._png(fig)
    shown = [
        t.get_text()
        for t, x in zip(ax.get_xticklabels(), ax.get_xticks(), strict=True)
        if ends[0] <= x <= ends[1]
    ]
    assert shown == labels if labels else all("^{" in text for text in shown)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["three", "seven"]
