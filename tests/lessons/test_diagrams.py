"""The diagrams of the lessons: each has a text alternative, is legible, and true."""

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
SVG = "{http://www.w3.org/2000/svg}"
MEASURE = Path(__file__).with_name("measure_diagram.js")


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
def test_each_file_is_a_picture_with_a_text_alternative(path):
    assert path.suffix == ".svg"
    root = ElementTree.parse(path).getroot()
    ids = {node.get("id"): "".join(node.itertext()) for node in root.iter()}
    assert root.get("role") == "img"
    title, description = map(ids.get, root.get("aria-labelledby").split())
    assert title and description


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
