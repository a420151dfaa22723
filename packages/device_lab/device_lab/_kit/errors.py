"""Errors of the kit, one line each, and how lines of code are named in verdicts."""

import contextlib
import inspect
import os
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType


class LabError(Exception):
    """An error whose message says what is wrong and what to do. In a notebook it shows
    as one line.
    """

    __module__ = "device_lab"  # where it is imported from, and a traceback names it

    def _render_traceback_(self) -> list[str]:  # IPython's, for a traceback
        return [f"{type(self).__name__}: {self}"]


def file_name(path: str) -> str:
    """The name of a file as a verdict shows it: "cell" for a notebook's."""
    cell = "ipykernel" in path or path.startswith("<ipython")
    return "cell" if cell else os.path.basename(path)


def trained_once(function: str) -> LabError:
    return LabError(
        f"{function} calls the step several times, and a further call trained nothing."
        " Does it count its own steps? Then begin anew in each call:"
        " lambda: make_trainer().train()"
    )


def without_arguments(
    function: Callable[..., object], call: str = "lambda: {}({})"
) -> None:
    """LabError if a function of Python has parameters that need a value."""
    if not isinstance(function, (FunctionType, MethodType)):
        return  # no signature is certain
    needed = [
        x.name if x.kind != x.KEYWORD_ONLY else f"{x.name}={x.name}"
        for x in inspect.signature(function, follow_wrapped=False).parameters.values()
        if x.default is x.empty and x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)
    ]
    if needed:
        name = function.__name__.replace("<lambda>", "step")
        given = ", ".join("next(batches)" if x == "batch" else x for x in needed)
        raise LabError(f"{name} needs arguments: {call.format(name, given)}")


@contextlib.contextmanager
def batches_for(steps: str) -> Iterator[None]:
    """Says in one line how often a step is taken, if its batches end before."""
    try:
        yield
    except StopIteration as error:
        raise LabError(f"the batches ended too early: {steps}") from error
