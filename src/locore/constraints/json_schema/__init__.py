"""JSON schemas as constraints: the whole text is a JSON value that is valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from typing import Any
from typing import Literal as OneOf

from locore.automata.pushdown import Follow, Measure, Pushdown
from locore.constraints.json_schema.check import Check, require_jsonschema
from locore.constraints.json_schema.places import missing
from locore.constraints.json_schema.reader import Schema, bytes_of
from locore.constraints.json_schema.style import Style
from locore.constraints.json_schema.types import schema_of_type
from locore.constraints.text_leaf import NestedLeaf
from locore.kernel.automata.tables import Automaton
from locore.kernel.constraints.constraint import Json, Places
from locore.kernel.constraints.sequence import TokenSequence
from locore.kernel.constraints.serial import described, read_integer, read_string, register
from locore.kernel.errors import BudgetExceeded, InvalidConstraint
from locore.kernel.limits import DEFAULT, limits_in_force
from locore.kernel.plugins import cached_property

SAID = 5  # keywords without meaning that are named
DEPTH = 16
MOST_STATES = 20_000  # of an automaton that is made as a whole, where the limits on states are the usual ones
SHALLOWEST, DEEPEST = 1, 64
FORMATS = ("asserted", "annotations")


def json_schema(
    schema: Mapping[str, Any] | bool | Any,
    whitespace: OneOf["consistent", "compact", "spaced", "indent", "single", "any"] = "consistent",
    order: OneOf["schema", "any"] = "schema",
    escapes: OneOf["minimal", "any"] = "minimal",
    depth: int = DEPTH,
    formats: OneOf["asserted", "annotations"] = "asserted",
    integers: OneOf["digits", "any"] = "digits",
    objects: OneOf["open", "closed"] = "open",
    documents: Mapping[str, Any] | None = None,
) -> JsonSchema:
    """The whole text is a JSON value that is valid for a schema (JSON Schema, drafts 4 to 2020-12, by `$schema`).

    Every keyword of the standard is either honoured or refused; words that it does not know are named in the report. These
    readings are narrower than the standard, and are part of what is asked of the model: arrays and objects nest `depth` deep at
    most, properties stand in the order of the schema, whitespace, escapes and whole numbers are as models usually write them,
    numbers have no exponent, and nothing follows the value, so that a text is complete at its last bracket. The page
    docs/structured_text.md lists the keywords.

    Args:
        schema: as `json.loads` gives it; or a pydantic model, a dataclass, a TypedDict, whose schema pydantic makes. Objects of
            such a type have its fields alone, unless its configuration says `extra="allow"`.
        whitespace: "compact": none; "spaced": one space behind each comma and colon, as `json.dumps` writes it; "indent": as
            `json.dumps(..., indent=2)`; "consistent": the whole text is one of these three, behind at most one space;
            "single": at most one space wherever JSON allows whitespace; "any" that JSON allows, also before the value.
        order: of the properties of objects: that of the "schema", and behind them any that it does not list; or "any".
        escapes: in strings: "minimal": those that JSON demands, as Python's `json.dumps` writes them with
            `ensure_ascii=False`; or "any" that JSON has.
        depth: how many arrays and objects may be inside each other.
        formats: is the keyword `format` "asserted", or are formats "annotations", which constrain nothing?
        integers: whole numbers, where the schema asks for such or names them, have "digits" alone: 7; or are written in "any"
            way: also 7.0, which is an integer by the standard, and none for many clients.
        objects: "closed": they have no properties but those that the schema lists, unless it says itself what others may be
            (`additionalProperties`, `patternProperties`, `unevaluatedProperties`) or lists none; "open": as by the standard,
            whatever the schema does not exclude.
        documents: other schemas that it refers to, by URI; nothing is fetched.

    Raises:
        UnsupportedKeyword: a keyword is not supported; the message has its place, a JSON pointer.
        InvalidConstraint: no JSON schema, or an unknown choice.
        BudgetExceeded: too many alternatives once `oneOf`, `not` and `if` are written out.
        MissingExtra: the library `jsonschema`, which checks results, is not installed.
    """
    style = Style(whitespace, order, escapes, integers, objects)
    if not isinstance(schema, Mapping | bool):
        schema = schema_of_type(schema)
        if integers == "any":
            raise InvalidConstraint(
                'integers="any" is for schemas: of a type whole numbers have digits alone, as it reads them'
            )
    text = _text(schema, "a schema")
    if not isinstance(depth, int) or isinstance(depth, bool) or not SHALLOWEST <= depth <= DEEPEST:
        raise InvalidConstraint(f"depth of json_schema must be a number from {SHALLOWEST} to {DEEPEST}, got {depth!r}")
    if formats not in FORMATS:
        raise InvalidConstraint(f"formats of json_schema must be one of {', '.join(FORMATS)}; got {formats!r}")
    require_jsonschema()
    if documents is not None and not isinstance(documents, Mapping):
        raise InvalidConstraint(f"documents of json_schema must be a dict of schemas by URI, got {type(documents).__name__}")
    leaf = JsonSchema(text, depth=depth, formats=formats, documents=_text(dict(documents or {}), "documents"), **vars(style))
    try:
        leaf.read.survey()
    except RecursionError as error:
        raise InvalidConstraint("the schema of json_schema, or a value in it, is nested too deep to be followed") from error
    return leaf


def _text(value: Any, what: str) -> str:
    """As JSON, from which an equal value is read."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
        plain = json.loads(text) == value
    except RecursionError as error:
        raise InvalidConstraint("the schema of json_schema is nested too deep to be read; name its parts with $defs") from error
    except (TypeError, ValueError) as error:
        raise InvalidConstraint(f"json_schema needs {what} of plain JSON values: {error}") from error
    if not plain:
        raise InvalidConstraint(f"json_schema needs {what} of plain JSON values: dicts with string keys, lists, no tuples")
    return text


