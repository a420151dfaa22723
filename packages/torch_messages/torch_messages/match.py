"""Which entries of the table fit a text: a whole paste, words, a name, a listing."""

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

from torch_messages import code, rules
from torch_messages.messages import Entry, entries, fitting, plain, weight, words

# what logging puts before a message: a date, a level, a source
LOGGED = re.compile(
    r"^\s*(?:\[?[\d/-]{8,10}[ T][\d:.,]+Z?\]?[\s-]*)?"
    r"(?:\[?(?:INFO|WARNING|ERROR|CRITICAL|DEBUG)\]?[\s:-]+)?",
    re.M,
)
# what a text is about → where its makers read questions
ASK = {
    "torch_xla": "pytorch/xla",
    "torch_tpu": "google-pytorch/torch_tpu",
    "nccl": "NVIDIA/nccl",
    "triton": "triton-lang/triton",
    "accelerate": "huggingface/accelerate",
    "transformers": "huggingface/transformers",
    "lightning": "Lightning-AI/pytorch-lightning",
}
ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Warning)\b:? *")


@dataclass(frozen=True)
class Found:
    """An entry that fits. by: "message", "name" or "listing". wording: of the entry,
    that fits a message best. near: by likeness only, not word for word.
    """

    entry: Entry
    by: str = "message"
    wording: str = ""
    near: bool = False


def find(text: str) -> tuple[list[Found], list[Found]]:
    """What fits a text, best first: a list with the answer (several are equally good),
    and one with what else stands in the text.

    >>> answers, others = find("xm.mark_step")
    >>> [(answer.entry.id, answer.by) for answer in answers]
    [('tpu/mark-step', 'name')]
    """
    text = text.strip()
    if not text:
        return [], []
    if code.is_code(text) and not text.endswith("()"):
        if entries_like := code.like(text)[: rules.MOST]:
            return [Found(entry, "listing") for entry in entries_like], []
    if by_name := named(text):
        return by_name, []
    if code.is_program(text):  # its texts are its own; a comment may quote what it got
        return _word_for_word(plain("\n".join(re.findall("#.*", text))))
    return of_message(text)


def missed(text):
    """What is said of a text that is not known: which line to search for, and where."""
    if code.is_program(text):
        return "Nothing collected here is like this listing. It may be right or not."
    bare = LOGGED.sub("", rules.PREFIX.sub("", rules.FRAME.sub("", text)))
    lines = [line.strip() for line in bare.splitlines() if line.strip()]
    errors = [line for line in lines if re.search("Error|Exception|Warning", line)]
    line = ERROR.sub("", (errors or lines or [""])[-1]) or text.strip()
    if len(line) > 90:
        line = line[:90].rpartition(" ")[0] or line[:90]
    low = text.lower()
    places = [place for word, place in ASK.items() if word in low]
    place = (places or ["pytorch/pytorch"])[0]
    return (
        f"Not known here, and no guess. Search for “{line}” in"
        f" github.com/{place}/issues, and at discuss.pytorch.org."
    )


def of_message(text):
    """As find, of a text that is a message and nothing else."""
    answers, others = _word_for_word(plain(text))
    if answers:
        return answers, others
    near = _part(text) or _like(text)
    return [Found(entry, wording=wording, near=True) for entry, wording in near], []


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
            by_whole.append(entry)
        elif not is_name:
            continue
        elif any(_ends(bare, each) or _ends(each, bare) for each in names):
            by_end.append(entry)
        elif any(_has(plain(wording), bare) for wording in entry.says):
            by_message.append(entry)
    only = by_message if len(by_message) == 1 else []
    best = by_whole or by_end or only
    return [Found(entry, "name") for entry in best[: rules.MOST]]


@functools.cache
def _names():
    return [
        (entry, {each.lower().strip("-") for each in (entry.id, *entry.called)})
        for entry in entries().values()
    ]


def _ends(name, short):
    """Whether a dotted name ends with a shorter one: torch.nn.DataParallel."""
    return name.endswith("." + short)


def _has(text, name):
    if name not in text:
        return False
    whole = rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])"
    return bool(re.search(whole, text))


# --------------------------------------------------------------------------------------
# Messages, word for word


class Place(NamedTuple):
    """Where a wording stands in a text. weight: what its words say. Of an entry the
    greatest counts.
    """

    weight: float
    start: int
    end: int
    wording: str


