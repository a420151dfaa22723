"""Pages on paper, by the Chromium that is installed, or Playwright's own."""

import shutil

from playwright.sync_api import sync_playwright

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)


def pdf(path, load):
    """Write as a PDF what `load(page)` loads into a page of the browser."""
    with sync_playwright() as playwright:
        how = {"executable_path": BROWSER, "args": ["--no-sandbox"]}
        browser = playwright.chromium.launch(**how)
        page = browser.new_page()
        load(page)
        page.pdf(path=path, prefer_css_page_size=True, print_background=True)
        browser.close()
