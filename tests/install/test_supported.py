"""Text, workflows and containers say of versions what utils/supported.py says."""

import re
import subprocess

import pytest

from tests.conftest import ROOT
from tests.install.test_environment import COURSE, PYTHONS, RANGES
from utils import supported
from utils.supported import dotted

KINDS = ["*.md", "*.yml", "*.json", "*.txt", "Dockerfile", "Makefile"]
TORCHTPU = ("3.11", "3.14")  # torch_tpu's own range


def text_files(*kinds):
    """Path → text of what people and services read."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run([*command, *kinds], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no checkout of git")
    elsewhere = ("notebooks/recorded/", "tests/lookup/", "packages/")
    names = [x for x in done.stdout.splitlines() if not x.startswith(elsewhere)]
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in names}


def test_each_range_of_pythons_is_that_of_the_course():
    wanted = dotted(supported.OLDEST_PYTHON), dotted(supported.NEWEST_PYTHON)
    found = {
        name: set(re.findall(r"Python (3\.\d+) (?:to|到) (3\.\d+)", text))
        for name, text in text_files(*KINDS, "*.ipynb").items()
    }
    for name in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/zh.md"):
        assert found[name] == {wanted}
    others = {name for name in found if not found[name] <= {wanted, TORCHTPU}}
    assert others == set()


def test_each_python_that_is_named_is_one_of_the_course():
    for name, text in text_files(*KINDS).items():
        named = re.findall(r"(?:py -|python|python[=:-](?:3-)?)(3\.\d+)\b", text)
        assert set(named) <= set(PYTHONS), name


def test_ci_runs_on_each_python():
    workflows = ROOT / ".github" / "workflows"
    texts = [path.read_text(encoding="utf-8") for path in workflows.glob("*.yml")]
    # a line of its own (3.13), or in a list (["3.10", "3.12"])
    named = re.findall(r'^ *(3\.\d+)$|"(3\.\d+)"', "\n".join(texts), re.M)
    assert {alone or quoted for alone, quoted in named} == set(PYTHONS)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"--prefer (\S+)", makefile) == [PYTHONS[-1]]


def test_the_package_asks_for_the_oldest_that_are_supported():
    assert COURSE["requires-python"] == f">={dotted(supported.OLDEST_PYTHON)}"
    assert f"torch>={dotted(supported.OLDEST_TORCH)}" in RANGES
