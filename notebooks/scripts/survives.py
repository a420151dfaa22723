import os

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # imported later, it would keep the group open
from torch import nn
from torch.nn.parallel import DistributedDataParallel
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
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
step, done, loss = 0, 0, torch.tensor(torch.nan)
if os.path.exists("run.pt"):
    run = torch.load("run.pt", map_location=device, weights_only=True)
    model.module.load_state_dict(run["model"])
    optimizer.load_state_dict(run["optimizer"])
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
        if dist.get_rank() == 0 and step % 10 == 0:
            run = {"model": model.module.state_dict(), "done": step}
            run["optimizer"] = optimizer.state_dict()
            torch.save(run, "run.pt.new")
            os.replace("run.pt.new", "run.pt")
print(f"loss of the last batch: {loss.item():.3f}")
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
del model
dist.destroy_process_group()
