"""Every page of the built site in Chromium, served by this machine, at three widths,
light and dark.

LAB_SHOTS=folder stores pictures of the pages there. Not covered by rules about the size
of text: formulas, and the figures, whose drawings are scaled to the page
(tools/site/explorers.py keeps theirs from becoming too small).
"""

import os
import pathlib
import re
import zlib

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.site.built.conftest import SITE
from tools.lessons.notebooks import lessons

# not those that only lead on, nor the one for wrong addresses, whose styles have the
# address at which the site is published; of the figures to embed, made alike, one
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if path.name != "404.html"
    and (path.parent.name != "embed" or path.stem == "05")
    and 'http-equiv="refresh"' not in path.read_text("utf-8")
)
LESSONS = [page for page in PAGES if re.match(r"notebooks/\d\d_", page)]
# the page is loaded, and axe looks, at the first
WIDTHS = {"light": [1400, 800, 380], "dark": [380, 800, 1400]}
FIRST_VIEW = 1_500_000  # bytes
SMALLEST = 12  # px
STREAMS = "notebooks/05_streams.html"

# functions that look at a page, from within
CHECKS = pathlib.Path(__file__).with_name("checks.js")


@pytest.fixture(scope="module")
def address(serve):
    return serve(SITE)


@pytest.fixture(scope="module")
def contexts(browser):
    """A browser context of each color scheme; what a page asks other hosts for is noted
    and goes nowhere.
    """
    found = {scheme: browser.new_context(color_scheme=scheme) for scheme in WIDTHS}
    for context in found.values():
        context.add_init_script(path=CHECKS)
    yield found
    for context in found.values():
        context.close()


@pytest.fixture
def page(contexts):
    page = contexts["light"].new_page()
    page.set_viewport_size({"width": 1400, "height": 900})
    yield page
    page.close()


def visit(context, url, widths):
    """What is wrong with a page, as lines of text: it is loaded, narrowed to each of
    the widths, and unfolded.
    """
    page, weight = context.new_page(), []
    found = noted(page, re.match(r"http://[\d.:]+/", url)[0])
    page.on(
        "requestfinished",
        lambda request: weight.append(request.sizes()["responseBodySize"]),
    )
    page.set_viewport_size({"width": widths[0], "height": 900})
    page.goto(url)
    page.wait_for_load_state("networkidle")
    if sum(weight) > FIRST_VIEW:
        found.append(f"weight: {sum(weight)} bytes before anybody scrolls")
    page.evaluate("checks.showAll()")
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("checks.tooWide()")
        small = page.evaluate(f"checks.smallText({SMALLEST})")
        found += [f"wide at {width}: {line}" for line in wide]
        found += [f"small at {width}: {line}" for line in small]
        if width == widths[0]:
            found += barriers(page, width)
    page.close()
    return found


def noted(page, host):
    """A list into which goes what a page says on its console, what fails, and what it
    asks other hosts than `host` for.
    """
    found = []

    def note(line):
        if line:
            found.append(line)

    def console(line):
        return line.type in ("error", "warning") and f"console: {line.text}"

    def request(request):
        at_home = request.url.startswith((host, "data:"))
        return not at_home and f"host: {request.url}"

    def response(reply):
        return reply.status != 200 and f"{reply.status}: {reply.url}"

    page.on("console", lambda line: note(console(line)))
    page.on("pageerror", lambda error: note(f"script: {error}"))
    page.on("request", lambda each: note(request(each)))
    page.on("requestfailed", lambda each: note(f"failed: {each.url}"))
    page.on("response", lambda reply: note(response(reply)))
    return found


def barriers(page, width):
    """What axe-core calls serious or critical, as lines of text."""
    return [
        f"axe at {width}: {violation['id']}: {node['html'][:150]}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"][:5]
    ]


def store_pictures(context, url, name, scheme):
    folder = pathlib.Path(os.environ["LAB_SHOTS"])
    folder.mkdir(parents=True, exist_ok=True)
    page = context.new_page()
    page.goto(url)
    for width in WIDTHS[scheme]:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("for (const image of document.images) image.loading = 'eager'")
        page.wait_for_load_state("networkidle")
        height = min(page.evaluate("document.documentElement.scrollHeight"), 12_000)
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        path = folder / f"{name}_{width}_{scheme}.png"
        page.screenshot(path=path, full_page=True, clip=clip)
    page.close()


