"""Explorers that live in a web page, without a kernel: every setting is drawn
beforehand, by the lesson's own code.

    page("05_streams", "../")     the HTML that stands in the page: controls, first picture, text alternative
    write("dist/site/_static/explorers")     a script for each lesson, NN.js, with the pictures of all settings

GRID says at which values the controls stand; tools/site/drawings.py draws;
docs/_static/explorer.js shows. The scripts stay in build/explorers/ until something
changes that they depend on.
"""

import hashlib
import html
import itertools
import json
import multiprocessing
import os
import pathlib
import re
from concurrent.futures import ProcessPoolExecutor

from tools.site import drawings

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "explorers"
# What of utils the pictures depend on, besides all simulators.
USED = ["cells", "devices", "hardware", "plots", "recordings", "timing"]

# Lesson → control → the values at which it stands in the page. A control that is not
# named keeps all it has. The first and the last are there, the one that the lesson
# begins with, and those that its questions ask for.
GRID = {
    "00": {
        "overhead": [1, 5, 10, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500],
        "faster": [2, 3, 4, 5, 10, 20, 40, 50, 100],
    },
    "04": {
        "device": [
            f"{name}, {kind}"
            for name in ("T4", "L4", "A100 80 GB SXM", "H200 SXM")
            for kind in ("float32, data sheet", "16-bit, data sheet")
        ],
        "m": [1, 4, 16, 64, 128, 256, 512, 1024, 4096, 16384],
        "n": [16, 256, 1024, 4096, 16384],
    },
    "05": {"chunks": [1, 2, 3, 4, 8, 16], "streams": [1, 2, 3, 4, 8]},
    "06": {
        "load": [5, 50, 200],
        "copy": [10, 60],
        "compute": [5, 20, 200],
        "workers": [0, 1, 2, 3, 8],
        "prefetch": [2, 4],
    },
    "07": {
        "model": [
            "GPT-2 (12 × 768)",
            "GPT-2 XL (48 × 1600)",
            "about 7 billion (32 × 4096)",
        ],
        "batch": [1, 16, 128],
        "sequence": [128, 1024, 16384],
        "device": ["T4", "A100 80 GB SXM", "H200 SXM"],
        "optimizer": ["adamw", "sgd"],
    },
    "08": {
        "number": [70000.0, 300.0, 1.00390625, 0.1, 1e-6, 2e-8, 1e-8],
        "scale": [*range(17), 20, 24, 32, 40],
    },
    "09": {
        "device": ["T4", "A100 80 GB SXM", "H200 SXM"],
        "m": [1, 64, 256, 4096, 16384],
        "n": [1, 4096, 16384],
        "k": [1, 4096, 16384],
    },
    "10": {
        "kernel": [10**-0.3, 1.0, 2.0, 10**0.7, 10.0, 10**1.7, 10**2.3],
        "launch": [1.0, 3.8, 5.0, 10.0, 20.0],
        "kernels": [1, 50, 100],
        "gap": [0.0, 0.5, 1.0, 3.0],
    },
    "11": {
        "processes": [2, 8, 64],
        "layer": [0.0625, 4.0, 64.0],
        "cap": [0.008, 0.2, 5.0, 25.0, 3125.0],
        "backward": [10, 60, 300],
        "speed": [0.1, 1.0, 10.0, 10**2.5],
    },
    "12": {
        "billions": [0.1, 1, 8],
        "tokens": [512, 4096, 131072],
        "count": [8, 512, 16384],
        "network": ["25 Gb/s a GPU", "400 Gb/s a GPU", "800 Gb/s a GPU"],
        "bucket": [1, 25, 1000],
    },
    "13": {"longest": [64, 512, 1024], "step": [8, 32, 128]},
    "14": {"tokens": [256, 2048, 4096, 8192, 16384, 32768, 65536]},
}

# Lesson → control → where it stands first, if the lesson's own first value is left out.
FIRST = {"04": {"device": "H200 SXM, 16-bit, data sheet"}}


# --------------------------------------------------------------------------------------
# The scripts


def values(number):
    """Of each control of an explorer the values at which it stands in the page."""
    given = GRID[number]
    return {
        name: given.get(name) or list(drawings.choices(control))
        for name, control in _controls(number)
    }


def settings(number):
    """All settings of an explorer, in the order of its pictures: the last control runs
    fastest.
    """
    found = values(number)
    return [
        dict(zip(found, choice, strict=True))
        for choice in itertools.product(*found.values())
    ]


def first(number):
    """The setting that an explorer begins with."""
    return {name: control.value for name, control in _controls(number)} | FIRST.get(
        number, {}
    )


def _controls(number):
    return drawings.load(number).controls.items()


def _described(number, name, control):
    """A control for the page: its label, its kind, the texts of its positions, and
    which is the first.
    """
    here, texts, kind = values(number)[name], drawings.choices(control), "select"
    if isinstance(control.value, bool):
        kind = "checkbox"
    elif "Slider" in type(control).__name__:
        kind = "range"
    shown = [texts[value] if value in texts else f"{value:.4g}" for value in here]
    at = here.index(first(number)[name])
    return {
        "label": control.description or name,
        "kind": kind,
        "first": at,
        "texts": shown,
    }


