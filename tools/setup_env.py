"""Create the virtual environment of the course and install what its lessons need.

    python tools/setup_env.py [--extra test] [--venv .venv] [--requirements FILE] [--prefer 3.13] [--upgrade]

Run again, it installs nothing and says nothing, as long as the requirements and the
folder of the course are the same. This file must parse on Python 2.7 and 3.6, so that a
Python too old for the course gets a clear line.
"""

from __future__ import print_function

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, NEWEST = (3, 10), (3, 13)
NEEDED_BYTES = 3e9
STAMP = "device-lab.stamp"

# What pip says when it fails (a regular expression) -> what went wrong and what to do.
# The first match counts.
FAILURES = [
    (
        "No space left|not enough space",
        (
            "The disk is full. Free some space (on Linux torch and its CUDA libraries"
            " need about 8 GB)"
        ),
    ),
    (
        "[Cc]onnection|timed out",
        (
            "The package index cannot be reached. Check the network (and HTTPS_PROXY,"
            " if you need a proxy)"
        ),
    ),
    (
        "No matching distribution found",
        (
            "There is no ready-made package of that for this Python on this machine"
            " (the course compiles nothing). Take a 64-bit Python 3.10 to 3.13 (make"
            " lab PYTHON=python3.12); where there is none, the lessons run on Colab"
        ),
    ),
    (
        "",
        (
            "pip failed (see above). Correct what it names; on Windows a running"
            " JupyterLab keeps its files in use"
        ),
    ),
]


def python_of(venv):
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(venv, folder, name)


def version_of(python, module="sys"):
    """'3.11' of an interpreter that runs and has this module, otherwise None."""
    code = "import sys, %s; print('%%d.%%d' %% sys.version_info[:2])" % module
    try:
        process = subprocess.Popen(
            [python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError:
        return None
    text = process.communicate()[0].decode().strip()
    return text if process.returncode == 0 else None


def find_python(version):
    """An interpreter of this version, such as '3.13', that really runs; None when there
    is none.
    """
    pyenv = os.path.join(
        os.path.expanduser("~"), ".pyenv", "versions", version + "*", "bin", "python"
    )
    candidates = ["python" + version] + glob.glob(pyenv)
    return next((each for each in candidates if version_of(each) == version), None)


def check_python():
    """Stop on a Python that is too old; note one that is newer than tested."""
    here = sys.version_info[:2]
    names = ("%d.%d" % here, "%d.%d" % OLDEST, "%d.%d" % NEWEST)
    if here < OLDEST:
        newer = [
            found
            for found in map(find_python, ("3.12", "3.13", "3.11", "3.10"))
            if found
        ]
        todo = (
            "Run"
            if newer
            else "Install a newer one (https://www.python.org/downloads/) and run"
        )
        values = names + (todo, newer[0] if newer else "python3.12")
        sys.exit(
            "Python %s is too old for this course: it needs %s to %s. %s: make lab"
            " PYTHON=%s" % values
        )
    if here > NEWEST:
        print(
            "Note: the lessons are not tested with Python %s (tested: %s to %s)."
            % names
        )


def check_disk():
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        values = (free / 1e9, NEEDED_BYTES / 1e9)
        sys.exit(
            "The disk is nearly full: %.1f GB free, the environment needs at least"
            " %.0f GB." % values
        )


def create(venv, python):
    """Make the virtual environment `venv`, a path relative to ROOT, in place of what is
    left of an older one.
    """
    folder = os.path.join(ROOT, venv)
    if (
        os.path.isdir(folder)
        and os.listdir(folder)
        and not os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    ):
        sys.exit(
            "%s is no virtual environment: move it away and run the same command again."
            % venv
        )
    print("Creating %s with Python %s" % (venv, version_of(python)))
    if subprocess.call([python, "-m", "venv", "--clear", folder]) != 0:
        sys.exit(
            "Making a virtual environment failed (see above). If its module is missing,"
            " as on Debian and Ubuntu: sudo apt install python%s-venv. Then run the"
            " same command again." % version_of(python)
        )


def pip_install(venv, arguments):
    """Run pip install; stop with what it says and one line on what to do when it fails."""
    quiet = {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PIP_USER": "0",
    }
    command = [
        python_of(os.path.join(ROOT, venv)),
        "-m",
        "pip",
        "install",
        "--only-binary=:all:",
    ] + arguments
    pip = subprocess.Popen(
        command, cwd=ROOT, env=dict(os.environ, **quiet), stderr=subprocess.PIPE
    )
    says = pip.communicate()[1].decode("utf-8", "replace")
    if pip.returncode != 0:
        print(
            "\n".join(
                line for line in says.splitlines() if not line.startswith("WARNING")
            ),
            file=sys.stderr,
        )
        todo = next(
            message for pattern, message in FAILURES if re.search(pattern, says)
        )
        sys.exit(todo + ". Then run the same command again.")


def main():
    parser = argparse.ArgumentParser(
        description="Create the environment of the course and install into it."
    )
    parser.add_argument(
        "--extra", default="", help="an extra of pyproject.toml: lessons, test"
    )
    parser.add_argument(
        "--venv", default=".venv", help="folder of the virtual environment"
    )
    parser.add_argument(
        "--requirements",
        default="requirements.txt",
        help="file with the exact versions",
    )
    parser.add_argument(
        "--prefer", metavar="3.13", help="create it with this Python when there is one"
    )
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help="look for newer versions of what is not pinned",
    )
    args = parser.parse_args()

    # All that an install depends on. The extra comes last, so that what was installed
    # with one serves without it, too.
    wanted, installed = repr(ROOT).encode(), None
    for name in ("pyproject.toml", "requirements.txt", args.requirements):
        with open(os.path.join(ROOT, name), "rb") as file:
            wanted += file.read()
    wanted += args.extra.encode()
    stamp = os.path.join(ROOT, args.venv, STAMP)
    if os.path.exists(stamp):
        with open(stamp, "rb") as file:
            installed = file.read()
    version = version_of(python_of(os.path.join(ROOT, args.venv)), "pip")
    if version and installed and installed.startswith(wanted) and not args.upgrade:
        return

    check_python()
    check_disk()
    python = args.prefer and find_python(args.prefer) or sys.executable
    if not version or installed is None and version != version_of(python):
        create(args.venv, python)
    elif installed is not None:
        os.remove(stamp)  # an install that is interrupted must not look complete
    print("Installing into %s; the first time this takes some minutes" % args.venv)
    sys.stdout.flush()
    course = ".[%s]" % args.extra if args.extra else "."
    pip_install(
        args.venv,
        (["--upgrade"] if args.upgrade else [])
        + ["-r", args.requirements, "-e", course],
    )
    with open(stamp, "wb") as file:
        file.write(wanted)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Stopped. Run the same command again to go on.")
