"""The diagrams of the lessons: what each file must hold, and what a browser makes of
it.
"""

import base64
import os
import re
from xml.etree import ElementTree

import pytest
import torch
from playwright.sync_api import sync_playwright

from tests.conftest import text_of
from tests.lessons.test_browser import ARGUMENTS, BROWSER, needs_browser
from tools.lessons.notebooks import _clean_output
from utils import plots
from utils.hardware import look_up, pcie_limit
from utils.messages import LabError

FILES = sorted(plots.DIAGRAMS.iterdir())
BYTES_MOST, WIDTH = 20_000, 720
SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {
    "svg",
    "title",
    "desc",
    "defs",
    "marker",
    "g",
    "rect",
    "circle",
    "ellipse",
    "line",
    "path",
    "text",
    "tspan",
}

# Texts below 13 px or of little contrast, texts on another text, out of the frame or
# over the edge of their box, and shapes out of the frame. The box of a text is the
# smallest rectangle around its middle; its ground is what was drawn there last with a
# fill.
MEASURE = """() => {
    const svg = document.querySelector("svg"), frame = svg.getBoundingClientRect(), found = [];
    const box = element => element.getBoundingClientRect();
    const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
    const covers = (a, x, y) => a.left <= x && x <= a.right && a.top <= y && y <= a.bottom;
    const drawn = [...svg.querySelectorAll("rect, circle, ellipse, line, path, text")]
        .filter(element => !element.closest("defs"));
    const texts = drawn.filter(element => element.tagName === "text");
    const luminance = color => {
        const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(value => value / 255)
            .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    for (const element of drawn) {
        const name = element.tagName === "text" ? `'${element.textContent}'` : element.outerHTML.slice(0, 80);
        if (!inside(box(element), frame)) found.push(`out of the frame: ${name}`);
    }
    texts.forEach((text, index) => {
        const own = box(text), name = `'${text.textContent}'`, style = getComputedStyle(text);
        const x = (own.left + own.right) / 2, y = (own.top + own.bottom) / 2;
        const size = Math.min(...[text, ...text.children].map(part => parseFloat(getComputedStyle(part).fontSize)));
        if (size * frame.width / svg.viewBox.baseVal.width < 13) found.push(`text of ${size} px: ${name}`);
        for (const other of texts.slice(index + 1)) {
            const b = box(other);
            if (own.left < b.right && b.left < own.right && own.top < b.bottom && b.top < own.bottom)
                found.push(`on each other: ${name} and '${other.textContent}'`);
        }
        const boxes = drawn.filter(element => element.tagName === "rect" && covers(box(element), x, y)).map(box);
        boxes.sort((a, b) => a.width * a.height - b.width * b.height);
        if (boxes.length && !(own.left >= boxes[0].left + 2 && own.right <= boxes[0].right - 2))
            found.push(`over the edge of its box: ${name}`);
        const ground = document.elementsFromPoint(x, y)
            .find(element => drawn.includes(element) && element !== text && getComputedStyle(element).fill !== "none");
        const shades = [luminance(style.fill), ground ? luminance(getComputedStyle(ground).fill) : 1];
        const contrast = (Math.max(...shades) + 0.05) / (Math.min(...shades) + 0.05);
        if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(1)}: ${name}`);
    });
    return found;
}"""

GOOD = """<svg xmlns="http://www.w3.org/2000/svg" width="720" height="90" viewBox="0 0 720 90" role="img"
 aria-labelledby="small-title small-desc" font-family="Arial, sans-serif" font-size="14" fill="#222222">
<title id="small-title">One box holds it all</title>
<desc id="small-desc">A box with a word in it. An arrow leads to it.</desc>
<defs><marker id="small-tip"><path d="M0 0 L10 5 L0 10 Z"/></marker></defs>
<rect width="720" height="90" fill="#FFFFFF"/>
<text x="20" y="28" font-size="15" font-weight="bold">One box holds it all</text>
<rect x="20" y="44" width="90" height="30" fill="#E1EEF7"/>
<text x="30" y="64">a word</text>
<path d="M200 60 H116" stroke="#222222" marker-end="url(#small-tip)"/>
</svg>
"""


