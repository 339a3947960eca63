"""How a value may be written: whitespace, the order of properties, escapes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from locore.errors import InvalidConstraint

WHITESPACE = " \t\n\r"
INDENT = 2
CHOICES = {"whitespace": ("compact", "single", "indent", "any"), "order": ("schema", "any"), "escapes": ("any", "minimal")}


@dataclass(frozen=True)
class Style:
    """How a value may be written; see `json_schema` for the meaning of the choices. The first of each is the default.

    Raises:
        InvalidConstraint: not one of the choices.
    """

    whitespace: str = "compact"
    order: str = "schema"
    escapes: str = "any"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, known = getattr(self, field.name), CHOICES[field.name]
            if value not in known:
                raise InvalidConstraint(f"{field.name} of json_schema must be one of {', '.join(known)}; got {value!r}")
