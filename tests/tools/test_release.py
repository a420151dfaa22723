"""A release names one version, and the day in both files."""

import pytest

from tools import release


def test_the_files_agree_on_the_version():
    assert release.version() == release.device_lab.__version__


@pytest.mark.parametrize(
    ("changes", "cited", "tag", "says"),
    [
        ("## 9.9.9 (2027-01-15)", None, None, "Versions differ"),
        ("## 0.1.0 (2027-01-15)", "2027-01-15", "v0.2.0", "'the tag': '0.2.0'"),
        ("## 0.1.0 (2027-01-15)", "2027-01-14", "v0.1.0", "CITATION.cff 2027-01-14"),
        ("## 0.1.0 (not yet released)", None, "v0.1.0", "no date-released"),
        ("## 0.1.0 (2027-01-15)", "2027-01-15", "v0.1.0", None),
    ],
)
def test_a_tag_that_disagrees_stops_it(changes, cited, tag, says, monkeypatch):
    files = {
        "pyproject.toml": '[project]\nversion = "0.1.0"\n',
        "CITATION.cff": "cff-version: 1.2.0\nversion: 0.1.0\n"
        + (f"date-released: {cited}\n" if cited else ""),
        "CHANGES.md": f"# Changes\n\n{changes}\n\nnew\n\n## 0.0.1 (old)\n\nold\n",
    }
    monkeypatch.setattr(release, "text", files.__getitem__)
    assert release.notes() == "new\n"
    if says is None:
        assert release.version(tag) == "0.1.0"
    else:
        with pytest.raises(SystemExit, match=says):
            release.version(tag)
