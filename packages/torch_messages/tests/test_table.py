"""The table of messages: what each entry has, and that no wording catches what is
another's.
"""

import pytest
from torch_messages import match
from torch_messages import messages as table

from course.old_code.row import rows
from tools.site import errors
from tools.site.read_lessons import read_lessons

TOLD = table.read()
ENTRIES = table.entries()


def test_each_row_has_an_entry_and_each_id_is_one():
    ids = [told["id"] for told in TOLD]
    assert len(ids) == len(set(ids)) == len(ENTRIES)
    assert set(rows()) <= set(ids)


def test_what_an_entry_without_a_row_has():
    for told in TOLD:
        if told["id"] not in rows():
            assert {"means", "do", "source"} <= set(told), told["id"]
            assert {"says", "asked", "names", "code"} & set(told), told["id"]
        for line in told.get("do", "").splitlines():
            assert len(line) <= 88, told["id"]
        assert len(told.get("do", "").strip("\n").splitlines()) <= 6, told["id"]
        assert told["id"].split("/")[0] in sum(errors.GROUPS.values(), [])


def test_neighbors_are_entries():
    for entry in ENTRIES.values():
        for other, _ in entry.unlike:
            assert other in ENTRIES and other != entry.id, entry.id


def test_there_are_enough_messages():
    assert len([entry for entry in ENTRIES.values() if entry.says]) >= 250
    assert 8 <= len([entry for entry in ENTRIES.values() if entry.often]) <= 40


def filled(wording):
    """A wording as somebody may paste it."""
    return wording.replace("…", "x1")


@pytest.mark.parametrize("id", ENTRIES)
def test_each_wording_leads_to_its_entry_and_says_enough(id):
    for wording in ENTRIES[id].says:
        told = set(table.words(wording))
        # or one long name that nothing else has
        assert table.weight(told) >= match.LEAST or len(max(told, key=len)) > 9
        first, _ = match.find(filled(wording))
        assert first[0].entry.id == id and not first[0].near, wording
    for asked in ENTRIES[id].asked:
        first, _ = match.find(asked)
        assert first and first[0].entry.id == id, asked
    for name in ENTRIES[id].names:
        assert id in [found.entry.id for found in match.find(name)[0]], name


def test_no_wording_fits_that_of_another_entry():
    """Unless it is a part of it, and says less: then the other one is the answer."""
    found = [
        (entry.id, wording, id, general)
        for entry in ENTRIES.values()
        for wording in entry.says
        for id, general, pattern in table.patterns()
        if id != entry.id
        and pattern.search(table.plain(filled(wording)))
        and table.weight(set(table.words(general)))
        >= table.weight(set(table.words(wording)))
    ]
    assert found == []


# of programs that lessons make up, not of PyTorch
OWN = ("division by zero", "could not convert string to float", "load() will go")


def test_each_message_of_a_lesson_leads_to_an_entry():
    shown = errors.shown_messages(read_lessons(), "")
    lost = [each.text for each, at in shown.items() if not errors.entry_of(each, at)]
    assert [text for text in lost if not any(own in text for own in OWN)] == []
    assert len(lost) <= len(OWN)
