"""The torch_xla calls that lessons share. What needs torch_xla runs in a process of its
own, where it is installed.
"""

import subprocess
import sys

import pytest

from utils import xla
from utils.needs import missing_xla

TEXT = """IR {
  %0 = f32[] prim::Constant(), xla_shape=f32[]
  %1 = f32[3,2]{1,0} xla::device_data(), xla_shape=f32[3,2]{1,0}
  %2 = (f32[2,2]{1,0}, s64[2]{0}) aten::max(%1, %0), xla_shape=(f32[2,2]{1,0}, s64[2]{0})
  %3 = f32[2,2]{1,0} aten::add(%2.0, %1), xla_shape=f32[2,2]{1,0}, ROOT=0
}
"""  # noqa: E501 (as XLA prints it)


def test_graph_nodes_reads_numbers_operations_shapes_and_inputs():
    nodes = xla.graph_nodes(TEXT)
    operations = [node.operation for node in nodes]
    assert operations[:2] == ["prim::Constant", "xla::device_data"]
    assert operations[2:] == ["aten::max", "aten::add"]
    assert nodes[0] == (0, "prim::Constant", "f32[]", ())
    assert nodes[1].shape == "f32[3,2]" and nodes[3].inputs == (2, 1)
    assert xla.graph_nodes("IR {\n}\n") == []


GRAPH = """
import torch, torch_xla
from utils import xla

x = torch.ones(2, 3, device="xla")
xla.synchronize()
y = (x @ x.t()).relu() + 1
names = [node.operation for node in xla.graph_nodes(xla.graph_text(y))]
for name in ("aten::mm", "aten::relu", "aten::add"):
    assert names.count(name) == 1, names
xla.synchronize()
names = [node.operation for node in xla.graph_nodes(xla.graph_text(y))]
assert names == ["xla::device_data"]
"""


@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_graph_text_shows_what_is_recorded_and_nothing_after_a_sync():
    done = subprocess.run([sys.executable, "-c", GRAPH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
    done = subprocess.run(
        [sys.executable, "-c", SHARDED, tmp_path],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
