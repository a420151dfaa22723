"""Each lesson in a browser, in JupyterLab as `make lab` starts it: Run All ends without
an error, and every control redraws its figure.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.conftest import FOLDERS, sampled
from tools.site.paper import BROWSER, NAMES

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
needs_browser = pytest.mark.skipif(
    not BROWSER, reason=f"no browser on the PATH (looked for {', '.join(NAMES)})"
)

# those of the course, and every cell stays in the page
SETTINGS = json.loads((ROOT / "tools/jupyterlab/overrides.json").read_text())
SETTINGS["@jupyterlab/notebook-extension:tracker"]["windowingMode"] = "none"
CELL, EXPLORER = ".jp-Notebook .jp-CodeCell", ".jp-Notebook .device-lab-explorer"
FOLDED = f"{CELL} .jp-InputPlaceholder"
# how JupyterLab shows errors, and text on stderr
RED = '[data-mime-type="application/vnd.jupyter.stderr"]'
CONTROLS = ".noUi-handle, select, input[type=checkbox], input[type=number]"

# Open a notebook, forget its stored outputs, wait for its kernel, choose Run All Cells,
# wait for the end.
RUN_ALL = """async path => {
    const run = (name, options) => jupyterapp.commands.execute(name, options);
    const panel = await run("docmanager:open", {path, factory: "Notebook"});
    await panel.revealed;
    await run("notebook:clear-all-cell-outputs");
    await panel.sessionContext.ready;
    await panel.sessionContext.session.kernel.info;
    const error = new Error("Run All did not end");
    const late = new Promise((_, reject) => setTimeout(reject, 600000, error));
    await Promise.race([run("notebook:run-all-cells"), late]);
}"""
# Open a notebook, wait for its kernel; whether it is marked as changed then.
OPEN = """async path => {
    const open = "docmanager:open", options = {path, factory: "Notebook"};
    const panel = await jupyterapp.commands.execute(open, options);
    await panel.revealed;
    const error = new Error("the notebook has no kernel after two minutes");
    const late = new Promise((_, reject) => setTimeout(reject, 120000, error));
    await Promise.race([panel.sessionContext.ready, late]);
    const info = await Promise.race([panel.sessionContext.session.kernel.info, late]);
    await new Promise(resolve => setTimeout(resolve, 1000));
    return {kernel: info.status === "ok", changed: panel.context.model.dirty};
}"""
SAVE_AND_CLOSE = """async () => {
    await jupyterapp.commands.execute("docmanager:save");
    jupyterapp.shell.currentWidget.close();
}"""
SESSIONS = """async () => (await (await fetch("/api/sessions")).json()).length"""
# without saving, and with the kernels, for their memory
CLOSE_ALL = """async () => {
    [...jupyterapp.shell.widgets("main")].forEach(widget => widget.dispose());
    await jupyterapp.serviceManager.sessions.shutdownAll();
}"""
# Of each code cell: the number of its run; none if it did not run, "*" while it runs. A
# folded cell shows none.
NUMBERS = """() => jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === "code")
    .map(cell => cell.prompt || cell.model.executionCount)"""
# How often an explorer was drawn: plots.explorer counts it in a comment beside the
# picture.
DRAWN = """box => Number(/drawing (\\d+)/.exec(box.innerHTML)[1])"""
# What an explorer shows: a picture, or text.
SHOWN = "box => box.querySelector('img')?.src ?? box.innerText"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course: JupyterLab writes into it."""
    folder = tmp_path_factory.mktemp("browser") / "course"
    unwanted = shutil.ignore_patterns(
        "__pycache__", ".ipynb_checkpoints", "pytorch-device-lab"
    )
    for name in ["docs", "notebooks", "tools", *FOLDERS]:
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture(scope="module")
def lab(course):
    """A page with a JupyterLab that serves `course`, with settings of its own and
    without a notebook.
    """
    home = course.parent / "home"
    home.mkdir()
    settings = course / "tools" / "jupyterlab" / "overrides.json"
    settings.write_text(json.dumps(SETTINGS))
    command = [
        *(sys.executable, str(course / "tools" / "lab.py"), "--no-browser"),
        "--ip=127.0.0.1",
        "--LabApp.expose_app_in_browser=True",
        "--IdentityProvider.token=lessons",
    ]
    env = {"HOME": str(home), "JUPYTER_RUNTIME_DIR": str(home)}
    for name, value in os.environ.items():
        if not name.startswith(("JUPYTER", "IPYTHON")):
            env.setdefault(name, value)
    log, begin = home / "jupyterlab.log", time.monotonic()
    with log.open("w") as file:
        server = subprocess.Popen(command, env=env, stdout=file, stderr=file)
    try:
        while not list(home.glob("jpserver-*-open.html")):  # written after the .json
            assert server.poll() is None, log.read_text()
            assert time.monotonic() - begin < 60, log.read_text()
            time.sleep(0.1)
        address = json.loads(next(home.glob("jpserver-*.json")).read_text())["url"]
        with sync_playwright() as playwright:
            chromium = playwright.chromium
            browser = chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
            page = browser.new_page(viewport={"width": 1300, "height": 1600})
            page.goto(f"{address}lab?reset&token=lessons")
            page.wait_for_function("window.jupyterapp", timeout=60_000)
            page.evaluate("jupyterapp.restored.then(() => null)")
            yield page
            browser.close()
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.fixture
def page(lab):
    """The page of JupyterLab; what was opened in it is closed in the end."""
    yield lab
    lab.evaluate(CLOSE_ALL)


