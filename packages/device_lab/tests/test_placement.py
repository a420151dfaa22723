"""left_behind names what model.to(device) does not take along."""

import collections
import dataclasses
import json
import types
import weakref
from importlib.util import find_spec

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from device_lab import LabError, left_behind
from device_lab._kit import placement


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
        left.path: (left.shape, left.bytes, left.why) for left in report.found
    } == EXPECTED
    assert {left.device.type for left in report.found} == {"cpu"}
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
    assert "1: meta, 2 tensors, 32 bytes; the rest" in str(left_behind(model))


def test_before_the_move_it_names_what_would_stay():
    report = left_behind(blocks(), "cuda")
    assert {left.path for left in report.found} == {*EXPECTED} and not report.moved
    head = "Not moved yet. .to('cuda') would leave behind: 5 tensors, 124 bytes."
    assert str(report).startswith(head)
    for device in (None, "cpu"):
        head = "Would stay behind when the model moves: 5 tensors"
        assert str(left_behind(blocks(), device)).startswith(head)
    report = left_behind(blocks().to("meta"), "cpu")
    assert str(report).startswith("Not moved yet. .to('cpu')")
    assert str(left_behind(blocks().to("meta"))).startswith(
        "Left behind by .to('meta')"
    )
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta"))
    report = left_behind(mixed, "cuda")
    assert report.moved and len(report.found) == 4


