"""Train a small network on handwritten digits. It trains rightly, and slowly.

`make capstone` copies this file to work/capstone.py, if none is there, and judges that
copy. Change there what you like, but for what the judge calls:

  train(device, epochs) → losses, shares, accuracy
      one training, the same each time: in each epoch all of TRAIN, in another order, in
      batches of BATCH. losses: the mean loss of each epoch's steps; shares: how many
      samples of each epoch the model got right in its steps, from 0 to 1; accuracy: of
      TEST, in the end. All are Python's numbers
  timed(work, device) → result, seconds
      what work() returns, and how long it took, with all that it made the device do,
      and nothing that the device had to do before

Of the test in the end only the accuracy is judged. Whether the model is compiled, you
decide.
"""

import time

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, EPOCHS = 24, 64, 10
TRAIN, TEST = range(1408), range(1408, 1792)


def enlarge(image):
    """From 8 × 8 pixels to SIDE × SIDE, and from 0 to 1."""
    old, new = np.arange(8), np.linspace(0, 7, SIDE)
    wide = np.stack([np.interp(new, old, row) for row in image])
    return np.stack([np.interp(new, old, column) for column in wide.T]).T / 16


class Digits(Dataset):
    def __init__(self, samples):
        digits = load_digits()
        self.images, self.labels = digits.images[samples], digits.target[samples]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return enlarge(self.images[i])[None], self.labels[i]


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.mean = torch.from_numpy(mean)
        self.batches = 0
        first = nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2)
        last = nn.ReLU(), nn.Flatten(), nn.Linear(32 * 25, 10)
        self.layers = nn.Sequential(*first, *last)

    def forward(self, images):
        self.batches += 1
        return self.layers((images - self.mean.to(images.device)) / 0.4)


def train(device, epochs):
    torch.manual_seed(0)
    data = Digits(TRAIN)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    net = Net(enlarge(data.images.mean(0))).double().to(device)
    # this backend needs no compiler of C++; where there is one, "inductor" is faster
    model = torch.compile(net, backend="aot_eager")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses, outputs = [], []
    for _ in range(epochs):
        total = 0.0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            scores = model(images)
            loss = F.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            outputs.append((scores, labels))
        losses.append(total / len(loader))
    right = [(scores.argmax(1) == labels).sum().item() for scores, labels in outputs]
    shares = np.reshape(right, (epochs, -1)).sum(1) / len(data)
    return losses, shares.tolist(), evaluate(model, device)


def evaluate(model, device):
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(Digits(TEST), batch_size=BATCH):
            scores = model(images.to(device)).argmax(1)
            right += (scores == labels.to(device)).sum().item()
    return right / len(TEST)


def timed(work, device):
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    (losses, shares, accuracy), seconds = timed(lambda: train(device, EPOCHS), device)
    for epoch, (loss, share) in enumerate(zip(losses, shares, strict=True)):
        print(f"epoch {epoch}: loss {loss:.3f}, {share:.1%} right in training")
    print(f"{accuracy:.1%} right in the test; {seconds:.1f} s on {device}")
