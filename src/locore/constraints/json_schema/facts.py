"""What a JSON schema says, as a formula over *facts*: elementary statements about numbers, strings, arrays and objects.

A fact is about values of one type and says nothing of others, as the keywords of JSON Schema do. Its opposite, `denied`, is a
formula, too, so that formulas can be turned into alternatives of facts without negations (`shapes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from locore.constraints.json_schema.documents import Node, is_number

TYPES = frozenset({"null", "true", "false", "number", "string", "array", "object"})  # the kinds of values that are told apart


@dataclass(frozen=True)
class All:
    """All of these hold; none: always true."""

    of: tuple[Formula, ...]


@dataclass(frozen=True)
class Some:
    """One of these holds; none: never true."""

    of: tuple[Formula, ...]


@dataclass(frozen=True)
class Negation:
    """This does not hold."""

    of: Formula


@dataclass(frozen=True)
class Valid:
    """The value is valid for a schema."""

    node: Node


@dataclass(frozen=True)
class Union:
    """One of these schemas is valid, and none of the others if `just_one`; in objects that have it a property tells them apart.

    Attributes:
        tag: the name of this property.
        values: for each schema what the value of the tag has to meet; no two can be met at once.
        demanded: the tag has to be there.
    """

    of: tuple[Valid, ...]
    just_one: bool
    tag: str
    values: tuple[Formula, ...]
    demanded: bool


@dataclass(frozen=True)
class Kinds:
    """The value is of one of these kinds."""

    kinds: frozenset[str]


@dataclass(frozen=True)
class Goal:
    """A formula that has to hold of a value, or (`wanted` false) must not."""

    formula: Formula
    wanted: bool = True

    def opposite(self) -> Goal:
        """The one holds where the other does not."""
        return Goal(self.formula, not self.wanted)


@dataclass(frozen=True)
class Fact:
    """An elementary statement about values of one kind."""

    kind: ClassVar[str]

    def denied(self) -> Formula:
        """The value is of this kind, and it is not so."""
        return All((Kinds(frozenset({self.kind})), self.opposite()))

    def opposite(self) -> Formula:
        """What holds of a value of this kind for which it is not so."""
        raise NotImplementedError


@dataclass(frozen=True)
class YesOrNo(Fact):
    """Something, or (its field `wanted` false) the opposite."""

    def opposite(self) -> Formula:
        """The other one."""
        return replace(self, wanted=not self.wanted)  # type: ignore[call-arg, attr-defined]


@dataclass(frozen=True)
class HowMany(Fact):
    """So many of something."""

    least: int
    most: int | None

    def opposite(self) -> Formula:
        """Fewer, or more."""
        fewer = [replace(self, least=0, most=self.least - 1)] if self.least else []
        return Some((*fewer, *([] if self.most is None else [replace(self, least=self.most + 1, most=None)])))


# Numbers.


@dataclass(frozen=True)
class Bound(Fact):
    """At least (or, `upper`, at most) a number; strictly so where it is open."""

    kind = "number"
    number: Fraction
    upper: bool
    is_open: bool

    def opposite(self) -> Formula:
        """Beyond it."""
        return Bound(self.number, not self.upper, not self.is_open)


@dataclass(frozen=True)
class Multiple(YesOrNo):
    """A whole multiple of a number, or none; `digits`: written without a fraction, which is what draft 4 calls an integer."""

    kind = "number"
    of: Fraction
    wanted: bool = True
    digits: bool = False


@dataclass(frozen=True)
class NumberIn(YesOrNo):
    """One of these numbers, or none of them."""

    kind = "number"
    numbers: frozenset[Fraction]
    wanted: bool = True


# Strings.


@dataclass(frozen=True)
class Length(HowMany):
    """So many characters."""

    kind = "string"


@dataclass(frozen=True)
class Matches(YesOrNo):
    """A pattern occurs, or the string is of a format; or not."""

    kind = "string"
    what: str  # "pattern" or "format"
    name: str
    wanted: bool = True


@dataclass(frozen=True)
class StringIn(YesOrNo):
    """One of these strings, or none of them."""

    kind = "string"
    strings: frozenset[str]
    wanted: bool = True


# Arrays.


@dataclass(frozen=True)
class Items(Fact):
    """Each item from place `first` to place `last` (None: to the end) meets a goal."""

    kind = "array"
    first: int
    last: int | None
    goal: Goal

    def opposite(self) -> Formula:
        """One does not."""
        if self.last is None:
            return Holding(1, None, self.goal.opposite(), self.first)
        items = range(self.first, self.last + 1)
        return Some(tuple(All((ItemCount(place + 1, None), Items(place, place, self.goal.opposite()))) for place in items))


@dataclass(frozen=True)
class Holding(HowMany):
    """So many of the items from a place on meet a goal."""

    kind = "array"
    goal: Goal
    first: int = 0


@dataclass(frozen=True)
class ItemCount(HowMany):
    """So many items."""

    kind = "array"


@dataclass(frozen=True)
class Distinct(YesOrNo):
    """No two items are equal, or (`wanted` false) two are."""

    kind = "array"
    place: Node
    wanted: bool = True


# Objects.


@dataclass(frozen=True)
class Names:
    """Names of properties: one name, those in which a pattern occurs, or those that are none of these.

    Attributes:
        name: just this one.
        patterns, others: without a name: those with one of the patterns; or, `others`, those without any of the patterns
            that are not among `but`.
    """

    name: str | None = None
    patterns: frozenset[str] = frozenset()
    others: bool = False
    but: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Member(Fact):
    """Each property with such a name has a value that meets a goal."""

    kind = "object"
    names: Names
    goal: Goal

    def opposite(self) -> Formula:
        """One does not."""
        if self.names.name is not None:
            return All((Has(self.names.name), Member(self.names, self.goal.opposite())))
        return SomeMember(self.names, self.goal.opposite())


@dataclass(frozen=True)
class SomeMember(Fact):
    """There is a property with such a name whose value meets a goal."""

    kind = "object"
    names: Names
    goal: Goal

    def opposite(self) -> Formula:
        """There is none."""
        return Member(self.names, self.goal.opposite())


@dataclass(frozen=True)
class EachName(Fact):
    """The name of each property, as a string, meets a goal."""

    kind = "object"
    goal: Goal

    def opposite(self) -> Formula:
        """One does not."""
        return SomeName(self.goal.opposite())


@dataclass(frozen=True)
class SomeName(Fact):
    """There is a property whose name meets a goal."""

    kind = "object"
    goal: Goal

    def opposite(self) -> Formula:
        """There is none."""
        return EachName(self.goal.opposite())


@dataclass(frozen=True)
class Has(YesOrNo):
    """There is a property of this name, or there is none."""

    kind = "object"
    name: str
    wanted: bool = True


@dataclass(frozen=True)
class Listed(Fact):
    """A schema lists these names, which is true of all objects: said where objects are closed (`properties.py`).

    Attributes:
        names: of its properties, and those that it requires; None: it says itself what other ones may be.
        closes: has it the keyword `properties`?
    """

    kind = "object"
    names: frozenset[str] | None
    closes: bool

    def opposite(self) -> Formula:
        """Never so."""
        return FALSE


@dataclass(frozen=True)
class Size(HowMany):
    """So many properties."""

    kind = "object"


Formula: TypeAlias = All | Some | Negation | Valid | Union | Kinds | Fact
TRUE, FALSE = All(()), Some(())


def fraction(value: float | Decimal) -> Fraction:
    """A number of JSON as it is written."""
    return Fraction(Decimal(repr(value)) if isinstance(value, float) else value)


def constant(value: Any) -> Formula:
    """Equal to a value of JSON."""
    if value is None or isinstance(value, bool):
        return Kinds(frozenset({{None: "null", True: "true", False: "false"}[value]}))
    if isinstance(value, int | float | Decimal):
        return All((Kinds(frozenset({"number"})), NumberIn(frozenset({fraction(value)}))))
    if isinstance(value, str):
        return All((Kinds(frozenset({"string"})), StringIn(frozenset({value}))))
    if isinstance(value, list):
        items = [Items(place, place, Goal(constant(inner))) for place, inner in enumerate(value)]
        return All((Kinds(frozenset({"array"})), ItemCount(len(value), len(value)), *items))
    members = [Member(Names(name), Goal(constant(inner))) for name, inner in value.items()]
    return All((Kinds(frozenset({"object"})), Size(len(value), len(value)), *map(Has, value), *members))


def one_of(values: list[Any]) -> Formula:
    """Equal to one of these values; those that are no containers are taken together."""
    numbers = frozenset(fraction(atom) for atom in values if is_number(atom))
    strings = frozenset(atom for atom in values if isinstance(atom, str))
    kinds = {{None: "null", True: "true", False: "false"}[atom] for atom in values if atom is None or isinstance(atom, bool)}
    kinds |= {name for name, scalars in (("number", numbers), ("string", strings)) if scalars}
    facts = [*([NumberIn(numbers)] if numbers else []), *([StringIn(strings)] if strings else [])]
    ways: list[Formula] = [All((Kinds(frozenset(kinds)), *facts))] if kinds else []
    ways += [constant(container) for container in values if isinstance(container, list | dict)]
    return ways[0] if len(ways) == 1 else Some(tuple(ways))
