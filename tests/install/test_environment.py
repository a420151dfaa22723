"""The files that install the course agree, they install, and what can go wrong gives
one clear line.
"""

import ast
import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.conftest import ROOT
from tools import setup_env

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETUP_ENV = ROOT / "tools" / "setup_env.py"
# What runs before anything is installed.
SETUP = ["tools/setup_env.py", "tools/torch_build.py", "utils/supported.py"]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COURSE = PYPROJECT["project"]
RANGES = COURSE["dependencies"] + COURSE["optional-dependencies"]["course"]


def run(*command, cwd=None, **env):
    command, env = [str(part) for part in command], {**os.environ, **env}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=1200
    )


# --------------------------------------------------------------------------------------
# Versions


def lines(path):
    """Lines of a file of requirements, without comments."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def pins(path, python):
    """{package: version} of a file of exact versions, for one version of Python."""
    found = {}
    for requirement in map(Requirement, lines(path)):
        marker = requirement.marker
        if marker is None or marker.evaluate({"python_version": python}):
            (exact,) = requirement.specifier
            assert exact.operator == "==" and requirement.name not in found
            found[requirement.name] = exact.version
    return found


TORCHTPU = "requirements-torchtpu.txt"  # torch_tpu has no wheel for Python 3.10
EXACT = ["requirements.txt", "requirements-tpu.txt", "tests/colab-requirements.txt"]
OLDEST, NEWEST = setup_env.OLDEST, setup_env.NEWEST
PYTHONS = [f"3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]


@pytest.mark.parametrize(
    ("file", "python"),
    [
        *((file, python) for file in EXACT for python in PYTHONS),
        *((TORCHTPU, python) for python in PYTHONS[1:]),
    ],
)
def test_pins_are_in_the_ranges(file, python):
    exact = pins(file, python)
    assert python in SpecifierSet(COURSE["requires-python"])
    for requirement in map(Requirement, RANGES):
        marker = requirement.marker
        if marker is None or marker.evaluate({"python_version": python}):
            name = requirement.name
            assert name in exact, f"{file} has no version of {name}"
            assert exact[name] in requirement.specifier


def test_the_tpu_environment_has_the_oldest_that_the_course_supports():
    exact = pins("requirements-tpu.txt", "3.13")
    assert exact["torch_xla"] == exact["torch"]
    for requirement in map(Requirement, RANGES):
        if requirement.name in ("torch", "ipython", "ipywidgets"):
            oldest = str(requirement.specifier).removeprefix(">=")
            assert exact[requirement.name].startswith(oldest)


def test_the_torchtpu_environment_has_the_pytorch_of_the_course():
    exact = pins(TORCHTPU, "3.13")
    assert exact["torch"] == pins("requirements.txt", "3.13")["torch"]
    assert {"torch-tpu", "libtpu"} <= exact.keys()


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS[1:])
def test_what_torchtpu_needs_is_to_be_had_and_fits_together(python):
    """The index is asked, and nothing is installed: a TPU VM need not be here."""
    if importlib.util.find_spec("uv") is None:
        pytest.skip("uv is not installed here")
    command, env = setup_env.uv_command(sys.executable)
    here = command.index("install")
    options = [word for word in command[here + 3 :] if word != "--compile-bytecode"]
    command[here:] = ["compile", "--no-python-downloads", "--only-binary=:all:"]
    command += [f"--python={sys.executable}", f"--python-version={python}"]
    # that of torch_tpu's wheels
    command += ["--python-platform=x86_64-manylinux_2_31", *options, TORCHTPU]
    done = run(*command, cwd=ROOT, **env)
    if re.search("Request failed|timed out", done.stderr):
        pytest.skip("the package index does not answer")
    assert done.returncode == 0, done.stderr
    exact = pins(TORCHTPU, python)
    found = dict(re.findall(r"^([\w-]+)==([\w.]+)", done.stdout, re.M))
    assert {name: found[name] for name in exact} == exact


def test_the_container_has_all_packages():
    copied = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    seen = lines(".dockerignore")
    for package in ("utils", "simulate", "course", "packages"):
        assert f"COPY --chown=learner {package} {package}\n" in copied
        assert f"!{package}" in seen


@pytest.mark.parametrize(
    "file",
    ["environment.yml", "Dockerfile", ".devcontainer/devcontainer.json"],
)
def test_containers_have_a_python_that_the_course_supports(file):
    text = (ROOT / file).read_text(encoding="utf-8")
    # python=3.11, python:3.12-slim, python:3-3.12
    (version,) = set(re.findall(r"python[=:](?:3-)?(3\.\d+)", text))
    version = tuple(map(int, version.split(".")))
    assert setup_env.OLDEST <= version <= setup_env.NEWEST


def test_each_extra_holds_those_before_it():
    extras = COURSE["optional-dependencies"]
    names = setup_env.EXTRAS
    assert set(names) == {*extras}
    for smaller, larger in zip(names, names[1:], strict=False):
        assert f"{COURSE['name']}[{smaller}]" in extras[larger]


# --------------------------------------------------------------------------------------
# An installation


SMALL = """\
[project]
name = "small-course"
version = "1"
dependencies = ["psutil"]
optional-dependencies.course = []
optional-dependencies.check = ["tqdm"]
optional-dependencies.test = ["tqdm"]
[tool.setuptools]
packages = ["utils"]
"""


def set_up(course, *arguments, **env):
    command = [sys.executable, course / "tools" / "setup_env.py", "--build=plain"]
    return run(*command, *arguments, **env)


@pytest.fixture(scope="module")
def small_course(tmp_path_factory):
    """A course with one small requirement, installed by setup_env, and then moved to a
    folder whose name has spaces.

    Its environment was made with a Python that is gone, as after an upgrade of the
    system.
    """
    course = tmp_path_factory.mktemp("small") / "course"
    python = Path(setup_env.python_of(course / ".venv"))
    for folder in ["tools", "utils", python.parent]:
        (course / folder).mkdir(parents=True)
    for name in SETUP:
        shutil.copy(ROOT / name, course / name)
    (course / "utils" / "__init__.py").touch()
    (course / "pyproject.toml").write_text(SMALL)
    version = pins("requirements.txt", "3.11")["psutil"]
    (course / "requirements.txt").write_text(f"psutil=={version}\n")
    for name in ["pyvenv.cfg", setup_env.STAMP]:
        (course / ".venv" / name).touch()
    python.symlink_to(course / "gone")
    result = set_up(course)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Creating .venv with Python" in result.stdout
    # by uv, of whose lines only those before what can take long are shown
    last = r"\nPrepared \d+ packages? in .*\nInstalled in \d+ s\n$"
    assert re.search(last, result.stdout)
    assert len(result.stdout.splitlines()) < 8
    return course.rename(course.with_name("a folder with spaces"))


def test_an_interrupted_install_is_repaired_and_then_complete(
    small_course, interruptible
):
    """It starts because the folder has been moved: utils has to be installed from its
    new place.
    """
    with subprocess.Popen(
        [sys.executable, small_course / "tools" / "setup_env.py", "--build=plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert any("Installing into" in line for line in process.stdout)
        time.sleep(1)  # pip is at work
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert said == "Stopped. Run the same command again to go on.\n"
    assert process.returncode == 1
    assert not (small_course / ".venv" / setup_env.STAMP).exists()

    repaired = set_up(small_course, "--extra", "check")
    assert repaired.returncode == 0 and "Creating" not in repaired.stdout
    python = setup_env.python_of(small_course / ".venv")
    code = "import psutil, tqdm, utils; print(utils.__file__)"
    found = run(python, "-I", "-c", code).stdout.strip()
    assert found == str(small_course / "utils" / "__init__.py")


def test_what_is_installed_is_not_installed_again(small_course):
    assert set_up(small_course, "--extra", "check").returncode == 0
    for extra in ("check", "lessons", "course"):
        result = set_up(small_course, "--extra", extra)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert "Installed" in set_up(small_course, "--extra", "test").stdout


def test_a_change_of_any_file_starts_uv_and_pip(small_course):
    (small_course / "more.txt").write_text("-r requirements.txt\n")
    assert set_up(small_course, "--requirements", "more.txt").returncode == 0
    stamp = small_course / ".venv" / setup_env.STAMP
    complete = stamp.read_bytes()
    for file in ["pyproject.toml", "requirements.txt", "more.txt"]:
        before = (small_course / file).read_text()
        (small_course / file).write_text(before + "= nonsense\n")
        stamp.write_bytes(complete)
        result = set_up(small_course, "--requirements", "more.txt")
        assert "pip failed (see above)" in result.stderr
        (small_course / file).write_text(before)


PRINTED = """\
Downloading jupyterlab (16.5MiB)
 Downloaded jupyterlab
