"""Lessons that travel as one file: what they carry, and what their set-up cell does
with it. No lesson is run here.
"""

import ast
import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile

import nbformat
import pytest

from tests.conftest import PACKAGES, ROOT
from tools.lessons import notebooks, parts
from tools.site import single

LESSONS = notebooks.lessons()
FOLDER = "pytorch-device-lab-12345678"
FILES = {
    "course/__init__.py": b"here = __file__\n",
    "notebooks/exercises/05_a.py": b"EXERCISES = []\n",
}
SAYS = "\nimport course as c\nprint(course)\nprint(c.here)\n"


@pytest.fixture(scope="module")
def singles(tmp_path_factory):
    """All lessons as one file, as `make single` writes them: path → (notebook, its
    set-up cell, what that carries).
    """
    folder, found = tmp_path_factory.mktemp("dist"), {}
    single.write(folder)
    for path in sorted(folder.iterdir()):
        nb = nbformat.read(path, as_version=4)
        (setup,) = [cell for cell in nb.cells if cell.id == "setup"]
        files, right = unpacked(setup.source)
        assert right, path.name
        found[path] = nb, setup, files
    return found


def unpacked(source):
    """The files in a set-up cell, as its comment says how to see them: name → content;
    and whether they have the hash that it names.
    """
    # between the lines `CARRIED = """` and `"""`
    block = re.search(r'^CARRIED = """\n(.*?)\n"""$', source, re.M | re.S)[1]
    archive = base64.b85decode("".join(block.split()))
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as files:
        found = {member.name: files.extractfile(member).read() for member in files}
    named = re.search(r'^SHA256 = "(.*)"$', source, re.M)[1]
    return found, hashlib.sha256(archive).hexdigest() == named


def cell(files=FILES, folder=FOLDER):
    """A set-up cell with these files, without PyTorch and the names of the real
    `utils`.
    """
    return single.setup_cell(files, folder).partition("\nimport torch\n")[0]


def run(*sources, folder):
    """What cells print that run one after the other in a new Python in `folder`; also
    its last line on stderr.
    """
    python = [sys.executable, "-I", "-"]
    done = subprocess.run(
        python, input="\n".join(sources), cwd=folder, capture_output=True, text=True
    )
    return done.stdout.splitlines(), (done.stderr.splitlines() or [""])[-1]


# --------------------------------------------------------------------------------------
# The files


def test_each_lesson_is_a_small_file_without_outputs_in_canonical_form(singles):
    assert [path.name for path in singles] == [path.name for path in LESSONS]
    for (path, (nb, _, _)), lesson in zip(singles.items(), LESSONS, strict=True):
        text = path.read_text(encoding="utf-8")
        stored = nbformat.read(lesson, as_version=4)
        nbformat.validate(nb)
        # lesson 16 has the table of messages
        most = 600_000 if path.name.startswith("16_") else 400_000
        assert len(text.encode()) <= most, path.name
        assert nbformat.writes(nb) + "\n" == text and nb.metadata == stored.metadata
        for mine, theirs in zip(nb.cells, stored.cells, strict=True):
            assert (mine.id, mine.metadata) == (theirs.id, theirs.metadata)
            if mine.cell_type == "code":
                assert mine.outputs == [] and mine.execution_count is None
                assert mine.source == theirs.source or mine.id == "setup"


def test_what_two_lessons_carry_is_the_same_and_is_that_of_the_course(singles):
    known, folder = {}, f"pytorch-device-lab-{single.bundle_hash()}"
    for _, setup, files in singles.values():
        assert f": {len(files)} text files" in setup.source
        assert f'\nFOLDER = "{folder}"\n' in setup.source
        for name, content in files.items():
            assert known.setdefault(name, content) == content, name
            if name != "notebooks/16_old_code_today.ipynb":  # it loses its outputs
                assert content == (ROOT / name).read_bytes(), name
    modules = {
        p.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for p in (ROOT / name).rglob("*.py")
    }
    carried = {name for name in known if name.split("/")[0] in PACKAGES}
    assert carried == modules | {"lookup/messages.toml"}


def test_a_lesson_carries_what_it_shows_and_starts_and_nothing_of_the_others(singles):
    for path, (_, _, files) in singles.items():
        recorded = (ROOT / "notebooks").glob(f"recorded/*/{path.stem}.json")
        own = {p.relative_to(ROOT).as_posix() for p in recorded}
        assert own | {f"notebooks/exercises/{path.stem}.py"} <= files.keys()
        numbered = [name for name in files if re.search(r"/\d\d_", name)]
        assert [name for name in numbered if path.stem not in name] == []
        lesson = nbformat.read(ROOT / "notebooks" / path.name, as_version=4)
        code = "\n".join(cell.source for cell in parts.code_cells(lesson))
        shown = set(re.findall(r'diagram\(\s*"(.+?)"', code))
        diagrams = {name for name in files if "diagrams" in name}
        assert diagrams == {f"notebooks/diagrams/{name}.svg" for name in shown}
        # names of programs in the lesson's code
        for name in re.findall(r'"(?:scripts/)?(\w+\.(?:py|sbatch|yaml))"', code):
            started = f"notebooks/scripts/{name}"
            assert started in files or not (ROOT / started).exists(), path.name


