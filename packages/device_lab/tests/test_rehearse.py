"""rehearse on what loops of strangers hold: each kind with its siblings."""

import contextlib
import copy
import functools
import math
import re

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from device_lab import LabError, rehearse

MIB = 2**20


def layers(width=256, count=4):
    def block():
        ends = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        return nn.Sequential(ends[0], nn.GELU(), ends[1])

    return nn.ModuleList(block() for _ in range(count))


class Net(nn.Module):
    def __init__(self, way=None):
        super().__init__()
        self.blocks, self.way = layers(), way

    def forward(self, x):
        if self.way in ("halves", "halves, reentrant"):
            again = self.way == "halves, reentrant"
            blocks = nn.Sequential(*self.blocks)
            return checkpoint_sequential(blocks, 2, x, use_reentrant=again)
        for block in self.blocks:
            again = functools.partial(checkpoint, use_reentrant=self.way == "reentrant")
            if self.way == "nested":
                inner, block = block, lambda x: again(inner, x)  # noqa: B023, PLW2901
            x = again(block, x) if self.way else block(x)
        return x


def training(build=Net, casts=contextlib.nullcontext, wrap=lambda model: model):
    """make() of a step of 2,048 samples, 256 wide."""

    def make():
        model = wrap(build())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        x = torch.randn(2048, 256).requires_grad_()  # as reentrant checkpoints want

        def step():
            optimizer.zero_grad()
            with casts():
                loss = model(x).square().mean()
            loss.backward()
            optimizer.step()

        return step

    return make


def bfloat16(device, autocast=torch.autocast):
    return lambda: autocast(device, dtype=torch.bfloat16)


@functools.cache
def usual(casts=contextlib.nullcontext):
    return rehearse(training(casts=casts), lower=casts is contextlib.nullcontext)


HALF = bfloat16("cuda")


@pytest.mark.parametrize("way", ["plain", "reentrant", "nested", "halves"])
def test_autocast_and_checkpoints_together(way):
    """Less than with one of them. An emulated T4 counts the same, to 0.02%."""
    build = functools.partial(Net, way)
    both = rehearse(training(build, HALF), lower=False).peak
    assert both < 0.95 * rehearse(training(build), lower=False).peak
    assert both < 0.9 * usual(HALF).peak


@pytest.mark.parametrize("autocast", [torch.autocast, torch.amp.autocast])
def test_autocast_for_the_cpu_is_the_device_s(autocast):
    """A loop says "cpu" where there is no GPU, and means its device."""
    casts = bfloat16("cpu", autocast)
    assert rehearse(training(casts=casts), lower=False).peak == usual(HALF).peak
    build = functools.partial(Net, "plain")
    both = (rehearse(training(build, each), lower=False) for each in (casts, HALF))
    assert next(both).peak == next(both).peak


def test_a_step_may_ask_whether_bfloat16_is_native():
    """As the recipe of lesson 08 does, with the argument by its name."""

    def asked(device="cuda"):
        assert torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.autocast(device, dtype=torch.bfloat16)

    assert rehearse(training(casts=asked), lower=False).peak == usual(HALF).peak


@pytest.mark.slow
def test_checkpoints_are_suggested_under_autocast():
    need = rehearse(training(casts=HALF))
    way = "each block in torch.utils.checkpoint"
    by_hand = training(functools.partial(Net, "plain"), HALF)
    by_hand = rehearse(by_hand, lower=False).peak
    assert need.lower[way] == pytest.approx(by_hand, rel=0.01)
    assert not any("autocast" in each for each in (*need.lower, *need.untried))


class Wrapper(nn.Module):
    """As DistributedDataParallel, and as EMA classes of libraries."""

    def __init__(self, model):
        super().__init__()
        self.module = self.online_model = model
        self.copy = [copy.deepcopy(model)]

    def forward(self, x):
        return self.module(x)


def averaged(model):
    model.average = [torch.optim.swa_utils.AveragedModel(model)]
    return model


