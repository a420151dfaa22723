"""What the command says of facts that were made by hand: advice, terminal, page."""

import copy
import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_facts import (
    ALL,
    COPY,
    EMPTY,
    GPU,
    HUGE,
    INFERENCE,
    MEMORY,
    NASTY,
    OPTIMIZER,
    PPO,
    USUAL,
    changed,
    line,
    loader,
    timed,
    wait,
)

from device_lab._command import advice
from device_lab._command.report import page, terminal, time

FOLDER = Path(advice.__file__).parent
LESSONS = Path(__file__).parents[3] / "notebooks"
ANSI = re.compile(r"\033\[\d*m")


def whole(facts):
    facts = copy.deepcopy(facts)
    facts["changes"] = advice.changes(facts)
    facts["not_known"] = advice.not_known(facts)
    return facts


def first(facts):
    """(where, lesson, saves) of each change."""
    found = advice.changes(facts)
    return [(x["where"], x["lesson"], x["saves"]["text"]) for x in found]


def lessons(facts):
    return [x["lesson"] for x in advice.changes(facts)]


def said(facts):
    return " ".join(advice.not_known(facts))


QUIET = changed(  # nothing to change
    USUAL,
    pace__parts={"forward and Python": 0.02, "backward": 0.02},
    pace__lines=[],
    waits__rows=[],
    waits__each=0.0,
)


# ---- advice


def test_of_a_usual_script_the_loader_comes_first_then_its_waits():
    found = advice.changes(USUAL)
    assert [x["where"] for x in found] == ["train.py:12", "train.py:21", "train.py:31"]
    assert [x["lesson"] for x in found] == ["06", "04", "04"]
    assert found[0]["saves"] == {
        "seconds": 0.016,
        "bytes": None,
        "text": "up to 16 ms of 40 ms a step, where cores are free",
    }
    assert found[0]["cure"].startswith("num_workers=2")
    assert found[1]["saves"]["seconds"] is None
    assert found[1]["saves"]["text"] == "not known without a GPU; 2 waits in each step"
    assert found[1]["path"] == "/home/reader/train.py" and found[1]["line"] == 21


@pytest.mark.parametrize(
    "facts", [EMPTY, QUIET, INFERENCE], ids=["empty", "quiet", "eval"]
)
def test_where_nothing_would_save_much_nothing_is_named(facts):
    assert advice.changes(facts) == []


def test_there_are_at_most_three_and_no_facts_are_changed():
    for facts in ALL.values():
        before = copy.deepcopy(facts)
        assert len(advice.changes(facts)) <= 3
        assert advice.not_known(facts)
        assert facts == before


@pytest.mark.parametrize(
    "more, cure",
    [
        ({}, "num_workers=2 or more"),
        ({"workers": 2}, "more workers (now 2)"),
        (
            {"dataset": "TensorDataset"},
            "without a loader: for i in torch.randperm(n).split(64)",
        ),
        ({"dataset": "TensorDataset", "batch_size": None}, "without a loader"),
        ({"dataset": "TensorDataset", "workers": 2}, "more workers (now 2)"),
    ],
)
def test_the_cure_of_a_loader_is_by_what_it_loads(more, cure):
    facts = changed(QUIET, pace__parts__loader=0.01, seen__loaders=[loader(**more)])
    assert advice.changes(facts)[0]["cure"].startswith(cure)


def test_a_loader_is_named_from_5_percent_of_the_step_on():
    assert lessons(changed(QUIET, pace__parts__loader=0.0021)) == ["06"]
    assert lessons(changed(QUIET, pace__parts__loader=0.0019)) == []
    assert lessons(changed(QUIET, pace__parts__loader=0.01, seen__loaders=[])) == []
    other = [loader(evaluation=True)]
    assert lessons(changed(QUIET, pace__parts__loader=0.01, seen__loaders=other)) == []


def test_a_loader_that_hides_behind_a_busy_gpu_is_not_named():
    facts = changed(QUIET, pace__parts__loader=0.01, device="cuda:0")
    assert lessons(changed(facts, pace__busy=0.97)) == []
    [change] = advice.changes(changed(facts, pace__busy=0.9))
    assert change["saves"]["seconds"] == pytest.approx(0.004)
    assert "cores" not in change["saves"]["text"]


