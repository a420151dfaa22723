"""What make site makes of lessons: answers and solutions behind a click, pictures as
files, links, the start page.
"""

import base64
import html
import re
import shutil
import struct
from urllib.parse import urlparse

import nbformat
import pytest
import sphinx.cmd.build
from nbformat import v4

from course.exercises import lesson_exercises
from tools.lessons.notebooks import lessons
from tools.lessons.questions import ASKS as ASKING
from tools.site import website
from tools.site.pages import joined, page

ASK = 'predict("05.race", "The sum is", "4", "0")'
ASKS = {"key": "05.race", "question": "Is `x` …", "options": ["4", "an <error>"]}


def text(source, **more):
    return v4.new_markdown_cell(source, **more)


def code(source, *outputs, **more):
    """A code cell that shows these texts."""
    outputs = [v4.new_output("stream", text=output) for output in outputs]
    return v4.new_code_cell(source, outputs=outputs, **more)


def made(*cells, links="", explorer=None, exercises=None):
    """The page of a lesson with these cells, and its pictures."""
    nb = v4.new_notebook(cells=list(cells))
    return page(nb, links=links, exercises=exercises, explorer=explorer)


def parts(nb):
    """What a page shows, from top to bottom, without the targets of links: a word or
    the first line a cell.
    """
    shown = []
    for cell in nb.cells:
        if "remove-input" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                shown.append(output.get("text") or output.data["text/html"])
        elif not cell.source.startswith('<span class="cell"'):
            shown.append(cell.source)
    return shown


# --------------------------------------------------------------------------------------
# What the page shows


OPENS = '<details class="answer" data-key="#0"><summary>The answer</summary>'
ENDS = "</details>"


def test_an_answer_knows_its_question():
    asks, reveals = code(ASK), code('reveal("05.race", "4")', "four")
    says = {"key": "05.race", "answer": "4", "said": {"4": "Right.", "5": "No."}}
    for cell, name, fact in ((asks, "asked", ASKS), (reveals, "revealed", says)):
        data = {"device_lab": {"state": name, name: fact}}
        shown = {"text/plain": name}
        cell.outputs += [v4.new_output("display_data", shown, metadata=data)]
    nb, _ = made(asks, reveals)
    asked, _, opens, *_ = parts(nb)
    assert opens == OPENS.replace("#0", "05.race")
    begins = '<div class="predict" data-key="05.race"><p><b>Predict.</b> '
    assert asked.startswith(f"{begins}Is <code>x</code> …</p>")
    listed = '<ul><li data-said="Right.">4</li><li>an &lt;error&gt;</li></ul>'
    assert asked.endswith(f"{listed}</div>")


def test_what_is_to_be_predicted_stands_above_the_question():
    data = {"device_lab": {"state": "asked", "asked": ASKS}}
    shown = {"text/plain": "asked"}
    source = 'x = 4  # is it?\nwords = "4", "0"\nf(\n    x,\n)\nquestion = "Is"\n' + ASK
    cell = code(source)
    cell.outputs = [v4.new_output("display_data", shown, metadata=data)]
    first, asked = parts(made(cell)[0])
    assert first == "x = 4  # is it?\nf(\n    x,\n)"
    assert asked.startswith('<div class="predict"')


def test_the_switch_stands_where_there_are_answers():
    badges = "[![Open in Colab](https://x/y.svg)](https://x) more"
    head = text(f"# Do it\n\n{badges}\n\nYou will.", id="title")
    assert "show-answers" not in "".join(parts(made(head)[0]))
    nb, _ = made(
        head, text("**Predict.** How?"), code("a", "1"), links='<p class="launch">L</p>'
    )
    assert parts(nb)[0] == '# Do it\n\n<p class="launch">L</p>\n\nYou will.'
    assert "show-answers" in parts(nb)[1]


def test_folded_code_has_its_title_as_summary_and_keeps_its_header():
    source = "#| requires: cuda\n#| name: x\n# @title The <data>\nx = 1"
    nb, _ = made(code(source, "out", metadata={"tags": ["fold"]}))
    summary = '<details class="code"><summary>The &lt;data&gt;</summary>'
    kept = "#| requires: cuda\n#| name: x\nx = 1"
    assert parts(nb) == [summary, kept, ENDS, "out"]
    row = "#| requires: cuda\n#| name: x\n%%today amp/x: fine\n1\n# ---- today\n1"
    shown = parts(made(code(row, "out", metadata={"tags": ["fold"]}))[0])
    assert shown[:2] == [summary.replace("The &lt;data&gt;", "amp/x"), row]


PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 720, 380) + b"rest"


