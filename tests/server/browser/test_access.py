"""The page for everybody: by keyboard alone, small, dark, and for those who cannot see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.browser.helpers import DONE, run


def accessible(page: Any) -> list[str]:
    """What axe finds wrong."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python (extra dev)")
    return [f"{found['id']}: {found['help']}" for found in axe.Axe().run(page).response["violations"]]


def test_by_keyboard_alone(visit):
    """From the top to the answer with Tab, Space and Enter; whatever has the focus can be seen and has a name."""
    page = visit()
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        focus = page.evaluate(
            """() => {
                const place = document.activeElement, style = getComputedStyle(place);
                const label = place.labels?.[0]?.textContent || place.ariaLabel || place.textContent;
                const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
                return [place.id || place.className, label.trim(), seen];
            }"""
        )
        reached.append(focus[0])
        assert focus[1] and focus[2], focus
        if focus[0] == "run":
            break
    assert reached[:4] == ["skip", "other", "example", "prompt"] and "kind" in reached and "add" in reached
    assert reached.index("max_tokens") < reached.index("num_particles") < reached.index("run")
    page.keyboard.press("Enter")
    page.locator(DONE).wait_for()
    assert page.locator("#results").evaluate("place => place === document.activeElement")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the whole report
    assert page.locator(".report").is_visible()
    assert page.locator("#status").get_attribute("role") == "status" and "Done" in page.inner_text("#status")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="light"),
        pytest.param({"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"}, id="dark phone"),
        pytest.param({"color_scheme": "dark"}, id="dark", marks=pytest.mark.slow),
        pytest.param({"viewport": {"width": 320, "height": 640}}, id="phone", marks=pytest.mark.slow),
        pytest.param({"forced_colors": "active"}, id="forced colours", marks=pytest.mark.slow),
    ],
)
def test_it_is_accessible(visit, options):
    page = visit(**options)

    def good() -> None:
        assert accessible(page) == []
        width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], "it has to be scrolled sideways"

    good()
    page.get_by_text("The same as JSON").click()
    page.get_by_text("More settings").click()
    page.fill("#json", "{")
    page.fill("#temperature", "-1")
    good()
    page.select_option("#example", "1")
    run(page)
    for summary in page.locator("#results summary").all():
        summary.click()
    while page.locator("#results button:visible").count():
        page.locator("#results button:visible").first.click()
    good()
    moving = page.evaluate("document.getAnimations().length")
    assert moving == 0
