"""Small programs that really give messages of the table, on a build for the CPU: id of
the entry (#2: a second one of it) → program. test_provoked.py runs them.
"""

CPU = {
    "movement/past-the-end": r"""
import torch
cache, at = torch.zeros(1, 2, 4, 8), torch.tensor([4])
cache.index_copy_(2, at, torch.ones(1, 2, 1, 8))
""",
    "movement/past-the-end#2": r"""
import torch
torch.zeros(4)[torch.tensor([7])]
""",
    "amp/sdpa-heads": r"""
import torch
q, k = torch.ones(1, 8, 4, 16), torch.ones(1, 3, 4, 16)
torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
""",
    "amp/sdpa-two-masks": r"""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
q, mask = torch.ones(1, 1, 4, 16), torch.ones(4, 4, dtype=torch.bool)
with sdpa_kernel(SDPBackend.MATH):
    torch.nn.functional.scaled_dot_product_attention(q, q, q, mask, is_causal=True)
""",
    "memory/probabilities": r"""
import torch
torch.multinomial(torch.zeros(4), 1)
""",
    "amp/same-dtype": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
net.half()(x)
""",
    "amp/same-dtype#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
x @ x.half()
""",
    "amp/same-dtype#3": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
nn.Conv2d(3, 3, 1)(torch.randn(1, 3, 4, 4).half())
""",
    "amp/same-dtype#4": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.bmm(x[None], x[None].bfloat16())
""",
    "amp/unscale-twice": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler.scale(net(x).sum()).backward()
scaler.unscale_(optimizer)
scaler.unscale_(optimizer)
""",
    "amp/no-inf-checks": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
scaler = torch.amp.GradScaler("cpu")
scaler.scale(net(x).sum())
scaler.step(torch.optim.SGD(net.parameters(), lr=0.1))
""",
    "amp/fp16-gradients": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
net, scaler = net.half(), torch.amp.GradScaler("cpu")
scaler.scale(net(x.half()).sum()).backward()
scaler.step(torch.optim.SGD(net.parameters(), lr=0.1))
""",
    "amp/tf32-mixed": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.backends.cuda.matmul.fp32_precision = "tf32"
torch.backends.cuda.matmul.allow_tf32
""",
    "amp/tf32-mixed#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.backends.cuda.matmul.fp32_precision = "tf32"
torch.get_float32_matmul_precision()
""",
    "amp/tf32-cudnn": r"""
import torch
torch.backends.cudnn.conv.fp32_precision = "ieee"
torch.backends.cudnn.allow_tf32
""",
    "amp/tf32-cudnn#2": r"""
import torch
torch.backends.cudnn.fp32_precision = "ieee"
torch.backends.cudnn.conv.fp32_precision = "ieee"
hasattr(torch.backends.cudnn, "allow_tf32")
""",
    "amp/nested-tensor": r"""
from torch import nn
nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 1)
""",
    "graphs/meshgrid": r"""
import torch
torch.meshgrid(torch.arange(2), torch.arange(3))
""",
    "amp/apex": r"""
from apex import amp
""",
    "amp/autocast": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.amp.autocast(enabled=False)
""",
    "amp/scaler": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.amp.GradScaler(enabled=False)
""",
    "amp/cpu-autocast": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cpu.amp.autocast()
""",
    "amp/cuda-on-cpu": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.autocast('cuda'):
    net(x)
""",
    "amp/custom-fwd": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.amp.custom_fwd(lambda ctx, x: x)
""",
    "amp/custom-fwd#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.amp.custom_bwd(lambda ctx, x: x)
""",
    "amp/autocast-argument": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.amp.autocast():
    net(x)
""",
    "amp/autocast-argument#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.autocast(x.device):
    net(x)
""",
    "amp/autocast-dtype": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.autocast('cpu', dtype=torch.float32):
    net(x)
""",
    "amp/autocast-device": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.autocast('meta', dtype=torch.bfloat16):
    net(x)
""",
    "amp/scaler-without-cuda": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.amp.GradScaler('cuda')
""",
    "amp/step-twice": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler.scale(net(x).sum()).backward()
scaler.step(optimizer)
scaler.step(optimizer)
""",
    "amp/step-twice#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler.scale(net(x).sum()).backward()
scaler.step(optimizer)
scaler.unscale_(optimizer)
""",
    "amp/scale-none": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.amp.GradScaler('cpu').step(torch.optim.SGD(net.parameters(), lr=0.1))
""",
    "amp/update-no-inf": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler.scale(net(x).sum()).backward()
scaler.update()
""",
    "amp/closure": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler.scale(net(x).sum()).backward()
scaler.step(optimizer, closure=lambda: 0)
""",
    "amp/scaler-state": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.amp.GradScaler('cpu').load_state_dict({})
""",
    "amp/float8-operation": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
x.to(torch.float8_e4m3fn) * 2
""",
    "amp/float8-operation#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
x.to(torch.float8_e5m2) + x
""",
    "amp/half-missing": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.linalg.svd(x.half())
""",
    "amp/half-missing#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.linalg.inv(x.bfloat16())
""",
    "amp/index-put": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
x[torch.tensor([0])] = torch.ones(1, 4).half()
""",
    "amp/index-put#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.zeros(4, 4).scatter_add_(0, torch.zeros(4, 4).long(), x.half())
""",
    "amp/precision-value": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.set_float32_matmul_precision('tf32')
