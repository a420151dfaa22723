"""Which entries of the table fit a text: a whole paste, words, a name, a listing."""

import re
from dataclasses import dataclass

from torch_messages import code
from torch_messages.messages import PREFIX, entries, patterns, plain, weight, words

MOST = 5  # entries that a name or a listing leads to
LIKE = 0.8  # share that a wording and a part of a text have in common at least
MORE = 2  # words that this part may have more than the wording
LEAST = 9.0  # weight that the two have in common at least
ASKED = 0.5  # twice what they have in common, over the sum of both
MOST_OF = 0.7  # of a question, where that is
MUCH = 12.0  # at least
PART = 0.55  # of a wording, at least, that a part of it says
LONG = 60  # words, from which on a text is a paste and no question
CLOSE = 0.88  # of the best: as good as it
FRAME = re.compile(r'^\s*File ".*|^ {4,}.*|^\s*[~^]+\s*$', re.M)
# what logging puts before a message: a date, a level, a source
LOGGED = re.compile(
    r"^\s*(?:\[?[\d/-]{8,10}[ T][\d:.,]+Z?\]?[\s-]*)?"
    r"(?:\[?(?:INFO|WARNING|ERROR|CRITICAL|DEBUG)\]?[\s:-]+)?",
    re.M,
)
BEFORE = re.compile(  # the cause stands above these lines, and below the last
    r"the above exception was the direct cause|during handling of the above exception"
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
HEADS = re.compile(r"^(?:(?:cuda |hip )?[\w.]*(?:error|exception|warning)\b:? *)+")
ORIGINAL = "original traceback"
NAME = re.compile(r"-{0,2}[A-Za-z_][\w-]*(?:\.[A-Za-z_]\w*)*(?:\([^()]*\)|=\S*)?")


@dataclass(frozen=True)
class Found:
    """An entry that fits. by: "message", "name" or "listing". wording: of the entry,
    that fits a message best. near: by likeness only, not word for word.
    """

    entry: object
    by: str = "message"
    wording: str = ""
    near: bool = False


def find(text):
    """What fits a text, best first: [[Found, …], [Found, …]], of which the first list
    is the answer (several are equally good), the second what else stands in the text.
    """
    text = text.strip()
    if not text:
        return [], []
    found = []
    if code.is_code(text) and not text.endswith("()"):
        found = [Found(each, "listing") for each in code.like(text)[:MOST]]
    found = found or named(text)
    if found:
        return found, []
    if code.is_program(text):  # its texts are its own; a comment may quote what it got
        return _word_for_word(plain("\n".join(re.findall("#.*", text))))
    return said(text)


def missed(text):
    """What is said of a text that is not known: which line to search for, and where."""
    if code.is_program(text):
        return "Nothing collected here is like this listing. It may be right or not."
    bare = LOGGED.sub("", PREFIX.sub("", FRAME.sub("", text)))
    lines = [line.strip() for line in bare.splitlines() if line.strip()]
    told = [line for line in lines if re.search("Error|Exception|Warning", line)]
    line = ERROR.sub("", (told or lines or [""])[-1]) or text.strip()
    if len(line) > 90:
        line = line[:90].rpartition(" ")[0] or line[:90]
    low = text.lower()
    place = next((place for word, place in ASK.items() if word in low), "")
    place = place or "pytorch/pytorch"
    return (
        f"Not known here, and no guess. Search for “{line}” in"
        f" github.com/{place}/issues, and at discuss.pytorch.org."
    )


def said(text):
    """The same of messages."""
    first, others = _word_for_word(plain(text))
    if first:
        return first, others
    near = _part(text) or _like(text)
    return [Found(entry, wording=told, near=True) for entry, told in near], []


def of_listing(source, message):
    """The entries that a listing and what it said lead to, best first: those by both,
    those by the message, those by the code; last what many listings have.
    """
    first, others = said(message) if message.strip() else ([], [])
    told = [found.entry for found in (*first, *others) if not found.near]
    like = code.like(source)
    ordered = [entry for entry in told if entry in like] + told + like
    if not all(entry.cover for entry in ordered):
        ordered = [entry for entry in ordered if not entry.cover or entry in like]
    ordered.sort(key=lambda entry: entry.cover)
    return list(dict.fromkeys(ordered))[:MOST]


def called(entry):
    """The names that lead to an entry: its own, its row's, the heading of its row."""
    heading = [entry.row.heading.replace("`", "")] if entry.row else []
    return [*entry.names, *code.own(entry), *heading]


def named(name):
    """Entries that a name leads to: by the whole of it, by its last parts, or as the
    only one whose message has it. [] for what is no name.
    """
    whole = name.lower().strip("-")
    asked = re.sub(r"[(=].*", "", whole) if NAME.fullmatch(name) else whole
    exact, last, told = [], [], []
    for entry in entries().values():
        known = {each.lower().strip("-") for each in (entry.id, *called(entry))}
        if asked in known or whole in known:
            exact.append(entry)
        elif not NAME.fullmatch(name):
            continue
        elif any(_ends(asked, each) or _ends(each, asked) for each in known):
            last.append(entry)
        elif any(_has(plain(wording), asked) for wording in entry.says):
            told.append(entry)
    found = exact or last or (told if len(told) == 1 else [])
    return [Found(entry, "name") for entry in found[:MOST]]


def _ends(name, short):
    """Whether a dotted name ends with a shorter one: torch.nn.DataParallel."""
    return name.endswith("." + short)


def _has(text, name):
    return re.search(rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])", text)


