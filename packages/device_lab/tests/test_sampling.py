"""Where the host is: which part of a step, and which line of the reader's."""

import json
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from test_command import python, watched
from torch.utils.data import DataLoader, Dataset

from device_lab._command import facts
from device_lab._command.sampling import FORWARD, Frames, longest, stack
from device_lab._command.watch import _shapes

FRAMES = Frames()


def here():
    """(line's code, part) of who calls."""
    path, line, _, part = FRAMES.look(stack(sys._getframe(1)))
    return path == __file__, part


def test_a_line_is_that_of_the_moment_in_which_the_frames_were_seen():
    seen, line = list(stack(sys._getframe())), sys._getframe().f_lineno
    assert FRAMES.look(seen)[:2] == (__file__, line)


class Asking(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        return here()


class Within(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.said = here()
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        assert here() == (True, "backward") and ctx.said == (True, "")
        return grad


def test_parts_of_a_step_are_known_by_the_frames_of_pytorch():
    assert here() == (True, "")
    (batch,) = DataLoader(Asking(), batch_size=None)
    assert tuple(batch) == (True, "loader")
    w = torch.zeros(2, requires_grad=True)
    Within.apply(w).sum().backward()
    optimizer, said = torch.optim.LBFGS([w], max_iter=1), []

    def closure():
        said.append(here())
        return w.sum()

    optimizer.register_step_post_hook(
        lambda *_: said.append(FRAMES.look(stack(sys._getframe(1))))
    )
    optimizer.step(closure)
    assert said[0] == (True, "") and said[-1][3] == "optimizer"


def step(seconds, sampled, **parts):
    return SimpleNamespace(
        seconds=seconds,
        sampled=sampled,
        parts=Counter(parts),
        device_parts=Counter(),
        counts=Counter(),
        start=0,
        timeline=[],
    )


def test_lines_share_what_their_part_was_timed_at():
    """Few looks at a short part say how to divide it, not how long it is."""
    sampled = {("a.py", 1, "", "loader"): 0.001, ("a.py", 2, "", "loader"): 0.003}
    sampled |= {("a.py", 3, "", ""): 0.5, ("a.py", 4, "", ""): 0.5}
    parts = {"loader": 0.4, FORWARD: 0.6}
    rows = longest([step(1.0, sampled)], parts)
    assert {r["line"]: round(r["seconds"], 6) for r in rows} == {
        1: 0.1,
        2: 0.3,
        3: 0.3,
        4: 0.3,
    }
    assert [r["part"] for r in rows][-1] == "loader"


def test_long_steps_and_evaluations_are_told_apart():
    watch = SimpleNamespace(
        boundaries=SimpleNamespace(anchor=("optimizer", (), 0)),
        loaders={},
        device=lambda: torch.device("cpu"),
        steps=[],
        found={},
    )
    steps = [step(0.1, {("a.py", 1, "", ""): 0.1}) for _ in range(20)]
    for i in (4, 9, 14):
        steps[i] = step(0.9, {("a.py", 7, "", ""): 0.9})
    steps[17] = step(2.0, {})
    steps[17].counts["evaluation"] = 5
    for each in steps:
        each.timeline = [(0, None, FORWARD)]
    found = facts.pace(watch, steps)
    assert found["step"] == pytest.approx(0.1) and found["timed"] == 16
    long = found["long"]
    assert (long["count"], long["every"], long["why"]) == (3, 5, "lines")
    assert long["lines"][0]["line"] == 7
    assert found["evaluation"] == {"count": 1, "seconds": 2.0, "batches": 5}


def timed(monkeypatch, steps, cycle=None):
    """The pace of steps that load for 0.3 of their time, with workers."""
    watch = SimpleNamespace(
        boundaries=SimpleNamespace(anchor=("optimizer", (), 0)),
        loaders={0: {"workers": 2}},
        device=lambda: torch.device("cpu"),
        steps=[],
        found={},
    )
    monkeypatch.setattr(facts, "_cycle", lambda watch: cycle)
    for each in steps:
        end = each.seconds
        each.timeline = [(0, None, "loader"), (0.3 * end, None, FORWARD)]
    return facts.pace(watch, steps)


def test_long_steps_by_chance_are_not_those_of_a_cycle(monkeypatch):
    steps = [step(0.1, {("a.py", 1, "", ""): 0.1}) for _ in range(32)]
    steps[5] = step(0.5, {("a.py", 1, "", ""): 0.49, ("a.py", 7, "", ""): 0.01})
    found = timed(monkeypatch, steps, 2)["long"]
    assert (found["count"], found["every"], found["lines"]) == (1, None, [])
    assert found["why"] == "same lines"
    for i in (20, 21, 22):
        steps[i] = step(0.6, {("a.py", 1, "", ""): 0.6})
    found = timed(monkeypatch, steps, 16)["long"]
    assert (found["count"], found["every"]) == (2, 16)


SLEEPS = """
import json, time, torch
from torch.utils.data import DataLoader, Dataset
spent = dict.fromkeys(["loader", "forward", "backward", "after"], 0.0)
clock = time.perf_counter
class Data(Dataset):
    def __len__(self): return 100
    def __getitem__(self, i):
        spent["loader"] -= clock()
        time.sleep(0.012)  # loader
        spent["loader"] += clock()
        return torch.zeros(4)
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        spent["forward"] -= clock()
        time.sleep(0.009)  # forward
        spent["forward"] += clock()
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        spent["backward"] -= clock()
        time.sleep(0.015)  # backward
        spent["backward"] += clock()
        return grad
w = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
times = []
for x in DataLoader(Data()):
    begin = clock()
    Slow.apply(w * x).sum().backward()
    optimizer.step()
    spent["after"] -= clock()
    time.sleep(0.006)  # after
    spent["after"] += clock()
    times.append(clock() - begin)
print(json.dumps([spent, times]))
"""


@pytest.mark.timed
def test_known_sleeps_are_found_and_the_watching_costs_little(tmp_path):
    (tmp_path / "sleeps.py").write_text(SLEEPS, encoding="utf-8")
    ran, said = watched(tmp_path, "sleeps.py")
    spent, times = json.loads(ran.stdout)
    lines, parts = said["pace"]["lines"][:4], said["pace"]["parts"]
    found = {row["code"].partition("# ")[2]: row["seconds"] for row in lines}
    true = {name: seconds / 100 for name, seconds in spent.items()}
    assert found == pytest.approx(true, rel=0.1)
    for part in ("loader", "backward"):
        assert parts[part] == pytest.approx(true[part], rel=0.1)
    _, alone = json.loads(python(tmp_path, "sleeps.py").stdout)
    timed = sorted(times[2:5] + times[30:50])
    assert timed[len(timed) // 2] < 1.05 * sorted(alone)[50]


def test_of_a_batch_the_largest_tensors_are_shown():
    boxes = [{"box": torch.zeros(4)} for _ in range(4)]
    shown = _shapes([torch.zeros(2, 3, 8, 8), boxes, torch.zeros(2, dtype=torch.int64)])
    assert shown == "…, [4] float32, [4] float32, [2, 3, 8, 8] float32"
