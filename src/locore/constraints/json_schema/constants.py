"""Values that a schema names, in `const` and `enum`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from locore.constraints.json_schema.keywords import Subschema


def listed(place: Subschema) -> list[Any]:
    """The values of `const` or `enum`, without those that a `type` beside it excludes."""
    values = [place.content["const"]] if "const" in place else [one.content for one in place.each("enum")]
    if "type" not in place:
        return values
    return [value for value in values if any(_is_of_type(value, name) for name in place.types())]


def groups_of_equals(values: Iterable[Any]) -> list[list[Any]]:
    """The distinct values, each with all that are equal to it: 1 and 1.0, or objects in another order."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(json.dumps(_normal(value), sort_keys=True), []).append(value)
    return list(groups.values())


def number_text(value: int | float) -> str:
    """A number in decimal notation, without exponent and superfluous zeros; whole floats are integers."""
    return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")


def _normal(value: Any) -> Any:
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, dict):
        return {name: _normal(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_of_type(value: Any, name: str) -> bool:
    if name in ("integer", "number"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and (name == "number" or value == int(value))
    kinds: dict[str, type] = {"null": type(None), "boolean": bool, "string": str, "array": list, "object": dict}
    return isinstance(value, kinds[name])
