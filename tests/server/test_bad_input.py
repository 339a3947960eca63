"""Bad input of every kind gets a 4xx that says what is wrong, in OpenAI's shape; nothing is dropped silently."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import openai
import pytest

GOOD = {"model": "tiny", "prompt": "I", "max_tokens": 3}
FUNCTION = {"type": "function", "function": {"name": "f"}}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 3}

FIELDS = [
    ({"guided_regex": "a"}, "unknown_field", "guided_regex"),
    ({"logprobs": 21}, "invalid_value", "logprobs"),
    ({"logprobs": True}, "invalid_value", "logprobs"),
    ({"stop": [""]}, "invalid_value", None),
    ({"stop": ["a"] * 65}, "invalid_value", None),
    ({"stop": 7}, "invalid_value", "stop"),
    ({"frequency_penalty": 3}, "invalid_value", "frequency_penalty"),
    ({"repetition_penalty": 1.1}, "unsupported_value", "repetition_penalty"),
    ({"echo": True, "logprobs": 1}, "invalid_value", None),
    ({"best_of": 2}, "unsupported_value", "best_of"),
    ({"suffix": "."}, "unsupported_value", "suffix"),
    ({"stop_token_ids": [1]}, "unsupported_value", "stop_token_ids"),
    ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"one": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"99999": 1}}, "invalid_value", None),
    ({"min_p": 1.5}, "invalid_value", "min_p"),
    ({"top_k": -2}, "invalid_value", "top_k"),
    ({"bad_words": [""]}, "invalid_constraint", None),
    ({"effort": "great"}, "invalid_value", "effort"),
    ({"service_tier": "flex"}, "invalid_value", "service_tier"),
    ({"store": True}, "unsupported_value", "store"),
    ({"tools": []}, "unknown_field", "tools"),  # of chats
    ({"constrain": {"type": "true"}}, "unknown_field", "constrain"),
    ({"structured_outputs": {"regex": "a", "structural_tag": "b"}}, "unsupported_value", "structured_outputs.structural_tag"),
    ({"structured_outputs": {"json": {}, "disable_any_whitespace": True}}, "unsupported_value", "structured_outputs.disable"),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": " "}}, "unsupported_value", "structured_outputs.whitespace_p"),
    ({"structured_outputs": {"regex": "a", "regexp": "a"}}, "unknown_field", "structured_outputs.regexp"),
    ({"response_format": {"type": "structural_tag", "format": {}}}, "unsupported_value", "response_format"),
    ({"structured_outputs": {}}, "invalid_value", "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "grammar": "b"}}, "invalid_value", "structured_outputs"),
    ({"structured_outputs": {"grammar": "root ::= x"}}, "invalid_constraint", "structured_outputs"),
    ({"structured_outputs": {"grammar": "root ::= " + "(" * 60_000}}, "invalid_constraint", "structured_outputs"),
    ({"structured_outputs": {"grammar": f'start: {"(" * 3000}"a"{")" * 3000}'}}, "invalid_constraint", "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "invalid_value", "structured_outputs"),
    ({"structured_outputs": {"regex": "a"}, "constraint": {"type": "true"}}, "invalid_value", None),
    ({"response_format": {"type": "text"}, "constraint": {"type": "true"}}, "invalid_value", None),
    ({"response_format": {"type": "xml"}}, "invalid_value", "response_format"),
    ({"prompt": None}, "invalid_value", "prompt"),
    ({"prompt": [99999]}, "invalid_value", None),
    ({"prompt": [-1]}, "invalid_value", None),
    ({"prompt": "\ud800"}, "invalid_value", None),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_tokens": "3"}, "invalid_value", "max_tokens"),
    ({"max_tokens": 100_000}, "invalid_value", "max_tokens"),
    ({"min_tokens": 4}, "invalid_value", "min_tokens"),
    ({"num_particles": 10**9}, "invalid_value", "num_particles"),
    ({"n": 0}, "invalid_value", "n"),
    ({"n": 10**6}, "invalid_value", "n"),
    ({"n": True}, "invalid_value", "n"),
    ({"temperature": -1}, "invalid_value", "temperature"),
    ({"prompt": ["a", [1]]}, "invalid_value", "prompt"),
    ({"prompt": ["a"] * 129}, "invalid_value", "n"),
    ({"top_p": 1.5}, "invalid_value", "top_p"),
    ({"seed": 2**64}, "invalid_value", "seed"),
    ({"budget": 0}, "invalid_value", "budget"),
    ({"budget": 2**62}, "invalid_value", "budget"),
    ({"budget": str(2**62)}, "invalid_value", "budget"),
    ({"budget": "5m"}, "invalid_value", "budget"),
    ({"budget": "0s"}, "invalid_value", "budget"),
    ({"budget": 1, "sampler": "lcr"}, "budget_exceeded", None),
    ({"sampler": "beam"}, "invalid_value", "sampler"),
    ({"ending": "never"}, "invalid_value", "ending"),
    ({"stream_options": {"include_usage": True}}, "invalid_value", None),
    ({"constraint": "no hate"}, "invalid_value", "constraint"),
    ({"constraint": {}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "python", "code": "True"}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "ban"}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "ban", "phrases": ["a"], "word": True}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "regex", "pattern": "("}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "json_schema", "schema": {"nullable": True}}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "token", "position": 9, "in": [1]}}, "invalid_constraint", "constraint"),
    ({"constraint": {"type": "regex", "pattern": "(a|b)*a(a|b){20}"}}, "budget_exceeded", None),
    ({"constraint": {"type": "word_count", "hi": 10**18}}, "budget_exceeded", None),
]


def is_error(body) -> bool:
    error = body["error"]
    return set(body) == {"error"} and set(error) == {"message", "type", "param", "code"} and len(error["message"]) > 10


@pytest.mark.parametrize(("field", "code", "param"), FIELDS, ids=str)
def test_a_wrong_field_is_refused_and_named(server, field, code, param):
    status, _, body = server.post({**GOOD, **field})
    assert (status, is_error(body)) == (400, True)
    assert body["error"]["code"] == code
    assert body["error"]["type"] == "invalid_request_error"
    if param is not None:
        assert body["error"]["param"].startswith(param)


@pytest.mark.parametrize(
    "field",
    [
        {"messages": []},
        {"messages": "Hello"},
        {"messages": [{"role": "wizard", "content": "Hello"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "assistant"}]},
        {"messages": [{"role": "user", "content": "Hello", "name": ""}]},
        {"max_completion_tokens": 3},
        {"tools": [{"type": "function", "function": {"name": "f g"}}]},
        {"tools": [FUNCTION] * 2},
        {"tools": [{"type": "retrieval"}]},
        {"tool_choice": "required"},
        {
            "tools": [{"type": "function", "function": {"name": "f"}}],
            "tool_choice": {"type": "function", "function": {"name": "g"}},
        },
        {"top_logprobs": 2},
        {"reasoning_effort": "high"},
        {"modalities": ["audio"]},
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"tools": []}},
        {"chat_template_kwargs": {"m": 1}, "messages": [{"role": "user", "content": "</s>"}], "continue_final_message": True},
    ],
    ids=str,
)
def test_a_wrong_chat_is_refused(server, field):
    status, _, body = server.post({**CHAT, **field}, "/v1/chat/completions")
    assert (status, is_error(body)) == (400, True)


def test_the_good_requests_are_good(server):
    assert server.post(GOOD)[0] == server.post(CHAT, "/v1/chat/completions")[0] == 200


def test_a_field_that_is_not_had_says_what_to_do(server):
    message = server.post({**GOOD, "tools": []})[2]["error"]["message"]
    assert "unknown field 'tools'" in message
    assert "temperature=0" in server.post({**GOOD, "best_of": 4})[2]["error"]["message"]
    for tagged in ({"structured_outputs": {"structural_tag": "{}"}}, {"response_format": {"type": "structural_tag"}}):
        message = server.post({**GOOD, **tagged})[2]["error"]["message"]
        assert "tool_choice" in message and '"type": "after"' in message
    nothing = {"structural_tag": None, "disable_any_whitespace": False, "whitespace_pattern": None}
    assert server.post({**GOOD, "structured_outputs": {"choice": ["a"], **nothing}})[0] == 200


def test_values_that_ask_for_nothing_are_taken(server):
    both = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1,
        "logit_bias": {},
        "stop": None,
        "user": None,
        "response_format": None,
        "temperature": None,
        "top_p": 1,
        "n": None,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "safety_identifier": "x",
        "prompt_cache_key": "x",
        "store": False,
        "seed": -1,
        "top_k": -1,
        "max_tokens": 2.0,
        "stream_options": None,
        "skip_special_tokens": True,
    }
    completion = {"best_of": 1, "echo": False, "suffix": None, "logprobs": None}
    chat = {"logprobs": False, "top_logprobs": None, "tools": [], "tool_choice": "none", "parallel_tool_calls": True}
    chat |= {
        "modalities": ["text"],
        "reasoning_effort": "none",
        "functions": [],
        "prediction": None,
        "max_completion_tokens": None,
    }
    chat |= {"chat_template_kwargs": {}, "add_generation_prompt": True, "continue_final_message": False}
    assert server.post({**GOOD, **both, **completion})[0] == 200
    assert server.post({**CHAT, **both, **chat}, "/v1/chat/completions")[0] == 200


def test_what_no_text_satisfies_is_422(server):
    for alpha in (
        {"type": "false"},
        {"type": "and", "of": [{"type": "choice", "texts": [" a", " b"]}, {"type": "ban", "phrases": [" "]}]},
    ):
        status, _, body = server.post({**GOOD, "constraint": alpha})
        assert (status, body["error"]["code"]) == (422, "unsatisfiable_constraint")


def test_finding_nothing_is_422(server):
    status, _, body = server.post(
        {**GOOD, "constraint": {"type": "contains", "text": "xylophone"}, "max_tokens": 12, "sampler": "oversampling"}
    )
    assert (status, body["error"]["code"]) == (422, "no_valid_sample")


def test_an_unknown_model_is_404(server):
    status, _, body = server.post({**GOOD, "model": "gpt-9"})
    assert (status, body["error"]["code"], body["error"]["param"]) == (404, "model_not_found", "model")


def nested(depth: int) -> bytes:
    alpha = '{"type": "not", "of": ' * depth + '{"type": "true"}' + "}" * depth
    return f'{{"model": "tiny", "prompt": "I", "constraint": {alpha}}}'.encode()


BODIES = {
    "empty": b"",
    "no JSON": b"{",
    "no object": b"[1, 2]",
    "a number": b"7",
    "no UTF-8": b'{"model": "\xff"}',
    "twice": b'{"model": "tiny", "prompt": "I", "prompt": "You"}',
    "twice inside": b'{"model": "tiny", "prompt": "I", "constraint": {"type": "ban", "phrases": ["a"], "phrases": []}}',
    "NaN": b'{"model": "tiny", "prompt": "I", "temperature": NaN}',
    "Infinity": b'{"model": "tiny", "prompt": "I", "temperature": Infinity}',
    "a large float": b'{"model": "tiny", "prompt": "I", "temperature": 1e999}',
    "a long integer": b'{"model": "tiny", "prompt": "I", "seed": ' + b"9" * 5000 + b"}",
    "deep": nested(1000),
    "very deep": b"[" * 400_000,
    "a string that does not end": b'{"model": "' + b"\\" * 400_000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_broken_body_is_400(server, body):
    status, _, answer = server.request("POST", "/v1/completions", body)
    assert (status, is_error(json.loads(answer))) == (400, True)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""])
def test_another_content_type_is_400(server, kind):
    status, _, answer = server.request("POST", "/v1/completions", json.dumps(GOOD).encode(), {"Content-Type": kind})
    assert (status, is_error(json.loads(answer))) == (400, True)


def test_a_body_of_ten_megabytes_is_413(server):
    status, _, answer = server.request("POST", "/v1/completions", b'"' + b"a" * 10_000_000 + b'"')
    assert (status, json.loads(answer)["error"]["code"]) == (413, "body_too_large")


def test_a_chunked_body_is_counted_too(server):
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname, place.port)) as line:
        line.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for _ in range(30):
            line.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
        line.sendall(b"0\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/nothing", 404), ("GET", "/v1/completions", 405), ("PUT", "/health", 405)]
)
def test_other_paths_and_methods(server, method, path, status):
    found, _, answer = server.request(method, path)
    assert (found, is_error(json.loads(answer))) == (status, True)


def test_the_client_raises_its_own_exceptions(client):
    with pytest.raises(openai.BadRequestError) as raised:
        client.completions.create(model="tiny", prompt="I", extra_body={"constraint": {"type": "ban"}})
    assert (raised.value.code, raised.value.param) == ("invalid_constraint", "constraint")
    with pytest.raises(openai.UnprocessableEntityError):
        client.completions.create(model="tiny", prompt="I", extra_body={"constraint": {"type": "false"}})
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="I")
