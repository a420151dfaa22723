"""What train.py and train_ddp.py have in common: killed, interrupted in saving, given
another's checkpoint, misused.
"""

import functools
import os
import pathlib
import signal
import socket
import stat
import time

import checkpoint
import pytest
import torch
import train
import train_ddp

from tests.scripts import processes
from utils.launch import free_port

SMALL = (
    "--device=cpu --width=16 --layers=1 --heads=2 --context=16 --batch=8 --lr=0.01"
    " --log-every=1".split()
)
TRAININGS = {
    "train": (train, [*SMALL, "--steps=60"]),
    "dropout": (train, [*SMALL, "--steps=60", "--task=dropout"]),
    "train_ddp": (train_ddp, ["--cpu", "--epochs=3", "--pause=0.01"]),
}
# what is said of a checkpoint is the same for all tasks
both_scripts = pytest.mark.parametrize(
    "undisturbed", ["train", "train_ddp"], indirect=True
)
LOGS = {train: "--metrics=log", train_ddp: "--log-file=log"}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nothing says that this process belongs to a job, and each test has its folder."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module", params=TRAININGS)
def undisturbed(request, tmp_path_factory):
    """(script, its options, the folder in which it has trained alone and in peace)"""
    script, words = TRAININGS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        end = processes.run_main(
            script.main, *words, "--checkpoint=run.pt", LOGS[script]
        )
    assert (end.status, end.err) == (0, "")
    return script, words, folder


# --------------------------------------------------------------------------------------
# Killed


KILLS = 4


def losses_of(log):
    return {line["step"]: line["loss"] for line in processes.log_of(log)}


@pytest.mark.slow
def test_kill_9_at_random_steps_changes_nothing(undisturbed, tmp_path):
    script, words, folder = undisturbed
    words = [*words, "--checkpoint=run.pt", "--save-every=3", LOGS[script]]
    steps = sorted(processes.chance().sample(range(5, 55), KILLS))
    for step in steps:
        process = processes.start(script.main, *words)
        processes.wait_for_step(tmp_path / "log", step)
        process.kill()
        assert processes.finish([process])[0].status == -signal.SIGKILL, (
            f"at step {step} of {steps}"
        )
        processes.load("run.pt")  # whole
    end = processes.run_main(script.main, *words)
    assert (end.status, end.err) == (0, ""), f"killed after {steps}"
    whole = processes.load(folder / "run.pt")
    processes.assert_same_bits(whole, processes.load("run.pt"))
    losses = losses_of(folder / "log")
    assert losses == losses_of(tmp_path / "log") and len(losses) >= 60


def save_for_ever():
    """Save 16 MB again and again, each time the next version, and say which."""
    path = pathlib.Path("run.pt")
    version = processes.load(path)["version"] if path.exists() else 0
    while True:
        version += 1
        data = torch.full((2_000_000,), version)
        checkpoint.save_checkpoint({"version": version, "data": data}, path)
        print(version, flush=True)


def holds_text(path):
    return path.exists() and path.read_text()


@pytest.mark.slow
def test_kill_9_while_a_checkpoint_is_written_leaves_a_whole_one(tmp_path):
    """Most of the time is writing, so most kills hit it."""
    chance, torn, kills = processes.chance(), 0, 0
    while kills < 8 or torn < 3:
        kills += 1
        assert kills < 40, "too few kills hit the writing: this test shows little"
        process = processes.start(save_for_ever)
        said = process.folder / "out"
        processes.wait_until(functools.partial(holds_text, said), "a first version")
        found = processes.load("run.pt")  # whole at any moment, not only after the kill
        assert (found["data"] == found["version"]).all()
        time.sleep(chance.uniform(0, 0.15))
        process.kill()
        last = int(processes.finish([process])[0].out.split()[-1])
        # died between opening the temporary file and renaming it
        torn += os.path.exists("run.pt.tmp")
        found = processes.load("run.pt")
        assert (found["data"] == found["version"]).all()
        assert len(found["data"]) == 2_000_000
        assert found["version"] in (last, last + 1), "a finished checkpoint was lost"


def test_the_name_points_only_to_what_is_on_the_disk(monkeypatch, tmp_path):
    """A loss of power cannot be tested here. So: content, then name, then the folder
    that holds the name.
    """
    done, fsync, replace = [], os.fsync, os.replace

    def noted_fsync(file):
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "content")
        fsync(file)

    def noted_replace(*names):
        done.append("name")
        replace(*names)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    checkpoint.save_checkpoint({"version": 1}, tmp_path / "run.pt")
    assert done[:2] == ["content", "name"]
    assert done[2:] == (["folder"] if os.name == "posix" else [])


