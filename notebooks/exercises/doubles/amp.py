"""A step of mixed precision (AMP) on the CPU that keeps a record of itself.

Autocast and GradScaler are PyTorch's own, both of which run on the CPU; only the model
is a toy. Not shown: what float16 loses on a GPU's matmuls, gradients that underflow.
"""

import copy

import torch
import torch.nn.functional as F


def autocast_type(kind: str = "cpu") -> torch.dtype | None:
    """The type that autocast computes in for this kind of device; None where it is
    off.
    """
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


class RecordingScaler(torch.amp.GradScaler):
    """A GradScaler on the CPU that notes the names of its `calls`, in order, and the
    types of what it `scaled`. An update before the first step is noted, and does
    nothing.
    """

    def __init__(self, scale: float):
        super().__init__("cpu", init_scale=scale)
        self.calls, self.scaled = [], []

    def scale(self, outputs):
        self.calls.append("scale")
        self.scaled.append(getattr(outputs, "dtype", None))
        return super().scale(outputs)

    def step(self, optimizer, *args, **kwargs):
        self.calls.append("step")
        return super().step(optimizer, *args, **kwargs)

    def update(self, new_scale=None):
        self.calls.append("update")
        if "step" in self.calls:
            super().update(new_scale)


class AmpStep:
    """What a function that makes one step gets, and what it did with it.

    To hand over: `model`, `optimizer` (SGD, learning rate 0.1), `scaler`, `batches` (a
    list of `count` pairs x, y of equal size, 32 samples together). The parameters hold
    gradients of "the step before", 5000 each.

    What F.cross_entropy gives for all samples in float32: `loss`, and `gradient`, flat.

    The record: `forward` and `backward`, the type of autocast in each such pass, None
    where it was off; `adds`, whether each backward pass met a gradient to add to;
    `seen`, the gradient that each step of the optimizer saw, flat; `scaler.calls`;
    `moved`, the weights before less the weights now.
    """

    def __init__(self, count: int, scale: float = 2.0**10):
        random = torch.Generator().manual_seed(0)
        layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)
        self.model, self.scaler = torch.nn.Sequential(*layers), RecordingScaler(scale)
        with torch.no_grad():
            for p in self.model.parameters():
                p.copy_(torch.randn(p.shape, generator=random))
        x = torch.randn(32, 8, generator=random)
        y = torch.randint(3, (32,), generator=random)
        size = 32 // count
        self.batches = list(zip(x.split(size), y.split(size), strict=True))
        twin = copy.deepcopy(self.model)
        loss = F.cross_entropy(twin(x), y)
        loss.backward()
        self.loss, self.gradient = loss.item(), _gradients(twin)
        self._start = _weights(self.model)
        self.forward, self.backward, self.adds, self.seen = [], [], [], []
        self._watch()

    def _watch(self):
        for p in self.model.parameters():
            p.grad = torch.full_like(p, 5000.0)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.optimizer.register_step_pre_hook(
            lambda *_: self.seen.append(_gradients(self.model))
        )
        self.model.register_forward_hook(
            lambda *_: self.forward.append(autocast_type())
        )
        last = list(self.model.parameters())[-1]

        def before_adding(_):
            self.backward.append(autocast_type())
            self.adds.append(last.grad is not None and bool(last.grad.any()))

        last.register_hook(before_adding)

    @property
    def moved(self) -> torch.Tensor:
        return self._start - _weights(self.model)


def _gradients(model):
    grads = [
        torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()
    ]
    return torch.cat([grad.flatten() for grad in grads])


def _weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])
