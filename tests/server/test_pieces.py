"""A stream tells of a text what is certain of it: together the whole answer, whatever is asked, and as soon as it is known."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from locore.server.answers import Shape
from locore.server.api_errors import ApiError
from locore.server.task import Result, Task, Text

ONE = {"sampler": "masked", "num_particles": 1}
ASKED = {
    "token by token": {**ONE, "constraint": {"type": "contains", "text": " sun"}},
    "a population": {"num_particles": 8, "constraint": {"type": "starts_with", "text": " why oh why"}},
    "several": {"n": 3, "num_particles": 8, "constraint": {"type": "starts_with", "text": " why oh why"}},
    "independent": {"n": 2, "independent": True, **ONE},
    "stop": {**ONE, "stop": ["e", " t"]},
    "stop included": {**ONE, "stop": ["e"], "include_stop_str_in_output": True},
    "echo": {**ONE, "echo": True},
    "prompts": {**ONE, "prompt": ["I", "The sun"], "echo": True, "n": 2},
    "logprobs": {**ONE, "logprobs": 1},
    "ids": {**ONE, "return_token_ids": True},
    "best": {"temperature": 0, "num_particles": 4},
}


def events(body: bytes) -> list[dict]:
    """Those of a stream."""
    return [json.loads(part[6:]) for part in body.decode().split("\n\n") if part.startswith("data: {")]


def texts_of(told: list[dict], number: int) -> list[list[str]]:
    """The pieces of each choice."""
    found: list[list[str]] = [[] for _ in range(number)]
    for event in told:
        for choice in event["choices"]:
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            found[choice["index"]] += [piece] if piece else []
    return found


@pytest.mark.parametrize("name", ASKED)
def test_the_pieces_are_the_answer(server, name):
    body = {"model": "tiny", "prompt": "The weather is", "max_tokens": 10, "seed": 3, "effort": "low", **ASKED[name]}
    if "sampler" in body:
        del body["effort"]
    status, _, whole = server.post(body)
    assert status == 200, whole
    _, headers, streamed = server.request("POST", "/v1/completions", json.dumps({**body, "stream": True}).encode())
    assert headers["content-type"].startswith("text/event-stream")
    told = events(streamed)
    pieces = texts_of(told, len(whole["choices"]))
    assert ["".join(each) for each in pieces] == [choice["text"] for choice in whole["choices"]]
    assert {event["system_fingerprint"] for event in told} == {whole["system_fingerprint"]}
    ends = [choice for event in told for choice in event["choices"] if choice["finish_reason"]]
    assert [end["finish_reason"] for end in ends] == [choice["finish_reason"] for choice in whole["choices"]]
    if name in ("token by token", "stop", "echo", "prompts", "a population"):
        assert max(map(len, pieces)) > 1, pieces
    if name in ("logprobs", "ids"):  # what is said of tokens comes with them
        assert [len(each) for each in pieces] == [1]


def test_a_chat_in_pieces(server):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 10, "seed": 3, **ONE}
    whole = server.post(body, "/v1/chat/completions")[2]
    _, _, streamed = server.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}).encode())
    told = events(streamed)
    (pieces,) = texts_of(told, 1)
    assert "".join(pieces) == whole["choices"][0]["message"]["content"] and len(pieces) > 1
    roles = [event["choices"][0]["delta"].get("role") for event in told if event["choices"]]
    assert roles[0] == "assistant" and not any(roles[1:])


def test_a_text_that_does_not_go_on_as_was_said_is_an_error():
    """Never shown as if nothing had happened."""
    shape = Shape("tiny", chat=False, include_usage=False)
    job = SimpleNamespace(pieces=["The "], fingerprint="0", task=Task("", 1))
    assert [event["choices"][0]["text"] for event in shape.pieces([job])] == ["The "]
    assert not list(shape.pieces([job]))
    with pytest.raises(ApiError, match="report"):
        list(shape.chunks([Result([Text("A", 1, "stop")], 1, {}, "0")]))
