"""Build the emulated CUDA device for the PyTorch of the Python that runs this.

python -m emulated_cuda.build

Needs Linux on x86-64, g++, a CUDA build of PyTorch, and CUDA's headers. It takes a
minute or two, once: the libraries go to ~/.cache/emulated_cuda, a folder for each
PyTorch, Python and state of these sources. `run` builds what is not there yet.
"""

import concurrent.futures
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
Paths = list[pathlib.Path]
# of PyTorch: what they call has to be there
LIBRARIES = (
    "c10_cuda torch_cuda torch_cuda_linalg torch_python torch_cpu caffe2_nvrtc"
    " torch_nvshmem".split()
)


def _torch() -> pathlib.Path:
    """The folder of this Python's PyTorch, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec and spec.origin:
        return pathlib.Path(spec.origin).parent
    return pathlib.Path(sysconfig.get_path("purelib"), "torch")


TORCH = _torch()
TORCH_CUDA = TORCH / "lib" / "libtorch_cuda.so"


def folder() -> pathlib.Path:
    """Where the libraries for this Python's PyTorch are, or will be."""
    version = importlib.metadata.version("torch")
    name = f"torch-{version}-{sysconfig.get_config_var('SOABI')}-{_digest()}"
    return _cache() / name


def _digest() -> str:
    """Eight letters that change with these sources, and with PyTorch or its place."""
    digest = hashlib.sha256(os.fsencode(TORCH))
    sources = [*(HERE / "runtime").iterdir(), *(HERE / "operators").iterdir()]
    for path in (*sorted(sources), HERE / "build.py", TORCH / "version.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def _cache() -> pathlib.Path:
    """~/.cache/emulated_cuda, or a folder for temporary files where that is read-only
    or somebody else's.
    """
    try:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        return _own(pathlib.Path(home, "emulated_cuda"))
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return _own(pathlib.Path(tempfile.gettempdir(), f"emulated_cuda-{os.getuid()}"))


def _own(path: pathlib.Path) -> pathlib.Path:
    """Make a folder; an error if others could have put something into it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid() or not os.access(path, os.W_OK):
        raise PermissionError(f"{path} is not yours to write to")
    return path


def missing() -> str | None:
    """What the build lacks here, as one line; None if nothing."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "Linux on x86-64"
    if not shutil.which("g++") or not shutil.which("nm"):
        return "g++ and nm (Debian: apt install g++)"
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's header files (Debian: apt install python3-dev)"
    if not TORCH_CUDA.exists():
        return "a CUDA build of PyTorch in this Python"
    for name in ("cuda_runtime.h", "crt/host_defines.h", "nv/target"):
        if not any((path / name).exists() for path in includes()):
            return f"CUDA's headers ({name}: pip install 'cuda-toolkit[cccl,crt]')"
    return None


def includes() -> Paths:
    """Folders with CUDA's headers, from the wheels (CUDA 13: one folder; CUDA 12: one a
    library).
    """
    return sorted((TORCH.parent / "nvidia").glob("*/include"))


def needed() -> set[str]:
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


def stubs() -> str:
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


def compile_all(sources: Paths, out: pathlib.Path, *options: str) -> Paths:
    """The object files of these sources in `out`; as many at a time as there are
    processors. What it says goes to stderr: stdout belongs to the program of `run`.
    """

    def compiled(source):
        print(f"emulated_cuda: compiling {source.name}", file=sys.stderr, flush=True)
        target = out / f"{source.stem}.o"
        compiler = "gcc" if source.suffix == ".c" else "g++"
        command = [compiler, "-O1", "-fPIC", "-c", source, "-o", target, *options]
        subprocess.run(command, check=True)
        return target

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compiled, sources))


def link(objects: Paths, out: pathlib.Path, *options: str) -> None:
    """Link a shared library `out`."""
    command = ["g++", "-shared", *objects, "-o", out, *options]
    subprocess.run(command, check=True)


def build_runtime(out: pathlib.Path) -> None:
    """libemulator.so: what stands in the place of CUDA."""
    generated = out / "stubs.c"
    generated.write_text(stubs())
    cuda = [f"-I{path}" for path in includes()]
    sources = sorted((HERE / "runtime").glob("*.cpp"))
    objects = compile_all(sources, out, "-std=c++17", *cuda)
    objects += compile_all([generated], out)
    # The soname is that of the driver: dlopen("libcuda.so.1") finds it. With its own
    # libstdc++, as it is loaded first.
    options = (
        "-Wl,-soname,libcuda.so.1 -ldl -lpthread"
        " -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL".split()
    )
    link(objects, out / "libemulator.so", *options)
    # for programs that look for the driver's file, as Triton does, and for NVML's
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (out / name).symlink_to("libemulator.so")


def build_operators(out: pathlib.Path) -> None:
    """emulator_operators.so: what computes in the place of CUDA's kernels."""
    headers = [TORCH / "include", TORCH / "include/torch/csrc/api/include"]
    headers += [sysconfig.get_path("include"), *includes(), HERE / "runtime"]
    options = ["-std=c++20", "-w", *(f"-I{path}" for path in headers)]
    options.append("-DTORCH_EXTENSION_NAME=emulator_operators")
    options.append("-DTORCH_API_INCLUDE_EXTENSION_H")
    sources = sorted((HERE / "operators").glob("*.cpp"))
    objects = compile_all(sources, out, *options)
    options = [f"-L{TORCH / 'lib'}", f"-L{out}", f"-Wl,-rpath,{TORCH / 'lib'}"]
    options += (
        "-lc10 -lc10_cuda -ltorch -ltorch_cpu -ltorch_cuda -ltorch_python"
        " -l:libemulator.so -Wl,--allow-shlib-undefined".split()
    )
    link(objects, out / "emulator_operators.so", *options)


def build() -> pathlib.Path:
    """Build both libraries if they are not there yet, and return their folder.

    They appear all at once: of two processes that build at the same time, the one that
    ends later finds that it was not needed.
    """
    if TORCH_CUDA.exists() and folder().exists():
        return folder()
    lacking = missing()
    if lacking:
        sys.exit(f"The emulated CUDA device cannot be built here: it needs {lacking}.")
    out = folder()
    with tempfile.TemporaryDirectory(prefix="building-", dir=out.parent) as name:
        unfinished = pathlib.Path(name, "libraries")
        unfinished.mkdir()
        build_runtime(unfinished)
        build_operators(unfinished)
        for path in unfinished.glob("*.o"):
            path.unlink()
        try:
            unfinished.rename(out)
        except OSError:
            if not out.exists():
                raise
    return out


if __name__ == "__main__":
    print(f"built: {build()}")
