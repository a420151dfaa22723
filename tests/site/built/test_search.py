"""The search of the built site, in a browser: what it finds first, what it loads, how
it is used.
"""

import contextlib
import re
import urllib.parse

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE
from tests.site.built.queries import LESSON, QUERIES
from tests.site.built.test_pages import CHECKS, barriers

MOST = 300_000  # bytes that one search may load
FIRST = 3  # results
STREAMS = LESSON["05"]
LOADED = re.compile(r"/pagefind/|/_static/search-results\.js|/_static/search\.css")

# Other queries, of an earlier test: these are answered, too …
ANSWERED = {
    "torch.cuda.Stream": "notebooks/05_streams.html",
    "GradScaler.unscale_": "notebooks/08_mixed_precision.html",
    "torch.autocast": "notebooks/08_mixed_precision.html",
    "torch.amp.GradScaler": "notebooks/08_mixed_precision.html",
    "map_location": "notebooks/03_models_on_devices.html",
    "torch.load map_location": "notebooks/03_models_on_devices.html",
    "torch.profiler.profile": "notebooks/09_profiling.html",
    "torch.compile": "notebooks/10_graphs_and_compile.html",
    "nn.DataParallel": "notebooks/11_distributed_data_parallel.html",
    "DistributedDataParallel": "notebooks/11_distributed_data_parallel.html",
    "mark_sharding": "notebooks/14_many_tpu_cores.html",
    "xm.mark_step()": "notebooks/16_old_code_today.html",
    "torchrun": "notebooks/11_distributed_data_parallel.html",
    "CUDA_LAUNCH_BLOCKING": "notebooks/04_asynchrony_and_timing.html",
    "DDP hangs": "docs/answers.html",
    "PYTORCH_CUDA_ALLOC_CONF": "notebooks/07_memory.html",
    "torch.cuda.empty_cache()": "notebooks/07_memory.html",
    "torch.cuda.memory._record_memory_history": "notebooks/07_memory.html",
    "固定内存": "docs/glossary.html",
    "CUDA流": "docs/glossary.html",
    "PyTorch 显存不足怎么办": "docs/zh.html",
    "锁页内存有什么用": "docs/glossary.html",
    "with torch.cuda.stream(s):": "notebooks/05_streams.html",
    "torch.cuda.synchronize()": "notebooks/04_asynchrony_and_timing.html",
    "select a specific gpu": "notebooks/01_device_detection.html",
    "measure gpu time correctly": "notebooks/04_asynchrony_and_timing.html",
    "torch.compile first run very slow": "notebooks/10_graphs_and_compile.html",
    "RuntimeError: CUDA error: invalid device ordinal": "docs/errors/which-device.html",
    "GPU is idle": "docs/answers.html",
    "profile my training loop": "notebooks/09_profiling.html",
    "train on multiple gpus": "notebooks/11_distributed_data_parallel.html",
}
# … and these not.
UNANSWERED = {
    "x.cuda()": "notebooks/02_tensors_on_devices.html",
    "nn.Module.to or Tensor.to": "notebooks/03_models_on_devices.html",
}
WANTED = {**QUERIES, **{query: [page] for query, page in ANSWERED.items()}}


@pytest.fixture(scope="module")
def address(serve):
    return serve(SITE)


