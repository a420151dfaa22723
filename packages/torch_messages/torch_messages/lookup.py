"""Answers for people, as text."""

import textwrap

from torch_messages import code, match, phrases, places
from torch_messages.messages import entries

ALSO = 3  # entries that are named below the answers
INDENT = " " * 8
WIDTH = 88


def look_up(text: str) -> None:
    """Print what is known about a text, or that nothing is, and where to ask on.

    text: a message with whatever stands around it (a whole traceback, a warning with
        its path), a name (`xm.mark_step`), a listing, or words
    """
    print(answer(text))


def headline(found):
    """The first line of an answer: the wording that fits, or a title. Of code it is not
    known whether it has failed.
    """
    entry = found.entry
    if found.by == "listing":
        may = "A line of your code may end in: " if entry.says else "In your code: "
        return f"{may}{entry.title}"
    return found.wording or entry.heading or entry.title


def where(entry):
    """Where an entry is known from, and where it is explained."""
    lesson = lesson_of(entry)
    return f"{source(entry)}; explained at {lesson}" if lesson else source(entry)


def lesson_of(entry):
    """The address of the lesson that explains an entry, "" where none does."""
    return places.address(entry.lesson.replace(" ", "#")) if entry.lesson else ""


def source(entry):
    """The first of its sources, as a person says it."""
    first = entry.source[0]
    return first if first.startswith(("http", "tried")) else f"seen in {first}"


def texts(entry):
    """What words are looked for in."""
    lines = [entry.id, entry.means, entry.do, entry.heading]
    return [*lines, *entry.says, *entry.asked, *entry.names]


# --------------------------------------------------------------------------------------
# What is known


def answer(text, headline=headline, where=where, texts=texts, result=None):
    """What look_up prints. headline, where: what it says of a Found, and of an Entry.
    texts: of an Entry, in which it looks for words. result: of the text, if known
    """
    result = result or match.look(text)
    lines, first = [], result.answers[:1]
    here = [_wrapped("here    ", note) for note in result.notes]
    if not first:
        lines += [*_beside(text, result, texts), *here]
    elif result.unknown:
        lines.append(f"Not known here: “{line_of(text, result.unknown)}”.")
    if first and first[0].near:
        lines.append("Not word for word. Most like it:\n")
    beside = [found.entry.id for found in result.answers]
    for found in result.answers:
        lines.append(_wrapped("", headline(found)))
        lines += _explained(found.entry, beside, here if found is first[0] else [])
        lines.append(_wrapped("more    ", where(found.entry)) + "\n")
    for found in result.others[:ALSO]:
        lines.append(_wrapped("also    ", f"{headline(found)}: {found.entry.means}"))
    return "\n".join(lines)


def _explained(entry, beside, here):
    """The lines of an entry, with what the text itself says (here), and what tells it
    apart from those beside it.
    """
    yield _wrapped("means   ", entry.means)
    yield from here
    yield textwrap.indent(entry.do, INDENT).replace(INDENT, "do      ", 1)
    for other, apart in entry.unlike:
        if other in beside:
            yield _wrapped("not     ", f"{apart}: {other}")


# --------------------------------------------------------------------------------------
# What is not


def _beside(text, result, texts):
    """The lines for a text that is not known: pages about it, entries that have its
    words, and where to ask.
    """
    pages = [] if result.unknown else places.search(text)
    lacks = "" if result.unknown else phrases.missing(text)
    if lacks and is_text(text):
        yield textwrap.fill(lacks, WIDTH)
    if pages:
        yield "Not known here as a message. Pages that are about it:"
        for title, address in pages:
            yield f"read    {title}\n{INDENT}{address}"
    for entry in mentions(text, texts)[:ALSO]:
        yield _wrapped("words   ", f"{entry.title}: {entry.id}")
    told = missed(text, result.unknown, pages)
    yield _wrapped("ask     ", told) if pages else textwrap.fill(told, WIDTH)


def missed(text: str, unknown: str = "", pages: list | tuple = ()) -> str:
    """What is said of a text that is not known: which line to search for, and where.

    unknown: the line, where that is known. pages: that have been named already
    """
    if not text.strip():
        return "There is nothing to look up: the text is empty."
    if not is_text(text):
        return "This is no text, or none in UTF-8."
    if code.is_code(text):
        return "Nothing collected here is like this listing. It may be right or not."
    told = "" if pages else "Not known here, and no guess. "
    name, repository, foreign = places.tracker(text)
    tracker = f"github.com/{repository}/issues"
    if foreign:
        read = f"; its makers read {tracker}" if repository else ""
        return f"{told}This is a message of {name}, not of PyTorch{read}."
    line = line_of(text, unknown)
    return f"{told}Search for “{line}” in {tracker}, and at discuss.pytorch.org."


def is_text(text):
    return text.count("\ufffd") <= len(text) / 10


def line_of(text, unknown=""):
    """The line of a text to search for, without what stands before its message."""
    return phrases.phrase(text, unknown)


def mentions(text, texts=texts):
    """The entries that hold each word of a text, those first whose title does."""
    words = text.lower().split()
    mentioning = []
    for entry in entries().values():
        whole = "\n".join(texts(entry)).lower()
        if words and all(word in whole for word in words):
            mentioning.append(entry)
    return sorted(mentioning, key=lambda entry: words[0] not in entry.title.lower())


def _wrapped(label, text):
    return textwrap.fill(
        f"{label}{text}",
        WIDTH,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
