"""The table of messages (messages.toml): what people paste, what it means today, what
helps.

An entry is found by the words of a message (`says`), by how people put it (`asked`), by
a name (`names`) or by what a listing contains (`code`). Where its id is the name of a
row of lesson 16, the row gives `means` and `do` unless the entry has its own.
"""

import functools
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from course.old_code.row import rows

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same code under another name
    import tomli as tomllib

TABLE = Path(__file__).with_name("messages.toml")
GAP = 200  # characters that … stands for, at most
SPACE = "[ \\t\\r\\n\\f\\v\u00a0]+"
QUOTES = str.maketrans("‘’´`“”«»", "''''\"\"\"\"")
# [rank0]: or [rank0]:[W825 13:09:39.967659278 ProcessGroupNCCL.cpp:1538], and frames
PREFIX = re.compile(r"^[ \t]*(?:\[[\w ]*rank ?\d+\]:?|[│|>]+)[ \t]*", re.M | re.I)
COLORS = re.compile(r"\x1b\[[0-9;]*m")
WORD = re.compile(r"[a-z0-9_]*[a-z_][a-z0-9_]*")
# of a question, and say nothing of what it asks
ASKING = set("how do doe did i my me what why when can should which".split())
ENDING = re.compile(r"(?<=[a-z]{3})(?:ing|ed|es|s)$")


@dataclass(frozen=True)
class Entry:
    """What is known about a message.

    id: group and name. says: its wordings, … for what varies. asked: how people put it.
    names: bare names that it answers. code: alternatives of pieces that a listing has.
    cover: whether it only says that something else has failed. means, do: one sentence,
    and the lines that help. unlike: id of a neighbor → what tells the two apart.
    lesson: number of a lesson and id of its cell. source: where it is known from.
    often: whether everybody meets it. since, until: versions of PyTorch.
    """

    id: str
    means: str
    do: str
    source: tuple = ()
    says: tuple = ()
    asked: tuple = ()
    names: tuple = ()
    code: tuple = ()
    cover: bool = False
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
    def row(self):
        """The Row of lesson 16 with this id, or None."""
        return rows().get(self.id)

    @property
    def title(self):
        """Its message, or what it is about."""
        if self.says:
            return self.says[0]
        if self.row:
            return self.row.heading.replace("`", "")
        return (*self.asked, *self.names)[0]


def read():
    """The table as it is written, a list of dicts."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))["entry"]


@functools.cache
def entries():
    """All entries, as a dict id → Entry."""
    found = {}
    for told in read():
        row = rows().get(told["id"])
        whole = {"means": row.why, "do": row.today} if row else {}
        whole |= told
        if "do" not in whole:
            continue  # of a row, and lesson 16 is not here
        whole["do"] = whole["do"].strip("\n")
        whole["unlike"] = tuple(whole.get("unlike", {}).items())
        whole["code"] = tuple(map(tuple, whole.get("code", ())))
        for name in ("says", "asked", "names", "source"):
            whole[name] = tuple(whole.get(name, ()))
        found[whole["id"]] = Entry(**whole)
    return found


def plain(text):
    """A text as wordings are compared: small letters, one kind of quotation marks, one
    space between words, without colors and without the name of a rank.
    """
    text = PREFIX.sub("", COLORS.sub("", text)).translate(QUOTES)
    return re.sub(SPACE, " ", text).strip().lower()


def pattern(wording):
    """The regular expression for a wording in a plain text. Behind it a word may go on
    (`cublas`, `cublasSgemm`), a number may not.
    """
    pieces = [re.escape(piece.strip()) for piece in plain(wording).split("…")]
    begin = r"(?<![a-z0-9_])" if re.match("[a-z0-9_]", plain(wording)) else ""
    end = "(?![0-9])" if re.search("[0-9]$", plain(wording)) else ""
    return re.compile(f"{begin}{f'.{{0,{GAP}}}?'.join(pieces)}{end}")


@functools.cache
def patterns():
    """(id, wording, its regular expression) of the whole table."""
    return [
        (entry.id, wording, pattern(wording))
        for entry in entries().values()
        for wording in entry.says
    ]


@functools.lru_cache(maxsize=4096)
def words(text):
    """The words of a text in their order, without endings, numbers, what only asks."""
    found = [ENDING.sub("", word) for word in WORD.findall(plain(text))]
    return [word for word in found if word not in ASKING]


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
