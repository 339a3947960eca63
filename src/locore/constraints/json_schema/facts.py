"""What a JSON schema says, as a formula over *facts*: elementary statements about numbers, strings, arrays and objects.

A fact is about values of one type and says nothing of others, as the keywords of JSON Schema do. Its opposite, `denied`, is a
formula, too, so that formulas can be turned into alternatives of facts without negations (`shapes.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from locore.constraints.json_schema.documents import Node

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
class Multiple(Fact):
    """A whole multiple of a number, or none; `digits`: written without a fraction, which is what draft 4 calls an integer."""

    kind = "number"
    of: Fraction
    wanted: bool = True
    digits: bool = False

    def opposite(self) -> Formula:
        """The other one."""
        return Multiple(self.of, not self.wanted, self.digits)


@dataclass(frozen=True)
class NumberIn(Fact):
    """One of these numbers, or none of them."""

    kind = "number"
    numbers: frozenset[Fraction]
    wanted: bool = True

    def opposite(self) -> Formula:
        """The other one."""
        return NumberIn(self.numbers, not self.wanted)


# Strings.


@dataclass(frozen=True)
class Length(Fact):
    """So many characters."""

    kind = "string"
    least: int
    most: int | None

    def opposite(self) -> Formula:
        """Fewer, or more."""
        return _outside(Length, self.least, self.most)


@dataclass(frozen=True)
class Matches(Fact):
    """A pattern occurs, or the string is of a format; or not."""

    kind = "string"
    what: str  # "pattern" or "format"
    name: str
    wanted: bool = True

    def opposite(self) -> Formula:
        """The other one."""
        return Matches(self.what, self.name, not self.wanted)


@dataclass(frozen=True)
class StringIn(Fact):
    """One of these strings, or none of them."""

    kind = "string"
    strings: frozenset[str]
    wanted: bool = True

    def opposite(self) -> Formula:
        """The other one."""
        return StringIn(self.strings, not self.wanted)


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
            return Holding(self.goal.opposite(), 1, None, self.first)
        items = range(self.first, self.last + 1)
        return Some(tuple(All((ItemCount(place + 1, None), Items(place, place, self.goal.opposite()))) for place in items))


@dataclass(frozen=True)
class Holding(Fact):
    """So many of the items from a place on meet a goal."""

    kind = "array"
    goal: Goal
    least: int
    most: int | None
    first: int = 0

    def opposite(self) -> Formula:
        """Fewer, or more."""
        ways: list[Formula] = []
        if self.least:
            ways.append(Holding(self.goal, 0, self.least - 1, self.first))
        if self.most is not None:
            ways.append(Holding(self.goal, self.most + 1, None, self.first))
        return Some(tuple(ways))


@dataclass(frozen=True)
class ItemCount(Fact):
    """So many items."""

    kind = "array"
    least: int
    most: int | None

    def opposite(self) -> Formula:
        """Fewer, or more."""
        return _outside(ItemCount, self.least, self.most)


@dataclass(frozen=True)
class Distinct(Fact):
    """No two items are equal, or (`wanted` false) two are."""

    kind = "array"
    place: Node
    wanted: bool = True

    def opposite(self) -> Formula:
        """The other one."""
        return Distinct(self.place, not self.wanted)


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
class Has(Fact):
    """There is a property of this name, or there is none."""

    kind = "object"
    name: str
    wanted: bool = True

    def opposite(self) -> Formula:
        """The other one."""
        return Has(self.name, not self.wanted)


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
class Size(Fact):
    """So many properties."""

    kind = "object"
    least: int
    most: int | None

    def opposite(self) -> Formula:
        """Fewer, or more."""
        return _outside(Size, self.least, self.most)


Formula: TypeAlias = All | Some | Negation | Valid | Union | Kinds | Fact
TRUE, FALSE = All(()), Some(())


def _outside(kind: Any, least: int, most: int | None) -> Formula:
    ways = [kind(0, least - 1)] if least else []
    return Some((*ways, *([] if most is None else [kind(most + 1, None)])))
