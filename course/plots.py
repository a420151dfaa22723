"""Figures in one style: the finding as title, the device named, a text alternative; and
the explorers' frame.
"""

import base64
import gc
import html
import io
import itertools
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from course import provenance, widgets
from course.messages import picture, picture_data
from course.paths import COURSE
from course.provenance import Provenance, origin
from device_lab import LabError

if TYPE_CHECKING:  # importing them takes longer than the rest of utils
    import ipywidgets
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Okabe & Ito (2008), "Color Universal Design": eight colors that color-blind readers
# tell apart.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
PURPLE, SKY, GRAY = "#CC79A7", "#56B4E9", "#7F7F7F"
COLORS = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GRAY]  # of curves, in order

DIAGRAMS = COURSE / "notebooks" / "diagrams"

STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.title_fontsize": 8,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}


def figure(
    finding: str,
    where: str | torch.device | Provenance | None = None,
    *,
    about: str | None = None,
    xlabel: str,
    ylabel: str,
    panels: int = 1,
    size: tuple[float, float] = (7.2, 3.8),
    left: float = 0.75,
    titles: Sequence[str] = (),
) -> "tuple[Figure, Axes | list[Axes]]":
    """A figure whose title states `finding` and names the device. Returns (figure,
    axes).

    where: the name of a result, a device type or a Provenance; by default the result
        that the cell's header names, or this CPU
    about: text in its place, where no device was measured
    xlabel, ylabel: with units
    panels: number of axes side by side (then axes is a list)
    size: of the figure, in inches
    left: inches kept free for labels, such as long names of rows
    titles: one for each panel

    When the figure is shown, axes with labeled curves get a legend, unless it has one,
    and logarithmic ones to base 10 get plain numbers, unless their ticks are set.
    """
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({**STYLE, "axes.prop_cycle": cycler(color=COLORS)})
    fig = Figure(figsize=size, label=finding)
    margins = _margins(size, left, top=0.85 if titles else 0.6)
    axes = list(fig.subplots(1, panels, squeeze=False, gridspec_kw=margins)[0])
    for ax in axes:
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
    for ax, title in zip(axes, titles, strict=False):
        ax.set_title(title, fontsize=9)
    text = textwrap.shorten(str(about or origin(where)), 110, placeholder=" …")
    _headline(fig, 0.08, finding, fontsize=11, fontweight="bold")
    _headline(fig, 0.32, text, fontsize=8.5, color="#555555")
    return fig, (axes[0] if panels == 1 else axes)


def _margins(size, left, top):
    """Fixed ones, in inches: a layout engine takes longer than the drawing."""
    width, height = size
    return {
        "left": left / width,
        "right": 1 - 0.12 / width,
        "bottom": 0.52 / height,
        "top": 1 - top / height,
        "wspace": 0.25,
    }


def _headline(fig, down, text, **style):
    """Text at the left edge. down: inches below the upper one."""
    width, height = fig.get_size_inches()
    fig.text(0.08 / width, 1 - down / height, text, va="top", **style)


def show(fig: "Figure", alt: str) -> None:
    """Display `fig` as a PNG. alt: what it shows, in a sentence; the text alternative
    is that and the finding.
    """
    picture(_png(fig), _alternative(fig, alt))


def _alternative(fig, alt):
    finding = fig.get_label()
    if finding in alt:
        return alt
    return f"{alt} {finding}" if finding[-1:] in ".!?" else f"{alt} {finding}."


def _finish(fig):
    own = any(ax.get_legend() for ax in fig.axes)
    for ax in fig.axes:
        for axis in (ax.xaxis, ax.yaxis):
            _plain_ticks(axis)
        ax.minorticks_off()  # on logarithmic axes they take as long as all the rest
        if not own and ax.get_legend_handles_labels()[1]:
            ax.legend()


def _plain_ticks(axis):
    """1, 2, 5, 10 … instead of powers, where a logarithmic axis spans few powers of
    ten.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axis.get_view_interval()
    if axis.get_scale() != "log" or axis.get_transform().base != 10:
        return
    if not axis.isDefault_majloc or high > 3e3 * low:
        return
    steps = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5)
    axis.set_major_locator(LogLocator(subs=steps, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))


def _png(fig):
    from PIL import Image  # Matplotlib draws its PNGs with it

    _finish(fig)
    drawn, small = io.BytesIO(), io.BytesIO()
    fig.savefig(drawn, format="png", dpi=100)
    # opaque, so without the fourth channel: a seventh less, and the same picture
    Image.open(drawn).convert("RGB").save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def diagram(name: str) -> None:
    """Show the drawing notebooks/diagrams/NAME.svg. Its title and description are the
    text alternative.
    """
    from IPython.display import display

    names = sorted(path.stem for path in DIAGRAMS.glob("*.svg"))
    if name not in names:
        raise LabError(
            f"There is no diagram {name!r}; there are: {', '.join(names) or 'none'}."
        )
    display(
        _diagram_data((DIAGRAMS / f"{name}.svg").read_text(encoding="utf-8")), raw=True
    )


def _diagram_data(svg):
    """The forms of a drawing by media type. As HTML, too, because JupyterLab shows an
    SVG only in a trusted notebook, and without its text alternative.
    """
    from xml.etree import ElementTree

    root = ElementTree.fromstring(svg)
    finding, description = (
        root.findtext(f"{{*}}{part}", "").strip() for part in ("title", "desc")
    )
    alt = f"{finding}. {description}"
    data = base64.b64encode(svg.encode()).decode()
    image = (
        f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(alt)}"'
        ' style="max-width: 100%">'
    )
    return {"image/svg+xml": svg, "text/html": image, "text/plain": alt}


def size_axis(axis: "Axis") -> None:
    """Label a logarithmic axis of byte counts as 1 KiB, 1 MiB, 1 GiB. axis: ax.xaxis or
    ax.yaxis.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis.set_major_locator(LogLocator(base=2, subs=[1], numticks=6))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))


