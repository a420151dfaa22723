import pytest
import torch

from exercises.doubles.checkpoint import saved_on

STATE = {"weight": torch.tensor([[0.5, -1.0]]), "cpu time": 3}


def test_only_the_place_of_the_tensors_is_another_one():
    for place in ("cpu", "cuda:0", "cuda:99", "xla:0"):
        seen = []

        def keep(storage, tag, seen=seen):
            seen.append(tag)
            return storage

        loaded = torch.load(saved_on(place, STATE), map_location=keep)
        assert seen == [place] and torch.equal(loaded["weight"], STATE["weight"])
        assert loaded["cpu time"] == 3


def test_without_map_location_the_device_is_missed():
    with pytest.raises(Exception, match="CUDA device"):
        torch.load(saved_on("cuda:99", STATE))
