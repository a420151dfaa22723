"""What the field on the page of errors finds a pasted message by. docs/_static/
messages.js reads it.
"""

import json

from lookup.elsewhere import MESSAGES
from lookup.row import PATTERNS
from lookup.wordings import GENERAL, WORDINGS

FIELD = """\
```{{raw}} html
<div class="find-message"><label for="message">Your message, as it stands:</label>
<textarea id="message" rows="3" spellcheck="false"></textarea>
<ol id="messages-found" aria-live="polite"></ol></div>
<script type="application/json" id="messages">{}</script>
<script defer src="../_static/messages.js"></script>
```
"""


def field(grouped, lessons):
    """The field, as Markdown. grouped: as errors.entries gives it."""
    entries = [entry for group in grouped.values() for entry in group]
    found = [*of_entries(entries), *of_rows(entries, lessons), *elsewhere(lessons)]
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return FIELD.format(text.replace("<", r"\u003c"))


def of_entries(entries):
    """[label, address, its own first words, all of its words, wordings of it alone,
    wordings that others have, too] of each entry of the page.
    """
    for entry in entries:
        words = " ".join(message.words for message in entry.messages)
        # where a Cure speaks, its words are of this message, not of all of a row
        rows = [place.row for place in entry.places if place.row and not entry.cure]
        shared = [pattern for row in rows for pattern in wordings(row)]
        alone = [pattern for row in rows for pattern in own(row)]
        title = entry.title.removesuffix(" …")
        yield [entry.title, f"#{entry.anchor}", title, words, alone, shared]


def of_rows(entries, lessons):
    """The same of rows of lesson 16 that no entry speaks for."""
    places = [place for entry in entries if not entry.cure for place in entry.places]
    known = {place.row.slug for place in places if place.row}
    for lesson in lessons:
        for cell in lesson.cells:
            row = cell.row
            if row and row.slug not in known and wordings(row) + own(row):
                link = lesson.link(cell.id).replace(".ipynb", ".html")
                yield [
                    f"{row.slug}: {row.because}",
                    link,
                    "",
                    "",
                    own(row),
                    wordings(row),
                ]


def elsewhere(lessons):
    """The same of messages that no row of lesson 16 is about."""
    links = {
        lesson.number: lesson.link().replace(".ipynb", ".html") for lesson in lessons
    }
    for pattern, where, what in MESSAGES:
        number, _, id = where.partition(" ")
        link = f"{links[number]}#{id}" if where else ""
        if not pattern.startswith("(?"):  # flags, which JavaScript writes elsewhere
            yield [what, link, "", "", [pattern], []]


def wordings(row):
    """Regular expressions of messages that lead to a row, among others."""
    general = [pattern for pattern, slug in GENERAL.items() if slug == row.slug]
    many = PATTERNS.values()  # what many rows announce
    return [each for each in row.patterns() if each not in many] + general


def own(row):
    """Those of messages that are of this row and of no other."""
    return [pattern for pattern, slug, _ in WORDINGS if slug == row.slug]
