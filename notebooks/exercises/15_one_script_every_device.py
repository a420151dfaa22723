"""Exercises of lesson 15."""

import functools
import random
from itertools import pairwise
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from utils import expect
from utils.answers import DOTS, NotAnswered, Wrong, call
from utils.exercises import Exercise
from utils.operators import Operators
from utils.waits import READS

# ---- 15.0 ----


def check_optimizer_of(answer):
    for sizes, lr in (((3, 4, 2), 0.1), ((5, 6, 6, 6, 1), 0.003)):
        layers = list(map(nn.Linear, sizes, sizes[1:]))
        model = nn.Sequential(layers[0], nn.Sequential(*layers[1:]))
        params = list(model.parameters())
        shown = f"a model of {len(layers)} layers, lr = {lr}"
        got = call(answer, model, lr, shown=shown)
        if not isinstance(got, torch.optim.AdamW):
            by_type = isinstance(got, (torch.optim.Optimizer, tuple, list, nn.Module))
            what = f"an object of type {type(got).__name__}" if by_type else repr(got)
            raise Wrong(
                f"for {shown} you returned {what}, expected a torch.optim.AdamW"
            )
        held = _ids(_held(got)) & _ids(params)
        if len(held) < len(params):
            raise Wrong(
                f"for {shown} the optimizer holds {len(held)} of the model's"
                f" {len(params)} tensors of weights"
            )
        for group in got.param_groups:
            expect.close(float(group["lr"]), lr, shown, said="the learning rate is")
        for p in params:
            p.grad = torch.ones_like(p)
        try:
            got.step()  # the first one makes the buffers
            with Operators() as operators:
                got.step()
        except Exception as error:
            raise Wrong(
                f"for {shown} its step() raised {type(error).__name__}: {error}"
            ) from error
        names = [operator.name for operator in operators.ran]
        # step() marks itself for the profiler
        names = [name for name in names if not name.startswith("_record_function")]
        if names.count("_fused_adamw_") != 1:
            raise Wrong(
                f"for {shown} a step asks for {len(names)} operations"
                f" ({', '.join(names[:3])}, …), expected one that updates all"
                f" {len(params)} tensors of weights"
            )