def _word_for_word(text):
    """(those that answer, the others): Found, whose wordings stand in a plain text."""
    spans, wordings = {}, {}
    for id, wording, pattern in patterns():
        if found := pattern.search(text):
            told = weight(set(words(wording))), *found.span()
            if told > spans.get(id, (-1.0, 0, 0)):
                spans[id], wordings[id] = told, wording
    kept = [id for id in spans if not any(_within(spans, id, each) for each in spans)]
    table = entries()
    causes = [id for id in kept if not table[id].cover] or kept
    if not causes:
        return [], []
    if table[causes[0]].cover:  # nothing else: the first, which the others follow
        causes.sort(key=lambda id: spans[id][1])
    else:
        causes.sort(key=lambda id: _rank(text, *spans[id]), reverse=True)
    best = spans[causes[0]]
    same = [id for id in causes if spans[id][1:] == best[1:]]
    others = [id for id in causes if id not in same]
    return tuple(
        [Found(table[id], wording=wordings[id]) for id in some]
        for some in (same, others)
    )


def _within(spans, id, other):
    """Whether what fits one entry is a part of what fits another one."""
    (told, start, end), (more, first, last) = spans[id], spans[other]
    return first <= start and end <= last and more > told and id != other


def _rank(text, told, start, end):
    """What is answered first: the cause of another error, an error rather than a
    warning, the last in the text.
    """
    cut, original = text.rfind(ORIGINAL), [m.start() for m in BEFORE.finditer(text)]
    caused = start > cut if cut >= 0 else bool(original) and start < original[-1]
    warned = "warning" in text[max(0, start - 80) : end]
    return caused, not warned, start, told


def _part(text):
    """(entry, the wording) of which a short text is most, where it is a part
    of one or two entries alone: people quote the words that they understand.
    """
    part = HEADS.sub("", plain(text)).strip(" .:;!-()[]<>")
    told = weight(set(words(part)))
    if "\n" in part or told < LEAST:
        return []
    found, share = {}, 0.0
    for entry in entries().values():
        for wording in entry.says:
            if _has(plain(wording), part):
                found.setdefault(entry.id, (entry, wording))
                share = max(share, told / weight(set(words(wording))))
    return list(found.values()) if len(found) <= 2 and share > PART else []


def _like(text):
    """(entry, the wording) that a text is most like, the best first."""
    shown = FRAME.sub("", text) if "Traceback" in text else text
    asked = words(shown)
    those, scores = set(asked), {}
    for entry in entries().values():
        said = [(_share(wording, asked, those), wording) for wording in entry.says]
        if len(asked) < LONG:
            said += [(_question(wording, those), wording) for wording in entry.asked]
        score, wording = max(said, default=(0.0, ""))
        if score:
            scores[entry.id] = score, wording
    best = max(scores.values(), default=(0.0, ""))[0]
    found = [id for id, (score, _) in scores.items() if score >= CLOSE * best]
    found.sort(key=lambda id: -scores[id][0])
    return [(entries()[id], scores[id][1]) for id in found[:2]]


def _share(wording, asked, those):
    """What a wording and the part of a text that is most like it have in common, as a
    share of what they say together; 0 where that is too little.
    """
    listed = words(wording)
    own = set(listed)
    if weight(own & those) < max(LEAST, LIKE * weight(own)):
        return 0.0
    best = 0.0
    for n, word in enumerate(asked):
        if word in own:
            part = set(asked[n : n + len(listed) + MORE])
            common = weight(own & part)
            best = max(best, common / (weight(own) + weight(part - own, 0.5)))
    return best if best >= LIKE else 0.0


def _question(wording, those):
    """The same of a question, wherever its words stand: of both, or nearly all of the
    question within a longer text.
    """
    own = set(words(wording))
    common = weight(own & those)
    both = 2 * common / (weight(own) + weight(those))
    most = common / weight(own) if common >= MUCH else 0.0
    score = max(both if both >= ASKED else 0.0, most if most >= MOST_OF else 0.0)
    return score if common >= LEAST else 0.0
