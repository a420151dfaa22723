"""Open JupyterLab on the reader's own copy of the first lesson.

    python tools/lab.py [arguments of JupyterLab]

The copies, in the folder work, have no outputs: no answer below its question. A copy
that the reader has changed or run is never touched. JupyterLab listens on this machine
only, with a token, and finds a free port (its defaults).
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from jupyter_core.paths import jupyter_config_dir, jupyter_data_dir

ROOT = Path(__file__).resolve().parent.parent
# "](scripts/", "src=\"diagrams/": links into folders of notebooks, up to the folder
INTO_NOTEBOOKS = re.compile(
    r'(\]\(|(?:src|href)=")(?=(?:diagrams|exercises|recorded|scripts)\b)'
)


def writable(folder):
    """Whether files can be made in this folder, which is made if need be."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def provide_home():
    """Where Jupyter cannot write into the home folder, take one inside the environment,
    or one that will be lost.
    """
    if not (writable(jupyter_config_dir()) and writable(jupyter_data_dir())):
        home = Path(sys.prefix) / "home"
        home = home if writable(home) else tempfile.mkdtemp()
        print(f"The home folder cannot be written: settings go to {home}")
        os.environ["HOME"] = str(home)


def provide_course():
    """What JupyterLab serves, the course or a copy of it at home, and which folder of
    it has the lessons to open.
    """
    if writable(ROOT / "work"):
        return ROOT, "work"
    copy = Path.home() / "device-lab-work"
    if not writable(copy / "work"):
        print(
            "Neither the course nor your home folder can be written: what you do in the"
            " lessons is not kept."
        )
        return ROOT, "notebooks"
    for folder in ("docs", "notebooks", "utils"):
        for path in (ROOT / folder).rglob("*.*"):
            # the lessons go to work
            if path.is_file() and path.suffix not in (".ipynb", ".pyc"):
                target = copy / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    print(
        "The course's folder cannot be written: your copies of the lessons are in"
        f" {copy / 'work'}"
    )
    return copy, "work"


def content_hash(lesson):
    """Short hash of what the cells of a lesson say."""
    sources = json.dumps(["".join(cell["source"]) for cell in lesson["cells"]])
    return hashlib.sha256(sources.encode()).hexdigest()[:12]


def for_reader(path):
    """A lesson as its reader gets it: without outputs, its edition noted, links into
    folders of notebooks mended.
    """
    lesson = json.loads(path.read_text(encoding="utf-8"))
    for cell in lesson["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        else:
            text = INTO_NOTEBOOKS.sub(r"\1../notebooks/", "".join(cell["source"]))
            cell["source"] = text.splitlines(keepends=True)
    lesson["metadata"]["device_lab"] = {"edition": content_hash(lesson)}
    return lesson


def is_kept(copy, newest):
    """Whether the reader's copy stays as it is; one line where the course has a newer
    edition than this one.
    """
    try:
        lesson = json.loads(copy.read_text(encoding="utf-8"))
        known = lesson["metadata"].get("device_lab", {}).get("edition")
        now = content_hash(lesson)
        used = known != now or any(
            cell.get("outputs") or cell.get("execution_count")
            for cell in lesson["cells"]
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        # no longer a notebook: still the reader's
        known = now = used = True
    if used and newest not in (known, now):
        print(
            f"work/{copy.name}: the course has a newer edition. To get it, rename yours"
            " and start again."
        )
    return used or newest == known


def copy_lessons(work):
    """Copy each lesson into the folder `work`, unless the reader has it and has changed
    or run it.
    """
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        lesson, copy = for_reader(path), work / path.name
        newest = lesson["metadata"]["device_lab"]["edition"]
        if not copy.exists() or not is_kept(copy, newest):
            text = json.dumps(lesson, indent=1, ensure_ascii=False)
            part = copy.with_suffix(".part")
            part.write_text(text, encoding="utf-8", newline="\n")
            part.replace(copy)


if __name__ == "__main__":
    from jupyterlab.labapp import LabApp  # not everywhere where lessons are tested

    provide_home()
    course, folder = provide_course()
    if folder == "work":
        copy_lessons(course / "work")
    # The lesson is the page that opens, and the one in the address that JupyterLab
    # prints. Containers and rented GPU machines have no user but root.
    options = [
        f"--ServerApp.root_dir={course}",
        f"--LabApp.default_url=/lab/tree/{folder}/00_start_here.ipynb",
    ]
    LabApp.launch_instance([*options, "--allow-root", *sys.argv[1:]])