def _held(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _ids(tensors):
    return set(map(id, tensors))


# ---- 15.1 ----

GAINS = [  # step, part, times, what the case is about
    (10.0, 5.0, 2, "half the step, twice as fast"),
    (20.0, 2.0, float("inf"), "a tenth of the step disappears"),
    (8.0, 6.0, 3, "three quarters, three times as fast"),
    (4.0, 4.0, 5, "the part is the whole step"),
    (4.0, 2.0, 0.5, "the rung makes its part slower"),
    (4.0, 0.0, 100, "the part takes no time at all"),
    (0.25, 0.2, 1, "the rung changes nothing"),
]


def check_whole_gain(answer):
    for step, part, times, why in GAINS:
        shown = f"step = {step} s, part = {part} s, times = {times} ({why})"
        got = float(expect.number(call(answer, step, part, times, shown=shown), shown))
        time = step - part + part / times
        gain = step / time
        slips = [
            (time, "that is how long a step now takes, in seconds"),
            (
                time / step,
                "that is the share of the time that is left; how many times as fast is"
                " its reciprocal",
            ),
            (1 - time / step, "that is the share of the time that is gone"),
            (step - time, "that is how many seconds are gone"),
            (gain - 1, "1 means as fast as before"),
            (100 * (gain - 1), "1 means as fast as before, and no percent"),
        ]
        why = f"the rest still takes {step - part:g} s, the part now {part / times:g} s"
        expect.close(got, gain, shown, why, slips)  # float32 will do


# ---- 15.2 ----

EPOCHS = 12
LOW_BITS = "(Of the seed of a generator on the CPU, only the lowest 32 bits count.)"


def check_samples_of(answer):
    # whatever the answer does to the generator of all, it is undone
    with torch.random.fork_rng(devices=[]):
        state = torch.random.get_rng_state()
        for n, batch in ((23, 5), (20, 5), (7, 1), (10, 10)):
            _check_epochs(answer, n, batch)
        _check_seeds(answer)
        if not torch.equal(torch.random.get_rng_state(), state):
            raise Wrong(
                "the samples are right, but PyTorch's own generator was seeded or drawn"
                " from on the way: dropout would draw other numbers. Take a"
                " torch.Generator of your own"
            )


def _ask(answer, step, n, batch, seed=7):
    shown = f"step = {step}, n = {n}, batch = {batch}, seed = {seed}"
    got = call(answer, step, n, batch, seed, shown=shown)
    whole = torch.is_tensor(got) and got.dtype in (torch.int64, torch.int32)
    if not whole or got.shape != (batch,):
        what = repr(got)
        if torch.is_tensor(got):
            what = f"a {got.dtype} tensor of shape {tuple(got.shape)}"
        raise Wrong(
            f"for {shown} you returned {what}, expected a tensor of {batch} integers"
        )
    if got.min() < 0 or got.max() >= n:
        raise Wrong(
            f"for {shown} you returned {got.tolist()}: samples are numbered from 0 to"
            f" {n - 1}"
        )
    return got.tolist()


def _check_seeds(answer):
    found, numbers = {}, (*range(EPOCHS), 64, 100, 1000)
    for seed in numbers:
        for epoch in numbers:
            order = tuple(_ask(answer, epoch, 64, 64, seed))
            if order not in found:
                found[order] = seed, epoch
                continue
            other, earlier = found[order]
            why = "two runs that should differ repeat each other"
            if epoch == earlier:
                why = f"the seed must go into the order. {LOW_BITS}"
            elif seed == other:
                why = "each epoch has an order of its own"
            raise Wrong(
                f"epoch {earlier} of seed {other} and epoch {epoch} of seed {seed} have"
                f" the same order: {why}"
            )


def _check_epochs(answer, n, batch):
    per_epoch = n // batch
    steps = random.Random(0).sample(range(EPOCHS * per_epoch), EPOCHS * per_epoch)
    drawn = {step: _ask(answer, step, n, batch) for step in steps}
    for step in steps[::-3]:
        if _ask(answer, step, n, batch) != drawn[step]:
            raise Wrong(
                f"step {step} gives other samples when it is asked for again: no"
                " resumed run is the same"
            )
    epochs = [
        [drawn[per_epoch * epoch + k] for k in range(per_epoch)]
        for epoch in range(EPOCHS)
    ]
    count = "1 step" if per_epoch == 1 else f"{per_epoch} steps"
    shown = f"with {n} samples in batches of {batch}, an epoch has {count}"
    for number, epoch in enumerate(epochs):
        seen = sum(epoch, [])
        if len(set(seen)) < len(seen):
            raise Wrong(f"{shown}; in epoch {number} samples come twice")
        pairs = [pair for samples in epoch for pair in pairwise(samples)]
        if pairs and all((b - a) % n == 1 for a, b in pairs):
            raise Wrong(
                f"{shown}; each holds neighbors, as {epoch[0]}: draw an order of the"
                " samples"
            )
    if epochs[0] == epochs[1]:
        raise Wrong(
            "the second epoch has the order of the first: the number of the epoch must"
            f" go into the seed. {LOW_BITS}"
        )
    batches = {frozenset(map(frozenset, epoch)) for epoch in epochs}
    if 1 < batch < n and len(batches) == 1:
        raise Wrong(
            f"{shown}; their samples are the same in all epochs: draw an order of"
            " samples, not of batches"
        )
    never = sorted(set(range(n)) - set(sum(drawn.values(), [])))
    if never:
        raise Wrong(
            f"{shown}; in {EPOCHS} epochs the samples {never} never come: let each"
            " epoch leave out others"
        )


# ---- 15.3 ----


class _Asked(TorchFunctionMode):
    """Notes the calls that bring a value to the host. What comes from .cpu() is there,
    and costs nothing more.
    """

    def __init__(self, given):
        super().__init__()
        self.names = []
        # id → tensor, kept so that no id serves twice
        self.on_host = {}
        # to move these to the model's device asks for no value
        self.given = _ids(given)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        found = [x for x in tree_leaves(args) if torch.is_tensor(x)]
        host = bool(found) and all(id(x) in self.on_host for x in found)
        to_host = name == "cpu"
        if name == "to" and id(args[0]) not in self.given:
            to_host = "cpu" in map(str, [*args[1:], *kwargs.values()])
        from_list = name in ("tensor", "as_tensor") and any(
            isinstance(data, (list, tuple)) for data in args[:1]
        )
        by_mask = (
            name == "__getitem__" and getattr(args[1], "dtype", None) == torch.bool
        )
        reads = name in READS or name in ("numpy", "__array__")
        if not host and (to_host or by_mask or reads):
            self.names.append(name)
        if not host and from_list:  # it reads one after the other
            self.names += [name for _ in found]
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
        if torch.is_tensor(result) and (to_host or from_list or host):
            if to_host:  # on a CPU, .cpu() hands back x itself
                result = result.view_as(result)
            self.on_host[id(result)] = result
        return result


class _Watched(nn.Module):
    """Its score is largest at the number behind the input's largest one. Notes whether
    it was called with gradients.
    """

    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(classes, classes, bias=False)
        self.drop = nn.Dropout(0.9)
        self.grad = False
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(classes).roll(1, 0))

    def forward(self, x):
        scores = self.layer(x)
        self.grad |= scores.requires_grad
        return self.drop(scores) - 3


