import pytest
import torch

from simulate.fake import fake_gpus
from simulate.watch import MetaValues, Moves, Reads


def test_moves_are_those_between_two_devices():
    with fake_gpus():
        x = torch.ones(2)
        with Moves() as moves:
            y = x.to("cuda:0")
            y.to("cuda:0"), y + 1, torch.zeros(2, device="cuda:0")
            y.to("cuda:1"), y.cpu()
    assert moves.names == ["to", "to", "cpu"]


X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("read", "names"),
    [
        (lambda: X[0].item(), ["item"]),
        (lambda: X.tolist(), ["tolist"]),
        (lambda: X.sum() + 1, []),
        (lambda: X.cpu().tolist(), ["cpu"]),
        (lambda: (X.to("cpu") * 2)[0].item(), ["to"]),
        (lambda: torch.tensor([X[0], X[1]]), ["tensor", "tensor"]),
        (lambda: torch.tensor([1, 2]).tolist(), []),  # it was made on the host
        (lambda: X[X > 1], ["__getitem__"]),
        (lambda: torch.where(X > 1, X, 0), []),
        (lambda: torch.where(X > 1), ["where"]),
        (lambda: bool(X[0] > 1), ["__bool__"]),
        (lambda: torch.bincount(X.long()), ["bincount"]),
    ],
)
def test_reads_are_those_that_a_gpu_would_wait_for(read, names):
    with Reads() as reads:
        read()
    assert reads.names == names


def test_what_starts_on_the_host_may_be_moved():
    with Reads(given=[X]) as reads:
        X.to("cpu") + 1
    assert reads.names == []


def test_a_program_runs_through_on_meta():
    x = torch.ones(2, device="meta")
    with MetaValues():
        assert x.sum().item() == float(x.sum()) == 0 and f"{x.sum():.3f}" == "0"
        assert x.sum() < 1 and not torch.isnan(x.sum())
        assert x.cpu().tolist() == [0, 0]
        with pytest.raises(RuntimeError, match="same device"):
            total = torch.zeros(2)
            total += x