""",
    "amp/precision-value#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.backends.cuda.matmul.fp32_precision = 'high'
""",
    "amp/sdpa-no-kernel": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.nn.attention import SDPBackend, sdpa_kernel
q = torch.randn(1, 1, 4, 4)
with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
    nn.functional.scaled_dot_product_attention(q, q, q)
""",
    "amp/sdpa-no-kernel#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.nn.attention import SDPBackend, sdpa_kernel
q, mask = torch.randn(1, 1, 4, 4), torch.ones(3, 3).bool()
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
""",
    "amp/sdpa-dtype": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
q = x[None, None]
nn.functional.scaled_dot_product_attention(q, q.half(), q)
""",
    "amp/sdpa-dtype#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
q = x[None, None]
nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=q.long())
""",
    "amp/sdp-kernel": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.backends.cuda.sdp_kernel(enable_flash=True):
    net(x)
""",
    "amp/sdp-kernel#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.nn.attention import sdpa_kernel
sdpa_kernel(enable_flash=True)
""",
    "amp/half-overflow": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
x.half().masked_fill(x > 0, -1e9)
""",
    "amp/two-half-types": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
with torch.autocast('cpu', dtype=torch.bfloat16):
    torch.cat([x.half(), x.half()])
""",
    "amp/flex-uncompiled": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.nn.attention.flex_attention import flex_attention
q = torch.randn(1, 1, 16, 16)
flex_attention(q, q, q)
""",
    "streams/event": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.Event(enable_timing=True)
""",
    "streams/benchmark-import": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.utils.benchmark.Timer('net(x)')
""",
    "streams/host-wait": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.Stream()
""",
    "streams/cpu-events": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.Event('cpu', enable_timing=True).record()
""",
    "streams/enable-timing": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.Event('cpu').elapsed_time(torch.Event('cpu'))
""",
    "streams/not-recorded": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
a, b = (torch.Event('cpu', enable_timing=True) for _ in 'ab')
a.elapsed_time(b)
""",
    "streams/mps": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.mps.synchronize()
""",
    "graphs/cuda-time-total": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile() as p:
    net(x)
p.key_averages()[0].cuda_time_total
""",
    "graphs/cuda-time-total#2": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile() as p:
    net(x)
p.key_averages()[0].cuda_memory_usage
""",
    "graphs/profiler-use-cuda": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
profile(use_cuda=True)
""",
    "graphs/activity-cuda": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile(activities=list(ProfilerActivity.__members__.values())[:3]):
    net(x)
""",
    "graphs/cuda-graph": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.CUDAGraph()
""",
    "graphs/callables": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.set_autocast_enabled("cuda", True)
torch.cuda.make_graphed_callables(net, (x,))
""",
    "graphs/uncaptured": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
optimizer = torch.optim.Adam(net.parameters(), capturable=True)
net(x).sum().backward()
optimizer.step()
""",
    "profiler/clears": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
p = profile()
for _ in range(2):
    with p:
        net(x)
""",
    "profiler/no-step": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile(schedule=schedule(wait=1, warmup=1, active=1)) as p:
    for _ in range(5):
        net(x)
p.key_averages()
""",
    "profiler/saved": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile() as p:
    net(x)
for _ in 'ab':
    p.export_chrome_trace('trace.json')
""",
    "profiler/warmup": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
schedule(wait=1, warmup=0, active=1)
""",
    "profiler/schedule": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
schedule(wait=1, warmup=1, active=0)
""",
    "profiler/twice": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
p = torch.autograd.profiler.profile()
for _ in 'ab':
    with p:
        net(x)
""",
    "profiler/no-activities": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
profile(activities=[])
""",
    "profiler/stacks": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile() as p:
    net(x)
