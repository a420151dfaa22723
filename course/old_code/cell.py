"""%%today: run an old snippet and its replacement under this PyTorch, and compare what
they do.

row.py says how a row is written. Whatever is otherwise than announced is a finding
(course.messages): a line for a reader, an error with LAB_STRICT=1. Without an
announcement the cell is the reader's own: it runs, and the rows that it is like are
named.
"""

import re
import sys
import textwrap

from course import cells, grammar
from course.claims import claim
from course.messages import finding
from course.old_code import lookup, snippets
from course.old_code.row import PATTERNS, SIGNS, TodayError, parse, rows
from torch_messages import match
from utils.devices import pytorch
from utils.jobs import COLORS, DEFAULTS, folder

PRELUDE = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = (
    torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
)
x = torch.ones(4, 8)
net = nn.Linear(8, 2)
"""
ENV = {name: value for name, value in DEFAULTS.items() if name != "OMP_NUM_THREADS"}
NOT_COMPARED = "not compared"  # of a silent old part where the new one failed
# announcements that are no verdicts
UNCOMPARED = {"any": "not checked", "newer": "the form of today is newer"}
LINES, WIDTH = 3, 108  # of a message that are shown; characters of a line
# of a row that is slower: the parts take turns, and the fastest run of each counts
ROUNDS = 3


# --------------------------------------------------------------------------------------
# What a piece of code did


def said(outcome):
    """Its error and its warnings as "Class: text", without the paths of this machine;
    "" if there are none.
    """
    if outcome["ended"]:
        last = outcome["stderr"].strip().splitlines()[-1:]
        return clean("\n".join([outcome["ended"], *last]))
    told = list(outcome["warnings"])
    if outcome["error"]:
        told.insert(0, outcome["error"])
    return clean(
        "\n".join(f"{name}: {text}".strip().removesuffix(":") for name, text in told)
    )


def clean(text):
    """Text without the paths of this machine, without empty lines and without what the
    front end adds in color.
    """
    text = COLORS.sub("", text)
    # the folders of a path (two or more, with a drive or not), but not of an address
    text = re.sub(
        r"(?<![\w/:.])(?:[A-Za-z]:)?(?:[/\\]+[\w.+~@-]+?){2,}[/\\]+(?=[\w.-]+)",
        "…/",
        text,
    )
    return "\n".join(
        line.rstrip().replace("\t", "  ") for line in text.splitlines() if line.strip()
    )


def measured(old, new=None, factor=None):
    """The verdict on the outcome `old`: what it did, compared with the outcome `new`,
    or alone where that is None.
    """
    if old["error"] or old["ended"]:
        return "raises"
    if old["warnings"]:
        return "warns"
    if new is None:
        return "fine"
    if new["error"] or new["ended"]:
        return NOT_COMPARED
    if old["printed"].strip() != new["printed"].strip():
        return "wrong"
    return "slower" if factor else "fine"


def _execute(parts, setup="", together=True):
    prelude = f"{PRELUDE}{setup}\n" if setup else PRELUDE
    return snippets.run_snippets(prelude, parts, folder(), together, env=ENV)


def _fastest(parts, setup):
    """The outcome of each part in its fastest run; if one run raised or never ended,
    that one.
    """
    rounds = [_execute(parts, setup, together=False) for _ in range(ROUNDS)]
    return [
        min(
            runs,
            key=lambda run: (not (run["error"] or run["ended"]), run["seconds"] or 0),
        )
        for runs in zip(*rounds, strict=True)
    ]


# --------------------------------------------------------------------------------------
# A row


def run_cell(header, body):
    """What a %%today cell does. Whatever is otherwise than announced is a finding."""
    try:
        if header.strip():
            _compare(parse(header, body))
        else:
            _paste(textwrap.dedent(body))
    except snippets.ServerError as error:
        finding(str(error), TodayError)


def _compare(row):
    verdict = row.here()
    parts = [row.old] if verdict.word == "newer" else [row.old, row.new]
    run = _fastest if verdict.factor else _execute
    old, *new = run(parts, row.setup)
    new = new[0] if new else None
    found = measured(old, new, verdict.factor)
    lookup.seen[row.slug] = said(old)
    print(f"{SIGNS.get(found, '?')} {found} · {pytorch()}")
    _part("old", old)
    if new:
        _part("today", new)
    else:
        print(f"  today  is newer than {pytorch()}")
    for condition, other in row.expected.items():
        if condition and other is not verdict:
            print(f"  {_words(condition)}: {_announced(other)}")
    if verdict is not row.expected[""] and verdict.word != row.expected[""].word:
        print(f"  elsewhere: {row.expected[''].word}")
    for change in changes(row, verdict, old, new):
        finding(f"{row.slug}: {change}", TodayError)
    if found == verdict.word == "slower":
        claim(
            f"{row.slug}: the old form takes longer",
            old["seconds"] / new["seconds"],
            at_least=verdict.factor,
            unit="times",
            timed=True,
        )


def changes(row, verdict, old, new):
    """What its two parts did (outcomes) otherwise than the Verdict announces, a
    sentence each.
    """
    found, text = measured(old, new, verdict.factor), said(old) or clean(old["printed"])
    shown = lookup.first_line(text)
    if new and said(new):
        yield (
            "the part of today must run without error and without warning, and with"
            f" {pytorch()} it says: {lookup.first_line(said(new))}"
        )
    if found not in (verdict.word, NOT_COMPARED) and verdict.word not in UNCOMPARED:
        yield (
            f"announced as {verdict.word}, but with {pytorch()} it is {found}: {shown}"
        )
    elif verdict.pattern and not re.search(verdict.pattern, text):
        yield (
            f"announced with the words {verdict.pattern!r}, but {pytorch()} says:"
            f" {shown}"
        )


def _announced(verdict):
    """An announcement as the reader sees it; of a regular expression, what it looks
    for.
    """
    if verdict.word in UNCOMPARED:
        return UNCOMPARED[verdict.word]
    if not verdict.pattern:
        return verdict.word
    if verdict.pattern in PATTERNS.values():  # the first of its many wordings will do
        return f"{verdict.word} “{verdict.pattern.partition('|')[0]}”, or the like"
    plain = verdict.pattern.replace("\\", "").replace("|", "” or “")
    return f"{verdict.word} “{plain}”"


def _words(condition):
    # before 2.9 → PyTorch before 2.9; in 2.10 → PyTorch 2.10
    condition = re.sub(r"\b(before|from) (?=\d)", r"PyTorch \1 ", condition)
    condition = re.sub(r"\bin (?=\d)", "PyTorch ", condition)
    return condition.replace("cuda-build", "a CUDA build and no GPU")


def _part(label, outcome):
    """Print what one part said and printed, in a column beside its label."""
    lines = [
        *_shown(said(outcome), ""),
        *_shown(clean(outcome["printed"]), "prints "),
    ]
    for n, line in enumerate(lines or ["runs, prints nothing"]):
        print(f"  {label if n == 0 else '':6} {line}".rstrip())


def _shown(text, head):
    """The first lines of a text, cut to the width; `head` stands before the first."""
    lines, inner = text.splitlines(), " " * len(head)
    for n, line in enumerate(lines[:LINES]):
        yield from textwrap.wrap(
            line,
            WIDTH,
            max_lines=4,
            placeholder=" …",
            initial_indent=inner if n else head,
            subsequent_indent=inner + "  ",
        )
    if len(lines) > LINES:
        yield f"{inner}({len(lines) - LINES} more lines)"


# --------------------------------------------------------------------------------------
# A listing that a reader has pasted


def lost_indentation(source):
    """What Python misses in a listing whose indentation was lost on a web page; None
    in any other, also in one that is no Python.
    """
    try:
        compile(source, "pasted", "exec")
    except IndentationError as error:
        return error.msg
    except (SyntaxError, ValueError):
        return None
    return None


def _paste(source):
    missed = lost_indentation(source)
    if missed:
        message = ""
        print(
            f"this listing has lost its indentation: {missed}; indent it and run the"
            " cell again"
        )
    else:
        (outcome,) = _execute([source])
        found, message = measured(outcome), said(outcome)
        print(f"{SIGNS[found]} {found} · {pytorch()}")
        _part("yours", outcome)
    similar = match.of_listing(source, message)
    for entry in similar:
        row = rows().get(entry.id)
        like = f"{row.slug} in section {row.section}" if row else entry.title
        why = row.because if row else entry.means
        print(f"\nLike {like}: {why.removesuffix('.')}. Today:")
        print(textwrap.indent(entry.do, "    "))
    if not similar:
        print("\nNothing here is like it.")


# --------------------------------------------------------------------------------------
# The cell magic


def today_cell(lines):
    """Input transformer of IPython: a cell that begins with %%today (below options that
    hold), as a call.
    """
    head = grammar.split("".join(lines))[0].splitlines()
    if not head or not head[-1].startswith("%%today"):
        return lines
    header = head[-1].removeprefix("%%today").strip()
    return cells.as_call(run_cell, header, "".join(lines[len(head) :]))


if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
    transformers = shell.input_transformers_cleanup
    # by name: a course that is imported again must not come on top of the old one
    if "today_cell" not in [getattr(f, "__name__", "") for f in transformers]:
        transformers.append(today_cell)
