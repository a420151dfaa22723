"""What tests/exercises/mutants.py changes."""

from tests.exercises import mutants

SOURCE = """
def sums(rows, limit=3):
    \"\"\"Sums of rows.\"\"\"
    found = []
    for row in rows:
        if len(row) <= limit:
            found.append(max(row[0], row[1]))
    return found
"""


def test_changes_of_a_small_answer():
    found = [mutant.change for mutant in mutants.mutants(SOURCE)]
    assert len(found) == len(set(found)) > 20
    assert {
        "def sums(rows, limit=3): → def sums(rows, limit=4):",
        "def sums(rows, limit=3): → def sums(rows, limit):",
        "if len(row) <= limit: → if len(row) < limit:",
        "if len(row) <= limit: → if len(row) <= rows:",
        "found.append(max(row[0], row[1])) → found.append(min(row[0], row[1]))",
        "found.append(max(row[0], row[1])) → found.append(max(row[0], row[2]))",
        "found = [] → ",
        " → break",
        " → return found",
    } <= set(found)
    # the larger of two numbers is the same whichever comes first
    assert not any("max(row[1], row[0])" in change for change in found)
    assert '"""Sums of rows.""" → ' not in found
