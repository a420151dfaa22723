"""Run small programs, each in a process of its own, and say what each warned of and
raised.
"""

import contextlib
import multiprocessing
import os
import pathlib
import sys
import tempfile
import types
import warnings

# On Linux a server imports PyTorch once and forks for each program.
METHOD = "forkserver" if sys.platform == "linux" else "spawn"
LIMIT = 120  # seconds for a program
TOGETHER = 4


def messages_of(programs):
    """What each program (source code) says: lines such as `ValueError: no such thing`,
    the error first; of one whose process dies the last line that it wrote.
    """
    context = multiprocessing.get_context(METHOD)
    if METHOD == "forkserver":
        context.set_forkserver_preload(["torch", "torch._dynamo"])
    texts = []
    for n in range(0, len(programs), TOGETHER):
        with contextlib.ExitStack() as stack:
            running = []
            for program in programs[n : n + TOGETHER]:
                place = stack.enter_context(tempfile.TemporaryDirectory())
                process = context.Process(target=_run, args=(program, place))
                process.start()
                running.append((process, pathlib.Path(place)))
            texts += [_said(*each) for each in running]
    return texts


def _said(process, place):
    """What a program has said when its process ends."""
    process.join(LIMIT)
    if process.exitcode is None:
        process.kill()
        process.join()
        return f"it did not end within {LIMIT} s"
    if (place / "messages").exists():
        return (place / "messages").read_text(encoding="utf-8")
    written = (place / "stderr").read_text(encoding="utf-8", errors="replace")
    return "\n".join(written.strip().splitlines()[-1:])


def _run(program, place):
    """Run a program as `python program.py` would in a folder of its own."""
    os.chdir(place)
    os.environ["OMP_NUM_THREADS"] = "1"
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), descriptor)
    path = pathlib.Path(place, "program.py")
    path.write_text(program, encoding="utf-8")
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = str(path)  # so that processes it starts can read it again
    lines = []
    with warnings.catch_warnings(record=True) as caught:
        try:
            exec(compile(program, str(path), "exec"), main.__dict__)
        except Exception as error:
            lines.append(f"{type(error).__name__}: {error}")
    lines += [f"{each.category.__name__}: {each.message}" for each in caught]
    text = "\n".join(dict.fromkeys(lines))
    pathlib.Path(place, "messages").write_text(text, encoding="utf-8")
    os._exit(0)  # whatever threads it has left
