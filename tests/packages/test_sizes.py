"""How much there is to read, in bytes: what grows has to find the room."""

import pytest

from tests.conftest import ROOT

KIT = "packages/device_lab/device_lab"
MOST = {f"{KIT}/_kit": 153_000, f"{KIT}/_command": 108_000, "utils": 60_000}


@pytest.mark.parametrize("folder", MOST)
def test_the_sources_stay_small(folder):
    sources = list((ROOT / folder).rglob("*.py"))
    assert sum(path.stat().st_size for path in sources) <= MOST[folder]
    assert folder != "utils" or len(sources) <= 12
