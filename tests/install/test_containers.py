"""Environments that others make from files of the course: Docker, VS Code and
Codespaces, Binder, GitHub's workflows.

None of them can be started here. What nobody would notice until a reader tries it is
checked: a file that is not there or does not reach the image, a Python that the course
does not support, a wheel of PyTorch with CUDA.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import yaml
from packaging.requirements import Requirement
from traitlets.config import PyFileConfigLoader

from tests.conftest import ROOT
from tools import setup_env

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in (ROOT / ".github").rglob("*.yml")
}
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


# JSON with lines of comment, as the development containers' specification allows.
LINES = (
    (ROOT / ".devcontainer" / "devcontainer.json")
    .read_text(encoding="utf-8")
    .splitlines()
)
DEVCONTAINER = json.loads(
    "\n".join(line for line in LINES if not line.lstrip().startswith("//"))
)


def requirements(path):
    """(options, {package: version}) of a file of requirements with those that it
    includes.
    """
    options, exact = [], {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("-r "):
            more, versions = requirements(path.parent / line.removeprefix("-r "))
            options, exact = options + more, exact | versions
        elif line.startswith("-"):
            options.append(line)
        elif line and not line.startswith("#"):
            requirement = Requirement(line)
            exact[requirement.name, str(requirement.marker)] = str(
                requirement.specifier
            )
    return options, exact


def combinations(job):
    """Each combination of a job's matrix."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    more = matrix.pop("include", [])
    return [
        dict(zip(matrix, values, strict=True))
        for values in itertools.product(*matrix.values())
    ] + more


def all_steps():
    """(file, workflow, job, step) of all steps of all workflows."""
    for name, workflow in WORKFLOWS.items():
        for job in workflow["jobs"].values():
            for step in job.get("steps", []):
                yield name, workflow, job, step


# --------------------------------------------------------------------------------------


OPTIONS, EXACT = requirements(ROOT / "requirements-cpu.txt")
(INDEX,) = [option.removeprefix("--extra-index-url ") for option in OPTIONS]


def test_the_wheels_for_the_cpu_are_the_same_versions():
    assert INDEX == "https://download.pytorch.org/whl/cpu"
    assert EXACT == requirements(ROOT / "requirements.txt")[1]


def test_wherever_there_is_no_gpu_they_are_asked_for():
    assert "\nARG REQUIREMENTS=requirements-cpu.txt\n" in DOCKERFILE
    assert "--requirements requirements-cpu.txt" in DEVCONTAINER["updateContentCommand"]
    assert (
        f"--extra-index-url {INDEX}"
        in requirements(ROOT / "binder" / "requirements.txt")[0]
    )
    steps = [
        (step, {**workflow.get("env", {}), **step.get("env", {})})
        for _, workflow, _, step in all_steps()
    ]
    indexes = [
        env.get("PIP_EXTRA_INDEX_URL")
        for step, env in steps
        if "make env-test" in step.get("run", "")
    ]
    assert indexes == [INDEX]
    assert {
        env["PIP_EXTRA_INDEX_URL"] for _, env in steps if "PIP_EXTRA_INDEX_URL" in env
    } == {INDEX}
    # The tests on emulated GPUs need the wheel with CUDA.
    assert [
        env.get("PIP_EXTRA_INDEX_URL")
        for step, env in steps
        if step.get("run") == ".ci/run"
    ] == [None]


# --------------------------------------------------------------------------------------


def is_sent(path):
    """Whether Docker's build gets this file: the last line of .dockerignore that names
    it or a folder above decides.
    """
    sent, names = True, [str(name) for name in [path, *PurePosixPath(path).parents]]
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            glob = (
                re.escape(line.removeprefix("!"))
                .replace(r"\*\*/", "(.*/)?")
                .replace(r"\*", "[^/]*")
            )
            if any(re.fullmatch(glob, name) for name in names):
                sent = line.startswith("!")
    return sent


