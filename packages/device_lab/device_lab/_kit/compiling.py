"""does_it_pay: a model eager and compiled, and when its compilation has paid."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from . import _clocks
from ._results import Result
from .errors import LabError, file_name, without_arguments
from .timing import Speedup, measure_together, speedup, time_text

# passes as rounding, as a share of the largest value: a judgment; COARSE: of 16 bits
TOLERANCE, COARSE = 1e-3, 3e-2
PLAIN = {  # what Dynamo calls some reasons, in words
    "generic_jump": "an if or while asks for a tensor's value",
    "step_unsupported": "cannot be compiled: the rest of the function runs eager",
}


@dataclass(frozen=True, repr=False)
class Pays(Result):
    """Whether torch.compile pays for a model and its inputs.

    answer: "yes", "no" or "undecided". gain: how many times as fast, from eager to
    compiled. first: seconds of the first compiled call. calls: after how many it has
    paid that back; infinite: never; None: undecided. graphs: how many it made;
    recompiled: how many by further calls with the same inputs; None where PyTorch does
    not tell. breaks: each graph break as "file:line: reason". agree: whether the
    outputs do, None where eager gives others each time; difference: between them, as a
    share of the largest value.
    """

    answer: str
    verdict: str
    gain: Speedup
    first: float
    calls: float | None
    graphs: int | None
    breaks: list[str]
    recompiled: int | None
    agree: bool | None
    difference: float

    def __str__(self) -> str:
        times = map(time_text, (self.gain.before, self.gain.after, self.first))
        text = "eager {} a call, compiled {}, first call {}".format(*times)
        lines = [self.verdict, text]
        if self.graphs is not None:
            lines += [f"graphs: {self.graphs}, graph breaks: {len(self.breaks)}"]
            for each, count in Counter(self.breaks).most_common(3):
                times = f"×{count} " if count > 1 else ""
                lines += [f"  {times}{each}"[:88]]
        if self.graphs == 0:
            lines += ["no graph was made: it was compiled before, or is not compiled"]
        if self.recompiled:
            lines += [f"compiled again for the same inputs: {self.recompiled} graphs"]
        verbs = {True: "agree", False: "DIFFER", None: "vary in eager mode (dropout?)"}
        apart = f"{self.difference:.1e} of the largest value apart"
        return "\n".join([*lines, f"outputs {verbs[self.agree]}: {apart}"])


def does_it_pay(
    model: Callable[..., object],
    *inputs: object,
    backward: bool | None = None,
    loss: Callable[[Any], torch.Tensor] | None = None,
    seconds: float = 2.0,
    **options: Any,
) -> Pays:
    """Times `model(*inputs)` eager and by torch.compile, taking turns.

    model: an nn.Module or a function
    backward: whether a backward pass belongs to a call; None: if the model is in
        training mode and has parameters to train. Without one: under torch.no_grad
    loss: makes one number of the output; None: its .loss, or its sum
    seconds: about how long to sample; seven rounds are taken in any case
    options: of torch.compile

    Gradients and buffers of a module are put back. Not seen: an optimizer, gradients
    that differ, a first call that is short because the cache on disk had the code. What
    is compiled stays, and counts for the recompile limit.
    """
    if not callable(model):
        kind = type(model).__name__
        raise LabError(f"does_it_pay(model, *inputs): give a model, not a {kind}")
    if not inputs:
        without_arguments(model, "does_it_pay({}, {})")
    model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
    state, buffers = list(filter(torch.is_tensor, tree_leaves(inputs))), []
    if isinstance(model, torch.nn.Module):
        buffers = list(model.buffers())
        state += model.parameters()
    if backward is None:
        trains = getattr(model, "training", False)
        backward = trains and any(x.requires_grad for x in state)
    leaves = [x for x in state if x.is_leaf]

    def call(fn):
        if not backward:
            with torch.no_grad():
                return fn(*inputs)
        for x in leaves:
            x.grad = None
        output = fn(*inputs)
        _loss(output, loss).backward()
        return output

    compiled = torch.compile(model, **options)
    ways = {"eager": lambda: call(model), "compiled": lambda: call(compiled)}
    with _put_back(leaves, buffers):
        return _measured(ways, [*state, *buffers], seconds)


def _loss(output, loss):
    if loss:
        value = loss(output)
    else:
        value = getattr(output, "loss", None)
        value = output if value is None else value
        value = value.sum() if torch.is_tensor(value) else None
    if not torch.is_tensor(value) or value.numel() != 1:
        kind = type(output).__name__
        how = f"a {kind}: give loss=, which makes a tensor with one number of it"
        raise LabError(f"no loss in the output, {how}")
    return value


@contextlib.contextmanager
def _put_back(leaves, buffers):
    gradients = [x.grad for x in leaves]
    values = [x.clone() for x in buffers]
    try:
        yield
    finally:
        for x, gradient in zip(leaves, gradients, strict=True):
            x.grad = gradient
        for x, value in zip(buffers, values, strict=True):
            x.copy_(value)


def _measured(ways, tensors, seconds):
    expected = [ways["eager"]() for _ in range(2)]  # an error of its own passes
    tensors += filter(torch.is_tensor, tree_leaves(expected))
    there = [x.device for x in tensors if x.device.type != "cpu"]
    device = there[0] if there else torch.device("cpu")
    expected = [_values(output) for output in expected]
    start = _compiled()
    first = _first(ways["compiled"], device)
    graphs, breaks = _compiled(*start)
    start = _compiled()
    agree, apart = _apart(_values(ways["compiled"]()), expected[0])
    if not _apart(*expected)[0]:
        agree = None
    times = measure_together(ways, device, clock="host", seconds=seconds)
    again, _ = _compiled(*start)
    gain = speedup(times["eager"], times["compiled"])
    once = sum(each.calls * each.median for each in times.values())
    answer, verdict, calls = _verdict(gain, first, once)
    counts = graphs, [*map(_where, breaks)], again
    return Pays(answer, verdict, gain, first, calls, *counts, agree, apart)


def _first(fn, device):
    """Seconds of the first call of what is to be compiled."""
    try:
        return _clocks.seconds(fn, device)[1]
    except Exception as error:
        message = " ".join(str(error).splitlines()[:2])
        why = f"{type(error).__name__}: {message}"
        raise LabError(f"eager works, but torch.compile fails: {why}") from error


def _compiled(graphs=0, breaks=()):
    """How many graphs this process has made since so many, and why it broke since. A
    private place, as torch._dynamo.explain would forget all that is compiled.
    """
    from torch._dynamo import utils

    try:
        made = utils.counters["stats"]["unique_graphs"] - graphs
        return made, utils.graph_break_reasons[len(breaks) :]
    except AttributeError:  # another PyTorch
        return None, []


def _where(stop):
    """A graph break as "file:line: reason", the line in the reader's own code."""
    own = [frame for frame in stop.user_stack if "site-packages" not in frame.filename]
    frame = (own or stop.user_stack)[-1]
    reason = stop.reason.partition("\n")[0]
    reason = PLAIN.get(reason.split(" ")[0], reason)
    return f"{file_name(frame.filename)}:{frame.lineno}: {reason}"


