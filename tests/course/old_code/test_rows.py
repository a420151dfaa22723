"""Lesson 16: enough rows of every kind, every old form of the source tutorials,
headings that quote real messages.
"""

import re

import nbformat
import pytest

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


ROWS = {slug_of(cell): cell for cell in CELLS if slug_of(cell)}
LIVE = [cell for cell in ROWS.values() if grammar.header(cell.source) is None]


def test_there_are_enough_rows_that_run_everywhere():
    assert len(LIVE) >= 130
    # no name twice
    assert len(old_code.rows()) == len([cell for cell in CELLS if slug_of(cell)])


def test_all_groups_and_verdicts_occur():
    assert {row.group for row in old_code.rows().values()} == GROUPS
    assert {row.expected[""].word for row in old_code.rows().values()} == set(
        old_code.SIGNS
    )


def test_the_look_up_comes_first():
    code = [cell for cell in CELLS if cell.cell_type == "code"]
    assert [cell.id for cell in code[:2]] == ["setup", "recipe"]
    assert "look_up(" in code[1].source


LOUD = ("raises", "warns")


@pytest.mark.parametrize("section", "5 6 7 8 9 10".split())
def test_a_section_of_rows_is_for_looking_up(section):
    """Folded rows of one line each, those with a message first, below a table."""
    found = [row for row in old_code.rows().values() if row.section == section]
    words = [row.expected[""].word in LOUD for row in found]
    if section != "10":  # there first what runs everywhere
        assert words == sorted(words, reverse=True)
    for row in found:
        above = CELLS[CELLS.index(ROWS[row.slug]) - 1].source
        assert re.fullmatch(r"### .+\n\n.+", above)
        assert len(above.split("\n\n")[1]) < 300 and folded(ROWS[row.slug])
    tables = [cell.source for cell in CELLS if "old_code.index(" in cell.source]
    groups = {group for source in tables for group in re.findall(r'"(\w+)"', source)}
    assert groups == GROUPS


@pytest.mark.parametrize("slug", old_code.rows())
def test_a_row_says_why_and_what_it_announces(slug):
    row = old_code.rows()[slug]
    assert row.because and len(row.because) < 110 and not row.because.endswith(".")
    for verdict in row.expected.values():
        assert (verdict.pattern is not None) == (verdict.word in ("raises", "warns")), (
            verdict
        )
        assert verdict.pattern is None or re.search(r"\w{3}", verdict.pattern)


@pytest.mark.parametrize("cell", LIVE, ids=slug_of)
def test_the_stored_output_is_what_was_announced(cell):
    word = text_of(cell).split()[1]
    announced = {
        verdict.word for verdict in old_code.rows()[slug_of(cell)].expected.values()
    }
    assert word in announced


def test_a_message_in_a_heading_is_one():
    """What stands in the heading of a row that raises or warns was seen in its stored
    output, or, for another version or machine, in a pattern that the row asserts there;
    or it is a name of its old part.
    """
    for slug, row in old_code.rows().items():
        if row.expected[""].word not in LOUD:
            continue
        shown = " ".join(text_of(ROWS[slug]).split())
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
    for row in old_code.rows().values():
        assert not re.search(scaffolding, row.old + row.new), row.slug


def test_each_named_pattern_is_used():
    used = {pattern for row in old_code.rows().values() for pattern in row.patterns()}
    assert set(PATTERNS.values()) <= used


