"""What a listing from the web is like: rows of lesson 16 by message and by code,
lessons where no row fits.
"""

import collections
import re

MOST = 5  # rows that are shown
# whose names can be the mark of a row
PACKAGES = "torch|torch_xla|functorch|apex"

# Wordings of a message that lead to a row which never gives them here, with their
# verdict. A line that fits is of this row and of no other.
WORDINGS = [
    (
        r"Input type \((torch\.cuda|MPS).* weight type \((?!torch\.cuda|MPS)"
        r"|Input type \((?!torch\.cuda|MPS).* weight type \((torch\.cuda|MPS)",
        "movement/batch-left",
        "raises",
    ),
    (
        r"is on (cpu|mps\S*) but expected on (mps|cpu)"
        r"|is on [CG]PU, but expected it to be on [CG]PU"
        r"|Expected object of (device type|backend) \w+ but got (device type|backend)"
        r"|Expected object of type torch\.cuda\.\w+ but found type torch\.(?!cuda)"
        r"|Expected object of type torch\.(?!cuda)\w+ but found type torch\.cuda"
        r"|\(device='.*weight\(device=.*must be on the same device"
        r"|Placeholder storage has not been allocated on MPS",
        "movement/batch-left",
        "raises",
    ),
    (r"cuda runtime error \(2\)", "memory/cuda-oom", "raises"),
    (r"block: \[.*thread: \[.*Assertion", "memory/device-assert", "raises"),
    (
        r"Input type \(\S*(Half|BFloat16)\S*\) and \w+ type \((?!\S*(Half|BFloat16))"
        r"|Input type \((?!\S*(Half|BFloat16))\S+\) and \w+ type \(\S*(Half|BFloat16)"
        r"|Expected object of scalar type \w+ but got scalar type Half"
        r"|(expected|Expected object of) scalar type (BFloat16|Half) but"
        r"|expected scalar type Float but found (BFloat16|Half)",
        "amp/same-dtype",
        "raises",
    ),
    (
        r"Found dtype Double but expected"
        r"|Expected object of (scalar )?type \S*Double"
        r"|Expected object of .* but (got|found) (scalar )?type \S*Double",
        "movement/scalar-double",
        "raises",
    ),
    (
        r"Expected object of (scalar )?type \S*Long"
        r"|'indices' to have (one of the following )?scalar type",
        "movement/scalar-long",
        "raises",
    ),
    (r"worker \(pid\(s\).*exited unexpectedly", "data/worker-exited", "raises"),
    (r"indices should be either on", "movement/batch-left", "raises"),
    (r"same dtype.*[Dd]ouble", "movement/scalar-double", "raises"),
    (r"same dtype.*[Hh]alf", "amp/same-dtype", "raises"),
    (r"name 'amp' from 'apex'", "amp/apex", "raises"),
    (
        r"deserialize object on [A-Z]+ device \d+ but",
        "movement/cuda-file",
        "raises",
    ),
    (
        r"torch\.load` with `weights_only=False` \(the current default",
        "movement/whole-model",
        "warns",
    ),
    (r"cuda\.Stream requires CUDA support", "streams/host-wait", "raises"),
    (r"no kernel image is available", "detection/kernels", "raises"),
    (
        r"CUDA capability sm_\d+ is not compatible",
        "detection/kernels",
        "warns",
    ),
    (
        r"unrecognized arguments: --local[-_]rank",
        "distributed/local-rank",
        "raises",
    ),
    (r"hit config\.(recompile|cache_size)_limit", "graphs/python-number", "warns"),
]

# A message that many lines give: which row it belongs to, unless the code says more;
# "" for none, whatever the code.
GENERAL = {
    r"driver (version )?.*(insufficient|too old)|busy or unavailable": "",
    r"not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs are available"
    r"|No HIP GPUs|no CUDA-capable device": "movement/not-compiled",
    r"Cannot access accelerator device when none is available": "detection/none-there",
}

