"""Objects as people expect them, and one way to write them: closed objects, order, whitespace, whole numbers."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from locore.constraints import from_json, json_schema

from ..effort import THOROUGH, some
from .test_json_schema import written

NAMES = "abcd"
OPEN = {"order": "any", "whitespace": "compact"}


class Schemas:
    """Random compositions of objects."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def schema(self, depth: int = 2) -> dict[str, Any]:
        """Of properties, what is applied in the same place, and now and then a word on other properties."""
        rng, found = self.rng, {}
        if rng.random() < 0.8:
            names = rng.sample(NAMES, rng.randint(0, 2))
            found["properties"] = {name: self.value(depth) for name in names}
        if rng.random() < 0.3:
            found["required"] = rng.sample(NAMES, 1)
        if rng.random() < 0.15:
            word = rng.choice(["additionalProperties", "patternProperties"])
            found[word] = (
                {"^[cd]$": {"type": "integer"}} if word == "patternProperties" else rng.choice([True, {"type": "integer"}])
            )
        if depth and rng.random() < 0.5:
            word = rng.choice(["allOf", "anyOf", "oneOf", "if", "$ref", "dependentRequired", "minProperties"])
            if word in ("allOf", "anyOf", "oneOf"):
                found[word] = [self.schema(depth - 1) for _ in range(2)]
            elif word == "if":
                found |= {"if": {"required": ["a"]}, "then": self.schema(depth - 1), "else": self.schema(depth - 1)}
            else:
                found[word] = {"$ref": "#/$defs/one", "dependentRequired": {"a": ["b"]}, "minProperties": 1}[word]
        return {"type": "object", **found} if rng.random() < 0.8 or not found else found

    def value(self, depth: int) -> Any:
        return (
            self.schema(depth - 1)
            if depth and self.rng.random() < 0.3
            else self.rng.choice([{"type": "integer"}, {"const": 1}])
        )

    def object(self, depth: int = 2) -> Any:
        """A value that may be valid."""
        names = self.rng.sample(NAMES, self.rng.choice([0, 1, 1, 2, 2, 3]))
        return {
            name: self.object(depth - 1) if depth and self.rng.random() < 0.25 else self.rng.choice([1, 1, 2]) for name in names
        }


DEFS = {"one": {"properties": {"d": {"type": "integer"}}}}


def applied(schema: Any) -> list[list[Any]]:
    """All ways in which schemas can hold in one place: plain ones, without what is applied in place, and negations."""
    if isinstance(schema, bool):
        return [[schema]]
    own = {key: value for key, value in schema.items() if key not in ("allOf", "anyOf", "oneOf", "if", "then", "else", "$ref")}
    ways = [[own]]

    def joined(more: list[list[Any]]) -> list[list[Any]]:
        return [left + right for left, right in itertools.product(ways, more)]

    for part in [*schema.get("allOf", []), *([DEFS["one"]] if "$ref" in schema else [])]:
        ways = joined(applied(part))
    if "anyOf" in schema:
        ways = joined([way for part in schema["anyOf"] for way in applied(part)])
    if "oneOf" in schema:
        parts = schema["oneOf"]
        ways = joined(
            [[*way, *({"not": other} for other in parts if other is not part)] for part in parts for way in applied(part)]
        )
    if "if" in schema:
        yes = [left + right for left in applied(schema["if"]) for right in applied(schema["then"])]
        no = [[{"not": schema["if"]}, *way] for way in applied(schema["else"])]
        ways = joined([*yes, *no])
    return ways


def is_closed(schemas: list[Any], value: Any) -> bool:
    """Is a value valid for all of these schemas, with no property in any place but those that are listed there? Plainly."""
    return any(_way_holds(list(itertools.chain(*way)), value) for way in itertools.product(*map(applied, schemas)))


