"""A plugin of pytest: the code cells of lessons as tests, run by nbval.

It is nbval's collector with what the course needs besides: no comment and no tag spares
a cell; a kernel that died ends the wait; memory is watched; a cell fails that writes to
stderr (except with the tag `lab-stderr`), that shows what was not announced, and whose
result could not be recorded. What a cell showed goes along with its report, as JSON:
tools/lessons/plugin.py counts it, whichever process ran the cell.
"""

import contextlib
import copy
import json
import re
import time
from pathlib import Path
from queue import Empty

import psutil
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

from course import grammar
from course.messages import NOT_LIVE, state_of
from tools.lessons.recorder import claims_in

# seconds to wait for a cell's outputs; nbval's own 5 s are too few on a busy machine
OUTPUT_TIMEOUT = 60


def pytest_addoption(parser):
    option = parser.getgroup("lessons").addoption
    option("--twice", action="store_true", help="run cells twice, in one kernel")
    option("--findings", action="store_true", help="fail nothing that is not announced")


def pytest_collect_file(file_path, parent):
    # nbval itself collects nothing without its option --nbval
    if file_path.suffix == ".ipynb":
        return LessonFile.from_parent(parent, path=file_path)


def mib_of(process):
    return process.memory_info().rss / 2**20


class Kernel(RunningKernel):
    """A kernel that notes how much memory it needs while nbval waits for its messages,
    and whose death ends the wait.
    """

    kernel_mib = 0.0  # the most memory that it had
    family_mib = 0.0  # the most that it and its processes had together

    def get_message(self, stream, timeout=None):
        end = time.monotonic() + timeout
        while True:
            try:
                return super().get_message(stream, min(0.5, timeout))
            except Empty:
                self.look_at_family()
                if not self.is_alive():
                    raise RuntimeError(
                        "the kernel died: out of memory, or a crash in compiled code"
                    ) from None
                if time.monotonic() >= end:
                    raise

    def look_at_family(self):
        """Note the memory that the kernel and all that it started have now. Pages that
        several processes share count in each: it is rather too much than too little.
        """
        with contextlib.suppress(psutil.Error):  # one of its processes has just ended
            process = psutil.Process(self.km.provisioner.pid)
            family = [process, *process.children(recursive=True)]
            self.family_mib = max(self.family_mib, sum(map(mib_of, family)))

    def look_at_itself(self):
        """Note the most memory that the kernel has had so far (outside Linux: what it
        has now).

        Without the pages of libraries' files: after an installation they are all there,
        later only those that were used (torch_xla: 200 MiB more), and the system takes
        them back when it needs them.
        """
        if not self.is_alive():
            return
        status = Path(f"/proc/{self.km.provisioner.pid}/status")
        if status.exists():
            sizes = re.findall(r"(?:VmHWM|RssFile):\s+(\d+)", status.read_text())
            peak, files = map(int, sizes)
            self.kernel_mib = max(self.kernel_mib, (peak - files) / 2**10)
        else:  # on Windows the process is a launcher, whose child is the kernel
            self.look_at_family()
            self.kernel_mib = self.family_mib

    def unrecordable(self, source):
        """Why the result that a cell just measured could not be recorded, or None."""
        header = grammar.header(source)
        if header is None or header.kind != "result" or not header.recordable:
            return None
        question = (
            f"__import__('course.provenance').provenance.as_json({header.name!r},"
            f" {header.name})"
        )
        asked, why = self.kc.execute(question, silent=True, allow_stdin=False), None
        while True:
            message = self.get_message("iopub", timeout=OUTPUT_TIMEOUT)
            if message["parent_header"].get("msg_id") == asked:
                why = message["content"].get("evalue", why)
                if message["content"].get("execution_state") == "idle":
                    return why


