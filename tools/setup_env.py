"""Create the virtual environment of the course and install what its lessons need.

    python tools/setup_env.py [--test] [--venv .venv] [--requirements requirements.txt] [--prefer 3.13] [--upgrade]

Run again, it installs nothing and says nothing, as long as the requirements did not change. With --upgrade it asks the
index again for what has no exact version.
This file must parse on Python 2.7 and 3.6, so that a Python too old for the course gets a clear line.
"""

from __future__ import print_function

import argparse
import glob
import hashlib
import os
import platform
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, NEWEST = (3, 10), (3, 13)
NEEDED_BYTES = 3e9
STAMP = "device-lab.stamp"
NOISE = ("WARNING", "Requirement already satisfied", "Looking in ", "Ignoring ", "[notice]")
NOISE += ("Installing build", "Checking if", "Getting requirements", "Preparing ", "Obtaining dependency", "Stored in")

# What pip says when it fails (one of these words) -> what went wrong and what to do. The first match counts.
FAILURES = [
    (
        ("No space left on device", "Errno 28", "not enough space on the disk"),
        "The disk is full. Free some space (on Linux torch and its CUDA libraries need about 8 GB) and",
    ),
    (
        ("Long Path support",),
        "Windows does not allow paths this long. Move the course to a short path, such as C:\\lab, and",
    ),
    (
        (
            "Failed to establish a new connection",
            "Max retries exceeded",
            "name resolution",
            "NameResolutionError",
            "getaddrinfo failed",
            "Network is unreachable",
            "Connection refused",
            "Connection reset",
            "timed out",
            "ProxyError",
            "SSLError",
        ),
        "The package index cannot be reached. Check the network (and HTTPS_PROXY, if you need a proxy) and",
    ),
    (
        ("conflicting dependencies", "ResolutionImpossible"),
        "The pinned versions do not fit together. Restore requirements.txt and pyproject.toml and",
    ),
    (
        ("Permission denied", "Access is denied", "Errno 13"),
        "A file cannot be written. Close every running JupyterLab, check who owns this folder and",
    ),
]


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def python_of(venv):
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(venv, folder, name)


def output_of(command):
    """What a command prints, or None when it does not run or fails."""
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError:
        return None
    text = process.communicate()[0].decode("utf-8", "replace").strip()
    return text if process.returncode == 0 else None