@pytest.mark.skipif(os.name == "nt", reason="needs limits of Unix")
def test_a_full_disk_keeps_the_last_checkpoint(tmp_path):
    """No file of this process may become longer than the half of a checkpoint: the disk
    is full in the middle.
    """
    import resource

    path = tmp_path / "run.pt"
    checkpoint.save_checkpoint({"data": torch.zeros(10_000)}, path)
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
        says = r"cannot write .*run.pt \(.*\). What it held before is untouched"
        with pytest.raises(checkpoint.Problem, match=says):
            checkpoint.save_checkpoint({"data": torch.ones(10_000)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.pt"]


# --------------------------------------------------------------------------------------
# Misused: one line says what is wrong, exit code 2


def assert_refused(script, says, *words, status=2, **env):
    """A run ends with this status and one line of error, which contains `says`. Before
    it, only argparse's usage.
    """
    end = processes.run_main(script.main, *words, **env)
    *usage, last = end.err.splitlines()
    assert end.status == status, end
    assert last.startswith(script.__name__) and says in last, end
    assert not usage or (usage[0].startswith("usage: ") and ": error: " in last), end


@pytest.mark.slow
@both_scripts
@pytest.mark.parametrize(
    "content", ["nothing", "text", "half", "another dict", "code to run"]
)
def test_a_damaged_checkpoint_stays(undisturbed, content, tmp_path):
    script, words, folder = undisturbed
    whole, path = (folder / "run.pt").read_bytes(), tmp_path / "run.pt"
    contents = {"text": b"not a checkpoint", "half": whole[: len(whole) // 2]}
    path.write_bytes(contents.get(content, b""))
    if content == "another dict":
        torch.save({"model": 1}, path)
    if content == "code to run":
        torch.save({"step": 1, "settings": os.system}, path)
    before = path.read_bytes()
    says = "run.pt is damaged, or no checkpoint of this script ("
    if content == "code to run":
        says += "UnpicklingError"
    assert_refused(script, says, *words, "--checkpoint=run.pt")
    assert path.read_bytes() == before


OTHERS = [
    (train, "--width=32", "with width 16, now it is 32"),
    (train, "--steps=59", "of a training of 60 steps, now --steps is 59"),
    (train, "--data=text", "with data 22,499 samples (checksum "),
    (train_ddp, "--hidden=32", "with hidden 64, now it is 32"),
]


@both_scripts
@pytest.mark.parametrize("of, word, says", OTHERS)
def test_the_checkpoint_of_another_training(undisturbed, tmp_path, of, word, says):
    script, _, folder = undisturbed
    words = TRAININGS[of.__name__][1]
    if script is not of:
        says = "is damaged, or no checkpoint"
    (tmp_path / "text").write_bytes(b"abc" * 1000)
    before = (folder / "run.pt").read_bytes()
    assert_refused(of, says, *words, word, f"--checkpoint={folder / 'run.pt'}")
    assert (folder / "run.pt").read_bytes() == before


TRAIN_MISTAKES = {
    "--steps=0": "--steps must be greater than 0",
    "--speed=1": "unrecognized arguments: --speed=1",
    "--width=30 --heads=4": "--width 30 cannot be divided into 4 heads",
    "--batch=10 --accumulate=4": (
        "--batch 10 cannot be divided by 1 process(es) x 4 parts"
    ),
    "--data=empty": "empty: cannot mmap an empty file",
    "--data=short": "short is too short: its last tenth",
    "--checkpoint=no/folder/run.pt --steps=1": (
        "cannot write no/folder/run.pt ([Errno 2] No such file"
    ),
}
DDP_MISTAKES = {  # what is in capitals is a variable
    "--resume": "--resume needs --checkpoint FILE",
    "--resume --checkpoint=none.pt": (
        "there is no checkpoint none.pt. Check the name, or leave out --resume."
    ),
    "WORLD_SIZE=two RANK=0": (
        "WORLD_SIZE is 'two', not a whole number. Start with torchrun"
    ),
    "WORLD_SIZE=2 RANK=2": (
        "RANK is 2 and WORLD_SIZE is 2. Ranks count from 0 to WORLD_SIZE - 1"
    ),
    "WORLD_SIZE=2": "RANK is not set and WORLD_SIZE is 2.",
    "--batch=3 WORLD_SIZE=4 RANK=1": "--batch 3 is too small for 4 processes",
}
MISTAKES = [(train, *each) for each in TRAIN_MISTAKES.items()]
MISTAKES += [(train_ddp, *each) for each in DDP_MISTAKES.items()]


@pytest.mark.parametrize("script, words, says", MISTAKES)
def test_one_line_says_what_is_wrong(tmp_path, script, words, says):
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_text("To be, or not to be")
    variables = dict(word.split("=") for word in words.split() if word[0] != "-")
    options = [word for word in words.split() if word[0] == "-"]
    small = SMALL if script is train else ["--cpu"]
    assert_refused(script, says, *small, *options, **variables)


@pytest.mark.slow
def test_one_line_says_who_is_missing():
    words = ("--cpu", "--timeout=1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        says = f"train_ddp: rank 0 cannot listen at 127.0.0.1:{taken} ("
        job = {"WORLD_SIZE": 2, "RANK": 0, "MASTER_PORT": taken}
        assert_refused(train_ddp, says, *words, **job)
    port = free_port()
    says = f"train_ddp: no answer from 127.0.0.1:{port} for 1 s ("
    job = {"WORLD_SIZE": 2, "RANK": 1, "MASTER_PORT": port}
    assert_refused(train_ddp, says, *words, **job)
    says = "train_ddp: rank 0 lost the other processes (Timed out after "
    job = {"WORLD_SIZE": 2, "RANK": 0, "MASTER_PORT": free_port()}
    assert_refused(train_ddp, says, *words, status=1, **job)
