"""Runs that are stopped, that take too long, that find no server, or that need a key."""

from __future__ import annotations

import pytest

from tests.server.browser.helpers import run
from tests.server.conftest import KEY, Server


def test_a_run_can_be_stopped(visit):
    page = visit()
    page.fill("#max_tokens", "300")
    page.fill("#num_particles", "512")
    page.click("#run")
    page.get_by_role("button", name="Cancel").click()
    page.locator("#status", has_text="Cancelled.").wait_for()
    page.fill("#max_tokens", "3")
    page.fill("#num_particles", "64")
    run(page)
    assert page.locator(".verdict").count() == 1 and page.locator(".error:not(:empty)").count() == 0


@pytest.mark.slow
def test_a_server_that_takes_too_long_or_has_gone_is_told(visit, tmp_path):
    slow = Server(tmp_path, "--timeout", "1", key=None).wait()
    page = visit(slow)
    page.fill("#max_tokens", "300")
    page.fill("#num_particles", "4096")
    page.click("#run")
    page.locator("#general-error", has_text="No answer within 1 seconds").wait_for()
    slow.stop()
    page.click("#run")
    page.locator("#general-error", has_text="cannot be reached").wait_for()


def test_a_key_is_asked_for_and_kept_in_memory_only(visit, server):
    page = visit(server)
    assert page.locator("#key").evaluate("place => place === document.activeElement")
    page.fill("#key", "not-the-right-key-at-all")
    page.keyboard.press("Enter")
    page.locator("#key-error", has_text="not the right one").wait_for()
    page.fill("#key", KEY)
    page.keyboard.press("Enter")
    page.locator(".verdict").wait_for()
    kept = page.evaluate("[document.cookie, location.href, JSON.stringify(localStorage), JSON.stringify(sessionStorage)]")
    assert kept == ["", f"{server.url}/", "{}", "{}"]
    page.reload()
    page.locator("#key-field:visible").wait_for()
    assert page.input_value("#key") == ""
