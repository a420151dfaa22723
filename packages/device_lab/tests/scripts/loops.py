"""Loops of nine kinds, which know nothing of device_lab: python loops.py NAME. Each
prints all that it can be told apart by.
"""

import hashlib
import random
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS = 60


def data(count=64 * STEPS):
    return TensorDataset(torch.randn(count, 8), torch.randint(0, 4, (count,)))


def mlp(out=4):
    return nn.Sequential(
        nn.Linear(8, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(32, out),
    )


def classify():
    """A loader, a schedule, an evaluation after each epoch."""
    model, device = mlp(), "cpu"
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    test = DataLoader(data(640), batch_size=64)
    for _ in range(3):
        model.train()
        for x, y in DataLoader(data(64 * 20), batch_size=64, shuffle=True):
            x, y = x.to(device), y.to(device)
            x += 1
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            print(loss.item())
        model.eval()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
        print("right", right)
        schedule.step()
    return [model]


def gan():
    """Two optimizers, three backward passes, several tensors by numpy."""
    first, second = mlp(8), mlp(1)
    steps = [torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (first, second)]
    for i in range(STEPS):
        real, noise = torch.from_numpy(numpy.random.randn(2, 32, 8)).float()
        steps[1].zero_grad()
        F.softplus(-second(real)).mean().backward()
        fake = first(noise)
        F.softplus(second(fake.detach())).mean().backward()
        steps[1].step()
        steps[0].zero_grad()
        F.softplus(-second(fake)).mean().backward()
        steps[0].step()
        if i % 10 == 0:
            print(i, float(fake.mean()))
    return [first, second]


def accumulate():
    """Four backward passes a step, autocast, clipping, a default device, own modes."""
    torch.set_default_device("cpu")
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(512, 8), torch.randint(0, 4, (512,))
    mode = torch.overrides.BaseTorchFunctionMode()
    for i in range(STEPS):
        if i % 3 == 0:
            mode.__enter__()  # it ends within a later step
        for _ in range(4):
            rows = torch.randint(0, 512, (32,))
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(model(x[rows]), y[rows])
            (loss / 4).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if i % 3 == 2:
            mode.__exit__(None, None, None)
        print(norm.item())
    return [model]


def closure():
    """L-BFGS."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, lr=0.1)
    x = torch.randn(64, 8)

    def loss():
        optimizer.zero_grad()
        value = (model(x) - x.sum(1, keepdim=True)).square().mean()
        value.backward()
        return value

    for _ in range(STEPS // 2):
        print(optimizer.step(loss).item())
    return [model]


def scaled():
    """A GradScaler that skips steps, gradients that are checked by hooks."""
    model, scaler = mlp(), torch.amp.GradScaler("cpu", init_scale=2.0**40)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[0].weight.register_hook(lambda grad: grad.clamp(-1e30, 1e30))
    for x, y in DataLoader(data(), batch_size=64):
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item(), scaler.get_scale())
    return [model]


def by_hand():
    """No optimizer; what is moved and written in place is shared with the script."""
    model, text = nn.GRU(8, 16), torch.randn(STEPS * 4, 2, 8)
    for i in range(STEPS):
        piece = text[4 * i : 4 * i + 4].to("cpu")
        piece += 0.5
        out, _ = model(piece)
        model.zero_grad()
        out.square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.1)
        print(text.cpu().sum().item())
    return [model]


class Slow(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        return torch.full((8,), i / 512) + torch.rand(8), random.random()


def infer():
    """Nothing is trained; workers."""
    model = mlp().eval()
    with torch.inference_mode():
        for x, number in DataLoader(Slow(), batch_size=8, num_workers=2):
            print(model(x).softmax(1).max().item(), number.sum().item())
    return [model]


class Speaker(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.keys = nn.Embedding(9, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 9)

    def forward(self, tokens, cache):
        cache.k = torch.cat([cache.k, self.keys(self.embed(tokens))], 1)
        return self.head(cache.k.mean(1))

    @torch.no_grad()
    def generate(self, tokens, new):
        cache, said = nn.Module(), []
        cache.k = torch.zeros(len(tokens), 0, 64)
        for _ in range(new):
            tokens = torch.multinomial(self(tokens, cache).softmax(-1), 1)
            if tokens[0].item() == 9:
                break
            said.append(tokens)
        return torch.cat(said, 1)


def generate():
    """A token at a time, with a cache that grows."""
    model = Speaker().eval()
    for length in (5, 9, 7):
        print(model.generate(torch.zeros(32, length, dtype=torch.long), 40)[0].tolist())
    return [model]


def rollouts():
    """Rollouts without gradients, then epochs over them, as PPO does."""
    model = mlp(2).eval()
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-5)
    for _ in range(8):
        states = torch.zeros(16, 4, 8)
        for t in range(16):
            with torch.no_grad():
                states[t] = torch.randn(4, 8) + torch.tensor([model(states[t]).sum()])
        for _ in range(4):
            for rows in torch.randperm(64).split(16):
                loss = model(states.flatten(0, 1)[rows]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(loss.item())
    return [model]


LOOPS = accumulate, by_hand, classify, closure, gan, generate, infer, rollouts, scaled

if __name__ == "__main__":
    torch.manual_seed(0), numpy.random.seed(0), random.seed(0)
    models = {loop.__name__: loop for loop in LOOPS}[sys.argv[1]]()
    hashed = hashlib.sha256()
    for each in [x for m in models for x in m.state_dict().values()]:
        hashed.update(each.numpy().tobytes())
    hashed.update(torch.get_rng_state().numpy().tobytes())
    print(hashed.hexdigest(), random.random(), numpy.random.rand())
    if len(sys.argv) > 2:
        torch.save(models[0].state_dict(), sys.argv[2])
