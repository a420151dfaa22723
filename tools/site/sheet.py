"""The cheat sheet: the course on one page, A4 for a wall, or one screen.

    write("dist/site", names)             sheet.html, of the website
    python -m tools.site.sheet OUT.pdf    the same on paper, by Chromium

Of each recipe some of its lines, as they stand in the lesson's cells; what stands in
backticks besides has to stand in a lesson, in the kit or in the pages that it is from.
Where one of them is gone, the sheet is not made.
"""

import html
import pathlib
import re
import sys

import nbformat
import pygments
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tools.lessons.links import read
from tools.lessons.notebooks import address, lessons
from tools.site import paper, recipes

ROOT = pathlib.Path(__file__).resolve().parents[2]

# How the lines of a recipe begin that stand here. Lesson 00 has no recipe: any cell.
LINES = {
    "00": ["def elsewhere(", "    return overhead"],
    "01": ["device = torch.accelerator", "if device is None", "    device = torch.dev"],
    "02": ["weight = torch.ones", "for batch in", "    batch = batch.to"],
    "03": ["model.to(device)", "torch.save(model"],
    "04": [
        "        wait()",
        "        start = ",
        "        fn()",
        "        wait()",
        "        samples.append",
    ],
    "05": ["side.wait_stream", "with streams.stream", "    y = ", "main.wait_stream"],
    "06": ["    num_workers=", "    pin_memory=", "    images = images.to"],
    "07": ["        share = ", "        (share * "],
    "08": [
        "    with torch.autocast",
        "        loss = ",
        "    scaler.scale(loss)",
        "    scaler.step",
        "    scaler.update",
    ],
    "09": [
        "with profile(",
        "    for x, y in",
        "        prof.step()",
        "prof.export_chrome_trace",
    ],
    "10": ["fast = torch.compile", "for x in batches", "    same = "],
    "11": ["model = DistributedDataParallel", "    loader.sampler.set_epoch"],
    "12": ["            torch.save(run", "            os.replace"],
    "13": ["    losses.append", "    end_step()"],
    "14": ["batches = pl.MpDeviceLoader", "torch_xla.launch"],
    "15": ["        loss = F.", "        losses.append"],
    "16": ["from course.old_code import look_up", 'look_up("xm.'],
    "17": ["        logits = ", "        tokens = "],
}
# what waits · what to write instead
WAITS = [
    ("`loss.item()`, `print` in each step", "`loss.detach()`; read it every n steps"),
    ("`if loss.isnan():`", "`torch.where`, or ask every n steps"),
    ("`scores[y == 0]`, `nonzero`", "`torch.where(mask, a, b)`, `masked_fill`"),
    (
        "`x.to(device)`, from the host",
        "pin it, `non_blocking=True`; or make it there, `device=device`",
    ),
    ("`torch.tensor(data, device=device)`", "once, before the loop"),
    ("`.cpu()`, `.tolist()`", "collect there, `torch.stack`, copy once"),
    ("`error_if_nonfinite=True`", "leave it out"),
    ("`F.one_hot` without a size", "`F.one_hot(labels, n)`"),
    ("`torch.equal`", "`(a == b).all()`, read later"),
    (
        "`synchronize`, `empty_cache`",
        "only for a clock, or behind a `non_blocking` copy",
    ),
]
# question · what tells · what helps · lessons
QUESTIONS = [
    ("Is it right?", "a seed, and the losses", "the same after each change", "15"),
    (
        "Where does the time go?",
        "`device-lab train.py`; time a whole epoch",
        "the longest part first",
        "09 15",
    ),
    (
        "Is it the data?",
        "a long gap for each batch",
        "workers, pinned memory, prepare once",
        "06",
    ),
    (
        "Is it a wait?",
        "a gap after each wait; `find_waits`",
        "keep values on the device, ask rarely",
        "04",
    ),
    (
        "Is it the launches?",
        "a gap after each short kernel",
        "larger batches, `torch.compile`",
        "10",
    ),
    (
        "Is it the kernels?",
        "no gaps",
        "16-bit numbers, fewer bytes",
        "08 09",
    ),
    (
        "Is it the memory?",
        "small batches, or it grows; `peak`",
        "`loss.detach()`, checkpointing",
        "07",
    ),
    ("Is one device too few?", "none of these", "DDP, same losses first", "11"),
    (
        "Is it faster now?",
        "`measure_together`, in turns, with an interval",
        "then ask again",
        "04",
    ),
]
# command · what for
COMMANDS = [
    ("`device-lab train.py`", "your script: what to change first"),
    ("`python train.py 2>&1 | torch-messages`", "its error: what it means today"),
    ("`python -m emulated_cuda.run -- python script.py`", "on a GPU that is not there"),
    ("`CUDA_LAUNCH_BLOCKING=1`", "the traceback names the right line"),
    ("`make lab`", "your copies of the lessons"),
    ("`make capstone`", "a slow script with eight faults"),
]
MOTTO = "time = latency + bytes / bandwidth"
CODE = re.compile("`([^`]+)`")


