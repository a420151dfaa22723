"""What the search page knows of Chinese words: where a term or a topic is explained.
docs/_static/search.js reads it.
"""

import json
import re

from docutils.nodes import make_id

from tools.lessons.glossary import TERM, chinese_names
from tools.lessons.links import anchors
from tools.site.lookup import TITLES

# of the guide's table of topics (that of lessons has numbers): topic, other words for
# it, links
TOPIC = re.compile(r"^\| (?!\d\d )([^|\n]+) \| ([^|\n]+) \| (.*\]\([^)]*#.*) \|$", re.M)
LINK = re.compile(r"\[([^]]+)\]\((?:\.\./notebooks/(.+?)\.ipynb)?#([^)]+)\)")


def script(glossary, guide, notebooks, names):
    """The line of the script _static/lookup.js that holds `terms`."""
    found = terms(glossary, guide, notebooks, names)
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return f"deviceLab.terms = {text};\n"


def terms(glossary, guide, notebooks, names):
    """[its words, its title, page, name of the page, anchor, section] of each term of
    the glossary, twice: its entry, and where its lesson takes it up; and of each link
    in the guide's table of topics.

    glossary, guide: texts of docs/glossary.md and docs/zh.md. notebooks: {stem:
    notebook}. names: {stem: name of the lesson on the site}.
    """
    return [*_entries(glossary, notebooks, names), *_topics(guide, names)]


def _entries(glossary, notebooks, names):
    stems = {stem[:2]: stem for stem in notebooks}
    for term, chinese, number in TERM.findall(glossary):
        (anchor,), stem = anchors(f"# {term}"), stems[number]
        words = chinese_names(chinese)
        place = _taken_up(notebooks[stem], f"../docs/glossary.md#{anchor})")
        # the address is Sphinx's: #torch-xla
        entry = ["docs/glossary", _title(glossary), make_id(term), term]
        for where in (entry, [f"notebooks/{stem}", names[stem], *place]):
            yield ["、".join(words), words[0], *where]


def _taken_up(nb, link):
    """The first cell of a lesson with this link, and the heading that it stands under;
    the lesson's title where there is none.
    """
    section = ""
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            above, found, _ = cell.source.partition(link)
            section = [section, *TITLES.findall(above)][-1]
            if found:
                return cell.id, section
    return "title", ""


def _topics(guide, names):
    headings = re.findall(r"^#+ (.*)$", guide, re.M)
    ids = dict(zip(anchors(guide), map(make_id, headings), strict=True))
    for topic, others, links in TOPIC.findall(guide):
        for label, stem, anchor in LINK.findall(links):
            if stem:
                where = [f"notebooks/{stem}", names[stem], anchor]
            else:
                where = ["docs/zh", _title(guide), ids[anchor]]
            # without backticks, and the number of the lesson
            section = re.sub(r"`|（\d\d）$", "", label)
            yield [f"{topic}、{others}", topic, *where, section]


def _title(text):
    return re.search(r"^# (.+)$", text, re.M)[1]
