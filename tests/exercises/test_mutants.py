"""Every kind of change that tests/exercises/mutants.py promises, and the words of its
report.
"""

import pytest

from tests.exercises import mutants
from utils import exercises


def changes(source):
    return {mutant.change for mutant in mutants.mutants(source)}


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("y = a + b", "y = a + b → y = a - b"),
        ("y = a - b", "y = a - b → y = b - a"),
        ("y = a - b", "y = a - b → y = a"),
        ("y = a <= b", "y = a <= b → y = a < b"),
        ("y = a <= b", "y = a <= b → y = a > b"),
        ("y = a in (b, c)", "y = a in (b, c) → y = a not in (b, c)"),
        ("y = 3", "y = 3 → y = 4"),
        ("y = 3", "y = 3 → y = 2"),
        ("y = 0.5", "y = 0.5 → y = 0.0"),
        ("y = True", "y = True → y = False"),
        ("y = 'cpu'", "y = 'cpu' → y = 'cpux'"),
        ("y = f(a, b)", "y = f(a, b) → y = f(b, a)"),
        ("y = f(a, b)", "y = f(a, b) → y = f(b)"),
        ("y = f(a, k=b)", "y = f(a, k=b) → y = f(a)"),
        ("y = int(a)", "y = int(a) → y = a"),
        ("y = min(a, b)", "y = min(a, b) → y = max(a, b)"),
        ("y = sorted(a)", "y = sorted(a) → y = list(a)"),
        ("y = a.cpu().x", "y = a.cpu().x → y = a.numpy().x"),
        ("y = a.cpu().x", "y = a.cpu().x → y = a.x"),
        ("s.wait(e)", "s.wait(e) → s.synchronize(e)"),
        ("y = a.numel()", "y = a.numel() → y = a.nbytes()"),
        ("y = a and b", "y = a and b → y = a or b"),
        ("y = a and b", "y = a and b → y = b"),
        ("y = a if b else c", "y = a if b else c → y = a if not b else c"),
        ("y = a if b else c", "y = a if b else c → y = c"),
        ("y = [a for a in b if c]", "y = [a for a in b if c] → y = [a for a in b]"),
        ("y = a[1:n]", "y = a[1:n] → y = a[:n]"),
        ("y = not a", "y = not a → y = a"),
        ("y = {1: a, 2: b}", "y = {1: a, 2: b} → y = {1: b, 2: a}"),
        ("y = [(a, b), c]", "y = [(a, b), c] → y = [c, (a, b)]"),
        ("y = [lambda a=a: a + b]", "y = [lambda a=a: a + b] → y = [lambda: a + b]"),
        ("def f(a):\n    g(a)\n    return a", "g(a) → "),
        ("def f(a, b):\n    return a + 1", "return a + 1 → return b + 1"),
        ("def f(a):\n    for x in a:\n        y = x\n    return y", " → break"),
        ("def f(a):\n    for x in a:\n        y = x\n    return y", " → return y"),
        ("def f(a):\n    a += 1\n    return a", "a += 1 → a -= 1"),
        (
            "def f(a):\n    with g():\n        h()\n    return a",
            "with g(): | h() → h()",
        ),
        (
            "try:\n    a()\nexcept OSError:\n    b()",
            "except OSError: → except Exception:",
        ),
        ("if a:\n    b()", "if a: → if not a:"),
        ("if a:\n    b()", "if a: → if True:"),
    ],
)
def test_change_is_among_the_mutants(source, change):
    assert change in changes(source)


@pytest.mark.parametrize(
    "source", ["y = a in (b, c)", "y = max(a, b)", "y = isinstance(a, (b, c))"]
)
def test_order_that_says_nothing_is_not_exchanged(source):
    assert not [
        change for change in changes(source) if "(b, a)" in change or "(c, b)" in change
    ]


def test_a_mutant_differs_and_is_there_once():
    source = exercises.find_exercise("01.2").solution
    sources = [mutant.source for mutant in mutants.mutants(source)]
    assert source not in sources and len(sources) == len(set(sources)) > 40


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ("for 3 you returned 5e-07 s, expected 5e-07 s: look", True),
        ("for 3 you returned 5.1e-07 s, expected 5e-07 s: look", False),
        ("for 3 you returned True, expected one of 1, 2", False),
        ("make must run once", False),
    ],
)
def test_verdict_that_says_the_same_twice_is_noticed(said, same):
    assert mutants.alike(said) == same


def test_report_lists_what_a_check_lets_pass(monkeypatch):
    def lenient(answer):
        got = exercises.call(answer, 1)
        if got != 1:
            raise exercises.Wrong(f"for 1 you returned {got}, expected 1")

    exercise = exercises.Exercise(
        number="77.1",
        title="What is left",
        name="left",
        stars=1,
        check=lenient,
        hints=[],
        solution="def left(x):\n    return x if x > 0 else 0",
        praise="Good.",
        equivalent={
            "return x if x > 0 else 0 → return x if True else 0": (
                "There is never less than nothing."
            ),
            "gone → gone": "Nothing does this any longer.",
        },
    )
    monkeypatch.setattr(exercises, "find_exercise", lambda number: exercise)
    monkeypatch.setattr(exercises, "_remember", lambda number, state: None)
    monkeypatch.setattr(exercises, "SECONDS", 5)
    lines, counts = mutants.report("77.1")
    assert lines[0].startswith("77.1 ") and sum(counts[:3]) < 2 * counts[0]
    assert "    accepted: return x if x > 0 else 0 → return x if x >= 0 else 0" in lines
    assert "    listed as equivalent, but refused or no mutant: gone → gone" in lines
    assert counts[2:] == (1, 1) and not any("True" in line for line in lines)
