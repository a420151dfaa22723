"""What the search page knows beside Sphinx's index: where a message is mended, what the
index of names says, which lessons say most about another word of code, such as
`torchrun`, and where a task is done. docs/_static/search.js reads it.
"""

import html
import json
import re
from collections import Counter

from docutils.nodes import make_id

from lookup.elsewhere import MESSAGES
from lookup.row import PATTERNS
from lookup.wordings import GENERAL, WORDINGS
from tools.site import recipes
from tools.site.api import CODE, HEADING, TITLES, row_of
from tools.site.asked import asked
from tools.site.errors import of_row
from tools.site.names import ALIASES

MOST = 3  # lessons that a name leads to
LEAST = 2  # times that a lesson says it
# no name of the index: torch.cuda.memory._record_memory_history
PRIVATE = re.compile(r"\btorch(?:\.[a-z]\w*)+\.(_\w+)")
LINES = 6  # of code that a result shows
UNESCAPED = re.compile(r"\\([\\`*_{}\[\]<>|$~^#&])")
IMPORT = re.compile(r"import |from \w")
NAME = re.compile(r"[A-Za-z_]\w{3,}")


def lookup(notebooks, names, grouped, index, answers):
    """The text of the script _static/lookup.js.

    notebooks: {stem: notebook}. names: {stem: name of the lesson on the site}. grouped:
    entries of the page of errors. index: those of the index of names. answers: the
    text of the page of quick answers.
    """
    headings = headed(notebooks)
    content = {
        "messages": [
            *messages(names, grouped, headings),
            *elsewhere(notebooks, names),
            *rows(names, grouped, notebooks, headings),
        ],
        "api": api(names, index),
        "aliases": {short: name for short, name in ALIASES.items() if short != name},
        "names": places(notebooks, names, {entry.last for entry in index.values()}),
        "tasks": tasks(notebooks, names, answers),
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f"window.deviceLab = window.deviceLab || {{}};\ndeviceLab.lookup = {text};\n"


def old(title):
    """How a result calls a row of lesson 16, whose title is a message or a habit."""
    return f"old code: {title}"


def headed(notebooks):
    """(stem, id of a cell) → id and heading of the cell whose heading it is below."""
    found = {}
    for stem, nb in notebooks.items():
        heading = nb.cells[0].id, ""
        for cell in nb.cells:
            title = cell.cell_type == "markdown" and TITLES.search(cell.source)
            if title:
                heading = cell.id, title[1]
            found[stem, cell.id] = heading
    return found


def messages(names, grouped, headings):
    """[its words, its title, its entry on the page of errors, where it is mended,
    regular expressions of other wordings, why and what to do, expressions that are of
    this message alone] of each; entry and place as [page, name of the page, anchor,
    section]. headings: as `headed` returns them.
    """
    found = []
    for entry in (entry for group in grouped.values() for entry in group):
        place = entry.places[0]
        stem, anchor = place.lesson.stem, place.id
        section = place.lesson.sections[anchor]
        if place.row:
            anchor, title = headings[stem, anchor]
            section = old(title)
        words = " ".join(message.words for message in entry.messages)
        if entry.cure:
            words += f" {entry.cure.text}"
        title = entry.title.removesuffix(" …")
        lesson = [f"notebooks/{stem}", names[stem], anchor, section]
        index = ["docs/errors", "Errors and warnings", entry.anchor, entry.title]
        # where a Cure speaks, its words are of this message, not of all of a row
        known = [place.row for place in entry.places if place.row and not entry.cure]
        wordings = [each for row in known for each in worded(row)]
        own = [each for row in known for each in alone(row)]
        found.append([words, title, index, lesson, [*dict.fromkeys(wordings)]])
        found[-1] += [shown(*entry.answer), [*dict.fromkeys(own)]]
    return found


def shown(text, source=""):
    """A text in Markdown and the first lines of code, as HTML for a result."""
    text = html.escape(UNESCAPED.sub(r"\1", text).replace("**", ""), quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    lines = [line for line in source.split("\n") if line and not IMPORT.match(line)]
    code = html.escape("\n".join(lines[:LINES]), quote=False)
    return f"{text} <code>{code}</code>" if code else text


def worded(row):
    """Regular expressions of the messages that lead to a row of lesson 16."""
    general = [pattern for pattern, slug in GENERAL.items() if slug == row.slug]
    many = PATTERNS.values()  # what many rows announce
    return [each for each in row.patterns() if each not in many] + general


def alone(row):
    """Those of messages that are of this row and of no other."""
    return [pattern for pattern, slug, _ in WORDINGS if slug == row.slug]


def rows(names, grouped, notebooks, headings):
    """The same of the rows of lesson 16 that the page of errors does not speak for."""
    entries = [entry for group in grouped.values() for entry in group]
    entries = [entry for entry in entries if not entry.cure]
    places = [place for entry in entries for place in entry.places]
    known = {place.row.slug for place in places if place.row}
    cells = [(stem, cell) for stem, nb in notebooks.items() for cell in nb.cells]
    found = []
    for stem, cell in cells:
        row = row_of(cell)
        if row and row.slug not in known and worded(row) + alone(row):
            anchor, title = headings[stem, cell.id]
            place = [f"notebooks/{stem}", names[stem], anchor, old(title)]
            answer = shown(*of_row(row))
            found.append(["", "", None, place, worded(row), answer, alone(row)])
    return found


def elsewhere(notebooks, names):
    """The same of messages that no row of lesson 16 is about."""
    found = []
    for pattern, where, what in MESSAGES:
        number, id = where.split() if where else ("16", "title")
        stem = next(stem for stem in notebooks if stem.startswith(number))
        if not pattern.startswith("(?"):  # flags, which JavaScript writes elsewhere
            place = [f"notebooks/{stem}", names[stem], id, ""]
            found.append(["", "", None, place, [], shown(what), [pattern]])
    return found


def api(names, index):
    """[name, anchor, places to go to, its use] of each entry of the index of names, the
    one that lessons say most about first: the place that explains it, and rows of
    lesson 16.
    """
    most = sorted(index.values(), key=lambda entry: -sum(entry.texts.values()))
    found = []
    for entry in most:
        places = dict.fromkeys([entry.first, *entry.replaced, *entry.rows])
        links = [
            [
                f"notebooks/{place.stem}",
                names[place.stem],
                place.id,
                old(place.title) if place.row else place.title,
            ]
            for place in [*places][:MOST]
        ]
        found.append([entry.name, entry.anchor, links, shown(entry.answer)])
    return found


def tasks(notebooks, names, answers):
    """[its title, other words, place] of each task, recipe, section, quick answer."""
    found = [
        [
            f"{task.title} {task.words}",
            "",
            [
                f"notebooks/{task.stem}",
                names[task.stem],
                task.id,
                f"How do I {task.title}?",
            ],
        ]
        for task in asked(notebooks)
    ]
    for stem, nb in notebooks.items():
        opening, *cells = nb.cells
        verb = opening.source.split("\n")[0].removeprefix("# ")
        if parts := recipes.parts(nb):
            place = ["docs/recipes", "Recipes", f"recipe-{stem[:2]}", names[stem]]
            text = " ".join(part.source for part in parts)
            found.append([f"{verb} {names[stem]}", text, place])
        for cell in cells:
            title = cell.cell_type == "markdown" and TITLES.search(cell.source)
            if title and title[1][0].isdigit():
                place = [f"notebooks/{stem}", names[stem], cell.id, title[1]]
                found.append([title[1], verb, place])
    for part in answers.split("\n## ")[1:]:
        title, _, text = part.partition("\n")
        place = ["docs/answers", "Quick answers", make_id(title), title]
        found.append([title, text.partition("Why: ")[0], place])
    return found


def places(notebooks, names, indexed=()):
    """Of each name, in lower case, the lessons that say most about it, as [page, name
    of the lesson, id of the cell, section]. indexed: what the index of names has.
    """
    counts = {stem: said(nb) for stem, nb in notebooks.items()}
    cells = [cell for nb in notebooks.values() for cell in nb.cells]
    # what some text calls by its name in code
    called = {
        name
        for cell in cells
        if cell.cell_type == "markdown"
        for code in CODE.findall(cell.source)
        for name in NAME.findall(code)
    }
    private = {name for cell in cells for name in PRIVATE.findall(cell.source)}
    known = {name.lower() for name in called | private}
    known -= {name.lower() for name in indexed}
    # said once is enough of what can be nothing else: an environment variable, _private
    sure = private | {name for name in called if name.isupper() and "_" in name}
    sure = {name.lower() for name in sure}
    found = {}
    for name in sorted(known):
        by_lesson = {
            stem: {place: count[name] for place, count in sections.items()}
            for stem, sections in counts.items()
        }
        best = sorted(by_lesson, key=lambda stem: -sum(by_lesson[stem].values()))[:MOST]
        found[name] = [
            [
                f"notebooks/{stem}",
                names[stem],
                *max(by_lesson[stem], key=by_lesson[stem].get),
            ]
            for stem in best
            if sum(by_lesson[stem].values()) >= (1 if name in sure else LEAST)
        ]
    return {name: found for name, found in found.items() if found}


def said(nb):
    """How often each section of a lesson says each name: {(id of its first cell, its
    heading): Counter}.
    """
    found, current = {}, ("title", "")
    for cell in nb.cells:
        if cell.id == "setup":
            continue
        source, counts = cell.source, Counter()
        if cell.cell_type == "markdown":
            titles = TITLES.findall(source)
            if titles:
                current = (cell.id, titles[0])
            source = "\n".join([*CODE.findall(source), *HEADING * titles])
        counts.update(name.lower() for name in NAME.findall(source))
        found.setdefault(current, Counter()).update(counts)
    return found
