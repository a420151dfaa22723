"""PyTorch's modes at the bottom of the script's own, so that those may end before ours.

A mode's own __exit__ pops whatever is on top, so neither of them is called here. Nor
are the flags set that tell the compiler of a mode: the script's modes would put them
back in another order. Compiled functions have to run eagerly by other means.
"""

from torch import overrides
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode


def enter_below(mode: TorchFunctionMode | TorchDispatchMode) -> None:
    """What PyTorch wants at the bottom stays there: a default device, and
    FakeTensorMode and its like, which it keeps apart.
    """
    module, stack = _stack(mode)
    above = [_pop(module) for each in stack if not _stays(each)]
    module._push_mode(mode)
    _put_back(module, above)


def take_out(mode: TorchFunctionMode | TorchDispatchMode) -> bool:
    """From wherever it is. False if it is not there: in another thread, within the
    mode's own call, or where the script has taken all modes off for a moment.
    """
    module, stack = _stack(mode)
    if not any(each is mode for each in stack):
        return False
    above = []
    while (top := _pop(module)) is not mode:
        above.append(top)
    _put_back(module, above)
    return True


def _stack(mode):
    if isinstance(mode, TorchFunctionMode):
        return overrides, overrides._get_current_function_mode_stack()
    return dispatch, dispatch._get_current_dispatch_mode_stack()


def _pop(module):
    return module._pop_mode()


def _put_back(module, modes):
    for each in reversed(modes):
        module._push_mode(each)


def _stays(mode):
    """Not `with torch.device(…):`, which pops what is on top, as other modes do."""
    default = isinstance(mode, DeviceContext) and hasattr(mode, "old_device")
    return default or hasattr(mode, "_mode_key")
