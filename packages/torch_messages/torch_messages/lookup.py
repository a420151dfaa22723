"""Answers for people, as text."""

import textwrap

from torch_messages import match
from torch_messages.messages import entries

ALSO = 3  # entries that are named below the answers
INDENT = " " * 8


def look_up(text: str) -> None:
    """Print what is known about a text, or that nothing is, and where to ask on.

    text: a message with whatever stands around it (a whole traceback, a warning with
        its path), a name (`xm.mark_step`), a listing, or words
    """
    print(answer(text))


def headline(found):
    """The first line of an answer: the wording that fits, or a title."""
    entry = found.entry
    return found.wording or entry.heading or entry.title


def where(entry):
    """Where an entry is explained, and where it is known from."""
    lesson = f"lesson {entry.lesson[:2]} of PyTorch Device Lab"
    return "; ".join([lesson, source(entry)] if entry.lesson else [source(entry)])


def source(entry):
    """The first of its sources, as a person says it."""
    first = entry.source[0]
    return first if first.startswith(("http", "tried")) else f"seen in {first}"


def texts(entry):
    """What words are looked for in."""
    lines = [entry.id, entry.means, entry.do, entry.heading]
    return [*lines, *entry.says, *entry.asked, *entry.names]


def answer(text, headline=headline, where=where, texts=texts):
    """What look_up prints. headline, where: what it says of a Found, and of an Entry.
    texts: of an Entry, in which it looks for words.
    """
    first, others = match.find(text)
    if not first:
        lines = [_wrapped("", match.missed(text))]
        for entry in mentions(text, texts)[:ALSO]:
            lines.append(_wrapped("words   ", f"{entry.title}: {entry.id}"))
        return "\n".join(lines)
    lines = ["Not word for word. Most like it:\n"] if first[0].near else []
    beside = [found.entry.id for found in first]
    for found in first:
        lines.append(_wrapped("", headline(found)))
        lines += _explained(found.entry, beside)
        lines.append(_wrapped("more    ", where(found.entry)) + "\n")
    for found in others[:ALSO]:
        entry = found.entry
        lines.append(_wrapped("also    ", f"{entry.title}: {entry.means}"))
    return "\n".join(lines)


def _explained(entry, beside):
    """The lines of an entry, with what tells it apart from those beside it."""
    yield _wrapped("means   ", entry.means)
    yield textwrap.indent(entry.do, INDENT).replace(INDENT, "do      ", 1)
    for other, apart in entry.unlike:
        if other in beside:
            yield _wrapped("not     ", f"{apart}: {other}")


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
        f"{label}{text}", 88, subsequent_indent=INDENT, break_long_words=False
    )
