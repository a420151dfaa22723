"""The training script of lessons 11 and 12, run for real: with one process and several, killed, cut off, misused.

Processes that tests start use the CPU and loopback, and a copy of the digits instead of scikit-learn, whose import
takes longer than the training. What runs inside this process uses scikit-learn itself.
"""

import contextlib
import gc
import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy
import psutil
import pytest
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

from tests.forked import Server

SCRIPT = Path(__file__).resolve().parent.parent / "notebooks" / "scripts" / "train_ddp.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
EPOCHS, STEPS = 3, 69  # 23 steps an epoch with the script's own batch
LAUNCHED = ("TORCHELASTIC", "PET_", "MASTER_", "GLOO_", "NCCL_", "SLURM_")  # what a launcher may have left behind


@pytest.fixture(scope="module")
def script():
    """The script as a module, for what can be tested without starting a process."""
    spec = importlib.util.spec_from_file_location("train_ddp", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    (folder / "sklearn").mkdir()
    (folder / "sklearn" / "__init__.py").touch()
    numpy.savez(folder / "digits.npz", *load_digits(return_X_y=True))
    source = f"import numpy\ndef load_digits(return_X_y): return numpy.load({str(folder / 'digits.npz')!r}).values()\n"
    (folder / "sklearn" / "datasets.py").write_text(source)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    env = {key: value for key, value in os.environ.items() if key not in names and not key.startswith(LAUNCHED)}
    return env | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def start(environment):
    """start(command, **more environment) starts a process. At the end none is left, whatever happened."""
    started = []

    def start(command, **more):
        process = subprocess.Popen(
            list(map(str, command)),
            env=environment | {key: str(value) for key, value in more.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        kill_tree(process.pid)
        process.communicate()


@pytest.fixture(scope="module")
def server(environment):
    server = Server(SCRIPT, environment)
    yield server
    server.close()


def kill_tree(pid):
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def start_group(server, size, *options):
    """`size` processes started by hand, without torchrun."""
    port, words = free_port(), ["--cpu", "--timeout=60", *options]
    return [server.start(*words, RANK=rank, WORLD_SIZE=size, MASTER_PORT=port) for rank in range(size)]


def finish(processes, seconds=240):
    """Exit status, stdout and stderr of each."""
    deadline = time.monotonic() + seconds
    ends = [process.communicate(timeout=max(1, deadline - time.monotonic())) for process in processes]
    return [
        SimpleNamespace(status=p.returncode, out=end[0], err=end[1]) for p, end in zip(processes, ends, strict=True)
    ]


def result(out):
    return json.loads(out.splitlines()[-1])


def group_result(processes):
    ends = finish(processes)
    assert all(end.status == 0 and end.err == "" for end in ends), ends
    return result(ends[0].out)


def train_here(script, capsys, *options):
    """One process, this one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(LAUNCHED)] + ["RANK", "WORLD_SIZE"]:
            patch.delenv(name, raising=False)
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            patch.setenv(name, "")  # so that what the script sets is undone
            patch.delenv(name)
        patch.setenv("OMP_NUM_THREADS", "1")
        script.train(script.parse_arguments(["--cpu", *map(str, options)]))
    return result(capsys.readouterr().out)


def load(path):
    return torch.load(path, weights_only=True)


def assert_same_weights(one, two, tolerance=1e-5):
    """The same but for rounding: a sum over two processes adds in another order. Weights are about 0.1 to 1 large."""
    for name, weight in one["model"].items():
        torch.testing.assert_close(two["model"][name], weight, rtol=0, atol=tolerance)


def assert_identical(one, two):
    assert one["model"].keys() == two["model"].keys()
    assert all(torch.equal(weight, two["model"][name]) for name, weight in one["model"].items())
    momenta = [[state["momentum_buffer"] for state in each["optimizer"]["state"].values()] for each in (one, two)]
    assert all(torch.equal(*pair) for pair in zip(*momenta, strict=True))


def assert_seen(checkpoint, times):
    assert checkpoint["seen"].tolist() == [times] * 1437


def wait_until(condition, what, seconds=180):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return value


def last_line(log):
    """The newest step in the log, or None."""
    lines = log.read_text().splitlines() if log.exists() else []
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(lines[-1])


def ended(process):
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def workers(launcher):
    """The processes that torchrun started, by rank."""
    found = {}
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(launcher.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, KeyError):
                if str(SCRIPT) in process.cmdline():
                    found[int(process.environ()["RANK"])] = process
    return found


def listening(processes):
    """The addresses and ports on which processes wait for connections."""
    found = set()
    for process in processes:
        connections = getattr(process, "net_connections", None) or process.connections
        found |= {tuple(each.laddr) for each in connections("tcp") if each.status == psutil.CONN_LISTEN}
    return found


# ---- The same weights with any number of processes ----


@pytest.fixture(scope="module")
def undisturbed(server, tmp_path_factory):
    """Two processes, no interruption: what all interrupted runs must arrive at."""
    folder = tmp_path_factory.mktemp("undisturbed")
    options = [f"--epochs={EPOCHS}", f"--checkpoint={folder / 'run.pt'}", f"--log-file={folder / 'log'}"]
    found = group_result(start_group(server, 2, *options))
    return SimpleNamespace(result=found, checkpoint=load(folder / "run.pt"), log=folder / "log")


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("batch", [64, 359, 1437])
def test_each_sample_goes_to_one_process_once_an_epoch(script, monkeypatch, size, batch):
    args, taken = SimpleNamespace(batch=batch, seed=3), []
    monkeypatch.setattr(dist, "get_world_size", lambda: size)
    for rank in range(size):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        for step in range(script.steps_per_epoch(args), 2 * script.steps_per_epoch(args)):
            taken += script.my_share(script.global_batch(step, args)).tolist()
    assert sorted(taken) == list(range(1437))


def test_two_processes_are_one(script, undisturbed, tmp_path, capsys):
    options = [f"--epochs={EPOCHS}", f"--checkpoint={tmp_path / 'run.pt'}", f"--log-file={tmp_path / 'log'}"]
    alone = train_here(script, capsys, *options)
    assert_same_weights(load(tmp_path / "run.pt"), undisturbed.checkpoint)
    assert_seen(undisturbed.checkpoint, EPOCHS)
    one, two = ([json.loads(line) for line in open(log)] for log in (tmp_path / "log", undisturbed.log))
    assert [line["step"] for line in one] == [line["step"] for line in two] == list(range(STEPS))
    for line, other in zip(one, two, strict=True):
        assert line["loss"] == pytest.approx(other["loss"], abs=1e-5)
    for name in ("accuracy", "loss"):
        assert alone[name] == pytest.approx(undisturbed.result[name], abs=1e-5)
    assert alone["accuracy"] > 0.9
    assert (undisturbed.result["world_size"], undisturbed.result["steps"]) == (2, STEPS)
    assert (undisturbed.result["seen_min"], undisturbed.result["seen_max"]) == (EPOCHS, EPOCHS)


def test_gradients_of_four_processes_are_those_of_one(script, server, tmp_path, capsys):
    # 1437 samples: two steps of 718, of which two processes take one more than the others, then one step with a single
    # sample, of which three processes have nothing. SGD's momentum is a sum of the gradients so far.
    options = ["--epochs=1", "--batch=718", "--accumulate=2"]
    found = group_result(start_group(server, 4, *options, f"--checkpoint={tmp_path / 'four.pt'}"))
    train_here(script, capsys, *options[:2], f"--checkpoint={tmp_path / 'one.pt'}")
    one, four = load(tmp_path / "one.pt"), load(tmp_path / "four.pt")
    for index, state in one["optimizer"]["state"].items():
        gradients = four["optimizer"]["state"][index]["momentum_buffer"]
        torch.testing.assert_close(gradients, state["momentum_buffer"], rtol=0, atol=1e-6)
    assert_same_weights(one, four, tolerance=1e-6)
    assert (found["world_size"], found["steps"]) == (4, 3)
    assert_seen(four, 1)


def test_accumulation_changes_memory_not_weights(script, tmp_path, capsys):
    for parts in (1, 3, 100):  # 100 parts of 64 samples: some are empty
        train_here(script, capsys, "--epochs=1", f"--accumulate={parts}", f"--checkpoint={tmp_path / str(parts)}.pt")
    for parts in (3, 100):
        assert_same_weights(load(tmp_path / "1.pt"), load(tmp_path / f"{parts}.pt"), tolerance=1e-6)
        assert_seen(load(tmp_path / f"{parts}.pt"), 1)


def test_clip_and_amp_do_something(script, tmp_path, capsys):
    for name in ("plain", "clip=0.1", "amp"):
        options = [] if name == "plain" else [f"--{name}"]
        assert train_here(script, capsys, "--epochs=2", *options, f"--checkpoint={tmp_path / name}")["accuracy"] > 0.4
    for name in ("clip=0.1", "amp"):
        weights = load(tmp_path / name)["model"]["0.weight"]
        assert weights.dtype == torch.float32
        assert not torch.equal(weights, load(tmp_path / "plain")["model"]["0.weight"])


# ---- Interrupted in the middle ----


def test_continues_in_the_middle_of_an_epoch_with_another_number_of_processes(
    script, server, undisturbed, tmp_path, capsys
):
    """Stops: a process that hangs. The other says so within the timeout; one process alone finishes the work."""
    checkpoint, log = tmp_path / "run.pt", tmp_path / "log"
    options = [f"--epochs={EPOCHS}", f"--checkpoint={checkpoint}", "--save-every=5", f"--log-file={log}", "--pause=0.1"]
    group = start_group(server, 2, *options, "--timeout=4")
    wait_until(lambda: (last_line(log) or {}).get("step", 0) > 27, "step 28")
    ports = listening([psutil.Process(process.pid) for process in group])
    assert ports and {address for address, _ in ports} == {"127.0.0.1"}, "listens beyond loopback"
    os.kill(group[1].pid, signal.SIGSTOP)
    begin = time.monotonic()
    (first,) = finish(group[:1])
    assert time.monotonic() - begin < 30
    assert first.status == 1
    assert first.err.startswith("train_ddp: rank 0 lost the other processes (Timed out waiting 4000ms")
    assert first.err.count("\n") == 1
    os.kill(group[1].pid, signal.SIGKILL)
    saved = load(checkpoint)
    assert saved["epoch"] == 1 and 0 < saved["batch"] < 23 and saved["batch"] % 5 == 2
    assert set(saved["seen"].tolist()) == {1, 2}

    found = train_here(script, capsys, f"--epochs={EPOCHS}", f"--checkpoint={checkpoint}", "--resume")
    assert found["resumed_at"] == 23 + saved["batch"] and found["steps"] == STEPS
    assert_seen(load(checkpoint), EPOCHS)
    assert_same_weights(undisturbed.checkpoint, load(checkpoint))
    again = train_here(script, capsys, f"--epochs={EPOCHS}", f"--checkpoint={checkpoint}")  # nothing left to do
    assert (again["resumed_at"], again["seen_max"], again["samples_per_second"]) == (STEPS, EPOCHS, 0)


def test_interrupted_alone_and_continued_is_bit_for_bit_the_same(script, tmp_path, capsys):
    train_here(script, capsys, "--epochs=2", f"--checkpoint={tmp_path / 'whole.pt'}")
    real, calls = script.train_step, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 31:
            raise ZeroDivisionError
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(script, "train_step", interrupted)
        with pytest.raises(ZeroDivisionError):
            train_here(script, capsys, "--epochs=2", "--save-every=7", f"--checkpoint={tmp_path / 'parts.pt'}")
        gc.collect()  # the model in the traceback must go before the group
        dist.destroy_process_group()
    capsys.readouterr()
    assert train_here(script, capsys, "--epochs=2", f"--checkpoint={tmp_path / 'parts.pt'}")["resumed_at"] == 28
    assert_identical(load(tmp_path / "whole.pt"), load(tmp_path / "parts.pt"))


# Ten seeds. Each says which process dies (kill -9) and when. One run takes five kills, one after the other: a start
# costs seconds, a kill in a run that is restarted anyway does not cost another.
KILL_RUNS = [range(0, 5), range(5, 10)]


def train_and_kill(start, folder, seeds):
    log, checkpoint = folder / "log", folder / "run.pt"
    command = [
        *TORCHRUN,
        "--standalone",
        "--nproc-per-node=2",
        f"--max-restarts={len(seeds)}",
        "--monitor-interval=0.1",
    ]
    command += [SCRIPT, "--cpu", f"--epochs={EPOCHS}", f"--checkpoint={checkpoint}", "--save-every=4"]
    launcher = start([*command, f"--log-file={log}", "--pause=0.03"])
    kills = []
    for restart, seed in enumerate(seeds):
        chance = random.Random(seed)
        rank, step = chance.randrange(2), 13 * restart + chance.randrange(4, 13)

        def due(restart=restart, step=step):
            line = last_line(log)
            return line and (line["restarts"], line["step"]) >= (restart, step)

        wait_until(due, f"restart {restart}, step {step}")
        time.sleep(chance.uniform(0, 0.05))  # somewhere within the step, or within the next checkpoint
        workers(launcher)[rank].kill()
        kills.append((restart, rank, last_line(log)["step"]))
    (end,) = finish([launcher])
    assert end.status == 0, end.err
    return SimpleNamespace(kills=kills, result=result(end.out), checkpoint=load(checkpoint), err=end.err)


@pytest.fixture(scope="module")
def killed_runs(start, undisturbed, tmp_path_factory):
    """Both at once."""
    folders = [tmp_path_factory.mktemp("killed") for _ in KILL_RUNS]
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda folder, seeds: train_and_kill(start, folder, seeds), folders, KILL_RUNS))


@pytest.mark.parametrize("index", range(len(KILL_RUNS)))
def test_kill_9_at_random_steps_changes_nothing(killed_runs, undisturbed, index):
    run = killed_runs[index]
    assert len(run.kills) == run.result["restarts"] == len(KILL_RUNS[index])
    assert run.result["resumed_at"] > 0
    assert run.result["accuracy"] == undisturbed.result["accuracy"]
    assert (run.result["seen_min"], run.result["seen_max"]) == (EPOCHS, EPOCHS)
    assert_seen(run.checkpoint, EPOCHS)
    assert_identical(run.checkpoint, undisturbed.checkpoint)


SAVER = """
import importlib.util, os, pathlib, sys, torch
spec = importlib.util.spec_from_file_location("train_ddp", sys.argv[1])
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
for line in sys.stdin:  # the newest version so far
    if os.fork() == 0:  # a process to be killed, which need not import torch again
        version = int(line)
        print(os.getpid(), flush=True)
        while True:
            version += 1
            data = torch.full((2_000_000,), version)
            script.save({"version": version, "data": data}, pathlib.Path(sys.argv[2]))
            print(version, flush=True)
    os.wait()
    print("dead", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_kill_9_while_a_checkpoint_is_written_leaves_a_whole_one(start, tmp_path):
    """16 MB, again and again. Most of the time is writing, so most kills hit it."""
    path, temporary, chance = tmp_path / "run.pt", tmp_path / "run.pt.tmp", random.Random(0)
    saver = start([sys.executable, "-c", SAVER, SCRIPT, path])
    version, torn, kills = 0, 0, 0
    while kills < 20 or torn < 5:
        kills += 1
        assert kills < 100, "too few kills hit the writing: this test shows little"
        print(version, file=saver.stdin, flush=True)
        pid = int(saver.stdout.readline())
        said = [int(saver.stdout.readline())]
        found = load(path)  # whole at any moment, not only after the kill
        assert (found["data"] == found["version"]).all()
        time.sleep(chance.uniform(0, 0.15))
        os.kill(pid, signal.SIGKILL)
        while (line := saver.stdout.readline()) != "dead\n":
            said.append(int(line))
        torn += temporary.exists()  # died between opening the temporary file and renaming it
        found = load(path)
        assert (found["data"] == found["version"]).all() and len(found["data"]) == 2_000_000
        assert found["version"] in (said[-1], said[-1] + 1), "a finished checkpoint was lost"
        version = found["version"]


def test_interrupt_leaves_nothing_behind(start, tmp_path):
    """Ctrl-C: a terminal sends SIGINT to torchrun's process group."""
    log, checkpoint = tmp_path / "log", tmp_path / "run.pt"
    command = [*TORCHRUN, "--standalone", "--nproc-per-node=2", SCRIPT, "--cpu", "--pause=0.1", "--save-every=2"]
    launcher = start([*command, f"--checkpoint={checkpoint}", f"--log-file={log}"])
    wait_until(lambda: (last_line(log) or {}).get("step", 0) > 4, "step 5")
    family = [psutil.Process(launcher.pid), *psutil.Process(launcher.pid).children(recursive=True)]
    ports = listening(family)
    assert len(family) >= 3 and ports
    assert {address for address, _ in listening(workers(launcher).values())} == {"127.0.0.1"}
    os.killpg(launcher.pid, signal.SIGINT)
    (end,) = finish([launcher], seconds=40)
    assert end.status != 0
    # Not line by line: torchrun writes to the same place in the same moment.
    assert re.findall("train_ddp: [a-z ]*", end.err) == ["train_ddp: interrupted"]
    assert f'File "{SCRIPT}"' not in end.err  # torchrun shows a traceback of its own; the script adds none
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
    """Two network namespaces with a cable (a veth pair) between them: as far as TCP can tell, two machines."""
    tag = f"lab{os.getpid()}"
    hosts = [SimpleNamespace(name=f"{tag}{i}", nic=f"{tag}{i}"[-15:], address=f"10.77.0.{i + 1}") for i in range(2)]
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
            pytest.skip(f"cannot make network namespaces here: {getattr(error, 'stderr', None) or error}")
        yield hosts
    finally:
        for host in hosts:
            with contextlib.suppress(OSError):
                subprocess.run(["ip", "netns", "del", host.name], capture_output=True)


def test_a_machine_that_is_cut_off_and_comes_back(start, undisturbed, two_hosts, tmp_path):
    log, checkpoint = tmp_path / "log", tmp_path / "run.pt"  # on storage that both "machines" share
    options = ["--cpu", f"--epochs={EPOCHS}", f"--checkpoint={checkpoint}", "--save-every=4", f"--log-file={log}"]
    launchers, env = [], {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # as in the files for SLURM and Kubernetes
    for index, host in enumerate(two_hosts):
        # torchrun tells by the host name whether to host the rendezvous. Namespaces share it, so is_host says it.
        command = ["ip", "netns", "exec", host.name, *TORCHRUN, "--nnodes=2", "--nproc-per-node=1", "--max-restarts=3"]
        command += ["--rdzv-backend=c10d", f"--rdzv-endpoint={two_hosts[0].address}:29400", "--rdzv-id=lab"]
        command += [f"--rdzv-conf=is_host={1 - index}", f"--local-addr={host.address}"]
        launchers.append(
            start([*command, SCRIPT, *options, "--pause=0.1", "--timeout=3"], **env, GLOO_SOCKET_IFNAME=host.nic)
        )
    wait_until(lambda: (last_line(log) or {}).get("step", 0) > 20, "step 21 on two machines")
    sh(f"ip -n {two_hosts[1].name} link set {two_hosts[1].nic} down")
    first, second = (list(workers(launcher).values()) for launcher in launchers)
    assert len(first) == len(second) == 1
    wait_until(lambda: all(map(ended, first + second)), "both processes to give up the lost machine", seconds=20)
    step = last_line(log)["step"]
    sh(f"ip -n {two_hosts[1].name} link set {two_hosts[1].nic} up")
    ends = finish(launchers)
    assert [end.status for end in ends] == [0, 0], ends
    found = next(result(end.out) for end in ends if end.out.strip().endswith("}"))
    assert step < STEPS - 1 and 0 < found["resumed_at"] <= step + 1
    assert found["restarts"] >= 1 and found["world_size"] == 2
    assert "lost the other processes (Timed out waiting 3000ms" in "".join(end.err for end in ends)
    assert_seen(load(checkpoint), EPOCHS)
    assert_identical(load(checkpoint), undisturbed.checkpoint)


# ---- Clear errors ----


@pytest.fixture(scope="module")
def mistakes(server, script, tmp_path_factory):
    """Each mistake, made by running the script."""
    folder = tmp_path_factory.mktemp("mistakes")
    args = script.parse_arguments(["--checkpoint", str(folder / "good.pt")])
    settings = {name: getattr(args, name) for name in script.MUST_MATCH}
    script.save({"settings": settings, "data": torch.zeros(10_000)}, folder / "good.pt")
    (folder / "half.pt").write_bytes((folder / "good.pt").read_bytes()[:20_000])
    (folder / "empty.pt").touch()
    torch.save({"model": 1}, folder / "other.pt")
    unused, taken = free_port(), socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    run = {
        "size not a number": ([], {"WORLD_SIZE": "two", "RANK": 0}),
        "rank too large": ([], {"WORLD_SIZE": 2, "RANK": 2}),
        "rank missing": ([], {"WORLD_SIZE": 2}),
        "batch too small": (["--batch=3"], {"WORLD_SIZE": 4, "RANK": 1}),
        "port taken": ([], {"WORLD_SIZE": 2, "RANK": 0, "MASTER_PORT": port}),
        "nobody there": (["--timeout=3"], {"WORLD_SIZE": 2, "RANK": 1, "MASTER_PORT": unused}),
        "no checkpoint": ([f"--checkpoint={folder / 'none.pt'}", "--resume"], {}),
        "other model": ([f"--checkpoint={folder / 'good.pt'}", "--hidden=32"], {}),
        "half a checkpoint": ([f"--checkpoint={folder / 'half.pt'}"], {}),
        "empty checkpoint": ([f"--checkpoint={folder / 'empty.pt'}"], {}),
        "other file": ([f"--checkpoint={folder / 'other.pt'}"], {}),
        "no folder": (["--epochs=1", f"--checkpoint={folder / 'no' / 'run.pt'}"], {}),
        "alone": (["--timeout=3"], {"WORLD_SIZE": 2, "RANK": 0, "MASTER_PORT": free_port()}),
    }
    begin = time.monotonic()
    group = [server.start("--cpu", *words, **env) for words, env in run.values()]
    ends = dict(zip(run, finish(group), strict=True))
    taken.close()
    return SimpleNamespace(ends=ends, seconds=time.monotonic() - begin, port=port, unused=unused, folder=folder)


MESSAGES = {
    "size not a number": (2, "WORLD_SIZE is 'two', not a whole number. Start with torchrun"),
    "rank too large": (2, "RANK is 2 and WORLD_SIZE is 2. Ranks count from 0 to WORLD_SIZE - 1"),
    "rank missing": (2, "RANK is not set and WORLD_SIZE is 2."),
    "batch too small": (2, "--batch 3 is too small for 4 processes"),
    "port taken": (2, "rank 0 cannot listen at 127.0.0.1:{port} ("),
    "nobody there": (2, "no answer from 127.0.0.1:{unused} for 3 s ("),
    "no checkpoint": (2, "there is no checkpoint {folder}/none.pt. Check the name, or leave out --resume."),
    "other model": (2, "{folder}/good.pt was written with --hidden 64, now it is 32. Use the same value, or"),
    "half a checkpoint": (2, "{folder}/half.pt is damaged, or no checkpoint of this script ("),
    "empty checkpoint": (2, "{folder}/empty.pt is damaged, or no checkpoint of this script ("),
    "other file": (2, "{folder}/other.pt is damaged, or no checkpoint of this script ("),
    "no folder": (2, "[Errno 2] No such file or directory: '{folder}/no/run.pt.tmp'"),
    "alone": (1, "rank 0 lost the other processes (Timed out after "),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_one_line_says_what_is_wrong(mistakes, name):
    status, message = MESSAGES[name]
    end = mistakes.ends[name]
    assert end.err.startswith("train_ddp: " + message.format(**vars(mistakes))), end.err
    assert end.err.count("\n") == 1, end.err
    assert end.status == status


def test_mistakes_are_found_in_seconds(mistakes):
    assert mistakes.seconds < 240


def test_more_processes_than_gpus(script, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank, index in [("0", 0), ("1", 1)]:
        monkeypatch.setenv("RANK", rank)
        assert script.pick_device(script.parse_arguments([])) == torch.device("cuda", index)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(
        script.Problem, match=r"^more processes than GPUs: this machine has 2. Start fewer, or add --cpu.$"
    ):
        script.pick_device(script.parse_arguments([]))
    assert script.pick_device(script.parse_arguments(["--cpu"])) == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "0")  # rank 2 of 3, but the first of its machine
    assert script.pick_device(script.parse_arguments([])) == torch.device("cuda", 0)


@pytest.mark.parametrize("words", [["--epochs=0"], ["--batch=-1"], ["--resume"], ["--accumulate=0"]])
def test_options_that_make_no_sense(script, capsys, words):
    with pytest.raises(SystemExit, match="2"):
        script.parse_arguments(words)
    assert "error: " in capsys.readouterr().err
