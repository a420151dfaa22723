"""What the kit's functions return: text for people, a dictionary for programs."""

import json
from typing import Any


class Result:
    """Base of the frozen dataclasses that are returned. Their text (`__str__`) is what
    a terminal and a notebook show, too.
    """

    def __init_subclass__(cls) -> None:
        package = __name__.partition(".")[0]
        if cls.__module__.partition(".")[0] == package:
            cls.__module__ = package

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON knows them: tuples are lists, devices text, and None
        stands for what is infinite or no number.
        """
        text = json.dumps(
            self, default=lambda x: vars(x) if isinstance(x, Result) else str(x)
        )
        plain: dict[str, Any] = json.loads(text, parse_constant=lambda name: None)
        return plain
