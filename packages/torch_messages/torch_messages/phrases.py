"""What a text says in words: the line to search for, its sentences, and whether its
message is missing.

The numbers and expressions stand in phrases.json, for programs in other languages: the
course's website reads them in JavaScript.
"""

import functools
import json
import re
from pathlib import Path

from torch_messages import rules

FILE = Path(__file__).with_name("phrases.json")
NO_FRAME = (
    "The last line of the traceback is missing: it has the message. Paste it, too."
)
NO_MESSAGE = (
    "There is no message in this text. If there was one, add it: the last lines of the"
    " output."
)


def read():
    """The numbers and expressions as they are written, a dict."""
    return json.loads(FILE.read_text(encoding="utf-8"))


@functools.cache
def _rules():
    return {
        name: rule if isinstance(rule, int) else re.compile(rule, re.A)
        for name, rule in read().items()
    }


def phrase(text: str, unknown: str = "") -> str:
    """What to search for: the message of the line that failed (unknown, if that is
    known). Without one a title, or the first sentence that says something; without
    sentences the first line.

    >>> phrase("Hello! Training hangs after a while. It has 4 GPUs of NVIDIA.")
    'It has 4 GPUs of NVIDIA.'
    """
    rule = _rules()
    line = unknown or (failed(text) or [""])[-1]
    if line:
        return _cut(_message(line))
    said = sentences(text)
    telling = [each for each in said if rule["TELLING"].search(each)]
    filled = [line.strip() for line in _begin(text) if line.strip()]
    rest = [line for line in filled if not rule["NO_PROSE"].search(line)]
    return _cut([*telling, *said, *rest, *filled, text.strip()][0])


def sentences(text: str) -> list[str]:
    """The sentences of a text, and its titles: of at least four words, that are no
    code, no table, no log, no greeting.
    """
    found, rule = [], _rules()
    for line, least in _paragraphs(text):
        for sentence in rule["STOPS"].split(rule["MARKS"].sub("", line)):
            said = rule["GREETING"].sub("", sentence.strip()).strip()
            words = len(rule["WORDS"].findall(said))
            plain = len(rule["PLAIN"].findall(said))
            if words >= least and (plain > 1 or least < rule["LEAST"]):
                found.append(said)
    return found


def _paragraphs(text):
    """[line of prose, words that a sentence of it needs]; wrapped ones are joined."""
    rule, lines, joined = _rules(), _begin(text), []
    first = next((n for n, line in enumerate(lines) if line.strip()), 0)
    for n, line in enumerate(lines):
        if rule["NO_PROSE"].search(line) or not line.strip():
            continue
        above = lines[n - 1] if n else ""
        goes_on = len(above) >= rule["WRAPPED"] and rule["GOES_ON"].search(line)
        if joined and goes_on and not rule["NO_PROSE"].search(above):
            joined[-1][0] += " " + line
            continue
        is_title = n == first and n + 1 < len(lines) and not lines[n + 1].strip()
        joined.append([line, rule["TITLE"] if is_title else rule["LEAST"]])
    return joined


def missing(text: str) -> str:
    """What is said of a text without a message: of a traceback that has lost its last
    line, of a story. "" for others, also for a single line, which may be one.
    """
    rule = _rules()
    if failed(text) or rules.ENTITY.search(text) or rule["NO_ERROR"].search(text):
        return ""
    if _has_frames(text):
        return NO_FRAME
    filled = [line for line in _begin(text) if line.strip()]
    if len(filled) < 2 and len(sentences(text)) < 2:
        return ""
    return "" if any(map(_may_be_message, _end(text))) else NO_MESSAGE


def is_story(text: str) -> bool:
    """Whether nothing in a text has failed, as far as its lines say."""
    return not failed(text) and not _has_frames(text)


def _has_frames(text):
    return any(_rules()["FRAME"].search(line) for line in _end(text))


def _may_be_message(line):
    """Whether it has a word of messages, and none of people."""
    rule = _rules()
    told = rule["MESSAGE"].search(line.lower()) and not rule["OWN"].search(line)
    return bool(told or rules.KINDS["warning"].search(line))


# --------------------------------------------------------------------------------------
# Lines


def _begin(text):
    return _lines(text[: _rules()["TAIL"]])


def _end(text):
    return _lines(text[-_rules()["TAIL"] :])


def _lines(text):
    """Without what stands before their messages, and without marks of HTML."""
    lines = re.split("\r\n|\r|\n", rules.COLORS.sub("", text))
    lines = [rules.PREFIX.sub("", line) for line in lines]
    return [
        rules.TAG.sub("", line).strip() if rules.TAG.search(line) else line
        for line in lines
    ]


def failed(text):
    """The lines that say that something has failed; no frames."""
    rule, found = _rules(), []
    for line in _end(text):
        bare = rules.LOGGED.sub("", line)
        if re.match(r" *raise | {4}|[~^ ]+$", line) or rule["FRAME"].search(line):
            continue
        signs = rules.KINDS["error"], rules.KINDS["death"], rule["SAID"]
        if any(sign.search(each) for sign in signs for each in (line, bare)):
            found.append(line)
    return found


def _message(line):
    """The message of a line."""
    bare = rules.LOGGED.sub("", rules.PREFIX.sub("", line)).strip()
    if said := _rules()["SAID"].search(bare):
        return said[1].rstrip(" `)*") if said.start() else said[1]
    return rules.HEADS.sub("", bare) or bare or line


def _cut(line):
    most, line = _rules()["PHRASE"], _rules()["QUOTES"].sub("", line).strip()
    return line if len(line) <= most else line[:most].rpartition(" ")[0] or line[:most]
