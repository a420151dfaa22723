"""Create the virtual environment of the course and install what its lessons need.

    python tools/setup_env.py [--extra test] [--venv .venv] [--requirements FILE]
                              [--build cpu] [--prefer 3.13] [--upgrade]

Run again, it installs nothing and says nothing, as long as the requirements, the folder
of the course and the build of PyTorch are the same. This file must parse and stop on
Python 3.6, so that a Python too old for the course gets a clear line.
"""

import argparse
import ast
import glob
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# By its path: to import utils takes PyTorch.
SUPPORTED = runpy.run_path(os.path.join(ROOT, "utils", "supported.py"))
OLDEST, NEWEST = SUPPORTED["OLDEST_PYTHON"], SUPPORTED["NEWEST_PYTHON"]
PYTHONS = SUPPORTED["PYTHONS"]
NEEDED_BYTES = 3e9
# Installs in a quarter of pip's time. Another version may have other options.
UV = "uv==0.13.9"
# What pip and uv print before what can take long: "  Downloading torch-2.13.0-x.whl
# (175.0 MB)", "Downloading torch (175.0MiB)", from 10 MB on, "Installing collected
# packages: tqdm, torch", "Prepared 122 packages in 9.1s", "WARNING: Retrying"
LONG_WORK = re.compile(
    r" *Downloading .*\((\d\d+\.\d ?M|[\d.]+ ?G)i?B\)"
    r"|Installing collected|Prepared \d|WARNING: Retrying"
)
# Settings of pip that are uv's options, too, of the same name.
OF_PIP = ("index-url", "extra-index-url", "find-links", "constraint", "trusted-host")
# Extras of pyproject.toml. Each holds those before it, so that what was installed with
# one serves for them, too.
EXTRAS = ["course", "lessons", "check", "test"]
STAMP = "device-lab.stamp"  # file in an environment: what is installed there

DISK_FULL = "No space left|not enough space"
# What pip says when it fails (a regular expression) -> what went wrong and what to do.
# The first match counts.
FAILURES = {
    DISK_FULL: (
        "The disk is full. Free some space (on Linux torch and its CUDA libraries need"
        " about 8 GB)"
    ),
    "[Cc]onnection|timed out": (
        "The package index cannot be reached. Check the network (and HTTPS_PROXY, if"
        " you need a proxy)"
    ),
    "No matching distribution found": (
        "There is no ready-made package of that for this Python on this machine (the"
        " course compiles nothing). Take a 64-bit Python " + PYTHONS + " (make lab"
        " PYTHON=python3.12); where there is none, the lessons run on Colab"
    ),
    "": (
        "pip failed (see above). Correct what it names; on Windows a running JupyterLab"
        " keeps its files in use"
    ),
}


def python_of(venv):
    """Path of the interpreter of a virtual environment."""
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(venv, folder, name)


