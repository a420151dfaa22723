"""The torch_xla calls that lessons share: when TorchTPU replaces torch_xla, this is the file to change."""

import re
from typing import NamedTuple


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


def graph_text(*tensors):
    """What has been recorded for `tensors` and not run yet, as torch_xla's intermediate representation (IR).

    One line an operation: %number = shape operation(inputs). Runs nothing. A private call: torch_xla offers no public
    one for the IR (xm.get_stablehlo, which is public, shows what it is translated to).
    """
    import torch_xla

    return torch_xla._XLAC._get_xla_tensors_text(list(tensors))


class Node(NamedTuple):
    """One line of a graph: its number, the operation ("aten::mm"), the shape of its result, its inputs' numbers."""

    number: int
    operation: str
    shape: str
    inputs: tuple


def graph_nodes(text):
    """The lines of `graph_text` as a list of Nodes, inputs before what uses them. Needs no torch_xla."""
    lines = re.findall(r"%(\d+) = (.+?)(?:\{[\d,]*\})? ([\w:]+)\(([^)]*)\)", text)
    return [Node(int(n), op, shape, tuple(map(int, re.findall(r"%(\d+)", used)))) for n, shape, op, used in lines]
