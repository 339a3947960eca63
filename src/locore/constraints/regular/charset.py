"""Sets of characters as ranges of code points, and the coarsest partition that several sets see.

A character is a Unicode scalar value: 0 to 0x10FFFF without the surrogates, which UTF-8 cannot write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NUM_CODE_POINTS = 0x110000
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
    def from_text(cls, text: str) -> CharSet:
        """The characters of a string."""
        return cls.of((ord(one), ord(one)) for one in text)

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
        return any(first <= code <= last for first, last in self.ranges)


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
        classes: Int64[intervals], the class of each interval. Surrogates have one, too, but nothing reads them.
    """

    starts: NDArray[np.int64]
    classes: NDArray[np.int64]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return int(self.classes.max()) + 1

    def of(self, code: int) -> int:
        """The class of a character."""
        return int(self.classes[np.searchsorted(self.starts, code, side="right") - 1])

    def by_code_point(self) -> NDArray[np.int64]:
        """Int64[0x110000], the class of each code point."""
        lengths = np.diff(self.starts, append=NUM_CODE_POINTS)
        return np.repeat(self.classes, lengths)

    @cached_property
    def sets(self) -> list[CharSet]:
        """The characters of each class."""
        ranges: list[list[tuple[int, int]]] = [[] for _ in range(self.num_classes)]
        edges = [*self.starts.tolist(), NUM_CODE_POINTS]
        for number, (first, after) in zip(self.classes.tolist(), pairwise(edges), strict=True):
            ranges[number].append((first, after - 1))
        return [CharSet.of(found) for found in ranges]

    def renumbered(self, new_number: NDArray[np.int64]) -> CharClasses:
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
    names: dict[bytes, int] = {}
    numbers = [names.setdefault(row.tobytes(), len(names)) for row in np.packbits(inside, axis=1)]
    classes = CharClasses(starts, np.array(numbers, dtype=np.int64))
    members = [tuple(np.unique(classes.classes[inside[:, column]]).tolist()) for column in range(len(sets))]
    return classes, members
