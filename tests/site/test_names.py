"""The index of names: what a piece of code says, what an entry leads to, the page."""

import ast
import copy
import re

import nbformat
import pytest
from nbformat import v4

from tools.lessons.notebooks import lessons
from tools.site import api, lookup, website
from tools.site.names import Scope, existing, public

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}


@pytest.fixture(scope="module")
def index():
    return api.entries(NOTEBOOKS)


def said(source):
    tree, scope = ast.parse(source), Scope()
    scope.learn(tree)
    return set(scope.said(tree))


SAYS = {
    "x.record_stream(s)": {"torch.Tensor.record_stream"},
    "x.to(d, non_blocking=True)": {
        "torch.Tensor.to",
        "torch.Tensor.to(non_blocking=)",
    },
    "model.to(d)": {"torch.nn.Module.to"},
    "loss.backward()": {"torch.Tensor.backward"},
    "import torch.nn.functional as fun\nfun.relu(x)": {"torch.nn.functional.relu"},
    "from torch.amp import GradScaler as Scaler\ns = Scaler()\ns.unscale_(o)": {
        "torch.amp.GradScaler",
        "torch.amp.GradScaler.unscale_",
    },
    "with torch.profiler.profile() as p:\n    p.step()": {
        "torch.profiler.profile",
        "torch.profiler.profile.step",
    },
    "o = torch.optim.SGD(ps)\no.step()": {
        "torch.optim.SGD",
        "torch.optim.Optimizer.step",
    },
    "side = torch.cuda.Stream()\nside.wait_event(e)": {
        "torch.cuda.Stream",
        "torch.cuda.Stream.wait_event",
    },
    "xm.mark_step()": {"torch_xla.core.xla_model.mark_step"},
    "accelerator.prepare(m)": {"accelerate.Accelerator.prepare"},
    "torch.float16.itemsize": {"torch.float16"},
    "torch.backends.cuda.matmul.allow_tf32": {"torch.backends.cuda.matmul.allow_tf32"},
    # not of these packages, private, or perhaps no tensor's
    "import numpy\nnumpy.zeros(3)": set(),
    "torch._C._cuda_init()": set(),
    "torch.cuda.os.environ": set(),
    "names.sort()": set(),
}


@pytest.mark.parametrize("source", SAYS)
def test_names_that_code_says(source):
    assert said(source) == SAYS[source]


def lesson(*cells):
    """A notebook of these (id, source); a source that begins with # is a text."""
    return v4.new_notebook(
        cells=[
            (v4.new_markdown_cell if source.startswith("#") else v4.new_code_cell)(
                source, id=name
            )
            for name, source in cells
        ]
    )


SMALL = {
    "05_a": lesson(
        ("title", "# Streams"),
        ("recipe", "s = torch.cuda.Stream()\ny = x.to(d, non_blocking=True)"),
        ("queue", "## 1 · What is a `Stream`? (5 minutes)"),
        ("queue-code", "torch.cuda.synchronize()"),
        ("race", "## 2 · Who waits?\n`x.record_stream(s)`, with a `Stream`: text."),
        ("deeper", "## Deeper"),
        (
            "more",
            "### 3 · More\n`record_stream` and `non_blocking`, and `record_stream`",
        ),
    ),
    "06_b": lesson(
        ("title", "# Pinned"),
        ("first", "## 1 · Pages"),
        ("use", "import torch.cuda as c\nc.synchronize()\nx.nonexistent_method()"),
    ),
    "16_c": lesson(
        ("title", "# Old code"),
        ("row-text", "### `torch.cuda.amp.autocast`"),
        (
            "row",
            '%%today amp/autocast: warns "deprecated"\n'
            "torch.cuda.amp.autocast()\n"
            "# ---- today\n"
            "torch.amp.autocast('cuda')",
        ),
    ),
}


@pytest.fixture(scope="module")
def small():
    return api.entries(SMALL)


def places(found):
    return [(place.stem, place.id) for place in found]


def test_an_entry_leads_to_the_section_that_speaks_most_of_it(small):
    stream = small["torch.cuda.Stream"]
    # a heading weighs more than a text; the recipe only uses it
    assert places(stream.explained) == [("05_a", "queue"), ("05_a", "race")]
    record = small["torch.Tensor.record_stream"]
    assert stream.first == stream.explained[0]
    # said twice below "Deeper" is less than once, and used, in the core
    assert places(record.explained) == [("05_a", "race"), ("05_a", "more")]
    assert places(small["torch.Tensor.to(non_blocking=)"].explained) == [
        ("05_a", "more")
    ]


def test_a_use_elsewhere_is_listed_by_its_lesson(small):
    used = small["torch.cuda.synchronize"].used
    assert places(used) == [("05_a", "queue"), ("06_b", "first")]


def test_what_no_package_has_is_no_entry(small):
    assert not [name for name in small if "nonexistent" in name]


def test_a_row_of_lesson_16_is_what_replaces_a_name(small):
    old, new = small["torch.cuda.amp.autocast"], small["torch.amp.autocast"]
    assert places(old.replaced) == [("16_c", "row-text")] and not old.rows
    assert places(new.rows) == [("16_c", "row-text")] and not new.replaced
    assert "**today:** [16 · torch.cuda.amp.autocast]" in old.listed()


# names, and the lesson that an entry leads to first
FIRST = {
    "torch.cuda.Stream": "05",
    "torch.Tensor.record_stream": "05",
    "torch.Tensor.pin_memory": "06",
    "torch.utils.data.DataLoader(pin_memory=)": "06",
    "torch.amp.GradScaler.unscale_": "08",
    "torch.nn.DataParallel": "11",
    "torch.cuda.CUDAGraph": "10",
    "torch.cuda.memory_allocated": "07",
}


@pytest.mark.parametrize("name, number", FIRST.items())
def test_first_place_of_a_name(name, number, index):
    assert index[name].first.stem[:2] == number


def test_mark_step_says_what_it_is_today(index):
    entry = index["torch_xla.core.xla_model.mark_step"]
    assert places(entry.replaced) == [("16_old_code_today", "mark-step-text")]


def test_page_has_each_entry_once_and_each_link_a_cell(index):
    page = api.page(index)
    anchors = re.findall(r'id="([^"]+)"', page)
    assert len(anchors) == len(set(anchors)) == len(index)
    links = set(re.findall(r"\.\./notebooks/(\w+)\.ipynb#([\w-]+)\)", page))
    cells = {(stem, cell.id) for stem, nb in NOTEBOOKS.items() for cell in nb.cells}
    assert links and links <= cells


def test_every_name_of_torch_exists_or_is_replaced(index):
    gone = [
        entry.name
        for entry in index.values()
        if entry.name.startswith("torch.")
        and not entry.name.endswith("=)")
        and existing(entry.name) is None
    ]
    assert gone == [name for name in gone if index[name].replaced]
    assert [name for name in index if public(name.partition("(")[0]) is None] == []


def test_page_and_search_follow_the_lesson():
    stem = "05_streams"
    nb = copy.deepcopy(NOTEBOOKS[stem])
    before = api.entries({stem: nb})
    assert "torch.cuda.Stream" in before and "torch.bitwise_not" not in before
    for cell in nb.cells:
        cell.source = re.sub(
            r"\btorch\.cuda\.Stream\b", "torch.bitwise_not", cell.source
        )
    after = api.entries({stem: nb})
    assert "torch.bitwise_not" in after and "`torch.bitwise_not`" in api.page(after)
    names = [name for name, *_ in lookup.api(website.names(), after)]
    assert "torch.bitwise_not" in names
