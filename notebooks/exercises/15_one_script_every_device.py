"""Exercises of lesson 15."""

import copy
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from utils.exercises import Exercise, NotAnswered, Wrong, call


def _number(got, shown):
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise Wrong(f"for {shown} you returned {got!r}, expected a number")
    return float(got)


# ---- 15.1 ----

GAINS = [  # step, part, times, what the case is about
    (10.0, 5.0, 2, "half the step, twice as fast"),
    (10.0, 1.0, float("inf"), "a tenth of the step disappears"),
    (8.0, 6.0, 3, "three quarters, three times as fast"),
    (4.0, 4.0, 5, "the part is the whole step"),
    (4.0, 2.0, 0.5, "the rung makes its part slower"),
    (4.0, 0.0, 100, "the part takes no time at all"),
]


def check_whole_gain(answer):
    for step, part, times, why in GAINS:
        shown = f"step = {step} s, part = {part} s, times = {times}"
        got, expected = (
            _number(call(answer, step, part, times, shown=shown), shown),
            step / (step - part + part / times),
        )
        if abs(got - expected) > 1e-9 * expected:
            raise Wrong(
                f"for {shown} ({why}) you returned {got:.4g}, expected {expected:.4g}: "
                f"the rest still takes {step - part:g} s, the part now {part / times:g} s"
            )


# ---- 15.2 ----


def check_samples_of(answer):
    def ask(step, n=23, batch=5, seed=7):
        shown = f"step = {step}, n = {n}, batch = {batch}, seed = {seed}"
        got = call(answer, step, n, batch, seed, shown=shown)
        if not isinstance(got, torch.Tensor) or got.is_floating_point() or got.shape != (batch,):
            raise Wrong(f"for {shown} you returned {got!r}, expected a tensor of {batch} integers")
        if got.min() < 0 or got.max() >= n:
            raise Wrong(f"for {shown} you returned {got.tolist()}: samples are numbered from 0 to {n - 1}")
        return got.tolist()

    first, torch_seed = ask(0), torch.random.get_rng_state()
    late = {step: ask(step) for step in (9, 6, 3, 0, 1, 2, 7, 4, 5, 8)}
    torch.random.set_rng_state(torch_seed)
    for step, got in late.items():
        if ask(step) != got or (step == 0 and got != first):
            raise Wrong(f"step {step} gives other samples when it is asked for again: no resumed run is the same")
    epochs = [[late[4 * epoch + k] for k in range(4)] for epoch in range(2)]
    for number, epoch in enumerate(epochs):
        seen = [sample for samples in epoch for sample in samples]
        if len(set(seen)) < len(seen):
            raise Wrong(f"with 23 samples in batches of 5, an epoch has 4 steps; in epoch {number} samples come twice")
    if sorted(sum(epochs[0], [])) == list(range(20)) and epochs[0][0] == list(range(5)):
        raise Wrong("the samples come in their own order, 0, 1, 2 …: draw an order for the epoch")
    if epochs[0] == epochs[1]:
        raise Wrong("the second epoch has the order of the first: the number of the epoch must go into the seed")
    if [ask(k, seed=8) for k in range(4)] == epochs[0]:
        raise Wrong("another seed gives the same order")
    if [ask(k, seed=8) for k in range(4)] == epochs[1]:
        raise Wrong("the second epoch of seed 7 is the first of seed 8: two runs that should differ repeat each other")
    if ask(1, n=10, batch=10) == ask(0, n=10, batch=10):
        raise Wrong("with as many samples as a batch holds, each step is an epoch, with an order of its own")


# ---- 15.3 ----


class _Asked(TorchDispatchMode):
    """Counts the values that the host asks for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero)
        return func(*args, **(kwargs or {}))


class _Watched(nn.Module):
    """A linear layer that notes whether it was called with gradients on, and in which mode."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.grad = nn.Linear(4, 3), nn.Dropout(0.9), False
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(3, 4))
            self.layer.bias.zero_()

    def forward(self, x):
        scores = self.layer(x)
        self.grad |= scores.requires_grad
        return self.drop(scores)


