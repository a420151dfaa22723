"""The field for messages of the built site, in a browser: what it loads, finds and
shows; and where the entries stand.
"""

import json
import re
import runpy

import pytest
from playwright.sync_api import expect

from course.paths import COURSE
from tests.site.built.conftest import SITE
from tests.site.built.test_pages import barriers
from tools.site import errors
from torch_messages import match, phrases, places
from torch_messages.messages import entries
from torch_messages.rules import WHOLE

TESTS = COURSE / "packages" / "torch_messages" / "tests"
PASTED = (TESTS / "messages.txt").read_text(encoding="utf-8")
LISTINGS = runpy.run_path(TESTS / "listings.py")["LISTINGS"]
DRESSED = runpy.run_path(TESTS / "pastes.py")
AROUND, LONG = DRESSED["AROUND"], DRESSED["LONG"]
FIRST_SCREEN = 200_000  # bytes
FULL = "[rank0]: RuntimeError: CUDA out of memory. Tried to allocate"
ON_DEMAND = re.compile(r"/_static/(messages-table|find|find-worker|numbers)\.js")


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    yield page
    page.close()


@pytest.fixture(scope="module")
def address(serve):
    return serve(SITE)


@pytest.fixture
def found(page, address):
    """Where the page shows what it finds."""
    page.goto(f"{address}docs/errors.html")
    return page.locator("#messages-found")


# --------------------------------------------------------------------------------------
# What is loaded


def test_the_first_screen_is_light(page, address):
    """Counted is all that the page asks for before somebody types, as it is without
    compression: the page, and every style and script, those of the theme, too.
    """
    weight = {}

    def note(request):
        weight[request.url] = request.sizes()["responseBodySize"]

    page.on("requestfinished", note)
    page.goto(f"{address}docs/errors.html")
    page.wait_for_load_state("networkidle")
    assert any("messages.js" in url for url in weight) and len(weight) > 10
    assert sum(weight.values()) <= FIRST_SCREEN, weight
    assert not [url for url in weight if ON_DEMAND.search(url)]
    with page.expect_request_finished(lambda each: "find.js" in each.url):
        page.focus("#message")
    page.wait_for_load_state("networkidle")
    (worker,) = page.workers  # who types waits for nothing
    late = {worker.url, *filter(ON_DEMAND.search, weight)}
    # of the version of the script that asks for them
    assert len(late) == 4 and len({url.partition("?v=")[2] for url in late}) == 1


def test_what_did_not_load_is_said_and_loaded_again(page, found):
    table = "**/messages-table.js*"
    page.route(table, lambda route: route.abort())
    page.fill("#message", FULL)
    expect(found).to_contain_text("did not load")
    page.unroute(table)
    page.fill("#message", FULL + " 2 GiB")
    expect(found.locator("li").first).to_contain_text("The GPU is full")


def test_it_works_in_a_page_that_is_opened_as_a_file(page):
    page.goto((SITE / "docs" / "errors.html").as_uri())
    page.fill("#message", FULL)
    answer = page.locator("#messages-found li").first
    expect(answer).to_contain_text(entries()["memory/cuda-oom"].means)


# --------------------------------------------------------------------------------------
# What is found


def asked():
    """Each wording, question and name of the table, what people paste, and listings;
    a part of them in other dress.
    """
    known = entries().values()
    texts = [text for each in known for text in (*each.says, *each.asked, *each.called)]
    texts += [text.replace("…", "x1") for text in texts]
    texts += [told.split("\n", 1)[1] for told in PASTED.split("\n----\n")]
    sources = [listing.source for listing in LISTINGS.values()]
    flat = [re.sub(r"(?m)^[ \t]+", "", source) for source in sources]
    errors = [f"{source}\nRuntimeError: odd things" for source in sources]
    some = texts[::23]
    around = [dress(text) for dress in AROUND.values() for text in some]
    cut = [text[: round(0.6 * len(text))] for text in some]
    strange = [f"运行\u00a0错误 😀：{text}\u2028\x85İ" for text in some]
    return [*texts, *sources, *flat, *errors, *around, *cut, *strange]


def told(text):
    """What Python finds, as the finder of the site says it."""
    answers, others, unknown, notes = match.look(text)
    by_code = [found for found in (*answers, *others) if found.by == "listing"]
    return {
        "first": [found.entry.id for found in answers],
        "others": [found.entry.id for found in others],
        "near": any(found.near for found in answers),
        "unknown": unknown,
        "listing": [found.entry.id for found in by_code],
        "notes": list(notes),
        # of an entry that is in both, the first counts
        "said": {
            found.entry.id: found.wording
            for found in (*reversed(others), *reversed(answers))
            if found.wording
        },
        **({} if answers else beside(text, unknown)),
    }


def beside(text, unknown):
    """Where nothing fits: pages, seen from that of the field, and a tracker."""
    pages = [] if unknown else places.search(text)
    return {
        "tracker": list(places.tracker(text)),
        "search": phrases.phrase(text, unknown),
        "missing": "" if unknown else phrases.missing(text),
        "places": [
            {"title": title, "url": address.replace(places.read()["site"], "../")}
            for title, address in pages
        ],
    }


