"""_command/memory: what the steps of a running script hold, and who keeps what."""

import collections
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import optimizer as optim
from torch.utils import _python_dispatch as dispatch
from torch.utils.checkpoint import checkpoint

from device_lab import peak
from device_lab._command.memory import StepMemory

FACTS = (
    """device counted highest phase kinds before grows keeper largest lower""".split()
)
KINDS = ["parameters", "gradients", "optimizer state", "activations", "temporaries"]
KINDS += ["inputs and other"]
MB = 2**20


@pytest.fixture(autouse=True)
def nothing_stays():
    hooks = len(optim._global_optimizer_pre_hooks)
    yield
    assert dispatch._get_current_dispatch_mode_stack() == []
    assert len(optim._global_optimizer_pre_hooks) == hooks


def watch(step, optimizers=(), steps=3):
    memory = StepMemory("cpu", optimizers)
    memory.open()
    begins = optim.register_optimizer_step_pre_hook(memory.begins)
    ends = optim.register_optimizer_step_post_hook(memory.ends)
    step()
    for _ in range(steps):
        memory.begin()
        step()
        memory.end()
    begins.remove()
    ends.remove()
    return memory.close()


def training(make=torch.optim.SGD, **options):
    """(step, optimizer): of a linear layer of 4 KiB, on 64 KiB of data."""
    model = nn.Linear(32, 32, bias=False)
    optimizer = make(model.parameters(), **options)

    def step():
        step.x = x = torch.ones(512, 32)  # there until the next one, as in a loop
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, optimizer


def test_the_facts_of_a_step():
    step, optimizer = training(torch.optim.AdamW, foreach=True)
    step()
    facts = watch(step, [optimizer])
    assert list(facts) == FACTS
    assert (facts["device"], facts["counted"]) == ("cpu", "PyTorch's calls")
    assert list(facts["kinds"]) == KINDS
    assert sum(facts["kinds"].values()) == facts["highest"]
    assert facts["kinds"]["parameters"] == 4096
    assert facts["kinds"]["optimizer state"] == 8192
    assert facts["kinds"]["inputs and other"] == 65536
    assert facts["before"] == 4096 + 8192 + 65536
    assert facts["phase"] == "the backward pass"
    assert facts["largest"]["bytes"] == 65536
    assert "test_command_memory.py" in facts["largest"]["where"]
    assert (facts["grows"], facts["keeper"]) == (0, None)
    assert 0.4 < facts["lower"]["half of the batch (about)"] / facts["highest"] < 0.7


def test_as_peak_counts():
    step, optimizer = training()
    step()
    facts, found = watch(step, [optimizer]), peak(step)
    assert facts["highest"] == found.highest
    assert facts["before"] == found.before


