import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_backend  # noqa: F401 (knows the backend "xla")
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main(rank):
    device = torch_xla.device()
    dist.init_process_group("xla", init_method="xla://")
    torch.manual_seed(0)
    x = torch.randn(960, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    batch_size = 32 // dist.get_world_size()
    loader = DataLoader(data, batch_size, sampler=DistributedSampler(data))
    batches = pl.MpDeviceLoader(loader, device)
    model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
    print(f"loss of the last batch: {loss.item():.3f}")
    xm.save(model.module.state_dict(), "model.pt")
    del model
    dist.destroy_process_group()


if __name__ == "__main__":
    torch_xla.launch(main)
