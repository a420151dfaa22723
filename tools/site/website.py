"""The website: stage its pages in build/, and let Sphinx write dist/site. No lesson is
executed.

python -m tools.site.website [--out DIR]
"""

import argparse
import html
import pathlib
import re
import shutil
import sys

import nbformat
import sphinx.cmd.build

from tools.lessons.notebooks import address, badges, in_repository, lessons
from tools.lessons.times import read, with_links
from tools.site import evidence, explorers, pages
from utils.exercises import lesson_exercises

ROOT = pathlib.Path(__file__).resolve().parents[2]

# in the order of the navigation
PAGES = ["docs/paths", "docs/glossary", "docs/errors", "docs/evidence", "docs/status"]
NAMES = ["map", "lessons", "cells", "exercises", "recording", "site", "tests"]
FOR_CONTRIBUTORS = ["CONTRIBUTING", *(f"docs/contributing/{name}" for name in NAMES)]
# of README's table of lessons
ROW = re.compile(r"^\| (\d\d) \| \[(.+?)\]\(notebooks/(.+?)\.ipynb\)", re.M)


def names():
    """Short names of the lessons, {stem: "05 · Streams"}, as README's table has them."""
    return {
        stem: f"{number} · {name}"
        for number, name, stem in ROW.findall(read(ROOT / "README.md"))
    }


def repository_links(text, folder):
    """`text`, Markdown of a page in `folder`, where links to what the site lacks lead
    to the repository.
    """
    pages_on_site = {ROOT / f"{page}.md" for page in PAGES + FOR_CONTRIBUTORS}
    on_site = pages_on_site | set(lessons())
    return with_links(
        text,
        ROOT / folder,
        lambda path: None if path in on_site else in_repository(path),
    )


def launch_line(path, single):
    """Where a lesson runs, as HTML. single: whether the site offers it as one file."""
    colab, kaggle = re.findall(r"\)\]\((.+?)\)", badges(path))
    slug = address().removeprefix("https://github.com/")
    binder = (
        f"https://mybinder.org/v2/gh/{slug}/main?urlpath=lab/tree/notebooks/{path.name}"
    )
    links = {"Colab": colab, "Kaggle": kaggle, "Binder": binder}
    run = ", ".join(
        f'<a href="{html.escape(link)}">{where}</a>' for where, link in links.items()
    )
    one = (
        f'<a href="../single/{path.name}" download>this lesson as one file</a> · '
        if single
        else ""
    )
    return (
        f'<p class="launch">Run it on {run} · {one}<a'
        f' href="{in_repository(path)}">source</a></p>'
    )


def table_below(heading, text):
    """The first table below a heading of a Markdown text."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.search(r"(?:^\|.*\n)+", section, re.M)[0]


def start_page(explorer):
    """docs/index.md with what it has places for. explorer: that of lesson 00, as HTML."""
    text, readme = read(ROOT / "docs" / "index.md"), read(ROOT / "README.md")
    pages_of_lessons = [f"{name} <notebooks/{stem}>" for stem, name in names().items()]
    places = {
        "explorer 00": f"```{{raw}} html\n{explorer}\n```",
        "paths": table_below("Paths", readme),
        "lessons": table_below("Lessons", readme),
        "contents": "\n\n".join(
            [
                toctree("Lessons", pages_of_lessons),
                toctree("Course", PAGES),
                toctree("Contribute", FOR_CONTRIBUTORS),
            ]
        ),
    }
    return repository_links(
        re.sub("^<!-- (.*) -->$", lambda found: places[found[1]], text, flags=re.M), "."
    )


def toctree(caption, entries):
    return "\n".join(
        ["```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```"]
    )


def stage(folder, singles):
    """Write the pages for Sphinx to `folder`. singles: names of the lessons that the
    site offers as one file.
    """
    shutil.copytree(ROOT / "docs" / "_static", folder / "_static")
    shutil.copy(ROOT / "docs" / "conf.py", folder)
    pictures = folder / pages.PICTURES
    for made in (pictures, folder / "docs" / "contributing", folder / "notebooks"):
        made.mkdir(parents=True)
    explorers.write(folder / "_static" / "explorers")
    for path in lessons():
        nb, found = pages.page(
            nbformat.read(path, as_version=4),
            links=launch_line(path, path.name in singles),
            exercises=lesson_exercises(path.name[:2]),
            explorer=explorers.page(path.stem, "../"),
        )
        for cell in nb.cells:
            if cell.cell_type == "markdown":
                cell.source = repository_links(cell.source, "notebooks")
        nbformat.write(nb, folder / "notebooks" / path.name)
        for name, content in found.items():
            (pictures / name).write_bytes(content)
    pages = {
        f"{page}.md": read(ROOT / f"{page}.md")
        for page in PAGES + FOR_CONTRIBUTORS
        if (ROOT / f"{page}.md").exists()
    }
    pages |= evidence.pages()
    pages = {
        page: repository_links(text, pathlib.PurePosixPath(page).parent)
        for page, text in pages.items()
    }
    pages["index.md"] = start_page(explorers.page(lessons()[0].stem, ""))
    for page, text in pages.items():
        (folder / page).write_text(text, encoding="utf-8")


def not_found():
    """The page for addresses that do not exist. A server shows it in any folder, so it
    names the site's address.
    """
    link = f'<a href="{address("Site")}/">the first page</a>'
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>No such'
        " page</title>"
    )
    view = (
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link'
        ' rel="icon" href="data:,">'
    )
    return (
        f"{head}{view}<h1>There is no such page</h1><p>Go to {link} of the PyTorch"
        " Device Lab.</p></html>\n"
    )


def build(out):
    """Build the site in the folder `out`, anew. Returns the exit status of Sphinx; a
    warning counts as an error.
    """
    source, doctrees = (
        ROOT / "build" / f"{out.name}-{part}" for part in ("source", "doctrees")
    )
    if out.exists() and any(out.iterdir()) and not (out / ".nojekyll").exists():
        sys.exit(f"{out} is no website of this course: not replaced")
    for old in (source, doctrees, out):
        shutil.rmtree(old, ignore_errors=True)
    out.mkdir(parents=True)
    # else GitHub Pages leaves out folders that begin with an underscore
    (out / ".nojekyll").touch()
    singles = list((ROOT / "dist").glob("[0-9][0-9]_*.ipynb"))
    stage(source, {path.name for path in singles})
    options = ["-q", "-W", "--keep-going", "-j", "auto", "-d", str(doctrees)]
    status = sphinx.cmd.build.main([*options, str(source), str(out)])
    (out / "404.html").write_text(not_found(), encoding="utf-8")
    (out / "single").mkdir()
    for path in singles:
        shutil.copy(path, out / "single")
    return status


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        default=ROOT / "dist" / "site",
        help="folder (default: dist/site)",
    )
    return build(parser.parse_args().out.resolve())


if __name__ == "__main__":
    sys.exit(main())
