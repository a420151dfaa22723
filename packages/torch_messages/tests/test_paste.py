"""What stands around a message: code, logs, HTML, terminals; and long pastes."""

import random

import pytest
from growth import growth
from pastes import AROUND, LOG, LONG, SCRIPT, TRACE

from torch_messages import code, entries, match, paste

WORDINGS = [
    (entry, wording.replace("…", "x1"))
    for entry in entries().values()
    for wording in entry.says
]
# of a log each third: one takes as long as twenty of the others
SOME = {"a log": WORDINGS[::29]}


@pytest.mark.parametrize("around", AROUND)
def test_each_wording_is_found_whatever_stands_around_it(around):
    lost = []
    for entry, wording in SOME.get(around, WORDINGS[::5]):
        answers, _, unknown, _ = match.look(AROUND[around](wording))
        right = [found for found in answers if found.entry == entry and not found.near]
        if not right or answers[0].by == "listing":
            lost.append(f"{entry.id}: {wording!r}: {answers[:1]} {unknown}")
    assert not lost, "\n".join(lost)


def test_a_message_that_was_cut_off_leads_to_its_entry_or_to_none():
    """Many begin with the same words: then there is no answer."""
    found = wrong = 0
    for entry, wording in WORDINGS[::5]:
        cut = wording[: round(0.6 * len(wording))]
        ids = [found.entry.id for found in match.find(f"RuntimeError: {cut}")[0]]
        found += entry.id in ids
        wrong += bool(ids) and entry.id not in ids
    assert found >= 0.75 * len(WORDINGS[::5]) and wrong <= 0.02 * len(WORDINGS[::5])
    for cut in ("CUDA out of mem", "Expected all tensors to be on the same dev"):
        assert match.find(cut)[0], cut


USUAL = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = x.cuda()
model = torch.nn.DataParallel(model)
torch.cuda.empty_cache()
scaler = torch.cuda.amp.GradScaler()
dist.init_process_group("nccl")
torch.backends.cuda.matmul.allow_tf32 = True
model.to(device)
loss.backward()
optimizer.zero_grad(set_to_none=True)
loader = DataLoader(train, batch_size=64, num_workers=16, pin_memory=True)
model = torch.compile(model)
with torch.autocast("cuda", dtype=torch.float16):
total_loss += loss
torch.save(model, "m.pt")
print(torch.cuda.get_device_name(0))
""".splitlines()


@pytest.mark.parametrize("line", USUAL)
def test_a_usual_line_in_front_of_an_error_is_not_the_answer(line):
    errors = [(e, w) for e, w in WORDINGS if not (e.cover or e.harmless)]
    for entry, wording in errors[:: len(errors) // 60]:
        for text in (line, f"import torch\n{line}\n"):
            answers, _ = match.find(f"{text}\nRuntimeError: {wording}")
            assert entry in [found.entry for found in answers], wording
            assert answers[0].by == "message"


def test_an_unknown_error_is_said_to_be_unknown():
    harmless = "libibverbs: Warning: couldn't load driver 'x'"
    unknown = "ValueError: the moon is full tonight"
    for text in (
        unknown,
        SCRIPT + unknown,
        f"{unknown}\n{SCRIPT}",
        f"{harmless}\n{unknown}",
    ):
        answers, _, line, _ = match.look(text)
        assert answers == [] and unknown in line


def test_what_is_harmless_is_no_answer_to_a_crash():
    harmless = [entry for entry in entries().values() if entry.harmless and entry.says]
    assert len(harmless) >= 10
    for entry in harmless:
        said = entry.says[0].replace("…", "x1")
        assert match.find(said)[0][0].entry == entry
        answers, others, line, _ = match.look(
            f"{said}\nSegmentation fault (core dumped)"
        )
        assert entry not in [found.entry for found in answers]
        assert entry in [found.entry for found in others]
        assert line.startswith("Segmentation fault") or answers


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
FOLLOWERS = [
    "[rank0]:[E1120 14:44:07 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE,"
    " Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    "RuntimeError: DataLoader worker (pid(s) 12) exited unexpectedly",
]


@pytest.mark.parametrize("follower", FOLLOWERS)
def test_the_cause_is_answered_not_what_followed(follower):
    for text in (f"[rank1]: {OOM}\n{follower}", f"{follower}\n[rank1]: {OOM}"):
        answers, _ = match.find(text)
        assert answers[0].entry.id == "memory/cuda-oom"


def test_listings_are_read_by_their_tree():
    for call in (
        'x.to(device="cpu", non_blocking=True)',
        "x.to(non_blocking=True, device='cpu')",
        "x.to(\n    'cpu',  # back\n    non_blocking=True,\n)",
    ):
        ids = [found.entry.id for found in match.find(f"y = {call}")[0]]
        assert ids == ["movement/non-blocking-cpu"], call
    assert not match.find("y = x.to('cuda', non_blocking=True)")[0]


def test_what_a_listing_is_read_into():
    (line,) = code.read("f(a, b=[1, 2],\n  # why\n  c='x').to('cpu')").statements
    assert line[0] == "f" and line[2] == ".to"
    assert line[1].parts[0] == ["a"] and line[1].parts[1][:2] == ["b", "="]
    assert line[3].parts == [["'cpu'"]]


def kinds(text):
    return [kind for kind, line in paste.sort(text).lines if line]


def test_lines_are_sorted():
    assert kinds(TRACE.format("a.py", "odd")) == ["joint", "frame", "frame", "error"]
    assert kinds("epoch 1\nKilled") == ["text", "death"]
    assert kinds("/a/b.py:3: UserWarning: odd") == ["warning"]
    assert paste.sort(SCRIPT + TRACE).code.strip() == SCRIPT.strip()


@pytest.mark.parametrize("kind", LONG)
def test_time_grows_no_faster_than_a_long_text(kind):
    match.look("warm")
    assert growth(match.look, LONG[kind](10 * paste.rules.WHOLE)) < 10


def test_no_text_is_too_odd():
    chance = random.Random(0)
    letters = "()[]{}'\"\\#.,:;=\n\t abcx12…显存@<>&-+*`"
    for _ in range(150):
        match.look("".join(chance.choices(letters, k=chance.randint(1, 120))))
    lines = (SCRIPT + TRACE + LOG[:400] + OOM).split("\n")
    for _ in range(60):
        text = "\n".join(chance.choices(lines, k=8))
        match.look(text[chance.randint(0, 60) :][: chance.randint(1, 400)])
