"""Each lesson in JupyterLab in a browser: Run All ends without an error, and every control redraws its figure.

LAB_SHOTS=folder stores pictures of the lessons there, one for each cell and one of the whole page.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Error, TimeoutError, expect, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
ARGUMENTS = (
    """--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync
--no-first-run""".split()
    + ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
)
needs_browser = pytest.mark.skipif(not BROWSER, reason=f"no browser on the PATH (looked for {', '.join(NAMES)})")

SETTINGS = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # keeps every cell in the page
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
CELL, EXPLORER = ".jp-Notebook .jp-CodeCell", ".jp-Notebook .widget-vbox:has(img)"
RED = '[data-mime-type="application/vnd.jupyter.stderr"]'  # how JupyterLab shows errors, and text on stderr
CONTROLS = ".noUi-handle, select, input[type=checkbox], input[type=number]"

# Run All has begun: the first cell has a number. (Waiting is not enough: JupyterLab may still drop it.)
STARTED = """cell => /\\d/.test(document.querySelector(cell + " .jp-InputPrompt").textContent)"""

# Run All has ended: the first cell has a number, and no cell is waiting (after an error none is).
ENDED = """cell => {
    const prompts = [...document.querySelectorAll(cell + " .jp-InputPrompt")].map(p => p.textContent.trim());
    return /^\\[\\d+\\]:$/.test(prompts[0]) && !prompts.includes("[*]:");
}"""

# Milliseconds from the first action in a widget box to the moment in which it holds another picture.
WATCH = """box => {
    const drawing = () => (box.innerHTML.match(/drawing (\\d+)/) || [])[1];
    const before = box.querySelector("img").src, first = drawing();
    let start = null;
    const begin = () => { start ??= performance.now(); };
    for (const action of ["keydown", "click", "change"]) box.addEventListener(action, begin, {capture: true});
    window.redrawn = new Promise((resolve, reject) => {
        const observer = new MutationObserver(() => {
            const picture = box.querySelector("img");
            if (picture && drawing() !== first) {
                observer.disconnect();
                resolve([performance.now() - start, picture.src !== before]);
            }
        });
        observer.observe(box, {subtree: true, childList: true, attributes: true});
        setTimeout(() => reject(new Error("the picture was not drawn again")), 10000);
    });
    window.redrawn.catch(() => {});
}"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course whose lessons have no stored outputs: what is seen was made now."""
    folder = tmp_path_factory.mktemp("browser") / "course"
    unwanted = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "pytorch-device-lab")
    for name in ["notebooks", "utils"]:
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path in (folder / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, path)
    return folder


