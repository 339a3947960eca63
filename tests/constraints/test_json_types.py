"""`json_schema` of Python's types: every text is one that pydantic reads, and holds nothing that the type does not know."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import (
    UUID4,
    AnyUrl,
    Base64Bytes,
    Base64UrlBytes,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    IPvAnyAddress,
    RootModel,
    TypeAdapter,
    create_model,
)

import locore
from locore import json_schema
from locore.kernel.errors import UnsupportedKeyword
from tests.effort import some

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:  # what pydantic asks for
    from typing_extensions import TypedDict


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: int


class Named(BaseModel):
    first: int = Field(alias="First")


class Names(RootModel[list[Color]]):
    pass


class Nothing(BaseModel):
    pass


class Movie(TypedDict, total=False):
    year: int


@dataclass
class Weather:
    good: bool
    degrees: Annotated[float, Field(ge=-50, le=50)] = 0


TYPES: dict[str, Any] = {
    "uuid": UUID,
    "dict": dict[str, int],
    "dict of enum": dict[Color, bool],
    "tuple": tuple[int, str],
    "row": tuple[int, ...],
    "set": set[Color],
    "decimal": Decimal,
    "bounded decimal": Annotated[Decimal, Field(max_digits=4, decimal_places=2)],
    "any": Any,
    "bounds": Annotated[float, Field(gt=0, lt=1)],
    "multiple": Annotated[int, Field(multiple_of=5, ge=0, le=50)],
    "date": date,
    "date and time": datetime,
    "time": time,
    "duration": timedelta,
    "union": Annotated[Cat | Dog, Field(discriminator="kind")],
    "optional": int | None,
    "list": Annotated[list[int], Field(min_length=2, max_length=3)],
    "pattern": Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$", max_length=200)],
    "bytes": bytes,
    "path": Path,
    "address": IPv4Address,
    "url": HttpUrl,
    "any url": AnyUrl,
    "version 4": UUID4,
    "network": IPv4Network,
    "interface": IPv4Interface,
    "any address": IPvAnyAddress,
    "base 64": Base64Bytes,
    "base 64, for addresses": Base64UrlBytes,
    "integral decimal": Annotated[Decimal, Field(ge=0, max_digits=3, decimal_places=0)],
    "literal": Literal["a", 1, None],
    "recursive": Node,
    "alias": Named,
    "root": Names,
    "empty": Nothing,
    "typed dict": Movie,
    "dataclass": Weather,
}


@pytest.fixture(scope="module")
def tiny():
    return locore.load("tiny")


@pytest.mark.parametrize("name", some(TYPES, 24))
def test_every_text_is_read_by_pydantic(name, tiny):
    p = locore.generate(tiny, "", json_schema(TYPES[name], depth=4), 64, num_particles=4, sampler="masked", seed=0)
    assert len(p.parsed(TYPES[name])) == len(p) > 0


@pytest.mark.parametrize("model", [Cat, Node, Weather, Movie, Nothing, Named])
def test_objects_have_the_fields_of_their_type_and_no_others(model):
    leaf = json_schema(model)
    valid = {
        Cat: '{"kind":"cat","lives":9',
        Node: '{"value":1',
        Weather: '{"good":true',
        Movie: '{"year":1',
        Named: '{"First":1',
    }
    text = valid.get(model, "{")
    assert leaf.accepts(text.encode() + b"}")
    comma = "" if text == "{" else ","
    assert not leaf.accepts(f'{text}{comma}"other":1}}'.encode())
    TypeAdapter(model).validate_json(f'{text}{comma}"other":1}}')  # which pydantic would throw away


def test_a_type_can_ask_for_more():
    assert json_schema(Open).accepts(b'{"x":1,"other":[2]}')
    assert json_schema(Cat.model_json_schema()).accepts(b'{"kind":"cat","lives":9,"other":1}')  # a schema is what it says


def test_numbers_beyond_the_usual_and_names_that_are_keywords():
    assert json_schema(Annotated[int, Field(ge=2**60)]).accepts(str(2**61).encode())
    assert json_schema(Annotated[int, Field(le=-(2**60))]).accepts(str(-(2**61)).encode())
    assert not json_schema(int).accepts(str(2**53).encode())
    model = create_model("Keywords", const=(UUID4, ...), properties=(UUID4, ...))
    valid = '{"const":"%s","properties":"%s"}'
    first, other = "12345678-1234-4234-9234-123456789abc", "12345678-1234-1234-9234-123456789abc"
    assert json_schema(model).accepts((valid % (first, first)).encode())
    assert not json_schema(model).accepts((valid % (first, other)).encode())
    assert not json_schema(model).accepts((valid % (other, first)).encode())


def test_leap_seconds_are_those_of_schemas_and_not_of_types():
    leap, usual = b'"2016-12-31T23:59:60Z"', b'"2016-12-31T23:59:59Z"'
    assert json_schema({"type": "string", "format": "date-time"}).accepts(leap)
    assert json_schema(datetime).accepts(usual) and not json_schema(datetime).accepts(leap)
    assert json_schema(time).accepts(usual[:1] + usual[12:]) and not json_schema(time).accepts(leap[:1] + leap[12:])
    patterned = Annotated[datetime, Field(json_schema_extra={"pattern": "^2016"})]
    assert json_schema(patterned).accepts(usual) and not json_schema(patterned).accepts(usual.replace(b"2016", b"2017"))


def test_no_year_is_zero():
    for schema in (date, {"type": "string", "format": "date"}):
        assert json_schema(schema).accepts(b'"0001-01-01"') and json_schema(schema).accepts(b'"0004-02-29"')
        assert not json_schema(schema).accepts(b'"0000-01-01"') and not json_schema(schema).accepts(b'"0000-02-29"')


def test_a_set_without_end_is_refused():
    with pytest.raises(UnsupportedKeyword, match=r"a set in Python.*list"):
        json_schema(set[int])
