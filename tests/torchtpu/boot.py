"""TorchTPU 0.2.0 on XLA's CPU device: run the Python files that are named, one after
the other, as one program. No TPU: it shows what a call does, not how fast it is.

REAL_PJRT=…/pjrt_c_api_cpu_plugin.so TPU_LIBRARY_PATH=…/shim.so python boot.py FILE…
"""

import os
import pathlib
import sys

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # first a chip has to be found
os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # else it asks Google Cloud for minutes

import torch  # noqa: E402, F401
from torch_tpu import _loader  # noqa: E402
from torch_tpu._internal.utils import hardware  # noqa: E402

hardware.get_tpu_device_count = lambda: 1
_loader.load()
names = {"__name__": "__main__"}
for path in sys.argv[1:]:
    exec(compile(pathlib.Path(path).read_text(encoding="utf-8"), path, "exec"), names)
