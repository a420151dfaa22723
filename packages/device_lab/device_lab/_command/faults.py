"""The script's own errors: their traceback without the frames of the watch, and behind
it what the message means, where torch_messages is installed.
"""

import os
import sys
import traceback
import types

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def explain_errors():
    """Until the process ends; costs nothing before."""
    shown = sys.excepthook

    def hook(kind, error, trace):
        _clean(error)
        shown(kind, error, error.__traceback__)
        first = os.environ.get("RANK", "0") == "0"
        if first and not issubclass(kind, KeyboardInterrupt):
            _meaning(kind, error)

    sys.excepthook = hook


def _clean(error):
    """Of this error, and of those that it came from."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without(trace):
    first = last = types.SimpleNamespace(tb_next=trace)
    while trace := last.tb_next:
        if trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            last.tb_next = trace.tb_next
        else:
            last = trace
    return first.tb_next


def _meaning(kind, error):
    """One line, if the table of messages knows this one."""
    try:
        import torch_messages
    except ImportError:
        return
    said = "".join(traceback.format_exception_only(kind, error))
    answers, _ = torch_messages.find(said)
    if answers and answers[0].by == "message" and not answers[0].near:
        print(f"device-lab: {answers[0].entry.means}", file=sys.stderr)
