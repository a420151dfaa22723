import signal

import pytest


@pytest.fixture
def interruptible():
    """What a test starts hears Ctrl-C, also where the tests themselves run in the
    background.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
