"""The examples of README run as they stand, one program, and print what it shows."""

import contextlib
import io
import pathlib
import re
import sys

import pytest
import torch

import device_lab

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"
# a block, a remark on what it prints, and what it prints
EXAMPLE = r"^```python\n(.*?)^```\n(?:\n<!-- (.*?) -->\n\n```text\n(.*?)^```\n)?"
EXAMPLES = re.findall(EXAMPLE, README.read_text(encoding="utf-8"), re.M | re.S)


def shape(text):
    """Without its numbers, and with one space where there are several."""
    return re.sub(" +", " ", re.sub(r"\d[\d.,]*(e[+-]\d+)?", "0", text.strip()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_examples_are_one_program_that_prints_what_is_shown(tmp_path):
    path, names, above = tmp_path / "train.py", {"__name__": "__main__"}, 0
    path.write_text("\n\n".join(code for code, _, _ in EXAMPLES), encoding="utf-8")
    here = "shown by a CPU, on Linux", "shown everywhere"
    for code, remark, expected in EXAMPLES:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile("\n" * above + code, str(path), "exec"), names)
        above += code.count("\n") + 2
        assert remark in (*here, "times differ", "")
        cpu = sys.platform == "linux" and not torch.cuda.is_available()
        if remark in here[not cpu :]:
            pattern = re.escape(shape(expected)).replace("…", ".*")
            assert re.fullmatch(pattern, shape(printed.getvalue()), re.S), (
                printed.getvalue()
            )


def test_each_public_name_has_an_example():
    words = set(re.findall(r"\w+", " ".join(code for code, _, _ in EXAMPLES)))
    assert set(device_lab.__all__) <= words
