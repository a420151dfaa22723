"""What the search knows: tasks, answers of names and messages, as HTML."""

import json
import re

import nbformat
import pytest
from nbformat import v4

from tools.lessons.notebooks import lessons
from tools.site import api, asked, lookup, uses, website
from tools.site.names import Scope

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}
TASKS = asked.asked(NOTEBOOKS)


@pytest.fixture(scope="module")
def index():
    return api.entries(NOTEBOOKS)


def test_each_task_leads_to_a_cell_and_is_asked_once():
    cells = {(stem, cell.id) for stem, nb in NOTEBOOKS.items() for cell in nb.cells}
    assert [task for task in TASKS if (task.stem, task.id) not in cells] == []
    assert len({task.title for task in TASKS}) == len(TASKS)
    assert {task.stem for task in TASKS} == set(NOTEBOOKS)


def test_the_page_has_each_task_below_its_lesson():
    page = asked.page(NOTEBOOKS, website.names())
    links = re.findall(r"\]\(\.\./notebooks/(\w+)\.ipynb#([\w-]+)\)", page)
    assert links == [(task.stem, task.id) for task in TASKS]


SOURCE = """
import torch
if torch.cuda.is_available():
    event = torch.cuda.Event(enable_timing=True)  # a marker
y = torch.ones(10_000, dtype=torch.float32, device="cuda", requires_grad=True) + 1
"""
LINES = {
    "torch.cuda.Event": ["event = torch.cuda.Event(enable_timing=True)"],
    "torch.cuda.is_available": ["if torch.cuda.is_available():"],
    "torch.ones": [],  # too long for a line of the index
    "torch.cuda.Stream": [],
}


@pytest.mark.parametrize("name", LINES)
def test_lines_that_use_a_name(name):
    assert [*uses.lines(SOURCE, api.Entry(name), Scope())] == LINES[name]


def test_an_entry_shows_the_line_of_the_section_that_explains_it():
    cells = [
        v4.new_markdown_cell("# T", id="title"),
        v4.new_code_cell("y = torch.add(x, 1)", id="first"),
        v4.new_markdown_cell("## 1 · Sums\n`torch.add` adds.", id="sums"),
        v4.new_code_cell("print(torch.add(x, 2))\nz = torch.add(x, x)", id="second"),
    ]
    entry = api.entries({"05_a": v4.new_notebook(cells=cells)})["torch.add"]
    assert entry.line == "z = torch.add(x, x)"
    assert entry.answer.startswith("`z = torch.add(x, x)` · “Adds `other`")


SAID = {
    "torch.cuda.Event": "Wrapper around a CUDA event.",
    "torch.Tensor.long": "`self.long()` is equivalent to `self.to(torch.int64)`.",
    "torch.load": "Loads an object saved with `torch.save` from a file.",
    "torch.cuda": "",  # of modules it says too much
    "torch.nothing": "",
    "torch.Tensor.to(non_blocking=)": "",
}


@pytest.mark.parametrize("name", SAID)
def test_what_pytorch_says_of_a_name(name):
    assert uses.said_by_pytorch(name) == SAID[name]


def test_what_is_written_today_in_place_of_a_name(index):
    assert index["torch.cuda.memory_cached"].today == "torch.cuda.memory_reserved()"
    mark_step = index["torch_xla.core.xla_model.mark_step"]
    assert mark_step.answer == "today `torch_xla.sync()`"
    # one that is used today, too, shows its use
    assert not index["torch.compile"].answer.startswith("today")


def test_an_answer_is_harmless_html():
    assert (
        lookup.shown(r"a \< b `x<y>` \*c\*") == "a &lt; b <code>x&lt;y&gt;</code> *c*"
    )
    code = "import torch\n\nx = 1\ny = 2\nz = 3"
    assert lookup.shown("Why.", code) == "Why. <code>x = 1\ny = 2\nz = 3</code>"


def test_patterns_of_other_wordings_are_none_that_a_browser_refuses(index):
    found = lookup.lookup(NOTEBOOKS, website.names(), {}, index, "")
    content = json.loads(found.partition("deviceLab.lookup = ")[2].removesuffix(";\n"))
    patterns = [each for message in content["messages"] for each in message[4]]
    assert patterns and not [
        each for each in patterns if "(?i" in each or "(?P" in each
    ]
