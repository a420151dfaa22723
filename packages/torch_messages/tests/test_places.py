"""Where to read on, and whose message it is."""

import json

import pytest
from growth import growth

from torch_messages import lookup, phrases, places
from torch_messages.places import search, tracker

# a question → the page and cell that answer it
QUESTIONS = {
    "my GPU is at 0% utilization": "09_profiling.html#idle",
    "training is slower on the GPU than on the CPU": "#factor",
    "how to choose num_workers": "#curve",
    "how do I resume training": "03_models_on_devices.html#checkpoint",
    "reproducible results seed": "#seeds",
    "loss becomes nan with mixed precision": "answers.html#the-loss-is-nan-with-amp",
    "DDP training stuck at the first step": "answers.html#ddp-hangs",
    "how to profile my training loop": "09_profiling.html#recipe",
    "what does pin_memory do": "06_pinned_memory_and_data_loading.html#pin",
    "gradient accumulation for a larger batch": "07_memory.html#recipe",
    "how much memory does a model need for training": "07_memory.html#rehearse",
    "load a checkpoint of a GPU on a CPU": "03_models_on_devices.html#recipe-load",
    "find graph breaks in torch.compile": "#breaks-text",
    "DataParallel or DistributedDataParallel": "#dataparallel",
    "bf16 or fp16": "08_mixed_precision.html#ceiling-after",
    "which lines synchronize with the GPU": "#needs-value",
    "free TPU for PyTorch": "13_tpu_with_xla.html#compare",
    "why is my LLM slow": "answers.html#generation-is-slow",
    "how long can the context be": "answers.html#how-long-a-context-fits",
    "how much memory does the KV cache take": "17_generate_text.html#holds-text",
    "top k sampling": "17_generate_text.html#sample-text",
    "推理太慢怎么办": "zh.html#generation-is-slow",
    "上下文能放多长": "zh.html#how-long-a-context-fits",
    "显存不足怎么办": "zh.html#cuda-out-of-memory",
    "多卡训练卡住不动": "zh.html#ddp-ddp-hangs",
    "num_workers 大于0 报错": "zh.html#dataloader-dataloader-hangs-or-dies",
    "GPU 利用率很低怎么办": "zh.html#gpu-the-gpu-is-idle",
    "检测不到 GPU": "zh.html#cuda-cuda-is-not-available",
    "torch.compile 编译太慢": "zh.html#torch-compile-torch-compile-is-slow-or-breaks",
    "怎么清空显存": "07_memory.html#back",
}
OFF_TOPIC = """\
how do I cook pasta
what is the capital of France
how to center a div in CSS
sort a list of dictionaries in Python
kubernetes pod stuck pending
git merge conflict
SQL join two tables
train from Paris to London
memory of my childhood
ModuleNotFoundError: No module named 'flask'
TypeError: unsupported operand type(s) for +: 'int' and 'str'
今天天气怎么样
如何做红烧肉
怎么安装 Windows"""

