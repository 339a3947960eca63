"""All tokens of a vocabulary read at once: from a state of a machine over bytes on, level by level of their trie.

Most states of texts take most characters and stay where they are, as within a string. So tokens of *plain* characters alone are
answered together wherever these change nothing, and only tokens with another byte in them are followed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.lift import vocabulary_trie
from locore.kernel.plugins import cached_property

Int32 = NDArray[np.int32]
Nodes = NDArray[np.int64]
Flags = NDArray[np.bool_]
DEAD = -1
PLAIN = tuple(byte for byte in range(0x20, 0x7F) if byte not in (0x22, 0x5C))  # of ASCII, without quote and backslash
IS_PLAIN = np.zeros(256, dtype=np.bool_)
IS_PLAIN[list(PLAIN)] = True
Step = Callable[[Int32, Nodes], Int32]


class Walk:
    """The trie of a vocabulary, read from the root on.

    Attributes:
        tokens: Int64[tokens with bytes], those that are no special ones, sorted by their bytes.
        longest: token, in bytes.
    """

    def __init__(self, token_bytes: tuple[bytes | None, ...]) -> None:
        """Of the bytes of each token, None for special ones."""
        self.trie = trie = vocabulary_trie(token_bytes)
        self.size = len(token_bytes)
        self._symbols = np.concatenate([np.zeros(1, dtype=np.int64), *(symbols for _, symbols, _ in trie.levels)])
        self._counts = np.zeros(trie.num_nodes, dtype=np.int64)
        self._first = np.zeros(trie.num_nodes, dtype=np.int64)
        self._depth = np.zeros(trie.num_nodes, dtype=np.int64)
        for level, (parents, _, children) in enumerate(trie.levels, 1):  # the children of a node are neighbours
            own, first, counts = np.unique(parents, return_index=True, return_counts=True)
            self._first[own], self._counts[own] = children[first], counts
            self._depth[children] = level
        contents = sorted((content, token) for token, content in enumerate(token_bytes) if content is not None)
        self.contents = frozenset(content for content, _ in contents)
        self.tokens = np.array([token for _, token in contents], dtype=np.int64)
        self._ends = trie.node[self.tokens]
        self.longest = len(trie.levels)
        self._last_special = np.array(
            [max((place for place, byte in enumerate(content) if not IS_PLAIN[byte]), default=-1) for content, _ in contents],
            dtype=np.int64,
        )
        counts = np.bincount(self._ends, minlength=trie.num_nodes)
        deepest = np.full(trie.num_nodes, -1)
        np.maximum.at(deepest, self._ends, self._last_special)
        for parents, _, children in reversed(trie.levels):
            np.add.at(counts, parents, counts[children])
            np.maximum.at(deepest, parents, deepest[children])
        first = np.zeros(trie.num_nodes, dtype=np.int64)
        own = np.bincount(self._ends, minlength=trie.num_nodes)
        for parents, _, children in trie.levels:  # behind the tokens that end at the parent, and the children before
            before = np.cumsum(counts[children]) - counts[children]
            starts = np.searchsorted(parents, parents, side="left")
            first[children] = first[parents] + own[parents] + before - before[starts]
        self._below, self._through = first, counts  # the tokens through a node are neighbours in the order of their bytes
        self._own = own
        self.parents = np.zeros(trie.num_nodes, dtype=np.int64)
        for parents, _, children in trie.levels:
            self.parents[children] = parents
        self._leads_on = deepest >= self._depth - 1  # to a token with a byte that is not plain, this one or a later one
        self.root = Branch(self, np.zeros(1, dtype=np.int64))

    def after(self, state: int, step: Step, is_plain: Callable[[Int32], Flags]) -> Int32:
        """Int32[tokens with bytes], in the order of `tokens`: the state after each, or one that is as good.

        Args:
            step: the states after some states and bytes; DEAD where nothing goes on.
            is_plain: of states, whether any plain text of a token's length leads to a state that is as good as this one.
        """
        after = np.full(self.trie.num_nodes, DEAD, dtype=np.int32)
        after[0] = state
        nodes = np.zeros(1, dtype=np.int64)
        plain = is_plain(after[nodes])
        entered = [nodes[plain]]  # nodes behind which plain tokens are answered together
        while len(nodes):
            nodes, symbols, parents, from_plain = self._children(nodes, plain)
            targets = step(after[parents], symbols)
            alive = targets != DEAD
            nodes, targets = nodes[alive], targets[alive]
            after[nodes] = targets
            plain = is_plain(targets)
            entered.append(nodes[plain & ~(from_plain[alive] & IS_PLAIN[symbols[alive]])])
        states = after[self._ends]
        places, owners = self._plain_below(np.concatenate(entered))
        states[places] = after[owners]
        return states

    def states(self, start: int, step: Step) -> Int32:
        """Int32[nodes]: the state behind each beginning of a token, DEAD where none can come."""
        after = np.full(self.trie.num_nodes, DEAD, dtype=np.int32)
        after[0] = start
        for parents, symbols, children in self.trie.levels:
            before = after[parents]
            alive = before != DEAD
            if not alive.any():
                break
            after[children[0] : children[-1] + 1][alive] = step(before[alive], symbols[alive])  # they are neighbours
        return after

    def ends(self, values: NDArray[Any]) -> NDArray[Any]:
        """Of values of all nodes, those of tokens with bytes, in the order of `tokens`."""
        return values[self._ends]

    def children(self, nodes: Nodes) -> tuple[Nodes, Nodes]:
        """The children of some nodes, and their bytes."""
        counts = self._counts[nodes]
        children = _ranges(self._first[nodes], counts)
        return children, self._symbols[children]

    def tokens_at(self, nodes: Nodes) -> Nodes:
        """The ids of the tokens that end at some nodes."""
        return self.tokens[_ranges(self._below[nodes], self._own[nodes])]

    def tokens_through(self, nodes: Nodes) -> Nodes:
        """The ids of the tokens that end at some nodes or go on from them."""
        return self.tokens[_ranges(self._below[nodes], self._through[nodes])]

    def _children(self, nodes: Nodes, plain: Flags) -> tuple[Nodes, Nodes, Nodes, Flags]:
        """The children of some nodes, their bytes, their parents, and which of these are plain; of plain ones only some."""
        counts = self._counts[nodes]
        parents, from_plain = np.repeat(nodes, counts), np.repeat(plain, counts)
        children = _ranges(self._first[nodes], counts)
        if plain.any():
            followed = ~from_plain | self._leads_on[children]
            children, parents, from_plain = children[followed], parents[followed], from_plain[followed]
        return children, self._symbols[children], parents, from_plain

    def _plain_below(self, nodes: Nodes) -> tuple[Nodes, Nodes]:
        """The places, among the sorted tokens, of those that go on from one of these nodes by plain bytes; and that node."""
        counts = self._through[nodes]
        owners, places = np.repeat(nodes, counts), _ranges(self._below[nodes], counts)
        plain = self._last_special[places] < self._depth[owners]
        return places[plain], owners[plain]

    @cached_property
    def spells_every_byte(self) -> bool:
        """Is each byte of UTF-8 a token of its own?

        The first bytes of planes without characters (F1 to F4) are not asked for, as vocabularies trained on texts lack them.
        """
        return all(bytes([byte]) in self.contents for byte in (*range(0x20, 0xC0), *range(0xC2, 0xF1)))


class Branch:
    """Places in the trie of a vocabulary that are read as one: what tokens go on with behind the same bytes, or behind what is
    as good.

    Attributes:
        nodes: Int64[places].
    """

    def __init__(self, walk: Walk, nodes: Nodes) -> None:
        self.walk, self.nodes = walk, nodes

    @cached_property
    def children(self) -> dict[int, Branch]:
        """By the byte that comes next."""
        nodes, symbols = self.walk.children(self.nodes)
        if len(self.nodes) == 1:
            return {byte: Branch(self.walk, nodes[place : place + 1]) for place, byte in enumerate(symbols.tolist())}
        order = np.argsort(symbols, kind="stable")
        distinct, first = np.unique(symbols[order], return_index=True)
        parts = np.split(nodes[order], first)[1:]
        return {byte: Branch(self.walk, part) for byte, part in zip(distinct.tolist(), parts, strict=True)}

    @cached_property
    def tokens(self) -> Nodes:
        """Int64[tokens]: those that end here."""
        return self.walk.tokens_at(self.nodes)

    @property
    def through(self) -> Nodes:
        """Int64[tokens]: those that end here or go on."""
        return self.walk.tokens_through(self.nodes)


def _ranges(first: Nodes, counts: Nodes) -> Nodes:
    """The numbers of ranges, one range after the other."""
    if len(first) == 1:
        return np.arange(first[0], first[0] + counts[0])
    ranges: Nodes = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    return ranges


@lru_cache(maxsize=4)
def walk_of(token_bytes: tuple[bytes | None, ...]) -> Walk:
    """The walk over a vocabulary."""
    return Walk(token_bytes)
