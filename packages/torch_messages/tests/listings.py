"""Listings in the style of old tutorials, and which entries each should lead to.

The first line of a listing says what is right: an entry ("memory/cached"), a lesson
that is named where no entry fits ("01"), or nothing where nothing is old: then no entry
is to be shown. Of several right answers one must be among those that are shown. A line
"also" names other entries that are true of it and may be shown, too.
"""

import re
from typing import NamedTuple

PRELUDE = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = (
    torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
)
x = torch.ones(4, 8)
net = nn.Linear(8, 2)
"""


class Listing(NamedTuple):
    """right, also: what must and what may be shown (sets of ids and lessons).
    source: the code.
    """

    right: set
    also: set
    source: str


def _read(text):
    right, also, source = re.fullmatch(
        r"(?s)\s*# right:(.*?)\n(?:# also:(.*?)\n)?(.*)", text
    ).groups("")
    return Listing(set(right.split()), set(also.split()), source.strip("\n"))


SOURCES = {
    "product on the GPU": """
# right: detection/cuda-or-cpu streams/synchronize streams/cold-run
import time

if torch.cuda.is_available():
    device = torch.device("cuda")
    a = torch.randn(1000, 2000, device=device)
    b = torch.randn(2000, 1500, device=device)
    start = time.time()
    c = torch.matmul(a, b)
    torch.cuda.synchronize()
    print("seconds:", time.time() - start)
else:
    print("no GPU")
""",
    "Accelerate": """
# right: 15
# also: accelerate/loop
from accelerate import Accelerator

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
""",
    "devices": """
# right: tpu/device-tpu
cpu = torch.device("cpu")
gpu = torch.device("cuda:0")
tpu = torch.device("tpu")
print(cpu, gpu, tpu)
""",
    "tensors": """
# right: movement/not-compiled detection/ordinal
cpu_tensor = torch.ones(2, 2)
gpu_tensor = cpu_tensor.to("cuda")
gpu_tensor = cpu_tensor.cuda()
second = cpu_tensor.to("cuda:1")
back = gpu_tensor.cpu()
""",
    "DDP on a CPU": """
# right: distributed/device-ids
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

os.environ["MASTER_ADDR"] = "localhost"
os.environ["MASTER_PORT"] = "0"
rank = 0
dist.init_process_group("gloo", rank=rank, world_size=1)
model = DDP(nn.Linear(10, 10), device_ids=[rank])
""",
    "AMP": """
# right: amp/autocast amp/scaler
# also: amp/cuda-on-cpu amp/scaler-without-cuda
from torch.cuda.amp import GradScaler, autocast

