"""The schemas of Python's types: pydantic models, dataclasses, TypedDicts, and whatever else pydantic knows."""

from __future__ import annotations

from functools import cache
from reprlib import repr as shortened
from typing import Any

from locore.constraints.json_schema.references import IPV6
from locore.kernel.errors import InvalidConstraint, MissingExtra

OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
# Simple addresses, none of a host that is set aside.
_LOCAL = r"[A-Za-z0-9]{1,20}(?:[._+-][A-Za-z0-9]{1,20}){0,2}"
EMAIL = rf"^(?!.*\.(?:alt|arpa|local|onion|test)$){_LOCAL}@(?:[a-z0-9]{{1,20}}\.){{1,3}}[a-z]{{2,6}}$"
DATA = ("default", "examples", "const", "enum")  # keywords whose values are no schemas
BY_NAME = ("properties", "patternProperties", "$defs")  # and those whose values are schemas by names, which may be keywords


def schema_of_type(model: Any) -> dict[str, Any]:
    """The schema of a type. What pydantic would read and throw away, fields that the type does not have, is not valid.

    Raises:
        InvalidConstraint: no type, or one that has no schema.
        UnsupportedKeyword: a type whose check no schema can say.
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
    from locore.constraints.json_schema.validated import schema_of

    try:
        schema = schema_of(pydantic.TypeAdapter(model))
    except pydantic.errors.PydanticUserError as error:
        raise InvalidConstraint(f"json_schema: pydantic has no JSON schema for {shortened(model)}: {error}") from error
    return _with_formats(schema)  # type: ignore[no-any-return]


def _with_formats(node: Any) -> Any:
    """The same schema, its formats as the standard or a pattern says them."""
    if isinstance(node, list):
        return [_with_formats(part) for part in node]
    if not isinstance(node, dict):
        return node
    schema = {key: value if key in DATA else _with_formats(value) for key, value in node.items() if key not in BY_NAME}
    schema |= {key: {name: _with_formats(part) for name, part in node[key].items()} for key in BY_NAME if key in node}
    name = schema.get("format")
    if isinstance(name, str) and name in formats():
        del schema["format"]
        schema["allOf"] = [*schema.get("allOf", ()), formats()[name]]
    return schema


@cache
def formats() -> dict[str, dict[str, Any]]:
    """Formats that are pydantic's own, or that it reads more narrowly."""
    from locore.constraints.json_schema.validated import formats_of_types

    interfaces = (
        {"pattern": rf"^{OCTET}(?:\.{OCTET}){{3}}(?:/(?:3[0-2]|[12]?\d))?$"},
        {"pattern": rf"^(?:{IPV6})(?:/(?:12[0-8]|1[01]\d|[1-9]?\d))?$"},
    )
    return {
        **formats_of_types(),
        **{f"uuid{version}": {"format": "uuid", "pattern": rf"^.{{14}}{version}.{{4}}[89abAB]"} for version in range(1, 9)},
        "email": {"pattern": EMAIL},
        "ipvanyaddress": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
        "ipv4network": {"pattern": _networks()},
        "ipv4interface": interfaces[0],
        "ipv6interface": interfaces[1],
        "ipvanyinterface": {"anyOf": list(interfaces)},
        "hexadecimal": {"pattern": "^(?:[0-9a-f]{2})*$"},
    }


def _networks() -> str:
    """Networks of IPv4: an address whose bits beyond the length of the prefix are zero."""
    ways = []
    for length in range(33):
        whole, bits = divmod(length, 8)
        parts = [OCTET] * whole
        if bits:
            parts.append(f"(?:{'|'.join(str(number) for number in range(0, 256, 2 ** (8 - bits)))})")
        parts += ["0"] * (4 - len(parts))
        ways.append(r"\.".join(parts) + f"/{length}")
    return f"^(?:{'|'.join(ways)})$"
