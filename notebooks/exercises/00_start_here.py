"""Exercises of lesson 00."""

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from simulate.fake import fake_gpus


def check_device_type(answer):
    names = ["cuda:1", "cuda:12", "xpu:0", "mps:0"]
    with fake_gpus():
        elsewhere = [torch.ones(2, device=name) for name in names]
    for x in (torch.ones(2), torch.ones(2, device="meta"), *elsewhere):
        shown = f"a tensor on {x.device}"
        got = call(answer, x, shown=shown)
        if isinstance(got, torch.device):
            raise Wrong(
                f"for {shown} you returned a torch.device; its type alone is asked, as"
                " text"
            )
        expect.equal(got, x.device.type, shown)


EXERCISES = [
    Exercise(
        number="00.1",
        title="Which type of device?",
        name="device_type",
        stars=1,
        check=check_device_type,
        hints=[
            "A tensor knows its device: x.device.",
            "A torch.device has two parts: a type and an index.",
            "x.device.type is text such as 'cuda'.",
        ],
        solution="""
def device_type(x):
    return x.device.type
""",
        praise="The index is a separate part, x.device.index; for the CPU it is None.",
    ),
]
