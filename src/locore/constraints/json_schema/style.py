"""How a value may be written: whitespace, the order of properties, escapes, whole numbers; and what open objects are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from locore.kernel.errors import InvalidConstraint

WHITESPACE = " \t\n\r"
INDENT = 2
CHOICES = {
    "whitespace": ("consistent", "compact", "spaced", "indent", "single", "any"),
    "order": ("schema", "any"),
    "escapes": ("minimal", "any"),
    "integers": ("digits", "any"),
    "objects": ("open", "closed"),
}
CONSISTENT = ("compact", "spaced", "indent")


@dataclass(frozen=True)
class Style:
    """How a value may be written; see `json_schema` for the meaning of the choices. The first of each is the default.

    Raises:
        InvalidConstraint: not one of the choices.
    """

    whitespace: str = "consistent"
    order: str = "schema"
    escapes: str = "minimal"
    integers: str = "digits"
    objects: str = "open"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, choices = getattr(self, field.name), CHOICES[field.name]
            if value not in choices:
                raise InvalidConstraint(f"{field.name} of json_schema must be one of {', '.join(choices)}; got {value!r}")

    def layouts(self) -> tuple[Style, ...]:
        """The styles of which a whole text has one."""
        return tuple(replace(self, whitespace=layout) for layout in CONSISTENT) if self.whitespace == "consistent" else (self,)
