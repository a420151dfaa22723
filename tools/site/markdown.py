"""The staged pages as Markdown, for programs: each beside its .html, and llms.txt,
which lists them (llmstxt.org).

No extension did it. sphinx-llm 1.1.0 builds all pages again (19 s) by
sphinx-markdown-builder 0.6.11, which drops 534 outputs (claims, figures) and keeps
HTML around answers. sphinx-llms-txt 0.7.1 makes no pages.
"""

import posixpath
import re

import nbformat
from markdownify import MarkdownConverter

from tools.lessons.links import LINK, read
from tools.site.recipes import block
from utils.jobs import COLORS

FENCE = re.compile(r"^( *)(`{3,})(.*)\n((?:.*\n)*?)\1\2 *$\n?", re.M)
LEFT_OUT = re.compile(r"\A---\n(?:.*\n)*?---\n|^%.*\n|^<!--.*-->\n+", re.M)
HTML = re.compile(r"^</?[a-z]\w*(?: [^>]*)?>.*$", re.M)
TARGET = re.compile(r"^\((.+)\)=\n\n?", re.M)
SENTENCE = re.compile(r"^(?![\s#>|(-]).+?(?:[.?](?=\s)|。|\n\n)", re.M | re.S)


class Converter(MarkdownConverter):
    class Options:
        escape_asterisks = escape_underscores = escape_misc = False

    def convert_span(self, el, text, parent_tags):
        return f"\n\n({el['id']})=\n\n" if el.get("id") else text

    def convert_summary(self, el, text, parent_tags):
        return f"\n\n*Folded: {text.strip()}*\n\n"

    def convert_div(self, el, text, parent_tags):
        if "explorer" in el.get("class", []):
            text = f"*A figure with controls: {el.find(role='img')['aria-label']}*"
        return "" if "find-message" in el.get("class", []) else f"\n\n{text}\n\n"

    def convert_pre(self, el, text, parent_tags):
        code = el.get_text().strip("\n")
        if "td" in parent_tags:  # a row of lesson 16: the pages of errors have all
            first, more, _ = code.partition("\n")
            return f"`{first}`" + " …" * len(more)
        return f"\n\n{block(code, 'text')}\n\n"

    def convert_button(self, el, text, parent_tags):
        return ""

    convert_script = convert_button


def from_html(text):
    return Converter().convert(text).strip()


def from_prose(text):
    text = HTML.sub(lambda found: from_html(found[0]), LEFT_OUT.sub("", text))
    text = re.sub("<kbd>(.*?)</kbd>", r"`\1`", text).replace("<br>", "; ")
    return re.sub(r"\n{3,}", "\n\n", text)


def from_fence(found):
    mark, kind, content = found[2], found[3], found[4]
    if kind == "{raw} html":
        return from_html(content) + "\n"
    if kind.startswith("{code-block}"):
        content = re.sub(r"\A(?::.*\n)+\n", "", content)
        return f"{mark}{kind[13:]}\n{content}{mark}\n"
    return "" if kind == "{toctree}" else found[0].replace("lesson\n", "python\n", 1)


def outside(text, change, *more):
    """`text`, where change(part, *more) stands for what is no code."""
    parts, end = [], 0
    for found in FENCE.finditer(text):
        parts += [change(text[end : found.start()], *more), found[0]]
        end = found.end()
    return "".join([*parts, change(text[end:], *more)])


def from_staged(text):
    return outside(FENCE.sub(from_fence, text), from_prose).strip()


def from_cells(nb):
    """A staged lesson."""
    parts = []
    for cell in nb.cells:
        if cell.cell_type == "raw":
            parts.append(from_html(cell.source))
        elif cell.cell_type == "markdown":
            parts.append(from_staged(cell.source))
        elif "remove-input" not in cell.metadata.get("tags", []):
            parts.append(block(cell.source, "python"))
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                parts.append(from_html(data["text/html"]))
            else:
                printed = COLORS.sub("", output.get("text") or data["text/plain"])
                parts.append(block(printed.strip("\n"), "text"))
    return "\n\n".join(filter(None, parts))


def pages(source, site):
    """{name: Markdown} of the pages staged in `source`. site: their address."""
    made = {}
    for file in sorted([*source.rglob("*.md"), *source.rglob("*.ipynb")]):
        name = file.relative_to(source).with_suffix("").as_posix()
        lesson = file.suffix == ".ipynb"
        text = from_cells(nbformat.read(file, 4)) if lesson else from_staged(read(file))
        made[name] = text + "\n"
    wanted = {anchor for text in made.values() for _, anchor in LINK.findall(text)}

    def finished(text, folder):
        def link(found):
            page, suffix = posixpath.splitext(found[1])
            there = suffix and posixpath.normpath(posixpath.join(folder, page)) in made
            return found[0].replace(suffix, ".md", 1) if there else found[0]

        text = re.sub(rf"(\]\({site}/[\w/]+)\.html", r"\1.md", LINK.sub(link, text))
        return TARGET.sub(lambda to: to[0] if to[1] in wanted else "", text)

    for name, text in made.items():
        made[name] = outside(text, finished, posixpath.dirname(name))
    return made


def first(text):
    """(title, first sentence) of a page."""
    title, _, rest = text.removeprefix("# ").partition("\n")
    sentence = SENTENCE.search(FENCE.sub("", rest))[0].replace("**", "")
    return title, " ".join(re.sub(r"\[(.+?)\]\(.*?\)", r"\1", sentence).split())


def write(made, head, out, site, sections, questions):
    """Write pages and llms.txt: head, sections {caption: names}; of a page what it
    answers, questions {name: text}, or its first sentence.
    """
    for name, text in made.items():
        if (out / f"{name}.md").write_bytes(text.encode()) > 250_000:
            raise ValueError(f"{name}.md has more than 250 kB")
    listed, left = [head], {**made}
    for caption, names in sections.items():
        listed.append(f"## {caption}\n")
        for name in names:
            title, line = first(left.pop(name))
            line = questions.get(name, line)
            listed.append(f"- [{title}]({site}/{name}.md): {line}")
        listed.append("")
    if left:
        raise ValueError(f"not in llms.txt: {', '.join(left)}")
    (out / "llms.txt").write_text("\n".join(listed), encoding="utf-8")
