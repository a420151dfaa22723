"""left_behind names what model.to(device) does not take along."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from device_lab import placement
from device_lab.errors import LabError
from device_lab.placement import left_behind


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("mask", torch.ones(4), persistent=False)
        self.same = self.layer.weight  # has a name already
        self.offset = torch.zeros(4)
        self.extras = [nn.Linear(4, 4)]
        self.caches = {"cos": (torch.zeros(2, 3), None), 7: [torch.ones(1)]}
        self.caches["itself"] = self.caches
        self.words = ["a", "b"]


def blocks():
    return nn.Sequential(nn.Linear(4, 64), Block())


EXPECTED = {
    "1.offset": ((4,), 16, placement.ATTRIBUTE),
    "1.extras.0.weight": ((4, 4), 64, placement.UNLISTED),
    "1.extras.0.bias": ((4,), 16, placement.UNLISTED),
    "1.caches.cos.0": ((2, 3), 24, placement.ATTRIBUTE),
    "1.caches.7.0": ((1,), 4, placement.ATTRIBUTE),
}


@pytest.mark.parametrize("move", [False, True], ids=["before .to", "after .to"])
def test_attributes_are_named_by_path_device_and_size(move):
    model = blocks().to("meta") if move else blocks()
    report = left_behind(model)
    assert report.device.type == ("meta" if move else "cpu")
    assert {
        left.path: (left[2], left.bytes, left.why) for left in report.found
    } == EXPECTED
    assert {left.device.type for left in report.found} == {"cpu"}
    assert report.unsaved == ["1.mask"]
    assert "5 tensors, 124 bytes" in str(report) and "register_buffer" in str(report)


def test_what_it_names_stays_behind_and_nothing_else():
    model = Block()
    named = {left.path for left in left_behind(model).found}
    model.to("meta")
    moved = {
        "offset": model.offset,
        "extras.0.weight": model.extras[0].weight,
        "mask": model.mask,
        "layer.weight": model.layer.weight,
    }
    assert {path: path not in named for path in moved} == {
        path: x.is_meta for path, x in moved.items()
    }


def test_a_clean_model_and_layers_that_keep_lists_of_their_own():
    for model in (nn.LSTM(4, 4), nn.TransformerEncoderLayer(8, 2), nn.BatchNorm1d(4)):
        report = left_behind(model)
        assert report.found == [] and "none seen" in str(report)
    assert left_behind(nn.ReLU()).device.type == "cpu"


def test_parts_elsewhere():
    model = blocks()
    model[1].layer.bias = nn.Parameter(torch.zeros(4, device="meta"))
    model[1].mean = torch.zeros(4, device="meta")
    elsewhere = [
        x.path for x in left_behind(model).found if x.why is placement.ELSEWHERE
    ]
    assert elsewhere == ["1.layer.bias", "1.mean"]
    tensors = left_behind(nn.Linear(2, 2), "cuda").found
    assert [left.path for left in tensors] == ["weight", "bias"]


def test_a_tensor_that_a_hook_computes_anew():
    model = nn.Module()
    model.weight_g = nn.Parameter(torch.ones(2))
    model.weight = model.weight_g * 2
    assert [left.why for left in left_behind(model).found] == [placement.COMPUTED]


def test_an_optimizer_that_was_made_too_early():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    assert left_behind(model, optimizer=optimizer).found == []
    optimizer.state[model[0].weight]["exp_avg"] = torch.zeros(4, 4, device="meta")
    model[1] = nn.Linear(4, 3)
    tensors = left_behind(model, optimizer=optimizer).found
    assert [(left.why, left.shape) for left in tensors] == [
        (placement.STATE, (4, 4)),
        (placement.FOREIGN, (2, 4)),
        (placement.FOREIGN, (2,)),
    ]
    assert tensors[0].path == "optimizer.param_groups[0].params[0], exp_avg"


def test_the_step_of_adam_stays_on_the_cpu_on_purpose():
    model = nn.Linear(2, 2, bias=False, device="meta")
    optimizer = torch.optim.Adam(model.parameters())
    state = {"step": torch.ones(()), "exp_avg": torch.zeros(2, 2)}
    optimizer.state[model.weight] = state
    (left,) = left_behind(model, optimizer=optimizer).found
    assert left.path.endswith("exp_avg") and left.why is placement.STATE


def test_a_device_without_an_index_is_any_of_its_kind():
    first, second = torch.device("cuda:0"), torch.device("cuda:1")
    assert placement._same(second, torch.device("cuda"))
    assert not placement._same(second, first)


def test_meta_makes_new_parameters_and_an_early_optimizer_keeps_the_old_ones():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    foreign = left_behind(model.to("meta"), optimizer=optimizer).found
    assert {left.why for left in foreign} == {placement.FOREIGN} and len(foreign) == 2


@pytest.mark.xla
@pytest.mark.skipif(not find_spec("torch_xla"), reason="needs torch_xla")
def test_on_xla_an_early_optimizer_keeps_the_old_parameters():
    import torch_xla

    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters())
    foreign = left_behind(model.to(torch_xla.device()), "xla", optimizer).found
    assert [left.why for left in foreign] == [placement.FOREIGN] * 2


def test_no_module():
    with pytest.raises(LabError, match="nn.Module, this is Tensor"):
        left_behind(torch.ones(2))
