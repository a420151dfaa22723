"""Exercises of lesson 12."""

import math
import pathlib
import tempfile

import torch
import torch.distributed as dist

from course import expect
from course.answers import Wrong, call, state
from course.exercises import Exercise
from exercises.doubles.files import SYNCS, Moment, held, watched
from simulate.fake import fake_processes

WIDTH = 8
ONCE = ("all_gather", "reduce_scatter")


class Network(torch.nn.Module):
    """An embedding, some blocks, and a head."""

    def __init__(self, count):
        super().__init__()
        self.embedding = torch.nn.Embedding(32, WIDTH)
        self.layers = torch.nn.ModuleList(self.block() for _ in range(count))
        self.head = torch.nn.Linear(WIDTH, 4)

    @staticmethod
    def block():
        up, down = torch.nn.Linear(WIDTH, 16), torch.nn.Linear(16, WIDTH)
        return torch.nn.Sequential(up, torch.nn.ReLU(), down)

    def forward(self, words):
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def check_shard_blocks(answer):
    if dist.is_initialized():
        raise Wrong(
            "a process group is open in this kernel: first call"
            " torch.distributed.destroy_process_group()"
        )
    for mesh_shape, count in (((4,), 3), ((2, 4), 2)):
        with fake_processes(math.prod(mesh_shape)) as collectives:
            names = ("replicate", "shard")[-len(mesh_shape) :]
            mesh = dist.init_device_mesh("cpu", mesh_shape, mesh_dim_names=names)
            model = Network(count)
            size = sum(p.nbytes for p in model.layers[0].parameters())
            over = " × ".join(map(str, mesh_shape))
            shown = f"{count} blocks and a mesh of {over} processes"
            try:
                call(answer, model, mesh, shown=shown, changes=[model])
            except Wrong as error:
                if "containers" in str(error.__cause__):
                    raise Wrong(
                        "model.layers has no forward of its own: shard its blocks, one"
                        " by one"
                    ) from error
                if hasattr(model, "unshard"):  # what PyTorch says then, changes
                    raise Wrong(
                        "the model was sharded before its blocks: blocks first"
                    ) from error
                raise
            fault = next(_faults_of_shards(model, mesh, over, collectives, size), None)
            if fault:
                raise Wrong(fault)


def _faults_of_shards(model, mesh, over, collectives, size):
    """What is wrong, the cause before what follows from it. over: the mesh in words.
    size: bytes of a block in float32.
    """
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    count = len(model.layers)
    groups = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not groups:
        yield "nothing of the model is sharded: fully_shard changes a module in place"
    for number, block in enumerate(model.layers):
        if block not in groups:
            yield (
                f"block {number} is no group of its own, so it is gathered together"
                " with others"
            )
    if not isinstance(model.embedding.weight, DTensor):
        yield (
            "a parameter that is in no block is still whole: shard the model itself,"
            " too, after its blocks"
        )
    if len(groups) > count + 1:
        yield f"{len(groups)} groups: one for each block, and one for the rest"
    for name, p in model.named_parameters():
        if p.device_mesh.shape != mesh.shape:
            yield f"{name} is not sharded over {over} processes: pass mesh=mesh"
        if not p.requires_grad:
            yield f"{name} does not require a gradient any more"
        if p.dtype != torch.float32:
            yield f"{name} is kept in {p.dtype}: the shards stay in float32"
    yield from _faults_of_formats(model, collectives, size)


def _faults_of_formats(model, collectives, size):
    count, half = len(model.layers), size // 2
    try:
        out = model(torch.zeros(1, dtype=torch.int64))
    except RuntimeError as error:
        yield f"the model does not run: the same policy in each call ({error})"
        return
    if out.dtype != torch.bfloat16:
        yield f"the model computes in {out.dtype}: that is param_dtype"
    out.float().sum().backward()
    sent = {name: [n for who, n, _ in collectives if who == name] for name in ONCE}
    gathered, reduced = sent["all_gather"], sent["reduce_scatter"]
    if half not in gathered:
        yield (
            f"no block is gathered in bfloat16: it has {half:,} bytes then, and you"
            f" gather {sorted(set(gathered))}; pass mp_policy in each call"
        )
    if gathered.count(half) < 2 * count:
        yield (
            "not every block is gathered in bfloat16 before each use: the same policy"
            " in each call, and reshard_after_forward as it is"
        )
    if reduced.count(size) < count:
        yield (
            f"gradients of a block in float32 have {size:,} bytes, and you reduce"
            f" {sorted(set(reduced))}: that is reduce_dtype"
        )
    if size in gathered or half in reduced:
        yield "one group has another policy than the others"


