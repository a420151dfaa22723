"""What the pages of evidence and of errors say: all that lessons and recordings hold,
and nothing else.
"""

import re

import nbformat
import pytest

from course import grammar, uses
from tests.conftest import ROOT, notebook
from tools.lessons import recorder
from tools.site import errors, evidence
from tools.site import pages as pages_of_lessons
from tools.site.read_lessons import read_lessons

MACHINE = {"device": "XLA on CPU", "torch": "2.9.0+cu128", "torch_xla": "2.9.0"}
T4 = {"device": "emulated Tesla T4", "torch": "2.13.0+cu130", "capability": "7.5"}
STAND_IN = {"device": "TorchTPU on XLA's CPU device, no TPU", "torch_tpu": "0.2.0"}
H200 = {"device": "NVIDIA H200", "torch": "2.13.0+cu130", "capability": "9.0"}


@pytest.fixture(scope="module")
def pages():
    lessons = read_lessons()
    return {
        "docs/evidence.md": evidence.page(lessons),
        "docs/errors": "\n".join(errors.pages(lessons).values()),
    }


@pytest.fixture(scope="module")
def code_cells():
    """(stem of the lesson, cell) of all lessons, as nbformat reads them."""
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    return [
        (path.stem, cell)
        for path in paths
        for cell in nbformat.read(path, 4).cells
        if cell.cell_type == "code"
    ]


def printed(cell):
    """What a cell shows as text: what it printed, and what it claimed."""
    shown = [
        output for output in cell.outputs if "text/html" not in output.get("data", {})
    ]
    return "\n".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in shown
    )


def state_of(cell):
    """What the course says of where the outputs of a cell come from: "live", "replayed"
    …; None where nothing.
    """
    states = [
        output.metadata.get("device_lab", {}).get("state")
        for output in cell.outputs
        if "metadata" in output
    ]
    return states[0] if states else None


# --------------------------------------------------------------------------------------
# The course as it is


def test_every_claim_that_a_lesson_stores_stands_on_the_page_once(pages, code_cells):
    stored = {
        (stem, cell.id, n)
        for stem, cell in code_cells
        if state_of(cell) in (None, "live", "claim")
        for n, _ in enumerate(
            output
            for output in cell.outputs
            if "claim" in output.get("metadata", {}).get("device_lab", {})
        )
    }
    tables = re.findall(
        r"^\| \d+ claims? \| figure \|\n.*\n((?:\|.*\n)+)",
        pages["docs/evidence.md"],
        re.M,
    )
    rows = [row for table in tables for row in table.splitlines()]
    places = [
        re.search(r"notebooks/(\w+)\.ipynb#([\w-]+)\)", row).groups() for row in rows
    ]
    assert len(stored) > 100
    for place in {(stem, id) for stem, id, _ in stored}:
        own = [n for *at, n in stored if tuple(at) == place]
        assert places.count(place) >= len(own), place
    assert f"{len(rows)} claims of the lessons" in pages["docs/evidence.md"]


def test_every_figure_that_the_lessons_show_stands_beside_its_claim(pages, code_cells):
    text = pages["docs/evidence.md"]
    lines = [
        (stem, cell.id, line)
        for stem, cell in code_cells
        for line in re.findall("^✓ .*claimed.*", printed(cell), re.M)
    ]
    # each output that is a claim is read here (a recording shows several in one)
    claims = {
        (stem, cell.id)
        for stem, cell in code_cells
        for output in cell.outputs
        if "claim" in output.get("metadata", {}).get("device_lab", {})
    }
    assert claims and claims <= {(stem, cell) for stem, cell, _ in lines}
    for stem, cell, line in lines:
        sentence, figure = re.fullmatch(
            r"✓ (.*?)(?:: ([^:]*))? \(claimed.*", line
        ).groups()
        section = text.partition(f"\n## {stem[:2]} · ")[2].partition("\n## ")[0]
        rows = [row for row in section.splitlines() if evidence.md(sentence) in row]
        # or a function of another cell claims it
        rows = [row for row in rows if f"#{cell})" in row] or rows
        assert any(f"**{evidence.md(figure or 'true')}**" in row for row in rows), line


