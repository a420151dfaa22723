"""What the kit's functions return: text for people, a dictionary for programs, and in a
notebook a table where one reads better.
"""

import html
import json
from collections.abc import Iterable
from typing import Any


class Result:
    """Base of the frozen dataclasses that are returned. Their text (`__str__`) is what
    a terminal and a notebook show, too. Those of the kit are imported from its top, and
    named so.
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


def table(head: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """HTML: a sentence, and a table below it. All of it is escaped."""

    def row(cells: Iterable[object], tag: str) -> str:
        texts = (html.escape(str(cell)).replace("\n", "<br>") for cell in cells)
        style = "text-align: left"
        return "".join(f'<{tag} style="{style}">{text}</{tag}>' for text in texts)

    body = "".join(f"<tr>{row(cells, 'td')}</tr>" for cells in rows)
    return (
        f"<p>{html.escape(head)}</p><table><tr>{row(columns, 'th')}</tr>{body}</table>"
    )
