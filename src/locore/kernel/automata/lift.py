"""Byte automata read as token automata, so that a constraint on text covers every tokenisation.

A token is a string of bytes, and a string of bytes is a function from states to states. Few of these functions differ: they
are hash-consed while a trie of the vocabulary is walked level by level. And most states agree on most of them, because an
automaton forgets: a function is kept as the state that one reference state goes to, and the states that go elsewhere. Reading
one more byte can only make that list shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from locore.kernel.automata.tables import Automaton, Trie
from locore.kernel.limits import check_progress
from locore.kernel.plugins import cached_property

PROGRESS = "reading the vocabulary with the constraint", "fewer phrases, smaller repeat counts"

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenAutomaton:
    """An automaton over token ids whose transitions are given by few distinct functions.

    Attributes:
        function: Int64[vocab], which function a token is; -1 for a token without bytes.
        base: Int32[functions], where every state goes that is no exception.
        first: Int64[functions + 1], where the exceptions of each function begin.
        states, targets: Int32[exceptions], states in increasing order within a function, and where they go.
        accepting: Bool[states].
        start: first state.
    """

    function: Int64
    base: Int32
    first: Int64
    states: Int32
    targets: Int32
    accepting: NDArray[np.bool_]
    start: int

    @cached_property
    def functions(self) -> Int32:
        """Int32[functions, states]: all targets, as a dense table."""
        table = np.repeat(self.base[:, None], len(self.accepting), axis=1)
        owner = np.repeat(np.arange(len(self.base)), np.diff(self.first))
        table[owner, self.states] = self.targets
        return table


@lru_cache(maxsize=4)
def vocabulary_trie(token_bytes: tuple[bytes | None, ...]) -> Trie:
    """The trie of a vocabulary; the node of special tokens, which are None, is -1."""
    contents = [content or b"" for content in token_bytes]
    data = np.frombuffer(b"".join(contents), dtype=np.uint8)
    trie = Trie.of(data, np.array([len(content) for content in contents], dtype=np.int64))
    special = np.array([content is None for content in token_bytes], dtype=np.bool_)
    return replace(trie, node=np.where(special, -1, trie.node))


@lru_cache(maxsize=4)
def spelling_order(token_bytes: tuple[bytes | None, ...]) -> Int64:
    """Int64[vocab]: the rank of each token when they are sorted by their bytes."""
    order = sorted(range(len(token_bytes)), key=lambda token: token_bytes[token] or b"")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def lift_bytes(automaton: Automaton, token_bytes: Sequence[bytes | None]) -> TokenAutomaton:
    """Read a byte automaton token by token. Tokens without bytes (special ones) get function -1."""
    trie = vocabulary_trie(tuple(token_bytes))
    column = np.full(256, automaton.default, dtype=np.int64)
    for symbol, number in automaton.column.items():
        column[symbol] = number
    functions = _Functions(automaton.table)
    after: dict[int, int] = {}
    width = automaton.table.shape[1]
    of_node = [np.zeros(1, dtype=np.int64)]
    previous = 0  # nodes above the level of the parents
    for parents, symbols, _ in trie.levels:
        keys = of_node[-1][parents - previous] * width + column[symbols]
        distinct, inverse = np.unique(keys, return_inverse=True)
        for key in distinct.tolist():
            if key not in after:
                after[key] = functions.compose(*divmod(key, width))
        previous += len(of_node[-1])
        of_node.append(np.array([after[key] for key in distinct.tolist()], dtype=np.int64)[inverse])
    every = np.concatenate(of_node)
    function = np.where(trie.node >= 0, every[trie.node], -1)
    return functions.automaton(function, automaton.accepting, automaton.start)


def lift_tokens(automaton: Automaton, vocab_size: int) -> TokenAutomaton:
    """The same form for an automaton that is over token ids already."""
    function = np.full(vocab_size, automaton.default, dtype=np.int64)
    for symbol, number in automaton.column.items():
        if symbol < vocab_size:
            function[symbol] = number
    functions = _Functions(automaton.table)
    numbers = np.array([functions.compose(0, c) for c in range(automaton.table.shape[1])], dtype=np.int64)
    return functions.automaton(numbers[function], automaton.accepting, automaton.start)


class _Functions:
    """Hash-consed functions from states to states; number 0 is the identity."""

    def __init__(self, table: Int32) -> None:
        self.table = np.ascontiguousarray(table.T)  # one symbol's column is one stretch of memory
        reference = _typical_state(table)
        others = np.delete(np.arange(len(table), dtype=np.int32), reference)
        self.items: list[tuple[int, Int32, Int32]] = [(reference, others, others)]
        self.number_of: dict[tuple[int, bytes, bytes], int] = {}

    def compose(self, function: int, column: int) -> int:
        """The number of "first `function`, then a symbol of this column"."""
        check_progress(*PROGRESS)
        base, states, targets = self.items[function]
        moves = self.table[column]
        base = int(moves[base])
        targets = moves[targets]
        differ = targets != base
        states, targets = states[differ], targets[differ]
        number = self.number_of.setdefault((base, states.tobytes(), targets.tobytes()), len(self.items))
        if number == len(self.items):
            self.items.append((base, states, targets))
        return number

    def automaton(self, function: Int64, accepting: NDArray[np.bool_], start: int) -> TokenAutomaton:
        """All functions together."""
        bases, states, targets = zip(*self.items, strict=True)
        first = np.concatenate([[0], np.cumsum([len(s) for s in states])])
        base = np.array(bases, dtype=np.int32)
        return TokenAutomaton(function, base, first, np.concatenate(states), np.concatenate(targets), accepting, start)


def _typical_state(table: Int32) -> int:
    """The state that agrees with most others on most symbols; of a search that is its start, of a grammar its failure."""
    agreement = np.zeros(len(table), dtype=np.int64)
    for column in range(table.shape[1]):
        agreement += np.bincount(table[:, column], minlength=len(table))[table[:, column]]
    return int(agreement.argmax())


def fates(automaton: TokenAutomaton) -> NDArray[np.int8]:
    """Int8[states]: 1 if every continuation is accepted, 0 if none is, -1 if it depends."""
    may = {True: automaton.accepting.copy(), False: ~automaton.accepting}
    for flags in may.values():
        while True:
            more = flags | flags[automaton.functions].any(0)
            if (more == flags).all():
                break
            flags |= more
    return np.where(may[False] & may[True], -1, may[True].astype(np.int8)).astype(np.int8)