EVALUATIONS = [  # classes, number of samples, in batches of, which are missed
    (4, 10, 4, [3, 8, 9]),
    (3, 5, 1, range(5)),
    (5, 7, 7, []),
    (2, 13, 3, [0, 1, 2, 5, 12]),
]


def check_accuracy(answer):
    for classes, n, size, missed in EVALUATIONS:
        largest = torch.arange(n) % classes
        offset = torch.tensor([2 if k in missed else 1 for k in range(n)])
        inputs = F.one_hot(largest, classes).float().split(size)
        labels = ((largest + offset) % classes).split(size)
        batches = list(zip(inputs, labels, strict=True))
        model = _Watched(classes).eval()
        shown = f"{n} samples in batches of {', '.join(str(len(y)) for y in labels)}"
        with _Asked([*inputs, *labels]) as asked:
            got = call(answer, model, batches, shown=shown, changes=[model])
        if torch.is_tensor(got):
            raise Wrong(
                f"for {shown} you returned a tensor, expected a Python number: ask for"
                " it once, at the end"
            )
        got = float(expect.number(got, shown))
        expected = 1 - len(missed) / n
        means = [(part == 1).float().mean().item() for part in offset.split(size)]
        mean = sum(means) / len(means)
        why = f"{n - len(missed)} of the {n} samples are right"
        if abs(got - mean) < 1e-6:
            why = (
                "that is the mean over batches, but the last one has"
                f" {len(labels[-1])} samples, not {size}"
            )
        elif model.training:
            why = (
                "in train mode, dropout changes the scores: leave the model in eval"
                " mode"
            )
        elif abs(got - 100 * expected) < 1e-3:
            why = "a share goes from 0 to 1"
        expect.close(got, expected, shown, why, rel_tol=0, abs_tol=1e-6)
        _judge_evaluation(asked.names, len(batches), model)


def _judge_evaluation(asked, batches, model):
    if len(asked) > 1:
        names = ", ".join([*asked[:4], "…"] if len(asked) > 4 else asked)
        raise Wrong(
            f"the right value, but you asked for {len(asked)} values in"
            f" {batches} batches ({names}): add up on the device"
        )
    if model.grad:
        raise Wrong(
            "the right value, but the forward passes kept what a backward pass needs:"
            " torch.no_grad()"
        )
    if not torch.is_grad_enabled():
        raise Wrong(
            "the right value, but gradients are off for the rest of the program: with"
            " torch.no_grad()"
        )
    if model.training or not all(p.requires_grad for p in model.parameters()):
        raise Wrong(
            "the right value, but the model is another one now: leave its mode and its"
            " weights alone"
        )


# ---- 15.4 ----


def _mean_loss(model, inputs, targets):
    return F.mse_loss(model(inputs), targets)


class _Scaler(torch.amp.GradScaler):
    """A scaler that notes its calls."""

    def __init__(self, scale):
        super().__init__("cpu", init_scale=scale, growth_interval=10**6)
        self.calls = []

    def scale(self, outputs):
        self.calls.append("scale")
        return super().scale(outputs)

    def step(self, optimizer, *args, **kwargs):
        self.calls.append("step")
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        self.calls.append("update")
        # else it raises, and speaks of inf checks
        if self.calls.count("update") <= self.calls.count("step"):
            super().update(new_scale)


def _run():
    """Model, optimizer, inputs and targets, always the same."""
    model = nn.Linear(3, 1)
    draw = torch.Generator().manual_seed(0)
    _draw_weights(model, draw)
    inputs = torch.randn(8, 3, generator=draw)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    return model, optimizer, inputs, 3 * inputs.sum(1, keepdim=True) + 2


