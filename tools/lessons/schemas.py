"""What a recording and published.json (course/recordings.py describes them) and the
table of messages (torch_messages) must look like: JSON schemas, checked where they are
written and by `notebooks.py check`. A reader's kernel checks only what protects its
reader.
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
KEY = {"source": TEXT, "uses": _object({}, more=TEXT)}
CELL = _object(
    {
        "requires": TEXT,
        **KEY,
        "date": TEXT,
        "seconds": NUMBER,
        "machine": _object({"device": TEXT}, more=TEXT),
        "outputs": _list(OUTPUT),
    },
    value={},
)
JUDGED = _object({**KEY, "claims": _list(CLAIM)})
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


SAYS = {"type": "array", "items": WORDS, "minItems": 1, "uniqueItems": True}
VERSION = {**TEXT, "pattern": r"^\d+\.\d+$"}
# messages.toml of packages/torch_messages
ENTRY = _object(
    {
        "id": {**TEXT, "pattern": r"^[a-z]+/[\w.-]+$"},
        "means": {**WORDS, "maxLength": 240},
        "do": WORDS,
        "source": SAYS,
    },
    heading=WORDS,
    says=SAYS,
    asked=SAYS,
    names=SAYS,
    code={"type": "array", "items": SAYS, "minItems": 1},
    cover={"const": True},
    harmless={"const": True},
    fine={"const": True},
    since=VERSION,
    until=VERSION,
    unlike=_object({}, more=WORDS),
    lesson={**TEXT, "pattern": r"^\d\d [\w-]+$"},
    often={"const": True},
)
MESSAGES = _object({"entry": _list(ENTRY, least=1)})


def problem(text, schema):
    """Where and how a file's text (JSON) differs from a schema, the first such place;
    or None.
    """
    try:
        content = json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        return str(error)
    return differs(content, schema)


def differs(content, schema):
    """The same of what was read."""
    errors = jsonschema.Draft202012Validator(schema).iter_errors(content)
    first = jsonschema.exceptions.best_match(errors)
    return first and f"{'/'.join(map(str, first.absolute_path))}: {first.message[:200]}"


def _refuse(word):
    raise ValueError(f"{word} is no JSON")
