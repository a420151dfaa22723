"""docs/glossary.md: terms, their Chinese names, and the lessons that explain them."""

import re

# A term of the glossary: a heading, its Chinese name, and a line with the number of a
# lesson at its end, " [05]".
TERM = re.compile(r"^### (.*)\n(?:\*(.+)\*\n)?(?:.* \[(\d\d)\]$)?", re.M)
# 锁页内存（固定内存、页锁定内存）: the name to use, then others
CHINESE = re.compile(r"([^（）、]+)(?:（([^（）]+)）)?")


def problems(text, files):
    """What is wrong with the page, in lines of text. files: of lessons by number."""
    terms = TERM.findall(text)
    names = [name.lower() for name, _, _ in terms]
    if names != sorted({*names}):
        yield "the terms are not in alphabetical order, or one stands there twice"
    known = set()
    for name, chinese, number in terms:
        words = chinese_names(chinese)
        if not re.search("[\u4e00-\u9fff]", "".join(words)):
            yield f"{name} has no Chinese name in the form *锁页内存（固定内存）*"
        yield from (f"{word} stands at two terms" for word in words if word in known)
        known.update(words)
        file = files.get(number)
        if not file or f"\n[{number}]: ../notebooks/{file}\n" not in text:
            problem = (
                "does not end with the number of a lesson, or its link leads nowhere"
            )
            yield f"{name} {problem}"


def chinese_names(line):
    """The names in a line such as 锁页内存（固定内存、页锁定内存）; none where it has
    another form.
    """
    found = CHINESE.fullmatch(line)
    names = [found[1], *(found[2] or "").split("、")] if found else []
    return [name for name in names if name]
