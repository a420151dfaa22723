"""What checks of exercises expect of an answer.

Where it is something else they raise Wrong, which says: for which input, what came out,
what was expected and why. In all of them

got: what the answer returned
shown: the input, as the message names it
asked: in words, what was expected
why: why that was expected, or a function that says it
said: what the answer did, before what came out: "you returned", "your intensity is"
"""

import math
from numbers import Real

import torch

from course.answers import Wrong


def is_number(value):
    """Whether `value` is a Python number; a boolean is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def listed(value):
    """A tensor or array as Python numbers in lists; everything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def instance(got, kind, shown, asked):
    """`got`; Wrong if it is not of the type `kind`, or of one of several types."""
    if not isinstance(got, kind):
        raise Wrong(f"for {shown} you returned {got!r}, expected {asked}")
    return got


def number(got, shown, asked="a number"):
    """`got`; Wrong if it is no number."""
    if not is_number(got):
        raise Wrong(f"for {shown} you returned {got!r}, expected {asked}")
    return got


def real(got, shown, asked="a number", said="you returned"):
    """`got` as a float, also of a fraction or a tensor with one number; Wrong if it is
    none of them.
    """
    if isinstance(got, torch.Tensor) and got.numel() == 1:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, Real):
        raise Wrong(f"for {shown} {said} {got!r}, expected {asked}")
    return float(got)


def numbers(got, count, shown, asked):
    """`got` as a list; Wrong if it is no list or tuple of `count` numbers."""
    if (
        not isinstance(got, (list, tuple))
        or len(got) != count
        or not all(map(is_number, got))
    ):
        raise Wrong(f"for {shown} you returned {got!r}, expected {asked}")
    return list(got)


def equal(got, expected, shown, why="", said="you returned"):
    """Wrong unless `got == expected`; True and 1 are two things here."""
    same = isinstance(got, bool) == isinstance(expected, bool) and got == expected
    if not (isinstance(same, bool) and same):  # a tensor or array equals in parts
        mine, theirs = distinct_texts(got, expected)
        raise Wrong(f"for {shown} {said} {mine}, expected {theirs}{_because(why)}")


def close(
    got,
    expected,
    shown,
    why="",
    slips=(),
    said="you returned",
    unit="",
    rel_tol=1e-6,
    abs_tol=0.0,
):
    """Wrong unless the number `got` is close to `expected`.

    slips: pairs (number, what went wrong); the first whose number `got` is close to
        speaks in place of `why`
    unit: what follows both numbers, such as " s"
    rel_tol, abs_tol: as math.isclose has them
    """
    if not math.isclose(got, expected, rel_tol=rel_tol, abs_tol=abs_tol):
        mine, theirs = distinct_texts(got, expected)
        why = explain(got, slips, rel_tol=rel_tol) or why
        raise Wrong(
            f"for {shown} {said} {mine}{unit}, expected {theirs}{unit}{_because(why)}"
        )


def tensor(got, expected, shown, why=""):
    """Wrong unless `got` is a tensor with dtype, shape and, almost, the numbers of
    `expected`.
    """
    instance(got, torch.Tensor, shown, "a tensor")
    if got.dtype != expected.dtype:
        forms = [f"{x.dtype} of shape {tuple(x.shape)}" for x in (got, expected)]
        raise Wrong(f"for {shown} you returned {forms[0]}, expected {forms[1]}")
    if got.shape != expected.shape or not torch.allclose(got, expected):
        mine, theirs = distinct_texts(got.tolist(), expected.tolist())
        raise Wrong(
            f"for {shown} you returned {mine}, expected {theirs}{_because(why)}"
        )


def explain(got, slips, otherwise="", rel_tol=1e-6):
    """What went wrong: the text of the first of `slips`, pairs (number, text), whose
    number `got` is close to.
    """
    for number, text in slips:
        if math.isclose(got, number, rel_tol=rel_tol):
            return text
    return otherwise


def no_slip(slips):
    """Wrong with the first sentence whose slip was made.

    slips: pairs (whether it was made, sentence), asked for one after the other
    """
    for made, sentence in slips:
        if made:
            raise Wrong(sentence)


def _because(why):
    reason = why() if callable(why) else why
    return f": {reason}" if reason else ""


def distinct_texts(got, expected):
    """Both as texts that differ: a float and a number with as many digits as it takes,
    types named where only they differ.
    """
    both = got, expected
    if all(map(is_number, both)) and any(isinstance(x, float) for x in both):
        for digits in range(4, 18):
            texts = f"{got:.{digits}g}", f"{expected:.{digits}g}"
            if texts[0] != texts[1]:
                return texts
    texts = repr(got), repr(expected)
    if texts[0] != texts[1]:
        return texts
    return tuple(
        f"{text} ({type(value).__name__})"
        for text, value in zip(texts, both, strict=True)
    )
