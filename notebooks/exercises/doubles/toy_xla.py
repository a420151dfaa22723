"""Calls of torch_xla on devices that are not there: what ends a step and makes a
program, and who holds which part of a tensor. Nothing is compiled, and no torch_xla is
needed.
"""

import contextlib
import functools
import math
import operator
from typing import NamedTuple

import torch

from simulate.sharding import blocks


class ToyXLA:
    """Calls of `torch_xla` that start the runtime and end a step. Its device is `meta`,
    which has shapes and no numbers: what needs a number raises.

    started: whether device() was called
    recorded: what is recorded and has not run yet, as text to which the caller adds
    programs: what each program held, in order
    """

    def __init__(self):
        self.started, self.recorded, self.programs = False, "", []

    def device(self, index=None) -> torch.device:
        self.started = True
        return torch.device("meta")

    def sync(self, wait=False, reset_scope=True) -> None:
        if self.recorded:
            self.programs.append(self.recorded)
            self.recorded = ""

    @contextlib.contextmanager
    def step(self):
        self.sync()
        yield
        self.sync()

    def compile(self, f=None, full_graph=False, name=None, max_different_graphs=None):
        # as a decorator, step() begins anew at each call
        return self.step() if f is None else self.step()(f)


class Mark(NamedTuple):
    """A tensor that was marked. blocks: of each device, as `sharding.blocks` has it."""

    tensor: torch.Tensor
    mesh: "ToyMesh"
    spec: tuple
    blocks: list


class ToySpmd:
    """`Mesh` and `mark_sharding` of torch_xla.distributed.spmd, for n devices, with the
    checks and errors of torch_xla 2.9. marked: a list of Mark.
    """

    def __init__(self, n: int):
        self.Mesh, self.marked = functools.partial(ToyMesh, n), []

    def mark_sharding(self, t, mesh, partition_spec):
        if not isinstance(mesh, ToyMesh):
            kind = type(mesh).__name__
            raise TypeError(f"the second argument must be a Mesh, not a {kind}")
        spec = tuple(
            mesh.axis_names[axis] if isinstance(axis, int) else axis
            for axis in partition_spec
        )
        held = blocks(t.shape, mesh.shape(), spec)
        for mark in self.marked:
            if mark.tensor is t and any(mark.spec) and mark.blocks != held:
                raise RuntimeError("Existing annotation must be cleared first")
        self.marked.append(Mark(t, mesh, spec, held))
        return t


class ToyMesh:
    """n devices in an order, with a size and a name for each axis."""

    def __init__(self, n, device_ids, mesh_shape, axis_names=None):
        self.device_ids = [operator.index(device) for device in device_ids]
        self.mesh_shape = tuple(map(operator.index, mesh_shape))
        axes, size = len(self.mesh_shape), math.prod(self.mesh_shape)
        self.axis_names = tuple(axis_names or (f"axis {k}" for k in range(axes)))
        assert len(self.device_ids) == n, (
            f"Number of device IDs ({len(self.device_ids)}) must match the global"
            f" number of devices ({n})"
        )
        assert size == n, f"Number of device IDs ({n}) must match mesh size ({size})"
        assert len(self.axis_names) == axes, (
            f"Number of axis names ({len(self.axis_names)}) must match mesh dimensions"
            f" ({axes})"
        )

    def shape(self) -> dict[str, int]:
        return dict(zip(self.axis_names, self.mesh_shape, strict=True))
