"""The form of the table of messages, messages.toml in packages/torch_messages."""

import nbformat

from tools.lessons import schemas
from torch_messages import messages


def problems(lessons):
    """What is wrong with it. lessons: the paths of all."""
    told = messages.read()
    if wrong := schemas.differs({"entry": told}, schemas.MESSAGES):
        yield f"messages.toml, {wrong}"
    cells = {
        path.name[:2]: {cell.id for cell in nbformat.read(path, as_version=4).cells}
        for path in lessons
    }
    for entry in told:
        number, _, id = entry.get("lesson", "").partition(" ")
        if number and id not in cells.get(number, ()):
            where = f"cell {id} in lesson {number}"
            yield f"messages.toml, {entry['id']}: no {where}"
