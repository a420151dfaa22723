"""Measurements that must not run beside tests. What is here finds the lessons' scripts
(`import train`), the kit, and what its tests give it (`import memory_steps`).
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
for _folder in (
    "notebooks/scripts",
    "packages/device_lab",
    "packages/device_lab/tests",
):
    sys.path.append(str(ROOT / _folder))
