"""Explorers that live in a web page, without a kernel: every setting is drawn
beforehand, by the lesson's own code.

    page("05_streams", "../")     the HTML that stands in the page: controls, first
                                  picture, text alternative
    write("dist/site/_static/explorers")     a script for each lesson, NN.js, with the
                                             pictures of all settings
    embed("dist/site/embed", names)          a page for each lesson, NN.html, that other
                                             sites show in an <iframe>

GRID says at which values the controls stand; tools/site/drawings.py draws;
docs/_static/explorer.js shows. What has been drawn stays in build/explorers/ until
something changes that it depends on.
"""

import base64
import gzip
import hashlib
import html
import itertools
import json
import multiprocessing
import pathlib
import re
from concurrent.futures import ProcessPoolExecutor, as_completed

from tools.lessons.notebooks import address
from tools.site import drawings

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "explorers"

# Lesson → control → the values at which it stands in the page. A control that is not
# named keeps all it has. The first and the last are there, the one that the lesson
# begins with, and those that its questions ask for.
GRID = {
    "00": {
        "overhead": [1, 5, 10, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 400, 500],
        "faster": [2, 3, 4, 5, 10, 20, 40, 50, 100],
    },
    "04": {"host": [1, 2, 4, 8, 10, 20], "device": [1, 2, 5, 8, 10, 20]},
    "05": {
        "chunks": [1, 4, 8, 16],
        "streams": [1, 8],
        "ratio": [1, 4],
        "launch": [0, 200],
    },
    "06": {
        "load": [5, 30, 50, 200],
        "compute": [5, 20, 200],
        "workers": [0, 1, 2, 3, 4, 8],
    },
    "07": {
        "model": [
            "GPT-2 (12 × 768)",
            "GPT-2 XL (48 × 1600)",
            "about 7 billion (32 × 4096)",
        ],
        "batch": [1, 16, 128],
        "device": ["T4", "A100 80 GB SXM", "H200 SXM"],
        "optimizer": ["adamw", "sgd"],
    },
    "08": {
        "number": [70000.0, 300.0, 1.00390625, 0.1, 1e-6, 2e-8, 1e-8],
        "scale": [*range(17), 20, 24, 32, 40],
    },
    "09": {
        "device": ["T4", "A100 80 GB SXM", "H200 SXM"],
        "m": [1, 4, 16, 64, 256, 1024, 4096, 16384],
    },
    "10": {
        "kernel": [10**-0.3, 1.0, 2.0, 10**0.7, 10.0, 10**1.7, 10**2.3],
        "launch": [1.0, 3.8, 5.0, 10.0, 20.0],
    },
    "11": {"cap": [1, 5, 25, 125, 625]},
    "12": {"memory": [24, 80, 192]},
    "13": {"longest": [64, 512, 1024], "step": [8, 32, 128]},
    "14": {"tokens": [256, 2048, 4096, 8192, 16384, 32768, 65536]},
    "17": {
        "model": ["Llama 3.1 8B", "Llama 3.1 70B"],
        "device": ["T4, 16 GB", "H100, 80 GB", "B200, 180 GB"],
        "tokens": [512, 8192, 131072],
        "conversations": [1, 6, 60, 140, 600],
    },
}
# Lesson → control → the positions, as they are called in the page, that a page to embed
# leaves out: it has all in one file of at most MOST bytes.
LEFT_OUT = {
    "04": {"host": ["1"], "device": ["1", "2"]},
    "05": {"chunks": ["8"]},
    "06": {"load": ["200"], "compute": ["200"], "workers": ["4"]},
}
MOST = 100_000


# --------------------------------------------------------------------------------------
# The scripts


def drawn(numbers):
    """Where all pictures of lessons are kept, {number: path}; draws what is not there
    yet.
    """
    paths = {number: CACHE / f"{number}-{drawing_hash(number)}" for number in numbers}
    missing = [number for number, path in paths.items() if not path.exists()]
    if not missing:
        return paths
    CACHE.mkdir(parents=True, exist_ok=True)
    print(
        f"     drawing the explorers of lessons {', '.join(missing)}: kept for the next"
        " time, some minutes each",
        flush=True,
    )
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(mp_context=spawn) as pool:
        drawing = {
            pool.submit(drawings.run_lesson, n, GRID[n], paths[n]): n for n in missing
        }
        for count, done in enumerate(as_completed(drawing), 1):
            done.result()
            print(
                f"     lesson {drawing[done]} is drawn, {count} of {len(missing)}",
                flush=True,
            )
    return paths


