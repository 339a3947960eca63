"""Laws of deep input: it is read or refused with an error, and what the error says is true."""

from __future__ import annotations

import pytest

import locore
from locore.kernel.errors import InvalidConstraint

DEEP = {
    "array": lambda inner: {"type": "array", "items": inner},
    "object": lambda inner: {"type": "object", "properties": {"a": inner}, "required": ["a"]},
    "anyOf": lambda inner: {"anyOf": [inner, {"type": "null"}]},
    "not": lambda inner: {"not": inner},
}


def nested(wrap, number, inner):
    """One within the other."""
    for _ in range(number):
        inner = wrap(inner)
    return inner


@pytest.mark.parametrize("name", DEEP)
def test_deep_schemas(name):
    locore.json_schema(nested(DEEP[name], 30, {"type": "integer"}))
    with pytest.raises(InvalidConstraint, match="deep"):
        locore.json_schema(nested(DEEP[name], 3000, {"type": "integer"}))


@pytest.mark.parametrize("number", [300, 3000])
def test_deep_values(number):
    with pytest.raises(InvalidConstraint, match="deep"):
        locore.json_schema({"const": nested(lambda inner: [inner], number, 1)})


def test_deep_references():
    chain = {f"r{number}": {"$ref": f"#/$defs/r{number + 1}"} for number in range(150)} | {"r150": {"type": "integer"}}
    with pytest.raises(InvalidConstraint, match="more than 64 deep"):
        locore.json_schema({"$ref": "#/$defs/r0", "$defs": chain})


def test_deep_calls_in_a_regular_expression():
    """A group with a call of the one before, and so on: as long as what they write."""
    assert locore.regex("(a)" + "".join(f"((?{number}))" for number in range(1, 20))).matches("a" * 20)
    with pytest.raises(InvalidConstraint, match=r"nested too deeply|characters, with its calls"):
        locore.regex("(a)" + "".join(f"((?{number}))" for number in range(1, 3000)))
