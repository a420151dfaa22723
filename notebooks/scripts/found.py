"""A training loop as people write it: what it computes is right, and it is slow.

  python found.py

Handwritten digits, 8 x 8 pixels each, from scikit-learn. Lesson 15 finds out where the
time goes. tasks.py and checkpoint.py must lie beside this file.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from tasks import ConvNet
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, images, labels):
        self.images = images  # NumPy: pixels from 0 to 16
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = (self.images[i] / 16 - 0.305) / 0.376
        return torch.from_numpy(image), self.labels[i]


def load():
    """What to train on, and what to test on."""
    images, labels = load_digits().images, load_digits().target
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order.numpy(), None], labels[order.numpy()]
    return Digits(images[:1437], labels[:1437]), Digits(images[1437:], labels[1437:])


def make_model():
    torch.manual_seed(0)
    # without: "Input type (double) and bias type (float) should be the same"
    return ConvNet(16).double()


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def batches(data, order):
    return DataLoader(data, batch_size=64, sampler=order.tolist(), num_workers=2)


def train(model, optimizer, batches, device):
    losses, right = [], 0
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        scores = model(images)
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for k in range(len(labels)):
            if scores[k].argmax() == labels[k]:
                right += 1
    return losses, right


def evaluate(model, data, device):
    model.eval()
    total, right = 0, 0
    for image, label in DataLoader(data):
        image, label = image.to(device), label.to(device)
        scores = model(image)
        total += F.cross_entropy(scores, label)
        if scores.argmax() == label:
            right += 1
    model.train()
    return total.item() / len(data), right / len(data)


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    training, test = load()
    model = make_model().to(device)
    optimizer = make_optimizer(model)
    for epoch in range(3):
        order = torch.randperm(len(training))
        losses, right = train(model, optimizer, batches(training, order), device)
        loss, accuracy = evaluate(model, test, device)
        print(
            f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}, right"
            f" {right / len(training):.1%}; test loss {loss:.4f}, right {accuracy:.1%}"
        )


if __name__ == "__main__":
    main()