def run_all(page, path):
    """Run all cells of a notebook in the page; returns its code cells."""
    nb = nbformat.read(path, as_version=4)
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    page.evaluate(RUN_ALL, f"notebooks/{path.name}")
    expect(page.locator(CELL)).to_have_count(len(cells))
    idle = page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    idle.wait_for(timeout=60_000)
    return cells


def errors_and_noise(page, cells):
    """What must not be: errors, text on stderr in cells that are not tagged for it,
    cells that did not run.
    """
    found, numbers = [], page.evaluate(NUMBERS)
    for number, cell in enumerate(cells):
        shown = page.locator(CELL).nth(number)
        if "lab-stderr" not in cell.metadata.get("tags", []):
            found += shown.locator(RED).all_inner_texts()
        if not re.fullmatch(r"\d+", str(numbers[number])):
            found.append(f"did not run: {cell.source}")
    return found


def move(page, explorer, control):
    """Change a control by one step; return the milliseconds until it was drawn again,
    and whether it changed.
    """
    kind, form = control.evaluate("control => [control.tagName, control.type]")
    drawn, before = explorer.evaluate(DRAWN), explorer.evaluate(SHOWN)
    begin = time.perf_counter()
    if kind == "SELECT":
        which = "control => [control.selectedIndex, control.length]"
        index, count = control.evaluate(which)
        control.select_option(index=(index + 1) % count)
    elif form == "number":
        control.fill(str(float(control.input_value()) / 2 + 1))
        control.press("Enter")
    elif kind == "INPUT":
        control.click()
    else:
        is_last = "control => control.ariaValueNow === control.ariaValueMax"
        at_end = control.evaluate(is_last)
        control.focus()
        control.press("ArrowLeft" if at_end else "ArrowRight")
    again, box = f"([box, n]) => ({DRAWN})(box) > n", explorer.element_handle()
    page.wait_for_function(again, arg=[box, drawn], timeout=10_000)
    return 1e3 * (time.perf_counter() - begin), explorer.evaluate(SHOWN) != before


def test_there_are_lessons_and_in_ci_a_browser():
    assert LESSONS
    assert BROWSER or os.environ.get("CI") != "true", "in CI there has to be a browser"


@needs_browser
@pytest.mark.parametrize("lesson", sampled(LESSONS, ("00", "13")))
def test_lesson(lesson, course, page, capsys):
    cells = run_all(page, course / "notebooks" / lesson.name)
    assert errors_and_noise(page, cells) == []

    folded = sum("fold" in cell.metadata.get("tags", []) for cell in cells)
    expect(page.locator(FOLDED)).to_have_count(folded)
    explorers = page.locator(EXPLORER)
    written = sum("plots.explorer(" in cell.source for cell in cells)
    expect(explorers).to_have_count(written)
    assert explorers.count() > 0
    times = []
    for explorer in explorers.all():
        pictures = explorer.locator("img").all()
        assert all(picture.get_attribute("alt") for picture in pictures)
        assert pictures or explorer.locator("table, p").all()
        controls = explorer.locator(CONTROLS).all()
        assert controls
        moved = [move(page, explorer, control) for control in controls]
        times += [milliseconds for milliseconds, _ in moved]
        # one may be without effect: a null result
        assert sum(changed for _, changed in moved) >= len(controls) - 1
    with capsys.disabled():
        print(f"\n{lesson.stem}: redrawn after", *map(round, times), "ms")


