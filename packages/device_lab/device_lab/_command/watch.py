"""Watches some steps of a script that knows nothing of it: hooks that PyTorch offers,
a few functions that are wrapped meanwhile, for some steps a thread that looks where the
host is, for others the modes that count waits and memory. Then all of it goes.
"""

import atexit
import contextlib
import functools
import itertools
import json
import multiprocessing.util
import os
import re
import sys
import threading
import time
import traceback
import weakref
from collections import Counter

import torch
from torch import nn
from torch.optim import optimizer as optim
from torch.utils.data import dataloader
from torch.utils.weak import WeakTensorKeyDictionary

from .._kit._lines import place
from .._kit._wait_rules import tensors_of
from .._kit.errors import LabError
from .._kit.trace import busy
from .._kit.waits import TO_CPU
from . import facts
from .faults import explain_errors
from .memory import StepMemory
from .sampling import FORWARD, Frames, Sampler, line_of, stack
from .steps import BEFORE, Boundaries, world
from .waits import StepWaits, note_scalers

ENV = "DEVICE_LAB_WATCH"
# The first steps go through all that is watched, for scripts that end soon
FIRST = "warm pace pace settle waits settle memory memory memory warm".split()
SECONDS = 1.0  # of short steps so much is timed, and half of it watched for waits,
COUNTED = 24  # or so many steps
MOST = 1000  # steps, however short
COUNTING, SLOW = ("settle", "waits", "memory"), 20.0  # these take seconds: no more then
TRACED = 3  # steps under the profiler, on a GPU
CYCLES = 200  # steps watched for waits, until what comes now and then came three times


class Step:
    """What was noted between two boundaries. timeline: (seconds, CUDA event, part that
    begins then). sampled: place → seconds. waits: row → times.
    """

    def __init__(self, phase):
        self.phase, self.start, self.seconds = phase, time.perf_counter(), 0.0
        self.timeline, self.parts, self.device_parts = [], Counter(), Counter()
        self.counts, self.sampled = Counter(), Counter()
        self.waits = None


