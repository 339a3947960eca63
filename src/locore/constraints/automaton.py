"""Deterministic automata over bytes or token ids, as dense tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]


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

    Aho and Corasick, "Efficient string matching", CACM 1975. Once a pattern has been read the
    automaton stays in one accepting state.
    """
    trie = _Trie(patterns)
    table, accepting = _follow_failures(trie)
    table[accepting] = np.argmax(accepting)
    return _reachable(Automaton(table, accepting, trie.column, default=0))


def ends_with_one_of(patterns: Iterable[Sequence[int]]) -> Automaton:
    """Accepts the strings that end with one of `patterns`."""
    trie = _Trie(patterns)
    table, accepting = _follow_failures(trie)
    return Automaton(table, accepting, trie.column, default=0)


def one_of(strings: Iterable[Sequence[int]]) -> Automaton:
    """Accepts exactly `strings`."""
    trie = _Trie(strings)
    dead = trie.num_nodes
    table = np.full((dead + 1, len(trie.column) + 1), dead, dtype=np.int32)
    for parents, columns, children in trie.levels():
        table[parents, columns] = children
    accepting = np.zeros(dead + 1, dtype=np.bool_)
    accepting[trie.ends] = True
    return Automaton(table, accepting, trie.column, default=0)


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


class _Trie:
    """The prefixes of some strings as a tree: nodes by breadth, the root 0.

    Column 0 is for symbols that occur in no string.
    """

    def __init__(self, strings: Iterable[Sequence[int]]) -> None:
        strings = sorted({tuple(string) for string in strings})
        symbols = sorted({symbol for string in strings for symbol in string})
        self.column = {symbol: index + 1 for index, symbol in enumerate(symbols)}
        self.num_nodes = 1
        self.ends: list[int] = []
        self._edges: list[list[tuple[int, int, int]]] = []
        self._build(strings)

    def _build(self, strings: list[tuple[int, ...]]) -> None:
        # All strings grow one symbol a round; sorted, equal prefixes are neighbours.
        alive = [(string, 0) for string in strings]
        depth = 0
        while alive:
            self.ends += [node for string, node in alive if len(string) == depth]
            edges: list[tuple[int, int, int]] = []
            longer = []
            for string, node in alive:
                if len(string) == depth:
                    continue
                column = self.column[string[depth]]
                if not edges or edges[-1][:2] != (node, column):
                    edges.append((node, column, self.num_nodes))
                    self.num_nodes += 1
                longer.append((string, edges[-1][2]))
            self._edges += [edges] if edges else []
            alive, depth = longer, depth + 1

    def levels(self) -> Iterable[tuple[Int32, Int32, Int32]]:
        """Parents, columns and children of the edges, one depth after the other."""
        for edges in self._edges:
            parents, columns, children = np.array(edges, dtype=np.int32).T
            yield parents, columns, children


def _follow_failures(trie: _Trie) -> tuple[Int32, Bools]:
    """The Aho-Corasick table of a trie, and which states end with a pattern.

    The failure of a node is the longest proper suffix of it that is in the trie. Where a node has
    no child it moves as its failure does, and the failure of its child is where its own failure
    moves to. A failure is shallower than its node, so one depth at a time is enough.
    """
    table = np.zeros((trie.num_nodes, len(trie.column) + 1), dtype=np.int32)
    accepting = np.zeros(trie.num_nodes, dtype=np.bool_)
    accepting[trie.ends] = True
    failure = np.zeros(trie.num_nodes, dtype=np.int32)
    for parents, columns, children in trie.levels():
        is_root = parents == 0
        failure[children] = np.where(is_root, 0, table[failure[parents], columns])
        table[parents, columns] = children
        table[children] = table[failure[children]]
        accepting[children] |= accepting[failure[children]]
    return table, accepting
