"""The page of quick answers: its form, its links, and its code, each block of which is
run in a process of its own.
"""

import re
import subprocess
import sys
import textwrap
from typing import NamedTuple

import nbformat
import pytest

from tools.lessons.links import anchors, broken_links
from tools.site import errors, website
from tools.site.website import ROOT
from torch_messages.messages import entries

PAGE = ROOT / "docs" / "answers.md"
TEXT = PAGE.read_text(encoding="utf-8")
TOP, *SECTIONS = re.split(r"^## ", TEXT, flags=re.M)
ANSWERS = dict(section.split("\n", 1) for section in SECTIONS)  # by heading
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.M | re.S)
LESSON_LINK = re.compile(
    r"\[(?:lesson (\d\d), )?section (\d+)\]"
    r"\(\.\./notebooks/((\d\d)_\w+\.ipynb)#([\w-]+)\)"
)


class Run(NamedTuple):
    """A run of a block. given: set-up, what the reader has. then: assertions; `said` is
    what the block printed. raises: the error with which the block ends instead.
    """

    given: str = ""
    then: str = ""
    raises: str = ""


MODEL = """
device = torch.device("cpu")
model = torch.nn.Linear(4, 1)
loss_of = torch.nn.functional.mse_loss
"""
DEVICE = """
assert said == f"{torch.__version__} made for CUDA {torch.version.cuda}\\n"
assert torch.ones(2, device=device).sum().item() == 2
"""
BATCHES = (
    MODEL
    + """
loader = [(torch.ones(2, 4), torch.zeros(2, 1)) for _ in range(4)]
loader[2][0][0, 0] = 1e5  # more than float16 holds
losses = []
update = losses.append
"""
)
COMPILED = "x, next_x = torch.ones(3, 4), torch.zeros(3, 4)"
# torch_xla's names for PyTorch's own lazy device, as in lesson 13; `widths` are those
# of its batches
LAZY = """
import sys, types
import torch._lazy.metrics, torch._lazy.ts_backend

torch._lazy.ts_backend.init()
names = ("torch_xla", "torch_xla.debug", "torch_xla.debug.metrics")
sys.modules |= {name: types.ModuleType(name) for name in names}
top, debug, metrics = (sys.modules[name] for name in names)
top.debug, debug.metrics = debug, metrics
top.sync, top.real_devices = torch._lazy.mark_step, lambda: ["CPU:0"]
metrics.counter_value = torch._lazy.metrics.counter_value

weight = torch.ones(4, device="lazy")
loader = [(torch.ones(rows, 4), torch.ones(rows)) for rows in rows_of_batches]

def train_step(x, y):
    global weight
    weight = weight - (x.to("lazy") * weight).sum(1).mean() * y.to("lazy").mean()
"""
COUNTS = """
device, *lines = said.splitlines()
assert device == "behind the device: ['CPU:0']"
steps, counts = zip(*(map(int, line.split()) for line in lines))
assert steps == (0, 1, 2, 3, 4)
"""
LLAMA = """
from types import SimpleNamespace

config = SimpleNamespace(
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    hidden_size=4096,
)
dtype = torch.bfloat16
model = torch.nn.Linear(4096, 8, device="meta", dtype=dtype)
memory = 64 * 2**30 + sum(p.nbytes for p in model.parameters())
"""

