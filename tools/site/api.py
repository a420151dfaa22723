"""The index of names: every public name of torch, torch_xla and accelerate that lessons
use or explain, with the sections where they do.
"""

import ast
import html
import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from course import grammar
from lookup import cell as today
from tools.lessons import parts
from tools.site import uses
from tools.site.course import code, md
from tools.site.names import Scope, existing, parsed

# names in code between backticks: `torch.amp.GradScaler`, `x.record_stream(s)`
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
TITLES = re.compile(r"^#{2,4} (.+?)(?: \(\d+ minutes?\))?$", re.M)
BARE = re.compile(r"[A-Za-z_]\w{2,}")
HEADING = 10  # a name in a heading counts so many times
COMMON = 9  # functions with an argument that says nothing of them: `device=`
MOST = 3  # sections that explain a name, as an entry shows them


class Place(NamedTuple):
    """A section of a lesson, by the cell that begins it. row: whether it is a row of
    lesson 16. core: whether it stands above "Deeper".
    """

    stem: str
    id: str
    title: str
    row: bool = False
    core: bool = False

    def link(self, label):
        return f"[{md(label)}](../notebooks/{self.stem}.ipynb#{self.id})"

    @property
    def whole(self):
        """A link with the title."""
        return self.link(f"{self.stem[:2]} · {re.sub('[`*]', '', self.title)}")

    @property
    def short(self):
        """A link with the numbers of the lesson and of the section, if it has one."""
        number = re.match(r"\d+(?= · )", self.title)
        return self.link(self.stem[:2] + (f" · {number[0]}" if number else ""))


@dataclass
class Entry:
    """A name, and how often texts and code of each section say it. replaced: the rows
    of lesson 16 that have nothing else as heading, `today` what they write instead.
    line, sentence: a use of it, and what the package says of it.
    """

    name: str
    today: str = ""
    line: str = ""
    sentence: str = ""
    texts: Counter = field(default_factory=Counter)
    uses: Counter = field(default_factory=Counter)
    replaced: list = field(default_factory=list)

    @property
    def anchor(self):
        return "api-" + re.sub(r"[^\w.]+", "-", self.name).strip("-")

    @property
    def last(self):
        """What it is called: `record_stream`, of an argument `non_blocking`."""
        return uses.last_of(self.name)

    @property
    def explained(self):
        """The sections that explain it, first the one that says most about it, in a
        lesson that does.
        """
        said = {
            place: 2 * self.texts[place] + self.uses[place]
            for place in {**self.texts, **self.uses}
            if not place.row
        }
        lessons = Counter()
        for place, count in said.items():
            lessons[place.stem] += count
        weight = {
            place: said[place] * (1 + place.core) * lessons[place.stem]
            for place in said
            if self.texts[place]
        }
        return sorted(weight, key=lambda place: -weight[place])[:MOST]

    @property
    def used(self):
        """One section of each other lesson that uses it."""
        seen = {place.stem for place in self.explained}
        found = {}
        for place, _ in self.uses.most_common():
            if place.stem not in seen and not place.row:
                found.setdefault(place.stem, place)
        return [found[stem] for stem in sorted(found)]

    @property
    def rows(self):
        """The rows of lesson 16 that speak of it and keep it."""
        return [
            place
            for place in {**self.texts, **self.uses}
            if place.row and place not in self.replaced
        ][:MOST]

    @property
    def first(self):
        """The place to go to."""
        return next(iter(self.explained + self.replaced + self.used + self.rows))

    @property
    def answer(self):
        """What it is for, as Markdown."""
        now = f"today {code(self.today)}" if self.today else ""
        parts = [code(self.line) if self.line else now]
        if self.sentence:
            parts.append(f"“{self.sentence}”")
        return " · ".join(filter(None, parts))

    def listed(self):
        """Its line on the page."""
        parts = [self.answer] if self.answer else []
        if self.explained:
            first, *others = self.explained
            also = ", ".join(each.short for each in others)
            parts.append(first.whole + (f" (also {also})" if also else ""))
        if self.used:
            lessons = [place.link(place.stem[:2]) for place in self.used]
            parts.append(f"used in {', '.join(lessons)}")
        if self.replaced:
            rows = ", ".join(place.whole for place in self.replaced[:MOST])
            parts.append(f"**today:** {rows}")
        if self.rows:
            parts.append(f"rows: {', '.join(place.whole for place in self.rows)}")
        target = f'<span class="name" id="{html.escape(self.anchor)}"></span>'
        return f"- {target}{code(self.name)}: {' · '.join(parts)}"


def entries(notebooks):
    """All entries by their name. notebooks: {stem: notebook}."""
    found, spoken = {}, []  # spoken: (stem, place, word, weight) of bare words in texts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that will be gone
        scopes = {stem: scope_of(nb) for stem, nb in notebooks.items()}
        for stem, nb in notebooks.items():
            _read(stem, nb, scopes[stem], found, spoken)
        by_last = {}
        for entry in found.values():
            by_last.setdefault(entry.last, []).append(entry)
        for stem, place, word, weight in spoken:
            for entry in meant(word, stem, by_last.get(word, [])):
                entry.texts[place] += weight
        kept = [each for each in found.values() if worth(each, by_last)]
        for each in kept:
            each.line = uses.line(each, notebooks, scopes)
            each.sentence = uses.said_by_pytorch(each.name)
    return {
        each.name: each for each in sorted(kept, key=lambda each: each.name.lower())
    }


