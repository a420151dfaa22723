"""The search of the website: each section of its built pages is a page of its own for
Pagefind, which writes pagefind/ into the site. docs/_static/search.js asks it.

    found = collect(site, tasks, names, chinese)    the sections of the built site
    write(site, found, scratch)                     its index

Not indexed: set-up cells and other folded code, what cells showed, hints and solutions
of exercises, and pages that only list. What is asked for most stands higher: a quick
answer, a task, a message, a term are short, and their titles count most.
"""

import html
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from typing import NamedTuple

import pagefind_bin

# what a page shows that nobody looks for: tags, classes, classes of <details>
TAGS = {"button", "script", "style", "svg", "nav"}
CLASSES = set("headerlink launch toctree-wrapper cell_output explorer".split())
CLASSES |= {"find-message"}
FOLDED = {"code", "hint", "solution", "shown-by"}
# elements before which a word ends
BLOCKS = set("br dd div dt li p summary td th tr".split())
# elements without an end
VOID = set("area br col embed hr img input link meta source track wbr".split())
# The kind of a page's sections, by its address. Others are for contributors, or only
# list: docs/tasks.html, of which each task is found for itself.
KINDS = {
    r"docs/answers": "answer",
    r"docs/errors/": "message",
    r"docs/glossary": "term",
    r"docs/zh": "zh",
    r"notebooks/": "lesson",
    r"docs/(?:kit|command|tpu|errors|next|teaching|paths)": "page",
    r"docs/recipes": "recipe",
}
# sections that every lesson has
ASIDE = {"What to remember", "Exercises", "More exercises", "Your own loop", "Deeper"}
HAN = re.compile("[\u3400-\u9fff]+")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
WORDS = 400  # of a section's text; names in code are found below, too
MOST = 2  # times that a word of a text counts, so that the index stays small
# Words that nobody looks for beside others: they are not in the index, and of a query
# search-results.js leaves them out. "expected": many messages begin with it.
STOP = set(
    "a all an and any are as at be been but by can do does expected for from get how i"
    " if in into is it its me my of on or should so that the their then there this to"
    " was what when where which while why will with you your".split()
)


class Section(NamedTuple):
    """What one result of the search is. link: from the root of the site. where: the
    name of its page. words: by which it is found besides.
    """

    link: str
    title: str
    where: str
    kind: str
    text: str
    words: str = ""


def kind_of(path):
    """Of a page, by its address; None for one that is not indexed."""
    return next((kind for start, kind in KINDS.items() if re.match(start, path)), None)


class Part:
    """A section while it is read: its text, and the code in it, without what stands in
    sections below.
    """

    def __init__(self, id, level):
        self.id, self.level = id, level
        self.title, self.text, self.code = [], [], []


