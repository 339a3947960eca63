"""How JSON values may be written: whitespace, the order of properties, escapes in strings."""

from __future__ import annotations

from dataclasses import dataclass, fields

from locore.constraints.regular.ir import EPSILON, Concat, Language, literal, one_of, optional, repeat
from locore.errors import InvalidConstraint

WHITESPACE = " \t\n\r"
CHOICES = {"whitespace": ("any", "single", "compact"), "order": ("any", "schema"), "escapes": ("any", "minimal")}


@dataclass(frozen=True)
class Style:
    """How a value may be written; see `json_schema` for the meaning of the choices.

    Raises:
        InvalidConstraint: not one of the choices.
    """

    whitespace: str = "any"
    order: str = "any"
    escapes: str = "any"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, known = getattr(self, field.name), CHOICES[field.name]
            if value not in known:
                raise InvalidConstraint(f"{field.name} of json_schema must be one of {', '.join(known)}; got {value!r}")

    @property
    def space(self) -> Language:
        """What may stand where JSON allows whitespace."""
        if self.whitespace == "any":
            return repeat(one_of(WHITESPACE), 0, None)
        return optional(one_of(" ")) if self.whitespace == "single" else EPSILON

    def separator(self, sign: str) -> Language:
        """A comma or a colon with the whitespace around it."""
        return Concat((self.space, literal(sign), self.space))
