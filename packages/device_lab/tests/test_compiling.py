"""does_it_pay: times, graphs, breaks and outputs of a model eager and compiled."""

import math
import time
import traceback
import types

import pytest
import torch
from torch import nn

from device_lab import compiling
from device_lab.compiling import _apart, _values, _verdict, _where, does_it_pay
from device_lab.devices import missing_compiler
from device_lab.errors import LabError
from device_lab.timing import Speedup

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


def test_graphs_breaks_with_their_line_and_other_inputs():
    pays = does_it_pay(
        Broken(), torch.ones(2, 4), other_inputs=(torch.ones(3, 4),), **EAGER
    )
    assert pays.graphs == 2 and pays.others == 2 and pays.recompiled == 0
    line = Broken.forward.__code__.co_firstlineno + 2
    assert pays.breaks == [
        f"test_compiling.py:{line}: an if or while asks for a tensor's value"
    ]
    assert pays.agree and pays.difference < 1e-5
    assert "graph breaks: 1" in str(pays) and "other inputs: 2" in str(pays)


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
    called = []

    def call(fn, inputs, *rest):
        called.append(fn)
        return fn(*inputs)

    monkeypatch.setattr(compiling, "_evaluates", call)
    model = nn.Linear(4, 4).eval()
    does_it_pay(torch.compile(model, backend="aot_eager"), torch.ones(2, 4), **EAGER)
    assert called[0] is model and len(set(called)) == 2


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


def test_the_verdict_follows_the_interval():
    assert "pays from call 41,000 on: compiled 1.8 times" in _verdict(
        Speedup(1.8, 1.7, 1.9, 2e-3, 1.1e-3), 41_000
    )
    assert "slower" in _verdict(Speedup(0.8, 0.7, 0.9, 1, 1.25), math.inf)
    assert "no difference" in _verdict(Speedup(1.1, 0.9, 1.3, 1, 0.9), math.inf)


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
    assert len(str(pays).splitlines()) <= 10


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
    for model, others in ((None, None), (layer, x)):
        with pytest.raises(LabError, match="other_inputs= as a tuple"):
            does_it_pay(model, x, other_inputs=others, **EAGER)


def test_a_pytorch_that_does_not_tell(monkeypatch):
    monkeypatch.setattr(compiling, "_compiled_so_far", lambda: (None, None))
    pays = does_it_pay(lambda x: x - 1, torch.ones(2), other_inputs=None, **EAGER)
    assert pays.graphs is None and "graphs" not in str(pays)


@pytest.mark.timed
@pytest.mark.skipif(missing_compiler() is not None, reason="needs a C++ compiler")
def test_inductor_fuses():
    def gate(x):
        return x * (x + 3).clamp(0, 6) / 6

    pays = does_it_pay(gate, torch.randn(2**20), seconds=0.5)
    assert pays.graphs == 1 and pays.agree, str(pays)
    assert pays.gain.times > 1.2 and pays.calls < math.inf, str(pays)
