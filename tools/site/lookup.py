"""What the search page knows beside Sphinx's index: where a message is mended, what the
index of names says, and which lessons say most about another word of code, such as
`torchrun`. docs/_static/search.js reads it.
"""

import json
import re
from collections import Counter

from tools.site.api import CODE
from tools.site.names import ALIASES

MOST = 3  # lessons that a name leads to
LEAST = 2  # times that a lesson says it
HEADING = 10  # a name in a heading counts so many times
TITLES = re.compile(r"^#{2,3} (.+?)(?: \(\d+ minutes?\))?$", re.M)
NAME = re.compile(r"[A-Za-z_]\w{3,}")


def lookup(notebooks, names, grouped, index):
    """The text of the script _static/lookup.js.

    notebooks: {stem: notebook}. names: {stem: name of the lesson on the site}. grouped:
    entries of the page of errors. index: those of the index of names.
    """
    content = {
        "messages": messages(names, grouped),
        "api": api(names, index),
        "aliases": {short: name for short, name in ALIASES.items() if short != name},
        "names": places(notebooks, names),
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f"window.deviceLab = window.deviceLab || {{}};\ndeviceLab.lookup = {text};\n"


def messages(names, grouped):
    """[its words, its title, its entry on the page of errors, where it is mended] of
    each message; the last two as [page, name of the page, anchor, section].
    """
    found = []
    for entry in (entry for group in grouped.values() for entry in group):
        place = entry.places[0]
        section = place.row.slug if place.row else place.lesson.sections[place.id]
        words = " ".join(message.words for message in entry.messages)
        if entry.cure:
            words += f" {entry.cure.text}"
        page = f"notebooks/{place.lesson.stem}"
        title = entry.title.removesuffix(" …")
        lesson = [page, names[place.lesson.stem], place.id, section]
        index = ["docs/errors", "Errors and warnings", entry.anchor, entry.title]
        found.append([words, title, index, lesson])
    return found


def api(names, index):
    """[name, anchor, place to go to] of each entry of the index of names, the one that
    lessons say most about first.
    """
    most = sorted(index.values(), key=lambda entry: -sum(entry.texts.values()))
    return [
        [
            entry.name,
            entry.anchor,
            [
                f"notebooks/{entry.first.stem}",
                names[entry.first.stem],
                entry.first.id,
                entry.first.title,
            ],
        ]
        for entry in most
    ]


def places(notebooks, names):
    """Of each name, in lower case, the lessons that say most about it, as [page, name
    of the lesson, id of the cell, section].
    """
    counts = {stem: said(nb) for stem, nb in notebooks.items()}
    # what some text calls by its name in code
    known = {
        name.lower()
        for nb in notebooks.values()
        for cell in nb.cells
        if cell.cell_type == "markdown"
        for code in CODE.findall(cell.source)
        for name in NAME.findall(code)
    }
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
            if sum(by_lesson[stem].values()) >= LEAST
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