@pytest.mark.parametrize("fused", [True, False])
def test_what_fused_would_lower(fused):
    model = nn.Linear(512, 512, bias=False)
    choice = {"fused": True} if fused else {"foreach": True}
    optimizer = torch.optim.AdamW(model.parameters(), **choice)

    def step():
        model(torch.ones(1, 512)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = watch(step, [optimizer])
    assert ("fused=True in the optimizer" in facts["lower"]) == (not fused)
    if not fused:
        assert facts["phase"] == "the optimizer step"
        saved = facts["highest"] - facts["lower"]["fused=True in the optimizer"]
        assert 0.99 * MB < saved <= MB <= facts["kinds"]["temporaries"]


def test_without_an_optimizer_parameters_are_found():
    model = nn.Linear(32, 32, bias=False)

    def step():
        model.weight.grad = None
        model(torch.ones(512, 32)).square().mean().backward()

    facts = watch(step)
    assert facts["kinds"]["parameters"] == 4096
    assert "fused=True in the optimizer" not in facts["lower"]


def test_two_optimizers_and_one_with_a_closure():
    first, second = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
    lbfgs = torch.optim.LBFGS(first.parameters(), max_iter=2)
    adam = torch.optim.Adam(second.parameters())

    def closure():
        lbfgs.zero_grad()
        loss = first(torch.ones(512, 32)).square().mean()
        loss.backward()
        return loss

    def step():
        lbfgs.step(closure)
        second(torch.ones(8, 32)).square().mean().backward()
        adam.step()

    facts = watch(step, [lbfgs, adam])
    assert facts["phase"] == "the backward pass"
    assert facts["kinds"]["activations"] >= 65536
    assert facts["kinds"]["parameters"] == 8192
    assert facts["kinds"]["optimizer state"] > 8192
    assert "fused=True in the optimizer" not in facts["lower"]  # LBFGS has none


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_scaler_that_skips_and_accumulation(set_to_none):
    model, scaler = nn.Linear(32, 32), GradScaler("cpu", init_scale=1e38)
    sgd = torch.optim.SGD(model.parameters())

    def step():
        for _ in range(2):
            loss = model(torch.ones(512, 32) * 1e3).square().mean()
            scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
        sgd.zero_grad(set_to_none)

    facts = watch(step, [sgd])
    assert facts["grows"] == 0
    assert facts["kinds"]["parameters"] == 4096 + 128
    assert sum(facts["kinds"].values()) == facts["highest"]


def test_what_is_computed_again_counts_as_activations():
    layers = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(4))

    def step():
        x = torch.ones(512, 32)
        for layer in layers:
            x = checkpoint(lambda x, m=layer: m(x).exp().cos(), x, use_reentrant=False)
        x.sum().backward()
        for layer in layers:
            layer.weight.grad = None

    facts = watch(step)
    assert facts["phase"] in ("the backward pass", "the recomputation within backward")
    assert 4 * 65536 <= facts["kinds"]["activations"] < 8 * 65536


def test_what_a_loader_makes_is_noted_when_it_is_used():
    w, made = nn.Parameter(torch.ones(2)), []
    memory = StepMemory("cpu", [])
    memory.open()

    def step():
        memory.silence(True)
        made[:] = [torch.ones(MB), torch.ones(16)]
        memory.silence(False)
        (made[1].sum() * w).sum().backward()

    step()
    for _ in range(3):
        memory.begin()
        step()
        memory.end()
    assert 64 < memory.close()["highest"] < MB


def test_opened_and_closed_within_a_hook_of_optimizers():
    """Where a script's step ends; no other hook may come or go there."""
    step, optimizer = training()
    memory, facts, steps = StepMemory("cpu", [optimizer]), [], []

    def ended(*_):
        steps.append(1)
        if len(steps) == 1:
            memory.open()
        if len(steps) in (3, 4, 5):
            memory.end()
        if len(steps) in (2, 3, 4):
            memory.begin()
        if len(steps) == 5:
            facts.append(memory.close())

    handles = [optim.register_optimizer_step_post_hook(ended)]
    handles += [optim.register_optimizer_step_post_hook(lambda *_: None)]
    for _ in range(7):
        step()
    for handle in handles:
        handle.remove()
    assert facts[0]["kinds"]["parameters"] == 4096


# ---- what steps leave behind


class Trainer:
    def __init__(self):
        self.history = []


def keep_list(loss, out):
    outputs.append(out)


def keep_detached(loss, out):
    outputs.append(out.detach())


def keep_in_a_dict(loss, out):
    log["out"].append((1, out))


def keep_by_key(loss, out):
    cache[len(cache)] = out.detach()


def keep_in_an_attribute(loss, out):
    trainer.history.append({"out": out})


def keep_in_a_deque(loss, out):
    recent.append(out.detach())


def keep_in_a_short_deque(loss, out):
    last.append(out)


def keep_numbers(loss, out):
    outputs.append(loss.item())


def keep_small_values(loss, out):
    outputs.append(loss.detach())


def keep_now_and_then(loss, out):
    global total
    total += 1
    if total % 2:
        outputs.append(out.detach())


def keep_a_growing_sum(loss, out):
    global total
    total = torch.cat([total, out.detach()])


def empty_and_fill(loss, out):
    """As many as an episode has; what grows lies elsewhere."""
    outputs.clear()
    recent.append(out.detach()[None])
    outputs.extend(reversed(recent))


