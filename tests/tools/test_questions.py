"""What PyTorch and the kit say to questions of the sheet, against its key."""

import copy
import io
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from device_lab import find_waits
from tools.questions import entries, gift

SHEET = {number: rest for number, _, *rest in entries("questions.md")[1]}
KEY = {number: right for number, right, *_ in entries("questions_key.md")[1]}
LABELS = torch.tensor([1, 0, 2])


def run(number, **names):
    """What the code of a question has made, with these names to begin with."""
    code = re.search("```\n(.+?)```", SHEET[number][0], re.S)[1]
    names |= {"torch": torch, "nn": nn, "F": F}
    exec(compile(code, "question", "exec"), names)
    return names


def changed():
    data = {device: torch.arange(3.0) for device in ("cpu", "meta")}
    for device, x in data.items():
        run("1")["centered"](x, device)
    assert data["meta"].sum() == 3  # as on any other device
    return "neither" if data["cpu"].sum() == 3 else 'the one with `"cpu"`'


def moved():
    net = run("2")["Net"]().to("meta")
    on = {"scale": net.scale, "shift": net.shift, "heads": net.heads["a"].weight}
    return " and ".join(f"`{name}`" for name, x in on.items() if x.is_meta)


def waiting(number, **names):
    found = find_waits(lambda: run(number, **names)).waits
    return " and ".join(sorted(wait.where.split(":")[1] for wait in found))


def trained():
    layers = [nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3)]
    model = nn.Sequential(*layers)
    before = copy.deepcopy(model).state_dict()
    run("6", model=model, test_batches=[(torch.randn(3, 8), LABELS)], right=0)
    return " and ".join(
        f"`{type(model[k]).__name__}`"
        for k in range(4)
        for name, x in model[k].state_dict(prefix=f"{k}.").items()
        if name.endswith(("weight", "mean")) and not torch.equal(x, before[name])
    )


def types():
    made = run("8", layer=nn.Linear(64, 64), x=torch.ones(2, 64))
    kinds = made["layer"].weight, made["k"], made["m"]
    return ", ".join(str(x.dtype)[6:] for x in kinds)


FOUND = {
    "1": changed,
    "2": moved,
    "4": lambda: waiting(
        "4",
        scores=torch.eye(3),
        labels=LABELS,
        best=torch.tensor(-1),
        log=io.StringIO(),
        n=3,
    ),
    "5": lambda: waiting(
        "5",
        labels=LABELS,
        table=torch.ones(3, 4),
        images=torch.ones(3, 2),
        counts=LABELS,
    ),
    "6": trained,
    "8": types,
}


@pytest.mark.parametrize("number", FOUND)
def test_the_key_is_right(number):
    assert SHEET[number][1][KEY[number]] == FOUND[number]()


def test_a_question_as_gift():
    said = gift()
    assert "::Question 10::[markdown]This loop runs" in said
    assert r"\n```\nfor rows in plan\:\n    x \= load(rows)      \# on the CPU" in said
    assert "\n=24 ms, and 24 ms#While" in said and '\n~40 ms, and 20 ms#"Twice' in said