# What each block is given, and what it must do.
RUNS = {
    "CUDA is not available": [
        Run(then=DEVICE),
        Run(  # a CUDA build without a GPU
            given="""
def current_accelerator(check_available=False):
    return None if check_available else torch.device("cuda")

torch.accelerator.current_accelerator = current_accelerator
""",
            then=DEVICE,
        ),
    ],
    "Expected all tensors to be on the same device": [
        Run(
            given="""
model, device = torch.nn.Linear(4, 1), torch.device("meta")
x, y = torch.ones(2, 4), torch.zeros(2, 1)
""",
            then="""
from pytest import raises

out = model(x + noise) - y
assert {t.device for t in (out, x, y, noise, *model.parameters())} == {device}
with raises(RuntimeError, match="not on the expected device"):
    model(torch.ones(2, 4))

class Centered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(4))
        self.plain = torch.ones(4)

moved = Centered().to(device)
assert (moved.mean.device.type, moved.plain.device.type) == ("meta", "cpu")
""",
        )
    ],
    "CUDA out of memory": [
        Run(
            given=MODEL + "x, y = torch.randn(10, 4), torch.randn(10, 1)",
            then="""
in_pieces = model.weight.grad.clone()
model.zero_grad()
loss_of(model(x), y).backward()
torch.testing.assert_close(in_pieces, model.weight.grad)
""",
        )
    ],
    "My timing is wrong": [
        Run(
            given="""
import time

def fn():
    time.sleep(0.02)
""",
            then="""
assert 19 < float(said.removesuffix(" ms\\n")) < 2000
torch.get_device_module(torch.device("cpu")).synchronize()
""",
        )
    ],
    "The GPU is idle": [
        Run(
            given="""
data = torch.utils.data.TensorDataset(torch.ones(64, 4), torch.ones(64))
loader = torch.utils.data.DataLoader(data, batch_size=4)

def train_step(x, y):
    (x.sum(1) - y).mean().item()
""",
            then="""
import gzip, json

with gzip.open("trace.json.gz") as file:
    names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
assert sum("enumerate(DataLoader)" in name for name in names) == 8
assert names.count("aten::sub") == 8 <= names.count("aten::item")
""",
        )
    ],
    "The loss is NaN with AMP": [
        Run(
            given=BATCHES + "low, use_amp = torch.float16, True",
            raises=r"FloatingPointError: step 2: the loss is (nan|inf)",
        ),
        Run(
            given=BATCHES + "low, use_amp = torch.bfloat16, True",
            then="assert len(losses) == 4 and torch.stack(losses).isfinite().all()",
        ),
    ],
    "DataLoader hangs or dies": [
        Run(
            given="""
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            raise ValueError("row 5 is empty")
        return i

dataset = Rows()
""",
            raises="ValueError: row 5 is empty",
        ),
        Run(  # what stands below the block
            given="dataset = range(8)",
            then="""
import sys, time
from pytest import raises

class Hangs(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        time.sleep(60)

assert batch.tolist() == [4, 5, 6, 7]
options = {"num_workers": 1, "timeout": 1}
torch.utils.data.DataLoader(dataset, multiprocessing_context="spawn", **options)
if sys.platform == "linux":
    loader = torch.utils.data.DataLoader(
        Hangs(), multiprocessing_context="fork", **options
    )
    with raises(RuntimeError, match="DataLoader timed out after 1 seconds"):
        next(iter(loader))
""",
        ),
    ],
    "DDP hangs": [
        Run(
            given="""
import os

os.environ |= {"RANK": "0", "WORLD_SIZE": "1"}  # as torchrun sets them
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # any free port
""",
            then="""
faulthandler.cancel_dump_traceback_later()
default = dist.group.WORLD._get_backend(torch.device("cpu")).options
assert default._timeout == timedelta(minutes=5)
assert dist.get_backend() == dist.get_backend(group) == "gloo"
ones = torch.ones(2)
dist.all_reduce(ones)
assert ones.tolist() == [1, 1] and dist.get_world_size() == 1
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
with ddp.join():
    ddp(ones).sum().backward()
del ddp
dist.destroy_process_group()
""",
        )
    ],
    "torch.compile is slow or breaks": [
        Run(
            given=MODEL + COMPILED,
            then="torch.testing.assert_close(fast(x), model(x))",
        ),
        Run(
            given=COMPILED
            + """
def model(x):
    return x + 1 if x.sum() > 0 else x - 1
""",
            raises="Data-dependent branching|control flow",
        ),
        Run(
            given=MODEL + COMPILED + "[:2]",  # a smaller batch
            raises="size mismatch at index 0. expected 3, actual 2",
        ),
    ],
    "The TPU is slower than my CPU": [
        Run(
            given="rows_of_batches = (3, 3, 3, 3, 3)\n" + LAZY,
            then=COUNTS + "assert 0 < counts[1] == counts[4]",
        ),
        Run(
            given="rows_of_batches = (3, 4, 5, 6, 7)\n" + LAZY,
            then=COUNTS + "assert counts[4] == counts[1] + 3",
        ),
    ],
    "Generation is slow": [
        Run(
            given=MODEL
            + """
import time

bandwidth = 2e3  # bytes a second

def step():
    time.sleep(0.02)
""",
            then="""
import re

took, least = map(float, re.findall(r"([0-9.]+) ms", said))
assert 19 < took < 2000 and least == 10  # 5 weights of 4 bytes
""",
        )
    ],
    "How long a context fits": [
        Run(  # Llama 3.1 8B with four answers; config as its file says
            given=LLAMA + "answers = 4",
            then="""
assert said == "128 KiB a token, at most 131,072 tokens\\n"
cache = [torch.empty(2, 8, 131_072, 128, dtype=dtype, device="meta")] * 32 * answers
assert sum(t.nbytes for t in cache) == room
""",
        ),
        Run(  # without the two names that not every config has: 32 KV heads
            given=LLAMA
            + "answers, config.num_key_value_heads = 1, None; del config.head_dim",
            then='assert said == "512 KiB a token, at most 131,072 tokens\\n"',
        ),
    ],
}
# One process: the set-up, the block, in which what is deprecated is an error, and the
# assertions.
PROGRAM = """
import contextlib, io, warnings
import torch
{given}
with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as file:
    for deprecated in (FutureWarning, DeprecationWarning):
        warnings.simplefilter("error", deprecated)
    exec(compile({block!r}, "answers.md", "exec"))
said = file.getvalue()
{then}
print("whole")
"""


def block_of(heading):
    """The one block of code of an answer."""
    ((language, code),) = BLOCK.findall(ANSWERS[heading])
    assert language == "python"
    return code


