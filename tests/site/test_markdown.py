"""The pages as Markdown, for programs."""

import nbformat
import pytest

from course.exercises import lesson_exercises
from tools.lessons.notebooks import lessons
from tools.site import markdown, pages

SITE = "https://a.b/c"


@pytest.fixture
def made(tmp_path):
    """made({file name: text}): the pages that are made of them."""

    def made(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        return markdown.pages(tmp_path, SITE)

    return made


def test_what_myst_alone_reads_is_no_longer_there(made):
    text = """\
---
tocdepth: 1
---

# Page

(kept)=

## A

(dropped)=

Press <kbd>a</kbd>, as `<kbd>` says. [x](#kept), [y](b.ipynb#c), [z](https://d.e/f.html),
[own](https://a.b/c/docs/page.html#kept), [lacks](g.html).

```{code-block} text
:class: message

(kept)=
```

```{raw} html
<details><summary>As <b>cells</b> got it</summary>
```

```lesson
x = "](b.ipynb)"
```
"""
    cells = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# B\n\nb")])
    files = {"docs/page.md": text, "docs/b.ipynb": nbformat.writes(cells)}
    assert (
        made(files)["docs/page"]
        == """\
# Page

(kept)=

## A

Press `a`, as `<kbd>` says. [x](#kept), [y](b.md#c), [z](https://d.e/f.html),
[own](https://a.b/c/docs/page.md#kept), [lacks](g.html).

```text
(kept)=
```

*Folded: As **cells** got it*

```python
x = "](b.ipynb)"
```
"""
    )


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem[:2])
def test_all_code_and_all_that_was_printed_is_in_the_page(path):
    nb = nbformat.read(path, 4)
    exercises = lesson_exercises(path.name[:2])
    page, _ = pages.page(nb, links="", exercises=exercises, explorer=None)
    text = markdown.from_cells(page)
    code = [x.source for x in page.cells if x.cell_type == "code" and x.source != "..."]
    assert code and all(f"\n{each}\n```" in text for each in code)
    claims = [
        output.data["text/plain"]
        for cell in nb.cells
        for output in cell.get("outputs", [])
        if output.get("metadata", {}).get("device_lab", {}).get("state") == "claim"
    ]
    words = "".join(text.split())
    assert all(
        "".join(claim.replace("`", "").split()) in words.replace("`", "")
        for claim in claims
    )
    assert "<details" not in text and "base64" not in text


def test_llms_txt_names_each_page_and_a_page_that_it_lacks_stops_the_build(tmp_path):
    made = {
        "a": "# A\n\nOf *x*. And y.\n",
        "b": "# B\n\n```\ncode.\n```\n\nOf [c](d): e.\n",
    }
    markdown.write(made, "# S\n", tmp_path, SITE, {"All": ["b", "a"]}, {"a": "How?"})
    lines = (tmp_path / "llms.txt").read_text(encoding="utf-8").split("\n")
    assert lines[2:-1] == [
        "## All",
        "",
        f"- [B]({SITE}/b.md): Of c: e.",
        f"- [A]({SITE}/a.md): How?",
    ]
    with pytest.raises(ValueError, match="not in llms.txt: b"):
        markdown.write(made, "", tmp_path, SITE, {"All": ["a"]}, {})
