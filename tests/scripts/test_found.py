"""found.py, the loop that lesson 15 makes fast: it trains, and is as slow as it was."""

import found
import torch
from torch.utils.data import Subset


def test_it_trains_in_float64():
    training, test = found.load()
    assert len(training) == 1437 and len(test) == 360
    image, label = training[0]
    assert image.dtype == torch.float64 and image.shape == (1, 8, 8)
    assert label.dtype == torch.int64
    model = found.make_model()
    optimizer = found.make_optimizer(model)
    order = torch.arange(640)
    losses, right = found.train(
        model, optimizer, found.batches(training, order), torch.device("cpu")
    )
    assert len(losses) == 10 and losses[-1] < losses[0] and 0 < right <= 640
    loss, share = found.evaluate(model, Subset(test, range(40)), torch.device("cpu"))
    assert loss > 0 and 0 < share <= 1 and model.training


def test_its_faults_are_there():
    """Those that a newer PyTorch, or a kind hand, might mend."""
    training, _ = found.load()
    loader = found.batches(training, torch.arange(64))
    assert loader.num_workers == 2 and not loader.persistent_workers
    model = found.make_model()
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert not found.make_optimizer(model).defaults["fused"]
