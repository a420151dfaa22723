"""Exercises of lesson 01."""

import torch

from course import expect
from course.answers import Wrong, call
from course.exercises import Exercise
from exercises.doubles.machine import machine


def rows(table):
    """The cells of a table, line by line."""
    return [line.split(" | ") for line in table.strip().splitlines()]


# what the build knows, whether it is there, and why that decides
MACHINES = {
    "a CPU build": (None, False, "there is nothing but the CPU"),
    "a CUDA build with a GPU": ("cuda", True, "the build knows it, and it is there"),
    "a CUDA build without a GPU": (
        "cuda",
        False,
        "the build knows GPUs, and none is there: ask with check_available=True",
    ),
    "a Mac": ("mps", True, "its accelerator is called mps; ask torch.accelerator"),
    "a machine with an Intel GPU": (
        "xpu",
        True,
        "its accelerator is called xpu; ask torch.accelerator",
    ),
}


def check_best_device(answer):
    for name, (built, there, why) in MACHINES.items():
        with machine(built, there):
            got = call(answer, shown=name)
        expected = built if there else "cpu"
        expect.instance(got, torch.device, name, f"a torch.device, here {expected}")
        # an index of 0 is fair, another is not there
        if got.type != expected or got.index not in (None, 0):
            raise Wrong(f"for {name} you returned {got}, expected {expected}: {why}")


CODE_CASES = """
7.5 | sm_75 sm_80 sm_90 | yes | sm_75 is code for exactly this GPU
8.9 | sm_75 sm_86 sm_90 | yes | sm_86 runs on 8.9: same major, higher minor version
9.0 | sm_80 sm_86 | no | machine code never runs on another major version
8.0 | sm_75 sm_86 | no | sm_86 needs a minor version of at least 6
12.0 | sm_80 sm_90 compute_90 | yes | compute_90 is PTX, for 9.0 and everything newer
9.0 | compute_90 | yes | compute_90 is PTX, and runs on 9.0 as well
8.0 | compute_75 sm_90 | yes | compute_75 is PTX, and 8.0 is newer than 7.5
8.0 | sm_75 compute_86 | no | PTX for 8.6 does not run on 8.0, which is older
6.0 | sm_75 sm_80 compute_75 | no | PTX for 7.5 does not run on something older
8.6 | sm_75 sm_87 | no | sm_87 needs a minor version of at least 7
8.6 | compute_87 | no | PTX for 8.7 does not run on 8.6, which is older
8.9 | sm_90 compute_86 | yes | compute_86 is PTX, and 8.9 is newer than 8.6
9.0 | compute_100 | no | compute_100 is PTX for 10.0, which is newer than 9.0
10.3 | sm_90 sm_100 | yes | sm_100 is 10.0: the last digit is the minor version
10.0 | sm_90 sm_103 | no | sm_103 is 10.3: the last digit is the minor version
12.0 | sm_90 sm_100 | no | sm_100 is 10.0, another major version than 12.0
12.0 | compute_103 | yes | compute_103 is PTX for 10.3, and 12.0 is newer
8.6 | sm_86 sm_90 compute_90 | yes | one entry that runs is enough, here the first
8.0 | sm_80 sm_86 | yes | one entry that runs is enough, here sm_80
9.0 | compute_80 compute_120 | yes | one entry that runs is enough, here compute_80
8.6 | sm_87 compute_80 | yes | one entry that runs is enough, here compute_80
9.0 | compute_120 sm_90 | yes | one entry that runs is enough, here sm_90
6.1 | sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 | no | all of them are newer than 6.1
8.6 |  | no | a build without GPU code runs on no GPU
"""


def check_can_run(answer):
    for version, code, runs, why in rows(CODE_CASES):
        capability = tuple(map(int, version.split(".")))
        arch_list = code.split()
        shown = f"{capability} and {arch_list}"
        got = call(answer, capability, arch_list, shown=shown)
        expect.equal(got, runs == "yes", shown, why)


LINKS = ("gpu", "driver", "build", "versions", "visible", "kernels")
FIRST_BROKEN = {
    "office": "build | card and driver answer, and the suffix of PyTorch names the CPU",
    "docker": (
        "driver | the card is there, but nothing in the container can speak to it"
    ),
    "cluster": (
        "visible | card, driver and build fit together; the process is not allowed to"
        " see the card"
    ),
    "server": (
        "versions | card, driver and build are there; compare the driver with the"
        " oldest one that CUDA 13 takes"
    ),
    "notebook": (
        "gpu | driver and build are missing as well, but without a card neither would"
        " help"
    ),
    "attic": ("kernels | is_available() covers the first five links, and it says True"),
}


def check_first_broken(answer):
    if not isinstance(answer, dict) or set(answer) != set(FIRST_BROKEN):
        raise Wrong(
            "expected a dict of machine and link, with the keys"
            f" {', '.join(FIRST_BROKEN)}; yours is {answer!r}"
        )
    for name, reason in FIRST_BROKEN.items():
        got = answer[name]
        expected, why = reason.split(" | ")
        if got not in LINKS:
            raise Wrong(
                f"for {name!r} you answered {got!r}, expected one of {', '.join(LINKS)}"
            )
        if got != expected:  # which one it is, the reader is to find
            raise Wrong(
                f"for {name!r} you answered {got!r}, but that is not the first broken"
                f" link: {why}"
            )


