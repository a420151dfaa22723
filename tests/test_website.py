"""What make site makes of lessons: answers and solutions behind a click, pictures as files, links, the start page."""

import base64
import html
import re
import shutil
import struct

import nbformat
import pytest
import sphinx.cmd.build
from nbformat import v4

from tools import lesson_pages, website
from tools.lesson_pages import Answer, explanation, find_answers, page
from tools.notebooks import lessons
from utils import messages
from utils.exercises import Exercise, lesson_exercises

ASK = 'predict("05.race", "The sum is", "4", "0")'
STORED = '<div style="x"><b>Predict.</b> Is <code>x</code> … <b>4</b> · <b>an error</b></div>'


def text(source, **more):
    return v4.new_markdown_cell(source, **more)


def code(source, *outputs, **more):
    return v4.new_code_cell(source, outputs=[v4.new_output("stream", text=output) for output in outputs], **more)


def made(*cells, explorer=None, exercises=None):
    """The page of a lesson with these cells, and its pictures."""
    return page(v4.new_notebook(cells=list(cells)), links="", exercises=exercises, explorer=explorer)


def parts(nb):
    """What a page shows, from top to bottom, without the targets of links: a word or the first line a cell."""
    shown = []
    for cell in nb.cells:
        if cell.cell_type == "code" and "remove-input" in cell.metadata.get("tags", []):
            shown += [output.get("text") or output.data["text/html"] for output in cell.outputs]
        elif not cell.source.startswith('<span class="cell"'):
            shown.append(cell.source)
    return shown


# ---------------------------------------------------------------------------------------------------------------
# Which cells answer


def test_a_predict_cell_is_answered_up_to_its_reveal_and_by_the_text_below():
    cells = [code(ASK, "asked"), code("f = 1"), code("f", "1"), text("While it runs."), code("x", "0")]
    cells += [code('reveal("05.race", "0")', "no"), text("Zero."), code("g", "later")]
    cells += [code('reveal("05.other", "0")', "other")]
    assert find_answers(cells) == {index: Answer("05.race") for index in (2, 4, 5, 6)}


def test_a_text_that_asks_is_answered_up_to_the_next_text():
    for word in ("Predict", "Bet"):
        cells = [text(f"## 1 · Why?\n\n**{word}.** How many?"), code("a"), code("b", "2"), text("Two."), code("c", "3")]
        assert find_answers(cells) == {2: Answer(""), 3: Answer("")}


def test_a_text_that_only_announces_does_not_end_the_answer():
    cells = [
        text("**Predict.** How many?"),
        code("a", "1"),
        text("As a figure:"),
        code("b", "2"),
        text("Three."),
        code("c"),
    ]
    assert list(find_answers(cells)) == [1, 2, 3, 4]
    cells[1] = code("a")  # nothing shown yet: what comes shows it
    cells[2] = text("Both at once.")
    assert list(find_answers(cells)) == [2, 3, 4]


def test_the_last_paragraph_of_an_explanation_leads_on_and_stays_open():
    assert explanation("Two.\n\nBecause.\n\nNow a *view*:") == ("Two.\n\nBecause.", "Now a *view*:")
    for whole in ("Two.", "Two:\n\n- one\n- two", "Two:\n\n$$a + b$$", "Two:\n\n| a | b |", "```\na\n\nb\n```"):
        assert explanation(whole) == (whole, "")


@pytest.mark.parametrize("new", ["## 2 · What now?", "### More", "**05.1** ★ Return it.", "**Predict.** And now?"])
def test_what_begins_below_is_no_explanation(new):
    cells = [text("**Predict.** How many?"), code("a", "1"), text(new)]
    assert list(find_answers(cells)) == [1]
    assert explanation(f"Two.\n\n{new}\n\nMore.") == ("Two.", f"{new}\n\nMore.")


def test_a_question_inside_another_ones_answer_stays_open():
    cells = [text("**Predict.** How many?"), code(ASK, "asked"), code('reveal("05.race", "0")', "no")]
    assert find_answers(cells) == {2: Answer("")}


def test_a_question_without_code_hides_nothing():
    assert find_answers([text("**Predict.** How many?"), text("Two."), code("a", "1")]) == {}


# ---------------------------------------------------------------------------------------------------------------
# What the page shows


def test_neighbors_that_answer_one_question_open_together():
    nb, _ = made(
        text("**Predict.** How many?"), code("a", "1"), code("b", "2"), text("Three.\n\n## Next"), code("c", "3")
    )
    opens = '<details class="answer"><summary>The answer</summary>'
    shown = ["**Predict.** How many?", "a", opens, "1", "</details>", "b", opens, "2", "Three.", "</details>"]
    assert parts(nb) == [*shown, "## Next", "c", "3"]


