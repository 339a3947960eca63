"""Constraints from JSON. `type` is the name of a public function, the fields its parameters.

A new type is one call of `register` in the file that defines it; nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, TypeVar

from locore.constraints.base import Constant, Constraint, conjunction, disjunction, negation
from locore.constraints.structure import MAX_DEPTH
from locore.errors import InvalidConstraint, UnsupportedKeyword

Reader = Callable[[Any, str], Any]  # a value and where it stands -> the argument
CONSTRAINT, VERTEX = "Constraint", "Vertex"  # what schemas call a constraint, and a vertex of a graph
R = TypeVar("R", bound=Reader)
_SCHEMAS: dict[Reader, dict[str, Any]] = {}


@dataclass(frozen=True)
class _Kind:
    """How one type is built: the readers of its fields, and a function of what they give."""

    build: Callable[..., Constraint]
    required: dict[str, Reader]
    optional: dict[str, Reader]


_KINDS: dict[str, _Kind] = {}


def register(
    name: str,
    build: Callable[..., Constraint],
    required: dict[str, Reader] | None = None,
    optional: dict[str, Reader] | None = None,
) -> None:
    """Teach `from_json` the type `name`: `build(field=..., ...)` gets the fields that are given."""
    _KINDS[name] = _Kind(build, required or {}, optional or {})


def described(schema: dict[str, Any]) -> Callable[[R], R]:
    """Say in JSON Schema what a reader takes; for `json_forms`."""

    def note(read: R) -> R:
        _SCHEMAS[read] = schema
        return read

    return note


def json_forms(prefix: str) -> dict[str, Any]:
    """JSON Schemas of all that `from_json` reads, made from the types that are registered.

    What they refuse, `from_json` refuses; values that fit may still have no meaning (an empty phrase, a bad pattern).

    Args:
        prefix: where the schemas will stand, such as `#/$defs/`.

    Returns:
        "Constraint", any of them, and one for each type, such as "constraint_ban".
    """
    forms = {f"constraint_{name}": _form(name, kind, prefix) for name, kind in sorted(_KINDS.items())}
    mapping = {name: f"{prefix}constraint_{name}" for name in sorted(_KINDS)}
    anything = {
        "oneOf": [{"$ref": reference} for reference in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    vertex = {"anyOf": [{"type": ["string", "integer"]}, {"type": "array", "items": {"$ref": f"{prefix}{VERTEX}"}}]}
    return {CONSTRAINT: anything, VERTEX: vertex, **forms}


def _form(name: str, kind: _Kind, prefix: str) -> dict[str, Any]:
    fields = {field: _placed(_SCHEMAS[read], prefix) for field, read in (kind.required | kind.optional).items()}
    return {
        "type": "object",
        "properties": {"type": {"const": name}, **fields},
        "required": ["type", *kind.required],
        "additionalProperties": False,
    }


def _placed(schema: Any, prefix: str) -> Any:
    """The same with references that lead to where the schemas stand."""
    if isinstance(schema, list):
        return [_placed(part, prefix) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: f"{prefix}{part}" if key == "$ref" else _placed(part, prefix) for key, part in schema.items()}


def from_json(obj: Any) -> Constraint:
    """The constraint whose `to_json()` is `obj`, a dict as `json.loads` gives it.

    Raises:
        InvalidConstraint: an unknown type, a value of the wrong kind, a missing field, or nesting
            deeper than 100; the message names the place.
        UnsupportedKeyword: an unknown field, likewise.
    """
    return read_constraint(obj, "")


@described({"$ref": CONSTRAINT})
def read_constraint(obj: Any, path: str) -> Constraint:
    """Reader of a field that holds a constraint; `path` is where it stands, such as `of[1]`."""
    kind = _kind_of(obj, path)
    known = kind.required | kind.optional
    for field in obj:
        if field not in known and field != "type":
            names = ", ".join(known) or "none"
            raise UnsupportedKeyword(
                f"a constraint of type {obj['type']!r} has no field {field!r} (at "
                f"{_inside(path, field)}); its fields are: {names}"
            )
    for field in kind.required:
        if field not in obj:
            raise InvalidConstraint(
                f"a constraint of type {obj['type']!r} needs the field {field!r} (missing at {_inside(path, field)})"
            )
    values = {field: read(obj[field], _inside(path, field)) for field, read in known.items() if field in obj}
    try:
        return kind.build(**values)
    except InvalidConstraint as error:
        raise InvalidConstraint(f"{error} (at {path or 'the top'})") from error


def _kind_of(obj: Any, path: str) -> _Kind:
    where = path or "the top"
    if path and 1 + len(path.split(".")) > MAX_DEPTH:
        raise InvalidConstraint(f"a constraint is nested deeper than {MAX_DEPTH}; make it flatter")
    if not isinstance(obj, dict) or not isinstance(obj.get("type"), str):
        raise InvalidConstraint(
            f'a constraint is an object such as {{"type": "ban", "phrases": [...]}}; at {where} there is {shortened(obj)}'
        )
    if obj["type"] not in _KINDS:
        raise InvalidConstraint(
            f"unknown constraint type {obj['type']!r} (at {_inside(path, 'type')}); {_meant(obj['type'])}known types "
            f"are: {', '.join(sorted(_KINDS))}"
        )
    return _KINDS[obj["type"]]


def _meant(name: str) -> str:
    """The type that a misspelt one comes next to; of a stranger's long one only the beginning is looked at."""
    near = get_close_matches(name[:64], _KINDS, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _inside(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


# Readers of fields, for `register`.


@described({"type": "string"})
def read_string(value: Any, path: str) -> str:
    """A string."""
    return str(_checked(value, isinstance(value, str), path, "a string"))


@described({"type": "integer"})
def read_integer(value: Any, path: str) -> int:
    """An integer."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return int(_checked(value, is_integer, path, "an integer"))


def list_of(read: Reader) -> Reader:
    """The reader of a list of what `read` reads."""

    @described({"type": "array", "items": _SCHEMAS[read]})
    def read_list(value: Any, path: str) -> list[Any]:
        _checked(value, isinstance(value, list), path, "a list")
        return [read(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return read_list


def _checked(value: Any, right: bool, path: str, wanted: str) -> Any:
    if not right:
        raise InvalidConstraint(f"{path} must be {wanted}, got {shortened(value)}")
    return value


register("true", lambda: Constant(True))
register("false", lambda: Constant(False))
register("and", lambda of: conjunction(of), {"of": list_of(read_constraint)})
register("or", lambda of: disjunction(of), {"of": list_of(read_constraint)})
register("not", lambda of: negation(of), {"of": read_constraint})
