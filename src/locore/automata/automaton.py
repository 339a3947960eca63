"""Deterministic automata over bytes or token ids, as dense tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.automata import tables
from locore.limits import check_progress, check_states

Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]
COMBINING = "combining two text constraints"
REMEDY = "ban, require or count fewer phrases at once"


@dataclass(frozen=True, eq=False)
class Automaton:
    """A complete deterministic automaton, one column per symbol class.

    Attributes:
        table: int32[states, columns], the next state.
        accepting: bool[states].
        column: symbol (byte value or token id) -> column.
        default: the column that every other symbol reads.
        start: the first state.
    """

    table: Int32
    accepting: Bools
    column: dict[int, int]
    default: int
    start: int = 0

    @property
    def num_states(self) -> int:
        """The number of states."""
        return len(self.table)

    def accepts(self, symbols: Iterable[int]) -> bool:
        """Does the automaton accept this string of symbols?"""
        state = self.start
        for symbol in symbols:
            state = int(self.table[state, self.column.get(symbol, self.default)])
        return bool(self.accepting[state])

    def complement(self) -> Automaton:
        """The automaton that accepts exactly the strings that this one does not."""
        return Automaton(self.table, ~self.accepting, self.column, self.default, self.start)


def over_all_bytes(table: Int32, accepting: Bools, column: NDArray[np.integer]) -> Automaton:
    """The automaton that starts in state 0 and reads bytes by Int[256]."""
    default = int(np.bincount(column).argmax())
    named = {byte: number for byte, number in enumerate(column.tolist()) if number != default}
    return Automaton(table, accepting, named, default)


def minimise(automaton: Automaton) -> Automaton:
    """The automaton of the same language with the fewest states, its start at 0."""
    order, table = tables.reachable(automaton.table, automaton.start)
    accepting = automaton.accepting[order]
    blocks, members = tables.equivalent_states(table, accepting)
    return Automaton(blocks[table[members]], accepting[members], automaton.column, automaton.default)


def product(first: Automaton, second: Automaton, conjunction: bool) -> Automaton:
    """Accepts what both (conjunction) or at least one of two automata accept; minimal.

    Raises:
        BudgetExceeded: more pairs of states can be reached than the limits allow.
    """
    pairs: dict[tuple[int, int], int] = {(first.default, second.default): 0}
    column = {}
    for symbol in sorted(first.column.keys() | second.column.keys()):
        pair = (first.column.get(symbol, first.default), second.column.get(symbol, second.default))
        column[symbol] = pairs.setdefault(pair, len(pairs))

    def check(num_states: int) -> None:
        check_states(num_states, COMBINING, REMEDY)
        check_progress(COMBINING, REMEDY)

    columns = np.array(list(pairs), dtype=np.int64)
    table, a, b = tables.product(first.table, second.table, (first.start, second.start), columns, check)
    combine = np.logical_and if conjunction else np.logical_or
    return minimise(Automaton(table, combine(first.accepting[a], second.accepting[b]), column, default=0))
