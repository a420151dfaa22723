"""Functions for your own training loop: which lines wait for the device, who sets the
pace, what a step holds in memory, what was left behind, whether compiling pays.

Importing it touches no device, starts no thread, reads no network.
"""

import typing as _typing


class _Static:
    """A name that type checkers take for true, and jedi, which completes names, knows
    to be false.
    """

    TYPE_CHECKING = False


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

if _Static.TYPE_CHECKING:  # classes of results: for annotations, not offered by Tab
    from ._kit.compiling import Pays as Pays
    from ._kit.loader import Pace as Pace
    from ._kit.loader import Part as Part
    from ._kit.memory import Peak as Peak
    from ._kit.memory import Rehearsed as Rehearsed
    from ._kit.placement import Left as Left
    from ._kit.placement import LeftBehind as LeftBehind
    from ._kit.timing import Measurement as Measurement
    from ._kit.timing import Speedup as Speedup
    from ._kit.trace import Busy as Busy
    from ._kit.waits import Wait as Wait
    from ._kit.waits import Waits as Waits

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
_MODULES = {  # loaded when one of its names is first used; classes are what comes back
    "compiling": "does_it_pay Pays",
    "errors": "LabError",
    "loader": "who_waits Pace Part",
    "memory": "peak rehearse Peak Rehearsed",
    "placement": "left_behind Left LeftBehind",
    "timing": "measure measure_together speedup Measurement Speedup",
    "trace": "busy Busy",
    "waits": "find_waits Wait Waits",
}


def __getattr__(name: str) -> _typing.Any:
    import importlib

    if name == "load_ipython_extension":  # %load_ext device_lab, then %%device_lab
        return importlib.import_module("._command.cli", __name__).add_magic
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"._kit.{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