def _values(output):
    """Its tensors as float64 on the CPU, each with the bytes of a number."""
    tensors = [x.detach() for x in tree_leaves(output) if torch.is_tensor(x)]
    return [(x.cpu().to(torch.float64), x.element_size()) for x in tensors]


def _apart(one, other):
    """Whether two outputs agree, and the share of the largest value between them."""
    agree, most = len(one) == len(other), 0.0
    for (x, size), (y, _) in zip(one, other, strict=False):
        if y.numel():
            share = ((x - y).abs().max() / y.abs().max().clamp(min=1e-30)).item()
            agree &= share <= (TOLERANCE if size > 2 else COARSE)
            most = max(most, share)
    return agree, most


def _verdict(gain, first, once):
    """(answer, verdict in words, calls), where a round takes `once` seconds."""
    spread = f"{gain.times:.3g} times as fast (95%: {gain.low:.3g} to {gain.high:.3g})"
    if gain.answer == "faster":
        calls = first / (gain.before - gain.after)
        return "yes", f"It pays from call {calls:,.0f} on: compiled {spread}.", calls
    if gain.answer == "undecided":
        more = f"About seconds={math.ceil(once * gain.rounds)} would tell."
        return "undecided", f"Undecided: compiled {spread}.\n{more}", None
    why = gain.doubt or "it is slower"
    return "no", f"It does not pay, {why}: compiled {spread}.", math.inf