def test_a_picture_becomes_a_file_with_its_alternative_and_size():
    cell, diagram = code("plots.show(fig)"), code('plots.diagram("x")')
    data = {"image/png": base64.b64encode(PNG).decode(), "text/plain": "a > b"}
    more = {"image/png": {"alt": "a > b"}}
    cell.outputs = [v4.new_output("display_data", data, metadata=more)]
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="720" height="400"/>'
    drawn = {"image/svg+xml": svg, "text/html": "<img>", "text/plain": "D."}
    diagram.outputs = [v4.new_output("display_data", drawn)]
    nb, pictures = made(cell, diagram)
    assert list(pictures.values()) == [PNG, svg.encode()]
    png, drawing = pictures
    assert png.endswith(".png") and drawing.endswith(".svg")
    image = (
        '<img src="../_static/pictures/{}" alt="{}" width="720" height="{}"'
        ' loading="lazy">'
    )
    assert parts(nb)[1] == image.format(png, "a &gt; b", 380)
    assert parts(nb)[3] == image.format(drawing, "D.", 400)


def test_an_explorer_takes_the_place_of_its_picture():
    cell = code("plots.explorer(draw, n=slider)", "picture")
    there = made(cell, explorer="<div>sliders</div>")[0]
    assert parts(there)[1:] == ["<div>sliders</div>"]


def test_without_an_explorer_a_note_says_where_it_works():
    cell = code("plots.explorer(draw, n=slider)")
    note = (
        '<p class="note quiet">This figure shows what your machine measures: its'
        " sliders move where you run the lesson (links at the top).</p>"
    )
    cell.outputs = [
        v4.new_output(
            "display_data",
            {"image/png": base64.b64encode(PNG).decode()},
            metadata={"image/png": {"alt": "a"}},
        )
    ]
    assert parts(made(cell)[0])[-1] == note
    field = code("plots.explorer(table, text=area)", "a field")
    assert "The field works where you run the lesson" in parts(made(field)[0])[-1]


@pytest.fixture(params=lessons(), ids=lambda path: path.stem[:2], scope="module")
def lesson(request):
    """A lesson, its page, its pictures, and its exercises."""
    nb = nbformat.read(request.param, as_version=4)
    exercises = lesson_exercises(request.param.name[:2])
    made = page(nb, links="", exercises=exercises, explorer="<div>E</div>")
    return nb, *made, exercises


def text_of(outputs):
    """All that the outputs printed, in order."""
    return "".join(each.text for each in outputs if each.output_type == "stream")


def test_nothing_of_a_lesson_is_lost(lesson):
    nb, shown, pictures, exercises = lesson
    sources = "\n".join(cell.source for cell in shown.cells)
    moved = "# @title", "[![Open in Colab]"
    outputs, printed = [], ""
    for cell in nb.cells:
        if cell.id != "title":
            assert f'<span class="cell" id="{cell.id}"></span>' in sources
        if ASKING.search(cell.source):
            continue
        for line in cell.source.splitlines():
            assert line in sources or line.startswith(moved), line
        if "plots.explorer(" not in cell.source:
            outputs += joined(cell.get("outputs", []))
            printed += text_of(cell.get("outputs", []))
    on_page = [each for cell in shown.cells for each in cell.get("outputs", [])]
    assert len(on_page) == len(outputs)
    assert text_of(on_page) == printed
    drawn = {
        data
        for output in outputs
        for kind, data in output.get("data", {}).items()
        if kind.startswith("image/")
    }
    assert len(pictures) == len(drawn)
    asked = re.findall(r'class="predict" data-key="(.+?)"', sources)
    answered = re.findall(r'class="answer" data-key="([^#].*?)"', sources)
    assert set(asked) == set(answered)
    assert sources.count('<details class="solution">') == len(exercises)


def test_what_is_folded_holds_no_heading_and_ends(lesson):
    depth = 0
    for cell in lesson[1].cells:
        if cell.cell_type == "raw":
            depth += cell.source.count("<details") - cell.source.count("</details>")
            assert depth in (0, 1)
        elif depth and cell.cell_type == "markdown":
            # a section would begin inside, and end outside
            assert not re.search("^#+ ", cell.source, re.M)
    assert depth == 0


# --------------------------------------------------------------------------------------
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
        text = website.repository_links(f"See [it]({link}).", "notebooks")
        assert text == f"See [it]({becomes})."


def test_a_lesson_can_be_launched():
    line = website.launch_line(lessons()[5])
    for place in ("colab.research.google.com/github/", "kaggle.com/"):
        assert place in line
    assert "<img" not in line


