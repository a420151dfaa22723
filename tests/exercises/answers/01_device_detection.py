"""Answers to the exercises of lesson 01."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

ANSWERS["01.1"] = Answers(
    right=[
        """
def is_device(text):
    try:
        return isinstance(torch.device(text), torch.device)
    except RuntimeError:
        return False
""",
        """
from contextlib import suppress
def is_device(text):
    with suppress(RuntimeError):
        torch.device(text)
        return True
    return False
""",
    ],
    wrong={
        """
def is_device(text):
    return text in ('cpu', 'cuda', 'mps')
""": "for 'cuda:1' you returned False",
        """
def is_device(text):
    try:
        torch.device(text.lower())
        return True
    except RuntimeError:
        return False
""": "for 'CUDA' you returned True",
        """
def is_device(text):
    return text.split(':')[0] in ('cpu', 'cuda', 'mps', 'xla')
""": "for 'meta'",
        """
def is_device(text):
    torch.device(text)
    return True
""": "Catch it, and return False",
        """
def is_device(text):
    return torch.device(text)
""": "expected True or False",
        """
def is_device(text):
    try:
        torch.ones(1, device=text)
    except Exception:
        return False
    return True
""": "and asks for no hardware",
        r"""
import re
def is_device(text):
    return bool(re.fullmatch(r'(cpu|cuda|mps|xpu|xla|meta|hpu|vulkan)(:\d+)?', text))
""": "for 'cuda:01'",
    },
    equivalent={
        "except RuntimeError: → except Exception:": (
            "For a text torch.device raises no other error."
        ),
    },
)

ANSWERS["01.2"] = Answers(
    right=[
        """
def can_run(capability, arch_list):
    major, minor = capability
    def fits(entry):
        kind, digits = entry.split('_')
        high, low = divmod(int(digits), 10)
        if kind == 'sm':
            return high == major and low <= minor
        return high < major or (high == major and low <= minor)
    return any(fits(entry) for entry in arch_list)
""",
        """
