"""Deterministic automata over bytes or token ids, as dense tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.constraints.trie import Trie
from locore.limits import check_progress

Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]
SIMPLIFYING = "merging the states of an automaton", "use fewer phrases at once, or smaller repeat counts"


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


def aho_corasick(patterns: Iterable[Sequence[int]]) -> Automaton:
    """Accepts the strings that contain one of `patterns`.

    Aho and Corasick, "Efficient string matching", CACM 1975. The failure of a node is the longest proper suffix of it that
    some pattern begins with. Where a node has no child it moves as its failure does, and the failure of its child is where its
    own failure moves to; a failure is shallower than its node, so one depth at a time is enough. Once a pattern has been read
    the automaton stays in one accepting state.
    """
    strings = sorted({tuple(pattern) for pattern in patterns})
    symbols = sorted({symbol for string in strings for symbol in string})
    column = {symbol: index + 1 for index, symbol in enumerate(symbols)}  # column 0: symbols that occur in no pattern
    columns = np.array([column[symbol] for string in strings for symbol in string], dtype=np.int32)
    trie = Trie.of(columns, np.array([len(string) for string in strings], dtype=np.int64))
    table = np.zeros((trie.num_nodes, len(symbols) + 1), dtype=np.int32)
    accepting, failure = trie.ends > 0, np.zeros(trie.num_nodes, dtype=np.int32)
    for parents, read, children in trie.levels:
        failure[children] = np.where(parents == 0, 0, table[failure[parents], read])
        table[parents, read] = children
        table[children] = table[failure[children]]
        accepting[children] |= accepting[failure[children]]
    if accepting.any():
        table[accepting] = np.argmax(accepting)
    return _reachable(Automaton(table, accepting, column, default=0))


def minimise(automaton: Automaton) -> Automaton:
    """The automaton of the same language with the fewest states, its start at 0.

    Moore's partition refinement: states stay together while they agree on acceptance and on the
    classes of all their successors. The price of a round is one pass over the table; the number of
    rounds is the length of the longest string needed to tell two states apart.
    """
    trimmed = _reachable(automaton)
    blocks = trimmed.accepting.astype(np.int32)
    num_blocks = np.unique(blocks).size
    while True:
        check_progress(*SIMPLIFYING)
        blocks = _number_rows(np.column_stack([blocks, blocks[trimmed.table]]))
        members = np.unique(blocks, return_index=True)[1]
        if members.size == num_blocks:
            break
        num_blocks = members.size
    return Automaton(
        blocks[trimmed.table[members]],
        trimmed.accepting[members],
        automaton.column,
        automaton.default,
        start=int(blocks[trimmed.start]),
    )


def merge_alike(automaton: Automaton) -> Automaton:
    """The same language with fewer states: those of equal acceptance and equal rows are merged, again and again.

    Far cheaper than `minimise`, which it equals on trees; states that are equal only through a cycle stay apart.
    """
    merged = automaton
    while True:
        check_progress(*SIMPLIFYING)
        blocks = _number_rows(np.column_stack([merged.accepting.astype(np.int32), merged.table]))
        members = np.unique(blocks, return_index=True)[1]
        if members.size == merged.num_states:
            return merged
        table, accepting = blocks[merged.table[members]], merged.accepting[members]
        merged = Automaton(table, accepting, merged.column, merged.default, int(blocks[merged.start]))


def _number_rows(rows: Int32) -> Int32:
    """For each row its number, equal rows alike, in the order of first occurrence."""
    numbers: dict[bytes, int] = {}
    keys = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel().tolist()
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)


def _reachable(automaton: Automaton) -> Automaton:
    """The same automaton without unreachable states, numbered breadth first from the start 0."""
    number = np.full(automaton.num_states, -1, dtype=np.int32)
    number[automaton.start] = 0
    frontier = order = np.array([automaton.start])
    while frontier.size:
        successors, first = np.unique(automaton.table[frontier], return_index=True)
        successors = successors[np.argsort(first)]
        frontier = successors[number[successors] < 0]
        number[frontier] = np.arange(order.size, order.size + frontier.size)
        order = np.concatenate([order, frontier])
    return Automaton(
        number[automaton.table[order]],
        automaton.accepting[order],
        automaton.column,
        automaton.default,
    )
