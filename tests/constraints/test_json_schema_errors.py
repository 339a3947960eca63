"""`json_schema`: what is refused is named with its place, and nothing is ignored."""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import locore
from locore.constraints import json_schema
from locore.kernel.errors import BudgetExceeded, InvalidConstraint, MissingExtra, UnsupportedKeyword

from .bytewise import accepts
from .schemas import schemas

STRING = {"type": "string"}
NESTED = {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "integer", "multipleOf": 5}}}}
UNSUPPORTED = [
    ({"type": "string", "format": "idn-hostname"}, "'format' (at /format)"),
    ({"$ref": "other.json"}, "'$ref' (at /$ref)"),
    ({"properties": {"x": {"$ref": "https://example.com/x"}}}, "'$ref' (at /properties/x/$ref)"),
    ({"type": "array", "items": STRING, "uniqueItems": True}, "'uniqueItems' (at /uniqueItems)"),
    ({"not": {"type": "array", "uniqueItems": True}}, "'uniqueItems' (at /not/uniqueItems)"),
    ({"type": "string", "maxLenght": 3}, "is 'maxLength' meant?"),
    ({"type": "string", "OneOf": []}, "is 'oneOf' meant?"),
    ({"type": "object", "properties": {"a/b~": {"nullable": True}}}, "(at /properties/a~1b~0/nullable)"),
    ({"extends": STRING}, "'extends' (at /extends)"),
    ({"$schema": "http://json-schema.org/draft-03/schema#"}, "'$schema' (at /$schema)"),
    ({"$schema": 3}, "'$schema' (at /$schema)"),
]


@pytest.mark.parametrize(("schema", "place"), UNSUPPORTED, ids=[place for _, place in UNSUPPORTED])
def test_no_keyword_is_ignored(schema, place):
    with pytest.raises(UnsupportedKeyword) as caught:
        json_schema(schema)
    assert place in str(caught.value)


@given(schemas(), st.sampled_from(["mxLength", "x-y", "order"]), st.data())
def test_a_keyword_anywhere_is_refused_or_named(schema, keyword, data):
    """Wherever it is put: refused if it looks like one that means something, else in the notes."""
    assume(isinstance(schema, dict))
    schema = copy.deepcopy(schema)
    place = data.draw(st.sampled_from([one for one in subschemas(schema) if isinstance(one, dict)]))
    assume("$ref" not in place)
    place[keyword] = 1
    if keyword in ("x-y", "order"):
        assert any(keyword in note for note in json_schema(schema).notes()) or keyword not in json.dumps(schema)
        return
    with pytest.raises(UnsupportedKeyword, match=keyword):
        json_schema(schema)


def subschemas(schema):
    if isinstance(schema, dict):
        yield schema
        for part in [*schema.get("anyOf", []), schema.get("items"), *schema.get("properties", {}).values()]:
            yield from subschemas(part)


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
    (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "minimum": 3, "exclusiveMinimum": True},
        "/exclusiveMinimum must be a number",
    ),
    ({"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [STRING]}, "/items must be a schema"),
    ({"type": "array", "items": STRING, "uniqueItems": 1}, "/uniqueItems must be true or false"),
    ({"type": "object", "properties": []}, "/properties must be an object"),
    ({"type": "object", "properties": {}, "required": "a"}, "/required must be a list of strings"),
    ({"type": "object", "properties": {}, "required": [3]}, "/required must be a list of strings"),
    ({"anyOf": STRING}, "/anyOf must be a list"),
    ({"enum": "ab"}, "/enum must be a list"),
    ({"$ref": "#/$defs/b", "$defs": {}}, "reference to a part"),
    ({"$ref": 3}, "must be a string"),
    ({"$ref": "#"}, "refers to itself"),
    ({"allOf": [{"anyOf": [{"$ref": "#"}]}]}, "refers to itself"),
    ({"multipleOf": 0}, "/multipleOf must be a number above 0"),
    ({"properties": {"a": 3}}, "/properties/a must be a schema"),
    ({"dependentRequired": {"a": [1]}}, "/dependentRequired/a must be a list of strings"),
]


@pytest.mark.parametrize(("schema", "message"), INVALID, ids=[str(number) for number in range(len(INVALID))])
def test_what_is_no_schema(schema, message):
    with pytest.raises(InvalidConstraint, match=message):
        json_schema(schema)


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("whitespace", "compact, spaced"),
        ("order", "schema, any"),
        ("formats", "annotations"),
        ("escapes", "minimal"),
        ("integers", "digits, any"),
        ("objects", "open, closed"),
    ],
)
def test_choices(option, choices):
    with pytest.raises(InvalidConstraint, match=f"{option}.*{choices}"):
        json_schema(STRING, **{option: "pretty"})


@pytest.mark.parametrize("depth", [0, 65, 1.5, True, "3"])
def test_depths(depth):
    with pytest.raises(InvalidConstraint, match="depth"):
        json_schema(STRING, depth=depth)


def test_large_schemas_are_taken():
    """Their states are made when a text gets there."""
    many = {
        "type": "object",
        "properties": {f"property{number}": STRING for number in range(30)},
        "additionalProperties": False,
    }
    for order in ("any", "schema"):
        leaf = json_schema(many, order=order)
        assert leaf.accepts(b'{"property3":"","property29":""}')
        assert leaf.accepts(b'{"property29":"","property3":""}') == (order == "any")
    nested = {"$defs": {str(n): {"type": "array", "items": {"$ref": f"#/$defs/{n + 1}"}, "minItems": 9} for n in range(12)}}
    nested["$defs"]["12"] = STRING
    with pytest.raises(BudgetExceeded, match="too large"):
        json_schema({"$ref": "#/$defs/0", **nested}).automaton()
    long = json_schema({"type": "string", "maxLength": 2000})
    assert long.accepts(b'"' + b"a" * 2000 + b'"') and not long.accepts(b'"' + b"a" * 2001 + b'"')


def test_too_many_alternatives():
    parts = [{"not": {"required": [name], "properties": {name: {"minLength": 3, "pattern": "a"}}}} for name in "abcdefghijkl"]
    with pytest.raises(BudgetExceeded, match="alternatives at"):
        json_schema({"allOf": parts})


def test_forms_omit_defaults():
    assert json_schema(STRING).to_json() == {"type": "json_schema", "schema": STRING}
    assert json_schema(STRING, order="any").to_json() == {"type": "json_schema", "schema": STRING, "order": "any"}


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
