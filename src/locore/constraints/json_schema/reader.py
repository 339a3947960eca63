"""From a JSON schema to the language of the texts whose value is valid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any

from locore.automata.regex.language import (
    ANY,
    ANY_CHAR,
    ANYTHING,
    EMPTY,
    Both,
    Concat,
    Language,
    Rewritten,
    either,
    literal,
    repeat,
)
from locore.automata.regex.parse import language_of
from locore.automata.regex.pattern import parse_ecma
from locore.constraints.json_schema.formats import FORMATS
from locore.constraints.json_schema.keywords import Subschema, resolve
from locore.constraints.json_schema.texts import (
    NUMBER,
    QUOTE,
    Property,
    Style,
    array,
    array_of_distinct,
    integers,
    object_,
    scalar,
    tuple_,
    written,
)
from locore.errors import InvalidConstraint

MAX_DEPTH = 32


def language_of_schema(schema: Any, style: Style) -> tuple[Language, list[str]]:
    """The JSON texts, with nothing after them, whose value is valid; and pointers of the keywords that say nothing of values.

    Raises:
        UnsupportedKeyword: a keyword is not supported, or not there; the message names its place.
        InvalidConstraint: no JSON schema, or a recursive one.
        BudgetExceeded: too many properties in any order.
    """
    reader = _Reader(schema, style)
    return Concat((style.space, reader.language(Subschema(schema)))), reader.meaningless


class _Reader:
    def __init__(self, schema: Any, style: Style) -> None:
        self._root = Subschema(schema)
        self._style = style
        self._open: list[str] = []  # pointers of the schemas that are being read
        self._known: dict[str, Language] = {}
        self.meaningless: list[str] = []

    def language(self, place: Subschema) -> Language:
        """The texts of the values that are valid for a part of the schema."""
        if place.pointer not in self._known:
            with self._reading(place):
                self._known[place.pointer] = self._language(place)
        return self._known[place.pointer]

    @contextmanager
    def _reading(self, place: Subschema) -> Iterator[None]:
        if place.pointer in self._open:
            cycle = [*self._open[self._open.index(place.pointer) :], place.pointer]
            raise InvalidConstraint(
                f"a recursive JSON schema is not supported: {' -> '.join('#' + pointer for pointer in cycle)}; write out the "
                "levels that you need"
            )
        if len(self._open) >= MAX_DEPTH:
            raise InvalidConstraint(f"a JSON schema is nested deeper than {MAX_DEPTH}, at {place.pointer}; make it flatter")
        self._open.append(place.pointer)
        yield
        self._open.pop()

    def _language(self, place: Subschema) -> Language:
        kind = place.kind()
        self.meaningless += [place.inside(keyword).pointer for keyword in place.meaningless()]
        if kind == "false":
            return EMPTY
        if kind == "$ref":
            return self.language(resolve(self._root, place))
        if kind == "anyOf":
            return either([self.language(one) for one in place.each("anyOf")])
        if kind in ("const", "enum"):
            return either([self._constant(value) for value in _listed(place)])
        return either([self._of_type(one, place) for one in place.types()])

    def _of_type(self, name: str, place: Subschema) -> Language:
        if name == "null":
            return literal("null")
        if name == "boolean":
            return either([literal("true"), literal("false")])
        if name == "number":
            return NUMBER
        if name == "integer":
            return integers(*place.integer_range())
        if name == "string":
            return self._string(place)
        return self._array(place) if name == "array" else self._object(place)

    def _string(self, place: Subschema) -> Language:
        least, most = place.count("minLength") or 0, place.count("maxLength")
        if most is not None and most < least:
            return EMPTY
        write = partial(written, escapes=self._style.escapes)
        asked: list[Language] = []
        if "pattern" in place:
            asked.append(Concat((ANYTHING, self._pattern(place), ANYTHING)))
        if "format" in place:
            asked.append(_of_format(place))
        if not asked:
            return Concat((QUOTE, repeat(write(ANY), least, most), QUOTE))
        if least or most is not None:
            asked.append(repeat(ANY_CHAR, least, most))
        return Concat((QUOTE, Rewritten(reduce(Both, asked), write), QUOTE))

    @staticmethod
    def _pattern(place: Subschema) -> Language:
        try:
            return language_of(parse_ecma(place.text("pattern")))
        except InvalidConstraint as error:
            raise InvalidConstraint(f"{error} (at {place.inside('pattern').pointer})") from error

    def _array(self, place: Subschema) -> Language:
        least, most = place.count("minItems") or 0, place.count("maxItems")
        if "items" not in place:
            if most != 0:
                place.refuse('an array without "items" may hold any values; say which, or "maxItems": 0', "type")
            return array(EMPTY, least, most, self._style)
        item = self.language(place.inside("items"))
        if not place.flag("uniqueItems"):
            return array(item, least, most, self._style)
        values = self._values(place.inside("items"))
        if values is None:
            place.refuse("it needs items of finitely many values: an enum, const, boolean, null, or anyOf these", "uniqueItems")
        members = [either([self._constant(value) for value in equals]) for equals in _groups_of_equals(values)]
        return array_of_distinct(members, least, most, self._style)

    def _object(self, place: Subschema) -> Language:
        if place.content.get("additionalProperties", False) is not False:
            place.refuse(
                "an automaton cannot remember all names that the schema does not list, so that duplicates would pass; list the "
                "properties and say false",
                "additionalProperties",
            )
        if "properties" not in place and "additionalProperties" not in place:
            place.refuse('an object without "properties" may have any; list them, or say "additionalProperties": false', "type")
        properties = place.inside("properties") if "properties" in place else Subschema({})
        if not isinstance(properties.content, dict):
            place.wrong("an object", "properties")
        required = [one.content for one in place.each("required")] if "required" in place else []
        for index, name in enumerate(required):
            if not isinstance(name, str):
                place.wrong("the name of a property", "required", index)
            if name not in properties:
                place.refuse(f'there is no schema for the property {name!r}; add one to "properties"', "required", index)
        values = [(name, self.language(properties.inside(name))) for name in properties.content]
        return object_([Property(name, value, name in required) for name, value in values], self._style)

    def _values(self, place: Subschema) -> list[Any] | None:
        """The finitely many values that are valid, perhaps with repetitions; None if there are more."""
        kind = place.kind()
        if kind == "$ref":
            return self._values(resolve(self._root, place))
        if kind in ("const", "enum"):
            return _listed(place)
        if kind == "anyOf":
            found = [self._values(one) for one in place.each("anyOf")]
            return None if None in found else [value for values in found for value in values or []]
        of_type: dict[str, list[Any]] = {"null": [None], "boolean": [True, False]}
        names = place.types() if kind == "type" else []
        return None if set(names) - set(of_type) else [value for name in names for value in of_type[name]]

    def _constant(self, value: Any) -> Language:
        """The texts of one value."""
        if isinstance(value, list):
            return tuple_([self._constant(item) for item in value], self._style)
        if isinstance(value, dict):
            return object_([Property(name, self._constant(item), True) for name, item in value.items()], self._style)
        return scalar(value, self._style)


def _of_format(place: Subschema) -> Language:
    name = place.text("format")
    if name not in FORMATS:
        place.refuse(f"the format {name!r} is none of {', '.join(FORMATS)}; say it by a pattern", "format")
    return language_of(parse_ecma(FORMATS[name]))


def _listed(place: Subschema) -> list[Any]:
    """The values of `const` or `enum`, without those that a `type` beside it excludes."""
    values = [place.content["const"]] if "const" in place else [one.content for one in place.each("enum")]
    if "type" not in place:
        return values
    return [value for value in values if any(_is_of_type(value, name) for name in place.types())]


def _groups_of_equals(values: Iterable[Any]) -> list[list[Any]]:
    """The distinct values, each with all that are equal to it: 1 and 1.0, or objects in another order."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(json.dumps(_normal(value), sort_keys=True), []).append(value)
    return list(groups.values())


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