class Gone(LookupError):
    """What the sheet quotes stands there no more."""


def lines_of(number, nb):
    """The lines of a recipe that the sheet shows, without comments behind them."""
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    if number != "00":
        cells = [cell for cell in cells if cell.id.startswith(recipes.OPENS)]
    known = []
    for cell in cells:
        known += cell.source.split("\n")
        if "show_diff(" in cell.source:
            added = recipes.difference(cell).split("\n")
            known += [line[1:] for line in added if line[:1] == "+"]
    chosen = []
    for start in LINES[number]:
        found = [line for line in known if line.startswith(start)]
        if not found:
            raise Gone(f"tools/site/sheet.py: lesson {number} has no line {start!r}")
        chosen.append(found[0].partition("  # ")[0])
    return "\n".join(indented(chosen))


def indented(lines):
    """The lines, indented only below one that opens a block."""
    shown, here, last = [], {}, -1  # here: spaces in the lesson → spaces here
    for line in lines:
        spaces = len(line) - len(line.lstrip())
        if spaces not in here:
            opened = 4 if shown and shown[-1].endswith(":") else 0
            here[spaces] = here.get(last, 0) + opened
        shown.append(" " * here[spaces] + line.lstrip())
        last = spaces
    return shown


def known_code(notebooks):
    """All text in which the other pieces of code have to stand."""
    pages = [ROOT / "README.md", ROOT / "Makefile"]
    pages += [*(ROOT / "docs").glob("*.md"), *(ROOT / "packages").glob("*/README.md")]
    pages.append(ROOT / "packages/device_lab/device_lab/_kit/_cures.py")
    cells = [cell.source for nb in notebooks.values() for cell in nb.cells]
    return "\n".join([*map(read, pages), *cells])


# --------------------------------------------------------------------------------------
# HTML


def colored(code):
    """Code as HTML, which may be broken behind an opening bracket."""
    marked = pygments.highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)).strip()
    marked = re.sub(r"([(\[])(</span>)", r"\1\2<wbr>", marked)
    return "".join(f'<span class="line">{line}</span>' for line in marked.split("\n"))


def marked(text, known):
    """Text with its pieces of code, as HTML. known: where they have to stand."""
    for piece in CODE.findall(text):
        if piece not in known:
            raise Gone(f"tools/site/sheet.py: nothing says {piece!r}")
    return CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))


def page(root=""):
    """The sheet as HTML. root: the address of the site, with a slash at its end; links
    of the site itself are relative.
    """
    notebooks = {path.stem: nbformat.read(path, as_version=4) for path in lessons()}
    pages = {stem[:2]: f"{root}notebooks/{stem}.html" for stem in notebooks}
    known = known_code(notebooks)

    def to(number):
        return f'<a href="{pages[number]}">{number}</a>'

    recipe = []
    for stem, nb in notebooks.items():
        number = stem[:2]
        verb, _, more = (
            nb.cells[0].source.split("\n")[0].removeprefix("# ").partition(":")
        )
        verb, comma, rest = verb.partition(",") if len(verb) > 60 else (verb, "", "")
        more = f"{comma}{rest}" or f":{more}" * bool(more)
        recipe.append(
            f'<section class="recipe"><h3><a href="{pages[number]}"><b>{number}</b> '
            f"{html.escape(verb)}</a>{html.escape(more)}</h3>"
            f"<pre>{colored(lines_of(number, nb))}</pre></section>"
        )
    waits = "".join(
        f"<dt>{marked(old, known)}</dt><dd>{marked(new, known)}</dd>"
        for old, new in WAITS
    )
    asked = "".join(
        f"<li><b>{question}</b> {marked(tells, known)}"
        f" →&nbsp;{marked(helps, known)}"
        f' <span class="to">{" ".join(map(to, numbers.split()))}</span></li>'
        for question, tells, helps, numbers in QUESTIONS
    )
    typed = "".join(
        f"<p>{marked(command, known)} <span>{what}</span></p>"
        for command, what in COMMANDS
    )
    torch = re.search(r"^torch==([\d.]+)", read(ROOT / "requirements.txt"), re.M)[1]
    version = re.search(r'^version = "(.+)"', read(ROOT / "pyproject.toml"), re.M)[1]
    site = address("Site")
    return PAGE.format(
        root=root,
        motto=MOTTO,
        left="\n".join(recipe[:9]),
        right="\n".join(recipe[9:]),
        waits=waits,
        asked=asked,
        typed=typed,
        four=to("04"),
        site=site,
        shown=site.removeprefix("https://"),
        versions=f"PyTorch {torch}, course {version}",
        style=STYLE,
    )


PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>PyTorch Device Lab: the cheat sheet</title>
<meta name="description" content="The recipes of eighteen lessons, the lines that wait,
 the questions to a slow loop: one page.">
