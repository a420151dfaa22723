"""Links in Markdown: to files of the course, headings of pages, cells of lessons."""

import json
import re

# to a file of the course, a heading of it, or one of the same page
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def read(path):
    return path.read_text(encoding="utf-8")


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M
    )
    return [
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
    ]


def broken_links(text, folder):
    """Links in `text` to files that do not exist, to headings of Markdown files that
    have none such, and to cells that a lesson does not have.
    """
    for target, anchor in LINK.findall(text):
        path = folder / target
        if target and not path.exists():
            yield f"the link to {target} leads nowhere"
        elif anchor and (path.suffix == ".md" or not target):
            if anchor not in anchors(read(path) if target else text):
                yield f"there is no heading for the link to {target}#{anchor}"
        elif anchor and path.suffix == ".ipynb":
            if anchor not in {cell["id"] for cell in json.loads(read(path))["cells"]}:
                yield f"there is no cell for the link to {target}#{anchor}"


def with_links(text, folder, address_of):
    """`text`, of a page in `folder`, whose links lead to `address_of(path)`; as they
    are where it gives None.
    """

    def change(found):
        path = (folder / found[1]).resolve()
        to = address_of(path) if found[1] and path.exists() else None
        return found[0].replace(found[1], to, 1) if to else found[0]

    return LINK.sub(change, text)
