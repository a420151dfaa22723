"""`device-lab script.py`: the script runs as ever, and its steps are found."""

import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import device_lab
from device_lab._command import cli

FOLDER = pathlib.Path(__file__).parent
LOOPS = FOLDER / "scripts" / "loops.py"
STEP = {  # what ends a step, optimizer steps and backward passes in it
    "accumulate": ("optimizer", 1, 4),
    "by_hand": ("backward", 0, 1),
    "classify": ("optimizer", 1, 1),
    "closure": ("optimizer", 1, 4),
    "gan": ("optimizer", 2, 3),
    "generate": ("call", 0, 0),
    "infer": ("batch", 0, 0),
    "rollouts": ("optimizer", 1, 1),
    "scaled": ("optimizer", 1, 1),
}
TINY = """
import importlib.util
assert importlib.util.find_spec("torch")  # as libraries ask
import torch
w = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
def step(i=0):
    (w - 1).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def python(folder, *arguments, **environment):
    """What `python …` says in this folder, with the package on its path."""
    path = os.pathsep.join(
        filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")])
    )
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def watched(folder, *arguments, **environment):
    """(what the command says, the report's facts or None)"""
    options = ["-m", "device_lab", "--json", "report.json"]
    ran = python(folder, *options, *arguments, **environment)
    report = folder / "report.json"
    return ran, json.loads(report.read_text("utf-8")) if report.exists() else None


def script(folder, text, name="script.py"):
    path = folder / name
    path.write_text(TINY + text, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("loop", STEP)
def test_a_script_does_the_same_to_the_bit_and_its_step_is_found(loop, tmp_path):
    model = tmp_path / "model.pt"
    alone, weights = python(tmp_path, LOOPS, loop, model), model.read_bytes()
    ran, facts = watched(tmp_path, LOOPS, loop, model)
    assert (ran.stdout, ran.returncode) == (alone.stdout, 0)
    assert model.read_bytes() == weights
    assert ran.stderr.startswith(alone.stderr)
    step = facts["step"]
    assert (step["by"], step["optimizers"], step["backwards"]) == STEP[loop]
    assert step["at"]["where"].startswith("loops.py:")
    assert facts["waits"]["steps"] > 3 and facts["memory"]["highest"] > 0
    assert not facts["notes"]


@pytest.mark.slow
def test_an_error_keeps_its_traceback_and_its_status(tmp_path):
    path = script(
        tmp_path, "for i in range(20): step({2: {}}[2 - i] if i > 2 else i)\n"
    )
    alone, (ran, facts) = python(tmp_path, path), watched(tmp_path, path)
    assert alone.returncode == ran.returncode == 1 and "KeyError: -1" in alone.stderr
    assert ran.stderr.startswith(alone.stderr)
    assert "step 4, by KeyError" in ran.stderr or facts is None


@pytest.mark.slow
def test_what_an_error_within_a_dataset_means_stands_behind_its_traceback(tmp_path):
    text = """
class Data(torch.utils.data.Dataset):
    def __len__(self): return 99
    def __getitem__(self, i):
        if i == 4:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return i
for i in torch.utils.data.DataLoader(Data()): step(i)
"""
    path = script(tmp_path, text)
    alone, (ran, _) = python(tmp_path, path), watched(tmp_path, path)
    assert ran.stderr.startswith(alone.stderr) and ran.returncode == 1
    rest = ran.stderr.removeprefix(alone.stderr).splitlines()
    assert "detach" in rest[0] or not importlib.util.find_spec("torch_messages")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text, status, said",
    {
        "sys.exit's status": (
            "for i in range(30): step()\nraise SystemExit(3)",
            3,
            "PACE",
        ),
        "two steps": ("step(); step()", 0, "2 optimizer steps"),
        "no torch.optim": ("w.sum()", 0, "no report"),
        "exec": ("exec('for i in range(40): step()')", 0, "PACE"),
        "a thread": (
            "import threading\ndef train():\n    for i in range(40): step()\n"
            "t = threading.Thread(target=train)\nt.start(); t.join()",
            0,
            "PACE",
        ),
        "its own loader": (
            "class DataLoader:\n    def __init__(self, data): self.data = data\n"
            "    def __iter__(self): return iter(self.data)\n"
            "torch.utils.data.DataLoader = DataLoader\n"
            "for i in DataLoader(range(40)): step()",
            0,
            "PACE",
        ),
        "its own __next__": (
            "from torch.utils.data import DataLoader, dataloader as d\n"
            "old = d._BaseDataLoaderIter.__next__\n"
            "d._BaseDataLoaderIter.__next__ = lambda self: old(self)\n"
            "for i in DataLoader(range(60)): step()\n"
            "assert d._BaseDataLoaderIter.__next__ is not old",
            0,
            "PACE",
        ),
        "an error of the watch's own": (
            "from device_lab._command.watch import Watch\n"
            "Watch.following = lambda self: 1 / 0\nfor i in range(40): step()",
            0,
            "an error of its own: ZeroDivisionError",
        ),
        "os._exit": ("import os\nfor i in range(4): step()\nos._exit(5)", 5, ""),
        "an optimizer for each step": (
            "for i in range(90):\n    optimizer = torch.optim.SGD([w], lr=0.1)\n"
            "    step()",
            0,
            "PACE",
        ),
    }.values(),
    ids=lambda x: "",
)
def test_hostile_scripts_get_a_report_or_a_sentence(text, status, said, tmp_path):
    ran, _ = watched(tmp_path, script(tmp_path, text))
    assert (ran.stdout, ran.returncode) == ("", status), ran.stderr
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_the_sitecustomize_that_was_there_runs_and_a_module_by_m(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('mine')", encoding="utf-8")
    script(tmp_path, "for i in range(40): step()\nimport sys; print(sys.argv[1:])")
    path = os.pathsep.join([str(tmp_path), str(FOLDER.parent)])
    ran, facts = watched(tmp_path, "-m", "script", "--json", PYTHONPATH=path)
    # Python starts twice: for the command, and for the script
    assert ran.stdout.splitlines()[-2:] == ["mine", "['--json']"]
    assert facts["pace"]["timed"] >= 3


@pytest.mark.slow
def test_it_stops_the_script_after_the_watched_steps_if_asked(tmp_path):
    text = """
try:
    for i in range(100_000): step()
finally:
    print("closed after", i < 3000)
"""
    ran, facts = watched(tmp_path, "--then", "stop", script(tmp_path, text))
    assert (ran.stdout, ran.returncode) == ("closed after True\n", 0)
    assert facts["ended"] == ""


@pytest.mark.slow
def test_of_ranks_the_first_reports(tmp_path):
    text = """
import torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.Linear(3, 3)
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(40):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
    path = script(tmp_path, text)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ran, facts = watched(tmp_path, *run, "--standalone", path, USE_LIBUV="0")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("PACE") == 1
    assert facts["seen"]["world"] == 2 and facts["step"]["backwards"] == 1


@pytest.mark.slow
def test_ranks_that_take_no_step_are_told_once(tmp_path):
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    path = script(tmp_path, "")
    ran, _ = watched(tmp_path, *run, "--standalone", path, USE_LIBUV="0")
    assert ran.returncode == 0 and ran.stderr.count("no report") == 1, ran.stderr


@pytest.mark.slow
def test_all_batches_are_counted_and_what_no_rule_sees_is_told(tmp_path):
    text = """
model = torch.nn.Linear(3, 3)
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
with torch.no_grad():
    for x in torch.utils.data.DataLoader(torch.ones(16, 3)):
        model(x.type(Tensor))
"""
    _, facts = watched(tmp_path, script(tmp_path, text))
    assert facts["ended"] == "the script ended after 16 steps"
    said = "Copies that torch.cuda.FloatTensor makes on a GPU are not counted."
    assert (said in facts["not_known"]) is (facts["device"] == "cpu")


@pytest.mark.slow
def test_of_a_script_that_generates_waits_and_the_growth_of_its_cache(tmp_path):
    ran, facts = watched(tmp_path, LOOPS, "generate")
    assert (
        ran.returncode == 0 and "from one call of the model to the next" in ran.stderr
    )
    rows = [x for x in facts["waits"]["rows"] if x["each"] and not x["assumed"]]
    assert [(x["code"], x["times"]) for x in rows] == [("if tokens[0].item() == 9:", 1)]
    assert facts["memory"]["grows"] == 32 * 64 * 4 + 32 * 8  # a key, a token
    assert facts["memory"]["phase"] == "code without gradients"
    assert facts["seen"]["models"][0]["class"] == "Speaker"
    assert [x["lesson"] for x in facts["changes"]] == ["04", "17"]
    assert not re.search("detach|1,000 steps|DataLoader|evaluation", ran.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("made", ["before", "after"])
def test_what_is_called_before_a_training_is_not_its_step(made, tmp_path):
    text = """
model = torch.nn.Linear(3, 3)
def evaluate():
    with torch.no_grad():
        return [model(w) for _ in range(40)]
before
evaluate()
after
for i in range(40):
    optimizer.zero_grad()
    model(w).sum().backward()
    optimizer.step()
    if i % 10 == 0: evaluate()
"""
    optimizer = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
    text = text.replace(made, optimizer).replace("before\n", "").replace("after\n", "")
    _, facts = watched(tmp_path, script(tmp_path, text))
    step = facts["step"]
    assert (step["by"], step["optimizers"], step["backwards"]) == ("optimizer", 1, 1)
    assert facts["ended"] == "the script ended after 40 steps"


@pytest.mark.slow
def test_models_are_compiled_as_often_as_without_it(tmp_path):
    text = """
from torch._dynamo.utils import counters
how = {"backend": "eager", "fullgraph": True}
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.RMSNorm(4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return x + self.linear(self.norm(x))
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x).relu()
whole, blocks, place, forward = Net(), Net(), Net(), Net()
blocks.block.compile(**how)
place.compile(**how)
forward.forward = torch.compile(forward.forward, **how)
models, x = [torch.compile(whole, **how), blocks, place, forward], torch.ones(2, 4)
models.append(torch.compile(lambda x: whole(x) + 1, **how))
def call(times):
    with torch.no_grad():
        for model in models:
            for i in range(times): model(x)
    print(counters["stats"]["unique_graphs"], dict(counters["graph_break"]))
call(60)
torch.optim.SGD(whole.parameters())  # from here on no call is heard
call(5)
"""
    path = script(tmp_path, text)
    alone, (ran, facts) = python(tmp_path, path), watched(tmp_path, path)
    assert ran.stdout == alone.stdout and ran.stdout.count("{}") == 2, ran.stderr
    assert facts is None and "0 optimizer steps" in ran.stderr


@pytest.mark.slow
def test_a_report_on_the_loop_of_a_cell_and_nothing_left_behind(tmp_path):
    pytest.importorskip("IPython")
    text = """
from IPython.core.interactiveshell import InteractiveShell
shell, before = InteractiveShell.instance(), torch.Tensor.backward
call = torch.nn.Module.__call__
shell.push({"step": step, "w": w})
shell.run_cell("%load_ext device_lab")
for steps in (40, 60):
    loop = f"for i in range({steps}): step(), w.sum().item()"
    shell.run_cell("%%device_lab --steps 20\\n" + loop)
assert torch.Tensor.backward is before and torch.nn.Module.__call__ is call
"""
    ran = python(tmp_path, script(tmp_path, text))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("PACE") == 2 and "×1  cell:1" in ran.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "which script?"),
        (["nowhere.py"], "no such file: nowhere.py"),
        (["no-such-command"], "no such file or command"),
        (["--steps", "3", "x.py"], "at least 12"),
        (["--steps", "many", "x.py"], "a number of steps"),
        (["--json", "no/such/folder/x.json", "x.py"], "no file can be written"),
        (["--then", "wait", "x.py"], "invalid choice"),
        (["--tsop", "x.py"], "--tsop"),
        (["-m"], "name of a module"),
    ],
)
def test_a_wrong_argument_is_told_in_a_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_help_and_version(capsys):
    for option, said in (("--help", "--steps"), ("--version", device_lab.__version__)):
        with pytest.raises(SystemExit) as stopped:
            cli.main([option])
        assert stopped.value.code == 0
        assert said in capsys.readouterr().out
