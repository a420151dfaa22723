"""What a listing from the web is like: rows of lesson 16 by message and by code,
lessons where no row fits.
"""

import collections
import re

from lookup.elsewhere import ELSEWHERE
from lookup.wordings import GENERAL, MARKS, WORDINGS

MOST = 5  # rows that are shown
# whose names can be the mark of a row
PACKAGES = "torch|torch_xla|functorch|apex"


# what listings use under these names, also where they show no import
USUAL = {
    "nn": "torch.nn",
    "dist": "torch.distributed",
    "optim": "torch.optim",
    "xm": "torch_xla.core.xla_model",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
}


def spelled_out(source):
    """Source code without comments, with the full names of what it imports; also of
    code that is no Python.
    """
    code = re.sub(r"#.*", "", source)  # without comments
    names = dict(USUAL)
    # from MODULE import NAME as ALIAS, NAME
    imports = r"^\s*from (\S+) import \(?([\w, ]+)"
    for module, imported in re.findall(imports, code, re.M):
        for one in imported.split(","):
            name, _, alias = one.strip().partition(" as ")
            names[(alias or name).strip()] = f"{module}.{name.strip()}"
    # import MODULE as ALIAS
    for module, alias in re.findall(r"^\s*import (\S+) as (\w+)", code, re.M):
        names[alias] = module
    # one of these names before a dot or a call, and no attribute itself
    used = rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?=\s*[.(])"
    imported = "\n".join(names[name] for name in names.keys() - USUAL.keys())
    full = re.sub(used, lambda found: names[found[1]], code)
    return f"{full}\n{code}\n{imported}"


def names_in(source):
    """Dotted names of PyTorch's packages in source code: torch.cuda.memory_cached."""
    return set(re.findall(rf"(?<![\w.])(?:{PACKAGES})(?:\.\w+)+", spelled_out(source)))


def marks(rows):
    """slug → regular expression that says by its code whether a listing is like a row;
    rows: slug → Row.
    """
    used = {slug: (names_in(row.old), names_in(row.new)) for slug, row in rows.items()}
    count = collections.Counter(
        name for old, new in used.values() for name in old | new
    )
    found = {}
    for slug, (old, new) in used.items():
        own = sorted(name for name in old - new if count[name] == 1)
        if slug in MARKS:
            found[slug] = MARKS[slug]
        elif own:
            found[slug] = rf"(?<![\w.])({'|'.join(map(re.escape, own))})\b"
    return found


def like(rows, message, source):
    """The rows that a listing resembles, best first. rows: slug → Row. message: its
    error and its warnings.

    First those whose message came and whose mark is in the code, then the other
    messages, then the other marks. Of a message that many lines give, the code decides
    which row it is; if it does not, there is one row for all.
    """
    code = spelled_out(source)
    marked = [slug for slug, mark in marks(rows).items() if re.search(mark, code)]
    told, general = [], []
    for line in message.split("\n"):
        own = [slug for pattern, slug, _ in WORDINGS if re.search(pattern, line)]
        found = own or [slug for slug, row in rows.items() if _says(row, line)]
        for pattern, slug in GENERAL.items():
            if re.search(pattern, line):
                found = [other for other in found if slug and other in marked]
                if not found:
                    general.append(slug)
        told += found
    both = [slug for slug in told if slug in marked]
    old = [slug for slug in marked if rows[slug].expected[""].word != "fine"]
    old.sort(key=lambda slug: slug in GENERAL.values())  # these last
    ordered = dict.fromkeys([*both, *general, *told, *old, *marked])
    return [rows[slug] for slug in ordered if slug in rows][:MOST]


def _says(row, line):
    return any(re.search(pattern, line) for pattern in row.patterns())


def told_as(row, message):
    """The verdict on a row whose words stand in this message; None if they do not."""
    whole = f"{message}\n{' '.join(message.split())}"
    for pattern, slug, word in WORDINGS:
        if slug == row.slug and re.search(pattern, whole):
            return word
    for verdict in row.expected.values():
        if verdict.pattern and re.search(verdict.pattern, whole):
            return verdict.word
    return None


def elsewhere(text):
    """Lessons that explain what stands in a text (code, a message, words that somebody
    looks for), a line each.
    """
    return [
        f"Lesson {place.split()[0]}: {what}." if place else what
        for pattern, place, what in ELSEWHERE
        if re.search(pattern, text)
    ]
