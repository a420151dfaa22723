"""The files that install the course agree, they install, and what can go wrong gives one clear line."""

import ast
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections import namedtuple
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SETUP_ENV = ROOT / "tools" / "setup_env.py"
COURSE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

spec = importlib.util.spec_from_file_location("setup_env", SETUP_ENV)
setup_env = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup_env)


def one_line(text):
    """The only line of an error message."""
    assert "Traceback" not in text
    (line,) = text.strip().splitlines()
    return line


def run(*command, cwd=None, **env):
    command, env = [str(part) for part in command], {**os.environ, **env}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=1200)


# ---------------------------------------------------------------------------------------- the files agree


def pins(path, python):
    """{package: version} of a file of exact versions, for one version of Python."""
    found = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                (exact,) = requirement.specifier
                assert exact.operator == "==" and requirement.name not in found, line
                found[requirement.name] = exact.version
    return found


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize("file", ["requirements.txt", "requirements-tpu.txt", "tests/colab-requirements.txt"])
def test_pins_are_in_the_ranges(file, python):
    exact = pins(ROOT / file, python)
    assert python in SpecifierSet(COURSE["requires-python"])
    for requirement in map(Requirement, COURSE["dependencies"]):
        assert requirement.name in exact, f"{file} has no version of {requirement.name}"
        assert exact[requirement.name] in requirement.specifier


def test_conda_installs_the_same_versions():
    *packages, pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert pip == {"pip": ["-r requirements.txt", "-e ."]}
    (python,) = [package for package in packages if package.startswith("python=")]
    version = tuple(int(part) for part in python.removeprefix("python=").split("."))
    assert setup_env.OLDEST <= version <= setup_env.NEWEST


def test_the_oldest_python_is_the_same_everywhere():
    assert COURSE["requires-python"] == ">={}.{}".format(*setup_env.OLDEST)


@pytest.mark.parametrize(
    "file", ["requirements-tpu.txt", *(f"tests/{name}-requirements.txt" for name in ("colab", "cuda", "next"))]
)
def test_all_environments_use_the_same_nbval(file):
    (nbval,) = [line for line in (ROOT / file).read_text().splitlines() if line.startswith("nbval")]
    assert nbval in COURSE["optional-dependencies"]["test"]


def test_the_newest_pytorch_meets_the_pins_of_everything_else():
    lines = (ROOT / "tests" / "next-requirements.txt").read_text().splitlines()
    newest = {line for line in lines if not line.startswith(("#", "nbval", "pytest"))}
    pinned = pins(ROOT / "requirements.txt", "3.13")
    assert newest == {"torch"} | {f"{name}=={version}" for name, version in pinned.items() if name != "torch"}


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_tpu_environment_is_the_oldest_that_the_course_supports(python):
    exact = pins(ROOT / "requirements-tpu.txt", python)
    assert exact["torch"] == exact["torch_xla"] == "2.9.0"
    assert exact["libtpu"] == ("0.0.21.1" if python == "3.13" else "0.0.21")  # the wheels that exist
    for name in ("torch", "ipython", "ipywidgets"):
        (least,) = [each for each in map(Requirement, COURSE["dependencies"]) if each.name == name]
        assert exact[name].startswith(str(least.specifier).removeprefix(">="))


# ---------------------------------------------------------------------------------------- they install


def copy_course(folder):
    """What an install needs, in a folder of its own."""
    folder.mkdir(parents=True)
    for name in ["pyproject.toml", "requirements.txt", "environment.yml", "README.md"]:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, folder)
    for name in ["utils", "tools"]:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_pip_part_of_environment_yml_installs(tmp_path):
    """As conda does it: pip gets the lines in a file beside environment.yml, and runs in that folder.

    The new environment also looks into this one, where `make test` has installed the same pins: pip takes what fits,
    and would have to download what does not. Only the course itself is installed again.
    """
    course = copy_course(tmp_path / "course")
    pip = yaml.safe_load((course / "environment.yml").read_text())["dependencies"][-1]["pip"]
    (course / "condaenv.requirements.txt").write_text("\n".join(pip) + "\n")
    run(sys.executable, "-m", "venv", tmp_path / "env").check_returncode()
    python = setup_env.python_of(tmp_path / "env")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    ours, theirs = (run(each, "-c", where).stdout.strip() for each in (sys.executable, python))
    Path(theirs, "installed_before.pth").write_text(ours + "\n")
    result = run(python, "-m", "pip", "install", "-U", "-r", "condaenv.requirements.txt", cwd=course)
    assert result.returncode == 0, result.stdout + result.stderr
    code = "import utils, importlib.metadata as m; print(m.version('torch'), m.version('jupyterlab'), utils.__file__)"
    result = run(python, "-I", "-W", "error", "-c", code)
    assert result.returncode == 0, result.stderr
    torch, lab, file = result.stdout.strip().split(" ", 2)
    exact = pins(course / "requirements.txt", "3.11")
    assert (torch.split("+")[0], lab) == (exact["torch"], exact["jupyterlab"])
    assert Path(file).is_relative_to(course)