@pytest.mark.slow
@pytest.mark.parametrize(
    "heading, run",
    [(heading, run) for heading, runs in RUNS.items() for run in runs],
    ids=lambda value: value if isinstance(value, str) else "run",
)
def test_what_the_block_of_an_answer_does(heading, run, tmp_path):
    given, then = run.given, run.then
    program = PROGRAM.format(given=given, block=block_of(heading), then=then)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "program.py"]
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(command, **options)
    if run.raises:
        assert done.returncode == 1 and 'File "answers.md"' in done.stderr, done.stderr
        assert re.search(run.raises, done.stderr), done.stderr
    else:
        assert done.stdout == "whole\n", done.stderr


def test_no_block_is_without_an_assertion():
    assert list(RUNS) == list(ANSWERS)
    for heading, runs in RUNS.items():
        assert 2 <= len(lines(block_of(heading))) <= 7
        assert runs and all(bool(run.raises) != ("assert" in run.then) for run in runs)


def lines(code):
    return [line for line in code.splitlines() if line.strip()]


def shown_lines(answer):
    """Lines of an answer that a reader sees: its code, and its text in 88 columns,
    without the targets of links.
    """
    count = sum(len(lines(code)) for _, code in BLOCK.findall(answer))
    prose = re.sub(r"\]\([^)]*\)", "]", BLOCK.sub("\n", answer))
    for paragraph in re.split(r"\n\s*\n|\n(?=- |\d\. )", prose):
        count += len(textwrap.wrap(paragraph, 88))
    return count


def test_twelve_answers_of_twelve_lines_at_most():
    listed = re.findall(r"^- \[(.+)\]\(#(.+)\)$", TOP, re.M)
    assert [title for title, _ in listed] == list(ANSWERS) and len(ANSWERS) == 12
    assert [anchor for _, anchor in listed] == anchors(TEXT)[1:]
    long = {heading: shown_lines(answer) for heading, answer in ANSWERS.items()}
    assert {heading: n for heading, n in long.items() if n > 12} == {}
    assert shown_lines("a\n\n- b\n- c\n\n```python\nd\n\ne\n```\n[f](g)\n") == 6
    assert shown_lines(f"{'a ' * 50}\n") == 2


def sections_of(lesson):
    """Cell → number of the section in which it stands."""
    found, number = {}, None
    for cell in nbformat.read(ROOT / "notebooks" / lesson, as_version=4).cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^## (?:(\d+) · )?", cell.source, re.M):
                number = heading or None
        found[cell.id] = number
    return found


@pytest.mark.parametrize("heading", ANSWERS)
def test_an_answer_leads_to_the_sections_that_it_names(heading):
    why = ANSWERS[heading].rpartition("\nWhy: ")[2]
    found = LESSON_LINK.findall(why)
    assert len(found) == why.count("](") > 0 and found[0][0]
    named = None
    for said, section, lesson, number, cell in found:
        named = said or named
        assert named == number and sections_of(lesson)[cell] == section


def test_links_lead_somewhere():
    assert list(broken_links(TEXT, PAGE.parent)) == []


def test_remedies_for_memory_are_those_of_lesson_07_in_its_order():
    cells = nbformat.read(ROOT / "notebooks" / "07_memory.ipynb", as_version=4).cells
    table = next(cell.source for cell in cells if cell.id == "remedies")
    rows = re.findall(r"^\| (\d)\. (.*?) \|", table, re.M)
    tried = re.findall(r"^(\d)\. (.*)$", ANSWERS["CUDA out of memory"], re.M)
    words = ("let go", "smaller pieces of the batch, gradients added up", "autocast")
    words += ("checkpointing", "an optimizer with less state")
    words += ("`expandable_segments:True`", "a larger GPU, or several that share the")
    assert len(rows) == len(tried) == len(words)
    for row, remedy, word in zip(rows, tried, words, strict=True):
        assert row[0] == remedy[0] and word in row[1] and word in remedy[1]


def test_calls_for_a_tpu_are_those_of_lesson_13():
    """They run here on a stand-in, which has the names that it is given."""
    lesson = (ROOT / "notebooks" / "13_tpu_with_xla.ipynb").read_text(encoding="utf-8")
    code = block_of("The TPU is slower than my CPU")
    names = {*re.findall(r"torch_xla[.\w]*|counter_value|UncachedCompile", code)}
    assert len(names) > 4 and [name for name in names if name not in lesson] == []


def test_on_the_site_the_messages_lead_to_their_entries():
    page = website.link_messages(TEXT)
    linked = dict(re.findall(r"\[`(.+?)`\]\((errors/.+?)\)", page))
    assert {
        "Torch not compiled with CUDA enabled": (
            "errors/tensors-and-models-on-devices.md#message-movement-not-compiled"
        ),
        "Cannot re-initialize CUDA in forked subprocess": (
            "errors/loading-data.md#message-data-forked-cuda"
        ),
    }.items() <= linked.items()
    assert set(linked.values()) <= {*map(errors.address, entries().values())}
    assert BLOCK.findall(page) == BLOCK.findall(TEXT)