def test_without_its_line_a_loader_has_a_name():
    facts = changed(QUIET, pace__parts__loader=0.01, seen__loaders=[loader(made=None)])
    [change] = advice.changes(facts)
    assert change["where"] == "the DataLoader"
    assert change["path"] is change["line"] is None and change["code"] == ""


def test_waits_stand_below_a_tenth_of_a_step_and_above_less():
    waiting = changed(QUIET, waits__rows=[wait("train.py:31", "loss.item()")])
    assert lessons(changed(waiting, pace__parts__loader=0.005)) == ["06", "04"]
    assert lessons(changed(waiting, pace__parts__loader=0.003)) == ["04", "06"]


def test_of_waits_those_that_come_more_often_stand_first():
    rows = [wait(f"train.py:{n}", "loss.item()", times=float(n)) for n in (1, 5, 3, 2)]
    assert [x[0] for x in first(changed(QUIET, waits__rows=rows))] == [
        "train.py:5",
        "train.py:3",
        "train.py:2",
    ]


def test_what_one_cure_mends_on_a_line_is_one_change():
    rows = [
        wait("train.py:9", "f(x)", times=2.0),
        wait("train.py:9", "f(x)", "bool"),
        wait("train.py:9", "f(x)", "to") | COPY,
    ]
    assert first(changed(QUIET, waits__rows=rows)) == [
        ("train.py:9", "04", "not known without a GPU; 3 waits in each step"),
        ("train.py:9", "04", "not known without a GPU; 1 wait in each step"),
    ]


@pytest.mark.parametrize(
    "more",
    [
        {"assumed": True},
        {"branch": "train.py:28"},
        {"each": False, "steps": 1, "every": None},
        {"each": False, "steps": 1, "every": 16, "times": 15.0},
        {"cure": "nothing is known to avoid it, but fewer calls"},
        {"cure": ""},
    ],
)
def test_a_wait_that_is_not_sure_or_seldom_or_without_cure_is_no_change(more):
    assert advice.changes(changed(QUIET, waits__rows=[wait("t.py:9", "x.item()")]))
    assert (
        advice.changes(changed(QUIET, waits__rows=[wait("t.py:9", "x.item()", **more)]))
        == []
    )


def test_a_wait_that_comes_seldom_but_many_times_is_a_change():
    seldom = wait("t.py:9", "x.item()", steps=1, times=8.0, each=False, every=None)
    text = "not known without a GPU; 8 waits, in 1 of 7 steps"
    assert first(changed(QUIET, waits__rows=[seldom])) == [("t.py:9", "04", text)]
    assert first(changed(QUIET, waits__rows=[seldom | {"times": 6.0}])) == []


def test_on_a_gpu_waits_cost_at_most_what_it_idles():
    facts = changed(QUIET, device="cuda:0", waits__rows=[wait("t.py:9", "x.item()")])
    idle = "part of the 17% of the time that the GPU idles; 1 wait in each step"
    assert first(changed(facts, pace__busy=0.83)) == [("t.py:9", "04", idle)]
    assert first(changed(facts, pace__busy=0.98)) == []
    assert first(facts) == [("t.py:9", "04", "not known; 1 wait in each step")]


def test_of_ppo_the_environment_comes_first_though_its_line_waits():
    found = advice.changes(PPO)
    assert found[0]["where"] == "ppo.py:213" and found[0]["lesson"] == "09"
    assert found[0]["saves"]["text"] == "part of 170 ms of 310 ms a long step"
    assert "10" not in lessons(PPO)  # 23% of steps that are 12% of the time
    assert "10" in lessons(changed(PPO, pace__long__why="same lines"))
    assert "10" in lessons(changed(PPO, pace__long__share=0.3, waits__rows=[]))
    texts = [x["saves"]["text"] for x in found]
    assert "not known without a GPU; 128 waits, in one of 16 steps" in texts