@pytest.fixture(scope="module")
def jupyterlab(course):
    """The address of a JupyterLab that serves `course`, with settings of its own."""
    home = course.parent / "home"
    (home / "settings").mkdir(parents=True)
    (home / "settings" / "overrides.json").write_text(json.dumps(SETTINGS))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=lessons"]
    command += ["--LabApp.expose_app_in_browser=True"]  # lets the test open a lesson without loading everything again
    command += [f"--ServerApp.root_dir={course}", f"--LabApp.app_settings_dir={home / 'settings'}"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON"))}
    log = home / "jupyterlab.log"
    with log.open("w") as file:
        server = subprocess.Popen(command, env={**env, "HOME": str(home)}, stdout=file, stderr=file)
    try:
        start = time.monotonic()
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() - start < 60, log.read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


@pytest.fixture(scope="module")
def lab(jupyterlab):
    """JupyterLab in a browser, without a notebook."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1300, "height": 1600})
        page.goto(f"{jupyterlab}/lab?reset&token=lessons")
        page.wait_for_function("window.jupyterapp", timeout=60_000)
        page.evaluate("jupyterapp.restored.then(() => null)")
        yield page
        browser.close()


@pytest.fixture
def page(lab, jupyterlab):
    """The page of JupyterLab; what is open in it is closed in the end, kernels are shut down, for their memory."""
    yield lab
    lab.evaluate("[...jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose())")  # without saving
    headers = {"Authorization": "token lessons"}
    for kernel in lab.request.get(f"{jupyterlab}/api/kernels", headers=headers).json():
        assert lab.request.delete(f"{jupyterlab}/api/kernels/{kernel['id']}", headers=headers).ok


def run_all(page, path):
    """Open a notebook, choose Run All Cells, wait for the end; return its code cells."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    opened = f"jupyterapp.commands.execute('docmanager:open', {{path: 'notebooks/{path.name}', factory: 'Notebook'}})"
    page.evaluate(f"{opened}.then(() => null)")
    expect(page.locator(CELL)).to_have_count(len(cells), timeout=60_000)
    idle = page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    idle.wait_for(timeout=60_000)
    page.wait_for_timeout(2000)
    idle.wait_for(timeout=60_000)
    for _ in range(3):  # JupyterLab drops what is run in the moment in which it connects to the kernel
        page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
        page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()
        try:
            page.wait_for_function(STARTED, arg=CELL, timeout=30_000, polling=500)
            break
        except TimeoutError:
            print("Run All Cells started nothing; once more")
    page.wait_for_function(ENDED, arg=CELL, timeout=600_000, polling=500)  # each frame costs
    idle.wait_for(timeout=60_000)
    return cells


def errors_and_noise(page, cells):
    """What must not be: errors, text on stderr in cells that are not tagged for it, cells that did not run."""
    found = []
    for number, cell in enumerate(cells):
        shown = page.locator(CELL).nth(number)
        if "lab-stderr" not in cell.metadata.get("tags", []):
            found += shown.locator(RED).all_inner_texts()
        if not re.fullmatch(r"\[\d+\]:", shown.locator(".jp-InputPrompt").inner_text().strip()):
            found.append(f"did not run: {cell.source}")
    return found


def move(page, explorer, control):
    """Change a control by one step; return the milliseconds until it was drawn again, and whether it changed."""
    kind, form = control.evaluate("control => [control.tagName, control.type]")
    explorer.evaluate(WATCH)
    if kind == "SELECT":
        index, last = control.evaluate("control => [control.selectedIndex, control.length - 1]")
        control.select_option(index=index + 1 if index < last else 0)
    elif form == "number":
        control.fill(str(float(control.input_value()) / 2 + 1))
        control.press("Enter")
    elif kind == "INPUT":
        control.click()
    else:
        at_end = control.evaluate("control => control.ariaValueNow === control.ariaValueMax")
        control.focus()
        control.press("ArrowLeft" if at_end else "ArrowRight")
    return page.evaluate("window.redrawn")


def store_pictures(page, name):
    folder = Path(os.environ["LAB_SHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    every_cell = page.locator(".jp-Notebook .jp-Cell")
    for number in range(every_cell.count()):
        every_cell.nth(number).screenshot(path=folder / f"{name}_{number:02}.png")
    panel, before = page.locator(".jp-WindowedPanel-outer"), page.viewport_size
    height = sum(cell.bounding_box()["height"] for cell in every_cell.all()) + 300
    page.set_viewport_size({"width": before["width"], "height": min(int(height), 16_000)})
    panel.evaluate("panel => panel.scrollTo(0, 0)")
    page.wait_for_timeout(500)
    page.screenshot(path=folder / f"{name}.png")
    page.set_viewport_size(before)


def test_there_are_lessons():
    assert LESSONS


@needs_browser
@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem)
def test_lesson(lesson, course, page, capsys):
    cells = run_all(page, course / "notebooks" / lesson.name)
    if "LAB_SHOTS" in os.environ:
        store_pictures(page, lesson.stem)
    assert errors_and_noise(page, cells) == []

    explorers = page.locator(EXPLORER)
    expect(explorers).to_have_count(sum("plots.explorer(" in cell.source for cell in cells))
    assert explorers.count() > 0
    times = []
    for explorer in explorers.all():
        assert explorer.locator("img").get_attribute("alt")
        controls = explorer.locator(CONTROLS).all()
        assert controls
        moved = [move(page, explorer, control) for control in controls]
        times += [milliseconds for milliseconds, _ in moved]
        assert sum(changed for _, changed in moved) >= len(controls) - 1  # one may be without effect: a null result
    with capsys.disabled():
        print(f"\n{lesson.stem}: figures redrawn after {', '.join(f'{t:.0f}' for t in times)} ms")


@needs_browser
def test_what_must_be_seen_is_seen(course, page):
    """A control that does nothing, text on stderr and an error do not pass for a good lesson."""
    same_picture = """
import base64, ipywidgets, struct, zlib
from IPython.display import display
part = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
header, row = struct.pack(">2I5B", 1, 1, 8, 0, 0, 0, 0), zlib.compress(bytes(2))
png = b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", header) + part(b"IDAT", row) + part(b"IEND", b"")
img = f'<img src="data:image/png;base64,{base64.b64encode(png).decode()}" alt="a dot">'
display(ipywidgets.VBox([ipywidgets.IntSlider(3), ipywidgets.HTML(img)]))"""
    sources = [same_picture, "import sys; print('noise', file=sys.stderr)", "1 / 0", "never = 'run'"]
    path = course / "notebooks" / "bad.ipynb"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    code = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=code, metadata=kernel), path)

    noise, error, not_run = errors_and_noise(page, run_all(page, path))
    assert noise.strip() == "noise" and "ZeroDivisionError" in error and not_run == "did not run: never = 'run'"
    explorer = page.locator(EXPLORER)
    with pytest.raises(Error, match="the picture was not drawn again"):
        move(page, explorer, explorer.locator(CONTROLS).first)
