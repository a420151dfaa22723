"""The last line of `make test`: what was tested. It runs only where nothing failed.

It reads build/unit-tests.xml, which pytest wrote, and build/status/main, which
tools/lessons/status.py wrote.
"""

import json
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent


def tally(build):
    """One line about the last run, from the folder `build`."""
    suite = ElementTree.parse(build / "unit-tests.xml").find("testsuite")
    tests, skipped = int(suite.get("tests")), int(suite.get("skipped"))
    files = sorted((build / "status" / "main").glob("*.json"))
    counts = [json.loads(path.read_text("utf-8"))["counts"] for path in files]
    cells = sum(each["done"] for each in counts)
    elsewhere = sum(each.get("not live", 0) for each in counts)
    return (
        f"All is well: {tests - skipped:,} unit tests passed, {cells:,} code cells of"
        f" {len(files)} lessons ran to their end ({elsewhere:,} of them show what other"
        " devices gave), and the form of code, lessons and pages is right."
    )


if __name__ == "__main__":
    print(tally(ROOT / "build"))
