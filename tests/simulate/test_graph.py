"""The toy graph must agree with eager execution, and break in the same ways as a CUDA
graph.
"""

import copy

import pytest
import torch
from torch import nn

from device_lab import LabError
from simulate.graph import ToyGraph


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.LayerNorm(8),
        nn.GELU(),
        nn.Unflatten(1, (2, 4)),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def same(one, other):
    """Whether two lists of tensors are equal, bit by bit."""
    return all(map(torch.equal, list(one), list(other)))


def test_forward_equals_eager_for_each_new_input():
    model, static, graph = net(), torch.zeros(5, 6), ToyGraph()
    with graph.capture(), torch.no_grad():
        out = model(static)
    assert out.isnan().all()  # nothing has run
    for _ in range(3):
        static.copy_(torch.randn(5, 6))
        graph.replay()
        assert torch.equal(out, model(static))
    assert graph.kernels.count("addmm") == 2 and "view" not in graph.kernels


@pytest.mark.parametrize(
    "settings",
    [{}, {"momentum": 0.9, "foreach": True}, {"nesterov": True, "momentum": 0.5}],
)
def test_a_whole_training_step_equals_eager(settings):
    ours = net()
    theirs = copy.deepcopy(ours)
    batches = [(torch.randn(5, 6), torch.randint(3, (5,))) for _ in range(6)]
    x, y = torch.zeros(5, 6), torch.zeros(5, dtype=torch.long)

    def step(model, opt, x, y):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        return loss

    opts = [torch.optim.SGD(m.parameters(), lr=0.1, **settings) for m in (ours, theirs)]
    for model, opt in zip((ours, theirs), opts, strict=True):
        step(model, opt, *batches[0])  # warm-up: makes the momentum buffers
    before = [p.clone() for p in ours.parameters()]
    graph = ToyGraph()
    with graph.capture():
        loss = step(ours, opts[0], x, y)
    assert same(before, ours.parameters()), "capturing must not train"
    assert not any(name.startswith("_record") for name in graph.kernels)
    for data, labels in batches[1:]:
        x.copy_(data)
        y.copy_(labels)
        graph.replay()
        assert torch.equal(loss.detach(), step(theirs, opts[1], data, labels).detach())
    assert same(ours.parameters(), theirs.parameters())


def test_a_new_tensor_a_branch_and_a_count_are_frozen():
    x, calls = torch.ones(3), []
    graph, sign = ToyGraph(), 1
    with graph.capture():
        calls.append(1)
        y = x * 2 if sign > 0 else x * -2
    x, sign = torch.full((3,), 5.0), -1
    graph.replay()
    assert y.tolist() == [2, 2, 2] and calls == [1]


def test_outputs_are_overwritten_and_random_numbers_are_new():
    x, graph = torch.ones(100), ToyGraph()
    with graph.capture():
        y = nn.functional.dropout(x, 0.5)
    graph.replay()
    kept = y.clone()
    graph.replay()
    assert not torch.equal(kept, y) and set(y.tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
    ],
)
def test_asking_for_a_value_raises(ask):
    with pytest.raises(LabError, match="needs a value"), ToyGraph().capture():
        ask(torch.ones(3))


def test_in_place_out_several_outputs_and_lists():
    x, table, out, graph = torch.arange(4.0), torch.zeros(4), torch.zeros(4), ToyGraph()
    with graph.capture():
        table[1:3].add_(x[:2])
        torch.mul(x, 3, out=out)
        top, where = x.topk(2)
        (double,) = torch._foreach_mul([x], 2)
    assert table.sum() == 0 and out.sum() == 0
    x.copy_(torch.tensor([4.0, 3.0, 2.0, 1.0]))
    graph.replay()
    assert table.tolist() == [0, 4, 3, 0] and out.tolist() == [12, 9, 6, 3]
    assert top.tolist() == [4, 3] and where.tolist() == [0, 1]
    assert double.tolist() == [8, 6, 4, 2]
