"""Requests as vLLM's documentation shows them, sent by OpenAI's client."""

from __future__ import annotations

import enum
import re

import pytest
from lark import Lark
from pydantic import BaseModel


class CarType(enum.StrEnum):
    SEDAN = "sedan"
    SUV = "SUV"


class Car(BaseModel):
    brand: str
    model: str
    car_type: CarType


SQL = """
    root ::= select_statement

    select_statement ::= "SELECT " column " from " table " where " condition

    column ::= "col_1 " | "col_2 "

    table ::= "table_1 " | "table_2 "

    condition ::= column "= " number

    number ::= "1 " | "2 "
"""
EXPRESSIONS = 'start: term (("+" | "-") term)*\nterm: /[0-9]/ | "(" start ")"\n'


def ask(client, text, max_tokens=40, **options):
    """One answer in a chat."""
    body = {"effort": "low", **options.pop("extra_body", {})}
    messages = [{"role": "user", "content": text}]
    answer = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=max_tokens, seed=1, extra_body=body, **options
    )
    return answer.choices[0].message.content, answer.choices[0].finish_reason


def test_a_choice(client):
    body = {"structured_outputs": {"choice": ["positive", "negative"]}}
    assert ask(client, "Classify this sentiment", extra_body=body)[0] in ("positive", "negative")


@pytest.mark.parametrize("pattern", [r"\w+@\w+\.com\n", r"[a-z0-9.]{1,20}@\w{6,10}\.com\n"])
def test_a_pattern_that_ends_with_the_stop_string(client, pattern):
    text, reason = ask(client, "An address", extra_body={"structured_outputs": {"regex": pattern}, "stop": ["\n"]})
    assert re.fullmatch(pattern, text + "\n") and reason == "stop"


def test_a_constraint_under_another_name_speaks_of_what_is_shown(client):
    """Words that are not wanted are looked for there in any case."""
    body = {"constraint": {"type": "regex", "pattern": "[a-z ]{8}"}, "stop": ["x"], "bad_words": ["e"]}
    text, _ = ask(client, "Letters", extra_body=body)
    assert re.fullmatch("[a-z ]{8}", text) and not set("xe") & set(text)
    body = {"structured_outputs": {"regex": "[a-z ]{8}"}, "stop": ["x"], "bad_words": ["e"]}
    text, _ = ask(client, "Letters", extra_body=body)
    assert re.fullmatch("[a-z ]{7,8}", text) and not set("xe") & set(text)


@pytest.mark.parametrize("name", ["structured_outputs", "response_format"])
def test_an_object(client, name):
    schema = Car.model_json_schema()
    named = {"type": "json_schema", "json_schema": {"name": "car-description", "schema": schema}}
    wanted = {"response_format": named} if name == "response_format" else {"structured_outputs": {"json": schema}}
    Car.model_validate_json(ask(client, "The most iconic car of the 90s", max_tokens=64, extra_body=wanted)[0])


def test_grammars(client):
    text, _ = ask(client, "Write SQL", extra_body={"structured_outputs": {"grammar": SQL}})
    assert re.fullmatch("SELECT col_[12]  from table_[12]  where col_[12] = [12] ", text)
    text, _ = ask(client, "Calculate", max_tokens=12, extra_body={"structured_outputs": {"grammar": EXPRESSIONS}})
    Lark(EXPRESSIONS).parse(text)


def test_what_asks_for_nothing_is_taken(client):
    plain = ask(client, "Hello", max_tokens=4)
    harmless = {"use_beam_search": False, "length_penalty": 1.0, "priority": 0, "request_id": "1", "echo": False}
    harmless |= {"repetition_penalty": 1.0, "skip_special_tokens": True, "add_generation_prompt": True}
    assert ask(client, "Hello", max_tokens=4, extra_body=harmless) == plain


def test_a_literal_of_lark_is_no_rule_of_gbnf(client):
    body = {"structured_outputs": {"grammar": 'start: "a ::= b"'}}
    assert ask(client, "Write a rule", extra_body=body)[0] == "a ::= b"


def test_a_call_needs_no_stop_string(client):
    wake = {"type": "function", "function": {"name": "wake", "parameters": {"type": "object", "additionalProperties": False}}}
    answer = client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": "Wake me"}],
        max_tokens=32,
        tools=[wake],
        tool_choice="required",
        stop=["\n"],
        extra_body={"structured_outputs": {"regex": "[a-z]+\n"}, "effort": "low"},
    )
    assert answer.choices[0].message.tool_calls[0].function.name == "wake"
