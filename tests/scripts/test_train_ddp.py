"""train_ddp.py, the script of lessons 11 and 12, run for real: with one process and
several, killed, cut off.

Processes that tests start use the CPU and loopback. Below torchrun each is a new
Python, and takes a copy of the digits instead of scikit-learn, whose import takes
longer than the training.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy
import psutil
import pytest
import torch
import torch.distributed as dist
import train_ddp
from sklearn.datasets import load_digits

from tests.scripts import SCRIPTS, processes
from tests.scripts.processes import load, log_of, wait_for_step, wait_until
from utils.launch import free_port

SCRIPT = SCRIPTS / "train_ddp.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TWO = [*TORCHRUN, "--standalone", "--nproc-per-node=2"]
EPOCHS, STEPS = 3, 69  # 23 steps an epoch with the script's own batch
# what a launcher may have left behind
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "PET_", "GLOO_")
LAUNCHED += ("NCCL_", "SLURM_")
DIGITS = """
import numpy
def load_digits(return_X_y):
    return numpy.load(PATH).values()
"""


@pytest.fixture(autouse=True, scope="module")
def alone():
    """Nothing says that this process belongs to a job."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(LAUNCHED):
                patch.delenv(name)
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """start(command, **environment) starts a process. At the end none is left, whatever
    happened.
    """
    folder, started = tmp_path_factory.mktemp("packages"), []
    (folder / "sklearn").mkdir()
    (folder / "sklearn" / "__init__.py").touch()
    numpy.savez(folder / "digits.npz", *load_digits(return_X_y=True))
    source = DIGITS.replace("PATH", repr(str(folder / "digits.npz")))
    (folder / "sklearn" / "datasets.py").write_text(source)

    def start(command, **env):
        options = {
            "env": {**os.environ, "PYTHONPATH": str(folder), **env},
            "start_new_session": True,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        started.append(subprocess.Popen(list(map(str, command)), **options))
        return started[-1]

    yield start
    for process in started:
        for each in family_of(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.communicate()


def family_of(process):
    """A process and all that it has started, itself last; [] if it is gone."""
    try:
        parent = psutil.Process(process.pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []


def end_of(launcher, seconds=120):
    """Exit status, stdout and stderr."""
    out, err = launcher.communicate(timeout=seconds)
    return SimpleNamespace(status=launcher.returncode, out=out, err=err)


def start_group(size, *options):
    """`size` processes started by hand, without torchrun."""
    port, words = free_port(), ["--cpu", "--timeout=60", *options]
    job = {"WORLD_SIZE": size, "MASTER_PORT": port}
    return [
        processes.start(train_ddp.main, *words, RANK=rank, **job)
        for rank in range(size)
    ]


def result(out):
    return json.loads(out.splitlines()[-1])


def files(folder, epochs=EPOCHS):
    """Options: how long to train, and where checkpoint and log go."""
    checkpoint, log = (
        f"--checkpoint={folder / 'run.pt'}",
        f"--log-file={folder / 'log'}",
    )
    return [f"--epochs={epochs}", checkpoint, log]


def group_result(group):
    ends = processes.finish(group)
    assert all(end.status == 0 and end.err == "" for end in ends), ends
    return result(ends[0].out)


def train_alone(*options):
    return group_result([processes.start(train_ddp.main, "--cpu", *options)])


def assert_same_weights(one, two, tolerance=1e-5):
    """The same but for rounding: a sum over two processes adds in another order.
    Weights are about 0.1 to 1 large.
    """
    for name, weight in one["model"].items():
        torch.testing.assert_close(two["model"][name], weight, rtol=0, atol=tolerance)


def assert_seen(checkpoint, times):
    assert checkpoint["seen"].tolist() == [times] * 1437


def ended(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def workers(launcher):
    """The processes that torchrun started, by rank."""
    found = {}
    for process in family_of(launcher)[:-1]:
        with contextlib.suppress(psutil.Error, KeyError):
            if str(SCRIPT) in process.cmdline():
                found[int(process.environ()["RANK"])] = process
    return found


def listening(processes):
    """The addresses and ports on which processes wait for connections."""
    found = set()
    for process in processes:
        # psutil 6 has renamed it
        connections = getattr(process, "net_connections", None) or process.connections
        for each in connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                found.add(tuple(each.laddr))
    return found


# ---- The same weights with any number of processes ----


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Two processes, no interruption: what all interrupted runs must arrive at."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = group_result(start_group(2, *files(folder)))
    checkpoint = load(folder / "run.pt")
    return SimpleNamespace(result=found, checkpoint=checkpoint, log=folder / "log")


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("batch", [64, 359, 1437])
def test_each_sample_goes_to_one_process_once_an_epoch(monkeypatch, size, batch):
    args, taken = SimpleNamespace(batch=batch, seed=3), []
    steps = train_ddp.steps_per_epoch(args)
    monkeypatch.setattr(dist, "get_world_size", lambda: size)
    for rank in range(size):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        for step in range(steps, 2 * steps):
            taken += train_ddp.my_share(train_ddp.global_batch(step, args)).tolist()
    assert sorted(taken) == list(range(1437))


@pytest.mark.slow
def test_two_processes_are_one(undisturbed, tmp_path):
    alone = train_alone(*files(tmp_path))
    assert_same_weights(load(tmp_path / "run.pt"), undisturbed.checkpoint)
    assert_seen(undisturbed.checkpoint, EPOCHS)
    one, two = log_of(tmp_path / "log"), log_of(undisturbed.log)
    assert [line["step"] for line in one] == list(range(STEPS))
    for line, other in zip(one, two, strict=True):
        assert line["step"] == other["step"]
        assert line["loss"] == pytest.approx(other["loss"], abs=1e-5)
    found = undisturbed.result
    for name in ("accuracy", "loss"):
        assert alone[name] == pytest.approx(found[name], abs=1e-5)
    assert alone["accuracy"] > 0.9
    assert (found["world_size"], found["steps"]) == (2, STEPS)
    assert (found["seen_min"], found["seen_max"]) == (EPOCHS, EPOCHS)


@pytest.mark.slow
def test_gradients_of_four_processes_are_those_of_one(tmp_path):
    # 1437 samples: two steps of 718, of which two processes take one more than the
    # others, then one step with a single sample, of which three processes have nothing.
    # SGD's momentum is a sum of the gradients so far.
    options = ["--epochs=1", "--batch=718", "--accumulate=2"]
    four = f"--checkpoint={tmp_path / 'four.pt'}"
    found = group_result(start_group(4, *options, four))
    train_alone(*options[:2], f"--checkpoint={tmp_path / 'one.pt'}")
    one, four = load(tmp_path / "one.pt"), load(tmp_path / "four.pt")
    states = four["optimizer"]["state"]
    for index, state in one["optimizer"]["state"].items():
        sums, of_four = state["momentum_buffer"], states[index]["momentum_buffer"]
        torch.testing.assert_close(of_four, sums, rtol=0, atol=1e-6)
    assert_same_weights(one, four, tolerance=1e-6)
    assert (found["world_size"], found["steps"]) == (4, 3)
    assert_seen(four, 1)


@pytest.mark.slow
def test_accumulation_changes_memory_not_weights(tmp_path):
    found = {}
    for parts in (1, 3, 100):  # 100 parts of 64 samples: some are empty
        path = tmp_path / f"{parts}.pt"
        train_alone("--epochs=1", f"--accumulate={parts}", f"--checkpoint={path}")
        found[parts] = load(path)
    for parts in (3, 100):
        assert_same_weights(found[1], found[parts], tolerance=1e-6)
        assert_seen(found[parts], 1)


# ---- Interrupted in the middle ----


@pytest.mark.slow
def test_continues_in_the_middle_of_an_epoch_with_another_number_of_processes(
    undisturbed, tmp_path
):
    """Stops: a process that hangs. The other says so within the timeout; one process
    alone finishes the work.
    """
    checkpoint, options = tmp_path / "run.pt", files(tmp_path)
    group = start_group(2, *options, "--save-every=5", "--pause=0.1", "--timeout=4")
    wait_for_step(tmp_path / "log", 28)
    ports = listening([psutil.Process(process.pid) for process in group])
    assert {address for address, _ in ports} == {"127.0.0.1"}, "beyond loopback"
    os.kill(group[1].pid, signal.SIGSTOP)
    (first,) = processes.finish(group[:1])
    assert first.status == 1
    says = "train_ddp: rank 0 lost the other processes (Timed out waiting 4000ms"
    assert first.err.startswith(says) and first.err.count("\n") == 1
    os.kill(group[1].pid, signal.SIGKILL)
    saved = load(checkpoint)
    assert saved["epoch"] == 1 and 0 < saved["batch"] < 23 and saved["batch"] % 5 == 2
    assert set(saved["seen"].tolist()) == {1, 2}

    found = train_alone(*options[:2], "--resume")
    assert found["resumed_at"] == 23 + saved["batch"] and found["steps"] == STEPS
    assert_seen(load(checkpoint), EPOCHS)
    assert_same_weights(undisturbed.checkpoint, load(checkpoint))
    # nothing left to do
    again = train_alone(*options[:2])
    assert (again["resumed_at"], again["seen_max"]) == (STEPS, EPOCHS)
    assert again["samples_per_second"] == 0


@pytest.mark.slow
def test_kill_9_at_random_steps_changes_nothing(start, undisturbed, tmp_path):
    """One run takes all kills: a start costs seconds, a kill in a run that is restarted
    anyway costs no other.
    """
    log, chance, kills = tmp_path / "log", processes.chance(), 4
    command = [
        *TWO,
        f"--max-restarts={kills}",
        "--monitor-interval=0.1",
        SCRIPT,
        "--cpu",
    ]
    launcher = start([*command, *files(tmp_path), "--save-every=4", "--pause=0.03"])
    died = []
    for restart in range(kills):
        rank, step = chance.randrange(2), 15 * restart + chance.randrange(4, 15)

        def due(restart=restart, step=step):
            last = log_of(log)[-1:]
            return last and (last[0]["restarts"], last[0]["step"]) >= (restart, step)

        wait_until(due, f"restart {restart}, step {step}")
        # somewhere within the step, or within the next checkpoint
        time.sleep(chance.uniform(0, 0.05))
        workers(launcher)[rank].kill()
        died.append((restart, rank, step))
    end = end_of(launcher)
    assert end.status == 0, end.err
    found, checkpoint = result(end.out), load(tmp_path / "run.pt")
    assert found["restarts"] == kills and found["resumed_at"] > 0
    assert found["accuracy"] == undisturbed.result["accuracy"]
    assert (found["seen_min"], found["seen_max"]) == (EPOCHS, EPOCHS)
    assert_seen(checkpoint, EPOCHS)
    processes.assert_same_bits(checkpoint, undisturbed.checkpoint)
    assert not list(tmp_path.glob("*.tmp")), f"killed: (restart, rank, step) in {died}"


@pytest.mark.slow
def test_interrupt_leaves_nothing_behind(start, tmp_path):
    """Ctrl-C: a terminal sends SIGINT to torchrun's process group."""
    checkpoint = tmp_path / "run.pt"
    options = [*files(tmp_path, epochs=99), "--pause=0.1", "--save-every=2"]
    launcher = start([*TWO, SCRIPT, "--cpu", *options])
    wait_for_step(tmp_path / "log", 5)
    family = family_of(launcher)
    ports = listening(family)
    assert len(family) >= 3 and ports
    addresses = {address for address, _ in listening(workers(launcher).values())}
    assert addresses == {"127.0.0.1"}
    os.killpg(launcher.pid, signal.SIGINT)
    end = end_of(launcher, seconds=40)
    assert end.status != 0
    # Not line by line: torchrun writes to the same place in the same moment.
    assert re.findall("train_ddp: [a-z ]*", end.err) == ["train_ddp: interrupted"]
    # torchrun shows a traceback of its own; the script adds none
    assert f'File "{SCRIPT}"' not in end.err
    assert not psutil.wait_procs(family, timeout=10)[1], "processes outlive Ctrl-C"
    for _, port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass
    assert load(checkpoint)["batch"] >= 4 and not list(tmp_path.glob("*.tmp"))


# ---- Two machines ----


def sh(command):
    subprocess.run(command.split(), check=True, capture_output=True, text=True)


@pytest.fixture
def two_hosts():
    """Two network namespaces with a cable (a veth pair) between them: as far as TCP can
    tell, two machines.
    """
    names = [f"lab{os.getpid()}{i}" for i in range(2)]
    hosts = [
        SimpleNamespace(name=name, nic=name[-15:], address=f"10.77.0.{i + 1}")
        for i, name in enumerate(names)
    ]
    try:
        try:
            for host in hosts:
                sh(f"ip netns add {host.name}")
            ends = [f"{host.nic} netns {host.name}" for host in hosts]
            sh(f"ip link add {ends[0]} type veth peer name {ends[1]}")
            for host in hosts:
                sh(f"ip -n {host.name} addr add {host.address}/24 dev {host.nic}")
                sh(f"ip -n {host.name} link set lo up")
                sh(f"ip -n {host.name} link set {host.nic} up")
        except (OSError, subprocess.CalledProcessError) as error:
            why = getattr(error, "stderr", None) or error
            pytest.skip(f"cannot make network namespaces here: {why}")
        yield hosts
    finally:
        for host in hosts:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


@pytest.mark.slow
def test_a_machine_that_is_cut_off_and_comes_back(
    start, undisturbed, two_hosts, tmp_path
):
    # on storage that both "machines" share
    log, checkpoint = tmp_path / "log", tmp_path / "run.pt"
    options = [*files(tmp_path), "--save-every=4", "--pause=0.1", "--timeout=3"]
    rendezvous = (
        "--nnodes=2 --nproc-per-node=1 --max-restarts=3 --rdzv-backend=c10d"
        f" --rdzv-id=lab --rdzv-endpoint={two_hosts[0].address}:29400".split()
    )
    launchers = []
    for index, host in enumerate(two_hosts):
        command = ["ip", "netns", "exec", host.name, *TORCHRUN, *rendezvous]
        # torchrun tells by the host name whether to host the rendezvous. Namespaces
        # share it, so is_host says it.
        command += [f"--rdzv-conf=is_host={1 - index}", f"--local-addr={host.address}"]
        # the first is set in the files for SLURM and Kubernetes, too
        env = {
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "GLOO_SOCKET_IFNAME": host.nic,
        }
        launchers.append(start([*command, SCRIPT, "--cpu", *options], **env))
    wait_for_step(log, 21)
    sh(f"ip -n {two_hosts[1].name} link set {two_hosts[1].nic} down")
    first, second = (list(workers(launcher).values()) for launcher in launchers)
    assert len(first) == len(second) == 1
    wait_until(lambda: all(map(ended, first + second)), "both to give up", seconds=20)
    step = log_of(log)[-1]["step"]
    sh(f"ip -n {two_hosts[1].name} link set {two_hosts[1].nic} up")
    ends = [end_of(launcher) for launcher in launchers]
    assert [end.status for end in ends] == [0, 0], ends
    found = next(result(end.out) for end in ends if end.out.strip().endswith("}"))
    assert step < STEPS - 1 and 0 < found["resumed_at"] <= step + 1
    assert found["restarts"] >= 1 and found["world_size"] == 2
    errors = "".join(end.err for end in ends)
    assert "lost the other processes (Timed out waiting 3000ms" in errors
    assert_seen(load(checkpoint), EPOCHS)
    processes.assert_same_bits(load(checkpoint), undisturbed.checkpoint)


def test_more_processes_than_gpus(monkeypatch):
    def picked(*words):
        return str(train_ddp.pick_device(train_ddp.parse_arguments(words)))

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert picked() == f"cuda:{rank}"
    monkeypatch.setenv("RANK", "2")
    says = r"^more processes than GPUs: this machine has 2. Start fewer, or add --cpu.$"
    with pytest.raises(train_ddp.Problem, match=says):
        picked()
    assert picked("--cpu") == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "0")  # rank 2 of 3, but the first of its machine
    assert picked() == "cuda:0"
