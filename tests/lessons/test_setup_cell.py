"""The set-up cell in an empty folder, as on Colab: it fetches the course once, from a
file:// address here.
"""

import re
import shutil
import subprocess

import nbformat
import pytest
import torch

from tests.conftest import PACKAGES, ROOT, errors_of, text_of
from tools.lessons import notebooks, run

pytestmark = pytest.mark.skipif(
    not shutil.which("git"), reason="git fetches the course; there is no git here"
)
READY = rf"Ready: PyTorch {torch.__version__.split('+')[0]}, [A-Z]+( and torch_xla)?"
FILES = "from course import paths\nprint(paths.COURSE)"


@pytest.fixture
def repository(tmp_path):
    """A git repository that holds the course as it stands in this folder, committed or
    not.
    """
    folder = tmp_path / "a repository"
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for part in (*PACKAGES, "notebooks"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    commit = [*identity, "commit", "-qm", "the course"]
    for command in (["init", "-q"], ["add", "-A"], commit):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def lesson(kernel, tmp_path, repository, monkeypatch):
    """lesson(*more, whole=…): lesson 00, or its set-up cell alone, and `more` cells, in
    a folder that was empty.
    """

    def go(*more, whole=True):
        nb = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
        (setup,) = (cell for cell in nb.cells if cell.id == "setup")
        assert setup.source == notebooks.setup_cell()
        setup.source = setup.source.replace(notebooks.address(), repository.as_uri())
        if not whole:
            nb.cells = [setup]
        nb.cells += map(nbformat.v4.new_code_cell, more)
        (tmp_path / "empty folder").mkdir(exist_ok=True)
        monkeypatch.setattr(run, "kernel", kernel)
        run.execute(nb, tmp_path / "empty folder", allow_errors=True)
        return setup, [cell for cell in nb.cells if cell.cell_type == "code"]

    return go


def test_a_lesson_runs_alone_in_an_empty_folder_and_fetches_once(
    lesson, tmp_path, repository
):
    course = str(tmp_path / "empty folder" / "pytorch-device-lab")
    setup, cells = lesson(FILES)
    assert [errors_of(cell) for cell in cells if errors_of(cell)] == []
    assert re.fullmatch(READY, text_of(setup).strip())
    assert text_of(cells[-1]).strip() == course

    shutil.rmtree(repository)  # a second run must not fetch again
    setup, cells = lesson(FILES, whole=False)
    assert re.fullmatch(READY, text_of(setup).strip())
    assert text_of(cells[-1]).strip() == course


def test_an_address_that_does_not_answer_is_said_plainly(lesson, repository):
    shutil.rmtree(repository)
    setup, _ = lesson(whole=False)
    (error,) = errors_of(setup)
    assert error.startswith(
        "AssertionError: Cannot fetch the course (is the network on"
    )


def test_the_set_up_cell_installs_nothing():
    assert "install" not in notebooks.setup_cell()
