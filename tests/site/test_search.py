"""What the search finds, and by which words: tools/site/search.py."""

import pytest

from tests.site.built.queries import LESSON
from tools.site import search, tasks, website

PAGE = """<html><nav>menu</nav><article role="main"><section id="streams">
<h1>05 · Streams<a class="headerlink" href="#streams">¶</a></h1>
<p class="launch">Run it on Colab</p><p>Order <code>x.record_stream(s)</code>.</p>
<details class="code"><summary>Set-up</summary><pre>capture_output</pre>
</details>
<section id="order"><h2>1 · What <code>torch.cuda.Stream</code> orders</h2>
<p>A queue<br>each.</p>
<details class="answer"><summary>The answer</summary><p>Two.</p>
</details>
<div class="cell"><div class="cell_input"><pre>wait_stream(side)
wait_stream(main)</pre></div>
<div class="cell_output"><pre>printed_this</pre></div></div>
<details class="hint"><p>hinted</p></details>
<details class="solution"><pre>solved_it</pre></details></section>
<section id="more"><h2>More exercises</h2></section>
</section></article></html>"""


@pytest.fixture(scope="module")
def found():
    return list(search.sections(LESSON["05"], PAGE))


def test_each_section_is_found_for_itself(found):
    links = [section.link for section in found]
    assert links == [
        LESSON["05"],
        *(f"{LESSON['05']}#{id}" for id in ("order", "more")),
    ]
    first, order, more = found
    assert first.title == "05 · Streams" and first.where == ""
    assert first.text == "Order x.record_stream(s)."
    assert order.title == "1 · What torch.cuda.Stream orders"
    assert order.where == "05 · Streams"
    assert order.text == "A queue each. The answer Two."
    assert [first.kind, order.kind, more.kind] == ["lesson", "lesson", "aside"]


def test_names_in_code_are_found_whole_and_by_their_last_part(found):
    first, order, _ = found
    assert {*first.words.split()} == {"x.record_stream", "record_stream"}
    assert order.words.split().count("wait_stream") == 2
    assert "torch.cuda.Stream" in order.words


def test_setup_outputs_hints_and_solutions_are_not_found(found):
    every = str(found)
    for hidden in (
        "capture_output",
        "printed_this",
        "hinted",
        "solved_it",
        "Colab",
        "menu",
    ):
        assert hidden not in every


def test_chinese_is_found_by_pairs_of_characters():
    assert search.pairs("锁页内存 and 流") == "锁页 页内 内存 流"


def test_the_head_of_a_page_of_messages_is_none():
    kinds = [each.kind for each in search.sections("docs/errors/tpu.html", PAGE)]
    assert kinds == ["page", "message", "aside"]


def test_rows_of_lesson_16_are_found_as_messages():
    row = PAGE.replace("<h2>1", "<h3>1").replace("</code> orders</h2>", "</code></h3>")
    links = [section.link for section in search.sections(LESSON["16"], row)]
    assert links == [LESSON["16"], f"{LESSON['16']}#more"]


@pytest.mark.parametrize(
    "path, kind",
    {
        "docs/answers.html": "answer",
        "docs/errors/tpu.html": "message",
        "docs/errors.html": "page",
        LESSON["16"]: "lesson",
        "docs/evidence.html": None,
        "docs/tasks.html": None,  # each task is found for itself
        "docs/contributing/site.html": None,
        "search.html": None,
        "index.html": None,
    }.items(),
)
def test_kinds_of_pages(path, kind):
    assert search.kind_of(path) == kind


def test_tasks_lead_to_their_cells():
    found = list(search.of_tasks(tasks.tasks(website.names()), website.names()))
    first = found[0]
    assert first.link == f"{LESSON['00']}#doctor"
    assert first.title == "How do I see what my machine has?" and first.kind == "task"
    assert "hardware" in first.words and len(found) > 140


def test_a_lesson_is_found_by_the_chinese_names_of_its_terms():
    names = website.chinese_names()["06_pinned_memory_and_data_loading"]
    assert "锁页内存" in names and "固定内存" in names


def test_the_index_holds_what_is_shown_and_no_more_files_than_are_used(tmp_path, found):
    site = tmp_path / "site"
    search.write(site, found, tmp_path / "scratch")
    files = {file.name for file in (site / "pagefind").rglob("*") if file.is_file()}
    assert {
        "pagefind.js",
        "pagefind-entry.json",
        "wasm.en.pagefind",
        "words.txt",
    } < files
    others = {name.rpartition(".")[2] for name in files} - {"js", "json", "txt"}
    assert others == {"pagefind", "pf_meta", "pf_index", "pf_fragment"}
    assert "streams" in (site / "pagefind" / "words.txt").read_text(encoding="utf-8")
