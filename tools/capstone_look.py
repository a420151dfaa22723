"""What the judge of the capstone sees of a script: one training, heard by a mode of
PyTorch; its clock, held against a pretend device; trainings for the speed; device-lab's
report. Nothing here says what is right.
"""

import contextlib
import gc
import importlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode

EPOCHS, BATCH = 4, 64  # of what is compared; of the script
COUNTED = 22, 66  # steps at the ends of two epochs: what they hold more, was kept
MATMULS = "conv2d linear matmul mm addmm bmm baddbmm __matmul__ einsum".split()


def load(path):
    """The script as a new module; its folder is where its workers find it, too."""
    path = Path(path).resolve()
    if sys.path[0] != str(path.parent):
        sys.path.insert(0, str(path.parent))
    sys.modules.pop(path.stem, None)
    importlib.invalidate_caches()
    return importlib.import_module(path.stem)


def device_here():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Ear(TorchFunctionMode):
    """Hears a training: the losses, samples, types and copies of its steps."""

    def __init__(self):
        super().__init__()
        self.losses, self.samples, self.steps = [], [], 0
        self.held, self.before = [], tensors()
        self.types, self.weights, self.copies = set(), set(), 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name == "backward" and torch.is_tensor(args[0]):
            self.losses.append(args[0].detach())
        elif name in MATMULS and torch.is_grad_enabled():
            self.multiplies(*args[:2])
        out = function(*args, **(kwargs or {}))
        if name in ("to", "cuda") and torch.is_tensor(out):
            self.moves(args[0], out, (kwargs or {}).get("non_blocking"))
        return out

    def multiplies(self, x, weight):
        kind, short = x.device.type, x.dtype
        if x.dtype != torch.float64 and torch.is_autocast_enabled(kind):
            short = torch.get_autocast_dtype(kind)
        self.types.add(str(short).removeprefix("torch."))
        self.weights.add(str(weight.dtype).removeprefix("torch."))
        if not x.requires_grad:  # the batch
            flat = x.detach().double().flatten(1)
            self.samples.append(
                flat @ torch.linspace(1, 2, flat.shape[1]).to(flat) ** 5
            )

    def moves(self, x, out, asked):
        batch = torch.is_grad_enabled() and x.dim() and len(x) == BATCH
        if batch and not x.requires_grad and x.device.type == "cpu":
            if out.device.type != "cpu":
                self.copies += not (asked and x.is_pinned())

    def stepped(self, *_):
        self.steps += 1
        if self.steps in COUNTED:
            old = {id(x) for x in [*self.before, *self.losses, *self.samples]}
            parts = [x.untyped_storage() for x in tensors() if id(x) not in old]
            self.held.append(sum({x._cdata: x.nbytes() for x in parts}.values()))

    def kept(self):
        """Bytes that a step leaves behind: less than device-lab's report mentions."""
        steps = COUNTED[1] - COUNTED[0]
        return (self.held[1] - self.held[0]) / steps if len(self.held) == 2 else 0


def tensors():
    """All that Python holds."""
    gc.collect()
    return [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]


def look(path):
    """What one training of the script shows, with the compiler off; and its clock."""
    script, device, ear = load(path), device_here(), Ear()
    hook = register_optimizer_step_post_hook(ear.stepped)
    try:
        with torch.compiler.set_stance("force_eager"), ear:
            result = script.train(device, EPOCHS)
    finally:
        hook.remove()
    samples = torch.cat(ear.samples).tolist() if ear.samples else []
    return {
        "result": json.loads(json.dumps(result, default=str)),
        "losses": [float(loss) for loss in ear.losses],
        "samples": samples,
        "steps": ear.steps,
        "types": sorted(ear.types),
        "weights": sorted(ear.weights),
        "copies": ear.copies / max(1, ear.steps),
        "kept": ear.kept(),
        "tf32": torch.get_float32_matmul_precision() != "highest",
        "clock": clock(script.timed),
    }


class Pretend:
    """A device whose work is done when its time has come: what PyTorch offers to wait
    for it, waits so long.
    """

    def __init__(self):
        self.free = 0.0

    def ask(self, seconds):
        self.free = max(self.free, time.perf_counter()) + seconds

    def wait(self, *_, **__):
        time.sleep(max(0.0, self.free - time.perf_counter()))

    def event(self, *_, **__):
        return PretendEvent(self)

    @contextlib.contextmanager
    def instead(self):
        """While this lasts, it is the GPU of this machine."""
        with (
            mock.patch("torch.cuda.is_available", lambda: True),
            mock.patch("torch.accelerator.is_available", lambda *_: True),
            mock.patch("torch.cuda.synchronize", self.wait),
            mock.patch("torch.accelerator.synchronize", self.wait),
            mock.patch("torch.cuda.Event", self.event),
        ):
            yield


class PretendEvent:
    def __init__(self, device):
        self.synchronize, self.device = device.wait, device

    def record(self, *_):
        self.at = max(self.device.free, time.perf_counter())

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)


def clock(timed):
    """What is wrong with the script's clock; "" if nothing is."""
    device = Pretend()

    def work():
        device.ask(0.1)
        return "result"

    with device.instead():
        for _ in range(3):  # a busy machine may be late
            device.ask(0.2)
            try:
                result, seconds = timed(work, torch.device("cuda"))
            except Exception as error:
                return f"timed() stopped: {type(error).__name__}: {error}"
            device.wait()
            if result != "result":
                return "timed() does not give what work() gave"
            if 0.095 < seconds < 0.2:
                return ""
    why = "does not wait for it" if seconds < 0.1 else "counts what was there before"
    return (
        f"of 0.1 s of work on a device that was busy before it says {seconds:.2f} s: it"
        f" {why}"
    )


def run(path):
    """(seconds of one training as it is, graphs, graph breaks)"""
    script, device = load(path), device_here()
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    logging.disable(logging.WARNING)  # of the original, about its graphs
    start = time.perf_counter()
    script.train(device, EPOCHS)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    logging.disable(logging.NOTSET)
    breaks = sum(counters["graph_break"].values())
    return seconds, counters["stats"]["unique_graphs"], breaks


def report(path):
    """device-lab's, of the script as it is started from a shell."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        options = ["--quiet", "--then", "stop", "--json", file]
        done = subprocess.run(
            [sys.executable, "-m", "device_lab", *options, path],
            capture_output=True,
            text=True,
            check=False,
        )
        if not file.exists():
            raise RuntimeError(f"device-lab saw no training:\n{done.stderr[-1500:]}")
        return json.loads(file.read_text("utf-8"))
