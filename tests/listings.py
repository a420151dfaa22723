"""Listings in the style of old tutorials, and what the paste cell of lesson 16 should recommend for each.

LISTINGS: name → (what is right, source). Right is a row ("memory/cached"), a lesson that is named where no row fits
("01"), or "" where nothing is old: then no row is to be shown. Several right answers are separated by spaces; one of
them must be among those that are shown. ALSO: name → other rows that are true of that listing and may be shown, too.
"""

TRAINING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 1)

    def forward(self, x):
        return self.fc(x)

model = Net().to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data, target = torch.randn(64, 10).to(device), torch.randn(64, 1).to(device)
"""

LISTINGS = {
    "S0 product on the GPU": (
        "detection/cuda-or-cpu streams/synchronize streams/cold-run",
        """
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
    ),
    "S0 product on the TPU": (
        "tpu/is-there tpu/mark-step",
        """
try:
    import torch_xla.core.xla_model as xm
    tpu = xm.xla_device() is not None
except ImportError:
    tpu = False
if tpu:
    device = xm.xla_device()
    a = torch.randn(1000, 2000).to(device)
    c = torch.matmul(a, torch.randn(2000, 1500).to(device))
    xm.mark_step()
    print(c.shape)
else:
    print("no TPU")
""",
    ),
    "S0 pick a device": (
        "detection/cuda-or-cpu",
        """
def get_device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")

model = MyModel().to(get_device())
""",
    ),
    "S0 Accelerate": (
        "15",
        """
from accelerate import Accelerator

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
""",
    ),
    "S1 devices": (
        "tpu/device-tpu",
        """
cpu = torch.device("cpu")
gpu = torch.device("cuda:0")
tpu = torch.device("tpu")
print(cpu, gpu, tpu)
""",
    ),
    "S1 tensors": (
        "movement/not-compiled detection/ordinal",
        """
cpu_tensor = torch.ones(2, 2)
gpu_tensor = cpu_tensor.to("cuda")
gpu_tensor = cpu_tensor.cuda()
second = cpu_tensor.to("cuda:1")
back = gpu_tensor.cpu()
""",
    ),
    "S1 model": (
        "detection/cuda-or-cpu",
        """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(10, 5), nn.ReLU(), nn.Linear(5, 2))
model = model.to(device)
output = model(torch.randn(3, 10).to(device))
print(output.device)
""",
    ),
    "S1 loop with batches": (
        "",
        """
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(40, 8), torch.randn(40, 2)), batch_size=10)
for inputs, labels in loader:
    inputs, labels = inputs.to(device), labels.to(device)
    loss = nn.functional.mse_loss(net.to(device)(inputs), labels)
    loss.backward()
""",
    ),
    "S1 two devices in one model": (
        "",
        """
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16).to("cpu")
        self.second = nn.Linear(16, 4).to(device)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x.to(device))

print(Mixed()(torch.randn(2, 8)).shape)
""",
    ),
    "S1 no_grad": (
        "",
        """
net.eval()
with torch.no_grad():
    output = net(x)
    print(output.argmax(dim=1))
""",
    ),
    "S1 DDP by spawn": (
        "distributed/master-addr",
        """
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

def train(rank, world_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(nn.Linear(10, 10), device_ids=[rank])
    model(torch.randn(20, 10)).sum().backward()
    dist.destroy_process_group()

train(0, 1)
""",
    ),
    "S1 DDP on a CPU": (
        "distributed/device-ids",
        """
import os
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

os.environ["MASTER_ADDR"] = "localhost"
os.environ["MASTER_PORT"] = "0"
rank = 0
dist.init_process_group("gloo", rank=rank, world_size=1)
model = DDP(nn.Linear(10, 10), device_ids=[rank])
""",
    ),
    "S1 pin_memory": (
        "data/pin-without-gpu",
        """
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(40, 8))
loader = DataLoader(data, batch_size=10, pin_memory=True)
for (batch,) in loader:
    batch = batch.to(device, non_blocking=True)
""",
    ),
    "S1 AMP": (
        "amp/autocast amp/scaler",
        """
from torch.cuda.amp import GradScaler, autocast

scaler = GradScaler()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with autocast():
    loss = net(x).sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
""",
    ),
    "S1 training on a TPU": (
        "tpu/parallel-loader tpu/optimizer-step tpu/spawn",
        """
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
    ),
    "S2 install": (
        "01",
        "pip3 install torch torchvision torchaudio --extra-index-url https://download.pytorch.org/whl/cu116",
    ),
    "S2 version": ("", "import torch\nprint(torch.__version__)"),
    "S2 default device": ("", "print(torch.ones(3).device)"),
    "S2 number of CPUs": ("", "import os\nprint(os.cpu_count(), torch.cuda.os.cpu_count())"),
    "S2 number of GPUs": ("01", "print(torch.cuda.device_count())"),
    "S2 cpu:0": ("", 'cpu = torch.device("cpu:0")\nx = torch.tensor([1.0, 2.0], device=cpu)\nprint(x.device)'),
    "S2 cuda:0": ("", 'gpu = torch.device("cuda:0")\nprint(gpu)'),
    "S2 is there one": ("detection/cuda-or-cpu 01", "print(torch.cuda.is_available())"),
    "S2 its name": ("detection/name", "print(torch.cuda.get_device_name(0))"),
    "S2 device by number": ("detection/device-number", "gpu = torch.device(0)\nprint(gpu)"),
    "S2 copies": (
        "movement/not-compiled",
        """
cpu = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
gpu = cpu.to("cuda")
gpu2 = cpu.cuda()
gpu3 = torch.empty(2, 2, device="cuda")
gpu3.copy_(cpu)
""",
    ),
    "S2 create": (
        "movement/not-compiled",
        'a = torch.rand(2, 3, device="cuda")\nb = torch.zeros(2, 3, device="cuda")\nprint(a + b)',
    ),
    "S2 race": (
        "streams/host-wait",
        """
s = torch.cuda.Stream()
a = torch.empty((100, 100), device="cuda").normal_(0.0, 1.0)
with torch.cuda.stream(s):
    b = torch.sum(a)
print(b)
""",
    ),
    "S2 race and cure": (
        "streams/host-wait",
        """
s = torch.cuda.Stream()
a = torch.empty((100, 100), device="cuda").normal_(0.0, 1.0)
torch.cuda.synchronize()
with torch.cuda.stream(s):
    b = torch.sum(a)
torch.cuda.synchronize()
print(b)
""",
    ),
    "S2 memory": (
        "memory/cached",
        "print(torch.cuda.memory_cached())\nprint(torch.cuda.max_memory_cached())\ntorch.cuda.empty_cache()",
    ),
    "S2 largest memory": ("memory/max-cached", "print(torch.cuda.max_memory_cached())"),
    "S2 pin": (
        "streams/pin-then-copy",
        """
a = torch.randn(3, 3)
b = a.pin_memory()
print(a.is_pinned(), b.is_pinned(), id(a) == id(b))
c = b.to(device, non_blocking=True)
""",
    ),
    "S2 adapt": (
        "detection/cuda-or-cpu",
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nx = torch.randn(3, 3).to(device)',
    ),
    "S2 Tensor on a GPU": ("movement/legacy-constructor", 'x = torch.Tensor([1.0, 2.0], device="cuda")\nprint(x)'),
    "S3 check": (
        "detection/cuda-or-cpu detection/name",
        """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if torch.cuda.is_available():
    print(torch.cuda.device_count(), torch.cuda.get_device_name(0))
print("using", device)
""",
    ),
    "S3 tensor": ("movement/not-compiled", "x = torch.randn(3, 3)\nx = x.cuda()\nprint(x.device)"),
    "S3 model": (
        "",
        """
model = nn.Linear(10, 2).to(device)
inputs = torch.randn(5, 10).to(device)
print(model(inputs).shape, next(model.parameters()).device)
""",
    ),
    "S3 training loop": (
        "",
        TRAINING
        + """
for epoch in range(10):
    optimizer.zero_grad()
    loss = criterion(model(data), target)
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch + 1}, loss {loss.item():.4f}")
""",
    ),
    "S3 several GPUs": (
        "distributed/data-parallel",
        """
