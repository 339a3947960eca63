"""What the page shows of an answer."""

from __future__ import annotations

import json
import re

import pytest

from tests.server.browser.helpers import SIDES, run


def test_the_first_example_shows_the_point(visit):
    """Masking and Locore beside each other, in words, bars, tokens and lines."""
    page = run(visit())
    assert "Masking writes" in page.inner_text(".lead") and "The girl was" in page.inner_text(".lead")
    assert page.inner_text(".verdict") == "Rough"  # no table is prepared
    first = page.locator(".texts tbody tr").first
    assert first.locator("th .text").text_content() == " very happy."
    masking, ours = (float(first.locator(f"td.{side} div > span:last-child").inner_text().split("\u202f")[0]) for side in SIDES)
    assert ours > 10 * masking
    for side in SIDES:
        assert page.locator(f".sides .{side} li:visible").count() == 6
        assert all("happy" in text for text in page.locator(f".sides .{side} .tokens").all_text_contents())
    assert page.locator(".card svg path.locore").count() and page.locator(".card svg path.masking").count()
    assert page.locator("#results").evaluate("place => place === document.activeElement")


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").removeprefix("= ")) for text in texts]


def test_the_numbers_below_the_tokens_add_up(visit):
    """Where all texts are enumerated: those of Locore to −log p(constraint) in every text, those of masking not."""
    page = visit()
    page.select_option("#example", "1")
    run(page)
    evidence = numbers(re.findall(r"log p = (\S+) nats", page.inner_text(".facts")))[0]
    for side in SIDES:
        sums = []
        for item in page.locator(f".sides .{side} li").all():
            shifts = numbers(item.locator(".shift").all_text_contents())
            sums += numbers(item.locator(".sum").all_text_contents())
            assert sums[-1] == pytest.approx(sum(shifts), abs=0.051 * (1 + len(shifts)))
        assert sums
        assert all(total == pytest.approx(-evidence, abs=0.06) for total in sums) == (side == "locore")


@pytest.mark.slow
def test_every_example_runs(visit):
    page = visit()
    for number in range(page.locator("#example option").count() - 1):  # the last one is empty
        page.select_option("#example", str(number))
        run(page)
        assert page.locator(".lead").inner_text() and page.locator(".verdict").inner_text()
        assert page.locator(".error:not(:empty)").count() == 0
        drawn = page.locator(".card svg").count() == 1
        assert drawn != ("Too large to draw" in page.inner_text("#results"))


def test_texts_are_texts(visit):
    """Neither a prompt, nor a constraint, nor what the model writes becomes a part of the page."""
    page = visit()
    evil = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
    page.get_by_text("The same as JSON").click()
    page.fill("#prompt", evil)
    page.fill("#json", json.dumps({"type": "choice", "texts": [evil[:20], "<b>bold</b>"]}))
    page.fill("#max_tokens", "16")
    run(page)
    shown = page.locator(".texts tbody th .text").all_text_contents()
    assert "<b>bold</b>" in shown and evil[:20] in shown
    assert page.locator("img, #results b b, #results script").count() == 0
    assert page.title() == "Locore"


def test_a_large_circuit_is_not_drawn(visit):
    page = visit()
    page.fill("#max_tokens", "40")
    page.fill("#num_particles", "4")
    run(page)
    assert page.locator(".card svg").count() == 0
    assert re.search(r"[\d,]+ nodes and [\d,]+ edges over 40 positions", page.inner_text("#results"))
    assert "Too large to draw" in page.inner_text("#results")