def _way_holds(way: list[Any], value: Any) -> bool:
    if not all(jsonschema.Draft202012Validator({"allOf": [one], "$defs": DEFS}).is_valid(value) for one in way):
        return False
    if not isinstance(value, dict):
        return True
    plain = [one for one in way if isinstance(one, dict) and set(one) != {"not"}]
    listing = [one for one in plain if "properties" in one]
    says = any(word in one for one in plain for word in ("additionalProperties", "patternProperties"))
    names = {name for one in plain for name in (*one.get("properties", ()), *one.get("required", ()))}
    names |= {name for one in plain for others in one.get("dependentRequired", {}).values() for name in others}
    least = max((one.get("minProperties", 0) for one in plain), default=0)
    if listing and not says and least <= len(names) and not set(value) <= names:
        return False
    for name, item in value.items():
        inside = [one["properties"][name] for one in plain if name in one.get("properties", ())]
        if not is_closed(inside, item):
            return False
    return True


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("block", range(4))
def test_closed_objects(block):
    """Against a plain reading: a value is valid in one way of all alternatives, in which its objects have what is listed."""
    some = 0
    for seed in range(block * 10_000, block * 10_000 + (250 if THOROUGH else 15)):
        made = Schemas(seed)
        schema = made.schema()
        leaf = json_schema({**schema, "$defs": DEFS}, objects="closed", **OPEN)
        loose = json_schema({**schema, "$defs": DEFS}, **OPEN)
        for value in (made.object() for _ in range(8)):
            wanted = is_closed([schema], value)
            assert leaf.accepts(compact(value)) == wanted, (seed, schema, value)
            assert loose.accepts(compact(value)) or not wanted
            some += wanted
    assert some > 10


def test_closing_parts_leaves_the_whole_satisfiable():
    parts = [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {"const": 2}}, "required": ["b"]}]
    schema = {
        "type": "object",
        "allOf": [*parts, {"$ref": "#/$defs/c"}],
        "required": ["z"],
        "$defs": {"c": {"properties": {"c": {}}}},
    }
    leaf = json_schema(schema, objects="closed", whitespace="compact")
    for text, taken in (
        ('{"a":1,"b":2,"z":0}', True),
        ('{"a":1,"b":2,"c":3,"z":0}', True),
        ('{"a":1,"b":2,"z":0,"x":1}', False),
    ):
        assert leaf.accepts(text.encode()) == taken, text
    for open_ in (
        {"type": "object"},
        True,
        {"additionalProperties": True, "properties": {"a": {}}},
        {"properties": {"a": {}}, "minProperties": 2},
    ):
        assert json_schema(open_, objects="closed").accepts(b'{"x":1,"y":2}')
    assert not json_schema({"properties": {}, "type": "object"}, objects="closed").accepts(b'{"x":1}')
    negated = json_schema({"properties": {"a": {}}, "not": {"required": ["b"]}}, objects="closed")
    assert negated.accepts(b'{"a":1}') and not negated.accepts(b'{"b":1}') and not negated.accepts(b'{"c":1}')
    assert json_schema({"properties": {"a": {}}, "enum": [{"a": 1, "b": 2}]}, objects="closed").accepts(b'{"a":1,"b":2}')


@pytest.mark.parametrize("seed", range(20))
def test_listed_properties_come_first_and_in_order(seed):
    rng = random.Random(seed)
    listed = rng.sample(NAMES, 3)
    schema = {"type": "object", "properties": {name: {} for name in listed}, "required": rng.sample(listed, rng.randint(0, 2))}
    leaf = json_schema(schema)
    for _ in range(20):
        names = rng.sample([*NAMES, "x", "y"], rng.randint(0, 5))
        places = [listed.index(name) if name in listed else 3 for name in names]
        wanted = places == sorted(places) and set(schema["required"]) <= set(names)
        assert leaf.accepts(compact(dict.fromkeys(names, 1))) == wanted, (schema, names)


