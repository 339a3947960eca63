"""Unions that a tag tells apart: made of types, of published schemas, and in place, against pydantic and `jsonschema`."""

from __future__ import annotations

import json
import random
import re
from enum import Enum
from typing import Annotated, Any, Literal, Union

import jsonschema
import pytest
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model

from locore.constraints import json_schema
from locore.kernel.errors import BudgetExceeded

from ..effort import THOROUGH, some
from .test_json_schema import written

UNIONS = 2_000 if THOROUGH else 4


class Unions:
    """Random unions of models by chance's choices."""

    def __init__(self, seed: int) -> None:
        self.rng, self.made = random.Random(seed), 0

    def type(self, depth: int = 1) -> Any:
        """A union, by itself, in a list or in a field."""
        union = self.union(depth, self.rng.choice(["kind", "type"]))
        return self.rng.choice([union, union, list[union], create_model("Holder", item=(union, ...), note=(str, "x"))])

    def union(self, depth: int, tag: str) -> Any:
        default, kinds = self.rng.random() < 0.5, self.kinds(self.rng.randint(2, 5))
        parts = [self.model(tag, values, default, depth) for values in kinds]
        if depth and self.rng.random() < 0.3:  # a union in a union, by the same tag
            parts.append(self.union(0, tag))
        return Annotated[Union[tuple(parts)], Field(discriminator=tag)]  # noqa: UP007

    def kinds(self, number: int) -> list[Any]:
        """For each variant the type of its tag."""
        self.made += 1
        names = [f"{self.made}{letter}" for letter in "abcdefghij"]
        style = self.rng.choice(["str", "int", "several", "enum"])
        if style == "str":
            return [Literal[name] for name in names[:number]]
        if style == "int":
            return [Literal[self.made * 100 + one] for one in range(number)]
        if style == "several":
            return [Literal[names[2 * one], names[2 * one + 1]] for one in range(number)]
        enum = Enum(f"Enum{self.made}", {f"e{name}": name for name in names}, type=str)  # type: ignore[misc]
        return [Literal[one] for one in list(enum)[:number]]

    def model(self, tag: str, values: Any, default: bool, depth: int) -> Any:
        self.made += 1
        first = values.__args__[0]
        fields: dict[str, Any] = {}
        for number in range(self.rng.randint(0, 4)):
            of = self.rng.choice([str, int, bool, float, list[int], Literal["u", "v"], int | None])
            if depth and self.rng.random() < 0.15:
                of = self.union(depth - 1, self.rng.choice(["kind", "type"]))
            alias = {"alias": f"A{number}"} if self.rng.random() < 0.2 else {}
            missing = self.rng.random() < 0.4 and of in (str, int, bool, float, int | None)
            fields[f"f{number}"] = (of, Field(default=None, **alias) if missing else Field(**alias))
        place = self.rng.randint(0, len(fields))
        items = list(fields.items())
        items.insert(place, (tag, (values, first if default else ...)))
        extra = {"extra": "forbid"} if self.rng.random() < 0.3 else {}
        return create_model(f"Model{self.made}", __config__=ConfigDict(**extra), **dict(items))  # type: ignore[call-overload]


def near_misses(value: Any, rng: random.Random) -> Any:
    """The same value with a part changed, at random."""
    if isinstance(value, list):
        return [near_misses(one, rng) for one in value] + ([rng.choice([1, {}])] if rng.random() < 0.1 else [])
    if not isinstance(value, dict):
        return rng.choice(["k", 7, None, value, value]) if rng.random() < 0.3 else value
    found = {name: near_misses(item, rng) for name, item in value.items()}
    if found and rng.random() < 0.3:
        found.pop(rng.choice(list(found)))
    if rng.random() < 0.1:
        found["other"] = 1
    return found


def reads(adapter: TypeAdapter[Any], text: str) -> bool:
    """Does pydantic read it?"""
    try:
        adapter.validate_json(text)
    except ValidationError:
        return False
    return True


