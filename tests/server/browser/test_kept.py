"""Results that are kept, links, chats, and what is shown while a run is going."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import some
from tests.server.browser.helpers import run
from tests.server.conftest import KEY

SIZES = [{"width": 1366, "height": 768}, {"width": 360, "height": 740}]


def focused(page, selector: str) -> bool:
    return page.locator(selector).evaluate("place => place === document.activeElement")


def test_two_constraints_side_by_side(visit):
    page = visit()
    run(page)
    page.get_by_role("button", name="Keep for comparison").click()
    assert focused(page, "#kept") and page.locator("#kept .sides > div").count() == 1
    page.get_by_label("Text", exact=True).fill(" sad.")
    run(page)
    columns = page.locator("#kept .sides > div")
    assert columns.locator("h3").all_text_contents() == ["Kept", "Now"]
    for column, word in zip(columns.all(), ("happy", "sad"), strict=True):
        assert f"ends with “␣{word}.”" in column.inner_text() and "log p = " in column.inner_text()
        assert column.locator(".verdict").count() == 1
        texts = column.locator("tbody .text").all_text_contents()
        assert len(texts) == 5 and all(text.endswith(f" {word}.") for text in texts)
    page.get_by_role("button", name="Keep it no longer").click()
    assert not page.locator("#kept").is_visible() and focused(page, "#run")
    assert page.get_by_role("button", name="Keep for comparison").is_visible()


def test_what_is_of_an_earlier_problem_says_so(visit):
    page = run(visit())
    text = page.get_by_label("Text", exact=True)
    for change, undo in (
        (lambda: text.fill(" sad."), lambda: text.fill(" happy.")),
        (lambda: page.fill("#max_tokens", "4"), lambda: page.fill("#max_tokens", "3")),
    ):
        change()
        assert page.locator("#stale").is_visible() and not page.locator(".verdict").is_visible()
        undo()
        assert not page.locator("#stale").is_visible() and page.locator(".verdict").is_visible()
    page.get_by_role("button", name="Remove condition 1").click()
    assert page.locator("#stale").is_visible()
    page.get_by_text("The same as JSON").click()
    page.fill("#json", '{"type": "false"}')
    page.click("#run")
    page.locator("#constraint-error:not(:empty)").wait_for()
    assert page.locator(".verdict").count() == 0  # a new run clears it, even one that fails


def test_a_link_fills_in_the_form(visit):
    page = visit()
    page.fill("#prompt", "Grüße, 世界 🙂")
    page.get_by_label("Text", exact=True).fill("+/=?")
    page.get_by_text("More settings").click()
    page.fill("#temperature", "0.5")
    page.select_option("#ending", "eos")
    page.fill("#stop", "\\n\nEND\na\\\\n")
    page.check("#finished")
    page.get_by_role("button", name="Copy link").click()
    other = visit()
    other.goto(page.url)
    other.reload()
    assert other.input_value("#prompt") == "Grüße, 世界 🙂" and other.input_value("#json") == page.input_value("#json")
    for name in ("max_tokens", "num_particles", "seed", "temperature", "top_p", "ending", "stop"):
        assert other.input_value(f"#{name}") == page.input_value(f"#{name}")
    assert other.is_checked("#finished")


def test_links_lose_nothing(visit):
    page = visit()
    code = """async (written) => {
        const { fromFragment, toFragment } = await import('/page/link.js');
        return JSON.stringify(JSON.parse(written).map((one) => fromFragment(toFragment(one))));
    }"""
    chat = st.tuples(st.text(), st.text()).map(
        lambda texts: [{"role": role, "content": text} for role, text in zip(("system", "user"), texts, strict=True)]
    )
    rest = {"constraint": st.dictionaries(st.text(), st.text() | st.integers(0, 9), max_size=3), "seed": st.integers(0, 2**31)}
    problems = st.fixed_dictionaries({"prompt": st.text(), **rest}) | st.fixed_dictionaries({"messages": chat, **rest})

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(problems, min_size=5, max_size=10))
    def law(given_problems):
        assert json.loads(page.evaluate(code, json.dumps(given_problems))) == given_problems

    law()


@pytest.mark.parametrize("fragment", some(["p=abc", "p=", "x", "p=eyJwcm9tcHQiOiAxfQ", "p=%E4%B8%96"], 3))
def test_a_damaged_link_is_told(visit, fragment):
    page = visit()
    page.fill("#prompt", "Something else")
    page.goto(page.url + "#" + fragment)
    assert "This link is damaged" in page.inner_text("#general-error")
    assert page.input_value("#prompt") == "The girl was"


def test_a_chat(visit, server):
    page = visit(server)
    page.fill("#key", KEY)
    page.click("#run")
    page.locator(".verdict").wait_for()
    page.get_by_label("a message to answer").check()
    page.get_by_label("The system says").fill("Be kind.")
    page.get_by_label("The user says").fill("How is the weather?")
    with page.expect_request("**/page/compare") as sent:
        run(page)
    expected = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "How is the weather?"}]
    assert sent.value.post_data_json["messages"] == expected and "prompt" not in sent.value.post_data_json
    assert "In answer to How is the weather?" in page.locator("#results").text_content()
    page.get_by_role("button", name="Copy link").click()
    other = visit(server)
    other.goto(page.url)
    other.reload()
    assert other.get_by_label("The user says").input_value() == "How is the weather?"
    assert other.get_by_label("The system says").input_value() == "Be kind."


def test_a_model_without_chats_is_not_asked_for_one(visit):
    page = visit()
    assert not page.locator("#mode").is_visible()
    messages = [{"role": "user", "content": "Hello"}]
    fragment = page.evaluate(
        "async (problem) => (await import('/page/link.js')).toFragment(problem)",
        {"messages": messages, "constraint": {"type": "true"}},
    )
    page.goto(page.url + fragment)
    page.click("#run")
    page.locator("#prompt-error", has_text="reads no messages").wait_for()
    page.get_by_label("a text", exact=True).check()
    run(page)
    assert page.locator(".verdict").count() == 1


def test_a_run_says_how_far_it_is(visit):
    page = visit()
    page.fill("#max_tokens", "300")
    page.fill("#num_particles", "512")
    page.click("#run")
    page.locator("#status", has_text="samples").wait_for()
    page.locator("#progress", has_text="LM tokens").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.locator("#status", has_text="Cancelled.").wait_for()
    assert page.inner_text("#progress") == ""
    told = "async (event) => (await import('/page/progress.js')).showProgress(event)"
    for position, says in ((1, "Waiting: next in the queue"), (3, "Waiting: number 3 in the queue")):
        page.evaluate(told, {"state": "queued", "position": position})
        assert page.inner_text("#status") == says


LATE = {"error": {"message": "the server is shutting down.", "type": "server_error", "param": None, "code": "shutting_down"}}


@pytest.mark.parametrize(("last", "says"), [(LATE, "The server is shutting down."), (None, "The connection broke off")])
def test_what_goes_wrong_later_is_told_too(visit, last, says):
    page = visit()
    events = [{"state": "queued", "position": 1}, *([last] if last else [])]
    body = "".join(f": keep-alive\n\ndata: {json.dumps(event)}\n\n" for event in events)
    page.route("**/page/compare", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    page.click("#run")
    page.locator("#general-error", has_text=says).wait_for()
    assert page.inner_text("#status") == "" and page.locator("#cancel").is_hidden()


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_run_and_errors_are_in_view(visit, size):
    page = visit(viewport=size)
    seen = """(id) => {
        const place = document.getElementById(id), box = place.getBoundingClientRect();
        const [x, y] = [box.left + Math.min(20, box.width / 2), box.top + box.height / 2];
        return box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && place.contains(document.elementFromPoint(x, y));
    }"""
    assert page.evaluate(seen, "run")
    page.get_by_text("More settings").click()
    for name in ("max_tokens", "min_tokens", "seed", "temperature"):
        page.evaluate("document.getElementById('problem').scrollTo(0, 0)")
        page.evaluate("scrollTo(0, 0)")
        good = page.input_value(f"#{name}")
        page.fill(f"#{name}", "-1")
        page.locator("#run").evaluate("button => button.click()")
        assert page.evaluate(seen, f"{name}-error") and page.evaluate(seen, "run"), name
        page.fill(f"#{name}", good)


def test_no_bars_where_no_text_stands_out_and_cut_texts_are_marked(visit):
    page = visit()
    page.select_option("#example", "4")
    page.fill("#num_particles", "64")
    run(page)
    assert page.locator(".texts tbody tr").count() > 5 and page.locator("#results .bar").count() == 0
    page.select_option("#example", "0")
    page.fill("#num_particles", "64")
    page.get_by_text("The same as JSON").click()
    page.fill("#json", '{"type": "true"}')
    page.get_by_text("More settings").click()
    page.select_option("#ending", "eos")
    run(page)
    assert page.locator(".tokens .cut").count() and "limit of tokens cut" in page.inner_text("#results")
