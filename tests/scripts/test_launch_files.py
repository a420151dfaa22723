"""The files that start train_ddp.py on clusters: they parse, they mean the same, and
the one for SLURM runs.
"""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import torch
import train_ddp
import yaml
from torch.distributed.run import get_args_parser

from tests.scripts import SCRIPTS

SBATCH, JOB = SCRIPTS / "train_ddp.sbatch", SCRIPTS / "train_ddp.yaml"


@pytest.fixture(scope="module")
def sbatch_words():
    """The command line behind srun, with SLURM's variables filled in."""
    text = SBATCH.read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith("srun ")]
    slurm = {"NNODES": 2, "GPUS_ON_NODE": 4, "JOB_ID": 17}
    values = {f"SLURM_{name}": value for name, value in slurm.items()}
    for name, value in {**values, "head_node": "node1"}.items():
        line = line.replace(f"${name}", str(value))
    assert "$" not in line
    return shlex.split(line)[1:]


@pytest.fixture(scope="module")
def job():
    return yaml.safe_load(JOB.read_text())


def test_sbatch_options():
    lines = SBATCH.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    # sbatch stops reading at a command
    above = itertools.takewhile(lambda line: line.startswith("#") or not line, lines)
    options = [line for line in above if line.startswith("#SBATCH --")]
    for option in ("nodes=2", "ntasks-per-node=1", "gpus-per-node=4"):
        assert f"#SBATCH --{option}" in options


def test_sbatch_command_is_understood(sbatch_words):
    assert sbatch_words[0] == "torchrun"
    launch = get_args_parser().parse_args(sbatch_words[1:])
    assert (launch.nnodes, launch.nproc_per_node) == ("2", "4")
    assert (launch.rdzv_backend, launch.rdzv_endpoint) == ("c10d", "node1:29400")
    assert (launch.rdzv_id, launch.max_restarts) == ("17", 3)
    assert launch.training_script == "train_ddp.py"
    args = train_ddp.parse_arguments(launch.training_script_args)
    assert args.checkpoint and args.batch >= 8


def test_job_has_what_a_train_job_needs(job):
    """Keys as Kubeflow Trainer 2 defines them."""
    assert job["kind"] == "TrainJob"
    assert job["apiVersion"] == "trainer.kubeflow.org/v1alpha1"
    assert job["spec"].keys() == {"runtimeRef", "trainer", "runtimePatches"}
    trainer = job["spec"]["trainer"]
    limits = trainer["resourcesPerNode"]["limits"]
    assert trainer["numNodes"] == 2
    assert trainer["numProcPerNode"] == limits["nvidia.com/gpu"] == 4
    assert all(isinstance(word, str) for word in trainer["command"] + trainer["args"])
    for variable in trainer["env"]:
        assert isinstance(variable["value"], str)
        assert not variable["name"].startswith("PET_"), "the runtime sets these"


def test_job_mounts_the_folder_of_the_checkpoint(job):
    (patch,) = job["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert f"--checkpoint={mount['mountPath']}/run.pt" in job["spec"]["trainer"]["args"]


def test_both_files_export_the_same_variables(job):
    exported = re.findall(r"^export (\w+)=(\S+)", SBATCH.read_text(), re.MULTILINE)
    env = job["spec"]["trainer"]["env"]
    assert dict(exported) == {each["name"]: each["value"] for each in env}


def test_torchrun_lets_all_options_through():
    """Before Python 3.12, torchrun stops at an option of the script that could be short
    for two of its own: --log.
    """
    words = (
        "--epochs=1 --batch=64 --lr=0.1 --hidden=8 --seed=1 --accumulate=2 --clip=1"
        " --amp --cpu --checkpoint=a --save-every=1 --resume --log-file=b --pause=0"
        " --timeout=9".split()
    )
    names = {word.split("=")[0][2:].replace("-", "_") for word in words}
    assert names == vars(train_ddp.parse_arguments([])).keys()
    for word in words:  # each as the only one
        launch = get_args_parser().parse_args(["train_ddp.py", word])
        assert launch.training_script_args == [word]


@pytest.mark.slow
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
    options = {"cwd": tmp_path, "env": env, "timeout": 120}
    end = subprocess.run(["bash", "job"], capture_output=True, text=True, **options)
    assert (end.returncode, end.stderr) == (0, ""), end.stderr
    found = json.loads(end.stdout.splitlines()[-1])
    assert (found["world_size"], found["restarts"]) == (2, 0)
    assert (found["seen_min"], found["seen_max"]) == (5, 5)
    assert torch.load(tmp_path / "run.pt", weights_only=True)["epoch"] == 5
