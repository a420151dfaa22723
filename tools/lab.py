"""Open JupyterLab on the first lesson: python tools/lab.py [arguments of JupyterLab]

JupyterLab listens on this computer only (its default), with a token.
"""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST_LESSON = "notebooks/00_start_here.ipynb"


def fail(message):
    print(message, file=sys.stderr)
    sys.exit(1)


def named_port(arguments):
    """The port that the user named with --port N or --port=N, as text; None without one."""
    port = None
    for argument, following in zip(arguments, arguments[1:] + [""], strict=True):
        if argument == "--port":
            port = following
        elif argument.startswith("--port="):
            port = argument.removeprefix("--port=")
    return port


def is_free(port):
    with socket.socket() as probe:
        if os.name != "nt":  # as JupyterLab does: a port whose last connection has just closed is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def check_port(port):
    """Stop with one line when the named port cannot be used."""
    if not (port.isdecimal() and 0 < int(port) < 65536):
        fail(f'--port {port}: a port is a number from 1 to 65535. Run: make lab LAB_ARGS="--port 8899"')
    if not is_free(int(port)):
        other = next((p for p in range(int(port) + 1, 65536) if is_free(p)), 8899)
        fail(f'Port {port} is taken by another program. Run: make lab LAB_ARGS="--port {other}"')


def provide_home():
    """Where the home folder cannot be written, give Jupyter and IPython folders inside the environment."""
    from jupyter_core.paths import jupyter_config_dir, jupyter_data_dir

    try:
        for folder in (jupyter_config_dir(), jupyter_data_dir()):
            os.makedirs(folder, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        home = Path(sys.prefix) / "home"
        print(f"The home folder cannot be written: settings go to {home}")
        for variable in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
            folder = home / variable.lower()
            folder.mkdir(parents=True, exist_ok=True)
            os.environ[variable] = str(folder)


def main(arguments):
    # The lesson is the page that opens, and the one in the address that JupyterLab prints.
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}"]
    command.append(f"--LabApp.default_url=/lab/tree/{FIRST_LESSON}")
    port = named_port(arguments)
    if port is not None:
        check_port(port)
        command.append("--ServerApp.port_retries=0")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers and rented GPU machines have no other user
    command += arguments

    provide_home()
    os.chdir(ROOT)
    if os.name == "nt":  # execv would detach JupyterLab from the console
        sys.exit(subprocess.call(command))
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main(sys.argv[1:])
