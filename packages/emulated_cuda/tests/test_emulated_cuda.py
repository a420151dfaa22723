"""What can be told without a CUDA build of PyTorch: where the libraries go, what is
missing, what `run` hands on. checks.py has the rest.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import emulated_cuda
from emulated_cuda import build, run

PACKAGE = pathlib.Path(emulated_cuda.__file__).parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's alone")


def test_importing_it_loads_no_pytorch_and_makes_no_folder(tmp_path):
    source = "import sys, emulated_cuda.run; print('torch' in sys.modules)"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    env["PYTHONPATH"] = str(PACKAGE.parent)
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout == "False\n", done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def pytorch(tmp_path, monkeypatch):
    """A PyTorch of which there are two files."""
    folder = tmp_path / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "version.py").write_text("cuda = '13.0'")
    (folder / "lib" / "libtorch_cuda.so").touch()
    monkeypatch.setattr(build, "TORCH", folder)
    monkeypatch.setattr(build, "TORCH_CUDA", folder / "lib" / "libtorch_cuda.so")
    monkeypatch.setattr(build.importlib.metadata, "version", lambda name: "2.13.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return folder


@linux
def test_each_pytorch_has_a_folder_of_its_own(pytorch, tmp_path):
    first = build.folder()
    assert first.parent == tmp_path / "a cache" / "emulated_cuda"
    assert first.name.startswith("torch-2.13.0-cpython-")
    assert build.folder() == first
    (pytorch / "version.py").write_text("cuda = '13.2'")
    assert build.folder() != first


@linux
def test_other_sources_have_another_folder(pytorch, tmp_path, monkeypatch):
    first = build.folder()
    for part in ("runtime", "operators"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "a.cpp").touch()
    (tmp_path / "build.py").touch()
    monkeypatch.setattr(build, "HERE", tmp_path)
    second = build.folder()
    (tmp_path / "runtime" / "a.cpp").write_text("int changed;")
    assert len({first, second, build.folder()}) == 3


@linux
def test_where_home_cannot_be_written_to_it_goes_to_a_temporary_folder(
    pytorch, tmp_path, monkeypatch
):
    """Not even root can make a folder in a file."""
    (tmp_path / "home").touch()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path))
    assert build.folder().parent == tmp_path / f"emulated_cuda-{os.getuid()}"


@linux
def test_a_temporary_folder_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    """What lies there would be loaded into the program."""
    monkeypatch.setattr(build.os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="not yours"):
        build._own(tmp_path)


@linux
def test_what_is_built_is_not_built_again(pytorch, monkeypatch):
    build.folder().mkdir()
    monkeypatch.setattr(build, "missing", lambda: "a compiler")  # no longer needed
    assert build.build() == build.folder()


@pytest.mark.parametrize(
    ("system", "program", "header", "says"),
    [
        ("Windows", "g++", "crt/host_defines.h", "Linux on x86-64"),
        ("Linux", "clang", "crt/host_defines.h", r"g\+\+ and nm"),
        ("Linux", "g++", "no.h", r"cuda-toolkit\[cccl,crt\]"),
    ],
)
def test_what_is_missing_is_said(
    system, program, header, says, pytorch, tmp_path, monkeypatch
):
    include = tmp_path / "nvidia" / "cu13" / "include"
    for name in ("cuda_runtime.h", "nv/target", header, "Python.h"):
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).touch()
    monkeypatch.setattr(build.platform, "system", lambda: system)
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(include))
    monkeypatch.setattr(
        build.shutil, "which", lambda name: name in (program, "nm") or None
    )
    assert re.search(says, build.missing())
    with pytest.raises(SystemExit, match=says):
        build.build()


def test_a_build_for_cpus_is_not_enough(pytorch, monkeypatch):
    monkeypatch.setattr(build, "TORCH_CUDA", pytorch / "nothing.so")
    monkeypatch.setattr(build.platform, "system", lambda: "Linux")
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build.shutil, "which", lambda name: name)
    (pytorch / "Python.h").touch()
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(pytorch))
    assert build.missing() == "a CUDA build of PyTorch in this Python"


@pytest.mark.parametrize("line", ["python -x --gpu A", "-- python -x --gpu A"])
def test_what_follows_is_the_command_with_its_own_options(line):
    options = run.arguments(["--gpu", "H200", "--gib", "2", *line.split()])
    assert (options.gpu, options.gib, options.gpus) == ("H200", 2, 1)
    assert options.command == ["python", "-x", "--gpu", "A"]


def test_without_a_command_it_says_so(capsys):
    with pytest.raises(SystemExit):
        run.arguments(["--"])
    assert "no command" in capsys.readouterr().err


def test_a_process_gets_the_limits_that_were_named_and_keeps_its_paths(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "build", lambda: tmp_path / "two words")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/theirs")
    env = run.environment("H200", 2, 0.5, tmp_path / "log", mib=64)
    assert env["LD_LIBRARY_PATH"] == f"{tmp_path / 'two words'}{os.pathsep}/theirs"
    assert " " not in env["LD_PRELOAD"]  # where it would separate two libraries
    assert env["EMULATOR_GPU_GIB"] == "0.5" and env["EMULATOR_MAX_MIB"] == "64"
    assert "EMULATOR_MAX_GFLOP" not in env


def test_nvidia_smi_answers_for_each_gpu():
    program = PACKAGE / "bin" / "nvidia-smi"
    command = [sys.executable, program, "--query-gpu=name,memory.total", "--format=csv"]
    env = {**os.environ, "EMULATOR_GPU": "NVIDIA H200,9.0", "EMULATOR_GPUS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.stdout == "NVIDIA H200, 143771 MiB\n" * 2
