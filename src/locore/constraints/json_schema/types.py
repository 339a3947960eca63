"""The schemas of Python's types: pydantic models, dataclasses, TypedDicts, and whatever else pydantic knows."""

from __future__ import annotations

import re
from functools import lru_cache
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any

from locore.errors import InvalidConstraint, MissingExtra

if TYPE_CHECKING:
    from pydantic.json_schema import GenerateJsonSchema

# Of ISO 8601, as pydantic writes it: days, and a time. The standard's has no end to its numbers, and pydantic's has.
DURATION = r"^-?P(?=.)(?:\d{1,6}D)?(?:T(?=\d)(?:\d{1,2}H)?(?:\d{1,2}M)?(?:\d{1,2}(?:\.\d{1,6})?S)?)?$"
HOST = r"://[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z](?:[a-z0-9-]*[a-z0-9])?)*(?::[1-9]\d{0,3})?(?:[/?#]|$)"
# RFC 8259: whole numbers that all readers of JSON agree on. 1.0 is whole, and pydantic reads no long ones that are written so.
MOST_EXACT = 2**53 - 1
OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# Formats that are pydantic's own, or that it reads more narrowly: without leap seconds.
FORMATS: dict[str, dict[str, Any]] = {
    "time": {"format": "time", "pattern": "^.{6}[0-5]"},
    "date-time": {"format": "date-time", "pattern": "^.{17}[0-5]"},
    **{f"uuid{version}": {"format": "uuid", "pattern": rf"^.{{14}}{version}.{{4}}[89abAB]"} for version in range(1, 9)},
    "ipvanyaddress": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    "ipv4network": {"pattern": rf"^{OCTET}(?:\.{OCTET}){{3}}/32$"},
    "ipv4interface": {"pattern": rf"^{OCTET}(?:\.{OCTET}){{3}}(?:/(?:3[0-2]|[12]?\d))?$"},
    "base64": {"pattern": r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"},
    "base64url": {"pattern": r"^(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?$"},
}
DATA = ("default", "examples", "const", "enum")  # keywords whose values are no schemas
BY_NAME = ("properties", "patternProperties", "$defs")  # and those whose values are schemas by names, which may be keywords


def schema_of_type(model: Any) -> dict[str, Any]:
    """The schema of a type. What pydantic would read and throw away, fields that the type does not have, is not valid.

    Raises:
        InvalidConstraint: no type, or one that has no schema.
        MissingExtra: pydantic is not installed.
    """
    if model is None or isinstance(model, str | bytes | int | float | list | tuple | set):
        raise InvalidConstraint(
            f"json_schema needs a schema as a dict, or a type that pydantic knows, got {shortened(model)}; read text with "
            "json.loads first"
        )
    try:
        import pydantic
    except ImportError as error:
        raise MissingExtra("json_schema reads types with pydantic; install it with: pip install 'locore[json]'") from error
    try:
        found: dict[str, Any] = pydantic.TypeAdapter(model).json_schema(schema_generator=_generator())
    except pydantic.errors.PydanticUserError as error:
        raise InvalidConstraint(f"json_schema: pydantic has no JSON schema for {shortened(model)}: {error}") from error
    return _with_formats(found)  # type: ignore[no-any-return]


def _with_formats(node: Any) -> Any:
    """The same schema, its formats as the standard or a pattern says them."""
    if isinstance(node, list):
        return [_with_formats(part) for part in node]
    if not isinstance(node, dict):
        return node
    found = {key: value if key in DATA else _with_formats(value) for key, value in node.items() if key not in BY_NAME}
    found |= {key: {name: _with_formats(part) for name, part in node[key].items()} for key in BY_NAME if key in node}
    name = found.get("format")
    if isinstance(name, str) and name in FORMATS:
        del found["format"]
        found["allOf"] = [*found.get("allOf", ()), FORMATS[name]]
    return found


@lru_cache(maxsize=1)
def _generator() -> type[GenerateJsonSchema]:
    """Pydantic's own, but for what its schemas leave open and its validation does not."""
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
    from pydantic_core import core_schema

    class AsValidated(GenerateJsonSchema):
        def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
            return _closed(super().model_schema(schema))

        def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
            return _closed(super().dataclass_schema(schema))

        def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
            return _closed(super().typed_dict_schema(schema))

        def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
            found = super().int_schema(schema)
            low = found.get("minimum", found.get("exclusiveMinimum"))
            high = found.get("maximum", found.get("exclusiveMaximum"))
            below = {"minimum": -MOST_EXACT} if low is None and (high is None or high > -MOST_EXACT) else {}
            above = {"maximum": MOST_EXACT} if high is None and (low is None or low < MOST_EXACT) else {}
            return found | below | above

        def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
            return self.float_schema(schema) | _digits(schema.get("max_digits"), schema.get("decimal_places"))  # type: ignore[arg-type]

        def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
            return {"type": "string", "pattern": DURATION}

        def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
            schemes = schema.get("allowed_schemes")
            pattern = {"pattern": f"^(?:{'|'.join(map(re.escape, schemes))}){HOST}"} if schemes else {}
            return super().url_schema(schema) | pattern

    return AsValidated


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    is_open = "properties" in schema and "additionalProperties" not in schema
    return {**schema, "additionalProperties": False} if is_open else schema


def _digits(most: int | None, decimals: int | None) -> dict[str, Any]:
    """Bounds of a number of at most so many digits, so many of them decimals."""
    parts = [] if decimals is None else [{"multipleOf": float(f"1e-{decimals}")}]
    if most is not None:
        edge = 10 ** (most - (decimals or 0))
        parts.append({"exclusiveMinimum": -edge, "exclusiveMaximum": edge})
    return {"allOf": parts} if parts else {}
