"""Machines that count something in a string, and automata that bound the count.

Every text constraint is of this kind: how often phrases occur, how many words there are, 1 for "the text ends so" and 0
otherwise. One construction therefore serves them all: count, then say how much is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.automata.automaton import Automaton, over_all_bytes
from locore.automata.tables import SIMPLIFYING, equivalent_states, number_rows, reachable
from locore.limits import check_progress, check_states, check_table

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Tally:
    """A deterministic machine that counts; it starts in state 0 (a subsequential transducer into the integers).

    The count of a string is the sum of the gains along its way, plus `final` of the state where it ends.

    Attributes:
        table: Int32[states, columns], the next state.
        gain: Int32[states, columns], what a step counts; not negative.
        final: Int32[states], what the end of the string counts; 0 in state 0.
        column: Int32[symbols], the column that a symbol reads; symbols are bytes or code points.
    """

    table: Ints
    gain: Ints
    final: Ints
    column: Ints

    def count(self, symbols: bytes | list[int]) -> int:
        """The count of one string."""
        state, total = 0, 0
        for symbol in symbols:
            column = self.column[symbol]
            total += int(self.gain[state, column])
            state = int(self.table[state, column])
        return total + int(self.final[state])


def check_size(states: int, columns: int, what: str, remedy: str) -> None:
    """`BudgetExceeded` when a table of states and columns would be too large. There are three of them: moves, gains, a copy."""
    check_table(3 * 4 * states * columns, f"{what} over {columns:,} classes of bytes or characters", remedy)


def bounded(tally: Tally, low: int, high: int | None) -> Automaton:
    """Accepts the strings of bytes with low <= count <= high; None: no upper bound. One of the two must bound something.

    A state is one of the machine and the count so far. Counts from `top` on need not be told apart: the answer is settled.

    Raises:
        BudgetExceeded: the bounds are so high, or the machine so large, that their product is too large.
    """
    top = low if high is None else high + 1
    remedy = "lower the bounds, leave out one that no text of the length reaches, or count fewer or shorter strings"
    if top > 1:  # before anything else: beyond some size it is no number of an array
        check_states(top, f"counting up to {top:,}", remedy)
        check_size(top, 1, f"counting up to {top:,}", remedy)
    small = minimised(_clipped(pushed(tally), top))
    states, columns = small.table.shape
    if top > 1:
        check_states(top * states, f"counting up to {top:,}", remedy)
        check_size(top * states, columns, f"counting up to {top:,}", remedy)
    so_far = np.arange(top)[:, None, None]
    total = so_far + small.gain
    settled = top * states
    table = np.where(total < top, total * states + small.table, settled).reshape(settled, columns)
    table = np.append(table, np.full((1, columns), settled), axis=0).astype(np.int32)
    ends = so_far[:, :, 0] + small.final
    accepting = np.append((ends >= low) & (True if high is None else ends <= high), high is None)
    order, table = reachable(table)
    return over_all_bytes(table, accepting[order], small.column)


def minimised(tally: Tally) -> Tally:
    """Merge the states that count alike step by step, and then the columns that do the same in every state.

    It merges most when every gain stands as early as it is certain (Mohri, "Minimization algorithms for sequential
    transducers", 2000), which `bounded` sees to.
    """
    order, table = reachable(tally.table)
    gain, final = tally.gain[order], tally.final[order]
    blocks, members = equivalent_states(table, number_rows(np.column_stack([final, gain]))[0])
    table, gain, final = blocks[table[members]], gain[members], final[members]
    column, kept = number_rows(np.append(table, gain, axis=0).T)
    return Tally(table[:, kept], gain[:, kept], final, column[tally.column])


def pushed(tally: Tally) -> Tally:
    """The same counts, every gain as soon as it is certain: what all ways on from a state count is moved before the state."""
    least = tally.final
    while True:
        check_progress(*SIMPLIFYING)
        less = np.minimum(tally.final, (tally.gain + least[tally.table]).min(axis=1))
        if np.array_equal(less, least):
            break
        least = less
    return Tally(tally.table, tally.gain + least[tally.table] - least[:, None], tally.final - least, tally.column)


def _clipped(tally: Tally, top: int) -> Tally:
    """Counts of `top` and more are alike, and after a step that counts so much it does not matter where one is."""
    settled = tally.gain >= top
    table = np.where(settled, 0, tally.table).astype(np.int32)
    return Tally(table, np.minimum(tally.gain, top), np.minimum(tally.final, top), tally.column)
