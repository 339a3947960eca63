"""Regular languages over characters, as expressions: what regular expressions and JSON schemas are turned into.

A language here is a set of strings of characters (Unicode scalar values). Expressions may share parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from locore.constraints.regular.charset import ANY, CharSet


class Language:
    """Base of all expressions."""


@dataclass(frozen=True)
class Chars(Language):
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True)
class Concat(Language):
    """One string of each part, one after the other; no parts: the empty string."""

    parts: tuple[Language, ...]


@dataclass(frozen=True)
class Either(Language):
    """A string of one of the parts; no parts: no string at all."""

    parts: tuple[Language, ...]


@dataclass(frozen=True)
class Repeat(Language):
    """Between `least` and `most` (None: any number) strings of `part`, one after the other."""

    part: Language
    least: int
    most: int | None


@dataclass(frozen=True)
class Both(Language):
    """The strings of both `left` and `right`, which are read by themselves: look-around sees nothing outside."""

    left: Language
    right: Language


@dataclass(frozen=True)
class Complement(Language):
    """The strings that are not of `part`, which is read by itself."""

    part: Language


@dataclass(frozen=True)
class Rewritten(Language):
    """The strings of `part`, which is read by itself, with each character written as one of the strings of `write` says.

    Attributes:
        part: a language.
        write: for a set of characters, what may stand for one of them.
    """

    part: Language
    write: Callable[[CharSet], Language]


@dataclass(frozen=True)
class Ahead(Language):
    """The empty string where a string of `part` follows (`negative`: where none does)."""

    part: Language
    negative: bool


@dataclass(frozen=True)
class Behind(Language):
    """The empty string where the text so far ends with a string of `part` (`negative`: where it does not)."""

    part: Language
    negative: bool


@dataclass(frozen=True)
class Graph(Language):
    """The strings along a path from state 0 to a final state.

    Attributes:
        num_states: states are 0..num_states-1.
        edges: (from, what is read, to).
        final: the states where a string may end.
    """

    num_states: int
    edges: tuple[tuple[int, Language, int], ...]
    final: frozenset[int]


EMPTY = Either(())  # no string
EPSILON = Concat(())  # the empty string alone
ANY_CHAR = Chars(ANY)
ANYTHING = Repeat(ANY_CHAR, 0, None)


def concat(*parts: Language) -> Language:
    """Concatenation; one part alone stays as it is."""
    return parts[0] if len(parts) == 1 else Concat(parts)


def either(parts: Iterable[Language]) -> Language:
    """Union; one part alone stays as it is."""
    known = tuple(parts)
    return known[0] if len(known) == 1 else Either(known)


def repeat(part: Language, least: int, most: int | None) -> Language:
    """Between `least` and `most` (None: any number) strings of `part`; a repetition of a repetition is one where possible.

    (X{a,b}){c,d} is X as often as one of ka..kb says for some k of c..d. That is X{ca,db} if there is no gap between these
    ranges, and a first gap would be the widest.
    """
    if not isinstance(part, Repeat) or 0 in (part.most, most):
        return Repeat(part, least, most)
    end_of_first = 0 if least == 0 else math.inf if part.most is None else least * part.most
    if least != most and (least + 1) * part.least > end_of_first + 1:
        return Repeat(part, least, most)
    return Repeat(part.part, least * part.least, None if most is None or part.most is None else most * part.most)


def optional(part: Language) -> Language:
    """A string of `part`, or the empty one."""
    return repeat(part, 0, 1)


def literal(text: str) -> Language:
    """Exactly this string."""
    return Concat(tuple(Chars(CharSet.from_text(one)) for one in text))


def one_of(text: str) -> Language:
    """One of these characters."""
    return Chars(CharSet.from_text(text))