def test_what_is_written_has_one_layout():
    """Random texts are what Python writes in one of three ways, behind a space at most."""
    schema = {
        "properties": {"a": {"type": "array", "items": {"enum": [1, "x y"]}}, "b": {"type": "object"}},
        "type": ["object", "array"],
    }
    leaf, machine, rng = json_schema(schema), json_schema(schema).read.reading(), random.Random(0)
    for _ in range(200):
        text = written(machine, rng).decode()
        if "." in text or "-0" in text:  # numbers that Python writes in another way
            continue
        value = json.loads(text)
        layouts = [json.dumps(value, ensure_ascii=False, **more) for more in ({}, {"indent": 2}, {"separators": (",", ":")})]
        assert text.removeprefix(" ") in layouts, text
        for place in (place for place, sign in enumerate(text) if sign in ",:[]{}" and text.count('"') == 0):
            other = f"{text[:place]} {text[place:]}"
            assert leaf.accepts(other.encode()) == (other.removeprefix(" ") in layouts), other
    for text in ('{"a" : [1] ,"b" : {}}', '{"a":[1], "b":{}}', '{"a": [1, 1,1]}', '  {"a":[]}', '{"a":[]} ', "{ }"):
        assert not leaf.accepts(text.encode()), text


WHOLE = [
    ({"type": "integer"}, ["0", "7", "-12"], ["7.0", "7.00", "-0", "1e2", "07", "7.5"]),
    ({"enum": [1, 2, 3]}, ["1", "3"], ["1.0", "4"]),
    ({"const": 7}, ["7"], ["7.00", "7.0"]),
    ({"const": 7.0}, ["7"], ["7.0"]),
    ({"enum": [1, 2.5, -0.0]}, ["1", "2.5", "0"], ["1.0", "2.50", "-0", "0.0"]),
    ({"type": "number", "multipleOf": 5}, ["10", "-5", "0"], ["10.0", "7", "7.5"]),
    ({"type": "number", "multipleOf": 0.5}, ["1", "1.5", "1.0"], ["1.25"]),
    ({"type": "number"}, ["1", "1.0", "1.50"], []),
    ({"type": ["integer", "string"], "minimum": 3}, ["3", '"3"'], ["3.0"]),
    ({"type": "number", "not": {"type": "integer"}}, ["1.5", "0.10"], ["1", "1.0"]),
    ({"type": "number", "not": {"const": 3}}, ["1", "1.0"], ["3", "3.0"]),
    ({"type": "integer", "$schema": "http://json-schema.org/draft-04/schema#"}, ["3"], ["3.0"]),
]


@pytest.mark.parametrize(("schema", "texts", "others"), WHOLE, ids=[str(number) for number in range(len(WHOLE))])
def test_whole_numbers_have_digits_alone(schema, texts, others):
    leaf, loose = json_schema(schema), json_schema(schema, integers="any")
    validator = jsonschema.Draft202012Validator({key: value for key, value in schema.items() if key != "$schema"})
    for text in [*texts, *others]:
        assert leaf.accepts(text.encode()) == (text in texts), text
        if "e" not in text and not text.startswith("07") and "$schema" not in schema:
            assert loose.accepts(text.encode()) == validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize("seed", some(range(50)))
def test_digits_change_no_value(seed):
    """The numbers are the same ones; just how whole ones are written is less."""
    rng = random.Random(seed)
    facts = {
        "minimum": rng.randint(-9, 3),
        "maximum": rng.randint(3, 30),
        "multipleOf": rng.choice([1, 2, 5]),
        "enum": [1, 4, 2.5, 10],
    }
    schema = {"type": rng.choice(["integer", "number"]), **{key: facts[key] for key in rng.sample(list(facts), 2)}}
    leaf, loose = json_schema(schema), json_schema(schema, integers="any")
    for number in [*range(-12, 32), 2.5, 0.5]:
        assert (
            leaf.accepts(str(number).encode())
            == loose.accepts(str(number).encode())
            == jsonschema.Draft202012Validator(schema).is_valid(number)
        )


def test_the_form_has_the_options():
    form = {
        "type": "json_schema",
        "schema": {},
        "whitespace": "spaced",
        "integers": "any",
        "objects": "closed",
        "escapes": "any",
    }
    assert from_json(form).to_json() == form
    assert from_json({"type": "json_schema", "schema": {}}) == json_schema({})
