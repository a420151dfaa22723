"""How the time of a function grows with its text."""

import time

LEAST = 0.02  # seconds: shorter ones are taken for as long


def growth(function, text):
    """How many times as long a text takes as its first tenth: ten where time grows as
    the text does. Of two runs of each the shorter.
    """
    tenth = text[: len(text) // 10]
    return _seconds(function, text) / max(_seconds(function, tenth), LEAST)


def _seconds(function, text):
    took = []
    for _ in range(2):
        begin = time.process_time()
        function(text)
        took.append(time.process_time() - begin)
    return min(took)