def scripts(numbers):
    """Paths of the scripts of lessons; draws what build/explorers/ does not have yet."""
    paths = {number: CACHE / f"{number}-{_hash(number)}.js" for number in numbers}
    missing = [number for number, path in paths.items() if not path.exists()]
    if missing:
        CACHE.mkdir(parents=True, exist_ok=True)
        print(
            f"Drawing explorers: {', '.join(missing)}. The first time this takes some"
            " minutes.",
            flush=True,
        )
        with ProcessPoolExecutor(
            mp_context=multiprocessing.get_context("spawn")
        ) as pool:
            begun = {}
            for number in missing:
                every = settings(number)
                parts = [every[n : n + 20] for n in range(0, len(every), 20)]
                begun[number] = pool.map(
                    drawings.drawings, itertools.repeat(number), parts
                )
            for number, drawn in begun.items():
                _write_script(
                    number, paths[number], list(itertools.chain.from_iterable(drawn))
                )
    return list(paths.values())


def _write_script(number, path, found):
    alts = list(dict.fromkeys(alt for _, alt in found))
    content = {
        "controls": {
            name: _described(number, name, control)
            for name, control in _controls(number)
        }
    }
    content |= drawings.pack(picture for picture, _ in found)
    content |= {"alts": alts, "says": [alts.index(alt) for _, alt in found]}
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for old in path.parent.glob(f"{number}-*.js"):
        old.unlink()
    # whole or not at all, also where two draw at once
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(f'deviceLab.explorer("{number}",{text})\n', encoding="utf-8")
    part.replace(path)


def _hash(number):
    """Of all that the script of a lesson depends on."""
    import matplotlib

    statements, header = drawings.needed(number)
    parts = [statement.source for statement in statements] + [
        str(header),
        matplotlib.__version__,
    ]
    parts += [repr(GRID[number]), repr(FIRST.get(number))]
    files = [
        pathlib.Path(drawings.__file__),
        *(ROOT / "utils" / f"{name}.py" for name in USED),
    ]
    files += sorted((ROOT / "utils" / "simulate").glob("*.py"))
    files += sorted(
        (ROOT / "notebooks" / "recorded").glob(
            f"*/{drawings.lesson_path(number).stem}.json"
        )
    )
    parts += [path.read_text(encoding="utf-8") for path in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def content(number):
    """What the script of a lesson holds."""
    text = scripts([number])[0].read_text(encoding="utf-8")
    return json.loads(text[text.index(",") + 1 : text.rindex(")")])


def write(folder):
    """Write the scripts of all explorers into `folder`."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in zip(GRID, scripts(list(GRID)), strict=True):
        (folder / f"{number}.js").write_bytes(path.read_bytes())


# --------------------------------------------------------------------------------------
# In the page


def page(stem, root):
    """The explorer of a lesson as HTML, or None where the site keeps the stored
    picture. stem: "05_streams". root: the relative path from the page to the root of
    the site, such as "../".

    Before its script has come it shows the first picture, and its controls are
    disabled.
    """
    number = stem[:2]
    if number not in GRID:
        return None
    found = content(number)
    controls = found["controls"]
    at = 0
    for control in controls.values():
        at = at * len(control["texts"]) + control["first"]
    svg, alt = (
        drawings.unpack(found, found["pictures"][at]),
        found["alts"][found["says"][at]],
    )
    width = float(re.search(r"viewBox='0 0 ([\d.]+)", svg)[1])
    smallest = min(
        float(size)
        for size in re.findall(r"font-size:([\d.]+)px", svg)
        if float(size) >= 8
    )
    least = round(width * LEGIBLE / smallest)
    fields = "\n".join(
        _field(number, name, control) for name, control in controls.items()
    )
    return f"""<div class="explorer" data-explorer="{number}" data-script="{root}_static/explorers/{number}.js">
<fieldset disabled>
<legend>Move a control: the figure follows</legend>
{fields}
</fieldset>
<div class="explorer-window">
<div class="explorer-picture" role="img" aria-label="{html.escape(alt)}" style="min-width: {least}px">{svg}</div>
</div>
<p class="explorer-says" aria-live="polite"></p>
<p class="explorer-note">{NOTE}</p>
<noscript><p class="explorer-note">Without JavaScript the controls do nothing; this is the first picture.</p></noscript>
</div>"""


# pixels that the smallest text keeps on a phone; the figure scrolls sideways there
LEGIBLE = 9
NOTE = (
    "Drawn beforehand by the lesson's code, for these positions of the controls. In a"
    " notebook there are more."
)


def _field(number, name, control):
    """A control with its label, as HTML."""
    name = f"explorer-{number}-{name}"
    label = html.escape(control["label"])
    texts = [html.escape(text) for text in control["texts"]]
    first = control["first"]
    if control["kind"] == "checkbox":
        field = f'<input type="checkbox" id="{name}"{" checked" if first else ""}>'
    elif control["kind"] == "range":
        bounds = (
            f'min="0" max="{len(texts) - 1}" value="{first}"'
            f' aria-valuetext="{texts[first]}"'
        )
        field = (
            f'<input type="range" id="{name}" {bounds}><output'
            f' for="{name}">{texts[first]}</output>'
        )
    else:
        options = [
            f'<option value="{n}">{text}</option>' for n, text in enumerate(texts)
        ]
        options[first] = options[first].replace(">", " selected>", 1)
        field = f'<select id="{name}">{"".join(options)}</select>'
    return f'<p><label for="{name}">{label}</label>{field}</p>'
