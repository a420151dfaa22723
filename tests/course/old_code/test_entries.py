"""The rows of lesson 16 and the table of messages: each row has its entry, which says
the same, and knows its old part.
"""

from course.old_code.row import rows
from torch_messages import code, entries

ROWS, ENTRIES = rows(), entries()
# entries that say more, or otherwise, than their row, for all who get the message
OTHERWISE = set(
    """
    amp/cuda-on-cpu amp/fp16-gradients amp/no-inf-checks amp/same-dtype amp/tf32-flag
    amp/tf32-mixed amp/unscale-twice data/collate-none data/equal-size data/forked-cuda
    data/many-workers data/persistent data/pickle data/pin-on-gpu data/pin-without-gpu
    data/worker-exited detection/invalid-string detection/kernels detection/ordinal
    distributed/data-parallel distributed/device-ids distributed/local-rank
    distributed/master-addr distributed/nccl distributed/no-group distributed/no-rank
    distributed/parallel-attribute distributed/port distributed/twice
    distributed/undefined distributed/unused graphs/activity-cuda graphs/branch
    graphs/capturable graphs/compiled-keys graphs/compiled-twice graphs/cuda-time-total
    graphs/jit-script graphs/jit-trace graphs/python-number memory/checkpoint
    memory/cpu-oom memory/cuda-oom memory/device-assert memory/modified memory/none-grad
    memory/scheduler-first movement/batch-left movement/default-tensor-type
    movement/empty-list movement/missing-keys movement/no-data movement/not-compiled
    movement/not-expected movement/numpy-device movement/scalar-double
    movement/scalar-long movement/shapes movement/storage movement/two-gpus
    movement/whole-model streams/event streams/host-wait streams/no-wait tpu/backend
    tpu/could-not-run tpu/device-tpu tpu/is-there tpu/mark-step tpu/not-linked tpu/spawn
    """.split()
)


def test_each_row_has_an_entry():
    assert sorted(set(ROWS) - set(ENTRIES)) == []


def test_an_entry_agrees_with_its_row():
    same = {
        id
        for id, row in ROWS.items()
        if (ENTRIES[id].means, ENTRIES[id].do) == (row.why, row.today)
    }
    assert sorted(set(ROWS) - same) == sorted(OTHERWISE)


def test_what_is_fine_in_a_row_is_fine_in_its_entry():
    fine = {id for id, row in ROWS.items() if row.is_fine}
    assert fine == {entry.id for entry in ENTRIES.values() if entry.fine}


# where the old part of a row is written otherwise than listings, or its part of today
# has the mark, too
WRITTEN = {
    "detection/compare-devices": "x.device == torch.device('cuda')",
    "detection/name": "torch.cuda.get_device_name(0)",
    "detection/ordinal": "x.to('cuda:1')",
    "movement/list-of-layers": "self.layers = [nn.Linear(8, 2)]",
    "streams/cold-run": (
        "start = time.time()\nc = torch.matmul(a, b)\nprint(time.time() - start)"
    ),
    "memory/total-loss": "total_loss += loss",
    "data/many-workers": "DataLoader(data, num_workers=16)",
    "distributed/nothing-starts": "mp.spawn(train, nprocs=torch.cuda.device_count())",
    "distributed/nccl": 'dist.init_process_group("nccl")',
    "distributed/master-addr": "mp.spawn(train, nprocs=2)",
}


def test_code_of_an_entry_fits_the_old_part_of_its_row_and_not_that_of_today():
    wrong = []
    for id, row in ROWS.items():
        entry = ENTRIES[id]
        old, new = (WRITTEN[id], "") if id in WRITTEN else (row.old, row.new)
        if entry.code and not code.fits(entry, code.read(old)):
            wrong.append(f"{id}: not the old part")
        if entry.code and code.fits(entry, code.read(new)):
            wrong.append(f"{id}: also the part of today")
    assert not wrong, "\n".join(wrong)
