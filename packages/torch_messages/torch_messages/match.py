"""Which entries of the table fit a text: a whole paste, words, a name, a listing."""

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

from torch_messages import code, near, numbers, paste, rules
from torch_messages.messages import Entry, entries, fitting, plain


@dataclass(frozen=True)
class Found:
    """An entry that fits. by: "message", "name" or "listing". wording: of the entry,
    that fits a message best, or the name. near: by likeness only, not word for word.
    """

    entry: Entry
    by: str = "message"
    wording: str = ""
    near: bool = False


class Result(NamedTuple):
    """What fits a text. answers: best first, several are equally good. others: what
    else stands in it. unknown: a line that says that something has failed, and is not
    known. notes: what the numbers in it say, a sentence each.
    """

    answers: list
    others: list
    unknown: str = ""
    notes: tuple = ()


def find(text: str) -> tuple[list[Found], list[Found]]:
    """What fits a text, best first: a list with the answer (several are equally good),
    and one with what else stands in the text.

    >>> answers, others = find("xm.mark_step")
    >>> [(answer.entry.id, answer.by) for answer in answers]
    [('tpu/mark-step', 'name')]
    """
    return look(text)[:2]


def look(text: str) -> Result:
    """As find, with the line that has failed, if it is not known."""
    text = paste.clean(text)
    result = _look(text)
    if not (result.answers or result.unknown):
        return result
    ruled = numbers.ruled(text)
    result = result._replace(notes=tuple(sentence for _, sentence in ruled))
    chosen = [rules.CHOSEN[id] for id, _ in ruled if id in rules.CHOSEN]
    if not chosen or not result.answers or result.answers[0].entry.group != "memory":
        return result
    answer = Found(entries()[chosen[0]], wording=result.answers[0].wording)
    others = [*result.answers, *result.others]
    others = [found for found in others if found.entry != answer.entry]
    return result._replace(answers=[answer], others=others)


def _look(text):
    if not text:
        return Result([], [])
    sorted_paste = paste.sort(text)
    like = [Found(entry, "listing") for entry in code.like(sorted_paste.code)]
    if "\n" not in text and (text.endswith("()") or not like):
        if by_name := named(text):
            return Result(by_name, [])
        if not like:
            return _of_paste(
                sorted_paste.as_text() if sorted_paste.code else sorted_paste
            )
    result = _of_paste(sorted_paste)
    if not (result.answers or result.others or result.unknown):
        return Result(like[: rules.MOST], [])
    known = {found.entry for found in (*result.answers, *result.others)}
    more = [each for each in like if not each.entry.fine and each.entry not in known]
    return result._replace(others=[*result.others, *more[: rules.MOST]])


def of_message(text):
    """As find, of a text that is a message and nothing else."""
    result = _of_paste(paste.sort(paste.clean(text)))
    return result.answers, result.others


def _of_paste(sorted_paste):
    """The Result for what is no code in a paste."""
    ranked = _ranked(sorted_paste)
    answers = _answers(ranked)
    unknown = _unknown(sorted_paste, ranked)
    if unknown and answers and answers[0].rank[:2] < SERIOUS:
        answers = []
    # what only says that something has failed is of no use beside what has
    told = any(not place.entry.cover for place in answers)
    others = [
        place
        for place in ranked
        if place not in answers and not (told and place.entry.cover)
    ]
    found, guesses = [place.found() for place in answers], []
    if not found and (unknown or not others):
        guesses = near.near((unknown or sorted_paste.said())[: rules.SHORT])
    found += [Found(entry, wording=wording, near=True) for entry, wording in guesses]
    return Result(found, [place.found() for place in others], unknown)


def of_listing(source, message):
    """The entries that a listing and what it said lead to, best first: those by both,
    those by the message, those by the code; last what many listings have.
    """
    answers, others = of_message(message) if message.strip() else ([], [])
    by_message = [found.entry for found in (*answers, *others) if not found.near]
    by_code = code.like(source)
    by_both = [entry for entry in by_message if entry in by_code]
    ordered = list(dict.fromkeys([*by_both, *by_message, *by_code]))
    if not all(entry.cover for entry in ordered):
        ordered = [each for each in ordered if not each.cover or each in by_code]
    return sorted(ordered, key=lambda entry: entry.cover)[: rules.MOST]


# --------------------------------------------------------------------------------------
# Names


