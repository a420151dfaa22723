"""Buttons and sliders, and what is shown where there are none."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from course.messages import strict

if TYPE_CHECKING:  # importing it takes longer than the rest of utils
    import ipywidgets

VIEW = "application/vnd.jupyter.widget-view+json"


def on_page() -> bool:
    """Whether a page with widgets may show what this cell displays; not where it is
    stored (LAB_STRICT=1).
    """
    from IPython import get_ipython

    has_page = hasattr(get_ipython(), "kernel")
    return has_page and not strict() and find_spec("ipywidgets") is not None


def show(
    box: "ipywidgets.Box", data: dict[str, str], metadata: dict | None = None
) -> None:
    """Display a box of widgets, with other forms by media type for pages that have no
    widgets, or no longer its kernel.

    data: without "text/html", which some front ends would show in place of the widgets
    """
    from IPython.display import display

    # which of several forms Colab shows is not documented
    if "COLAB_RELEASE_TAG" in os.environ:
        return display(box)
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    display({VIEW: view, **data}, raw=True, metadata=metadata or {})
