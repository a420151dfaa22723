"""Where to read on about what the table does not know: pages of PyTorch Device Lab, and
the trackers of the libraries that people use with PyTorch.

All that this knows stands in places.json, its numbers and expressions too: for programs
in other languages. The course's website reads it in JavaScript.
"""

import functools
import json
import math
import re
from pathlib import Path
from typing import NamedTuple

from torch_messages import phrases

FILE = Path(__file__).with_name("places.json")


@functools.cache
def read():
    """The whole of the file; its places, which lie by page, as one list: [title,
    "07#remedies", words that the title has not, if there are some].
    """
    told = json.loads(FILE.read_text(encoding="utf-8"))
    told["places"] = [
        [title, f"{page}#{anchor}", *more]
        for page, some in told["places"].items()
        for title, anchor, *more in some
    ]
    return told


def address(short):
    """The address on the web of a place: "07#remedies"."""
    page, anchor = short.split("#")
    return f"{read()['site']}{read()['pages'][page]}#{anchor}"


# --------------------------------------------------------------------------------------
# Pages


def search(text: str, most: int = 3) -> list[tuple[str, str]]:
    """The pages that answer a question in a few words, best first: (title, address). []
    where none has enough of its words. Of a symptom told at length those that answer
    one of its first sentences.

    >>> search("how do I find a memory leak on my GPU?", 1)[0][0]
    'How do I find out why memory grows with each iteration?'
    """
    rules = read()["rules"]
    if len(text) <= rules["QUESTION"] and (found := _search(text, rules["LEAST"])):
        return found[:most]
    if text.count("\n") > rules["SYMPTOM"] or not phrases.is_story(text):
        return []
    for sentence in phrases.sentences(text)[: rules["FIRST"]]:
        if found := _search(sentence, rules["MUCH"]):
            return found[:most]
    return []


def _search(text, least):
    """The pages that have enough of its words, of this weight at least, best first."""
    rules = read()["rules"]
    asked = set(words(text))
    if not 0 < len(asked) <= rules["LONG"]:
        return []
    whole = sum(_weight(word) for word in sorted(asked))
    scores, chinese = {}, is_chinese(text)
    for place, (title, short, *_) in enumerate(read()["places"]):
        head, every, in_chinese = _words()[place]
        if in_chinese != chinese or asked.isdisjoint(every):
            continue
        common = sum(_weight(word) for word in sorted(asked & every))
        if common < least or common < rules["SHARE"] * whole:
            continue
        in_title = sum(_weight(word) for word in sorted(asked & head))
        score = common + rules["TITLE"] * in_title
        score = round(score - rules["MORE"] * len(every - asked), 6)
        if short not in scores or score > scores[short][0]:
            scores[short] = score, title
    best = sorted(scores, key=lambda short: (-scores[short][0], short))
    return [(scores[short][1], address(short)) for short in best]


def is_chinese(text):
    return bool(re.search(read()["rules"]["CHINESE"], text))


def words(text):
    """The words of a text without endings, and of Chinese each two letters in a row."""
    rules, found = read()["rules"], []
    for word in re.findall(rules["WORD"], text.lower()):
        if is_chinese(word):
            found += [word[n : n + 2] for n in range(len(word) - 1)]
        else:
            found.append(re.sub(rules["ENDING"], "", word))
    asking = set(rules["ASKING"].split())
    return [word for word in found if word not in asking]


@functools.cache
def _words():
    """Of each place the words of its title, all, and whether it is in Chinese."""
    return [
        (
            frozenset(words(title)),
            frozenset(words(" ".join([title, *more]))),
            is_chinese(title),
        )
        for title, _, *more in read()["places"]
    ]


@functools.cache
def _count():
    count = {}
    for _, every, _ in _words():
        for word in every:
            count[word] = count.get(word, 0) + 1
    return count


def _weight(word):
    """How much a word says: the logarithm of one over the share of the places that have
    it. Of Chinese letters that stand in none, which may belong to two words, less.
    """
    count = _count().get(word, 0)
    share = read()["rules"]["LESS"] if is_chinese(word) and not count else 1
    return share * math.log((len(_words()) + 1) / (1 + count))


# --------------------------------------------------------------------------------------
# Trackers