# What a listing must contain to be like a row, as a regular expression. Rows that are
# not named here have the names of PyTorch that stand in their old part and nowhere else
# in the lesson; where there is none, they have their message alone.
MARKS = {
    "detection/cuda-or-cpu": (
        r"[\"']cuda(:0)?[\"'] if .*is_available\(\)|is_available\(\).*:\n\s*device ="
    ),
    "detection/name": r"torch\.cuda\.get_device_name",
    "detection/built-for": r"torch\.accelerator\.current_accelerator\(\)",
    "detection/index-is-none": r"\.index is not None",
    "detection/compare-devices": r"\.device == torch\.device",
    "detection/ordinal": r"set_device\([1-9]|[\"']cuda:[1-9]",
    "detection/kernels": r"(?!)",
    "detection/device-number": r"torch\.device\(\d",
    "movement/not-compiled": r"\.cuda\(\)",
    "movement/list-of-layers": r"self\.\w+ = \[nn\.",
    "movement/best-state": r"best\w* = [\w.]+\.state_dict\(\)",
    "movement/id": r"\bid\(\w+\)\s*[!=]= id\(",
    "movement/result-dropped": (
        r"(?m)^[ \t]*(?:x|y|X|xb|yb|data|imgs?|images?|inputs?|labels?|targets?|batch"
        r"|tensor|tokens|masks?)\.(?:to|cuda)\([^()=]*\)[ \t]*(?:[;,]|$)"
    ),
    "movement/whole-model": r"torch\.save\((?:self\.)?(?:model|net)\s*,",
    "movement/cuda-float-tensor": (
        r"(?m)torch\.cuda\.\w+Tensor(?:\(|\s*if\b)"
        r"|(?:[=:]\s*|type\()torch\.cuda\.\w+Tensor\b"
        r"|^\s*torch\.cuda\.\w+Tensor\s*$"
    ),
    "movement/big-t": r"torch\.Tensor\(\[",
    "movement/item": r"\bloss\w*\.data\[0\]",
    "movement/variable": r"\bVariable\(",
    "movement/volatile": r"volatile ?= ?True",
    "movement/async": r"async ?= ?True",
    "movement/storage": r"\.storage\(\)",
    "streams/synchronize": r"torch\.cuda\.synchronize\(",
    "streams/cold-run": (
        r"(?s)time\.(time|perf_counter)\(\).*(matmul|mm|@).*time\.(time|perf_counter)\(\)"
    ),
    "streams/host-wait": (
        r"(?s)^(?!.*wait_stream).*torch\.cuda\.Stream\(.*torch\.cuda\.stream\("
    ),
    "streams/pin-then-copy": r"\.pin_memory\(\)",
    "memory/total-loss": (
        r"loss\w* \+= loss\b(?!\.)|(?:total|running|epoch|train|valid?|test|sum|avg)"
        r"\w* \+= (?:\w*loss\w*|criterion|F\.\w+)\((?!.*\.(?:item|detach)\()"
    ),
    "memory/set-to-none": r"zero_grad\(set_to_none ?= ?True",
    "memory/retain-variables": r"\bretain_variables\b",
    "memory/legacy-function": r"class \w+\([\w.]*Function\):\s*def forward\(self",
    "memory/checkpoint": r"(?s)^(?!.*use_reentrant).*utils\.checkpoint",
    "amp/half-weights": r"\.half\(\)",
    "amp/tf32-flag": r"allow_tf32 ?=",
    "amp/clip-first": (
        r"(?s)scale\(.*\)\.backward\((?!.*unscale_.*clip_grad).*clip_grad"
    ),
    "data/one-by-one": r"(?!)",
    "data/many-workers": r"num_workers ?= ?(1[6-9]|[2-9]\d)",
    "data/next": r"\.next\(\)",
    "data/iterable-twice": r"(?s)^(?!.*get_worker_info).*IterableDataset.*num_workers",
    "distributed/same-order": r"(?s)^(?!.*set_epoch).*DistributedSampler\(",
    "distributed/no-sampler": (
        r"(?s)^(?!.*Sampler)(?=.*DataLoader\()"
        r"(?=.*(\brank\b|DistributedDataParallel\(|DDP\())"
    ),
    "distributed/nothing-starts": (
        r"(?s)device_count\(\).*spawn\(|spawn\(.*device_count\(\)"
    ),
    "distributed/wrapped-first": r"\bDataParallel\(.*\)\.(to|cuda)\(",
    "distributed/master-addr": r"(?s)^(?!.*MASTER_ADDR).*\bmp\.spawn\(",
    "distributed/device-ids": (
        r"DistributedDataParallel\(.*device_ids|DDP\(.*device_ids"
    ),
    "distributed/local-rank": r"--local[-_]rank",
    "distributed/data-parallel": r"\bDataParallel\(",
    "distributed/nccl": r"[\"']nccl[\"']",
    "distributed/reduce-op": r"\breduce_op\b",
    "graphs/compiled-keys": r"(?s)= torch\.compile\(.*state_dict\(\)",
    "graphs/inputs-in-capture": (
        r"cuda\.graph\(.*\n(?:[ \t]+.*\n)*?[ \t]+\w+ = torch\.\w+\(.*(device|\.cuda)"
    ),
    "graphs/capturable": r"(?s)^(?!.*capturable).*Adam.*cuda\.graph\(",
    "graphs/compiled-twice": r"(?s)(\w+) = torch\.compile\(.*= torch\.compile\(\1\b",
    "graphs/cuda-time": r"cuda_time_total[\"']",
    "graphs/cuda-time-total": r"\.cuda_time_total",
    "graphs/activity-cuda": r"ProfilerActivity\.CUDA",
    "graphs/profiler-use-cuda": r"use_cuda ?= ?True",
    "tpu/sync-wait": r"sync\(wait ?= ?True",
    "tpu/seed": r"(?!)",
}

