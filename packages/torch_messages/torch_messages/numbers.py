"""What the numbers in a message say: whether a GPU is full or only fragmented, how long
a wait was, how a process ended, whether a card is too new or too old for a build.

The rules stand in numbers.json, which the course's website reads in JavaScript. There a
family reads values from a text (`read`, named groups; `let`, what is computed of them).
The first of its rules that holds says its sentence: `if` all of its conditions do, the
expression `also` stands in the text, and `unless` does not. A `pair` compares two of the
places that were read; what the second has is called by its name and a 2.
"""

import functools
import itertools
import json
import math
import operator
import re
from pathlib import Path

RULES = json.loads(
    Path(__file__).with_name("numbers.json").read_text(encoding="utf-8")
)
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?) ?([A-Za-z]*)", re.ASCII)
SHOWN = re.compile(r"\{(\w+):?(\w*)\}", re.ASCII)
NAME = re.compile("[a-z]+2?", re.ASCII)
COMPUTED = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "%": lambda a, b: b > 0 and a % b == 0,  # a multiple
}


def notes(text: str) -> list[str]:
    """What follows from the numbers in a text, a sentence each, three at most.

    >>> notes("RuntimeError: CUDA out of memory. Tried to allocate 8.13 GiB (GPU 0; "
    ...       "6.00 GiB total capacity; 643.57 MiB already allocated; 5.20 GiB free; "
    ...       "32.43 MiB cached)")[0][:50]
    'One tensor of 8.13 GiB was asked for, and the whol'
    """
    return [sentence for _, sentence in ruled(text)]


def ruled(text):
    """The same, each with the id of its rule."""
    text = _pattern(RULES["COLORS"]).sub("", text)
    text = _pattern(RULES["SPACE"]).sub(" ", text)
    said = (
        _first(family, text)
        for family in RULES["FAMILIES"]
        if any(word in text for word in family["has"])
    )
    return list(itertools.islice(filter(None, said), RULES["NOTES"]))


def _first(family, text):
    found = list(_read(family, text))
    pairs = [
        {**one, **{f"{name}2": value for name, value in two.items()}}
        for one, two in itertools.permutations(found, 2)
    ]
    for rule in family["rules"]:
        for values in pairs if rule.get("pair") else found:
            if sentence := _said(rule, values, text):
                return rule["id"], sentence
    return None


def _read(family, text):
    """The values of each place that a family reads."""
    for expression in family["read"]:
        places = _pattern(expression).finditer(text)
        for place in itertools.islice(places, RULES["MOST"]):
            yield _with(place.groupdict(), family.get("let", ()))


def _with(values, let):
    """Values, and those computed from them, where they are known."""
    values = {name: value for name, value in values.items() if value is not None}
    for name, left, sign, right in let:
        left, right = _operand(left, values), _operand(right, values)
        if left is not None and right is not None and name not in values:
            values[name] = COMPUTED[sign](left, right)
    return values


def _said(rule, values, text):
    if "also" in rule:
        place = _pattern(rule["also"]).search(text)
        if not place:
            return None
        values = _with({**values, **place.groupdict()}, rule.get("let", ()))
    if "unless" in rule and _pattern(rule["unless"]).search(text):
        return None
    if all(_holds(condition, values) for condition in rule.get("if", ())):
        return _filled(rule["says"], values)
    return None


def _holds(condition, values):
    name, sign, *others = condition
    if name not in values:
        return False
    if sign == "~":
        return bool(_pattern(others[0]).search(values[name]))
    own, others = _number(values[name]), [_operand(each, values) for each in others]
    if None in others:
        return False
    if sign == "within":  # one of the pairs of a least and a greatest
        pairs = zip(others[::2], others[1::2], strict=True)
        return any(least <= own <= greatest for least, greatest in pairs)
    other = others[0] if len(others) == 1 else others[0] * others[1]
    if isinstance(other, str):
        return COMPARED[sign](values[name], other)
    return own is not None and COMPARED[sign](own, other)


def _operand(each, values):
    """A number, or a text where it holds none: of a name, of a literal, or of what a
    template gives. None for what is not known.
    """
    if not isinstance(each, str):
        return each
    if "{" in each:
        each = _filled(each, values)
    elif NAME.fullmatch(each):
        each = values.get(each)
    number = _number(each)
    return each if number is None else number


def _number(value):
    """A number in its unit: bytes or seconds. None for a text without one."""
    if not isinstance(value, str):
        return value
    if place := NUMBER.search(value):
        return float(place[1]) * RULES["UNITS"].get(place[2], 1)
    return None


def _filled(template, values):
    """A template with its values; None where one is not known."""
    shown = {
        place[0]: _shown(values.get(place[1]), place[2])
        for place in SHOWN.finditer(template)
    }
    if None in shown.values():
        return None
    return SHOWN.sub(lambda place: shown[place[0]], template)


def _shown(value, how):
    if value is None:
        return None
    if how in RULES["STEPS"]:
        return _human(_number(value), **RULES["STEPS"][how])
    if how:
        table = RULES["TABLES"][how]
        return next((table[keys] for keys in table if value in keys.split("|")), None)
    return value if isinstance(value, str) else _rounded(value)


def _human(value, limit, by, units):
    units = units.split()
    while abs(value) >= limit and len(units) > 1:
        value /= by
        units.pop(0)
    return f"{_rounded(value)} {units[0]}"


def _rounded(value):
    value = math.floor(value * 10 + 0.5) / 10
    return str(int(value)) if value == int(value) else str(value)


@functools.cache
def _pattern(expression):
    for name, part in RULES["PARTS"].items():
        expression = expression.replace("@" + name, part)
    return re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", expression), re.ASCII)
