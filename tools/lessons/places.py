"""What the look-up searches where its table knows nothing (places.json of
packages/torch_messages): the headings of the lessons, the tasks, the quick answers and
the page in Chinese, with their addresses on the site.

python -m tools.lessons.places check
    whether the file is what the lessons and pages say
python -m tools.lessons.places write
    bring it up to date

The rules of the search and the trackers stand in the same file, and are kept: they are
written by hand.
"""

import argparse
import json
import re
import sys

import nbformat

from tools.lessons.links import anchors, read
from tools.lessons.notebooks import ROOT, address, lessons
from tools.lessons.parts import HEADING
from torch_messages import places

FILE = ROOT / "packages/torch_messages/torch_messages/places.json"
MOST = 40_000  # bytes
# headings that say nothing of what stands below them
EMPTY = "Exercises|More exercises|More|Deeper|Your own loop|What to remember"
EMPTY += "|On your GPU"
NUMBER = re.compile(r"^\d+ · ")
# [words](file#anchor)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#]*)#?([^)]*)\)")
NAME = re.compile(r"`([^`\n]+)`")
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+) \|$", re.M)
# how people put what the quick answers are about, beside their headings and names
PUT = {
    "CUDA is not available": (
        "gpu found detected returns false only uses cpu driver install",
        "装了 识别",
    ),
    "Expected all tensors to be on the same device": (
        "found at least two devices mismatch cuda cpu",
        "",
    ),
    "CUDA out of memory": ("oom vram gpu full reduce", "不够用 减少"),
    "My timing is wrong": ("measure time benchmark gpu too fast", "时间 不对"),
    "The GPU is idle": (
        "low utilization usage 0% slow training used waits data",
        "使用率 占用率 低",
    ),
    "The loss is NaN with AMP": (
        "inf mixed precision fp16 half training",
        "变成 nan 混合精度",
    ),
    "DataLoader hangs or dies": (
        "num_workers worker stuck freeze deadlock crash killed",
        "大于0 多进程 工作进程 数据加载",
    ),
    "DDP hangs": (
        "multi gpu distributed training stuck freeze deadlock nccl timeout",
        "多卡训练 分布式训练 不动 超时",
    ),
    "torch.compile is slow or breaks": (
        "graph break recompile compiling takes long",
        "重新编译 图中断",
    ),
    "The TPU is slower than my CPU": ("slow compile torch_xla", "训练很慢"),
    "Generation is slow": ("llm tokens second inference decode generate", "token 解码"),
    "How long a context fits": ("kv cache llm memory length oom", "token 显存 多少"),
}


