"""Who holds which block of a sharded tensor, and what a product of two sharded matrices
moves.

A mesh is a dict from the names of its axes to their sizes, such as {"data": 4, "model":
2}: device 0 stands at (0, 0), device 1 at (0, 1), row by row. A spec says for each
dimension of a tensor along which axis it is cut: a name, a tuple of names, or None for
"whole on all of them".
"""

import itertools
import math
from typing import NamedTuple

from device_lab import LabError


def blocks(shape: tuple, mesh: dict[str, int], spec: tuple) -> list[list[list[int]]]:
    """For each device, its block of a tensor: a list of [first, end) a dimension.

    A dimension of d elements in p parts has parts of ceil(d / p): the last ones may be
    smaller, or empty. So does XLA (and torch.chunk). With a tuple of axes, the first
    one counts slowest. LabError for a spec that does not fit.
    """
    _check(shape, mesh, spec)
    of_devices = []
    for place in itertools.product(*map(range, mesh.values())):
        at, block = dict(zip(mesh, place, strict=True)), []
        for size, axes in zip(shape, map(_axes, spec), strict=True):
            index = 0
            for axis in axes:
                index = index * mesh[axis] + at[axis]
            part = -(-size // _parts(axes, mesh))
            block.append([min(index * part, size), min((index + 1) * part, size)])
        of_devices.append(block)
    return of_devices


class Collective(NamedTuple):
    """A collective in groups of `ranks` devices along `axis`. size: bytes of its result
    on a device.
    """

    kind: str
    axis: str
    size: int
    ranks: int

    def sent(self) -> float:
        """Bytes that each device sends, in a ring."""
        rounds = 2 if self.kind == "all-reduce" else 1
        return rounds * (self.ranks - 1) / self.ranks * self.size


def product(
    rows: int,
    inner: int,
    columns: int,
    mesh: dict[str, int],
    x: tuple,
    w: tuple,
    width: int = 4,
) -> tuple[tuple, list[Collective]]:
    """What X @ W moves: (the result's spec, a list of Collective). X is rows × inner, W
    is inner × columns.

    x, w: specs, with one axis or None a dimension
    width: bytes of a number

    The rules:
    1. One axis cannot cut rows and columns of the result: gather the smaller matrix.
    2. Cut along the same axis of the mesh, the inner dimensions fit: each device has a
       part of the sum, all-reduce.
    3. If one inner dimension is cut and the other is not: gather the matrix that is
       cut, or use that part of the other one that fits, where it is not cut along this
       axis, and all-reduce the result; what is smaller.
    XLA's partitioner mostly does the same (lesson 14 counts how often); where two cuts
    do not go together, it may move blocks to another axis first.
    """
    left = _Factor((rows, inner), list(x), mesh, width)
    right = _Factor((inner, columns), list(w), mesh, width)
    moved, summed = [], []
    for axis in mesh:
        if left.spec[0] == axis and right.spec[1] == axis:
            moved.append((left if rows < columns else right).gather(axis))
    for axis in mesh:
        if left.spec[1] == axis and right.spec[0] == axis:
            summed.append(axis)
        elif axis in (left.spec[1], right.spec[0]):
            cut, other = (left, right) if left.spec[1] == axis else (right, left)
            result = _size((rows, columns), (left.spec[0], right.spec[1]), mesh, width)
            if axis not in other.spec and result < cut.size_without(axis):
                summed.append(axis)
            else:
                moved.append(cut.gather(axis))
    out = (left.spec[0], right.spec[1])
    size = _size((rows, columns), out, mesh, width)
    moved += [Collective("all-reduce", axis, size, mesh[axis]) for axis in summed]
    return out, [c for c in moved if c.ranks > 1]


class _Factor:
    """A matrix of a product, whose spec changes when it is gathered."""

    def __init__(self, shape, spec, mesh, width):
        _check(shape, mesh, spec)
        if not all(axes is None or isinstance(axes, str) for axes in spec):
            raise LabError(
                f"a product takes one axis or None a dimension, not {tuple(spec)}"
            )
        self.shape, self.spec, self.mesh, self.width = shape, spec, mesh, width

    def _without(self, axis):
        return [None if axes == axis else axes for axes in self.spec]

    def size_without(self, axis):
        """Bytes on a device if it were not cut along this axis."""
        return _size(self.shape, self._without(axis), self.mesh, self.width)

    def gather(self, axis):
        self.spec = self._without(axis)
        size = _size(self.shape, self.spec, self.mesh, self.width)
        return Collective("all-gather", axis, size, self.mesh[axis])


def _size(shape, spec, mesh, width):
    """Bytes of a device's block."""
    parts = [_parts(_axes(axes), mesh) for axes in spec]
    return width * math.prod(-(-d // p) for d, p in zip(shape, parts, strict=True))


def _axes(axes):
    if axes is None:
        return ()
    return (axes,) if isinstance(axes, str) else tuple(axes)


def _parts(axes, mesh):
    return math.prod(mesh[axis] for axis in axes)


def _check(shape, mesh, spec):
    used = [axis for axes in spec for axis in _axes(axes)]
    unknown = [axis for axis in used if axis not in mesh]
    if len(spec) != len(shape):
        raise LabError(
            f"a tensor with {len(shape)} dimensions needs a spec of as many, not"
            f" {len(spec)}"
        )
    if unknown:
        raise LabError(f"the mesh has no axis {unknown[0]!r}, only {', '.join(mesh)}")
    if len(used) != len(set(used)):
        raise LabError(f"an axis can cut one dimension only: {tuple(spec)}")