KEYS = ("model", "optimizer", "schedule", "rng", "done")


def make_run(seed):
    """A model with dropout, AdamW, and a rate that falls with each step."""
    torch.manual_seed(seed)
    layers = torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n))
    return model, optimizer, schedule


def take_steps(run, count):
    model, optimizer, schedule = run
    for step in range(count):
        optimizer.zero_grad()
        inputs = torch.arange(12.0).reshape(4, 3) + step
        model(inputs).square().mean().backward()
        optimizer.step()
        schedule.step()


def check_snapshot(answer):
    for done in (3, 7):
        with torch.random.fork_rng(devices=[]):
            _snapshot_of(answer, done)


def _snapshot_of(answer, done):
    run = make_run(done)
    take_steps(run, done)
    shown, rng = f"a run with {done} steps done", torch.get_rng_state()
    got = call(answer, *run, done, shown=shown)
    expect.instance(got, dict, shown, "a dict with the keys " + ", ".join(KEYS))
    missing = [key for key in KEYS if key not in got]
    if missing:
        raise Wrong(f"for {shown} the dict has no {missing[0]!r}; asked for: {KEYS}")
    if not torch.equal(torch.get_rng_state(), rng):
        raise Wrong("your function drew random numbers: torch.get_rng_state() does not")
    before = {key: state(got[key]) for key in KEYS}
    take_steps(run, 2)
    for key in KEYS:
        if state(got[key]) != before[key]:
            raise Wrong(
                f"the training went on, and {key!r} in the dict changed with it:"
                " state_dict() holds the tensors themselves, so copy them (deepcopy)"
            )
    expect.equal(got["done"], done, shown, "the steps that are done", said="done is")
    _go_on(got, run, shown)


def _go_on(got, run, shown):
    """Load the snapshot into another run, take two steps, and compare."""
    other = make_run(99)
    for key, part in zip(KEYS, other, strict=False):
        try:
            part.load_state_dict(got[key])
        except Exception as error:
            raise Wrong(
                f"load_state_dict does not take what stands under {key!r}"
                f" ({type(error).__name__}): that is what state_dict() returns"
            ) from error
    try:
        torch.set_rng_state(got["rng"])
    except Exception as error:
        raise Wrong(
            "torch.set_rng_state does not take what stands under 'rng'"
        ) from error
    take_steps(other, 2)
    for a, b in zip(run[0].parameters(), other[0].parameters(), strict=True):
        if not torch.equal(a, b):
            raise Wrong(
                f"for {shown}: a run that goes on from the dict gets other weights than"
                " the one that was not interrupted"
            )


# steps, batch, size, samples
RUNS = """
8 6 2 22 | 9 6 3 22 | 4 6 1 22 | 1 4 3 22 | 11 4 3 22 | 0 5 2 22 | 8 6 4 22 | 5 2 3 10
4 2 3 10 | 12 50 3 10 | 7 1 2 5 | 3 1 1 1
"""


def check_rest_of_epoch(answer):
    for run in RUNS.replace("\n", "|").strip("|").split("|"):
        steps, batch, size, samples = map(int, run.split())

        # 7 has no factor in common with these numbers of samples, so each comes once
        def order(epoch, samples=samples):
            return [(7 * n + 3 * epoch) % samples for n in range(samples)]

        for rank in range(size):
            _judge_rest(answer, steps, order, batch, rank, size)


