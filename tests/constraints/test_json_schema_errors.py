"""`json_schema`: what is refused is named with its place, and nothing is ignored."""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import locore
from locore.constraints import json_schema
from locore.errors import BudgetExceeded, InvalidConstraint, MissingExtra, UnsupportedKeyword

from .bytewise import accepts
from .schemas import schemas

STRING = {"type": "string"}
NESTED = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer", "multipleOf": 5}}}}
UNSUPPORTED = [
    ({"type": "integer", "multipleOf": 5}, "'multipleOf' (at /multipleOf)"),
    (NESTED, "'multipleOf' (at /properties/x/items/multipleOf)"),
    ({"type": "number", "minimum": 0}, "'minimum' (at /minimum)"),
    ({"type": "string", "format": "idn-email"}, "'format' (at /format)"),
    ({"type": "integer", "format": "int32"}, "'format' (at /format)"),
    ({"type": "string", "minimum": 0}, "'minimum' (at /minimum)"),
    ({"type": "integer", "maxLength": 2}, "'maxLength' (at /maxLength)"),
    ({"minLength": 2}, "'minLength' (at /minLength)"),
    ({"properties": {"a": STRING}}, "'properties' (at /properties)"),
    ({"oneOf": [STRING]}, "'oneOf' (at /oneOf)"),
    ({"allOf": [STRING]}, "'allOf' (at /allOf)"),
    ({"anyOf": [STRING, {"not": STRING}]}, "'not' (at /anyOf/1/not)"),
    ({"anyOf": [STRING], "type": "string"}, "'type' (at /type)"),
    ({"$ref": "#/$defs/a", "$defs": {"a": STRING}, "maxLength": 3}, "'maxLength' (at /maxLength)"),
    ({"$ref": "other.json"}, "'$ref' (at /$ref)"),
    ({"$ref": "#name"}, "'$ref' (at /$ref)"),
    ({"enum": ["a"], "minLength": 1}, "'minLength' (at /minLength)"),
    ({"const": 1, "enum": [1]}, "'enum' (at /enum)"),
    ({"type": "object"}, "'type' (at /type)"),
    ({"type": "object", "properties": {}, "additionalProperties": True}, "'additionalProperties' (at /additionalProperties)"),
    ({"type": "object", "properties": {}, "additionalProperties": STRING}, "(at /additionalProperties)"),
    ({"type": "object", "properties": {"a": STRING}, "required": ["a", "b"]}, "(at /required/1)"),
    ({"type": "object", "properties": {"a": STRING}, "minProperties": 1}, "'minProperties'"),
    ({"type": "object", "patternProperties": {"a": STRING}}, "'patternProperties'"),
    ({"type": "array"}, "'type' (at /type)"),
    ({"type": "array", "items": STRING, "uniqueItems": True}, "'uniqueItems' (at /uniqueItems)"),
    ({"type": "array", "prefixItems": [STRING], "items": False}, "'prefixItems'"),
    ({"type": "array", "items": {}}, "the schema at /items"),
    ({"type": "array", "items": {"$id": "x", "type": "null"}}, "'$id' (at /items/$id)"),
    ({}, "the schema at the top"),
    (True, "the schema at the top"),
    ({"title": "anything"}, "the schema at the top"),
    ({"x-order": 1}, "the schema at the top"),
    ({"type": "string", "maxLenght": 3}, "is 'maxLength' meant?"),
    ({"type": "string", "OneOf": []}, "is 'oneOf' meant?"),
    ({"anyOf": [{"type": "null", "id": "x"}]}, "'id' (at /anyOf/0/id)"),
    ({"type": "object", "properties": {"a/b~": {"nullable": True}}}, "(at /properties/a~1b~0/nullable)"),
]


@pytest.mark.parametrize(("schema", "place"), UNSUPPORTED, ids=[place for _, place in UNSUPPORTED])
def test_no_keyword_is_ignored(schema, place):
    with pytest.raises(UnsupportedKeyword) as caught:
        json_schema(schema)
    assert place in str(caught.value)


@given(schemas(), st.sampled_from(["dependentRequired", "contains", "unevaluatedItems", "mxLength", "x-y", "order"]), st.data())
def test_a_keyword_anywhere_is_refused_or_named(schema, keyword, data):
    """Wherever it is put among the schemas that are used: refused if it means something or looks like it, else in the notes."""
    assume(isinstance(schema, dict))
    schema = copy.deepcopy(schema)
    place = data.draw(st.sampled_from(list(subschemas(schema))))
    place[keyword] = 1
    if keyword in ("x-y", "order"):
        assert keyword in json_schema(schema).notes()[0]
        return
    with pytest.raises(UnsupportedKeyword, match=keyword):
        json_schema(schema)


def subschemas(schema):
    if isinstance(schema, dict):
        yield schema
        for part in [*schema.get("anyOf", []), schema.get("items"), *schema.get("properties", {}).values()]:
            yield from subschemas(part)