KEEPS = {
    keep_list: "outputs",
    keep_detached: "outputs",
    keep_in_a_dict: "log",
    keep_by_key: "cache",
    keep_in_an_attribute: "trainer.history",
    keep_in_a_deque: "recent",
}
DOES_NOT = [keep_in_a_short_deque, keep_numbers, keep_small_values, keep_now_and_then]


def keeping(keep):
    global outputs, log, cache, trainer, recent, total, last
    outputs, log, cache = [], {"out": []}, {}
    trainer, recent, total = Trainer(), collections.deque(), 0
    last = collections.deque(maxlen=3)
    model = nn.Linear(32, 32, bias=False)
    if keep is keep_a_growing_sum:
        total = torch.zeros(1, 32)

    def step():
        out = model(torch.ones(512, 32))
        loss = out.square().mean()
        loss.backward()
        keep(loss, out)
        model.weight.grad = None

    return watch(step, steps=4)


@pytest.mark.parametrize("keep", KEEPS)
def test_who_keeps_tensors(keep):
    facts = keeping(keep)
    # the last line of the function, or the one that a text search meets first
    keeper = facts["keeper"]
    assert facts["grows"] == 65536
    assert keeper["name"] == KEEPS[keep]
    assert keeper["path"] == __file__
    assert keeper["where"] == f"test_command_memory.py:{keeper['line']}"
    assert f"{KEEPS[keep]}" in keeper["code"], keeper


@pytest.mark.parametrize("keep", DOES_NOT)
def test_what_keeps_no_more_and_more(keep):
    facts = keeping(keep)
    assert (facts["grows"], facts["keeper"]) == (0, None)


def test_of_what_is_no_list_no_line_is_known():
    facts = keeping(keep_a_growing_sum)
    assert facts["grows"] == 65536 and facts["keeper"] is None


def test_what_is_emptied_in_each_step_keeps_nothing():
    assert keeping(empty_and_fill)["keeper"]["name"] == "recent"


def test_a_list_of_the_function_that_trains():
    def train():
        gathered, step = [], training()[0]

        def once():
            step()
            gathered.append(torch.ones(4096))

        return watch(once)

    facts = train()
    assert facts["grows"] == 16384
    assert facts["keeper"]["name"] == "gathered"
    assert facts["keeper"]["code"] == "gathered.append(torch.ones(4096))"


def test_two_steps_do_not_tell_what_grows():
    kept = []
    step = training()[0]

    def keeps():
        step()
        kept.append(torch.ones(4096))

    facts = watch(keeps, steps=2)
    assert (facts["grows"], facts["keeper"]) == (0, None)


# ---- and the script goes on as without it


def test_the_scripts_own_variables_are_left_alone():
    def train():
        given = locals()
        given["rate"] = 1
        step = training()[0]
        watch(step)
        return given

    assert train()["rate"] == 1


def test_variables_are_not_kept():
    def train():  # without an assert: as pytest rewrites it, it asks for locals()
        x = torch.ones(2)
        gone = weakref.ref(x)
        watch(training()[0])
        del x
        gc.collect()
        return gone() is None

    assert train()


def test_the_same_bits():
    def train(watches):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)
        )
        optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []

        def step():
            loss = model(torch.randn(4, 1, 8)).square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())

        if watches:
            watch(step, [optimizer])
        else:
            [step() for _ in range(4)]
        return losses, [p.tolist() for p in model.parameters()]

    assert train(True) == train(False)


def test_no_step_no_facts():
    memory = StepMemory("cpu", [])
    memory.open()
    assert memory.close() is None
    assert watch(lambda: None) is None


def test_higher_order_operators_run():
    x = torch.ones(2)

    def cond():
        torch.cond(x.sum() > 1, lambda x: x + 1, lambda x: x - 1, (x,))

    assert watch(cond)["highest"] > 0


def test_after_it_nothing_is_called_when_tensors_end():
    kept = []
    step = training()[0]

    def keeps():
        step()
        kept.append(torch.ones(4096))

    watch(keeps)
    storage = kept[-1].untyped_storage()
    called = [x for x in weakref.getweakrefs(storage) if x.__callback__]
    assert called == []
