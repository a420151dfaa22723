"""CountWaits notes what would wait for a GPU, and nothing that the CPU has already."""

import pytest
import torch

from simulate.waits import CountWaits

# lines by how often they wait
ONE = """
f"{x[1]:.3f}"
print(x)
int(x[1])
bool(x[1])
x.tolist()
x.cpu().tolist()
x.to("cpu").sum().item()
[float(v) for v in x.cpu()]
x[x > 1]
x[: n]
x[n]
list(range(n))
torch.equal(x, y)
torch.where(x > 1)
torch.bincount(x.long())
torch.allclose(x, y)
x.nonzero()
torch.tensor([x[0]])
torch.zeros(3).copy_(x).tolist()
x.to(torch.device("cpu")).tolist()
x.to(y.device).tolist()
torch.zeros(3, device=x.device).tolist()
torch.cuda.synchronize()
torch.cpu.synchronize()
"""
TWO = """
x.to(x.cpu().device)
[x.cpu(), x.tolist()]
[x[0].item(), x[1].item()]
"""
NONE = """
x + y
x[:2]
torch.where(x > 1, x, y)
x.to(torch.float64)
torch.ones(3).tolist()
torch.randperm(3).tolist()
torch.eye(2).tolist()
torch.randint(3, (2,)).tolist()
torch.normal(0.0, 1.0, (2,)).tolist()
x.to(y.device)
torch.ones(3, device="cpu").tolist()
"""
LINES = [(line, 1) for line in ONE.strip().splitlines()]
LINES += [(line, 2) for line in TWO.strip().splitlines()]
LINES += [(line, 0) for line in NONE.strip().splitlines()]


@pytest.mark.parametrize(("line", "count"), LINES)
def test_counts(line, count):
    x, y, n = torch.arange(3.0), torch.ones(3), torch.tensor(2)
    with CountWaits() as waits:
        eval(line, {"torch": torch, "x": x, "y": y, "n": n})
    assert waits.count == count, waits.names


def test_a_list_of_tensors_is_read_one_by_one_and_a_late_copy_waits_for_nothing():
    losses = [torch.tensor(1.0), torch.tensor(2.0)]
    with CountWaits() as waits:
        torch.tensor(losses)
    assert waits.names == ["tensor", "tensor"]
    with CountWaits() as waits:
        losses[0].to("cpu", non_blocking=True)
    assert (waits.count, waits.late) == (0, 1)


def test_numpy_asks_for_a_copy_first():
    x = torch.ones(2)
    with CountWaits(), pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        x.numpy()
    with CountWaits(numpy_raises=False) as waits:
        assert x.numpy().tolist() == [1, 1] and x.cpu().numpy().tolist() == [1, 1]
    assert waits.names == ["numpy", "cpu"]