model = nn.Linear(10, 2)
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
model.to(device)
""",
    ),
    "S4 check": (
        "detection/name",
        """
print(torch.version.cuda, torch.cuda.is_available(), torch.cuda.device_count())
print(torch.cuda.current_device())
print(torch.cuda.get_device_name(0))
print(torch.cuda.get_device_properties(0).total_memory / 1024**3, "GB")
""",
    ),
    "S4 set a device": ("detection/ordinal", "torch.cuda.set_device(1)\nprint(torch.cuda.current_device())"),
    "S4 enumerate": (
        "01",
        """
for i in range(torch.cuda.device_count()):
    print(i, torch.cuda.get_device_properties(i).name)
""",
    ),
    "S4 mismatch": (
        "movement/not-compiled movement/two-gpus",
        """
a = torch.randn(2, 2)
b = torch.randn(2, 2).cuda()
try:
    print(a + b)
except RuntimeError as error:
    print(error)
""",
    ),
    "S4 cleanup": (
        "memory/empty-cache",
        """
import gc

y = torch.randn(100, 100)
del y
gc.collect()
torch.cuda.empty_cache()
""",
    ),
    "S4 memory": (
        "07",
        """
print(torch.cuda.memory_allocated() / 1024**2)
print(torch.cuda.memory_reserved() / 1024**2)
print(torch.cuda.max_memory_allocated() / 1024**2)
""",
    ),
    "S4 tips": (
        "memory/set-to-none",
        TRAINING
        + """
