"""does_it_pay: times, graphs, breaks and outputs of a model eager and compiled."""

import math
import random
import shutil
import time
import traceback
import types

import pytest
import torch
from torch import nn

from device_lab import LabError
from device_lab._kit import compiling
from device_lab._kit.compiling import _apart, _values, _verdict, _where, does_it_pay
from device_lab._kit.timing import Speedup

EAGER = {"backend": "aot_eager", "seconds": 0.05}


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        if y.sum() > 100:
            y = y + 1
        return y * 2


@pytest.mark.slow
def test_graphs_and_breaks_with_their_line():
    pays = does_it_pay(Broken(), torch.ones(2, 4), **EAGER)
    assert pays.graphs == 2 and pays.recompiled == 0
    line = Broken.forward.__code__.co_firstlineno + 2
    assert pays.breaks == [
        f"test_compiling.py:{line}: an if or while asks for a tensor's value"
    ]
    assert pays.agree and pays.difference < 1e-5
    assert "graph breaks: 1" in str(pays)


@pytest.mark.slow
def test_breaks_of_one_line_are_counted_as_they_are():
    def read(x):
        return x.sum().item()

    def several(x):
        y = x * read(x + 1)
        z = y * read(y + 1)
        return z * read(z + 1)

    pays = does_it_pay(several, torch.ones(3), **EAGER)
    assert len({*pays.breaks}) == 1 < len(pays.breaks) >= pays.graphs - 1 >= 3
    first = f"graph breaks: {len(pays.breaks)}\n  ×{len(pays.breaks)} test_compiling"
    assert first in str(pays)


def test_a_break_whose_reason_dynamo_does_not_keep():
    frame = traceback.FrameSummary("model.py", 50, "forward")
    reason = types.SimpleNamespace(reason="step_unsupported", user_stack=[frame])
    assert _where(reason).startswith("model.py:50: cannot be compiled")


def test_of_the_same_code_compiled_before_it_says_so():
    def twice(x):
        return x * 2

    assert does_it_pay(twice, torch.ones(3), **EAGER).graphs == 1
    pays = does_it_pay(twice, torch.ones(3), **EAGER)
    assert pays.graphs == 0 and "compiled before" in str(pays)


@pytest.mark.timed
def test_what_compiling_makes_slower_never_pays_back():
    def twice(x):
        return x * 2

    pays = does_it_pay(twice, torch.ones(3), **EAGER)
    assert "slower" in pays.verdict and pays.calls == math.inf


