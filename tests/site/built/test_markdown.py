"""The built site for programs: llms.txt, the skill, and the pages as Markdown."""

import re

from tests.site.built.conftest import SITE
from tools.lessons.links import LINK, read
from tools.lessons.notebooks import address
from tools.site.markdown import FENCE, outside

PAGES = sorted(SITE.rglob("*.md"))
ALTERNATE = '<link rel="alternate" type="text/markdown" href="{}">'


def letters(text):
    return re.sub(r"[\W_]", "", text.lower())


def test_llms_txt_names_each_page_and_the_skill_once():
    named = re.findall(r"\]\((.+?)\)", read(SITE / "llms.txt"))
    there = [f"{address('Site')}/{p.relative_to(SITE).as_posix()}" for p in PAGES]
    assert sorted(named) == sorted(there)


def test_each_page_says_where_its_markdown_is():
    pages = [page for page in PAGES if "skills" not in page.parts]
    assert len(pages) > 50
    for page in pages:
        assert ALTERNATE.format(page.name) in read(page.with_suffix(".html")), page


def test_links_lead_to_files_and_names_to_a_target_or_a_heading():
    # a name: of a target, of a heading
    names = {
        page: set(re.findall(r"^\((.+)\)=$", read(page), re.M))
        | set(map(letters, re.findall(r"^#+ (.+)", FENCE.sub("", read(page)), re.M)))
        for page in PAGES
    }
    wrong = []
    for page in PAGES:
        found = []
        outside(
            read(page),
            lambda part, found=found: found.extend(LINK.findall(part)) or part,
        )
        for target, name in found:
            there = (page.parent / target).resolve() if target else page
            known = names.get(there)
            if not there.exists() or (
                name and known is not None and not {name, letters(name)} & known
            ):
                wrong.append(f"{page.relative_to(SITE)}: {target}#{name}")
    assert not wrong
