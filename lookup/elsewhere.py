"""Messages and names that no row of lesson 16 has, and where they are explained:
regular expression, lesson and cell, what about; or, with no lesson, what to do.
"""

MESSAGES = [
    (
        r"kernel image|is not compatible with the current PyTorch installation",
        "01 arch-text",
        "a GPU whose generation this build of PyTorch leaves out. A new card wants the"
        " newest build; for one older than sm_75 see which build still has it (that for"
        " CUDA 12.6 does from sm_50). torch.cuda.get_arch_list() says what yours holds",
    ),
    (
        r"not currently implemented for the MPS device|MPS_FALLBACK",
        "",
        "Apple's GPU lacks this operation: PYTORCH_ENABLE_MPS_FALLBACK=1, set before"
        " PyTorch is imported, lets the CPU compute it.",
    ),
    (
        r"Bus error|out of shared memory|unable to (?:open|write to) .*shared memory",
        "",
        "Workers hand batches over in shared memory, of which a container has little:"
        " docker run --shm-size=8g, or --ipc=host; or take fewer workers.",
    ),
    (
        r"MPS framework doesn't support float64",
        "",
        "Apple's GPU has no float64: x.to(device, torch.float32); of NumPy's arrays"
        " first x.float().",
    ),
    (
        r"device type for generator",
        "02 default-loader-text",
        "random numbers on a device: a generator is of one device,"
        " torch.Generator(x.device)",
    ),
    (
        r"NCCL.*(unhandled|error)|(unhandled|error).*NCCL|ncclUnhandled",
        "11 collectives",
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
        r"working triton installation|TritonMissing|No module named 'triton'",
        "10 recipe-text",
        "what torch.compile needs: Triton, a compiler, a GPU of capability 7.0 and up",
    ),
    (
        r"not implemented for 'Half'",
        "08 half",
        "float16, which this operation lacks on the CPU: float32 or bfloat16 there",
    ),
    (
        r"given NumPy array is not writable",
        "02 copy",
        "a tensor that shares an array's memory; array.copy() can be written to",
    ),
    (
        r"has no attribute 'accelerator'",
        "01 pick",
        "torch.accelerator, which PyTorch has since 2.6",
    ),
    (
        r"driver (version )?.*(insufficient|too old)",
        "01 why",
        "a driver that is too old for this build of PyTorch: CUDA 12 needs 525 or"
        " newer, CUDA 13 needs 580. Install a newer one, or a build for an older CUDA",
    ),
    (
        r"Found no NVIDIA driver|No CUDA GPUs are available",
        "01 why",
        "a CUDA build of PyTorch that finds no GPU. nvidia-smi fails too: the driver is"
        " missing, or the machine has none (a container wants docker run --gpus all, a"
        " notebook in the cloud a GPU runtime). Else CUDA_VISIBLE_DEVICES may hide it",
    ),
    (
        r"CUDA initialization|CUDA unknown error",
        "01 why",
        "whether the driver, the build of PyTorch and the GPU fit together",
    ),
    (
        r"busy or unavailable",
        "01 why",
        "a GPU that another program holds; or restart the notebook's kernel",
    ),
    (
        r"valid cuDNN algorithm|unable to find an engine",
        "07 remedies",
        "memory; a convolution says this, too, where too little is free to work in",
    ),
    (
        r"None of the inputs have requires_grad",
        "07 checkpoint-text",
        "checkpoints; use_reentrant=False needs no input that asks for a gradient",
    ),
    (
        r"start a new process before the",
        "06 start",
        "worker processes, and why they want if __name__ == '__main__':",
    ),
    (
        r"client socket has timed out|Connection (refused|closed) by peer",
        "11 ways",
        "several processes, and the address at which they meet",
    ),
    (
        r"TPU initialization failed",
        "13 there",
        "which process has the TPU, and what is there",
    ),
    (
        r"module must have its parameters and buffers on device",
        "11 dataparallel",
        "DataParallel, whose model must be on the first of its GPUs; or use DDP",
    ),
    (
        r"gather along dimension 0",
        "11 dataparallel",
        "DataParallel, which gathers a loss for each GPU: take their mean, or use DDP",
    ),
    (
        r"No module named 'torch_xla'",
        "13 there",
        "torch_xla: where it is installed, and which PyTorch it fits",
    ),
    (
        r"ChildFailedError",
        "11 recipe-text",
        "one of several processes failed; its own traceback stands further up",
    ),
    (
        r"Cannot replicate if number of devices",
        "14 fails",
        "how many processes a TPU has, and who decides it",
    ),
    (
        r"Input type .* and weight type",
        "03 train-text",
        "a model that was moved, or cast, and a batch that was not",
    ),
    (
        r"expected scalar type|dtype of input|weight type .*Half",
        "08 half",
        "which type each operation computes in, and who casts",
    ),
    (
        r"re-initialize CUDA in forked",
        "06 start",
        "a worker process that was forked after CUDA had started",
    ),
    (
        r"illegal memory access|unspecified launch failure|CUBLAS_STATUS|CUDNN_STATUS"
        r"|asynchronously reported",
        "04 late-text",
        "errors of a GPU that are reported late, by another line than the guilty one",
    ),
    (
        r"lr_scheduler\.step\(\)` before",
        "08 order",
        "a first step that the scaler skips",
    ),
    (
        r"when stream is capturing|StreamCapture",
        "10 lies-after",
        "what a CUDA Graph must not meet: whatever asks for a value, such as .item(), a"
        " mask or print",
    ),
    (
        r"overwritten by a subsequent run",
        "10 modes-cpu-after",
        "CUDA graphs, also those of reduce-overhead, which overwrite their outputs at a"
        " later call: keep y.clone()",
    ),
    (
        r"recompile_limit|cache_size_limit",
        "10 limit-after",
        "a function that was compiled for eight kinds of input, and now runs eagerly."
        " TORCH_LOGS=recompiles says why; what changes in each step belongs into a"
        " tensor, and lengths want dynamic=True",
    ),
    (
        r"[Gg]raph break|capture_scalar_outputs|_dynamo.exc.Unsupported",
        "10 breaks-text",
        "what the compiler cannot put into a graph, such as .item() or an if that asks"
        " for a value: torch.where, or without fullgraph=True two graphs",
    ),
    (
        r"Watchdog caught collective|collective operation timeout",
        "12 hang-after",
        "a rank that did not come to the collective: read what it said first, and see"
        " with py-spy dump --pid, or the flight recorder, where it stands. timeout= of"
        " init_process_group says how long the others wait",
    ),
]
NAMES = [
    (
        r"(?im)^[^=():#\n]*\b(move|put|run|train|use)\b[^=():#\n]*\b(gpu|cuda)\b",
        "03 recipe",
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
        r"\btime\.(time|perf_counter)\(\)",
        "04 clock",
        "timings, and what they have to wait for",
    ),
    (r"nvidia-smi", "07 figures", "what nvidia-smi counts, and what PyTorch counts"),
    (
        r"CUDA_LAUNCH_BLOCKING",
        "04 late-text",
        "errors that are reported late, and how to let each launch wait",
    ),
    (
        r"extra-index-url|download\.pytorch\.org/whl",
        "01 build",
        "which build of PyTorch you have, and which you need",
    ),
    (
        r"device_count|current_device|get_device_properties|set_device|is_available",
        "01 see",
        "which devices there are",
    ),
    (
        r"ensure_same_device",
        "02 hidden-moves-text",
        "moving to one device without a word, and what that hides",
    ),
    (
        r"memory_(allocated|reserved|summary|stats)|mem_get_info",
        "07 figures",
        "allocated, reserved and peak memory",
    ),
    (
        r"profile_memory|torch\.profiler|autograd\.profiler",
        "09 parts",
        "the profiler, its tables and its traces",
    ),
    (
        r"reduce-overhead|max-autotune",
        "10 limit-text",
        "the modes of torch.compile, what they cost and buy",
    ),
    (
        r"torchrun|nproc_per_node|\bmp\.spawn|device_ids",
        "11 recipe-text",
        "several processes, and how they are started",
    ),
    (r"optimizer_step|import torch_xla", "13 ends", "a training step on a TPU"),
    (
        r"\baccelerate\b|Accelerator\(\)",
        "15 accelerate",
        "one loop for every device, and Accelerate beside it",
    ),
]
ELSEWHERE = MESSAGES + NAMES