class LessonFile(IPyNbFile):
    """A lesson: as nbval's, with our kernel and our cells."""

    def setup(self):
        try:
            self.kernel = self.start()
        except RuntimeError:
            # It did not answer: ports are chosen before they are taken, and another
            # process may have taken one in between.
            self.kernel = self.start()

    def start(self):
        return Kernel(
            CURRENT_ENV_KERNEL_NAME,
            cwd=str(self.path.parent),
            startup_timeout=self.config.option.nbval_kernel_startup_timeout,
        )

    def collect(self):
        self.compare_outputs = False  # but for cells with the tag nbval-check-output
        known = list(super().collect())
        yield from (self.cell(each, each.cell_num, each.name) for each in known)
        if self.config.option.twice:
            for each in known:
                number = len(known) + each.cell_num
                yield self.cell(each, number, f"{each.name} again")

    def cell(self, known, number, name):
        """nbval's cell as one of ours."""
        return LessonCell.from_parent(
            self,
            name=name,
            cell_num=number,
            # nbval joins stored outputs in place
            cell=copy.deepcopy(known.cell),
            options={**known.options, "skip": False, "check_exception": False},
        )


class LessonCell(IPyNbCell):
    """A code cell: as nbval's, and it says what happened."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.output_timeout = OUTPUT_TIMEOUT
        self.strict = not self.config.option.findings
        # what the report says, but for what is added in the end
        self.said = {"number": self.cell_num, "id": self.cell.id, "done": False}
        self.said["findings"] = []  # what is otherwise than announced

    def runtest(self):
        kernel = self.parent.kernel
        try:
            self.run_strictly()
            self.judge()
            self.said["done"] = True
        finally:
            kernel.look_at_itself()
            self.said["kernel_mib"] = kernel.kernel_mib
            self.said["family_mib"] = kernel.family_mib
            self.user_properties.append(("cell", json.dumps(self.said)))

    def run_strictly(self):
        """Run the cell. Where it shows something else than is stored, that is an
        error, or with --findings a finding.
        """
        try:
            super().runtest()
        except NbCellError as error:
            errors = [out.get("ename") for out in self.test_outputs]
            timed = "timed=True" in self.cell.source
            self.said["missed"] = timed and "ClaimError" in errors
            if self.strict or str(error) != "Cell outputs differ":
                raise
            # exercises show a reader buttons, and what is stored is a line
            if "exercise" not in self.cell.metadata.get("tags", []):
                differs = "shows something else than its stored output"
                self.said["findings"].append(differs)

    def compare_outputs(self, test, ref, skip_compare=None):
        return super().compare_outputs(self.own(test), self.own(ref), skip_compare)

    def own(self, outputs):
        """Outputs that a cell makes itself, without what the course says of where they
        come from. A reader who has not guessed is told no answer, so with --findings
        answers are left out, too.
        """
        others = {"live", "working", *NOT_LIVE}
        others |= set() if self.strict else {"revealed"}
        return [output for output in outputs if state_of(output) not in others]

    def judge(self):
        """Note what a cell that ran shows; an error for what must not be there."""
        for state, text in self.unannounced():
            if self.strict and state != "missed":
                self.raise_cell_error(f"A finding ({state}): {text}")
            self.said["findings"].append(text)
        states = [state_of(output) for output in self.test_outputs]
        live = NOT_LIVE.isdisjoint(states)
        if live and (why := self.parent.kernel.unrecordable(self.cell.source)):
            self.raise_cell_error(why)
        self.said["live"] = live
        self.said["held"] = states.count("claim")
        self.said["unjudged"] = states.count("unjudged")
        self.said["claims"] = claims_in(self.test_outputs) if live else []

    def unannounced(self):
        """(state, text) of what a cell that ran shows and was not announced."""
        for out in self.test_outputs:
            if state_of(out) in ("finding", "missed", "waiting"):
                yield state_of(out), out.data["text/plain"]
            tagged = "lab-stderr" in self.cell.metadata.get("tags", [])
            if out.get("name") == "stderr" and not tagged:
                said = "the cell wrote to stderr (if it must, tag it `lab-stderr`): "
                yield "stderr", said + out.text.strip()
