"""The files that install the course agree, they install, and what can go wrong gives
one clear line.
"""

import ast
import contextlib
import graphlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SETUP_ENV = ROOT / "tools" / "setup_env.py"
COURSE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

spec = importlib.util.spec_from_file_location("setup_env", SETUP_ENV)
setup_env = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup_env)


def run(*command, cwd=None, **env):
    command, env = [str(part) for part in command], {**os.environ, **env}
    return subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=1200
    )


@pytest.fixture
def interruptible():
    """What a test starts hears Ctrl-C, also where the tests themselves run in the
    background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# --------------------------------------------------------------------------------------


def pins(path, python):
    """{package: version} of a file of exact versions, for one version of Python."""
    found = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(
                {"python_version": python}
            ):
                (exact,) = requirement.specifier
                assert exact.operator == "==" and requirement.name not in found, line
                found[requirement.name] = exact.version
    return found


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
@pytest.mark.parametrize(
    "file", ["requirements.txt", "requirements-tpu.txt", "tests/colab-requirements.txt"]
)
def test_pins_are_in_the_ranges(file, python):
    exact = pins(ROOT / file, python)
    assert python in SpecifierSet(COURSE["requires-python"])
    for requirement in map(Requirement, COURSE["dependencies"]):
        assert requirement.name in exact, f"{file} has no version of {requirement.name}"
        assert exact[requirement.name] in requirement.specifier


def test_the_tpu_environment_has_the_oldest_that_the_course_supports():
    exact = pins(ROOT / "requirements-tpu.txt", "3.13")
    oldest = {
        each.name: str(each.specifier).removeprefix(">=")
        for each in map(Requirement, COURSE["dependencies"])
    }
    for name, least in [
        ("torch", "torch"),
        ("torch_xla", "torch"),
        ("ipython",) * 2,
        ("ipywidgets",) * 2,
    ]:
        assert exact[name].startswith(oldest[least])


def test_the_same_python_and_for_conda_the_same_versions():
    *packages, pip = yaml.safe_load((ROOT / "environment.yml").read_text())[
        "dependencies"
    ]
    assert pip == {"pip": ["-r requirements.txt", "-e ."]}  # what setup_env gives pip
    (python,) = [package for package in packages if package.startswith("python=")]
    version = tuple(int(part) for part in python.removeprefix("python=").split("."))
    assert setup_env.OLDEST <= version <= setup_env.NEWEST
    assert COURSE["requires-python"] == ">={}.{}".format(*setup_env.OLDEST)


# --------------------------------------------------------------------------------------


SMALL = """\
[project]
name = "small-course"
version = "1"
dependencies = ["psutil"]
optional-dependencies.test = ["tqdm"]
[tool.setuptools]
packages = ["utils"]
"""


def set_up(course, *arguments, **env):
    return run(sys.executable, course / "tools" / "setup_env.py", *arguments, **env)


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
    shutil.copy(SETUP_ENV, course / "tools")
    (course / "utils" / "__init__.py").touch()
    (course / "pyproject.toml").write_text(SMALL)
    (course / "requirements.txt").write_text(
        f"psutil=={pins(ROOT / 'requirements.txt', '3.11')['psutil']}\n"
    )
    for name in ["pyvenv.cfg", setup_env.STAMP]:
        (course / ".venv" / name).touch()
    python.symlink_to(course / "gone")
    result = set_up(course)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        "Creating .venv with Python" in result.stdout
        and "Successfully installed" in result.stdout
    )
    return course.rename(course.with_name("a folder with spaces"))


def test_an_interrupted_install_is_repaired_and_then_complete(
    small_course, interruptible
):
    """It starts because the folder has been moved: utils has to be installed from its
    new place.
    """
    command = [sys.executable, small_course / "tools" / "setup_env.py"]
    with subprocess.Popen(
        command, stdout=-1, stderr=-1, text=True, start_new_session=True
    ) as process:
        assert any("Obtaining" in line for line in process.stdout)  # pip is at work
        os.killpg(process.pid, signal.SIGINT)
        assert (
            process.stderr.read() == "Stopped. Run the same command again to go on.\n"
        )
    assert (
        process.returncode == 1
        and not (small_course / ".venv" / setup_env.STAMP).exists()
    )

    repaired = set_up(small_course, "--extra", "test")
    assert repaired.returncode == 0 and "Creating" not in repaired.stdout
    code = "import psutil, tqdm, utils; print(utils.__file__)"
    found = run(
        setup_env.python_of(small_course / ".venv"), "-I", "-c", code
    ).stdout.strip()
    assert found == str(small_course / "utils" / "__init__.py")
    for arguments in [["--extra", "test"], []]:
        result = set_up(small_course, *arguments)
        # pip would say something
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_change_of_any_file_or_extra_starts_pip(small_course):
    (small_course / "more.txt").write_text("-r requirements.txt\n")
    assert set_up(small_course, "--requirements", "more.txt").returncode == 0
    stamp = small_course / ".venv" / setup_env.STAMP
    complete = stamp.read_bytes()
    for file in ["pyproject.toml", "requirements.txt", "more.txt"]:
        before = (small_course / file).read_text()
        (small_course / file).write_text(before + "= nonsense\n")
        stamp.write_bytes(complete)
        assert (
            "pip failed (see above)"
            in set_up(small_course, "--requirements", "more.txt").stderr
        )
        (small_course / file).write_text(before)
    stamp.write_bytes(complete)
    result = set_up(small_course, "--requirements", "more.txt", "--extra", "= nonsense")
    assert "pip failed (see above)" in result.stderr


# --------------------------------------------------------------------------------------


def last_line(result):
    """What setup_env says when it stops."""
    assert result.returncode == 1 and "Traceback" not in result.stderr, (
        result.stdout + result.stderr
    )
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_a_real_old_python_is_told_so(version):
    python = setup_env.find_python(version)
    if not python:
        pytest.skip("not on this machine")
    line = last_line(run(python, SETUP_ENV, "--venv", "no-such-venv"))
    assert line.startswith(
        f"Python {version} is too old for this course: it needs 3.10 to 3.13. "
    )
    assert "make lab PYTHON=" in line


@pytest.mark.parametrize(
    ("newer", "todo"),
    [
        (
            None,
            (
                "Install a newer one (https://www.python.org/downloads/) and run: make"
                " lab PYTHON=python3.12"
            ),
        ),
        ("/opt/python3.13", "Run: make lab PYTHON=/opt/python3.13"),
    ],
)
def test_an_old_python_is_told_what_to_do(newer, todo, monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    monkeypatch.setattr(
        setup_env, "find_python", lambda version: newer if version == "3.13" else None
    )
    with pytest.raises(
        SystemExit,
        match=re.escape(
            f"Python 3.9 is too old for this course: it needs 3.10 to 3.13. {todo}"
        ),
    ):
        setup_env.check_python()


def test_setup_env_parses_on_old_pythons():
    """No f-string or annotation, which a Python older than 3.6 does not know; not every
    machine has one to try.
    """
    for node in ast.walk(ast.parse(SETUP_ENV.read_text(encoding="utf-8"))):
        assert not isinstance(
            node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr | ast.Nonlocal
        ), node.lineno
        assert not getattr(node, "returns", None) and not getattr(
            node, "annotation", None
        ), node.lineno


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
    line = last_line(
        set_up(small_course, "--venv", ".venv-old", PYTHONPATH=str(tmp_path))
    )
    assert "sudo apt install python{}.{}-venv.".format(*sys.version_info) in line


def test_a_folder_in_the_way_is_kept(small_course):
    line = last_line(set_up(small_course, "--venv", "utils"))
    assert (
        line == "utils is no virtual environment: move it away and run the same command"
        " again."
    )
    assert (small_course / "utils" / "__init__.py").exists()


def test_disk_nearly_full(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["setup_env.py", "--venv", "no-such-venv"])
    monkeypatch.setattr(setup_env, "NEEDED_BYTES", 1e18)
    monkeypatch.delattr(setup_env, "create")  # it must not come so far
    with pytest.raises(
        SystemExit,
        match=(
            r"^The disk is nearly full: \d+\.\d GB free, the environment needs at least"
        ),
    ):
        setup_env.main()


@pytest.mark.parametrize(
    ("package", "env", "words", "message"),
    [
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
    ],
)
def test_pip_fails(
    package, env, words, message, small_course, tmp_path, monkeypatch, capfd
):
    """Its own failures: a device without space, a port where nobody listens, an index
    that has a source only.
    """
    if "/dev/full" in env.values() and not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full on this machine")
    with tarfile.open(tmp_path / "needs_compiler-1.0.tar.gz", "w:gz") as archive:
        archive.add(
            small_course / "pyproject.toml", "needs_compiler-1.0/pyproject.toml"
        )
    usual = {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": str(tmp_path),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_RETRIES": "1",
    }
    for name, value in {**usual, **env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(setup_env, "ROOT", str(small_course))
    with pytest.raises(
        SystemExit,
        match=re.escape(message) + r".*\. Then run the same command again\.$",
    ):
        setup_env.pip_install(".venv", [package])
    said = capfd.readouterr().err
    assert words in said and "WARNING" not in said


# --------------------------------------------------------------------------------------


def test_jupyterlab_serves_a_copy_of_the_first_lesson(tmp_path, interruptible):
    """Also where the home folder cannot be written and the port is taken; Ctrl-C ends
    it.
    """
    course = tmp_path / "a course"
    for file in ["tools/lab.py", "notebooks/00_start_here.ipynb"]:
        (course / file).parent.mkdir(parents=True)
        shutil.copy(ROOT / file, course / file)
    env, log = {**os.environ, "HOME": "/dev/null/no-home"}, tmp_path / "log"
    for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        env.pop(variable, None)
    with socket.create_server(("127.0.0.1", 0)) as other, log.open("w") as file:
        taken = other.getsockname()[1]
        command = [
            sys.executable,
            course / "tools" / "lab.py",
            "--no-browser",
            f"--port={taken}",
        ]
        lab = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=file, stderr=file)
        try:
            start, reply = time.perf_counter(), None
            page = r"http://127\.0\.0\.1:(\d+)/lab/tree/work/00_start_here\.ipynb\?token=\w+"
            while not reply:
                assert lab.poll() is None and time.perf_counter() - start < 60, (
                    log.read_text()
                )
                time.sleep(0.05)
                served = re.search(page, log.read_text())
                # the address is printed before anybody listens there
                with contextlib.suppress(OSError):
                    reply = (
                        served and urllib.request.urlopen(served[0], timeout=30).read()
                    )
            assert int(served[1]) != taken and b"JupyterLab" in reply
        finally:
            lab.send_signal(signal.SIGINT)
            assert lab.wait(timeout=30) == 0
    printed = log.read_text()
    assert "Traceback" not in printed and "0.0.0.0" not in printed
    assert (
        f"The port {taken} is already in use" in printed
        and f"from local directory: {course}\n" in printed
    )
    assert (course / "work" / "00_start_here.ipynb").exists()
    home = (
        "The home folder cannot be written: settings go to"
        f" {Path(sys.prefix) / 'home'}\n"
    )
    # Windows does not find the home folder through HOME
    assert os.name == "nt" or home in printed


def test_a_home_folder_that_can_be_written_is_kept(tmp_path):
    code = "import lab, os; lab.provide_home(); print(os.environ['HOME'])"
    assert (
        run(sys.executable, "-c", code, cwd=ROOT / "tools", HOME=str(tmp_path)).stdout
        == f"{tmp_path}\n"
    )


@pytest.mark.skipif(
    os.name == "nt", reason="Windows does not find the home folder through HOME"
)
def test_where_neither_home_nor_environment_can_be_written_settings_are_lost_in_the_end(
    tmp_path,
):
    (tmp_path / "home").touch()
    code = (
        f"import lab, os, sys; sys.prefix = {str(tmp_path)!r}; lab.provide_home();"
        " print(os.environ['HOME'])"
    )
    said, home = run(
        sys.executable, "-c", code, cwd=ROOT / "tools", HOME="/dev/null/none"
    ).stdout.splitlines()
    assert (
        said == f"The home folder cannot be written: settings go to {home}"
        and str(tmp_path) not in home
    )
    os.rmdir(home)


def test_importing_utils_starts_nothing(tmp_path):
    """From any folder, without a warning: no thread, no device, no slow library that a
    script may not need.
    """
    code = """if True:
        import psutil, sys, torch
        threads = psutil.Process().num_threads()
        import utils
        print(psutil.Process().num_threads() - threads, torch.cuda.is_initialized())
        print({"matplotlib", "IPython", "ipywidgets", "sklearn", "accelerate", "torch_xla"} & set(sys.modules))
    """
    result = run(sys.executable, "-I", "-W", "error", "-c", code, cwd=tmp_path)
    assert result.stdout == "0 False\nset()\n", result.stderr


def test_the_modules_of_utils_import_in_no_circle():
    imports = {}
    for path in sorted((ROOT / "utils").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        imports[module] = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                imports[module] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imports[module] |= {
                    node.module,
                    *(f"{node.module}.{alias.name}" for alias in node.names),
                }
    # it found some
    assert sum("utils.messages" in names for names in imports.values()) > 3
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError
