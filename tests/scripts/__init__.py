"""Tests of the lessons' scripts, which they find: `import train`."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "notebooks" / "scripts"
sys.path.append(str(SCRIPTS))
