"""The set-up cell in an empty folder, as on Colab: it fetches the course once, from a file:// address here."""

import shutil
import subprocess

import nbformat
import pytest

from tests.conftest import ROOT, text_of
from tools import notebooks, run

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git fetches the course; there is no git here")
FILES = "from utils import paths\nprint(paths.COURSE)"


@pytest.fixture
def repository(tmp_path):
    """A git repository that holds the course as it stands in this folder, committed or not."""
    folder = tmp_path / "a repository"
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for part in ("utils", "notebooks"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "the course"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def run_in(folder, nb):
    folder.mkdir(exist_ok=True)
    run.execute(nb, folder, timeout=120, allow_errors=True)
    return nb.cells


def lesson(name, repository, *more):
    nb = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    cell = next(cell for cell in nb.cells if cell.id == "setup")
    assert cell.source == notebooks.setup_cell()
    cell.source = cell.source.replace(notebooks.address(), repository.as_uri())
    nb.cells += [nbformat.v4.new_code_cell(source) for source in more]
    return nb


def errors(cells):
    return [text_of(c) for c in cells if any(o.output_type == "error" for o in c.get("outputs", []))]


def test_a_lesson_runs_alone_in_an_empty_folder_and_fetches_once(tmp_path, repository):
    alone = tmp_path / "empty folder"
    cells = run_in(alone, lesson("00_start_here.ipynb", repository, FILES))
    assert errors(cells) == []
    assert text_of(next(cell for cell in cells if cell.id == "setup")) == ""
    assert text_of(cells[-1]).strip() == str(alone / "pytorch-device-lab")

    shutil.rmtree(repository)  # a second run must not fetch again
    cells = run_in(alone, lesson("00_start_here.ipynb", repository, FILES))
    assert errors(cells) == [] and text_of(cells[-1]).strip() == str(alone / "pytorch-device-lab")


def test_an_address_that_does_not_answer_is_said_plainly(tmp_path, repository):
    shutil.rmtree(repository)
    nb = lesson("00_start_here.ipynb", repository)
    nb.cells = [cell for cell in nb.cells if cell.id == "setup"]
    (cell,) = run_in(tmp_path / "empty", nb)
    assert cell.outputs[0].ename == "AssertionError"
    assert cell.outputs[0].evalue.startswith("Cannot fetch the course (is the network on?)")


def test_the_set_up_cell_installs_nothing():
    assert "pip" not in notebooks.setup_cell() and "install" not in notebooks.setup_cell()