def _draw_weights(model, draw):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) / 2)


STEPS = [  # sizes of the parts, limit, scale
    ([8], 1e9, 1024.0),
    ([4, 4], 1e9, 8.0),
    ([6, 2], 1e9, 1024.0),
    ([4, 4], 0.5, 1024.0),
    ([5, 2, 1], 1.0, 8.0),
]


def _faults(sizes):
    """Pairs (what a fault multiplies the means of the parts with, its text)."""
    means_added = [1.0 for _ in sizes]
    equal = [1 / len(sizes) for _ in sizes]
    last = [0.0 for _ in sizes[1:]] + [sizes[-1] / 8]
    return [
        (means_added, "the means of the parts were added, and are to be one mean"),
        (equal, "weigh each part by its share of the samples"),
        (last, "only the last part counted"),
        ([1 / n for n in sizes], "each loss is a mean already"),
        ([float(n) for n in sizes], "a mean is not a sum"),
    ]


def _weights(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def _stepped(parts, factors, limit):
    """The weights after a step for the sum of factor · mean over the parts, and the
    norm of its gradient.
    """
    model, optimizer, _, _ = _run()
    for factor, part in zip(factors, parts, strict=True):
        (factor * _mean_loss(model, *part)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    return _weights(model), norm


def check_take_step(answer):
    for sizes, limit, scale in STEPS:
        _judge_step(answer, sizes, limit, scale)


def _judge_step(answer, sizes, limit, scale):
    model, optimizer, inputs, targets = _run()
    targets += len(sizes)  # not the batch of the step before
    before, scaler = _weights(model), _Scaler(scale)
    stepped, returned, take_one = [], [], optimizer.step

    def step(*args, **more):
        stepped.append(1)
        return take_one(*args, **more)

    # whatever it returns: the step is judged by what it did
    @functools.wraps(answer)
    def quiet(*args):
        returned.append(answer(*args))

    optimizer.step = step
    shown = f"parts of {' and '.join(map(str, sizes))} samples, limit {limit:g}"
    parts = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))
    given = model, optimizer, scaler, parts, _mean_loss, limit
    called = quiet if callable(answer) else answer
    call(called, *given, shown=shown, changes=[model])
    if returned == [DOTS] and not scaler.calls and not stepped:
        raise NotAnswered
    _judge_calls(scaler.calls, len(stepped), shown)
    _judge_weights(model, before, parts, limit, scale, shown)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    if any(gradient.any() for gradient in gradients):
        raise Wrong(
            "the gradients are still there: the next step would add its own to them"
        )


def _judge_calls(calls, steps, shown):
    if "scale" not in calls:
        raise Wrong(
            "the losses were not scaled by the scaler that is given:"
            " scaler.scale(…).backward()"
        )
    if "step" not in calls:
        raise Wrong("the step was not taken through the scaler: scaler.step(optimizer)")
    if steps != 1:
        raise Wrong(
            f"for {shown} the optimizer took {steps} steps: one batch, one step"
        )
    updates = calls.count("update")
    if not updates:
        raise Wrong("the scaler was not updated: scaler.update() after its step")
    if calls.index("update") < calls.index("step"):
        raise Wrong(
            "scaler.update() came before scaler.step(optimizer), and made it forget"
            " what was unscaled"
        )
    if updates > 1:
        raise Wrong(
            f"scaler.update() was called {updates} times: one batch, one update"
        )


def _judge_weights(model, before, parts, limit, scale, shown):
    weights = _weights(model)
    sizes = [len(inputs) for inputs, _ in parts]
    expected, norm = _stepped(parts, [n / 8 for n in sizes], limit)
    if torch.allclose(weights, expected, atol=1e-5):
        return
    moved = ((weights - before).norm() / (expected - before).norm()).item()
    if moved == 0:
        why = "no gradient was left when the step was taken"
    elif limit > norm:
        why = "weigh each part by its share of the samples"
        if len(sizes) == 1 and moved < 2 / scale:
            why = (
                "the scale was taken out twice: scaler.step does it where unscale_ did"
                " not"
            )
        elif len(sizes) == 1:
            why = (
                f"a single part weighs 1, and its gradient's norm of {norm:.3g} is"
                " below the limit"
            )
        for factors, text in _faults(sizes):
            faulty, _ = _stepped(parts, factors, limit)
            if torch.allclose(weights, faulty, atol=1e-5):
                why = text
    elif moved > 1.001:  # the same parts are right without clipping
        why = f"the gradient's norm is {norm:.3g}, clip it to the limit before the step"
    elif moved < 2 / scale:
        why = "it was clipped while it still had the scale: unscale before you clip"
    else:
        why = "clip the norm of all gradients together, once"
    far = "in another direction than"
    if abs(moved - 1) > 0.01:
        far = f"{moved:.3g} times as far as"
    raise Wrong(
        f"for {shown} the weights moved {far} by a step on the whole batch: {why}"
    )


