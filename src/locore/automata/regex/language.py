"""Regular languages over characters: sets of characters, and the expressions that regexes and JSON schemas are turned into.

A character is a Unicode scalar value: 0 to 0x10FFFF without the surrogates, which UTF-8 cannot write. A language is a set of
strings of characters. Expressions may share parts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from locore.automata.characters import NUM_CODE_POINTS
from locore.kernel.automata.tables import number_rows
from locore.kernel.plugins import cached_property

FIRST_SURROGATE, LAST_SURROGATE = 0xD800, 0xDFFF


@dataclass(frozen=True)
class CharSet:
    """A set of characters; make it with `CharSet.of`.

    Attributes:
        ranges: first and last code point of each range; sorted, disjoint, not adjacent.
    """

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> CharSet:
        """The characters of any ranges, in any order, overlapping or not; surrogates are left out."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(_without_surrogates(ranges)):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @classmethod
    def from_text(cls, text: Iterable[str]) -> CharSet:
        """The characters of a string, or one by one."""
        return cls.of((ord(character), ord(character)) for character in text)

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet.of((*self.ranges, *other.ranges))

    def __and__(self, other: CharSet) -> CharSet:
        return ~(~self | ~other)

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other

    def __invert__(self) -> CharSet:
        edges = [-1, *(code for span in self.ranges for code in span), NUM_CODE_POINTS]
        gaps = zip(edges[0::2], edges[1::2], strict=True)
        return CharSet.of((before + 1, after - 1) for before, after in gaps)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, code: int) -> bool:
        return self.meets(code, code)

    def meets(self, first: int, last: int) -> bool:
        """Is one of the characters between these, which count?"""
        after = bisect_left(self._lasts, first)
        return after < len(self.ranges) and self.ranges[after][0] <= last

    def tells_apart(self, first: int, last: int) -> bool:
        """Are some of the characters between these in it, which count, and some not?"""
        after = bisect_left(self._lasts, first)
        inside = after < len(self.ranges) and self.ranges[after][0] <= last
        return inside and not (self.ranges[after][0] <= first and last <= self.ranges[after][1])

    @cached_property
    def _lasts(self) -> list[int]:
        return [last for _, last in self.ranges]


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    for first, last in ranges:
        pieces = ((first, min(last, FIRST_SURROGATE - 1)), (max(first, LAST_SURROGATE + 1), last))
        yield from (piece for piece in pieces if piece[0] <= piece[1])


ANY = CharSet.of([(0, NUM_CODE_POINTS - 1)])


@dataclass(frozen=True, eq=False)
class CharClasses:
    """A partition of the characters into numbered classes.

    Attributes:
        starts: Int64[intervals], first code point of each interval; the first is 0.
        classes: Int32[intervals], the class of each interval. Surrogates have one, too, but nothing reads them.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int32]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return int(self.classes.max()) + 1

    def of(self, code: int) -> int:
        """The class of a character."""
        return int(self.classes[np.searchsorted(self.starts, code, side="right") - 1])

    def by_code_point(self) -> NDArray[np.int32]:
        """Int32[0x110000], the class of each code point."""
        lengths = np.diff(self.starts, append=NUM_CODE_POINTS)
        return np.repeat(self.classes, lengths)

    @cached_property
    def sets(self) -> list[CharSet]:
        """The characters of each class."""
        ranges: list[list[tuple[int, int]]] = [[] for _ in range(self.num_classes)]
        edges = [*self.starts.tolist(), NUM_CODE_POINTS]
        for number, (first, after) in zip(self.classes.tolist(), pairwise(edges), strict=True):
            ranges[number].append((first, after - 1))
        return [CharSet.of(spans) for spans in ranges]

    def renumbered(self, new_number: NDArray[np.int32]) -> CharClasses:
        """Classes merged: class c becomes `new_number[c]`."""
        return CharClasses(self.starts, new_number[self.classes])


def partition(sets: Sequence[CharSet]) -> tuple[CharClasses, list[tuple[int, ...]]]:
    """The coarsest classes such that every set is a union of them, and the classes of each set."""
    edges = {code for chars in sets for first, last in chars.ranges for code in (first, last + 1)}
    # Surrogates are in no set; they go with the character before them, so that no class is theirs alone.
    starts = np.array(sorted((edges | {0, LAST_SURROGATE + 1}) - {NUM_CODE_POINTS, FIRST_SURROGATE}), dtype=np.int64)
    inside = np.zeros((len(starts), len(sets)), dtype=np.bool_)
    for column, chars in enumerate(sets):
        for first, last in chars.ranges:
            inside[np.searchsorted(starts, first) : np.searchsorted(starts, last + 1), column] = True
    inside = np.append(inside, np.zeros((len(starts), 1), dtype=np.bool_), axis=1)  # so that there is a column
    classes = CharClasses(starts, number_rows(np.packbits(inside, axis=1))[0])
    members = [tuple(np.unique(classes.classes[inside[:, column]]).tolist()) for column in range(len(sets))]
    return classes, members


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
    alternatives = tuple(parts)
    return alternatives[0] if len(alternatives) == 1 else Either(alternatives)


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
    return Concat(tuple(Chars(CharSet.from_text(character)) for character in text))


def one_of(text: str) -> Language:
    """One of these characters."""
    return Chars(CharSet.from_text(text))
