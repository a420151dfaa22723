"""The judge of the capstone: the script as it is has eight faults; three right ways are
right; what people do instead is told from them, each by its sentence.
"""

import json
import re
from types import SimpleNamespace

import pytest
import torch

from tests.conftest import ROOT
from tools import capstone, capstone_look
from tools.capstone import FOUND, LEFT, ORIGINAL, SECTIONS, UNKNOWN

ANSWER = ROOT / "tests" / "tools" / "capstone_answer.py"
ON_A_CPU = {fault: UNKNOWN if fault == "copy" else FOUND for fault in SECTIONS}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def changed(folder, *changes):
    """The right answer with other lines, as a file that no other test has."""
    text = ANSWER.read_text("utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path = folder / f"{folder.name}.py"
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="module")
def original():
    look = capstone_look.look(ORIGINAL)
    return look, capstone_look.report(ORIGINAL), capstone_look.run(ORIGINAL)


@pytest.fixture(scope="module")
def heard():
    """What one training of the original shows, without device-lab."""
    return capstone_look.look(ORIGINAL)


def verdicts(original, path):
    """(fault → verdict, fault → why) of a script whose results agree."""
    old, before, _ = original
    new = capstone_look.look(path)
    assert capstone.disagreement(old, new) == ""
    report, run = capstone_look.report(path), capstone_look.run(path)
    rows = capstone.judge(old, new, before, report, [run])
    return {x[0]: x[1] for x in rows}, {x[0]: x[2] for x in rows}


# --------------------------------------------------------------------------------------
# Right


@pytest.mark.slow
def test_the_original_has_eight_faults(original):
    look, report, run = original
    rows = capstone.judge(look, look, report, report, [run])
    assert [row[0] for row in rows] == list(SECTIONS)
    assert {row[1] for row in rows} == {LEFT}, rows
    assert capstone.disagreement(look, look) == ""
    lines = "\n".join(capstone.rubric(rows, "", [1.0, 1.1, 0.9]))
    assert "total: 0 of 100 points" in lines


TIMED = """    synchronize(device)
    start = time.perf_counter()
    result = work()
    synchronize(device)
    return result, time.perf_counter() - start
"""
EVENTS = """    if device.type != "cuda":
        start = time.perf_counter()
        return work(), time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    result = work()
    end.record()
    end.synchronize()
    return result, start.elapsed_time(end) / 1000
"""
LOOP = "for images, labels in loader:"
ON_THE_DEVICE = [  # no loader, no compiler; events
    (
        "loader = DataLoader(data, batch_size=BATCH, shuffle=True, pin_memory=pin)",
        "x, y = data.images.to(device), data.labels.to(device)",
    ),
    (LOOP, "for part in torch.randperm(len(y), device=device).split(BATCH):"),
    (
        "images = images.to(device, non_blocking=True)",
        "images, labels = x[part], y[part]",
    ),
    ("            labels = labels.to(device, non_blocking=True)\n", ""),
    ("losses.append(loss / len(loader))", "losses.append(loss * BATCH / len(y))"),
    ('torch.compile(net, backend="aot_eager")', "net"),
    (TIMED, EVENTS),
]
IN_WHOLE_BATCHES = [  # the loader asks for batches; lists until the epoch ends
    (
        "DataLoader(data, batch_size=BATCH, shuffle=True, pin_memory=pin)",
        "DataLoader(data, sampler=BatchSampler(RandomSampler(data), BATCH, False),"
        " batch_size=None, pin_memory=pin)",
    ),
    (
        "DataLoader, Dataset",
        "BatchSampler, DataLoader, Dataset, RandomSampler",
    ),
    ("total = torch.zeros(2, device=device)", "total = []"),
    ("total += torch.stack([", "total.append(torch.stack(["),
    ("loss.detach(), right])", "loss.detach(), right]))"),
    ("total.tolist()", "torch.stack(total).sum(0).tolist()"),
    ('self.register_buffer("mean", mean)', "pass"),
    ("((images - self.mean) / 0.4)", "(images)"),
    (".float()[:, None]", ".float()[:, None].sub(MEAN).div(0.4)"),
    (
        "class Digits(",
        "MEAN = torch.from_numpy(enlarge(load_digits().images[TRAIN].mean(0))).float()"
        "\n\n\nclass Digits(",
    ),
    (
        'torch.compile(net, backend="aot_eager")',
        'torch.compile(net, fullgraph=True, backend="eager")',
    ),
]
RIGHT = {"the answer": [], "on the device": ON_THE_DEVICE, "batches": IN_WHOLE_BATCHES}


@pytest.mark.slow
@pytest.mark.parametrize("way", RIGHT)
def test_three_right_ways(original, tmp_path, way):
    said, why = verdicts(original, changed(tmp_path, *RIGHT[way]))
    assert said == ON_A_CPU, why


# --------------------------------------------------------------------------------------
# Other results: nothing counts, whatever is faster

