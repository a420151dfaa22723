"""Rules for the parts of a lesson that has the old form still: OLD_FORM in parts.py.
The module goes with the last of them.
"""

import re

from tools.lessons.parts import text_of

# sections that have no number, and how many points they make: at least, at most
BULLETS = {"You will learn": (3, 5), "Exercises": (0, 99), "What to remember": (1, 6)}


def _old_head(nb, number):
    if any(cell.id == "recipe" for cell in nb.cells):
        yield "has a recipe: take it out of OLD_FORM (tools/lessons/parts.py)"
    for fact in ("Runs live on", "Time", "Before this"):
        if f"**{fact}:**" not in nb.cells[0].source:
            yield f"the line of facts lacks **{fact}:**"


def _old_sections(nb, number):
    parts = [
        (part.split("\n", 1)[0].strip(), part)
        for part in re.split(r"^## ", text_of(nb), flags=re.M)[1:]
    ]
    titles = [title for title, _ in parts]
    own = [(title, part) for title, part in parts if title not in BULLETS]
    if not 3 <= len(own) <= 6:
        yield f"has {len(own)} sections of its own, not three to six"
    if titles[-1:] != ["What to remember"]:
        yield "'What to remember' is not the last section"
    for title, part in own:
        if "**Predict" not in part:
            yield f"no **Predict** in the section '{title}'"
    for title, (least, most) in BULLETS.items():
        points = len(re.findall(r"^[-*] ", dict(parts).get(title, ""), re.M))
        if titles.count(title) != 1:
            yield f"needs one section '## {title}'"
        if not least <= points <= most:
            yield f"'{title}' has {points} points, not {least} to {most}"


FOR_OLD = (_old_head, _old_sections)
