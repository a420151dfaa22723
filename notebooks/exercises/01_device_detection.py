"""Exercises of lesson 01."""

import torch

from utils.exercises import DOTS, Exercise, NotAnswered, Wrong, call


def accepted(text):
    try:
        torch.device(text)
    except RuntimeError:
        return False
    return True


def check_is_device(answer):
    for text in ("cpu", "gpu", "cuda:1", "cpu:0", "mps", "CUDA", "xla", "cuda:-1", "cuda 1", "cuda:", ""):
        got, expected = call(answer, text), accepted(text)
        if not isinstance(got, bool):
            raise Wrong(f"for {text!r} you returned {got!r}, expected True or False")
        if got != expected:
            verb = "accepts" if expected else "refuses"
            raise Wrong(f"for {text!r} you returned {got}, but torch.device {verb} it: let it judge, keep no list")


CODE_CASES = [
    ((7, 5), ["sm_75", "sm_80", "sm_90"], "sm_75 is code for exactly this GPU"),
    ((8, 9), ["sm_75", "sm_86", "sm_90"], "sm_86 runs on 8.9: same major version, higher minor version"),
    ((9, 0), ["sm_80", "sm_86"], "machine code never runs on another major version"),
    ((8, 0), ["sm_75", "sm_86"], "sm_86 needs a minor version of at least 6"),
    ((12, 0), ["sm_80", "sm_90", "compute_90"], "compute_90 is PTX, and runs on 9.0 and everything newer"),
    ((6, 0), ["sm_75", "sm_80", "compute_75"], "PTX for 7.5 does not run on something older"),
    ((10, 3), ["sm_90", "sm_100"], "sm_100 is 10.0: the last digit is the minor version"),
    ((12, 0), ["sm_90", "sm_100"], "sm_100 is 10.0, another major version than 12.0"),
    ((8, 6), [], "a build without GPU code runs on no GPU"),
]


def check_can_run(answer):
    for capability, arch_list, why in CODE_CASES:
        got, expected = call(answer, capability, arch_list), runs(capability, arch_list)
        if got is not expected:
            raise Wrong(f"for {capability} and {arch_list} you returned {got!r}, expected {expected}: {why}")


def runs(capability, arch_list):
    for entry in arch_list:
        kind, digits = entry.split("_")
        major, minor = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return True
        if kind == "compute" and (major, minor) <= tuple(capability):
            return True
    return False


LINKS = ("gpu", "driver", "build", "versions", "visible", "kernels")
FIRST_BROKEN = {
    "office": ("build", "card and driver answer, and the suffix of PyTorch names the CPU"),
    "docker": ("driver", "the card is there, but nothing in the container can speak to it"),
    "cluster": ("visible", "card, driver and build fit together; the process is not allowed to see the card"),
    "server": ("versions", "card, driver and build are there; compare the driver with OLDEST for this CUDA"),
    "notebook": ("gpu", "driver and build are missing as well, but without a card neither would help"),
    "attic": ("kernels", "is_available() covers the first five links, and it says True"),
}


def check_first_broken(answer):
    if not isinstance(answer, dict) or set(answer) != set(FIRST_BROKEN):
        raise Wrong(f"expected a dict with the keys {', '.join(FIRST_BROKEN)}, got {answer!r}")
    if DOTS in answer.values():
        raise NotAnswered
    for machine, (expected, why) in FIRST_BROKEN.items():
        got = answer[machine]
        if got not in LINKS:
            raise Wrong(f"for {machine!r} you answered {got!r}, expected one of {', '.join(LINKS)}")
        if got != expected:
            raise Wrong(f"for {machine!r} you answered {got!r}, but that is not the first broken link: {why}")


WISHES = [
    ("cuda:1", ["cuda:0", "cuda:1"], "cuda:1", "it is there"),
    ("cuda:5", ["cuda:0", "cuda:1"], "cuda:0", "there is no such GPU, so the first accelerator"),
    ("mps", ["cuda:0"], "cuda:0", "there is no Apple GPU, so the first accelerator"),
    ("cuda", ["cuda:0", "cuda:1"], "cuda:0", "without an index any GPU will do"),
    ("cpu", ["cuda:0"], "cpu", "the CPU is always there, and was wished for"),
    ("cuda:0", [], "cpu", "no accelerator is there"),
    ("xpu:0", ["xpu:0"], "xpu:0", "it is there"),
]


