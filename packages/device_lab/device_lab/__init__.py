"""Functions for your own training loop: which lines wait for the device, who sets the
pace, what a step holds in memory, what was left behind, whether compiling pays.

Importing it touches no device, starts no thread, reads no network.
"""

import importlib

__version__ = "0.1.0"

_MODULES = {  # public name -> its module, loaded when the name is first used
    "LabError": "errors",
    "busy": "trace",
    "does_it_pay": "compiling",
    "find_waits": "waits",
    "left_behind": "placement",
    "measure": "timing",
    "measure_together": "timing",
    "peak": "memory",
    "rehearse": "memory",
    "speedup": "timing",
    "who_waits": "loader",
}
__all__ = list(_MODULES)


def __getattr__(name):
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return [*__all__, "__version__"]
