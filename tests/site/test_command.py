"""The page on device-lab train.py: its scripts give the reports that it shows, but for
figures.
"""

import ast
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)
SCRIPT, PIECES, COMPARE, HELD = (code for kind, code in BLOCKS if kind == "python")
BEFORE, AFTER, RATIO, *_ = (code for kind, code in BLOCKS if kind == "text")


def definitions(code):
    """What stands at the top level, {name: source}."""
    found = [node for node in ast.parse(code).body if hasattr(node, "name")]
    return {node.name: ast.get_source_segment(code, node) for node in found}


def changed():
    script, old, new = SCRIPT, definitions(SCRIPT), definitions(PIECES)
    for name in new:
        script = script.replace(old[name], new[name])
    return script


def run(folder, *words):
    packages = [str(path) for path in (ROOT / "packages").glob("*")]
    paths = os.pathsep.join([*packages, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def lines_of(report):
    """(lines to change first, lines that wait), as a set each: their order hangs on
    times.
    """
    first, rest = report.split("\nPACE ")
    waits = rest.split("\nWAITS ")[1].split("\nMEMORY ")[0]
    return [set(re.findall(r"train\.py:\d+  .*", part)) for part in (first, waits)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script, shown", [(SCRIPT, BEFORE), (changed(), AFTER)], ids=["before", "after"]
)
def test_the_report_names_the_lines_that_are_shown(script, shown, tmp_path):
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    command = ["-m", "device_lab", "--json", "report.json", "train.py"]
    first, waits = lines_of(run(tmp_path, *command).stderr)
    assert waits == lines_of(shown)[1]
    # what a loader and an optimizer cost is a matter of the machine
    others = first ^ lines_of(shown)[0]
    assert not {x for x in others if "DataLoader" not in x and "AdamW" not in x}
    if shown == AFTER:
        (tmp_path / "hold.py").write_text(HELD, encoding="utf-8")
        run(tmp_path, "hold.py")


@pytest.mark.slow
def test_the_change_trains_the_same(tmp_path):
    for name, code in ("before", SCRIPT), ("after", changed()), ("compare", COMPARE):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    assert run(tmp_path, "compare.py").stdout.startswith(RATIO.splitlines()[0])


def test_a_page_that_stands_in_a_package_is_linked_on_the_site():
    from tools.site.website import repository_links

    link = "[the kit](../packages/device_lab/README.md#is-it-faster)"
    assert repository_links(link, "docs") == "[the kit](kit.md#is-it-faster)"
    link = link.replace("../", "")
    assert repository_links(link, ".") == "[the kit](docs/kit.md#is-it-faster)"