def slug(title):
    """The anchor of a heading on the site."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-0123456789")


def plain(title):
    """A heading without its number and the marks of Markdown."""
    return NUMBER.sub("", re.sub("[`*]", "", title))


# --------------------------------------------------------------------------------------
# Lessons, and tasks


def of_lesson(path):
    """(title, anchor, words) of the tasks of a lesson, and of its headings where no
    task stands.
    """
    found = tasks_of(path.stem[:2])
    for title, id in headings(path):
        same = [task for task in found if task[1] == id]
        if same:
            same[0][2] += " " + title
        elif len(set(places.words(title))) > 1:  # one word is no answer
            found.append([title, id, ""])
    return found


def headings(path):
    """(heading, id of the cell) of the sections of a lesson; without the rows of lesson
    16 and their groups ("section-5"): the rows have their entries in the table.
    """
    rows = path.stem.startswith("16")
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "markdown" or rows and cell.id.startswith("section-"):
            continue
        for level, title, _ in HEADING.findall(without_blocks(cell.source)):
            if 2 <= len(level) <= (2 if rows else 3):
                if not re.fullmatch(EMPTY, plain(title)):
                    yield plain(title), cell.id


def tasks_of(number):
    """[title, cell, words] of the tasks of a lesson."""
    lines = read(ROOT / "tools/site/tasks.txt").splitlines()
    return [
        [f"How do I {title}?", place.split()[1], words]
        for place, title, words in (line.split(" | ") for line in lines)
        if place.startswith(number + " ")
    ]


# --------------------------------------------------------------------------------------
# Pages


def sections(text, mark):
    """(heading, what stands below it) of the sections whose headings have this mark."""
    for section in re.split(rf"^{mark} ", text, flags=re.M)[1:]:
        title, _, below = section.partition("\n")
        yield title, re.split(r"^#+ ", below, flags=re.M)[0]


def of_answers(text):
    """The quick answers: by their headings, by the names in their text, and by how
    people put it.
    """
    for title, below in sections(text, "##"):
        yield title, slug(title), f"{names(below)} {put(title)[0]}"


def put(heading):
    """How people put it in English, and in Chinese."""
    return PUT.get(heading, ("", ""))


def names(text):
    """The names in a text, once each."""
    return " ".join(dict.fromkeys(NAME.findall(without_blocks(text))))


def without_blocks(text):
    """A Markdown text without its blocks of code."""
    return re.sub(r"```.*?```", "", text, flags=re.S)


def of_chinese(text):
    """(title, page, anchor, words) of what the page in Chinese leads to: its answers,
    and the links of its table of subjects, by the subject and its other names.
    """
    found = {}  # (page, anchor) → title, words
    titles = [title for _, title, _ in HEADING.findall(without_blocks(text))]
    on_github = dict(zip(anchors(text), titles, strict=True))
    answers = {}
    for title, below in sections(text, "###"):
        english = re.search("（(.*)）$", title)[1]
        answers[title] = "zh", slug(title)
        found["zh", slug(title)] = [title, names(below), put(english)[1]]
    table = text.partition("## 按主题查找")[2].partition("\n## ")[0]
    for subject, also, links in ROW.findall(table)[1:]:
        for label, file, anchor in LINK.findall(links):
            if file.endswith(".md"):
                continue
            place = file[len("../notebooks/") :][:2], anchor
            if not file:
                label = on_github[anchor]
                place = answers.get(label)
            if place:
                found.setdefault(place, [label]).extend([subject, *also.split("、")])
    for (page, anchor), (label, *words) in found.items():
        yield plain(label), page, anchor, " ".join(words)


# --------------------------------------------------------------------------------------
# The file


def further(title, more):
    """The words that more has and the title has not, without endings where the search
    reads them alike, and in Chinese the phrases with a new pair of characters.
    """
    known, found = set(places.words(title)), []
    for each in re.findall("[a-z][a-z0-9]*|[\u4e00-\u9fff]+", more.lower()):
        own = places.words(each)
        if set(own) - known:
            known.update(own)
            found.append(own[0] if places.words(own[0]) == own else each)
    return found


def content():
    """The whole of it."""
    kept = json.loads(read(FILE))
    pages, found = {"answers": "docs/answers.html", "zh": "docs/zh.html"}, {}
    for path in lessons():
        number = path.stem[:2]
        pages[number] = f"notebooks/{path.stem}.html"
        found[number] = list(map(place, of_lesson(path)))
    found["answers"] = list(map(place, of_answers(read(ROOT / "docs/answers.md"))))
    for title, page, anchor, words in of_chinese(read(ROOT / "docs/zh.md")):
        found.setdefault(page, []).append(place((title, anchor, words)))
    return {**kept, "site": address("Site") + "/", "pages": pages, "places": found}


def place(told):
    """[title, anchor], and the words that the title has not, if there are some."""
    title, anchor, words = told
    more = " ".join(dict.fromkeys(further(title, words)))
    return [title, anchor, more] if more else [title, anchor]


def written(told):
    """The text of the file: a place, a tracker, a rule on each line."""
    parts = []
    for key, value in told.items():
        if key == "places":
            some = (f"{_json(page)}: {_lines(own)}" for page, own in value.items())
            value = "{\n" + ",\n".join(some) + "\n}"
        elif isinstance(value, list):
            value = _lines(value)
        elif isinstance(value, dict):
            each = (f"{_json(name)}: {_json(of)}" for name, of in value.items())
            value = "{\n" + ",\n".join(each) + "\n}"
        else:
            value = _json(value)
        parts.append(f"{_json(key)}: {value}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(some):
    lines = ",\n".join(map(_json, some))
    return f"[\n{lines}\n]"


def _json(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def problems():
    """What is wrong with the file, as lines."""
    text = written(content())
    if text != read(FILE):
        yield f"{FILE.name} is not what lessons and pages say: run `make format`"
    if len(text.encode()) > MOST:
        yield f"{FILE.name}: {len(text.encode())} bytes, more than {MOST}"


def write():
    text = written(content())
    if text != read(FILE):
        FILE.write_text(text, encoding="utf-8", newline="\n")
        print(f"{FILE.name}: rewritten")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["check", "write"])
    if parser.parse_args().command == "write":
        return write()
    found = list(problems())
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
