"""The page of recipes, and the recipes that it shows."""

import copy
import re

import nbformat
import pytest
from nbformat import v4

from tools.lessons import run
from tools.lessons.notebooks import lessons
from tools.site import recipes, website

NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}
WITH = {stem: nb for stem, nb in NOTEBOOKS.items() if recipes.parts(nb)}


@pytest.fixture(scope="module")
def page():
    return recipes.page(NOTEBOOKS, website.names())


def code_of(nb):
    return [cell for cell in recipes.parts(nb) if cell.cell_type == "code"]


def test_every_lesson_but_the_first_has_a_recipe():
    assert [stem for stem in NOTEBOOKS if stem not in WITH] == ["00_start_here"]


def others_above(nb):
    """The code cells above the last of the recipe that do not belong to it."""
    code = [cell.id for cell in nb.cells if cell.cell_type == "code"]
    own = {"setup", *(cell.id for cell in recipes.parts(nb))}
    last = max(code.index(cell.id) for cell in code_of(nb))
    return set(code[:last]) - own


ALONE = [stem for stem, nb in WITH.items() if not others_above(nb)]


def test_most_recipes_run_with_no_more_than_their_set_up_in_the_lesson_itself():
    assert len(ALONE) >= 14


@pytest.mark.slow
@pytest.mark.parametrize("stem", sorted(WITH.keys() - ALONE))
def test_recipe_runs_with_no_more_than_its_set_up(stem, monkeypatch):
    monkeypatch.setenv("LAB_STRICT", "1")
    monkeypatch.setenv("LAB_UNTIMED", "1")
    nb = recipes.alone(copy.deepcopy(WITH[stem]))
    for cell in nb.cells:
        cell.outputs = []
    run.execute(nb, website.ROOT / "notebooks")
    said = [cell.outputs for cell in nb.cells if cell.id.startswith("recipe")]
    assert any(said)


@pytest.mark.parametrize("stem", WITH)
def test_page_has_its_code(stem, page):
    for cell in code_of(WITH[stem]):
        if "show_diff(" not in cell.source:
            source = re.sub(r"^# @title .*\n", "", cell.source, flags=re.M)
            assert source in page


def test_page_shows_what_a_recipe_of_two_scripts_prints(page):
    assert "+dist.init_process_group(" in page and "show_diff(" not in page


def test_page_follows_the_cell():
    stem, nb = "05_streams", copy.deepcopy(NOTEBOOKS["05_streams"])
    next(each for each in nb.cells if each.id == "recipe").source = "another = 1"
    assert "another = 1" in recipes.page({stem: nb}, website.names())


def test_cell_that_defines_a_name_comes_along():
    cells = [
        v4.new_code_cell("import torch", id="setup"),
        v4.new_code_cell("unused = 1", id="other"),
        v4.new_code_cell("def half(x):\n    return x / parts", id="uses"),
        v4.new_code_cell("parts = 3", id="later"),
        v4.new_markdown_cell("Text", id="recipe-text"),
        v4.new_code_cell("print(half(torch.ones(1)))", id="recipe"),
    ]
    cells.insert(1, v4.new_code_cell("parts = 2", id="count"))
    found = [cell.id for cell in recipes.parts(v4.new_notebook(cells=cells))]
    # what a function reads when it is called
    assert found == ["uses", "later", "recipe-text", "recipe"]


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("`x`: section 2.", "`x`: section [2](../notebooks/05_streams.ipynb#race)."),
        ("| a | b | 2 |", "| a | b | [2](../notebooks/05_streams.ipynb#race) |"),
        ("section 99", "section 99"),
        ("[04](04_a.ipynb#b)", "[04](../notebooks/04_a.ipynb#b)"),
        ("[kernel](../docs/glossary.md#kernel)", "[kernel](glossary.md#kernel)"),
        ("[below](#race)", "[below](../notebooks/05_streams.ipynb#race)"),
    ],
)
def test_links_lead_from_the_page(text, linked):
    assert recipes.linked(text, "05_streams", NOTEBOOKS["05_streams"]) == linked


def test_sections_that_the_lines_name_are_links(page):
    bare = re.findall(r"\b[Ss]ections? \d+", page)
    # in a comment of the code, and of another lesson
    assert len(bare) <= 3, bare


def test_readme_links_each_recipe():
    readme = (website.ROOT / "README.md").read_text(encoding="utf-8")
    linked = re.findall(r"\| (\d\d) \|.*/docs/recipes\.html#recipe-(\d\d)\)", readme)
    assert linked == [(stem[:2], stem[:2]) for stem in WITH]