p.export_stacks('stacks.txt')
""",
    "profiler/memory-timeline": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
from torch.profiler import ProfilerActivity, profile, schedule
with profile() as p:
    net(x)
p.export_memory_timeline('memory.html')
""",
    "profiler/nvtx": r"""
import torch
from torch import nn
net, x = nn.Linear(4, 4), torch.randn(4, 4)
torch.cuda.nvtx.range_push('a')
""",
    "data/open-files": r"""
import resource, torch
from torch.utils.data import DataLoader
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
loader = DataLoader(torch.ones(2000, 1), num_workers=1, multiprocessing_context="fork")
kept = [batch for batch in loader]
""",
    "data/open-files#2": r"""
import resource, torch
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
kept = [torch.ones(2).share_memory_() for _ in range(100)]
""",
    "data/collate-none": r"""
from torch.utils.data import DataLoader
next(iter(DataLoader([None, 1], batch_size=2)))
""",
    "data/collate-none#2": r"""
from torch.utils.data import DataLoader
next(iter(DataLoader([None, 1], num_workers=1, multiprocessing_context="fork")))
""",
    "data/collate-type": r"""
from torch.utils.data import DataLoader
class Sample: pass
next(iter(DataLoader([Sample(), Sample()], batch_size=2)))
""",
    "data/collate-type#2": r"""
import PIL.Image
from torch.utils.data import DataLoader
next(iter(DataLoader([PIL.Image.new("RGB", (2, 2))])))
""",
    "data/equal-size": r"""
import torch
from torch.utils.data import DataLoader
next(iter(DataLoader([torch.ones(2), torch.ones(3)], batch_size=2)))
""",
    "data/list-size": r"""
from torch.utils.data import DataLoader
next(iter(DataLoader([[1, 2], [1]], batch_size=2)))
""",
    "data/resize-storage": r"""
import torch
from torch.utils.data import DataLoader
data = [torch.ones(3), torch.ones(2)]
options = {"num_workers": 1, "multiprocessing_context": "fork"}
next(iter(DataLoader(data, batch_size=2, **options)))
""",
    "data/persistent": r"""
from torch.utils.data import DataLoader
DataLoader(range(4), persistent_workers=True)
""",
    "data/persistent#2": r"""
from torch.utils.data import DataLoader
DataLoader(range(4), prefetch_factor=2)
""",
    "data/persistent#3": r"""
from torch.utils.data import DataLoader
next(iter(DataLoader(range(4), timeout=1)))
""",
    "data/persistent#4": r"""
from torch.utils.data import DataLoader
DataLoader(range(4), multiprocessing_context="spawn")
""",
    "data/pickle": r"""
from torch.utils.data import DataLoader
def main():
    options = {"num_workers": 1, "multiprocessing_context": "spawn"}
    next(iter(DataLoader(range(4), collate_fn=lambda rows: rows, **options)))
main()
""",
    "data/pickle#2": r"""
from torch.utils.data import DataLoader
options = {"num_workers": 1, "multiprocessing_context": "forkserver"}
next(iter(DataLoader(range(4), collate_fn=lambda rows: rows, **options)))
""",
    "data/worker-exited": r"""
import os
from torch.utils.data import DataLoader
class Leaves:
    def __len__(self): return 4
    def __getitem__(self, i): os._exit(1)
next(iter(DataLoader(Leaves(), num_workers=1, multiprocessing_context="fork")))
""",
    "data/caught-in-worker": r"""
from torch.utils.data import DataLoader
class Wrong:
    def __len__(self): return 4
    def __getitem__(self, i): raise KeyError("label")
next(iter(DataLoader(Wrong(), num_workers=1, multiprocessing_context="fork")))
""",
    "data/timeout": r"""
import time
from torch.utils.data import DataLoader
class Slow:
    def __len__(self): return 4
    def __getitem__(self, i): time.sleep(4)
options = {"num_workers": 1, "multiprocessing_context": "fork"}
next(iter(DataLoader(Slow(), timeout=1, **options)))
""",
    "data/non-leaf": r"""
import torch, torch.multiprocessing
queue = torch.multiprocessing.SimpleQueue()
queue.put(torch.ones(2, requires_grad=True) * 2)
""",
    "data/context-set": r"""
import torch.multiprocessing
torch.multiprocessing.set_start_method("spawn")
torch.multiprocessing.set_start_method("spawn")
""",
    "data/no-samples": r"""
from torch.utils.data import DataLoader
DataLoader([], shuffle=True)
""",
    "data/sampler-and-shuffle": r"""
from torch.utils.data import DataLoader, SequentialSampler
DataLoader(range(4), shuffle=True, sampler=SequentialSampler(range(4)))
""",
    "data/sampler-and-shuffle#2": r"""
from torch.utils.data import DataLoader
DataLoader(range(4), batch_size=2, batch_sampler=[[0, 1], [2, 3]])
""",
    "data/shuffle-iterable": r"""
from torch.utils.data import DataLoader, IterableDataset
class Numbers(IterableDataset):
    def __iter__(self): return iter(range(4))
DataLoader(Numbers(), shuffle=True)
""",
    "data/iterable-length": r"""
from torch.utils.data import DataLoader, IterableDataset
class Numbers(IterableDataset):
    def __iter__(self): return iter(range(4))
    def __len__(self): return 4
loader = DataLoader(Numbers(), num_workers=2, multiprocessing_context="fork")
print(len(loader), len(list(loader)))
""",
    "data/next": r"""
from torch.utils.data import DataLoader
iter(DataLoader(range(4))).next()
""",
    "data/many-workers": r"""
from torch.utils.data import DataLoader
DataLoader(range(4), num_workers=1000)
""",
    "data/pin-without-gpu": r"""
from torch.utils.data import DataLoader
next(iter(DataLoader(range(4), pin_memory=True)))
""",
    "data/pin-memory-device": r"""
import warnings
from torch.utils.data import DataLoader
warnings.filterwarnings("ignore", "'pin_memory'")
next(iter(DataLoader(range(4), pin_memory=True, pin_memory_device="cuda")))
""",
    "data/pin-needs-accelerator": r"""
import torch
torch.empty(6, pin_memory=True)
""",
    "data/arrays-in-list": r"""
import numpy, torch
torch.tensor([numpy.ones(8) for _ in range(4)])
""",
    "data/size-mismatch": r"""
import torch
torch.utils.data.TensorDataset(torch.ones(3), torch.ones(4))
""",
    "data/split-lengths": r"""
import torch
torch.utils.data.random_split(range(10), [3, 3])
""",
    "data/bad-image": r"""
import io, PIL.Image
PIL.Image.open(io.BytesIO(b"<html>not found</html>"))
""",
    "notebook/asyncio": r"""
import asyncio
async def inner(): pass
async def outer(): asyncio.run(inner())
asyncio.run(outer())
""",
    "accelerate/one-state": r"""
from accelerate import Accelerator
Accelerator(cpu=True)
Accelerator(cpu=True, mixed_precision="bf16")
""",
    "accelerate/no-state": r"""
from accelerate.state import AcceleratorState
AcceleratorState()
""",
    "accelerate/no-state#2": r"""
from accelerate.logging import get_logger
get_logger("train").warning("slow")
""",
    "accelerate/state-lost": r"""
from accelerate import Accelerator
from accelerate.state import AcceleratorState
accelerator = Accelerator(cpu=True)
AcceleratorState._reset_state(True)
accelerator.prepare(1)
""",
    "accelerate/moved-offloaded": r"""
import tempfile, torch, accelerate
net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
with tempfile.TemporaryDirectory() as folder:
    places = {"0": "cpu", "1": "disk"}
    net = accelerate.dispatch_model(net, places, main_device="cpu", offload_dir=folder)
    net.to("cpu")
""",
    "data/not-subscriptable": r"""
from torch.utils.data import DataLoader
DataLoader(range(4))[0]
""",
    "data/not-subscriptable#2": r"""
from torch.utils.data import DataLoader
next(DataLoader(range(4)))
""",
    "data/last-batch": r"""
import torch
torch.nn.BatchNorm1d(4)(torch.ones(1, 4))
""",
    "data/object-array": r"""
import numpy, torch
torch.tensor(numpy.array([1, "a"], dtype=object))
""",
    "data/negative-stride": r"""
import numpy, torch
torch.from_numpy(numpy.arange(4)[::-1])
""",
    "notebook/launcher-state": r"""
from accelerate import Accelerator, notebook_launcher
Accelerator(cpu=True)
notebook_launcher(print, num_processes=2)
""",
    "movement/not-expected": r"""
import torch
torch.ones(2) + torch.ones(2, device="meta")
""",
    "movement/not-expected#2": r"""
import torch
torch.nn.BatchNorm1d(2, device="meta")(torch.ones(4, 2))
""",
    "movement/batch-left": r"""
import torch
torch.nn.LSTM(2, 3, device="meta")(torch.ones(1, 2, 2))
""",
    "movement/two-gpus": r"""
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    a, b = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
    a + b
""",
    "movement/input-type": r"""
import torch
torch.nn.Conv2d(3, 4, 1)(torch.ones(1, 3, 8, 8, dtype=torch.uint8))
""",
    "movement/scalar-double": r"""
import numpy as np, torch
torch.nn.Linear(2, 2)(torch.from_numpy(np.ones((4, 2))))
""",
    "movement/scalar-double#2": r"""
import torch
x = torch.zeros(3)
x[torch.tensor([0, 1])] = torch.ones(2, dtype=torch.float64)
""",
    "movement/scalar-long": r"""
import torch
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0.0, 1.0]))
""",
    "movement/scalar-long#2": r"""
import torch
torch.nn.Embedding(5, 2)(torch.Tensor([1, 2]))
""",
    "movement/shapes": r"""
import torch
torch.nn.Linear(3, 2)(torch.ones(4, 5))
""",
    "movement/legacy-constructor": r"""
import torch
torch.Tensor([1.0, 2.0], device="cuda")
""",
    "movement/no-data": r"""
import torch
torch.nn.Linear(2, 2, device="meta").to("cpu")
""",
    "movement/numpy-grad": r"""
import torch
torch.ones(2, requires_grad=True).numpy()
""",
    "movement/item": r"""
import torch
torch.ones(2).sum()[0]
""",
    "movement/cuda-file": r"""
import io, torch
file = io.BytesIO()
torch.save(torch.ones(2), file)
file.seek(0)
torch.load(file, map_location="xpu")
""",
    "movement/whole-model": r"""
import io, torch
file = io.BytesIO()
torch.save(torch.nn.Linear(2, 2), file)
file.seek(0)
torch.load(file)
""",
    "movement/whole-model#2": r"""
import io, numpy, torch
file = io.BytesIO()
torch.save({"lr": numpy.float64(0.1)}, file)
file.seek(0)
torch.load(file)
""",
    "movement/missing-keys": r"""
import torch
net = torch.nn.Linear(2, 2)
net.load_state_dict({"module." + name: x for name, x in net.state_dict().items()})
""",
    "movement/storage": r"""
import torch
torch.ones(2).storage()
""",
    "movement/lengths-on-cpu": r"""
import torch
from torch.nn.utils.rnn import pack_padded_sequence
pack_padded_sequence(torch.ones(3, 2, 1), torch.tensor([3, 1], device="meta"))
""",
    "movement/module-device": r"""
import torch
torch.nn.Sequential(torch.nn.Linear(2, 2)).device
""",
    "movement/parts-to-move": r"""
import torch
batch = [torch.ones(2), torch.ones(2)]
batch.to("cpu")
""",
    "movement/array-no-tensor": r"""
import numpy, torch
torch.nn.Linear(2, 2)(numpy.ones((1, 2)))
""",
    "movement/array-no-tensor#2": r"""
import numpy
numpy.ones(2).to("cpu")
""",
    "movement/array-astype": r"""
import torch
torch.ones(2).astype("float32")
""",
    "movement/device-called": r"""
import torch
torch.ones(2).device()
""",
    "movement/data-assigned": r"""
import torch
net = torch.nn.Linear(2, 2)
net.weight.data = net.weight.data.to("meta")
""",
    "movement/gradient-device": r"""
import torch
x = torch.ones(2, requires_grad=True)
x.grad = torch.ones(2, device="meta")
""",
    "movement/tensor-as-parameter": r"""
import torch
net = torch.nn.Linear(2, 2)
net.weight = net.weight.to(torch.float64)
""",
    "movement/super-init": r"""
import torch
class Net(torch.nn.Module):
    def __init__(self):
        self.layer = torch.nn.Linear(2, 2)
Net()
""",
    "movement/module-dtype": r"""
import torch
torch.nn.Linear(2, 2).to(torch.int8)
""",
    "movement/optimizer-params": r"""
import torch
torch.optim.SGD(torch.ones(2, requires_grad=True))
""",
    "movement/optimizer-params#2": r"""
import torch
torch.optim.SGD([torch.nn.Linear(2, 2)])
""",
    "movement/parameter-twice": r"""
import torch
w = torch.ones(2, requires_grad=True)
torch.optim.SGD([{"params": [w]}, {"params": [w]}])
""",
    "movement/parameter-twice#2": r"""
import torch
w = torch.ones(2, requires_grad=True)
torch.optim.SGD([w, w])
""",
    "movement/integer-input": r"""
import torch
torch.nn.Linear(2, 2)(torch.tensor([[1, 2]]))
""",
    "movement/integer-input#2": r"""
import torch
torch.arange(3).mean()
""",
    "movement/float-labels": r"""
import torch
loss = torch.nn.BCEWithLogitsLoss()
loss(torch.ones(2, requires_grad=True), torch.tensor([0, 1]))
""",
    "movement/float-labels#2": r"""
import torch
p = torch.sigmoid(torch.ones(2, requires_grad=True))
torch.nn.BCELoss()(p, torch.tensor([0, 1]))
""",
    "movement/bool-arithmetic": r"""
import torch
1 - (torch.ones(2) > 0)
""",
    "movement/byte-mask": r"""
import torch
torch.ones(3)[torch.ones(3, dtype=torch.uint8)]
""",
    "movement/byte-mask#2": r"""
import torch
torch.ones(2).masked_fill(torch.ones(2), 0)
""",
    "movement/float-gradient": r"""
import torch
torch.arange(3, requires_grad=True)
""",
    "movement/zero-to-one": r"""
import torch
torch.nn.BCELoss()(torch.ones(2) * 3, torch.ones(2))
""",
    "movement/two-sizes": r"""
import torch
torch.ones(2, 3) + torch.ones(2, 2)
""",
    "movement/batch-size": r"""
import torch
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([0, 1, 2]))
""",
    "movement/target-shape": r"""
import torch
torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([[0], [1]]))
""",
    "movement/target-size": r"""
import torch
torch.nn.functional.mse_loss(torch.ones(4, 1), torch.ones(4))
""",
    "movement/target-size#2": r"""
import torch
torch.nn.BCEWithLogitsLoss()(torch.ones(4, 1), torch.ones(4))
""",
    "movement/conv-channels": r"""
import torch
torch.nn.Conv2d(3, 4, 1)(torch.ones(1, 1, 8, 8))
""",
    "movement/conv-dimensions": r"""
import torch
torch.nn.Conv2d(3, 4, 1)(torch.ones(8, 8))
""",
    "movement/image-too-small": r"""
import torch
torch.nn.Conv2d(1, 1, 5)(torch.ones(1, 1, 2, 2))
""",
    "movement/rnn-size": r"""
import torch
torch.nn.LSTM(2, 3)(torch.ones(1, 2, 4))
""",
    "movement/sizes-in-cat": r"""
import torch
torch.cat([torch.ones(2, 2), torch.ones(2, 3)])
""",
    "movement/view": r"""
import torch
torch.ones(2, 3).t().view(6)
""",
    "movement/invalid-shape": r"""
import torch
torch.ones(2, 3).reshape(4)
""",
    "movement/too-many-indices": r"""
import torch
torch.ones(3)[0, 0]
""",
    "movement/no-dimension": r"""
import torch
for x in torch.ones(2).sum():
    pass
""",
    "movement/one-element": r"""
import torch
torch.ones(2).item()
""",
    "movement/one-element#2": r"""
import torch
torch.tensor([torch.ones(2), torch.ones(2)])
""",
    "movement/truth": r"""
import torch
if torch.ones(2) > 0:
    pass
""",
    "movement/meta-value": r"""
import torch
torch.ones(2, device="meta").sum().item()
""",
    "movement/meta-value#2": r"""
import torch
x = torch.ones(2, device="meta")
x[x > 0]
""",
    "movement/meta-no-op": r"""
import torch
net = torch.nn.Linear(2, 2, device="meta")
net.load_state_dict(torch.nn.Linear(2, 2).state_dict())
""",
    "movement/sparse": r"""
import torch
torch.ones(2, 2).to_sparse().view(4)
""",
    "movement/sparse#2": r"""
import torch
torch.ones(2, 2).to_sparse().numpy()
""",
    "movement/numpy-writable": r"""
import torch
torch.frombuffer(b"1234", dtype=torch.uint8)
""",
    "movement/numpy-bfloat16": r"""
import torch
torch.ones(2, dtype=torch.bfloat16).numpy()
""",
    "movement/numpy-type": r"""
import torch
torch.from_numpy([1, 2])
""",
    "movement/array-times-tensor": r"""
import numpy, torch
numpy.ones(2) * torch.ones(2, device="meta")
""",
    "movement/copy-construct": r"""
import torch
torch.tensor(torch.ones(2))
""",
    "movement/deepcopy": r"""
import copy, torch
copy.deepcopy(torch.ones(2, requires_grad=True) * 2)
""",
    "movement/size-mismatch": r"""
import torch
torch.nn.Linear(2, 2).load_state_dict(torch.nn.Linear(2, 3).state_dict())
""",
    "movement/state-dict-no-model": r"""
import torch
torch.nn.Linear(2, 2).state_dict().eval()
""",
    "movement/not-a-state-dict": r"""
import torch
torch.nn.Linear(2, 2).load_state_dict("model.pt")
""",
    "movement/location-tag": r"""
import io, torch
file = io.BytesIO()
torch.save(torch.ones(2), file)
file.seek(0)
torch.load(file, map_location="gpu")
""",
    "movement/broken-file": r"""
import io, torch
file = io.BytesIO()
torch.save(torch.ones(1000), file)
torch.load(io.BytesIO(file.getvalue()[:2000]))
""",
    "movement/no-checkpoint": r"""
import io, torch
torch.load(io.BytesIO(b"version https://git-lfs.github.com/spec/v1"))
""",
    "movement/no-checkpoint#2": r"""
import io, torch
torch.load(io.BytesIO(b"<!doctype html>"), weights_only=False)
""",
    "movement/pickle-protocol": r"""
import io, pickle, torch
torch.load(io.BytesIO(pickle.dumps({"a": 1}, protocol=4)))
""",
    "movement/blocked-global": r"""
import io, os, torch
file = io.BytesIO()
torch.save(os.system, file)
file.seek(0)
torch.load(file)
""",
    "movement/mmap": r"""
import io, torch
torch.load(io.BytesIO(b"abc"), mmap=True)
""",
    "movement/seekable": r"""
import torch
torch.load(torch.ones(1))
""",
    "movement/no-folder": r"""
import torch
torch.save({}, "no-such-folder/model.pt")
""",
    "movement/optimizer-groups": r"""
import torch
full, bare = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, bias=False)
optimizer = torch.optim.Adam(full.parameters())
optimizer.load_state_dict(torch.optim.Adam(bare.parameters()).state_dict())
""",
    "movement/rng-state": r"""
import torch
torch.set_rng_state(torch.get_rng_state().to("meta"))
""",
    "movement/own-module": r"""
import io, sys, torch
main, file = sys.modules["__main__"], io.BytesIO()
main.Net = type("Net", (), {"__module__": "__main__"})
torch.save(main.Net(), file)
del main.Net
file.seek(0)
torch.load(file, weights_only=False)
""",
    "graphs/branch": r"""
import torch
@torch.compile(backend="eager", fullgraph=True)
def shift(x):
    return x + 1 if x.sum() > 0 else x - 1
shift(torch.ones(3))
""",
    "graphs/print-inside": r"""
import torch
def f(x):
    print(x)
    return x + 1
torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/print-inside#2": r"""
import logging, torch
log = logging.getLogger("mine")
def f(x):
    log.warning("here")
    return x + 1
torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/print-inside#3": r"""
import warnings, torch
def f(x):
    warnings.warn("here")
    return x + 1
torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/c-extension": r"""
import os, torch
def f(x):
    return x + os.getpid()
torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/rnn": r"""
import torch
model = torch.compile(torch.nn.LSTM(2, 2), backend="eager", fullgraph=True)
model(torch.ones(1, 1, 2))
""",
    "graphs/backward-inside": r"""
import torch
def f(x):
    x.sum().backward()
    return x.grad
x = torch.ones(3, requires_grad=True)
torch.compile(f, backend="eager", fullgraph=True)(x)
""",
    "graphs/generator-function": r"""
import torch
def f():
    yield torch.ones(1)
torch.compile(f, backend="eager", fullgraph=True)()
""",
    "graphs/disabled-inside": r"""
import torch
@torch.compiler.disable
def g(x):
    return x
torch.compile(lambda x: g(x) + 1, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/observed": r"""
import torch
def f(x):
    raise ValueError("no")
torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/fx-node": r"""
import torch
torch.compile(lambda x: x @ x, backend="eager", fullgraph=True)(torch.ones(2, 3))
""",
    "graphs/numpy-inside": r"""
import torch
def f(x):
    return x.numpy().tobytes()
torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
""",
    "graphs/recompile-fullgraph": r"""
import torch
f = torch.compile(lambda x: x + 1, backend="eager", dynamic=False, fullgraph=True)
for n in range(2, 12):
    f(torch.ones(n))
""",
    "graphs/constraints": r"""
import torch
x = torch.ones(4, 3)
torch._dynamo.mark_dynamic(x, 0)
torch.compile(lambda t: t + torch.ones(4, 3), backend="eager")(x)
""",
    "graphs/data-dependent": r"""
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.item() > 2 else x
torch.export.export(Net(), (torch.tensor(3),))
""",
    "graphs/data-dependent#2": r"""
import torch
class Net(torch.nn.Module):
    def forward(self, x):
        return list(range(x.item()))
torch.export.export(Net(), (torch.tensor(3),))
""",
    "graphs/fake-tensors": r"""
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode():
    fake = torch.ones(2)
fake + torch.ones(2)
""",
    "graphs/double-backward": r"""
import torch
x = torch.ones(3, requires_grad=True)
y = torch.compile(torch.sin, backend="aot_eager")(x).sum()
(g,) = torch.autograd.grad(y, x, create_graph=True)
g.sum().backward()
""",
    "graphs/fx-in-compiled": r"""
import torch
torch.fx.symbolic_trace(torch.compile(lambda x: x + 1, backend="eager"))
""",
    "graphs/invalid-backend": r"""
import torch
torch.compile(torch.sin, backend="tensorrt")(torch.ones(2))
""",
    "graphs/mode": r"""
import torch
torch.compile(torch.sin, mode="fast")
""",
    "graphs/mode#2": r"""
import torch
torch.compile(torch.sin, mode="default", options={"max_autotune": True})
""",
    "graphs/backend-failed": r"""
import torch
def backend(graph, inputs):
    raise ValueError("no")
torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
""",
    "graphs/no-cxx": r"""
import torch
import torch._inductor.config as config
config.cpp.cxx = (None, "nothing")
torch.compile(lambda x: x + 1)(torch.ones(2))
""",
    "graphs/cxx-failed": r"""
import torch
import torch._inductor.config as config
config.cpp.cxx = (None, "/bin/cat")
config.force_disable_caches = True
torch.compile(lambda x: x + 1)(torch.ones(2))
""",
    "graphs/compiled-keys": r"""
import torch
net = torch.nn.Linear(2, 2)
net.load_state_dict(torch.compile(net).state_dict())
""",
    "graphs/compiled-keys#2": r"""
import torch
net = torch.nn.Linear(2, 2)
torch.compile(net).load_state_dict(net.state_dict())
""",
    "graphs/compiled-twice": r"""
import torch
net = torch.nn.Linear(2, 2)
torch.compile(torch.compile(net)).state_dict()
""",
    "graphs/jit-trace": r"""
import torch
torch.jit.trace(lambda x: x + 1 if x.sum() > 0 else x, torch.ones(2))
""",
    "graphs/trace-random": r"""
import torch
torch.jit.trace(lambda x: x * torch.rand(2), torch.ones(2))
""",
    "graphs/trace-output": r"""
import torch
torch.jit.trace(lambda x: {"x": x}, torch.ones(2))
""",
    "graphs/script-argument": r"""
import torch
f = torch.jit.CompilationUnit("def f(x):\n  return x + 1\n").f
f("a")
""",
    "graphs/script-pickle": r"""
import pickle, torch
f = torch.jit.CompilationUnit("def f(x):\n  return x\n").f
pickle.dumps(f)
""",
    "graphs/functorch": r"""
import torch
from functorch import vmap
vmap(torch.sum)(torch.ones(2, 2))
""",
    "graphs/export-module": r"""
import torch
torch.export.export(torch.sin, (torch.ones(4),))
""",
    "graphs/export-args": r"""
import torch
torch.export.export(torch.nn.Linear(2, 2), torch.ones(4, 2))
""",
    "graphs/export-guard": r"""
import torch
program = torch.export.export(torch.nn.ReLU(), (torch.ones(4),))
program.module()(torch.ones(5))
""",
    "tpu/no-package": r"""
import torch_xla
""",
    "tpu/device-tpu": r"""
import torch
torch.device("tpu")
""",
    "tpu/not-linked": r"""
import torch
torch.ones(1).to("xla")
""",
    "tpu/could-not-run": r"""
import torch
torch.ones(1, device="xla")
""",
    "tpu/backend": r"""
import torch
torch.compile(torch.sin, backend="aot_torchxla_trace_once")(torch.ones(1))
""",
    "tpu/xla-generator": r"""
import torch
torch.Generator("xla")
""",
    "tpu/torch-has-no-tpu": r"""
import torch
torch.tpu.is_available()
""",
    "tpu/torch-has-no-xla": r"""
import torch
torch.xla.device_count()
""",
    "movement/not-compiled": r"""
import torch
torch.ones(1).cuda()
""",
    "movement/not-compiled#2": r"""
import torch
torch.Generator("cuda")
""",
    "movement/not-compiled#3": r"""
import torch
with torch.cuda.device(0):
    pass
""",
    "detection/none-there": r"""
import torch
torch.accelerator.synchronize()
""",
    "detection/ordinal": r"""
import torch
torch.cuda.set_device(0)
""",
    "detection/gpu": r"""
import torch
torch.ones(1, device="gpu")
""",
    "detection/gpu#2": r"""
import torch
torch.nn.Linear(1, 1).to("Cuda")
""",
    "detection/invalid-string": r"""
import torch
torch.device("cuda:0,1")
""",
    "detection/invalid-string#2": r"""
import os, torch
torch.device(os.environ.get("DEVICE_NOT_SET", ""))
""",
    "detection/invalid-string#3": r"""
import torch
torch.device("cuda", -1)
""",
    "detection/has-cuda": r"""
import torch
print(torch.has_cuda)
""",
    "detection/not-linked": r"""
import torch
torch.ones(1).to("mps")
""",
    "detection/mps-missing": r"""
import torch
torch.ones(1, device="mps")
""",
    "detection/mps-missing#2": r"""
import torch
torch.mps.compile_shader("")
""",
    "detection/xpu-build": r"""
import torch
torch.ones(1).to("xpu")
""",
    "detection/xpu-build#2": r"""
import torch
torch.Generator("xpu")
""",
    "detection/backend-package": r"""
import torch
torch.ones(1, device="npu")
""",
    "detection/backend-package#2": r"""
import torch
torch.ones(1, device="hpu")
""",
    "detection/backend-package#3": r"""
import torch
torch.ones(1).to("privateuseone")
""",
    "detection/backend-package#4": r"""
import torch
print(torch.npu.is_available())
""",
    "detection/imported-twice": r"""
import importlib
import torch
importlib.reload(torch)
""",
    "detection/older-torch#2": r"""
import torch
del torch.compiler
torch.compiler.is_compiling()
""",
    "detection/newer-torch": r"""
from torch._six import container_abcs
""",
    "detection/newer-torch#2": r"""
import torch
torch.rfft(torch.ones(4), 1)
""",
    "detection/newer-torch#3": r"""
import torch
torch.symeig(torch.eye(2))
""",
    "detection/newer-torch#4": r"""
from torch.distributed.elastic.agent.server.api import log
""",
    "detection/ipex": r"""
import torch
import intel_extension_for_pytorch as ipex
""",
    "detection/cuda-home": r"""
from torch.utils.cpp_extension import CUDAExtension
CUDAExtension("mine", ["mine.cu"])
""",
    "detection/nvidia-ml": r"""
import torch
torch.cuda.utilization()
""",
    "distributed/no-group": r"""
import torch.distributed as dist
dist.get_rank()
""",
    "distributed/no-rank": r"""
import os
int(os.environ['LOCAL_RANK'])
""",
    "distributed/no-rank#2": r"""
import torch.distributed as dist
dist.init_process_group('gloo')
""",
    "distributed/twice": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.init_process_group('gloo')
""",
    "distributed/client-timeout": r"""
import torch.distributed as dist
from datetime import timedelta
dist.TCPStore("127.0.0.1", 1, 2, False, timeout=timedelta(seconds=2))
""",
    "distributed/clients-joined": r"""
import torch.distributed as dist
from datetime import timedelta
dist.TCPStore("127.0.0.1", 0, 2, True, timeout=timedelta(seconds=2))
""",
    "distributed/no-gradients": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
DistributedDataParallel(nn.Linear(2, 2).requires_grad_(False))
""",
    "distributed/bucket-strides": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
net = DistributedDataParallel(nn.Conv2d(3, 4, 1))
net.to(memory_format=torch.channels_last)
net(torch.ones(1, 3, 2, 2).to(memory_format=torch.channels_last)).sum().backward()
""",
    "distributed/sync-batch-norm": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
nn.SyncBatchNorm(2)(torch.ones(2, 2, 1))
""",
    "distributed/sync-batch-norm#2": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
DistributedDataParallel(nn.SyncBatchNorm(2))(torch.ones(2, 2, 1))
""",
    "distributed/lazy": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
DistributedDataParallel(nn.LazyLinear(2))
""",
    "distributed/two-kinds": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
net = nn.Linear(2, 2)
net.a = nn.Parameter(torch.ones(1, device="meta"))
DistributedDataParallel(net)
""",
    "distributed/parallel-attribute": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.nn.parallel import DistributedDataParallel
DistributedDataParallel(nn.Linear(2, 2)).in_features
""",
    "distributed/invalid-rank": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.gather(torch.ones(1))
""",
    "distributed/mixed-dtensor": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
fully_shard(net[0])
net(torch.ones(1, 2)).sum().backward()
nn.utils.clip_grad_norm_(net.parameters(), 0.1)
""",
    "distributed/load-into-shards": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
net = nn.Linear(2, 2)
state = {name: x.clone() for name, x in net.state_dict().items()}
fully_shard(net)
net.load_state_dict(state)
""",
    "distributed/fsdp-root": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
fully_shard(net[0])
net[0](torch.ones(1, 2))
fully_shard(net)
net(torch.ones(1, 2))
""",
    "distributed/fsdp-meta": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
with torch.device("meta"):
    net = nn.Linear(2, 2)
fully_shard(net)
net(torch.ones(1, 2))
""",
    "distributed/fsdp-modules": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
""",
    "distributed/fsdp-modules#2": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
import copy
net = nn.Linear(2, 2)
fully_shard(net)
copy.deepcopy(net)
""",
    "distributed/fsdp-dtypes": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.fsdp import fully_shard
net = nn.Linear(2, 2)
net.a = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
fully_shard(net)
net(torch.ones(1, 2))
""",
    "distributed/mesh-size": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.device_mesh import init_device_mesh
init_device_mesh("cpu", (2, 2))
""",
    "distributed/mesh-names": r"""
import os, torch, torch.distributed as dist
from torch import nn
from datetime import timedelta
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
from torch.distributed.device_mesh import init_device_mesh
init_device_mesh("cpu", (1,))["dp"]
""",
    "distributed/checkpoint-missing": r"""
import torch, torch.distributed.checkpoint as dcp
dcp.load({"a": torch.ones(2)}, checkpoint_id="not-there")
""",
}