def unpack(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def drawing_hash(number):
    """Of all that the pictures of a lesson depend on."""
    import matplotlib

    stem = drawings.lesson_path(number).stem
    files = [
        pathlib.Path(drawings.__file__),
        *sorted(
            path
            for package in ("utils", "simulate", "course", "packages/device_lab")
            for path in (ROOT / package).rglob("*.py")
        ),
        *sorted((ROOT / "notebooks" / "recorded").glob(f"*/{stem}.json")),
    ]
    parts = [matplotlib.__version__, repr(GRID[number])]
    parts += drawings.explorer_cells(number)
    parts += [path.read_text(encoding="utf-8") for path in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def write(folder):
    """Write the scripts of all explorers into `folder`.

    A script calls explorer.js with the compressed JSON as text in base64: a page that
    is opened as a file may load scripts, but no other data.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in drawn(GRID).items():
        script = script_of(number, path.read_bytes())
        (folder / f"{number}.js").write_text(script, encoding="ascii", newline="\n")


def script_of(number, packed):
    text = base64.b64encode(packed).decode()
    return f'deviceLab.explorer("{number}", "{text}")\n'


# --------------------------------------------------------------------------------------
# In the page


# pixels that the smallest text keeps on a phone, where the panels of a figure stand
# below each other; what is wider scrolls sideways
LEGIBLE = 9
BOX = """\
<div class="explorer" data-explorer="{number}" {source}
 data-scale="{scale:.3f}">
<fieldset disabled>
<legend>Move a control: the figure follows</legend>
{fields}
</fieldset>
<p class="explorer-head"></p>
<div class="explorer-window">
<div class="explorer-picture" role="img" aria-label="{alt}"
 style="min-width: {least}px">
{svg}
</div>
</div>
<p class="explorer-says" aria-live="polite"></p>
<p class="explorer-note">Drawn beforehand by the lesson's code, for these positions of
the controls. In a notebook there are more.</p>
<noscript><p class="explorer-note">{still}</p></noscript>
{embed}</div>"""
STILL = "Without JavaScript the controls do nothing; this is the first picture."
EMBED = """\
<details class="code"><summary>Embed this figure</summary>
<div><div class="highlight"><pre>{line}</pre></div></div>
</details>
"""


def page(stem, root, name=None):
    """The explorer of a lesson as HTML, or None where the site keeps the stored
    picture. stem: "05_streams". root: the relative path from the page to the root of
    the site, such as "../". name: of the lesson, "05 · Streams"; with it the line that
    embeds the figure stands below it.

    Before its script has come it shows the first picture, and its controls are
    disabled.
    """
    number = stem[:2]
    if number not in GRID:
        return None
    found = unpack(drawn([number])[number])
    line = html.escape(iframe(number, name, found)) if name else ""
    return box(
        number,
        found,
        source=f'data-script="{root}_static/explorers/{number}.js"',
        still=STILL,
        embed=EMBED.format(line=line) if name else "",
    )


def box(number, found, **parts):
    """The explorer as HTML, with its first picture. found: what its script holds."""
    controls, at = found["controls"].items(), 0
    for _, control in controls:
        at = at * len(control["texts"]) + control["first"]
    svg = picture(found, at)
    return BOX.format_map(
        {
            "number": number,
            "fields": "\n".join(field(number, *control) for control in controls),
            "alt": html.escape(found["alts"][at]),
            "least": round(width_of(svg) * scale(svg)),
            "scale": scale(svg),
            "svg": svg,
            **parts,
        }
    )


def picture(found, at):
    return "".join(found["tags"][place] for place in found["pictures"][at])


def width_of(svg):
    """Of a picture, in points."""
    return float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])


def scale(svg):
    """Pixels a point that a picture needs for its smallest text (sub- and superscripts,
    below 8 points, apart) to have LEGIBLE pixels.
    """
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", svg)]
    return LEGIBLE / min(size for size in sizes if size >= 8)


def field(number, name, control):
    """A control with its label, as HTML. control: as `described` gives it."""
    name, first = f"explorer-{number}-{name}", control["first"]
    label = html.escape(control["label"])
    texts = [html.escape(text) for text in control["texts"]]
    if control["kind"] == "checkbox":
        checked = " checked" if first else ""
        made = f'<input type="checkbox" id="{name}"{checked}>'
    elif control["kind"] == "range":
        made = (
            f'<input type="range" id="{name}" min="0" max="{len(texts) - 1}"'
            f' value="{first}" aria-valuetext="{texts[first]}">'
            f'<output for="{name}">{texts[first]}</output>'
        )
    else:
        options = [
            f'<option value="{n}">{text}</option>' for n, text in enumerate(texts)
        ]
        options[first] = options[first].replace(">", " selected>", 1)
        made = f'<select id="{name}">{"".join(options)}</select>'
    return f'<p><label for="{name}">{label}</label>{made}</p>'


# --------------------------------------------------------------------------------------
# On other sites


WIDE = 760  # pixels
NONE = "Without JavaScript there is no picture here; the lesson has one."
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: an interactive figure of PyTorch Device Lab</title>
<link rel="icon" href="data:,">
<link rel="canonical" href="{lesson}">
<style>
:root {{ color-scheme: light dark; --color-brand-primary: #0072b2; }}
body {{ background: #fff; color: #1b1f23; font: 15px/1.45 -apple-system,
       BlinkMacSystemFont, "Segoe UI", Helvetica, Arial, sans-serif; margin: 0;
       padding: 8px; }}
footer {{ font-size: 13px; }}
footer p {{ margin: 6px 0 0; }}
a {{ color: #00609a; }}
:focus-visible {{ outline: 2px solid #0072b2; outline-offset: 2px; }}
{style}
.explorer {{ margin: 0; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --color-brand-primary: #6dbfee; --color-background-border: #6b7680;
          --color-foreground-secondary: #b0b4b9; --color-background-primary: #1d2024; }}
  body {{ background: #131416; color: #cfd0d0; }}
  a {{ color: #7cc4ef; }}
  .explorer-window {{ filter: brightness(0.76); }}
}}
</style></head>
<body><main>
{box}
</main>
<footer><p><a href="{lesson}" target="_blank" rel="noopener">PyTorch Device Lab, lesson
{title}</a> · <a href="https://creativecommons.org/licenses/by/4.0/" target="_blank"
 rel="noopener">CC BY 4.0</a></p></footer>
<script>
{script}</script>
<script>
{data}</script>
</body></html>
"""


def embed(folder, names):
    """Write a page for each explorer into `folder`, which needs no other file. names:
    of the lessons, {stem: "05 · Streams"}.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    static = ROOT / "docs" / "_static"
    for number, path in drawn(GRID).items():
        stem = drawings.lesson_path(number).stem
        packed = fewer(unpack(path), LEFT_OUT.get(number, {}))
        found = json.loads(gzip.decompress(packed))
        # its script stands below, and has the first picture, too
        parts = {"source": "data-asked", "still": NONE, "svg": "", "embed": ""}
        text = PAGE.format(
            title=html.escape(names[stem]),
            lesson=f"{address('Site')}/notebooks/{stem}.html",
            style=(static / "explorer.css").read_text(encoding="utf-8"),
            box=box(number, found, **parts),
            script=(static / "explorer.js").read_text(encoding="utf-8"),
            data=script_of(number, packed),
        )
        if len(text.encode()) > MOST:
            raise ValueError(f"embed/{number}.html has {len(text.encode())} bytes")
        (folder / f"{number}.html").write_text(text, encoding="utf-8", newline="\n")


def fewer(found, left_out):
    """What an explorer shows, packed, without some positions of its controls."""
    kept = {
        name: [n for n, text in enumerate(each["texts"]) if text not in left_out[name]]
        if name in left_out
        else list(range(len(each["texts"])))
        for name, each in found["controls"].items()
    }
    places = []
    for chosen in itertools.product(*kept.values()):
        at = 0
        for control, n in zip(found["controls"].values(), chosen, strict=True):
            at = at * len(control["texts"]) + n
        places.append(at)
    tags = {}
    pictures = [
        [tags.setdefault(tag, len(tags)) for tag in found["pictures"][at]]
        for at in places
    ]
    controls = {
        name: {
            **each,
            "texts": [each["texts"][n] for n in kept[name]],
            "first": kept[name].index(each["first"]),
        }
        for name, each in found["controls"].items()
    }
    content = {
        "controls": controls,
        "tags": [found["tags"][tag] for tag in tags],
        "pictures": pictures,
    }
    for name in ("alts", "heads", "cuts"):
        content[name] = [found[name][at] for at in places]
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def iframe(number, name, found):
    """The line that shows a lesson's figure on another site, as high as its highest
    picture asks for.
    """
    sizes = [
        re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)', found["tags"][each[0]])
        for each in found["pictures"]
    ]
    steepest = max(float(size[2]) / float(size[1]) for size in sizes)
    rows = len(found["controls"])
    high = round(145 + 31 * rows + (WIDE - 32) * steepest)
    return (
        f'<iframe src="{address("Site")}/embed/{number}.html" width="{WIDE}"'
        f' height="{high}" style="border: 0; max-width: 100%" loading="lazy"'
        f' title="{html.escape(name)}, an interactive figure of PyTorch Device Lab">'
        "</iframe>"
    )
