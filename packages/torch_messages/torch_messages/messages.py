"""The table of messages (messages.toml): what people paste, what it means today, what
helps.

An entry is found by the words of a message (`says`), by how people put it (`asked`), by
a name (`names`) or by what a listing contains (`code`).
"""

import functools
import itertools
import math
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_messages import rules

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same code under another name
    import tomli as tomllib

TABLE = Path(__file__).with_name("messages.toml")


@dataclass(frozen=True)
class Entry:
    """What is known about a message.

    id: group and name
    means: one sentence
    do: the lines that help
    source: where it is known from
    heading: what it is about, in few words
    says: its wordings, … for what varies
    asked: how people put it
    names: bare names that it answers
    code: alternatives of pieces that a listing has
    cover: whether it only says that something else has failed
    harmless: whether nothing is wrong, and its line may be ignored
    fine: whether an old listing that is like it does as well as the lines of today
    unlike: pairs of a neighbor's id and what tells the two apart
    lesson: of PyTorch Device Lab, its number and the id of a cell
    often: whether everybody meets it
    since, until: versions of PyTorch
    """

    id: str
    means: str
    do: str
    source: tuple
    heading: str = ""
    says: tuple = ()
    asked: tuple = ()
    names: tuple = ()
    code: tuple = ()
    cover: bool = False
    harmless: bool = False
    fine: bool = False
    unlike: tuple = ()
    lesson: str = ""
    often: bool = False
    since: str = ""
    until: str = ""

    @property
    def group(self):
        """The part of the id before the stroke: "memory"."""
        return self.id.split("/")[0]

    @property
    def title(self):
        """Its message, or what it is about."""
        if self.says:
            return self.says[0]
        return self.heading or (*self.asked, *self.names)[0]

    @property
    def called(self):
        """The names that lead to it, its heading among them."""
        return (*self.names, self.heading) if self.heading else self.names


def read():
    """The table as it is written, a list of dicts."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))["entry"]


@functools.cache
def entries():
    """All entries, as a dict id → Entry."""
    return {written["id"]: _entry(written) for written in read()}


def _entry(written):
    fields = {**written, "do": written["do"].strip("\n")}
    fields["unlike"] = tuple(written.get("unlike", {}).items())
    fields["code"] = tuple(map(tuple, written.get("code", ())))
    for name in ("says", "asked", "names", "source"):
        fields[name] = tuple(written.get(name, ()))
    return Entry(**fields)


@functools.lru_cache(maxsize=4096)
def plain(text):
    """A text as wordings are compared: small letters, one kind of quotation marks, one
    space between words, without colors and without the name of a rank.
    """
    text = rules.PREFIX.sub("", rules.COLORS.sub("", text)).translate(rules.QUOTES)
    return rules.SPACE.sub(" ", text).strip().lower()


@functools.cache
def pieces(wording):
    """The parts of a wording between its …, plain."""
    return [piece.strip() for piece in plain(wording).split("…")]


def spans(wording, text):
    """(start, end) of the places where a wording stands in a plain text. A name ends
    where it ends: `torch` is not in torch_xla; an … at the end of a wording lets its
    last word go on.
    """
    first, *further = pieces(wording)
    start = text.find(first)
    while start >= 0:
        end = _end(further, text, start + len(first))
        open_end = further[-1:] == [""]
        if end and not (
            _goes_on(text, start) or (not open_end and _goes_on(text, end))
        ):
            yield start, end
        start = text.find(first, start + 1)


def _end(further, text, end):
    """Where a wording ends whose first piece ends at `end`; None if the others do not
    follow.
    """
    for piece in further:
        place = text.find(piece, end, end + rules.GAP + len(piece))
        if place < 0:
            return None
        end = place + len(piece)
    return end


def _goes_on(text, place):
    """Whether a name of a text goes on at a place."""
    before, behind = text[max(place - 1, 0) : place], text[place : place + 2]
    return bool(rules.LETTER.match(before) and rules.GOES_ON.match(behind))


def fitting(text):
    """(id, wording, (start, end)) of the wordings that stand in a plain text, in the
    order of the table, and of each the first places.
    """
    for id, wording, first in _beginnings():
        if first in text:
            for span in itertools.islice(spans(wording, text), rules.PLACES):
                yield id, wording, span


@functools.cache
def _beginnings():
    """(id, wording, its first piece) of the whole table."""
    return [
        (entry.id, wording, pieces(wording)[0])
        for entry in entries().values()
        for wording in entry.says
    ]


@functools.lru_cache(maxsize=4096)
def words(text):
    """The words of a text in their order, without endings, numbers, what only asks; of
    Chinese each two letters.
    """
    text = rules.BETWEEN_HAN.sub("", plain(text))
    stems = [rules.ENDING.sub("", word) for word in rules.WORD.findall(text)]
    for run in rules.HAN.findall(text):
        stems += [run[n : n + 2] for n in range(len(run) - 1)]
    return [stem for stem in stems if stem not in rules.ASKING]


@functools.cache
def rarity():
    """word → how much it says: the logarithm of one over the share of the entries that
    have it.
    """
    count = {}
    for entry in entries().values():
        for word in {w for text in (*entry.says, *entry.asked) for w in words(text)}:
            count[word] = count.get(word, 0) + 1
    total = len(entries()) + 1
    return {word: math.log(total / (1 + n)) for word, n in count.items()}


def weight(some, unknown=1):
    """What words (a set) say together. unknown: what one that the table lacks counts,
    as a part of the most that a word can say.
    """
    most = math.log(len(entries()) + 1) * unknown
    # Sorted, as a sum of floating point numbers depends on the order; not by sum(),
    # which Python 3.12 rounds otherwise than 3.11 and JavaScript.
    total = 0.0
    for word in sorted(some):
        total += rarity().get(word, most)
    return total
