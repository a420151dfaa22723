import pytest
import torch

from exercises.doubles.watch import MetaValues, Moves
from simulate.fake import fake_gpus


def test_moves_are_those_between_two_devices():
    with fake_gpus():
        x = torch.ones(2)
        with Moves() as moves:
            y = x.to("cuda:0")
            y.to("cuda:0"), y + 1, torch.zeros(2, device="cuda:0")
            y.to("cuda:1"), y.cpu()
    assert moves.names == ["to", "to", "cpu"]


def test_a_program_runs_through_on_meta():
    x = torch.ones(2, device="meta")
    with MetaValues():
        assert x.sum().item() == float(x.sum()) == 0 and f"{x.sum():.3f}" == "0"
        assert x.sum() < 1 and not torch.isnan(x.sum())
        assert x.cpu().tolist() == [0, 0]
        with pytest.raises(RuntimeError, match="same device"):
            total = torch.zeros(2)
            total += x