WISHES = """
cuda:1 | cuda:0 cuda:1 | cuda:1 | it is there
cuda:5 | cuda:0 cuda:1 | cuda:0 | there is no such GPU, so the first accelerator
mps | cuda:0 | cuda:0 | there is no Apple GPU, so the first accelerator
cuda | cuda:0 cuda:1 | cuda:0 cuda | without an index, it is the first of its type
cpu | cuda:0 | cpu | the CPU is always there, and was wished for
cpu:0 | cuda:0 | cpu cpu:0 | this is the CPU, too: look at the type
cuda:0 |  | cpu | no accelerator is there
cuda |  | cpu | no accelerator is there
cpu |  | cpu | the CPU is always there
xpu:0 | xpu:0 | xpu:0 | it is there
cuda:1 | xpu:0 xpu:1 | xpu:0 | xpu:1 is of another type, so the first accelerator
cuda | xpu:0 | xpu:0 | there is no GPU of this type, so the first accelerator
cuda | xla:0 cuda:0 | cuda:0 cuda | a fair answer to a wish without an index
xpu | cuda:0 xpu:0 | xpu:0 xpu | a fair answer to a wish without an index
cuda | xpu:0 cuda:1 | cuda:1 cuda | the first of its type will do, whatever its number
cuda:5 | xpu:0 cuda:0 | xpu:0 | so the first of the list, of whatever type
cuda:1 | cuda:0 cuda:10 | cuda:0 | cuda:10 is not cuda:1, so the first accelerator
xla:0 | cuda:0 xla:0 | xla:0 | it is there; cuda:0 has its index and another type
cuda:0 | cuda:1 cuda:0 | cuda:0 | it is there, as the second; 0 is an index, too
mps | cuda:1 cuda:0 | cuda:1 | there is no Apple GPU, so the first of the list
"""


def check_choose(answer):
    for wish, devices, right, why in rows(WISHES):
        there, expected = devices.split(), right.split()[0]
        shown = f"{wish!r} and {there or 'no accelerator'}"
        got = call(answer, wish, [torch.device(d) for d in there], shown=shown)
        expect.instance(got, torch.device, shown, f"a torch.device, here {expected}")
        if got not in map(torch.device, right.split()):
            raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


EXERCISES = [
    Exercise(
        number="01.1",
        title="The device to compute on",
        name="best_device",
        stars=1,
        check=check_best_device,
        hints=[
            "torch.accelerator knows which accelerator there is, whatever its name.",
            "current_accelerator() has an argument that makes it ask the machine, too.",
            (
                "Take current_accelerator(check_available=True); where it is None,"
                ' torch.device("cpu").'
            ),
        ],
        solution="""
def best_device():
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        device = torch.device("cpu")
    return device
""",
        praise=(
            "Call it once, at the top of the program, and hand the device on: then a"
            " test can hand on another."
        ),
    ),
    Exercise(
        number="01.2",
        title="Which link breaks first?",
        name="first_broken",
        stars=2,
        check=check_first_broken,
        hints=[
            "Go through the six links from the card up, and stop at the first NO.",
            (
                "If nvidia-smi answers, the card and its driver work. The suffix of"
                " PyTorch names the build."
            ),
            (
                "For server, section 5 says how old a driver may be for the major"
                " version of its CUDA."
            ),
        ],
        solution="""
first_broken = {
    "office": "build",
    "docker": "driver",
    "cluster": "visible",
    "server": "versions",
    "notebook": "gpu",
    "attic": "kernels",
}
""",
        praise=(
            "Repairing a later link first costs an afternoon: a new PyTorch does not"
            " help a machine without a card."
        ),
    ),
    Exercise(
        number="01.3",
        title="Can this GPU run this build?",
        name="can_run",
        stars=2,
        check=check_can_run,
        hints=[
            (
                "Split each entry at the underscore. The last digit is the minor"
                " version, the rest the major version."
            ),
            (
                "For sm: same major version, and the GPU's minor version at least as"
                " high. Any one entry is enough."
            ),
            (
                "For compute: the pair (major, minor) must be at most the capability;"
                " Python compares pairs in that order."
            ),
        ],
        solution="""
def can_run(capability, arch_list):
    for entry in arch_list:
        kind, digits = entry.split("_")
        version = int(digits[:-1]), int(digits[-1])
        if version <= capability and (kind == "compute" or version[0] == capability[0]):
            return True
    return False
""",
        praise=(
            "An a at the end, as in sm_90a, marks code for that one generation;"
            " an f, for its family."
        ),
    ),
    Exercise(
        number="01.4",
        title="Honor a wish",
        name="choose",
        stars=2,
        check=check_choose,
        hints=[
            (
                "Make the wish a torch.device first; then compare type and index, not"
                " the two objects."
            ),
            (
                "A wish without an index fits every device of its type. The CPU is not"
                " in the list, and always there."
            ),
            (
                "Loop over available: same type, and the wished index is None or the"
                " same. After the loop, fall back."
            ),
        ],
        solution="""
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type == "cpu":
        return wished
    for device in available:
        if device.type == wished.type and wished.index in (None, device.index):
            return device
    return available[0] if available else torch.device("cpu")
""",
        praise=(
            "A program should also say when it falls back: a training run that lands on"
            " the CPU unseen costs days."
        ),
    ),
]
