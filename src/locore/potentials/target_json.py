"""JSON of what `locore.generate` samples: constraints, and products of them with bonuses.

A product stands at the top and not inside a constraint: it is a number and no yes or no.
"""

from __future__ import annotations

from reprlib import repr as shortened
from typing import Any

from locore.constraints import Constraint, conjunction
from locore.constraints import json_forms as constraint_forms
from locore.kernel.constraints.serial import CONSTRAINT, read_constraint
from locore.kernel.errors import InvalidArgument, InvalidConstraint, UnsupportedKeyword
from locore.potentials.target import Target, Term, bonus, target_of

FIELDS = {"bonus": ("constraint", "nats"), "product": ("of",)}
TARGET = "Target"  # what schemas call a constraint or a product


def from_json(obj: Any) -> Constraint | Target:
    """The constraint or product whose `to_json()` is `obj`, a dict as `json.loads` gives it.

    `{"type": "product", "of": [...]}` multiplies constraints with `{"type": "bonus", "constraint": ..., "nats": ...}`.

    Raises:
        InvalidConstraint: an unknown type, a value of the wrong kind, a missing field, or nesting deeper than 100; the message
            names the place.
        UnsupportedKeyword: an unknown field, likewise.
    """
    kind = obj.get("type") if isinstance(obj, dict) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return read_constraint(obj, "")
    term = _bonus(obj, "") if kind == "bonus" else _product(obj)
    target = target_of(term)
    assert target is not None  # a term is one
    return target if target.factors else target.constraint


def json_forms(prefix: str) -> dict[str, Any]:
    """JSON Schemas of all that `from_json` reads: those of `locore.constraints.json_forms`, and "Target", which is any of them.

    Args:
        prefix: where the schemas will stand, such as `#/$defs/`.
    """
    forms = constraint_forms(prefix)
    of_constraint, of_bonus = {"$ref": f"{prefix}{CONSTRAINT}"}, {"$ref": f"{prefix}bonus"}
    forms["bonus"] = _form("bonus", {"constraint": of_constraint, "nats": {"type": "number"}})
    parts = {"type": "array", "items": {"anyOf": [of_constraint, of_bonus]}}
    forms["product"] = _form("product", {"of": parts})
    forms[TARGET] = {"anyOf": [of_constraint, of_bonus, {"$ref": f"{prefix}product"}]}
    return forms


def _form(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": name}, **fields},
        "required": ["type", *fields],
        "additionalProperties": False,
    }


def _product(obj: dict[str, Any]) -> Term | Constraint:
    _check_fields(obj, "")
    if not isinstance(obj["of"], list):
        raise InvalidConstraint(f"of must be a list of constraints and bonuses, got {shortened(obj['of'])}")
    constraints: list[Constraint] = []
    bonuses: list[Term] = []
    for number, part in enumerate(obj["of"]):
        path = f"of[{number}]"
        if isinstance(part, dict) and part.get("type") == "bonus":
            bonuses.append(_bonus(part, path))
        elif isinstance(part, dict) and part.get("type") == "product":
            raise InvalidConstraint(
                f"a product holds constraints and bonuses, and no product (at {path}); write all parts into one"
            )
        else:
            constraints.append(read_constraint(part, path))
    total: Any = conjunction(constraints)
    for term in bonuses:
        total = total * term
    return total  # type: ignore[no-any-return]


def _bonus(obj: dict[str, Any], path: str) -> Term:
    _check_fields(obj, path)
    inside = f"{path}.constraint" if path else "constraint"
    nats = obj["nats"]
    try:
        return bonus(read_constraint(obj["constraint"], inside), nats)
    except InvalidArgument as error:
        raise InvalidConstraint(f"{str(error).rstrip('.')} (at {path or 'the top'})") from error


def _check_fields(obj: dict[str, Any], path: str) -> None:
    names = FIELDS[obj["type"]]
    for field in obj:
        if field != "type" and field not in names:
            where = f"{path}.{field}" if path else field
            raise UnsupportedKeyword(f"a {obj['type']} has no field {field!r} (at {where}); its fields are: {', '.join(names)}")
    for field in names:
        if field not in obj:
            raise InvalidConstraint(f"a {obj['type']} needs the field {field!r} (missing at {path or 'the top'})")
