import pytest
import torch

from exercises.doubles.machine import machine


@pytest.mark.parametrize(
    ("built", "there", "known", "found"),
    [
        (None, False, None, None),
        ("cuda", True, "cuda", "cuda"),
        ("cuda", False, "cuda", None),
        ("mps", True, "mps", "mps"),
        ("xpu", True, "xpu", "xpu"),
    ],
)
def test_all_questions_get_the_answer_of_one_machine(built, there, known, found):
    def kind(device):
        return device and device.type

    before = torch.cuda.is_available(), torch.version.cuda
    with machine(built, there):
        ask = torch.accelerator.current_accelerator
        assert kind(ask()) == known and kind(ask(check_available=True)) == found
        assert torch.accelerator.is_available() == there
        for name in ("cuda", "mps", "xpu"):
            assert getattr(torch, name).is_available() == (name == found)
        assert torch.cuda.device_count() == (found == "cuda")
        assert (torch.version.cuda is not None) == (built == "cuda")
    assert (torch.cuda.is_available(), torch.version.cuda) == before