def test_every_conditional_cell_stands_on_the_page_once_with_what_it_shows(
    pages, code_cells
):
    listed = re.findall(
        r"^\| \[`(\w+)`\].* \| (.*) \|$", pages["docs/evidence.md"], re.M
    )
    badges = {
        "replayed": "RECORDED",
        "emulated": "EMULATED",
        "published": "PUBLISHED",
        "unavailable": "nothing yet",
    }
    known = [
        (cell, head)
        for _, cell in code_cells
        if (head := grammar.header(cell.source)) and head.recordable
    ]
    assert (
        sorted(name for name, _ in listed) == sorted(head.name for _, head in known)
        and len(known) > 100
    )
    for cell, head in known:
        badge = badges.get(state_of(cell), "")
        assert dict(listed)[head.name].startswith(badge), cell.id
    counts = re.findall(
        r"^\| (\d+) \| (?:RECORDED|EMULATED|PUBLISHED|nothing)",
        pages["docs/evidence.md"],
        re.M,
    )
    assert len(counts) == 4 and sum(map(int, counts)) == len(known)


def test_every_announced_message_that_the_lessons_show_is_in_the_index(
    pages, code_cells
):
    found, links = [], set()
    for stem, cell in code_cells:
        begins = r"^([A-Z]\w*[a-z]: \S.*)"
        if "%%torchrun" in cell.source and "--fails" in cell.source:
            begins = r"^rank \d │ (\w+Error: .*)"
        elif re.search(r"%%today .*\b(raises|warns)\b", cell.source):
            begins = r"^  (?:old   |yours ) (\w+: .*)"
        elif "expect_error(" not in cell.source:
            continue
        messages = re.findall(begins, re.sub(r"\x1b\[\d*m", "", printed(cell)), re.M)
        found += [" ".join(message.split()) for message in messages]
        links |= {f"](../../notebooks/{stem}.ipynb#{cell.id})" for _ in messages}
    index = " ".join(pages["docs/errors"].split())
    lost = [message for message in found if message not in index]
    # a program's own
    assert len(found) > 150 and lost == ["ZeroDivisionError: division by zero"]
    lost = [link for link in links if link not in index]
    assert len(links) > 130 and len(lost) <= 1
    # two lessons, two widths of lines
    assert index.count("FakeTensorDeviceMismatchError: Expected all tensors") == 1


def test_links_lead_to_cells(pages):
    known = {lesson.link(id) for lesson in read_lessons() for id in lesson.sections}
    text = "\n".join(pages.values())
    links = re.findall(r"\]\((?:\.\./)?(\.\./notebooks/[^)]*#[^)]*)\)", text)
    assert len(links) > 500 and set(links) <= known


def test_README_says_of_GPUs_and_TPUs_what_the_recordings_say(pages):
    sentence = evidence.gpu_sentence(read_lessons())
    assert f"**{sentence}**" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"**{sentence}**" in pages["docs/evidence.md"]


# --------------------------------------------------------------------------------------
# A small course

CUDA = """#| requires: cuda
#| result: numbers
#| timeless: true
numbers = [1, 2]
claim("a rule", numbers[1], at_least=2, limit=4)
claim("a time", numbers[0], at_most=9, unit="s", timed=True)"""
READS = '#| requires: result:numbers\nclaim(f"{name} of it", True)'
PLAIN = (
    'claim("of the CPU", 1, at_least=1)\nwith expect_error(ValueError, "odd"):\n   '
    ' claim("a false one", 2, at_least=3)'
)
RULE = {"text": "a rule", "value": 2, "at_least": 2, "limit": 4, "share": 0.5}
TIME = {"text": "a time", "value": 5, "at_most": 9, "unit": "s", "timed": True}
HERE = {"text": "of the CPU", "value": 1, "at_least": 1}
ALL = {"text": "all of it", "value": True}


def told(claim, device, **changes):
    """What `claim` keeps of a claim that was judged on a device."""
    usual = {"unit": "", "timed": False, "holds": True}
    return {**usual, **claim, "device": device, "live": True, **changes}


def shown(claim):
    """The output of a claim."""
    facts = {"state": "claim", "claim": claim}
    data = {"text/plain": f"✓ {claim['text']}"}
    return nbformat.v4.new_output("display_data", data, metadata={"device_lab": facts})


