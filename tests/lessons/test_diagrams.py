"""The diagrams of the lessons: what each file must hold, and what a browser makes of
it.
"""

import base64
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from playwright.sync_api import sync_playwright

from course import plots
from tests.lessons.test_browser import ARGUMENTS, BROWSER, needs_browser
from tools.lessons.notebooks import _clean_output
from utils.hardware import look_up, pcie_limit

FILES = sorted(plots.DIAGRAMS.iterdir())
BYTES_MOST = 20_000
SVG = "{http://www.w3.org/2000/svg}"
# the elements that a diagram may have
DRAWN = {"svg", "title", "desc", "defs", "marker", "g", "rect", "circle", "ellipse"}
DRAWN |= {"line", "path", "text", "tspan"}
MEASURE = Path(__file__).with_name("measure_diagram.js")


def problems(name, data):
    """What is wrong with the file `name`.svg, which holds `data` (bytes), as text."""
    text = data.decode()
    root = ElementTree.fromstring(text)
    nodes = [(node.tag.removeprefix(SVG), node) for node in root.iter()]
    if len(data) > BYTES_MOST:
        yield f"{len(data)} bytes"
    for tag in {tag for tag, _ in nodes} - DRAWN:
        yield f"<{tag}>"
    ids = [node.get("id") for _, node in nodes if "id" in node.attrib]
    for found in ids:
        if not found.startswith(f"{name}-"):
            yield f"id {found} does not begin with {name}-"
    for target in re.findall(r"url\(#([^)]*)\)", text):
        if target not in ids:
            yield f"url(#{target}) leads nowhere"
    # what makes a picture do something, or fetch something from elsewhere
    for key, value in [item for _, node in nodes for item in node.attrib.items()]:
        if re.match(r"on|.*href$|src", key) or re.search(
            r"url\((?!#)|@import|javascript:|https?:|data:", value
        ):
            yield f"not by itself: {key}={value}"
    first = {tag: node for tag, node in reversed(nodes)}
    height, ground, heading = root.get("height"), first["rect"], first["text"]
    title, description = ("".join(first[tag].itertext()) for tag in ("title", "desc"))
    if (root.get("width"), root.get("viewBox")) != ("720", f"0 0 720 {height}"):
        yield "not 720 wide"
    if not 2 <= len(re.findall(r"\.(?=\s|$)", description)) <= 8:
        yield "<desc> is not two to eight sentences"
    if (root.get("role"), root.get("aria-labelledby")) != (
        "img",
        f"{name}-title {name}-desc",
    ):
        yield "does not say that it is a picture"
    white = {"width": "720", "height": height, "fill": "#FFFFFF"}
    if dict(ground.attrib) != white:
        yield "no white ground"
    if not title or "".join(heading.itertext()) != title:
        yield "its first text is not its <title>"


@pytest.fixture(scope="module")
def measured():
    """File → what a browser finds wrong when it shows it at its own width."""
    measure, found = MEASURE.read_text(encoding="utf-8"), {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 800, "height": 1000})
        for path in FILES:
            svg = path.read_text(encoding="utf-8")
            page.set_content(f'<!DOCTYPE html><body style="margin: 20px">{svg}')
            found[path] = page.evaluate(measure)
        browser.close()
    return found


def test_there_are_diagrams_and_in_ci_a_browser():
    assert FILES and (BROWSER or os.environ.get("CI") != "true"), (
        "in CI a browser has to measure the diagrams"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_keeps_the_rules(path):
    assert path.suffix == ".svg"
    assert list(problems(path.stem, path.read_bytes())) == []


@needs_browser
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_legible_in_a_browser(path, measured):
    assert measured[path] == []


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
