"""README's examples, as they stand, and the command."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(language):
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def run(*arguments, **options):
    command = [sys.executable, "-m", "torch_messages", *arguments]
    options = {"capture_output": True, "text": True, "encoding": "utf-8", **options}
    return subprocess.run(command, env=environment(), **options)


def environment():
    """As here, with Python's own encoding of what goes through pipes."""
    return {**os.environ, "PYTHONUTF8": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


def test_the_example_for_a_shell():
    (block,) = blocks("console")
    command, _, shown = block.partition("\n")
    _, python, *arguments = shlex.split(command)
    assert python == "python" and arguments[:2] == ["-m", "torch_messages"]
    done = run(*arguments[2:])
    assert done.stdout.rstrip() == shown.rstrip() and not done.stderr


def test_the_example_in_python():
    (block,) = blocks("pycon")
    example = doctest.DocTestParser().get_doctest(block, {}, "README", None, None)
    result = doctest.DocTestRunner().run(example)
    assert result.attempted >= 4 and not result.failed


def test_a_whole_log_is_read_from_standard_input():
    error = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    done = run(input=f"epoch 1\nloss 0.3\n{error}")
    assert done.stdout.startswith("CUDA out of memory. Tried to allocate\nmeans   ")


def test_what_is_not_known_is_said():
    assert run("frobnicate").stdout.startswith("Not known here, and no guess.")
    assert "python -m torch_messages" in run("--help").stdout