@pytest.mark.parametrize(
    "code, inside, part, named",
    [
        ("image = augment(image)", "PIL/Image.py:2", "", True),
        ("time.sleep(0.02)", "", "", True),
        ("noise = np.random.randn(n)", "", "", True),
        ("noise = np.random.randn(n)", "", "loader", False),
        ("y = torch.tensor(np.zeros(n))", "", "", False),
        ("y = np.asarray(loss.cpu())", "", "", False),
        ("h = self.layer(x)", "transformers/models/gpt2.py:9", "", False),
        ("h = f(x)", "", "", False),
        ("h = f(x)", "numpy_like/core.py:2", "", False),
    ],
)
def test_own_python_is_named_only_where_it_surely_is_no_work_of_pytorch(
    code, inside, part, named
):
    rows = [timed("train.py:9", code, 0.01, inside, part)]
    assert lessons(changed(QUIET, pace__lines=rows)) == ["09"] * named
    rows[0]["seconds"] = 0.007  # less than 20%
    assert lessons(changed(QUIET, pace__lines=rows)) == []


def test_an_optimizer_is_to_be_fused_from_15_percent_on():
    facts = changed(QUIET, pace__parts__optimizer=0.0061)
    assert first(facts) == [("train.py:16", "10", "part of 6.1 ms of 40 ms a step")]
    assert advice.changes(facts)[0]["cure"] == "Adam(…, fused=True)"
    assert lessons(changed(QUIET, pace__parts__optimizer=0.0059)) == []
    fused = [OPTIMIZER | {"could_be_fused": False}]
    assert lessons(changed(facts, seen__optimizers=fused)) == []


def test_an_optimizer_on_a_busy_gpu_is_judged_by_the_gpu():
    facts = changed(
        QUIET, device="cuda:0", pace__busy=0.95, pace__device_parts={"optimizer": 0.02}
    )
    assert lessons(facts) == ["10"]
    assert lessons(changed(facts, pace__busy=0.5)) == []
    facts = changed(facts, pace__busy=None, pace__parts__optimizer=0.001)
    assert "10" not in lessons(facts)


def test_of_two_optimizers_one_is_named():
    two = [OPTIMIZER, OPTIMIZER | {"made": line("train.py:17", "second = Adam(…)")}]
    facts = changed(QUIET, pace__parts__optimizer=0.01, seen__optimizers=two)
    assert [x[0] for x in first(facts)] == ["train.py:16"]


def test_workers_that_start_anew_are_kept():
    long = {"count": 2, "of": 11, "seconds": 0.44, "every": None, "share": 0.5}
    long |= {"why": "workers start", "lines": []}
    facts = changed(QUIET, pace__long=long, seen__loaders=[loader(workers=2)])
    [change] = advice.changes(facts)
    assert change["cure"].endswith("persistent_workers=True")
    assert change["saves"]["seconds"] is None
    facts["pace"]["long"]["every"] = 20
    assert advice.changes(facts)[0]["saves"]["seconds"] == pytest.approx(0.02)
    assert advice.changes(facts)[0]["where"] == "train.py:12"
    facts["seen"]["loaders"][0]["persistent"] = True
    assert advice.changes(facts) == []


def test_an_evaluation_is_named_if_it_takes_a_fifth_of_the_time():
    # 9 steps of 40 ms
    found = {"count": 1, "seconds": 1.6, "batches": 100}
    two = [loader(), loader("train.py:14", evaluation=True)]
    facts = changed(QUIET, pace__evaluation=found, seen__loaders=two)
    [change] = advice.changes(facts)
    assert change["where"] == "train.py:14" and change["lesson"] == "15"
    assert change["cure"] == "less often, or larger batches"
    assert change["saves"]["text"] == "part of 1.6 s each time, as long as 40 steps"
    facts["seen"]["loaders"][1]["made"] = None
    assert advice.changes(facts)[0]["where"] == "the evaluation"
    facts["pace"]["evaluation"]["seconds"] = 0.08
    assert advice.changes(facts) == []


def test_memory_that_grows_comes_first_with_who_keeps_it():
    keeper = line("train.py:33", "losses.append(loss)", name="losses")
    facts = changed(USUAL, memory__grows=100_000, memory__keeper=keeper)
    change = advice.changes(facts)[0]
    assert change["where"] == "train.py:33" and change["cure"].startswith(
        "losses keeps"
    )
    assert change["saves"]["bytes"] == 100_000 and change["lesson"] == "07"
    assert change["saves"]["text"] == "97.66 KiB in each step, 95.37 MiB in 1,000 steps"
    nobody = advice.changes(changed(USUAL, memory__grows=100_000))[0]
    assert nobody["where"] == "no line is known" and nobody["lesson"] == "07"
    assert lessons(changed(USUAL, memory__grows=40_000)) == ["06", "04", "04"]


