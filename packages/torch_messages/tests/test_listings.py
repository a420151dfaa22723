"""Old listings: which entries they lead to, by their code and by what they say."""

import re

import pytest
from listings import LISTINGS, PRELUDE
from programs import messages_of

from torch_messages import match


def ids_of(source, message=""):
    return {entry.id for entry in match.of_listing(source, message)}


@pytest.mark.slow
def test_each_listing_gets_the_right_entry():
    texts = messages_of([PRELUDE + listing.source for listing in LISTINGS.values()])
    wrong = []
    for (name, listing), text in zip(LISTINGS.items(), texts, strict=True):
        entries = match.of_listing(listing.source, text)
        ids = {entry.id for entry in entries}
        answers = ids | {entry.lesson[:2] for entry in entries}
        if listing.right and not listing.right & answers:
            wrong.append(f"{name}: {sorted(ids)}, not {sorted(listing.right)}")
        if others := ids - listing.right - listing.also:
            wrong.append(f"{name}: {sorted(others)} as well ({text})")
    assert not wrong, "\n".join(wrong)


def test_a_general_entry_comes_after_what_a_listing_is_like():
    found = match.of_listing("scaler = torch.cuda.amp.GradScaler()\nnet.cuda()", "")
    assert [entry.id for entry in found] == ["amp/scaler", "movement/not-compiled"]


def test_a_listing_without_its_indentation_is_like_the_same_entries():
    wrong = []
    for name, listing in LISTINGS.items():
        flat = re.sub(r"(?m)^[ \t]+", "", listing.source)
        expected = ids_of(listing.source)
        if ids_of(flat) != expected:
            wrong.append(f"{name}: {ids_of(flat)}, not {expected}")
    assert not wrong, "\n".join(wrong)
