"""A caller's mypy, in its strict mode, sees types of all that the kit gives."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import typing

import pytest

import device_lab

CALLER = pathlib.Path(__file__).resolve().with_name("typed_caller.py")
KIT = pathlib.Path(device_lab.__file__).resolve().parents[1]


def results():
    """The classes of results, those within others included."""
    functions = [getattr(device_lab, name) for name in device_lab.__all__]
    waiting = [typing.get_type_hints(each).get("return") for each in functions]
    classes = []
    while waiting:
        each = waiting.pop()
        waiting += typing.get_args(each)
        if dataclasses.is_dataclass(each) and each not in classes:
            classes.append(each)
            waiting += typing.get_type_hints(each).values()
    return classes


def questions():
    """Lines that ask mypy for the type of each public name and field; by line."""
    lines = [f"reveal_type(device_lab.{name})" for name in device_lab.__all__]
    for each in results():
        value = f"{each.__name__.lower()}_"
        lines += [f"{value}: {each.__module__}.{each.__name__}"]
        fields = [field.name for field in dataclasses.fields(each)]
        lines += [f"reveal_type({value}.{name})" for name in [*fields, "to_dict()"]]
    return ["import device_lab", *lines]


@pytest.mark.slow
def test_a_caller_is_clean_and_no_name_or_field_is_any(tmp_path):
    pytest.importorskip("mypy")
    lines, path = questions(), tmp_path / "questions.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, "--cache-dir=cache", "--no-error-summary", path.name, CALLER],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(KIT)},
    )
    answers = re.findall(r'py:(\d+): note: Revealed type is "(.*)"', done.stdout)
    asked = [k for k, line in enumerate(lines, 1) if line.startswith("reveal")]
    assert [int(number) for number, _ in answers] == asked, done.stdout + done.stderr
    assert "error:" not in done.stdout, done.stdout
    # a field may hold any values by name, a function take any options
    anything = [
        (lines[int(number) - 1], shown)
        for number, shown in answers
        if re.search(r"\bAny\b", shown.replace("dict[str, Any]", ""))
        and not shown.startswith("def ")
        or shown.endswith("-> Any")
    ]
    assert anything == []