LOOP = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
INVALID = [
    ("{}", "dict"),
    (None, "dict"),
    ([], "dict"),
    ({"const": float("nan")}, "plain JSON"),
    ({1: 2}, "plain JSON"),
    ({"enum": ("a",)}, "tuples"),
    ({"const": {1, 2}}, "plain JSON"),
    ({"const": "\ud800"}, "surrogate"),
    ({"type": "text"}, "/type must be one of"),
    ({"type": 3}, "/type must be one of"),
    ({"type": "string", "minLength": -1}, "/minLength must be"),
    ({"type": "string", "minLength": 1.5}, "/minLength must be"),
    ({"type": "string", "maxLength": "3"}, "/maxLength must be"),
    ({"type": "string", "pattern": "("}, "at /pattern"),
    ({"type": "string", "pattern": r"(a)\1"}, r"back-reference.*at /pattern"),
    ({"type": "string", "pattern": 3}, "/pattern must be a string"),
    ({"type": "integer", "minimum": True}, "/minimum must be a number"),
    ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "/exclusiveMinimum must be a number"),
    ({"type": "array", "items": [STRING]}, "/items must be a schema"),
    ({"type": "array", "items": STRING, "uniqueItems": 1}, "/uniqueItems must be true or false"),
    ({"type": "object", "properties": []}, "/properties must be an object"),
    ({"type": "object", "properties": {}, "required": "a"}, "/required must be a list"),
    ({"type": "object", "properties": {}, "required": [3]}, "/required/0 must be"),
    ({"anyOf": STRING}, "/anyOf must be a list"),
    ({"enum": "ab"}, "/enum must be a list"),
    ({"$ref": "#/$defs/b", "$defs": {}}, "reference to a part"),
    ({"$ref": 3}, "must be a string"),
    ({"$ref": "#"}, "recursive.*# -> #;"),
    ({"$ref": "#/$defs/node", "$defs": {"node": LOOP}}, r"#/\$defs/node -> #/\$defs/node/properties/next -> #/\$defs/node"),
    ({"type": "array", "items": {"$ref": "#"}}, "# -> #/items -> #"),
]


@pytest.mark.parametrize(("schema", "message"), INVALID, ids=[str(number) for number in range(len(INVALID))])
def test_what_is_no_schema(schema, message):
    with pytest.raises(InvalidConstraint, match=message):
        json_schema(schema)


def test_too_deep():
    schema = STRING
    for _ in range(40):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidConstraint, match="deeper than 32"):
        json_schema(schema)
    json_schema(schema["items"]["items"]["items"]["items"]["items"]["items"]["items"]["items"]["items"]).automaton()


@pytest.mark.parametrize(
    ("option", "choices"), [("whitespace", "any, single"), ("order", "any, schema"), ("escapes", "minimal")]
)
def test_choices(option, choices):
    with pytest.raises(InvalidConstraint, match=f"{option}.*{choices}"):
        json_schema(STRING, **{option: "pretty"})


def test_too_large():
    many = {"type": "object", "properties": {f"property{number}": STRING for number in range(30)}}
    with pytest.raises(BudgetExceeded, match='order="schema"'):
        json_schema(many)
    assert accepts(json_schema(many, order="schema"), '{"property3": "", "property29": ""}')
    medium = {"type": "object", "properties": {f"property{number}": STRING for number in range(12)}}
    with pytest.raises(BudgetExceeded, match='order="schema"'):
        json_schema(medium).automaton()
    doubled = {"$defs": {str(n): {"type": "array", "items": {"$ref": f"#/$defs/{n + 1}"}, "minItems": 9} for n in range(12)}}
    doubled["$defs"]["12"] = STRING
    with pytest.raises(BudgetExceeded, match="maxItems"):
        json_schema({"$ref": "#/$defs/0", **doubled}).automaton()


def test_forms_omit_defaults():
    assert json_schema(STRING).to_json() == {"type": "json_schema", "schema": STRING}
    assert json_schema(STRING, order="schema").to_json() == {"type": "json_schema", "schema": STRING, "order": "schema"}


def test_without_jsonschema_one_is_told_what_to_install(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jsonschema" else found(name, *rest))
    with pytest.raises(MissingExtra, match=r"pip install 'locore\[json\]'"):
        json_schema(STRING)


def test_jsonschema_is_imported_when_it_is_needed():
    code = "import locore.constraints, sys; print('jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_words_that_the_standard_does_not_know_constrain_nothing_and_are_named():
    """As `jsonschema` reads them; the report says so."""
    schema = {
        "id": "top",
        "type": "string",
        "x-ui": 1,
        "_format": "date",
        "enumNames": ["a"],
        "maxLength": 1,
        "self": {"a/b": 1},
    }
    leaf = json_schema(schema)
    assert accepts(leaf, '"a"') and not accepts(leaf, '"ab"')
    (note,) = leaf.notes()
    assert "/x-ui, /_format, /enumNames, /self" in note and "/id" not in note and "maxLength" not in note
    many = json_schema({"type": "null", **{f"word {number}": 0 for number in range(9)}})
    assert "and 4 more" in many.notes()[0]
    assert json_schema({"type": "null"}).notes() == ()


def test_the_report_names_them():
    model = locore.load("tiny")
    p = locore.generate(model, "", json_schema({"type": "null", "x-ui": 1}, whitespace="compact"), 6, num_particles=2, seed=0)
    assert "/x-ui" in p.info["notes"][0] and "/x-ui" in p.report(full=True)
