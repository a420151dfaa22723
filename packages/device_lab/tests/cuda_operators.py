"""find_waits' rules against CUDA's sync-debug mode, all operators of PyTorch's tests,
on the emulated device. `make test-emulated` runs this.
"""

import pytest
from all_operators import REASONS, compared, report, witness


@pytest.mark.weekly
def test_the_rules_say_what_cuda_says_of_all_operators():
    samples, errors = witness()
    differences, more, agreeing = compared(samples)
    assert report(differences, errors | more, agreeing) == []
    assert len(agreeing) > 4500 and len(errors | more) < 200
    # a reason that explains nothing any more goes
    met = {(sample.operator, sort) for sample, sort, _ in differences}
    assert set(REASONS) <= met
