"""_command/waits: below the script's modes, and out again from wherever it is."""

import threading

import pytest
import torch
from torch import overrides
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import _python_dispatch as dispatch
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from device_lab._command.waits import enter_below, take_out


class Function(TorchFunctionMode):
    calls = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **kwargs or {})


class Dispatch(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **kwargs or {})


BOTH = pytest.mark.parametrize("kind", [Function, Dispatch])


def stacks():
    functions = overrides._get_current_function_mode_stack()
    return functions + dispatch._get_current_dispatch_mode_stack()


@pytest.fixture(autouse=True)
def nothing_stays():
    before = stacks()
    flag = dispatch._is_in_torch_dispatch_mode
    yield
    assert stacks() == before
    assert dispatch._is_in_torch_dispatch_mode == flag


def test_the_private_functions_are_there():
    """Each is used in waits.py; a PyTorch without one of them has to be looked at."""
    for module, stack in (
        (overrides, "_get_current_function_mode_stack"),
        (dispatch, "_get_current_dispatch_mode_stack"),
    ):
        assert getattr(module, stack)() == []
        mode = Function() if module is overrides else Dispatch()
        module._push_mode(mode)
        assert getattr(module, stack)() == [mode]
        assert module._pop_mode() is mode
    torch.set_default_device("meta")
    try:
        assert [type(each) for each in stacks()] == [DeviceContext]
        assert hasattr(stacks()[0], "old_device")
    finally:
        torch.set_default_device(None)
    with torch.device("meta"):
        assert [type(each) for each in stacks()] == [DeviceContext]
        assert not hasattr(stacks()[0], "old_device")
    assert hasattr(FakeTensorMode(), "_mode_key")


@BOTH
def test_the_scripts_mode_begins_before_and_ends_within(kind):
    script, ours = kind(), kind()
    with script:
        enter_below(ours)
        torch.ones(2)
        assert script.calls == ours.calls == 1
    torch.ones(2)
    assert script.calls == 1
    assert ours.calls == 2
    assert take_out(ours)
    torch.ones(2)
    assert ours.calls == 2


@BOTH
def test_the_scripts_mode_begins_within_and_ends_after(kind):
    script, ours = kind(), kind()
    enter_below(ours)
    with script:
        torch.ones(2)
        assert take_out(ours)
        torch.ones(2)
    assert ours.calls == 1
    assert script.calls == 2


@BOTH
def test_several_keep_their_order(kind):
    first, second, ours = kind(), kind(), kind()
    with first, second:
        enter_below(ours)
        assert stacks() == [ours, first, second]
        assert take_out(ours)
        assert stacks() == [first, second]


@BOTH
def test_what_is_not_there_is_not_taken_out(kind):
    ours, found = kind(), []
    assert not take_out(ours)
    enter_below(ours)
    thread = threading.Thread(target=lambda: found.append(take_out(ours)))
    thread.start()
    thread.join()
    assert found == [False]
    assert stacks() == [ours]
    assert take_out(ours)


@pytest.mark.parametrize("early", [True, False])
def test_with_torch_device_around(early):
    ours = Function()
    if not early:
        enter_below(ours)
    with torch.device("meta"):
        if early:
            enter_below(ours)
        before = ours.calls
        assert torch.ones(2).device.type == "meta"
        assert ours.calls > before
        if early:
            assert take_out(ours)
    if not early:
        assert take_out(ours)
    assert torch.ones(2).device.type == "cpu"


def test_with_torch_device_that_ends_within():
    ours = Function()
    with torch.device("meta"):
        enter_below(ours)
    before = ours.calls
    assert torch.ones(2).device.type == "cpu"
    assert ours.calls > before
    assert take_out(ours)


@pytest.mark.parametrize("set_at", ["before", "within"])
@pytest.mark.parametrize("end", ["within", "after"])
def test_set_default_device(set_at, end):
    ours = Function()
    if set_at == "within":
        enter_below(ours)
    torch.set_default_device("meta")
    try:
        if set_at == "before":
            enter_below(ours)
        before = ours.calls
        assert torch.ones(2).device.type == "meta"
        assert ours.calls > before
        if end == "after":
            assert take_out(ours)
        assert torch.ones(2).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert torch.ones(2).device.type == "cpu"
    assert take_out(ours) == (end == "within")


def test_fake_tensors_stay_below():
    fake, ours = FakeTensorMode(), Dispatch()
    with fake:
        enter_below(ours)
        assert stacks() == [fake, ours]
        x = torch.ones(2)
        assert type(x).__name__ == "FakeTensor"
        assert ours.calls == 1
    torch.ones(2)
    assert ours.calls == 2
    assert take_out(ours)


@BOTH
@pytest.mark.parametrize(
    "around",
    [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)],
    ids=["inference_mode", "autocast"],
)
def test_other_contexts_may_begin_and_end_anywhere(kind, around):
    ours = kind()
    with around():
        enter_below(ours)
        out = torch.ones(2, 2) @ torch.ones(2, 2)
    assert ours.calls >= 2
    with around():
        assert take_out(ours)
    assert out.tolist() == [[2, 2], [2, 2]]


def test_the_compiler_still_compiles_after_it():
    """The flags that make it give up are as they were."""
    script, ours = Dispatch(), Dispatch()
    with script:
        enter_below(ours)
    assert take_out(ours)
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert compiled
