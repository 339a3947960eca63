"""The form for records: what it asks is what its fields say, and what it shows is what the server said."""

from __future__ import annotations

import json
import re

import pytest

import locore
from tests.effort import some
from tests.server.browser.helpers import PATIENCE, run
from tests.server.browser.test_access import accessible
from tests.server.conftest import KEY

PHONE = {"viewport": {"width": 320, "height": 640}, "color_scheme": "dark"}


def extracting(visit, *server, **options):
    page = visit(*server, **options)
    page.get_by_role("link", name="A record out of a text").click()
    page.locator("#model", has_text=re.compile("tiny")).wait_for()
    return page


def answered(page):
    """The record of the server, and the request."""
    with page.expect_response("**/v1/completions", timeout=PATIENCE) as found:
        run(page)
    return found.value.json()["locore"]["record"], found.value.request.post_data_json


def left_out(page):
    return {line.inner_text().split("\n")[0] for line in page.locator(".record > li", has=page.locator(".tag")).all()}


@pytest.mark.parametrize("options", some([PHONE, {}]))
def test_a_record_field_by_field(visit, options):
    page = extracting(visit, **options)
    page.fill("#seed", "1")
    page.fill("#max_tokens", "32")
    record, asked = answered(page)
    assert asked["abstain_below"] == 0.8 and asked["constraint"]["schema"]["required"] == ["item", "amount"]
    answer = locore.parse("tiny", asked["prompt"], asked["constraint"]["schema"], 32, seed=1, abstain_below=0.8)
    for name, field in answer.fields.items():
        told = record["fields"][name]
        assert (told["value"], told["interval"]) == (field.value, pytest.approx(field.interval))
        assert told["probability"] == (None if field.probability is None else pytest.approx(field.probability))
    lines = page.locator(".record > li")
    assert lines.count() == len(record["fields"]) >= 2
    for line, field in zip(lines.all(), record["fields"].values(), strict=True):
        said, p = line.inner_text(), field["probability"]
        assert field["pointer"][1:] in said and (json.dumps(field["value"]) if field["present"] else "missing") in said
        assert ("unknown" if p is None else f"{p:.2f} (95 %") in said
    assert left_out(page) == {pointer[1:] for pointer in record["left_out"]}
    assert page.evaluate("document.activeElement.id") == "results" and "Done" in page.inner_text("#status")
    assert accessible(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


FIELDS = {"known": (0.95, [0.9, 0.99]), "doubtful": (0.6, [0.5, 0.7]), "unheard": (None, [0.1, 0.9])}


def test_certainty_is_said_in_words_and_the_level_moves(visit):
    """Of an answer that is made up, whose fields are known, doubtful, and unknown."""
    page = extracting(visit)
    other = {"value": 2, "probability": 0.3, "error": None, "present": True, "verdict": "trust", "bounds": [0, 1]}
    fields = {
        f"/{name}": {
            "pointer": f"/{name}",
            "value": 1,
            "probability": p,
            "interval": ends,
            "present": True,
            "alternatives": [other],
        }
        for name, (p, ends) in FIELDS.items()
    }
    record = {
        "value": {},
        "probability": None,
        "fields": fields,
        "kept": {},
        "left_out": [],
        "verdict": "rough",
        "note": "Two are doubtful.",
    }
    body = json.dumps({"locore": {"record": record, "lm_tokens": 5, "seconds": 1.0}})
    page.route("**/v1/completions", lambda route: route.fulfill(body=body, content_type="application/json"))
    answered(page)
    assert left_out(page) == {"doubtful", "unheard"} and "2 of 3 fields left out" in page.inner_text("#results")
    assert "0.95 (95 %: 0.90 to 0.99)" in page.inner_text(".record") and "unknown, 0.10 to 0.90" in page.inner_text(".record")
    page.fill("#abstain_below", "0.5")
    assert left_out(page) == {"unheard"}
    page.fill("#abstain_below", "")
    assert left_out(page) == set() and "All 3 fields kept" in page.inner_text("#results")
    shades = [line.evaluate("place => getComputedStyle(place).backgroundColor") for line in page.locator(".record > li").all()]
    assert len(set(shades)) == 3
    page.locator(".record summary").first.focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("2: 0.30").first.is_visible()
    assert accessible(page) == []


def test_rows_are_the_schema_and_mistakes_are_said_where_they_are(visit):
    page = extracting(visit)
    page.get_by_label("Remove field 1").click()
    page.get_by_role("button", name="Add a field").click()
    page.keyboard.type("when")
    page.get_by_label("Kind of field 3").select_option("date")
    page.get_by_label("may be missing").nth(1).uncheck()
    page.get_by_text("The same as JSON Schema").click()
    schema = json.loads(page.input_value("#constraint"))
    kinds = {"amount": {"type": "integer"}, "express": {"type": "boolean"}, "when": {"type": "string", "format": "date"}}
    assert schema == {"type": "object", "properties": kinds, "required": list(kinds), "additionalProperties": False}
    page.fill("#constraint", "{")
    page.click("#run")
    assert "This is no JSON" in page.inner_text("#constraint-error")
    page.fill("#constraint", '{"type": "nothing"}')
    page.click("#run")
    page.locator("#constraint-error", has_text=re.compile("nothing")).wait_for()
    page.fill("#abstain_below", "2")
    page.click("#run")
    assert page.inner_text("#abstain_below-error") and page.evaluate("document.activeElement.id") == "abstain_below"
    assert accessible(page) == []


def test_a_link_fills_in_the_rows_or_the_schema(visit):
    page = extracting(visit)
    page.fill("#prompt", "Grüße, 世界 🙂")
    page.fill("#seed", "3")
    page.fill("#abstain_below", "0.7")
    page.get_by_label("Name of field 2").fill("pieces")
    other = extracting(visit)
    for schema in (page.input_value("#constraint"), '{\n  "enum": [\n    1\n  ]\n}'):
        page.evaluate("text => { document.getElementById('constraint').value = text; }", schema)
        page.get_by_role("button", name="Copy link").click()
        page.locator("#status", has_text="link").wait_for()
        other.goto(page.url)
        other.reload()
        assert other.input_value("#constraint") == schema and other.input_value("#prompt") == "Grüße, 世界 🙂"
        assert (other.input_value("#seed"), other.input_value("#abstain_below")) == ("3", "0.7")
        names = [place.input_value() for place in other.get_by_label(re.compile("Name of field")).all()]
        assert names == (["item", "pieces", "express"] if "pieces" in schema else [])
    assert other.locator("#constraint").is_visible()
    other.goto(page.url + "x!")
    assert "This link is damaged" in other.inner_text("#general-error")


def test_it_can_be_cancelled_and_read_again(visit):
    page = extracting(visit)
    page.route("**/v1/completions", lambda route: None)  # no answer
    page.click("#run")
    page.get_by_role("button", name="Cancel").click()
    page.locator("#status", has_text="Cancelled.").wait_for()
    page.unroute("**/v1/completions")
    page.fill("#max_tokens", "32")
    assert answered(page)[0]["fields"]


def test_a_model_that_reads_chats_is_asked_as_a_user_asks(visit, server):
    """Of a server that wants a key; the unknown fields of this model are explained."""
    page = visit(server)
    page.get_by_role("link", name="A record out of a text").click()
    page.click("#run")
    page.locator("#key-error:not(:empty)").wait_for()
    page.fill("#key", KEY)
    page.fill("#prompt", "How is the weather?")
    page.fill("#max_tokens", "32")
    with page.expect_response("**/v1/chat/completions", timeout=PATIENCE) as found:
        run(page)
    asked, record = found.value.request.post_data_json, found.value.json()["locore"]["record"]
    assert asked["messages"] == [{"role": "user", "content": "How is the weather?"}] and "prompt" not in asked
    assert any(field["probability"] is None for field in record["fields"].values())
    assert record["note"] and record["note"] in page.inner_text("#results")
