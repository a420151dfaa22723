"""Chinese words: what they lead to in the search, and that docs/zh.md has all lessons,
topics and answers.
"""

import json
import re

import nbformat
import pytest

from tests.conftest import ROOT
from tools.lessons.glossary import TERM
from tools.lessons.links import read
from tools.lessons.notebooks import lessons
from tools.site import terms, website

GLOSSARY, GUIDE = (read(ROOT / "docs" / name) for name in ("glossary.md", "zh.md"))

# under which Chinese tutorials teach what this course does
TOPICS = """设备检测 设备选择 张量设备转移 模型设备转移 设备不匹配错误 显存不足
显存清理 锁页内存与异步传输 CUDA_流 同步与计时 混合精度训练 梯度累积 性能分析
CUDA_图 torch.compile 多_GPU_训练 DataParallel_与_DDP 分布式训练
TPU_与_torch_xla Colab_上的_GPU/TPU 常见问题"""


@pytest.fixture(scope="module")
def notebooks():
    return {path.stem: nbformat.read(path, as_version=4) for path in lessons()}


SMALL = """# Glossary

### Tensor_x core
*核（心、the core）*
Text. [01]

### wait
*等待*
Text. [01]
"""
SMALL_GUIDE = """# 导读

| 主题 | 也叫 | 去哪里看 |
|---|---|---|
| 甲 | 乙 | [看 `x`（01）](../notebooks/01_a.ipynb#c) · [答](#问qa) |

| 01 | [a](../notebooks/01_a.ipynb) | [代码](../notebooks/01_a.ipynb#recipe) |

## 问（QA）
"""


def test_where_words_lead():
    texts = ["# Do", "## 1 · Why? (3 minutes)", "no\n\n### B\n\n[c]({0})\n\n### D"]
    link = "../docs/glossary.md#tensor_x-core"
    cells = [
        nbformat.v4.new_markdown_cell(text.format(link), id=f"cell-{n}")
        for n, text in enumerate(texts)
    ]
    nb = nbformat.v4.new_notebook(cells=cells)
    found = terms.terms(SMALL, SMALL_GUIDE, {"01_a": nb}, {"01_a": "01 · A"})
    core = ["核、心、the core", "核"]
    page = ["notebooks/01_a", "01 · A"]
    assert found == [
        [*core, "docs/glossary", "Glossary", "tensor-x-core", "Tensor_x core"],
        [*core, *page, "cell-2", "B"],
        ["等待", "等待", "docs/glossary", "Glossary", "wait", "wait"],
        ["等待", "等待", *page, "title", ""],
        ["甲、乙", "甲", *page, "c", "看 x"],
        ["甲、乙", "甲", "docs/zh", "导读", "qa", "答"],
    ]


def test_every_term_and_topic_leads_to_what_is_there(notebooks):
    text = terms.script(GLOSSARY, GUIDE, notebooks, website.names())
    found = json.loads(text.removeprefix("deviceLab.terms = ").removesuffix(";\n"))
    assert {row[1] for row in found if row[2] == "docs/glossary"} == {
        chinese.partition("（")[0] for _, chinese, _ in TERM.findall(GLOSSARY)
    }
    for _, title, page, _, anchor, section in found:
        if page.startswith("notebooks/"):
            lesson = notebooks[page.removeprefix("notebooks/")]
            assert anchor in [cell.id for cell in lesson.cells], title
        else:
            assert anchor and section, title  # a heading has an address of its own


def test_the_guide_has_every_topic_and_each_leads_into_a_lesson():
    rows = terms.TOPIC.findall(GUIDE)
    topics = [topic.replace("_", " ") for topic in TOPICS.split()]
    assert [topic.replace("_", " ") for topic, _, _ in rows] == topics
    for topic, _, links in rows:
        labels = terms.LINK.findall(links)
        assert any(stem for _, stem, _ in labels), topic
        for label, stem, _ in labels:
            assert not stem or label.endswith(f"（{stem[:2]}）"), label


def test_the_guide_lists_every_lesson_with_its_recipe(notebooks):
    row = r"^\| (\d\d) \| \[[^]]+\]\(\.\./notebooks/(.+)\.ipynb\) \|(.*)\|$"
    listed = re.findall(row, GUIDE, re.M)
    assert [(number, stem) for number, stem, _ in listed] == [
        (stem[:2], stem) for stem in notebooks
    ]
    for _, stem, recipe in listed:
        recipes = [cell.id for cell in notebooks[stem].cells if "recipe" in cell.id]
        to = f" [代码](../notebooks/{stem}.ipynb#{recipes[0]}) " if recipes else " "
        assert recipe == to


def test_the_guide_answers_what_the_page_of_answers_does():
    asked = re.findall(r"^## (.+)$", read(ROOT / "docs" / "answers.md"), re.M)
    assert re.findall(r"^### .+（(.+)）$", GUIDE, re.M) == asked
    assert re.search(r"```\n(.*?)```", GUIDE, re.S)[1] in re.sub(
        "^  ", "", read(ROOT / "README.md"), flags=re.M
    )