# a symptom told at length → likewise
SYMPTOMS = {
    """GPU utilization is low while training

I train a ResNet on one A100, and nvidia-smi shows 10 to 20 %. The images are JPEG on a
network disk. With a larger batch it stays the same.""": "09_profiling.html#idle",
    """Hi all! Training hangs with DDP at the first step on two GPUs. It works with one.
Both processes print their rank and then nothing happens for half an hour.""": (
        "answers.html#ddp-hangs"
    ),
    """Loss becomes NaN with mixed precision

After some 2000 steps my loss is NaN. In float32 it never is. The learning rate is 1e-4
and I clip nothing.""": "answers.html#the-loss-is-nan-with-amp",
    """I see that GPU memory grows with each iteration. After about 300 of them my
notebook dies. I keep a list of losses for a plot and call backward once per step.""": (
        "07_memory.html#total"
    ),
    """My question is about data loading. How many workers should a DataLoader have? The
machine has 8 cores, the node gives me 64 GB, and every sample takes about 30 ms to
decode.""": "06_pinned_memory_and_data_loading.html#curve",
    """How do I resume training from a checkpoint?

Our cluster ends jobs after 12 hours. I save the state of the model only, and the loss
jumps when the next job begins.""": "03_models_on_devices.html#checkpoint",
    """DataLoader hangs when num_workers is greater than zero

On my machine with 8 cores the first epoch never begins. With zero workers it works, but
one epoch takes three hours.""": "answers.html#dataloader-hangs-or-dies",
    """多卡训练卡住不动。

我有两张卡，单卡训练正常。用 torchrun 启动两个进程之后，日志停在第一步。""": (
        "zh.html#ddp-ddp-hangs"
    ),
}
OFF_TOPIC_STORIES = """\
My sourdough never rises in winter. I feed the starter twice a day and keep it next to
the oven. After a day of rest the loaf is still flat. Do I need a different flour?

Our web shop is slow since the last release. Each request to the API takes two seconds.
We use Postgres 16 and Node 22 behind nginx. How do I find the slow query?

I train for a marathon in May. My longest run is 28 km, and my pace drops after 20 km.
Should I run slower, or eat more before I start?

Excel shows the wrong date after I import a CSV file. The column is text and not a date.
I tried to format the cells and it changes nothing. Is there a formula for all rows?

My laptop gets very hot when I watch videos. The fan is loud and the battery lasts one
hour. I cleaned it and updated the BIOS. Is a new battery worth it?

The Kubernetes pod restarts every few minutes. The log ends without a reason and the
memory limit is 512 MB. It runs a Java service with Spring. What do I look at first?

我家的猫最近不吃饭。已经三天了，精神也不好。换了猫粮也没有用。应该带它去医院吗？

We lost the history of our repository after a force push. Two people had worked on the
same branch for a week. Is there a way to get the commits back from the server?"""


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_leads_to_a_page_by_one_of_its_first_sentences(symptom):
    for text in (symptom, symptom + "\n" + "I told all that I know of it. " * 20):
        found = [address for _, address in search(text)]
        assert any(address.endswith(SYMPTOMS[symptom]) for address in found), found


@pytest.mark.parametrize("story", OFF_TOPIC_STORIES.split("\n\n"))
def test_another_story_leads_to_none(story):
    assert search(story) == []
    assert phrases.missing(story) == phrases.NO_MESSAGE


def test_a_symptom_with_an_error_is_a_message():
    symptom = next(iter(SYMPTOMS))
    assert search(symptom) and not search(f"{symptom}\nValueError: odd things")
    frame = '  File "train.py", line 3, in f\n    f(x)'
    assert not search(f"{symptom}\n{frame}") and not search(symptom + "\n" * 61)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_leads_to_a_page_that_answers_it(question):
    found = [address for _, address in search(question)]
    assert any(address.endswith(QUESTIONS[question]) for address in found), found
    assert len(set(found)) == len(found) <= 3
    assert search(question, 1) == search(question)[:1]


@pytest.mark.parametrize("question", OFF_TOPIC.splitlines())
def test_another_question_leads_to_none(question):
    assert search(question) == []


def test_a_paste_is_no_question():
    assert search("") == search("how do I") == search("the GPU") == []
    assert search("\n".join(f"loss of step{n} on the GPU" for n in range(99))) == []


def test_addresses_are_of_the_site():
    site = "https://pytorch-device-lab.github.io/pytorch-device-lab/"
    assert places.address("06#pin") == (
        f"{site}notebooks/06_pinned_memory_and_data_loading.html#pin"
    )
    for title, short, *_ in places.read()["places"]:
        assert title and places.address(short).startswith(site)


def test_the_file_is_small():
    assert places.FILE.stat().st_size <= 40_000


# --------------------------------------------------------------------------------------
# Trackers

INSTALLED = "/venv/lib/python3.12/site-packages"
WINDOWS = r"C:\Users\x\AppData\Python312\Lib\site-packages"
PACKAGES = {
    "torch": "pytorch/pytorch",
    "torch_xla": "pytorch/xla",
    "torch_tpu": "google-pytorch/torch_tpu",
    "torchvision": "pytorch/vision",
    "torchaudio": "pytorch/audio",
    "triton": "triton-lang/triton",
    "accelerate": "huggingface/accelerate",
    "transformers": "huggingface/transformers",
    "diffusers": "huggingface/diffusers",
    "peft": "huggingface/peft",
    "lightning": "Lightning-AI/pytorch-lightning",
    "pytorch_lightning": "Lightning-AI/pytorch-lightning",
    "deepspeed": "deepspeedai/DeepSpeed",
    "bitsandbytes": "bitsandbytes-foundation/bitsandbytes",
    "flash_attn": "Dao-AILab/flash-attention",
    "xformers": "facebookresearch/xformers",
    "vllm": "vllm-project/vllm",
    "ultralytics": "ultralytics/ultralytics",
    "timm": "huggingface/pytorch-image-models",
    "torch_geometric": "pyg-team/pytorch_geometric",
    "monai": "Project-MONAI/MONAI",
    "jax": "jax-ml/jax",
    "numpy": "numpy/numpy",
    "pandas": "pandas-dev/pandas",
    "tensorflow": "tensorflow/tensorflow",
    "sklearn": "scikit-learn/scikit-learn",
    "ray": "ray-project/ray",
    "onnxruntime": "microsoft/onnxruntime",
}
FOREIGN = "jax numpy pandas tensorflow sklearn ray onnxruntime".split()


