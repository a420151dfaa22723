"""Steps that wait or do not, for test_waits.py, for the emulated device, and for a
GPU (benchmarks/on_a_gpu.py, where pytest may lack).
"""

import copy
import warnings

import numpy
import torch
import torch.nn.functional as F
from torch import nn


class Given:
    """Tensors on a device, for the programs of the table."""

    def __init__(self, device):
        self.device = device
        self.x = torch.randn(8, 8).to(device)
        self.mask = self.x > 0
        self.three = torch.tensor(3).to(device)
        self.labels = torch.arange(8).to(device)
        self.leaf = nn.Parameter(self.x)
        self.total, self.lengths = self.x.sum(), (torch.tensor([4, 4]),) * 2
        self.square = self.x @ self.x.T + 8 * torch.eye(8).to(device)


def assign(target, index, value):
    target[index] = value


# program → how often it waits on CUDA, by sync-debug mode and by PyTorch's source
TABLE = {
    "x.sum().item()": 1,
    "float(x.sum())": 1,
    "bool(mask.any())": 1,
    "f'{x.sum():.3f}'": 1,
    "repr(x.sum())": 1,
    "0.5 in x": 1,
    "range(three)": 1,
    "x.tolist()": 1,
    "x.cpu().numpy()": 1,
    "torch.equal(x, x + 0)": 1,
    "torch.allclose(x, x)": 1,
    "torch.linalg.cholesky(square)": 1,
    "torch.linalg.inv(square)": 1,
    "x[mask]": 1,
    "x[:three]": 1,
    "x[three]": 1,
    "x[labels, three]": 1,
    "assign(x, three, 0.0)": 1,
    "assign(x, three, total)": 1,
    "assign(x, (0, three), 0.0)": 2,
    "assign(x, (three, three), 0.0)": 3,
    "assign(x, (labels, three), 0.0)": 2,
    "assign(x, (slice(three), 0), 0.0)": 1,
    "assign(x, three, x[0])": 1,
    "assign(x, three, labels[0])": 1,
    "x[[0, 2]]": 1,
    "x[(labels[:2], [0, 2])]": 1,
    "x[numpy.array([0, 2])]": 1,
    "assign(x.clone(), mask, x[mask])": 2,
    "assign(x.clone(), mask, total)": 1,
    "x[from_numpy(arange(2)), from_numpy(arange(2))]": 2,
    "x[from_numpy(arange(2)), labels[:2]]": 1,
    "x[from_numpy(arange(8) > 5)]": 0,
    "x[mask[0], mask[0]]": 2,
    "assign(x, (from_numpy(arange(2)), from_numpy(arange(2))), total)": 2,
    "assign(x, (from_numpy(arange(2)), from_numpy(arange(2))), 0.0)": 3,
    "(x + leaf)[from_numpy(arange(2)), from_numpy(arange(2))].sum().backward()": 4,
    "assign(x.clone(), (mask[0], mask[0]), 0.0)": 3,
    "x.index_put((mask,), total)": 1,
    "assign(x.clone(), labels, 0.0)": 1,
    "assign(x.clone(), (labels, labels), 0.0)": 1,
    "assign(x.clone(), (0, 0), 0.0)": 1,
    "x.masked_fill(mask, total)": 1,
    "x.index_fill(0, labels, total)": 1,
    "torch.where(mask, x, torch.tensor(0.0))": 1,
    "torch.linspace(0, total, 5, device=device)": 1,
    "torch.where(mask)": 1,
    "mask.nonzero()": 1,
    "torch.masked_select(x, mask)": 1,
    "torch.unique(labels)": 1,
    "torch.isin(x, x)": 1,  # by sorting
    "torch.isin(labels, labels)": 0,  # few
    "torch.signal.windows.hann(8, device=device)": 1,
    "torch.quantile(x, 0.5)": 0,
    "torch.bincount(labels)": 1,
    "torch.repeat_interleave(labels, labels)": 1,
    "F.one_hot(labels)": 1,
    "torch.ones(3).to(device)": 1,
    "torch.zeros(3).to(x)": 1,
    "torch.zeros(3).type_as(x)": 1,
    "torch.from_numpy(numpy.ones(3)).to(device)": 1,
    "torch.from_numpy(numpy.ones(3)).to(device, non_blocking=True)": 0,
    "torch.Tensor([1, 2]).to(device)": 1,
    "torch.LongTensor([1, 2]).to(device)": 1,
    "torch.asarray(numpy.ones(3)).to(device)": 1,
    "torch.asarray([1, 2], device=device)": 1,
    "torch.as_tensor(numpy.ones(3), device=device)": 1,
    "x.new_tensor([1, 2])": 1,
    "x.copy_(torch.ones(8, 8))": 1,
    "torch.tensor(1.0, device=device)": 1,
    "torch.tensor([x[0, 0], x[1, 1]])": 2,
    "torch.ones(3).to(device, non_blocking=True)": 0,
    "x.to(device)": 0,
    "x[labels]": 0,
    "x.index_select(0, labels)": 0,
    "x.gather(0, labels[None])": 0,
    "assign(x.clone(), mask, 0.0)": 0,
    "assign(x.clone(), (slice(None), mask[0]), 0.0)": 0,
    "assign(x.clone(), labels, total)": 0,
    "assign(x.clone(), 0, total)": 0,
    "assign(x.clone(), (0, 0), total)": 0,
    "assign(x.clone(), 0, 0.0)": 0,
    "assign(x.clone(), slice(2), 0.0)": 0,
    "x.masked_fill(mask, torch.tensor(0.0))": 0,
    "x.fill_(total)": 0,
    "torch.full((3,), 1.0, device=device)": 0,
    "torch.where(mask, x, 0.0)": 0,
    "x.masked_fill(mask, 0)": 0,
    "F.one_hot(labels, 8)": 0,
    "torch.repeat_interleave(labels, labels, output_size=28)": 0,
    "torch.zeros(3, device=device)": 0,
    "torch.tensor(1.0)": 0,
    "x * torch.tensor(2.0)": 0,
    "x @ x": 0,
    "x.sort()": 0,
    "x.topk(2)": 0,
    "x.argmax()": 0,
    "x.isnan().any()": 0,
    "len(x), x.numel(), x.shape[0]": 0,
    "unpack(pack(x.view(4, 2, 8), lengths[0]))": 0,
    "F.dropout(x)": 0,
    "F.cross_entropy(x, labels)": 0,
    "torch.multinomial(x.softmax(1), 1)": 0,
    "nn.utils.clip_grad_norm_([x], 1.0)": 0,
    "nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True)": 0,  # no gradient
}
# since 2.15: a number is made on the device, a single index is not read
# (ATen/TensorIndexing.h of 2.14.1 and of 2.15.0)
SINCE_2_15 = {
    "assign(x, three, 0.0)": 0,
    "assign(x, three, total)": 0,
    "assign(x, (0, three), 0.0)": 0,
    "assign(x, (three, three), 0.0)": 0,
    "assign(x, (labels, three), 0.0)": 0,
    "assign(x.clone(), labels, 0.0)": 0,
    "assign(x.clone(), (labels, labels), 0.0)": 0,
    "assign(x.clone(), (0, 0), 0.0)": 0,
    "assign(x, (from_numpy(arange(2)), from_numpy(arange(2))), 0.0)": 2,
    "assign(x.clone(), (mask[0], mask[0]), 0.0)": 2,
}
if torch.__version__ >= (2, 15):
    TABLE |= SINCE_2_15