STEP = "            optimizer.zero_grad()\n"
OTHER = {
    "fewer steps": (
        [(LOOP, "for images, labels in list(loader)[::2]:")],
        "it takes 44 optimizer steps, not 88: another training",
    ),
    "half of each batch": (
        [
            (
                "scores = model(images)\n",
                "images, labels = images[:32], labels[:32]\n"
                "                scores = model(images)\n",
            )
        ],
        "its steps see 2,816 samples, not 5,632",
    ),
    "not shuffled": (
        [("shuffle=True, ", "")],
        "each epoch has the samples in the same order",
    ),
    "with replacement": (
        [("shuffle=True, ", "sampler=torch.utils.data.RandomSampler(data, True), ")],
        "an epoch does not have each sample once",
    ),
    "the statistic is dropped": (
        [("shares.append(right / len(data))", "shares.append(0.0)")],
        "shares: 0.000, before 0.6",
    ),
    "the last loss for the mean": (
        [
            (
                "losses.append(loss / len(loader))",
                "losses.append(total.new_tensor(0).item())",
            )
        ],
        "losses[0] is 0.000, and the mean of the steps 1.9",
    ),
    "a mean of the wrong number": (
        [("loss / len(loader)", "loss / BATCH")],
        "and the mean of the steps 1.9",
    ),
    "a larger learning rate": (
        [("lr=1e-3", "lr=4e-3")],
        "which is more than rounding and another order",
    ),
    "no numbers": (
        [("loss, right = total.tolist()", "loss, right = total")],
        "something else than Python's finite numbers",
    ),
}


@pytest.mark.parametrize("way", OTHER)
def test_other_results_get_nothing(heard, tmp_path, way):
    changes, sentence = OTHER[way]
    new = capstone_look.look(changed(tmp_path, *changes))
    wrong = capstone.disagreement(heard, new)
    assert sentence in wrong
    rows = [(fault, FOUND, "") for fault in SECTIONS]
    lines = list(capstone.rubric(rows, wrong, [9.0]))
    assert "total: 0 of 100" in lines[-2] and "nothing counts" in lines[-1]
    assert "no points for another result" in " ".join(" ".join(lines).split())


BFLOAT16 = [
    (".to(device)\n    model", ".to(device, torch.bfloat16)\n    model"),
    ("images = images.to(device, ", "images = images.to(device, torch.bfloat16, "),
    ("model(images.to(device))", "model(images.to(device, torch.bfloat16))"),
]


def test_sixteen_bit_weights_are_no_precision(heard, tmp_path):
    """In four epochs the losses do not tell: the weights do."""
    new = capstone_look.look(changed(tmp_path, *BFLOAT16))
    verdict, why = capstone.precision(heard, new, None, None, None)
    assert verdict == LEFT and "the weights themselves have 16 bits" in why


# --------------------------------------------------------------------------------------
# The same results, and a fault is left

