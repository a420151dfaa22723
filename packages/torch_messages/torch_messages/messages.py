"""The table of messages (messages.toml): what people paste, what it means today, what
helps.

An entry is found by the words of a message (`says`), by how people put it (`asked`), by
a name (`names`) or by what a listing contains (`code`).
"""

import collections
import functools
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_messages import rules

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same code under another name
    import tomli as tomllib

TABLE = Path(__file__).with_name("messages.toml")
PART = re.compile("[a-z0-9_]+")  # of a plain text, between what is no part of a word


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


def pattern(wording):
    """The regular expression for a wording in a plain text. Behind it a word may go on
    (`cublas`, `cublasSgemm`), a number may not.
    """
    pieces = [re.escape(piece.strip()) for piece in plain(wording).split("…")]
    begin = r"(?<![a-z0-9_])" if re.match("[a-z0-9_]", plain(wording)) else ""
    end = "(?![0-9])" if re.search("[0-9]$", plain(wording)) else ""
    return re.compile(f"{begin}{f'.{{0,{rules.GAP}}}?'.join(pieces)}{end}")


@functools.cache
def patterns():
    """(id, wording, its regular expression) of the whole table."""
    return [
        (entry.id, wording, pattern(wording))
        for entry in entries().values()
        for wording in entry.says
    ]


def fitting(text):
    """(id, wording, its match) of the wordings that stand in a plain text, in the order
    of the table.
    """
    index = _index()
    places = set(index[""]).union(*(index.get(word, ()) for word in PART.findall(text)))
    for place in sorted(places):
        id, wording, expression = patterns()[place]
        if match := expression.search(text):
            yield id, wording, match


@functools.cache
def _index():
    """word → places in patterns() of the wordings that cannot fit a text without it: of
    each wording its rarest such word, "" where it has none.
    """
    required = [whole_words(wording) for _, wording, _ in patterns()]
    count = collections.Counter(word for some in required for word in set(some))
    index = {"": []}
    for place, some in enumerate(required):
        index.setdefault(min(some, key=count.get, default=""), []).append(place)
    return index


def whole_words(wording):
    """The words that stand whole in each text that a wording fits: not the last before
    an … or the end, which may go on there, and not the first behind an ….
    """
    pieces = [piece.strip() for piece in plain(wording).split("…")]
    return [
        word[0]
        for n, piece in enumerate(pieces)
        for word in PART.finditer(piece)
        if word.end() < len(piece) and (word.start() > 0 or n == 0)
    ]


@functools.lru_cache(maxsize=4096)
def words(text):
    """The words of a text in their order, without endings, numbers, what only asks."""
    stems = [rules.ENDING.sub("", word) for word in rules.WORD.findall(plain(text))]
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
    # sorted: a sum of floating point numbers depends on the order
    return sum(rarity().get(word, most) for word in sorted(some))
