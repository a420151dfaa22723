"""train.py, the script that lesson 15 ends with: one loss curve on every device, killed, interrupted, misused."""

import contextlib
import gc
import json
import os
import random
import re
import signal
import sys
import time

import pytest
import torch
import torch.distributed as dist

from tests.conftest import ROOT
from tests.forked import Server
from utils import launch
from utils.needs import missing_xla

SCRIPTS = ROOT / "notebooks" / "scripts"
SMALL = "--device=cpu --width=16 --layers=1 --heads=2 --context=16 --batch=8 --lr=0.01 --log-every=1".split()
STEPS = 60


@pytest.fixture(scope="module")
def script():
    """train.py as a module. One thread, as the processes below have: more would only wait for each other here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    if missing_xla() is None:  # it must be there before the first backward() on any device
        import torch_xla

        torch_xla.device()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        import train

        yield train
    torch.set_num_threads(threads)


def run_here(script, folder, *words, stop=()):
    """The script in this process: exit code, and the lines of its metrics file."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            patch.delenv(name, raising=False)
        args = script.parse_arguments([*SMALL, f"--metrics={folder / 'metrics'}", *map(str, words)])
        code = script.train(args, list(stop))
    return code, metrics(folder)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics").read_text().splitlines()]


def losses(lines):
    return {line["step"]: line["loss"] for line in lines}


def weights(path):
    return torch.load(path, weights_only=True)["model"]


