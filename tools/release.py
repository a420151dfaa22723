"""What a release publishes: `make release` here, and for each tag
.github/workflows/release.yml.

    python -m tools.release [TAG]

puts into dist/release the wheels of the three packages, the cheat sheet and the slides
as PDF, and the website as an archive; into build/release-notes.md what CHANGES.md says
of the version. All files that name it must agree; with TAG, such as v0.2.0, with it and
in the day, too.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import device_lab
import emulated_cuda
import torch_messages
from tools.site import sheet, slides, website

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "dist" / "release"
NOTES = ROOT / "build" / "release-notes.md"
PACKAGES = device_lab, emulated_cuda, torch_messages
PLACES = {  # file → what stands before the version in it
    "pyproject.toml": 'version = "',
    "CITATION.cff": "version: ",
    "CHANGES.md": "## ",
}


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def version(tag=None):
    """The version that all places name. SystemExit, with what each says, where one says
    another, or the tag does, or the day of a tagged release is not in both files.
    """
    said = {each.__name__: each.__version__ for each in PACKAGES}
    for name, before in PLACES.items():
        said[name] = re.search(rf"^{before}(\d[\w.]*)", text(name), re.M)[1]
    if tag:
        said["the tag"] = tag.removeprefix("v")
    if len(set(said.values())) > 1:
        sys.exit(f"Versions differ: {said}")
    if tag:
        headed = re.search(r"^## \S+ \((.+)\)", text("CHANGES.md"), re.M)[1]
        cited = re.search(r"^date-released: (\S+)", text("CITATION.cff"), re.M)
        if not cited or cited[1] != headed:
            sys.exit(
                f"CHANGES.md says {headed}, CITATION.cff"
                f" {cited[1] if cited else 'no date-released'}: write the day in both"
            )
    return said["pyproject.toml"]


def notes():
    """What CHANGES.md says of its first, newest version."""
    return re.split(r"^## .*\n", text("CHANGES.md"), flags=re.M)[1].strip() + "\n"


def main(tag=None):
    number = version(tag)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    for package in PACKAGES:
        source = ROOT / "packages" / package.__name__
        wheel = ["pip", "wheel", "-q", "--no-deps", "--wheel-dir", OUT, source]
        subprocess.run([sys.executable, "-m", *wheel], check=True)
    if website.build(ROOT / "dist" / "site"):
        sys.exit("The website has warnings")
    sheet.print_to(OUT / "cheat-sheet.pdf")
    slides.pdf(OUT / "slides-two-hours.pdf")
    site = OUT / f"website-{number}"
    shutil.make_archive(str(site), "zip", ROOT / "dist" / "site")
    NOTES.parent.mkdir(exist_ok=True)
    NOTES.write_text(notes(), encoding="utf-8")
    for file in sorted(OUT.iterdir()):
        print(f"{file.stat().st_size / 1e6:6.1f} MB  {file.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