@dataclass(frozen=True, eq=False)
class JsonSchema(NestedLeaf):
    """The whole text is valid for `schema`, which is kept as JSON text, as are the `documents` that it refers to."""

    schema: str
    whitespace: str = Style.whitespace
    order: str = Style.order
    escapes: str = Style.escapes
    depth: int = DEPTH
    formats: str = "asserted"
    integers: str = Style.integers
    objects: str = Style.objects
    documents: str = "{}"
    tables_mislead = True  # brackets that are open are further away than an n-gram sees

    @cached_property
    def _style(self) -> Style:
        return Style(**{field.name: getattr(self, field.name) for field in fields(Style)})

    @cached_property
    def read(self) -> Schema:
        """The schema, read."""
        return _read(self.schema, self.documents, self._style, self.depth, self.formats)

    @cached_property
    def _followed(self) -> Pushdown:
        return self.read.reading(bytes_of)

    @property
    def is_endless(self) -> bool:
        """Does the schema set no end to how deep values nest?"""
        return self.read.nests

    def follow(self) -> Follow:
        """Makes an automaton of the valid texts whose states are made when they are first reached; it can be pickled."""
        return partial(_reading, self.schema, self.documents, self._style, self.depth, self.formats)

    def automaton_within(self, most: int) -> Automaton:
        """The minimal automaton, if no more than so many states have to be looked at."""
        return self._followed.automaton(most)

    @cached_property
    def _automaton(self) -> Automaton:
        try:
            return self.automaton_within(MOST_STATES * limits_in_force().states // DEFAULT.states)
        except BudgetExceeded as error:
            raise BudgetExceeded(
                f"the JSON schema is too large: {error} Without a vtree it is followed state by state and can be of any size. "
                'Otherwise say objects="closed" and "maxLength"s, pass a smaller depth, or whitespace="spaced"; '
                "limits=Limits(states=...) allows more."
            ) from error

    def places(self) -> Places:
        """Where the schema lets something stand."""
        return self._missing

    def _missing(self, steps: tuple[str, ...]) -> list[str] | None:
        return missing(self.read, steps)

    def notes(self) -> tuple[str, ...]:
        """Keywords that constrain nothing, and how deep values may nest where the schema sets no end to it."""
        words = list(dict.fromkeys(self.read.remarks))
        said = ", ".join(words[:SAID]) + (f" and {len(words) - SAID} more" if len(words) > SAID else "")
        notes = []
        if words:
            notes.append(f"the JSON schema has keywords that the standard does not know, which constrain nothing: {said}")
        if self.read.nests:
            notes.append(
                f"arrays and objects nest {self.depth} deep at most, by depth= of json_schema; the schema sets no end to it"
            )
        left_out = list(dict.fromkeys(self.read.shapes.left_out))
        if left_out:
            notes.append(
                f"valid for the JSON schema and left out, as there are too many ways to be so: {'; '.join(left_out[:SAID])}; "
                "require the property, and all is said"
            )
        return tuple(notes)

    @cached_property
    def _check(self) -> Check:
        return Check(self.schema, self.documents, self.formats == "asserted")

    def accepts(self, text: bytes) -> bool:
        """Is it one of the texts? By the automaton, state by state."""
        return self._followed.accepts(text)

    def holds_on(self, sequence: TokenSequence, parts: list[bool]) -> bool:
        """The decoded text is read by Python's `json` and judged by `jsonschema`; and it is written as was asked for."""
        text = sequence.whole_text
        return text is not None and self._check.holds(text) and self.accepts(sequence.text)

    def json_of(self, parts: list[Json]) -> Json:
        """`{"type": "json_schema", "schema": {...}}`."""
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "schema"}
        usual = {field.name: field.default for field in fields(self) if field.name != "schema"}
        given = {name: value for name, value in options.items() if value != usual[name]}
        if "documents" in given:
            given["documents"] = json.loads(self.documents)
        return {"type": "json_schema", "schema": json.loads(self.schema), **given}


@lru_cache(maxsize=8)
def _read(schema: str, documents: str, style: Style, depth: int, formats: str) -> Schema:
    return Schema(json.loads(schema), json.loads(documents), style, depth, formats == "asserted")


def _reading(schema: str, documents: str, style: Style, depth: int, formats: str, measure: Measure) -> Pushdown:
    return _read(schema, documents, style, depth, formats).reading(measure)


@described({"type": ["object", "boolean"]})
def _read_schema(value: Any, path: str) -> Any:
    return value


@described({"type": "object", "additionalProperties": {"type": ["object", "boolean"]}})
def _read_documents(value: Any, path: str) -> Any:
    return value


register(
    "json_schema",
    json_schema,
    {"schema": _read_schema},
    {
        "whitespace": read_string,
        "order": read_string,
        "escapes": read_string,
        "depth": read_integer,
        "formats": read_string,
        "integers": read_string,
        "objects": read_string,
        "documents": _read_documents,
    },
)
