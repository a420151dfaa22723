"""What the search of the built site finds first, and the field for messages, in a
browser.
"""

import re
import urllib.parse

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE

TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices,"
    " cuda:0 and cpu!"
)
# a message → where the entry leads that the field on the page of errors finds first
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
# query → what is among the first three results of the search
ANSWERED = {
    "torch.cuda.Stream": "notebooks/05_streams.html",
    "record_stream": "notebooks/05_streams.html#memory",
    "pin_memory": "notebooks/06_pinned_memory_and_data_loading.html",
    "non_blocking": "notebooks/06_pinned_memory_and_data_loading.html",
    "GradScaler": "notebooks/08_mixed_precision.html",
    "torch.amp.GradScaler": "notebooks/08_mixed_precision.html",
    "GradScaler.unscale_": "notebooks/08_mixed_precision.html",
    "torch.autocast": "notebooks/08_mixed_precision.html#autocast",
    "torch.cuda.empty_cache()": "notebooks/07_memory.html",
    "map_location": "notebooks/03_models_on_devices.html",
    "torch.profiler.profile": "notebooks/09_profiling.html",
    "torch.compile": "notebooks/10_graphs_and_compile.html",
    "nn.DataParallel": "notebooks/11_distributed_data_parallel.html#dataparallel",
    "fully_shard": "notebooks/12_scaling_out.html",
    "mark_sharding": "notebooks/14_many_tpu_cores.html",
    "xm.mark_step()": "notebooks/16_old_code_today.html",
    "torchrun": "notebooks/11_distributed_data_parallel.html",
    "CUDA_LAUNCH_BLOCKING": "notebooks/04_asynchrony_and_timing.html",
    "DDP hangs": "docs/answers.html#ddp-hangs",
    "PYTORCH_CUDA_ALLOC_CONF": "notebooks/07_memory.html",
    "torch.cuda.memory._record_memory_history": "notebooks/07_memory.html",
    "锁页内存": "docs/glossary.html#pinned-memory",
    "固定内存": "docs/glossary.html#pinned-memory",
    "with torch.cuda.stream(s):": "notebooks/05_streams.html",
    "CUDA_VISIBLE_DEVICES": "notebooks/01_device_detection.html",
    "load gpu checkpoint on cpu": "notebooks/03_models_on_devices.html",
    "select a specific gpu": "notebooks/01_device_detection.html",
    "measure gpu time correctly": "notebooks/04_asynchrony_and_timing.html",
    "torch.compile first run very slow": "notebooks/10_graphs_and_compile.html",
    "RuntimeError: CUDA error: invalid device ordinal": (
        "notebooks/16_old_code_today.html"
    ),
    "显存不足": "docs/zh.html",
}
# Queries that it does not answer so; what would be right. An answer moves a query up.
UNANSWERED = {
    "torch.cuda.synchronize()": "notebooks/04_asynchrony_and_timing.html",
    "DistributedDataParallel": "notebooks/11_distributed_data_parallel.html",
    "x.cuda()": "notebooks/02_tensors_on_devices.html",
    "torch.load map_location": "notebooks/03_models_on_devices.html",
    "nn.Module.to or Tensor.to": "notebooks/03_models_on_devices.html",
    "GPU is idle": "docs/answers.html",
    "free GPU memory": "docs/answers.html",
    "profile my training loop": "docs/recipes.html",
    "train on multiple gpus": "notebooks/11_distributed_data_parallel.html",
    "锁页内存有什么用": "notebooks/06_pinned_memory_and_data_loading.html",
    "PyTorch 显存不足怎么办": "notebooks/07_memory.html",
    "CUDA流": "docs/glossary.html",
}


@pytest.fixture
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture(scope="module")
def address(serve):
    return serve(SITE)


def first(page, address, query, most=3):
    """Where the first results lead, without the address of the site."""
    page.goto(f"{address}search.html?q={urllib.parse.quote(query)}")
    done = re.compile("Search finished|did not match any")
    expect(page.locator(".search-summary")).to_contain_text(done, timeout=30_000)
    links = page.locator("#search-results li > a").all()[:most]
    return [link.evaluate("a => a.href").removeprefix(address) for link in links]


@pytest.mark.parametrize("query, wanted", ANSWERED.items())
def test_what_is_wanted_is_among_the_first_three(query, wanted, page, address):
    found = first(page, address, query)
    assert any(link.startswith(wanted) for link in found), found


def test_most_queries_are_answered():
    """Of those that readers were seen to ask, the messages left out."""
    assert len(ANSWERED) >= 31 and not {*ANSWERED} & {*UNANSWERED}
    assert len(ANSWERED) + len(UNANSWERED) == 43


@pytest.mark.parametrize("message, wanted", MESSAGES.items())
def test_the_field_finds_a_message_first(message, wanted, page, address):
    page.goto(f"{address}docs/errors.html")
    page.fill("#message", message)
    page.locator("#messages-found a").first.click()
    anchor = urllib.parse.urlparse(page.url).fragment
    assert anchor.startswith("message-")
    entry = page.locator(f"section:has(> #{anchor}), section#{anchor}").first
    links = [link.evaluate("a => a.href") for link in entry.locator("a").all()]
    assert any(link.removeprefix(address).startswith(wanted) for link in links)


# what the field says itself, where no entry of the page does
SAID = {
    "The operator 'aten::eig' is not currently implemented for the MPS device": (
        "PYTORCH_ENABLE_MPS_FALLBACK=1"
    ),
    "RuntimeError: DataLoader worker is killed by signal: Bus error.": "--shm-size",
    "RuntimeError: Found no NVIDIA driver on your system.": "nvidia-smi",
    "good morning": "Lesson 16",
}


@pytest.mark.parametrize("message, said", SAID.items())
def test_the_field_says_what_to_do(message, said, page, address):
    page.goto(f"{address}docs/errors.html")
    page.fill("#message", message)
    expect(page.locator("#messages-found li").first).to_contain_text(said)


@pytest.mark.parametrize("old", ["docs/names.html", "docs/status.html"])
def test_an_old_address_leads_on(old, page, address):
    to = {"docs/names.html": "**/genindex.html", "docs/status.html": "**/evidence.html"}
    page.goto(address + old)
    page.wait_for_url(to[old])


@pytest.mark.parametrize("query", ["pin_memory", "non_blocking"])
def test_pages_that_only_list_are_not_among_the_first(query, page, address):
    assert not [link for link in first(page, address, query) if "/evidence" in link]
