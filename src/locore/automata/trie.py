"""The prefixes of some strings as a tree, built for all strings at once, one symbol a round; and the search for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locore.automata.automaton import Automaton
from locore.automata.tables import reachable

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Trie:
    """Nodes are numbered by depth, the root is 0.

    Attributes:
        levels: for each depth from 1 on the parents, symbols and children of its edges, Int64[edges] each.
        node: Int64[strings], the node at which each string ends.
        num_nodes: with the root.
    """

    levels: list[tuple[Int64, Int64, Int64]]
    node: Int64
    num_nodes: int

    @classmethod
    def of(cls, symbols: NDArray[np.integer], lengths: Int64) -> Trie:
        """The tree of strings that are given one after the other.

        Args:
            symbols: Int[sum of lengths].
            lengths: Int64[strings].
        """
        first = np.cumsum(lengths) - lengths
        width = int(symbols.max(initial=0)) + 1
        node = np.zeros(len(lengths), dtype=np.int64)
        alive = np.flatnonzero(lengths > 0)
        levels: list[tuple[Int64, Int64, Int64]] = []
        num_nodes = 1
        while alive.size:
            keys = node[alive] * width + symbols[first[alive] + len(levels)]
            distinct, which = np.unique(keys, return_inverse=True)
            levels.append((distinct // width, distinct % width, num_nodes + np.arange(len(distinct))))
            node[alive] = num_nodes + which
            num_nodes += len(distinct)
            alive = alive[lengths[alive] > len(levels)]
        return cls(levels, node, num_nodes)

    @property
    def ends(self) -> Int32:
        """Int32[nodes], how many of the strings end there."""
        return np.bincount(self.node, minlength=self.num_nodes).astype(np.int32)


def search_table(trie: Trie, inside: Bools) -> tuple[Int32, Int32]:
    """The search of Aho and Corasick ("Efficient string matching", CACM 1975), in which no occurrence starts inside a word.

    The failure of a node is the longest proper suffix of it with which a string may begin there. Where a node has no child it
    moves as its failure does, and the failure of its child is where its own failure moves to; a failure is shallower than its
    node, so one depth at a time is enough. If nothing is left to begin with, the search is in state 0, or after a character of
    a word in the last state.

    Args:
        trie: of the strings, over columns.
        inside: Bool[columns], which columns are characters of words; none if words do not matter.

    Returns:
        Int32[nodes + 1, columns], the next state; and how many strings end in each state.
    """
    after_word = trie.num_nodes
    idle = np.where(inside, after_word, 0).astype(np.int32)
    table = np.empty((after_word + 1, len(inside)), dtype=np.int32)
    table[[0, after_word]] = idle
    ends, failure = np.append(trie.ends, 0), np.zeros(after_word + 1, dtype=np.int32)
    for depth, (parents, columns, children) in enumerate(trie.levels):
        failure[children] = idle[columns] if depth == 0 else table[failure[parents], columns]
        table[parents, columns] = children
        if depth == 0:
            free = ~inside[columns]
            table[after_word, columns[free]] = children[free]
        table[children] = table[failure[children]]
        ends[children] += ends[failure[children]]
    return table, ends


def aho_corasick(patterns: Iterable[Sequence[int]]) -> Automaton:
    """Accepts the strings that contain one of `patterns`: once one has been read, it stays in one accepting state."""
    strings = list({tuple(pattern) for pattern in patterns})
    symbols = sorted({symbol for string in strings for symbol in string})
    column = {symbol: index + 1 for index, symbol in enumerate(symbols)}  # column 0: symbols that occur in no pattern
    columns = np.array([column[symbol] for string in strings for symbol in string], dtype=np.int32)
    trie = Trie.of(columns, np.array([len(string) for string in strings], dtype=np.int64))
    table, ends = search_table(trie, np.zeros(len(symbols) + 1, dtype=np.bool_))
    accepting = ends > 0
    table[accepting] = np.argmax(accepting)
    order, table = reachable(table)
    return Automaton(table, accepting[order], column, default=0)