def same_bits(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.fixture(scope="module")
def undisturbed(script, tmp_path_factory):
    """(folder, metrics) of one process that nobody interrupts."""
    folder = tmp_path_factory.mktemp("undisturbed")
    _, lines = run_here(script, folder, "--steps", STEPS, "--checkpoint", folder / "run.pt")
    return folder, lines


# ---------------------------------------------------------------------------------------------------------------
# One curve


def test_it_learns(undisturbed):
    curve = losses(undisturbed[1])
    assert list(curve) == list(range(1, STEPS + 1))
    assert curve[1] > 5.3 > 4 > curve[STEPS]  # log(256) = 5.5 is what a guess costs


@pytest.mark.parametrize("words", [["--accumulate=4"], ["--precision=bf16"], ["--precision=fp16"]])
def test_the_curve_stays(script, undisturbed, tmp_path, words):
    """Parts of a step change nothing but rounding; short numbers change little, and the scaler nothing."""
    code, lines = run_here(script, tmp_path, "--steps", STEPS, *words)
    tolerance = 3e-2 if "16" in words[0] else 1e-4
    assert code == 0 and losses(lines) == pytest.approx(losses(undisturbed[1]), abs=tolerance)


def test_two_processes_draw_the_curve_of_one(undisturbed, tmp_path):
    words = [*SMALL, "--steps", STEPS, "--metrics", tmp_path / "metrics", "--checkpoint", tmp_path / "run.pt"]
    run = launch.torchrun(SCRIPTS / "train.py", *words, processes=2)
    assert losses(metrics(tmp_path)) == pytest.approx(losses(undisturbed[1]), abs=1e-4)
    assert "test loss" in run.printed[0] and not run.printed[1]
    one, two = weights(undisturbed[0] / "run.pt"), weights(tmp_path / "run.pt")
    # Not the bias of the keys: it adds the same to all scores of a row, so its gradient is rounding and nothing else,
    # and Adam divides that by its own size.
    far = {name: (one[name] - two[name]).abs().max().item() for name in one if not name.endswith("qkv.bias")}
    assert max(far.values()) < 2e-3, far


@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_xla_draws_the_curve_of_the_cpu(script, undisturbed, tmp_path):
    import torch_xla.debug.metrics as counters

    before = (counters.metric_data("CompileTime") or [0])[0]
    _, lines = run_here(script, tmp_path, "--device=xla", "--steps", STEPS, "--checkpoint", tmp_path / "run.pt")
    assert losses(lines) == pytest.approx(losses(undisturbed[1]), abs=1e-3)
    # Two for the steps (the first finds no moments yet), looks and the test loss add theirs; none comes later.
    assert counters.metric_data("CompileTime")[0] - before <= 8
    # The checkpoint of one device continues on another.
    (tmp_path / "there").mkdir()
    half = ["--checkpoint", tmp_path / "half.pt", "--save-every", STEPS // 2]
    run_here(script, tmp_path / "there", "--steps", STEPS, "--device=xla", *half, stop=[2])
    _, lines = run_here(script, tmp_path / "there", "--steps", STEPS, *half)
    assert losses(lines) == pytest.approx(losses(undisturbed[1]), abs=1e-3)


def test_digits(script, tmp_path, capsys):
    words = ["--task=digits", "--batch=64", "--steps=40", "--lr=0.01"]
    code, lines = run_here(script, tmp_path, *words)
    assert code == 0 and lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    assert float(capsys.readouterr().out.split()[-1]) < 2


def test_a_text_of_ones_own_is_mapped_not_read(script, tmp_path):
    book = tmp_path / "a book.txt"
    book.write_bytes(bytes(range(256)) * 40)
    code, lines = run_here(script, tmp_path, "--steps=120", "--lr=0.01", "--data", book)
    assert code == 0 and lines[-1]["loss"] < 2.5  # each byte follows from the one before
    with open(book, "ab") as file:
        file.truncate(2**40)  # a terabyte with nothing in it: nobody has that much memory
    training, test = script.load(script.parse_arguments(["--data", str(book), "--context=16"]))
    assert len(training) > 2**35 and test.take(torch.tensor([len(test) - 1]))[0].tolist() == [[0] * 16]


def test_the_course_of_the_learning_rate(script):
    args = script.parse_arguments(["--steps=100", "--lr=1"])
    rates = [script.learning_rate(step, args) for step in range(100)]
    assert rates[0] == 0.1 and max(rates) == rates[9] == rates[10] == 1 and rates[99] < 0.001
    assert sorted(rates[:10]) == rates[:10] and sorted(rates[10:], reverse=True) == rates[10:]


# ---------------------------------------------------------------------------------------------------------------
# Killed and interrupted


@pytest.fixture(scope="module")
def server():
    """server.start(*words) starts train.py. Nothing is left at the end."""
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | {"OMP_NUM_THREADS": "1"}
    server = Server(SCRIPTS / "train.py", env)
    yield server
    server.close()


def wait_for_step(path, step, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        lines = path.read_text().splitlines() if path.exists() else []
        if len(lines) > step:
            return
        time.sleep(0.001)
    raise AssertionError(f"no step {step} within {seconds} s")


def test_kill_9_at_ten_random_steps_changes_nothing(server, undisturbed, tmp_path):
    words = ["--steps", STEPS, "--checkpoint", tmp_path / "run.pt", "--metrics", tmp_path / "metrics"]
    steps = sorted(random.sample(range(2, STEPS - 6), 10))
    for step in steps:
        child = server.start(*SMALL, *words, "--save-every=3")
        wait_for_step(tmp_path / "metrics", step)
        child.kill()
        assert child.wait() == -signal.SIGKILL, f"at step {step} of {steps}"
        assert torch.load(tmp_path / "run.pt", weights_only=True)["step"] % 3 == 0 if step > 3 else True
    assert server.start(*SMALL, *words).wait() == 0
    assert same_bits(weights(tmp_path / "run.pt"), weights(undisturbed[0] / "run.pt")), f"killed after {steps}"
    assert losses(metrics(tmp_path)) == losses(undisturbed[1])
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, STEPS + 1))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_stops(server, undisturbed, tmp_path, number):
    words = ["--steps", STEPS, "--checkpoint", tmp_path / "run.pt", "--metrics", tmp_path / "metrics"]
    child = server.start(*SMALL, *words, "--save-every=1000")
    wait_for_step(tmp_path / "metrics", 5)
    child.send_signal(number)
    assert child.wait() == 130
    saved = torch.load(tmp_path / "run.pt", weights_only=True)["step"]
    assert 5 < saved < STEPS and saved == metrics(tmp_path)[-1]["step"]
    assert server.start(*SMALL, *words).wait() == 0 and same_bits(
        weights(tmp_path / "run.pt"), weights(undisturbed[0] / "run.pt")
    )


def test_ctrl_c_stops_two_processes_at_the_same_step(tmp_path):
    words = [*SMALL, "--steps=100000", "--log-every=5", "--metrics", "metrics", "--checkpoint", "run.pt"]
    job = launch.start(SCRIPTS / "train.py", *words, processes=2)
    folder = launch.folder()
    for name in ("metrics", "run.pt"):
        (folder / name).unlink(missing_ok=True)
    wait_for_step(folder / "metrics", 3)
    os.killpg(job.agent.pid, signal.SIGINT)  # as a terminal does: all processes get it
    run = job.finish()
    assert run.code != 0 and "Traceback" not in "".join(run.errors.values())
    step = torch.load(folder / "run.pt", weights_only=True)["step"]
    assert step % 5 == 0 and step == metrics(folder)[-1]["step"]


# ---------------------------------------------------------------------------------------------------------------
# Misused


@pytest.fixture
def checkpoint(script, tmp_path):
    """A folder with the checkpoint of five steps."""
    run_here(script, tmp_path, "--steps=5", "--checkpoint", tmp_path / "run.pt")
    return tmp_path / "run.pt"


def test_the_checkpoint_of_another_model(script, checkpoint):
    before = checkpoint.read_bytes()
    for words, says in {
        "--width=32": "was written with width 16, now it is 32",
        "--task=digits": "was written with",
        "--seed=3": "was written with seed 0, now it is 3",
        "--steps=6": "was written with steps 5, now it is 6",
    }.items():
        with pytest.raises(script.Problem, match=says):
            run_here(script, checkpoint.parent, "--steps=5", words, "--checkpoint", checkpoint)
    assert checkpoint.read_bytes() == before


def test_the_checkpoint_of_another_text(script, checkpoint, tmp_path):
    (tmp_path / "text").write_bytes(b"abc" * 1000)
    with pytest.raises(script.Problem, match="was written with samples"):
        run_here(script, tmp_path, "--steps=5", "--data", tmp_path / "text", "--checkpoint", checkpoint)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"half"])
