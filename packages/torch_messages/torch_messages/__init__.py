"""What a message of PyTorch means today, and what helps.

    >>> from torch_messages import find, look_up
    >>> look_up("RuntimeError: Can't call numpy() on Tensor that requires grad.")
    >>> answers, others = find("RuntimeError: CUDA out of memory. Tried to allocate")
    >>> answers[0].entry.id
    'memory/cuda-oom'

`look_up` prints; `find` gives the entries of the table; `entries` all of them. Nothing
here imports PyTorch, or asks a network.
"""

from torch_messages.lookup import look_up
from torch_messages.match import Found, find
from torch_messages.messages import Entry, entries

__version__ = "0.1.0"
__all__ = ["Entry", "Found", "entries", "find", "look_up"]
