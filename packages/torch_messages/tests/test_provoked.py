"""Messages of the table that this machine gives: small programs whose error or warning
must lead to its entry.
"""

import pytest
from provoked import CPU
from torch_messages import match
from torch_messages.messages import entries

from course.old_code import cell as today

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes():
    """key → what its program said."""
    keys, told = list(CPU), {}
    for n in range(0, len(keys), 8):
        some = keys[n : n + 8]
        done = today._execute([CPU[key] for key in some])
        told |= dict(zip(some, map(today.said, done), strict=True))
    return told


@pytest.mark.parametrize("key", CPU)
def test_a_message_that_comes_leads_to_its_entry(key, outcomes):
    id = key.split("#")[0]
    first, _ = match.find(outcomes[key])
    assert id in [found.entry.id for found in first], outcomes[key]
    assert not first[0].near, outcomes[key]


def test_there_are_enough():
    """Beside the rows of lesson 16, whose messages come whenever it runs."""
    assert {key.split("#")[0] for key in CPU} <= set(entries())
    assert len({key.split("#")[0] for key in CPU}) >= 60
