"""Predictions: a question with answers to choose from, and what the experiment said.

A guess is kept with the score. It can be changed until the answer has been revealed;
where Run All has revealed it before the reader chose, the box compares at once.
"""

import html
import re
import textwrap

from course import widgets
from course.messages import in_html, say, strict
from course.score import keep_score, load_score
from device_lab import LabError

_asked = {}  # key → options, in this kernel
_revealed = {}  # key → answer, in this kernel
# begins an answer that is said as it is, not in quotation marks
NUMBER = re.compile(r"[-−~]?\d")
# whether a guess was right, or is not compared yet → red, green, blue: bluish green and
# orange of the plots
COLORS = {True: "0, 158, 115", False: "230, 159, 0", None: "153, 153, 153"}


def predict(key: str, question: str, *options: str) -> None:
    """Ask for a guess: `question` with a button for each of the `options`; a line of
    text where there are no widgets.

    key: "05.race": the lesson and a word, the same as in the `reveal` after the
    experiment.
    """
    from IPython import get_ipython

    _asked[key] = options
    question += "" if question[-1:] in "?:.…" else " …"
    text, shell = f"Predict. {question} {' · '.join(options)}", get_ipython()
    if shell is None:
        return print(text)
    rich = f"<b>Predict.</b> {in_html(question)}"
    if widgets.on_page():
        return widgets.show(_box(key, rich, options), {"text/plain": text})
    rich += " " + " · ".join(f"<b>{html.escape(option)}</b>" for option in options)
    page = (
        f'<div style="border-left: 3px solid #0072B2; padding-left: 0.7em">{rich}</div>'
    )
    # as data, too: the site makes its buttons of it
    asked = {"key": key, "question": question, "options": options}
    say(text, "asked", page, asked=asked)


def reveal(key: str, answer: str, why: str = "") -> None:
    """Compare the reader's guess with `answer`, one of the options: "You said 4; it is
    0." Then say `why`. Without a guess and a reason: nothing, but in outputs that are
    stored (LAB_STRICT=1) the answer.

    why: a sentence or two, which so cannot be read before the experiment has run

    An answer that is no option, or a key that no `predict` above has asked for, is an
    error with LAB_STRICT=1 only.
    """
    if strict() and answer not in _asked.get(key, ()):
        problem = "no predict above asks for it"
        if key in _asked:
            problem = f"the options are {_asked[key]}"
        raise LabError(f"reveal({key!r}, {answer!r}): {problem}")
    _revealed[key] = answer
    if strict():  # as data, too: the site says the same of its readers' guesses
        text = _lines(f"The answer: {answer}. {why}".strip())
        replies = {option: _compared(option, answer) for option in _asked[key]}
        say(text, "revealed", revealed={"key": key, "answer": answer, "said": replies})
    elif text := f"{_verdict(key)} {why}".strip():
        say(_lines(text), page=_shown(key, text))


def _lines(text):
    # a name such as `movement/best-state` stays in one piece
    return textwrap.fill(text, 88, break_on_hyphens=False)


def _box(key, rich, options):
    from ipywidgets import HTML, Button, HBox, VBox

    verdict = HTML()
    buttons = [Button(description=text, layout={"width": "auto"}) for text in options]

    def show(lost=""):
        guess = _guess(key)
        for button in buttons:
            chosen = button.description == guess
            button.button_style = "primary" if chosen else ""
            button.icon = "check" if chosen else ""
        text = f"{_verdict(key)} {lost}".strip()
        verdict.value = text and _shown(key, text)

    def choose(button):
        too_late = key in _revealed and _guess(key)
        guess = {"said": button.description}
        show("" if too_late else keep_score(f"predict {key}", guess))

    for button in buttons:
        button.on_click(choose)
    show()
    return VBox([HTML(rich), HBox(buttons, layout={"flex_flow": "row wrap"}), verdict])


def _guess(key):
    """The reader's guess or "", one of the options as far as they are known."""
    entry = load_score().get(f"predict {key}")
    guess = entry.get("said") if isinstance(entry, dict) else None
    valid = isinstance(guess, str) and guess in _asked.get(key, [guess])
    return guess if valid else ""


def _verdict(key):
    """What is to be said of the guess; "" without one. Keeps whether it was right."""
    guess, answer = _guess(key), _revealed.get(key)
    if not guess or answer is None:
        return guess and f"You said: {guess}"
    keep_score(f"predict {key}", {"said": guess, "right": guess == answer})
    begin = "✓ " if guess == answer else "Not this time. "
    return begin + _compared(guess, answer)


def _shown(key, text):
    """What is said of the guess as HTML: on green where it was right, on orange where
    it was not.
    """
    guess, answer = _guess(key), _revealed.get(key)
    compared = bool(guess) and answer is not None
    color = COLORS[guess == answer if compared else None]
    style = f"border-left: 4px solid rgb({color}); background: rgba({color}, 0.15)"
    return f'<div style="{style}; padding: 0.3em 0.8em">{in_html(text)}</div>'


def _compared(guess, answer):
    """What is said of a guess, for a known answer."""
    begin = f"You said {guess}" if NUMBER.match(guess) else f"You said “{guess}”"
    counted = NUMBER.match(answer)
    if guess == answer:
        right = f"{answer} it is" if counted else "that is right"
        return f"{begin}, and {right}."
    other = f"it is {answer}" if counted else f"the answer is “{answer}”"
    return f"{begin}; {other}."
