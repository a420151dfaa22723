"""Conditional cells, and those that do not end.

A cell that begins with

    #| requires: WORD
    #| result: NAME

runs as it is when this machine has what WORD names, after a line that says so.
Otherwise the result recorded elsewhere is shown, and the variable NAME gets the
recorded value (with `name: NAME` it has a name, and no value). A cell is timeless if
its point is no time, rate, overlap or race: then a recording from the emulated CUDA
device will do. Where there is none, what others have published (course/recordings.py).
It is an input transformer, not a nested run: errors show one traceback with the right
line, and `await` and line magics work.

A cell with `#| takes: 25 s to …` says so while it runs, in a line with a bar that goes
with its end. The browser moves the bar: nothing of it runs beside what a cell measures.

Nothing that a newer PyTorch says or lacks stops a lesson: for a reader a job that died,
or a private name that is gone, ends its cell with one line, and the cells that read
what it did not make say that they wait. With LAB_STRICT=1 both are errors.
"""

import ast
import functools
import html
import importlib.util
import re
import sys

from course import needs, provenance, recordings
from course.grammar import RequiresError, header, results, split, takes
from course.messages import QUIET, note, strict, untimed
from course.names import names_of
from course.torchrun import torchrun_cell
from course.uses import source_key
from device_lab import LabError
from utils.devices import pytorch


def missing(word: str, variables=()) -> str | None:
    """What this machine lacks for `requires: word`, as half a sentence, or None when
    the cell can run.
    """
    if word.startswith("result:"):
        name = word.removeprefix("result:")
        return None if name in variables else f"`{name}` from a cell above"
    return _missing_hardware(word)


@functools.cache
def _missing_hardware(word):
    base, _, count = word.partition(":")
    if base in provenance.pretending():
        return None
    if count:
        return needs.missing_cuda(int(count))
    return getattr(needs, f"missing_{base}")()


# --------------------------------------------------------------------------------------
# The transformer


def as_call(function, *arguments):
    """Lines of a cell that call a function of the course with these arguments, whatever
    the notebook has done to the course's names.
    """
    given = ", ".join(map(repr, arguments))
    module = f"__import__({function.__module__!r}, fromlist=['*'])"
    return [f"{module}.{function.__name__}({given})\n"]


def requires_cell(lines):
    """Input transformer of IPython: the lines of a cell, or a call that replays what
    was recorded.
    """
    source = "".join(lines)
    found = header(source)
    if found and missing(found.word, _variables()) is not None:
        return as_call(replay, source)
    # IPython knows a magic in the first line only
    magics = [n for n, line in enumerate(lines) if line.startswith("%%")]
    return lines[magics[0] :] if "%%" in split(source)[0] else lines


def replay(source):
    """What a conditional cell becomes on a machine that lacks what it needs."""
    found = header(source)
    lack = missing(found.word, _variables())
    if found.word.startswith("result:"):
        note(f"needs {lack}", "unavailable")
    else:
        recordings.replay(
            found.name, lack, source_key(source), _variables(), found.timeless
        )


def _before_cell(info):
    try:
        found = header(info.raw_cell or "")
    except RequiresError:
        found = None  # the cell itself is about to say so
    if found and not found.word.startswith("result:") and missing(found.word) is None:
        note(f"{provenance.device_here(found.word)}, this run", "live")
        if found.kind == "result":
            provenance.results[found.name] = provenance.here(found.word)
    provenance.running.append(found and found.result)
    _signs.append(_sign(info.raw_cell or "", found))


def _variables():
    return sys.modules["IPython"].get_ipython().user_ns


# --------------------------------------------------------------------------------------
# Signs of life

_signs = []  # of each cell that runs now, as `provenance.running`: its line, or None
# In steps, and only what needs no layout: a browser that draws sixty times a second
# would take its share of a small machine from what the cell measures.
BAR = """<style>
.device-lab-bar { width: 20em; height: 4px; margin-top: 3px; outline: 1px solid #9998 }
.device-lab-bar div { height: 100%; background: #0072B2; transform-origin: left }
@keyframes device-lab-fill { from { transform: scaleX(0) } }
@keyframes device-lab-pulse { 50% { opacity: 0.4 } }
@media (prefers-reduced-motion: reduce) { .device-lab-bar { display: none } }
</style>"""


def _sign(source, found):
    """Show what a cell takes, until its end; returns the handle of the line, or None
    without one. found: its Header, or None.
    """
    sign = takes(source)
    if strict() or sign is None or found and missing(found.word, _variables()):
        return None
    here = found is None or found.word.startswith("result:")
    cores = " on two cores" if here else ""
    text = f"Working {sign.what}: about {sign.seconds} s{cores}"
    fill = (
        f"device-lab-fill {sign.seconds}s steps({min(sign.seconds, 40)}),"
        f" device-lab-pulse 2s {sign.seconds}s steps(2) infinite"
    )
    page = (
        f'{BAR}<div role="status" style="{QUIET}">{html.escape(text)}'
        f'<div class="device-lab-bar"><div style="animation: {fill}"></div></div></div>'
    )
    from IPython.display import display

    data = {"text/plain": text, "text/html": page}
    about = {"device_lab": {"state": "working"}}
    return display(data, raw=True, metadata=about, display_id=True)


