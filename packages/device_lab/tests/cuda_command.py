"""`device-lab` where there is a GPU: waits and memory are the device's own, parts are
timed by its events too. How long anything takes is not asked.
"""

import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(1600, 64), torch.randint(10, (1600,)))
kept = []
for x, y in DataLoader(data, batch_size=16, pin_memory=True):
    x, y = x.to("cuda"), y.to("cuda", non_blocking=True)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append((loss, torch.zeros(64, 64, device="cuda")))
    if len(kept) % 5 == 0:
        print(loss.item())
print(torch.cuda.memory.memory_allocated() > 0)
"""


def test_a_report_on_a_gpu(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    old = filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(old)}
    ran, alone = (
        subprocess.run(
            [sys.executable, *options, path.name],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        for options in (["-m", "device_lab", "--json", "report.json"], [])
    )
    assert ran.returncode == alone.returncode == 0, ran.stderr
    assert ran.stdout == alone.stdout and "True" in ran.stdout
    facts = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert facts["device"] == "cuda:0" and facts["device_name"]
    rows = [row for row in facts["waits"]["rows"] if row["each"]]
    assert [(row["where"], row["times"]) for row in rows] == [("train.py:12", 1)]
    rare = [row for row in facts["waits"]["rows"] if not row["each"]]
    assert [(row["where"], row["every"]) for row in rare] == [("train.py:19", 5)]
    assert facts["memory"]["keeper"]["name"] == "kept"
    assert facts["memory"]["grows"] >= 64 * 64 * 4
    assert facts["pace"]["device_parts"]["backward"] >= 0
    assert not [note for note in facts["notes"] if "error" in note]
