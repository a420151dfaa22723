"""What the search of the built site finds first, in a browser."""

import urllib.parse

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE

TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices,"
    " cuda:0 and cpu!"
)
# query → a page that is among the first two; before it, at most, its entry in the index
# of messages
MESSAGES = {
    TWO_DEVICES: "notebooks/02_tensors_on_devices.html#cure",
    "RuntimeError: CUDA out of memory. Tried to allocate": "notebooks/07_memory.html",
    "Torch not compiled with CUDA enabled": "notebooks/01_device_detection.html",
    (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with"
        " multiprocessing, you must use the 'spawn' start method"
    ): "notebooks/06_pinned_memory_and_data_loading.html#cuda-in-fork",
    (
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."
    ): "notebooks/16_old_code_today.html#worker-exited",
    (
        "Attempting to deserialize object on a CUDA device but"
        " torch.cuda.is_available() is False."
    ): "notebooks/03_models_on_devices.html#elsewhere",
    (
        "TypeError: can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"
        " to copy the tensor to host memory first."
    ): "notebooks/16_old_code_today.html#numpy-device",
    (
        "AssertionError: No inf checks were recorded for this optimizer."
    ): "notebooks/16_old_code_today.html#no-inf-checks",
    (
        "RuntimeError: Expected to have finished reduction in the prior iteration"
        " before starting a new one."
    ): "notebooks/11_distributed_data_parallel.html",
    (
        "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use"
        " `torch.amp.autocast('cuda', args...)` instead."
    ): "notebooks/16_old_code_today.html#amp-autocast",
}
# the same of names, where the first is the entry in the index of names
NAMES = {
    "torch.cuda.Stream": "notebooks/05_streams.html",
    "record_stream": "notebooks/05_streams.html#memory",
    "pin_memory": "notebooks/06_pinned_memory_and_data_loading.html",
    "non_blocking": "notebooks/06_pinned_memory_and_data_loading.html",
    "GradScaler": "notebooks/08_mixed_precision.html",
    "torch.amp.GradScaler": "notebooks/08_mixed_precision.html",
    "GradScaler.unscale_": "notebooks/08_mixed_precision.html",
    "torch.autocast": "notebooks/08_mixed_precision.html#autocast",
    "torch.cuda.synchronize()": "notebooks/04_asynchrony_and_timing.html",
    "torch.cuda.empty_cache()": "notebooks/07_memory.html",
    "map_location": "notebooks/03_models_on_devices.html",
    "torch.profiler.profile": "notebooks/09_profiling.html",
    "torch.compile": "notebooks/10_graphs_and_compile.html",
    "DistributedDataParallel": "notebooks/11_distributed_data_parallel.html",
    "nn.DataParallel": "notebooks/11_distributed_data_parallel.html#dataparallel",
    "fully_shard": "notebooks/12_scaling_out.html",
    "mark_sharding": "notebooks/14_many_tpu_cores.html",
    "xm.mark_step()": "docs/names.html#api-torch_xla.core.xla_model.mark_step",
    "x.cuda()": "docs/names.html#api-torch.Tensor.cuda",
    "with torch.cuda.stream(s):": "notebooks/05_streams.html#order",
    "torch.load map_location": "docs/names.html#api-torch.load-map_location",
    "nn.Module.to or Tensor.to": "docs/names.html#api-torch.nn.Module.to",
}
OTHERS = {
    "torchrun": "notebooks/11_distributed_data_parallel.html",
    "CUDA_LAUNCH_BLOCKING": "notebooks/04_asynchrony_and_timing.html",
    "GPU is idle": "docs/answers.html#the-gpu-is-idle",
    "free GPU memory": "docs/answers.html#cuda-out-of-memory",
    "DDP hangs": "docs/answers.html#ddp-hangs",
    "profile my training loop": "docs/recipes.html#recipe-09",
    "CUDA_VISIBLE_DEVICES": "notebooks/01_device_detection.html#current-text",
    "PYTORCH_CUDA_ALLOC_CONF": "notebooks/07_memory.html",
    "torch.cuda.memory._record_memory_history": "notebooks/07_memory.html",
    "load gpu checkpoint on cpu": "notebooks/03_models_on_devices.html#recipe-load",
    "select a specific gpu": "notebooks/01_device_detection.html#current-text",
    "train on multiple gpus": "notebooks/11_distributed_data_parallel.html#recipe",
    "measure gpu time correctly": "notebooks/04_asynchrony_and_timing.html#recipe",
    "torch.compile first run very slow": "notebooks/10_graphs_and_compile.html#pays",
    "RuntimeError: CUDA error: invalid device ordinal": (
        "notebooks/16_old_code_today.html#ordinal-text"
    ),
    "锁页内存": "docs/glossary.html#pinned-memory",
    "固定内存": "docs/glossary.html#pinned-memory",
    "锁页内存有什么用": "notebooks/06_pinned_memory_and_data_loading.html#pages",
    "显存不足": "docs/zh.html#cuda-out-of-memory",
    "PyTorch 显存不足怎么办": "notebooks/07_memory.html#remedies",
    "CUDA流": "docs/glossary.html#stream",
}
FIRST = {**MESSAGES, **NAMES, **OTHERS}


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


def results(page, address, query):
    page.goto(f"{address}search.html?q={urllib.parse.quote(query)}")
    expect(page.locator(".search-summary")).to_contain_text("Search finished")
    return page.locator("#search-results li a")


@pytest.fixture(scope="module")
def address(serve):
    return serve(SITE)


def links(page, address, query, most):
    """Where the first results lead, without the address of the site."""
    found = results(page, address, query)
    return [
        found.nth(n).evaluate("link => link.href").removeprefix(address)
        for n in range(most)
    ]


@pytest.mark.parametrize("query, wanted", FIRST.items())
def test_the_page_is_among_the_first_two(query, wanted, page, address):
    first, second = links(page, address, query, 2)
    assert first.startswith(wanted) or second.startswith(wanted), (first, second)
    if query in MESSAGES:
        assert first.startswith("docs/errors.html#message-")
    if query in NAMES:
        assert first.startswith("docs/names.html#api-")


# what stands below the first link
ANSWERS = {
    "The operator 'aten::eig' is not currently implemented for the MPS device": (
        "PYTORCH_ENABLE_MPS_FALLBACK=1"
    ),
    "RuntimeError: DataLoader worker is killed by signal: Bus error.": "--shm-size",
    "RuntimeError: Found no NVIDIA driver on your system.": "nvidia-smi",
    "CUDA out of memory. Tried to allocate 2.00 GiB": "total += loss.item()",
    "torch.cuda.Event": "torch.cuda.Event(enable_timing=True)",
    "xm.mark_step": "torch_xla.sync()",
    "recompile_limit": "TORCH_LOGS=recompiles",
}


@pytest.mark.parametrize("query, answer", ANSWERS.items())
def test_the_answer_stands_below_the_first_link(query, answer, page, address):
    results(page, address, query)
    assert answer in page.locator("#search-results li").first.inner_text()


def test_a_hit_of_a_message_opens_at_its_section(page, address):
    _, link = links(page, address, TWO_DEVICES, 2)
    page.goto(address + link)
    top = "document.getElementById('cure').getBoundingClientRect().top"
    page.wait_for_function(f"0 <= {top} && {top} < innerHeight")


@pytest.mark.parametrize("query", ["pin_memory", "non_blocking"])
def test_pages_that_only_list_are_not_among_the_first(query, page, address):
    found = links(page, address, query, 3)
    assert not [link for link in found if "/evidence" in link or "/status" in link]
