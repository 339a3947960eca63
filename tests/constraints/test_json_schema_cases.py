"""`json_schema`: cases that are easily got wrong, one schema after the other."""

from __future__ import annotations

import pytest

from locore.constraints import json_schema

from .bytewise import accepts, holds
from .schemas import LOOSE

STRING = {"type": "string"}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
TREE = {"type": "array", "items": {"type": "array", "items": {"const": 1}, "maxItems": 1}}

# schema, options, texts that hold, texts that do not.
CASES = [
    (STRING, {}, ['""', '"a"', ' "a"', '"\\u0000"', '"\x7f"', '"\u2028"'], ['"', "a", '"\n"', '"\\x"', '"a" ', '"a""', "'a'"]),
    (
        {"type": "string", "maxLength": 1},
        {},
        ['"\\n"', '"\\ud83d\\ude00"', '"\U0001f600"', '"\\uD83D\\uDE00"'],
        ['"\\\\n"', '"ab"'],
    ),
    ({"type": "string", "minLength": 2}, {}, ['"\\n\\n"', '"a\u0301"'], ['"\\u0041"', '"\\ud83d\\ude00"', '"\u00e9"']),
    (STRING, {}, [], ['"\\ud83d"', '"\\ude00\\ud83d"', '"\\ud83d\\u0041"', '"\\ud83dx"', '"\\u12"', '"\\u12g4"']),
    ({"type": "string", "pattern": "^[a-z]+$"}, {}, ['"ab"', '"\\u0061b"'], ['"ab\\n"', '"a1"', '""']),
    ({"type": "string", "pattern": "b"}, {}, ['"abc"', '"\\u0062"'], ['"ac"']),
    ({"type": "string", "pattern": r"^\d\S\w$"}, {}, ['"1.a"'], ['"\u0663.a"', '"1.\u00e9"', '"1\ufeffa"', '"1\\u00a0a"']),
    ({"type": "string", "pattern": "^.$"}, {}, ['"x"', '"\\t"'], ['"\\n"', '"\\r"', '"\u2028"']),
    ({"type": "string", "pattern": "^a|b$", "maxLength": 2}, {}, ['"a\\""', '"bb"'], ['"ca"', '"acc"']),
    ({"const": "\n\u00e9"}, {"escapes": "minimal"}, ['"\\n\u00e9"'], ['"\\u000a\u00e9"', '"\\n\\u00e9"']),
    (STRING, {"escapes": "minimal"}, ['"/"', '"\\u001f"', '"\\""'], ['"\\/"', '"\\u001F"', '"\\u0022"', '"\\u0041"']),
    (
        {"type": "integer"},
        {},
        ["0", "-0", "12", "-7", " 3", "9" * 5000, "1.0", "-0.00"],
        ["01", "1.5", "1e2", "+1", "", "-", "٣", "1 "],
    ),
    ({"type": "integer", "exclusiveMinimum": 0, "maximum": 10.5}, {}, ["1", "10"], ["0", "-0", "11", "-1"]),
    ({"type": "integer", "minimum": 5, "maximum": 3}, {}, [], ["3", "4", "5"]),
    (
        {"type": "number"},
        {},
        ["0", "-0.5", "0.10", "9" * 400],
        [".5", "1.", "NaN", "Infinity", "0x1", "1e", "00.1", "1e4", "1E+2"],
    ),
    ({"enum": [1.0, 2.5, 1e-7]}, {}, ["1", "2.5", "0.0000001", "1.0", "2.50"], ["1.1", "2", "1e-7", "25e-1"]),
    ({"enum": [True, 0, "", None]}, {}, ["true", "0", "-0", "0.0", '""', "null"], ["1", "false", "[]"]),
    ({"type": "boolean"}, {}, ["true", "false"], ["0", "True", '"true"']),
    ({"enum": [1, "1", 2.5, 3.0], "type": "integer"}, {}, ["1", "3"], ['"1"', "2.5"]),
    (
        {"const": {"b": [1, {}], "a": []}},
        {},
        ['{"b":[1,{ }],"a":[]}', '{"a":[ ],"b":[1,{}]}'],
        ['{"a":[]}', '{"b":[{},1],"a":[]}'],
    ),
    ({"const": {"b": 1, "a": 2}}, {"order": "schema"}, ['{"b":1,"a":2}'], ['{"a":2,"b":1}']),
    (
        PERSON,
        {},
        ['{"name":"x"}', '{"age":1,\n"name": "x"}', "\n{ }"[:0] + '{"\\u006eame":""}'],
        ["{}", '{"name":"x","name":"y"}'],
    ),
    (
        PERSON,
        {},
        [],
        ['{"name":"x","z":1}', '{"name":"abcd"}', '{"name":"x",}', '{"name":"x"}}', '{"name":"x" "age":1}', '{"name"}'],
    ),
    (PERSON, {}, [], ['{"name":"x","\\u006eame":"x"}', '{"age":1}', '{"name":1}', '[{"name":"x"}]', '{"name":"x"} {}']),
    (PERSON, {"order": "schema"}, ['{"name":"x","age":0}', '{"name":"x"}'], ['{"age":0,"name":"x"}']),
    (PERSON, {"whitespace": "compact"}, ['{"name":" x ","age":0}'], ['{"name": "x"}', ' {"name":"x"}']),
    (PERSON, {"whitespace": "single"}, ['{"name": "x", "age" : 0 }', ' { "name":"\\n"}'], ['{"name":  "x"}', '{\n"name":"x"}']),
    (PERSON, {"whitespace": "spaced"}, ['{"name": "x", "age": 0}', '{"name": ""}'], ['{"name":"x"}', ' {"name": "x"}']),
    ({"type": "object", "additionalProperties": False}, {}, ["{}", " { \n}"], ['{"a":1}', "[]"]),
    ({"type": "object", "properties": {"a": False}}, {}, ["{}", '{"b":1}'], ['{"a":1}']),
    (TREE, {}, ["[]", "[[],[1]]", "[ [ ] , [ 1 ] ]"], ["[1]", "[[1,1]]", "[[],]", "[,]", "[[]", "[]]", "[" * 50]),
    (
        {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3},
        {},
        ["[null,null]"],
        ["[null]", "[" + "null," * 3 + "null]"],
    ),
    ({"type": "array", "maxItems": 0}, {}, ["[]", "[ ]"], ["[1]"]),
    (
        {"type": "array", "items": {"enum": ["a", "b", 1, 1.0]}, "uniqueItems": True, "minItems": 1},
        {},
        ['["b","a",1]', '["a"]'],
        [],
    ),
    (
        {"type": "array", "items": {"enum": ["a", 1]}, "uniqueItems": True},
        {},
        ["[]"],
        ['["a","a"]', '["a","\\u0061"]', "[1,1]"],
    ),
    ({"type": "array", "items": {"type": "boolean"}, "uniqueItems": False}, {}, ["[true,true]"], ["[1]"]),
    ({"anyOf": [{"type": "null"}, PERSON]}, {}, ["null", '{"name":""}'], ["{}"]),
    ({"type": ["null", "string"], "maxLength": 1}, {}, ["null", '"a"'], ['"ab"', "1"]),
    ({"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"const": 1}}}, {}, ["1"], ["2"]),
    ({"$ref": "#/definitions/x/anyOf/1", "definitions": {"x": {"anyOf": [{"const": 1}, {"const": 2}]}}}, {}, ["2"], ["1"]),
    (False, {}, [], ["", "null", "{}"]),
]


@pytest.mark.parametrize(("schema", "style", "holding", "others"), CASES, ids=[str(number) for number in range(len(CASES))])
def test_cases(schema, style, holding, others):
    leaf = json_schema(schema, **{**LOOSE, **style})
    for text in holding + others:
        wanted = text in holding
        assert accepts(leaf, text) == wanted, text
        assert holds(leaf, text) == wanted, text


def test_only_utf8():
    leaf = json_schema(STRING)
    for text in (b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'\xef\xbb\xbf""'):
        assert not accepts(leaf, text)
        assert not holds(leaf, text)