def test_the_field_agrees_with_python(page, address):
    texts = asked()
    page.goto(f"{address}docs/errors.html")
    shown = page.evaluate(
        """async texts => {
            const all = [];
            for (const text of texts) all.push(await findMessage(text));
            return all;
        }""",
        texts,
    )
    for text, got in zip(texts, shown, strict=True):
        assert got == told(text), text


def milliseconds(page, text):
    """What it takes to find something in a text, of three times the least."""
    return page.evaluate(
        """async text => {
            const took = [];
            for (let n = 0; n < 3; n++) {
                const begin = performance.now();
                await findMessage(text);
                took.push(performance.now() - begin);
            }
            return Math.min(...took);
        }""",
        text,
    )


def test_a_paste_of_the_tests_is_found_within_a_second(page, address):
    page.goto(f"{address}docs/errors.html")
    longest = max(PASTED.split("\n----\n"), key=len)
    assert milliseconds(page, longest + "\nwords that nobody knows") < 1000


@pytest.mark.parametrize("kind", LONG)
def test_time_grows_no_faster_than_a_long_text(kind, page, address):
    page.goto(f"{address}docs/errors.html")
    short, long = (LONG[kind](size * WHOLE) for size in (1, 10))
    assert milliseconds(page, long) < 10 * max(milliseconds(page, short), 20)


# --------------------------------------------------------------------------------------
# What is shown


def test_the_field_opens_an_entry_and_says_where_it_knows_nothing(page, found):
    entry = entries()["memory/cuda-oom"]
    page.fill("#message", FULL)
    answer = found.locator("ol > li").first
    for text in (entry.means, "Not CUDA error: out of memory: ", "Lesson 07 · "):
        expect(answer).to_contain_text(text)
    assert answer.locator("pre").text_content() == entry.do
    page.fill("#message", "good morning to all of you")
    expect(found).to_contain_text("Not known here, and no guess")
    expect(found.locator("a")).to_have_attribute(
        "href", "https://github.com/pytorch/pytorch/issues"
    )
    page.fill("#message", "")
    expect(found).to_be_empty()
    page.fill("#message", FULL)
    found.locator("a").first.click()
    page.wait_for_url("**/errors/memory-and-gradients.html#message-memory-cuda-oom")
    heading = page.locator("section:target > h2")
    expect(heading).to_contain_text(entry.says[0])
    expect(heading).to_be_in_viewport()


def test_a_message_in_the_address_is_looked_for(page, address):
    page.goto(f"{address}docs/errors.html?message={FULL.replace(' ', '+')}")
    expect(page.locator("#message")).to_have_value(FULL)
    answer = page.locator("#messages-found li").first
    expect(answer).to_contain_text("The GPU is full")


def test_answers_are_told_and_reached_by_keyboard(page, found):
    page.focus("#message")
    text = "DataLoader worker (pid 7) is killed by signal: Killed.\n" + FULL
    page.keyboard.type(text)
    expect(found.locator("ul").last).to_be_visible()
    expect(found).to_contain_text("Also in your text:")
    assert found.get_attribute("aria-live") == "polite"
    page.keyboard.press("Tab")
    assert found.locator("a").first.evaluate("a => a === document.activeElement")
    assert barriers(page, 1400) == []


TOLD = {
    "first": ["detection/amdgpu-ids"],
    "others": ["memory/cuda-oom"],
    "near": False,
    "listing": [],
    "unknown": "Memory access fault by GPU <img src=x onerror=alert(1)>",
    "notes": ["A device with 8 GiB.", "<b>Half</b> of its RAM."],
    "said": {"detection/amdgpu-ids": "amdgpu <b>ids</b>"},
    "tracker": ["ROCm", "ROCm/ROCm", False],
    "search": "Odd <i>things</i>",
}


def finds(page, body):
    """Let the finder be this function of a text."""
    script = f"const finderOf = table => text => {{ {body} }};"
    kind = "text/javascript"
    page.route(
        "**/find.js*", lambda route: route.fulfill(body=script, content_type=kind)
    )


def shown_of(page, found, told):
    """What the field shows where the finder says this."""
    finds(page, f"return {json.dumps(told)}")
    page.fill("#message", "some text")
    expect(found.locator("p").first).to_be_visible()
    return found.inner_text()


def test_all_that_the_finder_says_is_shown_as_text(page, found):
    shown = shown_of(page, found, TOLD)
    order = (
        f"The line that failed is not known here: {TOLD['unknown']}",
        "github.com/ROCm/ROCm/issues",
        *TOLD["notes"],
        "What else stands in your text:",
        TOLD["said"]["detection/amdgpu-ids"],
        entries()["detection/amdgpu-ids"].means,
        "Also in your text:",
        entries()["memory/cuda-oom"].title,
    )
    at = [shown.index(each) for each in order]
    assert at == sorted(at)
    assert found.locator("img, b, i").count() == 0
    assert barriers(page, 1400) == []