CALLED = changed(INFERENCE, step__by="call", seen__loaders=[], memory__grows=100_000)


def test_where_a_model_is_only_called_no_advice_is_about_training():
    (cache,) = advice.changes(CALLED)
    assert (cache["lesson"], cache["saves"]["text"]) == ("17", "97.66 KiB in each step")
    keeper = line("train.py:33", "kept.append(logits)", name="kept")
    (kept,) = advice.changes(changed(CALLED, memory__keeper=keeper))
    assert (kept["cure"], kept["lesson"]) == ("kept keeps what each step made", "07")
    gpu = changed(CALLED, device="cuda:0", device_name="NVIDIA H200", pace__busy=0.4)
    assert first(gpu)[0] == (
        "the model",
        "17",
        "part of the 60% of the time that the GPU idles",
    )
    gpu = changed(gpu, pace__busy=0.9)
    whole, _ = advice.changes(gpu)
    assert whole["cure"] == "model.bfloat16(), before Ampere model.half()"
    assert "evaluation" not in said(CALLED)


def test_what_is_left_behind_is_a_fault_unless_forward_may_make_it_anew():
    row = {
        "path": "Net.mask",
        "count": 1,
        "bytes": 64,
        "why": "plain attribute: register_buffer",
    }
    facts = changed(USUAL, left_behind=[row])
    assert advice.changes(facts)[0]["where"] == "Net.mask"
    assert lessons(facts) == ["03", "06", "04"]
    assert "more below" not in advice.changes(facts)[0]["saves"]["text"]
    two = advice.changes(changed(USUAL, left_behind=[row, row]))
    assert two[0]["saves"]["text"].endswith("; 1 more below")
    assert lessons(changed(facts, memory__grows=10**6))[:2] == ["07", "03"]
    row = row | {
        "why": "plain, but computed: does forward make it anew on another device?"
    }
    assert lessons(changed(USUAL, left_behind=[row])) == lessons(USUAL)


def test_memory_is_to_be_lowered_where_it_is_much():
    ways = {
        "fused=True in the optimizer": 70 * 2**24,
        "half of the batch (about)": 50 * 2**24,
    }
    facts = changed(QUIET, memory__highest=100 * 2**24, memory__lower=ways)
    [change] = advice.changes(facts)  # not half of the batch
    assert change["cure"] == "Adam(…, fused=True)" and change["where"] == "train.py:16"
    assert change["saves"]["bytes"] == 30 * 2**24
    assert change["saves"]["text"] == "480 MiB of 1.562 GiB, if memory is short"
    del facts["memory"]["lower"]["fused=True in the optimizer"]
    [change] = advice.changes(facts)
    assert change["cure"] == "half of the batch (about)"
    assert (
        lessons(changed(facts, memory__lower={"half of the batch": 85 * 2**24})) == []
    )
    little = {"half of the batch": 5 * 2**24}
    assert (
        lessons(changed(facts, memory__highest=10 * 2**24, memory__lower=little)) == []
    )


def test_one_cure_is_one_change():
    ways = {"fused=True in the optimizer": 70 * 2**20}
    facts = changed(QUIET, memory__highest=100 * 2**20, memory__lower=ways)
    [change] = advice.changes(changed(facts, pace__parts__optimizer=0.02))
    assert "20 ms" in change["saves"]["text"]


CARDS = {
    "NVIDIA H200": True,
    "NVIDIA GeForce RTX 2080 Ti": True,
    "Tesla T4": True,
    "Tesla V100-SXM2-16GB": True,
    "Tesla P100-PCIE-16GB": False,
    "Tesla K80": False,
    "NVIDIA GeForce GTX 1080": False,
    "AMD Instinct MI300X": False,
    None: False,
}