def named(name):
    """Found that a name leads to: by the whole of it, by its last parts, or as the only
    one whose message has it. [] for what is no name.
    """
    is_name = rules.NAME.fullmatch(name)
    whole = name.lower().strip("-")
    bare = re.sub(r"[(=].*", "", whole) if is_name else whole
    by_whole, by_end, by_message = [], [], []
    for entry, names in _names():
        if bare in names or whole in names:
            told = names.get(bare) or names.get(whole) or ""
            by_whole.append(Found(entry, "name", told))
        elif not is_name:
            continue
        elif ends := [each for each in names if _ends(bare, each) or _ends(each, bare)]:
            by_end.append(Found(entry, "name", names[ends[0]]))
        elif told := [each for each in entry.says if near.has(plain(each), bare)]:
            by_message.append(Found(entry, "name", told[0]))
    only = by_message if len(by_message) == 1 else []
    return (by_whole or by_end or only)[: rules.MOST]


@functools.cache
def _names():
    """(entry, {name as names are compared: what the entry is called by it}). That is
    the name as it is written; "" where the entry has a heading, or by its id.
    """
    return [
        (
            entry,
            {entry.id: ""}
            | {
                name.lower().strip("-"): "" if entry.heading else name
                for name in entry.called
            },
        )
        for entry in entries().values()
    ]


def _ends(name, short):
    """Whether a dotted name ends with a shorter one: torch.nn.DataParallel."""
    return name.endswith("." + short)


# --------------------------------------------------------------------------------------
# Messages, word for word

SERIOUS = (True, 2)  # rank from which on a place is more than a warning


@dataclass(frozen=True)
class Place:
    """Where a wording stands in a paste, and in which lines (the first, behind the
    last). rank: the greatest is answered first.
    """

    entry: Entry
    wording: str
    start: int
    end: int
    rank: tuple
    lines: range

    def found(self):
        return Found(self.entry, wording=self.wording)


def _ranked(sorted_paste):
    """The places of a paste in which wordings stand, of each entry the one that says
    most, the best first. Without those that are a part of another.
    """
    best, table = {}, entries()
    for id, wording, span in fitting(sorted_paste.text):
        said = sorted_paste.says(*span) > 1, near.counted(wording)[2], *span
        if id not in best or said > best[id][0]:
            best[id] = said, wording
    places = []
    for id, ((_, weight, start, end), wording) in best.items():
        if not any(
            other[2] <= start and end <= other[3] and other[1] > weight
            for other, _ in best.values()
        ):
            lines = range(sorted_paste.at(start), sorted_paste.at(end - 1) + 1)
            rank = _rank(table[id], sorted_paste, (start, end), weight)
            places.append(Place(table[id], wording, start, end, rank, lines))
    return sorted(places, key=lambda place: place.rank, reverse=True)


def _rank(entry, sorted_paste, span, weight):
    """What is answered first: what is not harmless; of an error rather than of a
    warning; what failed, rather than what only says so; the cause of another error; the
    last. Of those that only say so the first, which the others follow.
    """
    start, end = span
    says = sorted_paste.says(start, end)
    text = sorted_paste.text
    original = text.rfind(rules.ORIGINAL)
    joints = [found.start() for found in rules.BEFORE.finditer(text)]
    if original >= 0:
        is_cause = start > original
    else:
        is_cause = bool(joints) and start < joints[-1]
    place = -start if entry.cover else start
    return not entry.harmless, min(says, 2), not entry.cover, is_cause, place, weight


def _answers(ranked):
    """The first of them, and those that stand at the same place."""
    return [
        place
        for place in ranked
        if (place.start, place.end) == (ranked[0].start, ranked[0].end)
    ]


def _unknown(sorted_paste, ranked):
    """The last line that says that something has failed, unless it, or another one that
    may be its cause, is known; "" then.
    """
    if any(not place.entry.cover and place.rank[:2] >= SERIOUS for place in ranked):
        return ""
    lines, left = sorted_paste.lines, []
    for n in sorted_paste.failed():
        below = n + 1  # what belongs to it
        while below < len(lines) and lines[below][0] == "text" and lines[below][1]:
            below += 1
        if not any(set(place.lines) & set(range(n, below)) for place in ranked):
            left.append(n)
    errors = [n for n in left if lines[n][0] == "error"]
    return lines[(errors or left)[-1]][1] if left else ""