class Reader(HTMLParser):
    """Reads a page: its sections are in `parts`."""

    def __init__(self):
        super().__init__()
        self.open, self.parts, self.within = [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        classes = set((attrs.get("class") or "").split())
        if tag in BLOCKS and self.within:
            self.within[-1].text.append(" ")
        if tag in VOID:
            return
        role = self.open[-1][1] if self.open else "text"
        if tag == "section":
            self.parts.append(Part(attrs.get("id"), None))
            self.within.append(self.parts[-1])
        elif re.fullmatch("h[1-6]", tag) and self.within and not self.within[-1].level:
            self.within[-1].level, role = tag, "title"
        elif tag in TAGS or classes & CLASSES or tag == "details" and classes & FOLDED:
            role = "out"
        elif tag in ("pre", "code") and role != "out":
            role = {"pre": "block", "code": "code"}[tag] if role == "text" else role
        self.open.append((tag, "out" if self._is_out() else role))

    def _is_out(self):
        return bool(self.open) and self.open[-1][1] == "out"

    def handle_endtag(self, tag):
        if tag in {name for name, _ in self.open}:
            while self.open.pop()[0] != tag:
                pass
            if tag == "section":
                self.within.pop()

    def handle_data(self, data):
        role = self.open[-1][1] if self.open else "text"
        if not self.within or role == "out":
            return
        part = self.within[-1]
        if role == "title":
            part.title.append(data)
        if role in ("text", "code"):
            part.text.append(data)
        if role in ("block", "code", "title"):
            part.code.append(data)


def sections(path, page):
    """The sections of a page, each without those below it. page: its HTML."""
    reader, kind, where = Reader(), kind_of(path), ""
    reader.feed(page[page.index("<article") : page.index("</article>")])
    for part in reader.parts:
        title = joined(part.title)
        # a row of lesson 16 is found as the message that leads to it
        if part.level and not (part.level == "h3" and path.startswith("notebooks/16_")):
            yield Section(
                link=f"{path}#{part.id}" if where else path,
                title=title,
                where=where,
                kind=_kind_of_part(kind, title, first=not where),
                text=" ".join(joined(part.text).split(" ")[:WORDS]),
                words=names_in(part.code),
            )
            where = where or title


def _kind_of_part(kind, title, first):
    if title in ASIDE:
        return "aside"
    # the head of a page of many messages, terms or answers is none
    return "page" if first and kind != "lesson" else kind


def joined(texts):
    return " ".join("".join(texts).split())


def names_in(codes):
    """Names in code, as they are looked for: `torch.cuda.empty_cache()` is found by its
    last part, too.
    """
    found = Counter()
    for name in NAME.findall(" ".join(codes)):
        for each in {name, name.rpartition(".")[2]}:
            if "_" in each or "." in each or re.search("[a-z][A-Z]", each):
                found[each] += 1
    return " ".join(name for name, n in found.items() for _ in range(min(n, 3)))


def pairs(text):
    """Chinese as words of two characters: 锁页内存 is found by 锁页, 页内, 内存."""
    return " ".join(
        run[n : n + 2] for run in HAN.findall(text) for n in range(max(len(run) - 1, 1))
    )


def of_tasks(tasks, names):
    """Tasks lead to their cells. names: {stem: name of the lesson on the site}."""
    for task in tasks:
        link = f"notebooks/{task.stem}.html#{task.id}"
        yield Section(
            link, f"How do I {task.title}?", names[task.stem], "task", "", task.words
        )


HEADS = {"answer", "task", "term", "lesson"}
# how much a word counts: in a title; in the text, and in what stands besides
TITLE = {"answer": 10, "task": 8, "lesson": 7, "term": 7, "message": 5}
WEIGHT = {"answer": 3, "task": 3, "recipe": 0.5, "page": 0.7}


def telling(text):
    """The words of a text by which it is found."""
    found = Counter()
    for word in text.split():
        found[word] += word.lower() not in STOP
    return " ".join(word for word, n in found.items() for _ in range(min(n, MOST)))


def document(section):
    """A section as a page for Pagefind."""
    weight = WEIGHT.get(section.kind, 1)
    chinese = pairs(f"{section.title} {section.text}")
    parts = html.escape(telling(section.text)), html.escape(section.words)
    # what a filter holds is kept with a section, and not looked for
    facts = [
        ("meta", "title", section.title),
        ("meta", "where", section.where),
        ("filter", "link", section.link),
        ("filter", "kind", section.kind),
        ("filter", "text", section.text),
    ]
    if section.kind == "task":
        facts.append(("filter", "words", section.words))
    head = "".join(
        f'<meta data-pagefind-{how}="{name}[content]" content="{html.escape(value)}">'
        for how, name, value in facts
    )
    return (
        f'<html lang="en"><head>{head}</head><body>'
        f'<div data-pagefind-weight="{TITLE.get(section.kind, 3)}">'
        f"{html.escape(section.title)}</div>"
        f'<div data-pagefind-weight="{weight}">{parts[0]}</div>'
        f'<div data-pagefind-weight="{weight}">{parts[1]} {chinese}'
        f" {pairs(section.title)}</div></body></html>"
    )


def collect(site, tasks, names, chinese):
    """All that is found in the site: its sections, and the tasks. tasks: as
    tools.site.tasks gives them. names: {stem: name of the lesson on the site}.
    chinese: {stem: Chinese words by which the lesson is found, too}.
    """
    found = list(of_tasks(tasks, names))
    for file in sorted(site.rglob("*.html")):
        path = file.relative_to(site).as_posix()
        if kind_of(path):
            first, *others = sections(path, file.read_text(encoding="utf-8"))
            words = f"{first.words} {pairs(chinese.get(file.stem, ''))}"
            found += [first._replace(words=words), *others]
    return found


# of what Pagefind writes, what search.js asks for
USED = re.compile(
    r"pagefind\.js|pagefind-entry\.json|wasm\.en\.pagefind|.*\.pf_(?:meta|index|fragment)"
)


def write(site, found, scratch):
    """Write the index of what is found in the site. scratch: a folder for what Pagefind
    reads, a page for each section, which is made anew.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for n, section in enumerate(found):
        page = scratch / f"{n}.html"
        page.write_text(document(section), encoding="utf-8")
    folder, program = site / "pagefind", pagefind_bin.get_executable()
    options = ["--quiet", "--site", scratch, "--output-path", folder]
    subprocess.run([program, *options, "--force-language", "en"], check=True)
    for file in folder.rglob("*"):
        if file.is_file() and not USED.fullmatch(file.name):
            file.unlink()
    shutil.rmtree(folder / "filter", ignore_errors=True)
    lists = " ".join(sorted(STOP)), " ".join(known_words(found))
    (folder / "words.txt").write_text("\n".join(lists), encoding="utf-8")


def known_words(found):
    """Words of titles, for which what was typed may be a typing error."""
    titles = " ".join(
        f"{each.title} {each.words}" for each in found if each.kind in HEADS
    )
    return sorted(set(re.findall(r"\b[a-z]{5,}\b", titles.lower())))
