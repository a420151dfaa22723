import pytest

from course.claims import ClaimError, claim
from course.provenance import Provenance
from tests.conftest import text_of

H200 = Provenance("NVIDIA H200", False, "2026-11-20", {})


def test_line_names_promise_figure_limit_and_device(capsys):
    claim("copies reach the link", 55.4, at_least=50, limit=63, unit="GB/s", where=H200)
    assert (
        capsys.readouterr().out
        == "✓ copies reach the link: 55.4 GB/s (claimed ≥ 50 GB/s; limit 63 GB/s,"
        " reached 88%) · NVIDIA H200 (recorded 2026-11-20)\n"
    )


def test_missed_claim_is_information(capsys, monkeypatch):
    monkeypatch.delenv("LAB_STRICT", raising=False)
    claim("it is faster", 0.9, at_least=1.1, unit="times")
    out = capsys.readouterr().out
    assert out.startswith("✗ it is faster: 0.9 times") and "Not on this device" in out


def test_missed_claim_raises_when_strict(monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    with pytest.raises(ClaimError, match="✗"):
        claim("it is faster", 0.9, at_least=1.1)
    with pytest.raises(ClaimError, match="≤ 1"):
        claim("it does not matter", 1.2, at_most=1)


def test_above_the_limit_always_raises(monkeypatch):
    monkeypatch.delenv("LAB_STRICT", raising=False)
    with pytest.raises(ClaimError, match="the measurement is wrong"):
        claim("copies are fast", 64, at_least=50, limit=63, unit="GB/s")


@pytest.mark.parametrize("measured", [0.5, 2, 64])
def test_time_is_not_judged_where_it_proves_nothing(measured, capsys, monkeypatch):
    """Neither a missed bound nor one above the limit counts there, and the figure is
    not shown.
    """
    monkeypatch.setenv("LAB_STRICT", "1")
    emulated = Provenance("emulated Tesla T4", True, "2026-11-22", {})
    claim("it is faster", measured, at_least=1, limit=63, timed=True, where=emulated)
    monkeypatch.setenv("LAB_UNTIMED", "1")
    claim("it is faster", measured, at_least=1, limit=63, timed=True, where=H200)
    first, second = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("– it is faster: not judged here") and str(emulated) in first
    )
    assert (
        second.startswith("– it is faster: not judged here")
        and f"{measured}" not in first + second.split("·")[0]
    )


def test_what_is_no_time_is_judged_everywhere(monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    monkeypatch.setenv("LAB_UNTIMED", "1")
    with pytest.raises(ClaimError, match="✗"):
        claim(
            "bytes left",
            1,
            at_most=0,
            where=Provenance("emulated Tesla T4", True, "2026-11-22", {}),
        )


def test_what_is_true_or_false_has_no_bound(capsys, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    claim("the clone keeps its value", True, where=H200)
    assert (
        capsys.readouterr().out
        == "✓ the clone keeps its value (claimed) · NVIDIA H200 (recorded 2026-11-20)\n"
    )
    with pytest.raises(ClaimError, match="✗ the clone keeps its value"):
        claim("the clone keeps its value", False, where=H200)
    with pytest.raises(ClaimError, match="has no bound"):
        claim("x", True, at_least=1)


CLAIMS = """name = "it"
def judge(value):
    for _ in range(1):
        claim(
            f"{name} is fast", value,
            at_least=1, limit=4, unit="times"
        )"""


def test_in_a_notebook_a_claim_is_data_that_names_its_call(run):
    """Also that of a function of another cell, and of a cell with a header; successive
    lines stay one a line.
    """
    _, here, there = run(
        CLAIMS,
        "print('before')\nclaim('a', True, about='b'); print('after')\njudge(2)",
        "#| requires: cuda\n#| name: x\n\n"
        "await __import__('asyncio').sleep(0)\njudge(3)",
        env={"LAB_PRETEND": "cuda"},
    )
    texts = [output.get("text") or output.data["text/plain"] for output in here.outputs]
    assert texts[:3] == ["before\n", "✓ a (claimed) · b", "after\n"]
    assert texts[3].startswith(
        "✓ it is fast: 2 times (claimed ≥ 1 times; limit 4 times"
    )
    assert "reached 75%" in text_of(there)
    facts = [o.metadata.device_lab for o in here.outputs + there.outputs if "data" in o]
    facts = [fact for fact in facts if fact.state != "live"]
    assert {fact.state for fact in facts} == {"claim"}
    assert facts[0].claim == {
        "text": "a",
        "value": True,
        "unit": "",
        "timed": False,
        "holds": True,
        "about": "b",
    }
    for fact, value in zip(facts[1:], (2, 3), strict=True):
        claim = dict(fact.claim)
        assert claim.pop("device") and claim.pop("live") is True
        assert claim == {
            "text": "it is fast",
            "value": value,
            "unit": "times",
            "at_least": 1,
            "limit": 4,
            "share": value / 4,
            "timed": False,
            "holds": True,
        }


def test_a_missed_claim_is_data_too(run):
    (cell,) = run("claim('fast', 0.5, at_least=2, timed=True, where='cpu')")
    (output,) = cell.outputs
    assert output.metadata.device_lab.state == "missed" and output.data["text/html"]
    assert output.metadata.device_lab.claim.holds is False
    assert output.metadata.device_lab.claim.timed is True
