"""A toy device on the CPU: streams as queues with a thread each. What races on it races
for real.

Lesson 04 builds launch and synchronize, lesson 05 explains the waits; 05 and 06 use it
where there is no GPU.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class ToyStream:
    """A queue of work and one thread that does it in order: what a CUDA stream is to
    the host.

    Methods are named like those of torch.cuda.Stream. An event is the future of the
    last operation so far.
    """

    def __init__(self):
        self._worker = ThreadPoolExecutor(1)
        self._last = self._worker.submit(int)

    def launch(self, fn: Callable, *args) -> Future:
        """Put `fn(*args)` into the queue and return at once. Returns an event."""
        self._last = self._worker.submit(fn, *args)
        return self._last

    def record_event(self) -> Future:
        """An event that is done when all that is in the queue now is done."""
        return self._last

    def wait_event(self, event: Future) -> None:
        """Make the work launched from now on wait for `event`; the host goes on."""
        self.launch(event.result)

    def wait_stream(self, other: "ToyStream") -> None:
        """Make the work launched from now on wait for what is in the queue of `other`
        now.
        """
        self.wait_event(other.record_event())

    def query(self) -> bool:
        """Whether the queue is empty and the last operation done."""
        return self._last.done()

    def synchronize(self) -> None:
        """Make the host wait until the queue is empty. An error in the last operation
        is raised here.
        """
        self._last.result()