@needs_browser
def test_a_guess_by_keyboard_must_be_seen_after_the_experiment(course, page):
    asking = [path for path in LESSONS if '"predict(' in path.read_text("utf-8")]
    path = course / "notebooks" / asking[0].name
    sources = [cell.source for cell in run_all(page, path)]
    asks = next(source for source in sources if source.startswith("predict("))
    key = re.match(r"predict(\(.*?,)", asks)[1]  # ("05.race",
    (answer,) = (n for n, source in enumerate(sources) if f"reveal{key}" in source)
    question = page.locator(CELL).nth(sources.index(asks))
    revealed = page.locator(CELL).nth(answer)
    expect(revealed).not_to_contain_text("You said")
    question.locator("button").first.focus()
    page.keyboard.press("Enter")
    expect(question).to_contain_text("You said")
    run_all(page, path)
    expect(revealed).to_contain_text("You said")


@needs_browser
def test_a_copy_opens_unchanged_and_again_without_its_kernel(course, page):
    """Not marked as changed; a kernel ends with its tab; then the stored picture and
    text stand where the widgets stood, and the file is as it was.
    """
    path = course / "work" / LESSONS[0].name
    opened = page.evaluate(OPEN, f"work/{path.name}")
    assert opened == {"kernel": True, "changed": False}
    page.evaluate(RUN_ALL, f"work/{path.name}")
    expect(page.locator(EXPLORER)).to_have_count(1)
    page.evaluate(SAVE_AND_CLOSE)
    saved = path.read_bytes()
    assert b"widget-view" in saved
    # at once: the old kernel is still ending
    assert page.evaluate(OPEN, f"work/{path.name}")["kernel"]
    expect(page.locator(f"{CELL} img[src^='data:image/png']")).to_have_count(1)
    expect(page.locator(".jp-Notebook")).not_to_contain_text("Error displaying widget")
    expect(page.locator(".jp-Notebook")).to_contain_text("In a cell of its own: hint")
    assert path.read_bytes() == saved
    assert page.evaluate(SESSIONS) == 1


def one_off(course, name, *sources):
    """The path of a notebook of these cells, beside the lessons."""
    nb = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    nb.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    path = course / "notebooks" / name
    nbformat.write(nb, path)
    return path


@needs_browser
def test_a_long_cell_says_so_and_nothing_of_it_remains(course, page):
    folders = [str(course), *map(str, sorted((course / "packages").iterdir()))]
    begin = f"import sys\nsys.path[:0] = {folders}\nfrom course import *"
    long = "#| takes: 4 s to wait\nimport time\ntime.sleep(4)\nprint('end ' * 90)"
    path = one_off(course, "long.ipynb", begin, long)
    page.evaluate(OPEN, f"notebooks/{path.name}")
    page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
    cell = page.locator(CELL).nth(1)
    bar = cell.locator(".device-lab-bar")
    expect(bar).to_be_visible(timeout=60_000)
    expect(cell).to_contain_text("Working to wait: about 4 s on two cores")
    expect(cell).to_contain_text("end end", timeout=60_000)
    expect(bar).to_have_count(0)
    expect(cell).not_to_contain_text("Working")
    outputs = cell.locator(".jp-OutputArea-child")
    expect(outputs).to_have_count(1)
    # the course's custom.css: no word of an output is broken
    how = outputs.locator("pre").evaluate("pre => getComputedStyle(pre).wordBreak")
    assert how == "normal"


@needs_browser
def test_what_must_be_seen_is_seen(course, page):
    """Text on stderr, an error and a cell that did not run do not pass for a good
    lesson, in this version of JupyterLab.
    """
    noisy = "import sys; print('noise', file=sys.stderr)"
    path = one_off(course, "bad.ipynb", noisy, "1 / 0", "never = 'run'")
    nb = nbformat.read(path, as_version=4)
    nb.cells[2].metadata.jupyter = {"source_hidden": True}
    nbformat.write(nb, path)

    noise, error, not_run = errors_and_noise(page, run_all(page, path))
    assert noise.strip() == "noise" and "ZeroDivisionError" in error
    assert not_run == "did not run: never = 'run'"
