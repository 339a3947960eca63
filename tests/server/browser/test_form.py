"""The form and its JSON say the same, and a mistake in either is explained where it stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.browser.helpers import PATIENCE, run
from tests.server.test_openapi import FORMS


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
        ("max_tokens", "100000", "At most 512."),
        ("num_particles", "0", "At least 1."),
        ("num_particles", "1.5", "Only whole numbers."),
        ("temperature", "-1", "At least 0."),
        ("min_tokens", "7", "more than"),
    ):
        good = page.input_value(f"#{field}")
        page.fill(f"#{field}", value)
        page.click("#run")
        page.locator(f"#{field}-error:not(:empty)").wait_for()
        assert says in page.inner_text(f"#{field}-error")
        assert page.locator(f"#{field}").evaluate("place => place === document.activeElement && place.ariaInvalid === 'true'")
        page.fill(f"#{field}", good)


@pytest.mark.parametrize(("address", "script"), [("/", "main"), ("/page/extract.html", "extract")])
def test_a_form_cannot_be_sent_before_its_script_is_there(visit, open_server, address, script):
    """The browser would send it as a plain form, to nowhere, and say nothing to the user."""
    page, held = visit(), []
    page.route(f"**/page/{script}.js", lambda route: held.append(route))
    with page.expect_request(f"**/page/{script}.js"):
        page.goto(f"{open_server.url}{address}", wait_until="commit")
    page.locator("#run:disabled").wait_for()
    page.locator("#run").evaluate("button => button.click()")
    held.pop().continue_()
    page.locator("#run:enabled").wait_for()
    assert page.url == f"{open_server.url}{address}"
