"""Types that pydantic knows: it reads what is made of them, it writes what is among it, and what no schema says is refused."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import random
import re
import uuid
import zoneinfo
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import pydantic
import pytest
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, create_model

from locore.constraints import from_json, json_schema
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword

from ..effort import THOROUGH, some
from .test_json_schema import written

TEXTS = 200 if THOROUGH else 6
UTC, EAST = dt.UTC, dt.timezone(dt.timedelta(hours=5, minutes=30))
WHEN = dt.datetime(2022, 3, 5, 16, 58, 51)
STRICT = ConfigDict(strict=True)


class Size(enum.IntEnum):
    S = 1
    L = 20


class Level(enum.Enum):
    LOW = "low"
    NUMBER = 7
    NOTHING = None


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: float = 0.5


Strict = create_model(
    "Strict", __config__=STRICT, n=(int, ...), x=(float, ...), s=(str, ...), b=(bool, ...), when=(dt.date, ...)
)
Odd = create_model("Odd", size=(Size, Size.S), level=(Level, ...), at=(pydantic.NaiveDatetime | None, None))
Strips = create_model("Strips", __config__=ConfigDict(str_strip_whitespace=True, str_min_length=2), a=(str, ...))
Coded = create_model("Coded", __config__=ConfigDict(val_json_bytes="base64", ser_json_bytes="base64"), a=(bytes, ...))
Hexed = create_model("Hexed", __config__=ConfigDict(val_json_bytes="hex", ser_json_bytes="hex"), a=(bytes, ...))

# Types, and values that pydantic is to write.
TYPES: dict[str, tuple[Any, list[Any]]] = {
    "naive": (pydantic.NaiveDatetime, [WHEN, WHEN.replace(microsecond=120)]),
    "aware": (pydantic.AwareDatetime, [WHEN.replace(tzinfo=UTC), WHEN.replace(tzinfo=EAST)]),
    "datetime": (dt.datetime, [WHEN, WHEN.replace(tzinfo=EAST)]),
    "time": (dt.time, [dt.time(10), dt.time(10, 0, 1, 5), dt.time(10, tzinfo=UTC)]),
    "date": (dt.date, [dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    "bounded date": (Annotated[dt.date, Field(ge=dt.date(2019, 12, 30), lt=dt.date(2021, 3, 2))], [dt.date(2020, 7, 1)]),
    "timedelta": (dt.timedelta, [dt.timedelta(0), dt.timedelta(days=3, seconds=5), dt.timedelta(-2, 1, 7)]),
    "int": (int, [0, -7, 2**53 - 1]),
    "strict int": (pydantic.StrictInt, [5]),
    "positive": (pydantic.PositiveInt, [1]),
    "strict float": (pydantic.StrictFloat, [1.5, 2.0]),
    "finite": (pydantic.FiniteFloat, [0.25]),
    "bool": (pydantic.StrictBool, [True]),
    "decimal": (decimal.Decimal, [decimal.Decimal("12.50"), decimal.Decimal(-3)]),
    "strict decimal": (Annotated[decimal.Decimal, pydantic.Strict()], [decimal.Decimal("0.1")]),
    "price": (Annotated[decimal.Decimal, Field(ge=0, max_digits=6, decimal_places=2)], [decimal.Decimal("999.90")]),
    "fraction": (fractions.Fraction, [fractions.Fraction(1, 3), fractions.Fraction(-4)]),
    "complex": (complex, [1 + 2j, -0.5j]),
    "dict of int": (dict[int, str], [{1: "x", -20: ""}]),
    "dict of natural": (dict[pydantic.NonNegativeInt, int], [{0: 1}]),
    "dict of float": (dict[float, int], [{1.5: 1, -2.0: 2}]),
    "dict of bool": (dict[bool, int], [{True: 1}]),
    "dict of date": (dict[dt.date, int], [{dt.date(2020, 1, 2): 1}]),
    "dict of uuid": (dict[uuid.UUID, int], [{uuid.UUID(int=5): 1}]),
    "dict of literal": (dict[Literal["a", "b"], int], [{"a": 1}]),
    "dict of colour": (dict[Colour, int], [{Colour.RED: 1}]),
    "dict of pattern": (dict[Annotated[str, Field(pattern="^[a-z]{2}$")], int], [{"ab": 1}]),
    "dict of dict": (dict[str, dict[int, bool]], [{"a": {3: True}}]),
    "counter": (collections.Counter[str], [collections.Counter("aab")]),
    "ordered": (collections.OrderedDict[str, int], [collections.OrderedDict(a=1)]),
    "deque": (collections.deque[int], [collections.deque([1, 2])]),
    "frozenset": (frozenset[bool], [frozenset([True])]),
    "sequence": (Sequence[str], [["a"]]),
    "named tuple": (Point, [Point(1, 2.5)]),
    "enum of int": (Size, [Size.L]),
    "mixed enum": (Level, [Level.LOW, Level.NUMBER, Level.NOTHING]),
    "literal": (Literal[1, "a", True, None], [1, "a", True, None]),
    "literal of enum": (Literal[Colour.RED], [Colour.RED]),
    "union": (int | str | None, [3, "x", None]),
    "stripped": (Annotated[str, Field(min_length=1), pydantic.StringConstraints(strip_whitespace=True)], ["a b"]),
    "stripped by configuration": (Strips, [Strips(a="ab")]),
    "lower": (Annotated[str, pydantic.StringConstraints(to_lower=True, max_length=5)], ["abc"]),
    "bytes": (Annotated[bytes, Field(min_length=1, max_length=3)], [b"abc"]),
    "bytes in base 64": (Coded, [Coded.model_construct(a=b"abcd")]),
    "bytes in hexadecimal": (Hexed, [Hexed.model_construct(a=b"\xff\x00")]),
    "base 64": (pydantic.Base64Bytes, []),
    "text in base 64": (pydantic.Base64Str, []),
    "text in base 64, for addresses": (pydantic.Base64UrlStr, []),
    "secret": (pydantic.SecretStr, []),
    "uuid 1": (pydantic.UUID1, []),
    "uuid": (uuid.UUID, [uuid.UUID(int=2**100)]),
    "address": (ipaddress.IPv6Address, [ipaddress.ip_address("2001:db8::1")]),
    "network": (ipaddress.IPv4Network, [ipaddress.ip_network("192.168.4.0/22"), ipaddress.ip_network("0.0.0.0/0")]),
    "interface": (ipaddress.IPv6Interface, [ipaddress.ip_interface("2001:db8::1/32")]),
    "any interface": (pydantic.IPvAnyInterface, [ipaddress.ip_interface("10.0.0.1/8")]),
    "url": (pydantic.HttpUrl, [pydantic.HttpUrl("https://example.org/a?b=1")]),
    "socket": (pydantic.WebsocketUrl, []),
    "database": (pydantic.PostgresDsn, []),
    "store": (pydantic.RedisDsn, []),
    "bytes, how many": (pydantic.ByteSize, [pydantic.ByteSize(1024)]),
    "json": (pydantic.JsonValue, [{"a": [1, None]}]),
    "strict model": (Strict, [Strict(n=1, x=0.5, s="a", b=True, when=dt.date(2020, 1, 1))]),
    "odd model": (Odd, [Odd(size=Size.L, level=Level.LOW, at=WHEN), Odd(level=Level.NUMBER)]),
}


@pytest.mark.parametrize("name", some(TYPES, 4))
def test_read_and_written_by_pydantic(name):
    """Random texts are read; what is written for values is a text."""
    type_, values = TYPES[name]
    adapter, leaf, rng = TypeAdapter(type_), json_schema(type_, order="any", depth=4), random.Random(name)
    assert from_json(leaf.to_json()) == leaf
    machine = leaf.read.reading()
    for most in (5, 30):
        for _ in range(TEXTS):
            text = written(machine, rng, most)
            try:
                adapter.validate_json(text)
            except ValidationError as error:
                raise AssertionError(f"{text.decode()} is not read: {error}") from error
    for value in values:
        text = adapter.dump_json(value, by_alias=True)
        assert leaf.accepts(text), text.decode()


REFUSED = {
    "PastDate": pydantic.PastDate,
    "FutureDate": pydantic.FutureDate,
    "PastDatetime": pydantic.PastDatetime,
    "FutureDatetime": pydantic.FutureDatetime,
    "datetime with bounds": Annotated[dt.datetime, Field(gt=WHEN)],
    "time with bounds": Annotated[dt.time, Field(gt=dt.time(3))],
    "timedelta with bounds": Annotated[dt.timedelta, Field(gt=dt.timedelta(3))],
    "FilePath": pydantic.FilePath,
    "DirectoryPath": pydantic.DirectoryPath,
    "NewPath": pydantic.NewPath,
    "ImportString": pydantic.ImportString,
    "Json": pydantic.Json[int],
    "Pattern": re.Pattern,
    "ZoneInfo": zoneinfo.ZoneInfo,
    "IPv6Network": ipaddress.IPv6Network,
    "IPvAnyNetwork": pydantic.IPvAnyNetwork,
    "a class": type[int],
    "dict with such keys": dict[tuple[int, int], str],
    "of the type int": dict[Annotated[int, Field(gt=5)], str],
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("inside", [False, True])
def test_what_no_schema_can_say_is_refused_by_name(name, inside):
    type_ = REFUSED[name]
    with pytest.raises(UnsupportedKeyword, match=name):
        json_schema(create_model("Holder", x=(type_ | None, None)) if inside else type_)


def test_unions_whose_tags_json_cannot_have_are_refused():
    one = create_model("One", kind=(Literal["a"], ...))
    two = create_model("Two", kind=(Literal["b"], ...))
    tagged = Annotated[Annotated[one, pydantic.Tag("a")] | Annotated[two, pydantic.Tag("b")], pydantic.Discriminator(str)]
    with pytest.raises(UnsupportedKeyword, match="by a function"):
        json_schema(tagged)
    one = create_model("One", kind=(Literal[Level.LOW], ...))
    two = create_model("Two", kind=(Literal[Level.NUMBER], ...))
    with pytest.raises(UnsupportedKeyword, match="Enum that is not one of str or int"):
        json_schema(Annotated[one | two, Field(discriminator="kind")])


TABLE = [
    (pydantic.NaiveDatetime, '"2022-03-05T16:58:51Z"', False),
    (pydantic.NaiveDatetime, '"2022-03-05T16:58:51"', True),
    (dt.datetime, '"2022-03-05T16:58:51"', True),
    (dt.time, '"10:00:00"', True),
    (dict[int, str], '{"a":"x"}', False),
    (dict[int, str], '{"12":"x"}', True),
    (pydantic.StrictInt, "7.0", False),
    (Strict, '{"n":7.0,"x":1,"s":"","b":true,"when":"2020-01-01"}', False),
]


@pytest.mark.parametrize(("type_", "text", "taken"), TABLE, ids=[str(number) for number in range(len(TABLE))])
def test_texts(type_, text, taken):
    assert json_schema(type_).accepts(text.encode()) == taken


def test_whole_numbers_of_types_have_digits():
    with pytest.raises(InvalidConstraint, match="digits alone"):
        json_schema(int, integers="any")