@pytest.fixture
def course(tmp_path):
    """The folder of a course of one lesson, with nothing recorded."""
    nb = notebook("", CUDA, READS, PLAIN, preamble=False)
    nb.cells[0] = nbformat.v4.new_markdown_cell(
        "# A lesson: about nothing\n\n## What | is it?"
    )
    for name, cell in zip(["title", "cuda", "reads", "plain"], nb.cells, strict=True):
        cell.id = name
    text = "ValueError: `odd` | words\nand a second line\n… (3 more lines)\nprinted"
    printed = nbformat.v4.new_output("stream", text=text)
    nb.cells[3].outputs = [shown(told(HERE, "A CPU")), printed]
    (tmp_path / "notebooks" / "recorded").mkdir(parents=True)
    nbformat.write(nb, tmp_path / "notebooks" / "00_a_lesson.ipynb")
    (tmp_path / "notebooks" / "recorded" / "published.json").write_text("{}")
    return tmp_path


def change(course, old, new):
    """Write its lesson with a text replaced."""
    path = course / "notebooks" / "00_a_lesson.ipynb"
    path.write_text(
        path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8"
    )


def record(course, machine, *claims, date="2026-11-20", others=None):
    """Store what a machine gave for the cell of the small course, and what it claimed
    there. others: the claims of other cells.
    """
    entry = {
        "requires": "cuda",
        "source": uses.source_key(CUDA),
        "uses": {},
        "date": date,
        "seconds": 1.0,
    }
    outputs = [{"text": f"✓ {claim['text']}", "claim": claim} for claim in claims]
    entry |= {"machine": machine, "outputs": outputs}
    recorder.store(
        course / "notebooks" / "recorded",
        "00_a_lesson",
        {"numbers": entry},
        claims=others,
    )


def rows(course):
    """The rows of a page's tables, by their first column, without its link and what is
    behind.
    """
    found = re.findall(
        r"^\| \[(.+?)\]\(.*?\)(.*) \|$",
        evidence.page(read_lessons(course), course),
        re.M,
    )
    return {name.strip("`"): rest.partition(" | ")[2] for name, rest in found}


def test_what_nobody_has_measured_is_said(course):
    found = rows(course)
    assert found == {
        "numbers": "nothing yet",
        "of the CPU": "**1** (promised ≥ 1) · A CPU, stored here",
    }
    text = evidence.page(read_lessons(course), course)
    assert (
        "No result in this course comes from a CUDA GPU or a TPU yet." in text
        and "and 1 claims of the lessons" in text
    )
    assert (
        "| [`numbers`](../notebooks/00_a_lesson.ipynb#cuda)<br>needs a CUDA GPU |"
        " nothing yet |" in text
    )


def test_a_recording_of_a_GPU_makes_the_sentence_untrue_and_gives_figures(course):
    of_a_gpus_machine = {**H200, "device": "Xeon", "cpu": "Xeon"}
    for other in (MACHINE, STAND_IN, of_a_gpus_machine):
        record(course, other)
        assert evidence.gpu_sentence(read_lessons(course)).startswith("No result")
    judged = {
        "source": uses.source_key(READS),
        "uses": {},
        "claims": [told(ALL, "NVIDIA H200")],
    }
    stale = {"source": "0", "uses": {}, "claims": [told(HERE, "Their CPU")]}
    claims = [told(claim, "NVIDIA H200") for claim in (RULE, TIME)]
    record(course, H200, *claims, others={"reads": judged, "plain": stale})
    assert evidence.gpu_sentence(read_lessons(course)) == (
        "Cells recorded on a CUDA GPU or a TPU so far: 1 on NVIDIA H200."
    )
    found = rows(course)
    assert (
        found["a rule"]
        == "**2** (promised ≥ 2), 50% of the limit 4 · NVIDIA H200, recorded 2026-11-20"
    )
    assert (
        found["a time"] == "**5 s** (promised ≤ 9 s) · NVIDIA H200, recorded 2026-11-20"
    )
    assert found["all of it"] == "**true** · NVIDIA H200, recorded 2026-11-20"
    assert found["of the CPU"].endswith(
        "· Their CPU, recorded 2026-11-20 (the cell has changed since)"
    )
    assert (
        "RECORDED on NVIDIA H200, 2026-11-20, torch 2.13.0+cu130<br>"
        in found["numbers"]
    )


def test_of_the_emulated_device_there_is_no_time(course):
    record(course, T4, *[told(claim, T4["device"]) for claim in (RULE, TIME)])
    found = rows(course)
    emulated = "emulated Tesla T4, recorded 2026-11-20"
    assert found["a rule"] == f"**2** (promised ≥ 2), 50% of the limit 4 · {emulated}"
    assert "a time" not in found
    assert found["numbers"] == "EMULATED, 2026-11-20, torch 2.13.0+cu130"
    assert evidence.gpu_sentence(read_lessons(course)).startswith("No result")


