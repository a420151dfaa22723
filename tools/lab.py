"""Open JupyterLab on the first lesson: python tools/lab.py [arguments of JupyterLab]

JupyterLab listens on this computer only, with a token, and takes the next port if its own is taken (its defaults).
"""

import os
import sys
import tempfile
from pathlib import Path

from jupyter_core.paths import jupyter_config_dir, jupyter_data_dir
from jupyterlab.labapp import LabApp

ROOT = Path(__file__).resolve().parent.parent


def provide_home():
    """Where Jupyter cannot write into the home folder, take one inside the environment."""
    try:
        for folder in (jupyter_config_dir(), jupyter_data_dir()):
            os.makedirs(folder, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        home = Path(sys.prefix) / "home"
        print(f"The home folder cannot be written: settings go to {home}")
        home.mkdir(exist_ok=True)
        os.environ["HOME"] = str(home)


if __name__ == "__main__":
    provide_home()
    # The lesson is the page that opens, and the one in the address that JupyterLab prints. Containers and rented GPU
    # machines have no user but root.
    options = [f"--ServerApp.root_dir={ROOT}", "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"]
    LabApp.launch_instance([*options, "--allow-root", *sys.argv[1:]])
