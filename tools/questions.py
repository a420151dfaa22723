"""The twelve questions with their key as GIFT, which Moodle imports:

python -m tools.questions > questions.gift
"""

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
# "**4.** " on the sheet, "**4 · C** " in the key
NUMBER = re.compile(r"^\*\*(\d+)(?:\.| · ([A-D]))\*\* ", re.M)
OPTION = re.compile(r"^- \*\*([A-D])\*\* (.+(?:\n  .+)*)", re.M)
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def entries(page):
    """The text above all, and of each: number, right letter if any, text, options."""
    above, *parts = NUMBER.split((DOCS / page).read_text(encoding="utf-8"))
    found = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return above, [
        (number, letter, body[: body.index("\n- **")], dict(OPTION.findall(body)))
        for number, letter, body in found
    ]


def escaped(text):
    text = LINK.sub(r"\1", text.strip())
    return re.sub(r"([\\~=#{}:])", r"\\\1", text).replace("\n", r"\n")


def gift():
    """All questions, each with what the key says of each option."""
    (above, sheet), (_, key) = entries("questions.md"), entries("questions_key.md")
    before = above.strip().split("\n\n")[-1]
    lines = [f"::Before you begin::[markdown]{escaped(before)}"]
    for asked, (number, right, why, wrong) in zip(sheet, key, strict=True):
        said, options = {right: why, **wrong}, asked[3]
        if asked[0] != number or sorted(said) != sorted(options):
            raise ValueError(f"question {number}: sheet and key do not fit")
        lines += ["", f"::Question {number}::[markdown]{escaped(asked[2])} {{"]
        for letter, option in options.items():
            sign = "=" if letter == right else "~"
            lines.append(f"{sign}{escaped(option)}#{escaped(said[letter])}")
        lines.append("}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(gift())
