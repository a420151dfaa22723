"""What a message of PyTorch means today, and what helps.

    >>> from torch_messages import explain, find, look_up
    >>> look_up("RuntimeError: Can't call numpy() on Tensor that requires grad.")
    >>> explain()                                      # the last error, without pasting
    >>> answers, others = find("RuntimeError: CUDA out of memory. Tried to allocate")
    >>> answers[0].entry.id
    'memory/cuda-oom'

`look_up` and `explain` print; `find` gives the entries of the table; `entries` all of
them. In a notebook `%load_ext torch_messages` puts a line below each traceback that is
known. Nothing here imports PyTorch, or asks a network.
"""

from torch_messages.lookup import look_up
from torch_messages.match import Found, find
from torch_messages.messages import Entry, entries
from torch_messages.notebook import (
    explain,
    load_ipython_extension,
    unload_ipython_extension,
)

__version__ = "0.1.0"
__all__ = [
    "Entry",
    "Found",
    "entries",
    "explain",
    "find",
    "load_ipython_extension",
    "look_up",
    "unload_ipython_extension",
]