# --------------------------------------------------------------------------------------
# Every page


def test_there_are_pages():
    others = {"index.html", "search.html", "docs/glossary.html"}
    assert len(LESSONS) == len(lessons()) and others <= {*PAGES}, "run `make site`"


@pytest.mark.parametrize(
    ("path", "scheme"),
    [
        # each page in one of the schemes; each week in both
        pytest.param(path, scheme, marks=pytest.mark.weekly if (n + m) % 2 else [])
        for n, path in enumerate(PAGES)
        for m, scheme in enumerate(WIDTHS)
    ],
)
def test_page(path, scheme, address, contexts):
    if "LAB_SHOTS" in os.environ:
        name = path.removesuffix(".html").replace("/", "_")
        store_pictures(contexts[scheme], address + path, name, scheme)
    assert visit(contexts[scheme], address + path, WIDTHS[scheme]) == []


BAD = """<!doctype html><html lang="en"><title>Bad</title>
<body style="background: #fff"><script src="heavy.js"></script>
<script>console.error("noise"); throw Error("broken")</script>
<script src="http://localhost/x.js"></script><script src="lacking.js"></script>
<main><h1>Bad</h1><p style="color: #ccc">pale</p><p style="font-size: 9px">tiny</p>
<details><summary>More</summary><p style="font-size: 11px">folded</p></details>
<div style="width: 600px">wide</div></main></html>"""


def test_what_must_be_seen_is_seen(serve, contexts, tmp_path):
    """A page with one fault of each kind does not pass."""
    (tmp_path / "bad.html").write_text(BAD)
    (tmp_path / "heavy.js").write_text(f"/* {'x' * FIRST_VIEW} */")
    found = visit(contexts["light"], serve(tmp_path) + "bad.html", [800, 380])
    for fault in (
        "console: noise",
        "script: broken",
        "host: http://localhost/x.js",
        "404: .*lacking.js",
        "weight: ",
        "wide at 380: DIV",
        "small at 380: 9 px: tiny",
        "small at 800: 11 px: folded",
        "axe at 800: color-contrast: .*pale",
    ):
        assert [line for line in found if re.match(fault, line)], (fault, found)
    assert not [line for line in found if line.startswith("wide at 800")]


# --------------------------------------------------------------------------------------
# The keyboard


def tab_through(page):
    """Press Tab until the first control comes again; returns [HTML, whether its focus
    is visible, whether in view].
    """
    found = []
    for _ in range(1000):
        page.keyboard.press("Tab")
        reached = page.evaluate("checks.markFocused()")
        if reached:
            found.append(reached)
        elif found:
            return found
    raise AssertionError("Tab never comes round")


@pytest.mark.parametrize("width", [1400, 380])
@pytest.mark.parametrize(
    "path", ["index.html", "notebooks/00_start_here.html", STREAMS]
)
def test_tab_reaches_every_control_and_shows_where_it_is(path, width, page, address):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address + path)
    page.add_style_tag(
        content="* { scroll-behavior: auto !important; transition: none !important }"
    )
    for explorer in page.locator(".explorer").all():
        explorer.scroll_into_view_if_needed()
        expect(explorer).to_have_attribute("data-ready", "")
    page.evaluate("scrollTo(0, 0)")
    reached = tab_through(page)
    # after the switches of the menus
    assert any("skip-to-content" in html for html, _, _ in reached[:3])
    assert [html for html, shown, in_view in reached if not (shown and in_view)] == []
    assert page.evaluate("checks.notReached()") == []


def test_keys_work_the_controls_of_a_lesson(page, address):
    page.goto(f"{address}notebooks/00_start_here.html")
    page.locator(".skip-to-content").focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#furo-main-content")

    summary = page.locator("details.code > summary").first
    summary.focus()
    page.keyboard.press("Enter")
    assert summary.evaluate("summary => summary.parentElement.open")

    guess = page.locator(".predict button").first
    answer = page.locator("details.answer").first
    assert not answer.evaluate("answer => answer.open")
    guess.focus()
    page.keyboard.press("Space")
    expect(guess).to_have_attribute("aria-pressed", "true")
    assert answer.evaluate("answer => answer.open")

    picture = page.locator(".explorer-picture")
    slider = page.locator(".explorer input[type=range]").first
    slider.scroll_into_view_if_needed()
    expect(page.locator(".explorer")).to_have_attribute("data-ready", "")
    before = picture.get_attribute("aria-label")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(picture).not_to_have_attribute("aria-label", before)

    page.locator("a.next-page").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/01_device_detection.html")