def problems(name, data):
    """What is wrong with the file `name`.svg, whose bytes are `data`, as lines of text."""
    try:
        text = data.decode()
        root = ElementTree.fromstring(text)
    except (UnicodeDecodeError, ElementTree.ParseError) as error:
        return [f"no XML: {error}"]
    found = [f"{len(data)} bytes"] if len(data) > BYTES_MOST else []
    nodes = [(node.tag.removeprefix(SVG), node) for node in root.iter()]
    found += [f"<{tag}>" for tag, _ in nodes if tag not in DRAWN]
    for attribute, value in (
        (key, value) for _, node in nodes for key, value in node.attrib.items()
    ):
        if re.match(r"on|.*href$|src", attribute) or re.search(
            r"url\((?!#)|@import|javascript:|https?:|data:", value
        ):
            found.append(f"not by itself: {attribute}={value}")
    ids = [node.get("id") for _, node in nodes if "id" in node.attrib]
    found += [
        f"id {name_} does not begin with {name}-"
        for name_ in ids
        if not name_.startswith(f"{name}-")
    ]
    found += [
        f"url(#{target}) leads nowhere"
        for target in re.findall(r"url\(#([^)]*)\)", text)
        if target not in ids
    ]

    height = root.get("height")
    first = {tag: node for tag, node in reversed(nodes)}
    words = {
        tag: "".join(first[tag].itertext()) if tag in first else ""
        for tag in ("title", "desc", "text")
    }
    ground = first.get("rect", root)
    heading = first.get("text", root)
    rules = {
        f"not {WIDTH} wide": (root.get("width"), root.get("viewBox"))
        == (str(WIDTH), f"0 0 {WIDTH} {height}"),
        "no <title>": bool(words["title"]),
        "<desc> is not two to eight sentences": 2
        <= len(re.findall(r"\.(?=\s|$)", words["desc"]))
        <= 8,
        "does not say that it is a picture": root.get("role") == "img"
        and root.get("aria-labelledby") == f"{name}-title {name}-desc",
        "no white ground": (
            ground.get("width"),
            ground.get("height"),
            ground.get("fill"),
            ground.get("x"),
        )
        == (str(WIDTH), height, "#FFFFFF", None),
        "its first text is not its <title>, bold, 15 px": words["text"]
        == words["title"]
        and (heading.get("font-size"), heading.get("font-weight")) == ("15", "bold"),
    }
    return found + [message for message, kept in rules.items() if not kept]


@pytest.fixture(scope="module")
def measured():
    """SVG → what a browser finds wrong when it shows it at its own width."""
    files = [path.read_text(encoding="utf-8") for path in FILES]
    found = dict.fromkeys(
        [*files, GOOD, *(GOOD.replace(old, new) for old, new, _ in ILLEGIBLE)]
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 800, "height": 1000})
        for svg in found:
            page.set_content(f'<!DOCTYPE html><body style="margin: 20px">{svg}')
            found[svg] = page.evaluate(MEASURE)
        browser.close()
    return found


