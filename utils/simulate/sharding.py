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

from utils.messages import LabError


def blocks(shape: tuple, mesh: dict[str, int], spec: tuple) -> list[list[list[int]]]:
    """For each device, its block of a tensor: a list of [first, end) a dimension.

    A dimension of d elements in p parts has parts of ceil(d / p): the last ones may be
    smaller, or empty. So does XLA (and torch.chunk). With a tuple of axes, the first
    one counts slowest. LabError for a spec that does not fit.
    """
    _check(shape, mesh, spec)
    found = []
    for place in itertools.product(*map(range, mesh.values())):
        at, block = dict(zip(mesh, place, strict=True)), []
        for size, axes in zip(shape, map(_axes, spec), strict=True):
            index = 0
            for axis in axes:
                index = index * mesh[axis] + at[axis]
            part = -(-size // _parts(axes, mesh))
            block.append([min(index * part, size), min((index + 1) * part, size)])
        found.append(block)
    return found


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
        return (
            (2 if self.kind == "all-reduce" else 1)
            * (self.ranks - 1)
            / self.ranks
            * self.size
        )


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

    x, w: specs, with one axis or None a dimension. width: bytes of a number. The rules:
    1. Cut along the same axis of the mesh, the inner dimensions fit: each device has a part of the sum, all-reduce.
    2. If one inner dimension is cut and the other is not: gather the matrix that is cut, or use that part of the
       other one that fits, where it is not cut along this axis, and all-reduce the result; what is smaller.
    3. One axis cannot cut rows and columns of the result: gather the smaller matrix.
    XLA's partitioner mostly does the same: lesson 14 counts how often, and tests/simulate/test_sharding.py holds cases seen with
    torch_xla 2.9.0. Where two cuts do not go together, it may move blocks to another axis first.
    """
    shapes = {"x": (rows, inner), "w": (inner, columns)}
    spec = {"x": list(x), "w": list(w)}
    for name in "xw":
        _check(shapes[name], mesh, spec[name])
        if not all(axes is None or isinstance(axes, str) for axes in spec[name]):
            raise LabError(
                f"a product takes one axis or None a dimension, not {tuple(spec[name])}"
            )
    moved, summed = [], []

    def size(shape, spec):
        return width * math.prod(
            -(-d // _parts(_axes(axes), mesh))
            for d, axes in zip(shape, spec, strict=True)
        )

    def gather(name, axis):
        spec[name] = [None if axes == axis else axes for axes in spec[name]]
        moved.append(
            Collective("all-gather", axis, size(shapes[name], spec[name]), mesh[axis])
        )

    for axis in mesh:
        if spec["x"][0] == axis and spec["w"][1] == axis:
            gather("x" if rows < columns else "w", axis)
    for axis in mesh:
        cut = {"x": spec["x"][1] == axis, "w": spec["w"][0] == axis}
        if all(cut.values()):
            summed.append(axis)
        elif any(cut.values()):
            one, other = ("x", "w") if cut["x"] else ("w", "x")
            whole = size(
                shapes[one], [None if axes == axis else axes for axes in spec[one]]
            )
            if (
                axis not in spec[other]
                and size((rows, columns), (spec["x"][0], spec["w"][1])) < whole
            ):
                summed.append(axis)
            else:
                gather(one, axis)
    out = (spec["x"][0], spec["w"][1])
    for axis in summed:
        moved.append(
            Collective("all-reduce", axis, size((rows, columns), out), mesh[axis])
        )
    return out, [c for c in moved if c.ranks > 1]


def _axes(axes):
    return () if axes is None else (axes,) if isinstance(axes, str) else tuple(axes)


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
