"""The scores of a class, as one table:

    python -m tools.class_scores FOLDER

FOLDER and the folders in it hold the `.progress.json` of each pupil, under any name.
The table has numbers of exercises and names of predictions, none of files or people.
Files are read as data, at most a megabyte of each; what is no score is named, and left
out.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

MOST = 1_000_000  # bytes of a file: those of the whole course are some thousand
KEY = re.compile(r"(?:predict )?\d\d\.[a-z\d-]{1,30}", re.ASCII)


def value(kept):
    """What one entry of a score says; None for what the course does not write."""
    if kept in ("solved", "tried"):
        return kept
    if isinstance(kept, dict) and isinstance(kept.get("said"), str):
        said = {True: "right", False: "wrong", None: "open"}
        right = kept.get("right")
        return said[right] if right is None or isinstance(right, bool) else None
    return None


def read(path):
    """The entries of a score, {"02.1": "solved"}; ValueError says what else it is."""
    if path.is_symlink() or not path.is_file():
        raise ValueError("no ordinary file")
    with path.open("rb") as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError("larger than 1 MB")
    try:
        score = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
    if not isinstance(score, dict) or not score:
        raise ValueError("JSON, but no score of the course")
    found = {name: value(kept) for name, kept in score.items()}
    for name, said in found.items():
        guessed = said not in ("solved", "tried")
        if not (said and KEY.fullmatch(name) and name.startswith("predict") == guessed):
            raise ValueError(
                f"no score of the course: {ascii(name)[:40]} is none of its entries"
            )
    return found


def table(scores):
    """The lines of the table, from a list of what `read` gave."""
    counts = Counter(entry for score in scores for entry in score.items())
    names = sorted({name for name, _ in counts}, key=lambda n: (n.split()[-1][:2], n))
    yield f"{'':28}{'right':>6}{'of':>6}{'share':>7}"
    for lesson in sorted({name.split()[-1][:2] for name in names}):
        mine = [name for name in names if name.split()[-1][:2] == lesson]
        took = sum(any(name in score for name in mine) for score in scores)
        yield f"lesson {lesson}, {took} of {len(scores)} people"
        guesses = [name for name in mine if name.startswith("predict")]
        for name in mine:
            right = counts[name, "solved"] + counts[name, "right"]
            of = right + counts[name, "tried"] + counts[name, "wrong"]
            kind = name if name in guesses else f"exercise {name}"
            yield row(kind, right, of)
        right = sum(counts[name, "right"] for name in guesses)
        of = right + sum(counts[name, "wrong"] for name in guesses)
        if of:
            yield row("all guesses", right, of)


def row(name, right, of):
    share = f"{right / of:.0%}" if of else ""
    return f"  {name:26}{right:6}{of:6}{share:>7}"


def main(folder):
    scores = []
    for path in sorted(Path(folder).rglob("*")):
        if not path.is_dir():
            try:
                scores.append(read(path))
            except (ValueError, OSError) as reason:
                print(f"Left out, {path}: {reason}.", file=sys.stderr)
    if not scores:
        sys.exit(f"{folder}: no score in it.")
    print("\n".join(table(scores)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
