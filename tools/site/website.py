"""The website: stage its pages in build/, and let Sphinx write dist/site, from stored
outputs; lessons run only for their explorers. python -m tools.site.website
"""

import html
import os
import pathlib
import re
import shutil
import sys
import time

import nbformat
import sphinx.cmd.build

from course.exercises import lesson_exercises
from tools.lessons.links import read, with_links
from tools.lessons.notebooks import address, in_repository, launch_links, lessons
from tools.lessons.paths import EXERCISE, places
from tools.site import (
    errors,
    evidence,
    explorers,
    markdown,
    not_found,
    pages,
    recipes,
    search,
    sheet,
    slides,
    tasks,
)
from tools.site.read_lessons import read_lessons
from torch_messages import match

ROOT = pathlib.Path(__file__).resolve().parents[2]

# in the order of the navigation: above the lessons what is looked up, below them what
# they rest on
LOOK_UP = [
    "docs/answers",
    "docs/recipes",
    "docs/command",
    "docs/kit",
    "docs/mac",
    "docs/tpu",
    "docs/tasks",
    "docs/errors",
    "docs/glossary",
    "docs/next",
    "docs/teaching",
    "docs/questions",
    "docs/zh",
    "docs/paths",  # "Previous" of lesson 00
]
GROUPS = {  # caption → numbers of lessons, the first and the last
    "Where tensors live": ("00", "04"),
    "Faster on one device": ("05", "10"),
    "More devices": ("11", "14"),
    "In your own code": ("15", "17"),
}
ABOUT = ["docs/evidence"]
# pages of the site whose text stands elsewhere
ELSEWHERE = {"docs/kit.md": "packages/device_lab/README.md"}
# not in the navigation: docs/questions is handed out, docs/teaching links to its key
HIDDEN = ["docs/questions_key"]
PAGES = LOOK_UP + ABOUT + HIDDEN
PAGES += [f"docs/errors/{page}" for page in errors.PAGES.values()]
# addresses that were given away, and where what stood there stands now
MOVED = {
    "docs/names.html": "../search.html",
    "docs/status.html": "evidence.html",
    "genindex.html": "search.html",
}
NAMES = "map lessons cells exercises recording site new_pytorch tests".split()
NAMES += ["release", "first_issues"]
FOR_CONTRIBUTORS = ["CONTRIBUTING", *(f"docs/contributing/{name}" for name in NAMES)]
# of README's table of lessons: number, name, stem of the file
ROW = re.compile(r"^\| (\d\d) \| \[(.+?)\]\(notebooks/(.+?)\.ipynb\)", re.M)
QUESTION = re.compile(ROW.pattern + r" \| (.+?)(?: \[Recipe\].*)? \|", re.M)


def names():
    """Short names of the lessons as in README's table, {stem: "05 · Streams"}."""
    rows = ROW.findall(read(ROOT / "README.md"))
    return {stem: f"{number} · {name}" for number, name, stem in rows}


def repository_links(text, folder):
    """`text`, Markdown of a page in `folder`, where links to what the site lacks lead
    to the repository.
    """
    pages_on_site = {ROOT / f"{page}.md" for page in PAGES + FOR_CONTRIBUTORS}
    on_site = pages_on_site | set(lessons())
    elsewhere = {ROOT / source: page for page, source in ELSEWHERE.items()}

    def address_of(path):
        if path in elsewhere:
            return os.path.relpath(elsewhere[path], folder).replace(os.sep, "/")
        return None if path in on_site else in_repository(path)

    return with_links(text, ROOT / folder, address_of)


def launch_line(path):
    """Where a lesson runs, as HTML."""
    colab, kaggle = launch_links(path)
    links = {"Colab": colab, "Kaggle": kaggle}
    run = ", ".join(
        f'<a href="{html.escape(link)}">{where}</a>' for where, link in links.items()
    )
    report = f"{address()}/issues/new?title=Lesson%20{path.name[:2]}"
    parts = [
        f"Run it on {run}",
        f'<a href="{in_repository(path)}">source</a>',
        f'<a href="{report}">report a mistake</a>',
    ]
    return f'<p class="launch">{" · ".join(parts)}</p>'