def test_what_the_emulated_device_gave_is_shown_for_timeless_cells_only(course):
    change(course, "#| timeless: true", "#")
    record(course, T4)
    assert rows(course)["numbers"] == "nothing yet"


def test_the_newest_recording_comes_first_and_what_was_replayed_is_not_taken_twice(
    course,
):
    for device, day in (("A", "20"), ("B", "21"), ("emulated C", "22")):
        machine = {**H200, "device": device}
        record(course, machine, told(RULE, device), date=f"2026-11-{day}")
    path = course / "notebooks" / "00_a_lesson.ipynb"
    nb = nbformat.read(path, as_version=4)
    replayed = {"device_lab": {"state": "replayed"}}
    nb.cells[1].outputs = [
        nbformat.v4.new_output("display_data", metadata=replayed),
        shown(told(RULE, "B")),
    ]
    nbformat.write(nb, path)
    found = rows(course)
    places = re.findall(r"· (.*?)(?:<br>|$)", found["a rule"])
    assert places[:2] == ["B, recorded 2026-11-21", "A, recorded 2026-11-20"]
    assert "stored here" not in found["a rule"] and found["numbers"].startswith(
        "RECORDED on B, 2026-11-21"
    )


def test_of_two_claims_with_one_sentence_each_has_its_own_row(course):
    record(course, H200, told({**RULE, "text": HERE["text"]}, "NVIDIA H200"))
    text = evidence.page(read_lessons(course), course)
    found = re.findall(r"^\| \[of the CPU\]\(.*#(\w+)\).* \| \*\*(\d)", text, re.M)
    assert found == [("cuda", "2"), ("plain", "1")]


def test_on_the_page_of_a_lesson_a_claim_is_a_sentence_that_wraps():
    output = pages_of_lessons.shown(shown(told(HERE, "A CPU")), {})
    assert output.data == {"text/html": '<p class="said">✓ of the CPU</p>'}


@pytest.mark.parametrize(
    "text, columns",
    [
        ("eager   1 ms\ngraph  12 ms\n", True),
        ("one   line\n", False),
        ("A sentence.\nAnother one.\n", False),
        ("def step(self, number):\n    return number\n", True),
        ("default: one\n", False),
    ],
)
def test_a_table_and_code_are_told_from_sentences(text, columns):
    output = nbformat.v4.new_output("stream", text=text)
    assert pages_of_lessons.has_columns(output) is columns


def test_what_is_printed_below_something_else_stays_below_it():
    def printed(text):
        return nbformat.v4.new_output("stream", text=text)

    error = nbformat.v4.new_output("display_data", {"text/plain": "ValueError: b"})
    table = printed("eager   1 ms\ngraph  12 ms\n")
    first, more, last = printed("a\n"), printed("b\n"), printed("c\n")
    groups = pages_of_lessons.in_groups([first, more, error, last, table])
    assert groups == [[first, more, error], [last], [table]]


def test_a_table_that_came_line_by_line_is_one():
    lines = [nbformat.v4.new_output("stream", text=f"{k}   1 ms\n") for k in "ab"]
    (table,) = pages_of_lessons.joined(lines)
    assert table.text == "a   1 ms\nb   1 ms\n"
    assert pages_of_lessons.has_columns(table)
    warning = nbformat.v4.new_output("stream", name="stderr", text="c\n")
    assert pages_of_lessons.joined([*lines, warning]) == [table, warning]


@pytest.mark.parametrize(
    ("text", "source", "messages"),
    [
        ("Odd: no\nNo error: b\na: OddError: b\nc", "x", ["OddError: b"]),
        (
            "rank 1 │ OSError: a\nrank 1 │  b\nrank 0 │ c",
            '%%torchrun 2 --fails "a"',
            ["OSError: a\nb"],
        ),
        (
            (
                "! warns\n  old    UserWarning: a\n           b\n         c\n        "
                " OSError: d\n         prints KeyError"
            ),
            "%%today a/b: warns",
            ["UserWarning: a\n  b\nc", "OSError: d"],
        ),
    ],
)
def test_where_a_message_begins_and_ends(text, source, messages):
    announced = {"error": {"kind": "Odd", "text": "Odd: \x1b[1mno\nyes"}}
    shown = [("…", announced), (text, {})]
    found = errors.messages_in(shown, source)
    assert [message.text for message in found] == ["Odd: no\nyes", *messages]
