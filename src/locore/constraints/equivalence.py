"""Which states of a complete deterministic automaton are equivalent: Hopcroft's refinement, in vectorised rounds.

Moore's rounds compare all states every time, so an automaton with long chains costs states × rounds. Here a round looks only at
the states with a successor that has just left its block, and of a block that splits the largest part keeps its number
(Hopcroft, "An n log n algorithm for minimizing states in a finite automaton", 1971).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]


def equivalent_states(table: Int32, accepting: Bools) -> Int64:
    """Int64[states], equal for exactly those states that accept the same strings.

    Args:
        table: Int32[states, columns], the next state.
        accepting: Bool[states].
    """
    predecessors = _Predecessors(table)
    # States that are not equally far from acceptance differ, and the distances are cheap.
    distance = _distance(predecessors, accepting)
    block = np.unique(np.where(distance == 0, -1, distance), return_inverse=True)[1].astype(np.int64)
    affected = np.arange(len(table))
    size = np.bincount(block)
    while True:
        block, size, changed = _split(table, block, size, affected)
        if not len(changed):
            return block
        affected = predecessors.of(changed)


def co_reachable(table: Int32, accepting: Bools) -> Bools:
    """Bool[states]: can acceptance be reached?"""
    flags: Bools = _distance(_Predecessors(table), accepting) < len(table)
    return flags


class _Predecessors:
    """For each state the states that lead to it, in one array."""

    def __init__(self, table: Int32) -> None:
        targets = table.ravel()
        self.num_states, columns = table.shape
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


def _distance(predecessors: _Predecessors, accepting: Bools) -> Int64:
    """Int64[states], the length of the shortest accepted string; the number of states where there is none."""
    distance = np.where(accepting, 0, predecessors.num_states).astype(np.int64)
    frontier = np.flatnonzero(accepting)
    steps = 0
    while len(frontier):
        steps += 1
        before = predecessors.of(frontier)
        frontier = before[distance[before] == predecessors.num_states]
        distance[frontier] = steps
    return distance


def _split(table: Int32, block: Int64, size: Int64, affected: Int64) -> tuple[Int64, Int64, Int64]:
    """Split blocks by where their states lead; returns the blocks, their sizes, and the states with a new number.

    All states of a block that are not in `affected` lead to the same blocks, and to others than any affected state does.
    """
    own = block[affected]
    group, first = _number_rows(np.column_stack([own, block[table[affected]]]))
    group_size = np.bincount(group)
    group_block = own[first]
    untouched = size - np.bincount(own, minlength=len(size))
    # Of each block the largest part keeps the number: one of its groups, or what is not affected.
    order = np.lexsort((-group_size, group_block))
    largest = order[np.concatenate([[True], np.diff(group_block[order]) > 0])] if len(order) else order
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


def _number_rows(rows: Int64) -> tuple[Int64, Int64]:
    """For each row its number, equal rows alike, and for each number its first row."""
    keys = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    names: dict[bytes, int] = {}
    first: list[int] = []
    numbers = []
    for index, key in enumerate(keys.tolist()):
        number = names.setdefault(key, len(names))
        if number == len(first):
            first.append(index)
        numbers.append(number)
    return np.array(numbers, dtype=np.int64), np.array(first, dtype=np.int64)
