"""What torch_messages.numbers says of real lines, and that it is silent beside them."""
# ruff: noqa: E501   real lines, as they are

import json
import re

import pytest
from growth import growth

from torch_messages import numbers

NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a"
    " total capacity of {total} of which {free} is free. {who}Of the allocated memory"
    " {allocated} is allocated by PyTorch, and {spare} is reserved by PyTorch but"
    " unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate {tried} (GPU 0; {total} total"
    " capacity; {allocated} already allocated; {free} free; {allowed}{reserved})"
)
ASYNC = """torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 6.89 GiB
Requested               : 320.00 MiB
Device limit            : 23.69 GiB
Free (according to CUDA): {free}
PyTorch limit (set by user-supplied memory fraction)
                        : {limit}"""
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: {}, other allocations: {},"
    " max allowed: {}). Tried to allocate {} on private pool. Use"
    " PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory"
    " allocations (may cause system failure)."
)
WATCHDOG = (
    "[rank{0}]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog"
    " caught collective operation timeout: WorkNCCL(SeqNum={1}, OpType={2},"
    " NumelIn={3}, NumelOut={3}, Timeout(ms)={4}) ran for 600060 milliseconds before"
    " timing out.\n"
)
WORK = (
    "[rank{0}]:[E321 02:07:08.465150152 ProcessGroupNCCL.cpp:1664] [{1} Rank {0}]"
    " Exception (either an error or timeout) detected by watchdog at work: {2}, last"
    " enqueued NCCL work: 1582, last completed NCCL work: {3}.\n"
)
SM = (
    "UserWarning: \nNVIDIA {} with CUDA capability sm_{} is not compatible with the"
    " current PyTorch installation.\nThe current PyTorch install supports CUDA"
    " capabilities {}.\nIf you want to use the GPU with PyTorch, please check"
)
FOUND = (
    "Found GPU0 {} which is of cuda capability {}.\n    Minimum and Maximum cuda"
    " capability supported by this version of PyTorch is\n    ({}) - ({})"
)


def new(figures, who=""):
    """The message of PyTorch 2.1 to 2.15."""
    tried, total, free, allocated, spare = figures.split(", ")
    return NEW.format(**locals())


def old(figures, allowed=""):
    """The message of PyTorch 1.0 to 2.0."""
    tried, total, allocated, free, reserved = figures.split(", ")
    return OLD.format(**locals())


