"""Data that needs no download."""

import torch


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The 1,797 handwritten digits that come with scikit-learn, in its order: images
    and labels.

    Images: float32, shape (1797, 64), 8 × 8 gray values from 0 to 1, row by row.
    Labels: int64, shape (1797,), 0 to 9. Source: E. Alpaydin, C. Kaynak, "Optical
    Recognition of Handwritten Digits", UCI, 1998 (its test set).
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels / 16, dtype=torch.float32)
    return images, torch.tensor(labels, dtype=torch.int64)
