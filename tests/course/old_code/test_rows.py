"""Lesson 16: enough rows of every kind, every old form of the source tutorials,
headings that quote real messages.
"""

import re

import nbformat

from course import grammar, old_code
from course.old_code.row import LESSON, PATTERNS
from tests.conftest import ROOT, text_of
from tools.lessons.parts import folded

CELLS = nbformat.read(LESSON, as_version=4).cells
GROUPS = {
    "detection",
    "movement",
    "streams",
    "memory",
    "amp",
    "data",
    "distributed",
    "graphs",
    "tpu",
}


def slug_of(cell):
    found = (
        re.search(r"^%%today (\S+): ", cell.source, re.M)
        if cell.cell_type == "code"
        else None
    )
    return found and found[1]


ROWS = old_code.rows()
CELL = {slug_of(cell): cell for cell in CELLS if slug_of(cell)}
LIVE = [cell for cell in CELL.values() if grammar.header(cell.source) is None]


def test_there_are_enough_rows_that_run_everywhere():
    assert len(LIVE) >= 130
    # no name twice
    assert len(ROWS) == len([cell for cell in CELLS if slug_of(cell)])


def test_all_groups_and_verdicts_occur():
    assert {row.group for row in ROWS.values()} == GROUPS
    assert {row.expected[""].word for row in ROWS.values()} == set(old_code.SIGNS)


def test_the_look_up_comes_first():
    code = [cell for cell in CELLS if cell.cell_type == "code"]
    assert [cell.id for cell in code[:2]] == ["setup", "recipe"]
    assert "look_up(" in code[1].source


LOUD = ("raises", "warns")


def test_a_section_of_rows_is_for_looking_up():
    """Folded rows of one line each, those with a message first, below a table."""
    wrong = []
    for section in "5 6 7 8 9 10".split():
        in_section = [row for row in ROWS.values() if row.section == section]
        loud = [row.expected[""].word in LOUD for row in in_section]
        # there first what runs everywhere
        if section != "10" and loud != sorted(loud, reverse=True):
            wrong.append(f"section {section}: first what raises or warns")
        for row in in_section:
            above = CELLS[CELLS.index(CELL[row.slug]) - 1].source
            if not re.fullmatch(r"### .+\n\n.+", above):
                wrong.append(f"{row.slug}: above it a heading and one line")
            elif len(above.split("\n\n")[1]) >= 300:
                wrong.append(f"{row.slug}: its sentence is long")
            if not folded(CELL[row.slug]):
                wrong.append(f"{row.slug}: not folded")
    assert not wrong, "\n".join(wrong)
    tables = [cell.source for cell in CELLS if "old_code.index(" in cell.source]
    groups = {group for source in tables for group in re.findall(r'"(\w+)"', source)}
    assert groups == GROUPS


def test_a_row_says_why_and_what_it_announces():
    wrong = []
    for row in ROWS.values():
        if not row.because or len(row.because) >= 110 or row.because.endswith("."):
            wrong.append(f"{row.slug}: `because` is a short clause")
        for verdict in row.expected.values():
            if (verdict.pattern is not None) != (verdict.word in LOUD):
                wrong.append(f"{row.slug}: a pattern for what raises or warns alone")
            elif verdict.pattern and not re.search(r"\w{3}", verdict.pattern):
                wrong.append(f"{row.slug}: the pattern {verdict.pattern!r} says little")
    assert not wrong, "\n".join(wrong)


def test_the_stored_output_is_what_was_announced():
    wrong = []
    for cell in LIVE:
        slug, word = slug_of(cell), text_of(cell).split()[1]
        announced = {verdict.word for verdict in ROWS[slug].expected.values()}
        if word not in announced:
            wrong.append(f"{slug}: shown as {word}, announced as {announced}")
    assert not wrong, "\n".join(wrong)


def test_a_message_in_a_heading_is_one():
    """What stands in the heading of a row that raises or warns was seen in its stored
    output, or, for another version or machine, in a pattern that the row asserts there;
    or it is a name of its old part.
    """
    for slug, row in ROWS.items():
        if row.expected[""].word not in LOUD:
            continue
        shown = " ".join(text_of(CELL[slug]).split())
        patterns = " ".join(row.patterns()).replace("\\", "")
        known = f"{shown} {patterns} {row.old} {row.because}"
        quoted = re.findall(r"`([^`]+)`", row.heading)
        words = [re.sub(r"\(.*|=.*", "", fragment) for fragment in quoted]
        assert any(
            fragment in known or all(part in known for part in word.split("."))
            for fragment, word in zip(quoted, words, strict=True)
        ), (slug, quoted)


def test_what_plays_a_part_is_not_shown_as_a_cure():
    scaffolding = "init_gpu_context|FakeTensorMode|HashStore|register_package"
    for row in ROWS.values():
        assert not re.search(scaffolding, row.old + row.new), row.slug