@pytest.mark.parametrize(
    "switch, link",
    [("Toggle site navigation", "06"), ("Toggle table", "What to remember")],
)
def test_keys_open_the_menus_of_a_narrow_page(switch, link, page, address):
    page.set_viewport_size({"width": 380, "height": 700})
    page.goto(address + STREAMS)
    first = page.locator(".sidebar-tree a, .toc-tree a", has_text=link)
    expect(first).not_to_be_visible()
    for _ in range(2):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.ariaLabel").startswith(switch):
            break
    page.keyboard.press("Space")
    expect(first).to_be_in_viewport()
    page.keyboard.press("Space")
    expect(first).not_to_be_visible()


# --------------------------------------------------------------------------------------
# Guesses


@pytest.mark.parametrize("open_it", ["details.answer > summary", ".show-answers"])
def test_a_guess_is_kept_and_judged_while_its_answer_is_open(open_it, page, address):
    page.goto(address + STREAMS)
    page.evaluate("localStorage.clear()")
    page.reload()
    question = page.locator(".predict").first
    said = question.locator("[role=status]")
    sentences = {
        item.inner_text(): item.get_attribute("data-said")
        for item in question.locator("li").all()
    }
    right = next(text for text, told in sentences.items() if ", and " in told)
    key = question.get_attribute("data-key")
    answer = page.locator(f"details.answer[data-key='{key}']").first
    opens = answer.locator("summary") if "summary" in open_it else page.locator(open_it)

    opens.click()  # without a guess: the answer, and no word about one
    expect(answer).to_have_attribute("open", "")
    expect(said).to_have_text("")
    opens.click()
    expect(answer).not_to_have_attribute("open", "")

    guesses = question.get_by_role("button")
    wrong = next(text for text in guesses.all_inner_texts() if text != right)
    guess = guesses.get_by_text(wrong, exact=True)
    assert re.fullmatch(rf"You said “?{wrong}”?; .+ “?{right}”?\.", sentences[wrong])
    judged = f"Not this time. {sentences[wrong]}"
    guess.click()
    expect(answer).to_have_attribute("open", "")
    expect(said).to_have_text(judged)
    expect(said).to_have_class("wrong")

    page.reload()
    expect(guess).to_have_attribute("aria-pressed", "true")
    expect(answer).not_to_have_attribute("open", "")
    expect(said).to_have_text(f"You said: {wrong}")
    expect(said).to_have_class("")
    opens.click()
    expect(said).to_have_text(judged)
    opens.click()
    expect(said).not_to_have_text(judged)

    guesses.get_by_text(right, exact=True).click()
    expect(guess).to_have_attribute("aria-pressed", "false")
    expect(said).to_have_text(f"✓ {sentences[right]}")
    expect(said).to_have_class("right")


JUDGED = {"right": "✓", "wrong": "Not this time."}


@pytest.mark.parametrize("path", LESSONS)
def test_each_guess_is_judged_as_its_answer_says(path, page, address):
    """Right is one option of each question, and its sentence names no other."""
    page.goto(address + path)
    for question in page.locator(".predict").all():
        said, judged = question.locator("[role=status]"), []
        for item in question.locator("li[data-said]").all():
            item.locator("button").dispatch_event("click")
            told = item.get_attribute("data-said")
            word = JUDGED[said.get_attribute("class")]
            expect(said).to_have_text(f"{word} {told}")
            judged.append(word)
        assert judged.count("✓") == 1 or not judged


@pytest.mark.parametrize("scheme", WIDTHS)
def test_a_judged_guess_is_legible(scheme, contexts, address):
    page = contexts[scheme].new_page()
    page.goto(address + STREAMS)
    for judged in ("right", "wrong"):
        for guess in page.locator(".predict").first.get_by_role("button").all():
            guess.click()
            if page.locator(f".predict .{judged}").count():
                break
        assert page.locator(f".predict .{judged}").count() == 1
        assert [line for line in barriers(page, 1400) if "status" in line] == []
    page.close()


# --------------------------------------------------------------------------------------
# On a phone


