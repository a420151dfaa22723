"""The paste cell of lesson 16: listings that have lost their indentation are not run,
others are.
"""

import re
import textwrap

import pytest

from course.old_code import cell as today

PRODUCT = """
import time

if torch.cuda.is_available():
device = torch.device("cuda")
a = torch.randn(1000, 2000, device=device)
start = time.time()
c = torch.matmul(a, a.T)
else:
print("no GPU")
"""


@pytest.mark.parametrize(
    "source",
    [
        PRODUCT,
        # some of it is there: what the rest was, nobody knows
        "for x in y:\n    a = 1\nb = 2\nif x:\nc = 3",
        "for x in y:\n        a = 1\n    b = 2",
        "import torch\n    x = torch.ones(2)",
    ],
)
def test_a_listing_that_has_lost_its_indentation_is_not_run(
    source, capsys, monkeypatch
):
    monkeypatch.setattr(today, "_execute", None)
    today.run_cell("", source)
    line, *rest = capsys.readouterr().out.splitlines()
    assert line.startswith("this listing has lost its indentation: ")
    assert line.endswith("; indent it and run the cell again") and rest
    if "cuda" in source:
        assert any("Like detection/cuda-or-cpu" in other for other in rest)


@pytest.mark.slow
def test_other_listings_are_run(capsys):
    # all of it indented; no Python, which says so itself
    for source in ("    x = 1\n    if x:\n        print(x)\n", "pip install torch"):
        assert not today.lost_indentation(textwrap.dedent(source))
        today.run_cell("", source)
    shown = capsys.readouterr().out
    assert "yours  prints 1\n" in shown and "SyntaxError" in shown


@pytest.mark.parametrize(
    ("source", "shown"),
    {
        "net(x).numpy()": (
            r"✗ raises(?s:.*)Like movement/numpy-grad in section 5: .*\n   "
            r" net\(x\)\.detach\(\)"
        ),
        "raise ValueError('nobody knows this')": "Nothing here is like it",
        # silent: found by the code
        "best = net.state_dict()": "✓ fine(?s:.*)Like movement/best-state",
        "torch.cuda.empty_cache()": "Like memory/empty-cache",
    }.items(),
)
def test_a_paste_is_compared_with_the_rows(source, shown, capsys):
    today.run_cell("", source)
    assert re.search(shown, capsys.readouterr().out)
