"""Measurements that must not run beside tests. What is here finds the lessons' scripts:
`import train`.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "notebooks" / "scripts"))
