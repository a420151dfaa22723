"""What the search of the built site finds first, in a browser."""

import urllib.parse

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE

TWO_DEVICES = (
    "Expected all tensors to be on the same device, but found at least two devices,"
    " cuda:0 and cpu!"
)
# query → a page that is among the first two
FIRST = {
    TWO_DEVICES: "notebooks/02_tensors_on_devices.html",
    "RuntimeError: CUDA out of memory. Tried to allocate": "notebooks/07_memory.html",
    "Torch not compiled with CUDA enabled": "notebooks/01_device_detection.html",
    "GradScaler": "notebooks/08_mixed_precision.html",
    "torch.amp.GradScaler": "notebooks/08_mixed_precision.html",
    "record_stream": "notebooks/05_streams.html",
    "pin_memory": "notebooks/06_pinned_memory_and_data_loading.html",
    "non_blocking": "notebooks/06_pinned_memory_and_data_loading.html",
    "torchrun": "notebooks/11_distributed_data_parallel.html",
    "锁页内存": "docs/glossary.html#pinned-memory",
    "固定内存": "docs/glossary.html#pinned-memory",
    "锁页内存有什么用": "notebooks/06_pinned_memory_and_data_loading.html#pages",
    "显存不足": "docs/zh.html#cuda-out-of-memory",
    "PyTorch 显存不足怎么办": "notebooks/07_memory.html#remedies",
    "CUDA流": "docs/glossary.html#stream",
}


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


@pytest.mark.parametrize("query, wanted", FIRST.items())
def test_the_page_is_among_the_first_two(query, wanted, page, address):
    found = results(page, address, query)
    links = [found.nth(n).evaluate("link => link.href") for n in range(2)]
    assert any(link.removeprefix(address).startswith(wanted) for link in links), links


def test_a_hit_of_a_message_opens_at_its_section(page, address):
    entry, link = [
        results(page, address, TWO_DEVICES).nth(n).evaluate("link => link.href")
        for n in range(2)
    ]
    assert "docs/errors.html#message-" in entry and link.endswith("#cure")
    page.goto(link)
    top = "document.getElementById('cure').getBoundingClientRect().top"
    page.wait_for_function(f"0 <= {top} && {top} < innerHeight")


@pytest.mark.parametrize("query", ["pin_memory", "non_blocking"])
def test_pages_that_only_list_are_not_among_the_first(query, page, address):
    found = results(page, address, query)
    links = [found.nth(n).evaluate("link => link.href") for n in range(3)]
    assert not [link for link in links if "/evidence" in link or "/status" in link]
