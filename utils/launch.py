"""Start several processes from a notebook, as `torchrun` in a terminal would, and leave
none behind. Jobs run in `folder()`.
"""

import contextlib
import difflib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence

from .devices import pytorch
from .jobs import (  # noqa: F401 (DEFAULTS and free_port: for lessons)
    COLORS,
    DEFAULTS,
    Job,
    LaunchError,
    Run,
    find,
    folder,
    free_port,
)


def start(
    script: str | os.PathLike,
    *arguments: object,
    processes: int = 2,
    options: Sequence[str] | None = None,
) -> Job:
    """Start a script with torchrun and leave it running; returns a Job. It ends with
    the kernel at the latest.

    script: a path, or a name below notebooks/ such as "scripts/train_ddp.py"
    arguments: of the script
    processes: on this machine
    options: of torchrun instead of --standalone
    """
    return Job(script, arguments, processes, options)


def torchrun(
    script: str | os.PathLike,
    *arguments: object,
    processes: int = 2,
    options: Sequence[str] | None = None,
    timeout: float = 200,
    fails: str | None = None,
    quiet: bool = False,
) -> Run:
    """Run a script with torchrun, show what each rank printed, and return the Run.

    script, arguments, processes, options: as for `start`
    timeout: seconds; LaunchError where it takes more, or where it fails
    fails: a regular expression; then it must fail, with a message that matches
    quiet: show only the command
    """
    job = start(script, *arguments, processes=processes, options=options)
    print("$", job.command)
    run = job.finish(timeout)
    if not quiet:
        show(run)
    judge(run, fails)
    return run


def show(run: Run, hide_last: bool = False) -> None:
    """Print what the ranks of a Run printed, rank by rank, and the messages of those
    that failed.

    hide_last: leave out the last line of each (a result in JSON).
    """
    for rank in sorted({*run.printed, *run.errors}):
        lines = run.printed.get(rank, "").rstrip().splitlines()
        lines = lines[:-1] if hide_last else lines
        if run.code:
            lines += _message(run.errors.get(rank, ""))
        elif run.errors.get(rank, "").strip():
            print(f"rank {rank}: {run.errors[rank].strip()}", file=sys.stderr)
        for line in lines:
            print(f"rank {rank} │ {line}")


def _message(text, most=4):
    """The error at the end of what a process wrote, without its traceback."""
    # torchrun writes the rank in front of each line: [rank1]:
    lines = [
        re.sub(r"^\[rank\d+\]:\s?", "", line) for line in text.strip().splitlines()
    ]
    error = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt)\b")
    starts = [n for n, line in enumerate(lines) if error.match(line)]
    last = lines[starts[-1] :] if starts else lines[-most:]
    return [line for line in last if line.strip()][:most]


def show_diff(
    old: str | os.PathLike,
    new: str | os.PathLike,
    context: int | None = 2,
    only: str = "",
) -> None:
    """Print what two scripts do otherwise: lines of the old in red behind a -, of
    the new in green behind a +.

    old, new: as the script of `start`
    context: lines around each change, not empty ones; None: all lines
    only: a regular expression; show just the new lines that it finds
    """
    (path, before), (new_path, after) = find(old), find(new)
    texts = [one.read_text(encoding="utf-8").splitlines() for one in (path, new_path)]
    if context is not None:
        texts = [[line for line in text if line] for text in texts]
    around = max(map(len, texts)) if context is None else context
    lines = difflib.unified_diff(*texts, before, after, n=around, lineterm="")
    for number, line in enumerate(lines):
        if only and number > 1 and not (line[0] == "+" and re.search(only, line)):
            continue
        if not line.startswith("@@"):
            color = "1" if number < 2 else {"+": "32", "-": "31"}.get(line[:1])
            print(f"\x1b[{color}m{line}\x1b[0m" if color else line)
        elif number > 2:
            print("  ⋮")


@contextlib.contextmanager
def child_stderr() -> Iterator[list[str]]:
    """Catch what processes that the block starts write to standard error.

    Gives a list: after the block the last error, line by line, without its traceback
    and color codes; or one line that says that nothing was caught.
    """
    lines = []
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            text = COLORS.sub("", file.read().decode(errors="replace"))
            lines += _message(text) or ["(it wrote them elsewhere)"]


def last_words(run: Run) -> str:
    """What the ranks of a Run that failed said last, in one line of 300 characters at
    most; what torchrun said, if they died without a word.
    """
    messages = [" ".join(_message(run.errors[rank])) for rank in sorted(run.errors)]
    messages = [message for message in dict.fromkeys(messages) if message]  # each once
    # failed (exitcode: -9) local_rank: 1
    died = re.findall(r"failed (\(exitcode: .*?\) local_rank: \d+)", run.agent)
    words = " | ".join(messages) or " ".join(died[:1] or _message(run.agent))
    return words if len(words) <= 300 else words[:300] + " …"


def judge(run: Run, fails: str | None) -> None:
    """LaunchError where a job failed, or did not fail as announced.

    fails: as for `torchrun`
    """
    if fails is None:
        if run.code:
            raise LaunchError(
                f"the job ended with status {run.code}, its last words:"
                f" {last_words(run)}; run the cell again."
            )
    elif not run.code:
        raise LaunchError(
            f"announced: a failure with {fails!r}; on {pytorch()} the job ends well"
        )
    elif not re.search(fails, "\n".join([*run.errors.values(), run.agent])):
        raise LaunchError(
            f"announced: a failure with {fails!r}; on {pytorch()} it says:"
            f" {last_words(run)}"
        )