def check_choose(answer):
    for wish, there, expected, why in WISHES:
        shown = f"{wish!r} and {there or 'no accelerator'}"
        got = call(answer, wish, [torch.device(d) for d in there], shown=shown)
        if not isinstance(got, torch.device):
            raise Wrong(f"for {shown} you returned {got!r}, expected a torch.device")
        right = (torch.device(expected), torch.device(wish)) if wish == "cuda" else (torch.device(expected),)
        if got not in right:
            raise Wrong(f"for {shown} you returned {got}, expected {expected}: {why}")


TIMES = [
    ([16, 64, 256], [1, 5, 90], [8, 9, 10], 256, "slower at 16 and 64, faster at 256"),
    ([16, 64, 256], [9, 9, 90], [1, 2, 10], 16, "faster everywhere"),
    ([16, 64, 256], [1, 2, 3], [8, 9, 10], None, "never faster"),
    ([16, 64, 256, 1024], [1, 9, 20, 90], [8, 8, 30, 40], 1024, "the win at 64 does not last: 256 is slower again"),
    ([16, 64, 256], [1, 9, 20], [8, 8, 30], None, "slower again at the largest size, so no start holds"),
    ([16, 64], [8, 9], [8, 4], 64, "equally fast is not faster"),
]


def check_crossover(answer):
    for sizes, cpu_times, other_times, expected, why in TIMES:
        shown = f"sizes {sizes}, CPU {cpu_times}, other {other_times}"
        got = call(answer, sizes, cpu_times, other_times, shown=shown)
        if got != expected:
            raise Wrong(f"for {shown} you returned {got!r}, expected {expected}: {why}")


