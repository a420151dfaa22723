"""A checkpoint that two processes saved in pieces is loaded by three, among which its
rows do not divide evenly.
"""

import pytest

from utils import launch

JOB = """
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0 if sys.argv[1] == "save" else 1)
model = torch.nn.Linear(8, 256)
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
state = get_model_state_dict(model)
if sys.argv[1] == "save":
    dcp.save(state, checkpoint_id="pieces")
else:
    dcp.load(state, checkpoint_id="pieces")
    set_model_state_dict(model, state)
total = model.weight.full_tensor().double().sum().item()
print(json.dumps([model.weight.to_local().shape[0], total]), flush=True)
# at once: PyTorch keeps the mesh, and so the group, to the end, where its threads may
# still run
os._exit(0)
"""


@pytest.mark.slow
def test_saved_by_two_loaded_by_three(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(JOB)
    saved = launch.torchrun(script, "save", processes=2).results()
    loaded = launch.torchrun(script, "load", processes=3).results()
    assert [rows for rows, _ in saved] == [128, 128]
    assert [rows for rows, _ in loaded] == [86, 86, 84]
    assert {total for _, total in saved} == {total for _, total in loaded}