def can_run(capability, arch_list):
    mine = capability[0] * 10 + capability[1]
    own = {f'sm_{n}' for n in range(mine // 10 * 10, mine + 1)}
    ptx = {f'compute_{n}' for n in range(mine + 1)}
    return not (own | ptx).isdisjoint(arch_list)
""",
        r"""
import re
def can_run(capability, arch_list):
    found = re.findall(r'(sm|compute)_(\d+)(\d)', ' '.join(arch_list))
    return bool([k for k, a, b in found if (int(a), int(b)) <= capability
                 and (k == 'compute' or int(a) == capability[0])])
""",
    ],
    wrong={
        """
def can_run(capability, arch_list):
    return 'sm_%d%d' % tuple(capability) in arch_list
""": "higher minor version",
        """
def can_run(capability, arch_list):
    mine = capability[0] * 10 + capability[1]
    return any(int(a.split('_')[1]) <= mine for a in arch_list)
""": "never runs on another major version",
        """
def can_run(capability, arch_list):
    return any(
        a.startswith('sm_') and int(a[3:]) // 10 == capability[0] for a in arch_list
    )
""": "at least 6",
        """
def can_run(capability, arch_list):
    return any(a.startswith('sm_') and int(a[3:-1]) == capability[0]
               and int(a[-1]) <= capability[1] for a in arch_list)
""": "compute_90 is PTX",
        """
def can_run(capability, arch_list):
    return any((int(a.split('_')[1][0]), int(a.split('_')[1][1])) <= tuple(capability)
               and (a[0] == 'c' or int(a.split('_')[1][0]) == capability[0])
               for a in arch_list)
""": "which is newer than 9.0",
        """
def can_run(capability, arch_list):
    def fits(a):
        kind, n = a.split('_')
        return (
            kind == 'compute'
            or int(n[:-1]) == capability[0]
            and int(n[-1]) <= capability[1]
        )
    return any(fits(a) for a in arch_list)
""": "which is older",
        """
def can_run(capability, arch_list):
    def fits(a):
        kind, n = a.split('_')
        version = int(n[:-1]), int(n[-1])
        return version < capability if kind == 'compute' else (
            version[0] == capability[0] and version[1] <= capability[1])
    return any(fits(a) for a in arch_list)
""": "and runs on 9.0 as well",
        """
def can_run(capability, arch_list):
    major, minor = capability
    own = max((int(a[-1]) for a in arch_list if a[:-1] == f'sm_{major}'), default=10)
    ptx = [divmod(int(a[8:]), 10) for a in arch_list if a.startswith('compute')]
    return own <= minor or any(p <= capability for p in ptx)
""": "enough, here sm_80",
        """
def can_run(capability, arch_list):
    major, minor = capability
    own = any(a[:-1] == f'sm_{major}' and int(a[-1]) <= minor for a in arch_list)
    ptx = max((int(a[8:]) for a in arch_list if a.startswith('compute')), default=999)
    return own or ptx <= 10 * major + minor
""": "enough, here compute_80",
        """
def can_run(capability, arch_list):
    major, minor = capability
    names = [f'sm_{major}{k}' for k in range(minor + 2)]
    names += [f'compute_{k}' for k in range(10 * major + minor + 1)]
    return any(a in names for a in arch_list)
""": "sm_87 needs a minor version of at least 7",
        """
def can_run(capability, arch_list):
    mine = capability[0] * 10 + capability[1]
    own = {f'sm_{n}' for n in range(mine // 10 * 10, mine + 1)}
    ptx = {f'compute_{n}' for n in range(mine + 2)}
    return not (own | ptx).isdisjoint(arch_list)
""": "PTX for 8.7 does not run on 8.6",
        """
def can_run(capability, arch_list):
    major, minor = capability
    def fits(a):
        kind, n = a.split('_')
        high, low = divmod(int(n), 10)
        if kind == 'sm':
            return high == major and low <= minor
        return high < major or (high, low) == capability
    return any(fits(a) for a in arch_list)
""": "8.9 is newer than 8.6",
        """
def can_run(capability, arch_list):
    for a in arch_list:
        kind, n = a.split('_')
        version = int(n[:-1]), int(n[-1])
        return version <= capability and (
            kind == 'compute' or version[0] == capability[0]
        )
    return False
""": "sm_86 runs on 8.9",
    },
)

FIRST_BROKEN = """
first_broken = dict(
    office='build',
    docker='driver',
    cluster='visible',
    server='versions',
    notebook='gpu',
    attic='kernels',
)
"""
ANSWERS["01.3"] = Answers(
    right=[
        """
first_broken = dict(
    attic='kernels',
    notebook='gpu',
    server='versions',
    cluster='visible',
    docker='driver',
    office='build',
)
""",
        """
machines = 'office docker cluster server notebook attic'.split()
first_broken = dict(zip(machines, 'build driver visible versions gpu kernels'.split()))
""",
    ],
    wrong={
        edit(FIRST_BROKEN, ("build", "driver")): "the suffix of PyTorch names the CPU",
        edit(FIRST_BROKEN, ("versions", "build")): "compare the driver with OLDEST",
        edit(FIRST_BROKEN, ("'gpu'", "'build'")): "without a card neither would help",
        edit(FIRST_BROKEN, ("build", "cable")): "expected one of gpu, driver",
        "first_broken = {'office': 'build'}": "yours has office",
        "first_broken = ['build', 'driver', 'visible', 'versions', 'gpu', 'kernels']": (
            "expected a dict of machine"
        ),
        """
first_broken = dict.fromkeys(
    'office docker cluster server notebook attic'.split(), 'build'
)
""": "nothing in the container can speak to it",
        edit(FIRST_BROKEN, ("='gpu'", "=...")): "not answered yet",
    },
)

ANSWERS["01.4"] = Answers(
    right=[
        """
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type == 'cpu' or wished in available:
        return wished
    if wished.index is None and wished.type in [d.type for d in available]:
        return wished
    return available[0] if available else torch.device('cpu')
""",
        """
def choose(wish, available):
    cpu = torch.device('cpu')
    there = [str(d) for d in available]
    if wish.startswith('cpu'):
        return cpu
    fits = [d for d in there if d == wish or d.split(':')[0] == wish]
    return torch.device((fits + there + ['cpu'])[0])
""",
        """
def choose(wish, available):
    wished = torch.device(wish)
    cpu = torch.device('cpu')
    def fit(d):
        return d.type == wished.type and (
            wished.index is None or d.index == wished.index
        )

    return (
        cpu
        if wished.type == 'cpu'
        else next(filter(fit, available), next(iter(available), cpu))
    )
""",
    ],
    wrong={
        """
def choose(wish, available):
    return torch.device(wish)
""": "there is no such GPU",
        """
def choose(wish, available):
    return wish
""": "expected a torch.device",
        """
def choose(wish, available):
    return available[0] if available else torch.device('cpu')
""": "expected cuda:1: it is there",
        """
def choose(wish, available):
    wished = torch.device(wish)
    return wished if wished in available else available[0]
""": "the CPU is always there",
        """
def choose(wish, available):
    wished = torch.device(wish)
    return wished if wished.type == 'cpu' or wished in available else available[0]
""": "raised IndexError",
        """
def choose(wish, available):
    wished = torch.device(wish)
    there = wished.type in [d.type for d in available]
    return wished if there else torch.device('cpu')
""": "there is no such GPU",
        """
def choose(wish, available):
    wished = torch.device(wish)
    return wished if wished in available else torch.device('cpu')
""": "so the first accelerator",
        """
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type == 'cpu' or wished in available:
        return wished
    return available[0] if available else torch.device('cpu')
""": "a fair answer to a wish without an index",
        """
def choose(wish, available):
    for d in [*available, torch.device('cpu')]:
        if wish.startswith('cpu') or str(d).startswith(wish):
            return torch.device('cpu') if wish.startswith('cpu') else d
    return available[0] if available else torch.device('cpu')
""": "cuda:10 is not cuda:1",
        """
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type == 'cpu' or wished in available:
        return wished
    same = [d for d in available if d.type == wished.type]
    return (same or available or [torch.device('cpu')])[0]
""": "the first of the list, of whatever type",
        """
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type != 'cpu' and wished.index is None:
        wished = torch.device(wished.type, 0)
    if wished.type == 'cpu' or wished in available:
        return wished
    return available[0] if available else torch.device('cpu')
""": "whatever its number",
        """
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type == 'cpu':
        return wished
    for d in available:
        if d == wished or (wish == 'cuda' and d.type == 'cuda'):
            return d
    return available[0] if available else torch.device('cpu')
""": "for 'xpu' and",
        """
def choose(wish, available):
    wished = torch.device(wish)
    if wished.type == 'cpu':
        return wished
    for d in available:
        if d.type == wished.type and (not wished.index or d.index == wished.index):
            return d
    return available[0] if available else torch.device('cpu')
""": "0 is an index, too",
    },
)

CROSSOVER = SOLUTION["01.5"]
ANSWERS["01.5"] = Answers(
    right=[
        """
def crossover(sizes, cpu_times, other_times):
    wins = [o < c for c, o in zip(cpu_times, other_times)]
    return next((size for i, size in enumerate(sizes) if all(wins[i:])), None)
""",
        """
def crossover(sizes, cpu_times, other_times):
    best = None
    for i in reversed(range(len(sizes))):
        if other_times[i] >= cpu_times[i]:
            break
        best = sizes[i]
    return best
""",
        """
import numpy as np
def crossover(sizes, cpu_times, other_times):
    lost = np.flatnonzero(np.array(other_times) >= np.array(cpu_times))
    first = lost[-1] + 1 if lost.size else 0
    return np.array(sizes)[first] if first < len(sizes) else None
""",
        """
def crossover(sizes, cpu_times, other_times):
    if not sizes or other_times[-1] >= cpu_times[-1]:
        return None
    before = crossover(sizes[:-1], cpu_times[:-1], other_times[:-1])
    return sizes[-1] if before is None else before
""",
    ],
    wrong={
        """
def crossover(sizes, cpu_times, other_times):
    return next(n for n, c, o in zip(sizes, cpu_times, other_times) if o < c)
""": "raised StopIteration",
        """
def crossover(sizes, cpu_times, other_times):
    return next((n for n, c, o in zip(sizes, cpu_times, other_times) if o < c), None)
""": "does not last",
        """
def crossover(sizes, cpu_times, other_times):
    return next(
        (i for i, (c, o) in enumerate(zip(cpu_times, other_times)) if o < c), None
    )
""": "you returned 2, expected 256",
        edit(
            CROSSOVER,
            ("size, cpu, other", "n, c, o"),
            ("other >= cpu", "o > c"),
            (" size\n", " n\n"),
        ): "equally fast is not faster",
        """
def crossover(sizes, cpu_times, other_times):
    if other_times[-1] >= cpu_times[-1]:
        return None
    i = len(sizes) - 1
    while other_times[i - 1] < cpu_times[i - 1]:
        i -= 1
    return sizes[i]
""": "IndexError",
        """
def crossover(sizes, cpu_times, other_times):
    lost = [n for n, c, o in zip(sizes, cpu_times, other_times) if o >= c]
    return lost[-1] if lost else None
""": "you returned 64, expected 256",
        """
def crossover(sizes, cpu_times, other_times):
    wins = [n for n, c, o in zip(sizes, cpu_times, other_times) if o < c]
    return wins[-1] if wins else None
""": "you returned 256, expected 16",
        """
def crossover(sizes, cpu_times, other_times):
    wins = [n for n, c, o in zip(sizes, cpu_times, other_times) if o < c]
    return wins[0] if wins else None
""": "does not last",
    },
)
