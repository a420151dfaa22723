"""Answers to the exercises of lesson 01."""

from tests.exercises.answers import SOLUTION, Answers, edit

ANSWERS = {}

BEST_DEVICE = SOLUTION["01.1"]
ANSWERS["01.1"] = Answers(
    right=[
        """
def best_device():
    checked = torch.accelerator.current_accelerator(check_available=True)
    return checked or torch.device('cpu')
""",
        """
def best_device():
    if torch.accelerator.is_available():
        return torch.accelerator.current_accelerator()
    return torch.device('cpu')
""",
        """
from utils import pick_device
def best_device():
    return pick_device()
""",
        """
def best_device():
    found = torch.accelerator.current_accelerator(True)
    return torch.device(found.type, 0) if found else torch.device('cpu')
""",
        """
def best_device():
    if torch.cuda.is_available():
        return torch.device('cuda')
    if torch.backends.mps.is_available():
        return torch.device('mps')
    return torch.device('xpu' if torch.xpu.is_available() else 'cpu')
""",
    ],
    wrong={
        """
def best_device():
    return torch.accelerator.current_accelerator()
""": "for a CPU build you returned None",
        """
def best_device():
    return torch.accelerator.current_accelerator() or torch.device('cpu')
""": "ask with check_available=True",
        """
def best_device():
    return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
""": "for a Mac you returned cpu, expected mps",
        """
def best_device():
    if torch.cuda.is_available():
        return torch.device('cuda')
    return torch.device('mps' if torch.backends.mps.is_available() else 'cpu')
""": "is called xpu",
        """
def best_device():
    if torch.version.cuda:
        return torch.device('cuda')
    return torch.accelerator.current_accelerator(True) or torch.device('cpu')
""": "for a CUDA build without a GPU you returned cuda",
        """
def best_device():
    if torch.cuda.is_available():
        return torch.accelerator.current_accelerator()
    return torch.device('cpu')
""": "for a Mac you returned cpu",
        """
def best_device():
    return str(torch.accelerator.current_accelerator(True) or 'cpu')
""": "expected a torch.device, here cpu",
        """
def best_device():
    return torch.device('cpu')
""": "for a CUDA build with a GPU you returned cpu",
        """
def best_device():
    return torch.accelerator.current_accelerator(True).type
""": "raised AttributeError",
        edit(
            BEST_DEVICE, ("return device\n", "return torch.device(device.type, 1)\n")
        ): ("you returned cpu:1"),
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
ANSWERS["01.2"] = Answers(
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
        edit(FIRST_BROKEN, ("versions", "build")): "compare the driver with the oldest",
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

ANSWERS["01.3"] = Answers(
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
