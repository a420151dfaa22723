"""Minutes and hours that are typed, in heads of lessons, README.md and docs/: whether
they are what the lessons take.
"""

import re

from tools.lessons import parts

# Rows of tables, in Markdown or in the JSON of a notebook, and their last two columns:
# lessons and hours of a path; core and all of a lesson, and of the course
PATH = re.compile(
    r"\| \[([^]|\n]+)\]\([^)|\n]*#[^)|\n]*\) \|[^|\n]*\| ([^|\n]*) \| ([^|\n]*) \|"
)
LESSON = re.compile(
    r"\| (\d\d) \| \[[^]|\n]*\]\(notebooks/[^)|\n]*\) \|[^|\n]*"
    r"\| ([^|\n]*) \| ([^|\n]*) \|"
)
ALL = re.compile(r"\| \| all [^|\n]*\|[^|\n]*\| ([^|\n]*) \| ([^|\n]*) \|")
AMOUNT = re.compile(r"(\d*)(½?)(?: (hours|min|minutes?))?")
SHARE = 0.15  # so far a typed time may be off


def wrong(says, minutes, unit="min"):
    """How long it takes, in words, where a typed time ("8½ hours", "12 minutes", a
    number of `unit`) is more than 15% off; else None. Up to a minute, or half an hour
    where hours are typed, is rounding.
    """
    found = AMOUNT.fullmatch(says)
    if not found or not says[:1].isdigit() and not found[2]:
        return f"{says!r} is no time; it takes {minutes:.0f} minutes"
    in_hours = (found[3] or unit) == "hours"
    number = int(found[1] or 0) + (0.5 if found[2] else 0)
    typed, near = (60 * number, 30) if in_hours else (number, 1)
    if not in_hours and unit == "hours":
        near = 5  # of a path: "10 min"
    if abs(typed - round(minutes)) <= max(near, SHARE * minutes):
        return None
    takes = f"{minutes / 60:.1f} hours" if in_hours else f"{minutes:.0f} minutes"
    return f"says {says!r}, takes {takes}"


def in_lesson(nb):
    """Typed minutes of a lesson that are wrong, as lines of text: in its head, and in
    the headings below `## Deeper`, which say them; those of the core say none.
    """
    core, deeper = parts.core_and_deeper(nb)
    for name, cells in {"Core": core, "Deeper": deeper}.items():
        says = re.search(rf"\*\*{name}:\*\* (\S+ minutes)", nb.cells[0].source)
        if says and (why := wrong(says[1], parts.minutes(cells))):
            yield f"{name}: {why}"
    for cells in (core, deeper):
        for title, own in parts.sections(cells):
            said = re.search(r" \((\S+ minutes?)\)$", title)
            if cells is deeper and re.match(r"\d+ · ", title):
                why = wrong(said[1] if said else "", parts.minutes(own))
                if why:
                    yield f"the section '{title}' {why}"
            elif said:
                yield f"the section '{title}' of the core says its minutes"


def on_page(text, course):
    """Typed times of a page that are wrong, as lines of text: in its tables of lessons
    and of paths.
    """
    for number, *said in LESSON.findall(text):
        lesson = course.lesson(number)
        for says, minutes in zip(said, (lesson.core, lesson.all), strict=True):
            if why := wrong(says, minutes):
                yield f"lesson {number}: {why}"
    for said in ALL.findall(text):
        every = course.lessons.values()
        sums = sum(each.core for each in every), sum(each.all for each in every)
        for says, minutes in zip(said, sums, strict=True):
            if why := wrong(says, minutes, "hours"):
                yield f"all lessons: {why}"
    for name, lessons, says in PATH.findall(text):
        steps = course.paths.get(name, [])
        numbers = " ".join(dict.fromkeys(step.number for step in steps))
        if lessons != numbers:
            yield f"{name} has the lessons {numbers}, not {lessons}"
        if why := wrong(says, sum(map(course.takes, steps)), "hours"):
            yield f"{name}: {why}"


def in_paths(course):
    """Typed times of the steps of docs/paths.md that are wrong, as lines of text."""
    for name, steps in course.paths.items():
        for step in steps:
            says = step.says if step.names else step.says.removeprefix("the core, ")
            if why := wrong(says, course.takes(step)):
                yield f"{name}, lesson {step.number}: {why}"