<link rel="icon" href="{root}_static/favicon.svg">
<style>
{style}</style></head>
<body>
<header><h1><a href="{root}index.html">PyTorch Device Lab</a></h1>
<p>where tensors live, and when they move</p><p class="motto">{motto}</p></header>
<main>
<div class="column">
{left}
</div>
<div class="column">
{right}
</div>
<div class="column last">
<section class="asked"><h2>A slow loop: ask in this order</h2><ol>{asked}</ol></section>
<section class="waits"><h2>It waits · instead <span class="to">{four}</span></h2>
<dl>{waits}</dl></section>
<section class="typed"><h2>Commands</h2>{typed}</section>
</div>
</main>
<footer><p><a href="{site}">{shown}</a></p><p>{versions}</p>
<p>Blue numbers are lessons</p>
<p>CC BY 4.0, the authors of PyTorch Device Lab</p></footer>
</body></html>
"""

STYLE = """\
:root { --ink: #1b1f23; --soft: #5f646b; --ground: #fff; --code: #f4f6f8;
        --line: #d5dae0; --link: #00609a; --device: #0072b2; --host: #e69f00;
        --text: #14532d;
        color-scheme: light; }
@media (prefers-color-scheme: dark) { @media screen {
  :root { --ink: #e6e8ea; --soft: #a4a9b0; --ground: #131416; --code: #1d2024;
          --line: #3a3f45; --link: #7cc4ef; --device: #56b4e9; --text: #9ce0b1;
          color-scheme: dark; } } }
* { box-sizing: border-box; margin: 0; padding: 0; }
html { background: var(--ground); font-size: 15px; }
body { color: var(--ink); font: 1em/1.3 -apple-system, BlinkMacSystemFont, "Segoe UI",
       Helvetica, Arial, sans-serif; padding: 0.8em; }
pre, code { font-family: "SFMono-Regular", Menlo, Consolas, Monaco, "Liberation Mono",
            "Lucida Console", monospace; font-size: 0.95em; }
a { color: var(--link); }
header, footer { align-items: baseline; display: flex; flex-wrap: wrap; gap: 0 1.2em; }
header { border-bottom: 0.2em solid var(--device); margin-bottom: 0.7em;
         padding-bottom: 0.3em; }
h1 { font-size: 1.7em; line-height: 1.1; }
h1 a, h3 a { color: inherit; text-decoration: none; }
h3 a { color: var(--link); font-weight: 700; }
a:is(:hover, :focus-visible) { text-decoration: underline; }
a:focus-visible { outline: 2px solid var(--device); outline-offset: 2px; }
.motto { border-left: 0.3em solid var(--host); font-weight: 600; padding-left: 0.5em; }
main { display: grid; gap: 0.7em 1.2em; grid-template-columns: minmax(0, 1fr); }
footer { border-top: 1px solid var(--line); color: var(--soft); margin-top: 0.7em;
         padding-top: 0.3em; }
.column { display: flex; flex-direction: column; gap: 0.7em; min-width: 0; }
h2 { font-size: 1.1em; margin-bottom: 0.25em; }
h3 { color: var(--soft); font-size: 1em; font-weight: 400; line-height: 1.2; }
pre { background: var(--code); border-left: 0.25em solid var(--device);
      line-height: 1.3; margin-top: 0.2em; overflow-wrap: anywhere;
      padding: 0.2em 0.5em; white-space: pre-wrap; }
:is(.k, .kn, .kc, .ow) { color: var(--device); font-weight: 600; }
:is(.s1, .s2) { color: var(--text); }
ol { list-style-position: outside; padding-left: 1.4em; }
li { margin-bottom: 0.15em; }
li::marker { color: var(--device); font-weight: 700; }
.line { display: block; padding-left: 4ch; text-indent: -4ch; }
dl { display: grid; gap: 0.2em 0.7em;
     grid-template-columns: minmax(0, 4fr) minmax(0, 5fr); }
dd, dt { overflow-wrap: anywhere; }
.typed p { display: flex; flex-wrap: wrap; gap: 0 0.7em; margin-bottom: 0.2em; }
.typed span { color: var(--soft); }
@media screen and (min-width: 800px), print {
  main { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  .motto, footer p:last-child { margin-left: auto; }
  .last { grid-column: span 2; }
}
@media screen and (min-width: 1280px), print {
  main { grid-template-columns: 21fr 21fr 20fr; }
  .last { grid-column: auto; }
  .column { justify-content: space-between; }
}
@media screen and (min-width: 1280px) {
  html { font-size: max(12.7px, min(0.92vw, 1.5vh)); }
}
@page { size: A4 landscape; margin: 8mm; }
@media print {
  html { font-size: 7.8pt; print-color-adjust: exact; }
  body { display: flex; flex-direction: column; height: 193.5mm; padding: 0; }
  main { flex: 1; }
}
"""


def write(folder):
    """Write sheet.html into the folder of the site."""
    path = pathlib.Path(folder) / "sheet.html"
    path.write_text(page(), encoding="utf-8")


def print_to(path):
    """The sheet as a PDF."""
    paper.pdf(path, lambda tab: tab.set_content(page(address("Site") + "/")))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tools.site.sheet OUT.pdf")
    print_to(sys.argv[1])