NAMES_IN_TABLES = [
    *(f"docs/{name}.html" for name in ("kit", "tpu", "recipes", "evidence")),
    "docs/errors/mixed-precision.html",
    STREAMS,
]


@pytest.mark.parametrize("width", [390, 1366])
@pytest.mark.parametrize("path", NAMES_IN_TABLES)
def test_no_word_is_broken_in_its_middle(path, width, contexts, address):
    page = contexts["light"].new_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(address + path)
    page.evaluate("checks.showAll()")
    assert page.evaluate("checks.brokenWords(34)") == []
    page.close()


def test_a_comment_that_does_not_fit_stands_below_its_line(page, address):
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"{address}docs/errors/mixed-precision.html")
    block = page.locator(".message pre", has_text="GradScaler(").first
    line = block.locator(".line", has=page.locator(".aside")).first
    comment = line.locator(".aside")
    assert comment.inner_text().startswith("# ")
    first, second = line.bounding_box(), comment.bounding_box()
    assert second["y"] > first["y"] and second["x"] > first["x"]
    assert second["x"] + second["width"] <= first["x"] + first["width"]
    assert "  # " in block.text_content()  # and is copied as it was


# --------------------------------------------------------------------------------------
# Figures in the dark


@pytest.mark.parametrize("chosen", ["auto", "dark", "light"])
@pytest.mark.parametrize("scheme", WIDTHS)
def test_a_figure_is_dim_in_the_dark_theme_only(scheme, chosen, contexts, address):
    page = contexts[scheme].new_page()
    page.goto(address + STREAMS)
    page.evaluate(f"document.body.dataset.theme = '{chosen}'")
    is_dark = chosen == "dark" or (chosen == "auto" and scheme == "dark")
    for figure in (".cell_output .output img", ".explorer-window"):
        shown = page.locator(figure).first
        filtered = shown.evaluate("figure => getComputedStyle(figure).filter")
        assert filtered.startswith("brightness(0.") if is_dark else filtered == "none"
    page.close()


# --------------------------------------------------------------------------------------
# Paper


def drawn_on(pdf):
    """Of each page of a PDF: how many times its drawing shows text or a picture."""
    streams = {}
    # objects that are compressed streams, with their numbers
    compressed = rb"^(\d+) 0 obj\n<<[^>]*/FlateDecode.*?stream\n(.*?)\nendstream"
    for number, content in re.findall(compressed, pdf, re.M | re.S):
        streams[number] = zlib.decompress(content)
    contents = re.findall(rb"/Type /Page\n.*?/Contents (\d+) 0 R", pdf, re.S)
    # the operators that show text (Tj, TJ) and objects such as pictures (Do)
    shows = re.compile(rb"\bT[jJ]\b|\bDo\b")
    return [len(shows.findall(streams[number])) for number in contents]


def test_a_lesson_on_paper(contexts, address):
    page = contexts["dark"].new_page()
    page.goto(address + STREAMS)
    headings = page.locator("article :is(h1, h2, h3)").all_inner_texts()
    page.evaluate("""addEventListener("beforeprint", () => {
        const closed = document.querySelectorAll("details.answer:not([open])");
        window.closed = closed.length;
    })""")
    page.emulate_media(media="print")
    shown = page.evaluate("document.body.innerText")
    assert len(headings) > 12
    assert [title for title in headings if title.rstrip("¶") not in shown] == []
    furniture = ".sidebar-drawer, .toc-drawer, .mobile-header, .related-pages"
    others = page.locator(f"{furniture}, button.theme-toggle").all()
    assert [each for each in others if each.is_visible()] == []
    body = "getComputedStyle(document.body)"
    colors = page.evaluate(f"[{body}.backgroundColor, {body}.color]")
    assert colors == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
    pages = drawn_on(page.pdf(format="A4", print_background=True))
    assert page.evaluate("window.closed") == 0  # answers are printed
    assert 12 <= len(pages) <= 40 and min(pages) > 50, pages  # none is blank
    page.close()


@pytest.mark.parametrize("name, sheets", [("recipes", 4), ("questions", 2)])
def test_a_page_on_so_many_sheets(name, sheets, contexts, address):
    page = contexts["light"].new_page()
    page.goto(f"{address}docs/{name}.html")
    pages = drawn_on(page.pdf(prefer_css_page_size=True))
    assert len(pages) == sheets and min(pages) > 50, pages
    page.close()