def test_a_compiled_model_is_compared_with_what_is_in_it(monkeypatch):
    model, given = nn.Linear(4, 4).eval(), []
    compiled = torch.compile(model, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", lambda fn, **_: given.append(fn) or fn)
    does_it_pay(compiled, torch.ones(2, 4), **EAGER)
    assert given == [model]


def test_a_model_that_compiles_in_every_call():
    state = {"tag": "abcde"}

    def turns(x):
        state["tag"] = state["tag"][1:] + state["tag"][0]
        return x + ord(state["tag"][0])

    pays = does_it_pay(turns, torch.ones(3), **EAGER)
    assert pays.recompiled > 0 and "same inputs" in str(pays)


def test_gradients_and_buffers_are_put_back():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    model(torch.randn(8, 4)).sum().backward()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    gradient = model[0].weight.grad
    values = gradient.clone()
    x = torch.randn(8, 4, requires_grad=True)
    pays = does_it_pay(model, x, **EAGER)
    assert pays.agree and x.grad is None
    assert model[0].weight.grad is gradient and torch.equal(gradient, values)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_backward_pass_belongs_to_training(mode):
    model, seen = nn.Linear(4, 4), []

    def loss(output):
        seen.append(output.requires_grad)
        return output.square().mean()

    getattr(model, mode)()
    does_it_pay(model, torch.ones(2, 4), loss=loss, **EAGER)
    assert set(seen) == ({True} if mode == "train" else set())
    does_it_pay(model, torch.ones(2, 4), loss=loss, backward=True, **EAGER)
    assert set(seen) == {True}


def test_outputs_that_differ_and_outputs_that_vary():
    def differs(x):
        return x * 2 if torch.compiler.is_compiling() else x

    pays = does_it_pay(differs, torch.ones(3), **EAGER)
    assert pays.agree is False and pays.difference == 1 and "DIFFER" in str(pays)
    pays = does_it_pay(nn.Dropout(), torch.ones(99), **EAGER)
    assert pays.agree is None and "vary" in str(pays)


def test_how_far_apart_is_judged_by_the_kind_of_number():
    x, y = torch.tensor([100.0, 1.0]), torch.tensor([100.0, 2.0])
    agree, share = _apart(_values(x), _values(y))
    assert not agree and share == pytest.approx(0.01)
    assert _apart(_values(x.half()), _values(y.half()))[0]
    assert not _apart(_values(x), _values((x, x)))[0]
    assert _apart(_values(torch.tensor([math.nan])), _values(x[:1]))[0] is False
    assert _apart(_values(torch.ones(0)), _values(torch.ones(0))) == (True, 0)


@pytest.mark.parametrize(
    ("answer", "times", "low", "high", "pays", "says", "calls"),
    [
        ("faster", 1.8, 1.7, 1.9, "yes", "It pays from call 41,000 on: compiled", 41e3),
        ("slower", 0.8, 0.7, 0.9, "no", "does not pay, it is slower", math.inf),
        ("even", 1.01, 0.99, 1.03, "no", "no difference larger than 3%", math.inf),
        (
            *("undecided", 1.63, 0.249, 5.81, "undecided"),
            *("compiled 1.63 times as fast (95%: 0.249 to 5.81).\nAbout", None),
        ),
    ],
)
def test_the_verdict_follows_the_interval(answer, times, low, high, pays, says, calls):
    gain = Speedup(times, low, high, 9e-4 * times, 9e-4, answer, 40)
    first = 41e3 * (gain.before - gain.after)
    word, verdict, after = _verdict(gain, first, 5.0)
    assert word == pays and says in verdict
    assert after == calls or after == pytest.approx(calls)
    assert ("seconds=200" in verdict) is (answer == "undecided")


def test_slow_steps_on_a_busy_machine_are_undecided_and_more_seconds_decide(
    monkeypatch,
):
    """The clock is a model: 5 s eager, 3 s compiled, and now and then several times as
    much. Nothing is waited for.
    """
    now, draw = [0.0], random.Random(3)

    def waits(x):
        mean = 3 if torch.compiler.is_compiling() else 5
        now[0] += mean * math.exp(draw.gauss(0, 0.5))
        return x * 2

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(torch, "compile", lambda model, **options: compiled(model))

    def compiled(model):
        def call(x):
            with monkeypatch.context() as patch:
                patch.setattr(torch.compiler, "is_compiling", lambda: True)
                return model(x)

        return call

    answers = []
    for _ in range(20):
        pays = does_it_pay(waits, torch.ones(3), seconds=2)
        assert pays.answer in ("yes", "undecided"), str(pays)
        if pays.answer == "undecided":
            assert pays.calls is None and pays.to_dict()["calls"] is None
            more = int(pays.verdict.partition("seconds=")[2].split()[0])
            answers.append(does_it_pay(waits, torch.ones(3), seconds=more).answer)
    assert len(answers) > 10 and answers.count("yes") > 0.7 * len(answers)


def test_what_pays_pays_after_first_call_over_gain():
    @torch.compiler.disable
    def slow():
        time.sleep(0.003)

    def waits(x):
        if not torch.compiler.is_compiling():
            slow()
        return x * 2

    pays = does_it_pay(waits, torch.ones(3), **EAGER)
    assert "It pays" in pays.verdict and pays.gain.low > 1, str(pays)
    assert pays.calls == pays.first / (pays.gain.before - pays.gain.after)
    assert pays.answer == "yes" and len(str(pays).splitlines()) <= 10
    assert repr(pays) == str(pays) and pays.to_dict()["gain"]["answer"] == "faster"


def test_errors():
    def backend(graph, inputs):
        raise NotImplementedError("no such kernel\nand more")

    with pytest.raises(LabError, match="eager works.*no such kernel"):
        does_it_pay(lambda x: x + 1, torch.ones(2), backend=backend)
    with pytest.raises(ZeroDivisionError):
        does_it_pay(lambda x: x / (1 / 0), torch.ones(2), **EAGER)
    with pytest.raises(LabError, match="a dict: give loss="):
        does_it_pay(
            lambda x: {"y": x}, torch.ones(2, requires_grad=True), backward=True
        )
    layer, x = torch.nn.Linear(2, 2), torch.ones(2, 2)
    for loss in (lambda y: 1.0, lambda y: y):
        with pytest.raises(LabError, match="a tensor with one number"):
            does_it_pay(layer, x, loss=loss, **EAGER)
    with pytest.raises(LabError, match="give a model, not a Tensor"):
        does_it_pay(layer(x), x, **EAGER)


def test_a_pytorch_that_does_not_tell(monkeypatch):
    monkeypatch.setattr(compiling, "_compiled", lambda *since: (None, []))
    pays = does_it_pay(lambda x: x - 1, torch.ones(2), **EAGER)
    assert pays.graphs is None and "graphs" not in str(pays)


@pytest.mark.timed
# which gets bare paths from torch.compile
@pytest.mark.skipif(
    not shutil.which("g++") or " " in torch.__path__[0],
    reason="needs a C++ compiler, and a path without a space",
)
def test_inductor_fuses():
    def gate(x):
        return x * (x + 3).clamp(0, 6) / 6

    pays = does_it_pay(gate, torch.randn(2**20), seconds=0.5)
    assert pays.graphs == 1 and pays.agree, str(pays)
    assert pays.gain.times > 1.2 and pays.calls < math.inf, str(pays)