def test_the_set_up_cell_makes_the_names_of_the_lessons_own(singles):
    def names(source):
        """Names that a source assigns or imports."""
        found = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            if isinstance(node, ast.Import | ast.ImportFrom):
                found |= {alias.name for alias in node.names}
        return found

    finds_the_course = {"REPOSITORY", "fetch", "fetched", "failed", "here", "p"}
    needed = names(notebooks.setup_cell()) - finds_the_course
    assert {"course", "sys", "subprocess", "pathlib", "torch", "check"} <= needed
    for _, found, _ in singles.values():
        assert needed <= names(found.source)
        assert "fold" in found.metadata.tags
        assert found.metadata.cellView == "form"
        assert found.source.startswith("# @title Set-up: run this first\n")
        assert max(map(len, found.source.splitlines())) <= 88


def test_no_link_leads_into_a_folder_beside_the_file(singles):
    seen = set()
    for nb, _, _ in singles.values():
        links = re.findall(r'\]\(([^)]*)\)|(?:src|href)="([^"]*)"', parts.text_of(nb))
        seen |= {target for pair in links for target in pair if target}
    assert [target for target in seen if not target.startswith(("https://", "#"))] == []
    site = notebooks.address("Site")
    on_site = {f"{site}/docs/glossary.html#device", f"{site}/notebooks/05_streams.html"}
    assert on_site <= seen


def test_the_archive_depends_on_the_files_alone():
    assert single.packed(FILES) == single.packed(dict(reversed(FILES.items())))
    assert single.packed(FILES) != single.packed({**FILES, "LICENSE": b""})


# --------------------------------------------------------------------------------------
# The set-up cell


def test_no_line_of_the_archive_looks_like_a_prompt():
    text = "a" * single.WIDTH + ">>>b" + "c" * (2 * single.WIDTH - 4) + ">"
    assert single.wrapped(text).split() == [
        "a" * single.WIDTH + ">>>",
        "b" + "c" * (single.WIDTH - 4),
        "c" * single.WIDTH + ">",
    ]


def test_it_unpacks_once_beside_the_notebook_and_leaves_what_the_reader_changed(
    tmp_path,
):
    course = tmp_path / FOLDER
    module, other = (course / name for name in FILES)
    expected = [str(course), str(module)]
    assert run(cell(), SAYS, folder=tmp_path) == (expected, "")
    for name, content in FILES.items():
        assert (course / name).read_bytes() == content
    module.write_text("here = 'changed'\n")
    other.unlink()  # as after a run that was cut off
    assert run(cell(), SAYS, folder=tmp_path) == ([str(course), "changed"], "")
    assert not list(tmp_path.rglob("*.[0-9]*"))
    assert other.read_bytes() == FILES["notebooks/exercises/05_a.py"]


def test_two_lessons_share_a_folder_and_a_kernel(tmp_path):
    name = "course/__init__.py"
    other = {name: FILES[name], "notebooks/exercises/06_b.py": b"# b\n"}
    (tmp_path / "elsewhere").mkdir()
    move = "import os\nos.chdir('elsewhere')\n"
    printed, error = run(cell(), SAYS, move, cell(other), SAYS, folder=tmp_path)
    assert error == "" and printed[:2] == printed[2:]
    exercises = tmp_path / FOLDER / "notebooks" / "exercises"
    found = sorted(path.name for path in exercises.iterdir())
    assert found == ["05_a.py", "06_b.py"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_another_edition_has_a_folder_of_its_own_and_wants_a_kernel_of_its_own(
    tmp_path,
):
    newer = f"{FOLDER[:-1]}9"
    changed = cell({**FILES, "course/__init__.py": b"here = 'newer'\n"}, newer)
    run(cell(), SAYS, folder=tmp_path)
    assert run(changed, SAYS, folder=tmp_path) == ([str(tmp_path / newer), "newer"], "")
    _, error = run(cell(), SAYS, changed, folder=tmp_path)
    says = "This kernel holds another edition of the course: restart it."
    assert error == f"AssertionError: {says}"


@pytest.mark.parametrize("new", ["\n{Wp48T", "\n", "\n{Wp48"])
def test_a_damaged_block_is_refused_and_nothing_is_unpacked(tmp_path, new):
    old = "\n{Wp48S"  # how an xz file begins
    assert cell().count(old) == 1
    printed, error = run(cell().replace(old, new), SAYS, folder=tmp_path)
    assert printed == [] and list(tmp_path.iterdir()) == []
    says = "CARRIED is damaged (its SHA-256 is another one): get this notebook again."
    assert error == f"AssertionError: {says}"


OUTSIDE = ["../evil.py", "/tmp/evil.py", "C:\\evil.py"]


@pytest.mark.parametrize("name", [*OUTSIDE, "a\\b.py", ".x", "a//b"])
def test_nothing_is_unpacked_outside_its_folder(tmp_path, name):
    _, error = run(cell({name: b""}), folder=tmp_path)
    assert error == f"AssertionError: Not unpacked: {name}"
    assert list(tmp_path.iterdir()) == []


def test_links_in_the_archive_are_refused(tmp_path, monkeypatch):
    make = tarfile.TarInfo

    def link(name):
        member = make(name)
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        return member

    monkeypatch.setattr(tarfile, "TarInfo", link)
    _, error = run(cell({"utils/a.py": b""}), folder=tmp_path)
    assert error == "AssertionError: Not unpacked: utils/a.py"


def test_where_nothing_can_be_written_a_temporary_folder_serves_until_the_kernel_ends(
    tmp_path,
):
    # a file is in the way: for root a folder can always be written
    (tmp_path / FOLDER).touch()
    printed, error = run(cell(), SAYS, cell(), SAYS, folder=tmp_path)
    says = "Nothing can be written here: your score lasts until this kernel stops."
    assert error == "" and printed.pop(0) == says
    assert printed[:2] == printed[2:] and not printed[0].startswith(str(tmp_path))
    assert not os.path.exists(os.path.dirname(printed[0]))
