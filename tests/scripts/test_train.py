"""train.py, the script that lesson 15 ends with: one loss curve on every device,
stopped and continued.
"""

import gc
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import train

from course.needs import missing_xla
from tests.scripts import SCRIPTS, processes
from tests.scripts.test_train_checkpoints import SMALL
from utils import launch

STEPS = 60


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """As other processes here have: more would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # it must be there before the first backward() on any device
    if missing_xla() is None:
        import torch_xla

        torch_xla.device()
    yield
    torch.set_num_threads(threads)


def run_here(folder, *words, stop=()):
    """The script in this process: exit code, and the lines of its metrics file."""
    words = [*SMALL, f"--metrics={folder / 'metrics'}", *map(str, words)]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            patch.delenv(name, raising=False)
        code = train.train(train.parse_arguments(words), list(stop))
    return code, metrics(folder)


def metrics(folder):
    return processes.log_of(folder / "metrics")


def losses(lines):
    return {line["step"]: line["loss"] for line in lines}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """(folder, metrics) of one process that nobody interrupts."""
    folder = tmp_path_factory.mktemp("undisturbed")
    _, lines = run_here(folder, "--steps", STEPS, "--checkpoint", folder / "run.pt")
    return folder, lines


# --------------------------------------------------------------------------------------
# One curve


def test_it_learns(undisturbed):
    curve = losses(undisturbed[1])
    assert list(curve) == list(range(1, STEPS + 1))
    assert curve[1] > 5.3 > 4 > curve[STEPS]  # log(256) = 5.5 is what a guess costs


@pytest.mark.parametrize(
    "words", [["--accumulate=4"], ["--precision=bf16"], ["--precision=fp16"]]
)
def test_the_curve_stays(undisturbed, tmp_path, words):
    """Parts of a step change nothing but rounding; short numbers change little, and the
    scaler nothing.
    """
    code, lines = run_here(tmp_path, "--steps", STEPS, *words)
    tolerance = 3e-2 if "16" in words[0] else 1e-4
    assert code == 0
    assert losses(lines) == pytest.approx(losses(undisturbed[1]), abs=tolerance)


def files(folder):
    """Options: where metrics and checkpoint go."""
    return ["--metrics", folder / "metrics", "--checkpoint", folder / "run.pt"]


@pytest.mark.slow
def test_two_processes_draw_the_curve_of_one(undisturbed, tmp_path):
    words = [*SMALL, "--steps", STEPS, *files(tmp_path)]
    run = launch.torchrun(SCRIPTS / "train.py", *words, processes=2)
    assert losses(metrics(tmp_path)) == pytest.approx(losses(undisturbed[1]), abs=1e-4)
    assert "test loss" in run.printed[0] and not run.printed[1]
    one = processes.load(undisturbed[0] / "run.pt")["model"]
    two = processes.load(tmp_path / "run.pt")["model"]
    for name in one:
        # Not the bias of the keys: it adds the same to all scores of a row, so its
        # gradient is rounding and nothing else, and Adam divides that by its own size.
        if not name.endswith("qkv.bias"):
            assert (one[name] - two[name]).abs().max() < 2e-3, name


@pytest.mark.parametrize(
    "kind, there, backend",
    [
        ("cuda", ["nccl"], "nccl"),
        ("cuda", [], "gloo"),  # PyTorch for Windows has no NCCL
        ("cpu", [], "gloo"),
        ("xpu", ["xccl"], "xccl"),
    ],
)
def test_processes_meet_by_what_this_pytorch_has(kind, there, backend, monkeypatch):
    asked = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "is_nccl_available", lambda: "nccl" in there)
    monkeypatch.setattr(dist, "is_backend_available", [*there, "gloo"].__contains__)
    monkeypatch.setattr(dist, "init_process_group", asked.append)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    assert train.join(torch.device(kind)) == (1, 2)
    assert asked == [backend]


@pytest.mark.xla
@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_xla_draws_the_curve_of_the_cpu(undisturbed, tmp_path):
    import torch_xla.debug.metrics as counters

    before = (counters.metric_data("CompileTime") or [0])[0]
    _, lines = run_here(
        tmp_path, "--device=xla", "--steps", STEPS, "--checkpoint", tmp_path / "run.pt"
    )
    assert losses(lines) == pytest.approx(losses(undisturbed[1]), abs=1e-3)
    # Two for the steps (the first finds no moments yet), looks and the test loss add
    # theirs; none comes later.
    assert counters.metric_data("CompileTime")[0] - before <= 8
    # The checkpoint of one device continues on another.
    (tmp_path / "there").mkdir()
    half = ["--checkpoint", tmp_path / "half.pt", "--save-every", STEPS // 2]
    run_here(tmp_path / "there", "--steps", STEPS, "--device=xla", *half, stop=[2])
    _, lines = run_here(tmp_path / "there", "--steps", STEPS, *half)
    assert losses(lines) == pytest.approx(losses(undisturbed[1]), abs=1e-3)


def test_a_text_of_ones_own_is_mapped_not_read(tmp_path):
    book = tmp_path / "a book.txt"
    book.write_bytes(bytes(range(256)) * 40)
    code, lines = run_here(tmp_path, "--steps=120", "--lr=0.01", "--data", book)
    # each byte follows from the one before
    assert code == 0 and lines[-1]["loss"] < 2.5
    with open(book, "ab") as file:
        # a terabyte with nothing in it: nobody has that much memory
        file.truncate(2**40)
    args = train.parse_arguments(["--data", str(book), "--context=16"])
    training, test = train.load(args)
    inputs, _ = test.take(torch.tensor([len(test) - 1]))
    assert len(training) > 2**35 and inputs.tolist() == [[0] * 16]


# --------------------------------------------------------------------------------------
# Stopped and continued


@pytest.mark.slow
def test_a_request_to_stop_saves_and_stops(undisturbed, tmp_path):
    words = [*SMALL, "--steps", STEPS, *files(tmp_path)]
    process = processes.start(train.main, *words, "--save-every=1000")
    processes.wait_for_step(tmp_path / "metrics", 6)
    os.kill(process.pid, signal.SIGTERM)
    assert processes.finish([process])[0].status == 130
    saved = processes.load(tmp_path / "run.pt")["step"]
    assert 5 < saved < STEPS and saved == metrics(tmp_path)[-1]["step"]
    assert processes.run_main(train.main, *words).status == 0
    continued, whole = tmp_path / "run.pt", undisturbed[0] / "run.pt"
    processes.assert_same_bits(processes.load(continued), processes.load(whole))


def test_the_metrics_go_back_to_the_checkpoint(undisturbed, tmp_path):
    """What a killed run has written after it: steps that are taken again, and a line
    that is cut off.
    """
    words = ["--steps", STEPS, "--checkpoint", tmp_path / "run.pt"]
    code, lines = run_here(tmp_path, *words, stop=[signal.SIGINT])
    assert code == 130 and [line["step"] for line in lines] == [1]
    with open(tmp_path / "metrics", "a") as file:
        file.write('{"step": 2, "loss": 0}\n{"step": 3, "lo')
    _, lines = run_here(tmp_path, *words)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert losses(lines) == losses(undisturbed[1])


@pytest.mark.slow
def test_ctrl_c_stops_two_processes_at_the_same_step():
    folder = launch.folder()
    words = [*SMALL, "--steps=100000", "--log-every=5", *files(folder)]
    job = launch.start(SCRIPTS / "train.py", *words, processes=2)
    for name in ("metrics", "run.pt"):
        (folder / name).unlink(missing_ok=True)
    processes.wait_for_step(folder / "metrics", 15)
    os.killpg(job.agent.pid, signal.SIGINT)  # as a terminal does: all processes get it
    run = job.finish()
    assert run.code != 0 and "Traceback" not in "".join(run.errors.values())
    step = processes.load(folder / "run.pt")["step"]
    assert step % 5 == 0 and step == metrics(folder)[-1]["step"]


@pytest.mark.slow
def test_two_processes_draw_again_what_they_drew():
    """Killed and resumed, with dropout: each rank draws its masks once more."""
    folder, words = launch.folder(), [*SMALL, "--task=dropout", "--save-every=20"]
    words += ["--steps", 120]
    logs = ["--metrics", folder / "metrics"]
    for name in ("calm.pt", "rough.pt", "metrics"):
        (folder / name).unlink(missing_ok=True)
    calm, rough = (
        ["--checkpoint", folder / f"{name}.pt"] for name in ("calm", "rough")
    )
    launch.torchrun(SCRIPTS / "train.py", *words, *calm, processes=2, quiet=True)
    job = launch.start(SCRIPTS / "train.py", *words, *rough, *logs, processes=2)
    processes.wait_for_step(folder / "metrics", 50)
    for process in job.processes():
        process.kill()
    job.finish()
    assert processes.load(folder / "rough.pt")["step"] < 120
    launch.torchrun(SCRIPTS / "train.py", *words, *rough, processes=2, quiet=True)
    one, two = (processes.load(folder / f"{name}.pt") for name in ("calm", "rough"))
    processes.assert_same_bits(one, two)


@pytest.mark.xla
@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_xla_draws_again_what_it_drew(tmp_path):
    """Stopped after its first step and resumed: other masks would change a loss by
    hundredths, XLA's other programs round otherwise. No seed is compiled in.
    """
    import torch_xla.debug.metrics as counters

    words = [*"--device=xla --task=dropout --steps=20 --checkpoint".split()]
    _, calm = run_here(tmp_path, *words, tmp_path / "calm.pt")
    before = counters.metric_data("CompileTime")[0]
    run_here(tmp_path, *words, tmp_path / "rough.pt", stop=[2])
    _, rough = run_here(tmp_path, *words, tmp_path / "rough.pt")
    assert counters.metric_data("CompileTime")[0] - before <= 8
    assert losses(rough) == pytest.approx(losses(calm), abs=1e-4)


def dropped(folder, *words):
    """The last loss of a run with dropout."""
    return run_here(folder, "--task=dropout", "--steps=3", *words)[1][-1]["loss"]


def test_the_seed_decides_what_dropout_draws(tmp_path):
    assert dropped(tmp_path) == dropped(tmp_path)
    masks = []
    for step, rank, seed in ((5, 0, 0), (6, 0, 0), (5, 1, 0), (5, 0, 1)):
        args = train.parse_arguments([f"--seed={seed}"])
        train.seed_step(step, rank, args, torch.device("cpu"))
        masks.append(torch.rand(8).tolist())
    assert len(set(map(tuple, masks))) == 4  # another step, rank, or seed: others


def test_the_test_loss_is_without_dropout(monkeypatch, tmp_path):
    seen = []

    def loss_of(model, *batch):
        seen.append((model.training, torch.is_grad_enabled()))
        return loss(model, *batch)

    loss = train.loss_of
    monkeypatch.setattr(train, "loss_of", loss_of)
    run_here(tmp_path, "--task=dropout", "--steps=2")
    assert seen == [(True, True), (True, True), (False, False)]


def test_a_training_may_grow(tmp_path, capsys):
    words = ["--checkpoint", tmp_path / "run.pt"]
    run_here(tmp_path, "--steps=20", *words)
    _, lines = run_here(tmp_path, "--steps=30", *words)
    assert [line["step"] for line in lines] == list(range(1, 31))
    args = train.parse_arguments(["--lr=0.01", "--steps=30"])
    assert lines[-1]["lr"] == train.learning_rate(29, args)
    assert "20 steps become 30" in capsys.readouterr().err


@pytest.mark.parametrize("place", [0, 4000, 7999])
def test_changed_data_are_refused(tmp_path, place):
    """Of the same length, and under the same name."""
    book = tmp_path / "book"
    text = bytearray(b"all work and no play " * 500)
    book.write_bytes(text)
    words = ["--steps=2", "--data", book, "--checkpoint", tmp_path / "run.pt"]
    run_here(tmp_path, *words)
    run_here(tmp_path, *words)
    text[place] ^= 1
    book.write_bytes(text)
    with pytest.raises(train.Problem, match="was written with data 590 samples"):
        run_here(tmp_path, *words)


def test_of_large_data_some_samples_are_looked_at():
    class Large:
        asked = 0

        def __len__(self):
            return 10**7

        def take(self, samples):
            self.asked += len(samples)
            return samples, samples.double()

    data = Large()
    assert train.fingerprint(data).startswith("10,000,000 samples (checksum ")
    assert data.asked == 257


def test_another_precision_is_said(tmp_path, monkeypatch, capsys):
    words = ["--checkpoint", tmp_path / "run.pt"]
    run_here(tmp_path, "--steps=2", *words)
    monkeypatch.setattr(train, "pick_precision", lambda *_: "bf16")
    run_here(tmp_path, "--steps=4", *words)
    assert "was computed in fp32, here it goes on in bf16" in capsys.readouterr().err


# --------------------------------------------------------------------------------------
# Devices


def test_auto_takes_no_stand_in_for_a_tpu(monkeypatch):
    """Where torch_xla is installed without a TPU, XLA's CPU device is slower than the
    CPU.
    """
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
    assert train.pick_device(train.parse_arguments([])) == torch.device("cpu")


@pytest.mark.parametrize("stop", [(), (signal.SIGINT,)])
def test_the_model_goes_before_its_group(tmp_path, monkeypatch, stop):
    """A DDP model that outlives its group can hang the process: none may be left when
    the group is destroyed.
    """
    left, destroy = [], dist.destroy_process_group

    def destroyed():
        ddp = torch.nn.parallel.DistributedDataParallel
        left.extend(it for it in gc.get_objects() if type(it) is ddp)
        destroy()

    def gather(found, mine):
        found[:] = [mine, mine]

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    # the first of two processes, alone
    monkeypatch.setattr(train, "join", lambda device: (0, 2))
    monkeypatch.setattr(dist, "all_gather_object", gather)
    monkeypatch.setattr(dist, "destroy_process_group", destroyed)
    run_here(tmp_path, "--steps=2", "--accumulate=2", stop=stop)
    assert not dist.is_initialized() and left == []


@pytest.mark.parametrize("kind", ["xpu", "mps", "xla"])
def test_processes_that_have_nothing_to_talk_by(kind, monkeypatch):
    monkeypatch.setattr(dist, "is_backend_available", ["gloo"].__contains__)
    with pytest.raises(train.Problem, match=f"{kind} devices could talk. Start one"):
        train.backend_of(torch.device(kind))


@pytest.mark.parametrize("kind, index", [("xpu", 1), ("mps", 0), ("npu", 1)])
def test_a_process_takes_its_own_accelerator(monkeypatch, kind, index):
    """Whatever it is called: npu is what somebody's PrivateUse1 is."""
    found, taken = SimpleNamespace(type=kind), []
    accelerator = torch.accelerator
    monkeypatch.setattr(accelerator, "current_accelerator", lambda **_: found)
    monkeypatch.setattr(accelerator, "device_count", lambda: index + 1)
    monkeypatch.setattr(accelerator, "set_device_index", taken.append)
    monkeypatch.setattr(torch, "device", str)
    monkeypatch.setenv("LOCAL_RANK", str(index))
    for words in ([], [f"--device={kind}"]):
        assert train.pick_device(train.parse_arguments(words)) == kind
    monkeypatch.setenv("LOCAL_RANK", str(index + 1))
    with pytest.raises(train.Problem, match=f"more processes than {kind} devices"):
        train.pick_device(train.parse_arguments([]))
    assert taken == [index, index]


