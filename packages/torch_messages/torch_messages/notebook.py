"""Without pasting: what the last error means, in a notebook or in a plain Python, and a
line below each traceback of a notebook.

    %load_ext torch_messages
"""

import re
import sys
import traceback

from torch_messages.lookup import look_up
from torch_messages.match import look

MOST = 20_000  # characters of an error, from its beginning and from its end
WIDTH = 100  # of the line below a traceback
HEAD, TAIL, SHORT_TAIL = "torch_messages: ", " · {}() says what helps", " · {}()"


def explain(error: BaseException | None = None) -> None:
    """Print what is known about the last error that was shown, or is being handled.

    error: an exception, in its place
    """
    error = last() if error is None else error
    if error is None:
        print("There has been no error here since Python started.")
    elif isinstance(error, BaseException):
        look_up(text_of(error))
    else:
        raise TypeError("explain takes an exception; for a text there is look_up")


def last():
    """The exception that is being handled, or that Python or IPython has shown last."""
    # Python 3.12 sets both of these; IPython 7 the first alone
    shown = (getattr(sys, name, None) for name in ("last_value", "last_exc"))
    every = (sys.exc_info()[1], *shown)
    return next((error for error in every if error is not None), None)


def text_of(error):
    """An error as Python prints it, with its causes, notes and groups, and without
    frames but for the file of the last: that says whose it is.
    """
    shown = traceback.format_exception(type(error), error, error.__traceback__, 0)
    text = "".join(shown)
    if len(text) > 2 * MOST:
        text = f"{text[:MOST]}\n…\n{text[-MOST:]}"
    *_, last = (None, *traceback.walk_tb(error.__traceback__))
    if last is None:
        return text
    return f'  File "{last[0].f_code.co_filename}", line {last[1]}\n{text}'


# --------------------------------------------------------------------------------------
# %load_ext torch_messages


def load_ipython_extension(shell):
    """From now on a line stands below each traceback of an error that is known."""
    shell.events.register("post_run_cell", _below_traceback)


def unload_ipython_extension(shell):
    """From now on none does."""
    shell.events.unregister("post_run_cell", _below_traceback)
    if shell.user_ns.get("explain") is explain:
        del shell.user_ns["explain"]


def _below_traceback(result):
    try:
        error = result.error_before_exec or result.error_in_exec
        if isinstance(error, Exception) and (means := meaning(error)):
            print(line(means, _name()))
    except Exception:  # its own must not stand below the reader's
        pass


def _name():
    """How the reader calls explain, which is put there unless the name is taken."""
    names = sys.modules["IPython"].get_ipython().user_ns
    taken = names.setdefault("explain", explain) is not explain
    return "torch_messages.explain" if taken else "explain"


def meaning(error):
    """What an error means if its message is known word for word, "" else."""
    for first in look(text_of(error)).answers[:1]:
        if first.by == "message" and not first.near:
            return first.entry.means
    return ""


def line(means, name="explain"):
    """The line below a traceback."""
    tail = TAIL.format(name)
    room = WIDTH - len(HEAD) - len(tail)
    if len(means) > room and not _ends(means, r"\.", room):
        tail = SHORT_TAIL.format(name)
        room = WIDTH - len(HEAD) - len(tail)
    return HEAD + shortened(means, room) + tail


def shortened(text, most):
    """A text without its last sentences, or parts, or words, so that it fits."""
    if len(text) <= most:
        return text
    if ends := _ends(text, r"\.", most):
        return text[: ends[-1] + 1]
    ends = _ends(text, "[,;:]", most - 2) or _ends(text, "", most - 2)
    return text[: ends[-1]] + " …"


def _ends(text, mark, most):
    """Where a mark before a space stands in a text, not behind `most` characters."""
    return [found.start() for found in re.finditer(rf"{mark} ", text[: most + 1])]
