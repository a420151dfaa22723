"""Run a notebook with no network but the loopback: PYTHON tests/site/built/alone.py
NOTEBOOK SECONDS

The executed notebook takes the place of NOTEBOOK. Where Linux permits it, the process
first moves into a network namespace of its own, in which there is no other machine; the
kernel and its jobs are its children. Elsewhere what it starts must refuse connections
itself (test_single.py).
"""

import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys

import nbformat

# of this process, not of the kernel
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3]))

from tools.lessons import run  # noqa: E402

CUT_OFF = ["unshare", "--map-root-user", "--net"]
SIOCSIFFLAGS, UP, RUNNING = 0x8914, 0x1, 0x40  # of <linux/sockios.h> and <net/if.h>


def permitted():
    """Whether this system lets a process have a network of its own."""
    return (
        bool(shutil.which("unshare"))
        and subprocess.run([*CUT_OFF, "true"], capture_output=True).returncode == 0
    )


def main():
    path = pathlib.Path(sys.argv[1])
    if "LAB_CUT_OFF" not in os.environ and permitted():
        os.execvpe(
            "unshare",
            [*CUT_OFF, sys.executable, *sys.argv],
            {**os.environ, "LAB_CUT_OFF": "1"},
        )
    if "LAB_CUT_OFF" in os.environ:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh", b"lo", UP | RUNNING))
    nb = nbformat.read(path, as_version=4)
    try:
        run.execute(nb, path.parent, timeout=int(sys.argv[2]))
    finally:
        nbformat.write(nb, path)


if __name__ == "__main__":
    main()