def without(schema: Any, keyword: str) -> Any:
    """A schema without a keyword anywhere."""
    if isinstance(schema, list):
        return [without(one, keyword) for one in schema]
    return (
        {key: without(item, keyword) for key, item in schema.items() if key != keyword} if isinstance(schema, dict) else schema
    )


def written_compactly(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


@pytest.mark.parametrize("block", range(4))
def test_random_unions_against_pydantic_and_jsonschema(block):
    """Texts of the type are read by pydantic; those of its published schema, with and without `discriminator`, are valid, and
    all that has its tags is there; nearly valid texts are judged alike."""
    for number in range(UNIONS // 4):
        assert judged_alike(block * 1_000_000 + number) is None


def judged_alike(seed: int) -> str | None:
    """Of one random union; what is not judged alike."""
    rng, type_ = random.Random(seed), Unions(seed).type()
    adapter = TypeAdapter(type_)
    published = adapter.json_schema()
    leaves = {name: json_schema(one, whitespace="compact") for name, one in (("type", type_), ("published", published))}
    order = "any" if seed % 10 == 0 else "schema"  # in which what keeps another one from being valid has a place, too
    leaves["in place"] = json_schema(without(published, "discriminator"), whitespace="compact", order=order)
    leaves["closed"] = json_schema(published, whitespace="compact", objects="closed")
    validator = jsonschema.Draft202012Validator(published)
    machine = leaves["type"].read.reading()
    texts = [written(machine, rng, 60).decode() for _ in range(3)]
    values = [json.loads(text) for text in texts]
    if not all(reads(adapter, text) for text in texts):
        return f"{seed}: not read: {texts}"
    for value in [*values, *(near_misses(one, rng) for one in values for _ in range(3))]:
        text = written_compactly(value)
        if re.search(rb"[0-9]e[+-]?[0-9]", text):  # numbers have no exponents
            continue
        valid, read = validator.is_valid(value), reads(adapter, text.decode())
        taken = {name: leaf.accepts(text) for name, leaf in leaves.items()}
        is_left_out = any("left out" in note for note in leaves["in place"].notes())
        laws = {
            "what is taken of the type is read": not taken["type"] or read,
            "what is taken of its schema is valid, and has its tags": taken["published"]
            == (valid and has_tags(published, value)),
            "in place as well": taken["published"] <= taken["in place"] <= valid,
            "and without tags what is not too much": order == "schema" or taken["in place"] == valid or is_left_out,
            "a closed schema is that of the type": taken["closed"] == taken["type"],
        }
        if not all(laws.values()):
            return f"{seed}: {[law for law, holds in laws.items() if not holds]}: {text.decode()}"
    return None


def has_tags(schema: Any, value: Any) -> bool:
    """Has every object that a `discriminator` is about its tag? By walking along the schema, for values that are valid."""

    def walk(node: Any, item: Any) -> bool:
        if not isinstance(node, dict):
            return True
        if "$ref" in node:
            return walk(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], item)
        if "discriminator" in node:
            tag, mapping = node["discriminator"]["propertyName"], node["discriminator"].get("mapping", {})
            if tag not in item:
                return False
            chosen = mapping.get(str(item[tag]))
            return (
                walk({"$ref": chosen}, item)
                if chosen
                else all(walk(one, item) for one in node["oneOf"] if fits(one, item, tag))
            )
        ok = all(walk(part, item[name]) for name, part in node.get("properties", {}).items() if name in item)
        return ok and (not isinstance(item, list) or all(walk(node.get("items"), one) for one in item))

    def fits(node: Any, item: Any, tag: str) -> bool:
        return jsonschema.Draft202012Validator({**node, "$defs": schema["$defs"]}).is_valid(item)

    return walk(schema, value)


def many(variants: int, fields: int, default: bool) -> Any:
    """So many variants with so many required fields of their own."""
    models = [
        create_model(
            f"Model{one}",
            kind=(Literal[f"k{one}"], f"k{one}" if default else ...),  # type: ignore[valid-type]
            **{f"x{one}_{number}": (str, ...) for number in range(fields)},  # type: ignore[arg-type]
        )
        for one in range(variants)
    ]
    return Annotated[Union[tuple(models)], Field(discriminator="kind")]  # noqa: UP007


@pytest.mark.parametrize(("variants", "fields"), some([(4, 5), (140, 5), (5, 3), (6, 2), (80, 2)], several=True))
@pytest.mark.parametrize("default", [False, True])
def test_any_number_of_variants(variants, fields, default):
    type_ = many(variants, fields, default)
    published = TypeAdapter(type_).json_schema()
    rest = {f"x1_{number}": "" for number in range(fields)}
    for schema in (
        type_,
        published,
        without(published, "discriminator"),
        {"properties": {"a": published}, "$defs": published["$defs"]},
    ):
        leaf = json_schema(schema, objects="closed")
        inside = schema if isinstance(schema, dict) and "properties" in schema else None
        for value, valid in (({"kind": "k1", **rest}, True), (rest, False), ({"kind": "k2", **rest}, False)):
            assert leaf.accepts(written_compactly(value if inside is None else {"a": value})) == valid


def test_what_has_no_tag_is_apart():
    """By the standard; where that is too much to write out it is left out, and the report says so."""
    schema = {
        "oneOf": [
            {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["x"], "type": "object"},
            {"properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["y"], "type": "object"},
        ]
    }
    leaf = json_schema(schema, order="any")
    assert not leaf.notes()[1:]
    for value in ({"x": 1}, {"x": 1, "y": ""}, {"x": 1, "y": 1}, {"kind": "a", "x": 1, "y": 1}, {"kind": "c", "x": 1}, 1):
        assert leaf.accepts(written_compactly(value)) == jsonschema.Draft202012Validator(schema).is_valid(value), value
    large = without(TypeAdapter(many(6, 5, True)).json_schema(), "discriminator")
    assert "without 'kind'" in json_schema(large).notes()[-1]
    tagged = {**schema, "discriminator": {"propertyName": "kind"}}
    assert not json_schema(tagged).accepts(b'{"x":1}') and json_schema(tagged).accepts(b'{"kind":"a","x":1}')


def test_negated_unions_are_those_of_the_standard():
    """A tag that is demanded where a union is wanted must not let more through where it is not."""
    part = {"discriminator": {"propertyName": "k"}, "oneOf": []}
    for name in "abc":
        part["oneOf"].append({"properties": {"k": {"const": name}, name: {"type": "integer"}}, "required": [name]})
    told = {"not": {**part, "oneOf": part["oneOf"][:1], "unevaluatedProperties": False}}
    for schema in (
        {"not": part},
        {"if": part, "then": False},
        {"not": {**part, "anyOf": part["oneOf"]}, "type": "object"},
        told,
    ):
        leaf = json_schema(schema, order="any")
        for value in (
            {"a": 1},
            {"k": "a", "a": 1},
            {"k": "a"},
            {"k": "d", "a": 1},
            {"a": 1, "b": 1},
            {"k": "b", "a": 1},
            {},
            1,
        ):
            assert leaf.accepts(written_compactly(value)) == jsonschema.Draft202012Validator(schema).is_valid(value), value


def test_alternatives_without_a_tag_are_made_or_refused_at_once():
    def one(number: int, closed: bool) -> dict[str, Any]:
        names = [f"p{number}_{place}" for place in range(4)]
        more = {"additionalProperties": False} if closed else {}
        return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names, **more}

    many = 140 if THOROUGH else 40
    json_schema({"oneOf": [one(number, closed=True) for number in range(many)]})
    with pytest.raises(BudgetExceeded, match="tells them apart"):
        json_schema({"oneOf": [one(number, closed=False) for number in range(many)]})
