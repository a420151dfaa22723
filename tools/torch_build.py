"""Which build of PyTorch fits a machine, and where it is to be had.

Names of builds are those of the folders at WHEELS: cpu, cu126, cu130. "plain" is what
pip takes by itself: from PyPI a CUDA build on Linux (x86-64), the CPU's on Windows, the
only one on macOS.

This file must parse on Python 3.6, as setup_env.py, which imports it.
"""

import glob
import os
import platform
import re
import runpy
import shutil
import subprocess
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# By its path: to import utils takes PyTorch.
SUPPORTED = runpy.run_path(os.path.join(ROOT, "utils", "supported.py"))
FIRST_OF_CU126 = SUPPORTED["FIRST_OF_CU126"]
FIRST_OF_CU130 = SUPPORTED["FIRST_OF_CU130"]
TOO_NEW_FOR_CU126 = SUPPORTED["TOO_NEW_FOR_CU126"]
OLDEST_DRIVER = SUPPORTED["OLDEST_DRIVER"]
WHEELS = "https://download.pytorch.org/whl/"
QUERY = ["--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
# "NVIDIA GeForce RTX 3060, 8.6, 580.65.06"; the second is [N/A] where it is not known
CARD = re.compile(r"^(.+), (?:(\d+)\.(\d+)|\[.*\]), (\d+)[\d.]*\s*$", re.M)
ASKED_FOR = "asked for"
TOO_OLD = "{}, but its driver is too old: install {} or newer"


# Where it is, if not on the path, and what Linux has for each GPU.
WSL, DEVICES = "/usr/lib/wsl/lib/nvidia-smi", "/dev/nvidia[0-9]*"


def ask_nvidia_smi():
    """What nvidia-smi says of the GPUs, also its errors; None where there is none."""
    try:
        smi = subprocess.Popen(
            [shutil.which("nvidia-smi") or WSL, *QUERY],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return smi.communicate(timeout=60)[0].decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired):
        return None


def has_nvidia():
    """Whether anything speaks for an NVIDIA GPU. It takes no time."""
    files = os.path.exists(WSL) or glob.glob(DEVICES)
    return bool(files or shutil.which("nvidia-smi"))


def choose(smi, has_device, system, machine):
    """(build, reason): the build of PyTorch for a machine.

    smi: what `nvidia-smi` prints for QUERY, or None; has_device: whether Linux has
    /dev/nvidia0; system, machine: as the functions of `platform` say it.
    """
    if system not in ("Linux", "Windows"):
        return "plain", "the one for this system"
    # of these PyPI has one kind only
    cuda_13 = "plain" if (system, machine) == ("Linux", "x86_64") else "cu130"
    cards = CARD.findall(smi or "")
    if cards:
        # a card that does not say it counts as one that all builds have code for
        named = [((int(c[1] or 7), int(c[2] or 5)), c[0]) for c in cards]
        return choose_for_cards(sorted(named), int(cards[0][3]), cuda_13)
    if "not a valid field" in (smi or ""):
        # drivers up to 470 do not know compute_cap
        return "cpu", TOO_OLD.format("NVIDIA GPU", OLDEST_DRIVER[12])
    if has_device:
        return cuda_13, "NVIDIA GPU, of which nvidia-smi says nothing"
    return "cpu", "no NVIDIA GPU found"


def choose_for_cards(cards, driver, cuda_13):
    """(build, reason). cards: [(compute capability, name)], sorted; driver: its number
    up to the first point; cuda_13: the build for CUDA 13.
    """
    newest, name = cards[-1]
    usable = [card for card in cards if card[0] >= FIRST_OF_CU126]
    if not usable:
        return "cpu", f"{name}: too old for any build"
    only_cuda_13 = newest >= TOO_NEW_FOR_CU126
    needed = OLDEST_DRIVER[13 if only_cuda_13 else 12]
    if driver < needed:
        return "cpu", TOO_OLD.format(name, needed)
    if usable[0][0] < FIRST_OF_CU130 and not only_cuda_13:
        return "cu126", f"{usable[0][1]}: too old for CUDA 13"
    if driver < OLDEST_DRIVER[13]:
        return "cu126", f"{name} with driver {driver}, too old for CUDA 13"
    return cuda_13, name


def find():
    """(build, reason) for this machine."""
    has_device = bool(glob.glob(DEVICES))
    return choose(ask_nvidia_smi(), has_device, platform.system(), platform.machine())


def decide(asked, there):
    """(build, reason): what was asked for, or is there, or fits this machine.

    asked: a build, "auto" or None; there: what setup_env has noted of the environment.
    """
    if asked and asked != "auto":
        return asked, ASKED_FOR
    build, why = there.get("build"), there.get("why")
    # since then a driver has come, or it was another computer of a cluster
    gained = build == "cpu" and why != ASKED_FOR and has_nvidia()
    return find() if asked or not build or gained else (build, why)


def pip_arguments(build, requirements, python):
    """Arguments for pip that bring this build; none, and a line, where it is not to be
    had.

    requirements: the text of the file that names the version; python: "3.12".
    """
    if build == "plain":
        return []
    exact = re.search(r"^torch==([\d.]+)", requirements, re.M)
    # torch-2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl
    wheel = r"torch-{}(?:\+|%2B){}-cp{}-[^\"]*{}[^\"]*{}".format(
        re.escape(exact.group(1)) if exact else r"[\d.]+",
        build,
        python.replace(".", ""),
        {"Linux": "linux", "Windows": "win"}.get(platform.system(), "macosx"),
        platform.machine().lower(),
    )
    try:
        with urllib.request.urlopen(WHEELS + build + "/torch/", timeout=20) as page:
            offered = re.search(wheel, page.read().decode("utf-8", "replace"))
    except (OSError, ValueError):
        offered = None
    if not offered:
        print(
            "That build is not to be had from " + WHEELS + ": pip's own choice is taken"
        )
        return []
    version = [f"torch=={exact.group(1)}+{build}"] if exact else []
    return ["--extra-index-url", WHEELS + build, *version]