def frames(*paths):
    each = "".join(f'  File "{path}", line 3, in f\n    f(x)\n' for path in paths)
    return f"Traceback (most recent call last):\n{each}ValueError: odd things\n"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_last_frame_says_whose_message_it_is(package):
    for before in ("/home/me/torch/train.py", f"{INSTALLED}/numpy/lib.py"):
        told = tracker(frames(before, f"{INSTALLED}/{package}/a/b.py"))
        assert told[1:] == (PACKAGES[package], package in FOREIGN)
    windows = frames("C:\\me\\train.py", rf"{WINDOWS}\{package}\a.py")
    assert tracker(windows)[1] == PACKAGES[package]


def test_frames_of_python_and_of_its_launcher_only_pass_an_error_on():
    own = f"{INSTALLED}/timm/a.py"
    python = ("/usr/lib/python3.12/pickle.py", r"C:\Python312\Lib\json\decoder.py")
    launcher = f"{INSTALLED}/torch/distributed/launcher/api.py"
    for last in (*python, launcher, "<frozen importlib._bootstrap>"):
        assert tracker(frames(own, last))[0] == "timm"
    # a program of one's own, called by a library
    assert tracker(frames(own, "/home/me/train.py"))[0] == "PyTorch"
    assert tracker(frames("/home/me/ComfyUI/nodes.py"))[0] == "ComfyUI"


def test_frames_of_a_notebook():
    new = f"File ~/x{INSTALLED}/ultralytics/a.py:164, in f(x)\n    152 y\nKeyError: 1"
    old = f"{INSTALLED}/jax/_src/maps.py in f(x)\n    869 y\nKeyError: 1"
    assert (tracker(new)[0], tracker(old)[0]) == ("Ultralytics", "JAX")


@pytest.mark.parametrize(
    "error, name",
    {
        "jax.errors.TracerArrayConversionError: The numpy.ndarray conversion": "JAX",
        "jaxlib._jax.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory": "JAX",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory": "JAX",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate": "NumPy",
        "AxisError: axis 2 is out of bounds for array of dimension 2": "NumPy",
        "pandas.errors.ParserError: Error tokenizing data.": "pandas",
        "OutOfBoundsDatetime: Out of bounds nanosecond timestamp": "pandas",
        "tensorflow.python.framework.errors_impl.InternalError: GPU": "TensorFlow",
        "sklearn.exceptions.NotFittedError: This is not fitted": "scikit-learn",
        "ray.exceptions.RayTaskError(ValueError): ray::f() (pid=1)": "Ray",
        "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [1]": "ONNX Runtime",
        'Exception in thread "main" java.lang.NullPointerException: x': "java",
        "NameError: name 'x' is not defined": "Python",
        "SyntaxError: invalid syntax": "Python",
        "psycopg2.errors.UndefinedTable: no\nsome.module.OwnError: y": "some",
    }.items(),
)
def test_a_foreign_error_is_told_as_such(error, name):
    assert tracker(f"epoch 1\n{error}\n")[::2] == (name, True)
    assert f"This is a message of {name}, not of PyTorch" in lookup.missed(error)


@pytest.mark.parametrize(
    "text, name",
    {
        "torch_xla says: Ran out of memory in memory space vmem": "torch_xla",
        "node1:12:34 [0] NCCL WARN Call to connect failed": "NCCL",
        "[rank0]: torch.distributed.DistBackendError: NCCL error in": "PyTorch",
        "json.decoder.JSONDecodeError: Expecting value": "PyTorch",
        "train.py: error: unrecognized arguments: --foo": "PyTorch",
        "E tensorflow/core/util/port.cc oneDNN on\nValueError: odd": "PyTorch",
        "RuntimeError: Numpy is not available": "PyTorch",
        "NameError: name 'torch' is not defined": "PyTorch",
        "ModuleNotFoundError: No module named 'torch_xla'": "torch_xla",
        "ValueError: odd": "PyTorch",
        "how do I train a jax model": "JAX",
        "convert a jax array to torch": "PyTorch",
        "triton.compiler.errors.CompilationError: at 1:2": "Triton",
        "flash_attn_2_cuda.so: undefined symbol: _ZN3c10": "FlashAttention",
        "accelerate launch hangs": "Accelerate",
        "how do I accelerate training": "PyTorch",
        "": "PyTorch",
    }.items(),
)
def test_words_say_it_last(text, name):
    assert tracker(text)[0] == name


