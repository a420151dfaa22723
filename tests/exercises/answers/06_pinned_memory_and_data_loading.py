"""Answers to the exercises of lesson 06."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

LOADER = SOLUTION["06.0"]
ANSWERS["06.0"] = Answers(
    right=[
        """
from torch.utils.data import DataLoader

def with_workers(loader, workers, device):
    options = {"collate_fn": loader.collate_fn, "pin_memory": "cuda" in str(device)}
    if workers:
        options |= {
            "num_workers": workers,
            "persistent_workers": True,
            "prefetch_factor": 2,
        }
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, **options)
""",
        """
import torch.utils.data as data

def with_workers(loader, workers, device):
    class Batches:
        def __len__(self):
            return len(loader)

        def __iter__(self):
            yield from loader.batch_sampler

    return data.DataLoader(
        loader.dataset,
        batch_sampler=Batches(),
        num_workers=workers,
        collate_fn=lambda samples: loader.collate_fn(samples),
        pin_memory=torch.device(device).type == "cuda",
        persistent_workers=bool(workers),
    )
""",
    ],
    wrong={
        edit(
            LOADER, ("workers > 0", "True")
        ): "persistent_workers option needs num_workers > 0",
        edit(
            LOADER, ('device.type == "cuda"', "True")
        ): "workers=0, device=cpu yours pins its batches",
        edit(
            LOADER, ("        persistent_workers=workers > 0,\n", "")
        ): "the workers do not stay alive",
        edit(
            LOADER, ("        collate_fn=loader.collate_fn,\n", "")
        ): "loader.collate_fn says how it is put together",
        edit(
            LOADER,
            (
                "batch_sampler=loader.batch_sampler",
                "batch_sampler=[*loader.batch_sampler]",
            ),
        ): "yours has the same batches in each",
        edit(
            LOADER,
            (
                "batch_sampler=loader.batch_sampler",
                "batch_size=loader.batch_size,\n        shuffle=True",
            ),
        ): "yours makes no batches",
        edit(
            LOADER,
            (
                "batch_sampler=loader.batch_sampler",
                "batch_size=16,\n        shuffle=True",
            ),
        ): "loader.batch_sampler deals them out",
        """
def with_workers(loader, workers, device):
    loader.num_workers = workers
    loader.pin_memory = device.type == "cuda"
    return loader
""": "you changed the loader that you were given",
    },
)

FETCH_SUM = SOLUTION["06.1"]
ANSWERS["06.1"] = Answers(
    right=[
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
            FETCH_SUM, ("    event.result()\n", "")
        ): "that was in `here` before the copy",
        edit(
            FETCH_SUM,
            ("def", "import time\ndef"),
            ("event.result()", "time.sleep(0.5)"),
        ): "guess no times",
        """
def fetch_sum(stream, there, here):
    here.copy_(there)
    return here.sum().item()
""": "nothing was launched on the stream",
        edit(FETCH_SUM, ("here.sum", "there.sum")): "where the device has gone on",
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

EPOCH_TIME = SOLUTION["06.2"]
ANSWERS["06.2"] = Answers(
    right=[
        """
def epoch_time(load, step, workers, batches):
    ends = []
    for b in range(batches):
        ready = load * (1 + b // workers)
        ends.append(ready + (batches - b) * step)
    return max(ends)
""",
        """
def epoch_time(load, step, workers, batches):
    free, done = [0.0] * workers, 0.0
    for _ in range(batches):
        worker = free.index(min(free))
        free[worker] += load
        done = max(done, free[worker]) + step
    return done
""",
    ],
    wrong={
        """
def epoch_time(load, step, workers, batches):
    return batches * max(load / workers, step)
""": "nobody works before the first batch is loaded",
        """
def epoch_time(load, step, workers, batches):
    return load + batches * step
""": "the device waits for later batches, too",
        """
def epoch_time(load, step, workers, batches):
    return load + (batches - 1) * max(load / workers, step) + step
""": "workers begin together",
        edit(
            EPOCH_TIME, ("max(done, ready)", "ready")
        ): "a batch waits until the one before is done",
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
    ],
    wrong={
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
""": "entry 0 left as torch.int64, came as torch.float32",
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
    },
)

FEED = SOLUTION["06.4"]
ANSWERS["06.4"] = Answers(
    right=[
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
            events[n - 1].synchronize()
    events[-1].result()
    return tuple(events)
""",
    ],
    wrong={
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
""": "the host waited for the copy of batch 0 before it filled the slot for batch 1",
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
    },
    equivalent={
        "changes there before it is used": (
            "Each tensor of it is overwritten by a copy."
        ),
    },
)
