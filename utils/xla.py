"""The torch_xla calls that lessons share: when TorchTPU replaces torch_xla, this is the file to change."""


def start():
    """Compile and start what was recorded lazily, as far as somebody still holds a result. Does not wait."""
    import torch_xla

    torch_xla.sync()


def synchronize():
    """The same, and return when the XLA device is done.

    torch_xla.sync() alone does not wait (seen on torch_xla 2.9.0, with wait=True neither).
    """
    import torch_xla.core.xla_model

    start()
    torch_xla.core.xla_model.wait_device_ops()