# Where something is explained that no row fits: regular expression, lesson, what about;
# or, with no lesson, what to do about it.
ELSEWHERE = [
    (
        r"kernel image|is not compatible with the current PyTorch installation",
        "01",
        "a GPU whose generation this build of PyTorch leaves out",
    ),
    (
        r"not currently implemented for the MPS device|MPS_FALLBACK",
        "",
        "Apple's GPU lacks this operation: PYTORCH_ENABLE_MPS_FALLBACK=1, set before"
        " PyTorch is imported, lets the CPU compute it.",
    ),
    (
        r"MPS framework doesn't support float64",
        "",
        "Apple's GPU has no float64: x.to(device, torch.float32); of NumPy's arrays"
        " first x.float().",
    ),
    (
        r"device type for generator",
        "02",
        "random numbers on a device: a generator is of one device,"
        " torch.Generator(x.device)",
    ),
    (
        r"NCCL.*(unhandled|error)|(unhandled|error).*NCCL|ncclUnhandled",
        "11",
        "several processes; NCCL_DEBUG=INFO before the command lets NCCL say more",
    ),
    (
        r"CU(BLAS|DNN)_STATUS_(NOT_INITIALIZED|ALLOC_FAILED)",
        "",
        "cuBLAS or cuDNN could not start. Most often the GPU's memory is full: take a"
        " smaller batch, and see in nvidia-smi what other programs hold. Or an earlier"
        " kernel failed, at an index out of range: one batch on the CPU says so.",
    ),
    (
        r"(torchvision|models)\.\w+\(.*pretrained ?= ?True"
        r"|parameter 'pretrained' is deprecated"
        r"|than a weight enum or `?None`? for 'weights'",
        "",
        'torchvision: models.resnet50(weights="DEFAULT") takes the best weights;'
        ' those of pretrained=True are called weights="IMAGENET1K_V1".',
    ),
    (
        r"\bxla_device\b|Use torch_xla\.device instead",
        "",
        "xm.xla_device() is called torch_xla.device() today.",
    ),
    (
        r"(?<!for )(?<![\w'])DataParallel\b(?!')",
        "",
        "DataParallel works still, in one process. DistributedDataParallel took its"
        " place, a process for each GPU, started by torchrun (lesson 11).",
    ),
    (
        r"(?im)^[^=():#\n]*\b(move|put|run|train|use)\b[^=():#\n]*\b(gpu|cuda)\b",
        "03",
        "model.to(device), and of each batch x = x.to(device); lesson 01 says what"
        " device is",
    ),
    (
        r"cuda\.sdp_kernel",
        "",
        "torch.nn.attention.sdpa_kernel took its place; it takes the backends that are"
        " allowed: with sdpa_kernel(SDPBackend.MATH):",
    ),
    (
        r"working triton installation|TritonMissing|No module named 'triton'",
        "10",
        "what torch.compile needs: Triton, a compiler, a GPU of capability 7.0 and up",
    ),
    (
        r"not implemented for 'Half'",
        "08",
        "float16, which this operation lacks on the CPU: float32 or bfloat16 there",
    ),
    (
        r"given NumPy array is not writable",
        "02",
        "a tensor that shares an array's memory; array.copy() can be written to",
    ),
    (
        r"has no attribute 'accelerator'",
        "01",
        "torch.accelerator, which PyTorch has since 2.6",
    ),
    (
        r"CUDA initialization|CUDA unknown error",
        "01",
        "whether the driver, the build of PyTorch and the GPU fit together",
    ),
    (
        r"busy or unavailable",
        "01",
        "a GPU that another program holds; or restart the notebook's kernel",
    ),
    (
        r"valid cuDNN algorithm|unable to find an engine",
        "07",
        "memory; a convolution says this, too, where too little is free to work in",
    ),
    (
        r"None of the inputs have requires_grad",
        "07",
        "checkpoints; use_reentrant=False needs no input that asks for a gradient",
    ),
    (
        r"start a new process before the",
        "06",
        "worker processes, and why they want if __name__ == '__main__':",
    ),
    (
        r"client socket has timed out|Connection (refused|closed) by peer",
        "11",
        "several processes, and the address at which they meet",
    ),
    (
        r"TPU initialization failed",
        "13",
        "which process has the TPU, and what is there",
    ),
    (
        r"\btime\.(time|perf_counter)\(\)",
        "04",
        "timings, and what they have to wait for",
    ),
    (
        r"gather along dimension 0",
        "11",
        "DataParallel, which gathers a loss for each GPU: take their mean, or use DDP",
    ),
    (
        r"No module named 'torch_xla'",
        "13",
        "torch_xla: where it is installed, and which PyTorch it fits",
    ),
    (r"nvidia-smi", "07", "what nvidia-smi counts, and what PyTorch counts"),
    (
        r"CUDA_LAUNCH_BLOCKING",
        "04",
        "errors that are reported late, and how to let each launch wait",
    ),
    (
        r"ChildFailedError",
        "11",
        "one of several processes failed; its own traceback stands further up",
    ),
    (
        r"Cannot replicate if number of devices",
        "14",
        "how many processes a TPU has, and who decides it",
    ),
    (
        r"driver (version )?.*(insufficient|too old)",
        "01",
        "a driver that is too old for this build of PyTorch",
    ),
    (
        r"Input type .* and weight type",
        "03",
        "a model that was moved, or cast, and a batch that was not",
    ),
    (
        r"expected scalar type|dtype of input|weight type .*Half",
        "08",
        "which type each operation computes in, and who casts",
    ),
    (
        r"re-initialize CUDA in forked",
        "06",
        "a worker process that was forked after CUDA had started",
    ),
    (
        r"illegal memory access|unspecified launch failure|CUBLAS_STATUS|CUDNN_STATUS",
        "04",
        "errors of a GPU that are reported late, by another line than the guilty one",
    ),
    (
        r"lr_scheduler\.step\(\)` before",
        "08",
        "a first step that the scaler skips",
    ),
    (
        r"when stream is capturing|StreamCapture|overwritten by a subsequent run",
        "10",
        "what a CUDA Graph records, and what it must not meet",
    ),
    (
        r"recompile_limit|cache_size_limit|[Gg]raph break",
        "10",
        "why a compiled function compiles again, and when it gives up",
    ),
    (
        r"Watchdog caught collective|collective operation timeout",
        "12",
        "which process hangs, and who says so",
    ),
    (
        r"extra-index-url|download\.pytorch\.org/whl",
        "01",
        "which build of PyTorch you have, and which you need",
    ),
    (
        r"device_count|current_device|get_device_properties|set_device|is_available",
        "01",
        "which devices there are",
    ),
    (
        r"ensure_same_device",
        "02",
        "moving to one device without a word, and what that hides",
    ),
    (
        r"memory_(allocated|reserved|summary|stats)|mem_get_info",
        "07",
        "allocated, reserved and peak memory",
    ),
    (
        r"profile_memory|torch\.profiler|autograd\.profiler",
        "09",
        "the profiler, its tables and its traces",
    ),
    (
        r"reduce-overhead|max-autotune",
        "10",
        "the modes of torch.compile, what they cost and buy",
    ),
    (
        r"torchrun|nproc_per_node|\bmp\.spawn|device_ids",
        "11",
        "several processes, and how they are started",
    ),
    (r"optimizer_step|import torch_xla", "13", "a training step on a TPU"),
    (
        r"\baccelerate\b|Accelerator\(\)",
        "15",
        "one loop for every device, and Accelerate beside it",
    ),
]


