"""Answers to the exercises of lesson 06."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

BY_PLACE = """
from torch.utils.data import DataLoader

def make_loader(dataset, workers, device):
    return DataLoader(
        dataset,
        16,
        True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )
"""
ANSWERS["06.0"] = Answers(
    right=[
        """
from torch.utils.data import DataLoader

def make_loader(dataset, workers, device):
    options = {"batch_size": 16, "shuffle": True, "pin_memory": "cuda" in str(device)}
    if workers:
        options |= {
            "num_workers": workers,
            "persistent_workers": True,
            "prefetch_factor": 2,
        }
    return DataLoader(dataset, **options)
""",
        """
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

def make_loader(dataset, workers, device):
    batches = BatchSampler(RandomSampler(dataset), 16, drop_last=False)
    cuda = torch.device(device).type == "cuda"
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=workers,
        pin_memory=cuda,
        persistent_workers=bool(workers),
    )
""",
        """
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler

def make_loader(dataset, workers, device):
    options = dict(batch_size=16, num_workers=workers, persistent_workers=workers > 0)
    pin, sampler = device.type == "cuda", SubsetRandomSampler(range(len(dataset)))
    return DataLoader(dataset, sampler=sampler, pin_memory=pin, **options)
""",
    ],
    wrong={
        """
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler

def make_loader(dataset, workers, device):
    options = dict(batch_size=16, num_workers=workers, persistent_workers=workers > 0)
    pin = device.type in ("cuda", "xpu")
    return DataLoader(dataset, shuffle=True, pin_memory=pin, **options)
""": "device=xpu the loader pins its batches",
        """
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler

def make_loader(dataset, workers, device):
    options = dict(batch_size=16, num_workers=workers, persistent_workers=workers > 0)
    pin, sampler = device.type == "cuda", RandomSampler(dataset, replacement=True)
    return DataLoader(dataset, sampler=sampler, pin_memory=pin, **options)
""": "each sample must come once",
        edit(
            BY_PLACE, ("workers > 0", "True")
        ): "persistent_workers option needs num_workers > 0",
        edit(
            BY_PLACE, ('device.type == "cuda"', "True")
        ): "for workers=0, device=cpu the loader pins its batches",
        edit(
            BY_PLACE,
            ("return", "pin = torch.cuda.is_available()\n    return"),
            ('device.type == "cuda"', "pin"),
        ): "device=c",
        edit(
            BY_PLACE,
            ("return", 'pin = str(device) == "cuda"\n    return'),
            ('device.type == "cuda"', "pin"),
        ): "device=cuda:1 the loader does not pin",
        edit(
            BY_PLACE,
            ("return", 'pin = device.type != "cpu"\n    return'),
            ('device.type == "cuda"', "pin"),
        ): "device=mps the loader pins its batches",
        """
from torch.utils.data import DataLoader
def make_loader(dataset, workers, device):
    return DataLoader(
        dataset, 16, True, num_workers=workers, pin_memory=device.type == "cuda"
    )
""": "the workers do not stay alive",
        """
from torch.utils.data import DataLoader
def make_loader(dataset, workers, device):
    pin = device.type == "cuda"
    return DataLoader(
        dataset, 16, num_workers=workers, persistent_workers=workers > 0, pin_memory=pin
    )
""": "the batches are not shuffled",
    },
)

FETCH_SUM = SOLUTION["06.1"]
ANSWERS["06.1"] = Answers(
    right=[
        edit(FETCH_SUM, ("result", "synchronize")),
        """
def fetch_sum(stream, there, here):
    stream.launch(here.copy_, there)
    stream.synchronize()
    return sum(here.flatten().tolist())
""",
        """
import time

def fetch_sum(stream, there, here):
    stream.launch(here.copy_, there)
    while not stream.record_event().query():
        time.sleep(0.0001)
    return float(here.sum())
""",
        """
def fetch_sum(stream, there, here):
    return stream.launch(lambda: here.copy_(there).sum().item()).result()
""",
    ],
    wrong={
        edit(
            FETCH_SUM, ("event =", "stream.launch(here.copy_, there)\n    event =")
        ): "was launched 2 times",
        """
