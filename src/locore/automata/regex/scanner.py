"""A deterministic automaton over characters that is read one character at a time, and knows how much is still to come."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from locore.automata.regex.dfa import Dfa
from locore.kernel.automata.tables import SIMPLIFYING, Predecessors
from locore.kernel.limits import check_progress
from locore.kernel.plugins import cached_property

DEAD = -1
Costs = NDArray[np.float64]


class Scanner:
    """A `Dfa` for reading one character after the other; it starts in state 0.

    Attributes:
        dfa: the automaton.
        accepting: for each state whether the text may end there.
    """

    def __init__(self, dfa: Dfa, cost: Callable[[int, int], float]) -> None:
        """Of an automaton.

        Args:
            cost: the least that one of the characters of a range costs, first and last code point.
        """
        self.dfa = dfa
        edges = [*dfa.classes.starts.tolist(), 0x110000]
        spans = np.array([cost(first, after - 1) for first, after in pairwise(edges)])
        weights = np.full(dfa.classes.num_classes, math.inf)
        np.minimum.at(weights, dfa.classes.classes, spans)
        self._weights = weights
        self._least = _least_costs(dfa.table, weights, dfa.accepting)
        alive = np.append(self._least < math.inf, False)
        self._table = np.where(alive[dfa.table], dfa.table, DEAD).tolist()
        self.accepting: list[bool] = dfa.accepting.tolist()
        self._class: dict[int, int] = {}
        self._layers: list[Costs] = [np.where(dfa.accepting, 0.0, math.inf)]
        self._classes: dict[tuple[int, int], list[int]] = {}  # of ranges of characters

    def after(self, state: int, code: int) -> int:
        """The state after a character; DEAD where no text can be completed."""
        return int(self._table[state][self.class_of(code)])

    def class_of(self, code: int) -> int:
        """The class of a character."""
        number = self._class.get(code)
        if number is None:
            number = self._class[code] = self.dfa.classes.of(code)
        return number

    def accepts(self, text: str) -> bool:
        """Is the text accepted?"""
        return self.dfa.accepts(text)

    def cost(self, state: int, least: int = 0, most: int | None = None) -> float:
        """Of the cheapest text that is accepted from a state on, of so many characters."""
        if least <= 0 and most is None:
            return float(self._least[state])
        top = max(least, 0) + len(self.accepting)  # what is longer goes round in a circle that can be left out
        if most is not None:
            top = min(top, most)
        while len(self._layers) <= top:
            check_progress(*SIMPLIFYING)
            self._layers.append((self._weights + self._layers[-1][self.dfa.table]).min(1))
        return float(min((self._layers[k][state] for k in range(max(least, 0), top + 1)), default=math.inf))

    def cost_through(self, state: int, low: int, high: int, least: int, most: int | None) -> float:
        """The cheapest completion after one of the characters of a range, which itself is not counted."""
        numbers = self._classes.get((low, high))
        if numbers is None:
            starts, classes = self.dfa.classes.starts, self.dfa.classes.classes
            first = int(np.searchsorted(starts, low, side="right")) - 1
            last = int(np.searchsorted(starts, high, side="right"))
            numbers = self._classes[low, high] = np.unique(classes[first:last]).tolist()
        targets = {self._table[state][number] for number in numbers}
        return min((self.cost(target, least, most) for target in targets if target != DEAD), default=math.inf)

    @cached_property
    def tells_beyond_ascii(self) -> bool:
        """Does it tell characters beyond ASCII apart?"""
        starts, classes = self.dfa.classes.starts, self.dfa.classes.classes
        first = int(np.searchsorted(starts, 0x80, side="right")) - 1
        return len(np.unique(classes[first:])) > 1


def _least_costs(table: NDArray[np.int32], weights: Costs, goals: NDArray[np.bool_]) -> Costs:
    """Float64[states], the least cost of a string that leads to a goal; infinite where there is none.

    Args:
        table: Int32[states, columns], the next state.
        weights: Float64[columns], what a symbol of each costs; not negative.
        goals: Bool[states].
    """
    predecessors = Predecessors(table)
    least = np.where(goals, 0.0, np.inf)
    affected = predecessors.of(np.flatnonzero(goals))
    while len(affected):
        check_progress(*SIMPLIFYING)
        better = (weights + least[table[affected]]).min(1)
        changed = affected[better < least[affected]]
        least[affected] = np.minimum(better, least[affected])
        affected = predecessors.of(changed)
    return least