class Watch:
    """options: those of the command. steps: what was noted of each."""

    def __init__(self, options):
        self.options, self.frames = options, Frames()
        self.on, self.boundaries = True, Boundaries()
        self.steps, self.step, self.parts = [], None, [FORWARD]
        self.sampler = self.waits = self.memory = self.profiler = None
        self.optimizers, self.numbers = weakref.WeakKeyDictionary(), itertools.count()
        self.taken = self.turns = 0
        self.made, self.loaders = weakref.WeakKeyDictionary(), {}
        self.iterators = weakref.WeakKeyDictionary()
        self.autocast, self.scaled, self.skipped = set(), 0, 0
        self.scaling = self.idle = False
        self.batch = None
        self.found, self.notes, self.undo, self.before_loop = {}, [], [], []
        self.model, self.calling = lambda: None, False
        self.moved = WeakTensorKeyDictionary()
        self.spent, self.stops = 0.0, 0

    # ---- what it hears of

    def install(self):
        """Hooks and wrappers, until `uninstall`."""
        pre = optim.register_optimizer_step_pre_hook(self.optimizer_begins)
        post = optim.register_optimizer_step_post_hook(self.optimizer_ends)
        self.undo += [pre.remove, post.remove, note_scalers()]
        iterator, loader = dataloader._BaseDataLoaderIter, dataloader.DataLoader
        for owner, name, wrapper in (
            (iterator, "__next__", self.next_batch),
            (loader, "__iter__", self.iterates),
            (loader, "__init__", self.makes),
            (optim.Optimizer, "__init__", self.makes),
            # a mode of PyTorch hears of the method: what ends a step stands above that
            (torch.Tensor, "backward", self.backward),
            (torch.autograd, "backward", self.backward),
            (torch.autocast, "__enter__", self.casts),
            (torch.amp.GradScaler, "step", self.scales),
        ):
            self.undo.append(self.wrap(owner, name, wrapper))
        self.before_loop.append(self.wrap(torch.Tensor, "to", self.moves))
        self.hear_no_calls = self.wrap(nn.Module, "__call__", self.calls)
        self.undo.append(self.hear_no_calls)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forked)
        atexit.register(self.at_exit)

    def wrap(self, owner, name, wrapper):
        old, own = getattr(owner, name), name in owner.__dict__

        @functools.wraps(old)
        def new(*args, **kwargs):
            if torch.compiler.is_compiling():
                return old(*args, **kwargs)
            if not self.on:
                self.uninstall()
                return old(*args, **kwargs)
            return wrapper(old, *args, **kwargs)

        new._torchdynamo_disable = name != "__call__"  # models are compiled with it

        def put_back():
            if owner.__dict__.get(name) is new:
                setattr(owner, name, old) if own else delattr(owner, name)

        setattr(owner, name, new)
        return put_back

    def uninstall(self):
        """Not from a hook of optimizers: PyTorch is going through them."""
        for undo in (self.undo, self.before_loop):
            while undo:
                undo.pop()()

    def moves(self, old, x, *args, **kwargs):
        """What is moved to the device before the loop lies there in it."""
        out = old(x, *args, **kwargs)
        to = [*args[:1], kwargs.get("device")]
        if any(isinstance(each, (str, torch.device)) for each in to):
            self.guarded(self.note_moved, out)
        return out

    def note_moved(self, x):
        if not (self.boundaries.anchor or re.search(TO_CPU, place().code)):
            self.moved[x] = "there"

    def guarded(self, function, *args):
        """An error of the watch ends the watching, not the script."""
        begin = time.perf_counter()
        try:
            with torch._C.DisableTorchFunction():
                return function(*args)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            at = f"{os.path.basename(where.filename)}:{where.lineno}"
            said = f"{type(error).__name__}: {error}, {at}"
            self.notes.append(f"The watching ended by an error of its own: {said}.")
            self.on = False
            for _ in range(3):  # what has failed once is not asked again
                with contextlib.suppress(Exception):
                    self.leave()
        finally:
            self.spent += time.perf_counter() - begin

    def is_here(self):
        return self.boundaries.thread in (None, threading.get_ident())

    @contextlib.contextmanager
    def part(self, name):
        """A part of the step, for as long as the block runs."""
        if not self.is_here():
            yield
            return
        self.begin_part(name)
        try:
            yield
        finally:
            self.end_part()

    def begin_part(self, name):
        self.parts.append(name)
        if self.step is not None:
            self.step.counts[name] += 1
        self.mark()

    def end_part(self):
        if len(self.parts) > 1:
            self.parts.pop()
        self.mark()

    def mark(self):
        if self.step is not None and self.step.phase == "pace":
            event = None
            if self.on_cuda():
                event = torch.cuda.Event(enable_timing=True)
                event.record()
            self.step.timeline.append((time.perf_counter(), event, self.parts[-1]))

    def makes(self, old, thing, *args, **kwargs):
        self.guarded(self.note_maker, thing, sys._getframe(2))
        return old(thing, *args, **kwargs)

    def note_maker(self, thing, frame):
        self.made[thing] = line_of(*self.frames.look(stack(frame))[:2])
        self.no_calls()

    def calls(self, old, module, /, *args, **kwargs):
        """Of a model without gradients, not those within."""
        if self.calling or torch.is_grad_enabled():
            return old(module, *args, **kwargs)
        self.calling, self.model = True, weakref.ref(module)
        try:
            self.boundary("call", sys._getframe(2))
            return old(module, *args, **kwargs)
        finally:
            self.calling = False

    def iterates(self, old, loader):
        iterator = old(loader)
        if isinstance(iterator, dataloader._BaseDataLoaderIter):
            self.iterators[iterator] = loader
        return iterator

    def next_batch(self, old, iterator):
        with self.part("loader"), self.silence():
            batch = old(iterator)
        if self.is_here() and self.on:
            self.guarded(self.note_batch, iterator, batch)
            self.boundary("batch", sys._getframe(2))
        return batch

    @contextlib.contextmanager
    def silence(self):
        """What a loader does is the host's own."""
        watches = [x for x in (self.waits, self.memory) if x is not None]
        for watch in watches:
            watch.silence(True)
        try:
            yield
        finally:
            for watch in watches:
                watch.silence(False)

    def note_batch(self, iterator, batch):
        evaluates = not torch.is_grad_enabled()
        if evaluates and self.step is not None:
            self.step.counts["evaluation"] += 1
        loader = self.iterators.get(iterator)
        if loader is not None:
            key = str(self.made.get(loader)), type(loader.dataset), loader.num_workers
            if key not in self.loaders:
                self.loaders[key] = facts.loader(self, loader, evaluates)
            self.loaders[key]["batches"] += 1
        if self.batch is None:
            self.batch = _shapes(batch)

    def backward(self, old, *args, **kwargs):
        if "backward" in self.parts:
            return old(*args, **kwargs)
        with self.part("backward"):
            out = old(*args, **kwargs)
        if "optimizer" not in self.parts:  # else of a closure
            self.boundary("backward", sys._getframe(2))
        return out

    def casts(self, old, context):
        if context._enabled:
            kind = str(context.fast_dtype).removeprefix("torch.")
            self.autocast.add(f"{context.device} {kind}")
        return old(context)

    def scales(self, old, scaler, optimizer, *args, **kwargs):
        if not scaler.is_enabled():
            return old(scaler, optimizer, *args, **kwargs)
        before, self.scaling = self.taken, True
        try:
            out = old(scaler, optimizer, *args, **kwargs)
        finally:
            self.scaling = False
        self.scaled += 1
        self.skipped += self.taken == before
        self.boundary("optimizer", sys._getframe(2), optimizer)
        return out

    def optimizer_begins(self, optimizer, args, kwargs):
        if not (self.on and self.is_here()):
            return None
        self.begin_part("optimizer")
        if self.memory is not None:
            self.guarded(self.memory.begins, optimizer, args, kwargs)
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if not callable(closure):
            return None

        def within():  # its forward and backward are not the optimizer's
            with self.part(FORWARD):
                return closure()

        if "closure" in kwargs:
            return args, {**kwargs, "closure": within}
        return (args[0], within, *args[2:]), kwargs

    optimizer_begins._torchdynamo_disable = True

    def optimizer_ends(self, optimizer, args, kwargs):
        if not self.on:
            return
        self.taken += 1
        if self.is_here():
            self.end_part()
            if self.memory is not None:
                self.guarded(self.memory.ends, optimizer, args, kwargs)
        # some optimizers step within a backward, from a hook of each parameter
        if not self.scaling and torch._C._current_graph_task_id() == -1:
            self.boundary("optimizer", sys._getframe(2), optimizer)

    optimizer_ends._torchdynamo_disable = True

    # ---- from step to step

    def boundary(self, kind, frame, optimizer=None):
        while self.before_loop and kind != "call":
            self.before_loop.pop()()
        if self.on:
            self.guarded(self.may_end, kind, frame, optimizer)
            if not self.on and self.options["then"] == "stop" and "done" in self.found:
                self.stop()

    def no_calls(self):
        """They are steps only where nothing trains or loads."""
        self.hear_no_calls()
        if (self.boundaries.anchor or " ")[0] == "call":
            self.boundaries.choose(None)
            self.anew()

    def may_end(self, kind, frame, optimizer):
        if kind != "call":
            self.no_calls()
        calls = self.frames.calls(frame)
        if kind == "call":  # wherever the loop is called
            calls = (self.frames.look(stack(frame))[:3],)
        anchor = self.boundaries.anchor
        if optimizer is not None:
            optimizer = self.optimizers.setdefault(optimizer, next(self.numbers))
        said = self.boundaries.ends(kind, calls, optimizer)
        if self.boundaries.anchor != anchor:
            self.anew()
        if said:
            self.turns += 1
            self.turn()

    def anew(self):
        self.leave()
        self.found.clear()
        self.idle, self.turns = False, 0
        self.steps, self.step, self.parts = [], None, [FORWARD]

    def turn(self):
        """One step has ended, another begins."""
        if self.idle:
            return
        step, self.step = self.step, None
        if step is not None:
            step.seconds = time.perf_counter() - step.start
            if step.phase == "waits":
                step.waits = self.waits.end()
            if step.phase == "memory":
                self.memory.end()
            self.steps.append(step)
        phase = self.following()
        if phase is None:
            # what only takes batches may be a preparation: the training is waited for
            self.idle = self.boundaries.anchor[0] in ("batch", "call")
            if self.idle and self.options["then"] == "go":
                self.leave()
                self.hear_no_calls()
            else:
                self.finish()
            return
        self.enter(phase)
        self.step = Step(phase)
        self.mark()

    def following(self):
        """The phase of the step that begins; None if enough was seen."""
        taken = len(self.steps)
        if taken < len(FIRST):
            counting = FIRST[taken] in COUNTING
            return "warm" if counting and self.is_slow() else FIRST[taken]
        later = self.steps[len(FIRST) :]
        waited = [s for s in later if s.phase == "waits"]
        timed = [s for s in later if s.phase == "pace"]
        half = (self.options["steps"] - len(FIRST) + 1) // 2
        if not timed:
            if not later:
                return "warm" if self.is_slow() else "settle"
            enough = len(waited) >= COUNTED or _enough(waited, half, SECONDS / 2)
            if not ((enough or self.is_slow()) and self.cycles(waited)):
                return "waits"
            if self.on_cuda() and sum(s.phase == "trace" for s in later) < TRACED:
                return "trace"
            return "warm" if later[-1].phase != "warm" else "pace"
        return None if _enough(timed, half, SECONDS) and self.cycles(timed) else "pace"

    def is_slow(self):
        """Whether counting has cost the script enough."""
        slow = sum(step.seconds for step in self.steps if step.phase in COUNTING)
        return slow > SLOW and world() == 1

    def cycles(self, steps):
        """Whether what comes now and then came three times, or nobody waits for it."""
        long = sum(s.seconds for s in steps) > 10
        if long or len(steps) >= CYCLES or world() > 1:
            return True
        steps = [s for s in steps if not s.counts["evaluation"]]
        came = Counter(row for s in steps for row in s.waits or {})
        return not any(
            times < 3 and sum(s.waits[row] for s in steps if row in s.waits) > 3
            for row, times in came.items()
        )

    def enter(self, phase):
        if phase != "pace":
            self.end_sampling()
        if phase not in COUNTING and not (phase == "trace" and self.profiler):
            self.leave()
        if phase == "trace" and self.profiler is None:
            self.profiler = torch.profiler.profile()
            self.profiler.start()
        if phase == "pace" and self.sampler is None:
            self.sampler = Sampler(self)
        if phase == "settle":
            self.settle(len(self.steps))
        elif phase in COUNTING:
            getattr(self, phase).begin()

    def settle(self, taken):
        """Opens what counts; the step that follows is not counted yet."""
        self.leave()
        if "models" not in self.found:  # as long as they exist
            self.found["models"] = facts.models(self)
            self.found["optimizers"] = facts.optimizers(self)
        if FIRST[taken + 1 : taken + 2] == ["memory"]:
            self.memory = StepMemory(self.device(), self.optimizers)
            self.memory.open()
        else:
            if "waits" not in self.found:
                self.found["waits"] = StepWaits(self.moved)
            self.waits = self.found["waits"]
            self.waits.open()

    def end_sampling(self):
        if self.sampler is not None:
            self.sampler.stop()
            self.sampler = None

    def leave(self):
        """Nothing that costs time stays on."""
        self.end_sampling()
        if self.waits is not None:
            waits, self.waits = self.waits, None
            if not waits.close():
                self.notes.append("Counting waits could not be ended: see the times.")
        if self.memory is not None:
            memory, self.memory = self.memory, None
            self.found["memory"] = memory.close()
        if self.profiler is not None:
            profiler, self.profiler = self.profiler, None
            profiler.stop()
            try:
                self.found["busy"] = busy(profiler).share
            except LabError as error:
                why = str(error).partition(":")[0]
                self.notes.append(f"How busy the GPU was is not known: {why}.")

    def device(self):
        """Of what the optimizers step, else of the model."""
        more = getattr(self.model(), "parameters", tuple)()
        found = (p.device for p in itertools.chain(self.stepped(), more))
        return next(found, torch.device("cpu"))

    def stepped(self):
        return (p for x in self.optimizers for g in x.param_groups for p in g["params"])

    def on_cuda(self):
        return torch.cuda.is_initialized() and self.device().type == "cuda"

    # ---- the end

    def finish(self, ended=""):
        self.leave()
        self.on = False
        self.found["done"] = True
        facts.report(self, ended)

    def stop(self):
        """Ends the script, so that its `finally` and `with` run; what swallows
        SystemExit meets it again at the next optimizer step.
        """
        if not self.stops:
            optim.register_optimizer_step_post_hook(lambda *_: self.stop())
        self.stops += 1
        if self.stops > 3:
            sys.stdout.flush()
            os._exit(0)
        raise SystemExit(0)

    def forked(self):
        """A worker of a loader: nothing of this goes on in it."""
        self.sampler = None  # no thread is forked
        self.found["done"], self.on = True, False
        self.leave()

    def at_exit(self):
        if self.found.get("done"):
            return
        if self.on:
            self.guarded(self.leave)
        error = getattr(sys, "last_type", None)
        by = f", by {error.__name__}" if error else ""
        if self.idle:
            self.finish()
        elif any(step.phase == "pace" for step in self.steps):
            taken = self.turns + BEFORE.get(self.boundaries.anchor[0], 1)
            self.finish(f"the script ended after {taken} steps{by}")
        elif self.notes or self.is_first():
            facts.nothing(self, by)
        self.uninstall()

    def is_first(self):
        """Whether this process runs the script itself, and no part of it."""
        mine = (None, os.getpid()) if self.options["script"] else (os.getppid(),)
        return self.options["first"] in mine  # or torchrun's


def _enough(steps, count, seconds):
    """Among processes that train together the clock decides nothing: they have to stop
    in the same step.
    """
    spent, enough = sum(step.seconds for step in steps), len(steps) >= count
    if world() > 1:
        return enough
    if enough and (spent > seconds or len(steps) >= MOST):
        return True
    return spent > 30 and len(steps) >= 2


def _shapes(batch):
    tensors = sorted(tensors_of(batch), key=torch.numel)  # the largest are shown
    shapes = [f"{[*x.shape]} {str(x.dtype).removeprefix('torch.')}" for x in tensors]
    return ", ".join(["…"] * (len(shapes) > 3) + shapes[-3:]) or type(batch).__name__


def install():
    """In each process that the command started, after `import torch`."""
    options = json.loads(os.environ[ENV])
    spawned = "--multiprocessing-fork" in sys.orig_argv
    started = options["first"] in (None, os.getpid()) or "RANK" in os.environ
    if not options["script"] or started or spawned:
        explain_errors()
        watch = Watch(options)
        watch.install()
        if spawned:  # such processes end without atexit
            multiprocessing.util.Finalize(None, watch.at_exit, exitpriority=1)