def test_there_are_diagrams_and_in_ci_a_browser():
    assert FILES and (BROWSER or os.environ.get("CI") != "true"), (
        "in CI a browser has to measure the diagrams"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_keeps_the_rules(path):
    assert path.suffix == ".svg"
    assert problems(path.stem, path.read_bytes()) == []


@needs_browser
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_legible_in_a_browser(path, measured):
    assert measured[path.read_text(encoding="utf-8")] == []


BROKEN = [
    ("</svg>", "", "no XML"),
    ("</svg>", f"<!-- {'x' * BYTES_MOST} --></svg>", "bytes"),
    ("</svg>", "<script>1</script></svg>", "<script>"),
    ("</svg>", "<foreignObject/></svg>", "<foreignObject>"),
    ("</svg>", "<style>text { fill: red }</style></svg>", "<style>"),
    (
        "</svg>",
        '<image href="https://example.org/x.png"/></svg>',
        "not by itself: href",
    ),
    ("<path d", '<path onclick="1" d', "not by itself: onclick"),
    ('stroke="#222222"', 'stroke="url(https://example.org)"', "not by itself: stroke"),
    ('id="small-tip"', 'id="tip"', "id tip does not begin with small-"),
    ("url(#small-tip)", "url(#small-top)", "url(#small-top) leads nowhere"),
    ('viewBox="0 0 720 90"', 'viewBox="0 0 700 90"', "not 720 wide"),
    (
        'width="720" height="90" viewBox',
        'width="100%" height="90" viewBox',
        "not 720 wide",
    ),
    ('<title id="small-title">One box holds it all</title>', "", "no <title>"),
    (
        "A box with a word in it. An arrow",
        "An arrow",
        "<desc> is not two to eight sentences",
    ),
    ('role="img"', "", "does not say that it is a picture"),
    ('<rect width="720" height="90" fill="#FFFFFF"/>', "", "no white ground"),
    ("all</text>", "both</text>", "its first text is not its <title>"),
    ('font-weight="bold"', "", "its first text is not its <title>"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN)
def test_each_rule_finds_its_break(old, new, message):
    assert old in GOOD and problems("small", GOOD.encode()) == []
    assert any(
        message in problem
        for problem in problems("small", GOOD.replace(old, new).encode())
    )


ILLEGIBLE = [
    ('y="64"', 'y="64" font-size="12.9"', "text of 12.9 px: 'a word'"),
    ('font-size="14"', 'font-size="9"', "text of 9 px: 'a word'"),
    (
        'x="30" y="64"',
        'x="30" y="38"',
        "on each other: 'One box holds it all' and 'a word'",
    ),
    ('x="30" y="64"', 'x="690" y="64"', "out of the frame: 'a word'"),
    ('x="30" y="64"', 'x="30" y="89"', "out of the frame: 'a word'"),
    (
        'x="20" y="44" width="90"',
        'x="660" y="44" width="90"',
        "out of the frame: <rect",
    ),
    ("a word", "a word too many", "over the edge of its box: 'a word too many'"),
    ('y="64"', 'y="64" fill="#009E73"', "contrast 2.9: 'a word'"),
    ('fill="#E1EEF7"', 'fill="#0072B2"', "contrast 3.1: 'a word'"),
]


@needs_browser
def test_the_browser_finds_each_break(measured):
    assert measured[GOOD] == []
    for old, new, message in ILLEGIBLE:
        assert old in GOOD
        assert any(
            message in problem for problem in measured[GOOD.replace(old, new)]
        ), message


def test_a_diagram_has_a_text_alternative_in_each_form(run):
    (cell,) = run("plots.diagram('machine')")
    (output,) = cell.outputs
    _clean_output(output)  # what is stored
    svg, image, text = (
        output.data[form] for form in ("image/svg+xml", "text/html", "text/plain")
    )
    assert svg == (plots.DIAGRAMS / "machine.svg").read_text(encoding="utf-8")
    assert base64.b64decode(re.search('base64,([^"]*)', image).group(1)).decode() == svg
    assert (
        text.startswith("The link is the narrow place")
        and "15.8 GB/s" in text
        and text in image
    )


def test_an_unknown_diagram_is_one_clear_line(run):
    with pytest.raises(LabError, match="no diagram 'machin'; there are: .*machine"):
        plots.diagram("machin")
    (cell,) = run("plots.diagram('../recorded')")
    assert "LabError" in str(cell.outputs) and "Traceback" not in text_of(cell)


def words(name):
    """The texts of a diagram, in order."""
    root = ElementTree.parse(plots.DIAGRAMS / f"{name}.svg")
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


def test_the_numbers_of_the_machine_are_those_of_the_device_table():
    t4 = look_up("T4")
    factor = round(t4.bandwidth / pcie_limit(3))
    assert {
        f"{t4.bandwidth} GB/s",
        f"{pcie_limit(3):.1f} GB/s",
        f"GPU memory, {t4.memory} GB",
    } < set(words("machine"))
    assert f"GPU memory is {factor} times as fast" in words("machine")[0]


def test_the_numbers_of_the_formats_are_those_of_pytorch():
    names = ["float32", "tf32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"]
    shown = words("formats")
    first = shown.index("float32")
    rows = [shown[first + 6 * column : first + 6 * column + 6] for column in range(3)]
    assert rows[0] == names
    for name, largest, step in zip(*rows, strict=True):
        # exponent of one, mantissa of the other
        like = {"tf32": ("float32", "float16")}.get(name, (name, name))
        most, eps = (
            torch.finfo(getattr(torch, like[0])).max,
            torch.finfo(getattr(torch, like[1])).eps,
        )
        assert float(largest.replace(",", "")) == pytest.approx(most, rel=0.01)
        assert float(step) == pytest.approx(eps, rel=0.01)
