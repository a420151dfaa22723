"""The set-up cell in an empty folder, as on Colab: it fetches the course once, from a
file:// address here.
"""

import re
import shutil
import subprocess

import nbformat
import pytest
import torch

from tests.conftest import FOLDERS, ROOT, errors_of, text_of
from tools.lessons import notebooks, run

READY = rf"Ready: PyTorch {torch.__version__.split('+')[0]}, [A-Z]+( and torch_xla)?"
FILES = "from course import paths\nprint(paths.COURSE)"


@pytest.fixture
def published(tmp_path):
    """A folder at whose address the course is fetched."""
    folder = tmp_path / "repository"  # urlretrieve does not unquote file://
    folder.mkdir()
    return folder


@pytest.fixture
def copy(tmp_path):
    """The course as it stands in this folder, committed or not, under the name that
    GitHub gives it in an archive.
    """
    folder = tmp_path / "pytorch-device-lab-main"
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for part in (*FOLDERS, "notebooks"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignore)
    return folder


def as_repository(copy, published):
    shutil.copytree(copy, published, dirs_exist_ok=True)
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    commit = [*identity, "commit", "-qm", "the course"]
    for command in (["init", "-q"], ["add", "-A"], commit):
        subprocess.run(["git", *command], cwd=published, check=True)


def as_archive(copy, published):
    archive = published / "archive" / "refs" / "heads" / "main"
    shutil.make_archive(archive, "zip", copy.parent, copy.name)


@pytest.fixture
def lesson(kernel, tmp_path, published, monkeypatch):
    """lesson(*more, whole=…): lesson 00, or its set-up cell alone, and `more` cells, in
    a folder that was empty.
    """

    def go(*more, whole=False):
        nb = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
        (setup,) = (cell for cell in nb.cells if cell.id == "setup")
        assert setup.source == notebooks.setup_cell()
        setup.source = setup.source.replace(notebooks.address(), published.as_uri())
        if not whole:
            nb.cells = [setup]
        nb.cells += map(nbformat.v4.new_code_cell, more)
        (tmp_path / "empty folder").mkdir(exist_ok=True)
        monkeypatch.setattr(run, "kernel", kernel)
        run.execute(nb, tmp_path / "empty folder", allow_errors=True)
        return setup, [cell for cell in nb.cells if cell.cell_type == "code"]

    return go


needs_git = pytest.mark.skipif(not shutil.which("git"), reason="there is no git here")


@pytest.mark.slow
@needs_git
def test_a_lesson_runs_alone_in_an_empty_folder_and_fetches_once(
    lesson, tmp_path, copy, published
):
    as_repository(copy, published)
    course = str(tmp_path / "empty folder" / "pytorch-device-lab")
    setup, cells = lesson(FILES, whole=True)
    assert [errors_of(cell) for cell in cells if errors_of(cell)] == []
    assert re.fullmatch(READY, text_of(setup).strip())
    assert text_of(cells[-1]).strip() == course

    shutil.rmtree(published)  # a second run must not fetch again
    setup, cells = lesson(FILES)
    assert re.fullmatch(READY, text_of(setup).strip())
    assert text_of(cells[-1]).strip() == course


@pytest.mark.slow
@pytest.mark.parametrize("git", ["missing", "of no use"])
def test_without_git_the_course_comes_as_an_archive(
    git, lesson, tmp_path, copy, published, monkeypatch
):
    as_archive(copy, published)
    if git == "missing":
        monkeypatch.setenv("PATH", str(tmp_path))
    setup, cells = lesson(FILES)
    assert re.fullmatch(READY, text_of(setup).strip())
    folder = tmp_path / "empty folder"
    assert text_of(cells[-1]).strip() == str(folder / "pytorch-device-lab")
    assert [path.name for path in folder.iterdir()] == ["pytorch-device-lab"]


@pytest.mark.parametrize("there", ["nothing", "no archive"])
def test_without_a_network_one_line_says_what_to_do(there, lesson, published):
    archive = published / "archive" / "refs" / "heads" / "main.zip"
    if there == "no archive":  # as where a page for signing in answers
        archive.parent.mkdir(parents=True)
        archive.write_text("<html>Sign in</html>")
    setup, _ = lesson()
    (error,) = errors_of(setup)
    assert error.startswith("RuntimeError: Cannot fetch the course (")
    assert "\n" not in error and error.endswith(
        "Switch the network on (Kaggle: Settings, Internet), or unpack"
        f" {archive.as_uri()} here as pytorch-device-lab."
    )


def test_packages_of_the_course_are_found_before_others(lesson, copy, tmp_path):
    """Also where the course is above the notebook."""
    package = copy / "packages" / "mine" / "lab_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    copy.rename(tmp_path / "empty folder")
    _, cells = lesson("import lab_package\nprint(lab_package.__file__)")
    shown = tmp_path / "empty folder" / package.relative_to(copy) / "__init__.py"
    assert text_of(cells[-1]).strip() == str(shown)


def test_the_set_up_cell_installs_nothing():
    assert "install" not in notebooks.setup_cell()
