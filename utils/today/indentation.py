"""Python code that lost its indentation on a web page: put it back where that can be
done.

`restored` reads line by line and keeps the blocks that are open. A line that ends in a
colon opens one; which lines close one is a matter of rules, written down in `_closed`.
They know what listings of this kind look like and can be wrong, so whoever uses the
result shows it.
"""

import io
import re
import textwrap
import tokenize

# keyword of a line → keywords of the blocks that it can go on from
CONTINUES = {
    "elif": {"if", "elif"},
    "else": {"if", "elif", "for", "while", "except"},
    "except": {"try", "except"},
    "finally": {"try", "except", "else"},
}
# nothing after them in a block is ever run
LEAVES = {"return", "raise", "break", "continue", "pass"}
# What ends a with block of that kind, because it belongs behind it
ENDS_WITH = {
    "autocast": r"backward\(|optimizer\.|scaler\.|print\(",
    "profile": r"key_averages|export_chrome_trace",
    "cuda.stream": r"synchronize|wait_stream|wait_event|CUDAGraph\(|print\(",
    "cuda.graph": r"replay\(|for ",
    "no_grad|inference_mode": r"backward\(|optimizer\.|\.train\(\)",
}
# of training: belongs to the loop around it
STEP = r"backward\(|\bstep\(|zero_grad|scaler\.|optimizer\."


class Block:
    """An open block. keyword: what it begins with. header: its first line. known: names
    that had a value before it.
    """

    def __init__(self, keyword, header, known, like=None):
        self.keyword, self.header, self.known = keyword, header, set(known)
        self.statements, self.last = 0, ""  # so far: how many, and the last of them
        self.bound = _bound(header)  # names that get a value in it and had none before
        self.like = like  # of an else: how many statements the block before it has


