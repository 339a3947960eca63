"""JSON schemas as constraints: the whole text is a JSON value that is valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from reprlib import repr as shortened
from typing import Any
from typing import Literal as OneOf

from locore.automata.regex.language import Language
from locore.constraints.base import Json
from locore.constraints.json_schema.check import Check, require_jsonschema
from locore.constraints.json_schema.reader import language_of_schema
from locore.constraints.json_schema.texts import Style
from locore.constraints.regex import LanguageLeaf
from locore.constraints.serial import described, read_string, register
from locore.errors import InvalidConstraint

SAID = 5  # keywords without meaning that are named


def json_schema(
    schema: Mapping[str, Any] | bool,
    whitespace: OneOf["any", "single", "compact"] = "any",
    order: OneOf["any", "schema"] = "any",
    escapes: OneOf["any", "minimal"] = "any",
) -> JsonSchema:
    """The whole text is a JSON value that is valid for a schema (JSON Schema 2020-12).

    Every keyword of the standard is either honoured or refused; words that it does not know are named in the report. Four
    things are narrower than in the standard: objects have no properties but those that the schema lists; integers are written
    without fraction and exponent; numbers that the schema names are written without exponent and superfluous zeros; and nothing
    follows the value, so that a text is complete at its last bracket. The page docs/structured_text.md lists the keywords.

    Args:
        schema: as `json.loads` gives it.
        whitespace: "any": wherever JSON allows it, also before the value; "single": at most one space there; "compact": none.
        order: of the properties of objects: "any", which costs 2**n for n properties, or that of the "schema".
        escapes: in strings: "any" that JSON has; "minimal": what JSON demands, as Python's `json.dumps` writes it with
            `ensure_ascii=False`.

    Raises:
        UnsupportedKeyword: a keyword that is not supported; the message has its place, a JSON pointer.
        InvalidConstraint: no JSON schema, a recursive one, or an unknown choice.
        BudgetExceeded: too many properties in any order.
        MissingExtra: the library `jsonschema`, which checks results, is not installed.
    """
    if not isinstance(schema, Mapping | bool):
        raise InvalidConstraint(
            f"json_schema needs a schema as a dict, got {shortened(schema)}; read text with json.loads first"
        )
    try:
        text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
        text.encode()
        plain = json.loads(text) == schema
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidConstraint(f"json_schema needs a schema of plain JSON values: {error}") from error
    if not plain:
        raise InvalidConstraint("json_schema needs a schema of plain JSON values: dicts with string keys, lists, no tuples")
    require_jsonschema()
    leaf = JsonSchema(text, whitespace, order, escapes)
    leaf.language  # noqa: B018  (raises where the schema is not supported)
    return leaf


@dataclass(frozen=True, eq=False)
class JsonSchema(LanguageLeaf):
    """The whole text is valid for `schema`, which is kept as JSON text."""

    schema: str
    whitespace: str = "any"
    order: str = "any"
    escapes: str = "any"

    @cached_property
    def style(self) -> Style:
        """How values may be written."""
        return Style(self.whitespace, self.order, self.escapes)

    @cached_property
    def language(self) -> Language:
        """The valid texts."""
        return self._read[0]

    def notes(self) -> tuple[str, ...]:
        """Keywords that the standard does not know."""
        words = self._read[1]
        said = ", ".join(words[:SAID]) + (f" and {len(words) - SAID} more" if len(words) > SAID else "")
        return (
            (f"the JSON schema has keywords that the standard does not know, which constrain nothing: {said}",) if words else ()
        )

    @cached_property
    def _read(self) -> tuple[Language, list[str]]:
        return language_of_schema(json.loads(self.schema), self.style)

    @cached_property
    def _check(self) -> Check:
        return Check(json.loads(self.schema), self.style)

    def matches(self, text: str) -> bool:
        """Read by Python's `json` and judged by `jsonschema`."""
        return self._check.holds(text)

    def too_large(self) -> tuple[str, str]:
        """The schema, and cheaper ones."""
        return "the JSON schema", (
            'Pass order="schema" or escapes="minimal", or lower maxLength, maxItems or the number of properties; leaving '
            "maxLength and maxItems away is cheaper still."
        )

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "json_schema", "schema": {...}}`."""
        options = {field.name: getattr(self, field.name) for field in fields(Style)}
        given = {name: value for name, value in options.items() if value != "any"}
        return {"type": "json_schema", "schema": json.loads(self.schema), **given}


@described({"type": ["object", "boolean"]})
def _read_schema(value: Any, path: str) -> Any:
    return value


register(
    "json_schema",
    json_schema,
    {"schema": _read_schema},
    {"whitespace": read_string, "order": read_string, "escapes": read_string},
)