Downloading jedi (4.7MiB)
Prepared 122 packages in 20.69s
Installed 122 packages in 3.33s
 + tqdm==4.67.1
Collecting torch==2.13.0 (from -r r.txt (line 2))
  Downloading torch-2.13.0-x.whl.metadata (29 kB)
  Downloading torch-2.13.0-cp311-x.whl (175.0 MB)
  Downloading nvidia_cublas-13.1-x.whl (1.2 GB)
  Downloading tqdm-4.67.1-py3-none-any.whl (1.5 MB)
Requirement already satisfied: tqdm
WARNING: Retrying (Retry(total=4
Installing collected packages: torch
Successfully installed torch-2.13.0
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_what_pip_prints_is_shown_in_one_line_or_few(terminal, monkeypatch, capsys):
    printed, pip = PRINTED.splitlines(), SimpleNamespace(stdout=io.StringIO(PRINTED))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert setup_env.watch(pip) == printed
    shown = capsys.readouterr().out
    if terminal:
        assert "\n" not in shown
        assert [line.strip() for line in shown.split("\r") if line.strip()] == [
            line.strip() for line in printed
        ]
        assert shown.endswith(" \r")  # nothing of pip is left
    else:
        assert shown.splitlines() == [printed[n].strip() for n in (0, 3, 8, 9, 12, 13)]


# --------------------------------------------------------------------------------------
# What can go wrong


def last_line(result):
    """What setup_env says when it stops."""
    said = result.stdout + result.stderr
    assert result.returncode == 1 and "Traceback" not in said, said
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize("version", ["3.6", "3.8"])
def test_a_real_old_python_is_told_so(version):
    python = setup_env.find_python(version)
    if not python:
        pytest.skip("not on this machine")
    line = last_line(run(python, SETUP_ENV, "--venv", "no-such-venv"))
    says = f"Python {version} is too old for this course: it needs 3.10 to 3.13. "
    assert line.startswith(says) and "make lab PYTHON=" in line


@pytest.mark.parametrize("name", SETUP)
def test_setup_env_parses_on_old_pythons(name):
    """Not every machine has one to try."""
    text = (ROOT / name).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))


