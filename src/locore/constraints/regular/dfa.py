"""Deterministic automata over classes of characters, and Boolean operations on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints.equivalence import co_reachable, equivalent_states
from locore.constraints.regular.budget import Budget
from locore.constraints.regular.charset import CharClasses, CharSet, partition

Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Dfa:
    """A complete deterministic automaton over characters; it starts in state 0.

    Attributes:
        table: Int32[states, classes], the next state.
        accepting: Bool[states].
        classes: the class of each character.
    """

    table: Int32
    accepting: Bools
    classes: CharClasses

    def accepts(self, text: str) -> bool:
        """Does it accept this string?"""
        state = 0
        for one in text:
            state = int(self.table[state, self.classes.of(ord(one))])
        return bool(self.accepting[state])

    def useful_states(self) -> list[int]:
        """The states from which a string can still be accepted."""
        return [int(state) for state in np.flatnonzero(co_reachable(self.table, self.accepting))]

    def successors(self, state: int) -> Iterator[tuple[int, CharSet]]:
        """Each next state, and the characters that lead to it."""
        sets = self.classes.sets
        row = self.table[state]
        for target in np.unique(row).tolist():
            yield target, CharSet.of(span for number in np.flatnonzero(row == target) for span in sets[number].ranges)

    def complement(self) -> Dfa:
        """Accepts exactly the strings that this one does not."""
        return Dfa(self.table, ~self.accepting, self.classes)

    def minimised(self) -> Dfa:
        """The automaton of the same language with the fewest states, and the fewest classes that it tells apart."""
        blocks = equivalent_states(self.table, self.accepting)
        order, first = np.unique(blocks, return_index=True)
        number = np.empty(len(order), dtype=np.int32)
        # The start comes first; the others keep their order.
        position = np.argsort(np.where(order == blocks[0], -1, first), kind="stable")
        number[position] = np.arange(len(order), dtype=np.int32)
        members = first[position]
        table = number[blocks[self.table[members]]]
        columns, which = np.unique(table, axis=1, return_inverse=True)
        return Dfa(
            np.ascontiguousarray(columns),
            self.accepting[members],
            self.classes.renumbered(which.ravel().astype(np.int64)),
        )


def intersection(left: Dfa, right: Dfa, budget: Budget) -> Dfa:
    """Accepts what both accept; minimal.

    Raises:
        BudgetExceeded: too many pairs of states can be reached.
    """
    classes, column_of = _common_classes(left, right)
    width = len(right.table)
    number = {0: 0}  # of each pair of states, which is written as one integer
    frontier = [0]
    rows = []
    while frontier:
        a, b = np.divmod(np.array(frontier, dtype=np.int64), width)
        targets = left.table[a][:, column_of[0]].astype(np.int64) * width + right.table[b][:, column_of[1]]
        rows.append(targets)
        frontier = [pair for pair in np.unique(targets).tolist() if pair not in number]
        number.update(zip(frontier, range(len(number), len(number) + len(frontier)), strict=True))
        budget.require("states", len(number))
    pairs, which = np.unique(np.concatenate(rows), return_inverse=True)
    table = np.array([number[pair] for pair in pairs.tolist()], dtype=np.int32)[which.reshape(-1, classes.num_classes)]
    a, b = np.divmod(np.array(list(number), dtype=np.int64), width)
    return Dfa(table, left.accepting[a] & right.accepting[b], classes).minimised()


def _common_classes(left: Dfa, right: Dfa) -> tuple[CharClasses, list[NDArray[np.int64]]]:
    """Classes that both see, and for each automaton its column of every common class."""
    sets = [dfa.classes.sets for dfa in (left, right)]
    classes, members = partition([*sets[0], *sets[1]])
    columns = [np.zeros(classes.num_classes, dtype=np.int64) for _ in sets]
    for number, common in enumerate(members):
        side = int(number >= len(sets[0]))
        columns[side][list(common)] = number - side * len(sets[0])
    return classes, columns