class Parts(nn.Module):
    """A root that nobody calls: the step calls its parts."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Net(), Net()


def in_parts():
    parts = Parts()
    optimizer = torch.optim.SGD(parts.parameters(), 0.1)
    x = torch.randn(2048, 256)

    def step():
        optimizer.zero_grad()
        parts.second(parts.first(x)).mean().backward()
        optimizer.step()

    return step


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [Wrapper, averaged, None])
def test_wrappers_that_register_the_model_hide_no_suggestion(wrap):
    need = rehearse(training(wrap=wrap) if wrap else in_parts)
    assert need.lower.keys() >= {
        "autocast to bfloat16",
        "each block in torch.utils.checkpoint",
    }
    if wrap:
        gain = need.peak - need.lower["autocast to bfloat16"]
        assert gain == usual().peak - usual().lower["autocast to bfloat16"]


def test_tied_weights_of_a_copy_stay_tied():
    def make():
        model = nn.ModuleList([nn.Linear(1024, 1024, False) for _ in range(2)])
        model[1].weight = model[0].weight
        twin = copy.deepcopy(model)
        assert twin[1].weight is twin[0].weight
        assert isinstance(twin[1].weight, nn.Parameter)

        def step():
            model[1](model[0](torch.ones(8, 1024))).sum().backward()
            return twin

        return step

    assert rehearse(make, lower=False).before / MIB == pytest.approx(12, abs=0.1)


# Data


def pictures(i):
    return numpy.full((32, 32, 3), i % 255, dtype=numpy.uint8)


def to_tensor(picture):
    """That of torchvision."""
    x = torch.from_numpy(picture).permute(2, 0, 1).contiguous()
    if isinstance(x, torch.ByteTensor):
        return x.to(dtype=torch.get_default_dtype()).div(255)
    return x


class Pictures(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return to_tensor(pictures(i)), i % 10


class Stream(IterableDataset):
    def __iter__(self):
        for i in range(64):
            yield torch.as_tensor(pictures(i)).permute(2, 0, 1).float() / 255, i % 10


def classifier():
    ends = nn.Conv2d(3, 32, 3, padding=1), nn.Linear(32 * 32 * 32, 10)
    return nn.Sequential(ends[0], nn.ReLU(), nn.Flatten(), ends[1])


def reading(loader):
    """make() of a step that takes its batches from a loader."""

    def make():
        model, batches = classifier(), iter(loader())
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step():
            x, y = next(batches)
            x, y = x.to("cuda", non_blocking=True), y.cuda()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return make


def by_hand():
    while True:
        batch = torch.stack([to_tensor(pictures(i)) for i in range(16)])
        yield batch, torch.arange(16) % 10


def made():
    while True:
        yield torch.randn(16, 3, 32, 32), torch.randint(10, (16,))


def resident():
    images = torch.randint(256, (64, 3, 32, 32), dtype=torch.uint8)
    for x, y in DataLoader(TensorDataset(images, torch.zeros(64).long()), 16):
        yield x / 255, y


@pytest.mark.parametrize(
    ("loader", "rest"),
    [
        (lambda: DataLoader(Pictures(), 16, shuffle=True), 0),
        (lambda: DataLoader(Pictures(), 16, num_workers=1, timeout=9), 0),
        (lambda: DataLoader(Stream(), 16, pin_memory=True), 0),
        (by_hand, 0),
        (resident, 64 * 3 * 32 * 32),
    ],
)
@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_loaders_and_transforms_in_the_step(loader, rest):
    """As with a batch that make() builds; a set of pictures in tensors counts."""
    need = rehearse(reading(loader), lower=False)
    plain = rehearse(reading(made), lower=False)
    assert need.peak - rest == pytest.approx(plain.peak, rel=0.02)


def test_a_trainer_that_counts_its_steps():
    """A second call does nothing: the first is counted, and the changes say why not."""

    class Trainer:
        done = 0

        def __init__(self):
            self.step = training()()

        def train(self):
            while self.done < 2:
                self.step()
                self.done += 1

    need = rehearse(lambda: Trainer().train)
    assert need.peak == usual().peak
    assert "a second call" in need.untried["autocast to bfloat16"]
    lines = str(need).splitlines()
    assert max(map(len, lines)) <= 88 and "not tried: autocast" in str(need)


def test_layers_that_were_copied_are_parameters_without_an_optimizer():
    def make():
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        return lambda: model(torch.ones(2, 3, 16)).sum().backward()

    need = rehearse(make, lower=False)
    layer = nn.TransformerEncoderLayer(16, 2, 32)
    nbytes = 4 * 4 * sum(p.numel() for p in layer.parameters())
    assert need.kinds["parameters"] >= nbytes
    assert need.kinds["gradients"] >= nbytes


# What Python's numbers determine


class Strides(nn.Module):
    """Computes with values, as YOLO's constructor."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 8, 3, s, 1) for s in (2, 4))
        sizes = [layer(torch.zeros(1, 3, 64, 64)).shape[-1] for layer in self.layers]
        self.stride = torch.tensor([64 / size for size in sizes])
        self.register_buffer("anchors", torch.tensor([[10.0, 20.0], [30.0, 40.0]]))
        self.anchors /= self.stride.view(-1, 1)
        for layer, s in zip(self.layers, self.stride, strict=True):
            layer.bias.data[:4] += math.log(8 / (64 / s) ** 2)
        steps = [x.item() for x in torch.linspace(0, 0.3, 4)]
        assert steps == pytest.approx([0, 0.1, 0.2, 0.3])
        self.blocks = nn.ModuleList(
            nn.Dropout(p) if p else nn.Identity() for p in steps
        )
        assert [type(x).__name__ for x in self.blocks[:2]] == ["Identity", "Dropout"]

    def forward(self, x):
        return sum(layer(x).mean() for layer in self.layers)


