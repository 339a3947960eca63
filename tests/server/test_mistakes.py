"""What is said of wrong requests: `param` is a place of the request, and what asks for structure is never to be left out."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random

import pytest

from locore.server import Settings, create_app
from locore.server.mistakes import SHOWN

APP = create_app(Settings())
SCHEMAS = APP.openapi()["components"]["schemas"]
REQUESTS = {"/v1/completions": "CompletionRequest", "/v1/chat/completions": "ChatRequest", "/page/compare": "CompareRequest"}
COUNT = 6000 if os.environ.get("LOCORE_THOROUGH") else 400
JUNK = [None, True, -1, 1.5, 10**30, "", "json_schema", "str", [], [[]], [None], {}, {"type": "x"}, {"str": 1}, [{"type": 3}]]
NAMES = ["x", "str", "json_schema", "schema", "user", "constrained", "list[int]", "maxtokens", "Calls", "y" * 300]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


class Answer:
    """Of the application itself, without a socket."""

    def __init__(self, path, body):
        self.status_code, self._parts = 0, []
        content = json.dumps(body).encode()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
            "scheme": "http",
            "root_path": "",
        }

        async def receive():
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message):
            self.status_code = message.get("status", self.status_code)
            self._parts.append(message.get("body", b""))

        asyncio.run(APP({**scope, "http_version": "1.1", "asgi": {"version": "3.0"}}, receive, send))

    def json(self):
        return json.loads(b"".join(self._parts))


def post(*requests):
    """Answers of an application that never loads a model: whatever passes the checks is told so with 503."""
    return [Answer(path, body) for path, body in requests]


def drawn(schema, random, depth=0):
    """A value that a schema of pydantic's takes, as far as its keywords tell."""
    if schema.get("$ref", "").endswith("/Constraint"):  # checked where it is built
        return {"type": "true"}
    if "$ref" in schema:
        return drawn(SCHEMAS[schema["$ref"].rsplit("/", 1)[1]], random, depth)
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return drawn(random.choice(schema[word]), random, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    kind = schema.get("type", "object")
    if kind == "array":
        return [drawn(schema.get("items", {}), random, depth + 1) for _ in range(random.randint(schema.get("minItems", 0), 2))]
    if kind == "object":
        needed, known = schema.get("required", []), schema.get("properties", {})
        return {
            key: drawn(of, random, depth + 1)
            for key, of in known.items()
            if key in needed or random.random() < 0.3 / (depth + 1)
        }
    plain = {"string": "a", "integer": 1, "number": 1, "boolean": True, "null": None}
    return plain[kind]


def places(value, place=()):
    """All places of a value."""
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*place, key))


def spoilt(body, random):
    """One place of it is replaced, taken away, or given a field more."""
    body = copy.deepcopy(body)
    place = random.choice(list(places(body)))
    inner = body
    for part in place[:-1]:
        inner = inner[part]
    here = body if not place else inner[place[-1]]
    what = random.random()
    if isinstance(here, dict) and what < 0.5:
        here[random.choice(NAMES)] = random.choice(JUNK)
    elif place and isinstance(inner, dict) and what < 0.7:
        del inner[place[-1]]
    elif place:
        inner[place[-1]] = random.choice(JUNK)
    return body


def resolves(param, body):
    """Is it a place of the request, or the name of a field that one of its objects lacks?"""
    if body == () or param == "":
        return True
    keys = {str(key): key for key in (body if isinstance(body, dict) else range(len(body)) if isinstance(body, list) else ())}
    known = [key for key in keys if param == key or param.startswith(f"{key}.")]
    known += [key for key in keys if len(key) > SHOWN and param == f"{key[:SHOWN]}…"]
    if any(resolves(param[len(key) + 1 :], body[keys[key]]) for key in known):
        return True
    return isinstance(body, dict) and "." not in param and param not in keys


def test_param_is_a_place_of_the_request():
    generator, asked = random.Random(7), []
    while len(asked) < COUNT:
        path, name = generator.choice(list(REQUESTS.items()))
        asked.append((path, spoilt(drawn(SCHEMAS[name], generator), generator)))
    seen = set()
    for (path, body), answer in zip(asked, post(*asked), strict=True):
        assert answer.status_code in (400, 503), answer.text
        error = answer.json()["error"]
        seen.add(error["code"])
        assert error["param"] is None or resolves(error["param"], body), (path, error, json.dumps(body)[:2000])
        assert len(error["param"] or "") < 300
    assert {"unknown_field", "invalid_value", "missing_field", "unsupported_value", "loading"} <= seen


# What other servers call it, and a field of ours that the answer has to name.
ELSEWHERE = {
    "grammar": "structured_outputs",
    "ebnf": "structured_outputs",
    "json_schema": "structured_outputs",
    "regex": "structured_outputs",
    "schema": "structured_outputs",
    "format": "structured_outputs",
    "response_schema": "structured_outputs",
    "structural_tag": "tool_choice",
    "guided_json": "structured_outputs",
    "guided_regex": "structured_outputs",
    "guided_choice": "structured_outputs",
    "guided_grammar": "structured_outputs",
    "guided_json_object": "response_format",
    "guided_whitespace_pattern": "whitespace",
    "constraints": "constraint",
}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_what_asks_for_structure_is_named_by_the_field_that_does_it(path):
    messages = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"prompt": "a"}
    asked = [(path, {"model": "tiny", **messages, name: SCHEMA}) for name in ELSEWHERE]
    for name, answer in zip(ELSEWHERE, post(*asked), strict=True):
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, name)
        assert ELSEWHERE[name] in error["message"] and "eave it out" not in error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"response_format": {"type": "regex", "pattern": "a"}}, "response_format.type", "structured_outputs"),
        ({"response_format": {"type": "grammar", "grammar": "a"}}, "response_format.type", "structured_outputs"),
        ({"response_format": {"type": "json", "value": SCHEMA}}, "response_format.type", "json_schema"),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, "response_format.json_schema", "required"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            "response_format.json_schema.name",
            "",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": 5}}},
            "response_format.json_schema.schema",
            "",
        ),
        ({"structured_outputs": {"ebnf": "a"}}, "structured_outputs.ebnf", "grammar"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "no JSON"),
        ({"structured_outputs": {"json": "7"}}, "structured_outputs.json", "no schema"),
        ({"structured_outputs": {"structural_tag": "a"}}, "structured_outputs.structural_tag", "tool_choice"),
        ({"max_token": 3}, "max_token", "did you mean 'max_tokens'"),
        ({"messages": []}, "messages", "/v1/chat/completions"),
        ({"k" * 300_000: 1}, f"{'k' * SHOWN}…", "none is dropped"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_mistake_has_its_place_and_its_remedy(fields, param, says):
    (answer,) = post(("/v1/completions", {"model": "tiny", "prompt": "a", **fields}))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert says in error["message"] and "eave it out" not in error["message"] and len(error["message"]) < 600


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"response_format": {"type": "json_object", "schema": json.dumps(SCHEMA)}},
        {"structured_outputs": {"json": json.dumps(SCHEMA)}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    ],
    ids=str,
)
def test_a_schema_by_any_name_and_as_a_text_is_one_constraint(fields):
    from locore.server.schema import CompletionRequest

    plain = {"model": "tiny", "prompt": "a"}
    same = CompletionRequest.model_validate({**plain, "structured_outputs": {"json": SCHEMA}})
    assert CompletionRequest.model_validate({**plain, **fields}).alpha() == same.alpha()
