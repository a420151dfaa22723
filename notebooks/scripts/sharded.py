import os

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
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
print(f"loss of the last batch: {loss.item():.3f}")
options = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)
whole = state_dict.get_model_state_dict(model, options=options)
if dist.get_rank() == 0:
    torch.save(whole, "model.pt")
del model
dist.destroy_process_group()