def tracked():
    """The files of the course, as git knows them, or all of an archive without git."""
    if (ROOT / ".git").exists():
        said = subprocess.run(
            ["git", "ls-files", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return [name for name in said.split("\0") if (ROOT / name).is_file()]
    return [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ]


def copied_lessons(image, *command):
    """The lessons of which a command makes copies in the image; `python` is the Python of the tests."""
    shutil.rmtree(image / "work", ignore_errors=True)
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    subprocess.run(command, cwd=image, env=env, check=True, timeout=120)
    return sorted(path.name for path in (image / "work").iterdir())


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The folder /course of the image, without its environment."""
    folder = tmp_path_factory.mktemp("image") / "course"
    copies = [
        line.split()[2:] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")
    ]
    assert all(
        line.startswith("COPY --chown=learner ")
        for line in DOCKERFILE.splitlines()
        if "COPY" in line
    )
    for name, (*sources, target) in itertools.product(
        filter(is_sent, tracked()), copies
    ):
        for source in sources:
            if PurePosixPath(name).match(source) and "/" not in name:
                place = folder / target / name
            elif name.startswith(f"{source}/"):
                place = folder / target / name.removeprefix(f"{source}/")
            else:
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)
    return folder


def test_the_image_holds_all_that_an_installation_and_the_lessons_need(image):
    for name in [
        "pyproject.toml",
        "README.md",
        "requirements.txt",
        "requirements-cpu.txt",
        "LICENSE",
        "LICENSE-text",
    ]:
        assert (image / name).is_file(), name
    for folder in ["docs", "notebooks", "tools", "utils"]:
        there = {name for name in tracked() if name.startswith(f"{folder}/")}
        assert there == {
            path.relative_to(image).as_posix()
            for path in (image / folder).rglob("*")
            if path.is_file()
        }


def test_the_command_of_the_image_starts_jupyterlab_on_copies_of_the_lessons(image):
    """With --version instead of a server; the environment is the one of the tests."""
    python, *command = json.loads(re.search(r"^CMD (.*)", DOCKERFILE, re.M)[1])
    assert python == ".venv/bin/python" and not {
        "--IdentityProvider.token",
        "--ServerApp.token",
    } & {*command}
    assert copied_lessons(image, sys.executable, *command, "--version") == LESSONS
    says = [sys.executable, "-c", "import utils; print(utils.__file__)"]
    found = subprocess.check_output(says, cwd=image, text=True, timeout=120)
    assert Path(found.strip()) == image / "utils" / "__init__.py"


@pytest.mark.parametrize(
    "path",
    """.git/config .venv/pyvenv.cfg .progress.json build/status/main.json dist/00_start_here.ipynb
    work/00_start_here.ipynb notebooks/pytorch-device-lab/README.md notebooks/.ipynb_checkpoints/00_start_here.ipynb
    utils/__pycache__/paths.cpython-311.pyc utils/simulate/__pycache__/a.pyc visit.zip tests/conftest.py""".split(),
)
def test_nothing_else_gets_into_the_image(path):
    assert not is_sent(path)


def test_docker_run_listens_on_this_machine_and_keeps_the_copies():
    """In the Dockerfile, and in README.md if it has the command."""
    folder = re.search(r"^WORKDIR (.*)", DOCKERFILE, re.M)[1]
    text = DOCKERFILE + (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [
        line
        for line in re.findall(r"docker run [^`\n]*", text)
        if "…" not in line and "-p " in line
    ]
    assert commands
    for command in commands:
        assert re.findall(r"-p (\S+)", command) == ["127.0.0.1:8888:8888"], command
        assert re.search(rf"-v [\w-]+:{folder}/work ", command), command


# --------------------------------------------------------------------------------------


def test_the_editor_finds_what_it_opens(image):
    """The command of the development container makes the copies that it opens, with the
    interpreter that it names.
    """
    settings = DEVCONTAINER["customizations"]["vscode"]["settings"]
    interpreter = settings["python.defaultInterpreterPath"].removeprefix(
        "${containerWorkspaceFolder}/"
    )
    install, copy = DEVCONTAINER["updateContentCommand"].split(" && ")
    _, script, *arguments = install.split()
    assert (image / script).is_file() and (
        image / arguments[arguments.index("--requirements") + 1]
    ).is_file()
    assert copy.startswith(f"{interpreter} -c ") and interpreter == ".venv/bin/python"
    code = re.search('-c "(.*)"$', copy)[1]
    assert copied_lessons(image, sys.executable, "-c", code) == LESSONS
    assert all(
        (image / name).is_file()
        for name in DEVCONTAINER["customizations"]["codespaces"]["openFiles"]
    )


def test_in_codespaces_jupyterlab_accepts_its_own_address_and_no_other(monkeypatch):
    folder = DEVCONTAINER["remoteEnv"]["JUPYTER_CONFIG_PATH"].replace(
        "${containerWorkspaceFolder}", str(ROOT)
    )
    port = DEVCONTAINER["forwardPorts"][0]
    for name in ["CODESPACE_NAME", "GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN"]:
        monkeypatch.delenv(name, raising=False)
    assert (
        "ServerApp"
        not in PyFileConfigLoader("jupyter_server_config.py", folder).load_config()
    )
    monkeypatch.setenv("CODESPACE_NAME", "any-name")
    monkeypatch.setenv("GITHUB_CODESPACES_PORT_FORWARDING_DOMAIN", "app.github.dev")
    config = PyFileConfigLoader("jupyter_server_config.py", folder).load_config()
    assert config == {
        "ServerApp": {"allow_origin": f"https://any-name-{port}.app.github.dev"}
    }


def test_binder_installs_the_course_and_makes_the_copies(image):
    assert "-e ." in requirements(ROOT / "binder" / "requirements.txt")[0]
    if os.name == "nt":
        pytest.skip("Binder runs on Linux")
    assert copied_lessons(image, ROOT / "binder" / "postBuild") == LESSONS


def test_pythons_are_supported():
    named = {
        "Dockerfile": re.search(r"^FROM python:(3\.\d+)-slim$", DOCKERFILE, re.M)[1],
        "devcontainer": re.search(r"/python:3-(3\.\d+)$", DEVCONTAINER["image"])[1],
        "binder": (ROOT / "binder" / "runtime.txt")
        .read_text()
        .strip()
        .removeprefix("python-"),
    }
    for name, _, job, step in all_steps():
        version = step.get("with", {}).get("python-version", "")
        if version == "${{ matrix.python }}":
            version = "\n".join(
                combination["python"] for combination in combinations(job)
            )
        named |= {f"{name} {each}": each for each in version.split()}
    assert len(named) > 5
    for name, version in named.items():
        assert (
            setup_env.OLDEST <= tuple(map(int, version.split("."))) <= setup_env.NEWEST
        ), name


# --------------------------------------------------------------------------------------


def lines_of(job, step):
    """The commands of a step, for each combination of its job's matrix."""
    for values in combinations(job):
        text = re.sub(
            r"\$\{\{ matrix\.(\w+) \}\}",
            lambda found, values=values: values[found[1]],
            step.get("run", ""),
        )
        yield from text.splitlines()


def test_what_workflows_run_is_there():
    commands = {line for _, _, job, step in all_steps() for line in lines_of(job, step)}
    commands |= {*(ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()}
    targets = {
        target
        for line in commands
        if line.startswith("make ")
        for target in line.split()[1:]
    }
    assert targets >= {
        "test",
        "test-cuda",
        "test-site",
        "test-next",
        "test-colab",
        "test-exercises",
        "untimed",
    }
    assert [
        target for target in targets if not re.search(rf"^{target}:", MAKEFILE, re.M)
    ] == []
    words = {word for line in commands for word in line.split()}
    scripts = [ROOT / word for word in words if word.startswith((".ci/", "tools/"))]
    scripts += [
        ROOT / f"{word.replace('.', '/')}.py"
        for word in words
        if word.startswith("tests.")
    ]
    assert len(scripts) == 3 and all(path.is_file() for path in scripts)
    assert os.name == "nt" or os.access(ROOT / ".ci" / "run", os.X_OK)
    called = [
        job["uses"]
        for workflow in WORKFLOWS.values()
        for job in workflow["jobs"].values()
        if "uses" in job
    ]
    # "on" is true
    assert (
        called == ["./.github/workflows/test.yml"]
        and "workflow_call" in WORKFLOWS["test.yml"][True]
    )


def test_the_site_is_published_from_main_only_and_after_the_tests():
    *before, upload = WORKFLOWS["test.yml"]["jobs"]["test"]["steps"]
    commands = "\n".join(step.get("run", "") for step in before)
    commands = commands.replace(
        ".ci/run", (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    )
    assert (
        "actions/upload-pages-artifact@" in upload["uses"]
        and upload["with"]["path"] == "dist/site"
    )
    assert 0 < commands.index("\nmake test\n") < commands.index("make test-site")
    publish = WORKFLOWS["site.yml"]["jobs"]["publish"]
    assert (
        upload["if"] == publish["if"] == "github.ref == 'refs/heads/main'"
        and publish["needs"] == "test"
    )
    assert WORKFLOWS["site.yml"][True]["push"] == {"branches": ["main"]}


def test_no_workflow_can_write_but_the_one_that_publishes():
    """So a pull request's code gets nothing that it could do harm with."""
    for workflow in WORKFLOWS.values():
        assert (
            workflow["permissions"] == {"contents": "read"}
            and "pull_request_target" not in workflow[True]
        )
        for name, job in workflow["jobs"].items():
            assert job.get("permissions") == (
                {"pages": "write", "id-token": "write"} if name == "publish" else None
            )
