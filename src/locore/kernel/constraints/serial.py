"""What constraints are made from, checked: JSON, and the arguments of their functions.

In JSON, `type` is the name of a public function, the fields its parameters. A new type is one call of `register` in the file
that defines it; nothing is dropped silently. A message says which function got what, and what it wants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, TypeVar

import numpy as np

from locore.kernel import plugins
from locore.kernel.constraints.constraint import Constant, Constraint, Json, conjunction, disjunction, negation
from locore.kernel.constraints.structure import MAX_DEPTH
from locore.kernel.errors import InvalidConstraint, UnsupportedKeyword
from locore.kernel.lists import items_of

Reader = Callable[[Any, str], Any]  # a value and where it stands -> the argument
CODE = ("potential", "predicate", "expert")  # what no JSON says
FACTORS = ("bonus", "product")  # what JSON says at the top only: `locore.potentials.target_json`
CONSTRAINT, VERTEX = "Constraint", "Vertex"  # what schemas call a constraint, and a vertex of a graph
R = TypeVar("R", bound=Reader)
_SCHEMAS: dict[Reader, dict[str, Any]] = {}
_SHARED: dict[str, dict[str, Any]] = {}  # schemas of parts of constraints, by name


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


def share(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Give a schema a name of its own; what readers are described with is a reference to it."""
    _SHARED[name] = schema
    return {"$ref": name}


def json_forms(prefix: str) -> dict[str, Any]:
    """JSON Schemas of all that `from_json` reads, made from the types that are registered.

    What they refuse, `from_json` refuses; values that fit may still have no meaning (an empty phrase, a bad pattern).

    Args:
        prefix: where the schemas will stand, such as `#/$defs/`.

    Returns:
        "Constraint", any of them, one for each type, such as "constraint_ban", and those of parts, such as "Pattern".
    """
    plugins.load(plugins.CONSTRAINTS)
    forms = {f"constraint_{name}": _form(name, kind, prefix) for name, kind in sorted(_KINDS.items())}
    mapping = {name: f"{prefix}constraint_{name}" for name in sorted(_KINDS)}
    anything = {
        "oneOf": [{"$ref": reference} for reference in mapping.values()],
        "discriminator": {"propertyName": "type", "mapping": mapping},
    }
    vertex = {"anyOf": [{"type": ["string", "integer"]}, {"type": "array", "items": {"$ref": f"{prefix}{VERTEX}"}}]}
    shared = {name: _placed(schema, prefix) for name, schema in _SHARED.items()}
    return {CONSTRAINT: anything, VERTEX: vertex, **shared, **forms}


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


def form_of(leaf: Any, written: Callable[[Any], Any] = lambda value: value) -> Json:
    """`{"type": kind, field: value, …}` of a leaf, without the fields that have their default value."""
    json: Json = {"type": leaf.kind}
    for field in fields(leaf):
        value = getattr(leaf, field.name)
        if field.default is MISSING or value != field.default:
            json[field.name] = [*map(written, value)] if isinstance(value, tuple) else written(value)
    return json


@described({"$ref": CONSTRAINT})
def read_constraint(obj: Any, path: str) -> Constraint:
    """Reader of a field that holds a constraint; `path` is where it stands, such as `of[1]`."""
    kind = _kind_of(obj, path)
    readers = kind.required | kind.optional
    for field in obj:
        if field not in readers and field != "type":
            names = ", ".join(readers) or "none"
            raise UnsupportedKeyword(
                f"a constraint of type {obj['type']!r} has no field {field!r} (at "
                f"{_inside(path, field)}); its fields are: {names}"
            )
    for field in kind.required:
        if field not in obj:
            raise InvalidConstraint(
                f"a constraint of type {obj['type']!r} needs the field {field!r} (missing at {_inside(path, field)})"
            )
    values = {field: read(obj[field], _inside(path, field)) for field, read in readers.items() if field in obj}
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
    if obj["type"] in CODE:
        raise InvalidConstraint(
            f"{obj['type']} is code and not data (at {_inside(path, 'type')}): it can be given to locore.generate in Python, "
            "but neither sent to a server nor written into a file"
        )
    if obj["type"] in FACTORS:
        raise InvalidConstraint(
            f"a {obj['type']} is a number and no yes or no, it cannot stand in a constraint (at {_inside(path, 'type')}); "
            'write {"type": "product", "of": [...]} at the top, of constraints and bonuses'
        )
    if obj["type"] not in _KINDS:
        plugins.load(plugins.CONSTRAINTS)
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


