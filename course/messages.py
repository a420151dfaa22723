"""How the course talks to the reader from a cell: one clear line, never a wall of
traceback.
"""

import html
import os
import re
import sys

from device_lab import LabError

BADGES = {  # state of a conditional cell → the words that its note begins with
    "live": "LIVE",
    "replayed": "RECORDED",
    "emulated": "EMULATED",
    "published": "PUBLISHED",
    "unavailable": "NOT RUN HERE",
    "waiting": "NOT RUN HERE",
}
NOT_LIVE = set(BADGES) - {"live"}  # states of a cell that did not run on this machine
FRAME = (
    "border: 1px solid; border-radius: 3px; padding: 0 0.35em; font-size: 80%;"
    " white-space: nowrap"
)
LOUD = "border-left: 3px solid #999; padding-left: 0.7em; opacity: 0.85"
QUIET = "font-size: 85%; opacity: 0.75; line-height: 1.3"


def strict() -> bool:
    """Whether missed claims raise (LAB_STRICT=1: tests and recording) or are
    information (a reader's machine).
    """
    return os.environ.get("LAB_STRICT") == "1"


def untimed() -> bool:
    """Whether no time is judged in this run (LAB_UNTIMED=1, tests): few samples do, and
    timed claims say nothing.
    """
    return os.environ.get("LAB_UNTIMED") == "1"


def finding(
    text: str,
    error: type[LabError] = LabError,
    state: str = "finding",
    **facts: object,
) -> None:
    """Something is otherwise than announced: raise `error` with LAB_STRICT=1, else say
    so in one line and go on.

    text: what was announced and what was found. PyTorch changes its words every few
    months; for a reader that is news, not the end of the lesson. state, facts: as for
    `note`.
    """
    if strict():
        raise error(text)
    note(text, state, **facts)


def in_html(text: str) -> str:
    """A text of the course as safe HTML: what stands in `…` is code."""
    return re.sub(r"`(.+?)`", r"<code>\1</code>", html.escape(text))


def note(
    text: str, state: str | None = None, rich: str | None = None, **facts: object
) -> None:
    """Show `text` as a quiet line between outputs.

    text: in plain words
    state: what happened to the cell: one of BADGES (conditional cells), "finding",
        "missed" or "unjudged" (claims)
    rich: the same as safe HTML, if plain text is not enough
    facts: what else the metadata of the output hold for those who read it as data
    """
    badge = BADGES.get(state)
    body = rich or in_html(text).replace("\n", "<br>")
    if badge:
        body = f'<b style="{FRAME}">{badge}</b> {body}'
    style = QUIET if state in ("live", "unavailable", "waiting") else LOUD
    page = f'<div style="{style}">{body}</div>'
    say(f"{badge} · {text}" if badge else text, state, page, **facts)


def say(
    text: str, state: str | None = None, page: str | None = None, **facts: object
) -> None:
    """Show a line, perhaps with the same as HTML; printed outside a notebook. state,
    facts: as for `note`; tests, recorder and site read them in the output's metadata.
    """
    if "IPython" not in sys.modules or sys.modules["IPython"].get_ipython() is None:
        print(text)
        return
    from IPython.display import display

    data = {"text/plain": text, **({"text/html": page} if page else {})}
    about = {"device_lab": {"state": state, **facts}} if state else {}
    display(data, raw=True, metadata=about)


def facts_of(output: dict) -> dict:
    """What the course keeps in the metadata of an output: state and facts of `say`."""
    return output.get("metadata", {}).get("device_lab", {})


def state_of(output: dict) -> str | None:
    """The state of an output, as `note` has it, or None."""
    return facts_of(output).get("state")


def picture(png: str, alt: str) -> None:
    """Show a PNG (base64 text) with its text alternative, in each form that a front end
    or a stored page may use.
    """
    from IPython.display import display

    display(picture_data(png, alt), raw=True, metadata={"image/png": {"alt": alt}})


def picture_data(png: str, alt: str) -> dict[str, str]:
    """The forms of a picture by media type. As HTML because JupyterLab gives a plain
    PNG no text alternative.
    """
    image = (
        f'<img src="data:image/png;base64,{png}" alt="{html.escape(alt, quote=True)}"'
        ' style="max-width: 100%">'
    )
    return {"image/png": png, "text/html": image, "text/plain": alt}