def _judge_rest(answer, steps, order, batch, rank, size):
    samples = len(order(0))
    epoch, done = divmod(steps, -(-samples // batch))
    shown = f"{steps=}, {batch=}, {rank=}, {size=} and {samples} samples an epoch"
    got = call(answer, steps, order, batch, rank, size, shown=shown)
    asked = "a list of lists, one for each step"
    expect.instance(got, (list, tuple), shown, asked)
    got = [
        list(expect.instance(expect.listed(part), (list, tuple), shown, asked))
        for part in got
    ]

    def rest(epoch):
        """The batches of all ranks."""
        firsts = range(done * batch, samples, batch)
        return [order(epoch)[first : first + batch] for first in firsts]

    batches = rest(epoch)
    expected = [part[rank::size] for part in batches]
    pieces = [
        part[rank * len(part) // size : (rank + 1) * len(part) // size]
        for part in batches
    ]
    slips = [
        (
            pieces,
            "a rank takes every size-th sample of a step, not a part in one piece",
        ),
        ([part[rank::size] for part in rest(0)], "you took the order of epoch 0"),
        (
            [part for part in expected if part],
            "a step in which this rank has no sample is an empty list",
        ),
        ([], "the epoch before has just ended, so this is all of the next one"),
        (batches, "these are the samples of all ranks"),
    ]
    slip = f"of each step this rank takes number {rank}, {rank + size}, …"
    if len(got) != len(expected):
        slip = f"{len(expected)} steps remain, the last of which may be smaller"
    if sum(got, []) == sum(batches, [])[rank::size]:
        slip = "the samples are divided within each step"
    slip = next((text for value, text in slips if got == value), slip)
    why = f"the run is in epoch {epoch}, steps done: {done}; {slip}"
    expect.equal(got, expected, shown, why)


STEPS = (
    "first the files, then their name: write it beside latest, let fsync bring it to"
    " the disk, then os.replace, which renames over the old file in one step"
)


def named(home):
    """The folder that `latest` names, None if there is no `latest`."""
    name = held(home / "latest")
    return name and name.decode(errors="replace").strip()


def whole(place):
    return all(held(place / f"rank{rank}.pt") == b"whole" for rank in (0, 1))


def check_save(answer):
    for old in ("step-20", None):
        with tempfile.TemporaryDirectory() as name:
            home = pathlib.Path(name)
            if old:
                (home / old).mkdir()
                for rank in (0, 1):
                    (home / old / f"rank{rank}.pt").write_bytes(b"whole")
                (home / "latest").write_text(old, encoding="utf-8")
            _save_well(answer, home, old)
            _save_badly(answer, home)


def _save_well(answer, home, old):
    shown = f"save(write, home, 40), {'after' if old else 'without'} an earlier one"
    latest = home / "latest"
    before, inode = held(latest), latest.stat().st_ino if old else None
    with watched(latest, answer) as moments:

        def write(place):
            (place / "rank0.pt").write_bytes(b"whole")
            moments.append(Moment("write", held(latest)))
            (place / "rank1.pt").write_bytes(b"whole")

        call(answer, write, home, 40, shown=shown)
    if named(home) != "step-40":
        raise Wrong(f"after {shown}: latest names {named(home)!r}, expected 'step-40'")
    fault = next(_faults_of_save(home, moments, old, before), None)
    if not fault and inode == latest.stat().st_ino:
        fault = "the name was written into the old file, and a crash leaves half"
    if fault:
        raise Wrong(f"after {shown}: {fault}; {STEPS}")


def _faults_of_save(home, moments, old, before):
    syncs = [moment for moment in moments if moment.call in SYNCS]
    beside = [moment for moment in syncs if moment.synced is not None]
    size = len(held(home / "latest"))
    if not whole(home / "step-40"):
        yield "the folder step-40 does not hold the files: write(place) puts them there"
    if old and not whole(home / old):
        yield f"{old} is not whole any more, and was named until the end"
    if old and any(moment.held is None for moment in moments):
        yield "for a moment there was no latest: os.replace has none"
    if any(moment.held != before for moment in moments if moment.call == "write"):
        yield "latest was written before all files were there, and names half of them"
    if not syncs or syncs[0].held != before:
        yield "os.fsync was not called before the rename"
    if syncs and not beside:
        yield "the file renamed is not in the folder of latest"
    if beside and beside[0].synced != size:
        yield (
            f"at os.fsync the file had {beside[0].synced} of {size} bytes, the others"
            " not yet, or in Python's buffer: write, file.flush(), os.fsync"
        )


def _save_badly(answer, home):
    """Two saves that fail, and one that goes well, over the half that they left."""
    for error in (OSError("no space left on device"), ValueError("cannot be saved")):

        def write(place, error=error):
            (place / "rank0.pt").write_bytes(b"half")
            raise error

        try:
            answer(write, home, 60)
        except Exception as raised:
            if error not in (raised, raised.__cause__):
                raise Wrong(
                    f"write raised {error!r}, and save {raised!r}: let the error"
                    " through, and let half a folder stop no later save"
                ) from raised
        else:
            raise Wrong(f"write raised {error!r}, but save did not: nobody will notice")
        if named(home) != "step-40" or not whole(home / "step-40"):
            raise Wrong(
                f"write failed in the middle of step-60, and latest names"
                f" {named(home)!r}, expected 'step-40', and that whole"
            )

    def write_well(place):
        for rank in (0, 1):
            (place / f"rank{rank}.pt").write_bytes(b"whole")

    shown = "a save after two that failed"
    call(answer, write_well, home, 60, shown=shown)
    expect.equal(named(home), "step-60", shown, said="latest names")


ALL_REDUCE, BARRIER = ("gloo:all_reduce", [[64]]), ("gloo:barrier", [])
SHORT, GATHER = ("gloo:all_reduce", [[32]]), ("gloo:all_gather", [[64]])


def record(first, *calls):
    """Entries of a flight recorder, numbered from `first`."""
    keys = "collective_seq_id", "profiling_name", "input_sizes"
    return [
        dict(zip(keys, (first + n, *call), strict=True)) for n, call in enumerate(calls)
    ]


FOUR = [ALL_REDUCE] * 4
# records of all ranks, expected, why
HANGS = [
    (
        [record(1, *FOUR), record(1, *FOUR), record(1, *FOUR[1:], BARRIER)],
        (4, [2]),
        "rank 2 called a barrier where the others called an all-reduce",
    ),
    (
        [record(1, *FOUR), record(1, *FOUR[1:]), record(1, *FOUR)],
        (4, [1]),
        "rank 1 never called number 4",
    ),
    (
        [record(5, *FOUR), record(7, *FOUR), record(6, *FOUR), record(6, *FOUR)],
        (9, [0]),
        "rank 0 ends at number 8; entries before 5, 7 and 6 were dropped",
    ),
    (
        [record(8, *FOUR), record(8, *FOUR), record(9, *FOUR[1:])],
        None,
        "all end at number 11, with the same call",
    ),
    (
        [record(3, *FOUR, GATHER), record(3, *FOUR, SHORT), record(7, GATHER)],
        (7, [1]),
        "rank 1 reduces at number 7, where the others gather",
    ),
    (
        [record(3, *FOUR), record(3, *FOUR[1:], SHORT), record(3, *FOUR)],
        (6, [1]),
        "the names are alike, the sizes differ",
    ),
    (
        [record(1, *FOUR, GATHER), *[record(2, *FOUR[2:])] * 3],
        (4, [1, 2, 3]),
        "three ranks end at number 3: most is not right here",
    ),
]


def check_who_holds_up(answer):
    for records, expected, why in HANGS:
        ends = [(part[0]["collective_seq_id"], len(part)) for part in records]
        shown = "records of (first number, entries) " + ", ".join(map(str, ends))
        got = call(answer, records, shown=shown)
        if got is not None:
            number, ranks = _pair(got, shown)
            got = number, ranks
        slips = [
            (expected and (expected[0] - 1, expected[1]), "that one is still alike"),
            (expected and (expected[0], expected[1][:1]), "name all such ranks"),
        ]
        why = next((f"{why}; {text}" for value, text in slips if got == value), why)
        expect.equal(got, expected, shown, why)


def _pair(got, shown):
    asked = "a pair: a number, and a list of ranks"
    pair = expect.instance(expect.listed(got), (list, tuple), shown, asked)
    if len(pair) != 2:
        raise Wrong(f"for {shown} you returned {got!r}: asked is {asked}")
    ranks = expect.instance(expect.listed(pair[1]), (list, tuple), shown, asked)
    return pair[0], list(ranks)


EXERCISES = [
    Exercise(
        number="12.0",
        title="What a checkpoint holds",
        name="snapshot",
        stars=1,
        check=check_snapshot,
        hints=[
            "model, optimizer and schedule have state_dict(); torch.get_rng_state().",
            (
                "state_dict() returns the tensors that the training changes, not copies"
                " of them."
            ),
            "copy.deepcopy(…) of the whole dict copies them all.",
        ],
        solution="""
import copy

def snapshot(model, optimizer, schedule, done):
    run = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    run["schedule"] = schedule.state_dict()
    run["rng"] = torch.get_rng_state()
    run["done"] = done
    return copy.deepcopy(run)
""",
        praise=(
            "On a GPU dropout draws from the GPU's generator, so save"
            " torch.cuda.get_rng_state(), too, for each rank. A copy in the host's"
            " memory is what async_save makes, as well."
        ),
    ),
    Exercise(
        number="12.1",
        title="One block at a time, in bfloat16",
        name="shard_blocks",
        stars=1,
        check=check_shard_blocks,
        hints=[
            (
                "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard."
                " The latter changes the module that it gets."
            ),
            (
                "for block in model.layers: fully_shard(block, mesh=mesh,"
                " mp_policy=policy). What is still whole then?"
            ),
            "After the loop, the same call for the model takes what is in no block.",
        ],
        solution="""
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

def shard_blocks(model, mesh):
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
""",
        praise=(
            "The shards stay in float32, for the optimizer. Over a mesh of two"
            " dimensions the same lines give hybrid sharding: gathers stay within a row"
            " of the mesh, and only gradients, already cut, cross it."
        ),
    ),
    Exercise(
        number="12.2",
        title="Save atomically",
        name="save",
        stars=2,
        check=check_save,
        hints=[
            (
                "What would a start find if the process died before, between and after"
                " your calls? Which file decides which checkpoint it loads?"
            ),
            (
                "Make the folder (it may be there, half full), let write fill it. Only"
                " then may latest change, and at once."
            ),
            (
                "latest is a file like run.pt of the recipe: write the name beside it,"
                " flush, os.fsync, os.replace."
            ),
        ],
        solution="""
import os

def save(write, home, step):
    place = home / f"step-{step}"
    place.mkdir(exist_ok=True)
    write(place)
    with open(home / "latest.new", "w") as file:
        file.write(place.name)
        file.flush()
        os.fsync(file.fileno())
    os.replace(home / "latest.new", home / "latest")
""",
        praise=(
            "os.replace cannot put a folder in the place of a full one; the name of a"
            " folder it can. A careful program on Linux also calls fsync on home, so"
            " that the new latest survives a power cut."
        ),
    ),
    Exercise(
        number="12.3",
        title="Who holds the job up?",
        name="who_holds_up",
        stars=2,
        check=check_who_holds_up,
        hints=[
            (
                "Make a dict of each list: number → (name, sizes). The first number"
                " that no list has dropped is the largest of the first ones."
            ),
            (
                "Go on from there, number by number: who has none? Nobody has one: the"
                " lists end alike."
            ),
            (
                "Otherwise compare the calls of that number: most ranks are right, such"
                " as max(calls, key=calls.count)."
            ),
        ],
        solution="""
def who_holds_up(records):
    lists = [
        {e["collective_seq_id"]: (e["profiling_name"], e["input_sizes"]) for e in part}
        for part in records
    ]
    number = max(min(calls) for calls in lists)
    while any(number in calls for calls in lists):
        row = [calls.get(number) for calls in lists]
        usual = max(row, key=row.count)
        ranks = [r for r, call in enumerate(row) if call is None]
        ranks = ranks or [r for r, call in enumerate(row) if call != usual]
        if ranks:
            return number, ranks
        number += 1
    return None
""",
        praise=(
            "torchfrtrace does this for each process group. What it cannot know is why:"
            " the line of the call, and the stack of the rank, say that."
        ),
    ),
    Exercise(
        number="12.4",
        title="The rest of an epoch",
        name="rest_of_epoch",
        stars=2,
        check=check_rest_of_epoch,
        hints=[
            (
                "First find the epoch and the step in it. An epoch has as many steps as"
                " batches, the last smaller one too."
            ),
            (
                "divmod(steps, steps_per_epoch) gives both. The samples before step *"
                " batch are done."
            ),
            "Cut what remains into batches first, then take [rank::size] of each.",
        ],
        solution="""
def rest_of_epoch(steps, order, batch, rank, size):
    per_epoch = -(-len(order(0)) // batch)  # rounded up
    epoch, done = divmod(steps, per_epoch)
    samples = order(epoch)
    return [
        samples[first : first + batch][rank::size]
        for first in range(done * batch, len(samples), batch)
    ]
""",
        praise=(
            "Nothing in it depends on how many processes there were before. That is"
            " what lets a job go on with fewer: the global batches stay the same, only"
            " their division changes."
        ),
    ),
]
