"""What the tests in a browser share."""

from __future__ import annotations

from typing import Any

SIDES = ("masking", "locore")
DONE = "#results[aria-busy=false]"
PATIENCE = 180_000  # milliseconds; only a page that hangs needs them


def run(page: Any) -> Any:
    """Press Run, and wait for the answer."""
    page.click("#run")
    page.locator(DONE).wait_for()
    return page
