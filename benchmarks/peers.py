"""The training of train.py, written as one writes it with Accelerate and with Lightning: same model, data, optimizer.

python benchmarks/peers.py accelerate|lightning [options of train.py]    one step: how long until it is done?

Each class takes steps when asked to: `take(steps)` returns the seconds that they took, without start and end.
"""

import argparse
import logging
import pathlib
import sys
import time
import warnings

import torch
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "notebooks" / "scripts"))

import tasks  # noqa: E402
import train  # noqa: E402

WARM_UP = 1  # steps at the start of each measurement that do not count


def wait(device):
    if device.type != "cpu":
        torch.accelerator.synchronize()


def data_loader(args, device):
    """The same samples, as a data set for DataLoader."""
    data, _ = tasks.load(args)
    tensors = data.take(torch.arange(len(data)))
    pin = device.type == "cuda"
    return DataLoader(TensorDataset(*tensors), args.batch, shuffle=True, drop_last=True, pin_memory=pin)


def parts(args, device):
    """Model, optimizer and schedule as train.py has them."""
    layout = torch.channels_last if args.task == "digits" and device.type == "cuda" else torch.preserve_format
    model = tasks.model_of(args).to(device, memory_format=layout)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: train.learning_rate(step, args) / args.lr)
    return model, optimizer, schedule


class Ours:
    """train.py itself."""

    def __init__(self, args):
        self.device = train.pick_device(args)
        self.trainer, self.done = train.Trainer(args, self.device, tasks.load(args)[0]), 0

    def take(self, steps):
        for k in range(WARM_UP + steps):
            if k == WARM_UP:
                wait(self.device)
                begin = time.perf_counter()
            self.trainer.step(self.done)
            self.done += 1
        wait(self.device)
        return time.perf_counter() - begin


class WithAccelerate:
    def __init__(self, args):
        from accelerate import Accelerator

        self.device = train.pick_device(args)
        names = {torch.float32: "no", torch.bfloat16: "bf16", torch.float16: "fp16"}
        precision = names[train.pick_precision(self.device, args)]
        accelerator = Accelerator(mixed_precision=precision, cpu=self.device.type == "cpu")
        model, optimizer, schedule = parts(args, self.device)
        self.accelerator, self.args = accelerator, args
        prepared = accelerator.prepare(model, optimizer, data_loader(args, self.device), schedule)
        self.model, self.optimizer, self.loader, self.schedule = prepared
        self.batches = self.forever()

    def forever(self):
        while True:
            yield from self.loader

    def take(self, steps):
        for k in range(WARM_UP + steps):
            if k == WARM_UP:
                wait(self.device)
                begin = time.perf_counter()
            inputs, targets = next(self.batches)
            loss = tasks.loss_of(self.model, inputs, targets)
            self.accelerator.backward(loss)
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.args.clip)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
        wait(self.device)
        return time.perf_counter() - begin


class WithLightning:
    def __init__(self, args):
        import lightning

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="lightning")
        device = self.device = train.pick_device(args)
        names = {torch.float32: "32-true", torch.bfloat16: "bf16-mixed", torch.float16: "16-mixed"}

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model, self.optimizer, self.schedule = parts(args, device)

            def training_step(self, batch, _):
                return tasks.loss_of(self.model, *batch)

            def configure_optimizers(self):
                return [self.optimizer], [{"scheduler": self.schedule, "interval": "step"}]

        class Clock(lightning.Callback):
            def on_train_start(self, *_):
                self.begin = time.perf_counter()

            def on_train_batch_end(self, trainer, *_):
                if trainer.global_step in (WARM_UP, trainer.max_steps):
                    wait(device)
                    self.begin, self.seconds = time.perf_counter(), time.perf_counter() - self.begin

        off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        options = dict.fromkeys(off, False) | {"gradient_clip_val": args.clip, "devices": 1, "max_epochs": -1}
        options |= {"accelerator": device.type, "precision": names[train.pick_precision(device, args)]}
        self.module, self.loader, self.clock = Module(), data_loader(args, device), Clock()
        self.trainer = lambda steps: lightning.Trainer(max_steps=steps, callbacks=[self.clock], **options)

    def take(self, steps):
        self.trainer(WARM_UP + steps).fit(self.module, self.loader)
        return self.clock.seconds


WAYS = {"train.py": Ours, "Accelerate": WithAccelerate, "Lightning": WithLightning}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["accelerate", "lightning"])
    way, rest = parser.parse_known_args()
    global WARM_UP
    WARM_UP = 0
    {"accelerate": WithAccelerate, "lightning": WithLightning}[way.way](train.parse_arguments(rest)).take(1)
    print("step 1", flush=True)


if __name__ == "__main__":
    main()
