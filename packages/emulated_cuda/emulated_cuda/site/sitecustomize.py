"""Python runs this at its start: under the emulated device, each `import torch` is
followed by device.install().

Without libemulator.so in LD_PRELOAD, or with EMULATOR_RUNTIME_ONLY, it does nothing.
"""

import os
import sys


def _follow_torch():
    import importlib.abc
    import importlib.machinery
    import importlib.util
    import pathlib

    class Loader(importlib.abc.Loader):
        def __init__(self, original):
            self.original = original

        def __getattr__(self, name):
            return getattr(self.original, name)

        def create_module(self, spec):
            return self.original.create_module(spec)

        def exec_module(self, module):
            module.__loader__ = module.__spec__.loader = self.original
            self.original.exec_module(module)
            # By its path: a program may have another package of the name `tests`
            path = pathlib.Path(__file__).resolve().parent.parent / "device.py"
            spec = importlib.util.spec_from_file_location("emulator_device", path)
            device = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(device)
            device.install()

    class Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name != "torch":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None and spec.loader is not None:
                spec.loader = Loader(spec.loader)
            return spec

    sys.meta_path.insert(0, Finder())


if "libemulator.so" in os.environ.get("LD_PRELOAD", "") and not os.environ.get(
    "EMULATOR_RUNTIME_ONLY"
):
    _follow_torch()