def test_constructors_that_compute_with_values():
    def make():
        model = copy.deepcopy(Strides()).to("cuda").float()
        assert model.anchors.tolist() == [[5.0, 10.0], [7.5, 10.0]]
        assert model.stride.numpy().tolist() == [2.0, 4.0]
        return lambda: model(torch.randn(2, 3, 64, 64)).backward()

    assert rehearse(make, lower=False).peak


def test_what_numbers_determine_is_known_and_what_is_computed_of_weights_is_not():
    def make():
        layer, crops = nn.Linear(1024, 1024), [torch.zeros(2, s) for s in (8, 8, 4)]

        def step():
            sizes = torch.tensor([x.shape[-1] for x in crops])
            counts = torch.unique_consecutive(sizes, return_counts=True)[1]
            ends = torch.cumsum(counts.cuda(), 0)
            seen.append([*ends.tolist(), int(ends[0]), sizes.max().item()])
            lengths = torch.from_numpy(numpy.array([3, 1])).to("cuda")
            mask = torch.arange(4, device="cuda") < lengths[:, None]
            seen.append(len(mask.nonzero()))
            y = layer(torch.zeros(4, 1024))
            y[mask.sum() - 4] = 1.0
            y.sum().backward()
            seen.append(y[0, 0].item())
            ends += y[0, :2].long()
            seen.append(ends.tolist())

        return step

    seen = []
    rehearse(make, lower=False)
    assert seen[:4] == [[2, 3, 2, 8], 4, 0.0, [0, 0]]