@pytest.fixture(scope="module")
def one(browser):
    """The page in which all queries are made."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.add_init_script(path=CHECKS)
    yield context.new_page()
    context.close()


@contextlib.contextmanager
def loading(page):
    """A list into which goes (bytes, address) of each file of the search that a page
    loads.
    """
    found = []

    def note(request):
        if LOADED.search(request.url):
            found.append((request.sizes()["responseBodySize"], request.url))

    page.on("requestfinished", note)
    yield found
    page.remove_listener("requestfinished", note)


def results(page, query):
    """The links of what was found, the best first."""
    place = page.locator(f".search-found[data-query={query!r}]")
    expect(place).to_be_attached(timeout=30_000)
    return place.locator("a")


def ask(page, address, query):
    page.goto(f"{address}search.html?q={urllib.parse.quote(query)}")
    links = results(page, query)
    expect(links.first).to_be_visible()
    return [link.evaluate("a => a.href").removeprefix(address) for link in links.all()]


@pytest.mark.parametrize("query, wanted", WANTED.items())
def test_what_is_wanted_is_among_the_first_three(query, wanted, one, address):
    with loading(one) as loaded:
        found = ask(one, address, query)[:FIRST]
    assert any(link.startswith(page) for page in wanted for link in found), found
    assert 100_000 < sum(size for size, _ in loaded) <= MOST, loaded


def test_no_query_is_left_out():
    assert len(QUERIES) == 40 and not {*ANSWERED} & {*UNANSWERED}
    assert len(ANSWERED) > 12 * len(UNANSWERED)


def test_a_page_loads_nothing_of_it_before_somebody_searches(page, address):
    with loading(page) as loaded:
        page.goto(address + STREAMS)
        page.wait_for_load_state("networkidle")
        assert loaded == []
        page.locator(".sidebar-search").press_sequentially("pin_memory", delay=30)
        results(page, "pin_memory").first.wait_for()
        page.wait_for_load_state("networkidle")
    assert sum(size for size, _ in loaded) <= MOST, loaded


# --------------------------------------------------------------------------------------
# In use


@pytest.mark.parametrize("width", [1400, 380])
def test_keys_are_enough(width, page, address):
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(address + STREAMS)
    page.keyboard.press("/")
    dialog = page.locator("dialog.search")
    expect(dialog.locator("input")).to_be_focused()
    page.keyboard.type("record_stream")
    links = results(page, "record_stream")
    expect(dialog.get_by_role("status")).to_contain_text("for “record_stream”")
    page.keyboard.press("ArrowDown")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(dialog.locator("input")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).not_to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("GradScaler")
    results(page, "GradScaler").first.wait_for()
    page.keyboard.press("Enter")
    expect(results(page, "GradScaler").first).to_be_focused()
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert "#" in page.url and STREAMS not in page.url


def test_what_is_typed_into_the_menu_goes_on_in_the_search(page, address):
    page.goto(address + STREAMS)
    box = page.locator(".sidebar-search")
    box.focus()
    page.keyboard.type("free gpu memory", delay=60)
    results(page, "free gpu memory").first.click()
    page.wait_for_url("**/07_memory.html#*")
    place = page.locator(":target, .cell:target, section:target").first
    expect(place).to_be_attached()


def test_a_word_is_written_by_an_input_method(page, address):
    """Chinese: letters come first, and are no query."""
    page.goto(address + STREAMS)
    page.evaluate("""() => {
        const box = document.querySelector(".sidebar-search");
        box.value = "xian";
        box.dispatchEvent(new InputEvent("input", {isComposing: true}));
        box.value = "显存";
        box.dispatchEvent(new CompositionEvent("compositionend", {data: "显存"}));
    }""")
    first = results(page, "显存").first
    expect(first.locator("mark").first).to_have_text("显存")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 380])
def test_everybody_can_read_it(scheme, width, page, address):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(f"{address}docs/paths.html")  # a light one: axe looks at all of it
    page.keyboard.press("/")
    for query in ("torch.cuda.memory._record_memory_history", "CUDA out of memory"):
        page.locator("dialog.search input").fill(query)
        results(page, query).first.wait_for()
        assert barriers(page, width) == []
        dialog = page.locator("dialog.search")
        wide = "dialog => [dialog.scrollWidth - dialog.clientWidth, dialog.offsetWidth]"
        over, whole = dialog.evaluate(wide)
        assert over <= 0 and whole <= width
        assert page.evaluate("checks.smallText(12)") == []


def test_a_typing_error_is_mended_and_said(page, address):
    ask(page, address, "out of memmory")
    expect(page.get_by_role("status")).to_contain_text("Also looked for “memory”")


def test_more_are_shown_when_asked_for(page, address):
    few = ask(page, address, "gpu")
    page.get_by_role("button", name="More").click()
    links = results(page, "gpu")
    assert links.count() > len(few)
    expect(links.nth(len(few))).to_be_focused()


def test_nothing_is_found_and_it_is_said(page, address):
    page.goto(f"{address}search.html?q=xqzwv")
    expect(page.get_by_role("status")).to_contain_text("Nothing found for “xqzwv”.")


def test_a_long_text_in_the_search_leads_to_the_field(page, address):
    text = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    found = ask(page, address, text)
    assert found[0].endswith("#message-memory-cuda-oom")
    link = page.locator(".look-up a").evaluate("link => link.href")
    query = urllib.parse.quote(text, safe="")
    assert link == f"{address}docs/errors.html?message={query}"


def test_it_works_in_a_folder_of_a_server(page, serve):
    address = serve(SITE.parent) + f"{SITE.name}/"
    assert ask(page, address, "streams")[0].startswith("notebooks/")


def test_a_page_that_is_opened_as_a_file_says_what_to_do(page):
    page.goto((SITE / STREAMS).as_uri())
    page.keyboard.press("/")
    page.locator("dialog.search input").fill("streams")
    said = page.locator("dialog.search").get_by_role("status")
    expect(said).to_contain_text("python -m http.server")


# --------------------------------------------------------------------------------------
# What was there before


MOVED = {
    "docs/names.html": "**/search.html",
    "docs/status.html": "**/evidence.html",
    "genindex.html": "**/search.html",
}


@pytest.mark.parametrize("old, new", MOVED.items())
def test_an_old_address_leads_on(old, new, page, address):
    page.goto(address + old)
    page.wait_for_url(new)


def test_the_search_of_sphinx_is_gone():
    names = {path.name for path in SITE.rglob("*.js")}
    assert not {"searchindex.js", "searchtools.js", "language_data.js"} & names
    assert "search.js" in names
