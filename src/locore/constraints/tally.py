"""Machines that count something in a string, and automata that bound the count.

Every text constraint is of this kind: how often phrases occur, how many words there are, 1 for "the text ends so" and 0
otherwise. One construction therefore serves them all: count, then say how much is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints.automaton import Automaton
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
    small = minimised(_clipped(early(tally), top))
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
    accepting = (ends >= low) & (True if high is None else ends <= high)
    return _as_automaton(table, np.append(accepting.ravel(), high is None), small.column)


def minimised(tally: Tally) -> Tally:
    """Merge the states that count alike step by step, and then the columns that do the same in every state.

    Moore's partition refinement. It sees most when every gain stands as early as it is certain (Mohri, "Minimization
    algorithms for sequential transducers", 2000), which `bounded` sees to.
    """
    order, table = reachable(tally.table)
    gain, final = tally.gain[order], tally.final[order]
    blocks, first = number_rows(np.column_stack([final, gain]))
    rows = np.empty((len(table), 1 + table.shape[1]), dtype=np.int32)
    while True:
        check_progress("minimising a search", "use fewer or shorter phrases")
        rows[:, 0], rows[:, 1:] = blocks, blocks[table]
        finer, members = number_rows(rows)
        if len(members) == len(first):
            break
        blocks, first = finer, members
    table, gain, final = blocks[table[first]], gain[first], final[first]
    column, kept = number_rows(np.append(table, gain, axis=0).T)
    return Tally(table[:, kept], gain[:, kept], final, column[tally.column])


def reachable(table: Ints) -> tuple[NDArray[np.int64], Ints]:
    """The states that can be reached from state 0, breadth first, and their table in this numbering."""
    number = np.full(len(table), -1, dtype=np.int32)
    number[0] = 0
    frontier = order = np.zeros(1, dtype=np.int64)
    while frontier.size:
        seen = np.zeros(len(table), dtype=np.bool_)
        seen[table[frontier]] = True
        frontier = np.flatnonzero(seen & (number < 0))
        number[frontier] = np.arange(len(order), len(order) + len(frontier))
        order = np.append(order, frontier)
    return order, number[table[order]]


def number_rows(rows: NDArray[np.integer]) -> tuple[Ints, NDArray[np.int64]]:
    """For each row its number, equal rows alike, in order of first occurrence; and where each number occurs first.

    Rows are compared by random 64-bit sums, which is much faster than sorting them; then it is checked that rows of one sum
    are equal, and other sums are taken if they are not.
    """
    generator = np.random.default_rng(0)
    while True:
        weights = generator.integers(-(2**63), 2**63 - 1, rows.shape[1])
        sums = np.einsum("ij,j->i", rows, weights)  # modulo 2^64
        _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty(len(order), dtype=np.int32)
        number[order] = np.arange(len(order))
        labels, first = number[inverse.ravel()], first[order]
        if np.array_equal(rows[first][labels], rows):
            return labels, first


def early(tally: Tally) -> Tally:
    """The same counts, every gain as soon as it is certain: what all ways on from a state count is moved before the state."""
    least = tally.final
    while True:
        check_progress("minimising a search", "use fewer or shorter phrases")
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


def _as_automaton(table: Ints, accepting: NDArray[np.bool_], column: Ints) -> Automaton:
    """The automaton of a table over bytes, without the states that cannot be reached."""
    order, table = reachable(table)
    default = int(np.bincount(column).argmax())
    named = {byte: number for byte, number in enumerate(column.tolist()) if number != default}
    return Automaton(table, accepting[order], named, default)