with torch.no_grad():
    model(data)
optimizer.zero_grad(set_to_none=True)
loss = criterion(model(data), target)
loss.backward()
optimizer.step()
""",
    ),
    "S4 DataParallel": (
        "distributed/data-parallel distributed/wrapped-first",
        """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(10, 2)
model = nn.DataParallel(model).to(device)
print(model(torch.randn(4, 10).to(device)).shape)
""",
    ),
    "S4 DDP": (
        "distributed/nothing-starts distributed/master-addr",
        """
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
    ),
    "S4 DDP, cut out": (
        "distributed/undefined",
        """
import torch.distributed as dist

dist.init_process_group(backend="nccl", rank=rank, world_size=world_size)
model = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
""",
    ),
    "S4 NCCL": (
        "distributed/nccl",
        """
import torch.distributed as dist

dist.init_process_group("nccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
""",
    ),
    "S4 sampler": (
        "distributed/same-order",
        """
from torch.utils.data import DataLoader, DistributedSampler

sampler = DistributedSampler(x, num_replicas=2, rank=0)
loader = DataLoader(x, sampler=sampler)
for epoch in range(3):
    for batch in loader:
        pass
""",
    ),
    "S4 launcher": ("distributed/launch 11", "python -m torch.distributed.launch --nproc_per_node=4 train.py"),
    "S4 torchrun": ("11", "torchrun --nproc_per_node=4 train.py"),
    "S4 torchrun, the script": (
        "distributed/no-rank",
        """
import os
import torch.distributed as dist

dist.init_process_group(backend="gloo")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
""",
    ),
    "S4 AMP": (
        "amp/autocast amp/scaler",
        TRAINING
        + """
scaler = torch.cuda.amp.GradScaler()
for epoch in range(2):
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        loss = criterion(model(data), target)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    ),
    "S4 half": (
        "amp/half-weights",
        "model = nn.Linear(10, 2).half()\ndata = torch.randn(4, 10).half()\nprint(model(data).dtype)",
    ),
    "S4 loader": (
        "data/many-workers data/pin-without-gpu data/workers-for-little",
        """
from torch.utils.data import DataLoader

loader = DataLoader(
    x, batch_size=2, num_workers=64, pin_memory=True, prefetch_factor=2, persistent_workers=True
)
""",
    ),
    "S4 CUDA graph": (
        "graphs/capturable graphs/inputs-in-capture",
        """
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
    ),
    "S4 compile": (
        "10",
        """
model = torch.compile(net, backend="eager")
fast = torch.compile(net, mode="reduce-overhead")
""",
    ),
    "S4 compiled twice": (
        "graphs/compiled-twice",
        """
model = torch.compile(net)
model = torch.compile(model, mode="reduce-overhead")
model = torch.compile(model, mode="max-autotune")
""",
    ),
    "S4 profiler": (
        "graphs/activity-cuda graphs/cuda-time",
        """
from torch.profiler import ProfilerActivity, profile, record_function

with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
    with record_function("inference"):
        net(x)
print(len(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10)) > 0)
""",
    ),
    "S4 memory profile": (
        "09",
        """
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as prof:
    net(x)
print(len(prof.key_averages().table(sort_by="self_cpu_memory_usage", row_limit=5)) > 0)
""",
    ),
    "S4 out of memory": (
        "memory/empty-cache memory/oom-class memory/cuda-oom",
        """
try:
    y = net(x)
except RuntimeError as error:
    if "out of memory" in str(error):
        torch.cuda.empty_cache()
    else:
        raise
""",
    ),
    "S4 ensure_same_device": (
        "02",
        """
def ensure_same_device(*tensors):
    device = tensors[0].device
    return [tensor.to(device) for tensor in tensors]

a, b = ensure_same_device(torch.randn(2), torch.randn(2))
print((a + b).device)
""",
    ),
    "S4 save and load": (
        "movement/whole-model",
        'torch.save(net, "model.pth")\nmodel = torch.load("model.pth")\nmodel.eval()',
    ),
    "S4 save and load weights": (
        "",
        """
torch.save(net.state_dict(), "model.pth")
net.load_state_dict(torch.load("model.pth", map_location=device, weights_only=True))
net.to(device)
""",
    ),
    "S4 checkpointing": (
        "memory/checkpoint",
        "from torch.utils.checkpoint import checkpoint\n\ny = checkpoint(net, x.requires_grad_())",
    ),
    "S4 accumulate": (
        "",
        TRAINING
        + """
for step in range(4):
    loss = criterion(model(data), target) / 4
    loss.backward()
    if (step + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
""",
    ),
    "sum of losses": (
        "memory/total-loss",
        TRAINING
        + """
total_loss = 0
for epoch in range(3):
    loss = criterion(model(data), target)
    loss.backward()
    total_loss += loss
""",
    ),
    "a plain class": (
        "",
        """
class Counter:
    def __init__(self):
        self.count = 0

    def add(self, n):
        self.count += n
        return self.count

print(Counter().add(3))
""",
    ),
    "arithmetic": ("", "a = torch.arange(6).reshape(2, 3)\nprint(a.sum(), a.float().mean(), a.T.shape)"),
    # Written after the rules for the others, to see whether the rules hold
    "autocast, enabled": (
        "amp/autocast",
        "with torch.cuda.amp.autocast(enabled=True):\n    loss = F.mse_loss(net(x), torch.ones(4, 2))\nloss.backward()",
    ),
    "wrapped and sent": (
        "distributed/data-parallel distributed/wrapped-first movement/not-compiled",
        "model = torch.nn.DataParallel(net, device_ids=[0, 1]).cuda()",
    ),
    "group of env": (
        "distributed/no-rank distributed/nccl",
        "import torch.distributed as dist\n\ndist.init_process_group(backend='nccl', init_method='env://')",
    ),
    "a device as a text": ("detection/cuda-or-cpu", "device = 'cuda:0' if torch.cuda.is_available() else 'cpu'"),
    "cached, of a device": ("memory/max-cached", "peak = torch.cuda.max_memory_cached(device=0) / 1e6"),
    "only mark_step": ("tpu/mark-step", "import torch_xla.core.xla_model as xm\n\nxm.mark_step()"),
    "Variable": (
        "movement/variable movement/not-compiled",
        "from torch.autograd import Variable\n\ninputs = Variable(torch.randn(2, 8)).cuda()\nnet(inputs)",
    ),
    "async": ("movement/async", "images = x.cuda(async=True)"),
    "next": (
        "data/next",
        """
from torch.utils.data import DataLoader

loader = DataLoader(x, batch_size=2, shuffle=True)
data_iter = iter(loader)
images = data_iter.next()
""",
    ),
    "the best weights": (
        "movement/best-state",
        """
best_acc = 0.0
for epoch in range(2):
    acc = net(x).mean().item()
    if acc > best_acc:
        best_acc = acc
        best_weights = net.state_dict()
""",
    ),
    "running loss": (
        "memory/total-loss",
        """
running_loss = 0.0
for step in range(3):
    loss = net(x).square().mean()
    running_loss += loss
print(running_loss / 3)
""",
    ),
    "events": (
        "streams/event",
        """
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
start.record()
y = net(x)
end.record()
""",
    ),
    "reset": ("memory/reset-max", "torch.cuda.reset_max_memory_allocated()\ny = net(x)"),
    "TF32": ("amp/tf32-flag", "torch.backends.cuda.matmul.allow_tf32 = True\ntorch.backends.cudnn.allow_tf32 = True"),
    "old launcher's option": (
        "distributed/local-rank",
        """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args, _ = parser.parse_known_args([])
""",
    ),
    "script": ("graphs/jit-script", "scripted = torch.jit.script(net)\nprint(scripted(x).shape)"),
    "counting hits": (
        "",
        """
correct = 0
with torch.no_grad():
    for inputs, labels in [(x, torch.zeros(4))]:
        predicted = net(inputs).argmax(dim=1)
        correct += (predicted == labels).sum().item()
print(correct / 4)
""",
    ),
    "a convolutional network": (
        "",
        """
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
    loss = F.cross_entropy(model(torch.randn(4, 1, 28, 28, device=device)), torch.zeros(4, dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
""",
    ),
    "a dataset": (
        "",
        """
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor([i, i * i])

for batch in DataLoader(Squares(), batch_size=5, shuffle=True):
    print(batch.shape)
""",
    ),
    "seeds": ("", "torch.manual_seed(42)\ntorch.cuda.manual_seed_all(42)\ntorch.backends.cudnn.deterministic = True"),
    "float16 by hand": ("", "y = x.to(torch.float16)\nprint(y.dtype, y.element_size())"),
}

ALSO = {
    "S1 DDP by spawn": "distributed/device-ids",
    "S1 AMP": "amp/cuda-on-cpu",
    "S1 training on a TPU": "tpu/is-there tpu/mark-step",
    "S2 race and cure": "streams/synchronize",
    "S2 memory": "memory/max-cached memory/empty-cache",
    "S2 pin": "movement/id",
    "S2 Tensor on a GPU": "movement/big-t",
    "S4 DataParallel": "detection/cuda-or-cpu",
    "S4 DDP": "distributed/nccl",
    "S4 DDP, cut out": "distributed/nccl distributed/device-ids",
    "S4 AMP": "amp/cuda-on-cpu",
    "S4 CUDA graph": "movement/not-compiled streams/host-wait memory/set-to-none",
    "autocast, enabled": "amp/cuda-on-cpu",
    "group of env": "distributed/nccl",
}