# what listings use under these names, also where they show no import
USUAL = {
    "nn": "torch.nn",
    "dist": "torch.distributed",
    "optim": "torch.optim",
    "xm": "torch_xla.core.xla_model",
    "xmp": "torch_xla.distributed.xla_multiprocessing",
}


def spelled_out(source):
    """Source code without comments, with the full names of what it imports; also of
    code that is no Python.
    """
    code = re.sub(r"#.*", "", source)  # without comments
    names = dict(USUAL)
    # from MODULE import NAME as ALIAS, NAME
    imports = r"^\s*from (\S+) import \(?([\w, ]+)"
    for module, imported in re.findall(imports, code, re.M):
        for one in imported.split(","):
            name, _, alias = one.strip().partition(" as ")
            names[(alias or name).strip()] = f"{module}.{name.strip()}"
    # import MODULE as ALIAS
    for module, alias in re.findall(r"^\s*import (\S+) as (\w+)", code, re.M):
        names[alias] = module
    # one of these names before a dot or a call, and no attribute itself
    used = rf"(?<![\w.])({'|'.join(map(re.escape, names))})(?=\s*[.(])"
    imported = "\n".join(names[name] for name in names.keys() - USUAL.keys())
    full = re.sub(used, lambda found: names[found[1]], code)
    return f"{full}\n{code}\n{imported}"


