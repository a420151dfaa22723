"""Write lessons as files that need no course beside them: python -m tools.site.single

dist/NN_name.ipynb is a lesson without outputs. Its set-up cell carries what the lesson
needs of the course, an archive as text, and unpacks it beside the notebook. Links in
its text lead to the published site and the repository.
"""

import base64
import hashlib
import io
import lzma
import pathlib
import re
import tarfile

import nbformat

from tools.lessons import links, notebooks, parts

ROOT = pathlib.Path(__file__).resolve().parents[2]

WIDTH = 85  # of the lines of the archive: 68 bytes each
ALWAYS = (
    "utils/*.py",
    "simulate/*.py",
    "course/*.py",
    "lookup/*.py",
    "notebooks/exercises/__init__.py",
    "notebooks/exercises/doubles/*.py",
    "notebooks/recorded/published.json",
    "LICENSE",
    "LICENSE-text",
)
OWN = ("notebooks/exercises/{}.py", "notebooks/recorded/*/{}.json")

# The set-up cell. It leaves a file alone that is there: it is whole, because each
# appears at once, and perhaps the reader has changed it. So lessons of one edition
# share one folder, and another edition gets its own.
SETUP = '''\
# @title Set-up: run this first
# What this lesson needs of PyTorch Device Lab stands in CARRIED: {count} text files,
# the packages of the course among them, as an archive (tar.xz) in base85. The cell
# checks it and unpacks it beside the notebook; nothing is fetched or installed. To
# look into it without running it, read it with base64.b85decode and tarfile.
import atexit
import base64
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

SHA256 = "{sha256}"
FOLDER = "{folder}"
CARRIED = """
{carried}
"""


def unpack(place):
    """Unpack into FOLDER in `place`. A file that is there already stays."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as files:
        for member in files:
            inside = re.fullmatch(r"(\\w[\\w.-]*/)*\\w[\\w.-]*", member.name)
            assert inside and member.isfile(), f"Not unpacked: {{member.name}}"
            path = place / FOLDER / member.name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f"{{path.name}}.{{os.getpid()}}")
                part.write_bytes(files.extractfile(member).read())
                part.replace(path)
    return place / FOLDER


try:
    archive = base64.b85decode("".join(CARRIED.split()))
except ValueError:
    archive = b""
damaged = "CARRIED is damaged (its SHA-256 is another one): get this notebook again."
assert hashlib.sha256(archive).hexdigest() == SHA256, damaged
if "course" in sys.modules:  # a lesson has run in this kernel
    course = pathlib.Path(sys.modules["course"].__file__ or "").resolve().parent.parent
    another = "This kernel holds another edition of the course: restart it."
    assert course.name == FOLDER, another
    unpack(course.parent)
else:
    try:
        course = unpack(pathlib.Path.cwd())
    except OSError:
        course = unpack(pathlib.Path(tempfile.mkdtemp()))
        atexit.register(shutil.rmtree, course.parent, ignore_errors=True)
        print("Nothing can be written here: your score lasts until this kernel stops.")
    sys.path.insert(0, str(course))

{imports}
'''


def carried(path):
    """What the lesson at `path` needs of the course: name below the course's folder →
    content.

    What all lessons share; its exercises and recordings; the diagrams that it shows.
    Programs: all of them where its code names their folder, because they import each
    other. Itself and the table of messages, where it looks up its own rows.
    """
    nb = without_outputs(path)
    code = "\n".join(cell.source for cell in parts.code_cells(nb))
    patterns = [*ALWAYS, *(pattern.format(path.stem) for pattern in OWN)]
    for name in re.findall(r'plots\.diagram\("(.+?)"\)', code):
        patterns.append(f"notebooks/diagrams/{name}.svg")
    if re.search(r"\bscripts\b", code):
        patterns.append("notebooks/scripts/*.*")
    files = {
        file.relative_to(ROOT).as_posix(): file.read_bytes()
        for pattern in patterns
        for file in ROOT.glob(pattern)
    }
    if "%%today" in code:
        files[f"notebooks/{path.name}"] = nbformat.writes(nb).encode()
        files["lookup/messages.toml"] = (ROOT / "lookup/messages.toml").read_bytes()
    return files


def bundle_hash():
    """Short hash of all that lessons carry: the same in all of them, another one after
    any change.
    """
    everything = {}
    for path in notebooks.lessons():
        everything |= carried(path)
    return hashlib.sha256(repr(sorted(everything.items())).encode()).hexdigest()[:8]


def packed(files):
    """The archive with these files: the same bytes for the same files."""
    buffer = io.BytesIO()
    small = {"preset": 9 | lzma.PRESET_EXTREME, "format": tarfile.USTAR_FORMAT}
    with tarfile.open(fileobj=buffer, mode="w:xz", **small) as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def setup_cell(files, folder):
    """Source of the set-up cell that carries these files and unpacks them into
    `folder`.
    """
    archive = packed(files)
    end = "sys.path.insert(0, str(course))\n\n"  # of what finds the course
    imports = notebooks.setup_cell().partition(end)[2]
    text = base64.b85encode(archive).decode()  # smaller than base64 by 6%
    return SETUP.format(
        count=len(files),
        sha256=hashlib.sha256(archive).hexdigest(),
        folder=folder,
        carried=wrapped(text),
        imports=imports,
    ).rstrip("\n")


def wrapped(text):
    """Base85 in lines, none of which begins with >: IPython 9 takes >>> for a prompt,
    in a string, too, and drops it.
    """
    lines = "\n".join(text[n : n + WIDTH] for n in range(0, len(text), WIDTH))
    return re.sub(r"\n(>+)", r"\1\n", lines)


def without_outputs(path):
    """The lesson at `path` as its reader gets it first."""
    nb = nbformat.read(path, as_version=4)
    parts.clear_outputs(nb)
    return nb


def absolute(text):
    """Text of a lesson whose links into the course lead to the site, or to the
    repository for what the site lacks.
    """

    def address_of(path):
        if path.suffix in (".ipynb", ".md"):
            page = path.relative_to(ROOT).with_suffix(".html").as_posix()
            return f"{notebooks.address('Site')}/{page}"
        return notebooks.in_repository(path)

    return links.with_links(text, ROOT / "notebooks", address_of)


def single(path, folder):
    """The lesson at `path` as the text of a file that needs no course; `folder`: what
    it unpacks into.
    """
    nb = without_outputs(path)
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = absolute(cell.source)
        if cell.id == "setup":
            cell.source = setup_cell(carried(path), folder)
    return nbformat.writes(nb) + "\n"


def write(out):
    """Write all lessons into the folder `out`; print a line on each."""
    out.mkdir(parents=True, exist_ok=True)
    folder = f"pytorch-device-lab-{bundle_hash()}"
    for path in notebooks.lessons():
        text = single(path, folder)
        (out / path.name).write_text(text, encoding="utf-8", newline="\n")
        print(f"{out / path.name}: {len(text.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    write(ROOT / "dist")
