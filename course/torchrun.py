"""The cell magic %%torchrun: a cell as a script in several processes."""

import shlex
import sys

from course.grammar import TORCHRUN


def torchrun_cell(line: str, cell: str) -> None:
    """%%torchrun N [--result NAME] [--fails PATTERN]: run the cell as a script in N
    processes.

    --result: NAME becomes a list of what each rank printed last, read as JSON. --fails:
    the job must fail, with a message that matches this regular expression (in quotation
    marks).
    """
    from utils import launch  # here: most lessons start no job

    match = TORCHRUN.fullmatch(line.strip())
    if not match:
        raise launch.LaunchError(
            "write %%torchrun N, %%torchrun N --result NAME or %%torchrun N --fails"
            " PATTERN"
        )
    path = launch.folder() / "this_cell.py"
    path.write_text(cell, encoding="utf-8")
    job = launch.start(path, processes=int(match["processes"]))
    print("$", job.command)
    run = job.finish()
    launch.show(run, hide_last=match["result"] is not None and not run.code)
    launch.judge(run, shlex.split(match["fails"])[0] if match["fails"] else None)
    if match["result"]:
        sys.modules["IPython"].get_ipython().user_ns[match["result"]] = run.results()