def test_a_damaged_checkpoint_stays(script, checkpoint, content):
    content = checkpoint.read_bytes()[:3000] if content == b"half" else content
    checkpoint.write_bytes(content)
    with pytest.raises(script.Problem, match="is damaged, or no checkpoint of this script"):
        run_here(script, checkpoint.parent, "--steps=5", "--checkpoint", checkpoint)
    assert checkpoint.read_bytes() == content


def test_a_checkpoint_runs_nothing(script, checkpoint):
    torch.save({"step": 1, "settings": os.system}, checkpoint)
    with pytest.raises(script.Problem, match="UnpicklingError"):
        run_here(script, checkpoint.parent, "--steps=5", "--checkpoint", checkpoint)


@pytest.mark.skipif(os.name == "nt", reason="needs limits of Unix")
def test_a_full_disk_keeps_the_last_checkpoint(script, checkpoint):
    """No file of this process may become longer than the half of a checkpoint: the disk is full in the middle."""
    import resource

    before, limits = checkpoint.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    args = script.parse_arguments([*SMALL, "--steps=5", "--checkpoint", str(checkpoint)])
    trainer = script.Trainer(args, torch.device("cpu"), script.load(args)[0])
    trainer.step(0)  # now the optimizer has something to save
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
        with pytest.raises(script.Problem, match=r"cannot write .*run.pt \(.*\). What it held before is untouched"):
            script.save(5, trainer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert checkpoint.read_bytes() == before and not list(checkpoint.parent.glob("*.tmp"))


MISTAKES = {
    ("--steps=0",): "--steps must be greater than 0",
    ("--steps=many",): "invalid int value: 'many'",
    ("--lr=nan",): "--lr must be greater than 0",
    ("--clip=-1",): "--clip must be greater than 0",
    ("--task=images",): "invalid choice: 'images'",
    ("--speed=1",): "unrecognized arguments: --speed=1",
    ("--heads=0",): "--heads must be greater than 0",
    ("--width=30", "--heads=4"): "--width 30 cannot be divided into 4 heads",
    ("--batch=10", "--accumulate=4"): "--batch 10 cannot be divided by 1 process(es) x 4 parts",
    ("--batch=1000000",): "fewer than --batch 1000000",
    ("--data=nowhere.txt",): "No such file or directory: 'nowhere.txt'",
    ("--data=.",): "Is a directory: '.'",
    ("--data=empty",): "empty: cannot mmap an empty file",
    ("--data=short",): "short is too short: its last tenth",
    ("--checkpoint=no/folder/run.pt", "--steps=1"): "cannot write",
    ("--metrics=no/folder/metrics",): "No such file or directory: 'no",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_one_line_says_what_is_wrong(script, tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_text("To be, or not to be")
    monkeypatch.setattr(sys, "argv", ["train.py", *SMALL, *words])
    monkeypatch.setattr(os, "_exit", sys.exit)  # this process is the test's
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    with pytest.raises(SystemExit) as left:
        script.main()
    printed = capsys.readouterr()
    last = printed.err.strip().splitlines()[-1]
    assert left.value.code == 2 and MISTAKES[words] in last and "Traceback" not in printed.err


def test_auto_takes_no_stand_in_for_a_tpu(script, monkeypatch):
    """Where torch_xla is installed without a TPU, XLA's CPU device is slower than the CPU."""
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert script.pick_device(script.parse_arguments([])) == torch.device("cpu")


def test_graphs_and_accumulation_exclude_each_other(script):
    data, _ = script.load(args := script.parse_arguments(["--accumulate=2", "--compile=reduce-overhead"]))
    with pytest.raises(script.Problem, match="--compile reduce-overhead overwrites gradients that add up"):
        script.Trainer(args, torch.device("cuda"), data)


@pytest.mark.parametrize("stop", [(), (signal.SIGINT,)])
def test_the_model_goes_before_its_group(script, tmp_path, monkeypatch, stop):
    """A DDP model that outlives its group can hang the process: none may be left when the group is destroyed."""
    left, destroy = [], dist.destroy_process_group

    def destroyed():
        left.extend(it for it in gc.get_objects() if type(it) is torch.nn.parallel.DistributedDataParallel)
        destroy()

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(script, "join", lambda device: (0, 2))  # the first of two processes, alone
    monkeypatch.setattr(dist, "all_gather_object", lambda found, mine: found.__setitem__(slice(None), [mine] * 2))
    monkeypatch.setattr(dist, "destroy_process_group", destroyed)
    run_here(script, tmp_path, "--steps=2", "--accumulate=2", stop=stop)
    assert not dist.is_initialized() and left == []


@pytest.mark.parametrize("device", ["cuda", "mps", "xla"])
def test_a_device_that_is_not_there(script, monkeypatch, device):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    with pytest.raises(script.Problem, match=f"finds no {device} device here|--device xla needs torch_xla"):
        script.pick_device(script.parse_arguments([f"--device={device}"]))


def test_help_is_enough(script, capsys):
    with pytest.raises(SystemExit), contextlib.redirect_stderr(None):
        script.parse_arguments(["--help"])
    text = capsys.readouterr().out
    options = re.findall(r'add\("(--[a-z-]+)"', (SCRIPTS / "train.py").read_text() + (SCRIPTS / "tasks.py").read_text())
    assert len(options) >= 15 and all(option in text for option in [*options, "--layers", "--heads", "--context"])
    assert "torchrun --standalone" in text and "Ctrl-C" in text


def test_it_stays_short():
    assert len((SCRIPTS / "train.py").read_text().splitlines()) < 300
