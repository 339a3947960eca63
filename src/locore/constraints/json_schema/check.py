"""Is a text valid for a JSON schema? Plainly, by Python's `json` and the `jsonschema` library: the check of the automata."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cached_property
from typing import Any

from locore.automata.regex.pattern import occurs_in, parse_ecma
from locore.constraints.json_schema.formats import is_of_format
from locore.constraints.json_schema.texts import WHITESPACE, Style, number_text
from locore.errors import MissingExtra

STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


class _Decimal(float):
    """A number with a fraction or an exponent, which remembers how it was written."""

    text: str


def require_jsonschema() -> None:
    """`MissingExtra` when the library is not installed."""
    if importlib.util.find_spec("jsonschema") is None:
        raise MissingExtra("json_schema checks its results with jsonschema; install it with: pip install 'locore[json]'")


class Check:
    """Judges texts.

    Args:
        schema: a JSON schema, as `json.loads` gives it.
        style: how values may be written.
    """

    def __init__(self, schema: Any, style: Style) -> None:
        self._schema = schema
        self._style = style

    def holds(self, text: str) -> bool:
        """Is this one valid value and no more, written in this style?"""
        try:
            value = json.loads(
                text,
                object_pairs_hook=_without_duplicates,
                parse_int=_integer,
                parse_float=_decimal,
                parse_constant=_no_number,
            )
        except (ValueError, RecursionError):
            return False
        return self._is_in_style(text) and bool(self._validator.is_valid(value))

    def _is_in_style(self, text: str) -> bool:
        if text[-1] in WHITESPACE or not all(map(_is_unicode, STRING.findall(text))):
            return False
        if self._style.escapes == "minimal" and any(
            json.dumps(json.loads(string), ensure_ascii=False) != string for string in STRING.findall(text)
        ):
            return False
        outside = STRING.sub('""', text)
        if self._style.whitespace == "compact":
            return not any(sign in outside for sign in WHITESPACE)
        return self._style.whitespace == "any" or not any(sign in outside for sign in ("\t", "\n", "\r", "  "))

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend

        types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
        rules = {
            "properties": self._properties,
            "pattern": _pattern,
            "format": _format,
            "const": lambda _, member, value, __: self._named([member], value),
            "enum": lambda _, members, value, __: self._named(members, value),
        }
        schema = self._schema
        if isinstance(schema, dict):  # what these name is not looked up anywhere
            schema = {keyword: content for keyword, content in schema.items() if keyword not in ("$schema", "$id")}
        return extend(Draft202012Validator, rules, type_checker=types)(schema)

    def _properties(self, validator: Any, properties: Any, value: Any, schema: Any) -> Iterator[Any]:
        """Only the listed properties, if asked for in their order, and with valid values."""
        if not isinstance(value, dict):
            return
        places = [list(properties).index(name) if name in properties else -1 for name in value]
        if -1 in places or (self._style.order == "schema" and places != sorted(places)):
            yield _error("other properties, or another order")
        for name in value.keys() & properties.keys():
            yield from validator.descend(value[name], properties[name], path=name, schema_path=name)

    def _named(self, members: list[Any], value: Any) -> Iterator[Any]:
        if not any(self._same(member, value) for member in members):
            yield _error("none of the values")

    def _same(self, member: Any, value: Any) -> bool:
        """Are they equal, numbers written in decimal notation without superfluous zeros?"""
        if isinstance(member, bool) or isinstance(value, bool) or isinstance(member, str) or member is None:
            return type(member) is type(value) and bool(member == value)
        if isinstance(member, int | float):
            text = value.text if isinstance(value, _Decimal) else str(value) if isinstance(value, int) else None
            return text == number_text(member)
        if isinstance(member, list):
            return isinstance(value, list) and len(value) == len(member) and all(map(self._same, member, value))
        if not isinstance(value, dict) or value.keys() != member.keys():
            return False
        in_order = self._style.order == "any" or list(value) == list(member)
        return in_order and all(self._same(member[name], value[name]) for name in member)


def _pattern(_: Any, pattern: str, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not occurs_in(parse_ecma(pattern), value):
        yield _error("the pattern does not occur")


def _format(_: Any, name: str, value: Any, __: Any) -> Iterator[Any]:
    if isinstance(value, str) and not is_of_format(name, value):
        yield _error("another format")


def _error(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a property occurs twice")
    return found


def _integer(text: str) -> int:
    return int(Decimal(text))  # unlike `int` without a limit on digits


def _decimal(text: str) -> _Decimal:
    number = _Decimal(text)
    number.text = text
    return number


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _is_unicode(string: str) -> bool:
    """A surrogate without its partner is no character."""
    return not any("\ud800" <= one <= "\udfff" for one in json.loads(string))
