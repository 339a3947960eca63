"""A terminal of a grammar as an automaton over bytes: a regular language, or one character of a set."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from locore.automata.regex.language import CharSet
from locore.kernel.automata.tables import Automaton

# Of encodings of 1 to 4 bytes: the first and last code point, and what is added to the first six bits, as UTF-8 has them.
_LENGTHS = ((0x0, 0x7F, 0x00), (0x80, 0x7FF, 0xC0), (0x800, 0xFFFF, 0xE0), (0x10000, 0x10FFFF, 0xF0))
_CONTINUATION, _BITS = 0x80, 6
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Terminal:
    """A terminal as an automaton over bytes.

    Attributes:
        table: Int32[states, 256], the next state.
        accepting: Bool[states].
        distance: f64[states], bytes until it accepts; inf where it never does.
        start: the first state.
        name: what messages call it.
        chars: of a terminal that is a single character, the characters that it may be.
    """

    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    distance: NDArray[np.float64]
    start: int
    name: str = ""
    chars: CharSet | None = None

    @classmethod
    def of(cls, automaton: Automaton, name: str = "") -> Terminal:
        """The same automaton with a column for each byte."""
        column = np.full(256, automaton.default, dtype=np.int64)
        for symbol, number in automaton.column.items():
            column[symbol] = number
        table = automaton.table[:, column]
        distance = np.where(automaton.accepting, 0.0, math.inf)
        while True:
            nearer = np.minimum(distance, 1 + distance[table].min(1))
            if (nearer == distance).all():
                return cls(table, automaton.accepting, distance, automaton.start, name)
            distance = nearer

    @classmethod
    @lru_cache(maxsize=1024)
    def of_character(cls, chars: CharSet) -> Terminal:
        """One character of a set, as UTF-8 writes it."""
        encoding = _Encoding()
        start = encoding.state((), 0)
        for length, (first, last, mark) in enumerate(_LENGTHS):
            encoding.fill(start, _within(chars.ranges, first, last, 0), length, mark)
        distance = np.array(encoding.distance)
        distance[start] = 1 + distance[encoding.rows[start]].min()
        accepting = distance == 0
        return cls(np.array(encoding.rows, dtype=np.int32), accepting, distance, start, chars=chars)

    @property
    def nullable(self) -> bool:
        """Is the empty text one of its texts?"""
        return bool(self.accepting[self.start])

    @property
    def shortest(self) -> float:
        """Bytes of its shortest text that is not empty; inf where there is none."""
        return 1 + float(self.distance[self.table[self.start]].min())


class _Encoding:
    """States that read the rest of an encoding; those that read the same are one. 0 reads nothing, 1 is the end."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = [[0] * 256, [0] * 256]
        self.distance = [math.inf, 0.0]
        self._number_of: dict[tuple[Ranges, int], int] = {}

    def state(self, ranges: Ranges, left: int) -> int:
        """The state before `left` more bytes that write one of these numbers."""
        if ranges and not left:
            return 1
        key = ranges, left
        if key not in self._number_of:
            number = self._number_of[key] = len(self.rows)
            self.rows.append([0] * 256)
            self.distance.append(float(left) if ranges else math.inf)
            if ranges:
                self.fill(number, ranges, left - 1, _CONTINUATION)
        return self._number_of[key]

    def fill(self, number: int, ranges: Ranges, left: int, mark: int) -> None:
        """A state's row: a byte that says the first bits, marked, and then `left` more."""
        size = 1 << _BITS * left
        for block in sorted({block for low, high in ranges for block in range(low // size, high // size + 1)}):
            inside = _within(ranges, block * size, (block + 1) * size - 1, block * size)
            self.rows[number][mark + block] = self.state(inside, left)


def _within(ranges: Iterable[tuple[int, int]], first: int, last: int, offset: int) -> Ranges:
    """The parts of ranges from first to last, counted from an offset."""
    cut = ((max(low, first) - offset, min(high, last) - offset) for low, high in ranges)
    return tuple((low, high) for low, high in cut if low <= high)
