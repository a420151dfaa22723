"""Where the host is: lines of the script, and a thread that looks each millisecond."""

import contextlib
import itertools
import linecache
import operator
import os
import re
import sys
import threading
import time
from collections import Counter

from torch.utils.data import dataloader

from .._kit import _lines
from .._kit.errors import file_name

AUTOGRAD = os.path.join(_lines.TORCH, "autograd", "__init__.py")
OPTIMIZER = os.path.join(_lines.TORCH, "optim", "optimizer.py")
FORWARD = "forward and Python"  # what is no other part of a step
CALLS = re.compile(r"(\w+)\(")
COPIES = {"to", "cuda", "to_device", "move_data_to_device"}
AT = operator.attrgetter("f_code", "f_lineno")
BESIDE = {"dict", "items", "list", "tuple", "values", "zip"}


class Frames:
    """What code a frame runs: the reader's ("user"), a library's, PyTorch's, or one
    that is a part of a step. Remembered by code object.
    """

    def __init__(self):
        self.kinds = {dataloader._BaseDataLoaderIter.__next__.__code__: "loader"}

    def kind(self, code):
        if code not in self.kinds:
            self.kinds[code] = _kind(code)
        return self.kinds[code]

    def look(self, frames):
        """(path and number of the reader's innermost line, library's place below it,
        part of a step) of `AT` of frames, the innermost first. An optimizer's closure
        is no part of the optimizer.
        """
        path, line, inside, part, library = "", 0, "", "", ("", 0)
        for code, number in frames:
            kind = self.kind(code)
            if kind in ("loader", "backward") or (kind == "optimizer" and not path):
                part = part or kind
            elif kind == "user" and not path:
                path, line = code.co_filename, number or 0
            elif kind == "library" and not path and not inside:
                library = code.co_filename, number or 0
                inside = f"{short(library[0])}:{library[1]}"
        if not path:  # nothing is the reader's: `-m` of a library
            return *library, "", part
        return path, line, inside, part

    def calls(self, frame):
        """All lines of the reader and of libraries: the same in each turn of a loop."""
        return tuple(
            (code.co_filename, line)
            for code, line in stack(frame)
            if self.kind(code) in ("user", "library")
        )


def stack(frame):
    while frame:
        yield AT(frame)
        frame = frame.f_back


def _kind(code):
    path = code.co_filename
    if path == AUTOGRAD and code.co_name == "backward":
        return "backward"
    if path == OPTIMIZER and code.co_name == "wrapper":  # profile_hook_step
        return "optimizer"
    if path.startswith(_lines.OWN) or "torchinductor" in path:
        return "torch"
    if any(part in path for part in _lines.LIBRARIES):
        return "library"
    return "user" if _lines.is_reader(path) else "standard"


def short(path):
    """The path of a library's file, from the library on."""
    for folder in _lines.LIBRARIES:
        path = path.rpartition(folder + os.sep)[2]
    return path.replace(os.sep, "/")


def line_of(path, line):
    """A Line of the report."""
    return {
        "where": f"{file_name(path)}:{line}" if path else "no line of the script",
        "path": path,
        "line": line,
        "code": linecache.getline(path, line).strip(),
    }


class Sampler(threading.Thread):
    """Adds to `watch.step.sampled` where one thread is, in seconds."""

    def __init__(self, watch):
        super().__init__(daemon=True, name="device-lab")
        self.watch, self.looked_at = watch, threading.get_ident()
        self.on = True
        # Python keeps the interpreter for 5 ms, operators let it go: seen too often
        self.interval = sys.getswitchinterval()
        sys.setswitchinterval(min(self.interval, 0.00005))
        snapshots = iter(sys._current_frames, None)
        self.innermost = map(operator.itemgetter(self.looked_at), snapshots)
        self.start()

    def stop(self):
        self.on = False
        self.join()
        sys.setswitchinterval(self.interval)

    def run(self):
        look, last, before = self.watch.frames.look, time.perf_counter(), (None, None)
        while self.on:
            time.sleep(0.001)
            step, now = self.watch.step, time.perf_counter()
            if step is not None and (frames := self.running()):
                place = look(frames)
                half = max(0.0, now - max(last, step.start)) / 2
                step.sampled[place] += half
                step.sampled[before[1] if before[0] is step else place] += half
                before = step, place
            last = now

    def running(self):
        """`AT` of the thread's frames, in one call of C: else the thread goes on, to
        later lines, and Python 3.11 may follow a frame that has ended.
        """
        found, innermost = [], itertools.islice(self.innermost, 1)
        steps = itertools.chain(innermost, itertools.repeat("f_back"))
        with contextlib.suppress(AttributeError, KeyError):  # the end of the stack
            found.extend(map(AT, itertools.accumulate(steps, getattr)))
        return found


def longest(steps, parts=None):
    """The lines where these steps spent most time, in seconds of a mean step. parts: of
    each part the seconds that were timed; what was looked at says how to divide them.
    """
    seen, spent = {}, Counter()
    for step in steps:
        for (path, line, inside, part), seconds in step.sampled.items():
            seen.setdefault((path, line, part), Counter())[inside] += seconds
            spent[part if parts else ""] += seconds
    if not parts:
        parts = {"": sum(step.seconds for step in steps) / max(1, len(steps))}
    rows = {}
    for (path, line, part), places in seen.items():
        whole = part if part in parts else FORWARD if FORWARD in parts else ""
        seconds = places.total() / spent[part if whole else ""] * parts[whole]
        row = line_of(path, line) | {"seconds": seconds}
        inside, most = places.most_common(1)[0]
        row["inside"] = inside if most > 0.8 * places.total() else ""
        calls = set(CALLS.findall(row["code"]))
        copies = not part and calls & COPIES and calls <= COPIES | BESIDE
        row["part"] = "copy" if copies else part
        other = rows.setdefault((path, line), row)  # in another part
        if other is not row:
            sums = {"seconds": row["seconds"] + other["seconds"]}
            rows[path, line] = max(row, other, key=lambda x: x["seconds"]) | sums
    return sorted(rows.values(), key=lambda row: -row["seconds"])
