"""README.md, docs/ and the pages for contributors: their links lead somewhere, and the
sections that paths name exist. `tools/lessons/notebooks.py check` without a FILE calls
this.
"""

from tools.lessons import paths
from tools.lessons.links import broken_links, read


def contributing(root):
    """Paths of the pages for contributors, besides CONTRIBUTING.md."""
    return sorted((root / "docs" / "contributing").glob("*.md"))


def pages(root):
    """Paths of all pages; docs/index.md is a template, filled by tools/site/."""
    docs = sorted((root / "docs").glob("*.md"))
    above = [root / "README.md", root / "CONTRIBUTING.md"]
    return [*above, *docs, *contributing(root)]


def problems(root):
    """What is wrong with the pages, as lines of text."""
    for page in pages(root):
        if page != root / "docs" / "index.md":
            for problem in broken_links(read(page), page.parent):
                yield f"{page.relative_to(root).as_posix()}: {problem}"
    yield from paths.problems(root)
