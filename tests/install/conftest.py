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


def pytest_collection_modifyitems(items):
    """What installs a small course takes long."""
    for item in items:
        if "small_course" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
