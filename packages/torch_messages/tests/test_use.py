"""README's examples, as they stand, and the command."""

import code
import contextlib
import doctest
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from torch_messages import __version__, command, lookup, match
from torch_messages.match import Found
from torch_messages.messages import entries

README = Path(__file__).parents[1] / "README.md"
OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"


def blocks(language):
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def run(*arguments, env=(), **options):
    started = [sys.executable, "-m", "torch_messages", *arguments]
    options = {"capture_output": True, "text": True, "encoding": "utf-8", **options}
    return subprocess.run(started, env={**environment(), **dict(env)}, **options)


@pytest.fixture
def ask(capsys):
    """ask(*arguments): the exit status of the command, and what it prints, in this
    process.
    """

    def ask(*arguments):
        try:
            status = command.main(list(arguments))
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return ask


def result(**some):
    """What match.look could give, whatever the table knows."""
    return match.Result([], [])._replace(**some)


def environment():
    """As here, with Python's own encoding of what goes through pipes."""
    return {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


# --------------------------------------------------------------------------------------
# README


@pytest.mark.parametrize("block", blocks("console"))
def test_an_example_for_a_shell(block):
    first, _, shown = block.partition("\n")
    prompt, name, *arguments = shlex.split(first)
    assert (prompt, name) == ("$", "torch-messages")
    done = run(*arguments)
    assert done.stdout.rstrip() == shown.rstrip() and not done.stderr


def test_an_example_in_python():
    block = blocks("pycon")[1]
    example = doctest.DocTestParser().get_doctest(block, {}, "README", None, None)
    result = doctest.DocTestRunner().run(example)
    assert result.attempted >= 4 and not result.failed


@pytest.mark.slow
def test_the_example_after_an_error(monkeypatch):
    """As Python itself runs it: doctest would keep no last error."""
    pytest.importorskip("torch")
    # PyTorch's own, where another test has made a process group, names the rank
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    block = blocks("pycon")[0]
    shell, said = code.InteractiveConsole(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for line in re.findall("^>>> (.*)", block, re.M):
            shell.push(line)
    shown = re.sub("^>>> .*\n", "", block, flags=re.M)
    frames = r"(Traceback .*\n)(?: .*\n)+"
    assert without(frames, said.getvalue()) == without(frames, shown)


def without(frames, text):
    return re.sub(frames, r"\1", text, count=1).rstrip()


@pytest.mark.slow
def test_the_example_in_a_notebook():
    pytest.importorskip("torch")
    pytest.importorskip("IPython")
    (block,) = blocks("ipython")
    cells = ["import torch", *re.findall(r"^In \[\d\]: (.*)", block, re.M)]
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance(colors='NoColor')\n"
        f"for cell in {cells!r}: shell.run_cell(cell)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        encoding="utf-8",
        env=environment(),
    )
    assert done.stdout.splitlines()[-2:] == block.splitlines()[-2:]


def test_readme_names_each_key():
    text = README.read_text(encoding="utf-8")
    found = Found(entries()["memory/cuda-oom"])
    known = result(answers=[found], others=[found], notes=["a sentence"])
    told = command.as_data(OOM, known)
    for key in (*told, *told["answers"][0], *command.as_data("x", result())["search"]):
        assert f"`{key}`" in text
    assert told["notes"] == ["a sentence"]
    assert told["others"][0]["id"] == "memory/cuda-oom"


# --------------------------------------------------------------------------------------
# The command


def test_the_command_is_installed_with_the_package():
    written = (README.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert 'torch-messages = "torch_messages.command:main"' in written


def test_a_whole_log_is_read_from_standard_input():
    for arguments in ([], ["-"]):
        done = run(*arguments, input=f"epoch 1\nloss 0.3\n{OOM}")
        assert done.stdout.startswith("CUDA out of memory. Tried to allocate\nmeans ")
        assert done.returncode == 0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_file_is_read_in_whatever_encoding(tmp_path, encoding, ask):
    log = tmp_path / "ein Log.txt"
    log.write_bytes(f"Größe 3\n{OOM}\n".encode(encoding))
    status, said, _ = ask(str(log))
    assert said.startswith("CUDA out of memory. Tried to allocate\n") and status == 0


def test_what_is_no_text_is_no_crash(tmp_path):
    file = tmp_path / "model.pt"
    file.write_bytes(bytes(range(256)) * 40)
    for done in (run(str(file)), run("-", stdin=file.open("rb"))):
        assert done.returncode == 1 and not done.stderr
        assert done.stdout.startswith("This is no text")


def test_of_a_long_file_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "MOST", 100)
    monkeypatch.setattr(command, "PIECE", 30)
    log = tmp_path / "log"
    log.write_bytes(b"x" * 1000 + OOM.encode())
    assert command._text([str(log)]) == "x" * (100 - len(OOM)) + OOM


def test_what_is_not_known_is_said(ask):
    status, said, _ = ask("frobnicate")
    assert said.startswith("Not known here, and no guess.") and status == 1
    status, said, _ = ask("")
    assert said.startswith("There is nothing to look up") and status == 1


def test_pages_are_named_before_a_tracker():
    title = "How do I choose num_workers for a DataLoader?"
    shown = lookup.answer("how to choose num_workers", result=result())
    lines = shown.splitlines()
    assert lines[1] == f"read    {title}" and lines[2].endswith("#curve")
    assert "Search for “how to choose num_workers” in" in "\n".join(lines[3:])


def test_where_a_line_has_failed_pages_are_none():
    text = "ValueError: how to choose num_workers"
    others = [Found(entries()["memory/cuda-oom"])]
    failed = result(others=others, unknown=text)
    shown = lookup.answer(text, result=failed)
    assert shown.startswith("Not known here, and no guess. Search for “how to choose")
    assert "read  " not in shown and "also    CUDA out of memory" in shown
    told = command.as_data(text, failed)
    assert (told["known"], told["places"]) == (False, [])
    assert told["search"]["for"] == "how to choose num_workers"


def test_what_the_numbers_say_stands_in_the_first_answer():
    found = Found(entries()["memory/cuda-oom"], wording="CUDA out of memory")
    other = Found(entries()["memory/cpu-oom"])
    known = result(answers=[found, other], notes=["it holds 2 GiB"])
    shown = lookup.answer(OOM, result=known)
    assert shown.count("\nhere    it holds 2 GiB\ndo  ") == 1
    failed = lookup.answer("KeyError: 3", result=result(unknown="x", notes=["3 GiB"]))
    assert failed.endswith("\nhere    3 GiB")


CUDNN = "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"


@pytest.mark.parametrize(
    "text, head",
    [
        (f"RuntimeError: {CUDNN}", CUDNN),
        ("CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED"),
        ("memory/cublas-start", "CUBLAS_STATUS_ALLOC_FAILED when calling"),
        ("torch.cuda.memory_cached", "torch.cuda.memory_cached"),
    ],
)
def test_an_answer_is_headed_by_what_fits_not_by_another_message(text, head, ask):
    """An entry has several; the first of this one is cuBLAS's."""
    assert entries()["memory/cublas-start"].title.startswith("CUBLAS")
    assert ask(text)[1].startswith(head)


def test_what_stands_beside_an_answer_is_called_so_too():
    beside = Found(entries()["memory/cublas-start"], wording=CUDNN)
    found = result(answers=[Found(entries()["memory/cuda-oom"])], others=[beside])
    shown = " ".join(lookup.answer("some text", result=found).split())
    assert f"also {CUDNN}: cuBLAS or" in shown


def test_a_long_line_is_searched_by_its_beginning():
    said = lookup.missed("RuntimeError: " + "a long word " * 20)
    assert "“a long word a long" in said and len(said) < 250
    assert lookup.line_of("x" * 200) == "x" * 90
    frames = 'Traceback:\n  File "x.py", line 1\n    y\n'
    assert lookup.line_of(f"{frames}ValueError: odd things") == "odd things"
    assert lookup.line_of("odd things\nbye", "KeyError: 'odd'") == "'odd'"
    assert lookup.line_of("[rank0]: ValueError: odd") == "odd"
    assert lookup.line_of("2026-11-29 15:00:00,123 - ERROR - odd error") == "odd error"


def test_help_version_and_wrong_use(ask):
    assert "torch-messages FILE" in ask("--help")[1]
    assert ask("--version") == (0, f"{__version__}\n", "")
    for arguments in (["--jsno", "x"], ["x", "--json", "y"]):
        status, said, wrong = ask(*arguments)
        assert (status, said) == (2, "") and "Put words in quotes" in wrong
    name = ask("--local_rank")  # an option of others, which the table knows
    assert name[0] == 0 and "torchrun" in name[1]
    assert ask("--", "--local_rank") == name


@pytest.mark.skipif(os.name == "nt", reason="opens a terminal")
def test_a_terminal_without_words_gets_the_usage():
    import pty

    master, terminal = pty.openpty()
    done = run(stdin=terminal)
    os.close(terminal)
    os.close(master)
    assert done.returncode == 2 and done.stderr.startswith("usage: torch-messages")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads all")
def test_a_file_that_may_not_be_read_is_one_sentence(tmp_path):
    file = tmp_path / "log"
    file.touch(mode=0)
    done = run(str(file))
    assert done.returncode == 2 and done.stderr.count("\n") == 1


def test_json_is_read_by_any_program(ask):
    status, said, _ = ask("--json", "显存 frobnicate")
    told = json.loads(said)
    assert said.isascii() and status == 1
    assert (told["known"], told["answers"], told["unknown"]) == (False, [], "")
    assert told["search"] == {
        "for": "显存 frobnicate",
        "library": "PyTorch",
        "repository": "pytorch/pytorch",
        "foreign": False,
    }
    told = command.as_data("多卡训练卡住不动", result())
    assert told["places"][0]["address"].endswith("docs/zh.html#ddp-ddp-hangs")
    told = json.loads(ask("--json", OOM)[1])
    assert told["answers"][0]["lesson"].endswith("notebooks/07_memory.html#remedies")


@pytest.mark.parametrize("encoding", ["cp437", "gbk"])
def test_a_console_that_lacks_letters(encoding):
    done = run(
        "frobnicate …", env={"PYTHONIOENCODING": encoding}.items(), encoding=encoding
    )
    assert done.returncode == 1 and not done.stderr
    plain = done.stdout.replace("“", '"').replace("”", '"').replace("…", "...")
    assert 'Search for "frobnicate ..." in' in " ".join(plain.split())


@pytest.mark.skipif(os.name == "nt", reason="a pipe of a shell")
def test_a_pipe_that_is_closed_is_no_error():
    started = shlex.join([sys.executable, "-m", "torch_messages", "frobnicate"])
    done = subprocess.run(
        ["sh", "-c", f"(sleep 1; {started}) | true"],
        capture_output=True,
        env=environment(),
    )
    assert (done.stdout, done.stderr) == (b"", b"")


def test_all_that_is_imported_is_pythons():
    """A command that people run after each error must not wait for PyTorch."""
    program = "import sys, torch_messages.command; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment()
    )
    assert done.stdout.split() == [b"False"]
