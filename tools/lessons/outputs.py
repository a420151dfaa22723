"""Execute lessons in this environment and store their outputs.

python -m tools.lessons.outputs [FILE…]
    of all cells of these lessons; without FILE: of all lessons
python -m tools.lessons.outputs FILE --cells ID…
    of these cells alone, and run the lesson as far as they stand

In the metadata of a code cell stands which code its outputs are of (`outputs_of`), so
that the check of lessons finds those that are older than the code. Execution counts say
nothing of this: they are the numbers of the code cells.

In the end a line says how long it took, and which cells took over five seconds and have
no option `takes`: a reader would see no sign of life.
"""

import argparse
import copy
import pathlib
import re
import sys
import time

import nbformat

from course import grammar, uses
from tools.lessons import notebooks, parts, run

LONG = 5  # seconds that a reader waits without a word


def store(path, ids=()):
    """Execute a lesson and store its outputs, or those of the cells with these ids
    alone. Returns whether it has these cells, and this PyTorch made the others.
    """
    nb = nbformat.read(path, as_version=4)
    code = {cell.id for cell in parts.code_cells(nb)}
    if unknown := set(ids) - code:
        names = ", ".join(sorted(unknown))
        print(f"{path.name} has no code cell {names}", file=sys.stderr)
        return False
    wanted = set(ids) or code
    begin = time.perf_counter()
    outputs, seconds = execute(nb, path.parent, wanted)
    whole = time.perf_counter() - begin
    stored = next((cell.outputs for cell in nb.cells if cell.id == "setup"), [])
    if ids and (old := made_with(stored)) != (new := made_with(outputs.get("setup"))):
        print(f"{path.name}: the others are of {old}, here is {new}", file=sys.stderr)
        return False
    for cell in nb.cells:
        if cell.id in wanted:
            cell.outputs = outputs[cell.id]
            cell.metadata[parts.OUTPUTS_OF] = uses.source_key(cell.source)
    text = notebooks.canonical(nb, path)
    path.write_text(text, encoding="utf-8", newline="\n")
    print(f"{path.name}: outputs of {len(wanted)} code cells stored")
    print(f"{path.name}: {whole:.0f} s{_without_sign(nb, seconds)}")
    return True


def _without_sign(nb, seconds):
    """Which cells of a lesson take long and do not say so, as the end of a sentence.
    seconds: how long each took, by its id.
    """
    quiet = [
        f"{cell.id} ({seconds[cell.id]:.0f} s)"
        for cell in parts.code_cells(nb)
        if cell.id in seconds and not grammar.takes(cell.source)
        if seconds[cell.id] > LONG
    ]
    return f"; over {LONG} s without `#| takes:`: {', '.join(quiet)}" if quiet else ""


def made_with(outputs):
    """The PyTorch that a set-up cell names, of whose version all outputs of a lesson
    are taken to be.
    """
    texts = "".join(output.get("text", "") for output in outputs or [])
    return "".join(re.findall(r"Ready: (PyTorch [\d.]+)", texts))


def execute(nb, folder, wanted):
    """Run a lesson as far as the last of the cells `wanted`. Returns the outputs of its
    code cells by id, and how many seconds each took that ran.

    No time is judged but in these, the set-up cell and those that make what they use:
    another claim about time that a busy machine misses does not end the run.
    """
    code = uses.code_cells(nb.cells)
    sources = [cell.source for cell in code]
    places = [n for n, cell in enumerate(code) if cell.id in wanted]
    makers = {code[maker].id for n in places for maker in uses.needed(sources, n)}
    timed = wanted | makers | {"setup"}
    last = max(n for n, cell in enumerate(nb.cells) if cell.id in wanted)
    copied, seconds = copy.deepcopy(nb), {}
    with run.kernel(copied, folder, env={"LAB_STRICT": "1"}) as client:
        for n, cell in enumerate(copied.cells[: last + 1]):
            if cell.cell_type == "code":
                untimed = "0" if cell.id in timed else "1"
                setting = f"__import__('os').environ['LAB_UNTIMED'] = '{untimed}'"
                run.ask(client, n, setting)
                begin = time.perf_counter()
                client.execute_cell(cell, n)
                seconds[cell.id] = time.perf_counter() - begin
    outputs = {cell.id: cell.outputs for cell in parts.code_cells(copied)}
    return outputs, seconds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--cells", nargs="+", default=[], metavar="ID")
    options = parser.parse_args()
    if options.cells and len(options.files) != 1:
        parser.error("--cells are those of one lesson")
    paths = options.files or notebooks.lessons()
    return 0 if all(store(path, options.cells) for path in paths) else 1


if __name__ == "__main__":
    sys.exit(main())
