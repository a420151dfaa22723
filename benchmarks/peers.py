"""The training of train.py, written as one writes it with Accelerate and with
Lightning: same model, data, optimizer.

python -m benchmarks.peers train.py|Accelerate|Lightning [options of train.py]

Each line of input is a number of steps. They are taken, and a line of output tells
their number so far, the seconds that they took and the most bytes that a GPU held. The
end of input ends the process.
"""

import argparse
import itertools
import json
import logging
import sys
import time
import warnings

import tasks
import torch
import train
from torch.utils.data import DataLoader, TensorDataset


class Orders:
    """more() before each step: it says how long the steps so far took, and waits for an
    order of more.
    """

    def __init__(self, device):
        self.device, self.left, self.done, self.begin = device, 0, 0, None

    def more(self):
        """Whether to take another step."""
        if not self.left:
            self.report()
            self.left = int(sys.stdin.readline() or 0)
            self.begin = time.perf_counter()
        self.left, self.done = self.left - 1, self.done + 1
        return self.left >= 0

    def report(self):
        most = 0
        if self.device.type != "cpu":
            torch.accelerator.synchronize()
        if self.device.type == "cuda":
            most = torch.cuda.max_memory_allocated()
        if self.begin is not None:
            reply = json.dumps([time.perf_counter() - self.begin, most])
            print(f"step {self.done}: {reply}", flush=True)


def data_loader(args, device):
    """The same samples, as a data set for DataLoader."""
    data, _ = tasks.load(args)
    samples = TensorDataset(*data.take(torch.arange(len(data))))
    options = {"shuffle": True, "drop_last": True, "pin_memory": device.type == "cuda"}
    return DataLoader(samples, args.batch, **options)


def parts(args, device):
    """Model, optimizer and schedule as train.py has them."""
    layout = torch.preserve_format
    if args.task == "digits" and device.type == "cuda":
        layout = torch.channels_last
    torch.manual_seed(args.seed)
    model = tasks.model_of(args).to(device, memory_format=layout)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, fused=True)

    def factor(step):
        return train.learning_rate(step, args) / args.lr

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    return model, optimizer, schedule


def with_train(args, _):
    """train.py itself, with its own Trainer."""
    device = train.pick_device(args)
    trainer, orders = train.Trainer(args, device, tasks.load(args)[0]), Orders(device)
    for step in itertools.takewhile(lambda _: orders.more(), itertools.count()):
        trainer.step(step)


def with_accelerate(args):
    from accelerate import Accelerator

    device = train.pick_device(args)
    precision = train.pick_precision(device, args).replace("fp32", "no")
    accelerator = Accelerator(mixed_precision=precision, cpu=device.type == "cpu")
    model, optimizer, schedule = parts(args, device)
    loader = data_loader(args, device)
    prepared = accelerator.prepare(model, optimizer, loader, schedule)
    model, optimizer, loader, schedule = prepared
    orders = Orders(device)
    # epoch after epoch
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    while orders.more():
        inputs, targets = next(batches)
        loss = tasks.loss_of(model, inputs, targets)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def with_lightning(args):
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    device = train.pick_device(args)
    orders = Orders(device)
    names = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.optimizer, self.schedule = parts(args, device)

        def training_step(self, batch, _):
            return tasks.loss_of(self.model, *batch)

        def configure_optimizers(self):
            return [self.optimizer], [{"scheduler": self.schedule, "interval": "step"}]

    # from the end of a step to that of another, the fetching of batches included
    class Between(lightning.Callback):
        def on_train_start(self, trainer, module):
            trainer.should_stop = not orders.more()

        def on_train_batch_end(self, trainer, *_):
            trainer.should_stop = not orders.more()

    trainer = lightning.Trainer(
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=args.clip,
        devices=1,
        max_epochs=-1,
        max_steps=-1,
        accelerator=device.type,
        precision=names[train.pick_precision(device, args)],
        callbacks=[Between()],
    )
    trainer.fit(Module(), data_loader(args, device))


WAYS = {"train.py": with_train, "Accelerate": with_accelerate}
WAYS["Lightning"] = with_lightning


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    way, words = parser.parse_known_args()
    if way.way == "train.py":  # as it starts itself
        train.train, sys.argv = with_train, [train.__file__, *words]
        return train.main()
    return WAYS[way.way](train.parse_arguments(words))


if __name__ == "__main__":
    main()
