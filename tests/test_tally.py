"""The last line of `make test`."""

import json

from tools.tally import tally

XML = '<testsuites><testsuite errors="0" skipped="2" tests="1502"/></testsuites>'


def test_it_counts_tests_and_cells(tmp_path):
    (tmp_path / "unit-tests.xml").write_text(XML)
    folder = tmp_path / "status" / "main"
    folder.mkdir(parents=True)
    for name, counts in ("00", {"done": 14, "not live": 1}), ("01", {"done": 20}):
        (folder / f"{name}.json").write_text(json.dumps({"counts": counts}))
    said = tally(tmp_path)
    assert "1,500 unit tests passed, 34 code cells of 2 lessons" in said
    assert "(1 of them" in said
