"""train.py, the script that lesson 15 ends with: one loss curve on every device,
stopped and continued.
"""

import gc
import os
import signal
import sys

import pytest
import torch
import torch.distributed as dist
import train

from tests.scripts import SCRIPTS, processes
from tests.scripts.test_train_checkpoints import SMALL
from utils import launch
from utils.needs import missing_xla

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
    [("cuda", True, "nccl"), ("cuda", False, "gloo"), ("cpu", True, "gloo")],
)
def test_processes_meet_by_what_this_pytorch_has(kind, there, backend, monkeypatch):
    """PyTorch for Windows has no NCCL."""
    asked = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "is_nccl_available", lambda: there)
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


@pytest.mark.parametrize("device", ["cuda", "mps", "xla"])
def test_a_device_that_is_not_there(monkeypatch, device):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: None)
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    says = f"finds no {device} device here|--device xla needs torch_xla"
    with pytest.raises(train.Problem, match=says):
        train.pick_device(train.parse_arguments([f"--device={device}"]))