def size_text(count: float) -> str:
    """A byte count in binary units: 512 → "512 B", 4096 → "4 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024


# --------------------------------------------------------------------------------------
# Explorers


def explorer(draw: Callable, **controls: "ipywidgets.ValueWidget") -> None:
    """Show `draw(**values)` with a control for each keyword, and redraw it when one is
    moved.

    draw: function of the controls' values that returns (figure, alt), or (HTML, alt).
    controls: ipywidgets with a value; a keyword's control gets the keyword as
    description unless it has one. The stored output is the first picture, or `alt`.
    """
    import ipywidgets

    for name, control in controls.items():
        control.description = control.description or name
        control.style.description_width = "11em"
        control.layout.width = control.layout.width or "36em"
    names, first = list(provenance.running), _draw(draw, controls)
    # the number shows that it was drawn, also where the picture stays the same
    image = ipywidgets.HTML(first["text/html"] + "<!-- drawing 1 -->")
    count = itertools.count(2)

    def redraw(change):
        with provenance.running_again(names):
            drawn = _draw(draw, controls)["text/html"]
        image.value = f"{drawn}<!-- drawing {next(count)} -->"

    # now, so that Python does not do it in the middle of one of the first redraws
    gc.collect()
    for control in controls.values():
        control.observe(redraw, "value")
    box = ipywidgets.VBox([*controls.values(), image])
    box.add_class("device-lab-explorer")
    data = {form: first[form] for form in ("image/png", "text/plain") if form in first}
    widgets.show(box, data, {"image/png": {"alt": first["text/plain"]}})


def _draw(draw, controls):
    fig, alt = draw(**{name: control.value for name, control in controls.items()})
    if isinstance(fig, str):
        return {"text/html": fig, "text/plain": alt}
    return picture_data(_png(fig), _alternative(fig, alt))


def stacked(
    ax: "Axes",
    rows: dict[str, Sequence[float]],
    parts: dict[str, str],
    upright: bool = False,
) -> list[float]:
    """Draw a bar for each row on `ax`, put together from its parts. Returns the lengths
    of the bars.

    rows: name → values of its parts, in the unit of the axis
    parts: name → color, in the same order
    upright: the bars stand side by side instead of lying, the first on top
    """
    names, ends = list(rows), [0.0] * len(rows)
    for (part, color), values in zip(
        parts.items(), zip(*rows.values(), strict=True), strict=True
    ):
        if upright:
            ax.bar(names, values, bottom=ends, width=0.6, color=color, label=part)
        else:
            ax.barh(names, values, left=ends, height=0.6, color=color, label=part)
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    if not upright:
        ax.invert_yaxis()
    ax.grid(axis="x" if upright else "y", visible=False)
    return ends


def gantt(ax: "Axes", bars: Sequence[tuple[str, float, float, str, str]]) -> None:
    """Draw a timeline on `ax`, first row on top.

    bars: (row, start, end, text, color) each, in ms; rows appear in the order of their
    first bar. A text that its bar has no room for is left out. White lines part the
    bars. A bar that is shorter than 0.5% of the whole has a line of its own color
    instead, about a pixel wide: a white one would cover it.
    """
    rows = list(dict.fromkeys(bar[0] for bar in bars))
    whole = max((bar[2] for bar in bars), default=0)
    inches = ax.get_position().width * ax.figure.get_figwidth()
    for row, start, end, text, color in bars:
        at, length = rows.index(row), end - start
        edge, width = ("white", 0.4) if length >= 0.005 * whole else (color, 0.8)
        style = {"color": color, "edgecolor": edge, "linewidth": width}
        ax.barh(at, length, left=start, height=0.7, **style)
        # 0.06: inches that a character of this size needs
        if 0.06 * len(text) * whole <= inches * length:
            place = {"ha": "center", "va": "center", "clip_on": True}
            ax.text((start + end) / 2, at, text, fontsize=8, **place)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlim(left=0)
    ax.set_axisbelow(True)
    ax.set_xlabel("time (ms)")
    ax.grid(axis="y", visible=False)