def _word_for_word(text):
    """(those that answer, the others): Found, whose wordings stand in a plain text."""
    places = {}
    for id, wording, match in fitting(text):
        place = Place(_own(wording)[2], *match.span(), wording)
        if id not in places or place[:3] > places[id][:3]:
            places[id] = place
    outer = [id for id in places if not _is_within_another(id, places)]
    table = entries()
    causes = [id for id in outer if not table[id].cover] or outer
    if not causes:
        return [], []
    if table[causes[0]].cover:  # nothing else: the first, which the others follow
        causes.sort(key=lambda id: places[id].start)
    else:
        causes.sort(key=lambda id: _rank(text, places[id]), reverse=True)
    best = places[causes[0]]
    answers = [id for id in causes if places[id][1:3] == best[1:3]]
    others = [id for id in causes if id not in answers]
    return (
        [Found(table[id], wording=places[id].wording) for id in answers],
        [Found(table[id], wording=places[id].wording) for id in others],
    )


def _is_within_another(id, places):
    """Whether what fits an entry is a part of what fits another, and says less."""
    inner = places[id]
    return any(
        outer.start <= inner.start
        and inner.end <= outer.end
        and outer.weight > inner.weight
        for other, outer in places.items()
        if other != id
    )


def _rank(text, place):
    """What is answered first: the cause of another error, an error rather than a
    warning, the last in the text.
    """
    original = text.rfind(rules.ORIGINAL)
    joints = [match.start() for match in rules.BEFORE.finditer(text)]
    if original >= 0:
        is_cause = place.start > original
    else:
        is_cause = bool(joints) and place.start < joints[-1]
    is_warning = "warning" in text[max(0, place.start - 80) : place.end]
    return is_cause, not is_warning, place.start, place.weight


# --------------------------------------------------------------------------------------
# Messages and questions, by likeness


def _part(text):
    """(entry, the wording) of which a short text is most, where it is a part
    of one or two entries alone: people quote the words that they understand.
    """
    part = rules.HEADS.sub("", plain(text)).strip(" .:;!-()[]<>")
    own = weight(set(words(part)))
    if "\n" in part or own < rules.LEAST:
        return []
    holders, share = {}, 0.0
    for entry in entries().values():
        for wording in entry.says:
            if _has(plain(wording), part):
                holders.setdefault(entry.id, (entry, wording))
                share = max(share, own / _own(wording)[2])
    return list(holders.values()) if len(holders) <= 2 and share > rules.PART else []


def _like(text):
    """(entry, the wording) that a text is most like, the best first."""
    shown = rules.FRAME.sub("", text) if "Traceback" in text else text
    asked = words(shown)
    asked_set, scores = set(asked), {}
    for entry in entries().values():
        rated = [(_share(wording, asked, asked_set), wording) for wording in entry.says]
        if len(asked) < rules.LONG:
            rated += [(_question(each, asked_set), each) for each in entry.asked]
        score, wording = max(rated, default=(0.0, ""))
        if score:
            scores[entry.id] = score, wording
    best = max(scores.values(), default=(0.0, ""))[0]
    near = [id for id, (score, _) in scores.items() if score >= rules.CLOSE * best]
    near.sort(key=lambda id: -scores[id][0])
    return [(entries()[id], scores[id][1]) for id in near[:2]]


@functools.cache
def _own(wording):
    """The words of one of the table's texts, the same as a set, and what they say."""
    listed = words(wording)
    return listed, frozenset(listed), weight(set(listed))


def _share(wording, asked, asked_set):
    """What a wording and the part of a text that is most like it have in common, as a
    share of what they say together; 0 where that is too little.
    """
    listed, own, whole = _own(wording)
    if own.isdisjoint(asked_set):
        return 0.0
    common = weight(own & asked_set)
    if common < rules.LEAST or common < rules.LIKE * whole:
        return 0.0
    best = 0.0
    for n, word in enumerate(asked):
        if word in own:
            part = set(asked[n : n + len(listed) + rules.MORE])
            common = weight(own & part)
            best = max(best, common / (whole + weight(part - own, 0.5)))
    return best if best >= rules.LIKE else 0.0


def _question(wording, asked_set):
    """The same of a question, wherever its words stand: of both, or nearly all of the
    question within a longer text.
    """
    _, own, whole = _own(wording)
    common = weight(own & asked_set)
    if common < rules.LEAST:
        return 0.0
    of_both = 2 * common / (whole + weight(asked_set))
    of_it = common / whole if common >= rules.MUCH else 0.0
    return max(
        of_both if of_both >= rules.ASKED else 0.0,
        of_it if of_it >= rules.MOST_OF else 0.0,
    )