@pytest.mark.parametrize("name", CARDS)
def test_autocast_is_named_for_a_busy_gpu_with_tensor_cores(name):
    facts = changed(QUIET, device="cuda:0", device_name=name, pace__busy=0.9)
    assert lessons(facts) == ["08"] * CARDS[name]
    assert advice.changes(changed(facts, seen__autocast=["cuda bfloat16"])) == []
    assert advice.changes(changed(facts, pace__busy=0.4)) == []
    assert advice.changes(changed(facts, device="cpu")) == []
    half = [USUAL["seen"]["models"][0] | {"dtypes": {"bfloat16": 10**9}}]
    assert advice.changes(changed(facts, seen__models=half)) == []


def test_where_nobody_knows_whether_the_gpu_is_busy_the_model_must_be_large():
    facts = changed(QUIET, device="cuda:0", device_name="NVIDIA H200")
    assert lessons(facts) == ["08"]
    small = [USUAL["seen"]["models"][0] | {"dtypes": {"float32": 900_000}}]
    assert lessons(changed(facts, seen__models=small)) == []


def test_on_a_gpu_that_idles_little_autocast_stands_above_waits():
    assert lessons(GPU) == ["08", "04", "04"]
    assert lessons(changed(GPU, pace__busy=0.3))[-2:] == ["04", "04"]


TITLES = {
    "03": "leave nothing behind",
    "04": "Time your code: wait",
    "06": "Keep the device fed",
    "07": "Account for memory",
    "08": "mixed precision",
    "09": "Profile a training loop",
    "10": "compile a model",
    "15": "Make a slow loop fast",
    "17": "Generate text",
}


def test_each_lesson_that_is_named_is_about_that():
    source = (FOLDER / "advice.py").read_text(encoding="utf-8")
    assert set(re.findall(r"[\"'](\d\d)[\"']", source)) == set(TITLES)
    if not LESSONS.is_dir():
        pytest.skip("the lessons are not here")
    for number, title in TITLES.items():
        [path] = LESSONS.glob(f"{number}_*.ipynb")
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert title in "".join(cells[0]["source"]) + "".join(cells[1]["source"])


# ---- what is not known


@pytest.mark.parametrize(
    "more, sentence",
    [
        (
            {"ended": "the script ended in its step 9, by KeyError"},
            "in its step 9, by KeyError.",
        ),
        (
            {"branches": ["a.py:1", "a.py:2"]},
            "other lines may run after a.py:1, a.py:2.",
        ),
        ({"branches": [f"a.py:{n}" for n in range(9)]}, "a.py:3, 5 more."),
        ({"pace": None}, "No step was timed."),
        ({"waits": None}, "Waits were not watched."),
        ({"memory": None}, "Memory was not watched."),
        ({"notes": ["Other threads took steps."]}, "Other threads took steps."),
        ({"waits__steps": 4}, "Waits were counted in 4 steps"),
        ({"pace__timed": 4}, "The pace is that of 4 steps."),
        ({"pace__highest": 0.06}, "Steps took 37.1 ms to 60 ms"),
        ({"step__cycle": 16}, "pace in 9, waits in 7, memory in 3."),
        (
            {"seen__compiled": {"frames": 1, "graph_breaks": 0}},
            "Compiled code ran eagerly",
        ),
        ({"seen__loaders": [loader(workers=1)]}, "a loader's workers"),
        ({"seen__world": 2}, "One of 2 ranks"),
        ({"seen__moved": False}, "for the CPU alone?"),
        (
            {"waits__rows": [wait("a.py:7", "x.to(d)", "to", assumed=True)]},
            "a.py:7: waits if the tensor, made before, lies on the host.",
        ),
    ],
)
def test_what_is_not_known_is_said_where_it_is_not(more, sentence):
    assert sentence in said(changed(USUAL, **more))
    assert sentence not in said(USUAL)


def test_where_the_tensor_lies_decides_by_which_way_it_is_copied():
    rows = [wait("a.py:7", "x.cpu()", "cpu", assumed=True)]
    facts = changed(USUAL, waits__rows=rows)
    assert "a.py:7: waits if the tensor, made before, lies on the GPU." in said(facts)
    assert "if the tensor lies on the GPU" in unwrapped(facts)


def test_waits_of_20_steps_are_enough():
    few = "what comes less often may be missing"
    assert few in said(changed(USUAL, waits__steps=19))
    assert few not in said(changed(USUAL, waits__steps=20))