@pytest.mark.parametrize(
    "wrap",
    [
        nn.utils.weight_norm,
        parametrizations.weight_norm,
        nn.utils.spectral_norm,
        parametrizations.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        lambda layer: prune.ln_structured(layer, "weight", 0.5, n=2, dim=0),
    ],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_parametrized_layers(wrap):
    """They move, whatever holds their weights; two are kept at least."""

    def make():
        model = nn.Sequential(wrap(nn.Linear(1024, 1024)), nn.ReLU()).cuda().to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step():
            model(torch.ones(8, 1024)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    need = rehearse(make, lower=False)
    assert 4 < need.kinds["parameters"] / MIB < 4.1 and need.peak > 12 * MIB


def test_a_model_that_is_there_already_counts_where_it_is_used():
    teacher = nn.Linear(1024, 1024).requires_grad_(False)

    def make():
        student = nn.Linear(1024, 1024)
        both = [*student.parameters(), *teacher.parameters()]
        optimizer = torch.optim.SGD(both, 0.1)
        x = torch.from_numpy(numpy.ones((8, 1024), numpy.float32)).to("cuda")

        def step():
            F.mse_loss(student(x), teacher.to("cuda")(x)).backward()
            optimizer.step()

        return step

    need = rehearse(make, lower=False)
    assert need.kinds["parameters"] / MIB == pytest.approx(8, abs=0.1)
    assert type(teacher.weight) is nn.Parameter and teacher.weight.sum().item()


# A GPU that is not there


def test_what_speaks_to_the_gpu_is_passed_by():
    def make():
        model = Net().cuda()
        scalers = torch.amp.GradScaler("cuda"), torch.cuda.amp.GradScaler()
        optimizers = [torch.optim.SGD(model.parameters(), 0.1) for _ in scalers]
        torch.cuda.set_device(0)
        torch.cuda.manual_seed_all(1)
        generator = torch.Generator(device="cuda").manual_seed(0)
        torch.randn(2, device="cuda", generator=generator)
        stream = torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def step():
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.empty_cache()
            begin.record()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                x = torch.randn(2048, 256).pin_memory().cuda(non_blocking=True)
                x.record_stream(stream)
            for scaler, optimizer in zip(scalers, optimizers, strict=True):
                optimizer.zero_grad()
                with torch.cuda.amp.autocast():
                    loss = model(x).mean()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            end.record()
            torch.cuda.synchronize()
            torch.accelerator.synchronize()
            used = (
                torch.cuda.max_memory_allocated() / MIB + torch.cuda.memory_reserved()
            )
            seen.append(f"{begin.elapsed_time(end):.1f} ms, {used:.0f} MiB")

        return step

    seen, kept = [], torch.cuda.synchronize
    need = rehearse(make, lower=False)
    assert need.peak and len(seen) == 2 and torch.cuda.synchronize is kept


def test_devices_by_name_and_number():
    def make():
        model = nn.DataParallel(nn.Linear(1024, 1024)).to("cuda:0")
        device = torch.device(type="cuda", index=1)
        y = torch.zeros(3, device=torch.device("cuda", 0)).to(device)
        x = torch.ones(8, 1024, device=0).to(0).to("cuda:1").to(y).to(device=1)
        return lambda: model(x).sum().backward()

    assert rehearse(make, lower=False).peak > 12 * MIB


# What cannot be done


def test_nothing_is_written_and_the_generators_stay(tmp_path):
    def make():
        model = nn.Linear(4, 4)

        def step():
            model(torch.randn(2, 4)).sum().backward()
            torch.save(model.state_dict(), tmp_path / "model.pt")

        return step

    state = torch.get_rng_state()
    rehearse(make)
    assert not list(tmp_path.iterdir()) and torch.equal(state, torch.get_rng_state())


def test_an_error_says_first_what_to_hand_over():
    def failing(line):
        def make():
            model = nn.Linear(1024, 1024)
            return lambda: line(model(torch.randn(4, 1024)).sum())

        return make

    def of_torch(loss):
        torch.ones(2) @ torch.ones(3)

    for line in (lambda x: 1 / x.item(), lambda x: math.log(x), of_torch):
        with pytest.raises(
            LabError, match=r"^leave out for rehearse.*test_rehearse.py:\d"
        ) as info:
            rehearse(failing(line))
        assert ("read as 0" in str(info.value)) == (line is not of_torch)

    def checked(loss):
        if not loss > 1:
            raise AssertionError

    with pytest.raises(LabError, match=r":\d+: AssertionError\. Unknown.*if not loss"):
        rehearse(failing(checked))
    with pytest.raises(KeyError):  # the reader's own
        rehearse(failing(lambda loss: {}["loss"]))
    with pytest.raises(LabError, match="calls nothing of PyTorch"):
        rehearse(lambda: nn.Linear(2, 2) and (lambda: None))


def guessing(*lines):
    """Lines of a step, by name, each in its own function."""

    def make():
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cuda")
        x, seen = torch.randn(1024, 256), []  # too many to be known

        def step():
            loss = model(x).square().mean()
            for each in lines:
                each(x, loss, seen)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return step

    return rehearse(make, lower=False)


def branches(x, loss, seen):
    if (x > 0).any():
        seen.append(x @ x.T)


def compares(x, loss, seen):
    while loss.item() > 1:
        return


def compares_sums(x, loss, seen):
    return (x > 0).sum() == 0 or None


def compares_values(x, loss, seen):
    return torch.equal(x, x + 1)


def sizes(x, loss, seen):
    n = (x[:, 0] > 0).sum().item()
    seen.append(x[:n])


def lists(x, loss, seen):
    torch.split(x, [*x[0, :1].long().tolist(), len(x)])


def logs(x, loss, seen):
    seen.append(loss.item())  # for the mean
    print(f"loss {loss:.3f}", "if", float(loss))
    hits = 0
    hits += (x > 0).sum().item()
    seen.append((x > 0).sum().item() / len(x))
    seen.extend(x.argmax(1).tolist())


@pytest.mark.slow
def test_lines_that_read_unknown_values_are_named():
    """Where that may lead to another branch or size, in the text as well."""
    for each in (branches, compares, compares_sums, compares_values, sizes, lists):
        need, first = guessing(each, logs), each.__code__.co_firstlineno + 1
        text = f"Guessed 0: test_rehearse.py:{first}: "
        assert str(need).count("Guessed") == str(need).count(text) == 1, each
        assert "may not be yours" in str(need)
        assert need.to_dict()["guessed"] == need.guessed and len(need.guessed) == 6
    text = str(guessing(branches, compares, compares_sums, sizes))
    assert text.count("Guessed 0") == 3 and "And 1 more. If" in text
    usual = guessing(logs)
    assert "Guessed" not in str(usual) and not any(usual.guessed.values())
    assert not guessing().guessed


def test_a_step_in_the_place_of_make_is_told_so():
    model, x = nn.Linear(4, 4), torch.ones(2, 4)

    def step(batch=x):
        model(batch).sum().backward()

    def picks():
        y = model(x)
        return y[y > 0].sum()

    @functools.wraps(lambda batch: None)  # a decorator that gives it
    def decorated():
        layer = nn.Linear(4, 4)
        return lambda: layer(x).sum().backward()

    assert rehearse(decorated, lower=False).peak

    def builds():
        nn.Linear(4, 4)
        return lambda batch: None

    for made, tells in (
        (lambda batch: step(batch), "returns the function that does one step"),
        (step, "this calls a model that was there"),
        (lambda: None, "this returned a NoneType"),
        (lambda: nn.Linear(4, 4)(x).sum(), "this returned a FakeTensor"),
        (picks, "this calls a model that was there"),
        (model, "this is a Linear"),
    ):
        with pytest.raises(LabError, match=f"rehearse asks for a make.*{tells}"):
            rehearse(made)
    with pytest.raises(LabError, match=r"needs arguments: give them in make\(\)"):
        rehearse(builds)


@pytest.mark.slow
@pytest.mark.parametrize("registered", [False, True])
def test_blocks_in_a_plain_list_are_blocks(registered):
    """They are suggested whether their parent registers them or not."""

    class Plain(Net):
        def __init__(self, way=None):
            super().__init__(way)
            del self.blocks
            self.blocks = [Residual() for _ in range(4)]
            self.first = nn.Linear(256, 256)  # for the optimizer
            for i, block in enumerate(self.blocks if registered else []):
                self.add_module(f"block{i}", block)

    need = rehearse(training(Plain)).lower["each block in torch.utils.checkpoint"]
    by_hand = rehearse(training(functools.partial(Plain, "plain")), lower=False).peak
    assert need == pytest.approx(by_hand, rel=0.01)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.rest = layers(count=1)[0]

    def forward(self, x):
        return x + self.rest(x)


def test_a_change_that_cannot_be_tried_says_why():
    class Fussy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(256, 256)

        def forward(self, x):
            y = self.layer(x)
            if y.dtype != x.dtype:
                raise TypeError("float32 only")
            return y

    need = rehearse(training(Fussy))
    assert "TypeError: float32 only" in need.untried["autocast to bfloat16"]
    assert "nn.ModuleList" in need.untried["each block in torch.utils.checkpoint"]
    assert re.search(r"not tried: autocast.*, because: TypeError", str(need))
    assert need.to_dict()["untried"] == need.untried


# What else strangers' loops hold


def linear(extra=lambda y: None, optimizer=torch.optim.SGD, wrap=lambda model: model):
    def make():
        model = wrap(nn.Linear(64, 64, bias=False))
        update = optimizer(model.parameters(), lr=0.1)

        def step():
            y = model(torch.ones(4, 64))
            extra(y)
            y.sum().backward()
            update.step()

        return step

    return rehearse(make, lower=False)


def test_one_process_of_several_has_buckets_for_what_it_sends():
    alone, parallel = linear(), linear(wrap=nn.parallel.DistributedDataParallel)
    assert parallel.peak - alone.peak == 4 * 64 * 64
    saving = functools.partial(
        nn.parallel.DistributedDataParallel, gradient_as_bucket_view=True
    )
    assert linear(wrap=saving).peak == alone.peak


def test_what_is_sent_takes_no_data():
    def send(y):
        torch.distributed.broadcast(y, 0)
        torch.distributed.all_reduce(y.detach(), async_op=True).wait()

    assert linear(send).peak == linear().peak


def test_the_host_counts_adams_steps():
    plain, fused = (
        linear(optimizer=functools.partial(torch.optim.Adam, fused=fused))
        for fused in (False, True)
    )
    assert plain.kinds["optimizer state"] == 2 * 4 * 64 * 64
    assert fused.kinds["optimizer state"] == 2 * 4 * 64 * 64 + 512


def test_an_array_may_be_read_twice():
    def read(y):
        times = torch.from_numpy(numpy.arange(4)).long().to("cuda")
        assert [times.cpu().numpy().sum() for _ in range(2)] == [6, 6]

    assert linear(read).guessed == {}


def test_known_lengths_and_masks_decide_sizes_whatever_the_data():
    def lose(y):
        scores = y.view(4, 1, 64).log_softmax(-1)
        lengths = torch.full((1,), 4), torch.full((1,), 2)
        F.ctc_loss(scores, torch.ones(1, 2, dtype=torch.long), *lengths)
        mask = y.new_zeros(64, dtype=torch.bool)
        mask[8:] = True
        assert y[:, mask].shape == (4, 56)

    assert linear(lose).guessed == {}


def test_a_size_that_depends_on_values_is_named_with_the_library_s_line(tmp_path):
    """What a library's line needs the reader cannot write otherwise."""
    file = tmp_path / "site-packages" / "pooling.py"
    file.parent.mkdir()
    file.write_text("def pool(y):\n    return y[y > 0]\n")
    names = {}
    exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102

    def picks(pick):
        def make():
            layer = nn.Linear(1024, 1024)
            return lambda: pick(layer(torch.ones(4, 1024)))

        with pytest.raises(LabError) as info:
            rehearse(make)
        return str(info.value)

    own = picks(lambda y: y[y > 0])
    start = r"fix this size.*: test_rehearse.py:\d+: "
    assert re.match(rf"{start}own = .*aten.index.Tensor.*torch.where", own)
    inside = picks(lambda y: names["pool"](y))
    assert re.match(rf"{start}inside = .*\(pooling.py:2  return y\[y > 0\]\)", inside)
    assert "torch.where" not in inside


@pytest.mark.parametrize("kind", [tuple, list, torch.tensor])
def test_lengths_in_any_form(kind):
    def lose(y):
        scores = y.view(4, 1, 64).log_softmax(-1)
        F.ctc_loss(scores, torch.ones(1, 2, dtype=torch.long), kind([4]), kind([2]))

    assert linear(lose).guessed == {}


def test_backward_passes_fill_new_zeros_in_place():
    """As without a mode: what gather takes back are zeros, and no copy of them."""

    def make():
        x = torch.ones(256, 1024, requires_grad=True)
        weight = nn.Linear(1, 1)
        index = torch.zeros(256, 1, dtype=torch.long)
        return lambda: (x.gather(1, index).sum() + weight(torch.ones(1))).backward()

    need = rehearse(make, lower=False)
    assert need.peak - need.before == pytest.approx(2**20, abs=20_000)
