"""The score of exercises and predictions, in one file for all lessons."""

import contextlib
import json

from course.messages import strict
from course.paths import COURSE

SCORE = COURSE / ".progress.json"
_score = None  # the score where no file can keep it


def load_score() -> dict:
    """What is kept: "02.1" → "solved" or "tried"; "predict 02.views" → {"said": the
    guess, "right": whether it is}.

    Read anew each time: another lesson may be open in another kernel. LAB_STRICT=1
    reads nothing.
    """
    score = {}
    if not strict():
        try:
            score = dict(json.loads(SCORE.read_text(encoding="utf-8")).items())
        except OSError:
            score = {}  # none yet, or none that can be read
        except (ValueError, AttributeError):  # no JSON, or none of ours
            print(
                f"{SCORE.name} is damaged: your earlier score is lost, a new one starts"
                " here."
            )
            with contextlib.suppress(OSError):
                SCORE.replace(SCORE.with_name(f"{SCORE.name}.damaged"))
    return {**score, **(_score or {})}


def keep_score(name: str, value: str | dict) -> str:
    """Keep `value` as the score of `name`; returns what is to be said where the file
    cannot be written, else "".
    """
    global _score
    score = {**load_score(), name: value}
    if not strict():  # tests and stored outputs must not depend on anybody's score
        try:
            SCORE.write_text(
                json.dumps(score, indent=1, sort_keys=True), encoding="utf-8"
            )
        except OSError:
            _score = score
            return (
                "(Your score cannot be written here; it lasts until this kernel stops.)"
            )
    _score = score if strict() else None
    return ""