def is_python(source):
    """Whether Python can read it."""
    try:
        compile(source, "pasted", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def restored(source):
    """The source with its indentation put back, or None where that cannot be done.

    Only code without any indentation, or with the same in front of all lines, is
    touched.
    """
    dedented = textwrap.dedent(source.expandtabs(4)).strip("\n")
    if is_python(dedented):
        return dedented
    lines = _logical_lines(dedented)
    if lines is None or any(code[:1].isspace() for _, code in lines):
        return None
    placed, blocks, known = [], [], set()
    for n, (before, code) in enumerate(lines):
        keyword = _keyword(code)
        following = [later for _, later in lines[n + 1 :]]
        blank = sum(not line.strip() for line in before) if n else 0
        like = None
        if not (blocks and blocks[-1].statements == 0):
            blocks = blocks[: _open(blocks, keyword, code, blank, following)]
            if keyword in CONTINUES:
                if not blocks:
                    return None
                like = blocks.pop().statements
        if blocks:
            blocks[-1].statements += 1
            blocks[-1].last = code
            for block in blocks:
                block.bound |= _bound(code) - block.known
        known |= _bound(code)
        indent = " " * 4 * len(blocks)
        placed += [indent + line.strip() if line.strip() else "" for line in before]
        placed.append(indent + code)
        if _opens(code):
            blocks.append(Block(keyword, code, known - _bound(code), like))
    text = "\n".join(placed)
    return text if is_python(text) else None


def _open(blocks, keyword, code, blank, following):
    """How many of the open blocks a line still belongs to."""
    if keyword in CONTINUES:
        fits = [
            n for n, block in enumerate(blocks) if block.keyword in CONTINUES[keyword]
        ]
        return fits[-1] + 1 if fits else 0
    ended = [n for n, block in enumerate(blocks) if _ends_with(block, code)]
    depth = min(ended, default=len(blocks))
    while depth and _closed(
        blocks[depth - 1], blocks[: depth - 1], keyword, code, blank, following
    ):
        depth -= 1
    return depth


def _closed(block, around, keyword, code, blank, following):
    """Whether a line that is not the first of a block ends it. around: the blocks that
    it stands in.
    """
    if _awaits(block, [code, *following]):
        return False  # its else or except comes later
    if _keyword(block.last) in LEAVES and not _opens(block.last):
        return True
    if keyword in ("def", "@"):
        return not (block.keyword == "class" and _is_method(code, following))
    if keyword in ("class", "from", "import") or code.startswith("if __name__"):
        return keyword in ("class", "if") or block.keyword != "def"
    if block.keyword == "class":
        return block.last.startswith("def ") or not re.match(
            r"\w+( ?:.*)? = |[\"']", code
        )
    if block.keyword == "def":
        name = re.match(r"(?:async )?def (\w+)", block.header)[1]
        return (
            blank >= 2
            or bool(re.search(rf"\b{name}\b", code))
            and blank >= 1
            and not around
        )
    if keyword == "return":
        return True
    if (
        block.keyword in ("for", "while", "with")
        and keyword == "print"
        and (names := _names(code) - {"print"})
    ):
        if not block.bound & names:
            return True  # what it prints was there before
    if block.keyword in ("for", "while"):
        return (
            blank >= 1 and not re.search(STEP, code) and not block.bound & _names(code)
        )
    if block.keyword == "with":
        return blank >= 1 and not around
    if block.header.startswith("if __name__"):
        return False
    if block.keyword in ("if", "elif", "else", "except", "finally"):
        mirrors = block.like and block.statements < block.like and not _opens(code)
        return blank >= 1 or _begin(code) != _begin(block.last) and not mirrors
    return False


def _begin(code):
    """What a line begins with: "print(", "optimizer.", "best_", "x =". Lines of one
    block often begin alike.
    """
    return re.match(r"\w*?(_| =|\W|$)", code)[0]


def _ends_with(block, code):
    """Whether a line belongs behind a with block of that kind."""
    kinds = [
        kind
        for kind in ENDS_WITH
        if block.keyword == "with" and re.search(kind, block.header)
    ]
    return any(re.search(ENDS_WITH[kind], code) for kind in kinds)


def _awaits(block, following):
    """Whether the else or except of a block is still to come, before anything that
    begins anew.
    """
    goes_on = {
        "if": {"elif", "else"},
        "elif": {"elif", "else"},
        "try": {"except"},
        "except": {"except"},
    }
    for keyword in map(_keyword, following):
        if keyword in goes_on.get(block.keyword, ()):
            return True
        if keyword in ("def", "class", "@", block.keyword):
            return False
    return False


def _is_method(code, following):
    first = next((line for line in [code, *following] if not line.startswith("@")), "")
    return bool(re.match(r"(async )?def \w+\((self|cls)\b", first)) or code.startswith(
        "@"
    )


def _keyword(code):
    return "@" if code.startswith("@") else re.match(r"(?:async )?(\w*)", code)[1]


def _opens(code):
    return bool(re.search(r":\s*(#.*)?$", code))


def _names(code):
    return set(
        re.findall(r"(?<![\w.])[A-Za-z_]\w*", re.sub(r"\"[^\"{]*\"|'[^'{]*'", "", code))
    )


def _bound(code):
    """The names that a line gives a value: those left of =, and those of for and with."""
    left = re.match(r"(?:for (.+?) in |with .* as (\w+)|([\w, ]+?) [-+*/]?= )", code)
    return _names(next(filter(None, left.groups()))) if left else set()


def _logical_lines(text):
    """(blank lines and comments before it, statement) each; None where brackets or
    quotes never close.
    """
    # done, first: numbers of lines, from 1
    found, lines, done, first = [], text.split("\n"), 0, None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE:
                found.append(
                    (
                        lines[done : first - 1],
                        "\n".join(lines[first - 1 : token.end[0]]).rstrip(),
                    )
                )
                done, first = token.end[0], None
            elif first is None and token.type not in (tokenize.NL, tokenize.COMMENT):
                first = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return None
    return found
