"""The table of a class: from files of the course's form, and from others."""

import pytest

from course import score
from tools.class_scores import main

WRONG = {
    "broken": ('{"02.1": ', "no JSON"),
    "deep": ("[" * 200_000, "no JSON"),
    "huge": (" " * 1_000_001, "larger than 1 MB"),
    "foreign": (
        '{"02.1": "solved", "name": "solved"}',
        "'name' is none of its entries",
    ),
    "list": ("[1]", "JSON, but no score"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Of three people, written as the course does."""
    monkeypatch.delenv("LAB_STRICT", raising=False)
    people = ("ann", "solved", True), ("bob", "tried", False), ("eve", "solved", False)
    for name, state, right in people:
        monkeypatch.setattr(score, "SCORE", tmp_path / name)
        score.keep_score("02.1", state)
        score.keep_score("predict 02.meet", {"said": "1", "right": right})
        score.keep_score("predict 03.luggage", {"said": "5"})
    return tmp_path


def test_it_counts_and_names_nobody(folder, capsys):
    main(folder)
    said = capsys.readouterr()
    rows = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "exercise 02.1 2 3 67%" in rows and "predict 02.meet 1 3 33%" in rows
    assert "predict 03.luggage 0 0" in rows  # guessed, not yet compared
    assert "lesson 03, 3 of 3 people" in rows and said.err == ""
    assert not any(name in said.out for name in ("ann", "bob", "eve"))


def test_what_is_no_score_is_named_and_left_out(folder, capsys):
    for name, (content, _) in WRONG.items():
        (folder / name).write_text(content)
    main(folder)
    said = capsys.readouterr()
    for name, (_, reason) in WRONG.items():
        assert any(f"{name}: " in s and reason in s for s in said.err.splitlines())
    assert "lesson 02, 3 of 3 people" in said.out
