"""Lesson 16: rows that say why and what they announce, headings that quote real
messages.
"""

import re

import nbformat
import pytest

from tests.conftest import text_of
from utils import grammar, today
from utils.today.row import INDEX as HEADING
from utils.today.row import LESSON

CELLS = nbformat.read(LESSON, as_version=4).cells
INDEX = next(n for n, cell in enumerate(CELLS) if cell.source.startswith(HEADING))


def slug_of(cell):
    found = (
        re.search(r"^%%today (\S+): ", cell.source, re.M)
        if cell.cell_type == "code"
        else None
    )
    return found and found[1]


SNIPPETS = [cell for cell in CELLS[:INDEX] if slug_of(cell)]
ERRORS = [cell for cell in CELLS[INDEX:] if slug_of(cell)]
LIVE = [cell for cell in SNIPPETS + ERRORS if grammar.header(cell.source) is None]


def test_no_row_has_the_name_of_another():
    assert len(today.rows()) == len(SNIPPETS) + len(ERRORS) > 70


@pytest.mark.parametrize("slug", today.rows())
def test_a_row_says_why_and_what_it_announces(slug):
    row = today.rows()[slug]
    assert row.because and len(row.because) < 110 and not row.because.endswith(".")
    for verdict in row.expected.values():
        assert (verdict.pattern is not None) == (verdict.word in ("raises", "warns")), (
            verdict
        )
        assert verdict.pattern is None or re.search(r"\w{3}", verdict.pattern)


@pytest.mark.parametrize("cell", LIVE, ids=slug_of)
def test_the_stored_output_is_what_was_announced(cell):
    word = text_of(cell).split()[1]
    announced = {
        verdict.word for verdict in today.rows()[slug_of(cell)].expected.values()
    }
    assert word in announced


HEADINGS = [
    (fragment, slug_of(CELLS[n + 1]), text_of(CELLS[n + 1]))
    for n, cell in enumerate(CELLS[INDEX:-1], INDEX)
    if cell.cell_type == "markdown" and cell.source.startswith("### ")
    for fragment in re.findall(r"`([^`]+)`", cell.source.split("\n", 1)[0])
]


@pytest.mark.parametrize(
    ("fragment", "slug", "shown"), HEADINGS, ids=[heading[0] for heading in HEADINGS]
)
def test_a_heading_quotes_what_was_seen(fragment, slug, shown):
    """In the stored output, or, for another version or machine, in a pattern that the
    row asserts there.
    """
    patterns = [pattern.replace("\\", "") for pattern in today.rows()[slug].patterns()]
    assert fragment in " ".join(shown.split()) or any(
        fragment in pattern for pattern in patterns
    )