def names_in(source):
    """Dotted names of PyTorch's packages in source code: torch.cuda.memory_cached."""
    return set(re.findall(rf"(?<![\w.])(?:{PACKAGES})(?:\.\w+)+", spelled_out(source)))


def marks(rows):
    """slug → regular expression that says by its code whether a listing is like a row;
    rows: slug → Row.
    """
    used = {slug: (names_in(row.old), names_in(row.new)) for slug, row in rows.items()}
    count = collections.Counter(
        name for old, new in used.values() for name in old | new
    )
    found = {}
    for slug, (old, new) in used.items():
        own = sorted(name for name in old - new if count[name] == 1)
        if slug in MARKS:
            found[slug] = MARKS[slug]
        elif own:
            found[slug] = rf"(?<![\w.])({'|'.join(map(re.escape, own))})\b"
    return found


def like(rows, message, source):
    """The rows that a listing resembles, best first. rows: slug → Row. message: its
    error and its warnings.

    First those whose message came and whose mark is in the code, then the other
    messages, then the other marks. Of a message that many lines give, the code decides
    which row it is; if it does not, there is one row for all.
    """
    code = spelled_out(source)
    marked = [slug for slug, mark in marks(rows).items() if re.search(mark, code)]
    told, general = [], []
    for line in message.split("\n"):
        own = [slug for pattern, slug, _ in WORDINGS if re.search(pattern, line)]
        found = own or [slug for slug, row in rows.items() if _says(row, line)]
        for pattern, slug in GENERAL.items():
            if re.search(pattern, line):
                found = [other for other in found if slug and other in marked]
                if not found:
                    general.append(slug)
        told += found
    both = [slug for slug in told if slug in marked]
    old = [slug for slug in marked if rows[slug].expected[""].word != "fine"]
    old.sort(key=lambda slug: slug in GENERAL.values())  # these last
    ordered = dict.fromkeys([*both, *general, *told, *old, *marked])
    return [rows[slug] for slug in ordered if slug in rows][:MOST]


def _says(row, line):
    return any(re.search(pattern, line) for pattern in row.patterns())


def told_as(row, message):
    """The verdict on a row whose words stand in this message; None if they do not."""
    whole = f"{message}\n{' '.join(message.split())}"
    for pattern, slug, word in WORDINGS:
        if slug == row.slug and re.search(pattern, whole):
            return word
    for verdict in row.expected.values():
        if verdict.pattern and re.search(verdict.pattern, whole):
            return verdict.word
    return None


def elsewhere(text):
    """Lessons that explain what stands in a text (code, a message, words that somebody
    looks for), a line each.
    """
    return [
        f"Lesson {lesson}: {what}." if lesson else what
        for pattern, lesson, what in ELSEWHERE
        if re.search(pattern, text)
    ]
