"""Is a value valid for a JSON schema? Plainly, by Python's `json` and the `jsonschema` library: the check of the automata."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from locore.automata.regex.pattern import occurs_in, parse_ecma
from locore.constraints.json_schema.documents import Document
from locore.constraints.json_schema.formats import FORMATS, is_of_format
from locore.constraints.json_schema.scalars import matching
from locore.kernel.errors import MissingExtra
from locore.kernel.plugins import cached_property


def require_jsonschema() -> None:
    """`MissingExtra` when the library is not installed."""
    if importlib.util.find_spec("jsonschema") is None:
        raise MissingExtra("json_schema checks its results with jsonschema; install it with: pip install 'locore[json]'")


class Check:
    """Judges texts by their values; of a name that is written twice the last value counts, as in Python's `json`."""

    def __init__(self, schema: str, documents: str, formats: bool) -> None:
        """Of a schema as JSON text.

        Args:
            documents: that it refers to, by URI, as JSON text.
            formats: is `format` asserted?
        """
        self._schema, self._others = (json.loads(text, parse_float=Decimal) for text in (schema, documents))
        self._formats = formats

    def holds(self, text: str) -> bool:
        """Is this one valid value and no more?"""
        try:
            value = json.loads(text, parse_int=_integer, parse_float=Decimal, parse_constant=_no_number)
            return bool(self._validator.is_valid(value))
        except (ValueError, RecursionError):
            return False

    @cached_property
    def _validator(self) -> Any:
        import attrs
        import jsonschema
        from jsonschema.validators import extend

        document = Document(self._schema, self._others)
        names = {4: "Draft4Validator", 6: "Draft6Validator", 7: "Draft7Validator", 2019: "Draft201909Validator"}
        base = getattr(jsonschema, names.get(document.draft, "Draft202012Validator"))
        types = base.TYPE_CHECKER.redefine("number", _is_number)
        if document.draft > 4:
            types = types.redefine("integer", lambda _, value: _is_number(_, value) and value == int(value))
        rules: dict[str, Any] = {
            "multipleOf": _multiple_of,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "dependencies": _dependencies,  # which later drafts let a validator keep
            "format": _format if self._formats else _nothing,
        }
        if document.lenient:
            rules |= {"items": _items, "additionalItems": _nothing}
            rules |= {"exclusiveMinimum": _exclusive_minimum, "exclusiveMaximum": _exclusive_maximum}
        validator = extend(base, rules, type_checker=types)
        # Its own would go on with another validator below a `$schema` in a part.
        validator.evolve = lambda self, **changes: attrs.evolve(self, **changes)
        return validator(self._schema, registry=document.registry)


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _multiple_of(_: Any, of: Any, value: Any, __: Any) -> Iterator[Any]:
    if _is_number(_, value) and (Fraction(value) / Fraction(of)).denominator != 1:
        yield _error("no multiple")


def _occurs(pattern: str, text: str) -> bool:
    return occurs_in(parse_ecma(pattern), text)


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not _occurs(pattern, value):
        yield _error("the pattern does not occur")


def _pattern_properties(validator: Any, patterns: Any, value: Any, _: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for pattern, schema in patterns.items():
            for name, item in value.items():
                if _occurs(pattern, name):
                    yield from validator.descend(item, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, additional: Any, value: Any, schema: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        listed, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, item in value.items():
            if name not in listed and not any(_occurs(pattern, name) for pattern in patterns):
                yield from validator.descend(item, additional, path=name)


def _format(_: Any, name: str, value: Any, __: Any) -> Iterator[Any]:
    if not isinstance(value, str) or name not in FORMATS:
        return
    # Python's matcher goes back, and could take forever on regular expressions of regular expressions.
    if not (matching("format", name).accepts(value) if name == "regex" else is_of_format(name, value)):
        yield _error("another format")


def _nothing(_: Any, __: Any, ___: Any, ____: Any) -> Iterator[Any]:
    yield from ()


# What older drafts say, for schemas that name none.


def _dependencies(validator: Any, dependencies: Any, value: Any, _: Any) -> Iterator[Any]:
    for name, dependency in dependencies.items() if isinstance(value, dict) else ():
        if name in value:
            if isinstance(dependency, list):
                if not set(dependency) <= set(value):
                    yield _error("a property is missing")
            else:
                yield from validator.descend(value, dependency, schema_path=name)


def _items(validator: Any, items: Any, value: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(value, list):
        return
    first = items if isinstance(items, list) else schema.get("prefixItems", [])
    rest = schema.get("additionalItems", True) if isinstance(items, list) else items
    if isinstance(items, list):
        for place, (item, subschema) in enumerate(zip(value, items, strict=False)):
            yield from validator.descend(item, subschema, path=place, schema_path=place)
    for place, item in enumerate(value[len(first) :], len(first)):
        yield from validator.descend(item, rest, path=place)


def _exclusive_minimum(_: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
    limit = schema.get("minimum") if bound is True else bound
    if _is_number(_, value) and _is_number(_, limit) and value <= limit:
        yield _error("too small")


def _exclusive_maximum(_: Any, bound: Any, value: Any, schema: Any) -> Iterator[Any]:
    limit = schema.get("maximum") if bound is True else bound
    if _is_number(_, value) and _is_number(_, limit) and value >= limit:
        yield _error("too large")


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _integer(text: str) -> int:
    return int(Decimal(text))  # unlike `int` without a limit on digits


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")
