"""Messages of the table that this PyTorch gives: small programs whose error or warning
must lead to its entry.
"""

import pytest
from programs import messages_of
from provoked import CPU

from torch_messages import entries, find

pytestmark = pytest.mark.slow


def test_each_message_that_comes_leads_to_its_entry():
    wrong = []
    texts = messages_of(list(CPU.values()))
    for key, text in zip(CPU, texts, strict=True):
        answers, _ = find(text)
        ids = [found.entry.id for found in answers]
        if key.split("#")[0] not in ids:
            wrong.append(f"{key} said {text!r}, which leads to {ids}")
        elif answers[0].near:
            wrong.append(f"{key} said {text!r}, which is no wording of its entry")
    assert not wrong, "\n".join(wrong)


def test_there_are_enough():
    ids = {key.split("#")[0] for key in CPU}
    assert ids <= set(entries())
    assert len(ids) >= 60