def test_each_named_pattern_is_used():
    used = {pattern for row in ROWS.values() for pattern in row.patterns()}
    assert set(PATTERNS.values()) <= used


# Forms that old tutorials print and that are wrong or out of date: what must stand in
# an old part, and what in the new part of the same row.
OLD_TO_NOW = {
    "one cold run": ("began = time.perf_counter()\ndouble(x)", "benchmark.Timer"),
    "xla_device() is not None": (
        "xm.xla_device() is not None",
        "torch_xla.real_devices()",
    ),
    "mark_step": ("xm.mark_step()", "torch_xla.sync()"),
    "wait=True": ("torch_xla.sync(wait=True)", "xm.wait_device_ops()"),
    "tpu": ('torch.device("tpu")', 'torch.device("xla")'),
    "attributes": ("net.mean = torch.zeros(8)", "register_buffer"),
    "no_grad": ("torch.no_grad()", "torch.inference_mode()"),
    "autocast": ("torch.cuda.amp.autocast()", "torch.autocast("),
    "GradScaler": ("torch.cuda.amp.GradScaler()", "torch.amp.GradScaler("),
    "spawn": ("xmp.spawn(print, nprocs=8)", "torch_xla.launch"),
    "ParallelLoader": ("pl.ParallelLoader(", "pl.MpDeviceLoader("),
    "device(0)": ("torch.device(0)", "device"),
    "torch.Tensor": ("torch.Tensor([", "torch.tensor(["),
    "streams": ("torch.cuda.synchronize()", "wait_stream"),
    "memory_cached": (
        "torch.cuda.memory_cached()",
        "torch.cuda.memory_reserved()",
    ),
    "no sampler": ("batch_size=4, shuffle=True)", "sampler=sampler)"),
    "data on the GPU": ("batch_size=4, pin_memory=True)", "big.split(4)"),
    "torch.cuda.os": ("torch.cuda.os.cpu_count()", "os.cpu_count()"),
    "private names": ("_utils.pin_memory.pin_memory(x)", "x.pin_memory()"),
    "max_memory_cached": (
        "torch.cuda.max_memory_cached()",
        "torch.cuda.max_memory_reserved()",
    ),
    "set_device": (
        "torch.cuda.set_device(torch.cuda.device_count())",
        "if torch.cuda.device_count() > 1:",
    ),
    "torch.Tensor on a GPU": (
        'torch.Tensor([1.0, 2.0], device="cuda")',
        "torch.tensor([1.0, 2.0], device=device)",
    ),
    "MASTER_ADDR": ("rank=0, world_size=1)", 'init_method="tcp://127.0.0.1:0"'),
    "device_ids": ("device_ids=[0]", "DistributedDataParallel(net)"),
    "no process": (
        "nprocs=torch.cuda.device_count()",
        "nprocs=max(1, torch.cuda.device_count())",
    ),
    "optimizer_step": ("xm.optimizer_step(", ".step()\ntorch_xla.sync()"),
    "Adam": (
        "torch.optim.Adam(net.parameters())\nwith torch.cuda.graph",
        "capturable=True",
    ),
    "wrapped first": ("nn.DataParallel(net).to(device)", "net = net.to(device)"),
    "compiled twice": ("torch.compile(first", "second = torch.compile(net"),
    "cuda_time_total": (
        'sort_by="cuda_time_total"',
        'sort_by="device_time_total"',
    ),
    "activities": ("ProfilerActivity.CUDA", "supported_activities()"),
    "id": ("id(y) != id(x)", "data_ptr()"),
    "DataParallel": ("nn.DataParallel(net)", "DistributedDataParallel"),
    "set_to_none": ("zero_grad(set_to_none=True)", "zero_grad()"),
    "undefined names": (
        "rank=rank, world_size=world_size",
        'init_process_group("gloo")',
    ),
    "set_epoch": ("DistributedSampler(range(8)", "set_epoch"),
    "local_rank": ("--local_rank", 'os.environ["LOCAL_RANK"]'),
    "half": (".half()", "nn.Parameter(torch.ones(1))"),
    "clipping": (
        "clip_grad_norm_(net.parameters(), 1.0)\nscaler.unscale_",
        "unscale_(optimizer)\nnn.utils.clip",
    ),
    "capture": ('    data = torch.ones(4, device="cuda")', "data.copy_("),
    "weights": ('torch.load("net.pt")', "map_location=device"),
}


def test_every_old_form_of_the_tutorials_is_a_row():
    missing = [
        item
        for item, (old, new) in OLD_TO_NOW.items()
        if not any(old in row.old and new in row.new for row in ROWS.values())
    ]
    assert missing == []


def test_the_lesson_is_the_one_that_is_searched():
    assert LESSON == ROOT / "notebooks" / "16_old_code_today.ipynb" and len(ROWS) > 70