EXERCISES = [
    Exercise(
        number="01.1",
        title="Is this text a device?",
        name="is_device",
        stars=2,
        check=check_is_device,
        hints=[
            "PyTorch knows its own list of types. How does it tell you that a text is not on it?",
            "torch.device raises a RuntimeError. Catch it.",
            "try: torch.device(text), then return True; except RuntimeError: return False.",
        ],
        solution="""
def is_device(text):
    try:
        torch.device(text)
    except RuntimeError:
        return False
    return True
""",
        praise="This judges the spelling. Whether the device is there is another question, and comes at its first use.",
        wrong={
            "def is_device(text):\n    return text in ('cpu', 'cuda', 'mps')": "for 'cuda:1' you returned False",
            "def is_device(text):\n    return text.split(':')[0] in ('cpu', 'cuda', 'mps', 'xla')": "for 'cuda:-1'",
            "def is_device(text):\n    torch.device(text)\n    return True": "your function raised RuntimeError",
            "def is_device(text):\n    return torch.device(text)": "expected True or False",
        },
    ),
    Exercise(
        number="01.2",
        title="Can this GPU run this build?",
        name="can_run",
        stars=2,
        check=check_can_run,
        hints=[
            "Split each entry at the underscore. The last digit is the minor version, the rest the major version.",
            "For sm: same major version, and the GPU's minor version at least as high. Any one entry is enough.",
            "For compute: the pair (major, minor) must be at most the capability; Python compares pairs in that order.",
        ],
        solution="""
def can_run(capability, arch_list):
    for entry in arch_list:
        kind, digits = entry.split("_")
        major, minor = int(digits[:-1]), int(digits[-1])
        if kind == "sm" and major == capability[0] and minor <= capability[1]:
            return True
        if kind == "compute" and (major, minor) <= tuple(capability):
            return True
    return False
""",
        praise="A letter at the end, as in sm_90a, marks code for that one generation: it runs nowhere else.",
        wrong={
            "def can_run(capability, arch_list):\n"
            "    return 'sm_%d%d' % tuple(capability) in arch_list": "higher minor version",
            "def can_run(capability, arch_list):\n"
            "    mine = capability[0] * 10 + capability[1]\n"
            "    return any(int(a.split('_')[1]) <= mine for a in arch_list)": "never runs on another major version",
            "def can_run(capability, arch_list):\n"
            "    return any(a.startswith('sm_') and int(a[3:]) // 10 == capability[0] for a in arch_list)": (
                "at least 6"
            ),
            "def can_run(capability, arch_list):\n"
            "    return any(a.startswith('sm_') and int(a[3:-1]) == capability[0]\n"
            "               and int(a[-1]) <= capability[1] for a in arch_list)": "compute_90 is PTX",
            "def can_run(capability, arch_list):\n"
            "    return any((int(a.split('_')[1][0]), int(a.split('_')[1][1])) <= tuple(capability)\n"
            "               and (a[0] == 'c' or int(a.split('_')[1][0]) == capability[0])\n"
            "               for a in arch_list)": "the last digit is the minor version",
        },
    ),
    Exercise(
        number="01.3",
        title="Which link breaks first?",
        name="first_broken",
        stars=2,
        check=check_first_broken,
        hints=[
            "Go through the links in the order of the table, and stop at the first NO.",
            "If nvidia-smi answers, the card and its driver work. The suffix of PyTorch names the build.",
            "For server, look up the major version of its CUDA in OLDEST, and compare with its driver.",
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
        praise="Repairing a later link first costs an afternoon: a new PyTorch does not help a machine without a card.",
        wrong={
            "first_broken = dict(office='driver', docker='driver', cluster='visible', server='versions', "
            "notebook='gpu', attic='kernels')": "the suffix of PyTorch names the CPU",
            "first_broken = dict(office='build', docker='driver', cluster='visible', server='build', "
            "notebook='gpu', attic='kernels')": "compare the driver with OLDEST",
            "first_broken = dict(office='build', docker='driver', cluster='visible', server='versions', "
            "notebook='build', attic='kernels')": "without a card neither would help",
            "first_broken = dict(office='cable', docker='driver', cluster='visible', server='versions', "
            "notebook='gpu', attic='kernels')": "expected one of gpu, driver",
            "first_broken = {'office': 'build'}": "expected a dict with the keys",
            "first_broken = dict(office='build', docker='driver', cluster='visible', server='versions', "
            "notebook=..., attic='kernels')": "not answered yet",
        },
    ),
    Exercise(
        number="01.4",
        title="Honor a wish",
        name="choose",
        stars=2,
        check=check_choose,
        hints=[
            "Make the wish a torch.device first; then compare type and index, not the two objects.",
            "A wish without an index fits every device of its type. The CPU is not in the list, and always there.",
            "Loop over available: same type, and the wished index is None or the same. After the loop, fall back.",
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
        praise="A program should also say when it falls back: a training run that lands on the CPU unseen costs days.",
        wrong={
            "def choose(wish, available):\n    return torch.device(wish)": "there is no such GPU",
            "def choose(wish, available):\n    return wish": "expected a torch.device",
            "def choose(wish, available):\n"
            "    return available[0] if available else torch.device('cpu')": "expected cuda:1: it is there",
            "def choose(wish, available):\n"
            "    wished = torch.device(wish)\n"
            "    return wished if wished in available else available[0]": "the CPU is always there",
            "def choose(wish, available):\n"
            "    wished = torch.device(wish)\n"
            "    return wished if wished.type == 'cpu' or wished in available else available[0]": "raised IndexError",
            "def choose(wish, available):\n"
            "    wished = torch.device(wish)\n"
            "    there = wished.type in [d.type for d in available]\n"
            "    return wished if there else torch.device('cpu')": "there is no such GPU",
            "def choose(wish, available):\n"
            "    wished = torch.device(wish)\n"
            "    return wished if wished in available else torch.device('cpu')": "so the first accelerator",
        },
    ),
    Exercise(
        number="01.5",
        title="From which size on does it pay?",
        name="crossover",
        stars=2,
        check=check_crossover,
        hints=[
            "Go through the sizes in order and remember where the present run of wins began.",
            "A size that is not faster ends the run: forget the beginning.",
            "Start with None; set it at a win if it is None, set it back to None at a loss or a tie; return it.",
        ],
        solution="""
def crossover(sizes, cpu_times, other_times):
    start = None
    for size, cpu, other in zip(sizes, cpu_times, other_times):
        if other >= cpu:
            start = None
        elif start is None:
            start = size
    return start
""",
        praise="The true crossing lies between your answer and the last size that lost.",
        wrong={
            "def crossover(sizes, cpu_times, other_times):\n"
            "    return next(n for n, c, o in zip(sizes, cpu_times, other_times) if o < c)": "raised StopIteration",
            "def crossover(sizes, cpu_times, other_times):\n"
            "    return next((n for n, c, o in zip(sizes, cpu_times, other_times) if o < c), None)": "does not last",
            "def crossover(sizes, cpu_times, other_times):\n"
            "    return next((i for i, (c, o) in enumerate(zip(cpu_times, other_times)) if o < c), None)": (
                "you returned 2, expected 256"
            ),
            "def crossover(sizes, cpu_times, other_times):\n"
            "    start = None\n"
            "    for n, c, o in zip(sizes, cpu_times, other_times):\n"
            "        if o > c:\n            start = None\n"
            "        elif start is None:\n            start = n\n"
            "    return start": "equally fast is not faster",
        },
    ),
]
