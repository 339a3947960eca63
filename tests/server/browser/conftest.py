"""The page in a real browser, on a real server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.browser.helpers import PATIENCE
from tests.server.conftest import Server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# A request that is refused, or finds no server, stands in the console too; what else is there is a mistake of the page.
REFUSED = re.compile(r"the server responded with a status of 4|status of 504|net::ERR_CONNECTION_REFUSED")


# Of this folder, not of the session: while Playwright runs, no other test could start an event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright (extra dev)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="package")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without a key."""
    folder = tmp_path_factory.mktemp("open")
    running = Server(folder, "--timeout", str(PATIENCE // 1000), key=None, cache=folder / "cache").wait()
    yield running
    running.stop()


@pytest.fixture
def visit(browser: Any, open_server: Server) -> Iterator[Any]:
    """Opens the page; at the end of a test nothing may have gone wrong in it, or gone out to others."""
    contexts, wrong, asked = [], [], []

    def go(server: Server = open_server, **options: Any) -> Any:
        contexts.append(browser.new_context(reduced_motion="reduce", **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: None if REFUSED.search(message.text) else wrong.append(message.text))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.url)
        page.locator("#model", has_text=re.compile(".")).or_(page.locator("#key-field:visible")).first.wait_for()
        return page

    yield go
    for context in contexts:
        context.close()
    assert not wrong
    assert not [url for url in asked if not re.match(r"http://127\.0\.0\.1:\d+/", url)]
