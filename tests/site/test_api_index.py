"""The general index: what a piece of code says, and what an entry leads to."""

import re

import nbformat
import pytest
from nbformat import v4

from tools.lessons.notebooks import lessons
from tools.site import api_index, website

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}

SAYS = {
    "x.record_stream(s)": {"torch.Tensor.record_stream()"},
    "nn.Module.to; torch.float16.itemsize": {"torch.nn.Module.to()", "torch.float16"},
    "Stream().wait_event(e)": {"torch.cuda.Stream.wait_event()"},
    "scaler.unscale_(o)": {"torch.amp.GradScaler.unscale_()"},
    "F.relu(x)": {"torch.nn.functional.relu()"},
    "torch.load(f, map_location=d)": {"torch.load()", "map_location="},
    "xm.mark_step()": {"torch_xla.core.xla_model.mark_step"},
    "torch.backends.cuda.matmul.allow_tf32": {"torch.backends.cuda.matmul.allow_tf32"},
    # of more than one class; not of these packages; private; a module; gone
    "x.step()": set(),
    "numpy.zeros(3)": set(),
    "torch._C._cuda_init()": set(),
    "torch.cuda.os.environ": set(),
    "torch.nn": set(),
    "torch.cuda.nothing_of_this_name": set(),
    "names.sort()": set(),
}


@pytest.mark.parametrize("source", SAYS)
def test_names_that_code_says(source):
    assert set(api_index.names_in(source, api_index.ALIASES)) == SAYS[source]


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
        ("recipe", "## The recipe"),
        ("recipe-code", "from torch.cuda import Stream as S\ns = S()"),
        ("queue", "## 1 · What is a `torch.cuda.Stream`? (5 minutes)"),
        ("queue-code", "x.record_stream(s)\ny = x.to(d, non_blocking=True)"),
        (
            "race",
            "## 2 · Who waits?\n`record_stream`, `non_blocking`; `x.record_stream`",
        ),
    ),
    "06_b": lesson(
        ("first", "## 1 · Pages; more"),
        ("use", "import torch.cuda as c\ns = c.Stream()\nx.nonexistent_method()"),
    ),
    "16_c": lesson(
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


def test_an_entry_leads_to_each_lesson_and_first_to_the_section_that_says_most():
    found = api_index.entries(SMALL)
    stream = "{}single: torch.cuda.Stream; {}"
    assert (
        stream.format("!", "05 · 1 · What is a torch.cuda.Stream?")
        in (found["05_a", "queue"])
    )
    assert found["06_b", "first"] == [stream.format("", "06 · 1 · Pages more")]
    # a text that says it before code that only uses it
    record = "!single: torch.Tensor.record_stream(); 05 · 2 · Who waits?"
    assert record in found["05_a", "race"]
    assert (
        "!see: record_stream(); torch.Tensor.record_stream()" in found["05_a", "race"]
    )
    assert "!single: non_blocking=; 05 · 2 · Who waits?" in found["05_a", "race"]
    assert ("05_a", "recipe") not in found


def test_a_row_of_lesson_16_says_what_is_written_today():
    line = "single: torch.cuda.amp.autocast; today: torch.amp.autocast('cuda')"
    assert line in api_index.entries(SMALL)["16_c", "row-text"]


@pytest.fixture(scope="module")
def index():
    """Every line of the course's index, with its place."""
    found = api_index.entries(NOTEBOOKS)
    return [(place, line) for place, lines in found.items() for line in lines]


# names, and the lesson that an entry leads to first
FIRST = {
    "torch.cuda.Stream": "05",
    "torch.Tensor.record_stream()": "05",
    "torch.Tensor.pin_memory()": "06",
    "non_blocking=": "06",
    "map_location=": "03",
    "torch.amp.GradScaler.unscale_()": "08",
    "torch.nn.DataParallel": "11",
    "torch.cuda.CUDAGraph": "10",
    "torch.cuda.memory_allocated()": "07",
}


@pytest.mark.parametrize("name, number", FIRST.items())
def test_first_place_of_a_name(name, number, index):
    first = [place for place, line in index if line.startswith(f"!single: {name}; ")]
    assert [stem[:2] for stem, _ in first] == [number]


def test_names_that_are_gone_say_what_is_written_today(index):
    lines = {line for _, line in index}
    old = "single: torch_xla.core.xla_model.mark_step; today: torch_xla.sync()"
    assert old in lines
    assert (
        "single: torch.cuda.memory_cached(); today: torch.cuda.memory_reserved()"
        in lines
    )


def test_every_entry_is_of_a_cell_and_stands_there_on_its_page(index, tmp_path):
    cells = {(stem, cell.id) for stem, nb in NOTEBOOKS.items() for cell in nb.cells}
    assert len(index) > 1000 and {place for place, _ in index} <= cells
    (tmp_path / "notebooks").mkdir()
    (tmp_path / website.pages.PICTURES).mkdir(parents=True)
    path = next(path for path in lessons() if path.stem == "05_streams")
    entries = {("05_streams", "memory"): ["!single: a; b"]}
    website.stage_lesson(path, tmp_path, False, entries, "words")
    page = nbformat.read(tmp_path / "notebooks" / path.name, as_version=4)
    sources = [cell.source for cell in page.cells]
    at = sources.index("```{entries} memory\n!single: a; b\n```")
    assert sources[at - 1] == '<span class="cell" id="memory"></span>'
    assert re.search(r":keywords: words\n", sources[-1])
