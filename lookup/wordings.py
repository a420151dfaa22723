"""Words and messages by which rows of lesson 16 are found, beside those that the rows
give themselves.
"""

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
