"""What PyTorch says of its devices on another machine."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch


@contextlib.contextmanager
def machine(built: str | None, there: bool) -> Iterator[None]:
    """Within it, PyTorch says what it says on a machine whose build knows the
    accelerator `built` ("cuda", "mps", "xpu", or None for a CPU build), of which one is
    `there`, or none.

    Only questions are answered: of torch.accelerator, torch.backends, torch.version and
    the modules cuda, mps and xpu, as in PyTorch 2.9 to 2.15. Nothing can be put there.
    """

    def current_accelerator(check_available=False):
        known = built and (there or not check_available)
        return torch.device(built) if known else None

    def says(answer):
        return lambda *args, **kwargs: answer

    def is_there(kind):
        return there and kind == built

    answers = {
        "accelerator.current_accelerator": current_accelerator,
        "accelerator.is_available": says(there),
        "accelerator.device_count": says(int(there)),
        "accelerator.current_device_index": says(0),
        "backends.cuda.is_built": says(built == "cuda"),
        "backends.mps.is_built": says(built == "mps"),
        "backends.mps.is_available": says(is_there("mps")),
        "cuda.is_available": says(is_there("cuda")),
        "cuda.device_count": says(int(is_there("cuda"))),
        "cuda.get_device_capability": says((7, 5)),
        "cuda.get_arch_list": says(["sm_75"]),
        "mps.is_available": says(is_there("mps")),
        "version.cuda": "13.0" if built == "cuda" else None,
        "version.hip": None,
        "xpu.is_available": says(is_there("xpu")),
        "xpu.device_count": says(int(is_there("xpu"))),
    }
    with contextlib.ExitStack() as stack:
        for name, value in answers.items():
            stack.enter_context(mock.patch(f"torch.{name}", value))
        yield