def table_below(heading, text):
    """The first table below a heading of a Markdown text."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    # lines that begin with |
    return re.search(r"(?:^\|.*\n)+", section, re.M)[0]


def contents():
    """The navigation, {caption: names of pages}."""
    groups = {
        caption: [f"notebooks/{stem}" for stem in names() if begin <= stem[:2] <= end]
        for caption, (begin, end) in GROUPS.items()
    }
    look_up = {"Look up": LOOK_UP}
    return {**look_up, **groups, "About": ABOUT, "Contribute": FOR_CONTRIBUTORS}


def write_for_programs(source, out):
    """The pages in `source` as Markdown, llms.txt and the skill, in `out`."""
    shutil.copytree(ROOT / "skills", out / "skills")
    questions = {
        f"notebooks/{stem}": question
        for _, _, stem, question in QUESTION.findall(read(ROOT / "README.md"))
    }
    sections = {"Start": ["index"], **contents()}
    sections["Errors and warnings"] = [page for page in PAGES if "errors/" in page]
    # llmstxt.org: what may be passed over
    sections["Optional"] = sections.pop("Contribute") + HIDDEN
    head = read(ROOT / "docs" / "llms.txt").replace("SITE", address("Site"))
    made = markdown.pages(source, address("Site"))
    markdown.write(made, head, out, address("Site"), sections, questions)


def start_page(explorer):
    """docs/index.md with what it has places for (`<!-- name -->`). explorer: that of
    lesson 00, as HTML.
    """
    text, readme = read(ROOT / "docs" / "index.md"), read(ROOT / "README.md")
    places = {
        "explorer 00": f"```{{raw}} html\n{explorer}\n```",
        "paths": table_below("Paths", readme),
        "lessons": table_below("Lessons", readme),
        "contents": "".join(toctree(*section) for section in contents().items()),
    }
    for name, content in places.items():
        text = text.replace(f"\n<!-- {name} -->\n", f"\n{content}\n")
    # README names pages that only the site has by their address there
    text = re.sub(rf"{address('Site')}/(docs/\w+)\.html", r"\1.md", text)
    return repository_links(text, ".")


def toctree(caption, entries):
    listed = "\n".join(entries)
    return f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n\n"


def stage(folder):
    """Write the pages for Sphinx to `folder`."""
    for name in ("_static", "_templates"):
        shutil.copytree(ROOT / "docs" / name, folder / name)
    shutil.copy(ROOT / "docs" / "conf.py", folder)
    (folder / pages.PICTURES).mkdir()
    (folder / "notebooks").mkdir()
    say("explorers: each setting of their controls is drawn beforehand")
    explorers.write(folder / "_static" / "explorers")
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}
    say(f"staging {len(notebooks)} lessons, from their stored outputs")
    for path in lessons():
        stage_lesson(path, folder)
    say("staging the pages that are made from them: errors, recipes, tasks, evidence")
    course = read_lessons()
    table = folder / "_static" / "messages-table.js"
    table.write_text(errors.table(course), encoding="utf-8")
    generated = {
        "docs/evidence.md": evidence.page(course),
        **errors.pages(course),
        "docs/tasks.md": tasks.page(notebooks, names()),
        "docs/recipes.md": recipes.page(notebooks, names()),
    }
    for name in [f"{page}.md" for page in PAGES + FOR_CONTRIBUTORS]:
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        text = generated.get(name) or read(ROOT / ELSEWHERE.get(name, name))
        if name == "docs/paths.md":
            text = link_steps(text)
        if name == "docs/answers.md":
            text = link_messages(text)
        text = repository_links(text, pathlib.PurePath(name).parent)
        if name.removesuffix(".md") in HIDDEN:
            text = f"---\norphan: true\n---\n\n{text}"
        page.write_text(text, encoding="utf-8")
    start = start_page(explorers.page(lessons()[0].stem, ""))
    (folder / "index.md").write_text(start, encoding="utf-8")


CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def link_messages(text):
    """The page of answers, where each message that it names leads to its entry on the
    pages of errors.
    """

    def link(found):
        first, _ = match.of_message(found[1]) if found[1].count(" ") > 2 else ([], [])
        if not first or first[0].near:
            return found[0]
        return f"[{found[0]}]({errors.address(first[0].entry)})"

    return CODE.sub(link, text)


# A term of the glossary: a heading, its Chinese name, and a line with the number of a
# lesson at its end, " [05]".
TERM = re.compile(r"^### .*\n\*(.+)\*\n.* \[(\d\d)\]$", re.M)


def chinese_names():
    """The Chinese names of the terms that a lesson teaches, {stem: names}: the search
    finds it by them.
    """
    stems, found = {stem[:2]: stem for stem in names()}, {}
    for chinese, number in TERM.findall(read(ROOT / "docs" / "glossary.md")):
        found.setdefault(stems[number], []).append(chinese)
    return {stem: " ".join(listed) for stem, listed in found.items()}


STEP = re.compile(r"^- \[.*?\]\(\.\./notebooks/(.+?\.ipynb)\)")


def link_steps(text):
    """The page of paths, where each section and exercise that a step names leads to
    its cell.
    """
    lines, lesson = [], None
    for line in text.split("\n"):
        if step := STEP.match(line):
            lesson = step[1]
        elif line.startswith("  - ") and lesson:
            cells = places(ROOT / "notebooks" / lesson)

            def link(label, name, cells=cells, lesson=lesson):
                return f"[{label}](../notebooks/{lesson}#{cells[name]})"

            name = line.removeprefix("  - ")
            if name.startswith("exercise"):
                line = EXERCISE.sub(lambda found: link(found[0], found[0]), line)
            else:
                line = f"  - {link(name, name)}"
        lines.append(line)
    return "\n".join(lines)


def stage_lesson(path, folder):
    """Write the page of the lesson at `path`, and its pictures, to `folder`."""
    nb, pictures = pages.page(
        nbformat.read(path, as_version=4),
        links=launch_line(path),
        exercises=lesson_exercises(path.name[:2]),
        explorer=explorers.page(path.stem, "../", names()[path.stem]),
        name=names()[path.stem],
    )
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = repository_links(cell.source, "notebooks")
    nbformat.write(nb, folder / "notebooks" / path.name)
    for name, content in pictures.items():
        (folder / pages.PICTURES / name).write_bytes(content)


REDIRECT = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="0; url={0}"><p><a href="{0}">Moved</a></html>
"""