def test_what_only_a_gpu_tells_is_not_known_without_one():
    for sentence in ("No GPU: waits are counted", "Memory is counted on a CPU"):
        assert sentence in said(USUAL)
        assert sentence not in said(GPU)
    assert "other lines may run" in said(USUAL) and "other lines may run" not in said(
        GPU
    )
    assert "Memory is counted" not in said(changed(USUAL, memory=None))
    assert "Of the 9 steps of a cycle" not in said(changed(GPU, step__cycle=3))


# ---- in a terminal


def unwrapped(facts):
    return " ".join(terminal(whole(facts)).split())


@pytest.mark.parametrize("name", ALL)
def test_a_terminal_holds_it_whatever_is_in_the_facts(name):
    report = terminal(whole(ALL[name]))
    rows = report.split("\n")
    assert len(rows) <= 45
    assert max(map(len, rows)) <= 100
    assert all(c.isprintable() for row in rows for c in row)
    assert report.encode("utf-8")
    titles = [row for row in rows if row[:4].isupper() or row[:5] == "CHANGE"]
    assert [row[:11].strip() for row in titles] == [
        "CHANGE FIRS",
        "PACE",
        "WAITS",
        "MEMORY",
        "LEFT BEHIND",
        "SEEN",
        "NOT KNOWN",
    ]


@pytest.mark.parametrize("name", ALL)
def test_colors_add_codes_and_nothing_else(name):
    facts = whole(ALL[name])
    colored = terminal(facts, color=True)
    assert ANSI.sub("", colored) == terminal(facts)
    assert len(ANSI.findall(colored)) == 14  # two for each title


def test_of_a_usual_script_the_terminal_says():
    rows = terminal(whole(USUAL)).split("\n")
    for row in [
        "device-lab 0.1.0: train.py --lr 0.1",
        "a step: from one optimizer.step() to the next, train.py:30",
        "    1.  train.py:12  loader = DataLoader(data, batch_size=64, shuffle=True)",
        "        saves: up to 16 ms of 40 ms a step, where cores are free",
        "PACE          40 ms a step, 25 steps a second (mean of 9, from 37.1 ms to 43.4"
        " ms)",
        "   40%  train.py:20  for x, y in loader:  in data.py:31",
        "    ×2  train.py:21  x, y = x.to(device), y.to(device)",
        "        print, in 1 of 7 steps: a value is read: keep it on the device, read"
        " it every n steps",
        "MEMORY        39.29 MiB at the highest, in the backward pass; 13.26 MiB before"
        " the step",
        "LEFT BEHIND   nothing found",
    ]:
        assert row in rows
    assert not any("print(loss)" in row and "%" in row for row in rows)  # below 3%
    assert not any("see --json" in row for row in rows)


def test_the_five_longest_lines_stand_above_those_of_long_steps():
    rows = [timed(f"ppo.py:{n}", f"f{n}(x)", 0.0004) for n in range(7)]
    report = unwrapped(changed(PPO, pace__lines=rows, pace__long__share=0.4))
    assert "f4(x)" in report and "f5(x)" not in report
    assert report.index("f4(x)") < report.index("ppo.py:213, long steps")
    report = unwrapped(changed(PPO, pace__lines=rows))  # most of the time
    assert report.index("f4(x)") > report.index("ppo.py:213, long steps")


def test_what_is_cut_is_counted():
    rows = [wait(f"train.py:{n}", "loss.item()") for n in range(9)]
    facts = changed(QUIET, waits__rows=rows, waits__steps=30)
    report = terminal(whole(facts))
    assert report.count("loss.item()") == 6 + 3  # and three changes
    assert "… and 7 more lines: see --json" in report
    cut = re.findall(r"… and (\d+) more lines: see --json", terminal(whole(HUGE)))
    assert len(cut) >= 3 and all(int(number) > 1 for number in cut)


def test_changes_are_never_cut():
    for facts in ALL.values():
        facts = whole(facts)
        report = terminal(facts)
        for change in facts["changes"]:
            assert f"saves: {change['saves']['text']}"[:80] in report


def test_not_known_has_eight_lines():
    facts = whole(EMPTY)
    facts["not_known"] = [f"Sentence {n}." for n in range(30)]
    report = terminal(facts)
    assert "Sentence 6." in report and "Sentence 7." not in report
    assert "… and 23 more lines: see --json" in report