def test_an_answer_knows_its_question():
    asks = code(ASK)
    asks.outputs = [v4.new_output("display_data", {"text/html": STORED})]
    nb, _ = made(asks, code('reveal("05.race", "4")', "four"))
    asked, _, opens, *_ = parts(nb)
    assert opens == '<details class="answer" data-key="05.race"><summary>The answer</summary>'
    assert asked.startswith('<div class="predict" data-key="05.race"><p><b>Predict.</b> Is <code>x</code> …</p>')
    assert re.findall("<li>(.*?)</li>", asked) == ["4", "an error"]


def test_the_switch_stands_where_there_are_answers():
    head = text("# Do it\n\n[![Open in Colab](https://x/y.svg)](https://x) more\n\nYou will.", id="title")
    assert "show-answers" not in "".join(parts(made(head)[0]))
    nb, _ = page(
        v4.new_notebook(cells=[head, text("**Bet.** Is it?"), code("a", "1")]),
        links='<p class="launch">L</p>',
        exercises={},
        explorer=None,
    )
    assert parts(nb)[0] == '# Do it\n\n<p class="launch">L</p>\n\nYou will.'
    assert "show-answers" in parts(nb)[1]


def test_folded_code_has_its_title_as_summary_and_keeps_its_header():
    cell = code("%%requires cuda --name x\n# @title The <data>\nx = 1", "out", metadata={"tags": ["fold"]})
    nb, _ = made(cell)
    summary = '<details class="code"><summary>The &lt;data&gt;</summary>'
    assert parts(nb) == [summary, "%%requires cuda --name x\nx = 1", "</details>", "out"]


def test_hints_and_solution_stand_below_the_stub():
    exercise = Exercise("05.1", "T", "f", 1, None, ["Look at <x>.", "x + 1"], "\ndef f(x):\n    return x + 1\n", "")
    stub = code('def f(x):\n    return ...\n\n\ncheck("05.1", f)', "○", metadata={"tags": ["exercise"]})
    nb, _ = made(stub, exercises={"05.1": exercise})
    assert parts(nb)[2:] == [
        '<details class="hint"><summary>Hint 1</summary><p>Look at &lt;x&gt;.</p></details>',
        '<details class="hint"><summary>Hint 2</summary><p>x + 1</p></details>',
        '<details class="solution"><summary>Solution</summary>',
        "def f(x):\n    return x + 1",
        "</details>",
    ]


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 720, 380) + b"rest"


def test_a_picture_becomes_a_file_with_its_alternative_and_size():
    cell = code("plots.show(fig)")
    data = {"image/png": base64.b64encode(PNG).decode(), "text/plain": "a > b"}
    cell.outputs = [v4.new_output("display_data", data, metadata={"image/png": {"alt": "a > b"}})]
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="720" height="400"/>'
    diagram = code('plots.diagram("x")')
    drawn = {"image/svg+xml": svg, "text/html": "<img>", "text/plain": "D."}
    diagram.outputs = [v4.new_output("display_data", drawn)]
    nb, pictures = made(cell, diagram)
    (png, one), (drawing, two) = pictures.items()
    assert (one, two) == (PNG, svg.encode()) and png.endswith(".png") and drawing.endswith(".svg")
    size = 'width="720" height="380" loading="lazy"'
    assert parts(nb)[1] == f'<img src="../_static/pictures/{png}" alt="a &gt; b" {size}>'
    assert parts(nb)[3] == f'<img src="../_static/pictures/{drawing}" alt="D." {size.replace("380", "400")}>'


def test_an_explorer_takes_the_place_of_its_picture():
    cell = code("plots.explorer(draw, n=slider)", "picture")
    assert parts(made(cell, explorer="<div>sliders</div>")[0]) == [
        "plots.explorer(draw, n=slider)",
        "<div>sliders</div>",
    ]
    assert parts(made(cell)[0])[1:] == ["picture", '<p class="note quiet">Sliders need a running notebook.</p>']