def meant(word, stem, same):
    """Of the entries that are called `word` those that a text of a lesson means: what
    its code uses; else the only one, unless it is a plain word such as `main`.
    """
    here = [each for each in same if stem in {place.stem for place in each.uses}]
    plain = "_" not in word and (word.islower() or word.isupper())
    alone = same if len(same) == 1 and not plain else []
    return here or alone


def worth(entry, by_last):
    """Whether the index lists it: an argument if a text speaks of it, and not every
    other function has it; another name if it exists, or a row replaces it.
    """
    if entry.name.endswith("=)"):
        same = [each for each in by_last[entry.last] if each.name.endswith("=)")]
        return bool(entry.texts) and len(same) <= COMMON
    if entry.name.startswith("torch.") and existing(entry.name) is None:
        return bool(entry.replaced)
    return True


def scope_of(nb):
    """What imports and assignments of a lesson say, all its cells together."""
    scope = Scope()
    for tree in (tree for cell in nb.cells for tree in trees(cell)):
        scope.learn(tree)
    return scope


def trees(cell):
    """The syntax trees of a code cell, and of a row of lesson 16 none."""
    if cell.cell_type != "code" or row_of(cell):
        return
    for piece in parts.split(cell.source)[1]:
        if tree := parsed(piece):
            yield tree


def row_of(cell):
    """The row of lesson 16 that a cell is, or None."""
    line, _, body = grammar.body(cell.source).partition("\n")
    if cell.cell_type != "code" or not line.startswith("%%today "):
        return None
    return today.parse(line.removeprefix("%%today "), body)


def _read(stem, nb, scope, found, spoken):
    """Add what a lesson says to `found`, and bare words of its texts to `spoken`."""
    opening = next((cell.id for cell in nb.cells if "recipe" in cell.id), "title")
    place, core = Place(stem, opening, "the recipe", core=True), True

    def entry(name):
        return found.setdefault(name, Entry(name))

    for cell in nb.cells:
        if cell.cell_type == "markdown":
            if title := TITLES.search(cell.source):
                # a row's heading has three or four #, below those of sections
                row = stem.startswith("16") and not cell.source.startswith("## ")
                core = core and not cell.source.startswith("## Deeper")
                place = Place(stem, cell.id, title[1], row, core)
            for heading in TITLES.findall(cell.source):
                _speak(heading, HEADING - 1, stem, place, scope, entry, spoken)
            _speak(cell.source, 1, stem, place, scope, entry, spoken)
        elif row := row_of(cell):
            old, new = names_in(row.old), names_in(row.new) | names_in(row.write)
            for name in old | new:
                entry(name).uses[place] += 1
            for name in sorted(old - new):
                if place.title.startswith("`") and named(place.title) == {name}:
                    entry(name).replaced.append(place)
                    entry(name).today = uses.of_today(row, name, new - old)
        elif cell.id != "setup":
            for tree in trees(cell):
                for name in scope.said(tree):
                    entry(name).uses[place] += 1


def _speak(text, weight, stem, place, scope, entry, spoken):
    """Add the names in the inline code of a text."""
    for piece in CODE.findall(text):
        if (tree := parsed(piece)) is None:
            spoken += [(stem, place, word, weight) for word in BARE.findall(piece)]
            continue
        for name in scope.said(tree):
            entry(name).texts[place] += weight
        for node in ast.walk(tree):
            word = getattr(node, "id", None) or getattr(node, "arg", None)
            if isinstance(node, ast.Attribute) and not scope.name(node):
                word = node.attr
            if word and word not in scope.aliases:
                spoken.append((stem, place, word, weight))


def names_in(source):
    """The names that a piece of code says which stands alone."""
    tree = parsed(source)
    if tree is None:
        return set()
    scope = Scope()
    scope.learn(tree)
    return set(scope.said(tree))


def named(heading):
    """The names that the code of a heading says, of arguments not the functions."""
    names = {name for piece in CODE.findall(heading) for name in names_in(piece)}
    arguments = {name for name in names if name.endswith("=)")}
    return arguments or names


# --------------------------------------------------------------------------------------
# The page


def page(found):
    """The page of the index, as Markdown."""
    groups = {}
    for entry in found.values():
        groups.setdefault(group(entry.name), []).append(entry)
    parts = [
        "# Index of names\n",
        (
            f"{len(found)} names of `torch`, `torch_xla` and `accelerate`, each with a"
            " line that uses it, “what the package says” of it, the section that says"
            " most about it, then others. A number alone is a lesson that uses it."
            " **today:** what is written in its place, or in place of what people do"
            " with it. `NAME(argument=)` is an argument. To find one, press"
            " <kbd>/</kbd> and type it: the search leads here.\n"
        ),
    ]
    for name in sorted(groups, key=str.lower):
        lines = [entry.listed() for entry in groups[name]]
        parts += [f"## {code(name)}\n", *lines, ""]
    return "\n".join(parts)


def group(name):
    """The module or class that a name belongs to, as the page groups them."""
    head = name.partition("(")[0].split(".")
    for end in (3, 2):
        if len(head) > end:
            return ".".join(head[:end])
    return ".".join(head[:-1]) or head[0]