def tracker(text: str) -> tuple[str, str, bool]:
    """Whose message a text is: name, repository on GitHub, whether it is foreign: not
    of PyTorch, or of what is made for it. The repository is "" where none is known.

    It is told by the package in the last frame of a traceback, by the class of the
    error, by words.

    >>> tracker("pandas.errors.ParserError: Error tokenizing data.")
    ('pandas', 'pandas-dev/pandas', True)
    """
    lines = re.split("\r\n|\r|\n", text[-read()["rules"]["TAIL"] :])
    return (
        _of_frames(lines)
        or _of_class(lines)
        or _of_words(lines)
        or _trackers()[-1].told
    )


class Tracker(NamedTuple):
    """A library. packages: what Python imports. words: of a text that is about it, as a
    regular expression. classes: its errors, likewise. sure: words that are its own,
    whatever else a text says. foreign: 1 if it does without PyTorch; 2 if its words say
    nothing beside PyTorch's, though it has a part in it.
    """

    name: str
    repository: str
    packages: str
    words: str = ""
    classes: str = ""
    foreign: int = 0
    sure: str = ""

    @property
    def told(self):
        return self.name, self.repository, self.foreign == 1

    def stands_in(self, text):
        """Whether a word of it does, whole: torch is not torch_xla."""
        return _stand(self.words or "|".join(self.packages.split()), text)

    def surely_in(self, text):
        return bool(self.sure) and _stand(self.sure, text)


def _stand(some, text):
    whole = rf"(?<![\w-])(?<!without )(?:{some})(?![\w-])"
    return bool(re.search(whole, text, re.A | re.I))


@functools.cache
def _trackers():
    return [Tracker(*each) for each in read()["trackers"]]


def _of_package(name):
    for each in _trackers():
        if name in each.packages.split():
            return each.told
    return None


def _of_frames(lines):
    """By the last frame; what only passes an error on is left out."""
    rules = read()["rules"]
    for line in reversed(lines):
        found = re.search(rules["FRAME"], line)
        path = found and next(filter(None, found.groups()))
        if not path or re.search(rules["PASSES"], path):
            continue
        inside = re.search(rules["INSTALLED"], path)
        if inside:
            return _of_package(inside[1]) or _stranger(inside[1], lines)
        folders = re.split(r"[/\\]", path)
        return _of_package("ComfyUI") if "ComfyUI" in folders else None
    return None


def _stranger(package, lines):
    """A package that is not listed; its message may be PyTorch's, if that is used."""
    return None if _is_of_torch("\n".join(lines)) else (package, "", True)


def _is_of_torch(text):
    return _trackers()[-1].stands_in(text)


def _of_class(lines):
    """By the last line that begins with the class of an error."""
    rules = read()["rules"]
    for line in reversed(lines):
        found = re.match(rules["CLASS"], line)
        if not found:
            continue
        top, name = found[1].partition(".")[0], found[2]
        if told := _of_package(top) if top else _by_class(name, line):
            return told
        if re.search(rules["ERROR"], name):
            known = not top or top in rules["PYTHON"].split()
            return None if known else (top, "", True)
    return None


def _by_class(name, line):
    """By the class alone, if the line has no word of PyTorch: a NameError of torch."""
    for each in _trackers():
        if each.classes and re.fullmatch(each.classes, name):
            near = any(not one.foreign and one.stands_in(line) for one in _trackers())
            return None if near else each.told
    return None


def _of_words(lines):
    """By the words of the last line that says an error, or of all, but for lists of
    versions. A library that does without PyTorch is told where no word is PyTorch's,
    and in no other line than the error: its warnings stand above the errors of others.
    """
    rules = read()["rules"]
    said = [line for line in lines if not re.search(rules["FRAME"], line)]
    every = "\n".join(said)
    for each in _trackers():
        if each.surely_in(every):
            return each.told
    errors = [line for line in said if re.search("error|exception", line, re.I)]
    said = [line for line in said if not re.search(rules["VERSIONS"], line)]
    whole, alone = "\n".join(said), not _is_of_torch(every)
    parts = [(errors[-1], alone), (whole, False)] if errors else [(whole, alone)]
    if alone and not errors:
        parts.append((every, True))
    last = not _is_of_torch(whole)
    for part, foreign in parts:
        for each in _trackers():
            if (True, foreign, last)[each.foreign] and each.stands_in(part):
                return each.told
    return None
