"""What users type into the search, and where they want to be: written from headings and
tables of the course, before any result had been seen.
"""

LESSON = {
    number: f"notebooks/{number}_{name}.html"
    for number, name in {
        "00": "start_here",
        "01": "device_detection",
        "02": "tensors_on_devices",
        "03": "models_on_devices",
        "04": "asynchrony_and_timing",
        "05": "streams",
        "06": "pinned_memory_and_data_loading",
        "07": "memory",
        "08": "mixed_precision",
        "09": "profiling",
        "10": "graphs_and_compile",
        "11": "distributed_data_parallel",
        "12": "scaling_out",
        "13": "tpu_with_xla",
        "14": "many_tpu_cores",
        "16": "old_code_today",
    }.items()
}
ANSWER, TERM, ZH = "docs/answers.html#", "docs/glossary.html#", "docs/zh.html"
ERROR = "docs/errors/"

# Query → how the link of one of the first three results begins: any of these will do.
QUERIES = {
    # names
    "pin_memory": [LESSON["06"]],
    "non_blocking": [LESSON["06"]],
    "synchronize": [LESSON["04"]],
    "torch.cuda.empty_cache": [LESSON["07"]],
    "state_dict map_location": [LESSON["03"]],
    "num_workers": [LESSON["06"]],
    "GradScaler": [LESSON["08"]],
    "record_stream": [LESSON["05"]],
    "fully_shard": [LESSON["12"]],
    "CUDA_VISIBLE_DEVICES": [LESSON["01"]],
    # what is seen
    "out of memory": [f"{ANSWER}cuda-out-of-memory", LESSON["07"]],
    "CUDA out of memory": [f"{ANSWER}cuda-out-of-memory"],
    "is my gpu used": [LESSON["01"]],
    "gpu not found": [LESSON["01"], f"{ANSWER}cuda-is-not-available"],
    "nan loss": [f"{ANSWER}the-loss-is-nan-with-amp", LESSON["08"]],
    "torch.compile slow": [f"{ANSWER}torch-compile-is-slow-or-breaks", LESSON["10"]],
    "ddp hang": [f"{ANSWER}ddp-hangs"],
    "gpu utilization low": [f"{ANSWER}the-gpu-is-idle", LESSON["09"]],
    "dataloader stuck": [f"{ANSWER}dataloader-hangs-or-dies"],
    # words of messages
    "no kernel image": [f"{ERROR}which-device.html#message-detection-kernels"],
    "Expected all tensors to be on the same device": [
        f"{ANSWER}expected-all-tensors-to-be-on-the-same-device"
    ],
    "not compiled with cuda": [
        f"{ERROR}tensors-and-models-on-devices.html#message-movement-not-compiled"
    ],
    "device-side assert": [
        f"{ERROR}memory-and-gradients.html#message-memory-device-assert",
        LESSON["04"],
    ],
    "address already in use": [
        f"{ERROR}several-processes.html#message-distributed-port"
    ],
    "mps fallback": [
        f"{ERROR}tensors-and-models-on-devices.html#message-movement-mps-operator"
    ],
    # concepts
    "bf16": [LESSON["08"], f"{TERM}bfloat16"],
    "streams": [LESSON["05"], f"{TERM}stream"],
    "gradient checkpointing": [LESSON["07"], f"{TERM}activation-checkpointing"],
    "world size": [f"{TERM}world-size", LESSON["11"]],
    "TPU": [LESSON["13"], f"{TERM}tpu", "docs/tpu.html"],
    # tasks
    "free gpu memory": [LESSON["07"]],
    "load gpu checkpoint on cpu": [LESSON["03"]],
    "use multiple gpus": [LESSON["11"]],
    "resume training": [LESSON["03"], LESSON["12"]],
    "measure gpu time": [LESSON["04"]],
    # Chinese
    "显存": [ZH, LESSON["07"]],
    "显存不足": [ZH],
    "多卡训练": [ZH],
    "锁页内存": [f"{TERM}pinned-memory", LESSON["06"]],
    # typing errors
    "out of memmory": [f"{ANSWER}cuda-out-of-memory", LESSON["07"]],
}
assert len(QUERIES) == 40
