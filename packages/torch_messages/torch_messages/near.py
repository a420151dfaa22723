"""Which entries a short text is like, that has none of their wordings: a part of one,
its beginning, or a question.
"""

import functools
import re

from torch_messages import rules
from torch_messages.messages import entries, pieces, plain, weight, words


def near(text):
    """(entry, the wording or question) that a text is most like, three at most. Of a
    longer one without a message its sentences are tried as questions.
    """
    if len(words(text)) < rules.LONG:
        return _cut(text) or _part(text) or _like(text)
    return _cut(text) or _like(text) or _sentences(text)


def has(text, name):
    """Whether a text has a name, and not as a part of another."""
    if name not in text:
        return False
    whole = rf"(?<![a-z0-9_]){re.escape(name)}(?![a-z0-9_])"
    return bool(re.search(whole, text))


def _cut(text):
    """(entry, the wording) of which a text ends with the beginning: what was cut off on
    its way. None if more than rules.CUT_ENTRIES begin so.
    """
    text = rules.HEADS.sub("", plain(text)).rstrip(" .…")
    found, most = {}, 0
    for entry in entries().values():
        for wording in entry.says:
            if size := _begun(pieces(wording), text):
                if size > most:
                    found, most = {}, size
                if size == most:
                    found.setdefault(entry.id, []).append((len(wording), wording))
    said = weight(set(words(text[-most:]))) if most else 0
    if len(found) > rules.CUT_ENTRIES or said < rules.LEAST:
        return []
    shortest = sorted((*min(some), id) for id, some in found.items())
    return [(entries()[id], wording) for _, wording, id in shortest]


def _begun(wanted, text):
    """How many letters of a wording's pieces a text ends with, if that is enough of
    them: less where it ends within a word. 0 for none or all.
    """
    start = text.rfind(wanted[0][: rules.HEAD])
    if start < 0 or text[:start].rstrip()[-1:] not in rules.BEFORE_HEAD:
        return 0
    whole, said, rest = sum(map(len, wanted)), 0, text[start:]
    for n, piece in enumerate(wanted):
        if n:
            place = rest.find(piece, 0, rules.GAP + len(piece))
            if place < 0:
                enough = len(rest) <= rules.GAP and said >= rules.CUT_BETWEEN * whole
                return said if enough else 0
            rest = rest[place:]
        if piece.startswith(rest):
            within = rules.LETTER.match(piece[len(rest) :])
            said += len(rest)
            least = rules.CUT_WITHIN if within else rules.CUT_BETWEEN
            return said if said >= least * whole else 0
        if not rest.startswith(piece):
            return 0
        said, rest = said + len(piece), rest[len(piece) :]
    return 0


def _part(text):
    """(entry, the wording) of which a short text is most, where it is a part
    of one or two entries alone: people quote the words that they understand.
    """
    part = rules.HEADS.sub("", plain(text)).strip(" .:;!-()[]<>")
    said = weight(set(words(part)))
    if said < rules.LEAST:
        return []
    holders, share = {}, 0.0
    for entry in entries().values():
        for wording in entry.says:
            if has(plain(wording), part):
                holders.setdefault(entry.id, (entry, wording))
                share = max(share, said / counted(wording)[2])
    return list(holders.values()) if len(holders) <= 2 and share > rules.PART else []


def _like(text):
    """(entry, the wording) that a text is most like, the best first."""
    asked = words(text)
    asked_set, scores = set(asked), {}
    for entry in entries().values():
        rated = [(_share(wording, asked, asked_set), wording) for wording in entry.says]
        if len(asked) < rules.LONG:
            rated += [(_question(each, asked_set), each) for each in entry.asked]
        score, wording = max(rated, default=(0.0, ""))
        if score:
            scores[entry.id] = score, wording
    return _best(scores)


def _sentences(text):
    """(entry, the question) that a sentence of a text is most like, the best first."""
    scores = {}
    for sentence in rules.SENTENCE.split(text)[: rules.SENTENCES]:
        asked = set(words(sentence))
        if not rules.FEW <= len(asked) < rules.LONG:
            continue
        for entry in entries().values():
            for each in entry.asked:
                score = _question(each, asked)
                if score > scores.get(entry.id, (0.0, ""))[0]:
                    scores[entry.id] = score, each
    return _best(scores)


def _best(scores):
    """The one or two best of a dict id → (score, wording)."""
    best = max(scores.values(), default=(0.0, ""))[0]
    near = [id for id, (score, _) in scores.items() if score >= rules.CLOSE * best]
    near.sort(key=lambda id: -scores[id][0])
    return [(entries()[id], scores[id][1]) for id in near[:2]]


@functools.cache
def counted(wording):
    """The words of one of the table's texts, the same as a set, and what they say."""
    listed = words(wording)
    return listed, frozenset(listed), weight(set(listed))


def _share(wording, asked, asked_set):
    """What a wording and the part of a text that is most like it have in common, as a
    share of what they say together; 0 where that is too little.
    """
    listed, own, whole = counted(wording)
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
    _, own, whole = counted(wording)
    if own.isdisjoint(asked_set):
        return 0.0
    common = weight(own & asked_set)
    if common < rules.LEAST:
        return 0.0
    of_both = 2 * common / (whole + weight(asked_set))
    of_it = common / whole if common >= rules.MUCH else 0.0
    return max(
        of_both if of_both >= rules.ASKED else 0.0,
        of_it if of_it >= rules.MOST_OF else 0.0,
    )
