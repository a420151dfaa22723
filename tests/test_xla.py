"""The torch_xla calls that lessons share. What needs torch_xla runs in a process of its own, where it is installed."""

import subprocess
import sys

import pytest

from utils import xla
from utils.devices import missing_xla

TEXT = """IR {
  %0 = f32[] prim::Constant(), xla_shape=f32[]
  %1 = f32[3,2]{1,0} xla::device_data(), xla_shape=f32[3,2]{1,0}
  %2 = (f32[2,2]{1,0}, s64[2]{0}) aten::max(%1, %0), xla_shape=(f32[2,2]{1,0}, s64[2]{0})
  %3 = f32[2,2]{1,0} aten::add(%2.0, %1), xla_shape=f32[2,2]{1,0}, ROOT=0
}
"""


def test_graph_nodes_reads_numbers_operations_shapes_and_inputs():
    nodes = xla.graph_nodes(TEXT)
    assert [node.operation for node in nodes] == ["prim::Constant", "xla::device_data", "aten::max", "aten::add"]
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
assert names.count("aten::mm") == names.count("aten::relu") == names.count("aten::add") == 1, names
xla.synchronize()
assert [node.operation for node in xla.graph_nodes(xla.graph_text(y))] == ["xla::device_data"]
"""


@pytest.mark.skipif(missing_xla() is not None, reason=f"needs {missing_xla()}")
def test_graph_text_shows_what_is_recorded_and_nothing_after_a_sync():
    done = subprocess.run([sys.executable, "-c", GRAPH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
