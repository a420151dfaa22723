"""The device that is meant where none is named."""

import torch


def pick_device() -> torch.device:
    """The accelerator that PyTorch sees on this machine, or the CPU, without an index:
    device(type='cuda').
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return accelerator or torch.device("cpu")
