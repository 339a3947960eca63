"""The prefixes of some strings as a tree, built for all strings at once, one symbol a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Trie:
    """Nodes are numbered by depth, the root is 0.

    Attributes:
        levels: for each depth the parents, symbols and children of its edges, Int32[edges] each.
        ends: Int32[nodes], how many of the strings end there.
    """

    levels: list[tuple[Ints, Ints, Ints]]
    ends: Ints

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.ends)

    @classmethod
    def of(cls, symbols: Ints, lengths: NDArray[np.int64]) -> Trie:
        """The tree of strings that are given one after the other.

        Args:
            symbols: Int32[sum of lengths]; strings that begin alike must be neighbours, as they are in a sorted list.
            lengths: Int64[strings].
        """
        first = np.cumsum(lengths) - lengths
        place = np.zeros(len(lengths), dtype=np.int32)  # the node that each string has reached
        alive = np.flatnonzero(lengths > 0)
        levels: list[tuple[Ints, Ints, Ints]] = []
        num_nodes = 1
        while alive.size:
            parent, symbol = place[alive], symbols[first[alive] + len(levels)]
            is_new = np.append(True, (parent[1:] != parent[:-1]) | (symbol[1:] != symbol[:-1]))
            child = (num_nodes - 1 + np.cumsum(is_new)).astype(np.int32)
            levels.append((parent[is_new], symbol[is_new], child[is_new]))
            num_nodes += int(is_new.sum())
            place[alive] = child
            alive = alive[lengths[alive] > len(levels)]
        return cls(levels, np.bincount(place, minlength=num_nodes).astype(np.int32))
