"""%%today: run an old snippet and its replacement under this PyTorch, and compare what
they do.

A cell of lesson 16 is one row:

    %%today amp/autocast: warns "torch.cuda.amp.autocast"
    #: before 2.4: fine
    #: because the same class serves all devices now
    with torch.cuda.amp.autocast():
        ...
    # ---- today
    with torch.autocast("cpu"):
        ...

The verdict (fine, warns, raises, wrong, slower 5) is measured, and must be the
announced one; the regular expression must match what the old part printed in its
warning, its error or, if wrong, on the screen. Lines `#: CONDITION: VERDICT` announce
another verdict for some versions or machines, the first that holds counts; there "any"
says that nobody has checked, "newer" that this PyTorch does not have the form of today
yet, which is then not run. Whatever is otherwise than announced is a finding
(utils.messages): a line for a reader, an error with LAB_STRICT=1. Without an
announcement the cell is the reader's own: it runs, and the rows that it is like are
named.
"""

import functools
import importlib.util
import json
import re
import sys
import textwrap
from dataclasses import dataclass, replace

import torch

from utils import cells, grammar, launch, plots
from utils.claims import claim
from utils.course import COURSE
from utils.messages import LabError, finding, pytorch
from utils.today import indentation, pasted, snippets

LESSON = COURSE / "notebooks" / "16_old_code_today.ipynb"
INDEX = "## Which message did you get?"  # where its index by message begins
PRELUDE = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
x = torch.ones(4, 8)
net = nn.Linear(8, 2)
"""
ENV = {
    name: value for name, value in launch.DEFAULTS.items() if name != "OMP_NUM_THREADS"
}
NOT_COMPARED = "not compared"  # of a silent old part where the new one failed
# announcements that are no verdicts
UNCOMPARED = {"any": "not checked", "newer": "the form of today is newer"}
MOST = 10  # rows of a list
SIGNS = {"fine": "✓", "warns": "!", "raises": "✗", "wrong": "≠", "slower": "…"}
TODAY = re.compile(r"^# -+ today\s*$", re.M)
HEADER = re.compile(r"(?P<slug>[a-z]+/[\w.-]+): (?P<announced>.+)")
ANNOUNCED = re.compile(
    r"(?P<verdict>fine|warns|raises|wrong|any|newer|slower (?P<factor>\d+))(?:"
    r' "(?P<pattern>.+)")?'
)
LINES, WIDTH = 3, 108  # of a message that are shown; characters of a line
# of a row that is slower: the parts take turns, and the fastest run of each counts
ROUNDS = 3
_seen = {}  # slug → what the old part of its row said when it was run here


class TodayError(LabError):
    """A row that does not do what it announces, or that cannot be read."""


@dataclass(frozen=True)
class Verdict:
    """One announcement. word: the verdict. pattern: regular expression, or None.
    factor: of "slower".
    """

    word: str
    pattern: str = None
    factor: int = None


@dataclass(frozen=True)
class Row:
    """A snippet and its replacement. expected: condition → Verdict, in order, the last
    for "" (everything else).
    """

    slug: str
    expected: dict
    because: str
    old: str
    new: str
    indexed: bool = False  # whether it stands in the index by message

    @property
    def group(self):
        """The part of the slug before the stroke: "memory"."""
        return self.slug.split("/")[0]

    def patterns(self):
        """The regular expressions of all its announcements, for any version and
        machine.
        """
        return [
            verdict.pattern for verdict in self.expected.values() if verdict.pattern
        ]

    def here(self):
        """The Verdict that is announced for this PyTorch on this machine."""
        return next(
            verdict for condition, verdict in self.expected.items() if holds(condition)
        )


# --------------------------------------------------------------------------------------
# Reading a row


def parse(header, body):
    """The Row of a cell's first line (without %%today) and its other lines. TodayError
    where they are no row.
    """
    found = HEADER.fullmatch(header.strip())
    if not found:
        raise TodayError(
            f"cannot read {header.strip()!r}: write %%today GROUP/NAME: VERDICT"
            ' "pattern"'
        )
    expected, because, lines = {}, "", body.splitlines()
    while lines and lines[0].startswith("#:"):
        text = lines.pop(0)[2:].strip()
        if text.startswith("because "):
            because = text.removeprefix("because ")
        else:
            condition, _, announced = text.partition(": ")
            holds(condition)
            expected[condition] = _verdict(announced)
    expected[""] = _verdict(found["announced"])
    old, *new = TODAY.split("\n".join(lines))
    if len(new) != 1 or not old.strip() or not new[0].strip():
        raise TodayError(
            f"{found['slug']}: a row has an old part, a line `# ---- today` and a new"
            " part"
        )
    return Row(found["slug"], expected, because, old.strip("\n"), new[0].strip("\n"))


def _verdict(text):
    found = ANNOUNCED.fullmatch(text.strip())
    if not found:
        known = "fine, warns, raises, wrong, slower 5"
        raise TodayError(
            f"cannot read the announcement {text.strip()!r}: known are {known}"
        )
    factor = int(found["factor"]) if found["factor"] else None
    return Verdict(found["verdict"].split()[0], found["pattern"], factor)


def holds(condition):
    """Whether a condition holds here: "before 2.11", "from 2.12", "with cuda, on Linux"
    (all of them); "" always.
    """
    return all(_holds(part.strip()) for part in condition.split(",") if part.strip())


def _holds(condition):
    word, _, what = condition.partition(" ")
    if word in ("before", "in", "from") and re.fullmatch(r"\d+\.\d+", what):
        version, named = (
            [int(n) for n in text.split(".")[:2]] for text in (torch.__version__, what)
        )
        return {
            "before": version < named,
            "in": version == named,
            "from": version >= named,
        }[word]
    facts = {
        "with cuda": torch.cuda.is_available,
        "with cuda-build": lambda: (
            torch.backends.cuda.is_built() and not torch.cuda.is_available()
        ),
        "with torch_xla": lambda: importlib.util.find_spec("torch_xla") is not None,
        "with tpu": lambda: cells.missing("tpu") is None,
        "with mps": torch.backends.mps.is_available,
        "with accelerator": torch.accelerator.is_available,
        "on Linux": lambda: sys.platform == "linux",
        "on Windows": lambda: sys.platform == "win32",
        "on macOS": lambda: sys.platform == "darwin",
    }
    if condition not in facts:
        known = ["before 2.11", "in 2.11", "from 2.12", *facts]
        raise TodayError(
            f"unknown condition {condition!r}; known are {', '.join(known)}"
        )
    return facts[condition]()


@functools.cache
def rows():
    """All rows of lesson 16, as a dict slug → Row, also those that have not run."""
    found, indexed = {}, False
    for cell in (
        json.loads(LESSON.read_text(encoding="utf-8"))["cells"]
        if LESSON.exists()
        else []
    ):
        lines = grammar.body("".join(cell["source"])).splitlines()
        indexed = indexed or lines[:1] == [INDEX]
        if cell["cell_type"] == "code" and lines and re.match(r"%%today \S", lines[0]):
            row = parse(lines[0].removeprefix("%%today "), "\n".join(lines[1:]))
            found[row.slug] = replace(row, indexed=indexed)
    return found


# --------------------------------------------------------------------------------------
# What a piece of code did


def said(outcome):
    """Its error and its warnings as "Class: text", without the paths of this machine;
    "" if there are none.
    """
    told = [*([outcome["error"]] if outcome["error"] else []), *outcome["warnings"]]
    if outcome["ended"]:
        last = outcome["stderr"].strip().splitlines()[-1:]
        return clean("\n".join([outcome["ended"], *last]))
    return clean(
        "\n".join(f"{name}: {text}".strip().removesuffix(":") for name, text in told)
    )


def clean(text):
    """Text without the paths of this machine, without empty lines and without what the
    front end adds in color.
    """
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
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


# --------------------------------------------------------------------------------------
# A cell


def run_cell(header, body):
    """What a %%today cell does. Whatever is otherwise than announced is a finding."""
    try:
        if header.strip():
            _compare(parse(header, body))
        else:
            _paste(body)
    except snippets.ServerError as error:
        finding(str(error), TodayError)


def _compare(row):
    verdict = row.here()
    parts = [row.old] if verdict.word == "newer" else [row.old, row.new]
    old, *new = _fastest(parts) if verdict.factor else _execute(parts)
    new = new[0] if new else None
    found = measured(old, new, verdict.factor)
    _seen[row.slug] = said(old)
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
        ratio = old["seconds"] / new["seconds"]
        claim(
            f"{row.slug}: the old form takes longer",
            ratio,
            at_least=verdict.factor,
            unit="times",
            timed=True,
        )


def changes(row, verdict, old, new):
    """What its two parts did (outcomes) otherwise than the Verdict announces, a
    sentence each.
    """
    found, text = measured(old, new, verdict.factor), said(old) or clean(old["printed"])
    if new and said(new):
        told = _first(said(new))
        yield (
            "the part of today must run without error and without warning, and with"
            f" {pytorch()} it says: {told}"
        )
    if found not in (verdict.word, NOT_COMPARED) and verdict.word not in (
        "any",
        "newer",
    ):
        yield (
            f"announced as {verdict.word}, but with {pytorch()} it is {found}:"
            f" {_first(text)}"
        )
    elif verdict.pattern and not re.search(verdict.pattern, text):
        yield (
            f"announced with the words {verdict.pattern!r}, but {pytorch()} says:"
            f" {_first(text)}"
        )


def _execute(parts, together=True):
    return snippets.run_snippets(PRELUDE, parts, launch.folder(), together, env=ENV)


def _fastest(parts):
    """The outcome of each part in its fastest run; if one run raised or never ended,
    that one.
    """
    rounds = [_execute(parts, together=False) for _ in range(ROUNDS)]
    return [
        min(
            runs,
            key=lambda run: (not (run["error"] or run["ended"]), run["seconds"] or 0),
        )
        for runs in zip(*rounds, strict=True)
    ]


def _first(text, most=300):
    return (
        textwrap.shorten(text.split("\n", 1)[0], most, placeholder=" …") or "(nothing)"
    )


def _announced(verdict):
    """An announcement as the reader sees it; of a regular expression, what it looks
    for.
    """
    if verdict.word in UNCOMPARED:
        return UNCOMPARED[verdict.word]
    return verdict.word + (
        f" “{verdict.pattern}”".replace("\\", "").replace("|", "” or “")
        if verdict.pattern
        else ""
    )


def _words(condition):
    condition = re.sub(r"\b(before|in|from) (?=\d)", r"PyTorch \1 ", condition)
    return condition.replace("cuda-build", "a CUDA build and no GPU")


def _part(label, outcome):
    """Print what one part said and printed, in a column beside its label."""
    texts = [said(outcome), clean(outcome["printed"])]
    lines = [
        line
        for text, head in zip(texts, ("", "prints "), strict=True)
        for line in _shown(text, head)
    ]
    for n, line in enumerate(lines or ["runs, prints nothing"]):
        print(f"  {label if n == 0 else '':6} {line}".rstrip())


def _shown(text, head):
    lines, inner = text.splitlines(), " " * len(head)
    for n, line in enumerate(lines[:LINES]):
        indents = {
            "initial_indent": inner if n else head,
            "subsequent_indent": inner + "  ",
        }
        yield from textwrap.wrap(line, WIDTH, max_lines=4, placeholder=" …", **indents)
    if len(lines) > LINES:
        yield f"{inner}({len(lines) - LINES} more lines)"


def _paste(body):
    source = body if indentation.is_python(body) else indentation.restored(body) or body
    if source != body:
        print(
            "Its indentation was lost. This is what was run; see whether each block"
            " ends where it should:\n"
        )
        print(textwrap.indent(source.strip("\n"), "    ") + "\n")
    (outcome,) = _execute([source])
    found = measured(outcome)
    print(f"{SIGNS[found]} {found} · {pytorch()}")
    _part("yours", outcome)
    if outcome["error"] and outcome["error"][0] == "IndentationError":
        print(
            "\nIts indentation was lost, and cannot be put back without guessing:"
            " indent it, and run the cell again."
        )
    similar = pasted.like(rows(), said(outcome), source)
    for row in similar:
        print(f"\nLike {row.slug} in this lesson: {row.because}. Today:")
        print(textwrap.indent(row.new, "    "))
    if not similar:
        print("\nNo row of this lesson is like it.")
    for line in pasted.elsewhere(f"{source}\n{said(outcome)}"):
        print(line)


# --------------------------------------------------------------------------------------
# Looking rows up


def search(text="", group="", verdict=""):
    """Rows whose name, code, cause or message holds each word of `text`, with this
    group and verdict ("": any).
    """
    found = []
    for row in rows().values():
        texts = [
            row.slug,
            row.old,
            row.new,
            row.because,
            _seen.get(row.slug, ""),
            *row.patterns(),
        ]
        whole = "\n".join(texts).replace("\\", "").lower()
        if all(word in whole for word in text.lower().split()):
            if group in ("", row.group) and verdict in ("", row.here().word):
                found.append(row)
    return found


def find(text: str, group: str = "", verdict: str = "") -> None:
    """Print the rows that `search` finds, the first three with their code, and the
    lessons that explain `text`.
    """
    for line in [*_listed(search(text, group, verdict), 3), *pasted.elsewhere(text)]:
        print(line)


def table(text="", group="", verdict=""):
    """A figure of the rows that `search` finds; of one or two also the code. Returns
    (figure, alt).
    """
    found = search(text, group, verdict)
    title, *lines = _listed(found, 2 if len(found) <= 2 else 0)
    fig, ax = plots.figure(
        title, about=pytorch(), xlabel="", ylabel="", size=(8.4, 3.4)
    )
    ax.set_axis_off()
    ax.text(
        -0.07,
        1,
        "\n".join(lines),
        va="top",
        transform=ax.transAxes,
        fontsize=8,
        linespacing=1.6,
        family="monospace",
    )
    return (
        fig,
        (
            f"A table of rows of this lesson. {title}:"
            f" {', '.join(row.slug for row in found[:MOST]) or 'none'}."
        ),
    )


def _listed(found, with_code):
    """Lines on rows: how many, then of each its name, its verdict and its message or
    its cause.
    """
    yield f"{len(found)} of {len(rows())} rows" + (
        f", the first {MOST} shown" if len(found) > MOST else ""
    )
    for n, row in enumerate(found[:MOST]):
        yield (
            f"{row.slug:30}{row.here().word:8}{_first(_seen.get(row.slug) or row.because, 74)}"
        )
        if n < with_code:
            yield textwrap.indent(f"{row.old}\n# ---- today\n{row.new}\n", "    ")


# --------------------------------------------------------------------------------------
# The cell magic


def today_cell(lines):
    """Input transformer of IPython: a cell that begins with %%today (after a %%requires
    that holds), as a call.
    """
    first = next(
        (n for n, line in enumerate(lines[:2]) if line.startswith("%%today")), None
    )
    if first is None or (first == 1 and not lines[0].startswith("# %%requires")):
        return lines
    header, body = (
        lines[first].removeprefix("%%today").strip(),
        "".join(lines[first + 1 :]),
    )
    return [f"__import__('utils.today').today.run_cell({header!r}, {body!r})\n"]


if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
    if not any(
        getattr(f, "__name__", "") == "today_cell"
        for f in shell.input_transformers_cleanup
    ):
        shell.input_transformers_cleanup.append(today_cell)