# rule → texts of which it says its sentence, a piece of that, and texts like them that
# it must be silent about. Where a line is from stands behind it.
RULES = {
    "slice": (
        [
            "name: NVIDIA H100 80GB HBM3 MIG 1g.10gb\n"
            + new("2.00 GiB, 9.75 GiB, 1.06 GiB, 8.20 GiB, 0.00 bytes")
        ],
        "this slice of a GPU (MIG 1g.10gb)",
        [  # the head of each nvidia-smi (CompVis/taming-transformers#194)
            "|   |               MIG M. |\n"
            + old(
                "1.39 GiB, 6.00 GiB, 4.04 GiB, 478.00 MiB, 4.15 GiB reserved in total by PyTorch"
            )
        ],
    ),
    "slice-card": (
        [
            "GPU models and configuration: GPU 0: NVIDIA A100-SXM4-40GB\n"
            + new("2.00 GiB, 9.75 GiB, 1.06 GiB, 8.20 GiB, 10.00 MiB")
        ],
        "less than half of what the A100",
        [
            "GPU 0: NVIDIA A100-SXM4-40GB\n"
            + new("2.00 GiB, 39.39 GiB, 1.06 GiB, 38.20 GiB, 10.00 MiB"),
            "On an H100 it works.\n"
            + new("2.00 GiB, 23.65 GiB, 1.06 GiB, 22.20 GiB, 10.00 MiB"),
        ],
    ),
    "asked-too-much": (
        [
            # wxian3/NeuroLens#2
            new("55.57 GiB, 12.00 GiB, 9.02 GiB, 984.52 MiB, 463.48 MiB").replace(
                "capacity", "capacty"
            ),
            # YingqianWang/iPASSR#9
            old(
                "10.73 GiB, 8.00 GiB, 17.20 GiB, 0 bytes, 19.15 GiB reserved in total by PyTorch"
            ),
            # studio-dots-ai/dots.ocr#196
            new(
                "74.16 GiB, 44.40 GiB, 29.89 GiB, 13.44 GiB, 738.96 MiB",
                "Process 2684311 has 14.51 GiB memory in use. ",
            ),
        ],
        "freeing memory does not help",
        [new("1.70 GiB, 6.00 GiB, 0 bytes, 5.20 GiB, 30.00 MiB")],
    ),
    "spilled": (
        # light-and-ray/sd-webui-replacer#74, its request made smaller
        [new("2.12 GiB, 11.99 GiB, 0 bytes, 16.16 GiB, 144.59 MiB")],
        "already lent the host's memory",
        [new("2.12 GiB, 11.99 GiB, 0 bytes, 11.16 GiB, 144.59 MiB")],
    ),
    "limit": (
        [
            # recorded in lesson 07
            "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 78.22 GiB is free. Including non-PyTorch memory, this process has 972.00 MiB memory in use. 474.00 MiB allowed; Of the allocated memory 205.55 MiB is allocated by PyTorch, and 12.45 MiB is reserved by PyTorch but unallocated.",
            new(
                "2.00 GiB, 23.65 GiB, 18.11 GiB, 4.20 GiB, 30.00 MiB",
                "Including non-PyTorch memory, this process has 4.60 GiB memory in use. 5.00 GiB allowed; ",
            ),
            old(
                "2.00 GiB, 23.65 GiB, 4.20 GiB, 18.11 GiB, 4.23 GiB reserved in total by PyTorch",
                "5.00 GiB allowed; ",
            ),
            ASYNC.format(free="12.00 GiB", limit="7.00 GiB"),
        ],
        "set_per_process_memory_fraction",
        [
            ASYNC.format(
                free="2.94 MiB", limit="17179869184.00 GiB"
            ),  # blueroutecn/ComfyUI-ChatTTS#9
            new(
                "2.00 GiB, 23.65 GiB, 18.11 GiB, 4.20 GiB, 30.00 MiB",
                "20.00 GiB allowed; ",
            ),
        ],
    ),
    "gtt": (
        # kyuz0/amd-strix-halo-vllm-toolboxes#11
        [
            "amd_iommu=off amdgpu.gttsize=126976 ttm.pages_limit=32505856\n"
            + new("1.08 GiB, 62.47 GiB, 769.28 MiB, 61.41 GiB, 138.26 MiB").replace(
                "CUDA out", "HIP out"
            )
        ],
        "62.47 GiB on an APU is about half of the RAM",
        [
            # no APU in the text; one with all of its memory (kyuz0/…-image-video-toolboxes#3)
            new("1.08 GiB, 62.47 GiB, 769.28 MiB, 61.41 GiB, 138.26 MiB").replace(
                "CUDA out", "HIP out"
            ),
            "Strix Halo\n"
            + new("3.31 GiB, 128.00 GiB, 780.24 MiB, 57.70 GiB, 75.82 MiB").replace(
                "CUDA out", "HIP out"
            ),
            "Ryzen AI, Radeon RX 7900\n"
            + new("1.08 GiB, 15.98 GiB, 769.28 MiB, 14.41 GiB, 138.26 MiB").replace(
                "CUDA out", "HIP out"
            ),
        ],
    ),
    "unified": (
        [
            "NVIDIA GB10, driver 580\n"
            + new("4.00 GiB, 119.70 GiB, 1.20 GiB, 60.00 GiB, 200.00 MiB")
        ],
        "CPU and GPU share these 119.70 GiB, and 58.3 GiB of them",
        [
            new("4.00 GiB, 119.70 GiB, 1.20 GiB, 60.00 GiB, 200.00 MiB"),
            "NVIDIA GB10\n"
            + new("4.00 GiB, 119.70 GiB, 1.20 GiB, 117.00 GiB, 200.00 MiB"),
        ],
    ),
    "fragmented": (
        [
            # carolchenyx/MGFN.#35, kerrj/lerf#73
            new("1.70 GiB, 6.00 GiB, 0 bytes, 2.93 GiB, 2.30 GiB"),
            new(
                "3.00 GiB, 23.65 GiB, 1.66 GiB, 12.09 GiB, 4.84 GiB",
                "Including non-PyTorch memory, this process has 20.81 GiB memory in use. ",
            ),
            # the table's own
            old(
                "734.00 MiB, 10.74 GiB, 7.82 GiB, 195.75 MiB, 9.00 GiB reserved in total by PyTorch"
            ),
        ],
        "in pieces that are too small: fragmented",
        [
            new("2.40 GiB, 6.00 GiB, 0 bytes, 3.20 GiB, 2.30 GiB"),
            # pytorch#16417: the reserve is 1 % of the GPU, which is full
            new("22.00 MiB, 23.65 GiB, 11.06 MiB, 22.90 GiB, 194.87 MiB"),
        ],
    ),
    "in-two": (
        [new("9.50 GiB, 23.65 GiB, 5.10 GiB, 12.09 GiB, 5.84 GiB")],
        "would do together for the 9.50 GiB",
        [new("11.50 GiB, 23.65 GiB, 5.10 GiB, 12.09 GiB, 5.84 GiB")],
    ),
    "refused": (
        [
            # pytorch#59778, pytorch#16417, all1new/StructureFlow#35, ComfyUI#9529
            old(
                "2.26 GiB, 6.00 GiB, 781.59 MiB, 3.03 GiB, 1.24 GiB reserved in total by PyTorch"
            ),
            old("12.50 MiB, 10.92 GiB, 8.57 MiB, 9.28 GiB, 4.68 MiB cached"),
            old("8.13 GiB, 10.76 GiB, 643.57 MiB, 8.20 GiB, 32.43 MiB cached"),
            new("432.00 MiB, 15.92 GiB, 7.12 GiB, 8.08 GiB, 321.96 MiB").replace(
                "CUDA out", "HIP out"
            ),
        ],
        "and still refused",
        [
            new("1.16 GiB, 7.75 GiB, 1.15 GiB, 6.21 GiB, 18.97 MiB"),
            new("20.00 MiB, 7.75 GiB, 21.00 MiB, 7.21 GiB, 18.97 MiB"),
            # XPU's free is an estimate where the driver does not say it
            new("432.00 MiB, 15.92 GiB, 7.12 GiB, 8.08 GiB, 321.96 MiB").replace(
                "CUDA out", "XPU out"
            ),
        ],
    ),
    "other-process": (
        [
            # two programs on a card, as of the ones below
            new(
                "20.00 MiB, 23.65 GiB, 11.06 MiB, 8.90 GiB, 10.87 MiB",
                "Process 3061 has 14.20 GiB memory in use. Including non-PyTorch memory, this process has 9.41 GiB memory in use. ",
            )
        ],
        "Other processes hold 14.2 GiB of this GPU's 23.65 GiB",
        [
            # pytorch#16417: all of it is its own
            new(
                "22.00 MiB, 23.65 GiB, 11.06 MiB, 22.90 GiB, 194.87 MiB",
                "Including non-PyTorch memory, this process has 23.60 GiB memory in use. ",
            ),
            # in a container, the process that is named is this one (Colab; ollama#10089)
            new(
                "20.00 MiB, 14.75 GiB, 15.06 MiB, 14.24 GiB, 371.46 MiB",
                "Process 3427 has 14.73 GiB memory in use. ",
            ),
            new(
                "1.25 GiB, 15.60 GiB, 700.88 MiB, 14.62 GiB, 87.96 MiB",
                "Process 2514 has 14.91 GiB memory in use. ",
            ),
            # awslabs/keys_values#92: others, and small
            new(
                "572.00 MiB, 39.49 GiB, 321.31 MiB, 36.04 GiB, 321.37 MiB",
                "Process 3721648 has 414.00 MiB memory in use. Including non-PyTorch memory, this process has 37.46 GiB memory in use. Process 1374765 has 414.00 MiB memory in use. Process 1374763 has 414.00 MiB memory in use. ",
            ),
            # rhymes-ai/Aria#24: the driver does not tell
            new(
                "1.88 GiB, 21.96 GiB, 1.29 GiB, 19.02 GiB, 1.32 GiB",
                "Including non-PyTorch memory, this process has 0 bytes memory in use. ",
            ),
        ],
    ),
    "outside": (
        [
            # vllm#783: 15 GiB of others
            old(
                "1.63 GiB, 44.56 GiB, 27.91 GiB, 565.31 MiB, 27.93 GiB reserved in total by PyTorch"
            ),
            # pytorch#67971, Synthintel0/MyGirlGPT#11: a small GPU under Windows
            old(
                "2.00 MiB, 6.00 GiB, 4.88 GiB, 0 bytes, 4.96 GiB reserved in total by PyTorch"
            ),
            new(
                "32.00 MiB, 4.00 GiB, 41.56 MiB, 2.58 GiB, 1.90 MiB",
                "Including non-PyTorch memory, this process has 3.44 GiB memory in use. ",
            ),
            # netease-youdao/QAnything#303: a library in the same process
            new(
                "132.00 MiB, 23.64 GiB, 67.06 MiB, 18.70 GiB, 353.02 MiB",
                "Process 250345 has 662.00 MiB memory in use. Including non-PyTorch memory, this process has 22.90 GiB memory in use. ",
            ),
        ],
        "by CUDA itself, or by a library",
        [
            # vllm#34643: small ones, and itself
            new(
                "1.71 GiB, 22.30 GiB, 1.52 GiB, 19.55 GiB, 244.94 MiB",
                "Process 29153 has 248.00 MiB memory in use. Process 162519 has 20.28 GiB memory in use. ",
            )
        ],
    ),
    "full": (
        [
            new(
                "22.00 MiB, 23.65 GiB, 11.06 MiB, 22.90 GiB, 194.87 MiB",
                "Including non-PyTorch memory, this process has 23.60 GiB memory in use. ",
            ),
            new(
                "20.00 MiB, 14.75 GiB, 15.06 MiB, 14.24 GiB, 371.46 MiB",
                "Process 3427 has 14.73 GiB memory in use. ",
            ),
            # shllln/GenerativeGraph#5
            old("31.00 MiB, 11.17 GiB, 10.90 GiB, 576.00 KiB, 30.96 MiB cached"),
        ],
        "Tensors of this process fill the GPU",
        [
            # synthetic: half of it, and the rest not told
            new("3.00 GiB, 4.00 GiB, 41.56 MiB, 2.00 GiB, 1.90 MiB"),
            "CUDA out of memory. Tried to allocate 2.00 GiB",
        ],
    ),
    "lacking": (
        [
            # murong-xu/CADS#4
            new(
                "22.78 GiB, 31.47 GiB, 12.73 GiB, 9.08 GiB, 9.35 GiB",
                "Including non-PyTorch memory, this process has 18.73 GiB memory in use. ",
            )
        ],
        "are less than the 22.78 GiB that one tensor wants",
        ["CUDA out of memory. Tried to allocate 2.00 GiB"],
    ),
    "mps-too-much": (
        [MPS.format("2.17 GB", "1.04 GB", "18.13 GB", "64.00 GB")],
        "is all that a program may have on this Mac",
        [MPS.format("17.68 GB", "3.95 MB", "18.13 GB", "1024.00 MB")],
    ),
    "mps-other": (
        [
            # ComfyUI#7440, ComfyUI#11584
            MPS.format("9.57 GiB", "17.35 GiB", "27.20 GiB", "292.50 MiB"),
            MPS.format("39.50 GiB", "141.24 GiB", "182.78 GiB", "2.50 GiB"),
        ],
        "outside of PyTorch's pool",
        [MPS.format("0 bytes", "0 bytes", "7.93 GB", "256 bytes")],  # a virtual Mac
    ),
    "mps-full": (
        [
            # ComfyUI#7372, lllyasviel/Fooocus#1139, snosgor/pinokio#941
            MPS.format("17.68 GB", "3.95 MB", "18.13 GB", "1024.00 MB"),
            MPS.format("8.89 GB", "172.98 MB", "9.07 GB", "6.25 MB"),
            MPS.format("16.00 GB", "3.31 GB", "18.13 GB", "256 bytes"),
        ],
        "1.7 times what Metal recommends here",
        [MPS.format("0 bytes", "0 bytes", "7.93 GB", "256 bytes")],
    ),
    "cpu-absurd": (
        # pytorch#20618
        [
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes. Error code 12"
        ],
        "One tensor of 3.6 PiB",
        [
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 132426121216 bytes."
        ],
    ),
    "cpu-large": (
        # mxfold2#20, MKLpy#27
        [
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 132426121216 bytes. Error code 12 (Cannot allocate memory)",
            "DefaultCPUAllocator: not enough memory: you tried to allocate 5077901088 bytes.",
        ],
        "GiB was asked for",
        [
            "RuntimeError: $ Torch: not enough memory: you tried to allocate 72GB. Buy new RAM!"
        ],
    ),
    "cpu-small": (
        # JingyunLiang/CartoonGAN#1, Fooocus#237
        [
            "[enforce fail at CPUAllocator.cpp:64] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 67108864 bytes. Error code 12",
            "DefaultCPUAllocator: not enough memory: you tried to allocate 26214400 bytes.",
        ],
        "MiB only",
        [
            "numpy.core._exceptions.MemoryError: Unable to allocate 25.0 MiB for an array"
        ],
    ),
    "operations": (
        [
            WATCHDOG.format(0, 5, "ALLREDUCE", 1, 600000)
            + WATCHDOG.format(1, 5, "_ALLGATHER_BASE", 64, 600000)
        ],
        "number 5 is ALLREDUCE on rank 0 and _ALLGATHER_BASE on rank 1",
        [
            # hiyouga/LlamaFactory#7396: all in the same
            "".join(
                WATCHDOG.format(n, 1580, "ALLREDUCE", 466119168, 600000)
                for n in (0, 4, 2)
            ),
            WATCHDOG.format(0, 5, "SEND", 1, 600000)
            + WATCHDOG.format(1, 5, "RECV", 1, 600000),
            # pytorch#118369: one rank, several
            WATCHDOG.format(0, 96120, "ALLREDUCE", 1, 600000)
            + WATCHDOG.format(0, 96117, "BROADCAST", 1, 600000),
        ],
    ),
    "sizes": (
        [
            WATCHDOG.format(0, 5, "ALLREDUCE", 100, 600000)
            + WATCHDOG.format(1, 5, "ALLREDUCE", 64, 600000)
        ],
        "rank 0 gives 100 elements and rank 1 gives 64",
        [
            WATCHDOG.format(0, 5, "ALLREDUCE", 100, 600000)
            + WATCHDOG.format(1, 6, "ALLREDUCE", 64, 600000),
            WATCHDOG.format(0, 5, "ALLTOALL_BASE", 100, 600000)
            + WATCHDOG.format(1, 5, "ALLTOALL_BASE", 64, 600000),
        ],
    ),
    "behind": (
        [WORK.format(0, "PG 1", 1581, 1580) + WORK.format(3, "PG 1", 1580, 1579)],
        "Rank 3 has completed 1579 collectives of its group, rank 0 has 1580",
        [
            WORK.format(0, "PG 1", 1580, 1579) + WORK.format(3, "PG 1", 1580, 1579),
            WORK.format(0, "PG ID 2 PG GUID 5(tp)", 1581, 1580)
            + WORK.format(3, "PG ID 2 PG GUID 7(tp)", 1580, 1579),
        ],
    ),
    "clients": (
        # OpenRLHF#1040, Visual-RFT#123
        [
            "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined."
        ],
        "1 of 3 processes came within 30 minutes; 2 did not start",
        ["Timed out after 60 seconds waiting for the server."],
    ),
    "ten-minutes": (
        [WATCHDOG.format(0, 1580, "ALLREDUCE", 1, 600000)],
        "10 minutes, the default for NCCL",
        [
            WATCHDOG.format(0, 1580, "ALLREDUCE", 1, 660000),
            "job ran for 600000 milliseconds",
        ],
    ),
    "thirty-minutes": (
        # OFA-Sys/OFA#271
        [
            "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out."
        ],
        "30 minutes, as PyTorch before 2.2",
        [WATCHDOG.format(0, 1580, "ALLREDUCE", 1, 600000)],
    ),
    "gloo-default": (
        [
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"
        ],
        "the default for gloo",
        ["Timed out waiting 60000ms for recv operation to complete"],
    ),
    "own-limit": (
        [
            "Timed out waiting 60000ms for recv operation to complete",
            WATCHDOG.format(0, 1, "ALLREDUCE", 1, 5400000),
        ],
        "which is no default",
        [
            WATCHDOG.format(0, 1580, "ALLREDUCE", 1, 600000),
            "DataLoader timed out after 60 seconds",
        ],
    ),
    "store": (
        # modelscope/ms-swift#4924, #4906
        [
            "torch.distributed.DistStoreError: wait timeout after 900000ms, keys: /none/torchelastic/role_info/0, /none/torchelastic/role_info/1",
            "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /broadcast_from/0/75465",
        ],
        " minutes at the meeting point for what another process writes there (/",
        ["torch.distributed.DistStoreError: Socket Timeout"],
    ),
    "death": (
        [
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 0 (pid: 1322) of binary: /root/miniconda3/bin/python",
            "  exitcode  : -11 (pid: 3427)",
            "Process finished with exit code 137 (interrupted by signal 9: SIGKILL)",
            "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
            "Process finished with exit code -1073741819 (0xC0000005)",  # RBPN-PyTorch#58
            "returned non-zero exit status 3221225477.",
            "exit status 139",
            "[launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -9",
            "a1b2c3  pytorch/pytorch  Exited (137) 2 minutes ago",
            "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGABRT",
        ],
        ": ",
        [
            "exitcode  : 1 (pid: 3427)",
            "Process finished with exit code 0",
            "exit code 1370 and error -9 of a parser",
            "HTTP status 137",
        ],
    ),
    "end": (
        [
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 4321 got signal: 15",
            "exitcode: -15",
            "Process 12 got signal: 1",
        ],
        ": ",
        [
            "WARNING: Sending process 3428 closing signal SIGTERM",
            "exit code 15",
            "failed (exitcode: -15) local_rank: 0\nfailed (exitcode: -9) local_rank: 1",
        ],
    ),
    "too-new": (
        [
            SM.format(
                "GeForce RTX 5090", 120, "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
            ),
            SM.format(
                "GeForce RTX 3090", 86, "sm_37 sm_50 sm_60 sm_61 sm_70 sm_75 compute_37"
            ),
            FOUND.format("NVIDIA GB10", "12.1", "5.0", "9.0"),
        ],
        "newer than this build, which ends at",
        [
            # harmless (pytorch#164596)
            FOUND.format("NVIDIA GB10", "12.1", "8.0", "12.0"),
            # Jetson: between both
            SM.format("Orin", 87, "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"),
            "print(torch.cuda.get_arch_list())\n['sm_75', 'sm_80', 'sm_120']",
        ],
    ),
    "too-old": (
        [
            SM.format(
                "Tesla P100-PCIE-16GB",
                60,
                "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120",
            ),
            FOUND.format("NVIDIA GeForce GTX 1080", "6.1", "7.5", "12.0"),
        ],
        "…/whl/cu126",
        [
            SM.format(
                "GeForce RTX 5090", 120, "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90"
            )
        ],
    ),
    "no-code": (
        [
            "Found GPU0 Tesla V100-SXM2-16GB which is of compute capability (CC) 7.0.\nThe following list shows the CCs this version of PyTorch was built for"
        ],
        "Volta (V100)",
        [
            "Found GPU0 Orin which is of compute capability (CC) 8.7.\nThe following list shows"
        ],
    ),
    "gfx": (
        # brknsoul/ROCmLibs#4
        [
            "rocBLAS error: Cannot read C:\\Program Files\\AMD\\ROCm\\6.1\\bin\\/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1103"
        ],
        "Radeon 780M",
        [
            "List of available TensileLibrary Files : TensileLibrary_lazy_gfx1103.dat",
            "for GPU arch : gfx942",
        ],
    ),
    "driver-12": (
        [
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update your GPU driver"
        ],
        "The driver knows CUDA 12.8",
        ["The NVIDIA driver on your system is too old (found version 13000)."],
    ),
    "driver-11": (
        [
            "The NVIDIA driver on your system is too old (found version 11040).",
            "The NVIDIA driver on your system is too old (found version 9010).",
        ],
        "those for CUDA 11 (…/whl/cu118) end",
        ["found version 11040"],
    ),
    "smi": (
        [
            "| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2     |\n>>> torch.__version__\n'2.11.0+cu130'\n>>> torch.cuda.is_available()\nFalse"
        ],
        "The driver knows CUDA 12.2 at most, and this PyTorch is a build for CUDA 13",
        [
            # a newer 12 on an older one works
            "| NVIDIA-SMI 525.85  CUDA Version: 12.0 |\n'2.7.0+cu128'",
            "| NVIDIA-SMI 580.95  CUDA Version: 13.0 |\n'2.7.0+cu128'",
            "| NVIDIA-SMI 535  CUDA Version: 12.2 |\n'2.11.0+cpu'",
        ],
    ),
    "pair": (
        [
            "torchvision 0.17.2+cu121 requires torch==2.2.2, but you have torch 2.3.0 which is incompatible.",
            "Versions of relevant libraries:\n[pip3] numpy==1.26.4\n[pip3] torch==2.9.0\n[pip3] torchaudio==2.9.0\n[pip3] torchvision==0.20.1\n",
        ],
        "goes with torch 2.",
        [
            "[pip3] torch==2.13.0\n[pip3] torchvision==0.28.0",
            "[pip3] torch==2.9.0+cu128\n[pip3] torchaudio==2.9.0\n[pip3] torchvision==0.24.0+cu128",
            "torchvision 0.17.2 requires numpy, which is not installed.",
        ],
    ),
    "wheel": (
        [
            "ERROR: torch-2.4.0-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform.",
            "ERROR: torch-1.7.0+cu110-cp38-cp38-win_amd64.whl is not a supported wheel on this platform.",
        ],
        "This wheel is for Python 3.",
        [
            "ERROR: torchvision-0.4-cp311-cp311-linux_x86_64.whl is not a supported wheel on this platform."
        ],
    ),
    "needs-python": (
        [
            "ERROR: Ignored the following versions that require a different python version: 2.10.0 Requires-Python >=3.10; 2.9.0 Requires-Python >=3.10\nERROR: Could not find a version that satisfies the requirement torch==2.9.0 (from versions: 2.0.0, 2.8.0)"
        ],
        "torch 2.9.0 wants Python 3.10",
        [
            "Ignored the following versions that require a different python version: 1.21.2 Requires-Python >=3.7,<3.11\nCould not find a version that satisfies the requirement torch==1.7.1 (from versions: 2.0.0)"
        ],
    ),
    "no-gpu": (
        # boxmot#1476
        [
            "RuntimeError: Attempting to deserialize object on CUDA device 0 but torch.cuda.device_count() is 0."
        ],
        "No GPU can be seen here",
        ["torch.cuda.device_count() is 0"],
    ),
    "gpus": (
        # neural-colorization#11
        [
            "RuntimeError: Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. Please use torch.load with map_location",
            "device=7, num_gpus=4",
        ],
        "there is no cuda:",
        ["device=3, num_gpus=4", "RuntimeError: CUDA error: invalid device ordinal"],
    ),
    "one-too-far": (
        [
            "IndexError: index 512 is out of bounds for dimension 0 with size 512",
            "IndexError: index 10 is out of bounds for axis 0 with size 10",
        ],
        "counted from 0 to",
        [
            "IndexError: index 700 is out of bounds for dimension 0 with size 512",
            "IndexError: Target 10 is out of bounds.",
        ],
    ),
    "label": (
        [
            "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], thread: [12,0,0] Assertion `t >= 0 && t < n_classes` failed."
        ],
        "at place 12 of the batch",
        [
            "NLLLoss2d.cu:104: nll_loss2d_forward_kernel: block: [3,0,0], thread: [12,0,0] Assertion `t >= 0 && t < n_classes` failed.",
            "Indexing.cu:1146: indexSelectLargeIndex: block: [12,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        ],
    ),
    "unflattened": (
        [
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3584x7 and 25088x4096)",
            # facebookresearch/CrypTen#487
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (7680x12 and 9216x128)",
        ],
        ", probably x.flatten(1) is missing",
        [
            "mat1 and mat2 shapes cannot be multiplied (8x8 and 64x10)",
            "mat1 and mat2 shapes cannot be multiplied (64x12 and 768x10)",
            "mat1 and mat2 shapes cannot be multiplied (32x784 and 512x10)",
        ],
    ),
    "unflattened-image": (
        # facebookresearch/CrypTen#487
        [
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2800x28 and 784x10)"
        ],
        "784 = 1 × 28 × 28",
        [
            "mat1 and mat2 shapes cannot be multiplied (10x49 and 490x10)",
            "mat1 and mat2 shapes cannot be multiplied (64x16 and 256x10)",
        ],
    ),
    "transposed": (
        ["mat1 and mat2 shapes cannot be multiplied (32x784 and 512x784)"],
        "would fit transposed (.T), as (784, 512)",
        ["mat1 and mat2 shapes cannot be multiplied (32x784 and 512x10)"],
    ),
    "columns": (
        [
            "mat1 and mat2 shapes cannot be multiplied (32x784 and 512x10)",
            "RuntimeError: size mismatch, m1: [32 x 784], m2: [512 x 10] at",
        ],
        "The input has 784 values in each row, the layer (or second matrix) wants 512",
        ["mat1 and mat2 must have the same dtype, but got Double and Float"],
    ),
    "last-batch": (
        [
            "The size of tensor a (32) must match the size of tensor b (31) at non-singleton dimension 0"
        ],
        "32 and 31 are of two batches",
        [
            "The size of tensor a (32) must match the size of tensor b (31) at non-singleton dimension 3",
            # VITA-Group/GLNet#26: pixels
            "The size of tensor a (96774) must match the size of tensor b (290322) at non-singleton dimension 0",
        ],
    ),
    "too-long": (
        [
            "The size of tensor a (520) must match the size of tensor b (512) at non-singleton dimension 1"
        ],
        "max_length=512",
        [
            "The size of tensor a (500) must match the size of tensor b (512) at non-singleton dimension 1"
        ],
    ),
    "rows-per-sample": (
        [
            "ValueError: Expected input batch_size (256) to match target batch_size (64)."
        ],
        "256 = 4 × 64",
        [
            "Expected input batch_size (100) to match target batch_size (64).",
            "Expected input batch_size (64) to match target batch_size (256).",
        ],
    ),
    "channels-last": (
        [
            "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[32, 224, 224, 3] to have 3 channels, but got 224 channels instead"
        ],
        "permute(0, 3, 1, 2)",
        [
            "expected input[32, 1, 224, 224] to have 3 channels, but got 1 channels instead"
        ],
    ),
    "smaller-batch": (
        ["RuntimeError: shape '[64, 784]' is invalid for input of size 12544"],
        "There are 16 rows of 784 here, not 64",
        [
            "shape '[64, 784]' is invalid for input of size 12545",
            "shape '[16, 784]' is invalid for input of size 50176",
        ],
    ),
    "workers": (
        [
            "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max number of worker in current system is 2, which is smaller than what this DataLoader is going to create."
        ],
        "may use 2 CPUs and was told to start 16",
        [
            "This DataLoader will create 2 worker processes in total. Our suggested max number of worker in current system is 2"
        ],
    ),
}


