"""Python runs this first in each process that `device-lab` starts. As soon as the
script has imported torch, the watch is installed; nothing is imported before that, so
what a script sets in os.environ before `import torch` still counts. Then the
sitecustomize runs that this one hides.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))


class AfterTorch:
    """A finder for torch alone: finds it as ever, and installs the watch after it."""

    looking = False

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or self.looking:
            return None
        self.looking = True
        try:  # it may only be asked whether there is a torch
            spec = importlib.util.find_spec("torch")
        finally:
            self.looking = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                del spec.loader.exec_module
                sys.meta_path.remove(self)
                execute(module)
                watch()

            spec.loader.exec_module = exec_module
        return spec


def watch():
    try:
        sys.path.append(PACKAGES)  # of another Python, or a checkout
        from device_lab._command.watch import install

        sys.path.pop()
        install()
    except Exception as error:  # the script runs on, unwatched
        print(f"device-lab: nothing is watched: {error!r}", file=sys.stderr)


def follow():
    """The sitecustomize that this one hides."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


follow()  # it may watch the import of torch, too: this one goes round it
if os.environ.get("DEVICE_LAB_WATCH"):
    if "torch" in sys.modules:
        watch()
    else:
        sys.meta_path.insert(0, AfterTorch())