def version_of(python, module="sys"):
    """'3.11' of an interpreter that runs and has this module, otherwise None."""
    code = f"import sys, {module}; print('%d.%d' % sys.version_info[:2])"
    try:
        output = subprocess.check_output(
            [python, "-c", code], stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return output.decode().strip()


def find_python(version):
    """An interpreter of this version, such as '3.13', that really runs; None when there
    is none.
    """
    pyenv = os.path.join("~", ".pyenv", "versions", version + "*", "bin", "python")
    candidates = ["python" + version, *glob.glob(os.path.expanduser(pyenv))]
    return next((each for each in candidates if version_of(each) == version), None)


def check_python():
    """Stop on a Python that is too old; note one that is newer than tested."""
    here = "{}.{}".format(*sys.version_info[:2])
    if sys.version_info[:2] < OLDEST:
        tested = [f"3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
        python = next(filter(None, map(find_python, ["3.12", *tested])), None)
        todo = "Run"
        if not python:
            python = "python3.12"
            todo = "Install a newer one (https://www.python.org/downloads/) and run"
        sys.exit(
            f"Python {here} is too old for this course: it needs {PYTHONS}."
            f" {todo}: make lab PYTHON={python}"
        )
    if sys.version_info[:2] > NEWEST:
        print(
            f"Note: the lessons are not tested with Python {here} (tested: {PYTHONS})."
        )


def check_disk():
    """Stop where the disk has no room for the environment."""
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        sys.exit(
            f"The disk is nearly full: {free / 1e9:.1f} GB free, the environment needs"
            f" at least {NEEDED_BYTES / 1e9:.0f} GB."
        )


def create(venv, python):
    """Make the virtual environment `venv`, a path relative to ROOT, in place of what is
    left of an older one.
    """
    folder = os.path.join(ROOT, venv)
    is_venv = os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    if os.path.isdir(folder) and os.listdir(folder) and not is_venv:
        sys.exit(
            f"{venv} is no virtual environment: move it away and run the same command"
            " again."
        )
    version = version_of(python)
    print(f"Creating {venv} with Python {version}", flush=True)
    if subprocess.call([python, "-m", "venv", "--clear", folder]) != 0:
        sys.exit(
            "Making a virtual environment failed (see above). If its module is missing,"
            f" as on Debian and Ubuntu: sudo apt install python{version}-venv. Then run"
            " the same command again."
        )


# --------------------------------------------------------------------------------------
# uv and pip


def watch(process):
    """Show what uv or pip prints until it ends: on a terminal its last line, in
    place of the one before; otherwise the lines before what can take long. Returns all.
    """
    lines = []
    width = shutil.get_terminal_size().columns - 1
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if sys.stdout.isatty():
                print("\r" + line.strip()[:width].ljust(width), end="\r", flush=True)
            elif LONG_WORK.match(line):
                print(line.strip()[:width], flush=True)
    finally:
        if sys.stdout.isatty():
            print("\r" + " " * width, end="\r", flush=True)
    return lines


def run(command, **env):
    """(whether it ended well, the lines it printed) of uv or pip."""
    settings = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_USER": "0",
        "PYTHONIOENCODING": "utf-8",
    }
    # a path may have letters that the terminal has not
    sys.stdout.reconfigure(errors="replace")
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=dict(os.environ, **settings, **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    lines = watch(process)
    return process.wait() == 0, lines


def pip_settings(python):
    """{"find-links": "/wheels"}: what files and the environment tell pip."""
    _, lines = run([python, "-m", "pip", "config", "list"])
    # "global.cert='/a.pem'", "install.no-index='1'", ":env:.find-links='/wheels'"; the
    # last of these counts
    form = r"^(global|install|:env:)\.([\w-]+)=(.*)$"
    settings = re.findall(form, "\n".join(lines), re.M)
    settings.sort(key=lambda setting: ("global", "install", ":env:").index(setting[0]))
    return {name: ast.literal_eval(value) for _, name, value in settings}


def uv_command(python):
    """(command, variables of its environment): uv's pip with the settings of pip."""
    settings = pip_settings(python)
    # pip takes the newest version of all indexes, uv that of the first
    command = [python, "-m", "uv", "pip", "install", "--python", python]
    command += ["--index-strategy=unsafe-best-match", "--compile-bytecode"]
    for name in OF_PIP:
        command += [f"--{name}={v}" for v in settings.get(name, "").split()]
    is_set = [name for name in settings if settings[name] not in ("", "0", "false")]
    command += ["--no-index"] if "no-index" in is_set else []
    writable = os.access(os.path.expanduser("~"), os.W_OK)
    command += ["--no-cache"] if "no-cache-dir" in is_set or not writable else []
    env = {}
    if "cert" in is_set:
        env["SSL_CERT_FILE"] = settings["cert"]
    if "proxy" in is_set:
        env["HTTP_PROXY"] = env["HTTPS_PROXY"] = settings["proxy"]
    return command, env


def install(python, arguments, build=()):
    """Install with uv, or else with pip; stop with the last lines and one on what to do
    when both fail.

    python: path of the environment's; build: arguments for a build of PyTorch, left out
    where nothing comes of them.
    """
    pip = [python, "-m", "pip", "install", "--only-binary=:all:", "--progress-bar=off"]
    done, lines = run([*pip, "--quiet", "--retries=1", UV])
    if done:
        command, env = uv_command(python)
        done, lines = run([*command, "--only-binary=:all:", *arguments, *build], **env)
    for more in [build, ()] if build else [()]:
        if not done and not re.search(DISK_FULL, "\n".join(lines)):
            done, lines = run([*pip, *arguments, *more])
    if not done:
        worth = [line for line in lines if not line.startswith("WARNING")]
        print("\n".join(worth[-20:]), file=sys.stderr)
        text = "\n".join(lines)
        failure = next(FAILURES[each] for each in FAILURES if re.search(each, text))
        sys.exit(failure + ". Then run the same command again.")


# --------------------------------------------------------------------------------------


def fingerprint(requirements):
    """Hash of all that an install depends on: the folder of the course, the versions
    that it names.
    """
    content = hashlib.sha256(ROOT.encode())
    for name in ("pyproject.toml", "requirements.txt", requirements):
        with open(os.path.join(ROOT, name), "rb") as file:
            content.update(file.read())
    return content.hexdigest()


def installed(stamp):
    """What a complete installation has noted in its stamp, or {}."""
    try:
        with open(stamp, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def arguments():
    """The arguments of the command."""
    parser = argparse.ArgumentParser(
        description="Create the environment of the course and install into it."
    )
    option = parser.add_argument
    option(
        "--extra", default="course", choices=EXTRAS, help="an extra of pyproject.toml"
    )
    option("--venv", default=".venv", help="folder of the virtual environment")
    option(
        "--requirements", default="requirements.txt", help="file with exact versions"
    )
    option(
        "--build",
        metavar="cpu",
        help="build of PyTorch: cpu, cu126, cu130, plain (pip's choice), or auto, which"
        " fits this machine",
    )
    option("--prefer", metavar="3.13", help="the Python to take when there is one")
    option("--upgrade", action="store_true", help="look for newer versions")
    return parser.parse_args()


def serves(note, wanted):
    """Whether an installation with this note is what is wanted, or more."""
    same = all(note.get(key) == wanted[key] for key in ("fingerprint", "build"))
    return same and EXTRAS.index(wanted["extra"]) <= EXTRAS.index(note["extra"])


def clear_way(args, note, version, build):
    """Make an environment, or make the one that is there ready for another install."""
    python = args.prefer and find_python(args.prefer) or sys.executable
    if not version or not note and version != version_of(python):
        create(args.venv, python)
    elif note:
        # an install that is interrupted must not look complete
        os.remove(os.path.join(ROOT, args.venv, STAMP))
        if note["build"] != build:  # of the same version, pip would leave it
            inside = python_of(os.path.join(ROOT, args.venv))
            run([inside, "-m", "pip", "uninstall", "--yes", "torch"])


def main():
    import torch_build  # beside this script

    args = arguments()
    stamp = os.path.join(ROOT, args.venv, STAMP)
    inside = python_of(os.path.join(ROOT, args.venv))
    version = version_of(inside, "pip")
    note = installed(stamp)
    build, why = torch_build.decide(args.build, note)
    wanted = {"extra": args.extra, "build": build, "why": why}
    wanted["fingerprint"] = fingerprint(args.requirements)
    if version and not args.upgrade and serves(note, wanted):
        return

    check_python()
    check_disk()
    clear_way(args, note, version, build)
    option = "--build NAME" if os.name == "nt" else "make lab BUILD=NAME"
    print(f"PyTorch for this machine: {build} ({why}); another: {option}")
    print(f"Installing into {args.venv}; the first time this takes a while", flush=True)
    begin = time.time()
    with open(os.path.join(ROOT, args.requirements), encoding="utf-8") as file:
        which = torch_build.pip_arguments(build, file.read(), version_of(inside))
    upgrade = ["--upgrade"] if args.upgrade else []
    course = f".[{args.extra}]"
    install(inside, [*upgrade, "-r", args.requirements, "-e", course], which)
    with open(stamp, "w", encoding="utf-8") as file:
        json.dump(wanted, file)
    print(f"Installed in {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Stopped. Run the same command again to go on.")