def test_where_nothing_fits_other_places_and_the_right_tracker_are_named(page, found):
    nothing = {**TOLD, "first": [], "others": [], "unknown": "", "notes": []}
    pages = [{"title": "Quick answers <i>", "url": "answers.html"}]
    shown = shown_of(page, found, {**nothing, "places": pages})
    assert shown.startswith("Not known here as a message. Pages that are about it:")
    assert "github.com/ROCm/ROCm/issues" in shown and "pytorch/pytorch" not in shown
    assert "Also in your text" not in shown and "Quick answers <i>" in shown
    expect(found.get_by_text("Quick answers")).to_have_attribute("href", "answers.html")


def test_a_foreign_message_is_told_as_such(page, found):
    foreign = {"tracker": ["JAX", "jax-ml/jax", True], "unknown": "", "notes": []}
    shown = shown_of(page, found, {**TOLD, **foreign, "first": [], "others": []})
    assert "This is a message of JAX, not of PyTorch" in shown
    assert "github.com/jax-ml/jax/issues" in shown


def test_of_code_it_is_not_said_that_it_failed(page, found):
    code = {"unknown": "", "notes": [], "others": [], "listing": TOLD["first"]}
    shown = shown_of(page, found, {**TOLD, **code})
    assert shown.startswith("Lines of your code are like these, which are old, or may")


LACKS = {**TOLD, "first": [], "others": [], "notes": [], "unknown": ""}


def test_what_is_missing_is_said_before_what_to_search_for(page, found):
    missing = "There is no <b>message</b>."
    shown = shown_of(page, found, {**LACKS, "missing": missing})
    assert shown.startswith(missing)
    told = "Not known here, and no guess. Search for Odd <i>things</i> in github.com"
    assert told in shown


def test_the_message_of_a_line_that_failed_is_searched(page, found):
    shown = shown_of(page, found, {**LACKS, "unknown": "E: odd"})
    assert "E: odd Search for Odd <i>things</i> in github.com" in shown


NOTED = """return {first: [], others: [], listing: [], said: {}, unknown: "",
    search: "", tracker: ["", "a/b", false], notes: [`${text}, ${self.looks}`]}"""


def test_it_looks_once_when_the_keys_pause(page, found):
    finds(page, f"self.looks = (self.looks ?? 0) + 1; {NOTED}")
    keys = """([field, text]) => {
        for (const letter of text) {
            field.value += letter;
            field.dispatchEvent(new Event("input"));
        }
    }"""
    field = page.locator("#message").element_handle()
    page.evaluate(keys, [field, "many keys"])
    expect(found).to_contain_text("many keys, 1")
    page.evaluate(keys, [field, " and more"])
    expect(found).to_contain_text("many keys and more, 2")


def test_who_types_does_not_wait_for_what_is_looked_for(page, found):
    finds(
        page,
        f"""const end = Date.now() + (text === "long text" ? 3000 : 0);
        while (Date.now() < end); {NOTED}""",
    )
    page.fill("#message", "long text")
    expect(found).to_contain_text("Looking …")
    page.wait_for_timeout(500)  # it has begun
    page.fill("#message", "short text")
    assert found.inner_text() == "Looking …"  # for the first, still
    expect(found).to_contain_text("short text")


# --------------------------------------------------------------------------------------
# Where the entries stand


def test_each_entry_stands_on_the_page_of_its_group():
    text, ids = {}, {}
    for page in errors.PAGES.values():
        text[page] = (SITE / "docs" / "errors" / f"{page}.html").read_text("utf-8")
        ids[page] = {*re.findall(r' id="([^"]+)"', text[page])}
    for entry in entries().values():
        assert errors.anchor(entry.id) in ids[errors.PAGE_OF[entry.group]], entry.id
    script = (SITE / "_static" / "messages-table.js").read_text("utf-8")
    table = json.loads(script.removeprefix("const messageTable = ").rstrip(";\n"))
    for anchor, id in table["shown"].items():
        assert anchor in ids[table["pages"][id.split("/")[0]]], anchor
    for label, link in table["cells"].values():
        path, _, cell = link.removeprefix("../").partition("#")
        assert f'id="{cell}"' in (SITE / path).read_text("utf-8"), label


OLD = {
    "message-memory-cuda-oom": "memory-and-gradients",
    # of what a cell got
    "message-cuda-out-of-memory": "memory-and-gradients",
    "message-tpu-mark-step": "tpu",
    "several-processes": "several-processes",
}


@pytest.mark.parametrize("anchor, group", OLD.items())
def test_an_address_from_before_the_groups_had_pages_leads_on(
    anchor, group, page, address
):
    page.goto(f"{address}docs/errors.html#{anchor}")
    page.wait_for_url(f"**/docs/errors/{group}.html*")
    if anchor.startswith("message-"):
        assert page.url.endswith(f"#{anchor}")
        expect(page.locator(f"#{anchor}")).to_be_in_viewport()


@pytest.mark.parametrize("anchor", ["common-ones", "message-of-nobody"])
def test_what_has_not_moved_stays(anchor, page, address):
    page.goto(f"{address}docs/errors.html#{anchor}")
    page.wait_for_load_state("networkidle")
    assert page.url == f"{address}docs/errors.html#{anchor}"
