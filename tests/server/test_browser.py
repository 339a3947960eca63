"""The page in a real browser, on a real server."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import KEY, Server
from tests.server.test_openapi import FORMS

playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright (extra dev)")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python (extra dev)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

# A request that is refused, or finds no server, stands in the console too; what else is there is a mistake of the page.
REFUSED = re.compile(r"the server responded with a status of 4|status of 504|net::ERR_CONNECTION_REFUSED")
SIDES = ("masking", "locore")
DONE = "#results[aria-busy=false]"
PATIENCE = 600_000  # milliseconds; only a page that hangs needs them


@pytest.fixture(scope="module")
def open_server(tmp_path_factory) -> Iterator[Server]:
    """A server without a key."""
    running = Server(tmp_path_factory.mktemp("open"), "--timeout", str(PATIENCE // 1000), key=None).wait()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser, open_server) -> Iterator[Any]:
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


def run(page: Any) -> Any:
    """Press Run, and wait for the answer."""
    page.click("#run")
    page.locator(DONE).wait_for()
    return page


def accessible(page: Any) -> list[str]:
    """What axe finds wrong."""
    return [f"{found['id']}: {found['help']}" for found in axe.Axe().run(page).response["violations"]]


def numbers(texts: list[str]) -> list[float]:
    return [float(text.replace("−", "-").removeprefix("= ")) for text in texts]


def test_the_first_example_shows_the_point(visit):
    """Masking and Locore beside each other, in words, bars, tokens and lines."""
    page = run(visit())
    assert "Masking writes" in page.inner_text(".lead") and "The girl was" in page.inner_text(".lead")
    assert page.inner_text(".verdict") == "Trust"
    first = page.locator(".texts tbody tr").first
    assert first.locator("th").text_content() == " very happy."
    masking, ours = (float(first.locator(f"td.{side} > span:last-child").inner_text().split("\u202f")[0]) for side in SIDES)
    assert ours > 10 * masking
    for side in SIDES:
        assert page.locator(f".sides .{side} li:visible").count() == 6
        assert all("happy" in text for text in page.locator(f".sides .{side} .tokens").all_text_contents())
    assert page.locator(".card svg path.locore").count() and page.locator(".card svg path.masking").count()
    assert page.locator("#results").evaluate("place => place === document.activeElement")


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


def test_from_the_form_to_json_to_an_answer(visit):
    page = visit(color_scheme="dark")
    page.get_by_role("button", name="Remove condition 1").click()
    page.get_by_role("button", name="Add a condition").click()
    page.get_by_label("Condition 1: the text").select_option("starts_with")
    page.get_by_label("Text", exact=True).fill(" so")
    page.get_by_role("button", name="Add a condition").click()
    page.get_by_label("Condition 2: the text").select_option("ban")
    page.get_by_label("Phrases, one a line").fill(" so very\n much")
    page.locator(".condition").nth(1).get_by_label("not").check()
    page.locator(".condition").nth(1).get_by_label("ignore case").check()
    page.get_by_label("How the conditions are joined").select_option("or")
    page.get_by_text("The same as JSON").click()
    ban = {"type": "ban", "phrases": [" so very", " much"], "ignore_case": True}
    expected = {"type": "or", "of": [{"type": "starts_with", "text": " so"}, {"type": "not", "of": ban}]}
    assert json.loads(page.input_value("#json")) == expected
    with page.expect_request("**/page/compare") as sent:
        run(page)
    assert sent.value.post_data_json["constraint"] == expected
    assert page.locator(".verdict").inner_text()


def test_from_json_to_the_form(visit):
    page = visit()
    page.get_by_text("The same as JSON").click()
    inner = [{"type": "word_count", "lo": 2}, {"type": "not", "of": {"type": "contains", "text": ["a", "b"], "ordered": True}}]
    page.fill("#json", json.dumps({"type": "and", "of": inner}))
    assert page.get_by_label("Condition 1: the text").input_value() == "word_count"
    assert page.get_by_label("At least", exact=True).input_value() == "2"
    # What has no form of its own is kept as JSON, and not lost.
    assert page.get_by_label("Condition 2: the text").input_value() == "other"
    assert json.loads(page.get_by_label("A constraint as JSON").input_value()) == inner[1]["of"]
    page.get_by_label("At least", exact=True).fill("3")
    assert json.loads(page.input_value("#json")) == {"type": "and", "of": [{"type": "word_count", "lo": 3}, inner[1]]}


ANY = st.recursive(
    st.sampled_from([form.to_json() for form in FORMS])
    | st.builds(lambda text, more: {"type": "contains", "text": text, **more}, st.text(), st.dictionaries(st.text(), st.none()))
    | st.builds(lambda phrases: {"type": "ban", "phrases": phrases}, st.lists(st.text(), max_size=3)),
    lambda inner: (
        st.builds(lambda kind, of: {"type": kind, "of": of}, st.sampled_from(["and", "or"]), st.lists(inner, max_size=3))
        | st.builds(lambda of: {"type": "not", "of": of}, inner)
    ),
    max_leaves=5,
)


def test_the_form_loses_nothing(visit):
    page = visit()
    code = """async (written) => {
        const { fromJson, toJson } = await import('/page/kinds.js');
        return JSON.stringify(JSON.parse(written).map((one) => toJson(fromJson(one))));
    }"""

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(ANY, min_size=10, max_size=20))
    def law(constraints):
        assert json.loads(page.evaluate(code, json.dumps(constraints))) == constraints

    law()


WRONG = {
    '{"type": "and", "of": [{"type": "starts_with", "text": "a"}, {"type": "starts_with", "text": "b"}]}': "cannot hold",
    '{"type": "regex", "pattern": "("}': "not a regular expression",
    '{"type": "nonsense"}': "unknown constraint type",
    '{"type": "ban", "phrases": ["a"], "more": 1}': "no field",
}


def test_a_wrong_constraint_is_explained_where_it_stands(visit):
    page = visit()
    page.get_by_text("The same as JSON").click()
    for constraint, says in WRONG.items():
        page.fill("#json", constraint)
        assert page.locator(".error:not(:empty)").count() == 0  # what was said of the one before is gone
        page.click("#run")
        error = page.locator("#constraint-error:not(:empty)")
        error.wait_for()
        assert says in error.inner_text().lower() and error.get_attribute("role") == "alert"


def test_what_is_no_json_is_not_sent(visit):
    page = visit()
    page.get_by_text("The same as JSON").click()
    page.fill("#json", '{"type": ')
    assert "until this is JSON" in page.inner_text("#json-error")
    with page.expect_event("request", predicate=lambda request: "compare" in request.url, timeout=PATIENCE) as sent:
        page.click("#run")
        assert page.locator("#json").evaluate("place => place === document.activeElement")
        assert page.locator(".condition").count() == 1  # the form still has what it had
        page.fill("#json", '{"type": "true"}')
        page.click("#run")
    assert sent.value.post_data_json["constraint"] == {"type": "true"}
    page.get_by_role("button", name="Add a condition").click()
    page.get_by_label("Condition 1: the text").select_option("json_schema")
    page.get_by_label("JSON Schema").fill("{")
    assert "no JSON" in page.inner_text("#condition-0-error")
    page.click("#run")
    assert page.get_by_label("JSON Schema").evaluate("place => place === document.activeElement")


def test_a_wrong_number_is_explained_at_its_field(visit):
    page = visit()
    page.get_by_text("More settings").click()
    for field, value, says in (
        ("max_tokens", "100000", "at most 512"),
        ("num_particles", "0", "greater than"),
        ("temperature", "0", "greater than 0"),
    ):
        good = page.input_value(f"#{field}")
        page.fill(f"#{field}", value)
        page.click("#run")
        page.locator(f"#{field}-error:not(:empty)").wait_for()
        assert says in page.inner_text(f"#{field}-error")
        assert page.locator(f"#{field}").evaluate("place => place === document.activeElement && place.ariaInvalid === 'true'")
        page.fill(f"#{field}", good)


def test_a_run_can_be_stopped(visit):
    page = visit()
    page.fill("#max_tokens", "300")
    page.fill("#num_particles", "4096")
    page.click("#run")
    page.get_by_role("button", name="Stop").click()
    page.locator("#status", has_text="Stopped.").wait_for()
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


def test_texts_are_texts(visit):
    """Neither a prompt, nor a constraint, nor what the model writes becomes a part of the page."""
    page = visit()
    evil = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>"
    page.get_by_text("The same as JSON").click()
    page.fill("#prompt", evil)
    page.fill("#json", json.dumps({"type": "choice", "texts": [evil[:20], "<b>bold</b>"]}))
    page.fill("#max_tokens", "16")
    run(page)
    shown = page.locator(".texts tbody th").all_text_contents()
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
    assert reached[:3] == ["skip", "example", "prompt"] and "kind" in reached and "add" in reached
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
    while page.locator("#results button").count():
        page.locator("#results button").first.click()
    good()
    moving = page.evaluate("document.getAnimations().length")
    assert moving == 0
