"""What the course and PyTorch's builds support: the one place for versions that age.

tools/setup_env.py reads it before anything is installed: plain Python 3.6, no imports.
"""

# Pythons with which the lessons are tested: oldest and newest.
OLDEST_PYTHON, NEWEST_PYTHON = (3, 10), (3, 13)
OLDEST_TORCH = (2, 9)  # for lessons and utils

# Which compute capabilities the builds of PyTorch have code for: "PyTorch CUDA Support
# Matrix" in RELEASE.md of pytorch/pytorch (2.12 to 2.14; of 2.13: pull request 187075).
# cu126: 5.0 to 9.0, cu130: 7.5 to 12.0.
FIRST_OF_CU126, FIRST_OF_CU130, TOO_NEW_FOR_CU126 = (5, 0), (7, 5), (10, 0)
FIRST_WITHOUT_CU126 = "2.15"  # issue 190385 there
# Major version of CUDA → oldest major version of the driver:
# https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}


def dotted(version):
    """(3, 10) as text: "3.10"."""
    return ".".join(map(str, version))


# Said wherever somebody is told which Python to take.
PYTHONS = f"{dotted(OLDEST_PYTHON)} to {dotted(NEWEST_PYTHON)}"
