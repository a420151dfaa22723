"""python -m utils.record NOTEBOOK… [--out DIR]: run lessons here and store what this machine's devices measured.

A conditional cell is stored when it has a name (--result or --name), its word names hardware or a compiler, and
it ran live; of the emulated CUDA device, when the cell is timeless. Everything else is left alone. Needs nbclient and
ipykernel besides the course's own packages.
"""

import argparse
import datetime
import json
import os
import pathlib
import sys
import time
import traceback

from utils import cells, recordings
from utils.devices import emulated
from utils.messages import NOT_LIVE, LabError


def run(notebook, keep_going=False):
    """Run one lesson. Returns (live conditional cells by name, as recordings.store takes them; failures; all cells).

    failures: (cell id, message with traceback) of each cell that failed, or ("kernel", …) where the kernel itself did
    not do its part. Without keep_going the first is raised.
    """
    import nbformat
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    from tools import run as runner

    notebook = pathlib.Path(notebook)
    nb = nbformat.read(notebook, as_version=4)
    client = runner.client(nb, notebook.parent)
    stored, failures, every = {}, [], list(nb.cells)  # a list of its own: nbclient puts other cells in nb.cells
    try:
        with client.setup_kernel():
            for index, cell in enumerate(every):
                if cell.cell_type != "code":
                    continue
                try:
                    began = time.perf_counter()
                    client.execute_cell(cell, index)
                    seconds = time.perf_counter() - began
                    first = cell.source.split("\n", 1)[0]
                    if not first.startswith("%%requires"):
                        continue
                    word, kind, name, timeless = cells.parse(first)
                    if name and not word.startswith("result:") and _ran_live(cell) and (timeless or not emulated()):
                        stored[name] = _entry(client, cell, index, word, kind, name, seconds)
                except (CellControlSignal, DeadKernelError, LabError) as error:
                    # The cell failed, took too long, ended the kernel, or gave no answer that could be read.
                    if not keep_going:
                        raise
                    failures.append((cell.id, str(error)))
                    if not isinstance(error, (CellExecutionError, LabError)):
                        break
    except Exception:  # such as a kernel that does not start in time; what is stored is stored
        if not keep_going:
            raise
        failures.append(("kernel", traceback.format_exc()))
    return stored, failures, every


def record(notebook, out):
    """Run one lesson and store its live conditional cells below `out`. Returns the path written, or None."""
    stored, _, _ = run(notebook)
    if not stored:
        return None
    return recordings.store(out, pathlib.Path(notebook).stem, stored, pretended=bool(recordings.pretending()))


def _ran_live(cell):
    states = {output.get("metadata", {}).get("device_lab", {}).get("state") for output in cell.outputs}
    return not states & NOT_LIVE


def _entry(client, cell, index, word, kind, name, seconds):
    origin, value = _ask_kernel(client, index, word, kind, name)
    entry = {
        "requires": word,
        "source": recordings.source_hash(cell.source),
        "date": datetime.date.today().isoformat(),
        "seconds": round(seconds, 3),
        "machine": origin,
        "outputs": [plain for output in cell.outputs for plain in _plain_output(output)],
    }
    return {**entry, "value": value} if kind == "result" else entry


def _ask_kernel(client, index, word, kind, name):
    """Provenance of the cell's device and the recorded value, read from the notebook's kernel as JSON."""
    import nbformat

    arguments = f"{word!r}, {name!r}, {name}" if kind == "result" else f"{word!r}"
    # Not an import statement: it would bind a name, and a lesson may have one like it.
    question = nbformat.v4.new_code_cell(f"print(__import__('utils.record').record.answer({arguments}))")
    client.execute_cell(question, index, store_history=False)
    printed = "".join(o.text for o in question.outputs if o.output_type == "stream" and o.name == "stdout")
    try:
        return json.loads(printed.strip().splitlines()[-1])  # a library may have printed something before
    except (IndexError, ValueError):
        raise LabError(f"the kernel did not say what {name!r} is, but: {printed.strip()[-200:]!r}") from None


def answer(word, name=None, value=None):
    """JSON of [device name and versions of this machine's device for `word`, value of the result `name`]."""
    base = word.split(":")[0]
    origin = recordings.here(base if base in recordings.pretending() else recordings.kind_of(word))
    machine = {"device": origin.device, **origin.machine}
    return json.dumps([machine, recordings.plain(name, value) if name else None])


def _plain_output(output):
    if output.output_type == "stream" and output.name == "stdout":
        yield {"text": output.text}
    elif output.output_type in ("display_data", "execute_result"):
        if "image/png" in output.data:
            yield {
                "png": output.data["image/png"].replace("\n", ""),
                "alt": output.data.get("text/plain", ""),
            }
        elif "text/plain" in output.data:
            yield {"text": output.data["text/plain"]}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m utils.record", description=__doc__)
    parser.add_argument("notebooks", nargs="+", metavar="NOTEBOOK")
    parser.add_argument("--out", default=recordings.FOLDER, help="default: notebooks/recorded")
    options = parser.parse_args(arguments)
    os.environ["LAB_STRICT"] = "1"
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this Python, not one in the home folder
    failed = False
    for notebook in options.notebooks:
        try:
            path = record(notebook, options.out)
        except LabError as error:
            print(f"{notebook}: {error}", file=sys.stderr)
            failed = True
        except Exception as error:
            print(f"{notebook}: not recorded. {last_lines(error)}", file=sys.stderr)
            failed = True
        else:
            print(f"{notebook}: {path or 'nothing to record on this machine'}")
    return 1 if failed else 0


def last_lines(error):
    return " | ".join([line for line in str(error).strip().splitlines() if line.strip()][-2:])


if __name__ == "__main__":
    sys.exit(main())
