"""Build the emulated CUDA device for the PyTorch of the Python that runs this.

python -m emulator.build

Needs Linux on x86-64, g++, and what emulator/requirements.txt installs: a CUDA build
of PyTorch, and CUDA's headers. The first time it takes a minute or two; run again, it
compiles what has changed. The libraries go to build/emulator/, a folder for each
version of PyTorch and Python.
"""

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
LIBRARIES = (
    "c10_cuda torch_cuda torch_cuda_linalg torch_python torch_cpu caffe2_nvrtc"
    " torch_nvshmem".split()
)
PACKAGES = pathlib.Path(sysconfig.get_path("purelib"))
TORCH = PACKAGES / "torch"


def folder():
    """Where the libraries for this Python's PyTorch are, or will be."""
    version = importlib.metadata.version("torch")
    name = f"torch-{version}-{sysconfig.get_config_var('SOABI')}"
    return ROOT / "build" / "emulator" / name


def missing():
    """What the build lacks here, as one line; None if nothing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "Linux on x86-64"
    if not shutil.which("g++") or not shutil.which("nm"):
        return "g++ and nm (Debian: apt install g++)"
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's header files (Debian: apt install python3-dev)"
    if not (TORCH / "lib" / "libtorch_cuda.so").exists():
        return "a CUDA build of PyTorch in this Python"
    if not includes():
        return (
            "the headers of CUDA, which the wheels of PyTorch's CUDA builds bring"
            " (nvidia/cu13 or nvidia/cuda_runtime)"
        )
    return None


def includes():
    """Folders with CUDA's headers, from the wheels (CUDA 13: one folder; CUDA 12: one a
    library).
    """
    return sorted((PACKAGES / "nvidia").glob("*/include"))


def needed():
    """Names of the functions of CUDA, its driver and cuBLAS that PyTorch's libraries
    call.
    """
    names = set()
    for library in LIBRARIES:
        path = TORCH / "lib" / f"lib{library}.so"
        if path.exists():
            command = ["nm", "-D", "--undefined-only", path]
            options = {"capture_output": True, "text": True, "check": True}
            for line in subprocess.run(command, **options).stdout.splitlines():
                names.add(line.split()[-1].split("@")[0])
    # of the runtime (cudaMalloc), of cuBLAS, of the driver (cuInit); not cuFile
    cuda = re.compile(r"cuda[A-Z]|cublas|cu[A-Z]")
    return {name for name in names if cuda.match(name) and "cuFile" not in name}


def stubs():
    """C source: a function for each name that PyTorch calls and no file of runtime/
    defines.

    One of cuBLAS succeeds and does nothing, as a kernel does; one of CUDA is not
    supported, and says so in the log.
    """
    paths = sorted((HERE / "runtime").glob("*.cpp"))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    # the NAME in "API type NAME(" at the beginning of a line
    defined = set(re.findall(r"^API [^(]*?\**(\w+)\(", sources, re.M))
    lines = [
        "void emulator_log(const char*, const char*);",
        "void emulator_launched(void);",
    ]
    for name in sorted(needed() - defined - {"cudaGetErrorString", "cudaGetErrorName"}):
        if name.startswith("cublas"):
            lines.append(f"int {name}(void) {{ emulator_launched(); return 0; }}")
        else:
            log = f'emulator_log("no implementation of", "{name}");'
            lines.append(f"int {name}(void) {{ {log} return 801; }}")
    return "\n".join(lines) + "\n"


def compiled(source, out, *options):
    """The object file of a source; compiled if it, a header beside it or the folder of
    PyTorch is newer.
    """
    target = out / (source.stem + ".o")
    inputs = [source, *source.parent.glob("*.h"), HERE / "runtime" / "emulator.h"]
    inputs = [path for path in (*inputs, TORCH / "version.py") if path.exists()]
    newest = max(path.stat().st_mtime for path in inputs)
    if not target.exists() or target.stat().st_mtime < newest:
        compiler = "gcc" if source.suffix == ".c" else "g++"
        print(f"compiling {source.name}", flush=True)
        command = [compiler, "-O1", "-fPIC", "-c", source, "-o", target, *options]
        subprocess.run(command, check=True)
    return target


def link(objects, out, *options):
    """Link a shared library `out`."""
    command = ["g++", "-shared", *objects, "-o", out, *options]
    subprocess.run(command, check=True)


def build():
    """Build both libraries and return their folder."""
    out = folder()
    out.mkdir(parents=True, exist_ok=True)
    cuda = [f"-I{path}" for path in includes()]

    generated, text = out / "stubs.c", stubs()
    if not generated.exists() or generated.read_text() != text:
        generated.write_text(text)
    sources = sorted((HERE / "runtime").glob("*.cpp"))
    runtime = [compiled(path, out, "-std=c++17", *cuda) for path in sources]
    runtime.append(compiled(generated, out))
    # The soname is that of the driver: dlopen("libcuda.so.1") finds it. With its own
    # libstdc++, as it is loaded first.
    options = (
        "-Wl,-soname,libcuda.so.1 -ldl -lpthread"
        " -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL".split()
    )
    link(runtime, out / "libemulator.so", *options)
    # for programs that look for the driver's file, as Triton does, and for NVML's
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (out / name).unlink(missing_ok=True)
        (out / name).symlink_to("libemulator.so")

    headers = [TORCH / "include", TORCH / "include/torch/csrc/api/include"]
    headers += [sysconfig.get_path("include"), *includes(), HERE / "runtime"]
    options = ["-std=c++20", "-w", *(f"-I{path}" for path in headers)]
    options.append("-DTORCH_EXTENSION_NAME=emulator_operators")
    options.append("-DTORCH_API_INCLUDE_EXTENSION_H")
    sources = sorted((HERE / "operators").glob("*.cpp"))
    operators = [compiled(path, out, *options) for path in sources]
    options = [f"-L{TORCH / 'lib'}", f"-L{out}", f"-Wl,-rpath,{TORCH / 'lib'}"]
    options += (
        "-lc10 -lc10_cuda -ltorch -ltorch_cpu -ltorch_cuda -ltorch_python"
        " -l:libemulator.so -Wl,--allow-shlib-undefined".split()
    )
    link(operators, out / "emulator_operators.so", *options)
    return out


def main():
    lacking = missing()
    if lacking:
        sys.exit(f"The emulated CUDA device cannot be built here: it needs {lacking}.")
    os.umask(0o022)
    print(f"built: {build()}")


if __name__ == "__main__":
    main()
