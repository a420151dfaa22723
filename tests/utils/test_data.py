"""The digits are those of scikit-learn, in the types that a training loop wants."""

import torch
from sklearn.datasets import load_digits

from utils.data import digits


def test_digits():
    images, labels = digits()
    assert (images.shape, images.dtype, labels.shape, labels.dtype) == (
        (1797, 64),
        torch.float32,
        (1797,),
        torch.int64,
    )
    assert (images.min(), images.max(), labels.unique().tolist()) == (
        0,
        1,
        list(range(10)),
    )
    sheet = load_digits()
    assert (
        16 * images
    ).tolist() == sheet.data.tolist() and labels.tolist() == sheet.target.tolist()
