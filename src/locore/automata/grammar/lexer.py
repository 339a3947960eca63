"""The lexer: the terminals that may come, read side by side, until none of them reads on."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from locore.automata.grammar.terminal import Terminal

NOTHING = -1
Reading = tuple[tuple[int, int], ...]  # terminals that still read, and the state of each


class Lexer:
    """States are numbers of sets of terminals that still read, each in its state; made when they are first reached."""

    def __init__(self, terminals: tuple[Terminal, ...]) -> None:
        """Nothing has been read."""
        self._terminals = terminals
        self._readings: list[Reading] = []
        self._number_of: dict[Reading, int] = {}
        self._rows: dict[int, NDArray[np.int64]] = {}

    def start(self, terminals: Iterable[int]) -> int:
        """Before a text of one of these terminals."""
        return self._number(tuple((t, self._terminals[t].start) for t in sorted(terminals)))

    def row(self, state: int) -> NDArray[np.int64]:
        """Int64[256]: the state after each byte, NOTHING where no terminal reads it."""
        if state not in self._rows:
            reading = self._readings[state]
            targets = np.array([self._terminals[t].table[q] for t, q in reading], dtype=np.int64).reshape(-1, 256)
            columns, which = np.unique(targets, axis=1, return_inverse=True)
            after = [self._after(reading, column) for column in columns.T.tolist()]
            self._rows[state] = np.array(after, dtype=np.int64)[which.ravel()]
        return self._rows[state]

    def accepted(self, state: int) -> frozenset[int]:
        """The terminals that what has been read is a text of."""
        return frozenset(t for t, q in self._readings[state] if self._terminals[t].accepting[q])

    def is_over(self, state: int) -> bool:
        """Does no terminal read on?"""
        return bool((self.row(state) == NOTHING).all())

    def remaining(self, state: int) -> list[tuple[int, float]]:
        """The terminals that still read, and the bytes that each needs at least."""
        return [(t, float(self._terminals[t].distance[q])) for t, q in self._readings[state]]

    def _after(self, reading: Reading, column: list[int]) -> int:
        going = tuple((t, q) for (t, _), q in zip(reading, column, strict=True) if self._terminals[t].distance[q] < math.inf)
        return self._number(going) if going else NOTHING

    def _number(self, reading: Reading) -> int:
        number = self._number_of.setdefault(reading, len(self._readings))
        if number == len(self._readings):
            self._readings.append(reading)
        return number
