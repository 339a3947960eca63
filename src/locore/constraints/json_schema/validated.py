"""Pydantic's schemas of types, but for what they leave open and its validation does not; what none can say is refused by name.

Needs pydantic; `types.py` imports it when a type is met.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from datetime import date
from typing import Any, NoReturn

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from locore.constraints.json_schema.formats import CLOCK, DATE, OFFSET
from locore.kernel.errors import UnsupportedKeyword

# RFC 8259: whole numbers that all readers of JSON agree on.
MOST_EXACT = 2**53 - 1
NATURAL = r"(?:0|[1-9]\d{0,14})"
DECIMALS = r"(?:\.\d{1,15})?"
# Of ISO 8601, as pydantic writes it: days, and a time. The standard's has no end to its numbers, and pydantic's has.
DURATION = r"^-?P(?=.)(?:\d{1,6}D)?(?:T(?=\d)(?:\d{1,2}H)?(?:\d{1,2}M)?(?:\d{1,2}(?:\.\d{1,6})?S)?)?$"
HOST = r"://[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z](?:[a-z0-9-]*[a-z0-9])?)*(?::[1-9]\d{0,3})?(?:[/?#]|$)"
ZONES = {"naive": "", "aware": OFFSET, None: f"(?:{OFFSET})?"}
BOUNDS = ("lt", "le", "gt", "ge")
EDGES = r"^(?:[^\s\u0085](?:[\s\S]*[^\s\u0085])?)?$"  # without white space, which would be stripped before anything is checked
OWN = {  # validators of pydantic's own that check what is not in the schema
    "import_string": "ImportString",
    "validate_new": "NewPath",
    "validate_file": "FilePath",
    "validate_directory": "DirectoryPath",
    "pattern_either_validator": "re.Pattern",
    "pattern_str_validator": "re.Pattern",
    "pattern_bytes_validator": "re.Pattern",
    "validate_str_is_valid_iana_tz": "ZoneInfo",
    "ip_v6_network_validator": "IPv6Network",
    "IPvAnyNetwork._validate": "IPvAnyNetwork",
}


def refused(what: str, why: str) -> NoReturn:
    """A type that is not taken."""
    raise UnsupportedKeyword(
        f"json_schema does not support {what} as a type: {why}; take another type for what the model writes, check it behind "
        "with the type that you want, or add predicate(...)"
    )


class AsValidated(GenerateJsonSchema):
    """Schemas whose texts pydantic reads."""

    # Objects have the fields of their type alone.

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Closed."""
        return _closed(super().model_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """Closed."""
        return _closed(super().dataclass_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Closed."""
        return _closed(super().typed_dict_schema(schema))

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """With a tag that JSON can have; `discriminator` says that it is demanded."""
        keywords = super().tagged_union_schema(schema)
        if "discriminator" not in keywords:
            refused("a union by a function or by several tags", "what decides between its members is not in its schema")
        if not all(isinstance(tag, str | int) for tag in schema["choices"]):
            refused("a union by an Enum that is not one of str or int", "pydantic finds none of its tags in JSON")
        return keywords

    def _common_dict_schema(self, schema: Any) -> JsonSchemaValue:
        keywords = super()._common_dict_schema(schema)
        return _with_keys(keywords, schema)

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        """With names that can be read as the type of its keys."""
        return _with_keys(super().dict_schema(schema), schema)

    # Numbers.

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Within what all readers of JSON agree on, where nothing else is said."""
        keywords = super().int_schema(schema)
        low = keywords.get("minimum", keywords.get("exclusiveMinimum"))
        high = keywords.get("maximum", keywords.get("exclusiveMaximum"))
        below = {"minimum": -MOST_EXACT} if low is None and (high is None or high > -MOST_EXACT) else {}
        above = {"maximum": MOST_EXACT} if high is None and (low is None or low < MOST_EXACT) else {}
        return keywords | below | above

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number, or its text, as pydantic writes it, where no bound is to be kept."""
        most, places = schema.get("max_digits"), schema.get("decimal_places")
        number = self.float_schema(schema) | _digits(most, places)  # type: ignore[arg-type]
        low, high = schema.get("ge", schema.get("gt")), schema.get("le", schema.get("lt"))
        if high is not None or (low is not None and (low != 0 or "gt" in schema)) or "multiple_of" in schema:
            return number
        whole = 15 if most is None else most - (places or 0)
        before = rf"(?:0|[1-9]\d{{0,{whole - 1}}})" if whole > 0 else "0"
        behind = 15 if places is None and most is None else 0 if places is None else places
        after = rf"(?:\.\d{{1,{behind}}})?" if behind else ""
        return {"anyOf": [number, {"type": "string", "pattern": f"^{'' if low == 0 else '-?'}{before}{after}$"}]}

    def fraction_schema(self, schema: Any) -> JsonSchemaValue:
        """As text, as pydantic writes it."""
        _refuse_bounds(schema, "a Fraction with bounds")
        return {"type": "string", "pattern": rf"^-?{NATURAL}(?:/[1-9]\d{{0,14}})?$"}

    def complex_schema(self, schema: core_schema.ComplexSchema) -> JsonSchemaValue:
        """As text, as pydantic writes it."""
        return {"type": "string", "pattern": rf"^(?:-?{NATURAL}{DECIMALS}[+-]|-?){NATURAL}{DECIMALS}j$"}

    # Texts.

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Without white space that is stripped before the rest is checked."""
        keywords = super().str_schema(schema)
        strips = schema.get("strip_whitespace", self._config.config_dict.get("str_strip_whitespace"))
        if strips and ("minLength" in keywords or "pattern" in keywords):
            keywords["allOf"] = [{"pattern": EDGES}]
        return keywords

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Written as the configuration says; lengths are those of bytes."""
        keywords, written = super().bytes_schema(schema), self._config.config_dict.get("val_json_bytes", "utf8")
        bounded = "min_length" in schema or "max_length" in schema
        if written != "utf8":
            if bounded:
                refused("bytes in base 64 or hexadecimal with a length", "the length is that of what is decoded")
            return {"type": "string", "format": "base64url" if written == "base64" else "hexadecimal"}
        return keywords | ({"pattern": r"^[\x00-\x7f]*$"} if bounded else {})

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """With a host, and one of the schemes."""
        schemes = schema.get("allowed_schemes")
        pattern = {"pattern": f"^(?:{'|'.join(map(re.escape, schemes))}){HOST}"} if schemes else {}
        return super().url_schema(schema) | pattern

    def multi_host_url_schema(self, schema: core_schema.MultiHostUrlSchema) -> JsonSchemaValue:
        """With one host."""
        return self.url_schema(schema) | {"format": "uri"}  # type: ignore[arg-type]

    # Times.

    def date_schema(self, schema: core_schema.DateSchema) -> JsonSchemaValue:
        """Within its bounds."""
        _refuse_now(schema, "Date")
        patterns = [_bounded(schema[bound], bound) for bound in BOUNDS if bound in schema]  # type: ignore[literal-required]
        return {"type": "string", "format": "date", **({"allOf": patterns} if patterns else {})}

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """With a time zone or without one, as the type demands; either, where it does not care."""
        _refuse_now(schema, "Datetime")
        _refuse_bounds(schema, "a datetime with bounds")
        return {"type": "string", "format": f"date-time of types, {_zone(schema)}"}

    def time_schema(self, schema: core_schema.TimeSchema) -> JsonSchemaValue:
        """The same of a time of the day."""
        _refuse_bounds(schema, "a time with bounds")
        return {"type": "string", "format": f"time of types, {_zone(schema)}"}

    def timedelta_schema(self, schema: core_schema.TimedeltaSchema) -> JsonSchemaValue:
        """As pydantic writes it."""
        _refuse_bounds(schema, "a timedelta with bounds")
        return {"type": "string", "pattern": DURATION}

    # What no schema says.

    def json_schema(self, schema: core_schema.JsonSchema) -> JsonSchemaValue:
        """Refused."""
        refused("Json", "what is inside of the text is not in its schema")

    def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> JsonSchemaValue:
        """Refused."""
        refused("a class", "it is nothing that JSON can hold")

    def function_after_schema(self, schema: core_schema.AfterValidatorFunctionSchema) -> JsonSchemaValue:
        """A number of bytes is written as one."""
        if _name_of(schema).startswith("ByteSize"):
            return {"type": "integer", "minimum": 0, "maximum": MOST_EXACT}
        return super().function_after_schema(schema)


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


def _with_keys(keywords: dict[str, Any], schema: Any) -> dict[str, Any]:
    """An object whose names are texts of keys."""
    keys = schema.get("keys_schema", {"type": "any"})
    while "schema" in keys and keys["type"] in ("default", "function-after", "function-before", "function-wrap"):
        keys = keys["schema"]
    kind, bounds = keys["type"], {name for name in (*BOUNDS, "multiple_of", "max_digits", "decimal_places") if name in keys}
    if kind == "int" and bounds <= {"ge"} and keys.get("ge", 0) == 0:
        names: dict[str, Any] = {"pattern": f"^{'' if bounds else '(?:-(?!0))?'}{NATURAL}$"}
    elif kind in ("float", "decimal") and not bounds:
        names = {"pattern": f"^-?{NATURAL}{DECIMALS}$"}
    elif kind == "bool":
        names = {"enum": ["true", "false"]}
    elif kind in ("int", "float", "decimal", "none", "tuple", "list", "set", "model", "union", "nullable"):
        refused("a dict with such keys", f"names of properties cannot be said to be of the type {kind} with what it demands")
    elif "patternProperties" in keywords:  # which would leave other names open
        keywords = {**keywords, "additionalProperties": next(iter(keywords["patternProperties"].values()))}
        names = {"pattern": next(iter(keywords.pop("patternProperties")))}
        names |= {word: keys[key] for word, key in (("minLength", "min_length"), ("maxLength", "max_length")) if key in keys}
    else:
        return keywords
    return {**keywords, "propertyNames": names}


def _bounded(edge: date, bound: str) -> dict[str, str]:
    """Dates from one on, or up to one."""
    text, up = edge.isoformat(), bound in ("gt", "ge")
    ways = [text] if bound in ("le", "ge") else []
    for place, digit in enumerate(text):
        others = "".join(map(str, range(int(digit) + 1, 10) if up else range(int(digit)))) if digit != "-" else ""
        if others:
            ways.append(f"{text[:place]}[{others}]")
    return {"pattern": f"^(?:{'|'.join(ways)})"} if ways else {"pattern": r"^(?!.)."}


def _zone(schema: Any) -> str:
    zone = schema.get("tz_constraint")
    if zone not in ZONES:
        refused("a time at one offset", "its schema does not say which")
    return str(zone)


def _refuse_now(schema: Any, name: str) -> None:
    if "now_op" in schema:
        refused(f"{schema['now_op'].capitalize()}{name}", "what it takes depends on the day on which it is read")


def _refuse_bounds(schema: Any, what: str) -> None:
    if any(bound in schema for bound in BOUNDS):
        refused(what, "no keyword says it")


def _name_of(schema: Any) -> str:
    """Of the function of a validator, if it is one of pydantic's own."""
    function = schema["function"]["function"]
    return (
        str(getattr(function, "__qualname__", "")) if str(getattr(function, "__module__", "")).startswith("pydantic.") else ""
    )


def schema_of(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    """The schema of a type, with formats that `types.py` knows.

    Raises:
        UnsupportedKeyword: what pydantic checks of it is in no schema.
    """
    names = set(_functions(adapter.core_schema))
    for function, name in OWN.items():
        if function in names:
            refused(name, "what it checks is not in its schema")
    schema = adapter.json_schema(schema_generator=AsValidated)
    return _of_texts(schema) if "EncodedStr.decode_str" in names else schema


def _functions(schema: Any) -> Iterator[str]:
    """The names of pydantic's own validators anywhere in a type."""
    todo = [schema]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if isinstance(part.get("function"), dict):
                name = _name_of(part)
                yield from (name, name.rsplit(".", 1)[-1])
            todo += part.values()
        elif isinstance(part, list | tuple):
            todo += part


def _of_texts(node: Any) -> Any:
    """With texts in base 64 that are ASCII once they are decoded."""
    if isinstance(node, list):
        return [_of_texts(part) for part in node]
    if not isinstance(node, dict):
        return node
    name = node.get("format")
    more = {"format": f"{name} of ASCII"} if name in ("base64", "base64url") else {}
    return {key: _of_texts(value) for key, value in node.items()} | more


def formats_of_types() -> dict[str, dict[str, Any]]:
    """Formats of the schemas above, as patterns."""
    formats: dict[str, dict[str, Any]] = {}
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits
    for name, alphabet in (("base64", letters + "+/"), ("base64url", letters + "-_")):
        formats[name] = {"pattern": _base64(alphabet, 0xFF)}
        formats[f"{name} of ASCII"] = {"pattern": _base64(alphabet, 0x7F)}
    for zone, pattern in ZONES.items():
        formats[f"time of types, {zone}"] = {"pattern": f"^{CLOCK}{pattern}$"}
        formats[f"date-time of types, {zone}"] = {"pattern": f"^{DATE}T{CLOCK}{pattern}$"}
    return formats


def _base64(alphabet: str, most: int) -> str:
    """Base 64 of bytes that are `most` at most, 0x7F or 0xFF; what is left over at the end is zero."""

    def letters(free: int, high: int) -> str:
        chosen = [char for number, char in enumerate(alphabet) if not number & ~free and not (most < 0x80 and number & high)]
        return f"[{''.join(chosen).replace('-', chr(92) + '-')}]"

    first, second, third = letters(0x3F, 0x20), letters(0x3F, 0x08), letters(0x3F, 0x02)
    end = f"(?:{first}{letters(0x30, 0)}==|{first}{second}{letters(0x3C, 0)}=)?"
    return f"^(?:{first}{second}{third}{letters(0x3F, 0)})*{end}$"
