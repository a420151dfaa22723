"""What others have measured: the file, what a cell shows of it, and its place among the
five that a cell can show.
"""

import copy
import html.parser
import json
import math
import re

import nbformat
import pytest

from course import grammar, messages, recordings
from course.provenance import RecordingError
from tests.conftest import ROOT, errors_of, text_of
from tests.course.test_recordings import CELL, EMULATED, ENTRY, WITHOUT_GPU
from tools.lessons import notebooks, recorder, schemas

SOURCE = {
    "experiment": "Copies of 16 MB. Ours: many sizes.",
    "who": "A. Author",
    "link": "https://example.org/post?a=1&b=2",
    "date": "published 2012",
    "figures": [
        {"device": "C1060", "what": "pinned", "value": 1198, "unit": "GB/s"},
        {"device": "C2050", "what": "pinned", "value": 2.5, "unit": "GB/s"},
        {"device": "C2050", "what": "pageable", "value": 1, "unit": "GB/s"},
    ],
}
TABLE = " | C1060 | C2050\npinned | 1,198 GB/s | 2.5 GB/s\npageable | – | 1 GB/s"
TIMELESS = CELL.replace("bandwidth\n", "bandwidth\n#| timeless: true\n", 1)
STATE = "print('bandwidth' in globals(), 'bandwidth' in provenance.results)"


def write(folder, content):
    path = folder / "published.json"
    path.write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return path


def changed(**changes):
    """The source with other values; figure_…: in its first figure."""
    source = copy.deepcopy(SOURCE)
    for key, value in changes.items():
        holder = source["figures"][0] if key.startswith("figure_") else source
        holder[key.removeprefix("figure_")] = value
    return source


# --------------------------------------------------------------------------------------
# The file


def names_in_lessons():
    heads = [
        grammar.header(cell.source)
        for lesson in notebooks.lessons()
        for cell in nbformat.read(lesson, as_version=4).cells
        if cell.cell_type == "code"
    ]
    return {head.name for head in heads if head and head.recordable}


def test_each_committed_source_belongs_to_a_cell_and_each_figure_has_its_place():
    found = recordings.load_published(
        ROOT / "notebooks" / "recorded" / "published.json"
    )
    assert len(found) >= 12 and set(found) <= names_in_lessons(), (
        set(found) - names_in_lessons()
    )
    for name, sources in found.items():
        assert len(recordings.published(name)) == sum(
            len(source["figures"]) for source in sources
        )
        for source in sources:
            places = [
                (figure["what"], figure["device"]) for figure in source["figures"]
            ]
            assert len(set(places)) == len(places), (
                name,
                "two figures in one place of the table",
            )
            assert len(source["figures"]) <= 16 and len(source["experiment"]) <= 300, (
                name
            )
            assert "Ours" in source["experiment"], (
                name,
                "how does it differ from the cell?",
            )


WRONG = [
    "{",
    '{"bandwidth": 5}',
    "[1]",
    {"bandwidth": changed(link="javascript:alert(1)")},
    {"bandwidth": changed(link='https://example.org" onclick="alert(1)')},
    {"bandwidth": changed(link="https://example.org/><script>")},
    {"bandwidth": {key: SOURCE[key] for key in SOURCE if key != "date"}},
    {"bandwidth": changed(figures=[])},
    {"bandwidth": changed(figures=[{}])},
    {"bandwidth": changed(figure_value="2.5")},
    {"bandwidth": changed(figure_device=5)},
]
# these harm no reader: lint finds them
INCOMPLETE = [
    {"bandwidth": changed(html="<b>")},
    {"bandwidth": changed(date="2012")},
    {"bandwidth": changed(figure_value=math.nan)},
    {"bandwidth": changed(figure_device="")},
    {"bandwidth": changed(figure_more="x")},
]


@pytest.mark.parametrize("content", WRONG)
def test_what_is_damaged_is_refused_in_one_line(tmp_path, content):
    with pytest.raises(
        RecordingError,
        match=r"^recorded/published.json is damaged \(.*\): fetch the course again$",
    ) as e:
        recordings.load_published(write(tmp_path, content))
    assert str(tmp_path) not in str(e.value)


@pytest.mark.parametrize("content", [*WRONG, *INCOMPLETE])
def test_lint_finds_what_is_wrong_with_the_file(tmp_path, content):
    text = write(tmp_path, content).read_text(encoding="utf-8")
    assert schemas.problem(text, schemas.PUBLISHED)
    text = write(tmp_path, {"bandwidth": SOURCE}).read_text(encoding="utf-8")
    assert schemas.problem(text, schemas.PUBLISHED) is None


# --------------------------------------------------------------------------------------
# What a cell shows, in a real kernel


@pytest.fixture
def show(run, tmp_path):
    """show(entries, source, *cells, env): run cells where only `entries` are recorded,
    and `source` is published.
    """

    def go(entries, source, *sources, **options):
        for k, entry in enumerate(entries):
            recorder.store(tmp_path, f"0{k}_lesson", {"bandwidth": entry})
        if source is not None:
            write(
                tmp_path, source if isinstance(source, str) else {"bandwidth": source}
            )
        use = f"""import pathlib
from course import provenance, recordings
recordings.FOLDER = pathlib.Path({str(tmp_path)!r})"""
        return run(use, *sources, **options)[1:]

    return go


