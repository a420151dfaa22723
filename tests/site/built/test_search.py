"""What the search of the built site finds first, in a browser."""

import re
import urllib.parse

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE

# query → what is among the first three results of the search
ANSWERED = {
    "torch.cuda.Stream": "notebooks/05_streams.html",
    "record_stream": "notebooks/05_streams.html",
    "GradScaler.unscale_": "notebooks/08_mixed_precision.html",
    "torch.autocast": "notebooks/08_mixed_precision.html",
    "map_location": "notebooks/03_models_on_devices.html",
    "torch.profiler.profile": "notebooks/09_profiling.html",
    "torch.compile": "notebooks/10_graphs_and_compile.html",
    "nn.DataParallel": "notebooks/11_distributed_data_parallel.html",
    "fully_shard": "notebooks/12_scaling_out.html",
    "mark_sharding": "notebooks/14_many_tpu_cores.html",
    "xm.mark_step()": "notebooks/16_old_code_today.html",
    "torchrun": "notebooks/11_distributed_data_parallel.html",
    "CUDA_LAUNCH_BLOCKING": "notebooks/04_asynchrony_and_timing.html",
    "DDP hangs": "docs/answers.html",
    "PYTORCH_CUDA_ALLOC_CONF": "notebooks/07_memory.html",
    "torch.cuda.memory._record_memory_history": "notebooks/07_memory.html",
    "锁页内存": "docs/glossary.html",
    "固定内存": "docs/glossary.html",
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
    "pin_memory": "notebooks/06_pinned_memory_and_data_loading.html",
    "non_blocking": "notebooks/06_pinned_memory_and_data_loading.html",
    "GradScaler": "notebooks/08_mixed_precision.html",
    "torch.amp.GradScaler": "notebooks/08_mixed_precision.html",
    "torch.cuda.empty_cache()": "notebooks/07_memory.html",
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
    assert len(ANSWERED) >= 26 and not {*ANSWERED} & {*UNANSWERED}
    assert len(ANSWERED) + len(UNANSWERED) == 43


def test_a_long_text_in_the_search_leads_to_the_field(page, address):
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    page.goto(f"{address}search.html?q={urllib.parse.quote(text)}")
    link = page.locator(".look-up a").get_attribute("href")
    assert link == f"docs/errors.html?message={urllib.parse.quote(text)}"


MOVED = {
    "docs/names.html": "**/search.html",
    "docs/status.html": "**/evidence.html",
    "genindex.html": "**/search.html",
}


@pytest.mark.parametrize("old, new", MOVED.items())
def test_an_old_address_leads_on(old, new, page, address):
    page.goto(address + old)
    page.wait_for_url(new)


@pytest.mark.parametrize("query", ["pin_memory", "non_blocking"])
def test_pages_that_only_list_are_not_among_the_first(query, page, address):
    assert not [link for link in first(page, address, query) if "/evidence" in link]
