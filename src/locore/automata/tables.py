"""Transition tables, whatever their symbols are: equal rows, reachable and equivalent states, products.

A table is Int32[states, columns], the next state of a complete deterministic automaton.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

from locore.limits import check_progress

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]
SIMPLIFYING = "merging the states of an automaton", "use fewer or shorter phrases, or smaller repeat counts"


def number_rows(rows: NDArray[np.integer]) -> tuple[Int32, Int64]:
    """For each row its number, equal rows alike, in order of first occurrence; and where each number occurs first.

    Rows are compared by random 64-bit sums, which is much faster than sorting them; then it is checked that rows of one sum
    are equal, and other sums are taken if they are not.
    """
    for seed in count():
        sums = np.einsum("ij,j->i", rows, _weights(seed, rows.shape[1]))  # modulo 2^64
        _, first, inverse = np.unique(sums, return_index=True, return_inverse=True)
        order = np.argsort(first)
        number = np.empty(len(order), dtype=np.int32)
        number[order] = np.arange(len(order))
        labels, first = number[inverse], first[order]
        if np.array_equal(rows[first[labels]], rows):
            break
    return labels, first


@lru_cache(maxsize=1024)
def _weights(seed: int, width: int) -> Int64:
    return np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, width)


def reachable(table: Int32, start: int = 0) -> tuple[Int64, Int32]:
    """The states that can be reached from `start`, breadth first, and their table in this numbering."""
    number = np.full(len(table), -1, dtype=np.int32)
    number[start] = 0
    frontier = order = np.array([start], dtype=np.int64)
    while frontier.size:
        seen = np.zeros(len(table), dtype=np.bool_)
        seen[table[frontier]] = True
        frontier = np.flatnonzero(seen & (number < 0))
        number[frontier] = np.arange(len(order), len(order) + len(frontier))
        order = np.append(order, frontier)
    return order, number[table[order]]


def co_reachable(table: Int32, accepting: Bools) -> Bools:
    """Bool[states]: can acceptance be reached?"""
    flags: Bools = _Predecessors(table).distance(accepting) < len(table)
    return flags


def product(
    first: Int32, second: Int32, starts: tuple[int, int], columns: Int64, check: Callable[[int], None]
) -> tuple[Int32, Int64, Int64]:
    """The table of the pairs of states that can be reached, and the two states of each pair; the start is 0.

    Args:
        columns: Int64[columns of the product, 2], the columns of the two tables that are read together.
        check: is told how many pairs there are so far, and stops what grows too large.
    """
    width = len(second)
    codes = frontier = np.array([starts[0] * width + starts[1]], dtype=np.int64)
    rows = []
    while len(frontier):
        a, b = np.divmod(frontier, width)
        targets = first[a][:, columns[:, 0]].astype(np.int64) * width + second[b][:, columns[:, 1]]
        rows.append(targets)
        frontier = np.setdiff1d(targets, codes)
        codes = np.concatenate([codes, frontier])
        check(len(codes))
    order = np.argsort(codes)
    table = order[np.searchsorted(codes[order], np.concatenate(rows))].astype(np.int32)
    return table, *np.divmod(codes, width)


def equivalent_states(table: Int32, kinds: NDArray[np.integer] | Bools) -> tuple[Int32, Int64]:
    """For each state its class, numbered by first occurrence, and the first state of each class.

    Two states are equivalent if the same strings lead them to states of the same kinds. Hopcroft's refinement, in vectorised
    rounds ("An n log n algorithm for minimizing states in a finite automaton", 1971): a round looks only at the states with a
    successor that has just left its block, and of a block that splits the largest part keeps its number.

    Args:
        table: Int32[states, columns], the next state.
        kinds: Int[states], what is told apart from the outset, such as which states accept.
    """
    predecessors = _Predecessors(table)
    # States that are not equally far from a state of another kind than the first one's differ, and the distances are cheap.
    distance = predecessors.distance(kinds != kinds[0])
    block = number_rows(np.column_stack([distance, kinds]))[0].astype(np.int64)
    size = np.bincount(block)
    affected = np.arange(len(table))
    while len(affected):
        check_progress(*SIMPLIFYING)
        block, size, changed = _split(table, block, size, affected)
        affected = predecessors.of(changed)
    return number_rows(block[:, None])


class _Predecessors:
    """For each state the states that lead to it, in one array."""

    def __init__(self, table: Int32) -> None:
        self.num_states, columns = table.shape
        # Two bytes a state are sorted by radix, which is several times faster.
        targets = table.ravel().astype(np.uint16 if self.num_states <= 1 << 16 else np.int32)
        self._sources = np.argsort(targets, kind="stable") // columns
        self._first = np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=self.num_states))])

    def of(self, states: Int64) -> Int64:
        """The states with a successor among `states`, each once."""
        first, last = self._first[states], self._first[states + 1]
        lengths = last - first
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        found = self._sources[np.repeat(first, lengths) + offsets]
        if len(found) < self.num_states:
            return np.unique(found)
        flags = np.zeros(self.num_states, dtype=np.bool_)
        flags[found] = True
        return np.flatnonzero(flags)

    def distance(self, goals: Bools) -> Int64:
        """Int64[states], the length of the shortest string that leads to a goal; the number of states where there is none."""
        distance = np.where(goals, 0, self.num_states).astype(np.int64)
        frontier = np.flatnonzero(goals)
        steps = 0
        while len(frontier):
            steps += 1
            before = self.of(frontier)
            frontier = before[distance[before] == self.num_states]
            distance[frontier] = steps
        return distance


def _split(table: Int32, block: Int64, size: Int64, affected: Int64) -> tuple[Int64, Int64, Int64]:
    """Split blocks by where their states lead; returns the blocks, their sizes, and the states with a new number.

    All states of a block that are not in `affected` lead to the same blocks, and to others than any affected state does.
    """
    own = block[affected]
    group, first = number_rows(np.column_stack([own, block[table[affected]]]))
    group_size = np.bincount(group)
    group_block = own[first]
    untouched = size - np.bincount(own, minlength=len(size))
    # Of each block the largest part keeps the number: one of its groups, or what is not affected.
    order = np.lexsort((-group_size, group_block))
    largest = order[np.append(True, np.diff(group_block[order]) > 0)]
    keeps = np.zeros(len(first), dtype=np.bool_)
    keeps[largest] = group_size[largest] >= untouched[group_block[largest]]
    moved_group = np.flatnonzero(~keeps)
    leaving = group_block[keeps & (untouched[group_block] > 0)]  # blocks whose unaffected part gets a new number

    result = block.copy()
    number = np.full(len(first), -1, dtype=np.int64)
    number[moved_group] = len(size) + np.arange(len(moved_group))
    moved = number[group] >= 0
    result[affected[moved]] = number[group[moved]]
    changed = affected[moved]
    if len(leaving):
        rest = np.setdiff1d(np.flatnonzero(np.isin(block, leaving)), affected, assume_unique=True)
        position = np.full(len(size), -1, dtype=np.int64)
        position[leaving] = len(size) + len(moved_group) + np.arange(len(leaving))
        result[rest] = position[block[rest]]
        changed = np.concatenate([changed, rest])
    return result, np.bincount(result, minlength=len(size) + len(moved_group) + len(leaving)), changed