def as_integer(value: Any, what: str) -> int:
    """A Python, numpy or torch integer as an int; `InvalidConstraint` naming `what` otherwise."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise InvalidConstraint(f"{what} must be an integer, got {value!r}")
    return operator.index(value)


def id_list(value: Any, where: str, ordered: bool = False) -> tuple[int, ...]:
    """One token id or several as a tuple of Python ints; `ordered`: a set will not do.

    Raises:
        InvalidConstraint: what is no token id, bools included; the message names `where`.
    """
    if isinstance(value, str) or not (hasattr(value, "__iter__") or hasattr(value, "__index__")):
        raise InvalidConstraint(
            f"{where} needs a token id or a list of them, got {value!r}; a tokenizer's `encode` gives the ids of a text"
        )
    several = hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0
    what = f"a token id of {where}"
    listed = items_of(value, where, "a token id or a list of them", ordered=ordered) if several else [value]
    ids = tuple(as_integer(token, what) for token in listed)
    negative = [token for token in ids if token < 0]
    if negative:
        raise InvalidConstraint(f"{where} got the token id {negative[0]}; ids start at 0")
    return ids


def position_of(value: Any, where: str) -> int:
    """A position, which may lie beyond the length; `InvalidConstraint` when it is negative."""
    position = as_integer(value, f"a position of {where}")
    if position < 0:
        raise InvalidConstraint(f"{where} got the position {position}; positions start at 0")
    return position


def positions_of(value: Any, where: str, least: int = 1, ordered: bool = False) -> tuple[int, ...]:
    """Distinct positions, in the user's order; `ordered`: a set will not do.

    Raises:
        InvalidConstraint: no positions, repeated or negative ones, or fewer than `least`.
    """
    places = tuple(position_of(position, where) for position in items_of(value, where, "a list of positions", ordered=ordered))
    if len(set(places)) < len(places):
        twice = next(position for position in places if places.count(position) > 1)
        raise InvalidConstraint(f"{where} got the position {twice} twice; name each position once")
    if len(places) < least:
        raise InvalidConstraint(f"{where} needs at least {least} positions, got {len(places)}")
    return places


def check_positions(positions: tuple[int, ...], length: int) -> None:
    """`InvalidConstraint` where a position is outside a sequence of this length."""
    outside = [position for position in positions if not 0 <= position < length]
    if outside:
        raise InvalidConstraint(
            f"position {outside[0]} is outside a sequence of {length} tokens (0 to {length - 1}); "
            "use a smaller position or a longer sequence"
        )


def flag_of(value: object, name: str, where: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidConstraint(f"{name} of {where} must be True or False, got {value!r}")
    return value


def bounds_of(low: Any, high: Any, names: tuple[str, str], where: str) -> tuple[int, int | None]:
    """A least and a greatest number, of which at least one says something.

    Args:
        low, high: integers; None for `high` means no bound.
        names: what the caller calls them.
        where: the caller.
    """
    least = as_integer(low, f"{names[0]} of {where}")
    most = None if high is None else as_integer(high, f"{names[1]} of {where}")
    for name, value in zip(names, (least, most), strict=True):
        if value is not None and value < 0:
            raise InvalidConstraint(f"{name}={value} of {where} is negative; a number of times starts at 0")
    if most is not None and least > most:
        raise InvalidConstraint(f"{where} got {names[0]}={least} above {names[1]}={most}; nothing can satisfy both")
    if least == 0 and most is None:
        raise InvalidConstraint(f"{where} got no bound, so that it says nothing; give {names[0]} or {names[1]}")
    return least, most


@described({"type": "boolean"})
def read_flag(value: Any, path: str) -> bool:
    """True or False."""
    return flag_of(value, "the value", path)
