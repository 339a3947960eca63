"""Formulas that name values of JSON: equal to one, or to one of several."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from locore.constraints.json_schema.documents import is_number
from locore.constraints.json_schema.facts import (
    All,
    Formula,
    Goal,
    Has,
    ItemCount,
    Items,
    Kinds,
    Member,
    Names,
    NumberIn,
    Size,
    Some,
    StringIn,
)


def fraction(value: float | Decimal) -> Fraction:
    """A number of JSON as it is written."""
    return Fraction(Decimal(repr(value)) if isinstance(value, float) else value)


def constant(value: Any) -> Formula:
    """Equal to a value of JSON."""
    if value is None or isinstance(value, bool):
        return Kinds(frozenset({{None: "null", True: "true", False: "false"}[value]}))
    if isinstance(value, int | float | Decimal):
        return All((Kinds(frozenset({"number"})), NumberIn(frozenset({fraction(value)}))))
    if isinstance(value, str):
        return All((Kinds(frozenset({"string"})), StringIn(frozenset({value}))))
    if isinstance(value, list):
        items = [Items(place, place, Goal(constant(one))) for place, one in enumerate(value)]
        return All((Kinds(frozenset({"array"})), ItemCount(len(value), len(value)), *items))
    members = [Member(Names(name), Goal(constant(one))) for name, one in value.items()]
    return All((Kinds(frozenset({"object"})), Size(len(value), len(value)), *map(Has, value), *members))


def one_of(values: list[Any]) -> Formula:
    """Equal to one of these values; those that are no containers are taken together."""
    numbers = frozenset(fraction(one) for one in values if is_number(one))
    strings = frozenset(one for one in values if isinstance(one, str))
    kinds = {{None: "null", True: "true", False: "false"}[one] for one in values if one is None or isinstance(one, bool)}
    kinds |= {name for name, found in (("number", numbers), ("string", strings)) if found}
    facts = [*([NumberIn(numbers)] if numbers else []), *([StringIn(strings)] if strings else [])]
    ways: list[Formula] = [All((Kinds(frozenset(kinds)), *facts))] if kinds else []
    ways += [constant(one) for one in values if isinstance(one, list | dict)]
    return ways[0] if len(ways) == 1 else Some(tuple(ways))