INSTALL = "Install a newer one (https://www.python.org/downloads/) and run"


@pytest.mark.parametrize(
    ("newer", "todo"),
    [
        (None, f"{INSTALL}: make lab PYTHON=python3.12"),
        ("/opt/python3.13", "Run: make lab PYTHON=/opt/python3.13"),
    ],
)
def test_an_old_python_is_told_what_to_do(newer, todo, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    found = {"3.13": newer}
    monkeypatch.setattr(setup_env, "find_python", found.get)
    says = f"Python 3.9 is too old for this course: it needs 3.10 to 3.13. {todo}"
    with pytest.raises(SystemExit, match=re.escape(says)):
        setup_env.check_python()


def test_a_python_that_is_too_new_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    setup_env.check_python()
    note = "Note: the lessons are not tested with Python 3.14 (tested: 3.10 to 3.13).\n"
    assert capsys.readouterr().out == note


def test_a_python_is_found_only_when_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for name, script in [("python3.98", "echo 3.98"), ("python3.99", "exit 127")]:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    assert setup_env.find_python("3.98") == "python3.98"
    assert setup_env.find_python("3.99") is None


def test_no_venv_module(small_course, tmp_path):
    """As on Debian without python3-venv. What an older Python left unfinished would
    have been made again.
    """
    (tmp_path / "venv.py").write_text("raise SystemExit('No module named venv')\n")
    python = Path(setup_env.python_of(small_course / ".venv-old"))
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.9\n")
    python.chmod(0o755)
    (small_course / ".venv-old" / "pyvenv.cfg").touch()
    result = set_up(small_course, "--venv", ".venv-old", PYTHONPATH=str(tmp_path))
    version = "{}.{}".format(*sys.version_info)
    assert f"sudo apt install python{version}-venv." in last_line(result)


def test_a_folder_in_the_way_is_kept(small_course):
    line = last_line(set_up(small_course, "--venv", "utils"))
    assert line.startswith("utils is no virtual environment: move it away and run")
    assert (small_course / "utils" / "__init__.py").exists()


def test_disk_nearly_full(monkeypatch):
    monkeypatch.setattr(setup_env, "NEEDED_BYTES", 1e18)
    message = r"^The disk is nearly full: \d+\.\d GB free, the environment needs at"
    with pytest.raises(SystemExit, match=message):
        setup_env.check_disk()


PIP_FAILS = [  # package, settings of pip, what it says, what setup_env says
    (
        "psutil",
        {"PIP_REPORT": "/dev/full"},
        "No space left on device",
        "The disk is full. Free some space",
    ),
    (
        "no-such-package",
        {"PIP_INDEX_URL": "http://127.0.0.1:9/"},
        "no-such-package",
        "The package index cannot be",
    ),
    (
        "needs-compiler",
        {"PIP_NO_INDEX": "1"},
        "for needs-compiler",
        "There is no ready-made package of that for",
    ),
    (
        "psutil = 1",
        {},
        "Invalid requirement: 'psutil = 1'",
        "pip failed (see above). Correct what it names",
    ),
]


@pytest.mark.parametrize(("package", "env", "words", "message"), PIP_FAILS)
def test_pip_fails(
    package, env, words, message, small_course, tmp_path, monkeypatch, capfd
):
    """Its own failures, after those of uv: a device without space, a port where nobody
    listens, an index that has a source only.
    """
    if "/dev/full" in env.values() and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this machine")
    source = small_course / "pyproject.toml"
    with tarfile.open(tmp_path / "needs_compiler-1.0.tar.gz", "w:gz") as archive:
        archive.add(source, "needs_compiler-1.0/pyproject.toml")
    usual = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_RETRIES": "1",
    }
    for name, value in {**usual, **env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(setup_env, "ROOT", str(small_course))
    says = re.escape(message) + r".*\. Then run the same command again\.$"
    with pytest.raises(SystemExit, match=says):
        setup_env.install(setup_env.python_of(small_course / ".venv"), [package])
    said = capfd.readouterr().err
    assert words in said and "WARNING" not in said and len(said.splitlines()) <= 20


# --------------------------------------------------------------------------------------
# uv, with pip's settings, and pip


def wheel(folder, name, version):
    """A wheel with nothing in it."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        for file, text in texts.items():
            archive.writestr(f"{info}/{file}", text)
        rows = "".join(f"{info}/{file},,\n" for file in (*texts, "RECORD"))
        archive.writestr(f"{info}/RECORD", rows)
    return path


def installer(python, name):
    """(version, installer) of a package."""
    code = (
        "from importlib.metadata import distribution as d; import sys;"
        " x = d(sys.argv[1]); print(x.version, x.read_text('INSTALLER').strip())"
    )
    return tuple(run(python, "-c", code, name).stdout.split())


@pytest.fixture
def alone(monkeypatch):
    """pip and uv without an index."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_uv_finds_what_pip_finds_and_pip_helps_where_uv_is_not_to_be_had(
    small_course, tmp_path, monkeypatch, alone, capfd
):
    """Local wheels, of which pip has been told; a build of PyTorch that is nowhere."""
    wheel(tmp_path, "nothing", "1.0+cpu")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    python = setup_env.python_of(small_course / ".venv")
    setup_env.install(python, ["nothing==1.0"])
    assert installer(python, "nothing") == ("1.0+cpu", "uv")
    wheel(tmp_path, "nothing", "2.0")
    monkeypatch.setattr(setup_env, "UV", "no-such-uv")
    setup_env.install(python, ["nothing==2.0"], ["nothing==2.0+cu126"])
    assert installer(python, "nothing") == ("2.0", "pip")
    assert capfd.readouterr().err == ""  # nothing alarms