def states(cell):
    found = [
        output.get("metadata", {}).get("device_lab", {}).get("state")
        for output in cell.outputs
    ]
    return [state for state in found if state]


LADDER = {  # what there is → the states that a timeless cell shows
    "live recorded emulated published": ["live"],
    "live published": ["live"],
    "live": ["live"],
    "recorded emulated published": ["replayed", "published"],
    "recorded emulated": ["replayed"],
    "recorded published": ["replayed", "published"],
    "emulated published": ["emulated"],
    "emulated": ["emulated"],
    "published": ["published"],
    "": ["unavailable"],
}


@pytest.mark.parametrize("there", LADDER)
def test_the_first_of_the_five_that_there_is_is_shown_and_only_three_set_the_variable(
    show, there
):
    entries = [
        entry
        for word, entry in (("recorded", ENTRY), ("emulated", EMULATED))
        if word in there
    ]
    cell = (
        "#| requires: cuda\n#| result: bandwidth\n#| timeless: true\nbandwidth = 1"
        if "live" in there
        else TIMELESS
    )
    env = {"LAB_PRETEND": "cuda"} if "live" in there else {}
    shown, value, reads = show(
        entries,
        SOURCE if "published" in there else None,
        cell,
        STATE,
        "#| requires: result:bandwidth\n7 * 6",
        env=env,
    )
    assert states(shown) == LADDER[there] and errors_of(shown) == []
    assert text_of(shown).startswith(messages.BADGES[LADDER[there][0]] + " · ")
    sets = not {"published", "unavailable"} & {LADDER[there][0]}
    assert text_of(value).strip() == f"{sets} {sets}" and (states(reads) == []) is sets


def test_what_is_not_timeless_shows_the_published_and_not_the_emulated(show):
    (cell,) = show([EMULATED], SOURCE, CELL)
    assert states(cell) == ["published"] and WITHOUT_GPU not in text_of(cell)


def test_a_card_names_source_experiment_need_and_figures_in_text_and_in_html(show):
    one = {**SOURCE, "figures": SOURCE["figures"][:1]}
    first, beside = show([], [SOURCE, one], CELL, CELL)
    card, second = first.outputs
    source = (
        "A. Author (https://example.org/post?a=1&b=2), published 2012\nCopies of 16 MB."
        " Ours: many sizes."
    )
    needs = (
        re.escape(f"PUBLISHED · {source}")
        + r" \(This cell needs .*\.\)\n"
        + re.escape(TABLE)
    )
    assert re.fullmatch(needs, card.data["text/plain"])
    assert (
        second.data["text/plain"]
        == f"PUBLISHED · C1060 · {source}\npinned | 1,198 GB/s"
    )
    page = card.data["text/html"]
    assert (
        '<a href="https://example.org/post?a=1&amp;b=2">A. Author</a>, published'
        " 2012<br>Copies" in page
    )
    assert (
        ">PUBLISHED</b>" in page and page.count("<tr>") == 3 and page.count("<td") == 9
    )
    assert len(beside.outputs) == 2


class Tags(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attributes)}


BAD = '<script>alert(1)</script> "onclick=alert(1) & <img src=x onerror=alert(1)>'


@pytest.mark.parametrize(
    "key", ["experiment", "who", "date", "figure_device", "figure_what", "figure_unit"]
)
def test_nothing_in_the_file_becomes_html(show, key):
    bad = f"read 2026 {BAD}" if key == "date" else BAD
    card, *_ = show([], changed(**{key: bad}), CELL)[0].outputs
    page = card.data["text/html"]
    tags = "div b a br table tr td".split()
    marks = ["div style", "b style", "a href", "table style", "td style"]
    assert Tags(page).found == {*tags, *marks}
    assert "&lt;script&gt;" in page and BAD in card.data["text/plain"]


def test_a_damaged_file_is_one_line_said_once_and_hides_nothing(show):
    first, again, other = show(
        [ENTRY],
        '{"bandwidth": 5}',
        CELL,
        CELL,
        "#| requires: cuda:64\n#| name: other\n1",
    )
    assert (
        len(
            re.findall(
                "^Ignored: recorded/published.json is damaged", text_of(first), re.M
            )
        )
        == 1
    )
    assert "hello" in text_of(first) and "Ignored" not in text_of(again) + text_of(
        other
    )
    assert states(other) == ["unavailable"] and not any(
        map(errors_of, (first, again, other))
    )


def test_each_badge_is_words_in_a_frame(run):
    source = (
        "from course.messages import BADGES, note\nfor state in BADGES: note('a < b',"
        " state)"
    )
    (cell,) = run(source)
    for output, (state, badge) in zip(
        cell.outputs, messages.BADGES.items(), strict=True
    ):
        assert (
            output.data["text/plain"] == f"{badge} · a < b"
            and output.metadata["device_lab"]["state"] == state
        )
        assert re.search(
            rf'<b style="border: 1px solid;[^"]*">{badge}</b> a &lt; b',
            output.data["text/html"],
        )
        # legible in light and dark themes
        assert not re.search(r"(?<!-)color:|background", output.data["text/html"])
