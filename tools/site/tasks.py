"""Tasks as people ask for them, and the cell of a lesson that shows how: the page "How
do I …?". Each line of tasks.txt is one:

    lesson and cell | the task, after "How do I" | other words for it

A cell of code is better than the text above it: what is asked for are lines.
"""

import pathlib
from typing import NamedTuple

from tools.site.read_lessons import md

LINES = pathlib.Path(__file__).with_name("tasks.txt")


class Task(NamedTuple):
    """stem: the lesson's name. id: the cell. title: what is asked for. words: others
    for it.
    """

    stem: str
    id: str
    title: str
    words: str


def tasks(notebooks):
    """All tasks, in the order of the lessons. notebooks: {stem: notebook}."""
    stems = {stem[:2]: stem for stem in notebooks}
    found = []
    for line in LINES.read_text(encoding="utf-8").splitlines():
        place, title, words = line.split(" | ")
        number, id = place.split()
        found.append(Task(stems[number], id, title, words))
    return found


def page(notebooks, names):
    """The page, as Markdown. names: {stem: name of the lesson on the site}."""
    found = tasks(notebooks)
    parts = [
        "# How do I …?\n",
        (
            f"{len(found)} tasks, each with the place that shows how, and says why."
            " A message is found in [errors and warnings](errors.md), a name by the"
            " search.\n"
        ),
    ]
    for stem, name in names.items():
        lines = [
            f"- [{md(task.title)}](../notebooks/{stem}.ipynb#{task.id})"
            for task in found
            if task.stem == stem
        ]
        parts += [f"## {md(name)}\n", *lines, ""]
    return "\n".join(parts)
