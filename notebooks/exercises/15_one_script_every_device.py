"""Exercises of lesson 15."""

import random
from itertools import pairwise
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from utils.exercises import (
    DOTS,
    Exercise,
    NotAnswered,
    Wrong,
    apart,
    call,
    expect_number,
)

# ---- 15.0 ----


class _Operations(TorchDispatchMode):
    """Notes the names of the operations that are asked for."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names += [func.overloadpacket.__name__] * (func.namespace == "aten")
        return func(*args, **(kwargs or {}))


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
        held = {id(p) for group in got.param_groups for p in group["params"]} & {
            id(p) for p in params
        }
        if len(held) < len(params):
            raise Wrong(
                f"for {shown} the optimizer holds {len(held)} of the model's"
                f" {len(params)} tensors of weights"
            )
        for group in got.param_groups:
            if abs(float(group["lr"]) - lr) > 1e-6 * lr:
                raise Wrong(
                    "the learning rate is {}, expected {}".format(
                        *apart(float(group["lr"]), lr)
                    )
                )
        for p in params:
            p.grad = torch.ones_like(p)
        try:
            got.step()  # the first one makes the buffers
            with _Operations() as asked:
                got.step()
        except Exception as error:
            raise Wrong(
                f"for {shown} its step() raised {type(error).__name__}: {error}"
            ) from error
        if asked.names.count("_fused_adamw_") != 1:
            raise Wrong(
                f"for {shown} a step asks for {len(asked.names)} operations"
                f" ({', '.join(asked.names[:3])}, …), expected one that updates all"
                f" {len(params)} tensors of weights"
            )


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
        got = float(expect_number(call(answer, step, part, times, shown=shown), shown))
        time = step - part + part / times
        if abs(got - step / time) <= 1e-6 * step / time:  # float32 will do
            continue
        values = {
            "that is how long a step now takes, in seconds": time,
            "that is the share of the time that is left; how many times as fast is its reciprocal": (
                time / step
            ),
            "that is the share of the time that is gone": 1 - time / step,
            "that is how many seconds are gone": step - time,
            "1 means as fast as before": step / time - 1,
            "1 means as fast as before, and no percent": 100 * (step / time - 1),
        }
        reason = (
            f"the rest still takes {step - part:g} s, the part now {part / times:g} s"
        )
        reason = next(
            (
                text
                for text, value in values.items()
                if value and abs(got - value) < 1e-9
            ),
            reason,
        )
        raise Wrong(
            "for {} you returned {}, expected {}: {}".format(
                shown, *apart(got, step / time), reason
            )
        )


# ---- 15.2 ----

EPOCHS = 12
LOW_BITS = "(Of the seed of a generator on the CPU, only the lowest 32 bits count.)"


def check_samples_of(answer):
    def ask(step, n, batch, seed):
        shown = f"step = {step}, n = {n}, batch = {batch}, seed = {seed}"
        got = call(answer, step, n, batch, seed, shown=shown)
        if (
            not torch.is_tensor(got)
            or got.shape != (batch,)
            or got.dtype not in (torch.int64, torch.int32)
        ):
            what = (
                f"a {got.dtype} tensor of shape {tuple(got.shape)}"
                if torch.is_tensor(got)
                else repr(got)
            )
            raise Wrong(
                f"for {shown} you returned {what}, expected a tensor of {batch}"
                " integers"
            )
        if got.min() < 0 or got.max() >= n:
            raise Wrong(
                f"for {shown} you returned {got.tolist()}: samples are numbered from 0"
                f" to {n - 1}"
            )
        return got.tolist()

    # whatever the answer does to the generator of all, it is undone
    with torch.random.fork_rng(devices=[]):
        state = torch.random.get_rng_state()
        for n, batch in ((23, 5), (20, 5), (7, 1), (10, 10)):
            _check_epochs(
                lambda step, n=n, batch=batch: ask(step, n, batch, 7), n, batch
            )
        found, large = {}, (64, 100, 1000)
        for seed in (*range(EPOCHS), *large):
            for epoch in (*range(EPOCHS), *large):
                order = tuple(ask(epoch, 64, 64, seed))
                if order in found:
                    other, earlier = found[order]
                    why = "two runs that should differ repeat each other"
                    if epoch == earlier:
                        why = f"the seed must go into the order. {LOW_BITS}"
                    elif seed == other:
                        why = "each epoch has an order of its own"
                    pairs = (
                        f"epoch {earlier} of seed {other} and epoch {epoch} of seed"
                        f" {seed}"
                    )
                    raise Wrong(f"{pairs} have the same order: {why}")
                found[order] = seed, epoch
        if not torch.equal(torch.random.get_rng_state(), state):
            raise Wrong(
                "the samples are right, but PyTorch's own generator was seeded or drawn"
                " from on the way: dropout would draw other numbers. Take a"
                " torch.Generator of your own"
            )


def _check_epochs(ask, n, batch):
    per_epoch = n // batch
    steps = random.Random(0).sample(range(EPOCHS * per_epoch), EPOCHS * per_epoch)
    drawn = {step: ask(step) for step in steps}
    for step in steps[::-3]:
        if ask(step) != drawn[step]:
            raise Wrong(
                f"step {step} gives other samples when it is asked for again: no"
                " resumed run is the same"
            )
    epochs = [
        [drawn[per_epoch * epoch + k] for k in range(per_epoch)]
        for epoch in range(EPOCHS)
    ]
    shown = (
        f"with {n} samples in batches of {batch}, an epoch has {per_epoch}"
        f" step{'s' * (per_epoch > 1)}"
    )
    for number, epoch in enumerate(epochs):
        seen = [sample for samples in epoch for sample in samples]
        if len(set(seen)) < len(seen):
            raise Wrong(f"{shown}; in epoch {number} samples come twice")
        if batch > 1 and all(
            (b - a) % n == 1 for samples in epoch for a, b in pairwise(samples)
        ):
            raise Wrong(
                f"{shown}; each holds neighbors, as {epoch[0]}: draw an order of the"
                " samples"
            )
    if epochs[0] == epochs[1]:
        why = f"the number of the epoch must go into the seed. {LOW_BITS}"
        raise Wrong(f"the second epoch has the order of the first: {why}")
    if 1 < batch < n and all(
        {*map(frozenset, e)} == {*map(frozenset, epochs[0])} for e in epochs
    ):
        raise Wrong(
            f"{shown}; their samples are the same in all epochs: draw an order of"
            " samples, not of batches"
        )
    never = sorted(
        set(range(n))
        - {sample for epoch in epochs for samples in epoch for sample in samples}
    )
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

    NAMES = {
        "item",
        "tolist",
        "cpu",
        "numpy",
        "__array__",
        "nonzero",
        "is_nonzero",
        "equal",
        "allclose",
        "unique",
    }
    NAMES |= {
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "__format__",
        "__repr__",
        "__contains__",
    }

    def __init__(self, given):
        super().__init__()
        # and id → tensor, kept so that no id serves twice
        self.names, self.on_host = [], {}
        # to move these to the model's device asks for no value
        self.given = set(map(id, given))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        found = [
            x
            for arg in args
            for x in (arg if isinstance(arg, (list, tuple)) else [arg])
            if torch.is_tensor(x)
        ]
        host = bool(found) and all(id(x) in self.on_host for x in found)
        to_host = (
            name == "to"
            and "cpu" in map(str, [*args[1:], *kwargs.values()])
            and id(args[0]) not in self.given
        )
        to_host = to_host or name == "cpu"
        from_list = (
            name in ("tensor", "as_tensor")
            and bool(args)
            and isinstance(args[0], (list, tuple))
        )
        by_mask = (
            name == "__getitem__" and getattr(args[1], "dtype", None) == torch.bool
        )
        if not host:
            self.names += [name] * (to_host or by_mask or name in self.NAMES)
            # it reads one after the other
            self.names += [name] * (len(found) if from_list else 0)
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
        if torch.is_tensor(result) and (to_host or from_list or host):
            # on a CPU, .cpu() hands back x itself
            result = result.view_as(result) if to_host else result
            self.on_host[id(result)] = result
        return result


class _Watched(nn.Module):
    """Its score is largest at the number behind the input's largest one. Notes whether
    it was called with gradients.
    """

    def __init__(self, classes):
        super().__init__()
        self.layer, self.drop, self.grad = (
            nn.Linear(classes, classes, bias=False),
            nn.Dropout(0.9),
            False,
        )
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
        largest, offset = (
            torch.arange(n) % classes,
            torch.tensor([2 if k in missed else 1 for k in range(n)]),
        )
        inputs, labels = (
            F.one_hot(largest, classes).float().split(size),
            ((largest + offset) % classes).split(size),
        )
        model, batches = (
            _Watched(classes).eval(),
            list(zip(inputs, labels, strict=True)),
        )
        shown = (
            f"{n} samples in batches of {', '.join(str(len(part)) for part in labels)}"
        )
        with _Asked([*inputs, *labels]) as asked:
            got = call(answer, model, batches, shown=shown)
        if torch.is_tensor(got):
            raise Wrong(
                f"for {shown} you returned a tensor, expected a Python number: ask for"
                " it once, at the end"
            )
        got, expected = float(expect_number(got, shown)), 1 - len(missed) / n
        if abs(got - expected) > 1e-6:
            why = f"{n - len(missed)} of the {n} samples are right"
            if abs(got - 100 * expected) < 1e-3:
                why = "a share goes from 0 to 1"
            if model.training:
                why = (
                    "in train mode, dropout changes the scores: leave the model in eval"
                    " mode"
                )
            means = [(part == 1).float().mean().item() for part in offset.split(size)]
            if abs(got - sum(means) / len(means)) < 1e-6:
                why = (
                    "that is the mean over batches, but the last one has"
                    f" {len(labels[-1])} samples, not {size}"
                )
            raise Wrong(
                "for {} you returned {}, expected {}: {}".format(
                    shown, *apart(got, expected), why
                )
            )
        if len(asked.names) > 1:
            names = ", ".join(asked.names[:4]) + ", …" * (len(asked.names) > 4)
            count = (
                f"you asked for {len(asked.names)} values in {len(batches)} batches"
                f" ({names})"
            )
            raise Wrong(f"the right value, but {count}: add up on the device")
        if model.grad:
            raise Wrong(
                "the right value, but the forward passes kept what a backward pass"
                " needs: torch.no_grad()"
            )
        if not torch.is_grad_enabled():
            raise Wrong(
                "the right value, but gradients are off for the rest of the program:"
                " with torch.no_grad()"
            )
        if model.training or not all(p.requires_grad for p in model.parameters()):
            raise Wrong(
                "the right value, but the model is another one now: leave its mode and"
                " its weights alone"
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
    draw, model = torch.Generator().manual_seed(0), nn.Linear(3, 1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) / 2)
    inputs = torch.randn(8, 3, generator=draw)
    return (
        model,
        torch.optim.SGD(model.parameters(), lr=0.5),
        inputs,
        3 * inputs.sum(1, keepdim=True) + 2,
    )


STEPS = [
    ([8], 1e9, 1024.0),
    ([4, 4], 1e9, 8.0),
    ([6, 2], 1e9, 1024.0),
    ([4, 4], 0.5, 1024.0),
    ([5, 2, 1], 1.0, 8.0),
]
FAULTS = {  # of parts that have these lengths: what a fault multiplies their means with
    "the means of the parts were added, and are to be one mean": lambda lengths: [
        1.0 for _ in lengths
    ],
    "weigh each part by its share of the samples": lambda lengths: [
        1 / len(lengths) for _ in lengths
    ],
    "only the last part counted": lambda lengths: (
        [0.0 for _ in lengths[1:]] + [lengths[-1] / 8]
    ),
    "each loss is a mean already": lambda lengths: [1 / n for n in lengths],
    "a mean is not a sum": lambda lengths: [float(n) for n in lengths],
}


def _weights(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def _stepped(parts, factors, limit):
    """The weights after a step for the sum of factor · mean over the parts, and the
    norm of its gradient.
    """
    model, optimizer, _, _ = _run()
    sum(
        factor * _mean_loss(model, *part)
        for factor, part in zip(factors, parts, strict=True)
    ).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
    return _weights(model), norm


def check_take_step(answer):
    for sizes, limit, scale in STEPS:
        model, optimizer, inputs, targets = _run()
        before = _weights(model)
        scaler, stepped, step = _Scaler(scale), [], optimizer.step
        optimizer.step = lambda *args, step=step, stepped=stepped, **more: (
            stepped.append(1),
            step(*args, **more),
        )[1]
        shown = f"parts of {' and '.join(map(str, sizes))} samples, limit {limit:g}"
        parts, returned = (
            list(zip(inputs.split(sizes), targets.split(sizes), strict=True)),
            [],
        )

        # whatever it returns: the step is judged by what it did
        def quiet(*args, returned=returned):
            returned.append(answer(*args))

        call(
            quiet if callable(answer) else answer,
            model,
            optimizer,
            scaler,
            parts,
            _mean_loss,
            limit,
            shown=shown,
        )
        if returned == [DOTS] and not scaler.calls and not stepped:
            raise NotAnswered
        if "scale" not in scaler.calls:
            raise Wrong(
                "the losses were not scaled by the scaler that is given:"
                " scaler.scale(…).backward()"
            )
        if "step" not in scaler.calls:
            raise Wrong(
                "the step was not taken through the scaler: scaler.step(optimizer)"
            )
        if len(stepped) != 1:
            raise Wrong(
                f"for {shown} the optimizer took {len(stepped)} steps: one batch, one"
                " step"
            )
        if "update" not in scaler.calls:
            raise Wrong("the scaler was not updated: scaler.update() after its step")
        if scaler.calls.index("update") < scaler.calls.index("step"):
            raise Wrong(
                "scaler.update() came before scaler.step(optimizer), and made it forget"
                " what was unscaled"
            )
        if scaler.calls.count("update") > 1:
            raise Wrong(
                f"scaler.update() was called {scaler.calls.count('update')} times: one"
                " batch, one update"
            )
        expected, norm = _stepped(parts, [n / 8 for n in sizes], limit)
        if not torch.allclose(_weights(model), expected, atol=1e-5):
            moved = (
                (_weights(model) - before).norm() / (expected - before).norm()
            ).item()
            if moved == 0:
                why = "no gradient was left when the step was taken"
            elif limit > norm:
                why = "weigh each part by its share of the samples"
                if len(sizes) == 1:
                    why = (
                        f"a single part weighs 1, and its gradient's norm of {norm:.3g}"
                        " is below the limit"
                    )
                    if moved < 2 / scale:
                        why = (
                            "the scale was taken out twice: scaler.step does it where"
                            " unscale_ did not"
                        )
                for text, factors in FAULTS.items():
                    if torch.allclose(
                        _weights(model),
                        _stepped(parts, factors(sizes), limit)[0],
                        atol=1e-5,
                    ):
                        why = text
            elif moved > 1.001:  # the same parts are right without clipping
                why = (
                    f"the gradient's norm is {norm:.3g}, clip it to the limit before"
                    " the step"
                )
            elif moved < 2 / scale:
                why = (
                    "it was clipped while it still had the scale: unscale before you"
                    " clip"
                )
            else:
                why = "clip the norm of all gradients together, once"
            far = (
                f"{moved:.3g} times as far as"
                if abs(moved - 1) > 0.01
                else "in another direction than"
            )
            far = f"the weights moved {far} by a step on the whole batch"
            raise Wrong(f"for {shown} {far}: {why}")
        if any(
            p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters()
        ):
            raise Wrong(
                "the gradients are still there: the next step would add its own to them"
            )


# ---- 15.5 ----


def _fresh(seed):
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) / 2)
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
    tensors += [
        v
        for s in run.optimizer.state.values()
        for v in s.values()
        if torch.is_tensor(v)
    ]
    return {x.untyped_storage().data_ptr() for x in tensors}


def _same_model(a, b):
    mine, theirs = (
        {**dict(run.model.named_parameters()), **dict(run.model.named_buffers())}
        for run in (a, b)
    )
    same = mine.keys() == theirs.keys() and all(
        torch.equal(mine[key], theirs[key]) for key in mine
    )
    return same and a.model.training == b.model.training


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
        shown = f"an old run after {steps} step{'s' * (steps != 1)} and a new one"
        got = call(answer, new, old, shown=shown)
        if got is old:
            raise Wrong(
                "you returned the old run itself: bring the new one to its state"
            )
        if got is not new:
            raise Wrong(
                f"for {shown} you returned"
                f" {'nothing' if got is None else 'something else'}, expected `new`"
            )
        for name, kind in KINDS.items():
            found = type(getattr(new, name, None))
            if not issubclass(found, kind):
                raise Wrong(
                    f"new.{name} is now of type {found.__name__}, expected"
                    f" {kind.__name__}"
                )
        if (
            not _same_model(old, twin)
            or not _same_generator(old, twin)
            or old.done != twin.done
        ):
            raise Wrong("the old run has changed: copy from it, and leave it as it was")
        if _memory(old) & _memory(new) or new.generator is old.generator:
            raise Wrong(
                "the two runs share memory: what one does, the other sees. Copy, then"
                " load_state_dict"
            )
        done = getattr(new, "done", None)
        if done != old.done:
            texts = apart(done, old.done)
            raise Wrong(
                "new.done is {}, old.done is {}: the learning rate follows from it".format(
                    *texts
                )
            )
        if not _same_model(new, old):
            raise Wrong(
                "the weights, the buffers or the mode of new.model are not those of"
                " old.model"
            )
        params = [p for group in new.optimizer.param_groups for p in group["params"]]
        if {id(p) for p in params} != {id(p) for p in new.model.parameters()}:
            raise Wrong("new.optimizer does not update the weights of new.model")
        if not _same_generator(new, old):
            raise Wrong(
                "the generators draw different samples from here on: get_state and"
                " set_state"
            )
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
