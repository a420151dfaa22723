"""What all tests of the kit share."""

import gc

import pytest


@pytest.fixture(scope="session", autouse=True)
def little_to_collect():
    """peak and rehearse collect garbage: not each time all that a test run holds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
