"""Functions for your own training loop: which lines wait for the device, who sets the
pace, what a step holds in memory, what was left behind, whether compiling pays.

Importing it touches no device, starts no thread, reads no network.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from ._kit.compiling import does_it_pay as does_it_pay
    from ._kit.errors import LabError as LabError
    from ._kit.loader import who_waits as who_waits
    from ._kit.memory import peak as peak
    from ._kit.memory import rehearse as rehearse
    from ._kit.placement import left_behind as left_behind
    from ._kit.timing import measure as measure
    from ._kit.timing import measure_together as measure_together
    from ._kit.timing import speedup as speedup
    from ._kit.trace import busy as busy
    from ._kit.waits import find_waits as find_waits

__version__ = "0.1.0"
__all__ = [
    "LabError",
    "busy",
    "does_it_pay",
    "find_waits",
    "left_behind",
    "measure",
    "measure_together",
    "peak",
    "rehearse",
    "speedup",
    "who_waits",
]
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


def __getattr__(name: str) -> _typing.Any:
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"._kit.{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