SAME = {
    "another wait": (
        [
            (
                STEP,
                "            if not torch.isfinite(loss):\n"
                "                raise ValueError(loss)\n" + STEP,
            )
        ],
        ("waits", "if not torch.isfinite(loss):"),
    ),
    "a wait in a print": (
        [(STEP, '            print(f"{loss:.3f}", end="\\r")\n' + STEP)],
        ("waits", "print(f"),
    ),
    "outputs without their graph": (
        [
            (STEP, "            kept.append(scores.detach())\n" + STEP),
            ("losses, shares = [], []", "losses, shares, kept = [], [], []"),
        ],
        ("leak", "each step leaves 2,560 bytes behind"),
    ),
    "images made in the loop": (
        [
            (
                "np.stack([enlarge(image) for image in digits.images[samples]])",
                "digits.images[samples]",
            ),
            (
                "images = images.to(device, ",
                "images = np.stack([enlarge(x[0].double().numpy()) for x in images])\n"
                "            images = torch.from_numpy(images).float()[:, None]\n"
                "            images = images.to(device, ",
            ),
            (
                "model(images.to(device))",
                "model(torch.from_numpy(np.stack([enlarge(x[0].double().numpy())"
                " for x in images])).float()[:, None].to(device))",
            ),
            (
                "data.images.mean(0)",
                "torch.from_numpy(enlarge(data.images.mean((0, 1))"
                ".double().numpy())).float()[None]",
            ),
        ],
        ("loader", "batches take "),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", SAME)
def test_what_is_left_is_seen(original, tmp_path, way):
    changes, (fault, sentence) = SAME[way]
    said, why = verdicts(original, changed(tmp_path, *changes))
    assert said[fault] == LEFT and sentence in why[fault], why
    others = {name for name in said if said[name] == LEFT}
    assert others <= {fault, "waits"}, why  # NumPy on what is on the device waits, too


COUNTER = [
    ("return self.layers((", "self.calls += 1\n        return self.layers(("),
    (
        "super().__init__()\n        self.reg",
        "super().__init__()\n        self.calls = 0\n        self.reg",
    ),
]
BREAK = [
    (
        "return self.layers((",
        "torch._dynamo.graph_break()\n        return self.layers((",
    )
]


@pytest.mark.parametrize("changes", [COUNTER, BREAK], ids=["counter", "break"])
def test_a_compiler_that_begins_anew(tmp_path, changes):
    path = changed(tmp_path, *changes)
    if changes is COUNTER:  # a higher limit makes it worse
        text = path.read_text("utf-8")
        more = "torch._dynamo.config.recompile_limit = 12\n\n\nclass Net("
        path.write_text(text.replace("class Net(", more), "utf-8")
    with torch._dynamo.config.patch(recompile_limit=8):
        seen = capstone_look.run(path)
    verdict, why = capstone.compiling(None, {"steps": 88}, None, None, [seen])
    assert verdict == LEFT, why


# --------------------------------------------------------------------------------------
# The clock


def test_clocks(tmp_path):
    script = capstone_look.load(changed(tmp_path))
    wrong = capstone_look.load(ORIGINAL).timed
    names = dict(vars(script))

    def made(body):
        exec(f"def timed(work, device):\n{body}", names)
        return capstone_look.clock(names["timed"])

    assert capstone_look.clock(script.timed) == made(EVENTS) == ""
    assert (
        made(TIMED.replace("synchronize(device)", "torch.accelerator.synchronize()"))
        == ""
    )
    assert "it does not wait for it" in capstone_look.clock(wrong)
    lines = TIMED.splitlines(keepends=True)
    assert "counts what was there before" in made("".join(lines[1:]))
    assert "does not wait for it" in made("".join(lines[:3] + lines[4:]))
    assert "does not give what work() gave" in made(
        TIMED.replace("return result", "return 0")
    )
    assert "timed() stopped: NameError" in made("    return nothing\n")


# --------------------------------------------------------------------------------------
# What another machine would say; the page


def test_on_a_gpu_copies_are_judged(heard, monkeypatch):
    cuda = SimpleNamespace(type="cuda")
    monkeypatch.setattr(capstone, "device_here", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert capstone.copy(None, {"copies": 2.0}, None, None, None)[0] == LEFT
    assert capstone.copy(None, {"copies": 0.0}, None, None, None)[0] == FOUND
    facts = {"types": ["float32"], "weights": ["float32"], "tf32": False}
    assert capstone.precision(None, facts, None, None, None)[0] == LEFT
    for more in ({"types": ["bfloat16"]}, {"tf32": True}):
        assert capstone.precision(None, facts | more, None, None, None)[0] == FOUND


def test_what_was_not_seen_is_not_judged(heard):
    nothing = {"pace": None, "waits": None, "memory": None, "left_behind": []}
    rows = capstone.judge(heard, heard, nothing, nothing, [(1.0, 2, 0)])
    said = {row[0]: row[1] for row in rows}
    assert {said[fault] for fault in ("loader", "waits", "leak")} == {UNKNOWN}


def test_workers_that_start_in_each_epoch_are_no_loader():
    """Where that takes far longer than a step, as device-lab's report says."""
    parts = {"loader": 0.001, "forward and Python": 0.002, "copy": 0}
    before = {"pace": {"parts": parts | {"loader": 0.01}, "long": None}}
    for why, verdict in (("workers start", LEFT), ("lines", FOUND)):
        after = {"pace": {"parts": parts, "long": {"why": why, "share": 0.3}}}
        assert capstone.loader(None, None, before, after, None)[0] == verdict


def test_times_that_are_a_model_give_no_points():
    rows = [(fault, FOUND, "") for fault in SECTIONS]
    lines = list(capstone.rubric(rows, "", []))
    assert "speed                not judged here" in lines[-2]
    assert lines[-1] == "total: 80 of 80 points that this machine can judge"


def test_the_sections_are_there():
    for number, section in SECTIONS.values():
        (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
        cells = json.loads(path.read_text("utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells)
        assert re.search(rf"^## {re.escape(section)}$", text, re.M), section


@pytest.mark.slow
@pytest.mark.weekly
def test_the_reader_s_copy_is_made_once_and_judged(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(capstone, "ROUNDS", 1)
    path = tmp_path / "work" / "capstone.py"
    capstone.main(path)
    shown = capsys.readouterr().out
    assert f"{path} is new: your copy" in shown and path.read_text("utf-8")
    assert "results              agree" in shown and " found: " not in shown
    assert len(re.findall("read again: lesson", shown)) == len(SECTIONS)
    mended = ANSWER.read_text("utf-8")
    path.write_text(mended, "utf-8")
    capstone.main(path)
    shown = capsys.readouterr().out
    assert path.read_text("utf-8") == mended and "is new" not in shown
    assert shown.count("10/10  found: ") == 7 and " left: " not in shown


@pytest.mark.slow
def test_a_script_that_stops_is_not_judged(tmp_path, capsys):
    path = changed(tmp_path, ("    losses, shares = [], []", "    losses = shares"))
    with pytest.raises(SystemExit, match="does not run to its end"):
        capstone.main(path)
    shown = capsys.readouterr().out
    assert "NameError" in shown and "losses = shares" in shown
    assert "total" not in shown