def test_steps_of_a_path_lead_to_their_cells():
    step = (
        "- [02 · Tensors on devices](../notebooks/02_tensors_on_devices.ipynb): 9 min"
    )
    page = website.link_steps(
        f"{step}\n  - 4 · Which lines wait?\n  - exercise 02.1\n\nText"
    )
    cells = {
        cell.id: cell.source for cell in nbformat.read(lessons()[2], as_version=4).cells
    }
    found = re.findall(r"\[(.+?)\]\(\.\./notebooks/02\S+?#(.+?)\)", page)
    assert [name for name, _ in found] == ["4 · Which lines wait?", "02.1"]
    for name, cell in found:
        assert name in cells[cell]
    assert page.endswith("\n\nText")


def test_the_start_page_has_all_lessons_and_the_tables_of_the_readme():
    start = website.start_page("<div>E</div>")
    assert list(website.names()) == [path.stem for path in lessons()]
    assert all(name[:2] == stem[:2] for stem, name in website.names().items())
    listed = re.findall(r"^notebooks/(\S+)$", start, re.M)
    assert listed == [path.stem for path in lessons()]  # in the groups of the menu
    assert "| 05 | [Streams](notebooks/05_streams.ipynb) |" in start
    assert "| [Everyday](docs/paths.md#everyday) |" in start
    assert "<div>E</div>" in start and not re.search("^<!-- .* -->$", start, re.M)


def test_a_folder_that_is_no_site_is_not_replaced(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(SystemExit, match="not replaced"):
        website.build(tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_a_lesson_of_rows_lists_its_sections_only():
    """The contents beside the page; as it is, lesson 16 alone has so many headings."""
    rows = [text(f"### row {n}") for n in range(51)]
    assert "tocdepth" not in made(text("# Title"), *rows[:50])[0].metadata
    assert made(text("# Title"), *rows)[0].metadata["tocdepth"] == 2


def test_sphinx_links_to_cells_and_headings_and_writes_math_itself(tmp_path):
    """A site of two pages, with the configuration of the real one."""
    source = tmp_path / "a site"
    for name in ("_static", "_templates"):
        shutil.copytree(website.ROOT / "docs" / name, source / name)
    shutil.copy(website.ROOT / "docs" / "conf.py", source)
    links = "[cell](b.ipynb#the-cell) [heading](b.ipynb#2--why) [same](b.ipynb#recipe)"
    links += " [long](b.ipynb#3--long-12-minutes)"
    (source / "index.md").write_text(
        f"# Start\n\n{links}\n\n```{{toctree}}\n:hidden:\nb\n```\n", encoding="utf-8"
    )
    cells = [
        text("# Page", id="title"),
        code("#| requires: cuda\nif x: y", "shown", id="the-cell"),
        text("## 2 · Why\n\n**Bet.** $2 or $3? Is $n^2$ $$\\frac{a}{b}$$", id="why"),
        code("z", "hidden", id="z"),
        text("## Recipe", id="recipe"),
        text("## 3 · Long? (12 minutes)", id="long"),
        *[text(f"### row {n}") for n in range(51)],
    ]
    nbformat.write(made(*cells)[0], source / "b.ipynb")
    options = ["-q", "-W", "--keep-going", str(source), str(tmp_path / "out")]
    assert sphinx.cmd.build.main(options) == 0
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    shown = (tmp_path / "out" / "b.html").read_text(encoding="utf-8")
    for target in re.findall(r'href="b.html#([^"]+)"', index):
        assert f'id="{target}"' in shown
    assert 'href="b.html#long"' in index and "12-minutes" not in index
    beside = re.search(r'<div class="toc-tree">(.*?)</div>', shown, re.S)[1]
    assert "Recipe" in beside and "row 1" in shown and "row 1" not in beside
    # what the extensions for 404, sitemap and descriptions write
    site = website.address("Site")
    missing = (tmp_path / "out" / "404.html").read_text(encoding="utf-8")
    assert "There is no such page" in missing
    assert f'href="{urlparse(site).path}/_static/' in missing
    sitemap = (tmp_path / "out" / "sitemap.xml").read_text(encoding="utf-8")
    assert f"<loc>{site}/b.html</loc>" in sitemap
    assert '<meta name="description"' in shown
    assert index.count('href="b.html#') == 4 and shown.count('id="recipe"') == 1
    assert shown.count("<math") == 2 and "mathjax" not in shown.lower()
    assert "$2 or $3" in shown
    assert '<span class="k">if</span>' in shown
    assert '<span class="cp">#| requires: cuda</span>' in shown
    folded = re.search(r'<details class="answer" .*?>(.*?)</details>', shown, re.S)[1]
    words = html.unescape(re.sub("<.*?>", "", folded))
    assert "hidden" in words and "shown" not in words