@pytest.fixture(scope="module")
def small_course(tmp_path_factory):
    """The course with one small requirement, installed by setup_env in a folder whose name has spaces."""
    course = copy_course(tmp_path_factory.mktemp("small") / "a folder with spaces")
    psutil = pins(ROOT / "requirements.txt", "3.11")["psutil"]
    (course / "requirements.txt").write_text(f"psutil=={psutil}\n")
    result = run(sys.executable, course / "tools" / "setup_env.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Successfully installed" in result.stdout
    return course


def test_a_folder_with_spaces_installs(small_course):
    code = "import importlib.util, psutil; print(importlib.util.find_spec('utils').origin)"
    result = run(setup_env.python_of(small_course / ".venv"), "-I", "-c", code)
    assert result.stdout.strip() == str(small_course / "utils" / "__init__.py")


def test_the_second_time_is_silent_and_installs_nothing(small_course):
    python = setup_env.python_of(small_course / ".venv")
    before = run(python, "-m", "pip", "list", "--format=freeze").stdout
    start = time.perf_counter()
    result = run(sys.executable, small_course / "tools" / "setup_env.py")
    seconds = time.perf_counter() - start
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    start = time.perf_counter()
    assert run(python, "-m", "pip", "list", "--format=freeze").stdout == before
    assert seconds < time.perf_counter() - start, "it must not even have started pip"


def test_every_input_of_an_install_changes_the_stamp(tmp_path, monkeypatch):
    course = copy_course(tmp_path / "course")
    monkeypatch.setattr(setup_env, "ROOT", str(course))
    requirements, stamps = course / "requirements.txt", set()
    stamps.add(setup_env.wanted_stamp(requirements, False, (3, 11)))
    stamps.add(setup_env.wanted_stamp(requirements, True, (3, 11)))
    stamps.add(setup_env.wanted_stamp(requirements, False, (3, 12)))
    for file in [requirements, course / "pyproject.toml"]:
        file.write_text(file.read_text() + "\n")
        stamps.add(setup_env.wanted_stamp(requirements, False, (3, 11)))
    monkeypatch.setattr(setup_env, "ROOT", str(course) + "/")  # moved: the package must be installed from there
    stamps.add(setup_env.wanted_stamp(requirements, False, (3, 11)))
    assert len(stamps) == 6


def test_an_interrupted_install_is_not_complete(small_course, monkeypatch):
    """The stamp goes before pip starts, and comes back after it has finished."""
    stamp = small_course / ".venv" / setup_env.STAMP
    kept = stamp.read_text()
    stamp.write_text("of other requirements")

    def interrupted(*_):
        assert not stamp.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(setup_env, "ROOT", str(small_course))
    monkeypatch.setattr(setup_env, "pip_install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        setup_env.main([])
    assert not stamp.exists()
    stamp.write_text(kept)


def test_a_python_is_found_only_when_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, script in [("python3.98", "echo 3.98"), ("python3.99", "exit 127")]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    assert setup_env.find_python((3, 98)) == "python3.98"
    assert setup_env.find_python((3, 99)) is None


# ---------------------------------------------------------------------------------------- what goes wrong


def old_pythons():
    """Real interpreters on this machine that are too old for the course."""
    for version in [(2, 7), (3, 6), (3, 7), (3, 8), (3, 9)]:
        python = setup_env.find_python(version)
        if python:
            yield pytest.param(python, version, id="{}.{}".format(*version))


@pytest.mark.parametrize(("python", "version"), list(old_pythons()))
def test_a_real_old_python_is_told_so(python, version, tmp_path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "requirements.txt", tmp_path)
    result = run(python, tmp_path / "tools" / "setup_env.py")
    assert result.returncode == 1 and result.stdout == ""
    line = one_line(result.stderr)
    assert line.startswith("Python {}.{} is too old for this course: it needs 3.10 to 3.13. ".format(*version))
    assert "make lab PYTHON=" in line


@pytest.mark.parametrize(
    ("newer", "todo"),
    [
        (None, "Install a newer one (https://www.python.org/downloads/) and run: make test PYTHON=python3.12"),
        ("/opt/python3.12", "Run: make test PYTHON=/opt/python3.12"),
    ],
)
def test_an_old_python_is_told_what_to_do(newer, todo, monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    monkeypatch.setattr(setup_env, "find_python", lambda version: newer if version == (3, 12) else None)
    with pytest.raises(SystemExit) as stop:
        setup_env.main(["--test", "--venv", "no-such-venv"])
    assert stop.value.code == 1
    assert one_line(capsys.readouterr().err) == (
        f"Python 3.9 is too old for this course: it needs 3.10 to 3.13. {todo}"
    )


def test_setup_env_parses_on_old_pythons():
    """No f-string, annotation or other syntax that a Python older than 3.7 does not know."""
    tree = ast.parse(SETUP_ENV.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.Nonlocal), node.lineno
        if isinstance(node, ast.FunctionDef):
            arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            assert node.returns is None and not any(a.annotation for a in arguments), node.lineno
            assert not node.args.kwonlyargs and not node.args.posonlyargs, node.lineno


def test_a_python_that_is_too_new_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    setup_env.check_python("make lab")
    note = "Note: the lessons are not tested with Python 3.14 (tested: 3.10 to 3.13)."
    assert one_line(capsys.readouterr().out) == note


def fails(course, *arguments, **env):
    """The last line that setup_env writes when it fails in this folder, and what it printed before."""
    result = run(sys.executable, course / "tools" / "setup_env.py", *arguments, **env)
    assert result.returncode == 1, result.stdout + result.stderr
    return one_line(result.stderr), result.stdout


def test_no_venv_module(small_course, tmp_path):
    """As on Debian without python3-venv: `venv` is there, `ensurepip` is not."""
    (tmp_path / "ensurepip.py").write_text("raise ImportError('no ensurepip')\n")
    line, _ = fails(small_course, "--venv", ".venv-new", PYTHONPATH=str(tmp_path))
    assert "sudo apt install python{}.{}-venv".format(*sys.version_info) in line
    assert not (small_course / ".venv-new").exists()


def test_a_folder_in_the_way_is_kept(small_course):
    line, _ = fails(small_course, "--venv", "utils")
    assert line == "utils is no virtual environment: move it away and run again: make test"
    assert (small_course / "utils" / "__init__.py").exists()


def test_requirements_are_missing(small_course):
    line, _ = fails(small_course, "--requirements", "nothing.txt")
    assert line == "nothing.txt is missing: get the whole course again, with git clone."


def test_a_broken_environment_is_made_again(small_course, tmp_path, monkeypatch):
    """The Python that the environment was made with is gone, for example after an upgrade of the system."""
    broken = tmp_path / ".venv"
    run(sys.executable, "-m", "venv", "--without-pip", broken).check_returncode()
    python = Path(setup_env.python_of(broken))
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    monkeypatch.setattr(setup_env, "ROOT", str(tmp_path))
    setup_env.create(str(broken), sys.executable, "make lab")
    assert setup_env.version_of(str(python)) == sys.version_info[:2]


def test_disk_nearly_full(monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(9e9, 8e9, 1.2e9))
    with pytest.raises(SystemExit):
        setup_env.main(["--venv", "no-such-venv"])
    line = one_line(capsys.readouterr().err)
    assert line.startswith("The disk is nearly full: 1.2 GB free, the environment needs at least 3 GB. Free some")


def test_no_network(small_course):
    (small_course / "more.txt").write_text("no-such-package==1.0\n")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
        index = f"http://127.0.0.1:{unused.getsockname()[1]}/simple"
        env = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
        line, _ = fails(small_course, "--requirements", "more.txt", PIP_RETRIES="1", **env)
    assert line.startswith("The package index cannot be reached. Check the network")
    assert line.endswith("run again: make lab")


def test_no_wheel_for_this_python(small_course, tmp_path):
    """The index has the package as source only, which would need a compiler."""
    with tarfile.open(tmp_path / "needs_compiler-1.0.tar.gz", "w:gz") as archive:
        archive.add(small_course / "pyproject.toml", "needs_compiler-1.0/pyproject.toml")
    (small_course / "source.txt").write_text("needs-compiler==1.0\n")
    env = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    line, _ = fails(small_course, "--requirements", "source.txt", **env)
    assert line.startswith("There is no ready-made package of needs-compiler==1.0 for this Python on ")
    assert "make lab PYTHON=python3.12" in line


@pytest.mark.parametrize(
    ("pip_says", "message"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "The disk is full.",
        ),
        ("ERROR: [WinError 112] There is not enough space on the disk", "The disk is full."),
        ("WARNING: Retrying: NameResolutionError\nERROR: No matching distribution found for a", "The package index"),
        ("ERROR: ResolutionImpossible: for help visit", "The pinned versions do not fit together."),
        ("ERROR: OSError: [Errno 13] Permission denied: 'x'", "A file cannot be written."),
        ("HINT: your system does not have Windows Long Path support enabled.", "Windows does not allow paths"),
        ("ERROR: something else", "pip failed (its last lines are above)."),
    ],
)
def test_pip_fails(pip_says, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "pip.py").write_text(f"print({pip_says!r})\nraise SystemExit(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(setup_env, "python_of", lambda _: sys.executable)
    with pytest.raises(SystemExit) as stop:
        setup_env.pip_install("no-such-venv", ["a"], "make lab")
    assert stop.value.code == 1
    printed = capsys.readouterr()
    line = one_line(printed.err)
    assert line.startswith(message) and line.endswith("run again: make lab")
    assert pip_says.splitlines()[-1] in printed.out and "WARNING" not in printed.out


# ---------------------------------------------------------------------------------------- JupyterLab


@pytest.mark.parametrize("form", [["--port", "{}"], ["--port={}"], ["--no-browser", "--port", "{}"]])
def test_the_port_is_taken(form):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = run(sys.executable, ROOT / "tools" / "lab.py", *[part.format(port) for part in form])
    assert result.returncode == 1 and result.stdout == ""
    line = one_line(result.stderr)
    assert line.startswith(f'Port {port} is taken by another program. Run: make lab LAB_ARGS="--port ')


@pytest.mark.parametrize("port", ["x", "0", "70000", ""])
def test_a_port_that_is_none(port):
    result = run(sys.executable, ROOT / "tools" / "lab.py", f"--port={port}")
    assert result.returncode == 1
    assert one_line(result.stderr).startswith(f"--port {port}: a port is a number from 1 to 65535. Run: make lab")


def start_lab(home):
    """Start tools/lab.py, wait until it serves, stop it; return the seconds it took and what it printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(ROOT / "tools" / "lab.py"), "--no-browser", "--port", str(port)]
    start = time.perf_counter()
    log = home / "lab.log"
    with log.open("w") as file:
        lab = subprocess.Popen(command, env={**os.environ, "HOME": str(home)}, stdout=file, stderr=file)
    try:
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5) as reply:
                    assert reply.status == 200
                break
            except OSError:
                assert lab.poll() is None and time.perf_counter() - start < 60, log.read_text()
                time.sleep(0.05)
        return time.perf_counter() - start, log.read_text()
    finally:
        lab.terminate()
        lab.wait(timeout=30)


def test_jupyterlab_serves_the_first_lesson(tmp_path):
    start_lab(tmp_path)  # the first start may have to compile and to fill caches
    seconds, printed = start_lab(tmp_path)
    print(f"JupyterLab answers after {seconds:.1f} s")
    assert "/lab/tree/notebooks/00_start_here.ipynb?token=" in printed
    assert "http://127.0.0.1:" in printed and "0.0.0.0" not in printed


@pytest.mark.skipif(os.name == "nt", reason="Windows does not find the home folder through HOME")
def test_a_home_folder_that_cannot_be_written():
    code = "import lab, os; lab.provide_home(); [print(os.environ[v]) for v in ('JUPYTER_DATA_DIR', 'IPYTHONDIR')]"
    unset = {"JUPYTER_DATA_DIR": "", "JUPYTER_CONFIG_DIR": "", "XDG_DATA_HOME": ""}
    result = run(sys.executable, "-c", code, cwd=ROOT / "tools", HOME="/dev/null/no-home", **unset)
    said, *folders = result.stdout.splitlines()
    assert said == f"The home folder cannot be written: settings go to {Path(sys.prefix) / 'home'}"
    assert len(folders) == 2
    for folder in map(Path, folders):
        assert folder.is_dir() and folder.parent == Path(sys.prefix) / "home"
