"""What stands in a paste, sorted: lines of code, frames of tracebacks, errors, signs of
death, warnings, and text.
"""

import bisect
from dataclasses import dataclass

from torch_messages import code, rules
from torch_messages.messages import plain

# how much a line of a kind says of what has failed
SAYS = {"death": 3, "error": 3, "text": 2, "warning": 1, "frame": 0, "joint": 0}


@dataclass(frozen=True)
class Paste:
    """lines: (kind, line as it stood) of what is no code. code: the lines of code, as
    one text. text: the lines plain, as one text. starts: where in it each begins.
    """

    lines: tuple
    code: str
    text: str
    starts: tuple

    def at(self, place):
        """The number of the line at a place in the text."""
        return bisect.bisect_right(self.starts, place) - 1

    def kind(self, place):
        """Of the line at a place; text below an error belongs to it."""
        n = self.at(place)
        while n > 0 and self.lines[n][0] == "text" and self.lines[n][1]:
            n -= 1
        kind, above = self.lines[self.at(place)][0], self.lines[n][0]
        return (
            above if kind == "text" and above in ("error", "death", "warning") else kind
        )

    def says(self, start, end):
        """How much what stands between two places says of what has failed."""
        return max(SAYS[self.kind(start)], SAYS[self.kind(end - 1)])

    def as_text(self):
        """The same with its code as text."""
        return Paste((("text", self.code),), "", plain(self.code), (0,))

    def said(self):
        """The lines without frames, as one text."""
        return "\n".join(
            line for kind, line in self.lines if line and kind not in ("frame", "joint")
        )

    def failed(self):
        """The numbers of the lines that say that something has failed."""
        return [n for n, (kind, _) in enumerate(self.lines) if SAYS[kind] == 3]


def clean(text):
    """A text without the marks of HTML and of terminals, and of a long one what
    matters: its beginning, its end, and lines with errors in between.
    """
    if len(text) > rules.WHOLE:
        text = _window(text)
    text = rules.COLORS.sub("", text.replace("\r\n", "\n"))
    if rules.ENTITY.search(text):
        text = rules.TAG.sub("", text)
        for entity, letter in rules.ENTITIES.items():
            text = text.replace(entity, letter)
    return text.strip()


def _window(text):
    """Of a long text at most rules.WHOLE letters."""
    part = rules.WHOLE // 4
    begin, middle, end = text[:part], text[part:-part], text[-part:]
    found, left = [], 2 * part
    for match in rules.SIGN.finditer(middle):
        around = middle[
            max(0, match.start() - rules.AROUND) : match.end() + rules.AROUND
        ]
        if len(around) > left:
            break
        found.append(around)
        left -= len(around)
    return "\n".join([begin, *found, end])


def sort(text):
    """A clean text as a Paste."""
    every = text.split("\n")
    logged = [rules.PREFIX.sub("", line) for line in every]
    bare = [rules.LOGGED.sub("", line) for line in logged]
    kinds = [
        "error" if kind == "text" and rules.KINDS["error"].search(line) else kind
        for kind, line in zip(_kinds(bare), logged, strict=True)
    ]
    for start, end in _runs(bare, kinds):
        kinds[start:end] = ["code"] * (end - start)
    lines, shown, places, here = [], [], [], 0
    for kind, line in zip(kinds, every, strict=True):
        comment = "".join(rules.COMMENT.findall(line)) if kind == "code" else line
        if kind != "code" or comment:
            lines.append(("frame" if kind == "code" else kind, comment.strip()))
            shown.append(plain(comment))
            places.append(here)
            here += len(shown[-1]) + bool(shown[-1])
    source = "\n".join(
        line for kind, line in zip(kinds, every, strict=True) if kind == "code"
    )
    return Paste(tuple(lines), source, " ".join(filter(None, shown)), tuple(places))


def _kinds(lines):
    """The kind of each line, but for code."""
    frame = None  # indentation of the frame whose source comes next
    for line in lines:
        own = len(line) - len(line.lstrip())
        kind = next(
            (kind for kind, sign in rules.KINDS.items() if sign.search(line)), ""
        )
        if kind == "frame":
            frame = own
        elif frame is not None and (own > frame or code.are_code([line])[0]):
            kind, frame = "frame", frame if own > frame else None
        else:
            frame = None
        yield kind or "text"


def _runs(lines, kinds):
    """(first, behind the last) of the stretches of code: of two lines and more, or all,
    or behind a fence.
    """
    found = [
        is_code and kind in ("text", "warning", "error", "death")
        for is_code, kind in zip(code.are_code(lines), kinds, strict=True)
    ]
    start = None
    filled = sum(1 for line in lines if line.strip())
    for n, (is_code, line) in enumerate(
        zip([*found, False], [*lines, "end"], strict=True)
    ):
        if is_code or (start is not None and not line.strip()):
            start = n if start is None else start
        elif start is not None:
            size = sum(1 for each in lines[start:n] if each.strip())
            fenced = lines[start - 1].startswith("```") if start else False
            if size > 1 or size == filled or fenced:
                yield start, n
            start = None