# Forms that the source tutorials print and that are wrong or out of date, by the item
# they belong to: what must stand in an old part, and what in the new part of the same
# row.
OLD_TO_NOW = {
    "S0.3 one cold run": ("began = time.perf_counter()\ndouble(x)", "benchmark.Timer"),
    "S0.4 xla_device() is not None": (
        "xm.xla_device() is not None",
        "torch_xla.real_devices()",
    ),
    "S0.5 mark_step": ("xm.mark_step()", "torch_xla.sync()"),
    "S0.5 wait=True": ("torch_xla.sync(wait=True)", "xm.wait_device_ops()"),
    "S1.1 tpu": ('torch.device("tpu")', 'torch.device("xla")'),
    "S1.4 attributes": ("net.mean = torch.zeros(8)", "register_buffer"),
    "S1.8 no_grad": ("torch.no_grad()", "torch.inference_mode()"),
    "S1.10 autocast": ("torch.cuda.amp.autocast()", "torch.autocast("),
    "S1.10 GradScaler": ("torch.cuda.amp.GradScaler()", "torch.amp.GradScaler("),
    "S1.12 spawn": ("xmp.spawn(print, nprocs=8)", "torch_xla.launch"),
    "S1.12 ParallelLoader": ("pl.ParallelLoader(", "pl.MpDeviceLoader("),
    "S2.1 device(0)": ("torch.device(0)", "device"),
    "S2.2 torch.Tensor": ("torch.Tensor([", "torch.tensor(["),
    "S2.5 streams": ("torch.cuda.synchronize()", "wait_stream"),
    "S2.6 memory_cached": (
        "torch.cuda.memory_cached()",
        "torch.cuda.memory_reserved()",
    ),
    "S1.18 no sampler": ("batch_size=4, shuffle=True)", "sampler=sampler)"),
    "S1.19 data on the GPU": ("batch_size=4, pin_memory=True)", "big.split(4)"),
    "S2.14 torch.cuda.os": ("torch.cuda.os.cpu_count()", "os.cpu_count()"),
    "S2.14 private names": ("_utils.pin_memory.pin_memory(x)", "x.pin_memory()"),
    "S2.10 max_memory_cached": (
        "torch.cuda.max_memory_cached()",
        "torch.cuda.max_memory_reserved()",
    ),
    "S2.10 set_device": (
        "torch.cuda.set_device(torch.cuda.device_count())",
        "if torch.cuda.device_count() > 1:",
    ),
    "S2.12 torch.Tensor on a GPU": (
        'torch.Tensor([1.0, 2.0], device="cuda")',
        "torch.tensor([1.0, 2.0], device=device)",
    ),
    "S1.15 MASTER_ADDR": ("rank=0, world_size=1)", 'init_method="tcp://127.0.0.1:0"'),
    "S1.15 device_ids": ("device_ids=[0]", "DistributedDataParallel(net)"),
    "S1.15 no process": (
        "nprocs=torch.cuda.device_count()",
        "nprocs=max(1, torch.cuda.device_count())",
    ),
    "S1.12 optimizer_step": ("xm.optimizer_step(", ".step()\ntorch_xla.sync()"),
    "S4.24 Adam": (
        "torch.optim.Adam(net.parameters())\nwith torch.cuda.graph",
        "capturable=True",
    ),
    "S4.26 wrapped first": ("nn.DataParallel(net).to(device)", "net = net.to(device)"),
    "S4.26 compiled twice": ("torch.compile(first", "second = torch.compile(net"),
    "S4.26 cuda_time_total": (
        'sort_by="cuda_time_total"',
        'sort_by="device_time_total"',
    ),
    "S4.26 activities": ("ProfilerActivity.CUDA", "supported_activities()"),
    "S2.7 id": ("id(y) != id(x)", "data_ptr()"),
    "S3.5 DataParallel": ("nn.DataParallel(net)", "DistributedDataParallel"),
    "S4.9 set_to_none": ("zero_grad(set_to_none=True)", "zero_grad()"),
    "S4.11 undefined names": (
        "rank=rank, world_size=world_size",
        'init_process_group("gloo")',
    ),
    "S4.11 set_epoch": ("DistributedSampler(range(8)", "set_epoch"),
    "S4.12 local_rank": ("--local_rank", 'os.environ["LOCAL_RANK"]'),
    "S4.14 half": (".half()", "nn.Parameter(torch.ones(1))"),
    "S4.15 clipping": (
        "clip_grad_norm_(net.parameters(), 1.0)\nscaler.unscale_",
        "unscale_(optimizer)\nnn.utils.clip",
    ),
    "S4.17 capture": ('    data = torch.ones(4, device="cuda")', "data.copy_("),
    "S4.23 weights": ('torch.load("net.pt")', "map_location=device"),
}


@pytest.mark.parametrize("item", OLD_TO_NOW)
def test_every_old_form_of_the_tutorials_is_a_row(item):
    old, new = OLD_TO_NOW[item]
    assert any(old in row.old and new in row.new for row in old_code.rows().values())


def test_the_lesson_is_the_one_that_is_searched():
    assert (
        LESSON == ROOT / "notebooks" / "16_old_code_today.ipynb"
        and len(old_code.rows()) > 70
    )
