"""Open JupyterLab on the reader's own copy of the first lesson.

    python tools/lab.py [--core] [arguments of JupyterLab]

The copies, in the folder work, have no outputs: no answer below its question. A copy
that the reader has changed or run is never touched. With --core others are made, in
work/core, which end where the core of a lesson ends. JupyterLab gets the settings of
tools/jupyterlab and reads notebooks with tools/contents.py; it listens on this machine
only, with a token, and finds a free port (its defaults).
"""

import functools
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from jupyter_core.paths import jupyter_config_dir, jupyter_data_dir

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # it is run as a file
from tools.lessons.edition import content_hash, short_hash  # noqa: E402
from tools.lessons.questions import folded_texts, summary  # noqa: E402

CORE = "work/core"  # where the copies of --core are
PAGES = ("paths.md", "glossary.md")  # of docs, whose links open lessons
# "](../docs/glossary.md#cuda)"; in a page itself "](#tpu)"
INTO_PAGES = re.compile(r"\]\((?:\.\./docs/)?((?:paths|glossary)\.md|)(?:#([\w-]+))?\)")
# "](scripts/", "src=\"diagrams/": links into folders of notebooks, up to the folder
INTO_NOTEBOOKS = re.compile(
    r'(\]\(|(?:src|href)=")(?=(?:diagrams|exercises|recorded|scripts)\b)'
)
# who has JupyterLab open needs no other, and without network they are broken pictures
BADGES = re.compile(r"^\[!\[Open in Colab\].*\n+", re.M)
# in a copy of the core, in the place of the rest
REST = (
    "*This copy ends with the core. Sections and exercises that are named here and"
    " missing stand in the whole lesson: `make lab` opens it.*"
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
    for folder in ("docs", "notebooks", "utils", "simulate", "course", "packages"):
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


@functools.cache
def kernel_metadata():
    """What JupyterLab writes into a notebook when its kernel starts: a copy that has it
    opens without being marked as changed.
    """
    from ipykernel.ipkernel import IPythonKernel
    from jupyter_client.kernelspec import get_kernel_spec

    name = get_kernel_spec("python3").display_name
    return {
        "kernelspec": {"display_name": name, "language": "python", "name": "python3"},
        "language_info": IPythonKernel.language_info,
    }


def anchors(page):
    """Anchors of a page of docs: as in its links, where all letters are small → as
    JupyterLab makes them.
    """
    path = ROOT / "docs" / page
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    names = [name.replace(" ", "-") for name in re.findall(r"^#+ (.+)$", text, re.M)]
    return {name.lower(): name for name in names}


def into_copies(text, own=""):
    """A text of which links to PAGES lead to their copies, and to JupyterLab's anchors.
    own: the page that it is.
    """

    def link(found):
        page, anchor = found.groups()
        if not anchor:
            return f"]({page})"
        return f"]({page}#{anchors(page or own).get(anchor, anchor)})"

    return INTO_PAGES.sub(link, text)


def core_of(cells):
    """The cells above the heading "Deeper", and one that says where the rest is."""
    for n, cell in enumerate(cells):
        if "".join(cell["source"]).startswith("## Deeper"):
            return [*cells[:n], nbformat.from_dict({**cell, "source": REST})]
    return cells


def fold_answers(cells):
    """Fold in the texts of a lesson what answers a question, as on the website."""
    begun = set()
    for index, (key, explains, rest) in folded_texts(cells).items():
        # blank lines: what stands between them is Markdown
        opens = f"<details>{summary(key, begun)}\n\n"
        answer = f"{opens}{explains}\n\n</details>" if explains else ""
        cells[index].source = f"{answer}\n\n{rest}".strip()


def for_reader(path, core=False):
    """A lesson as its reader gets it: without outputs and badges, what answers a
    question in words folded, its edition noted, the sections below "Deeper" closed,
    links mended. core: those sections left out, for work/core.
    """
    lesson, is_deeper = nbformat.read(path, as_version=4), False
    fold_answers(lesson.cells)
    if core:
        lesson["cells"] = core_of(lesson["cells"])
    notebooks = "../../notebooks/" if core else "../notebooks/"
    for cell in lesson["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
            continue
        text = INTO_NOTEBOOKS.sub(rf"\1{notebooks}", cell["source"])
        text = BADGES.sub("", into_copies(text))
        if core:  # one folder deeper; pages that have no copy
            text = text.replace("](../docs/", "](../../docs/")
        if is_deeper and text.startswith("## "):
            cell["metadata"]["jp-MarkdownHeadingCollapsed"] = True
        is_deeper = is_deeper or text.startswith("## Deeper")
        cell["source"] = text
    lesson["metadata"] |= kernel_metadata()
    lesson["metadata"]["device_lab"] = {"edition": content_hash(lesson)}
    return lesson


def page_for_reader(path):
    """A page of docs as its reader gets it: its links open the copies; the last line
    notes the edition.
    """
    text = path.read_text(encoding="utf-8").replace("../notebooks/", "")
    text = into_copies(text, own=path.name)
    # what the original says of itself
    text = re.sub(r"(^> .*\n)+\n", "", text, flags=re.M)
    return f"{text}\n<!-- edition {short_hash(text)} -->\n"


def is_changed(copy):
    """Whether the reader has changed the copy of a page."""
    text, _, edition = copy.read_text("utf-8").rpartition("\n<!-- edition ")
    return edition != f"{short_hash(text)} -->\n"


def is_kept(copy, newest, folder):
    """Whether the reader's copy stays as it is; one line where the course has a newer
    edition than this one. folder: what that line calls the copy's.
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
            f"{folder}/{copy.name}: the course has a newer edition. To get it, rename"
            " yours and start again."
        )
    return used or newest == known


def copy_lessons(work, core=False):
    """Copy each lesson into the folder `work`, and the pages that link to them, unless
    the reader has it and has changed or run it. core: the cores, into work/core.
    """
    folder = CORE if core else "work"
    work = work / "core" if core else work
    work.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        lesson, copy = for_reader(path, core), work / path.name
        newest = lesson["metadata"]["device_lab"]["edition"]
        if not copy.exists() or not is_kept(copy, newest, folder):
            write(copy, nbformat.writes(lesson))
    for path in (ROOT / "docs" / name for name in PAGES):
        copy = work / path.name
        if path.exists() and not (copy.exists() and is_changed(copy)):
            write(copy, page_for_reader(path))


def write(path, text):
    """Write a file, which is there as a whole or as it was."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(path)


if __name__ == "__main__":
    # not everywhere where lessons are tested
    from contents import Contents, Sessions
    from jupyterlab.labapp import LabApp

    arguments = sys.argv[1:]
    is_core = "--core" in arguments
    if is_core:
        arguments.remove("--core")
    provide_home()
    course, folder = provide_course()
    if folder == "work":
        copy_lessons(course / "work", is_core)
        folder = CORE if is_core else folder
    # The lesson is the page that opens, and the one in the address that JupyterLab
    # prints. Containers and rented GPU machines have no user but root. What settings
    # cannot say stands beside them, in custom.css.
    settings = ROOT / "tools" / "jupyterlab"
    options = [
        f"--ServerApp.root_dir={course}",
        f"--ServerApp.contents_manager_class={Contents.__module__}.Contents",
        f"--ServerApp.session_manager_class={Sessions.__module__}.Sessions",
        f"--LabApp.app_settings_dir={settings}",
        f"--ServerApp.tornado_settings={{'static_custom_path': [{str(settings)!r}]}}",
        "--LabApp.custom_css=True",
        f"--LabApp.default_url=/lab/tree/{folder}/00_start_here.ipynb",
    ]
    LabApp.launch_instance([*options, "--allow-root", *arguments])