# scripts of Sphinx's own search
UNUSED = ["searchtools.js", "language_data.js", "sphinx_highlight.js"]
BEGAN = time.monotonic()


def say(line):
    """What is done now, and after how many minutes."""
    minutes, seconds = divmod(round(time.monotonic() - BEGAN), 60)
    print(f"{minutes:2d}:{seconds:02d} {line}", flush=True)


def build(out):
    """Build the site in the folder `out`, anew. Returns the exit status of Sphinx; a
    warning counts as an error.
    """
    source = ROOT / "build" / f"{out.name}-source"
    doctrees = ROOT / "build" / f"{out.name}-doctrees"
    if out.exists() and any(out.iterdir()) and not (out / ".nojekyll").exists():
        sys.exit(f"{out} is no website of this course: not replaced")
    for old in (source, doctrees, out):
        shutil.rmtree(old, ignore_errors=True)
    out.mkdir(parents=True)
    # else GitHub Pages leaves out folders that begin with an underscore
    (out / ".nojekyll").touch()
    stage(source)
    count = len([*source.rglob("*.md"), *source.rglob("*.ipynb")])
    say(f"Sphinx makes HTML of {count} pages: a minute or some")
    options = ["-q", "-W", "--keep-going", "-j", "auto", "-d", str(doctrees)]
    status = sphinx.cmd.build.main([*options, str(source), str(out)])
    not_found.finish(out / "404.html", address("Site"))
    sheet.write(out)
    explorers.embed(out / "embed", names())
    for page, there in MOVED.items():
        (out / page).write_text(REDIRECT.format(there), encoding="utf-8")
    for name in UNUSED:
        (out / "_static" / name).unlink()
    say("the pages as Markdown, for programs")
    write_for_programs(source, out)
    slides.build(out / "slides")
    say("Pagefind makes the index of the search")
    notebooks = {path.stem: None for path in lessons()}
    found = search.collect(out, tasks.tasks(notebooks), names(), chinese_names())
    search.write(out, found, source.with_name(f"{out.name}-search"))
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    say(f"{out}: {count} pages, {len(found)} sections to search, {size / 1e6:.0f} MB")
    return status


if __name__ == "__main__":
    sys.exit(build(ROOT / "dist" / "site"))