def program(text, device):
    names = {"F": F, "nn": nn, "torch": torch, "numpy": numpy, "assign": assign}
    names |= {"arange": numpy.arange, "from_numpy": torch.from_numpy}
    names |= {"pack": nn.utils.rnn.pack_padded_sequence}
    names |= {"unpack": nn.utils.rnn.pad_packed_sequence} | vars(Given(device))
    return eval(f"lambda: ({text})", names)


FORMS = [{}, {"foreach": True}, {"foreach": False}]
FORMS += [{"foreach": False, "lr": torch.tensor(0.01)}]  # on the host
NAMES = "Adam AdamW SGD NAdam RAdam Adamax Adagrad Adadelta RMSprop Rprop".split()
OPTIMIZERS = [(name, options) for name in NAMES for options in FORMS]
OPTIMIZERS += [(name, {"fused": True}) for name in ["Adam", "AdamW", "SGD", "Adagrad"]]
OPTIMIZERS += [("AdamW", {"fused": True, "lr": torch.tensor(0.01)}), ("Muon", {})]
OPTIMIZERS += [("SGD", {"momentum": 0.9}), ("RMSprop", {"centered": True})]


def training(device, name="AdamW", options=None, read=lambda loss: None):
    """A step, with an optimizer that has taken one already."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 8))
    model.to(device)
    weights = [x for x in model.parameters() if x.dim() == 2 or name != "Muon"]
    optimizer = getattr(torch.optim, name)(weights, **copy.deepcopy(options or {}))
    x, labels = torch.randn(8, 8).to(device), torch.arange(8).to(device)

    def step():
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        read(loss)

    step()
    return step


def warned(step):
    """How often CUDA says that a step has waited."""
    step()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(each.message) for each in caught)