def fetch_sum(stream, there, here):
    stream.launch(here.copy_, there).result()
    return int(here.sum())
""": "you returned 13, expected 13.5",
        """
import concurrent.futures
def fetch_sum(stream, there, here):
    concurrent.futures.wait([stream.launch(here.copy_, there)], timeout=0.01)
    return here.sum().item()
""": "that was in `here` before the copy",
        edit(
            FETCH_SUM, ("    event.result()\n", "")
        ): "that was in `here` before the copy",
        edit(
            FETCH_SUM,
            ("def", "import time\ndef"),
            ("event.result()", "time.sleep(0.05)"),
        ): "you returned -5.0",
        edit(
            FETCH_SUM,
            ("def", "import time\ndef"),
            ("event.result()", "time.sleep(0.5)"),
        ): "guess no times",
        """
def fetch_sum(stream, there, here):
    stream.launch(here.copy_, there)
    return there.sum().item()
""": "the number is right, but not from the copy",
        """
def fetch_sum(stream, there, here):
    event = stream.launch(here.copy_, there)
    total = here.sum().item()
    event.result()
    return total
""": "read `here` after the wait",
        """
def fetch_sum(stream, there, here):
    return there.sum().item()
""": "nothing was launched on the stream",
        """
def fetch_sum(stream, there, here):
    here.copy_(there)
    return here.sum().item()
""": "nothing was launched on the stream",
        edit(FETCH_SUM, ("here.sum", "there.sum")): "where the device has gone on",
        """
def fetch_sum(stream, there, here):
    stream.wait_event(stream.launch(here.copy_, there))
    return here.sum().item()
""": "it is the host that reads",
        edit(FETCH_SUM, ("().item", "")): "expected a Python number",
    },
    equivalent={
        "clears there": (
            "The device uses that memory again as soon as the copy is done."
        ),
        "changes what is in there": (
            "The device uses that memory again as soon as the copy is done."
        ),
        "changes here before it is used": ("The copy overwrites it."),
        "moves there to the CPU": ("The toy device has its numbers in main memory."),
        "moves here to the CPU": ("It is in main memory: the task says so."),
    },
)

ANSWERS["06.2"] = Answers(
    right=[
        """
def workers_needed(load, copy, compute, overlapped):
    step = compute
    if not overlapped:
        step += copy
    workers = 1
    while load / workers > step:
        workers += 1
    return workers
""",
        """
