"""The schema of a tool means in a call what it means alone: references lead where they led, data stays data."""

from __future__ import annotations

import json

import pytest

import locore
from locore.server.chats import ChatRequest
from locore.server.tools import STYLE, Calls, Function

PERSON = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def closed(**properties):
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


# A schema of arguments, arguments that fit it, and others that do not.
SCHEMAS = {
    "reference": (closed(x={"$ref": "#/$defs/p"}) | {"$defs": {"p": PERSON}}, {"x": {"a": 1}}, {"x": {"a": "b"}}),
    "recursion": ({**closed(), "properties": {"x": {"$ref": "#"}}}, {"x": {"x": {}}}, {"x": {"y": {}}}),
    "anchor": (closed(x={"$ref": "#p"}) | {"$defs": {"p": {"$anchor": "p", **PERSON}}}, {"x": {"a": 1}}, {"x": 1}),
    "own name": (
        {"$id": "https://x.example/s", **closed(x={"$ref": "#/$defs/p"}), "$defs": {"p": PERSON}},
        {"x": {"a": 1}},
        {"x": 1},
    ),
    "inner name": (
        closed(x={"$ref": "https://x.example/p"}) | {"$defs": {"p": {"$id": "https://x.example/p", **PERSON}}},
        {"x": {"a": 1}},
        {"x": 1},
    ),
    "by its own name": (
        {"$id": "https://x.example/s", **closed(x={"$ref": "https://x.example/s#/$defs/p"}), "$defs": {"p": PERSON}},
        {"x": {"a": 1}},
        {"x": 1},
    ),
    "const": (closed(x={"const": {"$ref": "#/x"}}), {"x": {"$ref": "#/x"}}, {"x": {"$ref": "#/properties/arguments/x"}}),
    "enum": (closed(x={"enum": [{"$ref": "#"}]}), {"x": {"$ref": "#"}}, {"x": {"$ref": "#/properties/arguments"}}),
    "default": (closed(x={"type": "integer", "default": {"$ref": "#/y"}, "examples": [{"$ref": "#/z"}]}), {"x": 1}, {"x": "1"}),
    "a property of that name": (closed(**{"$ref": {"type": "integer"}}), {"$ref": 1}, {"$ref": "#"}),
    "draft 4": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            **closed(x={"$ref": "#/definitions/p"}),
            "definitions": {"p": {"type": "integer", "minimum": 1, "exclusiveMinimum": True}},
        },
        {"x": 2},
        {"x": 1},
    ),
    "zod": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/p", "definitions": {"p": PERSON}},
        {"a": 1},
        {"a": "b"},
    ),
    "draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **closed(x={"$ref": "#p"}),
            "definitions": {"p": {"$id": "#p", **PERSON}},
        },
        {"x": {"a": 1}},
        {"x": 1},
    ),
}


def holds(constraint, text, tokenizer):
    """By the plain reading of a constraint."""
    return locore.from_json(constraint).evaluate(tokenizer.encode(text), tokenizer)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", SCHEMAS)
def test_arguments_mean_what_they_mean_alone(tiny, name, parallel):
    schema, good, bad = SCHEMAS[name]
    alone = {"type": "json_schema", "schema": schema, **STYLE}
    assert [holds(alone, json.dumps(one), tiny.tokenizer) for one in (good, bad)] == [True, False]
    named = {"$schema": schema["$schema"]} if "$schema" in schema else {}  # parts of one schema are of one draft
    other = Function("g", named | closed(y={"$ref": "#/$defs/p"}) | {"$defs": {"p": {"type": "null"}}})
    for functions in ((Function("f", schema),), (other, Function("f", schema))):
        calls = Calls(functions, "required", parallel)
        for arguments, fits in ((good, True), (bad, False)):
            call = {"name": "f", "arguments": arguments}
            text = json.dumps([call] if parallel else call)
            assert holds(calls.constraint({"type": "true"}), text, tiny.tokenizer) == fits, text


def test_two_tools_of_one_name_of_a_schema_are_told(tiny):
    def tool(name, of):
        parameters = {"$id": "https://x.example/s", **closed(x={"$ref": "#/$defs/p"}), "$defs": {"p": {"type": of}}}
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    def request(*tools):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "tools": list(tools)}
        return ChatRequest.model_validate({**body, "tool_choice": "required", "parallel_tool_calls": True})

    with pytest.raises(ValueError, match="one \\$id"):
        request(tool("f", "integer"), tool("g", "null"))
    alpha = request(tool("f", "null"), tool("g", "null")).alpha()
    assert holds(alpha, '[{"name": "g", "arguments": {"x": null}}]', tiny.tokenizer)
