import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if device.type == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
nccl = device.type == "cuda" and dist.is_nccl_available()
dist.init_process_group("nccl" if nccl else "gloo")
torch.manual_seed(0)
x = torch.randn(960, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))
batch_size = 32 // dist.get_world_size()
loader = DataLoader(data, batch_size, sampler=DistributedSampler(data))
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
for part in [*model, model]:
    fully_shard(part, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
whole = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
step, done, loss = 0, 0, torch.tensor(torch.nan)
if os.path.exists("run.pt"):
    run = torch.load("run.pt", map_location="cpu", weights_only=True)
    state_dict.set_model_state_dict(model, run["model"], options=whole)
    states = run["optimizer"]
    state_dict.set_optimizer_state_dict(model, optimizer, states, options=whole)
    done = run["done"]
print(f"{done} steps are done")
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        step += 1
        if step <= done:
            continue
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        if step % 10 == 0:  # on all ranks: each has a part of the whole
            weights, states = state_dict.get_state_dict(model, optimizer, options=whole)
        if dist.get_rank() == 0 and step % 10 == 0:
            run = {"model": weights, "done": step, "optimizer": states}
            torch.save(run, "run.pt.new")
            os.replace("run.pt.new", "run.pt")
print(f"loss of the last batch: {loss.item():.3f}")
weights = state_dict.get_model_state_dict(model, options=whole)
if dist.get_rank() == 0:
    torch.save(weights, "model.pt")
dist.destroy_process_group()
if not nccl:  # DTensor keeps the group, and gloo's threads: leave at once
    sys.stdout.flush()
    os._exit(0)