def test_styles_of_notes_become_classes():
    note = f'<div style="{messages.QUIET}"><b style="{messages.FRAME}">LIVE</b> here</div>'
    assert lesson_pages.classes(note) == '<div class="note quiet"><b class="badge">LIVE</b> here</div>'


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem[:2])
def test_nothing_of_a_lesson_is_lost(path):
    nb, number = nbformat.read(path, as_version=4), path.name[:2]
    shown, pictures = page(nb, links="", exercises=lesson_exercises(number), explorer="<div>E</div>")
    outputs = [
        output
        for cell in nb.cells
        if cell.cell_type == "code"
        and "plots.explorer(" not in cell.source
        and not lesson_pages.ASKS.search(cell.source)
        for output in cell.outputs
    ]
    assert sum(len(cell.get("outputs", [])) for cell in shown.cells) == len(outputs)
    drawn = {data for output in outputs for kind, data in output.get("data", {}).items() if kind.startswith("image/")}
    assert len(pictures) == len(drawn)
    sources = "\n".join(cell.source for cell in shown.cells)
    for cell in nb.cells:
        for line in cell.source.splitlines():
            known = line in sources or line.startswith(("# @title", "[![Open in Colab]"))
            assert known or lesson_pages.ASKS.search(cell.source), line
        if cell.id != "title":
            assert f'<span class="cell" id="{cell.id}"></span>' in sources
    asked, answered = (set(re.findall(rf'class="{name}" data-key="(.+?)"', sources)) for name in ("predict", "answer"))
    assert asked == answered
    assert sources.count('<details class="solution">') == len(lesson_exercises(number))


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem[:2])
def test_what_is_folded_holds_no_heading_and_ends(path):
    shown, _ = page(
        nbformat.read(path, as_version=4), links="", exercises=lesson_exercises(path.name[:2]), explorer="<div>E</div>"
    )
    depth = 0
    for cell in shown.cells:
        if cell.cell_type == "raw":
            depth += cell.source.count("<details") - cell.source.count("</details>")
            assert depth in (0, 1)
        elif depth and cell.cell_type == "markdown":
            assert not re.search("^#+ ", cell.source, re.M), "a section would begin inside, and end outside"
    assert depth == 0


# ---------------------------------------------------------------------------------------------------------------
# The other pages


def test_links_to_what_the_site_lacks_lead_to_the_repository():
    repository = website.address()
    for link, becomes in {
        "02_tensors_on_devices.ipynb#recipe": "02_tensors_on_devices.ipynb#recipe",
        "../docs/glossary.md#host": "../docs/glossary.md#host",
        "scripts/train.py": f"{repository}/blob/main/notebooks/scripts/train.py",
        "../README.md#where-it-runs": f"{repository}/blob/main/README.md#where-it-runs",
        "exercises": f"{repository}/tree/main/notebooks/exercises",
        "https://pytorch.org/x#y": "https://pytorch.org/x#y",
        "nowhere.md": "nowhere.md",
    }.items():
        assert website.repository_links(f"See [it]({link}).", "notebooks") == f"See [it]({becomes})."


def test_a_lesson_can_be_launched_and_taken_away():
    path = lessons()[5]
    line = website.launch_line(path, single=True)
    for place in (
        "colab.research.google.com/github/",
        "kaggle.com/",
        "mybinder.org/",
        f'"../single/{path.name}" download',
    ):
        assert place in line
    assert "<img" not in line and "single" not in website.launch_line(path, single=False)


def test_the_start_page_has_all_lessons_and_the_tables_of_the_readme():
    start = website.start_page("<div>E</div>")
    assert list(website.names()) == [path.stem for path in lessons()]
    assert "05 · Streams <notebooks/05_streams>" in start
    assert (
        "| 05 | [Streams](notebooks/05_streams.ipynb) |" in start and "| [Everyday](docs/paths.md#everyday) |" in start
    )
    assert "<div>E</div>" in start and not re.search("^<!-- .* -->$", start, re.M)


def test_a_folder_that_is_no_site_is_not_replaced(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(SystemExit, match="not replaced"):
        website.build(tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_sphinx_links_to_cells_and_headings_and_writes_math_itself(tmp_path):
    """A site of two pages, with the configuration of the real one."""
    source = tmp_path / "a site"
    shutil.copytree(website.ROOT / "docs" / "_static", source / "_static")
    shutil.copy(website.ROOT / "docs" / "conf.py", source)
    links = "[cell](b.ipynb#the-cell) [heading](b.ipynb#2--why) [same](b.ipynb#recipe)"
    (source / "index.md").write_text(f"# Start\n\n{links}\n\n```{{toctree}}\n:hidden:\nb\n```\n", encoding="utf-8")
    cells = [text("# Page", id="title"), code("%%requires cuda\nif x: y", "shown", id="the-cell")]
    cells += [text("## 2 · Why\n\n**Bet.** $2 or $3? Is $n^2$ $$\\frac{a}{b}$$", id="why"), code("z", "hidden", id="z")]
    cells += [text("## Recipe", id="recipe")]
    nbformat.write(made(*cells)[0], source / "b.ipynb")
    options = ["-q", "-W", "--keep-going", str(source), str(tmp_path / "out")]
    assert sphinx.cmd.build.main(options) == 0
    index, shown = ((tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("index.html", "b.html"))
    for target in re.findall(r'href="b.html#([^"]+)"', index):
        assert f'id="{target}"' in shown
    assert index.count('href="b.html#') == 3 and shown.count('id="recipe"') == 1
    assert shown.count("<math") == 2 and "$2 or $3" in shown and "mathjax" not in shown.lower()
    assert '<span class="k">if</span>' in shown and '<span class="cp">%%requires cuda</span>' in shown
    folded = re.search(r'<details class="answer">(.*?)</details>', shown, re.S)[1]
    assert "hidden" in folded and "shown" not in html.unescape(re.sub("<.*?>", "", folded))