@pytest.mark.parametrize(
    "more, row",
    [
        ({"step__at": None}, "a step: from one optimizer.step() to the next CHANGE"),
        ({"step__by": "backward"}, "from one backward() to the next: no optimizer"),
        (
            {"step__backwards": 4, "step__cycle": 8},
            "; 4 × backward pass; one in 8 is another kind",
        ),
        ({"pace__busy": 0.834}, "the GPU works 83% of the time"),
        (
            {"pace__device_parts": {"backward": 0.02, "copy": 0.0}},
            "by the GPU's clock: backward 20 ms",
        ),
        (
            {"pace__evaluation": {"count": 2, "seconds": 1.5, "batches": 40.0}},
            "steps with an evaluation: 2, 1.5 s and 40 batches each",
        ),
        (
            {"seen__scaler": {"steps": 20, "skipped": 1}},
            "GradScaler skipped 1 of 20 steps",
        ),
        (
            {"seen__compiled": {"frames": 2, "graph_breaks": 1}},
            "compiled, 1 graph break",
        ),
        ({"seen__autocast": ["cpu bfloat16"]}, "autocast cpu bfloat16"),
        ({"seen__world": 2}, "2 ranks"),
        ({"memory__grows": 2**20}, "each step leaves 1 MiB behind"),
        (
            {"memory__lower": {"half of the batch": 2**24}},
            "16 MiB with half of the batch",
        ),
        (
            {"waits__rows": [wait("a.py:7", "x", "to", assumed=True)]},
            "if the tensor lies on the host",
        ),
        ({"waits__rows": [wait("a.py:7", "x", branch="b.py:3")]}, "where b.py:3 chose"),
    ],
)
def test_each_fact_has_its_words(more, row):
    assert row in unwrapped(changed(USUAL, **more))
    assert row not in unwrapped(USUAL)


LEFT = {"path": "Net.mask", "count": 2, "bytes": 64, "why": "plain attribute"}


@pytest.mark.parametrize(
    "facts, words, not_words",
    [
        (USUAL, "counted as on a GPU (7 steps)", "nothing worth a change"),
        (USUAL, "batch [64, 3, 32, 32] float32", "no batch of a loader"),
        (USUAL, "1,075,000 parameters (float32); Adam;", "ranks"),
        (USUAL, " cpu, torch 2.13.0,", "eval mode"),
        (EMPTY, "nothing worth a change was seen", "lesson"),
        (EMPTY, "no batch of a loader", " batch None"),
        (INFERENCE, "(float32), 0 trained, in eval mode;", "Adam"),
        (GPU, "cuda:0 (NVIDIA H200), torch", "as on a GPU"),
        (
            changed(USUAL, left_behind=[LEFT]),
            "Net.mask 2 tensors, 64 bytes;",
            "nothing",
        ),
        (
            changed(USUAL, left_behind=[LEFT]),
            "model.to(device) does not move: Net",
            "not found",
        ),
    ],
)
def test_what_is_there_is_said_and_what_is_not_is_not(facts, words, not_words):
    assert words in unwrapped(facts)
    assert not_words not in unwrapped(facts).split("NOT KNOWN")[0]


@pytest.mark.parametrize(
    "why, words",
    [
        ("lines", "long steps: 2 of 34, one in 16, 310 ms each, 40% of the time 42%"),
        (
            "same lines",
            "40% of the time, on the same lines as the others",
        ),
        ("workers start", "40% of the time: the loader begins an epoch"),
    ],
)
def test_long_steps_are_explained(why, words):
    facts = changed(PPO, pace__long__why=why, pace__long__share=0.4)
    if why == "same lines":
        facts["pace"]["long"]["lines"] = []
    report = unwrapped(facts)
    assert words in report
    assert report.count(", long steps ") == 2 * (why != "same lines")


def test_what_comes_in_most_steps_is_not_said_to_come_in_each():
    """Twice in one of two steps: 4 of 7."""
    row = wait(
        "sac.py:297", "alpha = log_alpha.exp().item()", times=2.0, steps=4, every=None
    )
    facts = changed(USUAL, waits__rows=[row])
    assert "item, in 4 of 7 steps: a value is read" in unwrapped(facts)
    assert "2 waits, in 4 of 7 steps" in first(facts)[1][2]


