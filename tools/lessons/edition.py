"""Which edition of a lesson or a page somebody has."""

import hashlib
import json


def short_hash(text):
    """Short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def content_hash(lesson):
    """Short hash of what the cells of a lesson say."""
    return short_hash(json.dumps(["".join(cell["source"]) for cell in lesson["cells"]]))