def test_another_build_of_the_same_version_takes_its_place(
    small_course, tmp_path, monkeypatch
):
    """What is named by pip's settings is taken where the index of builds has none."""
    links = f"{tmp_path} {os.environ.get('PIP_FIND_LINKS', '')}"
    (small_course / "build.txt").write_text("torch==0.0.1\n")
    python = setup_env.python_of(small_course / ".venv")
    for build in ("cpu", "cu126"):
        path = wheel(tmp_path, "torch", f"0.0.1+{build}")
        options = ["--requirements=build.txt", f"--build={build}"]
        result = set_up(small_course, *options, PIP_FIND_LINKS=links)
        assert f"PyTorch for this machine: {build} (asked for)" in result.stdout
        assert installer(python, "torch") == (f"0.0.1+{build}", "uv")
        path.unlink()


def test_settings_of_pip_are_handed_to_uv(monkeypatch):
    """As `pip config list` prints them: a variable counts more than a file."""
    said = """\
:env:.find-links='/more wheels'
:env:.no-cache-dir='1'
global.cert='/a.pem'
global.extra-index-url='https://a.org/simple https://b.org/simple'
global.find-links='/wheels'
global.no-index='false'
global.proxy='http://proxy:3128'
install.constraint='/c.txt'
"""
    monkeypatch.setattr(setup_env, "run", lambda command: (True, said.splitlines()))
    command, env = setup_env.uv_command("python")
    assert command[:4] == ["python", "-m", "uv", "pip"]
    found = [word for word in command if re.match("--(extra|find|constr|no-)", word)]
    assert found == [
        "--extra-index-url=https://a.org/simple",
        "--extra-index-url=https://b.org/simple",
        "--find-links=/more",
        "--find-links=wheels",
        "--constraint=/c.txt",
        "--no-cache",
    ]
    proxy = "http://proxy:3128"
    pem = "/a.pem"
    assert env == {"SSL_CERT_FILE": pem, "HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}


# --------------------------------------------------------------------------------------
# What is installed


@pytest.mark.slow
def test_importing_the_kit_starts_nothing(tmp_path):
    """From any folder, without a warning: no thread, no device, no slow library that a
    script may not need.
    """
    code = """if True:
        import psutil, sys, torch
        threads = psutil.Process().num_threads()
        import device_lab
        functions = [getattr(device_lab, name) for name in device_lab.__all__]
        print(psutil.Process().num_threads() - threads, torch.cuda.is_initialized())
        slow = {"matplotlib", "IPython", "ipywidgets", "sklearn", "accelerate"}
        print((slow | {"torch_xla"}) & set(sys.modules))
    """
    result = run(sys.executable, "-I", "-W", "error", "-c", code, cwd=tmp_path)
    assert result.stdout == "0 False\nset()\n", result.stderr