class Layers(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.head, self.layers = nn.Linear(2, 2), [Masked() for _ in range(count)]
        self.more = nn.ModuleList([Masked()])
        self.scales = [nn.Parameter(torch.ones(3))]


class Masked(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.mask = torch.ones(2)


def test_one_line_for_a_cause_in_a_container():
    report = left_behind(Layers(5))
    assert len(report.found) == 5 * 3 + 2
    assert str(report).splitlines()[1:] == [
        f"layers: cpu, 10 tensors, 120 bytes; {placement.UNLISTED}",
        f"layers.*.mask: cpu, 5 tensors, 40 bytes; {placement.ATTRIBUTE}",
        f"scales.0: cpu [3] 12 bytes; {placement.PARAMETER}",
        f"more.0.mask: cpu [2] 8 bytes; {placement.ATTRIBUTE}",
        "Each tensor stands in .found.",
        placement.UNTRAINED,
    ]


def test_modules_that_no_module_lists():
    model = nn.Linear(2, 2)
    model.heads = [Detector(), Detect(), nn.Sequential(Rotary())]
    model.heads += [nn.ModuleList([model, model.heads[0]])]
    model.table = torch.ones(1)
    named = {left.path: left.why for left in left_behind(model).found}
    assert {path.rpartition(".")[2] for path in named} >= {"weight", "anchors", "cos"}
    assert len(named) == 1 + 2 + 5 + 2 + 4 + 4
    whys = {path: named[f"heads.{path}"] for path in ("0.anchors", "1.grid.1")}
    assert {*whys.values()} == {placement.ATTRIBUTE}
    assert named["heads.1.forgotten"] == placement.ATTRIBUTE
    assert named["heads.2.0.cos"] == placement.COMPUTED


class Detect(nn.Module):
    """Moves its plain tensors itself, as heads of detectors do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.grid, self.stride = [torch.zeros(1), torch.zeros(2)], torch.ones(3)
        self.forgotten = torch.ones(5)

    def _apply(self, fn):
        super()._apply(fn)
        self.stride, self.grid = fn(self.stride), list(map(fn, self.grid))
        self.probed_on = fn(torch.empty(0)).device  # as torchmetrics does
        return self


class Detector(nn.Module):
    """Moves those of a child."""

    def __init__(self):
        super().__init__()
        self.head, self.anchors = Detect(), torch.ones(7)

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self.anchors, self.head.forgotten = fn(self.anchors), fn(self.head.forgotten)
        return self


def test_what_a_module_moves_itself_is_not_left_behind():
    assert paths(nn.Sequential(Detect())) == ["0.forgotten"]
    assert paths(Detector()) == []
    moved = nn.Sequential(Detector()).to("meta")[0].head
    assert moved.stride.is_meta and moved.forgotten.is_meta


class Policy(nn.Module):
    """Moves its plain tensors in a `.to` of its own, as policies do."""

    def __init__(self):
        super().__init__()
        self.head, self.old = nn.Linear(2, 2), Old()
        self.scale, self.forgotten = torch.ones(2), torch.ones(5)
        self.tables = {"a": torch.ones(3)}

    def to(self, device):
        self.scale, self.place = self.scale.to(device), torch.empty(0, device=device)
        for name in self.tables:
            self.tables[name] = self.tables[name].to(device, non_blocking=True)
        self.head.bias = nn.Parameter(self.head.bias.to(device))
        self.old.to(device)
        return super().to(device)


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = torch.ones(7)

    def to(self, *args, **kwargs):
        self.mean = self.mean.to(*args, **kwargs)
        return super().to(*args, **kwargs)


class Refuses(Policy):
    def to(self, device):
        raise ValueError("not supported for 4 bits")


def test_what_a_to_of_the_models_own_moves_is_not_left_behind():
    model = Policy()
    before = {**vars(model)}, {**model.tables}, model.head.bias
    assert paths(model) == paths(model, "cuda") == ["forgotten"]
    assert ({**vars(model)}, {**model.tables}) == before[:2]
    assert model.head.bias is before[2]
    assert torch.ones(1).to("meta").is_meta  # PyTorch's, as before
    whole = ["forgotten", "old.mean", "scale", "tables.a"]
    assert sorted(paths(Refuses())) == whole
    # a parent's .to asks _apply alone
    assert sorted(paths(nn.ModuleList([model]))) == [f"0.{name}" for name in whole]
    assert paths(model.to("meta")) == ["forgotten"]
    model.scale = torch.ones(2)  # somebody made it anew, on the CPU
    assert paths(model) == ["scale", "forgotten"]


def paths(model, device=None):
    return [left.path for left in left_behind(model, device).found]


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_model_stays_as_it_was(swap, overwrite, monkeypatch):
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", swap)
    monkeypatch.setattr(
        torch.__future__, "_overwrite_module_params_on_conversion", overwrite
    )
    model = nn.Sequential(Detector(), nn.LSTM(2, 2), nn.BatchNorm1d(2))
    model[0].head.layer.bias = model[2].bias  # tied
    model[0].head.layer(torch.ones(1, 2)).sum().backward()
    watched = [weakref.ref(x) for x in model.parameters()]  # no swapping then

    def state():
        yield from (id(x) for module in model.modules() for x in vars(module).values())
        for x in [*model.parameters(), *model.buffers()]:
            yield from (id(x), id(x.grad), x.data_ptr(), x._version)
        yield from (id(vars(model[0].head).get("probed_on")), len(vars(model[0].head)))

    before = list(state())
    left_behind(model)
    assert list(state()) == before
    assert all(each() is not None for each in watched)


def test_an_apply_that_fails_leaves_the_model_and_pytorch_as_they_were():
    class Fails(nn.Linear):
        def _apply(self, fn):
            self.mark = 1
            raise RuntimeError("not this one")

    model, apply = nn.Sequential(Fails(2, 2)), nn.Module._apply
    with pytest.raises(RuntimeError, match="not this one"):
        left_behind(model)
    assert nn.Module._apply is apply and not hasattr(model[0], "mark")


HOOKED = {
    "weight_norm": nn.utils.parametrizations.weight_norm,
    "spectral_norm": nn.utils.parametrizations.spectral_norm,
    "orthogonal": nn.utils.parametrizations.orthogonal,
    "old weight_norm": nn.utils.weight_norm,
    "old spectral_norm": nn.utils.spectral_norm,
    "pruning": lambda x: prune.l1_unstructured(x, "weight", 2),
    "pruned twice": lambda x: prune.random_structured(
        prune.l1_unstructured(x, "weight", 2), "weight", 1, dim=0
    ),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", HOOKED)
def test_what_a_hook_computes_before_each_forward_is_not_named(name, grad):
    layer = HOOKED[name](nn.Linear(4, 4).requires_grad_(grad))
    layer.table = torch.ones(2)
    assert paths(layer) == ["table"]
    layer(torch.ones(1, 4))
    assert paths(layer) == ["table"]
    with nn.utils.parametrize.cached():
        layer(torch.ones(1, 4))
        assert paths(layer) == ["table"]


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(2)
        self.stale = nn.Linear(2, 2).weight * 2
        self.make(4)
        self.move()

    def make(self, length):
        self.cos = torch.zeros(length)

    def move(self):
        self.shift = torch.zeros(2)

    def forward(self, x):
        if len(x) > len(self.cos):
            self.make(len(x))
        return x.type(torch.float32) * self.cos

    def _apply(self, fn):
        super()._apply(fn)
        self.move()
        return self


def test_what_is_computed_is_named_in_softer_words():
    computed = placement.COMPUTED
    named = {left.path: left.why for left in left_behind(Rotary()).found}
    assert named == {
        "scale": placement.ATTRIBUTE,
        "stale": computed,
        "cos": computed,
        "shift": placement.ATTRIBUTE,
    }


class Aligner(nn.Module):
    def __init__(self):
        super().__init__()
        self.lengths, self.mask, self.gap, self.gain = (torch.ones(2) for _ in range(4))

    @torch.no_grad()
    def compute_mask(self, lengths):
        self.lengths, self.mask = lengths, lengths > 1
        self.count = torch.zeros(1)
        self.count += 1


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_align = Aligner()
        self.gain = torch.ones(2)

    def forward(self, x):
        self.self_align.compute_mask(x)
        self.self_align.gap = x + 1
        return x * self.gain


def test_so_is_what_another_module_makes_anew():
    model = Attends()
    model(torch.ones(2))
    named = {left.path: left.why for left in left_behind(model).found}
    assert named == {
        "gain": placement.ATTRIBUTE,
        **dict.fromkeys(
            (f"self_align.{x}" for x in ("lengths", "mask", "gap", "count")),
            placement.COMPUTED,
        ),
        "self_align.gain": placement.ATTRIBUTE,
    }


@dataclasses.dataclass
class Table:
    x: torch.Tensor


class Schedule:
    def __init__(self, model):
        self.betas, self.model = torch.ones(3), model


Pair = collections.namedtuple("Pair", "one other")


def test_other_things_that_hold_tensors():
    model = nn.Linear(2, 2)
    model.prior = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
    model.schedule = Schedule(model)  # of another package than Linear's
    own = blocks()[1]
    own.schedule, own.extras, own.caches = Schedule(model), [], {}
    own.offset = types.SimpleNamespace(a=torch.ones(1))
    own.recent = collections.deque([Table(torch.ones(1)), Pair(torch.ones(1), None)])
    own.users = collections.UserDict(x=torch.eye(2).to_sparse())
    assert paths(model) == ["prior.loc", "prior.scale"]
    assert paths(own) == [
        "offset.a",
        "schedule.betas",
        "schedule.model.weight",
        "schedule.model.bias",
        "schedule.model.prior.loc",
        "schedule.model.prior.scale",
        "recent.0.x",
        "recent.1.0",
        "users.x",
    ]


def test_lazy_layers():
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    model.extras = [nn.LazyLinear(4)]
    assert paths(model) == []
    assert paths(model, "cuda") == []
    model.extras = [nn.Linear(1, 1, bias=False)]
    model(torch.ones(2, 3))
    assert paths(model) == ["extras.0.weight"]


def test_what_is_there_already_is_not_left_behind():
    model = blocks().to("meta")
    model[1].offset = torch.zeros(4, device="meta")
    assert "1.offset" not in paths(model)


@pytest.mark.slow
def test_wrappers(tmp_path):
    """What DistributedDataParallel, FSDP and torch.compile keep is theirs."""
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("needs torch.distributed")
    rendezvous = (tmp_path / "store").as_uri()
    distributed.init_process_group("gloo", rendezvous, rank=0, world_size=1)
    try:
        Wrapper = nn.parallel.DistributedDataParallel
        expected = ["module.0.table"]
        for wrap in (Wrapper, nn.DataParallel):
            inner = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            inner[0].table = torch.ones(2)
            assert paths(wrap(inner)) == expected
        sharded = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        distributed.fsdp.fully_shard(sharded, mesh=mesh)
        sharded[0].table = torch.ones(2)
        assert paths(sharded) == ["0.table"]
        sharded(torch.ones(2, 4)).sum().backward()
        assert paths(sharded) == ["0.table"]
    finally:
        distributed.destroy_process_group()
    inner = nn.Linear(4, 4)
    inner.table = torch.ones(2)
    assert paths(torch.compile(inner)) == ["_orig_mod.table"]


def test_text_and_dictionary():
    report = left_behind(nn.Sequential(*(Block() for _ in range(2))))
    assert "*.extras: cpu, 4 tensors" in str(report) and repr(report) == str(report)
    assert json.loads(json.dumps(report.to_dict()))["found"][0] == {
        "path": "0.offset",
        "device": "cpu",
        "shape": [4],
        "bytes": 16,
        "why": placement.ATTRIBUTE,
        "group": "0.offset",
    }


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
    report = str(left_behind(model, optimizer=optimizer))
    assert "optimizer.param_groups[0].params[*]: cpu, 2 tensors" in report


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


def test_no_module_and_no_device():
    with pytest.raises(LabError, match="optimizer=optimizer"):
        left_behind(model := nn.Linear(2, 2), torch.optim.SGD(model.parameters()))
    with pytest.raises(LabError, match="nn.Module, this is Tensor"):
        left_behind(torch.ones(2))
