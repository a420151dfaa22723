"""What a message of PyTorch means today, and what helps.

torch-messages WORDS…   a message, a name, a question; best in quotes
torch-messages FILE     a file: a log, a traceback, a listing
torch-messages -        what another program says:
                        python train.py 2>&1 | torch-messages
"""

import argparse
import codecs
import errno
import json
import os
import sys

from torch_messages import lookup, match, places

KNOWN, NOT_KNOWN, WRONG_USE = 0, 1, 2
MOST = 4_000_000  # bytes that are read, the last ones
PIECE = 1 << 20
# what stands in place of what a console cannot show; of others “?”
PLAIN = {"“": '"', "”": '"', "‘": "'", "’": "'", "…": "...", "→": "->", "←": "<-"}
PLAIN |= {
    "·": "-",
    "–": "-",
    "−": "-",
    "×": "x",
    "≥": ">=",
    "≤": "<=",
    "（": " (",
    "）": ")",
}
# how a file begins → its encoding: Windows PowerShell writes UTF-16
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def main(arguments: list[str] | None = None) -> int:
    """Look up what stands behind the command. Returns the exit status."""
    _show_on_any_console()
    options = _options(arguments)
    try:
        text = _text(options.text)
    except OSError as error:
        print(f"torch-messages: {error}", file=sys.stderr)
        return WRONG_USE
    if text is None:
        print(_parser().format_usage(), end="", file=sys.stderr)
        return WRONG_USE
    result = match.look(text)
    if options.json:
        shown = json.dumps(as_data(text, result), indent=2)  # in ASCII
    else:
        shown = lookup.answer(text, result=result)
    _print(shown)
    return KNOWN if result.answers else NOT_KNOWN


def _options(arguments):
    options, unknown = _parser().parse_known_args(arguments)
    if len(unknown) == 1 and not options.text:  # --local_rank: a name
        options.text = unknown
    elif unknown:
        _parser().error(f"not understood: {' '.join(unknown)}. Put words in quotes.")
    return options


def _parser():
    from torch_messages import __version__

    parser = argparse.ArgumentParser(
        "torch-messages",
        description=__doc__,
        epilog="Exit status: 0 it is known, 1 it is not, 2 wrong use.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("text", nargs="*", help="words, a file, or - (standard input)")
    parser.add_argument("--json", action="store_true", help="for programs: JSON")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


# --------------------------------------------------------------------------------------
# What is looked up


def _text(words):
    """The text that is meant; None where there is none."""
    if words in ([], ["-"]):
        if not words and (sys.stdin is None or sys.stdin.isatty()):
            return None
        return _read(sys.stdin.buffer)
    if len(words) == 1 and os.path.isfile(words[0]):
        with open(words[0], "rb") as file:
            return _read(file)
    # what the shell gave that is no UTF-8
    return " ".join(words).encode("utf-8", "replace").decode("utf-8")


def _read(stream):
    """The end of a stream of bytes, as text."""
    kept = start = stream.read(PIECE)
    while piece := stream.read(PIECE):
        kept = (kept + piece)[-MOST:]
    for mark, encoding in MARKS.items():
        if start.startswith(mark):
            return kept.decode(encoding, "replace").lstrip("\ufeff")
    return kept.decode("utf-8", "replace")


# --------------------------------------------------------------------------------------
# What is said


def as_data(text, result):
    """A Result for programs: what --json prints. README says what each part is."""
    answers = [_entry(found) for found in result.answers]
    pages = [] if answers or result.unknown else places.search(text)
    return {
        "known": bool(answers),
        "answers": answers,
        "others": [_entry(found) for found in result.others],
        "unknown": result.unknown,
        "notes": list(result.notes),
        "places": [{"title": title, "address": to} for title, to in pages],
        "search": None if answers else _search(text, result.unknown),
    }


def _search(text, unknown):
    """Where to ask on about a text that is not known."""
    name, repository, foreign = places.tracker(text)
    return {
        "for": lookup.line_of(text, unknown),
        "library": name,
        "repository": repository,
        "foreign": foreign,
    }


def _entry(found):
    entry = found.entry
    return {
        "id": entry.id,
        "wording": found.wording,
        "near": found.near,
        "means": entry.means,
        "do": entry.do,
        "source": list(entry.source),
        "lesson": lookup.lesson_of(entry),
    }


def _show_on_any_console():
    """Also on one that lacks some letters: else Python would raise an error."""
    codecs.register_error("torch_messages", _plain)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="torch_messages")


def _plain(error):
    missing = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter, "?") for letter in missing), error.end


def _print(text):
    """Print it, or nothing where nobody reads any more: torch-messages … | head -1"""
    try:
        print(text, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EINVAL):  # the second is Windows'
            raise
        # else Python complains once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