def check_accuracy(answer):
    inputs = F.one_hot(torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 0]), 4).float()
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0, 1])  # the last two are missed
    batches = list(zip(inputs.split(4), labels.split(4), strict=True))
    model = _Watched().eval()
    with _Asked() as asked:
        got = call(answer, model, batches, shown="ten samples in batches of 4, 4 and 2")
    if isinstance(got, torch.Tensor):
        raise Wrong("you returned a tensor, expected a Python number: ask for it once, at the end")
    got = _number(got, "ten samples in batches of 4, 4 and 2")
    if abs(got - 2 / 3) < 1e-6:
        raise Wrong("you returned 0.667, the mean over batches (1, 1, 0); but the last one has half the samples")
    if abs(got - 0.8) > 1e-6:
        raise Wrong(f"you returned {got:.4g}, but 8 of the 10 samples are right: expected 0.8")
    if asked.count > 1:
        raise Wrong(f"the right value, but you asked for {asked.count} values in 3 batches: add up on the device")
    if model.grad:
        raise Wrong("the right value, but the forward passes kept what a backward pass needs: torch.no_grad()")


# ---- 15.4 ----


def _mean_loss(model, inputs, targets):
    return F.mse_loss(model(inputs), targets)


def _run(seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    inputs = torch.randn(8, 3)
    return model, optimizer, inputs, 3 * inputs.sum(1, keepdim=True)


def check_take_step(answer):
    for sizes, limit in (([4, 4], 1e9), ([6, 2], 1e9), ([6, 2], 0.5)):
        model, optimizer, inputs, targets = _run()
        twin, twin_optimizer, _, _ = _run()
        parts = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)
        stepped, step = [], optimizer.step
        optimizer.step = lambda *args, step=step, stepped=stepped, **more: (stepped.append(1), step(*args, **more))[1]
        shown = f"parts of {' and '.join(map(str, sizes))} samples, limit {limit:g}"
        call(_quiet(answer), model, optimizer, scaler, parts, _mean_loss, limit, shown=shown)
        _mean_loss(twin, inputs, targets).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), limit)
        twin_optimizer.step()
        untouched = torch.equal(model.weight, _run()[0].weight)
        if untouched and not stepped and all(p.grad is None for p in model.parameters()):
            raise NotAnswered
        if len(stepped) != 1:
            raise Wrong(f"for {shown} the optimizer took {len(stepped)} steps: one batch, one step")
        if scaler.state_dict()["_growth_tracker"] != 1:
            raise Wrong("the scaler has not counted one good step: scale the losses, and call scaler.update() once")
        if not torch.allclose(model.weight, twin.weight, atol=1e-5):
            moved = (model.weight - _run()[0].weight).norm() / (twin.weight - _run()[0].weight).norm()
            raise Wrong(
                f"for {shown} the weights moved {moved:.3g} times as far as by a step on the whole batch. "
                "Weigh each part by its share of the samples; unscale before you clip"
            )
        if any(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters()):
            raise Wrong("the gradients are still there: the next step would add its own to them")


def _quiet(answer):
    """The answer, whatever it returns: the step is judged by what it did."""

    def step(*args):
        answer(*args)

    return step


# ---- 15.5 ----


