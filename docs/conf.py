"""How Sphinx builds the website. tools/site/website.py copies this file to the staged
pages, and calls Sphinx.
"""

import re
from urllib.parse import urlparse

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexer import inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Comment

from tools.lessons.notebooks import address

project = html_title = "PyTorch Device Lab"
copyright = "the authors. Code: BSD-3-Clause, text and figures: CC BY 4.0"
language = "en"
highlight_language = "none"  # of a block that names no language: a shell, a message
smartquotes = False  # texts stand as they were written
extensions = [
    "myst_nb",
    "notfound.extension",
    "sphinx_copybutton",
    "sphinx_sitemap",
    "sphinxext.opengraph",
]

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False  # "$2 to $3" is money
myst_heading_anchors = 4
myst_update_mathjax = False

html_theme = "furo"
html_baseurl = ogp_site_url = address("Site") + "/"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_additional_pages = {"search": "find.html"}
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css", "explorer.css", "reference.css"]
SCRIPTS = ["site.js", "explorer.js", "search.js"]
html_js_files = [(script, {"defer": "defer"}) for script in SCRIPTS]
html_math_renderer = "mathml"
html_use_index = False
html_copy_source = html_show_sourcelink = html_show_sphinx = False
sitemap_url_scheme = "{link}"
# a server shows 404.html in any folder
notfound_urls_prefix = urlparse(html_baseurl).path
notfound_context = {
    "title": "There is no such page",
    "body": "<h1>There is no such page</h1><p>The menu and the search know all that"
    " there are.</p>",
}
ogp_enable_meta_description = True
ogp_social_cards = {"enable": False}  # they are drawn with matplotlib
copybutton_selector = "div:not(.output) > div.highlight > pre"


class LessonLexer(PythonLexer):
    """A cell: Python below lines such as `#| requires: cuda`."""

    name, aliases = "Lesson", ["lesson"]
    tokens = {"root": [(r"^(#\||%%(today|torchrun)\b).*\n", Comment.Preproc), inherit]}


def inline_math(translator, node):
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block_math(translator, node):
    translator.body.append(
        f'<div class="math">{convert(node.astext(), display="block")}</div>'
    )
    raise nodes.SkipNode


def link_cells(app, doctree):
    """Make the ids of cells targets of links, as headings are. A heading of the same
    name stands for its cell.
    """
    targets = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for node in list(doctree.findall(nodes.raw)):
        # a raw cell, as it is: with classes it would get a <div> around it
        if isinstance(node.parent, nodes.section):
            node["classes"] = []
        if match := re.fullmatch(
            r'<span class="cell" id="(.+)"></span>', node.astext().strip()
        ):
            if match[1] in doctree.ids:
                node.parent.remove(node)
            targets.setdefault(match[1], (None, match[1], ""))


# what a heading says of its length, at the end of its address
LENGTH = re.compile(r"-\d+-minutes?$")


def lasting_addresses(app, doctree):
    """Take the minutes of a section out of its address: they change."""
    slugs = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for node in doctree.findall(nodes.section):
        for place, old in enumerate(node["ids"]):
            new = LENGTH.sub("", old)
            if new != old and new not in doctree.ids:
                node["ids"][place] = new
                doctree.ids[new] = doctree.ids.pop(old)
                for slug, (line, its, title) in list(slugs.items()):
                    if its == old:
                        slugs[slug] = line, new, title


def mark_chinese(app, doctree):
    """Say which language it is where a page's title, or what is emphasized, is Chinese.
    HTML has it as lang="zh-Hans", from a class of this form.
    """
    for node in [*doctree.findall(nodes.title), *doctree.findall(nodes.emphasis)]:
        if re.search("[\u4e00-\u9fff]", node.astext()):
            marked = node.parent if isinstance(node, nodes.title) else node
            marked["classes"].append("language-zh-Hans")


def level_of_captions(app, page, template, context, doctree):
    """Say which headings the captions of the navigation are: Sphinx calls them headings
    without a level.
    """
    tree = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = tree.replace(
        'role="heading"', 'role="heading" aria-level="2"'
    )


def lighter(app, page, template, context, doctree):
    """Leave out what Sphinx writes around each word of code, a quarter of the pages of
    errors, and what titles say that a pointer rests on; of styles those of notebooks.
    """
    if page.startswith("docs/errors"):
        body = re.sub(r'<span class="pre">([^<]*)</span>', r"\1", context["body"])
        body = re.sub(r'<span class="std std-ref">([^<]*)</span>', r"\1", body)
        body = body.replace("<span></span>", "")
        body = body.replace(' title="Link to this heading"', "")
        context["body"] = body.replace("docutils literal notranslate", "literal")
        context["css_files"] = [
            each for each in context["css_files"] if "mystnb" not in each.filename
        ]


def as_markdown(app, page, template, context, doctree):
    """Say where the page stands as Markdown: tools/site/markdown.py writes it."""
    if page in app.env.all_docs:
        here = f'type="text/markdown" href="{page.split("/")[-1]}.md"'
        context["metatags"] += f'<link rel="alternate" {here}>\n'


def without_search(app):
    """Let Sphinx write no search of its own: tools/site/search.py does."""
    app.builder.search = False


def without_highlights(app, page, template, context, doctree):
    """Leave out the script that marks the words of a search."""
    context["script_files"] = [
        each
        for each in context["script_files"]
        if "sphinx_highlight" not in (each.filename or "")
    ]


def setup(app):
    app.add_lexer("lesson", LessonLexer)
    app.add_html_math_renderer(
        "mathml",
        inline_renderers=(inline_math, None),
        block_renderers=(block_math, None),
    )
    app.connect("builder-inited", without_search)
    # before Sphinx collects addresses
    app.connect("doctree-read", lasting_addresses, priority=100)
    app.connect("doctree-read", link_cells)
    app.connect("doctree-read", mark_chinese)
    app.connect("html-page-context", level_of_captions, priority=900)  # after Furo
    app.connect("html-page-context", lighter)
    app.connect("html-page-context", as_markdown)
    app.connect("html-page-context", without_highlights)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
