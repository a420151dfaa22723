"""The torch_xla calls that lessons share: when TorchTPU replaces torch_xla, this is the file to change."""


def synchronize():
    """Compile and run what was recorded lazily, and return when the XLA device is done.

    torch_xla.sync() starts the work and does not wait (seen on torch_xla 2.9.0, with wait=True neither).
    """
    import torch_xla
    import torch_xla.core.xla_model

    torch_xla.sync()
    torch_xla.core.xla_model.wait_device_ops()
