"""What a recording and published.json must look like (course/recordings.py describes
them): JSON schemas, checked where they are written and by `notebooks.py check`. A
reader's kernel checks only what protects its reader.
"""

import json

import jsonschema

from course.recordings import FORMAT, LINK, PNG

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
WORDS = {"type": "string", "minLength": 1}


def _object(required, more=False, **optional):
    """An object with these properties and, unless `more` is a schema of others, no
    further ones.
    """
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": more,
    }


def _list(items, least=0):
    return {"type": "array", "items": items, "minItems": least}


CLAIM = _object({"text": TEXT}, more=True)
ERROR = _object({"kind": TEXT, "text": TEXT})
OUTPUT = {
    "oneOf": [
        _object({"text": TEXT}, claim=CLAIM, error=ERROR),
        _object({"png": {**TEXT, "pattern": f"^{PNG}$"}, "alt": TEXT}),
    ]
}
CELL = _object(
    {
        "requires": TEXT,
        "source": TEXT,
        "date": TEXT,
        "seconds": NUMBER,
        "machine": _object({"device": TEXT}, more=TEXT),
        "outputs": _list(OUTPUT),
    },
    value={},
)
JUDGED = {
    "oneOf": [
        _object({"source": TEXT, "claims": _list(CLAIM)}),
        _object({"source": TEXT, "lines": _list(TEXT)}),
    ]
}
RECORDING = _object(
    {
        "format": {"const": FORMAT},
        "lesson": TEXT,
        "pretended": {"type": "boolean"},
        "cells": _object({}, more=CELL),
    },
    claims=_object({}, more=JUDGED),
)
FIGURE = _object({"device": WORDS, "what": WORDS, "value": NUMBER, "unit": WORDS})
SOURCE = _object(
    {
        "experiment": WORDS,
        "who": WORDS,
        "date": {**TEXT, "pattern": r"^(published|measured|read) \d{4}\b"},
        "link": {**TEXT, "pattern": f"^{LINK}$"},
        "figures": _list(FIGURE, least=1),
    }
)
PUBLISHED = _object({}, more={"anyOf": [_list(SOURCE), SOURCE]})


def problem(text, schema):
    """Where and how a file's text differs from a schema, the first such place; or
    None.
    """
    try:
        content = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return str(error)
    errors = jsonschema.Draft202012Validator(schema).iter_errors(content)
    first = jsonschema.exceptions.best_match(errors)
    return first and f"{'/'.join(map(str, first.absolute_path))}: {first.message[:200]}"


def _refuse(word):
    raise ValueError(f"{word} is no JSON")
