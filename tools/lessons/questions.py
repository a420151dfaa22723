"""What answers a question of a lesson, and what of it is folded: on the website, and in
the copies that readers get.

A question begins a paragraph with "**Predict.**" or "**Bet.**", to the end of its text,
or is a cell that calls `predict`.
"""

import re

QUESTION = re.compile(r"^\*\*(?:Predict|Bet)\.\*\*", re.M)
# a cell that asks, with its key
ASKS = re.compile(r'^predict\(\s*"(.+?)"', re.M)
# ends an explanation: a heading, a question, an exercise ("**05.1** ★")
NEXT_SUBJECT = re.compile(
    r"^(?:#{1,6} |\*\*(?:Predict|Bet)\.\*\*|\*\*\d\d\.\d\*\* ★)", re.M
)
# a text of one paragraph that ends with a colon
ANNOUNCES = re.compile(r".*:")
EXERCISE = re.compile(r"\*\*\d\d\.\d\*\* ★")
CHOICES = re.compile(r" *(?:[-*] |\d+\. |\||>)")  # a list, a table, a quotation
QUOTED = re.compile(r"\[[^\]]*\]\([^)]*\)|`[^`]*`|\"[^\"]*\"|“[^”]*”|```[\s\S]*?```")
# how a paragraph begins, other than a list, a table, a formula
BRIDGE = re.compile(r"[\w*`\[(\"“]")


def find_answers(cells):
    """Which cells answer a question: of a code cell the outputs do, of a text the
    explanation.

    Returns {index of the cell: key of the `predict` cell}, "#12" for a question in the
    text with the index 12.

    From a `predict` cell on, these are the code cells up to the one that reveals; from
    a text that asks, the code cells up to the next text. In both cases the text that
    follows, unless it begins with something new. Where nothing has been shown before
    that text, or it is a paragraph that ends with a colon, the answer to a text goes on
    below it.
    """
    found = {}
    for index, cell in enumerate(cells):
        if cell.cell_type == "code" and (asks := ASKS.search(cell.source)):
            key, end = asks[1], _reveals(cells, index, asks[1])
        elif cell.cell_type == "markdown" and QUESTION.search(cell.source):
            key, end = f"#{index}", _answered(cells, index)
        else:
            continue
        for place in range(index + 1, end + 1):
            between = cells[place]
            shows = between.get("outputs") and not ASKS.search(between.source)
            in_text = key.startswith("#") and between.cell_type == "markdown"
            if shows or in_text:
                found.setdefault(place, key)
        after = end + 1
        if index < end and after < len(cells) and cells[after].cell_type == "markdown":
            if explanation(cells, after)[0]:
                found.setdefault(after, key)
    return found


def _reveals(cells, asks, key):
    """The first cell after `asks` that reveals this key; `asks` where none does."""
    call = re.compile(rf'\breveal\(\s*"{re.escape(key)}"')
    later = range(asks + 1, len(cells))
    return next((index for index in later if call.search(cells[index].source)), asks)


def _answered(cells, asks):
    """The last code cell that answers the question in the text `asks`; `asks` where no
    code follows.
    """
    shown_so_far = False
    for end in range(asks, len(cells) - 1):
        following = cells[end + 1]
        if following.cell_type == "markdown":
            goes_on = not shown_so_far or ANNOUNCES.fullmatch(following.source)
            if end == asks or not goes_on or NEXT_SUBJECT.search(following.source):
                return end
        shown_so_far = shown_so_far or bool(following.get("outputs"))
    return len(cells) - 1


def explanation(cells, index):
    """The text of a cell as (what explains, the rest). The rest begins with a heading,
    a question or an exercise. Without these it is the last of several paragraphs, where
    it leads to code: a reader needs it with the answer closed.
    """
    text = cells[index].source.strip()
    if begin := NEXT_SUBJECT.search(text):
        return text[: begin.start()].strip(), text[begin.start() :].strip()
    explains, _, last = text.rpartition("\n\n")
    leads = [cell.cell_type for cell in cells[index + 1 : index + 2]] == ["code"]
    if leads and explains and BRIDGE.match(last) and "```" not in text:
        return explains, last
    return text, ""


def folded_texts(cells):
    """The texts that answer, as {index: (key of the question, what is folded, the
    rest)}. The lesson needs its outputs: they tell what answers.
    """
    return {
        index: (key, *explanation(cells, index))
        for index, key in sorted(find_answers(cells).items())
        if cells[index].cell_type == "markdown"
    }


def summary(key, begun):
    """The line of the closed answer to the question `key`. begun: the questions whose
    answer has begun above; this one is added.
    """
    words = "The answer goes on" if key in begun else "The answer"
    begun.add(key)
    return f"<summary>{words}</summary>"


def stray(text, asks=False):
    """Sentences of a text that ask and are no question of the lesson, so that nothing
    folds their answer. Headings, exercises, quotations, and the items of lists and
    tables, which readers choose from, may ask.

    asks: whether a `predict` cell stands below, to which the last paragraph leads
    """
    paragraphs, of_question = re.split(r"\n\n+", text), False
    for paragraph in paragraphs[:-1] if asks else paragraphs:
        if paragraph.startswith("#"):
            of_question = False
        elif QUESTION.match(paragraph) or EXERCISE.match(paragraph):
            of_question = True
        elif not of_question and not CHOICES.match(paragraph):
            plain = QUOTED.sub("X", paragraph).replace("\n", " ")
            yield from map(str.strip, re.findall(r"[^.?!:]*\?(?= |$)", plain))