scaler = GradScaler()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with autocast():
    loss = net(x).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    "training on a TPU": """
# right: tpu/parallel-loader tpu/optimizer-step tpu/spawn
# also: tpu/is-there tpu/mark-step tpu/no-package
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp

def train(index):
    device = xm.xla_device()
    model = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = pl.ParallelLoader(torch.utils.data.DataLoader(x), [device])
    for batch in loader.per_device_loader(device):
        optimizer.zero_grad()
        model(batch).sum().backward()
        xm.optimizer_step(optimizer)

xmp.spawn(train, nprocs=8)
""",
    "install": """
# right: 01
# also: detection/no-wheel
pip3 install torch torchvision torchaudio --extra-index-url https://download.pytorch.org/whl/cu116
""",
    "names of devices": """
# right:
cpu = torch.device("cpu:0")
gpu = torch.device("cuda:0")
print(cpu, gpu)
""",
    "is there one": """
# right: detection/cuda-or-cpu 01
# also: detection/available-false
print(torch.cuda.is_available())
""",
    "race and cure": """
# right: streams/host-wait
# also: streams/synchronize
s = torch.cuda.Stream()
a = torch.empty((100, 100), device="cuda").normal_(0.0, 1.0)
torch.cuda.synchronize()
with torch.cuda.stream(s):
    b = torch.sum(a)
torch.cuda.synchronize()
print(b)
""",
    "memory, cached": """
# right: memory/cached
# also: memory/max-cached memory/empty-cache
print(torch.cuda.memory_cached())
print(torch.cuda.max_memory_cached())
torch.cuda.empty_cache()
""",
    "pin": """
# right: streams/pin-then-copy
# also: movement/id
a = torch.randn(3, 3)
b = a.pin_memory()
print(a.is_pinned(), b.is_pinned(), id(a) == id(b))
c = b.to(device, non_blocking=True)
""",
    "Tensor on a GPU": """
# right: movement/legacy-constructor
# also: movement/big-t
x = torch.Tensor([1.0, 2.0], device="cuda")
print(x)
""",
    "check": """
# right: detection/cuda-or-cpu detection/name
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if torch.cuda.is_available():
    print(torch.cuda.device_count(), torch.cuda.get_device_name(0))
print("using", device)
""",
    "set a device": """
# right: detection/ordinal
torch.cuda.set_device(1)
print(torch.cuda.current_device())
""",
    "cleanup": """
# right: memory/empty-cache
import gc

y = torch.randn(100, 100)
del y
gc.collect()
torch.cuda.empty_cache()
""",
    "memory": """
# right:
print(torch.cuda.memory_allocated() / 1024**2)
print(torch.cuda.memory_reserved() / 1024**2)
print(torch.cuda.max_memory_allocated() / 1024**2)
""",
    "tips": """
# right: memory/set-to-none
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
with torch.no_grad():
    net(x)
optimizer.zero_grad(set_to_none=True)
loss = F.mse_loss(net(x), torch.ones(4, 2))
loss.backward()
optimizer.step()
""",
    "DDP": """
# right: distributed/nothing-starts distributed/master-addr
# also: distributed/nccl
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, world_size):
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    dist.destroy_process_group()

if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    mp.spawn(train, args=(world_size,), nprocs=world_size)
""",
    "DDP, cut out": """
# right: distributed/undefined
# also: distributed/nccl distributed/device-ids
import torch.distributed as dist

dist.init_process_group(backend="nccl", rank=rank, world_size=world_size)
model = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
""",
    "DDP, no sampler": """
# right: distributed/no-sampler
# also: distributed/no-group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

model = DDP(net)
loader = DataLoader(x, batch_size=4, shuffle=True)
for batch in loader:
    model(batch).sum().backward()
""",
    "sampler": """
# right: distributed/same-order
from torch.utils.data import DataLoader, DistributedSampler

sampler = DistributedSampler(x, num_replicas=2, rank=0)
loader = DataLoader(x, sampler=sampler)
for epoch in range(3):
    for batch in loader:
        pass
""",
    "launcher": """
# right: distributed/launch 11
python -m torch.distributed.launch --nproc_per_node=4 train.py
""",
    "torchrun, the script": """
# right: distributed/no-rank
import os
import torch.distributed as dist

dist.init_process_group(backend="gloo")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
""",
    "loader": """
# right: data/many-workers data/pin-without-gpu data/workers-for-little
from torch.utils.data import DataLoader

loader = DataLoader(
    x,
    batch_size=2,
    num_workers=64,
    pin_memory=True,
    prefetch_factor=2,
    persistent_workers=True,
)
""",
    "CUDA graph": """
# right: graphs/capturable graphs/inputs-in-capture
# also: movement/not-compiled streams/host-wait memory/set-to-none
model = nn.Linear(8, 2).cuda()
optimizer = torch.optim.Adam(model.parameters())
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(4, 8, device="cuda")).sum().backward()
        optimizer.step()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    data = torch.randn(4, 8, device="cuda")
    loss = model(data).sum()
    loss.backward()
    optimizer.step()
for _ in range(10):
    data = torch.randn(4, 8, device="cuda")
    graph.replay()
""",
    "compiled twice": """
# right: graphs/compiled-twice
model = torch.compile(net)
model = torch.compile(model, mode="reduce-overhead")
model = torch.compile(model, mode="max-autotune")
""",
    "profiler": """
# right: graphs/activity-cuda graphs/cuda-time
# also: profiler/recipe
from torch.profiler import ProfilerActivity, profile, record_function

activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=activities, record_shapes=True) as prof:
    with record_function("inference"):
        net(x)
print(len(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10)) > 0)
""",
    "memory profile": """
# right: 09
# also: profiler/recipe
from torch.profiler import ProfilerActivity, profile

with profile(
    activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
) as prof:
    net(x)
print(len(prof.key_averages().table(sort_by="self_cpu_memory_usage", row_limit=5)) > 0)
""",
    "out of memory": """
# right: memory/empty-cache memory/oom-class memory/cuda-oom
try:
    y = net(x)
except RuntimeError as error:
    if "out of memory" in str(error):
        torch.cuda.empty_cache()
    else:
        raise
""",
    "ensure_same_device": """
# right: 02
# also: movement/hidden-moves
def ensure_same_device(*tensors):
    device = tensors[0].device
    return [tensor.to(device) for tensor in tensors]

a, b = ensure_same_device(torch.randn(2), torch.randn(2))
print((a + b).device)
""",
    "save and load": """
# right: movement/whole-model
torch.save(net, "model.pth")
model = torch.load("model.pth")
model.eval()
""",
    "save and load weights": """
# right:
torch.save(net.state_dict(), "model.pth")
net.load_state_dict(torch.load("model.pth", map_location=device, weights_only=True))
net.to(device)
""",
    "wrapped and sent": """
# right: distributed/data-parallel distributed/wrapped-first movement/not-compiled
model = torch.nn.DataParallel(net, device_ids=[0, 1]).cuda()
""",
    "a device as a text": """
# right: detection/cuda-or-cpu
device = 'cuda:0' if torch.cuda.is_available() else 'cpu'
""",
    "a convolutional network": """
# right:
class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(8 * 14 * 14, 10)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv(x)))
        return self.fc(x.flatten(1))

model = CNN().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
for epoch in range(2):
    output = model(torch.randn(4, 1, 28, 28, device=device))
    loss = F.cross_entropy(output, torch.zeros(4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
""",
    "seeds": """
# right:
torch.manual_seed(42)
torch.cuda.manual_seed_all(42)
torch.backends.cudnn.deterministic = True
""",
}
LISTINGS = {name: _read(text) for name, text in SOURCES.items()}
