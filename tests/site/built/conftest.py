"""The built site on a server of this machine, and a browser. LAB_SITE=folder tests
another build than dist/site.
"""

import functools
import http.server
import os
import pathlib
import threading

import pytest
from playwright.sync_api import sync_playwright

from tests.conftest import ROOT
from tests.lessons.test_browser import ARGUMENTS, BROWSER, NAMES

SITE = pathlib.Path(os.environ.get("LAB_SITE", ROOT / "dist" / "site"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that keeps no log, and whose pages are fetched whole each time,
    as at a first visit.
    """

    def log_message(self, *args):
        pass

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")
        super().end_headers()


@pytest.fixture(scope="module")
def serve():
    """serve(folder, kind=Quiet): the address at which a folder is served, until the
    tests of the file have ended.
    """
    servers = []

    def serve(folder, kind=Quiet):
        handler = functools.partial(kind, directory=str(folder))
        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def browser():
    if not BROWSER:
        missing = f"no browser on the PATH (looked for {', '.join(NAMES)})"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser
        browser.close()
