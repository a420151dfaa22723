"""Answers to the exercises of lesson 01."""

from tests.exercises.answers import Answers, edit

ANSWERS = {}

ANSWERS["01.1"] = Answers(
    right=[
        """
def best_device():
    checked = torch.accelerator.current_accelerator(check_available=True)
    return checked or torch.device('cpu')
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
    return torch.accelerator.current_accelerator() or torch.device('cpu')
""": "ask with check_available=True",
        """
def best_device():
    return torch.device('cuda' if torch.cuda.is_available() else 'cpu')
""": "for a Mac you returned cpu, expected mps",
        """
def best_device():
    if torch.version.cuda:
        return torch.device('cuda')
    return torch.accelerator.current_accelerator(True) or torch.device('cpu')
""": "for a CUDA build without a GPU you returned cuda",
        """
def best_device():
    return str(torch.accelerator.current_accelerator(True) or 'cpu')
""": "expected a torch.device, here cpu",
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
        "first_broken = {'office': 'build'}": "yours is {'office'",
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
    ],
    wrong={
        """
def choose(wish, available):
    return torch.device(wish)
""": "there is no such GPU",
        """
def choose(wish, available):
    wished = torch.device(wish)
    return wished if wished in available else available[0]
""": "the CPU is always there",
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
    },
)
