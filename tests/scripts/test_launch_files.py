"""The files that start train_ddp.py on clusters: they parse, they mean the same, and
the one for SLURM runs.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from torch.distributed.run import get_args_parser

from tests.scripts.processes import SCRIPTS, train_ddp

SBATCH, JOB = SCRIPTS / "train_ddp.sbatch", SCRIPTS / "train_ddp.yaml"


@pytest.fixture(scope="module")
def sbatch_words():
    """The command line behind srun, with SLURM's variables filled in."""
    text = SBATCH.read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith("srun ")]
    for name, value in {
        "SLURM_NNODES": 2,
        "SLURM_GPUS_ON_NODE": 4,
        "SLURM_JOB_ID": 17,
        "head_node": "node1",
    }.items():
        line = line.replace(f"${name}", str(value))
    assert "$" not in line
    return shlex.split(line)[1:]


@pytest.fixture(scope="module")
def job():
    return yaml.safe_load(JOB.read_text())


def test_sbatch_options():
    lines = SBATCH.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    first_command = next(
        i for i, line in enumerate(lines) if line and not line.startswith("#")
    )
    assert not any(line.startswith("#SBATCH") for line in lines[first_command:]), (
        "sbatch stops reading at a command"
    )
    options = dict(
        re.fullmatch(r"#SBATCH --([a-z-]+)(?:=(\S+))?", x).groups()
        for x in lines
        if x.startswith("#SBATCH")
    )
    assert (options["nodes"], options["ntasks-per-node"], options["gpus-per-node"]) == (
        "2",
        "1",
        "4",
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d", options["time"])


@pytest.mark.skipif(not shutil.which("bash"), reason="no bash")
def test_sbatch_is_a_shell_script():
    subprocess.run(["bash", "-n", SBATCH], check=True)


def test_sbatch_command_is_understood(sbatch_words):
    assert sbatch_words[0] == "torchrun"
    launch = get_args_parser().parse_args(sbatch_words[1:])
    assert (launch.nnodes, launch.nproc_per_node, launch.rdzv_backend) == (
        "2",
        "4",
        "c10d",
    )
    assert (launch.rdzv_endpoint, launch.rdzv_id, launch.max_restarts) == (
        "node1:29400",
        "17",
        3,
    )
    assert launch.training_script == "train_ddp.py"
    args = train_ddp.parse_arguments(launch.training_script_args)
    assert args.checkpoint and args.batch >= 8


def test_job_has_what_a_train_job_needs(job):
    assert (job["apiVersion"], job["kind"]) == (
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
    )
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", job["metadata"]["name"])
    assert job["spec"].keys() == {"runtimeRef", "trainer", "runtimePatches"}
    assert job["spec"]["runtimeRef"] == {"name": "torch-distributed"}
    trainer = job["spec"]["trainer"]
    known = {
        "image",
        "command",
        "args",
        "env",
        "numNodes",
        "numProcPerNode",
        "resourcesPerNode",
    }
    assert trainer.keys() <= known and (
        trainer["numNodes"],
        trainer["numProcPerNode"],
    ) == (2, 4)
    assert (
        trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"]
        == trainer["numProcPerNode"]
    )
    assert all(isinstance(word, str) for word in trainer["command"] + trainer["args"])
    assert all(
        isinstance(each["name"], str) and isinstance(each["value"], str)
        for each in trainer["env"]
    )
    assert not any(each["name"].startswith("PET_") for each in trainer["env"]), (
        "the runtime sets these"
    )


def test_job_mounts_the_folder_of_the_checkpoint(job):
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert patch["manager"] and node["name"] == container["name"] == "node"
    assert (
        mount["name"] == volume["name"] and volume["persistentVolumeClaim"]["claimName"]
    )
    assert f"--checkpoint={mount['mountPath']}/run.pt" in job["spec"]["trainer"]["args"]


def test_both_files_start_the_same_program(sbatch_words, job):
    words = job["spec"]["trainer"]["command"] + job["spec"]["trainer"]["args"]
    assert words[0] == sbatch_words[0] == "torchrun"
    here, there = (
        get_args_parser().parse_args(each[1:]) for each in (sbatch_words, words)
    )
    assert (
        here.training_script
        == there.training_script
        == SCRIPTS.joinpath("train_ddp.py").name
    )
    for name in ("max_restarts", "rdzv_backend"):
        assert getattr(here, name) == getattr(there, name)
    here, there = (
        vars(train_ddp.parse_arguments(each.training_script_args))
        for each in (here, there)
    )
    assert here.pop("checkpoint").name == there.pop("checkpoint").name
    assert here == there
    exported = dict(
        re.findall(r"^export (\w+)=(\S+)", SBATCH.read_text(), re.MULTILINE)
    )
    assert exported == {
        each["name"]: each["value"] for each in job["spec"]["trainer"]["env"]
    }


def test_torchrun_lets_all_options_through():
    """Before Python 3.12, torchrun stops at an option of the script that could be short
    for two of its own: --log.
    """
    words = [
        "--epochs=1",
        "--batch=64",
        "--lr=0.1",
        "--hidden=8",
        "--seed=1",
        "--accumulate=2",
        "--clip=1",
        "--amp",
    ]
    words += [
        "--cpu",
        "--checkpoint=a",
        "--save-every=1",
        "--resume",
        "--log-file=b",
        "--pause=0",
        "--timeout=9",
    ]
    assert {word.split("=")[0][2:].replace("-", "_") for word in words} == vars(
        train_ddp.parse_arguments([])
    ).keys()
    launch = get_args_parser().parse_args(
        ["--standalone", "--nproc-per-node=2", "train_ddp.py", *words]
    )
    assert launch.training_script_args == words
    for word in words:  # and each as the first or only one
        assert get_args_parser().parse_args(
            ["train_ddp.py", word]
        ).training_script_args == [word]


@pytest.mark.skipif(os.name != "posix" or not shutil.which("bash"), reason="no bash")
def test_sbatch_runs_on_one_machine(tmp_path):
    """With stand-ins for srun and scontrol. A clean run: the result, and nothing on
    stderr.
    """
    programs = {
        "srun": 'exec "$@"',
        "scontrol": "echo localhost",
        "torchrun": f'exec "{sys.executable}" -m torch.distributed.run "$@" --cpu',
    }
    for name, body in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("train_ddp.py", "checkpoint.py"):
        shutil.copy(SCRIPTS / name, tmp_path)
    slurm = {
        "SLURM_NNODES": "1",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "localhost",
    }
    env = os.environ | slurm | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    text = SBATCH.read_text()
    # any free port: the tests may run twice at once
    (tmp_path / "job").write_text(text.replace(":29400", ":0"))
    end = subprocess.run(
        ["bash", "job"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (end.returncode, end.stderr) == (0, ""), end.stderr
    found = json.loads(end.stdout.splitlines()[-1])
    assert (
        found["world_size"],
        found["seen_min"],
        found["seen_max"],
        found["restarts"],
    ) == (2, 5, 5, 0)
    assert torch.load(tmp_path / "run.pt", weights_only=True)["epoch"] == 5