def workers_needed(load, copy, compute, overlapped):
    return max(
        1, int(-(-load // (max(copy, compute) if overlapped else copy + compute)))
    )
""",
        """
import numpy as np

def workers_needed(load, copy, compute, overlapped):
    return np.ceil(np.maximum(load, 1e-6) / (compute + (1 - overlapped) * copy)).astype(
        int
    )
""",
    ],
    wrong={
        """
def workers_needed(load, copy, compute, overlapped):
    return max(1, load // (compute if overlapped else copy + compute))
""": "expected 2: 1 would load a batch every 30 ms, the device takes one every 20 ms",
        """
def workers_needed(load, copy, compute, overlapped):
    return load // (compute if overlapped else copy + compute) + 1
""": "expected 1: one worker loads a batch every 30 ms, enough for one every 30 ms",
        """
import math
def workers_needed(load, copy, compute, overlapped):
    return max(1, math.ceil(load / compute))
""": "enough for one every 30 ms",
        """
import math
def workers_needed(load, copy, compute, overlapped):
    return max(1, math.ceil(load / (copy + compute)))
""": "the device takes one every 20 ms",
        """
def workers_needed(load, copy, compute, overlapped):
    return max(1, round(load / (compute if overlapped else copy + compute)))
""": "expected 4: 3 would load a batch every 20.333 ms",
        """
import math
def workers_needed(load, copy, compute, overlapped):
    return math.ceil(load / (compute if overlapped else copy + compute))
""": "at least one worker is asked",
        """
def workers_needed(load, copy, compute, overlapped):
    return max(1.0, -(-load // (compute if overlapped else copy + compute)))
""": "you returned 1.0, expected a whole number, an int",
        """
import math
def workers_needed(load, copy, compute, overlapped):
    return max(1, math.ceil(load / (copy + compute if overlapped else compute)))
""": "the device takes one every 20 ms",
    },
)

SEND_PACKED = SOLUTION["06.3"]
ANSWERS["06.3"] = Answers(
    right=[
        """
def send_packed(tensors, device):
    there = torch.cat([x.flatten() for x in tensors]).to(device, non_blocking=True)
    result, start = [], 0
    for x in tensors:
        result.append(there[start : start + x.numel()].reshape(x.shape))
        start += x.numel()
    return result
""",
        """
def send_packed(tensors, device):
    sizes = [x.numel() for x in tensors]
    staging = torch.empty(sum(sizes), dtype=tensors[0].dtype)
    for part, x in zip(staging.split(sizes), tensors, strict=True):
        part.view(x.shape).copy_(x)
    there = torch.empty_like(staging, device=device)
    there.copy_(staging)
    return tuple(
        part.unflatten(0, x.shape) if x.dim() else part[0]
        for part, x in zip(there.split(sizes), tensors)
    )
""",
        """
def send_packed(tensors, device):
    there = torch.hstack([x.ravel() for x in tensors]).to(device)
    ends = torch.tensor([x.numel() for x in tensors]).cumsum(0)[:-1]
    return [
        part.view_as(x) for part, x in zip(torch.tensor_split(there, ends), tensors)
    ]
""",
        """
def send_packed(tensors, device):
    packed = torch.cat([x.flatten() for x in tensors]).to(device)
    result = [
        torch.empty(x.shape, dtype=x.dtype, device=packed.device) for x in tensors
    ]
    for mine, part in zip(result, packed.split([x.numel() for x in tensors])):
        mine.copy_(part.view(mine.shape))
    return result
""",
    ],
    wrong={
        edit(
            SEND_PACKED,
            ("def", "import numpy\ndef"),
            (
                "cat([x.reshape(-1) for x in tensors])",
                "from_numpy(numpy.concatenate([x.numpy().ravel() for x in tensors]))",
            ),
        ): "unsupported ScalarType BFloat16",
        """
def send_packed(tensors, device):
    shapes = [x.shape for x in tensors]
    packed = torch.cat([x.resize_(x.numel()) for x in tensors]).to(device)
    return [
        part.view(shape)
        for part, shape in zip(packed.split([s.numel() for s in shapes]), shapes)
    ]
""": "your function changed tensors[0]",
        """
def send_packed(tensors, device):
    return [x.to(device) for x in tensors]
""": "right shapes, but 4 copies to the device for 4 tensors: one is asked",
        """
def send_packed(tensors, device):
    packed = torch.empty(sum(x.numel() for x in tensors))
    torch.cat([x.reshape(-1) for x in tensors], out=packed)
    parts = packed.to(device).split([x.numel() for x in tensors])
    return [part.reshape(x.shape) for part, x in zip(parts, tensors)]
""": "entry 0 left as torch.int64 and came as torch.float32",
        edit(
            SEND_PACKED,
            ("to(device)", "float().to(device)"),
            ("view(x.shape)", "reshape(x.shape).to(x.dtype)"),
        ): "whose numbers are they?",
        """
def send_packed(tensors, device):
    packed = torch.cat([x.view(-1) for x in tensors]).to(device)
    parts = packed.split([x.numel() for x in tensors])
    return [part.reshape(x.shape) for part, x in zip(parts, tensors)]
""": "not contiguous",
        edit(
            SEND_PACKED,
            ("reshape", "T.reshape(-1) if x.dim() == 2 else x.reshape"),
            ("view", "reshape"),
        ): "whose numbers are they?",
        edit(
            SEND_PACKED, ("(device)", "(device.type)"), ("view", "reshape")
        ): "`device` was meta:1, you sent to meta",
        """
def send_packed(tensors, device):
    return list(torch.stack(tensors).to(device))
""": "raised RuntimeError",
        """
def send_packed(tensors, device):
    packed = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    return list(packed.split([x.numel() for x in tensors]))
""": "entry 0 should have the shape (2, 3)",
        """
def send_packed(tensors, device):
    packed = torch.cat([x.reshape(-1) for x in tensors]).to(device)
    return [packed[: x.numel()].reshape(x.shape) for x in tensors]
""": "whose numbers are they?",
        """
def send_packed(tensors, device):
    return [torch.empty_like(x, device=device) for x in tensors]
""": "but 0 copies",
    },
)

FEED = SOLUTION["06.4"]
TWO_SLOTS = """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        if n >= 2:
            events[n - 2].result()
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
    return events
"""
ANSWERS["06.4"] = Answers(
    right=[
        """
def feed(stream, batches, slots, there):
    events = []
    for n in range(len(batches)):
        if n > 1:
            events[-2].synchronize()
        slots[n % 2].copy_(batches[n])
        events.append(stream.launch(there[n].copy_, slots[n % 2]))
    return events
""",
        """
import itertools

def feed(stream, batches, slots, there):
    events, last = [], {}
    for batch, target, k in zip(batches, there, itertools.cycle((1, 0))):
        if k in last:
            last[k].result()
        slots[k][:] = batch
        last[k] = stream.launch(lambda target=target, k=k: target.copy_(slots[k]))
        events.append(stream.record_event())
    return events
""",
        """
def feed(stream, batches, slots, there):
    events = []
    for n, (batch, target) in enumerate(zip(batches, there)):
        slots[n % 2].copy_(batch)
        events.append(stream.launch(target.copy_, slots[n % 2]))
        if n:
            events[n - 1].result()
    events[-1].result()
    return tuple(events)
""",
    ],
    wrong={
        edit(
            TWO_SLOTS, ("slot)", "batch)")
        ): "the copy of batch 0 took the batch itself",
        edit(TWO_SLOTS, ("(batch)", "(n)")): "fill the slot with the batch",
        edit(
            TWO_SLOTS, (".copy_(batch)", "[0] = batch[0]")
        ): "fill the slot with the batch",
        edit(
            TWO_SLOTS,
            ("        slot.copy_(batch)\n", ""),
            ("    return", "        slot.copy_(batch)\n    return"),
        ): "when copy 0 was launched no slot held batch 0",
        edit(
            TWO_SLOTS, ("        slot.copy_(batch)\n", ""), ("slot)", "batch.clone())")
        ): "when copy 0 was launched no slot held batch 0",
        edit(
            FEED,
            (
                (
                    "        if n >= len(slots):\n"
                    "            events[n - len(slots)].result()\n"
                ),
                "",
            ),
        ): "its slot was refilled before its copy was done",
        """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        slot.copy_(batch)
        events.append(stream.launch(there[n].copy_, slot))
        stream.synchronize()
    return events
""": "the host waited for the first copy",
        edit(
            FEED,
            (
                "events[n - len(slots)].result()",
                "stream.wait_event(events[n - len(slots)])",
            ),
        ): "it is the host that fills the slot",
        """
def feed(stream, batches, slots, there):
    return [stream.launch(there[n].copy_, batch) for n, batch in enumerate(batches)]
""": "took the batch itself: the host must fill a slot",
        """
def feed(stream, batches, slots, there):
    for n, batch in enumerate(batches):
        there[n].copy_(batch)
    return []
""": "0 operations were launched",
        edit(
            FEED, ("n >= len(slots)", "events"), ("n - len(slots)", "-1")
        ): "before it filled the second slot",
        edit(FEED, ("len(slots):", "2 and n % 2 == 0:"), ("- len(slots)", "- 1")): (
            "the host waited for the copy of batch 1 before it filled the slot for"
            " batch 2"
        ),
        """
def feed(stream, batches, slots, there):
    events = []
    for n, batch in enumerate(batches):
        slot = slots[n % len(slots)]
        slot.copy_(batch)
        if n >= len(slots):
            events[n - len(slots)].result()
        events.append(stream.launch(there[n].copy_, slot))
    return events
""": "its slot was refilled before its copy was done",
        edit(FEED, ("    return events\n", "")): "return the list of the 6 events",
        edit(
            FEED,
            ("def", "import time\ndef"),
            (
                "if n >= len(slots):\n            events[n - len(slots)].result()",
                "time.sleep(0.02)",
            ),
        ): "its slot was refilled before its copy was done",
    },
    equivalent={
        "changes there before it is used": (
            "Each tensor of it is overwritten by a copy."
        ),
    },
)
