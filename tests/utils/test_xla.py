"""The torch_xla calls that lessons share. What needs torch_xla runs in a process of its
own, where it is installed.
"""

import subprocess
import sys

import pytest

from course.needs import missing_xla
from utils import xla

pytestmark = pytest.mark.xla
# Two lines of each, as torch_xla 2.9.0 and PyTorch 2.13.0 print them.
TEXT = """IR {
  %1 = f32[3,2]{1,0} xla::device_data(), xla_shape=f32[3,2]{1,0}
  %2 = (f32[2,2]{1,0}, s64[2]{0}) aten::max(%1, %0), xla_shape=(f32[2,2]{1,0}, s64[2]{0})
  %3 = f32[2,2]{1,0} aten::add(%2.0, %1), xla_shape=f32[2,2]{1,0}, ROOT=0
  %0 = [Float[]] lazy_tensors::device_data(), device=CPU0, NodeType=N5torch4lazy10DeviceDataE
  %4 = [Float[10,15]] aten::mm(%3, %1), ROOT=0, NodeType=N5torch4lazy2MmE
}
"""  # noqa: E501


def test_a_graph_has_a_line_an_operation_with_number_shape_name_and_inputs():
    assert xla._graph_lines(TEXT) == [
        "%1 = f32[3,2] xla::device_data()",
        "%2 = (f32[2,2]{1,0}, s64[2]{0}) aten::max(%1, %0)",
        "%3 = f32[2,2] aten::add(%2.0, %1)",
        "%0 = [Float[]] lazy_tensors::device_data()",
        "%4 = [Float[10,15]] aten::mm(%3, %1)",
    ]
    assert xla._graph_lines("IR {\n}\n") == []


# A process of its own: a recorder that has started stays.
LAZY = """
import torch
from utils import xla

lazy = xla.lazy_device()
assert type(lazy).__name__ == KIND and type(xla.lazy_device()) is type(lazy)
x = torch.ones(2, 3, device=lazy.device())
w = torch.ones(3, 2, device=lazy.device(), requires_grad=True)
lazy.sync()
start = lazy.counts()
y = (x @ w).relu() + 1
lines = lazy.graph(y)
names = " ".join(lines)
for name in ("aten::mm(", "aten::relu(", "aten::add("):
    assert names.count(name) == 1, names
assert lazy.counts() == start
assert y.sum().item() == 16 and lazy.counts().since(start) == (1, 1)
assert lazy.graph(y) == lines
lazy.sync()
assert lazy.counts().since(start) == (2, 2) and len(lazy.graph(y)) == 1
z = (x @ w).relu() + 1
lazy.sync()
assert lazy.counts().since(start) == (2, 3)
before = lazy.fallbacks()
x.median()
assert set(lazy.fallbacks() - before) == {"aten::median"}
(x @ w).sum().backward()
assert w.grad.tolist() == [[2, 2]] * 3
"""


def _run(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_lazy_device_records_counts_and_falls_back():
    kind = "OwnLazyDevice" if missing_xla() else "LazyDevice"
    _run(LAZY.replace("KIND", repr(kind)))


GONE = """
import sys
import torch
from course import cells
from utils import xla

sys.modules["torch._lazy.ts_backend"] = None
try:
    xla.lazy_device()
except ImportError as error:
    assert "`torch._lazy.ts_backend`, a private name" in cells._why_it_ends(error)
else:
    raise AssertionError
"""


@pytest.mark.slow
@pytest.mark.skipif(missing_xla() is None, reason="torch_xla stands in its place")
def test_where_pytorchs_own_lazy_device_has_gone_only_a_cell_ends():
    _run(GONE)


HLO = """
  %all-reduce = f32[] all-reduce(%fusion), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%add
  %all-reduce.1 = (f32[4,4]{1,0:T(8,128)}, bf16[10]{0}) all-reduce(%a, %b), channel_id=2
  %all-gather-start = (f32[2,4]{1,0}, f32[8,4]{1,0}) all-gather-start(%p), channel_id=3, dimensions={0}
  %all-gather-done = f32[8,4]{1,0} all-gather-done(%all-gather-start)
  %all-reduce-start = (f32[4]{0}, s64[2]{0}) all-reduce-start(%c, %d), channel_id=4
  %reduce-scatter = s8[3]{0} reduce-scatter(%g), dimensions={0}
  ROOT %tuple = (f32[], f32[8,4]{1,0}) tuple(%all-reduce, %all-gather-done)
"""  # noqa: E501 (as XLA prints it)


def test_collectives_reads_kinds_shapes_and_bytes():
    assert xla.collectives(HLO) == [
        ["all-reduce", "f32[]", 4],
        ["all-reduce", "f32[4,4] bf16[10]", 84],
        ["all-gather", "f32[8,4]", 128],
        ["all-reduce", "f32[4] s64[2]", 32],
        ["reduce-scatter", "s8[3]", 3],
    ]


SHARDED = """
import os, sys
folder = sys.argv[1]
os.environ["CPU_NUM_DEVICES"] = "4"
os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
import numpy as np
import torch
import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from utils import xla

xr.use_spmd()
n = xr.global_runtime_device_count()
x, y = torch.ones(6, 8).to("xla"), torch.ones(3).to("xla")
xs.mark_sharding(x, xs.Mesh(np.arange(n), (n,), ("all",)), (None, "all"))
columns = [[8 * d // n, 8 * (d + 1) // n] for d in range(n)]
assert xla.held(x) == [[[0, 6], its] for its in columns], xla.held(x)
assert xla.held(y) == [[[0, 3]]] * n
before = xla.programs(folder)
assert (x @ x.t()).sum().item() == 288
programs = [path.read_text() for path in xla.programs(folder) - before]
kinds = [found[0] for text in programs for found in xla.collectives(text)]
assert kinds and set(kinds) == {"all-reduce"} or n == 1, kinds
"""


@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_blocks_and_collectives_of_a_sharded_product(tmp_path):
    _run(SHARDED, tmp_path)
