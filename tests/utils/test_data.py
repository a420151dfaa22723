"""The digits are those of scikit-learn, in the types that a training loop wants."""

import torch
from sklearn.datasets import load_digits

from utils.data import digits


def test_digits():
    images, labels = digits()
    sheet = load_digits()
    assert images.dtype == torch.float32 and labels.dtype == torch.int64
    assert (images.min(), images.max()) == (0, 1)
    assert (16 * images).tolist() == sheet.data.tolist()
    assert labels.tolist() == sheet.target.tolist()
