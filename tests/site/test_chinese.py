"""Chinese words: what they lead to in the general index and the search, and that
docs/zh.md has all lessons, topics and answers.
"""

import re

import nbformat
import pytest

from tests.conftest import ROOT
from tools.lessons.glossary import TERM, chinese_names
from tools.lessons.links import read
from tools.lessons.notebooks import lessons
from tools.site import website

GLOSSARY, GUIDE = (read(ROOT / "docs" / name) for name in ("glossary.md", "zh.md"))
# of the guide's table of topics (that of lessons has numbers): topic, others, links
TOPIC = re.compile(r"^\| (?!\d\d )([^|\n]+) \| ([^|\n]+) \| (.*\]\([^)]*#.*) \|$", re.M)
LINK = re.compile(r"\[([^]]+)\]\((?:\.\./notebooks/(.+?)\.ipynb)?#([^)]+)\)")

# under which Chinese tutorials teach what this course does
TOPICS = """设备检测 设备选择 张量设备转移 模型设备转移 设备不匹配错误 显存不足
显存清理 锁页内存与异步传输 CUDA_流 同步与计时 混合精度训练 梯度累积 性能分析
CUDA_图 torch.compile 多_GPU_训练 DataParallel_与_DDP 分布式训练
TPU_与_torch_xla Colab_上的_GPU/TPU 常见问题"""


@pytest.fixture(scope="module")
def notebooks():
    return {path.stem: nbformat.read(path, as_version=4) for path in lessons()}


def test_the_index_has_every_chinese_name_of_a_term_at_its_heading():
    page = website.index_chinese(GLOSSARY)
    found = re.findall(r"^!single: (.+)$", page, re.M)
    names = [
        name for _, line, _ in TERM.findall(GLOSSARY) for name in chinese_names(line)
    ]
    assert found == names and len(names) > 100
    assert "```{entries} pinned-memory\n!single: 锁页内存\n" in page
    assert re.search(r"!single: 页锁定内存\n```\n\n### pinned memory", page)


def test_a_lesson_has_the_words_of_its_tasks_and_terms(notebooks):
    words = website.keywords(notebooks)["06_pinned_memory_and_data_loading"]
    assert {"锁页内存", "固定内存", "num_workers"} <= {*words.split(", ")}


def test_the_guide_has_every_topic_and_each_leads_into_a_lesson():
    rows = TOPIC.findall(GUIDE)
    topics = [topic.replace("_", " ") for topic in TOPICS.split()]
    assert [topic.replace("_", " ") for topic, _, _ in rows] == topics
    for topic, _, links in rows:
        labels = LINK.findall(links)
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
