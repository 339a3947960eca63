"""What a JSON schema says and where. Every keyword is understood or refused with its place, a JSON pointer (RFC 6901)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, NoReturn
from urllib.parse import unquote

from locore.errors import InvalidConstraint, UnsupportedKeyword

# The vocabularies "core" and "meta-data" of JSON Schema 2020-12: words about the schema, which allow and forbid no value.
ANNOTATIONS = {
    *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "$defs", "definitions"),
    *("contentEncoding", "contentMediaType", "contentSchema"),
}
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
OF_TYPE: dict[str, tuple[str, ...]] = {
    "null": (),
    "boolean": (),
    "number": (),
    "integer": BOUNDS,
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
    "object": ("properties", "required", "additionalProperties"),
}
# What decides how a schema is read, and which keywords may stand beside it.
BESIDE: dict[str, tuple[str, ...]] = {"$ref": (), "anyOf": (), "const": ("type",), "enum": ("type",)}
SUPPORTED = {"type", *BESIDE, *(keyword for keywords in OF_TYPE.values() for keyword in keywords)}
# What a draft gives a meaning that is not understood here; "nullable" is OpenAPI's. Other words mean nothing by the standard.
ASSERTING = {
    *("multipleOf", "divisibleBy", "minProperties", "maxProperties", "patternProperties", "propertyNames", "nullable"),
    *("dependencies", "dependentRequired", "dependentSchemas", "prefixItems", "additionalItems", "contains", "minContains"),
    *("maxContains", "unevaluatedItems", "unevaluatedProperties", "allOf", "oneOf", "not", "if", "then", "else", "extends"),
    *("disallow", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"),
}
KNOWN = ANNOTATIONS | SUPPORTED | ASSERTING
SPELLED = {keyword.lower(): keyword for keyword in sorted(SUPPORTED | ASSERTING)}  # those with which a slip is compared
SIMILAR = 0.85  # of words, from which one is taken for a slip of the other


@dataclass(frozen=True)
class Subschema:
    """A part of a schema and its place.

    Attributes:
        content: what stands there.
        pointer: the JSON pointer from the top, "" for the whole schema.
    """

    content: Any
    pointer: str = ""

    def __contains__(self, keyword: str) -> bool:
        return keyword in self.content

    def inside(self, *steps: str | int) -> Subschema:
        """What stands at a key, or at a key of what stands there."""
        content, pointer = self.content, self.pointer
        for step in steps:
            content = content[step]
            pointer += "/" + str(step).replace("~", "~0").replace("/", "~1")
        return Subschema(content, pointer)

    def refuse(self, why: str, *steps: str | int) -> NoReturn:
        """Raise `UnsupportedKeyword` for what stands at a key."""
        pointer = self.inside(*steps).pointer
        keyword = f"{steps[0]!r} (at {pointer})" if steps else f"the schema at {pointer or 'the top'}"
        raise UnsupportedKeyword(f"json_schema does not support {keyword}: {why}")

    def wrong(self, wanted: str, *steps: str | int) -> NoReturn:
        """Raise `InvalidConstraint` for what stands at a key."""
        place = self.inside(*steps)
        raise InvalidConstraint(
            f"in a JSON schema {place.pointer or 'the top'} must be {wanted}, got {shortened(place.content)}"
        )

    # Values of keywords.

    def count(self, keyword: str) -> int | None:
        """A number of things; None if the keyword is not there."""
        if keyword not in self:
            return None
        value = self.content[keyword]
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
            self.wrong("a whole number of at least 0", keyword)
        return int(value)

    def bound(self, keyword: str) -> int | float | None:
        """A number; None if the keyword is not there."""
        if keyword not in self:
            return None
        value = self.content[keyword]
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong("a number", keyword)
        return value

    def integer_range(self) -> tuple[int | None, int | None]:
        """The least and the greatest integer within the bounds; None for no bound."""
        lows, highs = [], []
        if (bound := self.bound("minimum")) is not None:
            lows.append(math.ceil(bound))
        if (bound := self.bound("exclusiveMinimum")) is not None:
            lows.append(math.floor(bound) + 1)
        if (bound := self.bound("maximum")) is not None:
            highs.append(math.floor(bound))
        if (bound := self.bound("exclusiveMaximum")) is not None:
            highs.append(math.ceil(bound) - 1)
        return max(lows, default=None), min(highs, default=None)

    def flag(self, keyword: str) -> bool:
        """True or False; False if the keyword is not there."""
        value = self.content.get(keyword, False)
        if not isinstance(value, bool):
            self.wrong("true or false", keyword)
        return bool(value)

    def text(self, keyword: str) -> str:
        """A string."""
        value = self.content[keyword]
        if not isinstance(value, str):
            self.wrong("a string", keyword)
        return str(value)

    def each(self, keyword: str) -> Iterator[Subschema]:
        """The entries of a list."""
        if not isinstance(self.content[keyword], list):
            self.wrong("a list", keyword)
        return (self.inside(keyword, index) for index in range(len(self.content[keyword])))

    def types(self) -> list[str]:
        """The values of `type`, each once."""
        value = self.content["type"]
        found = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) and one in OF_TYPE for one in found):
            self.wrong(f"one of {', '.join(sorted(OF_TYPE))}, or a list of them", "type")
        return list(dict.fromkeys(found))

    # What kind of schema it is.

    def kind(self) -> str:
        """ "false", "$ref", "anyOf", "const", "enum" or "type"; every keyword is allowed there.

        Raises:
            UnsupportedKeyword: a keyword is not supported, there or at all, or nothing says what the value is.
            InvalidConstraint: no schema.
        """
        if self.content is False:
            return "false"
        if self.content is True or self.content == {}:
            self.refuse(ANY_VALUE)
        if not isinstance(self.content, dict):
            self.wrong("a schema: an object, true or false")
        for keyword in self.content:
            if keyword in ASSERTING:
                self.refuse("it is not among the keywords that Locore understands", keyword)
        self._check_words()
        for keyword in ("$id", "id"):
            if self.pointer and isinstance(self.content.get(keyword), str):
                self.refuse("below the top it changes what references mean", keyword)
        for kind in (*BESIDE, "type"):
            if kind in self:
                self._check_neighbours(kind)
                return kind
        for keyword in self.content:
            if keyword in SUPPORTED:
                self.refuse('without "type" it allows all values of other types', keyword)
        self.refuse(ANY_VALUE)

    def _check_neighbours(self, kind: str) -> None:
        if kind == "type":
            types = self.types()
            if "number" in types and (bound := next((one for one in BOUNDS if one in self), None)):
                self.refuse('bounds are supported for "type": "integer" only', bound)
            allowed = {"type", *(keyword for one in types for keyword in OF_TYPE[one])}
            why = f"it says nothing about {' or '.join(types)}"
        else:
            allowed = {kind, *BESIDE[kind]}
            why = f'beside "{kind}" it is not understood'
        for keyword in self.content:
            if keyword in SUPPORTED and keyword not in allowed:
                self.refuse(why, keyword)

    def meaningless(self) -> list[str]:
        """Keywords to which no draft gives a meaning, so that they are remarks by the standard."""
        words = self.content if isinstance(self.content, dict) else {}
        return [keyword for keyword in words if keyword not in KNOWN and keyword != "id"]

    def _check_words(self) -> None:
        """Refuse what is probably a slip: a word without meaning that looks like one with meaning."""
        for keyword in self.meaningless():
            near = get_close_matches(keyword.lower(), SPELLED, 1, SIMILAR)
            if near and not keyword.startswith(("_", "x-")):
                self.refuse(f"the standard has no such keyword; is {SPELLED[near[0]]!r} meant?", keyword)


ANY_VALUE = (
    'it allows any JSON value, and values can be nested without end, which no automaton can follow; say the "type", and for '
    'objects the "properties", for arrays the "items"'
)


def resolve(root: Subschema, place: Subschema) -> Subschema:
    """What the `$ref` of a schema refers to.

    Raises:
        UnsupportedKeyword: it refers to another document, or by an anchor.
        InvalidConstraint: nothing is there.
    """
    reference = place.text("$ref")
    if reference != "#" and not reference.startswith("#/"):
        place.refuse(f"{reference!r} is no JSON pointer into this schema, such as #/$defs/name", "$ref")
    found = root
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found.content, dict) and key in found.content:
            found = found.inside(key)
        elif isinstance(found.content, list) and key.isdecimal() and int(key) < len(found.content):
            found = found.inside(int(key))
        else:
            place.wrong("a reference to a part of the schema that exists", "$ref")
    return found
