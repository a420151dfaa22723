"""The page "How do I …?"."""

import re

import nbformat

from tools.lessons.notebooks import lessons
from tools.site import tasks, website

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}
TASKS = tasks.tasks(NOTEBOOKS)


def test_each_task_leads_to_a_cell_and_is_asked_once():
    cells = {(stem, cell.id) for stem, nb in NOTEBOOKS.items() for cell in nb.cells}
    assert [task for task in TASKS if (task.stem, task.id) not in cells] == []
    assert len({task.title for task in TASKS}) == len(TASKS)
    assert {task.stem for task in TASKS} == set(NOTEBOOKS)


def test_the_page_has_each_task_below_its_lesson():
    page = tasks.page(NOTEBOOKS, website.names())
    links = re.findall(r"\]\(\.\./notebooks/(\w+)\.ipynb#([\w-]+)\)", page)
    assert links == [(task.stem, task.id) for task in TASKS]