def _fresh(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return SimpleNamespace(model=model, optimizer=optimizer, generator=torch.Generator().manual_seed(seed), done=0)


def _go_on(run, steps):
    for _ in range(steps):
        for group in run.optimizer.param_groups:
            group["lr"] = 0.05 / (1 + run.done)
        x = torch.randn(16, 4, generator=run.generator)
        F.mse_loss(run.model(x), x.sum(1, keepdim=True)).backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.done += 1


def check_take_over(answer):
    old, new = _fresh(0), _fresh(1)
    _go_on(old, 3)
    before = copy.deepcopy(old.model.state_dict())
    got = call(answer, new, old, shown="an old run after 3 steps and a new one")
    if got is None:
        raise Wrong("you returned nothing, expected `new`")
    if not all(hasattr(got, name) for name in ("model", "optimizer", "generator", "done")):
        raise Wrong(f"you returned {got!r}, expected `new`")
    if got is old:
        raise Wrong("you returned the old run itself: bring the new one to its state")
    held = {p.data_ptr() for p in old.model.parameters()} | {b.data_ptr() for b in old.model.buffers()}
    held |= {v.data_ptr() for s in old.optimizer.state.values() for v in s.values() if torch.is_tensor(v)}
    mine = {p.data_ptr() for p in got.model.parameters()} | {b.data_ptr() for b in got.model.buffers()}
    mine |= {v.data_ptr() for s in got.optimizer.state.values() for v in s.values() if torch.is_tensor(v)}
    if held & mine or got.generator is old.generator:
        raise Wrong("the two runs share memory: what one trains, the other sees. Copy with load_state_dict and copies")
    if got.done != old.done:
        raise Wrong(f"new.done is {got.done}, old.done is {old.done}: the learning rate follows from it")
    if any(not torch.equal(v, before[k]) for k, v in got.model.state_dict().items()):
        raise Wrong("the weights or the buffers of new.model are not those of old.model")
    params = [p for group in got.optimizer.param_groups for p in group["params"]]
    if {id(p) for p in params} != {id(p) for p in got.model.parameters()}:
        raise Wrong("new.optimizer does not update the weights of new.model")
    if not torch.equal(got.generator.get_state(), old.generator.get_state()):
        raise Wrong("the generators draw different samples from here on: get_state and set_state")
    _go_on(old, 3)
    _go_on(got, 3)
    if any(not torch.equal(a, b) for a, b in zip(old.model.parameters(), got.model.parameters(), strict=True)):
        raise Wrong("three steps later the weights differ: the optimizer's moments (its state_dict) did not come along")


EXERCISES = [
    Exercise(
        number="15.1",
        title="What a rung can gain",
        name="whole_gain",
        stars=2,
        check=check_whole_gain,
        hints=[
            "Write the new time of a step as a sum: what stays, and what the part takes now.",
            "What stays is step - part. The part takes part / times, and nothing if times is infinite.",
            "step / (step - part + part / times)",
        ],
        solution="""
def whole_gain(step, part, times):
    return step / (step - part + part / times)
""",
        praise="This is Amdahl's law. A rung that makes a tenth of the step disappear gains 11%, however clever it is: "
        "so measure the parts before you choose the rung.",
        wrong={
            """
def whole_gain(step, part, times):
    return times * part / step
""": "the rest still takes",
            """
def whole_gain(step, part, times):
    return 1 + part / step * (times - 1)
""": "the rest still takes",
            """
def whole_gain(step, part, times):
    return step / (step - part)
""": "the rest still takes",
            """
def whole_gain(step, part, times):
    return "faster"
""": "expected a number",
        },
    ),
    Exercise(
        number="15.2",
        title="Samples from the step alone",
        name="samples_of",
        stars=2,
        check=check_samples_of,
        hints=[
            "How many whole batches has an epoch? divmod then gives the epoch and the batch in it.",
            "A torch.Generator of your own, seeded with seed and epoch, draws torch.randperm(n).",
            "Make one number of both: 1_000_003 * seed + epoch, so that no two pairs meet in practice.",
        ],
        solution="""
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[index * batch : (index + 1) * batch]
""",
        praise="No state to save, nothing to skip: step 1,000,000 of a resumed run finds its samples at once. With "
        "several processes each takes every size-th of them, as in train.py.",
        wrong={
            """
def samples_of(step, n, batch, seed):
    return torch.randint(n, (batch,), generator=torch.Generator().manual_seed(1_000_003 * seed + step))
""": "samples come twice",
            """
def samples_of(step, n, batch, seed):
    torch.manual_seed(seed)
    order = torch.randperm(n)
    index = step % (n // batch)
    return order[index * batch : (index + 1) * batch]
""": "the order of the first",
            """
def samples_of(step, n, batch, seed):
    index = step % (n // batch)
    return torch.randperm(n)[index * batch : (index + 1) * batch]
""": "when it is asked for again",
            """
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + epoch))
    return order[index * batch : (index + 1) * batch]
""": "repeat each other",
            """
def samples_of(step, n, batch, seed):
    index = step % (n // batch)
    return torch.arange(index * batch, (index + 1) * batch)
""": "in their own order",
        },
    ),
    Exercise(
        number="15.3",
        title="An evaluation that asks once",
        name="accuracy",
        stars=2,
        check=check_accuracy,
        hints=[
            "Count the right ones in a tensor on the device; the number of samples is known from the shapes.",
            "right = right + (scores.argmax(1) == labels).sum(), and .item() after the loop.",
            "Wrap it in torch.no_grad(), or write the decorator @torch.no_grad() above the function.",
        ],
        solution="""
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right = right + (model(inputs).argmax(1) == labels).sum()
        seen += len(labels)
    return right.item() / seen
""",
        praise="The host runs ahead of the device through all batches and waits once. On XLA it would be one program "
        "a batch, as long as each ends with a sync().",
        wrong={
            """
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right += (model(inputs).argmax(1) == labels).sum().item()
        seen += len(labels)
    return right / seen
""": "values in 3 batches",
            """
@torch.no_grad()
def accuracy(model, batches):
    shares = [(model(inputs).argmax(1) == labels).float().mean() for inputs, labels in batches]
    return torch.stack(shares).mean().item()
""": "half the samples",
            """
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right = right + (model(inputs).argmax(1) == labels).sum()
        seen += len(labels)
    return right.item() / seen
""": "torch.no_grad()",
            """
@torch.no_grad()
def accuracy(model, batches):
    right, seen = 0, 0
    for inputs, labels in batches:
        right = right + (model(inputs).argmax(1) == labels).sum()
        seen += len(labels)
    return right / seen
""": "you returned a tensor",
        },
    ),
    Exercise(
        number="15.4",
        title="One step in the right order",
        name="take_step",
        stars=2,
        check=check_take_step,
        hints=[
            "Each part's mean counts with its share: its number of samples over that of the whole batch.",
            "In the loop: scaler.scale(loss * share).backward(). After it, once: unscale, clip, step, update, zero.",
            "scaler.unscale_(optimizer) before clip_grad_norm_, or the limit is compared with scaled gradients.",
        ],
        solution="""
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        loss = loss_of(model, inputs, targets) * len(inputs) / whole
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""",
        praise="For text, the share is one of tokens that count, not of samples; with several processes it is a share "
        "of all their tokens. Libraries have got exactly this wrong.",
        wrong={
            """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) / len(parts)).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""": "its share of the samples",
            """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
""": "unscale before you clip",
            """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
""": "one batch, one step",
            """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        (loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    optimizer.zero_grad()
""": "has not counted one good step",
            """
def take_step(model, optimizer, scaler, parts, loss_of, limit):
    whole = sum(len(inputs) for inputs, _ in parts)
    for inputs, targets in parts:
        scaler.scale(loss_of(model, inputs, targets) * len(inputs) / whole).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()
""": "still there",
        },
    ),
    Exercise(
        number="15.5",
        title="A new run takes over",
        name="take_over",
        stars=2,
        check=check_take_over,
        hints=[
            "Four things decide the next step: weights and buffers, the optimizer's moments, the samples, the number.",
            "model and optimizer have state_dict and load_state_dict, a generator has get_state and set_state.",
            "Does optimizer.load_state_dict copy the tensors? Not those of the right type and device: deepcopy first.",
        ],
        solution="""
import copy


def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    new.optimizer.load_state_dict(copy.deepcopy(old.optimizer.state_dict()))
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""",
        praise="A file in between does the copying for you. The generator is the part that most checkpoints forget: "
        "the run goes on well, but it is another run.",
        wrong={
            """
def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""": "moments",
            """
import copy


def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    new.optimizer.load_state_dict(copy.deepcopy(old.optimizer.state_dict()))
    new.done = old.done
    return new
""": "draw different samples",
            """
def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    new.optimizer.load_state_dict(old.optimizer.state_dict())
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""": "share memory",
            """
import copy


def take_over(new, old):
    new.model = copy.deepcopy(old.model)
    new.optimizer.load_state_dict(copy.deepcopy(old.optimizer.state_dict()))
    new.generator.set_state(old.generator.get_state())
    new.done = old.done
    return new
""": "does not update the weights",
            """
import copy


def take_over(new, old):
    new.model.load_state_dict(old.model.state_dict())
    new.optimizer.load_state_dict(copy.deepcopy(old.optimizer.state_dict()))
    new.generator.set_state(old.generator.get_state())
    return new
""": "new.done is",
        },
    ),
]
