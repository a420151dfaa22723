"""The page for wrong addresses: a server shows it at any, and the site may stand in any
folder.
"""

import pytest
from playwright.sync_api import expect

from tests.site.built.conftest import SITE, Quiet
from tests.site.built.test_pages import barriers
from tools.lessons.notebooks import address

WRONG = ["nothing.html", "docs/nothing", "docs/errors/a/b/c/nothing.html"]


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    yield page
    page.close()


class Showing(Quiet):
    """A server that shows the site's 404.html where there is no such page, as those of
    GitHub Pages, nginx or Apache do where they are told to.
    """

    def send_error(self, code, *args, **options):
        body = (SITE / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def mounted(serve, tmp_path_factory):
    """mounted(folder): the address of the site in that folder of a server."""

    def mounted(folder):
        if not folder:
            return serve(SITE, Showing)
        place = tmp_path_factory.mktemp("top") / "server" / folder
        place.parent.mkdir(parents=True)
        place.symlink_to(SITE)
        top = place.parents[folder.count("/")]
        return f"{serve(top, Showing)}{folder}/"

    return mounted


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("folder", ["", "lab", "courses/2026/device-lab"])
def test_it_has_its_styles_and_links_wherever_the_site_is(folder, wrong, mounted, page):
    site = mounted(folder)
    loaded = set()
    page.on("response", lambda reply: reply.ok and loaded.add(reply.url.split("?")[0]))
    assert page.goto(site + wrong).status == 404
    page.wait_for_load_state("networkidle")
    assert page.url == site + wrong
    expect(page.locator("h1")).to_have_text("There is no such page")
    expect(page.locator(".published")).to_be_hidden()
    for style in ("styles/furo.css", "site.css", "scripts/furo.js", "site.js"):
        assert f"{site}_static/{style}" in loaded
    links = page.locator("a[href]").evaluate_all("all => all.map(link => link.href)")
    assert sum(link.startswith(site) for link in links) > 40
    for link in links:  # to a place on this page, to one of the site, elsewhere
        path = link.removeprefix(site).partition("#")[0]
        outside = link.startswith("https://")
        assert outside or path == wrong or (SITE / path).exists(), link
    assert barriers(page, 1400) == []
    theme = page.locator("body").get_attribute("data-theme")
    page.locator(".theme-toggle-content button").click()  # its script works
    assert page.locator("body").get_attribute("data-theme") != theme
    page.locator(".sidebar-tree a", has_text="Quick answers").click()
    assert page.url == f"{site}docs/answers.html"
    expect(page.locator("h1")).to_contain_text("Quick answers")


def test_without_the_site_it_says_where_the_course_is(serve, page, tmp_path):
    page.goto(serve(tmp_path, Showing) + "docs/nothing.html")
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator(".published a")).to_have_attribute("href", address("Site"))
    shown = page.locator("body").inner_text().split("\n")
    assert [line for line in shown if line.strip()] == [
        "There is no such page",
        f"The course begins at {address('Site')}.",
    ]