@pytest.mark.parametrize(
    "text, name, foreign",
    [
        (
            "RuntimeError: build/torch_npu.dir/x.ts:88 NPU function error: 5",
            "Ascend",
            1,
        ),
        ("torch says: call aclnnAdd failed, error code is 561103", "Ascend", 1),
        (frames(f"{INSTALLED}/torch_npu/a.py"), "Ascend", 1),
        ("it calls pandas/core/indexing.py, then\nTypeError: odd", "pandas", 1),
        ("since pandas >= 3 my columns are odd", "pandas", 1),
        ("ERROR: Cannot install a and b, torch is pinned", "pip", 1),
        ("  x No solution found when resolving dependencies: torch", "uv", 1),
        ("It cannot be started. Error code: Wsl/0x80070422", "WSL", 1),
        ("host hangs after NVRM: NV_ERR_NO_MEMORY", "NVIDIA's driver", 1),
        ("ds4: ROCm model arena alloc failed: out of memory", "ds4", 1),
        ("ggml_cuda_init: failed to initialize CUDA", "llama.cpp", 1),
        ("Unsloth takes 80 % of the memory on Linux", "Unsloth", 0),
        ("the traces of PyTorch/Kineto have no kernels", "Kineto", 0),
        ("On v5e tpus the loss diverges", "torch_xla", 0),
        (
            "pip install torch_xla torchvision\nOn v6e TPU nodes it stops",
            "torch_xla",
            0,
        ),
        ("black image\nRadeon RX 7700XT\nROCm 7.2.0 on gfx1101", "ROCm", 0),
        ("torch on gfx1101 gives a black image", "PyTorch", 0),
        ("torch  2.9.1+cu128\ntorchvision  0.24.1+cu128\nit is odd", "PyTorch", 0),
        ("It hangs during NCCL communication, also without vLLM", "NCCL", 0),
        ("[ProcessGroupNCCL.cpp:629] Watchdog caught odd error of NCCL", "PyTorch", 0),
        ("How can I run it?\n\nTensorflow 2.15\n\nPython 3.9", "TensorFlow", 1),
    ],
)
def test_more_of_others(text, name, foreign):
    assert tracker(text)[::2] == (name, bool(foreign))


def test_frames_of_a_rank():
    text = "\n".join(f"[rank0]:{line}" for line in frames("timm/a.py").splitlines())
    path = f"{INSTALLED}/timm/a.py"
    assert tracker(text.replace("timm/a.py", path))[0] == "timm"


def test_nobody_is_sent_to_pytorch_with_the_message_of_another():
    said = lookup.missed("jax.errors.KeyReuseError: odd")
    assert said == (
        "Not known here, and no guess. This is a message of JAX, not of PyTorch; its"
        " makers read github.com/jax-ml/jax/issues."
    )
    said = lookup.missed(frames(f"{INSTALLED}/vllm/a.py"))
    assert "“odd things” in github.com/vllm-project/vllm/issues" in said
    said = lookup.missed("psycopg2.errors.OddError: odd")
    assert said.endswith("not of PyTorch.")


def test_time_grows_no_faster_than_a_text():
    text = "E some tensorflow line of an error that nobody knows\n" * 40_000
    assert tracker(text) and not search(text)
    for function in (tracker, search, lookup.line_of):
        assert growth(function, text) < 20


def test_the_file_is_written_as_its_programs_read_it():
    told = json.loads(places.FILE.read_text(encoding="utf-8"))
    assert list(told) == ["rules", "trackers", "site", "pages", "places"]
    assert list(told["places"])[:2] == ["00", "01"]
    each = [one for some in told["places"].values() for one in some]
    assert {len(one) for one in each} == {2, 3}
    names = [each[0] for each in told["trackers"]]
    assert len(set(names)) == len(names) >= 29 and names[-1] == "PyTorch"
