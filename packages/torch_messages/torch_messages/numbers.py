"""What the numbers in a message say: whether a GPU is full or only fragmented, how long
a wait was, how a process ended, whether a card is too new or too old for a build.

The rules stand in numbers.json, which the course's website reads in JavaScript. There a
family reads values from a text (`read`, named groups; `let`, what is computed of them).
The first of its rules that holds says its sentence: `if` all of its conditions do,
`also` stands in the text, and `unless` does not. A `pair` compares two of the places
that were read; what the second has is called by its name and a 2.
"""

import functools
import itertools
import json
import math
import operator
import re
from pathlib import Path

RULES = json.loads(Path(__file__).with_name("numbers.json").read_text(encoding="utf-8"))
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?) ?([A-Za-z]*)", re.ASCII)
SHOWN = re.compile(r"\{(\w+):?(\w*)\}", re.ASCII)
NAME = re.compile("[a-z]+2?", re.ASCII)
COMPUTED = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else math.inf,
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
    for rule in family["rules"]:
        beside = _beside(rule, text)
        if beside is None:
            continue
        for values in _pairs(found) if rule.get("pair") else found:
            values = values | beside
            if all(_holds(values, *condition) for condition in rule.get("if", ())):
                if sentence := _filled(rule["says"], values):
                    return rule["id"], sentence
    return None


def _beside(rule, text):
    """What a rule reads elsewhere in a text; None where it is not for that text."""
    place = _pattern(rule.get("also", "")).search(text)
    if not place or ("unless" in rule and _pattern(rule["unless"]).search(text)):
        return None
    return _known(place)


def _read(family, text):
    """The values of each place that a family reads, and those computed from them."""
    for expression in family["read"]:
        places = _pattern(expression).finditer(text)
        for place in itertools.islice(places, RULES["MOST"]):
            values = _known(place)
            for name, left, sign, right in family.get("let", ()):
                terms = [_operand(each, values) for each in (left, right)]
                if name not in values and None not in terms:
                    values[name] = COMPUTED[sign](*terms)
            yield values


def _known(place):
    named = place.groupdict().items()
    return {name: value for name, value in named if value is not None}


def _pairs(found):
    for one, two in itertools.permutations(found, 2):
        yield one | {f"{name}2": value for name, value in two.items()}


def _holds(values, name, sign, *others):
    own, *others = (_operand(each, values) for each in (name, *others))
    if own is None or None in others:
        return False
    return COMPARED[sign](own, math.prod(others) if len(others) > 1 else others[0])


def _operand(each, values):
    """What a name or a literal stands for: a number, or a text that does not begin with
    one. None for what is not known.
    """
    if isinstance(each, str) and NAME.fullmatch(each):
        each = values.get(each)
    number = _number(each)
    return each if number is None else number


def _number(value):
    """A number in its unit: bytes or seconds. None for a text without one."""
    if not isinstance(value, str):
        return value
    place = NUMBER.match(value)
    return float(place[1]) * RULES["UNITS"].get(place[2], 1) if place else None


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