def ids(text):
    return [rule for rule, _ in numbers.ruled(text)]


def test_each_rule_is_tested():
    written = [r["id"] for f in numbers.RULES["FAMILIES"] for r in f["rules"]]
    assert sorted(written) == sorted(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_says_what_follows_from_real_lines(rule):
    texts, piece, _ = RULES[rule]
    for text in texts:
        assert piece in dict(numbers.ruled(text)).get(rule, ""), (text, ids(text))


@pytest.mark.parametrize("rule", RULES)
def test_is_silent_beside_them(rule):
    for text in RULES[rule][2]:
        assert rule not in ids(text), (text, numbers.notes(text))


@pytest.mark.parametrize("rule", RULES)
def test_a_wrapped_colored_paste_says_the_same(rule):
    text = RULES[rule][0][0]
    wrapped = "\x1b[31m" + re.sub(r"(\S{9,}) ", "\\1\n   ", text) + "\x1b[0m"
    assert numbers.notes(wrapped) == numbers.notes(text)


def test_families_are_independent_and_three_speak():
    text = "".join(
        RULES[rule][0][0] + "\n" for rule in ("full", "cpu-small", "clients", "workers")
    )
    assert ids(text) == ["full", "cpu-small", "clients"]


def test_no_values_no_sentence():
    for text in (
        "",
        "CUDA out of memory",
        "exit code",
        "a chat about sm_120 and 137 GPUs",
    ):
        assert numbers.notes(text) == []


def test_rules_are_plain_json_for_both_languages():
    whole = json.dumps(numbers.RULES)
    assert "(?P" not in whole and "\\\\A" not in whole and "(?i" not in whole


def test_time_grows_no_faster_than_a_text():
    """Of 200 kB of lines that nearly fit."""
    last = {family["rules"][-1]["id"] for family in numbers.RULES["FAMILIES"]}
    for rule in {*last, "operations"}:
        line = RULES[rule][0][0]
        text = line[: len(line) * 3 // 4] * (200_000 // len(line))
        assert growth(numbers.notes, text) < 20, rule
