"""Predictions: a question with answers to choose from, and what the experiment said."""

from utils.messages import note


def predict(key: str, question: str, *options: str) -> None:
    """Ask for a guess: `question` with a button for each of the `options`; a line of text where there are no widgets.

    key: "05.race": the lesson and a word, the same as in the `reveal` after the experiment.
    """
    note(f"Predict: {question} {' · '.join(options)}")


def reveal(key: str, answer: str) -> None:
    """Compare the reader's guess with `answer`, one of the options: "You said 4; it is 0." Without a guess: nothing."""