# --------------------------------------------------------------------------------------
# Cells that do not end, and those that wait for them


class CellEnds(LabError):
    """An error that ends a cell; for a reader of the course the lesson goes on, without
    what the cell would have made.

    timed: the cell speaks of time alone. Where no time is judged it may end so in a
    strict run, too.
    """

    def __init__(self, text, timed=False):
        super().__init__(text)
        self.timed = timed


_gaps = set()  # names that a cell above should have made, and did not


def _package_missing(error):
    """Whether this error, in the kernel or in a job of it, comes of a package that a
    lesson can do without.
    """
    named = "No module named 'accelerate'" in str(error)
    return named and not importlib.util.find_spec("accelerate")


def _why_it_ends(error):
    """One line if this error ends its cell only: a CellEnds, a job that failed, or
    a private name of PyTorch that is not there. Else None.
    """
    if _package_missing(error):
        return "needs the package `accelerate`, and it is not installed here"
    jobs = sys.modules.get("utils.jobs")  # loaded by the first cell that starts one
    if isinstance(error, CellEnds) or jobs and isinstance(error, jobs.LaunchError):
        return str(error)
    name = _name_missing(error)
    # a part of the path that begins with one underscore: torch._C._name
    if re.match(r"torch\.(\w+\.)*_[^_]", name):
        return (
            f"{pytorch()} has no `{name}`, a private name: such names come and go. This"
            " cell ends here."
        )
    return None


def _name_missing(error):
    """The full name whose lack an error reports, or ""."""
    name = getattr(error, "name", None) or ""
    if name and isinstance(error, AttributeError):
        owner = error.obj if hasattr(error.obj, "__name__") else type(error.obj)
        module = getattr(owner, "__module__", None)
        own = getattr(owner, "__qualname__", owner.__name__)
        return ".".join(filter(None, [module, own, name]))
    if name and isinstance(error, ImportError):
        found = re.match(r"cannot import name '(\w+)'", str(error))
        return f"{name}.{found[1]}" if found else name
    return ""


def _show_error(shell, kind, error, traceback, tb_offset=None):
    """What IPython calls for an error in a cell."""
    text = _why_it_ends(error) if _may_end(error) else None
    if text is None:
        shell.showtraceback((kind, error, traceback), tb_offset=tb_offset)
    elif _package_missing(error):
        note(text, "unavailable")
    else:
        note(text, "unjudged" if strict() else "finding")


def _may_end(error):
    """Whether an error may end its cell only, and the lesson goes on."""
    return (
        not strict()
        or _package_missing(error)
        or (untimed() and getattr(error, "timed", False))
    )


def _after_cell(result):
    """Forget half a result; where only the cell ends, note what it leaves open, and let
    Run All go on.
    """
    if result and not (result.info.raw_cell or "").strip():
        return  # an empty cell, of which IPython tells the end, but not the beginning
    del provenance.running[-1:]  # none if this cell has imported the course
    for sign in filter(None, _signs[-1:]):
        sign.update({}, raw=True)
    del _signs[-1:]
    # an interrupted `await` leaves no result
    error = getattr(result, "error_in_exec", None)
    if error is None:
        return
    source = result.info.raw_cell or ""
    for name in results(source):
        _variables().pop(name, None)
        provenance.results.pop(name, None)
        _gaps.add(name)
    if _may_end(error) and _why_it_ends(error):
        _, made = _names(sys.modules["IPython"].get_ipython().transform_cell(source))
        _gaps.update(name for name in made if name not in _variables())
        result.error_in_exec = None


def waiting_cell(lines):
    """Input transformer: a cell that reads what a cell above did not make, as a call
    that says so.
    """
    if not _gaps:
        return lines
    reads, made = _names("".join(lines))
    open_names = sorted(reads & _gaps - _variables().keys())
    return as_call(wait, open_names, sorted(made)) if open_names else lines


def wait(open_names, made):
    """What a cell becomes that reads `open_names`; `made` it does not make either."""
    _gaps.update(name for name in made if name not in _variables())
    note(
        f"this cell waits for `{'`, `'.join(open_names)}`. Run the cell above again"
        " first.",
        "waiting",
    )


def _names(source):
    """Names that a cell reads from the notebook, and names that it makes; of its
    source, none where it is no Python.
    """
    try:
        names = names_of(ast.parse(source))
    except SyntaxError:
        return set(), set()
    return names.read | names.read_later - names.made, names.made


def enable_conditional_cells():
    """Teach the running notebook what options of cells mean, and what to do with a cell
    that does not end.

    Does nothing outside IPython, and nothing a second time.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None or getattr(shell, "_lab_conditional_cells", False):
        return
    shell.input_transformers_cleanup.append(requires_cell)
    shell.input_transformers_post.append(waiting_cell)
    shell.events.register("pre_run_cell", _before_cell)
    shell.events.register("post_run_cell", _after_cell)
    shell.register_magic_function(torchrun_cell, "cell", "torchrun")
    shell.set_custom_exc((AttributeError, ImportError, LabError), _show_error)
    shell._lab_conditional_cells = True