@pytest.mark.parametrize("words", [[], ["--device=tpu"]])
def test_torchtpu_shows_each_process_one_chip_its_own(monkeypatch, words):
    """A stand-in for what PyTorch answers where TorchTPU finds a TPU."""
    accelerator, tpu = torch.accelerator, SimpleNamespace(type="tpu")
    monkeypatch.setattr(accelerator, "current_accelerator", lambda **_: tpu)
    monkeypatch.setattr(accelerator, "device_count", lambda: 1)
    monkeypatch.setattr(accelerator, "set_device_index", pytest.fail)
    monkeypatch.setattr(torch, "device", lambda kind: SimpleNamespace(type=kind))
    monkeypatch.setenv("LOCAL_RANK", "3")
    args = train.parse_arguments(words)
    device = train.pick_device(args)
    assert (device.type, train.pick_precision(device, args)) == ("tpu", "bf16")


@pytest.mark.slow
def test_where_no_tpu_is_the_script_says_it_in_one_line():
    missing = [sys.executable, SCRIPTS / "train.py", "--device=tpu"]
    done = subprocess.run(missing, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"\Atrain: .* finds no tpu device here.*\n\Z", done.stderr)


@pytest.mark.parametrize("device", ["cuda", "mps", "xpu", "tpu", "npu", "xla"])
def test_a_device_that_is_not_there(monkeypatch, device):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    says = f"finds no {device} device here, but cpu|--device xla needs torch_xla"
    with pytest.raises(train.Problem, match=says):
        train.pick_device(train.parse_arguments([f"--device={device}"]))