def version_of(python):
    """(3, 11) of an interpreter, or None when it does not run."""
    text = output_of([python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    return tuple(int(part) for part in text.split(".")) if text else None


def find_python(version):
    """An interpreter of this version, such as (3, 13), that really runs; None when there is none."""
    name = "python%d.%d" % version
    pyenv = os.path.join(os.path.expanduser("~"), ".pyenv", "versions", "%d.%d*" % version, "bin", "python")
    for candidate in [name] + sorted(glob.glob(pyenv)):
        if version_of(candidate) == version:
            return candidate
    return None


def wanted_stamp(requirements, test, version):
    """What has to be installed, as one word: it changes when anything changes that an install depends on."""
    digest = hashlib.sha256(repr((test, version, ROOT)).encode("utf-8"))
    for path in (requirements, os.path.join(ROOT, "requirements.txt"), os.path.join(ROOT, "pyproject.toml")):
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def check_python(again):
    """Stop on a Python that is too old; note one that is newer than tested."""
    here = sys.version_info[:2]
    names = ("%d.%d" % here, "%d.%d" % OLDEST, "%d.%d" % NEWEST)
    if here < OLDEST:
        newer = [found for found in (find_python((3, minor)) for minor in (12, 13, 11, 10)) if found]
        todo = "Run" if newer else "Install a newer one (https://www.python.org/downloads/) and run"
        values = names + (todo, again, newer[0] if newer else "python3.12")
        fail("Python %s is too old for this course: it needs %s to %s. %s: %s PYTHON=%s" % values)
    if here > NEWEST:
        print("Note: the lessons are not tested with Python %s (tested: %s to %s)." % names)


def check_venv_module(python, again):
    if output_of([python, "-c", "import venv, ensurepip"]) is None:
        fail(
            "This Python cannot make virtual environments: its venv or ensurepip module is missing. "
            "On Debian and Ubuntu run: sudo apt install python%d.%d-venv, then again: %s"
            % (version_of(python) + (again,))
        )


def check_disk(folder, again):
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        fail(
            "The disk is nearly full: %.1f GB free, the environment needs at least %.0f GB. "
            "Free some and run again: %s" % (free / 1e9, NEEDED_BYTES / 1e9, again)
        )


def create(venv, python, again):
    """Make the virtual environment, unless a working one is there."""
    name = os.path.relpath(venv, ROOT)
    here = python_of(venv)
    if (version_of(here) or OLDEST) >= OLDEST and output_of([here, "-c", "import pip"]) is not None:
        return
    if os.path.isdir(venv) and os.listdir(venv) and not os.path.exists(os.path.join(venv, "pyvenv.cfg")):
        fail("%s is no virtual environment: move it away and run again: %s" % (name, again))
    check_venv_module(python, again)
    print("Creating %s with Python %d.%d" % ((name,) + version_of(python)))
    if subprocess.call([python, "-m", "venv", "--clear", venv]) != 0:
        fail("Creating %s failed (see above). Remove that folder and run again: %s" % (name, again))


def diagnose(lines, again):
    """One line for pip's failure: what is wrong and what to do."""
    text = "\n".join(lines)
    for words, message in FAILURES:
        if any(word in text for word in words):
            return "%s run again: %s" % (message, again)
    for line in lines:
        if "No matching distribution found for " in line:
            package = line.split("found for ")[1].split(" (from")[0]
            return (
                "There is no ready-made package of %s for this Python on %s (the course compiles nothing). "
                "Use a 64-bit Python 3.10 to 3.13 (%s PYTHON=python3.12), or run the lessons on Colab."
                % (package, platform.platform(terse=True), again)
            )
    return "pip failed (its last lines are above). Correct what it names and run again: %s" % again


def pip_install(venv, arguments, again):
    """Run pip install, show its progress, and stop with one clear line when it fails."""
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_USER": "0"}
    command = [python_of(venv), "-m", "pip", "install", "--only-binary=:all:", "--progress-bar=off"] + arguments
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=dict(os.environ, **quiet),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="replace",
    )
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.strip() and not line.lstrip().startswith(NOISE):
            print(line.rstrip())
            sys.stdout.flush()
    if process.wait() != 0:
        fail(diagnose(lines[-100:], again))


def main(argv=None):
    parser = argparse.ArgumentParser(description="Create the environment of the course and install into it.")
    parser.add_argument("--test", action="store_true", help="install what `make test` needs as well")
    parser.add_argument("--venv", default=".venv", help="folder of the virtual environment")
    parser.add_argument("--requirements", default="requirements.txt", help="file with the exact versions")
    parser.add_argument("--prefer", metavar="3.13", help="create it with this Python when there is one")
    parser.add_argument("--upgrade", action="store_true", help="look for newer versions of what is not pinned")
    args = parser.parse_args(argv)

    again = "make test" if args.test or args.venv != ".venv" else "make lab"
    venv, requirements = os.path.join(ROOT, args.venv), os.path.join(ROOT, args.requirements)
    if not os.path.exists(requirements):
        fail("%s is missing: get the whole course again, with git clone." % args.requirements)

    stamp, installed = os.path.join(venv, STAMP), ""
    if os.path.exists(stamp):
        with open(stamp) as file:
            installed = file.read()
        version = version_of(python_of(venv))
        if version and wanted_stamp(requirements, args.test, version) in installed and not args.upgrade:
            if version != sys.version_info[:2] >= OLDEST and not args.prefer:
                print("Using Python %d.%d of %s (another one: make clean first)" % (version + (args.venv,)))
            return

    check_python(again)
    check_disk(ROOT, again)
    python = sys.executable
    if args.prefer:
        python = find_python(tuple(int(part) for part in args.prefer.split("."))) or python
    create(venv, python, again)
    if os.path.exists(stamp):
        os.remove(stamp)  # an install that is interrupted must not look complete
    print("Installing into %s; the first time this takes some minutes" % args.venv)
    sys.stdout.flush()
    pip_install(venv, (["--upgrade"] if args.upgrade else []) + ["-r", requirements], again)
    pip_install(venv, ["--no-deps", "-e", "."], again)
    version = version_of(python_of(venv))
    done = [wanted_stamp(requirements, False, version)]
    if args.test:
        pip_install(venv, ["-e", ".[test]", "-c", requirements], again)
        done.append(wanted_stamp(requirements, True, version))
    with open(stamp, "w") as file:
        file.write("\n".join(done) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        fail("Stopped. Run the same command again to go on.")
