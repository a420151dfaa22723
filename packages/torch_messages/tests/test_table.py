"""The table of messages: what each entry has, that each of its texts leads to it, and
that no wording catches what is another's.
"""

from torch_messages import entries, find, messages, rules

ENTRIES = entries()


def test_ids_are_different():
    ids = [written["id"] for written in messages.read()]
    assert sorted(ids) == sorted(ENTRIES)


def test_what_an_entry_has():
    wrong = []
    for entry in ENTRIES.values():
        lines = entry.do.splitlines()
        if not (entry.says or entry.asked or entry.names or entry.code):
            wrong.append(f"{entry.id}: nothing leads to it")
        if not entry.source:
            wrong.append(f"{entry.id}: no source")
        if len(entry.means) > 240:
            wrong.append(f"{entry.id}: `means` has more than 240 characters")
        if len(lines) > 7:
            wrong.append(f"{entry.id}: `do` has more than 7 lines")
        wrong += [f"{entry.id}: wide line: {line}" for line in lines if len(line) > 88]
        for other, _ in entry.unlike:
            if other not in ENTRIES or other == entry.id:
                wrong.append(f"{entry.id}: its neighbor {other} is no other entry")
    assert not wrong, "\n".join(wrong)


def test_there_are_enough():
    assert len([entry for entry in ENTRIES.values() if entry.says]) >= 250
    assert 8 <= len([entry for entry in ENTRIES.values() if entry.often]) <= 40


def filled(wording):
    """A wording as somebody may paste it."""
    return wording.replace("…", "x1")


def test_each_wording_leads_to_its_entry_and_says_enough():
    wrong = []
    for entry in ENTRIES.values():
        for wording in entry.says:
            words = set(messages.words(wording))
            weight, longest = messages.weight(words), max(words, key=len, default="")
            # or one long name that nothing else has
            if weight < rules.LEAST and len(longest) <= 9:
                wrong.append(f"{entry.id}: {wording!r} says too little ({weight:.1f})")
            answers, _ = find(filled(wording))
            if not answers or answers[0].near or answers[0].entry != entry:
                ids = [found.entry.id for found in answers]
                wrong.append(f"{entry.id}: {wording!r} leads to {ids}")
    assert not wrong, "\n".join(wrong)


def test_each_question_and_each_name_leads_to_its_entry():
    wrong = []
    for entry in ENTRIES.values():
        for asked in entry.asked:
            ids = [found.entry.id for found in find(asked)[0]]
            if ids[:1] != [entry.id]:
                wrong.append(f"{entry.id}: {asked!r} leads to {ids}")
        for name in entry.names:
            ids = [found.entry.id for found in find(name)[0]]
            if entry.id not in ids:
                wrong.append(f"{entry.id}: the name {name!r} leads to {ids}")
    assert not wrong, "\n".join(wrong)


def test_no_wording_fits_that_of_another_entry():
    """Unless it is a part of it, and says less: then the other one is the answer."""
    wrong = []
    for entry in ENTRIES.values():
        for wording in entry.says:
            weight = messages.weight(set(messages.words(wording)))
            for id, other, _ in messages.fitting(messages.plain(filled(wording))):
                more = messages.weight(set(messages.words(other))) >= weight
                if id != entry.id and more:
                    wrong.append(f"{id}: {other!r} fits {wording!r} of {entry.id}")
    assert not wrong, "\n".join(wrong)