# ---- 15.5 ----


def _fresh(seed):
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    _draw_weights(model, draw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return SimpleNamespace(model=model, optimizer=optimizer, generator=draw, done=0)


def _go_on(run, steps):
    for _ in range(steps):
        for group in run.optimizer.param_groups:
            group["lr"] = 0.05 / (1 + run.done)
        x = torch.randn(16, 4, generator=run.generator)
        F.mse_loss(run.model(x), x.sum(1, keepdim=True)).backward()
        run.optimizer.step()
        run.optimizer.zero_grad()
        run.done += 1


def _memory(run):
    tensors = [*run.model.parameters(), *run.model.buffers()]
    tensors += filter(torch.is_tensor, tree_leaves(dict(run.optimizer.state)))
    return {x.untyped_storage().data_ptr() for x in tensors}


def _same_model(a, b):
    mine, theirs = (
        {**dict(run.model.named_parameters()), **dict(run.model.named_buffers())}
        for run in (a, b)
    )
    if mine.keys() != theirs.keys() or a.model.training != b.model.training:
        return False
    return all(torch.equal(mine[key], theirs[key]) for key in mine)


KINDS = {
    "model": nn.Module,
    "optimizer": torch.optim.Optimizer,
    "generator": torch.Generator,
}


def _same_generator(a, b):
    return torch.equal(a.generator.get_state(), b.generator.get_state())


def check_take_over(answer):
    for steps in (3, 1, 0):
        old, twin, new = _fresh(0), _fresh(0), _fresh(1)
        for run in (old, twin):  # twin is what old must still be afterwards
            run.optimizer.param_groups[0]["weight_decay"] = 0.5
            _go_on(run, steps)
        count = "1 step" if steps == 1 else f"{steps} steps"
        shown = f"an old run after {count} and a new one"
        got = call(answer, new, old, shown=shown)
        if got is old:
            raise Wrong(
                "you returned the old run itself: bring the new one to its state"
            )
        if got is not new:
            what = "nothing" if got is None else "something else"
            raise Wrong(f"for {shown} you returned {what}, expected `new`")
        _judge_state(new, old, twin)
        _go_on(old, 3)
        try:
            _go_on(new, 3)
        except Exception as error:
            raise Wrong(
                f"for {shown}, new's next step raised {type(error).__name__}: {error}"
            ) from error
        if not _same_model(new, old):
            raise Wrong(
                f"for {shown}, three steps later the weights differ: the optimizer's"
                " moments or settings (its state_dict) did not come along"
            )


def _judge_state(new, old, twin):
    for name, kind in KINDS.items():
        found = type(getattr(new, name, None))
        if not issubclass(found, kind):
            raise Wrong(
                f"new.{name} is now of type {found.__name__}, expected {kind.__name__}"
            )
    same = _same_model(old, twin) and _same_generator(old, twin)
    if not same or old.done != twin.done:
        raise Wrong("the old run has changed: copy from it, and leave it as it was")
    if _memory(old) & _memory(new) or new.generator is old.generator:
        raise Wrong(
            "the two runs share memory: what one does, the other sees. Copy, then"
            " load_state_dict"
        )
    done = getattr(new, "done", None)
    if done != old.done:
        mine, theirs = expect.distinct_texts(done, old.done)
        raise Wrong(
            f"new.done is {mine}, old.done is {theirs}: the learning rate follows from"
            " it"
        )
    if not _same_model(new, old):
        raise Wrong(
            "the weights, the buffers or the mode of new.model are not those of"
            " old.model"
        )
    if _ids(_held(new.optimizer)) != _ids(new.model.parameters()):
        raise Wrong("new.optimizer does not update the weights of new.model")
    if not _same_generator(new, old):
        raise Wrong(
            "the generators draw different samples from here on: get_state and"
            " set_state"
        )


EXERCISES = [
    Exercise(
        number="15.0",
        title="The rung of one word",
        name="optimizer_of",
        stars=1,
        check=check_optimizer_of,
        hints=[
            (
                "torch.optim.AdamW has three implementations. Which of them updates all"
                " weights at once?"
            ),
            "foreach=True still has a dozen operations a step. fused=True has one.",
            "torch.optim.AdamW(model.parameters(), lr, fused=True)",
        ],
        solution="""
def optimizer_of(model, lr):
    return torch.optim.AdamW(model.parameters(), lr, fused=True)
""",
        praise=(
            "On a CPU and on a GPU the same word. On XLA leave it out: there the"
            " compiler fuses the whole step."
        ),
    ),
    Exercise(
        number="15.1",
        title="What a rung can gain",
        name="whole_gain",
        stars=2,
        check=check_whole_gain,
        hints=[
            (
                "Write the new time of a step as a sum: what stays, and what the part"
                " takes now."
            ),
            (
                "What stays is step - part. The part takes part / times, and nothing if"
                " times is infinite."
            ),
            "step / (step - part + part / times)",
        ],
        solution="""
def whole_gain(step, part, times):
    return step / (step - part + part / times)
""",
        praise=(
            "This is Amdahl's law. A rung that makes a tenth of the step disappear"
            " gains 11%, however clever it is: so measure the parts before you choose"
            " the rung."
        ),
    ),
    Exercise(
        number="15.2",
        title="Samples from the step alone",
        name="samples_of",
        stars=3,
        check=check_samples_of,
        hints=[
            (
                "How many whole batches has an epoch? divmod then gives the epoch and"
                " the batch in it."
            ),
            (
                "A torch.Generator of your own, seeded with seed and epoch, draws"
                " torch.randperm(n)."
            ),
            (
                "Make one number of both: 1_000_003 * seed + epoch, so that no two"
                " pairs meet in practice."
            ),
        ],
        solution="""
def samples_of(step, n, batch, seed):
    epoch, index = divmod(step, n // batch)
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    return order[index * batch : (index + 1) * batch]
""",
        praise=(
            "No state to save, nothing to skip: step 1,000,000 of a resumed run finds"
            " its samples at once. With several processes each takes every size-th of"
            " them, as in train.py."
        ),
    ),
    Exercise(
        number="15.3",
        title="An evaluation that asks once",
        name="accuracy",
        stars=2,
        check=check_accuracy,
        hints=[
            (
                "Count the right ones in a tensor on the device; the number of samples"
                " is known from the shapes."
            ),
            (
                "right = right + (scores.argmax(1) == labels).sum(), and .item() after"
                " the loop."
            ),
            (
                "Wrap it in torch.no_grad(), or write the decorator @torch.no_grad()"
                " above the function."
            ),
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
        praise=(
            "The host runs ahead of the device through all batches and waits once. On"
            " XLA it would be one program a batch, as long as each ends with a sync()."
        ),
    ),
    Exercise(
        number="15.4",
        title="One step in the right order",
        name="take_step",
        stars=3,
        check=check_take_step,
        hints=[
            (
                "Each part's mean counts with its share: its number of samples over"
                " that of the whole batch."
            ),
            (
                "In the loop: scaler.scale(loss * share).backward(). After it, once:"
                " unscale, clip, step, update, zero."
            ),
            (
                "scaler.unscale_(optimizer) before clip_grad_norm_, or the limit is"
                " compared with scaled gradients."
            ),
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
        praise=(
            "For text, the share is one of tokens that count, not of samples; with"
            " several processes it is a share of all their tokens. Libraries have got"
            " exactly this wrong."
        ),
    ),
    Exercise(
        number="15.5",
        title="A new run takes over",
        name="take_over",
        stars=3,
        check=check_take_over,
        hints=[
            (
                "Four things decide the next step: weights and buffers, the optimizer's"
                " moments, the samples, the number."
            ),
            (
                "model and optimizer have state_dict and load_state_dict, a generator"
                " has get_state and set_state."
            ),
            (
                "Does optimizer.load_state_dict copy the tensors? Not those of the"
                " right type and device: deepcopy first."
            ),
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
        praise=(
            "A file in between does the copying for you. The generator is the part that"
            " most checkpoints forget: the run goes on well, but it is another run."
        ),
    ),
]
