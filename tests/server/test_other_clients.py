"""Clients that speak OpenAI's language: litellm and langchain. `make test-clients` installs them and runs this."""

from __future__ import annotations

import importlib.util
import json
from typing import Literal

import pytest
from pydantic import BaseModel, Field

pytestmark = pytest.mark.slow
MESSAGES = [{"role": "user", "content": "How is the weather?"}]
WAKE = {
    "type": "function",
    "function": {
        "name": "wake",
        "description": "Wake somebody.",
        "parameters": {
            "type": "object",
            "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}},
            "required": ["hour"],
        },
    },
}


class Weather(BaseModel):
    mood: Literal["good", "bad"]
    degrees: int = Field(ge=0, le=40)


@pytest.fixture
def litellm():
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed: make test-clients")
    import litellm

    return litellm


@pytest.fixture
def given(server):
    return {"model": "openai/tiny", "api_base": f"{server.url}/v1", "api_key": server.key, "messages": MESSAGES, "seed": 1}


def test_litellm_completes_and_streams(litellm, given):
    whole = litellm.completion(**given, max_tokens=6)
    assert whole.choices[0].message.content and whole.usage.completion_tokens <= 6
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**given, max_tokens=6, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content


def test_litellm_asks_for_a_schema(litellm, given):
    answer = litellm.completion(**given, max_tokens=48, response_format=Weather)
    Weather.model_validate_json(answer.choices[0].message.content)


def test_litellm_calls_tools(litellm, given):
    answer = litellm.completion(**given, max_tokens=64, tools=[WAKE], tool_choice="required")
    (call, *_) = answer.choices[0].message.tool_calls
    assert call.function.name == "wake" and 0 <= json.loads(call.function.arguments)["hour"] <= 23


def test_litellm_knows_the_errors(litellm, given):
    with pytest.raises(litellm.exceptions.BadRequestError):
        litellm.completion(**{**given, "messages": [{"role": "nobody", "content": "x"}]}, max_tokens=4)
    with pytest.raises(litellm.exceptions.AuthenticationError):
        litellm.completion(**{**given, "api_key": "wrong"}, max_tokens=4)


@pytest.fixture
def chat(server):
    if importlib.util.find_spec("langchain_openai") is None:
        pytest.skip("langchain-openai is not installed: make test-clients")
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="tiny", base_url=f"{server.url}/v1", api_key=server.key, max_tokens=64, seed=1, max_retries=0)


def test_langchain_answers_and_streams(chat):
    short = chat.bind(max_tokens=6)
    whole = short.invoke("How is the weather?")
    assert whole.content and whole.usage_metadata["output_tokens"] <= 6
    assert "".join(chunk.content for chunk in short.stream("How is the weather?")) == whole.content
    assert [answer.content for answer in short.batch(["How is the weather?"] * 2)] == [whole.content] * 2


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_has_structured_output(chat, method):
    found = chat.with_structured_output(Weather, method=method).invoke("How is the weather?")
    assert isinstance(found, Weather)


def test_langchain_binds_tools(chat):
    answer = chat.bind_tools([WAKE], tool_choice="wake").invoke("Wake me at seven.")
    (call, *_) = answer.tool_calls
    assert call["name"] == "wake" and 0 <= call["args"]["hour"] <= 23