def test_how_often_long_steps_come_is_not_known_from_a_few():
    for steps, said in ((9, False), (90, True)):
        facts = changed(PPO, pace__all=0.026, pace__timed=steps)
        assert ("take longer, 38.5 a second" in unwrapped(facts)) is said


def test_an_argument_of_one_call_is_one_change():
    """log_prob waits where Categorical was told to validate."""
    inside = "torch/distributions/distribution.py:76  if not valid.all():"
    more = {"cure": "validate_args=False", "inside": inside}
    rows = [
        wait("ppo.py:123", "probs = Categorical(logits=logits)", "bool", **more),
        wait("ppo.py:126", "return probs.log_prob(action)", "bool", **more),
        wait("ppo.py:258", "clipfracs += [x.item()]"),
    ]
    found = first(changed(USUAL, seen__loaders=[], waits__rows=rows))
    assert [where for where, *_ in found] == ["ppo.py:123", "ppo.py:258"]
    assert found[0][2].endswith("2 waits in each step")


def test_times_of_a_thousand_have_a_comma():
    assert [time(x) for x in (0.00123, 0.9999, 4321.5)] == [
        "1.23 ms",
        "1,000 ms",
        "4,322 s",
    ]


# ---- as a page


class Page(HTMLParser):
    """Reads it: tags that are open, all text, attributes."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.open, self.words, self.attributes = [], [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


@pytest.mark.parametrize("name", ALL)
def test_the_page_is_whole_and_everything_in_it_escaped(name):
    source = page(whole(ALL[name]))
    read = Page(source)
    assert read.open == []
    assert set(read.tags) <= set(
        "html meta style title h1 h2 p meter b code br".split()
    )
    assert {key for key, _ in read.attributes} <= set(
        "lang charset name content value".split()
    )
    assert source.count("<h2>") == 7
    assert "http:" not in source and "https:" not in source and "url(" not in source
    assert all(c.isprintable() or c == "\n" for c in source)


def test_the_page_says_what_the_terminal_says():
    for name in ("usual", "ppo", "inference", "gpu", "empty"):
        facts = whole(ALL[name])
        words = " ".join("".join(Page(page(facts)).words).split())
        rows = terminal(facts).split("\n")
        for word in re.findall(
            r"\w+\.py:\d+|[\d.]+ [mµ]?s\b|[\d.]+ [KMG]iB", "\n".join(rows)
        ):
            assert word in words
        for sentence in facts["not_known"]:
            assert sentence in words


def test_the_page_is_not_cut():
    facts = whole(HUGE)
    source = html.unescape(page(facts))
    waits = source[source.index("<h2>Waits") : source.index("<h2>Memory")]
    assert waits.count("loss.item()</code>") == 99
    assert "Net.49.mask" in source and "see --json" not in source
    assert facts["not_known"][-1] in source


def test_the_page_has_bars_and_both_schemes():
    source = page(whole(USUAL))
    assert re.findall(r'<meter value="([\d.]+)">', source)[:2] == ["0.400", "0.275"]
    assert "color-scheme: light dark" in source and "width=device-width" in source


# ---- the schema, and what all of it costs


def test_the_facts_are_as_the_schema_says():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((FOLDER / "schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    for name, facts in ALL.items():
        errors = list(
            validator(schema).iter_errors(json.loads(json.dumps(whole(facts))))
        )
        assert not errors, f"{name}: {errors[0].json_path}: {errors[0].message}"
    right = whole(USUAL)
    for wrong in (
        {"x": 1},
        {"pace__step": "fast"},
        {"pace__stepp": 1.0},
        {"waits__rows": [{"where": "a.py:1"}]},
        {"memory__largest": {"bytes": 1}},
        {"schema": 2},
        {"seen__optimizers": [OPTIMIZER | {"made": {"where": "a.py:1"}}]},
    ):
        assert list(validator(schema).iter_errors(changed(right, **wrong)))


def test_no_sentence_shouts_or_says_should():
    for facts in (USUAL, PPO, GPU, INFERENCE):
        report = terminal(whole(facts))
        assert not re.search(r"!|\bshould\b|\bsimply\b|\beasily\b", report)


assert MEMORY and NASTY  # what the cases above are made of
